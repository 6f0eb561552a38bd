"""Signals without a level common to all nodes: rows that sum to nearly nothing, shares of a whole, the papers' own.

Such rows say exactly how all nodes together move: not at all. Every precision then has this one fact in all its
entries, and every pair of nodes looks negatively related. A graph can only be told up to the level, so the level is
given a variance as large as any that the rows have, and what is left are the relations between nodes.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from silograph.core.types import Array, BoolArray

_FAR_BELOW = 0.5  # of the second least eigenvalue; the least of rows with a level is hardly less than that


def with_level(moments: Array) -> tuple[Array, BoolArray]:
    """Covariances (K, d, d) with a level, and which of them lacked one.

    In units in which every variance is 1 the missing level is the least eigenvector, and all its entries have one sign.
    Where nothing is missing a least eigenvector has both signs, but for a chance of 2 to the power 1 - d.
    """
    whole, lacking = moments.copy(), np.zeros(len(moments), dtype=np.bool_)
    for k, moment in enumerate(moments):
        deviation = np.sqrt(np.diagonal(moment))
        correlation = moment / np.outer(deviation, deviation)
        values, vectors = eigh(correlation, subset_by_index=[0, 1])
        level = vectors[:, 0]
        lacking[k] = len(set(np.sign(level))) == 1 and values[0] < _FAR_BELOW * values[1]
        if lacking[k]:
            whole[k] += np.linalg.norm(correlation) * np.outer(deviation * level, deviation * level)
    return whole, lacking
