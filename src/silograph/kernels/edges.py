"""Edge vectors: a graph on d nodes is the p = d(d-1)/2 weights of its pairs a < b, ordered as `triu_indices(d, 1)`.

Everything works on the trailing axis; leading axes say "which silo".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from silograph.core.types import Array


def edge_count(nodes: int) -> int:
    return nodes * (nodes - 1) // 2


def node_count(edges: int) -> int:
    """d from p = d(d-1)/2."""
    nodes = (1 + math.isqrt(1 + 8 * edges)) // 2
    if edge_count(nodes) != edges:
        raise ValueError(f"{edges} is not d(d-1)/2 for any whole number of nodes d")
    return nodes


def pairs(nodes: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The two ends (a, b), a < b, of every edge."""
    return np.triu_indices(nodes, 1)


def degrees(w: Array) -> Array:
    """S w: the sum of the weights at each node."""
    nodes = node_count(w.shape[-1])
    out = np.zeros((*w.shape[:-1], nodes))
    k = 0
    for a in range(nodes - 1):
        row = w[..., k : k + nodes - 1 - a]
        out[..., a] += row.sum(-1)
        out[..., a + 1 :] += row
        k += nodes - 1 - a
    return out


def spread(q: Array) -> Array:
    """S' q: q_a + q_b for every edge (a, b)."""
    a, b = pairs(q.shape[-1])
    return np.asarray(q[..., a] + q[..., b])


def squared_distances(signals: Array) -> Array:
    """zbar: the mean over the signals (rows) of (x[a] - x[b])^2, for every pair of nodes."""
    # Differences do not see what is common to all nodes; taking it out first keeps the digits.
    centred = signals - signals.mean(axis=1, keepdims=True)
    return moment_distances(centred.T @ centred / len(signals))


def moment_distances(moment: Array) -> Array:
    """z_ab = M_aa + M_bb - 2 M_ab from a second moment M (..., d, d)."""
    a, b = pairs(moment.shape[-1])
    diagonal = np.einsum("...aa->...a", moment)
    return np.asarray(diagonal[..., a] + diagonal[..., b] - 2.0 * moment[..., a, b])


def adjacency(w: Array) -> Array:
    """The symmetric weight matrix of one edge vector."""
    nodes = node_count(w.shape[-1])
    out = np.zeros((nodes, nodes))
    out[pairs(nodes)] = w
    return out + out.T
