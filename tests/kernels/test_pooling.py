"""Denoising of released moments: the projection against cvxpy, the pooling against known spreads."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.integrate import quad

from silograph.kernels.pooling import (
    correlated_bayes,
    denoise,
    effective_rows,
    empirical_bayes,
    project_psd,
    undo_clip,
)


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


def test_the_variance_it_states_is_the_error_it_makes():
    """Mean squared error per coordinate over 60 silos x 15 coordinates x 40 federations, against the stated variance.

    Errors of one federation are dependent through the mean, so its 900 squares count as about 300: the mean of 40 has a
    standard error of about 1.3 %, and 8 % is six of them."""
    rng = np.random.default_rng(8)
    deviations = np.geomspace(0.5, 2.0, SILOS)
    errors, stated = np.zeros(SILOS), np.zeros(SILOS)
    for _ in range(40):
        truths, released, counts = simulated(rng, 0.7, deviations)
        pooled = empirical_bayes(released, deviations, counts)
        errors += ((pooled.moments - truths) ** 2).sum((1, 2)) / SIZE / 40
        stated += pooled.variance / 40
    np.testing.assert_allclose(errors.mean(), stated.mean(), rtol=0.08)
    np.testing.assert_allclose(errors[:20].mean(), stated[:20].mean(), rtol=0.12)
    np.testing.assert_allclose(errors[-20:].mean(), stated[-20:].mean(), rtol=0.12)


# ---- effective records -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [50, 400])
def test_moments_of_plain_gaussian_records_are_worth_as_many(count):
    """No privacy noise: the variance per coordinate of N Gaussian records' moment makes N_eff = N. The mean of 300
    squared distances with about 15 degrees of freedom has a standard error below 4 %; 20 % is five of them."""
    rng, truth = np.random.default_rng([9, count]), np.diag([4.0, 2.0, 1.0, 0.5, 0.5])
    draws = rng.standard_normal((300, count, M)) * np.sqrt(np.diag(truth))
    moments = np.einsum("tna,tnb->tab", draws, draws) / count
    variance = ((moments - truth) ** 2).sum((1, 2)).mean() / SIZE
    np.testing.assert_allclose(effective_rows(truth[None], np.array([variance])), count, rtol=0.2)


# ---- noise and clip --------------------------------------------------------------------------------------------------


def test_denoising_projects_where_noise_is_small_and_shrinks_where_it_swamps():
    """Wigner noise on a spectrum with three large eigenvalues: nearer the truth than the projection alone."""
    rng, m = np.random.default_rng(10), 30
    truth = np.diag(np.r_[3.0, 2.0, 1.5, np.full(m - 3, 0.3)])
    quiet, loud = np.stack([truth + noise_of(rng, m, s) for s in (0.01, 0.3)])
    np.testing.assert_allclose(denoise(quiet[None], np.array([1e-4])), project_psd(quiet[None]), atol=1e-12)
    shrunk, projected = denoise(loud[None], np.array([0.09]))[0], project_psd(loud)
    np.testing.assert_allclose(np.trace(shrunk), np.trace(loud), rtol=1e-10)
    assert np.linalg.eigvalsh(shrunk).min() >= -1e-12
    assert ((shrunk - truth) ** 2).sum() < 0.8 * ((projected - truth) ** 2).sum()


def test_a_clip_that_clips_nothing_changes_nothing():
    moment = project_psd(symmetric(np.random.default_rng(11), 6) + np.eye(6))
    np.testing.assert_allclose(undo_clip(moment[None], 1e6)[0], moment, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("quantile", [0.25, 0.9])
def test_undoing_a_clip_gives_the_moment_of_what_was_clipped(quantile):
    """Against 4e5 Gaussian signals that really were clipped."""
    rng, truth = np.random.default_rng(12), np.array([5.0, 2.0, 1.0, 0.5])
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    signals = (rng.standard_normal((400_000, 4)) * np.sqrt(truth)) @ turn.T
    length = np.sqrt((signals**2).sum(1))
    radius = np.quantile(length, quantile)
    clipped = signals * np.minimum(1.0, radius / length)[:, None]
    moment = clipped.T @ clipped / len(clipped)
    goal = turn @ np.diag(truth) @ turn.T
    assert np.abs(moment - goal).max() > 0.25  # the twin: not undone
    np.testing.assert_allclose(undo_clip(moment[None], float(radius))[0], goal, atol=0.15)


def test_undoing_the_scaling_to_length_one_inverts_the_exact_integral():
    """The eigenvalues of scaled signals are l_k times the integral of 1/(1 + 2 t l_k) prod_j (1 + 2 t l_j)^-1/2."""
    truth = np.array([0.5, 0.25, 0.15, 0.1])

    def share(k):
        return quad(lambda t: truth[k] / (1 + 2 * t * truth[k]) / np.sqrt(np.prod(1 + 2 * t * truth)), 0, np.inf)[0]

    observed = np.diag([share(k) for k in range(4)])
    np.testing.assert_allclose(np.trace(observed), 1.0, rtol=1e-6)
    np.testing.assert_allclose(undo_clip(observed[None], None)[0], np.diag(truth), atol=0.012)
    assert np.abs(observed - np.diag(truth)).max() > 0.05


def test_nothing_released_stays_nothing():
    assert not undo_clip(np.zeros((1, 3, 3)), None).any()
    assert not undo_clip(np.zeros((1, 3, 3)), 1.0).any()


# ---- noise that is correlated between silos --------------------------------------------------------------------------


def test_correlated_noise_is_pooled_to_the_conditional_means():
    """Against the conditional law of all truths given all releases, their mean having a prior as wide as numbers go."""
    rng = np.random.default_rng(30)
    silos, tau, unit = 6, 0.8, np.eye(6)
    root = rng.standard_normal((silos, silos))
    covariance = root @ root.T + 0.1 * unit
    draws = np.linalg.cholesky(covariance)
    truths = np.stack([10.0 * np.eye(M) + noise_of(rng, M, tau) for _ in range(silos)])
    released = truths + np.einsum("ij,jab->iab", draws, np.stack([noise_of(rng, M, 1.0) for _ in range(silos)]))
    pooled = correlated_bayes(released, covariance, np.full(silos, 1e15))
    spread = spread_by_search(released, covariance)
    prior = 1e4 * np.ones((silos, silos)) + spread * unit
    gain = prior @ np.linalg.inv(prior + covariance)
    np.testing.assert_allclose(pooled.moments, np.einsum("ij,jab->iab", gain, released), rtol=1e-3, atol=1e-3)
    left = prior - gain @ prior
    np.testing.assert_allclose(pooled.variance, left.diagonal(), rtol=1e-2)
    assert pooled.share.sum() == pytest.approx(1.0)


def spread_by_search(released, covariance):
    """The tau^2 of the largest likelihood of the differences between silos, over a grid."""
    silos = len(released)
    apart = np.linalg.svd(np.ones((1, silos)))[2][1:]  # directions that sum to 0
    upper = np.triu_indices(M, 1)
    flat = np.concatenate(
        [np.stack([np.diag(r) for r in released]), np.stack([np.sqrt(2.0) * r[upper] for r in released])], axis=1
    )

    def likelihood(spread):
        within = apart @ (covariance + spread * np.eye(silos)) @ apart.T
        values = apart @ flat
        fit = np.einsum("ik,ij,jk->", values, np.linalg.inv(within), values)
        return -0.5 * (flat.shape[1] * np.linalg.slogdet(within)[1] + fit)

    grid = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 4000)])
    return grid[np.argmax([likelihood(spread) for spread in grid])]


def test_correlated_pooling_of_independent_noise_is_that_of_independent_noise():
    """Equal silos: both estimators are the same mean of squares."""
    rng = np.random.default_rng(31)
    _, released, counts = simulated(rng, 1.0, np.full(SILOS, 0.7))
    one = empirical_bayes(released, np.full(SILOS, 0.7), counts)
    other = correlated_bayes(released, 0.49 * np.eye(SILOS), counts)
    np.testing.assert_allclose(other.moments, one.moments, atol=1e-6)
    np.testing.assert_allclose(other.variance, one.variance, rtol=1e-5)
    np.testing.assert_allclose(other.shrinkage, one.shrinkage, rtol=1e-5)
    assert other.mean_variance == pytest.approx(one.mean_variance, rel=1e-5)


def test_a_single_silo_is_left_as_it_is():
    released = np.eye(M)[None]
    pooled = correlated_bayes(released, np.full((1, 1), 0.3), np.array([100.0]))
    np.testing.assert_allclose(pooled.moments, released)
    assert pooled.share.tolist() == [1.0]
