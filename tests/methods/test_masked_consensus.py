"""The papers' problem (8) of sites that lack nodes: solved exactly, with a certificate, on all pairs and on lists."""

import cvxpy as cp
import numpy as np
import pytest

from silograph.kernels.edges import pairs
from silograph.kernels.own_nodes import own_of
from silograph.kernels.spaces import AllPairs, EdgeList
from silograph.methods.consensus_graph import ExactConsensus
from silograph.run.loop import simulate
from silograph.tasks.smooth_graph import SmoothGraph

NODES, BETA, LAM, NU = 8, 0.05, 0.3, 1.2
LACKS = ((6,), (0, 1), ())
A, B = pairs(NODES)
LIST = EdgeList.of(NODES, A[np.arange(28) % 4 > 0], B[np.arange(28) % 4 > 0])
FIELDS = ("graph", "consensus", "gamma", "smoothness")


def tables(lacks=LACKS, gaps=0.0):
    rng = np.random.default_rng(0)
    mixing, made = 0.4 * rng.standard_normal((NODES, NODES)) + np.eye(NODES), {}
    for k, gone in enumerate(lacks):
        made[f"site_{k}"] = rng.standard_normal((60, NODES)) @ mixing
        made[f"site_{k}"][:, list(gone)] = np.nan
        made[f"site_{k}"][rng.random((60, NODES)) < gaps] = np.nan
    return made


def learned(signals, candidates=None, engine="vector", resamples=0, **given):
    statistic = "distances" if candidates is None else "listed-distances"
    task = SmoothGraph(NODES, statistic, candidates=candidates, resamples=resamples)
    method = ExactConsensus(NODES, candidates=candidates, **({"beta": BETA, "lam": LAM, "nu": NU} | given))
    return simulate(method, task, signals, engine=engine)[0]


def by_cvxpy(signals, space):
    """(a) of `consensus_graph`, each site in the space of its own nodes."""
    own, (a, b) = own_of(LACKS, NODES), space.ends()
    shared, total, sites = cp.Variable(space.size, nonneg=True), 0.0, []
    for here, x in zip(own, signals.values(), strict=True):
        nodes, columns = np.flatnonzero(here), np.flatnonzero(here[a] & here[b])
        z = np.nanmean((x[:, a[columns]] - x[:, b[columns]]) ** 2, axis=0)
        w = cp.Variable(len(columns), nonneg=True)
        ends = np.array([[node in (a[e], b[e]) for e in columns] for node in nodes], dtype=float)
        apart = w - shared[columns]
        total += z @ w - cp.sum(cp.log(ends @ w)) + 2.0 * BETA * cp.sum_squares(w)
        total += LAM * NU * cp.norm(apart) + LAM / len(own) * cp.sum(shared[columns])
        sites.append((columns, w))
    problem = cp.Problem(cp.Minimize(total))
    problem.solve(solver=cp.CLARABEL)
    return problem.value, sites


@pytest.mark.parametrize(("candidates", "gaps"), [(None, 0.0), (None, 0.3), (LIST, 0.0)])
def test_the_certified_optimum_of_the_masked_problem_is_that_of_cvxpy(candidates, gaps):
    signals, space = tables(gaps=gaps), AllPairs(NODES) if candidates is None else candidates
    found = learned(signals, candidates, lacks=LACKS, tolerance=1e-8)
    value, sites = by_cvxpy(signals, space)
    assert found.facts["certified_gap"] <= 1e-8
    assert found.facts["objective"] == pytest.approx(value, abs=1e-5)
    assert found.facts["objective"] * (1.0 - 1e-8) <= value + 1e-6  # the certified floor is below any solver's value
    for graph, (columns, w) in zip(found.arrays["graph"], sites, strict=True):
        np.testing.assert_allclose(graph[columns], w.value, atol=1e-3)
        assert not np.delete(graph, columns).any()


@pytest.mark.parametrize("candidates", [None, LIST], ids=["all pairs", "a list"])
def test_where_nothing_is_missing_it_is_the_complete_problem_bit_for_bit(candidates):
    signals = tables(((), (), ()))
    plain, masked = (learned(signals, candidates, degree=3.0, beta=None, lacks=of) for of in ((), ((), (), ())))
    for name in FIELDS:
        assert plain.arrays[name].tobytes() == masked.arrays[name].tobytes()
    assert plain.facts == masked.facts


def test_both_engines_have_the_same_bits_and_graphs_have_as_large_a_share_of_the_pairs_they_see():
    signals = tables()
    given = {"lacks": LACKS, "beta": None, "lam": None, "nu": None, "degree": 3.0, "resamples": 5}
    vector, silowise = (learned(signals, engine=engine, **given) for engine in ("vector", "silowise"))
    for name in (*FIELDS, "confidence"):
        assert vector.arrays[name].tobytes() == silowise.arrays[name].tobytes()
    own = own_of(LACKS, NODES)
    seen = own[:, A] & own[:, B]
    assert not vector.arrays["confidence"][~seen].any()
    density = (vector.arrays["graph"] > 0.0).sum(1) / seen.sum(1)
    assert density.mean() == pytest.approx(3.0 / (NODES - 1), rel=0.1)


def test_a_pair_that_no_site_sees_is_not_joined_and_costs_nothing():
    lacks = ((6,), (7,), (7,))
    found = learned(tables(lacks), lacks=lacks, tolerance=1e-8)
    unseen = (A == 6) & (B == 7)
    assert found.facts["certified_gap"] <= 1e-8
    assert found.arrays["consensus"][unseen] == 0.0
    assert (found.arrays["consensus"] > 0.0).any()
