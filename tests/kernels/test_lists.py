"""Graphs on candidate lists: the same optimum as the dense solver, lists that are right, and a proof that is true."""

import importlib.util

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from silograph.core.errors import InputError
from silograph.kernels import lists, memory, neighbours
from silograph.kernels.dual_newton import solve, solve_grid
from silograph.kernels.edges import squared_distances
from silograph.kernels.lists import (
    Candidates,
    learn_graph,
    listed,
    masked,
    nearest,
    proven_nodes,
    solve_list,
    with_costs,
)

TIGHT = 1e-12


def signals(nodes, seed=0, count=6):
    """Smooth along a line of nodes, so that neighbours are meaningful."""
    rng = np.random.default_rng([seed, nodes])
    return rng.normal(size=(count, nodes)).cumsum(1) + 0.3 * rng.normal(size=(count, nodes))


def everything(z):
    a, b = np.triu_indices(len(squareform(z)), 1)
    return listed(len(squareform(z)), a, b, z)


def g(z, w, alpha, beta, zeta):
    """The objective from the dense matrix."""
    return z @ w - alpha * np.log(squareform(w).sum(0) + zeta).sum() + 2.0 * beta * (w @ w)


def dense_weights(candidates, w):
    matrix = np.zeros((candidates.nodes, candidates.nodes))
    matrix[candidates.ends()] = w
    return matrix[np.triu_indices(candidates.nodes, 1)]


# ---- all solvers agree -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 3, 12, 13, 40, 150])
@pytest.mark.parametrize("beta", [1e-4, 1e-1, 1e3])
@pytest.mark.parametrize("alpha, zeta", [(1.0, 0.0), (3.0, 1e-2)])
def test_list_batch_and_dense_solver_agree(nodes, beta, alpha, zeta):
    z = squared_distances(signals(nodes))
    dense = solve(z[None], alpha, beta, zeta, tolerance=TIGHT)
    on_list = solve_list(everything(z), alpha, beta, zeta, tolerance=TIGHT)
    batch = solve_grid(z[None], np.array([1.0, alpha]), np.array([0.7 * beta, beta]), zeta, tolerance=TIGHT)
    value = g(z, dense.w[0], alpha, beta, zeta)
    size = max(abs(value), alpha)
    for found in (on_list.objective, batch.objective[0, 1], g(z, on_list.w, alpha, beta, zeta)):
        assert abs(found - value) <= 1e-9 * size
    np.testing.assert_allclose(on_list.w, dense.w[0], atol=1e-5 * dense.w.max())
    np.testing.assert_allclose(batch.w[0, 1], dense.w[0], atol=1e-5 * dense.w.max())
    assert on_list.gap <= TIGHT * size
    assert on_list.proven.all()


def test_a_batch_is_many_single_solves():
    """A grid in any order, with repeats and points far apart, is certified at every point as single solves are."""
    rng = np.random.default_rng(3)
    c = np.stack([squared_distances(signals(20, seed)) for seed in range(4)])
    alpha = np.concatenate([np.tile(np.geomspace(0.3, 3.0, 6), 6), [1.0, 1.0]])
    beta = np.concatenate([np.repeat(np.geomspace(0.01, 10.0, 6), 6), [1e-6, 1e6]])
    order = rng.permutation(len(alpha))
    alpha, beta = alpha[order], beta[order]
    for zeta in (0.0, 1e-2):
        found = solve_grid(c, alpha, beta, zeta, tolerance=1e-8)
        for i in range(len(c)):
            for k in range(len(alpha)):
                alone = solve(c[i : i + 1], alpha[k], beta[k], zeta, tolerance=TIGHT)
                size = max(abs(alone.objective[0]), alpha[k])
                assert found.gap[i, k] <= 1e-8 * size
                assert abs(g(c[i], found.w[i, k], alpha[k], beta[k], zeta) - alone.objective[0]) <= 2e-8 * size
                assert abs(found.objective[i, k] - alone.objective[0]) <= 2e-8 * size


def test_rows_of_a_batch_do_not_depend_on_their_company():
    c = np.stack([squared_distances(signals(15, seed)) for seed in range(3)])
    alpha, beta = np.ones(5), np.geomspace(0.01, 1.0, 5)
    together = solve_grid(c, alpha, beta)
    for i in range(3):
        alone = solve_grid(c[i : i + 1], alpha, beta)
        for field in ("w", "q", "objective", "gap", "steps"):
            np.testing.assert_array_equal(getattr(alone, field)[0], getattr(together, field)[i])


def test_costs_in_single_precision_give_nearly_the_same_graph():
    z = squared_distances(signals(60))
    double, single = solve(z[None], 1.0, 0.1), solve(z[None].astype(np.float32), 1.0, 0.1)
    assert single.w.dtype == np.float32
    np.testing.assert_allclose(single.objective, double.objective, rtol=1e-6)
    np.testing.assert_allclose(single.w, double.w, atol=1e-5 * double.w.max())


