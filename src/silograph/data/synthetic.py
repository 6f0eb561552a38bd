"""Graphs and signals of the consensus-graph experiments (S3, section V.A), and sample sites to try things on.

A graph is the vector of its edge weights in the order of `triu_indices(nodes, 1)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import connected_components

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.tables import write_sample

Added = Literal["uniform", "rbf"]

SAMPLE_SITES = ("site_harbour", "site_hill", "site_mill", "site_park", "site_station")

_TRIES = 100  # redraws before giving up on a connected graph; at the papers' settings a few are enough


@dataclass(frozen=True)
class PaperGraphs:
    """The true graphs of an experiment: `local` has one row per silo."""

    local: Array
    consensus: Array


def rbf_graph(rng: np.random.Generator, nodes: int = 20, width: float = 0.5, cut: float = 0.7) -> Array:
    """A connected graph of random points in the unit square: exp(-distance^2 / (2 width^2)) where that is >= cut."""
    return _rbf(rng, nodes, width, cut)[1]


def paper_graphs(
    seed: int, silos: int = 5, nodes: int = 20, keep: float = 0.5, added: Added = "uniform"
) -> PaperGraphs:
    """Local graphs that share a part of one RBF graph, the consensus, and differ in as many edges as it lost."""
    for attempt in range(_TRIES):
        similarity, base = _rbf(stream(seed, "consensus", attempt, "rbf graph"), nodes)
        consensus = _thinned(stream(seed, "consensus", attempt, "kept edges"), base, keep)
        local = [
            _filled_up(stream(seed, f"silo {silo}", attempt, "added edges"), consensus, base, similarity, added)
            for silo in range(silos)
        ]
        connected = [graph for graph in local if graph is not None]
        if len(connected) == silos:
            return PaperGraphs(np.array(connected), consensus)
    raise _never_connected(nodes)


def nested_graphs(
    seed: int, keeps: Sequence[float] = (0.8, 0.6, 0.4, 0.2), nodes: int = 20, added: Added = "uniform"
) -> PaperGraphs:
    """Table III, case 2: the first silo has the consensus graph, the others keep less and less of it."""
    for attempt in range(_TRIES):
        similarity, base = _rbf(stream(seed, "silo 0", attempt, "rbf graph"), nodes)
        others = []
        for silo, keep in enumerate(keeps, start=1):
            kept = _thinned(stream(seed, f"silo {silo}", attempt, "kept edges"), base, keep)
            rng = stream(seed, f"silo {silo}", attempt, "added edges")
            others.append(_filled_up(rng, kept, base, similarity, added))
        connected = [graph for graph in others if graph is not None]
        if len(connected) == len(keeps):
            return PaperGraphs(np.array([base, *connected]), base)
    raise _never_connected(nodes)


def smooth_signals(rng: np.random.Generator, weights: Array, count: int, noise: float = 0.1) -> Array:
    """Signals that vary little along strong edges: rows drawn from N(0, pinv(L) + noise^2 I).  (26)"""
    values, vectors = np.linalg.eigh(laplacian(weights))
    positive = values > 1e-10 * values[-1]
    deviations = np.sqrt(np.divide(1, values, out=np.zeros_like(values), where=positive) + noise**2)
    # The symmetric root does not depend on the signs or the basis that the eigensolver chose.
    root = (vectors * deviations) @ vectors.T
    signals: Array = rng.standard_normal((count, len(values))) @ root
    return signals


def laplacian(weights: Array) -> Array:
    """The Laplacian matrix of a graph."""
    adjacency = _adjacency(weights)
    matrix: Array = np.diag(adjacency.sum(axis=0)) - adjacency
    return matrix


def write_sample_sites(
    folder: str | Path,
    seed: int = 1,
    rows: Sequence[int] = (400, 600, 800, 1000, 1200),
    nodes: int = 20,
    keep: float = 0.8,
) -> list[Path]:
    """CSV files of five sites whose sensors are related in similar ways; the same seed writes the same bytes."""
    if len(rows) != len(SAMPLE_SITES):
        raise InputError("rows", f"one number for each of the {len(SAMPLE_SITES)} sites", f"there are {len(rows)}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sides = ("north", "east", "south", "west")
    header = [f"{sides[k % 4]}_{k // 4 + 1:02d}" for k in range(nodes)]
    paths = []
    for site, graph, count in zip(SAMPLE_SITES, paper_graphs(seed, len(rows), nodes, keep).local, rows, strict=True):
        readings = smooth_signals(stream(seed, site, 0, "sensor readings"), graph, count)
        lines = [",".join(f"{value:.6f}" for value in row) for row in readings]
        paths.append(write_sample(folder / f"{site}.csv", header, lines))
    return paths


def _rbf(rng: np.random.Generator, nodes: int, width: float = 0.5, cut: float = 0.7) -> tuple[Array, Array]:
    """Every pair's RBF value, and the connected graph of those that are at least `cut`."""
    first, second = np.triu_indices(nodes, 1)
    for _ in range(_TRIES):
        points = rng.random((nodes, 2))
        similarity = np.exp(-((points[first] - points[second]) ** 2).sum(axis=1) / (2 * width**2))
        graph = np.where(similarity < cut, 0.0, similarity)
        if _is_connected(graph):
            return similarity, graph
    raise _never_connected(nodes)


def _thinned(rng: np.random.Generator, graph: Array, keep: float) -> Array:
    """A random part of the graph's edges, `keep` of them all."""
    if not 0 <= keep <= 1:
        raise InputError("keep", "a proportion between 0 and 1", f"found {keep}")
    edges = np.flatnonzero(graph)
    kept = rng.choice(edges, round(keep * len(edges)), replace=False)
    thinned = np.zeros_like(graph)
    thinned[kept] = graph[kept]
    return thinned


def _filled_up(rng: np.random.Generator, kept: Array, base: Array, similarity: Array, added: Added) -> Array | None:
    """`kept` with new edges at free places until it has as many as `base`; None if it never comes out connected."""
    if added not in ("uniform", "rbf"):
        raise InputError("added", "'uniform' or 'rbf'", f"found {added!r}")
    free = np.flatnonzero(kept == 0)
    number = np.count_nonzero(base) - np.count_nonzero(kept)
    for _ in range(_TRIES):
        places = rng.choice(free, number, replace=False)
        graph = kept.copy()
        graph[places] = rng.uniform(0.7, 1, number) if added == "uniform" else similarity[places]
        if _is_connected(graph):
            return graph
    return None


def _adjacency(weights: Array) -> Array:
    nodes = (1 + math.isqrt(1 + 8 * len(weights))) // 2
    if nodes * (nodes - 1) // 2 != len(weights):
        raise InputError("weights", "one weight per pair of nodes: 3, 6, 10, 15, ...", f"there are {len(weights)}")
    adjacency = np.zeros((nodes, nodes))
    adjacency[np.triu_indices(nodes, 1)] = weights
    return adjacency + adjacency.T


def _is_connected(weights: Array) -> bool:
    parts, _ = connected_components(_adjacency(weights) > 0, directed=False)
    return bool(parts == 1)


def _never_connected(nodes: int) -> InputError:
    return InputError(f"a random graph of {nodes} nodes", "a connected one", f"none of {_TRIES} was")
