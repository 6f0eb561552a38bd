"""Rows with gaps: moments by EM, distances of pairs, correlations made definite, and chance."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from silograph.kernels.chance import LEVEL, chance, rank_correlations
from silograph.kernels.edges import pairs, squared_distances
from silograph.kernels.gaps import distances_with_gaps, moments_with_gaps, pair_rows
from silograph.kernels.masks import definite, drawn_with_gaps, pooled
from silograph.methods.joint_graphs import drawn_to_mean


def with_holes(rows, share, seed=0):
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def test_complete_rows_have_the_moments_that_they_have():
    x = np.random.default_rng(0).standard_normal((40, 5)) @ np.diag([1.0, 10.0, 1e-3, 1.0, 50.0])
    np.testing.assert_allclose(moments_with_gaps(x)[0], np.cov(x.T, bias=True), rtol=1e-10)
    parts = moments_with_gaps(x, 3)
    assert parts.shape == (3, 5, 5)
    rows = [14, 13, 13]
    np.testing.assert_allclose(np.tensordot(rows, parts, 1) / 40, np.cov(x.T, bias=True), rtol=1e-10)


def test_em_finds_the_most_likely_gaussian():
    """By a general optimiser on the likelihood of what was seen; drawing to independence moves it by 5e-4."""
    rng = np.random.default_rng(1)
    x = with_holes(rng.multivariate_normal([1.0, -2.0, 0.5], [[1, 0.6, 0], [0.6, 1, 0.4], [0, 0.4, 1]], 2000), 0.3)
    patterns = {}
    for row in x:
        patterns.setdefault(tuple(~np.isnan(row)), []).append(row[~np.isnan(row)])

    def loss(free):
        root = np.zeros((3, 3))
        root[np.tril_indices(3)] = free[3:]
        covariance, total = root @ root.T + 1e-9 * np.eye(3), 0.0
        for seen, rows in patterns.items():
            own = np.flatnonzero(seen)
            if own.size:
                law = multivariate_normal(free[:3][own], covariance[np.ix_(own, own)])
                total -= law.logpdf(np.array(rows)).sum()
        return total / len(x)

    found = minimize(loss, [*np.nanmean(x, 0), *np.eye(3)[np.tril_indices(3)]], method="BFGS").x
    root = np.zeros((3, 3))
    root[np.tril_indices(3)] = found[3:]
    np.testing.assert_allclose(moments_with_gaps(x)[0], root @ root.T, atol=2e-3)


def test_moments_with_gaps_are_those_of_rows_and_units_do_not_matter():
    rng = np.random.default_rng(2)
    x = with_holes(rng.standard_normal((30, 20)) @ rng.standard_normal((20, 20)), 0.4)
    x[3] = np.nan  # a row may have nothing
    moment, units = moments_with_gaps(x)[0], 10.0 ** rng.integers(-5, 5, 20)
    assert np.linalg.eigvalsh(moment)[0] > 0.0
    np.testing.assert_allclose(moments_with_gaps(x * units)[0], moment * np.outer(units, units), rtol=1e-8)


def test_a_node_that_a_site_lacks_goes_with_no_other():
    x = np.random.default_rng(3).standard_normal((50, 4))
    gone = x.copy()
    gone[:, 2] = np.nan
    own = np.ix_([0, 1, 3], [0, 1, 3])
    moment = moments_with_gaps(gone)[0]
    np.testing.assert_allclose(moment[own], np.cov(x[:, [0, 1, 3]].T, bias=True), rtol=1e-10)
    np.testing.assert_array_equal(moment[2], [0, 0, 1, 0])
    np.testing.assert_array_equal(pair_rows(gone)[2], 0)


def test_pairs_are_counted_and_compared_where_both_are_seen():
    x = with_holes(5.0 + np.random.default_rng(4).standard_normal((60, 6)), 0.3)
    x[:, 5] = np.where(np.isnan(x[:, 4]), x[:, 5], np.nan)  # never seen beside node 4
    a, b = pairs(6)
    by_hand = [np.nanmean((x[:, i] - x[:, j]) ** 2) if (i, j) != (4, 5) else np.inf for i, j in zip(a, b, strict=True)]
    np.testing.assert_allclose(distances_with_gaps(x), by_hand, rtol=1e-10)
    together = (~np.isnan(x[:, a]) & ~np.isnan(x[:, b])).sum(0)
    np.testing.assert_array_equal(pair_rows(x)[a, b], together)
    complete = np.random.default_rng(5).standard_normal((60, 6))
    np.testing.assert_allclose(distances_with_gaps(complete), squared_distances(complete), rtol=1e-10)


def test_what_is_definite_stays_and_what_is_not_becomes_so():
    good = np.array([[1, 0.5], [0.5, 1]])
    assert definite(good) is good
    bad = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    made = definite(bad)
    assert np.linalg.eigvalsh(made)[0] > 0.0
    np.testing.assert_allclose(np.diagonal(made), 1.0)


def test_drawn_to_the_mean_as_without_gaps_where_every_pair_has_all_rows():
    rng, counts = np.random.default_rng(6), np.array([50.0, 80.0, 200.0])
    x = [rng.standard_normal((int(n), 6)) @ (np.eye(6) + 0.3 * rng.standard_normal((6, 6))) for n in counts]
    r = np.array([np.corrcoef(each.T) for each in x])
    plain, c = drawn_to_mean(r, counts)
    masked, c_masked = drawn_to_mean(r, counts, None, np.repeat(counts[:, None], 15, 1))
    np.testing.assert_allclose(c_masked, c, rtol=1e-10)
    np.testing.assert_allclose(masked, plain, rtol=1e-10)
    assert drawn_with_gaps(r[:1], np.ones((1, 15)), None)[1] == [0.0]
    np.testing.assert_allclose(pooled(np.array([[1.0, 4.0], [3.0, 5.0]]), np.array([[1.0, 0.0], [3.0, 0.0]])), [2.5, 0])


@pytest.mark.parametrize("law", ["normal", "skewed", "time", "gaps"])
def test_shuffled_columns_are_called_noise(law):
    """In at least 90 of 100 tables: at the level 5 %, 11 or more alarms come once in 100 runs or less of a right test.
    Skewed values have heavier tails than the test's law, and columns that go on in time are shuffled all the same."""
    rng, alarms = np.random.default_rng(8300), 0
    for _ in range(100):
        nodes, rows, sites = int(rng.integers(3, 30)), int(rng.integers(10, 300)), int(rng.integers(1, 6))
        tables = rng.standard_normal((sites, rows, nodes))
        tables = np.exp(tables) if law == "skewed" else tables.cumsum(1) if law == "time" else tables
        tables = rng.permuted(tables, axis=1)
        if law == "gaps":
            tables = with_holes(tables, 0.3, rows)
        r = np.array([rank_correlations(table) for table in tables])
        alarms += chance(r, np.array([pair_rows(table)[pairs(nodes)] for table in tables])) <= LEVEL
    assert alarms <= 10


def test_one_strong_pair_and_many_weak_ones_are_more_than_chance():
    rng = np.random.default_rng(8301)
    one = rng.standard_normal((200, 20))
    one[:, 1] += 0.5 * one[:, 0]
    many = rng.standard_normal((200, 20)) + 0.35 * rng.standard_normal((200, 1))
    for table in (one, many):
        r = np.corrcoef(table.T)[pairs(20)][None]
        assert chance(r, np.full(r.shape, 200.0)) <= LEVEL
    assert chance(np.zeros((1, 3)), np.full((1, 3), 2.0)) == 1.0  # too few rows to say anything
