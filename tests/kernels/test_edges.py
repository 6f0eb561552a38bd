"""Edge vectors against dense matrices and double loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

from silograph.kernels.edges import (
    adjacency,
    degrees,
    edge_count,
    moment_distances,
    node_count,
    pairs,
    spread,
    squared_distances,
)

CHEAP = settings(derandomize=True, deadline=None, max_examples=40)


def incidence(nodes):
    """S as a dense matrix, written as a loop over pairs: column k has a one at both ends of edge k."""
    matrix, k = np.zeros((nodes, nodes * (nodes - 1) // 2)), 0
    for a in range(nodes):
        for b in range(a + 1, nodes):
            matrix[a, k] = matrix[b, k] = 1.0
            k += 1
    return matrix


def direct_distances(signals):
    """zbar by subtracting first: no cancellation whatever the data's level."""
    nodes = signals.shape[1]
    return np.array([((signals[:, a] - signals[:, b]) ** 2).mean() for a in range(nodes) for b in range(a + 1, nodes)])


@given(nodes=st.integers(2, 12), silos=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
@CHEAP
def test_degrees_and_spread_are_s_and_its_transpose(nodes, silos, seed):
    rng = np.random.default_rng(seed)
    s = incidence(nodes)
    w, q = rng.standard_normal((silos, s.shape[1])), rng.standard_normal((silos, nodes))
    np.testing.assert_allclose(degrees(w), w @ s.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(spread(q), q @ s, rtol=0, atol=1e-12)
    inner = (degrees(w) * q).sum(-1) - (w * spread(q)).sum(-1)
    np.testing.assert_allclose(inner, 0.0, atol=1e-11)


def test_edges_are_in_the_order_of_triu_indices():
    a, b = pairs(7)
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == [(i, j) for i in range(7) for j in range(i + 1, 7)]
    w = np.arange(1.0, 22.0)
    np.testing.assert_array_equal(adjacency(w), squareform(w))
    np.testing.assert_array_equal(degrees(w), squareform(w).sum(0))


def test_node_count_inverts_edge_count_and_refuses_other_lengths():
    possible = {edge_count(d): d for d in range(1, 60)}
    for p in range(max(possible) + 1):
        if p in possible and p > 0:
            assert node_count(p) == possible[p]
        elif p > 0:
            with pytest.raises(ValueError, match=str(p)):
                node_count(p)


@pytest.mark.parametrize("nodes", [2, 3, 10, 57])
def test_degrees_of_many_silos_are_those_of_each_bit_for_bit(nodes):
    w = np.random.default_rng(nodes).standard_normal((6, nodes * (nodes - 1) // 2))
    together = degrees(w)
    for i in range(len(w)):
        np.testing.assert_array_equal(together[i], degrees(w[i : i + 1])[0])
        np.testing.assert_array_equal(together[i], degrees(w[i]))


@pytest.mark.parametrize("level", [0.0, 1.0, 1e9])
@pytest.mark.parametrize("per_signal", [False, True])
def test_squared_distances_do_not_see_what_all_nodes_share(level, per_signal):
    rng = np.random.default_rng(3)
    signals = rng.standard_normal((40, 8))
    signals = signals + level * (rng.standard_normal((40, 1)) if per_signal else 1.0)
    np.testing.assert_allclose(squared_distances(signals), direct_distances(signals), rtol=1e-12)


def test_an_uncentred_second_moment_would_lose_every_digit():
    """The broken twin of the test above: without centring each signal first, the level eats the differences."""
    signals = np.random.default_rng(3).standard_normal((40, 8)) + 1e9
    twin = moment_distances(signals.T @ signals / len(signals))
    assert np.abs(twin / direct_distances(signals) - 1.0).max() > 0.5


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_squared_distances_of_near_nodes_survive_one_node_far_away(far):
    """One column in other units (pascals beside degrees) must not blur the distances among the others."""
    signals = np.random.default_rng(4).standard_normal((200, 10))
    signals[:, 0] += far
    np.testing.assert_allclose(squared_distances(signals), direct_distances(signals), rtol=1e-9)


def test_identical_nodes_are_at_distance_zero():
    half = np.random.default_rng(5).standard_normal((30, 4)) * 100.0
    z = squareform(squared_distances(np.hstack([half, half])))
    assert np.abs(np.diag(z[:4, 4:])).max() <= 1e-12 * z.max()
    off = z[:4, :4][np.triu_indices(4, 1)]
    np.testing.assert_allclose(z[:4, 4:][np.triu_indices(4, 1)], off, rtol=1e-12)


@given(nodes=st.integers(2, 9), count=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
@CHEAP
def test_squared_distances_and_moment_distances_agree_with_loops(nodes, count, seed):
    signals = np.random.default_rng(seed).standard_normal((count, nodes))
    expected = direct_distances(signals)
    np.testing.assert_allclose(squared_distances(signals), expected, rtol=1e-10, atol=1e-12)
    moments = np.stack([signals.T @ signals / count, np.eye(nodes)])
    found = moment_distances(moments)
    np.testing.assert_allclose(found[0], expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found[1], np.full(len(expected), 2.0))
