"""A list of all pairs is all pairs: the same problems, the same answers; and a list of some is cvxpy's."""

import cvxpy as cp
import numpy as np
import pytest

from silograph.kernels.edges import pairs
from silograph.kernels.spaces import AllPairs, EdgeList

NODES = 9


def listed(keep):
    a, b = (end[keep] for end in pairs(NODES))
    start = np.zeros(NODES + 1, np.int64)
    np.cumsum(np.bincount(a, minlength=NODES), out=start[1:])
    return EdgeList(start, b.astype(np.int32))


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    z, t = rng.random((4, 36)) + 0.2, rng.random((4, 36)) * (rng.random((4, 36)) < 0.3)
    return z, t


EVERY = np.ones(36, bool)


def test_ends_and_distances_are_those_of_all_pairs():
    signals = np.random.default_rng(0).normal(size=(30, NODES))
    for one, other in zip(AllPairs(NODES).ends(), listed(EVERY).ends(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(listed(EVERY).distances(signals), AllPairs(NODES).distances(signals), rtol=1e-12)


@pytest.mark.parametrize("zeta", [0.0, 1e-2])
def test_a_list_of_all_pairs_has_the_same_problems(problem, zeta):
    z, t = problem
    one, other = AllPairs(NODES), listed(EVERY)
    first, second = (space.solve(z, 1.0, 0.1, zeta) for space in (one, other))
    np.testing.assert_allclose(second.w, first.w, atol=1e-9)
    for space in (one, other):
        np.testing.assert_allclose(space.objective(z, first.w, 1.0, 0.1, zeta), first.objective, rtol=1e-9)
        np.testing.assert_allclose(space.lower_bound(z, first.q, 1.0, 0.1, zeta), first.objective, rtol=1e-9)
    start = np.zeros((4, NODES)), np.zeros(4)
    for a, b in zip(
        *(space.huber_solve(z, t, 0.4, 3.0, 1.0, 0.1, zeta, *start) for space in (one, other)), strict=True
    ):
        np.testing.assert_allclose(b, a, atol=1e-7)


def test_a_bound_needs_potentials_above_0(problem):
    assert listed(EVERY).lower_bound(problem[0][:1], np.zeros((1, NODES)), 1.0, 0.1, 0.0)[0] == -np.inf


def test_huber_on_a_list_of_some_is_cvxpys_joint_optimum(problem):
    keep = np.random.default_rng(1).random(36) < 0.6
    space = listed(keep)
    z, t = (x[:1, keep] for x in problem)
    rho, penalty, beta = 0.4, 3.0, 0.1
    w, _, _ = space.huber_solve(z, t, rho, penalty, 1.0, beta, 0.0, np.zeros((1, NODES)), np.zeros(1))
    incidence = np.zeros((NODES, space.size))
    for end in space.ends():
        incidence[end, np.arange(space.size)] = 1.0
    x, v = cp.Variable(space.size, nonneg=True), cp.Variable(space.size)
    cost = z[0] @ x - cp.sum(cp.log(incidence @ x)) + 2.0 * beta * cp.sum_squares(x)
    cp.Problem(cp.Minimize(cost + rho * cp.norm(x - v) + 0.5 * penalty * cp.sum_squares(v - t[0]))).solve()
    np.testing.assert_allclose(w[0], x.value, atol=2e-4)