@pytest.mark.parametrize("nodes", [30, 400])
def test_the_dense_certificate_is_that_of_plain_numpy(nodes):
    """Screened or not: D(q) and w(q) over all pairs, by plain arrays."""
    z, beta = squared_distances(signals(nodes, 5)), 0.02
    found = solve(z[None], 1.0, beta, tolerance=1e-6)
    a, b = np.triu_indices(nodes, 1)
    t = np.maximum(0.0, found.q[0][a] + found.q[0][b] - z)
    np.testing.assert_allclose(found.w[0], t / (4.0 * beta), rtol=1e-12)
    r = found.q[0] * squareform(found.w[0]).sum(0)
    np.testing.assert_allclose(found.gap[0], (r - 1.0 - np.log(r)).sum(), rtol=1e-6, atol=1e-13 * nodes)
    assert abs(found.objective[0] - g(z, found.w[0], 1.0, beta, 0.0)) <= 1e-12 * abs(found.objective[0])


# ---- neighbours ------------------------------------------------------------------------------------------------------


def brute_neighbours(x, k):
    z = squareform(pdist(x.T, "sqeuclidean")) / len(x)
    np.fill_diagonal(z, np.inf)
    near = np.argsort(z, 1)[:, :k]
    wanted = {(min(a, int(b)), max(a, int(b))) for a in range(len(z)) for b in near[a]}
    return z, wanted, np.sort(z, 1)[:, k - 1]


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("k", [1, 5, 30, 59])
def test_exact_neighbours_are_brute_forces(k, kind, monkeypatch):
    monkeypatch.setattr(neighbours, "BLOCK", 60 * 8 * 7)  # several blocks, the last one smaller
    x = signals(60, 1).astype(kind).astype(float)
    z, wanted, farthest = brute_neighbours(x, k)
    found = nearest(x.astype(kind), k)
    assert set(zip(*(end.tolist() for end in found.ends()), strict=True)) == wanted
    np.testing.assert_allclose(found.cost, z[found.ends()], rtol=1e-5 if kind == np.float32 else 1e-10)
    if k == 59:
        assert np.isinf(found.reach).all()
    else:
        assert (found.reach <= farthest).all()
        np.testing.assert_allclose(found.reach, farthest, rtol=1e-2 if kind == np.float32 else 1e-9)


@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="the extra knn is not installed")
def test_approximate_neighbours_are_mostly_the_nearest_and_prove_nothing():
    x = signals(500, 2)
    _, wanted, _ = brute_neighbours(x, 8)
    found = nearest(x, 8, "approximate")
    edges = set(zip(*(end.tolist() for end in found.ends()), strict=True))
    assert len(edges & wanted) >= 0.98 * len(wanted)
    assert found.reach is None
    assert not solve_list(found, 1.0, 0.1).proven.any()


def test_without_the_extra_the_approximate_search_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(InputError, match=r"silograph\[knn\]"):
        nearest(signals(20), 3, "approximate")


# ---- the proof -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes, k, beta", [(60, 2, 0.05), (60, 4, 5.0), (150, 3, 0.5), (40, 1, 100.0)])
def test_a_learned_graph_is_the_optimum_on_all_pairs(nodes, k, beta):
    x = signals(nodes, 4)
    z = squared_distances(x)
    candidates, found = learn_graph(x, k, beta, tolerance=TIGHT)
    dense = solve(z[None], 1.0, beta, tolerance=TIGHT)
    assert found.proven.all()
    assert abs(found.objective - dense.objective[0]) <= 1e-9 * max(1.0, abs(dense.objective[0]))
    np.testing.assert_allclose(dense_weights(candidates, found.w), dense.w[0], atol=1e-5 * dense.w.max())


def test_more_neighbours_only_where_they_are_needed():
    """A dense cluster needs many (and with them takes in the next few nodes), a chain far from it keeps its few."""
    rng = np.random.default_rng(6)
    chain = 100.0 + 10.0 * np.arange(80.0)
    x = np.stack([np.concatenate([0.1 * rng.normal(size=40), chain]), np.zeros(120)])
    candidates, found = learn_graph(x, 3, 1.0)
    a, b = candidates.ends()
    count = np.bincount(np.concatenate([a, b]), minlength=120)
    assert found.proven.all()
    assert count[:40].min() >= 12
    assert count[50:].max() <= 6
    assert len(a) < 0.2 * 120 * 119 / 2


def test_what_is_proven_is_true_and_a_twin_with_a_wrong_reach_is_caught():
    """On too short a list nodes that are not proven have missing edges, and a reach that is too large hides them."""
    x, beta = signals(80, 7), 2.0
    z = squareform(squared_distances(x))
    short = nearest(x, 2)
    found = solve_list(short, 1.0, beta, tolerance=TIGHT)
    inside = np.eye(80, dtype=bool)
    inside[short.ends()] = inside[short.ends()[::-1]] = True
    missing = ((found.q[:, None] + found.q > z) & ~inside).any(1)
    assert missing.any()
    assert not (missing & found.proven).any()
    assert short.reach is not None
    twin = Candidates(short.start, short.col, short.cost, 10.0 * short.reach)
    assert (missing & proven_nodes(twin, found.q)).any()


