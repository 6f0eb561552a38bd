"""Test whether correlations are larger than those of unrelated columns.

For any values, a column shuffled against another one has a correlation of mean 0 and variance 1 / (N - 1). Over all
pairs, (N - 1) r^2 adds up to their number in the mean, with the variance 2 (N - 2) / (N + 1) each, also with more
columns than rows (Schott 2005, theorem 1). Few strong pairs show in the largest correlation, many weak ones in the sum;
both are tested, at half the level each.

The size of the largest one depends on the tails of the values: two columns with an outlier each may share its row.
Ranks have no tails, so use correlations of ranks wherever rows are available.
"""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array
from silograph.kernels.edges import pairs

LEVEL = 0.05  # below, correlations are more than chance


def chance(correlations: Array, rows: Array) -> float:
    """Bound from above how often shuffled columns would have correlations (K, p) as strong as these, from so many
    rows."""
    from scipy.stats import chi2  # imported late, here and below: saves an organisation's process 45 MB

    told = rows > 3.0
    if not told.any():
        return 1.0
    count = np.where(told, rows, 4.0)
    square = np.where(told, (count - 1.0) * correlations**2, 0.0)
    number = float(told.sum())
    stretch = float(np.where(told, (count - 2.0) / (count + 1.0), 0.0).sum()) / number
    together = float(chi2.sf(square.sum() / stretch, number / stretch))
    pairs = told.any(0)
    single = chi2.sf(square.sum(0)[pairs], told.sum(0)[pairs])
    return min(1.0, 2.0 * min(together, float(single.min()) * int(pairs.sum())))


def rank_correlations(signals: Array) -> Array:
    """Rank correlations of every pair of nodes, over the rows that saw both; 0 if none did. A rank is among a node's
    values."""
    from scipy.stats import rankdata

    seen = ~np.isnan(signals)
    z = np.zeros(signals.shape)
    for own, there, column in zip(z.T, seen.T, signals.T, strict=True):
        own[there] = rankdata(column[there])
        own[there] -= own[there].mean() if there.any() else 0.0
    (a, b), square = pairs(signals.shape[1]), (z**2).T @ seen.astype(float)
    length = np.sqrt(square[a, b] * square[b, a])
    return np.asarray((z.T @ z)[a, b] / np.where(length > 0.0, length, 1.0))
