"""The likelihood of a Laplacian with a ridge: against cvxpy, its own certificate, and closed forms."""

import math

import cvxpy as cp
import numpy as np
import pytest

from silograph.data.synthetic import laplacian, paper_graphs, smooth_signals
from silograph.kernels import log_det
from silograph.kernels.edges import pairs, squared_distances


def distances(nodes, seed=0, count=200):
    graph = paper_graphs(seed, 2, nodes, 0.5).local[0]
    return graph, squared_distances(smooth_signals(np.random.default_rng(seed), graph, count))


def by_cvxpy(z, beta):
    nodes = (1 + math.isqrt(1 + 8 * len(z))) // 2
    free = np.flatnonzero(np.isfinite(z))
    a, b = pairs(nodes)
    w = cp.Variable(len(free), nonneg=True)
    ends = np.zeros((nodes, len(free)))
    ends[a[free], np.arange(len(free))], ends[b[free], np.arange(len(free))] = 1.0, -1.0
    lap = ends @ cp.diag(w) @ ends.T + np.full((nodes, nodes), 1.0 / nodes)
    goal = z[free] @ w + 2.0 * beta * cp.sum_squares(w) - cp.log_det(lap)
    problem = cp.Problem(cp.Minimize(goal))
    problem.solve(solver=cp.SCS, eps=1e-9, max_iters=200_000)
    out = np.zeros(len(z))
    out[free] = w.value
    return out, problem.value


@pytest.mark.parametrize(("nodes", "records"), [(4, 30.0), (6, 300.0), (8, 2000.0)])
def test_the_minimum_is_that_of_a_general_solver(nodes, records):
    _, z = distances(nodes)
    beta = (nodes - 1) * z.mean() ** 2 / records
    likely = log_det.solve(z[None], np.array([beta]), tolerance=1e-10)
    w, value = by_cvxpy(z, beta)
    assert likely.objective[0] == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(likely.w[0], w, atol=2e-4 * w.max())


def test_forbidden_edges_stay_empty_and_the_rest_is_still_the_minimum():
    _, z = distances(6)
    z[[0, 3, 7]] = np.inf
    beta = 0.05
    likely = log_det.solve(z[None], np.array([beta]), tolerance=1e-10)
    w, value = by_cvxpy(z, beta)
    assert (likely.w[0][[0, 3, 7]] == 0.0).all()
    assert likely.objective[0] == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(likely.w[0], w, atol=2e-4 * w.max())


def test_parts_that_cannot_be_connected_are_problems_of_their_own():
    """Two triangles with nothing allowed between them, against each triangle alone."""
    rng = np.random.default_rng(3)
    a, b = pairs(6)
    apart = (a < 3) != (b < 3)
    z = np.where(apart, np.inf, rng.uniform(0.5, 2.0, len(a)))
    whole = log_det.solve(z[None], np.array([0.1]), tolerance=1e-10)
    left, right = ((a < 3) & (b < 3)), ((a >= 3) & (b >= 3))
    for part in (left, right):
        alone = log_det.solve(z[part][None], np.array([0.1]), tolerance=1e-10)
        np.testing.assert_allclose(whole.w[0][part], alone.w[0], rtol=1e-6)
    assert whole.gap[0] <= 1e-10


def test_a_single_pair_in_a_part_has_the_closed_form():
    """One edge: z + 4 beta w = 1 / w."""
    z, beta = np.array([2.0, np.inf, np.inf]), 0.3
    w = log_det.solve(z[None], np.array([beta]), tolerance=1e-12).w[0]
    expected = (-2.0 + math.sqrt(4.0 + 16.0 * beta)) / (8.0 * beta)
    np.testing.assert_allclose(w, [expected, 0.0, 0.0], rtol=1e-9)


def test_nothing_allowed_is_the_empty_graph():
    likely = log_det.solve(np.full((1, 3), np.inf), np.array([1.0]))
    assert not likely.w.any()
    assert likely.gap[0] == 0.0


@pytest.mark.parametrize("nodes", [5, 20])
def test_the_certificate_is_never_less_than_the_true_distance_to_the_minimum(nodes):
    _, z = distances(nodes, seed=1)
    ridge = np.array([(nodes - 1) * z.mean() ** 2 / 200.0])
    best = log_det.solve(z[None], ridge, tolerance=1e-13).objective[0]
    for tolerance in (1.0, 1e-1, 1e-2, 1e-4):
        rough = log_det.solve(z[None], ridge, tolerance=tolerance)
        assert -1e-12 <= rough.objective[0] - best <= rough.gap[0] * (nodes - 1) + 1e-12
        assert rough.gap[0] <= tolerance


def test_likelihood_and_objective_are_what_they_say():
    _, z = distances(7)
    beta = 0.02
    likely = log_det.solve(z[None], np.array([beta]))
    w = likely.w[0]
    log_determinant = np.log(np.linalg.eigvalsh(laplacian(w))[1:]).sum()
    assert likely.likelihood[0] == pytest.approx(log_determinant - z @ w)
    assert likely.objective[0] == pytest.approx(z @ w + 2.0 * beta * (w @ w) - log_determinant)


def test_a_graph_is_found_from_many_signals_and_the_criterion_counts_its_edges():
    """20000 Gaussian signals of a graph of 10 nodes: its edges exactly, without being told how many (seed fixed)."""
    graph, z = distances(10, seed=2, count=20000)
    ridge = 9 * z.mean() ** 2 / 20000.0
    w = log_det.solve(z[None], np.array([ridge])).w[0]
    edges = np.count_nonzero(graph)
    found = log_det.strongest(z, ridge, w, edges).w[0]
    chosen = log_det.most_likely(z, ridge, w, 20000.0).w[0]
    np.testing.assert_array_equal(found > 0.0, graph > 0.0)
    assert abs(np.count_nonzero(chosen) - edges) <= 0.1 * edges
    np.testing.assert_allclose(found[graph > 0.0], graph[graph > 0.0], atol=0.15)


def test_the_criterion_is_the_best_over_all_numbers_of_edges():
    _, z = distances(8, seed=4)
    records, ridge = 150.0, 7 * z.mean() ** 2 / 150.0
    w = log_det.solve(z[None], np.array([ridge])).w[0]
    chosen = log_det.most_likely(z, ridge, w, records)

    def score(likely, k):
        return 0.5 * records * likely.likelihood[0] - 0.5 * k * math.log(records)

    scores = {}
    for k in range(7, np.count_nonzero(w) + 1):
        likely = log_det.strongest(z, ridge, w, k)
        if np.linalg.eigvalsh(laplacian(likely.w[0]))[1] > 1e-9:
            scores[k] = score(likely, k)
    best = max(scores, key=scores.get)
    np.testing.assert_array_equal(chosen.w, log_det.strongest(z, ridge, w, best).w)


def test_rows_do_not_depend_on_their_neighbours():
    z = np.stack([distances(9, seed)[1] for seed in range(3)])
    ridge = np.array([0.01, 0.1, 1.0])
    together = log_det.solve(z, ridge)
    for k in range(3):
        np.testing.assert_array_equal(together.w[k], log_det.solve(z[k : k + 1], ridge[k : k + 1]).w[0])
