"""Places of nodes: on a map, in a head, in a hall. Public, and used for drawing alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.spreadsheet import csv_of
from silograph.core.types import Array
from silograph.data.delimited import csv_rows
from silograph.data.tables import check_same_names, shortened, shown


@dataclass(frozen=True, eq=False)
class Coordinates:
    """`places[k]`, x and y or x, y and z, of the node `nodes[k]`."""

    nodes: tuple[str, ...]
    places: Array

    @property
    def axes(self) -> tuple[str, ...]:
        return ("x", "y", "z")[: self.places.shape[1]]

    def to_csv(self) -> bytes:
        rows = [(node, *place) for node, place in zip(self.nodes, self.places.tolist(), strict=True)]
        return csv_of(("node", *self.axes), rows)

    def attributes(self) -> dict[str, dict[str, float]]:
        """The attributes of every node, as networkx has them."""
        return {
            node: dict(zip(self.axes, place, strict=True))
            for node, place in zip(self.nodes, self.places.tolist(), strict=True)
        }


def read_coordinates(path: str | Path, nodes: Sequence[str]) -> Coordinates:
    """Read a CSV with columns node,x,y and perhaps z (more are ignored), a row for each of the nodes, in any order."""
    path = Path(path)
    where = shown(path)
    header, rows = csv_rows(path, "a CSV of coordinates")
    if not {"node", "x", "y"} <= set(header):
        raise InputError(where, "a header with node,x,y and perhaps z", f"found {','.join(header) or 'nothing'}")
    axes = [axis for axis in ("x", "y", "z") if axis in header]
    places: dict[str, list[float]] = {}
    for number, row in enumerate(rows, 1):
        name = row["node"].strip()
        if name in places:
            raise InputError(f"{where}, row {number}", "every node once", f"found {shortened(name)} again")
        places[name] = [_number(row[axis], f"{where}, row {number}, {axis}") for axis in axes]
    check_same_names(list(places), nodes, where, "the nodes of the sites", "Every node must have one place, by name.")
    return Coordinates(tuple(nodes), np.array([places[node] for node in nodes]))


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(where, "a finite number", f"found {shortened(text)}")
    return value
