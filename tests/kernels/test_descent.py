"""The papers' local step against finite differences, dense algebra and the problem it solves."""

import numpy as np
import pytest
from scipy.spatial.distance import squareform

from silograph.kernels.descent import extrapolate, gradient, objective, pulled_step


def problem(seed, nodes=6, silos=3):
    rng = np.random.default_rng(seed)
    p = nodes * (nodes - 1) // 2
    return rng.random((silos, p)) * 3.0, rng.random((silos, p)) + 0.05


def dense_objective(zbar, w, alpha, beta, zeta):
    """(4): half the sum of A o C, log of the row sums, beta |A|_F^2."""
    a, c = squareform(w), squareform(zbar)
    return 0.5 * (a * c).sum() - alpha * np.log(a.sum(0) + zeta).sum() + beta * (a**2).sum()


@pytest.mark.parametrize(("alpha", "beta", "zeta"), [(1.0, 0.05, 0.0), (3.0, 2.0, 1e-4), (0.2, 1e-3, 1.0)])
def test_objective_is_the_matrix_form(alpha, beta, zeta):
    zbar, w = problem(0)
    expected = [dense_objective(z, x, alpha, beta, zeta) for z, x in zip(zbar, w, strict=True)]
    np.testing.assert_allclose(objective(zbar, w, alpha, beta, zeta), expected, rtol=1e-13)


def test_objective_is_infinite_where_a_node_has_no_degree():
    zbar, w = problem(1, silos=2)
    w[1] = 0.0
    w[1, -1] = 1.0  # only the last two nodes are connected
    value = objective(zbar, w, 1.0, 0.1, 0.0)
    assert np.isfinite(value[0])
    assert value[1] == np.inf
    assert np.isfinite(objective(zbar, w, 1.0, 0.1, 1e-4)).all()


def test_an_unused_edge_costs_nothing_and_a_used_one_its_price():
    zbar, w = problem(6, silos=2)
    plain = objective(zbar, np.where(np.arange(15) == 4, 0.0, w), 1.0, 0.1, 0.0)
    zbar[:, 4] = np.inf
    assert (objective(zbar, w, 1.0, 0.1, 0.0) == np.inf).all()
    w[:, 4] = 0.0
    np.testing.assert_array_equal(objective(zbar, w, 1.0, 0.1, 0.0), plain)


@pytest.mark.parametrize(("alpha", "beta", "zeta"), [(1.0, 0.05, 0.0), (3.0, 2.0, 1e-4), (0.2, 1e-3, 1.0)])
def test_gradient_is_the_slope_of_the_objective(alpha, beta, zeta):
    zbar, w = problem(2)
    found, h = gradient(zbar, w, alpha, beta, zeta), 1e-5
    for k in range(w.shape[1]):
        step = np.zeros_like(w)
        step[:, k] = h
        up, down = objective(zbar, w + step, alpha, beta, zeta), objective(zbar, w - step, alpha, beta, zeta)
        # central differences: error h^2 f'''/6 plus rounding eps |f| / h, both near 1e-9 here
        np.testing.assert_allclose(found[:, k], (up - down) / (2.0 * h), rtol=1e-7, atol=1e-7)


def test_gradient_is_the_formula():
    zbar, w = problem(3, silos=1)
    degree = squareform(w[0]).sum(0)
    a, b = np.triu_indices(6, 1)
    expected = zbar[0] - 2.0 * (1.0 / (degree[a] + 0.1) + 1.0 / (degree[b] + 0.1)) + 4.0 * 0.3 * w[0]
    np.testing.assert_allclose(gradient(zbar, w, 2.0, 0.3, 0.1)[0], expected, rtol=1e-14)


def test_rows_do_not_depend_on_their_company():
    zbar, w = problem(4, nodes=23, silos=7)
    for i in range(len(w)):
        one = slice(i, i + 1)
        np.testing.assert_array_equal(
            gradient(zbar, w, 1.0, 0.1, 1e-4)[i], gradient(zbar[one], w[one], 1.0, 0.1, 1e-4)[0]
        )
        np.testing.assert_array_equal(
            objective(zbar, w, 1.0, 0.1, 1e-4)[i], objective(zbar[one], w[one], 1.0, 0.1, 1e-4)[0]
        )


def test_extrapolation_goes_on_in_the_last_direction():
    w, before = np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 5.0])
    np.testing.assert_allclose(extrapolate(w, before, 0.5), [1.0, 2.5, 2.0], rtol=1e-15)


def test_explicit_step_by_hand():
    x, slope, anchor = np.array([[1.0, 2.0, 3.0]]), np.array([[0.5, -1.0, 0.0]]), np.array([[1.0, 1.0, 1.0]])
    found = pulled_step(x, slope, anchor, np.array([2.0]), 0.1, implicit=False)
    # 1 - .1 (.5 + 2*0), 2 - .1 (-1 + 2*1), 3 - .1 (0 + 2*2)
    np.testing.assert_allclose(found, [[0.95, 1.9, 2.6]], rtol=1e-15)


def test_implicit_step_minimises_the_model_with_the_coupling_kept_whole():
    rng = np.random.default_rng(5)
    x, slope, anchor = rng.standard_normal((3, 4, 10))
    pull, step = np.array([0.0, 0.3, 7.0, 1e6]), 0.02
    w = pulled_step(x, slope, anchor, pull, step, implicit=True)
    stationary = slope + (w - x) / step + pull[:, None] * (w - anchor)
    assert np.abs(stationary / (1.0 / step + pull)[:, None]).max() <= 1e-14


def test_implicit_step_is_stable_where_the_explicit_one_is_not():
    """Repeated with no slope, the step must bring x to its anchor; explicitly it does so only while step * pull < 2."""
    anchor, pull, step = np.zeros((1, 3)), np.array([500.0]), 0.005
    implicit = explicit = np.ones((1, 3))
    for _ in range(50):
        implicit = pulled_step(implicit, np.zeros((1, 3)), anchor, pull, step, implicit=True)
        explicit = pulled_step(explicit, np.zeros((1, 3)), anchor, pull, step, implicit=False)
    assert np.abs(implicit).max() < 1e-12
    assert np.abs(explicit).max() > 1e6
