"""Graphs of sites with gaps and different nodes: the problem that is solved, and what is found in it."""

import cvxpy as cp
import numpy as np
import pytest

from silograph.kernels.edge_mixture import posterior
from silograph.kernels.edges import pairs
from silograph.kernels.gaps import moments_with_gaps, pair_rows
from silograph.methods import edge_evidence, joint_graphs
from silograph.methods.edge_evidence import FIRST_PASS, GROUPED
from silograph.methods.joint_graphs import learn_graphs

NODES, SITES = 6, 3
A, B = pairs(NODES)


def tables(rows=400, seed=0, sites=SITES):
    """A chain of positive and negative relations."""
    rng, precision = np.random.default_rng(seed), 1.6 * np.eye(NODES)
    for a, weight in enumerate([-0.6, 0.5, -0.6, 0.6, -0.5]):
        precision[a, a + 1] = precision[a + 1, a] = weight
    root = np.linalg.cholesky(np.linalg.inv(precision))
    return [rng.standard_normal((rows, NODES)) @ root.T for _ in range(sites)]


def asked(some):
    moments = np.array([moments_with_gaps(x)[0] for x in some])
    return moments, np.array([float(len(x)) for x in some]), np.array([pair_rows(x) for x in some])


def unshared(some):
    """Site 0 lacks node 5, site 1 node 0, and site 2 saw nodes 2 and 3 in different rows."""
    some = [x.copy() for x in some]
    some[0][:, 5] = some[1][:, 0] = np.nan
    some[2][::2, 2] = some[2][1::2, 3] = np.nan
    return some


def test_where_nothing_is_missing_it_is_the_complete_problem_bit_for_bit():
    some = tables()
    moments, counts = np.array([np.cov(x.T, bias=True) for x in some]), np.array([400.0] * SITES)
    plain = learn_graphs(moments, counts)
    masked = learn_graphs(moments, counts, pair_rows=np.array([pair_rows(x) for x in some]))
    for name in ("precision", "probability", "shared", "consensus", "signs", "consensus_signs", "drawn_to_mean"):
        assert getattr(plain, name).tobytes() == getattr(masked, name).tobytes()
    assert (plain.prior, plain.reason, plain.path, plain.gap) == (masked.prior, masked.reason, masked.path, masked.gap)


def test_the_mixture_with_the_same_rows_for_every_pair_is_the_plain_one():
    """But for rounding of rows while the prior is learned, within .02."""
    rng, counts = np.random.default_rng(1), np.array([100.0, 200.0, 400.0])
    truth = np.where(rng.random(2000) < 0.1, 0.35, 0.0)
    r = truth + rng.standard_normal((3, 2000)) / np.sqrt(counts)[:, None]
    plain, by_pair = posterior(r, counts), posterior(r, np.repeat(counts[:, None], 2000, 1))
    np.testing.assert_allclose(by_pair.site, plain.site, atol=0.02)
    np.testing.assert_allclose(by_pair.shared, plain.shared, atol=0.02)


def test_a_pair_that_a_site_never_saw_counts_for_nothing():
    rng, counts = np.random.default_rng(2), np.full((3, 2000), 200.0)
    r = np.where(rng.random(2000) < 0.1, 0.35, 0.0) + rng.standard_normal((3, 2000)) / np.sqrt(200.0)
    counts[0, :1000] = 0.0
    found = posterior(r, counts)
    absurd = r.copy()
    absurd[0, :1000] = rng.standard_normal(1000)
    again = posterior(absurd, counts)
    np.testing.assert_allclose(again.site, found.site, atol=1e-12)
    np.testing.assert_allclose(again.shared, found.shared, atol=1e-12)
    assert found.site[0, :1000][found.shared[:1000] > 0.99].min() > 0.5  # what the others say


