"""Nodes that have a place in the world: its projections, as places in a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from silograph.report.figures import Point

AXES = "xyz"
#: How far an outline stands off the nodes.
AROUND = 1.12


@dataclass(frozen=True)
class View:
    """What is seen along one direction; lengths are alike in all views of the same nodes."""

    name: str
    places: dict[str, Point]
    #: Around all nodes, where there are several views and so a body to look at.
    outline: list[Point]


def views(coordinates: Mapping[str, Sequence[float]]) -> list[View]:
    """A map for x and y; three projections for x, y and z. The second axis of each points up."""
    if not coordinates:
        return []
    table = np.array(list(coordinates.values()), dtype=float)
    table /= max(float(np.abs(table).max()), 1e-300)  # so that no difference overflows
    low, high = table.min(axis=0), table.max(axis=0)
    room = AROUND if table.shape[1] == 3 else 1.0
    span = room * float((high - low).max()) or 1.0
    unit = 0.5 + (table - (low + high) / 2) / span
    found = []
    for a, b in combinations(range(table.shape[1]), 2):
        places = [(float(x), 1.0 - float(y)) for x, y in unit[:, (a, b)]]
        outline = _around(places) if table.shape[1] == 3 else []
        found.append(View(f"{AXES[a]} and {AXES[b]}", dict(zip(coordinates, places, strict=True)), outline))
    return found


def _around(places: Sequence[Point]) -> list[Point]:
    """The corners of the convex hull, moved away from the middle."""
    corners: list[Point] = []
    for ordered in (sorted(set(places)), sorted(set(places), reverse=True)):
        side: list[Point] = []
        for place in ordered:
            while len(side) > 1 and _turn(side[-2], side[-1], place) <= 0:
                side.pop()
            side.append(place)
        corners += side[:-1]
    return [(0.5 + AROUND * (x - 0.5), 0.5 + AROUND * (y - 0.5)) for x, y in corners] if len(corners) > 2 else []


def _turn(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
