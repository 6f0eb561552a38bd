"""Rows without a level: seen as such, and given one that leaves the relations between nodes as they are."""

from __future__ import annotations

import numpy as np

from silograph.kernels.gaps import moments_with_gaps, pair_rows
from silograph.kernels.levels import sums_to_little, sums_to_nothing, with_level, with_mean, with_sparsest_level
from silograph.kernels.masks import pooled


def signed_precision(rng, nodes):
    weights = np.triu(rng.uniform(0.5, 1.5, (nodes, nodes)) * (rng.random((nodes, nodes)) < 4.0 / nodes), 1)
    weights *= np.where(rng.random((nodes, nodes)) < 0.5, -1.0, 1.0)
    weights = weights + weights.T
    return np.diag(np.abs(weights).sum(0) + 0.3) - weights


def centred(covariance):
    nodes = len(covariance)
    around = np.eye(nodes) - 1.0 / nodes
    return around @ covariance @ around + 1e-9 * np.eye(nodes)


def test_a_missing_mean_is_seen_and_others_are_not():
    rng = np.random.default_rng(0)
    covariance = np.linalg.inv(signed_precision(rng, 20))
    assert not sums_to_nothing(covariance)
    assert sums_to_nothing(centred(covariance))
    # In other units what is missing is another combination of nodes.
    unit = rng.uniform(0.2, 5.0, 20)
    rescaled = centred(covariance) * np.outer(unit, unit)
    assert with_level(rescaled[None])[1][0]
    assert not sums_to_nothing(rescaled)


def test_the_mean_is_given_back_without_touching_rows_around_it():
    moments = np.array([centred(np.linalg.inv(signed_precision(np.random.default_rng(k), 12))) for k in range(3)])
    around = np.eye(12) - 1.0 / 12
    np.testing.assert_allclose(around @ with_mean(moments) @ around, around @ moments @ around, atol=1e-12)
    assert np.linalg.eigvalsh(with_mean(moments)).max() >= np.linalg.eigvalsh(moments).max()


def test_a_laplacian_comes_back_in_any_units():
    """Its rows vary unlike, so a level along the least eigenvector would leave terms of single nodes in every entry."""
    rng, off = np.random.default_rng(1), ~np.eye(15, dtype=bool)
    weights = np.triu(rng.uniform(0.2, 2.0, (15, 15)) * (rng.random((15, 15)) < 0.3), 1)
    weights = weights + weights.T
    laplacian = np.diag(weights.sum(0)) - weights
    unit = rng.uniform(0.2, 5.0, 15)
    rows = (np.linalg.pinv(laplacian) + 1e-9 * np.eye(15)) * np.outer(unit, unit)
    levelled, lacking = with_level(rows[None])
    assert lacking[0]
    found = np.linalg.inv(levelled[0]) * np.outer(unit, unit) + weights
    assert np.ptp(found[off]) < 1e-4 * weights.max()  # the same little in every entry: the level's own precision


def test_a_missing_mean_is_seen_through_gaps_and_through_nodes_that_sites_lack():
    """And tables with relations of both signs, or that go against each other throughout, are not taken for it; 5 of
    240 may be, when the chance of one is 1 in 100 (false alarm: 4 %)."""
    rng, nodes, wrong = np.random.default_rng(5), 16, 0
    for k in range(60):
        precision = signed_precision(rng, nodes)
        if k % 2:
            precision = np.diag(np.diagonal(precision)) + np.abs(precision - np.diag(np.diagonal(precision)))
        covariance = np.linalg.inv(precision)
        for level, law in ((True, covariance), (False, centred(covariance) + 1e-3 * np.eye(nodes))):
            some = [rng.multivariate_normal(np.zeros(nodes), law, 100) for _ in range(3)]
            gaps = [np.where(rng.random(x.shape) < 0.3, np.nan, x) for x in some]
            lacks = [np.where(np.arange(nodes) % 5 == k, np.nan, x) for k, x in enumerate(some)]
            for tables in (gaps, lacks):
                moments = np.array([moments_with_gaps(x)[0] for x in tables])
                wrong += sums_to_little(pooled(moments, np.array([pair_rows(x) for x in tables]))) is level
    assert wrong <= 5


def test_the_sparsest_level_brings_a_signed_precision_back():
    for seed in range(5):
        precision = signed_precision(np.random.default_rng(seed), 30)
        lost = centred(np.linalg.inv(precision))[None]
        off = ~np.eye(30, dtype=bool)

        def error(covariance, off=off, precision=precision):
            found = np.linalg.inv(covariance)
            return np.abs(found - precision)[off].mean() / np.abs(precision)[off].mean()

        assert error(with_sparsest_level(lost)[0]) < 0.5 * error(with_level(lost)[0][0])
