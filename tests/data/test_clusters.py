"""Clustered records against what S2 says of them."""

import numpy as np
import pytest

from silograph.data.clusters import clustered_regression, nmsd


def test_sizes_clusters_and_models():
    made = clustered_regression(3)
    assert len(made.records) == len(made.clusters) == 150
    assert set(made.clusters) == {0, 1, 2}
    counts = [len(y) for _, y in made.records]
    assert (min(counts), max(counts)) == (2, 9)
    assert {x.shape[1] for x, _ in made.records} == {60}
    ratio = made.models / made.models[0]  # one number for each cluster
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones(60))
    assert 0.85 / 1.15 <= ratio.min() < ratio.max() <= 1.15 / 0.85


def test_answers_are_the_clusters_model_and_noise():
    made = clustered_regression(1, servers=2, clients=200, features=3, counts=(40, 40), spread=0.5)
    for q in range(3):
        x, y = (
            np.concatenate(part)
            for part in zip(*(r for r, c in zip(made.records, made.clusters, strict=True) if c == q), strict=True)
        )
        estimate, *_ = np.linalg.lstsq(x, y, rcond=None)
        # five standard errors, features of variance 1
        np.testing.assert_allclose(estimate, made.models[q], atol=5 * np.sqrt(0.75 / len(y)))
        assert np.var(y - x @ made.models[q]) == pytest.approx(0.75, rel=5 * np.sqrt(2 / len(y)))


def test_a_clients_records_depend_on_nobody_else():
    few, many = clustered_regression(3, servers=2, clients=4), clustered_regression(3, servers=3, clients=4)
    for (x, _), (a, _) in zip(few.records, many.records, strict=False):
        np.testing.assert_array_equal(x, a)
    assert not np.array_equal(few.records[0][0], few.records[1][0])
    assert not np.array_equal(few.models, clustered_regression(4, servers=2, clients=4).models)


def test_nmsd():
    made = clustered_regression(3, servers=2, clients=5)
    truth = made.models[list(made.clusters)]
    assert nmsd(truth, made) == 0.0
    assert nmsd(np.zeros_like(truth), made) == pytest.approx(1.0)
    assert nmsd(1.1 * truth, made) == pytest.approx(0.01)
