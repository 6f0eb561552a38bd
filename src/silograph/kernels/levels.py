"""Signals without a level common to all nodes: rows that sum to nearly nothing, shares of a whole, the papers' own.

Such rows say exactly how all nodes together move: not at all. Every precision then has this one fact in all its
entries, and every pair of nodes looks negatively related. A graph can only be told up to the level, so the level is
given a variance as large as any that the rows have, and what is left are the relations between nodes. The direction
matters: a level moves every node alike in the units in which rows sum to nothing. Along any other one, all entries
of the precision are off by terms of one node each.

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
_HARDLY, _BEYOND_SIGNS = 0.4, 2.5  # of the variance that the sum of unrelated nodes has; deviations of random signs


def with_level(moments: Array) -> tuple[Array, BoolArray]:
    """Covariances (K, d, d) with a level, and which of them lacked one.

    In units in which every variance is 1 the sum that rows lack is the least eigenvector v, and all its entries have
    one sign. Where nothing is missing a least eigenvector has both signs, but for a chance of 2 to the power 1 - d.
    Where v'x is nothing, a level moves node a by 1 / v_a.
    """
    whole, lacking = moments.copy(), np.zeros(len(moments), dtype=np.bool_)
    for k, moment in enumerate(moments):
        deviation, correlation, least, lacking[k] = _least(moment)
        if lacking[k]:
            whole[k] += _variance_along(deviation / np.abs(least), deviation, correlation)
    return whole, lacking


def sums_to_nothing(moment: Array) -> bool:
    """Whether the level that is missing is the plain mean over nodes, as a Laplacian has it."""
    deviation, _, level, lacking = _least(moment)
    combined = level / deviation
    return lacking and abs(combined.sum()) > _ALIKE * math.sqrt(len(combined)) * float(np.linalg.norm(combined))


def sums_to_little(pooled: Array) -> bool:
    """The same of moments that were pooled over rows with gaps, or over sites that lack nodes.

    Gaps lift the least eigenvalue, and what sites of different nodes have together may have none above 0. So the
    variance of the plain sum is held against that of unrelated nodes, tr S, and against sums with random signs, whose
    variance is tr S give or take sqrt(2) times the norm of what S has off its diagonal.
    """
    alone, apart = float(np.trace(pooled)), pooled - np.diag(np.diagonal(pooled))
    less = alone - float(pooled.sum())
    return less > (1.0 - _HARDLY) * alone and less > _BEYOND_SIGNS * math.sqrt(2.0) * float(np.linalg.norm(apart))


def with_mean(moments: Array, own: BoolArray | None = None) -> Array:
    """Covariances (K, d, d) with a level that moves all nodes alike, or all that a site has, `own` (K, d): rows around
    their mean stay as they are."""
    size = np.linalg.norm(moments, axis=(1, 2)) / moments.shape[-1]
    if own is None:
        return np.asarray(moments + size[:, None, None])
    return np.asarray(moments + size[:, None, None] * (own[:, :, None] & own[:, None, :]))


def _least(moment: Array) -> tuple[Array, Array, Array, bool]:
    """Deviations, correlations, their least eigenvector, and whether that is a level that is missing."""
    deviation, correlation = _standardised(moment)
    values, vectors = eigh(correlation, subset_by_index=[0, 1])
    level = vectors[:, 0]
    return deviation, correlation, level, len(set(np.sign(level))) == 1 and values[0] < _FAR_BELOW * values[1]


def _standardised(moment: Array) -> tuple[Array, Array]:
    deviation = np.sqrt(np.diagonal(moment))
    return deviation, moment / np.outer(deviation, deviation)


def _variance_along(level: Array, deviation: Array, correlation: Array) -> Array:
    """Of a level that in units of the deviations varies as much as all nodes together."""
    size = np.linalg.norm(correlation) / np.linalg.norm(level / deviation) ** 2
    return np.asarray(size * np.outer(level, level))


def with_sparsest_level(moments: Array) -> Array:
    """Covariances (K, d, d) that lost their level, with the one for which most pairs of nodes are not related: (a).

    In partial correlations -T_ab is v_a v_b but for the graph's edges: a robust regression of one factor.
    """
    whole, apart = moments.copy(), ~np.eye(moments.shape[-1], dtype=bool)
    for k, moment in enumerate(moments):
        deviation, correlation, least, lacking = _least(moment)
        if lacking:  # any level will do to begin with
            begun = moment + _variance_along(deviation * least, deviation, correlation)
            deviation, correlation = _standardised(begun)
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
