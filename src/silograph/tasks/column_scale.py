"""Rows whose columns are scaled by what was released of them: first spreads, then centres, then a statistic of rows.

The protected unit of the statistic is that of all three. In a column a unit adds nothing, or numbers from 0 up whose
sum is 1, to the cells of a count: replacing it moves these by at most sqrt(2), in d columns by sqrt(2 d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from silograph.core.types import Array
from silograph.data.silos import People
from silograph.kernels.column_scale import OCTAVES, PLACES, place_cells, spread_cells
from silograph.privacy.bound import Bounded, Within
from silograph.tasks.smooth_graph import SmoothGraph

SPREADS, CENTRES = "spreads", "centres"
_HUGE = 1e70  # no square of anything up to here overflows
_SIGNALS, _COUNT = "signals", "count"


@dataclass(frozen=True)
class RawSignals:
    """`task` makes its statistic of scaled rows."""

    task: SmoothGraph

    def prepare(self, signals: Array | People) -> dict[str, Array]:
        """The silo's signals as they are, as one object: silos have different numbers of them."""
        table = np.empty((), dtype=object)
        table[()] = signals
        return {_SIGNALS: table, _COUNT: np.array(float(len(signals)))}

    def size(self, point: str) -> int:
        return self.task.nodes * (OCTAVES if point == SPREADS else PLACES)

    @property
    def bound(self) -> Within:
        why = "counts of cells, in each of d columns at most 1 a protected unit: sqrt(2 d)"
        return Within(math.sqrt(2.0 * self.task.nodes), self.task.protected_unit, why)

    def longest(self, counts: Sequence[int]) -> float:
        """No site's counts are longer."""
        return max(counts) * math.sqrt(self.task.nodes)

    def spreads(self, data: dict[str, Array], order: Array) -> Bounded:
        """Octaves of differences, (silos, size). `order`: for each unit a number that says nothing of its rows."""
        return self._bounded([_octaves(own, turn) for own, turn in zip(data[_SIGNALS], order, strict=True)])

    def centres(self, data: dict[str, Array], spread: Array) -> Bounded:
        """Places of rows, in cells that these spreads give."""
        return self._bounded([_places(own, by) for own, by in zip(data[_SIGNALS], spread, strict=True)])

    def _bounded(self, each: Sequence[Array]) -> Bounded:
        value, bound = np.stack([cells.ravel() for cells in each]), self.bound
        return Bounded(value, np.full(len(value), bound.l2), bound.protected_unit, bound.why)

    def statistic(self, data: dict[str, Array], centre: Array, spread: Array) -> dict[str, Array]:
        """What the task prepares of scaled rows."""
        each = zip(data[_SIGNALS], centre, spread, strict=True)
        made = [self.task.prepare(_scaled(own, middle, by)) for own, middle, by in each]
        return {name: np.stack([part[name] for part in made]) for name in made[0]}


def _whose(signals: Array | People) -> tuple[Array, NDArray[np.intp]]:
    """Rows, and the unit that each is of."""
    if isinstance(signals, People):
        return signals.rows, signals.person
    return signals, np.arange(len(signals))


def _octaves(signals: Array | People, order: Array) -> Array:
    return spread_cells(*_whose(signals), order[: len(signals)])


def _places(signals: Array | People, spread: Array) -> Array:
    return place_cells(*_whose(signals), len(signals), spread)


def _scaled(signals: Array | People, centre: Array, spread: Array) -> Array | People:
    rows = (np.clip(_whose(signals)[0], -_HUGE, _HUGE) - centre) / spread
    return replace(signals, rows=rows) if isinstance(signals, People) else rows
