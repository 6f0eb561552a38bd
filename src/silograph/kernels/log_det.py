"""Graphs as the precision of Gaussian signals: the likelihood of a Laplacian, with a ridge, by coordinate descent.

    minimise  z.w + 2 beta |w|^2 - logdet+ L(w),    w >= 0                                                    (a)

Along one edge (a) has a closed minimum: with r = (e_a - e_b)' L+ (e_a - e_b), the effective resistance of the pair,
adding t to its weight multiplies the pseudo-determinant by 1 + t r, and L+ changes by a matrix of rank one.

The dual bounds (a) from below: -logdet X = max over Y > 0 of m - tr(XY) + logdet Y, so at Y = L+ the gap is

    z.w + 2 beta |w|^2 - m + sum_e max(0, r_e - z_e)^2 / (8 beta),                                            (b)

m = d - 1 for connected graphs. If so many edges are forbidden that the graph falls apart, each part is a separate
problem and m = d - parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array
from silograph.kernels.edges import node_count, pairs

SWEEPS = 3000  # a few dozen are enough for most; ridges near 0 take more
_FRESH = 10  # after so many sweeps L+ is computed again and the gap is checked
_COARSE = 24  # numbers of edges that are tried first


@dataclass(frozen=True)
class Likely:
    """The minimum of (a) for each row.

    Parameters
    ----------
    w : Edge weights (I, p) of the Laplacian.
    likelihood : The log-likelihood logdet+ L(w) - z.w, (I,).
    objective : The value of (a), (I,).
    gap : The certificate (b) over m, (I,): the value is above the minimum by at most m times this.

    >>> found = solve(np.array([[1.0]]), ridge=np.array([0.5]))
    >>> found.w.round(6), found.likelihood.round(6)  # one edge: logdet+ L = log 2w
    (array([[0.5]]), array([-0.5]))
    """

    w: Array
    likelihood: Array
    objective: Array
    gap: Array


def solve(z: Array, ridge: Array, tolerance: float = 1e-6) -> Likely:
    """Find the most likely Laplacian: minimise (a) for each row of z.

    Parameters
    ----------
    z : Mean squared differences of pairs of nodes (I, p), as of `edges.squared_distances`; infinite forbids an edge.
    ridge : beta in (a), (I,), above 0.
    tolerance : The gap over m to reach. Multiplying all weights by s changes (a) by m log s, so it is an error in the
        weights.

    >>> solve(np.array([[1.0]]), ridge=np.array([0.5])).w.round(6)  # one edge: w + w^2 - log 2w, least at w = 1/2
    array([[0.5]])
    """
    nodes = node_count(z.shape[-1])
    a, b = pairs(nodes)
    free = np.isfinite(z)
    # Start at the best graph of equal weights, ridge aside.
    cost = np.where(free, z, 0.0).sum(-1, keepdims=True)
    w = np.where(free, (nodes - 1.0) / np.maximum(cost, 1e-300), 0.0)
    facts = np.zeros((len(z), 3))
    for i in range(len(z)):
        _descend(z[i], float(ridge[i]), w[i], a, b, _parts(free[i], a, b, nodes), tolerance, facts[i])
    return Likely(w, facts[:, 0].copy(), facts[:, 1].copy(), facts[:, 2].copy())


def strongest(z: Array, ridge: float, w: Array, edges: int) -> Likely:
    """Solve one row again on its `edges` heaviest edges alone."""
    kept = np.full_like(z, np.inf)
    heaviest = _by_weight(w)[:edges]
    kept[heaviest] = z[heaviest]
    return solve(kept[None], np.array([ridge]))


def most_likely(z: Array, ridge: float, w: Array, records: float) -> Likely:
    """Solve one row again on as many of its heaviest edges as Schwarz' criterion (BIC) selects for so many records:

        (N/2) (logdet+ L - z.w) - (k/2) log N,  the largest over k                                            (c)

    Only graphs that connect all nodes that can be connected are compared: others would rule out some differences.

    Parameters
    ----------
    z : Mean squared differences of pairs of nodes (p,); infinite forbids an edge.
    ridge : beta in (a), above 0.
    w : Weights (p,) that `solve` found for this row.
    records : The number of records N, or as many as the noise leaves (`pooling.effective_rows`).

    >>> z = np.array([1.0, 1.9, 1.0])  # of a path with weights 1 they would be 1, 2 and 1
    >>> w = solve(z[None], ridge=np.array([1e-3])).w[0]
    >>> w.round(2), most_likely(z, 1e-3, w, records=50.0).w.round(2)
    (array([0.95, 0.05, 0.95]), array([[1., 0., 1.]]))
    """
    order, (a, b) = _by_weight(w), pairs(node_count(len(z)))
    least = _spanning(np.isfinite(z), order, a, b)
    tried: dict[int, tuple[float, Likely]] = {}

    def score(k: int) -> float:
        if k not in tried:
            likely = strongest(z, ridge, w, k)
            tried[k] = 0.5 * records * float(likely.likelihood[0]) - 0.5 * k * math.log(records), likely  # (c)
        return tried[k][0]

    step = -(-(len(order) - least) // _COARSE) or 1
    best = max(range(least, len(order) + 1, step), key=score)
    best = max(range(max(least, best - step + 1), min(len(order), best + step - 1) + 1), key=score)
    return tried[best][1]


def _by_weight(w: Array) -> NDArray[np.intp]:
    """The edges in use, the heaviest first."""
    return np.argsort(-w, kind="stable")[: np.count_nonzero(w)]


def _spanning(free: NDArray[np.bool_], order: NDArray[np.intp], a: NDArray[np.intp], b: NDArray[np.intp]) -> int:
    """How many of these edges, taken in order, connect the same nodes as all free ones."""
    nodes = node_count(len(free))
    parts = len(np.unique(_parts(free, a, b, nodes)))
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        taken = np.zeros(len(free), dtype=np.bool_)
        taken[order[:middle]] = True
        if len(np.unique(_parts(taken, a, b, nodes))) == parts:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True)
def _parts(free: NDArray[np.bool_], a: NDArray[np.intp], b: NDArray[np.intp], nodes: int) -> NDArray[np.intp]:
    """For every node, the first node connected with it."""
    part = np.arange(nodes)
    for e in range(len(free)):
        if free[e] and part[a[e]] != part[b[e]]:
            low, high = min(part[a[e]], part[b[e]]), max(part[a[e]], part[b[e]])
            for k in range(nodes):
                if part[k] == high:
                    part[k] = low
    return part


@njit(cache=True, nogil=True)
def _inverse(
    w: Array, a: NDArray[np.intp], b: NDArray[np.intp], part: NDArray[np.intp], size: Array
) -> tuple[Array, float]:
    """L+ and logdet+ L: with the eigenvalue of every part's constant vector set to 1, L is regular."""
    nodes = len(part)
    lap = np.zeros((nodes, nodes))
    for i in range(nodes):
        for j in range(nodes):
            if part[i] == part[j]:
                lap[i, j] = 1.0 / size[part[i]]
    constant = lap.copy()
    for e in range(len(w)):
        if w[e] > 0.0:
            i, j = a[e], b[e]
            lap[i, i] += w[e]
            lap[j, j] += w[e]
            lap[i, j] -= w[e]
            lap[j, i] -= w[e]
    root = np.linalg.cholesky(lap)
    log_det = 0.0
    for k in range(nodes):
        log_det += 2.0 * math.log(root[k, k])
    return np.linalg.inv(lap) - constant, log_det


