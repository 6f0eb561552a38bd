"""The most likely Gaussian with given edges: for every row k, over T_k > 0 that is 0 off the diagonal and the edges,

    minimise  tr(S_k T_k) - logdet T_k                                                                               (a)

The dual maximises logdet W_k + d over W_k > 0 that agrees with S_k on the diagonal and the edges. Node by node, the
rest of W is the regression of the node on its neighbours (Hastie, Tibshirani, Friedman, 2009, algorithm 17.1), which
costs a system of equations as large as the node's degree. W stays feasible, so its value is a bound at every moment.
The same regressions give T: 1 / T_aa is what is left of the variance, -T_ab / T_aa the weight of neighbour b. With it

    gap = tr(S T) - logdet T - logdet W - d >= 0.                                                                    (b)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array, BoolArray
from silograph.kernels.definite import add, cholesky, dot, log_det

SWEEPS = 2000


@dataclass(frozen=True)
class Fitted:
    """The most likely Gaussian of every row.

    Parameters
    ----------
    precision : T, (K, d, d), 0 off the diagonal and the edges.
    likelihood : The log-likelihood logdet T - tr(S T), (K,).
    gap : The certificate (b) per node, (K,): an error in nats.

    >>> found = fit(np.array([np.eye(2)]), np.zeros((1, 2, 2), dtype=bool))
    >>> found.precision[0], found.likelihood
    (array([[1., 0.],
           [0., 1.]]), array([-2.]))
    """

    precision: Array
    likelihood: Array
    gap: Array


def fit(moments: Array, edges: BoolArray, tolerance: float = 1e-6) -> Fitted:
    """Fit the most likely Gaussian with given edges to every row: the minimum of (a).

    Parameters
    ----------
    moments : Second moments S (K, d, d), positive definite.
    edges : Which pairs have an edge (K, d, d), symmetric; the diagonal does not matter.
    tolerance : The gap per node to reach.

    >>> moments = np.array([[1.0, 0.5, 0.4], [0.5, 1.0, 0.5], [0.4, 0.5, 1.0]])
    >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> np.linalg.inv(fit(moments[None], path[None]).precision[0]).round(3)  # nodes 0 and 2 are related through 1 alone
    array([[1.  , 0.5 , 0.25],
           [0.5 , 1.  , 0.5 ],
           [0.25, 0.5 , 1.  ]])
    """
    sites, nodes = moments.shape[0], moments.shape[1]
    precision, facts = np.empty(moments.shape), np.empty((sites, 2))
    for k in range(sites):
        ends, others = np.nonzero(edges[k] & ~np.eye(nodes, dtype=bool))
        bounds = np.searchsorted(ends, np.arange(nodes + 1))
        _regress(np.ascontiguousarray(moments[k]), others, bounds, tolerance, precision[k], facts[k])
    return Fitted(precision, facts[:, 0].copy(), facts[:, 1].copy())


@njit(cache=True, nogil=True)
def _regress(
    s: Array, others: NDArray[np.intp], bounds: NDArray[np.intp], tolerance: float, precision: Array, facts: Array
) -> None:
    nodes = len(s)
    w, deviation, due = s.copy(), np.sqrt(np.diag(s)), 0.01
    weights, left, root = np.empty(others.size), np.empty(nodes), np.zeros_like(s)
    for sweep in range(SWEEPS):
        moved = 0.0
        for a in range(nodes):
            near = others[bounds[a] : bounds[a + 1]]
            fresh = np.zeros(nodes)
            left[a] = s[a, a]
            if near.size:
                inner, right = np.empty((near.size, near.size)), np.empty(near.size)
                for i in range(near.size):
                    right[i] = s[a, near[i]]
                    for j in range(near.size):
                        inner[i, j] = w[near[i], near[j]]
                solved = weights[bounds[a] : bounds[a + 1]]
                solved[:] = np.linalg.solve(inner, right)
                left[a] -= dot(solved, right)
                for i in range(near.size):
                    add(fresh, solved[i], w[near[i]])
            fresh[a] = s[a, a]
            for i in range(near.size):
                fresh[near[i]] = s[a, near[i]]
            for b in range(nodes):
                moved = max(moved, abs(fresh[b] - w[a, b]) / (deviation[a] * deviation[b]))
                w[a, b] = fresh[b]
                w[b, a] = fresh[b]
        if moved <= due or sweep == SWEEPS - 1:
            _certify(s, w, others, bounds, weights, left, root, precision, facts)
            if facts[1] <= tolerance or moved <= 1e-14:
                return
            due = 0.1 * moved


@njit(cache=True, nogil=True)
def _certify(
    s: Array, w: Array, others: NDArray[np.intp], bounds: NDArray[np.intp], weights: Array, left: Array, root: Array,
    precision: Array, facts: Array,
) -> None:  # fmt: skip
    """Fills in T, its likelihood and (b)."""
    nodes, trace = len(s), 0.0
    precision[:] = 0.0
    for a in range(nodes):
        precision[a, a] = 1.0 / left[a]
        trace += s[a, a] / left[a]
        for place in range(bounds[a], bounds[a + 1]):
            half = -0.5 * weights[place] / left[a]  # the other half comes from the other end
            precision[a, others[place]] += half
            precision[others[place], a] += half
            trace += 2.0 * s[a, others[place]] * half
    facts[0] = log_det(root) - trace if cholesky(precision, root) else -np.inf
    facts[1] = max(0.0, -facts[0] - log_det(root) - nodes) / nodes if cholesky(w, root) else np.inf
