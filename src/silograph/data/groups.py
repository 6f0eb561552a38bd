"""The group, of two, of each person in a table: a column names it, the same in all rows of a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.readers import read_columns
from silograph.data.sites import Site, read_sites
from silograph.data.tables import listed, named, shortened


def read_groups(
    paths: Iterable[Path], unit_column: str, column: str, groups: Sequence[str], site_column: str | None = None
) -> dict[str, NDArray[np.intp]]:
    """By site, of each person, in the order of their names, the place of its group among `groups`."""
    text = [name for name in (unit_column, column, site_column) if name is not None]
    read = partial(read_columns, text=text, private=True)
    sites = read_sites(paths, read, unit_column, site_column, private=True)
    return {site.name: _groups_of(site, unit_column, column, groups) for site in sites}


def _groups_of(site: Site, unit_column: str, column: str, groups: Sequence[str]) -> NDArray[np.intp]:
    where, grid = site.where, site.grid
    names = [named(name) for name in grid.column_names or ()]
    for wanted, what in ((unit_column, "names persons"), (column, "names the group of each person")):
        if wanted not in names:
            found = f"its columns are {listed(names)}"
            raise InputError(where, f"a column {shortened(wanted)}, which {what}", found)
    persons, told = (
        [_text(cell) for cell in grid.columns[names.index(name)].tolist()] for name in (unit_column, column)
    )
    place = {name: k for k, name in enumerate(groups)}
    found_of: dict[str, int] = {}
    for row, (person, group) in enumerate(zip(persons, told, strict=True)):
        at = f"{where}, column {shortened(column)}, {grid.at(row)}"
        if group not in place:
            raise InputError(at, f"one of the groups {listed(list(groups))}", "found another word, or nothing")
        if found_of.setdefault(person, place[group]) != place[group]:
            raise InputError(at, "one group for all rows of a person", "an earlier row of this person names the other")
    return np.array([found_of[person] for person in sorted(found_of)], dtype=np.intp)


def _text(cell: object) -> str:
    return "" if cell is None or cell != cell else str(cell).strip()
