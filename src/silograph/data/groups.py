"""Which of two groups each person of a table is in: a column says it, the same in all rows of a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.readers import read_columns
from silograph.data.tables import listed, shortened, shown


def read_groups(path: Path, unit_column: str, column: str, groups: Sequence[str]) -> NDArray[np.intp]:
    """Of each person, in the order of their names, the place of its group among `groups`."""
    where = shown(path)
    _, grid = read_columns(path, [unit_column, column])
    names = [name.strip() for name in grid.column_names or ()]
    for wanted, what in ((unit_column, "names persons"), (column, "names the group of each person")):
        if wanted not in names:
            found = f"its columns are {listed(names)}"
            raise InputError(where, f"a column {shortened(wanted)}, which {what}", found)
    persons, told = (
        [_text(cell) for cell in grid.columns[names.index(name)].tolist()] for name in (unit_column, column)
    )
    place = {name: k for k, name in enumerate(groups)}
    found_of: dict[str, int] = {}
    for row, (person, group) in enumerate(zip(persons, told, strict=True), 1):
        at = f"{where}, column {shortened(column)}, data row {row}"
        if group not in place:
            raise InputError(at, f"one of the groups {listed(list(groups))}", "found another, or nothing")
        if found_of.setdefault(person, place[group]) != place[group]:
            raise InputError(at, "one group for all rows of a person", "an earlier row of this person names the other")
    return np.array([found_of[person] for person in sorted(found_of)], dtype=np.intp)


def _text(cell: object) -> str:
    return "" if cell is None or cell != cell else str(cell).strip()
