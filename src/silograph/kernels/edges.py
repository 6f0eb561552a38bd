"""Edge vectors: a graph on d nodes is the p = d(d-1)/2 weights of its pairs a < b, ordered as `triu_indices(d, 1)`.

All functions work on the trailing axis; leading axes are silos.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array
from silograph.kernels.memory import check_memory

_BLOCK = 256  # nodes whose distances are computed at a time


def edge_count(nodes: int) -> int:
    return nodes * (nodes - 1) // 2


def node_count(edges: int) -> int:
    """d from p = d(d-1)/2."""
    nodes = (1 + math.isqrt(1 + 8 * edges)) // 2
    if edge_count(nodes) != edges:
        raise ValueError(f"{edges} is not d(d-1)/2 for any whole number of nodes d")
    return nodes


@lru_cache(maxsize=8)
def pairs(nodes: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the two ends (a, b), a < b, of every edge of a graph on all pairs.

    Parameters
    ----------
    nodes : How many nodes d there are; there are d(d-1)/2 pairs.

    >>> pairs(4)
    (array([0, 0, 0, 1, 1, 2]), array([1, 2, 3, 2, 3, 3]))
    """
    a, b = np.triu_indices(nodes, 1)
    a.flags.writeable = b.flags.writeable = False  # shared by all callers
    return a, b


@njit(cache=True)
def _degree_rows(w: Array, out: Array) -> None:
    nodes = out.shape[1]
    for i in range(w.shape[0]):
        deg = out[i]
        k = 0
        for a in range(nodes - 1):
            row = w[i, k : k + nodes - 1 - a]
            tail = deg[a + 1 :]
            total = 0.0
            for j in range(row.size):
                total += row[j]
                tail[j] += row[j]
            deg[a] += total
            k += row.size


def degrees(w: Array) -> Array:
    """Sum the weights at each node: deg = S w, deg_a = sum over b of w_ab.

    Parameters
    ----------
    w : Edge vectors (..., p), in the order of `pairs`; the degrees are (..., d).

    >>> degrees(np.array([1.0, 0.5, 0.0]))  # three nodes: pairs (0, 1), (0, 2), (1, 2)
    array([1.5, 1. , 0.5])
    """
    nodes = node_count(w.shape[-1])
    out = np.zeros((math.prod(w.shape[:-1]), nodes))
    _degree_rows(np.ascontiguousarray(w, dtype=np.float64).reshape(len(out), -1), out)
    return out.reshape(*w.shape[:-1], nodes)


def spread(q: Array) -> Array:
    """S' q: q_a + q_b for every edge (a, b)."""
    a, b = pairs(q.shape[-1])
    return np.asarray(q[..., a] + q[..., b])


def squared_distances(signals: Array) -> Array:
    """Compute the papers' zbar, the mean squared difference of every two nodes:

        zbar_ab = (1/n) sum_i (x_i[a] - x_i[b])^2

    Parameters
    ----------
    signals : n signals on d nodes, (n, d), without gaps.

    >>> squared_distances(np.array([[0.0, 1.0, 3.0], [0.0, 1.0, -1.0]]))
    array([1., 5., 4.])
    """
    # The part common to all nodes, then each node's own level, is removed before squaring, which keeps the digits: in
    # x_a - x_b = (level_a - level_b) + (y_a - y_b) the second part has mean 0 over the signals.
    check_memory("distances", 8 * edge_count(signals.shape[1]), "Candidate edges need less: silograph.kernels.lists.")
    y = signals - signals.mean(axis=1, keepdims=True)
    level = y.mean(axis=0)
    y -= level
    nodes = y.shape[1]
    square = np.einsum("na,na->a", y, y)
    out = np.empty(edge_count(nodes))
    for first in range(0, nodes, _BLOCK):
        inner = y[:, first : first + _BLOCK].T @ y[:, first:]
        _fill_distances(inner, square, level, first, len(y), out)
    return out


@njit(cache=True)
def _fill_distances(inner: Array, square: Array, level: Array, first: int, signals: int, out: Array) -> None:
    """Fill in the distances of nodes first, first + 1, ... to those after them, from their inner products with
    these."""
    nodes = square.size
    for i in range(inner.shape[0]):
        a = first + i
        k = a * (2 * nodes - a - 1) // 2
        row = out[k : k + nodes - 1 - a]
        products, others, levels = inner[i, i + 1 :], square[a + 1 :], level[a + 1 :]
        for j in range(row.size):
            apart = level[a] - levels[j]
            row[j] = max(0.0, square[a] + others[j] - 2.0 * products[j]) / signals + apart * apart


def moment_distances(moment: Array) -> Array:
    """Compute the mean squared difference of every two nodes from a second moment: z_ab = M_aa + M_bb - 2 M_ab.

    Parameters
    ----------
    moment : Second moments M (..., d, d), which may be released ones; the distances are (..., p).

    >>> x = np.array([[0.0, 1.0, 3.0], [0.0, 1.0, -1.0]])
    >>> moment_distances(x.T @ x / len(x))  # as squared_distances(x)
    array([1., 5., 4.])
    """
    a, b = pairs(moment.shape[-1])
    diagonal = np.einsum("...aa->...a", moment)
    return np.asarray(diagonal[..., a] + diagonal[..., b] - 2.0 * moment[..., a, b])


def adjacency(w: Array) -> Array:
    """Make the symmetric weight matrix (d, d) of one edge vector.

    Parameters
    ----------
    w : Weights (p,), in the order of `pairs`.

    >>> adjacency(np.array([1.0, 0.5, 0.0]))
    array([[0. , 1. , 0.5],
           [1. , 0. , 0. ],
           [0.5, 0. , 0. ]])
    """
    nodes = node_count(w.shape[-1])
    out = np.zeros((nodes, nodes))
    out[pairs(nodes)] = w
    return out + out.T
