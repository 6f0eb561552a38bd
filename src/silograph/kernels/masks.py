"""Moments of sites that saw some pairs of nodes in fewer rows, or never: pool them, fill them up, make them
definite."""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array, BoolArray
from silograph.kernels.edges import node_count, pairs

_LEAST = 0.01  # eigenvalue of correlations that are made definite
_SMALL = 1e-6  # of the largest eigenvalue: smaller directions predict nothing about others


def where_missing(pair_rows: Array | None, counts: Array) -> Array | None:
    """Return None if all rows saw all pairs: then the problem is the complete one, bit for bit."""
    return None if pair_rows is None or (pair_rows == counts[:, None, None]).all() else pair_rows


def definite(correlations: Array) -> Array:
    """Return a positive definite matrix as it is; else lift small eigenvalues to a floor and restore the diagonal of
    1."""
    values, vectors = np.linalg.eigh(correlations)
    if values[0] >= _LEAST:
        return correlations
    lifted = (vectors * np.maximum(values, _LEAST)) @ vectors.T
    own = np.sqrt(np.diagonal(lifted))
    return np.asarray(lifted / np.outer(own, own))


def filled_up(own: Array, whole: Array, here: BoolArray) -> Array:
    """Moments of all nodes from those of the nodes `here` (h); missing nodes (g) are related to them as in `whole`:

    R = S_gh S_hh^+,    M_gh = R M_hh,    M_gg = R M_hh R' + S_gg - R S_hg                                       (a)
    """
    known, gone = np.flatnonzero(here), np.flatnonzero(~here)
    hh, gh = np.ix_(known, known), np.ix_(gone, known)
    filled = np.zeros_like(whole)
    filled[hh] = own
    if gone.size:
        follows = whole[gh] @ np.linalg.pinv(whole[hh], rcond=_SMALL, hermitian=True)
        filled[gh] = follows @ own
        filled[np.ix_(gone, gone)] = filled[gh] @ follows.T + whole[np.ix_(gone, gone)] - follows @ whole[gh].T
        filled[np.ix_(known, gone)] = filled[gh].T
    return filled


def filled_by_others(correlations: Array, rows: Array) -> tuple[Array, Array]:
    """Correlations (K, d, d) with a site's missing nodes filled up as in the mean of all, and `rows` (K, p) with the
    site's mean number for pairs with a node that it lacks, if others know both nodes."""
    a, b = pairs(correlations.shape[-1])
    own: BoolArray = np.any(square(rows) != np.eye(correlations.shape[-1]), axis=-1)
    if own.all():
        return correlations, rows
    mean = definite(square(pooled(correlations[:, a, b], rows)))
    filled = [filled_up(one[np.ix_(mine, mine)], mean, mine) for one, mine in zip(correlations, own, strict=True)]
    lacking = (rows > 0.0).any(0) & ~(own[:, a] & own[:, b])
    return np.array(filled), np.where(lacking, mean_rows(rows)[:, None], rows)


def pooled(values: Array, rows: Array) -> Array:
    """The mean of sites' values, weighted by rows; 0 if no site saw the pair."""
    total = rows.sum(0)
    return np.asarray((values * rows).sum(0) / np.where(total > 0.0, total, 1.0))


def drawn_with_gaps(correlations: Array, rows: Array, noise: Array | None) -> tuple[Array, Array]:
    """Correlations (K, d, d) shrunk towards the pooled ones as far as their noise requires, and how far, (K,): (b) of
    `methods/joint_graphs.py` with `rows` (K, p) for every pair. Pairs that a site never saw stay as they are."""
    a, b = pairs(correlations.shape[-1])
    r, seen = correlations[:, a, b], rows > 0.0
    if len(r) == 1:
        return correlations, np.zeros(1)
    every = np.maximum(seen.sum(1), 1)
    alone = np.where(seen, (1.0 - r**2) ** 2 / np.where(seen, rows, 1.0), 0.0).sum(1) / every
    v = alone if noise is None else np.maximum(noise, alone)
    share = rows / np.maximum(rows.sum(0), 1e-300)
    several = seen & (share < 1.0)
    mean = pooled(r, rows)
    between = np.where(several, (r - mean) ** 2 / np.where(several, 1.0 - share, 1.0), 0.0).sum(1)
    between /= np.maximum(several.sum(1), 1)
    spread = max(0.0, float(rows.sum(1) @ (between - v)) / float(rows.sum()))
    c = v / (v + spread)
    mixed = correlations.copy()
    moved = np.where(several, (1.0 - c)[:, None] * r + c[:, None] * mean, r)
    mixed[:, a, b] = mixed[:, b, a] = moved
    return np.array([definite(one) for one in mixed]), c


def mean_rows(pair_rows: Array) -> Array:
    """The mean number of rows per pair, over the pairs that a site saw."""
    return np.asarray(np.maximum(pair_rows.sum(1) / np.maximum((pair_rows > 0.0).sum(1), 1), 2.0))


def over_seen(values: Array, pair_rows: Array | None) -> Array:
    """The mean over the pairs that a site saw."""
    if pair_rows is None:
        return np.asarray(values.mean(-1))
    return np.asarray((values * (pair_rows > 0.0)).sum(-1) / np.maximum((pair_rows > 0.0).sum(-1), 1))


def square(edge_vectors: Array) -> Array:
    """Symmetric matrices from edge vectors (..., p), with 1 on the diagonal."""
    nodes = node_count(edge_vectors.shape[-1])
    a, b = pairs(nodes)
    made = np.ones((*edge_vectors.shape[:-1], nodes, nodes))
    made[..., a, b] = made[..., b, a] = edge_vectors
    return made
