"""The graph of one person, as votes: the k strongest positive partial correlations of the person's own rows.

    C    correlation of the rows;  K = (C/2 + I/2)^-1;  r_ab = -K_ab / sqrt(K_aa K_bb)
    1 for the k largest r_ab > 0 (ties by index), 0 for all others

The ridge of one half lets r exist for any number of rows. A node that does not vary, or has a gap, gets no vote.
"""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array, BoolArray
from silograph.kernels.edges import edge_count, pairs

_RIDGE = 0.5


def vote(rows: Array, edges: int) -> BoolArray:
    """(T, d) rows of one person to (p,) votes, at most `edges` of them, whatever the rows are."""
    nodes = rows.shape[1]
    scaled, varies = _standardised(rows)
    votes = np.zeros(edge_count(nodes), dtype=np.bool_)
    if varies.sum() < 2:
        return votes
    seen = scaled[:, varies]
    precision = np.linalg.inv((1.0 - _RIDGE) * (seen.T @ seen) / len(seen) + _RIDGE * np.eye(seen.shape[1]))
    deviation = np.sqrt(np.diag(precision))
    partial = np.zeros((nodes, nodes))
    partial[np.ix_(varies, varies)] = -precision / np.outer(deviation, deviation)
    a, b = pairs(nodes)
    r = partial[a, b]
    strongest = np.argsort(-r, kind="stable")[:edges]
    votes[strongest[r[strongest] > 0.0]] = True
    return votes


def _standardised(rows: Array) -> tuple[Array, BoolArray]:
    """Columns at mean 0 and deviation 1, and which of them vary; no number overflows or vanishes on the way."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        largest = np.abs(rows).max(0, initial=0.0)
        scaled = rows / np.where(largest > 0.0, largest, 1.0)
        scaled -= scaled.mean(0)
        deviation = scaled.std(0)
        # What rounding leaves of a constant is no variation.
        varies = np.isfinite(largest) & (deviation > 1e-12)
        return scaled / np.where(varies, deviation, 1.0), varies
