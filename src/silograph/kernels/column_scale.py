"""Centre and spread of the columns of private tables, from noisy counts of cells.

A column's spread is estimated from differences of disjoint pairs of rows, which have mean 0 (Karwa and Vadhan 2018):
from how many of them are in every octave, from 2^-64 up to 2^64. With the spread known, its centre is estimated from
how many rows are next to every point of a grid with about two spreads between points. A row is shared between the two
points around it, so that the mean of the shares is the mean of the rows, for columns of 0 and 1 and of small counts
too. Columns with two values are seen by their differences, all of one size. Both work in any units, since one octave
is found as easily as another.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from silograph.core.types import Array, BoolArray

OCTAVES = 128  # of differences: from 2^-64 up to 2^64
PLACES = 512  # points of the grid, half of them below 0: a mean may be about 500 spreads from it
SURE = 4.5  # deviations of noise from which a peak counts: of 1000 columns of noise alone, one or two pass
_RAREST = 0.01  # of pairs differ in a column with two values, or noise could make its spread 0
_PHASES = 16  # a spread is estimated to a sixteenth of an octave
_HUGE = 1e70  # no number computed from a row overflows up to here
_ROUNDING = 1.0 - 1e-9  # room for rounding, so that what one unit adds to a column is at most 1


def spread_cells(rows: Array, unit: NDArray[np.intp], order: Array) -> Array:
    """Count the pairs of units with a difference in each octave, (d, OCTAVES).

    Pairs are neighbours in `order`, a number for each unit that does not depend on its rows: in sorted tables,
    neighbouring rows are alike. Units with several rows are compared first row to first row, second to second and so
    on; a pair counts as one in a column, spread over its differences there. A difference of 0, or to a gap, is in no
    cell.
    """
    turn = np.empty(len(order), dtype=np.intp)
    turn[np.argsort(order, kind="stable")] = np.arange(len(order))
    unit = turn[unit]
    by_unit = np.argsort(unit, kind="stable")
    rows, unit = rows[by_unit], unit[by_unit]
    begin = np.searchsorted(unit, np.arange(len(order) + 2))  # where a unit's rows begin; two extra units have none
    partner = begin[unit + 1] + np.arange(len(unit)) - begin[unit]
    first = np.flatnonzero((unit % 2 == 0) & (partner < begin[unit + 2]))
    apart = np.abs(_tame(rows[first]) - _tame(rows[partner[first]]))
    apart[apart == 0.0] = np.nan
    return _counts(np.floor(np.log2(apart)) + OCTAVES // 2, unit[first] // 2, (len(order) + 1) // 2, OCTAVES)


def place_cells(rows: Array, unit: NDArray[np.intp], units: int, spread: Array) -> Array:
    """Count the units with rows at each multiple of `widths(spread)`, (d, PLACES); a row is shared between two."""
    place = _tame(rows) / widths(spread) + PLACES // 2
    below = np.floor(place)
    above = place - below  # the share of the upper point
    return _counts(below, unit, units, PLACES, 1.0 - above) + _counts(below + 1.0, unit, units, PLACES, above)


def _tame(rows: Array) -> Array:
    return np.asarray(np.clip(rows, -_HUGE, _HUGE))


def _counts(cell: Array, unit: NDArray[np.intp], units: int, cells: int, share: Array | None = None) -> Array:
    """Count the units in each cell of each column; a unit with several entries in a column is spread over them. Only
    the `share` of an entry counts."""
    columns, there = cell.shape[1], np.isfinite(cell)
    number = np.zeros((units, columns))
    np.add.at(number, unit, there)
    weight = _ROUNDING / np.maximum(number, 1.0)[unit]
    if share is not None:
        weight = weight * share
    flat = np.clip(np.where(there, cell, 0.0), 0, cells - 1).astype(np.intp) + cells * np.arange(columns)
    counted = np.bincount(flat[there], weight[there], minlength=columns * cells)
    return np.asarray(counted.reshape(columns, cells), dtype=float)


def widths(spread: Array) -> Array:
    """Return the distance between points of the grid: the power of two next to two spreads."""
    return np.asarray(2.0 ** np.rint(np.log2(2.0 * spread)))


def told_spreads(cells: Array, noise: float, number: Array) -> tuple[Array, BoolArray]:
    """Estimate the spread of every column, and whether it stands out from noise of this deviation: (d, OCTAVES) to
    (d,). `number` of pairs were compared, (d,).

    The spread is that of the normal law with differences that fit the cells best: |x - x'| < a with chance erf(a / (2
    s)). Of a column with two values, a share p of its rows having one, all differences other than 0 are in one cell:
    where that fits better, g from the edge of the cell and the share 2 p (1 - p) of pairs in it give g sqrt(p (1 - p)).
    """
    scores = np.stack([_score(cells, phase / _PHASES) for phase in range(_PHASES)], -1).reshape(len(cells), -1)
    normal = 2.0 ** (scores.argmax(1) / _PHASES - OCTAVES // 2)
    count, gap = cells.max(1), 2.0 ** (cells.argmax(1) - OCTAVES // 2)
    two = gap * np.sqrt(0.5 * np.clip(count / number, _RAREST, 0.5))
    told = np.maximum(scores.max(1), count) >= SURE * noise
    return np.where(told, np.where(count > scores.max(1), two, normal), 1.0), told


def _score(cells: Array, phase: float) -> Array:
    """Score how well cells fit differences with s = 2^(k + phase), for every octave k."""
    below, above = 10, 4  # octaves around s that such differences reach
    edges = [math.erf(2.0 ** (k - phase) / 2.0) for k in range(-below, above + 1)]
    shape = np.diff(edges)
    padded = np.pad(cells, ((0, 0), (below, above - 1)))
    return np.stack([np.correlate(row, shape / np.linalg.norm(shape), "valid") for row in padded])


def told_centres(cells: Array, spread: Array, noise: float) -> tuple[Array, BoolArray]:
    """Estimate the centre of every column, that of the four neighbouring points with most rows, and whether it stands
    out."""
    four = cells[:, :-3] + cells[:, 1:-2] + cells[:, 2:-1] + cells[:, 3:]
    best = four.argmax(1)
    each = np.arange(len(cells))[:, None], best[:, None] + np.arange(4)
    mass = np.maximum(cells[each], 0.0)
    place = (mass * each[1]).sum(1) / np.maximum(mass.sum(1), 1e-300) - PLACES // 2
    inside = (best > 0) & (best < four.shape[1] - 1)  # the last points hold all that is beyond
    told = inside & (four.max(1) >= SURE * math.sqrt(4.0) * noise)
    return np.where(told, place * widths(spread), 0.0), told


def expected_score(pairs: float) -> float:
    """The least score that `told_spreads` compares with noise, for so many pairs of normal rows."""
    shape = np.diff([math.erf(2.0 ** (k - 0.5) / 2.0) for k in range(-10, 5)])
    return float(pairs * np.linalg.norm(shape))
