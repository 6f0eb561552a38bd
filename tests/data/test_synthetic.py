"""The generators against what the paper says of them, checked with scipy rather than with their own helpers."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.data.silos import read_silos
from silograph.data.synthetic import (
    laplacian,
    nested_graphs,
    paper_graphs,
    rbf_graph,
    smooth_signals,
    write_sample_sites,
)

SEEDS = range(8)


def components(weights):
    return connected_components(squareform(weights), directed=False)[0]


def edges(weights):
    return set(np.flatnonzero(weights))


@pytest.mark.parametrize("seed", SEEDS)
def test_rbf_graph(seed):
    weights = rbf_graph(stream(seed, "test", 0, "rbf"))
    assert weights.shape == (190,)
    assert components(weights) == 1
    present = weights[weights > 0]
    assert present.min() >= 0.7
    assert present.max() <= 1


def test_rbf_weights_are_those_of_points_in_the_unit_square():
    # With nothing cut off, distances can be read back: they must fit into a plane and a unit square.
    weights = rbf_graph(stream(3, "test", 0, "rbf"), nodes=12, width=0.5, cut=0)
    squared = squareform(-2 * 0.5**2 * np.log(weights))
    centring = np.eye(12) - 1 / 12
    spectrum = np.linalg.eigvalsh(-centring @ squared @ centring / 2)
    assert squared.max() <= 2
    assert spectrum[-2] > 0.1
    np.testing.assert_allclose(spectrum[:-2], 0, atol=1e-12)


@pytest.mark.parametrize("added", ["uniform", "rbf"])
@pytest.mark.parametrize("keep", [0, 0.3, 0.5, 0.9, 1])
def test_paper_graphs(keep, added):
    for seed in SEEDS:
        graphs = paper_graphs(seed, keep=keep, added=added)
        assert graphs.local.shape == (5, 190)
        shared = edges(graphs.consensus)
        total = len(edges(graphs.local[0]))
        assert len(shared) == round(keep * total)
        for local in graphs.local:
            assert components(local) == 1
            assert len(edges(local)) == total
            assert shared <= edges(local)
            np.testing.assert_array_equal(local[sorted(shared)], graphs.consensus[sorted(shared)])
            new = local[sorted(edges(local) - shared)]
            if added == "uniform" and new.size:
                assert 0.7 <= new.min() <= new.max() <= 1
        if keep < 0.9:
            assert len({local.tobytes() for local in graphs.local}) == 5


def test_added_rbf_edges_have_the_pairs_own_weight():
    graphs = paper_graphs(2, silos=40, keep=0.3, added="rbf")
    weights = np.where(graphs.local > 0, graphs.local, np.nan)
    seen = ~np.isnan(weights).all(axis=0)
    # The same pair has the same weight wherever it was added.
    np.testing.assert_array_equal(np.nanmin(weights[:, seen], axis=0), np.nanmax(weights[:, seen], axis=0))
    assert np.nanmin(weights[:, seen]) < 0.7


def test_added_edges_are_uniform():
    graphs = paper_graphs(2, silos=60, keep=0.5)
    new = graphs.local[:, graphs.consensus == 0]
    weights = new[new > 0]
    assert abs(weights.mean() - 0.85) < 4 * 0.3 / np.sqrt(12 * weights.size)
    rate = weights.size / new.size
    deviation = np.sqrt(rate * (1 - rate) / 60)
    assert np.abs((new > 0).mean(axis=0) - rate).max() < 4.5 * deviation


def test_nested_graphs():
    for seed in SEEDS:
        graphs = nested_graphs(seed)
        first = edges(graphs.consensus)
        assert graphs.local.shape == (5, 190)
        np.testing.assert_array_equal(graphs.local[0], graphs.consensus)
        for keep, local in zip((0.8, 0.6, 0.4, 0.2), graphs.local[1:], strict=True):
            assert components(local) == 1
            assert len(edges(local)) == len(first)
            unchanged = np.count_nonzero((local == graphs.consensus) & (local > 0))
            assert unchanged == round(keep * len(first))


def test_generators_repeat_themselves():
    np.testing.assert_array_equal(paper_graphs(4).local, paper_graphs(4).local)
    np.testing.assert_array_equal(nested_graphs(4).local, nested_graphs(4).local)
    assert edges(paper_graphs(4).consensus) != edges(paper_graphs(5).consensus)


def test_laplacian():
    expected = [[3, -1, -2, 0], [-1, 1, 0, 0], [-2, 0, 5, -3], [0, 0, -3, 3]]
    np.testing.assert_array_equal(laplacian(np.array([1, 2, 0, 0, 0, 3.0])), expected)
    with pytest.raises(InputError, match="there are 5"):
        laplacian(np.ones(5))


def test_signals_have_the_covariance_of_the_paper():
    weights = paper_graphs(6).local[0]
    expected = np.linalg.pinv(laplacian(weights)) + 0.1**2 * np.eye(20)
    count = 40_000
    signals = smooth_signals(stream(6, "test", 0, "signals"), weights, count)
    assert signals.shape == (count, 20)
    diagonal = np.diag(expected)
    # Standard errors of a Gaussian sample; 5 of them for the largest of 210 covariances and of 20 means.
    error = np.sqrt((expected**2 + np.outer(diagonal, diagonal)) / count)
    assert (np.abs(signals.T @ signals / count - expected) < 5 * error).all()
    assert (np.abs(signals.mean(axis=0)) < 5 * np.sqrt(diagonal / count)).all()


def test_signals_of_a_graph_in_two_parts():
    weights = squareform(np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3)))
    signals = smooth_signals(stream(1, "test", 0, "signals"), weights, 100, noise=0)
    np.testing.assert_allclose(signals[:, :3].sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(signals[:, 3:].sum(axis=1), 0, atol=1e-12)


def test_sample_sites(tmp_path):
    paths = write_sample_sites(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        "site_harbour.csv",
        "site_hill.csv",
        "site_mill.csv",
        "site_park.csv",
        "site_station.csv",
    ]
    again = write_sample_sites(tmp_path / "again")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert write_sample_sites(tmp_path / "other", seed=2)[0].read_bytes() != paths[0].read_bytes()
    silos = read_silos(paths)
    assert [len(signals) for signals in silos.signals] == [400, 600, 800, 1000, 1200]
    assert len(silos.nodes) == 20
    assert silos.nodes[0] == "north_01"
    truth = paper_graphs(1, keep=0.8).local
    for signals, weights in zip(silos.signals, truth, strict=True):
        np.testing.assert_array_equal(signals, np.round(signals, 6))
        # Smooth on its own graph: x'Lx has mean trace(L (L^+ + .01 I)).
        matrix = laplacian(weights)
        energy = np.einsum("na,ab,nb->n", signals, matrix, signals)
        expected = 19 + 0.01 * np.trace(matrix)
        assert abs(energy.mean() - expected) < 5 * energy.std() / np.sqrt(len(energy))


@pytest.mark.parametrize(
    "call",
    [
        lambda: paper_graphs(1, keep=1.5),
        lambda: paper_graphs(1, added="other"),
        lambda: nested_graphs(1, keeps=(0.5, -1)),
        lambda: rbf_graph(stream(1, "test", 0, "rbf"), nodes=5, cut=0.9999),
        lambda: write_sample_sites("never", rows=(1, 2)),
    ],
)
def test_impossible_requests_are_refused(call):
    with pytest.raises(InputError):
        call()
