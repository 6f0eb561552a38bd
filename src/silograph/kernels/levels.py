"""Signals without a level common to all nodes: rows that sum to nearly nothing, shares of a whole, the papers' own.

In such rows all nodes together do not move at all. Every precision then has this one fact in all its entries, and every
pair of nodes looks negatively related. A graph can only be known up to the level. So the level gets a variance as large
as any in the rows, and the relations between nodes remain. The direction matters: a level moves every node alike in the
units in which rows sum to nothing. Along any other direction, all entries of the precision are wrong by terms of one
node each.

That is enough if nodes joined by the graph move together, as with a Laplacian: its rows sum to 0. With relations of
both signs, a precision K that lost its level is

    T = K - u u',    u = K 1 / sqrt(1' K 1),                                                                         (a)

again a small change in every entry. K is sparse and u has few numbers, so u is the common part of most entries of -T.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh

from silograph.core.types import Array, BoolArray

_ALIKE = 0.99  # the cosine of weights that are nearly equal
_RIDGE = 0.01  # of the identity, before correlations are inverted
_STEPS, _OUTLYING = 30, 2.5  # a regression leaves out entries so many deviations away
_DEVIATION = 1.4826  # of a normal law, over the median of its absolute values
_FAR_BELOW = 0.5  # of the second least eigenvalue; with a level, the least one is hardly smaller than that
_HARDLY, _BEYOND_SIGNS = 0.4, 2.5  # of the variance that the sum of unrelated nodes has; deviations of random signs


def with_level(moments: Array) -> tuple[Array, BoolArray]:
    """Covariances (K, d, d) with a level, and which of them lacked one.

    In units in which every variance is 1, the sum that rows lack is the least eigenvector v, and all its entries have
    one sign. If nothing is missing, a least eigenvector has both signs, except with a chance of 2 to the power 1 - d.
    If v'x is nothing, a level moves node a by 1 / v_a.
    """
    whole, lacking = moments.copy(), np.zeros(len(moments), dtype=np.bool_)
    for k, moment in enumerate(moments):
        deviation, correlation, least, lacking[k] = _least(moment)
        if lacking[k]:
            whole[k] += _variance_along(deviation / np.abs(least), deviation, correlation)
    return whole, lacking


def sums_to_nothing(moment: Array) -> bool:
    """Whether the missing level is the plain mean over nodes, as for a Laplacian."""
    deviation, _, level, lacking = _least(moment)
    combined = level / deviation
    return lacking and abs(combined.sum()) > _ALIKE * math.sqrt(len(combined)) * float(np.linalg.norm(combined))


def sums_to_little(pooled: Array) -> bool:
    """The same for moments pooled over rows with gaps, or over sites that lack nodes.

    Gaps lift the least eigenvalue, and moments of sites with different nodes may have none above 0. So the variance of
    the plain sum is compared with that of unrelated nodes, tr S, and with sums with random signs: these have variance
    tr S with a deviation of sqrt(2) times the norm of S off its diagonal.
    """
    alone, apart = float(np.trace(pooled)), pooled - np.diag(np.diagonal(pooled))
    less = alone - float(pooled.sum())
    return less > (1.0 - _HARDLY) * alone and less > _BEYOND_SIGNS * math.sqrt(2.0) * float(np.linalg.norm(apart))


def with_mean(moments: Array, own: BoolArray | None = None) -> Array:
    """Covariances (K, d, d) with a level that moves all nodes alike, or all that a site has, `own` (K, d); rows around
    their mean do not change."""
    size = np.linalg.norm(moments, axis=(1, 2)) / moments.shape[-1]
    if own is None:
        return np.asarray(moments + size[:, None, None])
    return np.asarray(moments + size[:, None, None] * (own[:, :, None] & own[:, None, :]))


def _least(moment: Array) -> tuple[Array, Array, Array, bool]:
    """Deviations, correlations, their least eigenvector, and whether that is a missing level."""
    deviation, correlation = _standardised(moment)
    values, vectors = eigh(correlation, subset_by_index=[0, 1])
    level = vectors[:, 0]
    return deviation, correlation, level, len(set(np.sign(level))) == 1 and values[0] < _FAR_BELOW * values[1]


def _standardised(moment: Array) -> tuple[Array, Array]:
    deviation = np.sqrt(np.diagonal(moment))
    return deviation, moment / np.outer(deviation, deviation)


def _variance_along(level: Array, deviation: Array, correlation: Array) -> Array:
    """Covariance of a level that, in units of the deviations, varies as much as all nodes together."""
    size = np.linalg.norm(correlation) / np.linalg.norm(level / deviation) ** 2
    return np.asarray(size * np.outer(level, level))


def with_sparsest_level(moments: Array) -> Array:
    """Covariances (K, d, d) that lost their level, with the one that leaves most pairs of nodes unrelated: (a).

    In partial correlations -T_ab is v_a v_b except at the graph's edges: a robust regression of one factor.
    """
    whole, apart = moments.copy(), ~np.eye(moments.shape[-1], dtype=bool)
    for k, moment in enumerate(moments):
        deviation, correlation, least, lacking = _least(moment)
        if lacking:  # any level will do as a start
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
