"""The joint likelihood: against cvxpy for every penalty, its certificate, screening, units and order."""

import cvxpy as cp
import numpy as np
import pytest

from silograph.kernels import joint_likelihood
from silograph.kernels.joint_likelihood import Penalty, solve, solve_batch
from silograph.kernels.joint_newton import dual

SITES, NODES = 3, 5
WEIGHTS = np.array([1.0, 2.0, 0.5])


def moments_of(seed=0, sites=SITES, nodes=NODES, rows=40):
    rng = np.random.default_rng(seed)
    mixing = np.eye(nodes) + 0.3 * rng.standard_normal((nodes, nodes))
    return np.array([np.cov((rng.standard_normal((rows, nodes)) @ mixing).T, bias=True) for _ in range(sites)])


def symmetric(seed, low, high, shape=(SITES, NODES, NODES)):
    drawn = np.random.default_rng(seed).uniform(low, high, shape)
    return 0.5 * (drawn + np.swapaxes(drawn, -1, -2))


def by_cvxpy(moments, weights, penalty):
    sites, nodes = moments.shape[:2]
    theta = [cp.Variable((nodes, nodes), symmetric=True) for _ in range(sites)]
    lam = np.broadcast_to(penalty.lam, moments.shape)
    gam, beta = (np.broadcast_to(each, moments.shape[1:]) for each in (penalty.gam, penalty.beta))
    goal = sum(weights[k] * (cp.trace(moments[k] @ theta[k]) - cp.log_det(theta[k])) for k in range(sites))
    rules = []
    for a in range(nodes):
        for b in range(a + 1, nodes):
            edge = cp.hstack([theta[k][a, b] for k in range(sites)])
            goal += 2.0 * gam[a, b] * cp.norm(edge) + beta[a, b] * cp.sum_squares(edge)
            for k in range(sites):
                if np.isinf(lam[k, a, b]):
                    rules.append(theta[k][a, b] == 0.0)
                else:
                    goal += 2.0 * lam[k, a, b] * cp.abs(theta[k][a, b])
                if penalty.nonnegative:
                    rules.append(theta[k][a, b] <= 0.0)
    problem = cp.Problem(cp.Minimize(goal), rules)
    problem.solve(solver=cp.CLARABEL)
    return problem.value, np.array([each.value for each in theta])


def walled():
    lam = symmetric(1, 0.02, 0.2)
    lam[1, 0, 3] = lam[1, 3, 0] = np.inf
    return lam


PENALTIES = {
    "lasso": {"lam": 0.1},
    "weighted lasso": {"lam": symmetric(2, 0.02, 0.3)},
    "group": {"gam": 0.15},
    "sparse group": {"lam": 0.05, "gam": symmetric(3, 0.05, 0.2, (NODES, NODES))},
    "forbidden edges": {"lam": walled(), "gam": 0.1},
    "ridge": {"beta": 0.3},
    "everything": {"lam": walled(), "gam": 0.1, "beta": symmetric(4, 0.1, 0.5, (NODES, NODES))},
}


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("name", PENALTIES)
def test_the_minimum_is_that_of_a_general_solver(name, nonnegative):
    penalty = Penalty(**PENALTIES[name], nonnegative=nonnegative)
    found = solve(moments_of(), WEIGHTS, penalty, tolerance=1e-8)
    value, theta = by_cvxpy(moments_of(), WEIGHTS, penalty)
    assert found.objective == pytest.approx(value, abs=3e-6)
    np.testing.assert_allclose(found.theta, theta, atol=2e-3)
    assert found.relative_gap <= 1e-6
    if nonnegative:
        assert (found.theta[:, ~np.eye(NODES, dtype=bool)] <= 0.0).all()
    if name in ("forbidden edges", "everything"):
        assert found.theta[1, 0, 3] == found.theta[1, 3, 0] == 0.0


@pytest.mark.parametrize("name", PENALTIES)
def test_the_certificate_bounds_what_is_missing(name):
    """A loose solution is at most its gap above the minimum."""
    penalty = Penalty(**PENALTIES[name])
    loose, tight = (solve(moments_of(5), WEIGHTS, penalty, tolerance=t) for t in (3e-2, 1e-9))
    assert loose.objective - tight.objective <= loose.gap + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_no_covariance_gives_a_bound_above_the_minimum(seed):
    """The dual value of any W, however far from the optimum, stays below (a): else the certificate would lie."""
    moments = moments_of(6)
    lam, gam, beta = walled(), np.full((NODES, NODES), 0.1), symmetric(4, 0.0, 0.5, (NODES, NODES))
    beta[:2] = beta[:, :2] = 0.0
    minimum = solve(moments, WEIGHTS, Penalty(lam, gam, beta), tolerance=1e-9).objective
    anywhere = moments_of(100 + seed)
    assert dual(moments, WEIGHTS, anywhere, lam, gam, beta, False) <= minimum + 1e-9
    near = np.linalg.inv(solve(moments, WEIGHTS, Penalty(lam, gam, beta), tolerance=1e-2).theta)
    near += 1e-3 * symmetric(seed, -1.0, 1.0)
    assert dual(moments, WEIGHTS, near, lam, gam, beta, False) <= minimum + 1e-9


