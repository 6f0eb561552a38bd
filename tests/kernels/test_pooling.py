"""Denoising of released moments: the projection against cvxpy, the pooling against known spreads."""

import cvxpy as cp
import numpy as np
import pytest

from silograph.kernels.pooling import empirical_bayes, project_psd


def symmetric(rng, m):
    x = rng.standard_normal((m, m))
    return (x + x.T) / 2.0


# ---- projection ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "shift"), [(2, 0.0), (3, 0.3), (4, -0.05), (6, 1.0), (6, 5.0)])
def test_projection_is_the_nearest_with_its_trace(m, shift):
    moment = symmetric(np.random.default_rng([m, int(100 * shift + 50)]), m) + shift * np.eye(m)
    if np.trace(moment) <= 0.0:
        moment += (0.5 - np.trace(moment) / m) * np.eye(m)
    x = cp.Variable((m, m), symmetric=True)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - moment)), [x >> 0, cp.trace(x) == np.trace(moment)])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    np.testing.assert_allclose(project_psd(moment), x.value, atol=1e-5)


def test_projection_keeps_trace_and_is_psd_and_leaves_psd_alone():
    rng = np.random.default_rng(1)
    moments = np.stack([symmetric(rng, 8) + 0.3 * np.eye(8) for _ in range(20)])
    found = project_psd(moments)
    positive = np.trace(moments, axis1=1, axis2=2) > 0.0
    assert positive.any()
    assert not positive.all()
    np.testing.assert_allclose(
        np.trace(found, axis1=1, axis2=2), np.maximum(np.trace(moments, axis1=1, axis2=2), 0.0), atol=1e-12
    )
    assert np.linalg.eigvalsh(found).min() >= -1e-12
    assert np.abs(found[~positive]).max() <= 1e-12
    np.testing.assert_allclose(project_psd(found), found, atol=1e-12)


def test_projecting_each_eigenvalue_on_its_own_would_not_keep_the_trace():
    moment = np.diag([3.0, -1.0, 0.5])
    assert np.maximum(np.diag(moment), 0.0).sum() == 3.5  # the twin
    np.testing.assert_allclose(project_psd(moment), np.diag([2.5, 0.0, 0.0]), atol=1e-15)


# ---- pooling ---------------------------------------------------------------------------------------------------------

SILOS, M = 60, 5
SIZE = M * (M + 1) // 2  # free coordinates of a symmetric matrix


def noise_of(rng, m, deviation):
    """Symmetric noise with this deviation along every direction of an orthonormal basis of symmetric matrices."""
    off = np.triu(rng.standard_normal((m, m)), 1) * deviation / np.sqrt(2.0)
    return off + off.T + np.diag(rng.standard_normal(m) * deviation)


def simulated(rng, tau, deviations):
    """Truths around a mean with spread tau, and releases of them; counts so large that only privacy noise is left."""
    centre = 10.0 * np.eye(M)
    truths = np.stack([centre + noise_of(rng, M, tau) for _ in deviations])
    released = np.stack([t + noise_of(rng, M, s) for t, s in zip(truths, deviations, strict=True)])
    return truths, released, np.full(len(deviations), 1e15)


def spread_of(pooled, v):
    """tau^2 from shrinkage c = v / (v + tau^2)."""
    return v * (1.0 - pooled.shrinkage) / pooled.shrinkage


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_pooling_finds_the_spread_of_the_silos(tau, unequal):
    """The estimate weights silo i's mean of SIZE squares by 1/(v_i + tau^2)^2, so its standard error is
    sqrt(2 / (SIZE sum_i (v_i + tau^2)^-2)); five of them is a false alarm in less than one run of a million."""
    rng = np.random.default_rng([2, int(10 * tau), unequal])
    deviations = np.geomspace(0.3, 2.0, SILOS) if unequal else np.full(SILOS, 1.0)
    _, released, counts = simulated(rng, tau, deviations)
    found = spread_of(empirical_bayes(released, deviations, counts), deviations**2)
    np.testing.assert_allclose(found, found[0], rtol=1e-6)  # one spread for all silos
    error = np.sqrt(2.0 / (SIZE * ((deviations**2 + tau**2) ** -2.0).sum()))
    assert abs(found[0] - tau**2) <= 5.0 * error