@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_first_pass_solves_the_masked_problem(nonnegative, monkeypatch):
    """Against cvxpy: penalties by the rows of a pair, held at 0 where a site never saw it, coupled where it did."""
    found = {}
    real = joint_graphs.joint_evidence
    monkeypatch.setattr(
        joint_graphs, "joint_evidence", lambda *given: found.setdefault("given", given) and real(*given)
    )
    moments, counts, rows = asked(unshared(tables()))
    learn_graphs(moments, counts, pair_rows=rows, nonnegative=nonnegative)
    correlations, base, *_, every = found["given"]
    solved = edge_evidence._first_pass(correlations, base, nonnegative, 1e-9, pair_rows=every)
    strength = FIRST_PASS * np.sqrt(np.log(NODES) / base.mean())
    nu = base / base.mean()
    theta = [cp.Variable((NODES, NODES), symmetric=True) for _ in range(SITES)]
    goal = sum(nu[k] * (cp.trace(correlations[k] @ theta[k]) - cp.log_det(theta[k])) for k in range(SITES))
    rules = []
    for e, (a, b) in enumerate(zip(A, B, strict=True)):
        seen = every[:, e] > 0.0
        edge = cp.hstack([theta[k][a, b] for k in range(SITES)])
        goal += 2.0 * GROUPED * strength * np.sqrt(seen.sum()) * cp.norm(edge)
        for k in range(SITES):
            if not seen[k]:
                rules.append(theta[k][a, b] == 0.0)
                continue
            own = (1.0 - GROUPED) * strength * np.sqrt(nu[k] * base[k] / every[k, e])
            goal += 2.0 * own * cp.abs(theta[k][a, b])
            if nonnegative:
                rules.append(theta[k][a, b] <= 0.0)
    problem = cp.Problem(cp.Minimize(goal), rules)
    problem.solve(solver=cp.CLARABEL)
    assert solved.objective == pytest.approx(problem.value, abs=1e-5)
    assert solved.objective - solved.gap <= problem.value + 1e-6  # the certificate is one of this problem
    np.testing.assert_allclose(solved.theta, [each.value for each in theta], atol=2e-3)


def test_sites_draw_what_they_could_see_and_the_chain_is_found():
    moments, counts, rows = asked(unshared(tables()))
    learned = learn_graphs(moments, counts, pair_rows=rows)
    seen = rows[:, A, B] > 0.0
    assert not (learned.signs != 0)[~seen].any()
    assert not learned.probability[~seen].any()
    chain = np.array([1, -1, 1, -1, 1])
    assert [int(s) for s in learned.consensus_signs[A + 1 == B]] == chain.tolist()
    assert (learned.consensus_signs != 0).sum() <= 6
    assert learned.gap < 1e-3
    assert learned.first_gap < 2e-3


def test_a_pair_that_nobody_saw_is_no_edge_of_the_consensus():
    some = [x.copy() for x in tables()]
    for x in some:
        x[::2, 0] = x[1::2, 1] = np.nan
    moments, counts, rows = asked(some)
    learned = learn_graphs(moments, counts, pair_rows=rows, density=1.0, consensus_edges=15)
    assert learned.shared[0] == learned.consensus_signs[0] == 0
    assert (learned.consensus_signs != 0).sum() == 14


@pytest.mark.parametrize("criterion", ["expected-F", "ebic"])
def test_gaps_leave_the_graph_that_complete_rows_have(criterion):
    rng = np.random.default_rng(3)
    some = [np.where(rng.random(x.shape) < 0.3, np.nan, x) for x in tables(1000)]
    moments, counts, rows = asked(some)
    learned = learn_graphs(moments, counts, pair_rows=rows, criterion=criterion)
    np.testing.assert_array_equal(learned.consensus_signs != 0, A + 1 == B)
    assert (learned.effective_rows < 600.0).all()  # as many as see a pair, not all 1000


def test_folds_of_sites_that_lack_nodes_do_not_count_what_is_not_there():
    some = unshared(tables())
    folds = np.array([moments_with_gaps(x, 5) for x in some])
    moments, counts, rows = asked(some)
    learned = learn_graphs(moments, counts, pair_rows=rows, folds=folds)
    assert (learned.effective_rows > 0.5 * rows[:, A, B].sum(1) / (rows[:, A, B] > 0).sum(1)).all()