def test_separate_blocks_are_the_same_problem(monkeypatch):
    moments = np.zeros((2, 70, 70))
    for first in (0, 35):
        moments[:, first : first + 35, first : first + 35] = moments_of(first, 2, 35, 200)
    moments += 0.01 * np.cos(np.add.outer(np.arange(70), np.arange(70)))  # too little to connect anything
    penalty, weights = Penalty(0.05, 0.1), np.ones(2)
    split = solve(moments, weights, penalty, tolerance=1e-8)
    monkeypatch.setattr(joint_likelihood, "_SCREENED", 1000)
    whole = solve(moments, weights, penalty, tolerance=1e-8)
    assert not split.theta[:, :35, 35:].any()
    np.testing.assert_allclose(split.theta, whole.theta, atol=1e-5)
    assert split.objective == pytest.approx(whole.objective, rel=1e-8)


def test_units_do_not_matter():
    """Moments in other units, penalties with them: the same graph and the same relative gap."""
    units = np.array([1e-3, 1.0, 40.0, 2.0, 1e3])
    scale = np.outer(units, units)
    lam = symmetric(2, 0.02, 0.3)
    plain = solve(moments_of(), WEIGHTS, Penalty(lam, 0.05), tolerance=1e-5)
    other = solve(moments_of() * scale, WEIGHTS, Penalty(lam * scale, 0.05 * scale), tolerance=1e-5)
    np.testing.assert_allclose(other.theta * scale, plain.theta, atol=1e-9)
    assert other.relative_gap == pytest.approx(plain.relative_gap, rel=1e-4, abs=1e-12)


def test_the_order_of_sites_does_not_matter():
    order = [2, 0, 1]
    penalty = Penalty(0.05, 0.1)
    plain = solve(moments_of(), WEIGHTS, penalty, tolerance=1e-9)
    other = solve(moments_of()[order], WEIGHTS[order], penalty, tolerance=1e-9)
    np.testing.assert_allclose(other.theta, plain.theta[order], atol=1e-7)


def test_a_path_and_a_batch_are_single_problems():
    penalties = [Penalty(lam, lam) for lam in (0.2, 0.1, 0.05)]
    alone = [solve(moments_of(), WEIGHTS, penalty, tolerance=1e-9) for penalty in penalties]
    path = solve_batch(moments_of(), WEIGHTS, penalties, 1e-9)
    many = solve_batch(np.tile(moments_of(), (3, 1, 1, 1)), WEIGHTS, penalties, 1e-9)
    for one, warm, cold in zip(alone, path, many, strict=True):
        assert warm.objective == pytest.approx(one.objective, abs=1e-6)
        np.testing.assert_array_equal(cold.theta, one.theta)


def test_thousands_of_small_problems_go_in_one_call():
    """Resampled moments under one penalty: each as if it were alone, nonnegative ones too."""
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((SITES, 40, NODES)) @ (np.eye(NODES) + 0.3 * rng.random((NODES, NODES)))
    drawn = rng.integers(0, 40, (2000, SITES, 40))
    tables = rows[np.arange(SITES)[:, None], drawn]
    moments = np.einsum("bkra,bkrc->bkac", tables, tables) / 40.0
    for penalty in (Penalty(0.05, 0.1), Penalty(0.05, 0.1, nonnegative=True)):
        many = solve_batch(moments, WEIGHTS, penalty, 1e-5)
        assert max(each.relative_gap for each in many) <= 1e-5
        for b in (0, 999, 1999):
            np.testing.assert_array_equal(many[b].theta, solve(moments[b], WEIGHTS, penalty, tolerance=1e-5).theta)


def test_many_nodes_are_solved_as_few_are(monkeypatch):
    """Inverses from LAPACK's factors, outside compiled code, and those inside it: the same minimum."""
    moments, penalty = moments_of(9, 2, 110, 300), Penalty(0.05, 0.1)
    large = solve(moments, np.ones(2), penalty, tolerance=1e-7)
    monkeypatch.setattr(joint_likelihood, "_LARGE", 1000)
    small = solve(moments, np.ones(2), penalty, tolerance=1e-7)
    assert large.relative_gap <= 1e-7
    assert large.objective == pytest.approx(small.objective, rel=1e-9)
    np.testing.assert_allclose(large.theta, small.theta, atol=1e-6)


def test_sites_share_edges_under_the_group_penalty_and_need_not_under_the_lasso():
    moments = moments_of(7, rows=15)
    off = ~np.eye(NODES, dtype=bool)
    together = solve(moments, np.ones(SITES), Penalty(gam=0.3)).theta[:, off] != 0.0
    apart = solve(moments, np.ones(SITES), Penalty(lam=0.2)).theta[:, off] != 0.0
    assert (together.all(0) == together.any(0)).all()
    assert (apart.all(0) != apart.any(0)).any()