@njit(cache=True, nogil=True)
def _descend(
    z: Array,
    beta: float,
    w: Array,
    a: NDArray[np.intp],
    b: NDArray[np.intp],
    part: NDArray[np.intp],
    tolerance: float,
    facts: Array,
) -> None:
    nodes = len(part)
    size, m = np.zeros(nodes), 0.0
    for k in range(nodes):
        size[part[k]] += 1.0
        m += part[k] != k
    if m == 0.0:
        return
    u = np.empty(nodes)
    for sweep in range(SWEEPS + 1):
        if sweep % _FRESH == 0:
            inverse, log_det = _inverse(w, a, b, part, size)
            fit, square, slack = 0.0, 0.0, 0.0
            for e in range(len(w)):
                if z[e] < np.inf:
                    r = inverse[a[e], a[e]] + inverse[b[e], b[e]] - 2.0 * inverse[a[e], b[e]]
                    fit += z[e] * w[e]
                    square += w[e] * w[e]
                    slack += max(0.0, r - z[e]) ** 2
            gap = fit + 2.0 * beta * square - m + slack / (8.0 * beta)  # (b)
            facts[0], facts[1], facts[2] = log_det - fit, fit + 2.0 * beta * square - log_det, max(gap, 0.0) / m
            if gap <= tolerance * m:
                return
        for e in range(len(w)):
            if z[e] == np.inf:
                continue
            i, j = a[e], b[e]
            r = inverse[i, i] + inverse[j, j] - 2.0 * inverse[i, j]
            c = z[e] + 4.0 * beta * (w[e] - 1.0 / r)
            x = 2.0 * r / (c + math.sqrt(c * c + 16.0 * beta))  # 1 + t r at the minimum over t
            step = max(-w[e], (x - 1.0) / r)
            if step == 0.0:
                continue
            w[e] = max(0.0, w[e] + step)
            for k in range(nodes):
                u[k] = inverse[k, i] - inverse[k, j]
            share = step / (1.0 + step * r)
            for k in range(nodes):
                scaled = share * u[k]
                for n in range(nodes):
                    inverse[k, n] -= scaled * u[n]