def test_nothing_is_proven_of_a_users_list_unless_it_is_complete():
    x = signals(9)
    assert not solve_list(with_costs(x, np.arange(8), np.arange(1, 9)), 1.0, 0.1).proven.any()
    assert solve_list(with_costs(x, *np.triu_indices(9, 1)), 1.0, 0.1).proven.all()


# ---- the user's lists ------------------------------------------------------------------------------------------------


def test_lists_masks_and_walls_are_one_problem():
    rng = np.random.default_rng(8)
    nodes, x = 25, signals(25, 8)
    mask = np.triu(rng.random((nodes, nodes)) < 0.3, 1)
    mask[np.arange(nodes - 1), np.arange(1, nodes)] = True
    a, b = np.nonzero(mask)
    z = squared_distances(x)
    walled = np.where(mask[np.triu_indices(nodes, 1)], z, np.inf)
    expected = solve(walled[None], 1.0, 0.2, tolerance=TIGHT)
    swapped = rng.permutation(len(a))
    lists_of = (
        masked(mask, x),
        masked(mask | mask.T, x),
        with_costs(x, b[swapped], a[swapped]),
        listed(nodes, b[swapped], a[swapped], squareform(z)[a, b][swapped]),
    )
    for candidates in lists_of:
        found = solve_list(candidates, 1.0, 0.2, tolerance=TIGHT)
        np.testing.assert_allclose(dense_weights(candidates, found.w), expected.w[0], atol=1e-6 * expected.w.max())


def test_a_warm_start_saves_steps_and_is_not_changed():
    candidates = nearest(signals(300, 9), 12)
    cold = solve_list(candidates, 1.0, 0.5, tolerance=TIGHT)
    given = cold.q.copy()
    warm = solve_list(candidates, 1.0, 0.5, q=given, tolerance=TIGHT)
    np.testing.assert_array_equal(given, cold.q)
    assert warm.steps == 0 < cold.steps
    np.testing.assert_array_equal(warm.w, cold.w)


ENDS = np.array([0, 1, 2]), np.array([1, 2, 3])


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda x: listed(4, np.array([0, 1, 1]), np.array([1, 2, 0]), np.ones(3)), "found 0 - 1 again"),
        (lambda x: with_costs(x, np.array([0, 1]), np.array([1, 1])), "joined to itself"),
        (lambda x: with_costs(x, np.array([0, -1]), np.array([1, 2])), "nodes 0 to 3"),
        (lambda x: with_costs(x, np.array([0, 1]), np.array([1, 4])), "nodes 0 to 3"),
        (lambda x: with_costs(x, np.array([0.0, 1.0]), np.array([1.0, 2.0])), "whole-number"),
        (lambda x: listed(4, *ENDS, np.array([1.0, np.nan, 1.0])), "finite cost"),
        (lambda x: listed(4, *ENDS, np.ones(2)), "finite cost"),
        (lambda x: masked(np.ones((4, 4), bool), x), "joined to itself|itself"),
        (lambda x: masked(np.ones((3, 3), bool), x), "truth values"),
        (lambda x: masked(np.ones((4, 4)), x), "truth values"),
        (lambda x: masked(np.tril(np.ones((4, 4), bool), -1), x), "the same answer"),
        (lambda x: nearest(x, 4), "from 1 to 3"),
        (lambda x: nearest(x, 0), "from 1 to 3"),
        (lambda x: nearest(np.where(x > 0.0, np.nan, x), 2), "finite"),
        (lambda x: solve_list(with_costs(x, np.array([0, 1]), np.array([1, 2])), 1.0, 1.0), "node 3 has none"),
    ],
)
def test_wrong_input_is_refused_with_a_reason(call, says):
    with pytest.raises(InputError, match=says):
        call(np.random.default_rng(0).normal(size=(5, 4)))


def test_a_node_without_candidates_is_fine_where_zeta_allows_degree_zero():
    x = signals(4)
    found = solve_list(with_costs(x, np.array([0, 1]), np.array([1, 2])), 1.0, 1.0, zeta=0.5)
    assert found.gap <= 1e-6 * max(1.0, abs(found.objective))
    np.testing.assert_allclose(found.q[3], 2.0, rtol=1e-3)  # alpha / zeta


def test_what_does_not_fit_is_refused_before_work_starts(monkeypatch):
    x = signals(50)
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(memory, "available", lambda: 1000.0)
    z, one = np.ones((1, 300)), np.ones(2)
    for call in (
        lambda: nearest(x, 5),
        lambda: with_costs(x, np.arange(49), np.arange(1, 50)),
        lambda: squared_distances(x),
        lambda: solve(z, 1.0, 1.0),
        lambda: solve_grid(z, one, one),
    ):
        with pytest.raises(InputError, match="free memory"):
            call()
    monkeypatch.undo()
    monkeypatch.setattr(lists, "_EXACT_NODES", 49)
    with pytest.raises(InputError, match="approximate"):
        nearest(x, 5)
    assert len(nearest(x, 5, "exact").col)
