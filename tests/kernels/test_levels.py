"""Rows without a level: seen as such, and given one that leaves the relations between nodes as they are."""

from __future__ import annotations

import numpy as np

from silograph.kernels.levels import sums_to_nothing, with_level, with_mean, with_sparsest_level


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


def test_the_sparsest_level_brings_a_signed_precision_back():
    for seed in range(5):
        precision = signed_precision(np.random.default_rng(seed), 30)
        lost = centred(np.linalg.inv(precision))[None]
        off = ~np.eye(30, dtype=bool)

        def error(covariance, off=off, precision=precision):
            found = np.linalg.inv(covariance)
            return np.abs(found - precision)[off].mean() / np.abs(precision)[off].mean()

        assert error(with_sparsest_level(lost)[0]) < 0.5 * error(with_level(lost)[0][0])
