"""Signals without a level common to all nodes: rows that sum to nearly nothing, shares of a whole, the papers' own.

Such rows say exactly how all nodes together move: not at all. Every precision then has this one fact in all its
entries, and every pair of nodes looks negatively related. A graph can only be told up to the level, so the level is
given a variance as large as any that the rows have, and what is left are the relations between nodes.

That is all where nodes that a graph joins move together, as with a Laplacian: its rows sum to 0. With relations of both
signs a precision K that lost its level is

    T = K - u u',    u = K 1 / sqrt(1' K 1),                                                                         (a)

a little in every entry again. K is sparse and u has few numbers, so u is what most entries of -T have in common.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh

from silograph.core.types import Array, BoolArray

_ALIKE = 0.99  # the cosine of weights that are nearly equal
_RIDGE = 0.01  # of the identity, before correlations are inverted
_STEPS, _OUTLYING = 30, 2.5  # of a regression that leaves out entries so many deviations away
_DEVIATION = 1.4826  # of a normal law, over the median of its absolute values
_FAR_BELOW = 0.5  # of the second least eigenvalue; the least of rows with a level is hardly less than that


def with_level(moments: Array) -> tuple[Array, BoolArray]:
    """Covariances (K, d, d) with a level, and which of them lacked one.

    In units in which every variance is 1 the missing level is the least eigenvector, and all its entries have one sign.
    Where nothing is missing a least eigenvector has both signs, but for a chance of 2 to the power 1 - d.
    """
    whole, lacking = moments.copy(), np.zeros(len(moments), dtype=np.bool_)
    for k, moment in enumerate(moments):
        deviation, correlation, level, lacking[k] = _least(moment)
        if lacking[k]:
            whole[k] += np.linalg.norm(correlation) * np.outer(deviation * level, deviation * level)
    return whole, lacking


def sums_to_nothing(moment: Array) -> bool:
    """Whether the level that is missing is the plain mean over nodes, as a Laplacian has it."""
    deviation, _, level, lacking = _least(moment)
    combined = level / deviation
    return lacking and abs(combined.sum()) > _ALIKE * math.sqrt(len(combined)) * float(np.linalg.norm(combined))


def with_mean(moments: Array) -> Array:
    """The same for the plain mean over nodes, at all sites: rows around it stay as they are."""
    size = np.linalg.norm(moments, axis=(1, 2)) / moments.shape[-1]
    return np.asarray(moments + size[:, None, None])


def _least(moment: Array) -> tuple[Array, Array, Array, bool]:
    """Deviations, correlations, their least eigenvector, and whether that is a level that is missing."""
    deviation = np.sqrt(np.diagonal(moment))
    correlation = moment / np.outer(deviation, deviation)
    values, vectors = eigh(correlation, subset_by_index=[0, 1])
    level = vectors[:, 0]
    return deviation, correlation, level, len(set(np.sign(level))) == 1 and values[0] < _FAR_BELOW * values[1]


def with_sparsest_level(moments: Array) -> Array:
    """Covariances (K, d, d) that lost their level, with the one for which most pairs of nodes are not related: (a).

    In partial correlations -T_ab is v_a v_b but for the graph's edges: a robust regression of one factor.
    """
    whole = with_level(moments)[0]
    apart = ~np.eye(moments.shape[-1], dtype=bool)
    for k, moment in enumerate(whole):
        deviation = np.sqrt(np.diagonal(moment))
        correlation = moment / np.outer(deviation, deviation)
        t = np.linalg.inv((1.0 - _RIDGE) * correlation + _RIDGE * np.eye(len(moment)))
        own = np.sqrt(np.diagonal(t))
        partial = -t / np.outer(own, own)
        v = np.full(len(moment), math.sqrt(max(float(np.median(partial[apart])), 1e-12)))
        for _ in range(_STEPS):
            left = np.abs(partial - np.outer(v, v))
            near = apart & (left < _OUTLYING * _DEVIATION * np.median(left[apart]))
            v = 0.5 * (v + np.maximum((partial * near) @ v / np.maximum(near @ (v * v), 1e-300), 0.0))
        u = v * own
        seen = correlation @ u
        whole[k] = (correlation - np.outer(seen, seen) / (1.0 + u @ seen)) * np.outer(deviation, deviation)  # K^-1
    return whole
