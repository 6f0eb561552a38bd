"""The most likely Gaussian on given edges: against cvxpy, closed forms, and its certificate."""

import cvxpy as cp
import numpy as np
import pytest

from silograph.kernels.support_likelihood import fit


def moment(seed, nodes=6, rows=60):
    rng = np.random.default_rng(seed)
    return np.cov(
        (rng.standard_normal((rows, nodes)) @ (np.eye(nodes) + 0.4 * rng.random((nodes, nodes)))).T, bias=True
    )


def edges_of(seed, nodes=6, share=0.4):
    upper = np.triu(np.random.default_rng(seed).random((nodes, nodes)) < share, 1)
    return upper | upper.T


@pytest.mark.parametrize("seed", range(4))
def test_the_minimum_is_that_of_a_general_solver(seed):
    s, edges = moment(seed), edges_of(seed)
    theta = cp.Variable((6, 6), symmetric=True)
    rules = [theta[a, b] == 0.0 for a in range(6) for b in range(a) if not edges[a, b]]
    problem = cp.Problem(cp.Minimize(cp.trace(s @ theta) - cp.log_det(theta)), rules)
    problem.solve(solver=cp.CLARABEL)
    found = fit(s[None], edges[None], 1e-10)
    assert -found.likelihood[0] == pytest.approx(problem.value, abs=1e-6)
    np.testing.assert_allclose(found.precision[0], theta.value, atol=1e-3)
    assert found.gap[0] <= 1e-10
    assert not found.precision[0][~edges & ~np.eye(6, dtype=bool)].any()


def test_on_its_edges_the_fit_has_the_moments():
    s, edges = moment(9), edges_of(9)
    fitted = np.linalg.inv(fit(s[None], edges[None], 1e-12).precision[0])
    held = edges | np.eye(6, dtype=bool)
    np.testing.assert_allclose(fitted[held], s[held], atol=1e-5)


def test_all_edges_give_the_inverse_and_none_the_variances():
    s = moment(3)
    everything, nothing = np.ones((6, 6), dtype=bool), np.zeros((6, 6), dtype=bool)
    found = fit(np.array([s, s]), np.array([everything, nothing]), 1e-10)
    np.testing.assert_allclose(found.precision[0], np.linalg.inv(s), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.precision[1], np.diag(1.0 / np.diag(s)))


def test_a_loose_fit_is_at_most_its_gap_from_the_best():
    s, edges = moment(5, 30, 40) + 0.05 * np.eye(30), edges_of(5, 30, 0.2)
    loose, tight = fit(s[None], edges[None], 1e-2), fit(s[None], edges[None], 1e-10)
    assert tight.likelihood[0] - loose.likelihood[0] <= 30 * loose.gap[0] + 1e-9
