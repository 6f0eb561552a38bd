"""Shrinkage and the coupled local problem, against brute force and cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silograph.kernels.prox import huber_solve, soft_threshold


def distances(rng, nodes, count):
    x = rng.standard_normal((count, nodes))
    return np.array([((x[:, a] - x[:, b]) ** 2).mean() for a in range(nodes) for b in range(a + 1, nodes)])


def cold(z, t, rho, penalty, beta, alpha=1.0, zeta=0.0):
    nodes = round((1 + np.sqrt(1 + 8 * z.shape[1])) / 2)
    return huber_solve(z, t, rho, penalty, alpha, beta, zeta, np.zeros((len(z), nodes)), np.zeros(len(z)))


@given(x=st.floats(-5.0, 5.0), amount=st.floats(0.0, 3.0))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_soft_threshold_minimises_over_nonnegative_weights(x, amount):
    grid = np.linspace(0.0, 6.0, 60001)
    best = grid[np.argmin(0.5 * (grid - x) ** 2 + amount * grid)]
    assert abs(float(soft_threshold(np.array(x), amount)) - best) <= 1e-4


def cases():
    rng = np.random.default_rng(0)
    for nodes, rho, penalty, beta, alpha, zeta in (
        (3, 0.5, 1.0, 0.05, 1.0, 0.0),
        (5, 0.01, 2.0, 0.05, 1.0, 0.0),
        (5, 5.0, 0.3, 0.05, 1.0, 1e-2),
        (6, 0.2, 20.0, 0.5, 3.0, 0.0),
        (6, 100.0, 50.0, 0.02, 1.0, 0.0),
        (8, 1e-3, 1e-3, 0.1, 1.0, 0.0),
    ):
        p = nodes * (nodes - 1) // 2
        t = rng.random(p) * (rng.random(p) < 0.6) - 0.1 * rng.random(p)  # a target may be negative
        yield nodes, distances(rng, nodes, 30), t, rho, penalty, beta, alpha, zeta


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"d={case[0]} rho={case[3]:g} penalty={case[4]:g}")
def test_huber_solve_is_cvxpys_joint_optimum(case):
    nodes, z, t, rho, penalty, beta, alpha, zeta = case
    p = len(z)
    a, b = np.triu_indices(nodes, 1)
    s = np.zeros((nodes, p))
    s[a, np.arange(p)] = s[b, np.arange(p)] = 1.0

    def g(w):
        return z @ w - alpha * np.log(s @ w + zeta).sum() + 2.0 * beta * (w @ w)

    w, v = cp.Variable(p, nonneg=True), cp.Variable(p)
    own_part = z @ w - alpha * cp.sum(cp.log(s @ w + zeta)) + 2.0 * beta * cp.sum_squares(w)
    coupling = rho * cp.norm(w - v) + penalty / 2.0 * cp.sum_squares(v - t)
    problem = cp.Problem(cp.Minimize(own_part + coupling))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    found, _, pull = cold(z[None], t[None], rho, penalty, beta, alpha, zeta)
    mine, gamma = found[0], pull[0]
    own = t + gamma * (mine - t) / penalty  # v: where rho's and the penalty's pulls balance
    value = g(mine) + rho * np.linalg.norm(mine - own) + penalty / 2.0 * ((own - t) ** 2).sum()
    assert abs(value - problem.value) <= 1e-6 * max(1.0, abs(value))


def test_the_cases_cover_both_regimes():
    """Some silos merge with their copy of the consensus (pull = penalty), some stay apart."""
    merged = [cold(z[None], t[None], r, m, b, a, e)[2][0] == m for _, z, t, r, m, b, a, e in cases()]
    assert any(merged)
    assert not all(merged)


@pytest.mark.parametrize("seed", range(30))
def test_the_pull_is_the_smaller_of_penalty_and_rho_over_distance(seed):
    """S3 (11) without its circularity: pull = min(penalty, rho / |w - t|), to the accuracy of w itself."""
    rng = np.random.default_rng([1, seed])
    nodes = int(rng.integers(3, 20))
    p = nodes * (nodes - 1) // 2
    z, t = distances(rng, nodes, 20)[None], rng.random((1, p)) * 10.0 ** rng.uniform(-2, 1)
    rho, penalty, beta = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-3, 4), 10.0 ** rng.uniform(-3, 2)
    w, _, pull = cold(z, t, rho, penalty, beta)
    np.testing.assert_allclose(pull[0], min(penalty, rho / np.linalg.norm(w - t)), rtol=1e-7)
    # and w is stationary for that pull
    a, b = np.triu_indices(nodes, 1)
    degree = np.zeros(nodes)
    np.add.at(degree, a, w[0])
    np.add.at(degree, b, w[0])
    terms = np.array([z[0], -1.0 / degree[a] - 1.0 / degree[b], 4.0 * beta * w[0], pull[0] * (w[0] - t[0])])
    slope, size = terms.sum(0), np.abs(terms).sum(0)
    assert (np.abs(slope)[w[0] > 0.0] <= 1e-5 * size[w[0] > 0.0]).all()
    assert (slope[w[0] == 0.0] >= -1e-5 * size[w[0] == 0.0]).all()


def test_warm_starts_change_nothing_but_the_time():
    rng = np.random.default_rng(2)
    z, t = np.stack([distances(rng, 10, 20) for _ in range(4)]), rng.random((4, 45))
    w, q, pull = cold(z, t, 0.7, 5.0, 0.05)
    for other_q, other_pull in ((q, pull), (q * 3.0, pull * 0.1), (q, np.full(4, 4.999)), (q, np.full(4, 1e9))):
        again, _, pull_again = huber_solve(z, t, 0.7, 5.0, 1.0, 0.05, 0.0, other_q, other_pull)
        np.testing.assert_allclose(again, w, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(pull_again, pull, rtol=1e-6)


def test_rows_do_not_depend_on_their_company():
    rng = np.random.default_rng(3)
    z, t = (
        np.stack([distances(rng, 9, 15) for _ in range(5)]),
        rng.random((5, 36)) * np.geomspace(0.01, 10.0, 5)[:, None],
    )
    q, pull = 10.0 ** rng.uniform(-1, 1, (5, 9)), 10.0 ** rng.uniform(-2, 1, 5)
    together = huber_solve(z, t, 0.5, 3.0, 1.0, 0.1, 1e-4, q, pull)
    for i in range(5):
        one = slice(i, i + 1)
        alone = huber_solve(z[one], t[one], 0.5, 3.0, 1.0, 0.1, 1e-4, q[one], pull[one])
        for mine, all_of_them in zip(alone, together, strict=True):
            np.testing.assert_array_equal(mine[0], all_of_them[i])


def test_the_inputs_are_left_alone():
    rng = np.random.default_rng(4)
    z, t = distances(rng, 6, 9)[None], rng.random((1, 15))
    q, pull = np.ones((1, 6)), np.ones(1)
    before = [x.copy() for x in (z, t, q, pull)]
    huber_solve(z, t, 0.5, 3.0, 1.0, 0.1, 0.0, q, pull)
    for x, y in zip((z, t, q, pull), before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_edges_that_cost_infinitely_much_stay_unused_whatever_the_target():
    rng = np.random.default_rng(5)
    z, t = distances(rng, 8, 20)[None], rng.random((1, 28))
    walls = rng.random(28) < 0.4
    w, _, pull = cold(np.where(walls, np.inf, z), t, 0.5, 3.0, 0.1)
    assert (w[0][walls] == 0.0).all()
    # a wall is the limit of a price nobody pays
    dear, _, dear_pull = cold(np.where(walls, 1e6, z), t, 0.5, 3.0, 0.1)
    np.testing.assert_allclose(w, dear, atol=1e-8)
    np.testing.assert_allclose(pull, dear_pull, rtol=1e-8)