def test_a_spread_that_forgets_the_noise_would_be_caught():
    """The twin: tau^2 without subtracting v is v too large."""
    rng = np.random.default_rng(3)
    _, released, _ = simulated(rng, 1.0, np.full(SILOS, 1.0))
    twin = ((released - released.mean(0)) ** 2).sum((1, 2)).mean() / SIZE
    error = np.sqrt(2.0 / (SIZE * SILOS * 2.0**-2.0))
    assert twin - 1.0 > 5.0 * error


@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0, 5.0])
def test_pooling_is_nearer_the_truth_than_either_extreme(tau):
    """Total squared error against keeping every release and against one mean for all: never worse than the better of
    the two by more than 5 %. At these sizes (900 coordinates) the seeds leave no doubt."""
    rng = np.random.default_rng([4, int(10 * tau)])
    deviations = np.geomspace(0.3, 2.0, SILOS)
    truths, released, counts = simulated(rng, tau, deviations)
    pooled = empirical_bayes(released, deviations, counts)

    def error(guess):
        return ((guess - truths) ** 2).sum()

    assert error(pooled.moments) <= 1.05 * min(error(released), error(np.broadcast_to(pooled.mean, released.shape)))


def test_equal_silos_without_noise_are_left_as_they_are():
    moment = np.diag([3.0, 2.0, 1.0])
    released = np.stack([moment] * 4)
    pooled = empirical_bayes(released, np.zeros(4), np.full(4, 1e12))
    np.testing.assert_allclose(pooled.moments, released, rtol=1e-12)
    np.testing.assert_allclose(pooled.mean, moment, rtol=1e-12)


def test_different_silos_without_noise_keep_their_own():
    released = np.stack([k * np.eye(3) for k in (1.0, 2.0, 4.0)])
    pooled = empirical_bayes(released, np.zeros(3), np.full(3, 1e9))
    np.testing.assert_allclose(pooled.moments, released, rtol=1e-6)
    assert pooled.shrinkage.max() < 1e-6


def test_one_silo_keeps_its_own():
    moment = symmetric(np.random.default_rng(5), 4)[None]
    pooled = empirical_bayes(moment, np.ones(1), np.array([10.0]))
    np.testing.assert_array_equal(pooled.moments, moment)
    np.testing.assert_array_equal(pooled.mean, moment[0])
    assert pooled.shrinkage == np.zeros(1)


def test_noisier_silos_lean_on_the_mean_more_and_weigh_less():
    rng = np.random.default_rng(6)
    deviations = np.array([0.1, 1.0, 10.0, 1.0, 0.1])
    _, released, counts = simulated(rng, 1.0, deviations)
    pooled = empirical_bayes(released, deviations, counts)
    assert (np.diff(pooled.shrinkage[[0, 1, 2]]) > 0.0).all()
    np.testing.assert_allclose(pooled.shrinkage[[0, 1]], pooled.shrinkage[[4, 3]], rtol=1e-9)
    louder = released.copy()
    louder[2] += 5.0 * np.eye(M)
    moved = empirical_bayes(louder, deviations, counts).mean - pooled.mean
    assert np.abs(moved).max() < 0.1 * 5.0  # far less than an equal weight of 1/5 = 1.0


def test_the_fixed_point_is_reached():
    """The weighted residual equation that defines tau^2 holds at the answer."""
    rng = np.random.default_rng(7)
    deviations = np.geomspace(0.3, 2.0, 12)
    _, released, counts = simulated(rng, 1.0, deviations)
    pooled = empirical_bayes(released, deviations, counts)
    v = deviations**2
    tau2 = spread_of(pooled, v)[0]
    weight = 1.0 / (v + tau2)
    share = weight / weight.sum()
    mean = np.einsum("i,iab->ab", share, released)
    np.testing.assert_allclose(pooled.mean, mean, atol=1e-8)
    distance = ((released - mean) ** 2).sum((1, 2)) / (SIZE * (1.0 - share))
    np.testing.assert_allclose((weight**2 * (distance - v)).sum() / (weight**2).sum(), tau2, rtol=1e-6)
