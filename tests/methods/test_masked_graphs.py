"""Graphs of sites with gaps and different nodes: the problem that is solved, and what is found in it."""

import cvxpy as cp
import numpy as np
import pytest

from silograph.core.keys import stream
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.kernels.edge_mixture import posterior
from silograph.kernels.edges import pairs
from silograph.kernels.gaps import moments_with_gaps, pair_rows
from silograph.kernels.masks import filled_by_others, filled_up
from silograph.methods import edge_evidence, joint_graphs
from silograph.methods.edge_evidence import FIRST_PASS, GROUPED
from silograph.methods.joint_graphs import learn_graphs
from silograph.methods.moments_once import JointLearner

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


@pytest.mark.parametrize("learn", [learn_graphs, JointLearner().learn])
@pytest.mark.parametrize("law", ["chain", "papers"])
def test_where_nothing_is_missing_it_is_the_complete_problem_bit_for_bit(learn, law):
    graphs = paper_graphs(8200, 3)
    some = tables()
    if law == "papers":
        some = [smooth_signals(np.random.default_rng(k), w, 400) for k, w in enumerate(graphs.local)]
    moments, counts = np.array([np.cov(x.T, bias=True) for x in some]), np.array([400.0] * SITES)
    plain, masked = learn(moments, counts), learn(moments, counts, pair_rows=np.array([pair_rows(x) for x in some]))
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
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_first_pass_solves_the_masked_problem(nonnegative, share, monkeypatch):
    """Against cvxpy: penalties by the rows of a pair; what a site lacks is filled up and costs as its mean pair; what a
    site has but never saw together is held at 0."""
    found = {}
    real = joint_graphs.joint_evidence
    monkeypatch.setattr(
        joint_graphs, "joint_evidence", lambda *given: found.setdefault("given", given) and real(*given)
    )
    rng = np.random.default_rng(5)
    some = [np.where(rng.random(x.shape) < share, np.nan, x) for x in unshared(tables())]
    moments, counts, rows = asked(some)
    learn_graphs(moments, counts, pair_rows=rows, nonnegative=nonnegative)
    alone, base, *_, own_rows = found["given"]
    correlations, every = filled_by_others(alone, own_rows)
    solved = edge_evidence._first_pass(correlations, base, nonnegative, 1e-9, pair_rows=every)
    held = np.zeros((SITES, len(A)), dtype=bool)
    held[2] = (A == 2) & (B == 3)
    np.testing.assert_array_equal(every == 0.0, held)
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


def test_what_a_site_lacks_is_filled_up_by_the_law_of_the_others():
    """By blocks of the precision: the nodes g are -T_gg^-1 T_gh x_h and noise of covariance T_gg^-1."""
    rng = np.random.default_rng(4)
    root, other = rng.standard_normal((2, 7, 7))
    whole, here = root @ root.T, np.array([True, False, True, True, False, True, True])
    h, g = np.flatnonzero(here), np.flatnonzero(~here)
    own = (other @ other.T)[np.ix_(h, h)]
    t = np.linalg.inv(whole)
    rest = np.linalg.inv(t[np.ix_(g, g)])
    from_h = np.zeros((7, 5))
    from_h[h], from_h[g] = np.eye(5), -rest @ t[np.ix_(g, h)]
    expected = from_h @ own @ from_h.T
    expected[np.ix_(g, g)] += rest
    np.testing.assert_allclose(filled_up(own, whole, here), expected, atol=1e-9)


def test_neighbours_of_a_node_that_a_site_lacks_are_not_joined():
    """In the chain 0 - 1 - 2, without node 1: the marginal law joins 0 and 2 at that site."""
    some = tables(2000)
    some[0][:, 1] = some[1][:, 1] = np.nan
    moments, counts, rows = asked(some)
    learned = learn_graphs(moments, counts, pair_rows=rows)
    own = np.ix_([0], [0, 2, 3, 4, 5], [0, 2, 3, 4, 5])
    assert learn_graphs(moments[own], counts[:1]).signs[0, 0] != 0
    assert learned.signs[0, (A == 0) & (B == 2)] == 0
    assert (learned.signs[0] != 0).sum() == 3


@pytest.mark.parametrize("missing", ["gaps", "nodes"])
def test_the_papers_rows_lose_little_by_gaps_and_by_nodes_that_sites_lack(missing):
    """They sum to nearly nothing, and gaps hide it. F of sites at the true number of edges, five sites: without the
    level given back it is .08 less."""
    graphs = paper_graphs(8200, keep=0.9)
    some = [smooth_signals(stream(8200, f"silo {k}", 0, "rows"), w, 200) for k, w in enumerate(graphs.local)]
    rng, (a, b), own = np.random.default_rng(8200), pairs(20), np.ones((5, 20), dtype=bool)
    for node in range(0, 20, 3) if missing == "nodes" else ():
        own[rng.choice(5, 2, replace=False), node] = False
    share, shared = 0.3 if missing == "gaps" else 0.0, own.all(0)[a] & own.all(0)[b]
    gone = [np.where(mine & (rng.random(x.shape) >= share), x, np.nan) for mine, x in zip(own, some, strict=True)]
    scores = []
    for rows in (some, gone):
        moments, counts, of_pairs = asked(rows)
        found = JointLearner().learn(moments, counts, None, of_pairs).probability[:, shared]
        truth = graphs.local[:, shared] > 0.0
        best = [np.argsort(-p)[: t.sum()] for p, t in zip(found, truth, strict=True)]
        scores.append(np.mean([t[k].mean() for k, t in zip(best, truth, strict=True)]))
    assert scores[0] > 0.85
    assert scores[1] > scores[0] - (0.07 if missing == "gaps" else 0.04)
