"""Rows with columns scaled by released numbers: release first spreads, then centres, then a statistic of rows.

The protected unit of the statistic is that of all three. In a column a unit adds nothing, or numbers from 0 up whose
sum is 1, to the cells of a count: replacing it moves these by at most sqrt(2), in d columns by sqrt(2 d).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from silograph.core.types import Array
from silograph.data.silos import People
from silograph.kernels.column_scale import OCTAVES, PLACES, place_cells, spread_cells
from silograph.privacy.bound import Bounded, Within
from silograph.tasks.smooth_graph import SmoothGraph

SPREADS, CENTRES = "spreads", "centres"
_HUGE = 1e70  # no square of anything up to here overflows
_ROWS, _UNIT, _LENGTH, _COUNT, _GONE = "rows", "unit", "length", "count", "gone"


@dataclass(frozen=True)
class RawSignals:
    """`task` makes its statistic of scaled rows."""

    task: SmoothGraph

    def prepare(self, signals: Array | People, lacks: Collection[int] = ()) -> dict[str, Array]:
        """The silo's rows, and whose each is: its own unit, or a person. `lacks`: the nodes that it lacks, by its
        columns' names; they add nothing to any count."""
        rows, unit = _whose(signals)
        lengths = {_LENGTH: np.array(float(len(rows))), _COUNT: np.array(float(len(signals)))}
        gone = {_GONE: np.isin(np.arange(self.task.nodes), list(lacks)).astype(float)}
        return {_ROWS: np.asarray(rows, dtype=float), _UNIT: np.asarray(unit, dtype=float), **lengths, **gone}

    def size(self, point: str) -> int:
        return self.task.nodes * (OCTAVES if point == SPREADS else PLACES)

    @property
    def bound(self) -> Within:
        why = "counts of cells, in each of d columns at most 1 a protected unit: sqrt(2 d)"
        return Within(math.sqrt(2.0 * self.task.nodes), self.task.protected_unit, why)

    def longest(self, counts: Sequence[int]) -> float:
        """The greatest length of a site's counts."""
        return max(counts) * math.sqrt(self.task.nodes)

    def spreads(self, data: dict[str, Array], order: Array) -> Bounded:
        """Octaves of differences, (silos, size). `order`: for each unit a number that says nothing of its rows."""
        return self._bounded([_octaves(own, turn) for own, turn in zip(self._silos(data), order, strict=True)])

    def centres(self, data: dict[str, Array], spread: Array) -> Bounded:
        """Places of rows, on the grid that these spreads give."""
        return self._bounded([_places(own, by) for own, by in zip(self._silos(data), spread, strict=True)])

    def _bounded(self, each: Sequence[Array]) -> Bounded:
        value, bound = np.stack([cells.ravel() for cells in each]), self.bound
        return Bounded(value, np.full(len(value), bound.l2), bound.protected_unit, bound.why)

    def statistic(self, data: dict[str, Array], centre: Array, spread: Array) -> dict[str, Array]:
        """The statistic that the task prepares from scaled rows."""
        each = zip(self._silos(data), centre, spread, data[_GONE], strict=True)
        made = [
            self.task.prepare(self._scaled(*own, middle, by), np.flatnonzero(gone).tolist())
            for own, middle, by, gone in each
        ]
        return {name: np.stack([part[name] for part in made]) for name in made[0]}

    def _scaled(self, rows: Array, unit: NDArray[np.intp], units: int, centre: Array, spread: Array) -> Array | People:
        scaled = (np.clip(rows, -_HUGE, _HUGE) - centre) / spread
        return scaled if self.task.person is None else People(scaled, unit)

    def _silos(self, data: dict[str, Array]) -> list[tuple[Array, NDArray[np.intp], int]]:
        """The rows of every silo, their units, and the number of units; padding is left out."""
        lengths, units = data[_LENGTH].astype(int), data[_COUNT].astype(int)
        each = zip(data[_ROWS], data[_UNIT], lengths, units, strict=True)
        return [(rows[:n], unit[:n].astype(np.intp), int(many)) for rows, unit, n, many in each]


def padded(silos: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
    """Prepared silos of one process, made as long as the longest."""
    longest = max(len(own[_ROWS]) for own in silos)

    def longer(value: Array) -> Array:
        return np.pad(value, [(0, longest - len(value)), *[(0, 0)] * (value.ndim - 1)])

    return [own | {name: longer(own[name]) for name in (_ROWS, _UNIT)} for own in silos]


def _whose(signals: Array | People) -> tuple[Array, NDArray[np.intp]]:
    """Rows, and the unit of each."""
    if isinstance(signals, People):
        return signals.rows, signals.person
    return signals, np.arange(len(signals))


def _octaves(own: tuple[Array, NDArray[np.intp], int], order: Array) -> Array:
    rows, unit, units = own
    return spread_cells(rows, unit, order[:units])


def _places(own: tuple[Array, NDArray[np.intp], int], spread: Array) -> Array:
    return place_cells(*own, spread)
