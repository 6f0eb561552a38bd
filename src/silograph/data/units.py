"""Tables of a federation: one file a unit (a region), one row a record, and a column that names the record's agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.readers import read_columns
from silograph.data.silos import RENAME, can_name_file, check_file_names
from silograph.data.tables import (
    check_same_names,
    checked_names,
    checked_values,
    listed,
    shortened,
    shown,
    without_index,
)

Records = tuple[Array, Array]


@dataclass(frozen=True)
class UnitTables:
    """Agent `agents[k]`, called unit/agent, belongs to `units[home[k]]` and has `records[k]`: x (N, M) and y (N,).

    Units are sorted by name, and agents inside a unit; `features` are in the order of the first unit's columns.
    """

    units: tuple[str, ...]
    features: tuple[str, ...]
    agents: tuple[str, ...]
    home: tuple[int, ...]
    records: tuple[Records, ...]


@dataclass(frozen=True)
class _Unit:
    """One file as it is; `where` names it in messages."""

    name: str
    path: Path
    where: str
    columns: dict[str, NDArray[Any]]


def read_units(paths: Iterable[str | Path], agent: str, target: str, private: bool = False) -> UnitTables:
    """One file a unit, called by its name; the columns `agent` and `target`, and numeric features by the same names.

    With `private` only what a single record shows is checked, as for every table.
    """
    if agent == target:
        raise InputError("agent and target", "two different columns", f"{shortened(agent)} is both")
    units = sorted((_read(path, agent, private) for path in paths), key=lambda unit: unit.name)
    if not units:
        raise InputError("units", "at least one file", "none came")
    check_file_names([(unit.name, unit.path) for unit in units], "unit")
    for unit in units:
        _check_columns(unit, {agent: "agent", target: "target"})
    features = _others(units[0], agent, target)
    if not features:
        raise InputError(units[0].where, "at least one feature", "it has no column but the agent's and the target's")
    agents, home, records = [], [], []
    for number, unit in enumerate(units):
        rows = _rows_of_agents(unit, agent)
        x, y = _numbers(unit, features, target, agent, f"the features of unit {shortened(units[0].name)}")
        for name in sorted(rows):
            agents.append(f"{unit.name}/{name}")
            home.append(number)
            records.append((x[rows[name]], y[rows[name]]))
    return UnitTables(tuple(unit.name for unit in units), features, tuple(agents), tuple(home), tuple(records))


def read_test(path: str | Path, target: str, features: Sequence[str], agent: str | None = None) -> Records:
    """x (N, M) and y (N,) of a test file, with the features in the given order; a column `agent` is ignored."""
    table = _read(path, agent)
    _check_columns(table, {target: "target"})
    return _numbers(table, features, target, agent, "the features the model was learned from")


def _read(path: str | Path, agent: str | None, private: bool = False) -> _Unit:
    path = Path(path)
    where = shown(path)
    name, grid = read_columns(path, text=agent)
    if grid.column_names is None:
        raise InputError(where, "a first line with the columns' names", "it begins with data", "Name the columns.")
    grid = without_index(grid, private)
    names = checked_names(where, grid.column_names or (), len(grid.columns), "column")
    if not names or not len(grid.columns[0]):
        raise InputError(where, "at least one record", "there is no row of data", "Leave the file out, or fill it.")
    return _Unit(name, path, where, dict(zip(names, grid.columns, strict=True)))


def _check_columns(unit: _Unit, needed: dict[str, str]) -> None:
    for column, role in needed.items():
        if column not in unit.columns:
            raise InputError(
                unit.where,
                f"a column {shortened(column)}, the {role}",
                f"its columns are {listed(list(unit.columns))}",
                f"Name the {role}'s column as it is called in the file.",
            )


def _others(unit: _Unit, *named: str | None) -> tuple[str, ...]:
    return tuple(name for name in unit.columns if name not in named)


def _numbers(unit: _Unit, features: Sequence[str], target: str, agent: str | None, expected: str) -> Records:
    """The features, matched by name, and the target."""
    todo = "Every file must have the same features, by the same names; the order does not matter."
    check_same_names(_others(unit, agent, target), features, unit.where, expected, todo)
    wanted = [*features, target]

    def place(column: int, row: int) -> str:
        return f"{unit.where}, column {shortened(wanted[column])}, data row {row + 1}"

    values = checked_values([unit.columns[name] for name in wanted], place)
    return np.ascontiguousarray(values[:, :-1]), values[:, -1].copy()


def _rows_of_agents(unit: _Unit, agent: str) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, cell in enumerate(unit.columns[agent].tolist()):
        name = "" if cell is None or cell != cell else str(cell).strip()
        if not can_name_file(name):
            came, todo = (f"{shortened(name)} came", RENAME) if name else ("it is empty", "Say whose record it is.")
            place = f"{unit.where}, column {shortened(agent)}, data row {row + 1}"
            raise InputError(place, "the name of an agent", came, todo)
        rows.setdefault(name, []).append(row)
    return rows
