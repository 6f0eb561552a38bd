"""Tables of a federation: one file a region, one row a record, and a column that names the record's agent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.readers import read_named_columns
from silograph.data.silos import RENAME, Elsewhere, can_name_file, check_file_names
from silograph.data.tables import (
    check_same_names,
    checked_values,
    listed,
    shortened,
    shown,
)

Records = tuple[Array, Array]

_LEARNED = "the features the model was learned from"


@dataclass(frozen=True)
class RegionTables:
    """Agent `agents[k]`, called region/agent, belongs to `regions[home[k]]` and has `records[k]`: x (N, M) and y (N,).

    Regions are sorted by name, and agents inside a region; `features` are in the order of the first region's columns.
    Where the tables say so, agent k is of cluster `clusters[k]`.
    """

    regions: tuple[str, ...]
    features: tuple[str, ...]
    agents: tuple[str, ...]
    home: tuple[int, ...]
    records: tuple[Records, ...]
    clusters: tuple[str, ...] = ()

    @property
    def answers(self) -> Array:
        """Those of all records that are here."""
        return np.concatenate([np.zeros(0), *(y for _, y in self.records if not isinstance(y, Elsewhere))])


@dataclass(frozen=True)
class _Region:
    """One file as it is; `where` names it in messages."""

    name: str
    path: Path
    where: str
    columns: dict[str, NDArray[Any]]


def read_regions(
    paths: Iterable[str | Path],
    agent: str,
    target: str,
    private: bool = False,
    cluster: str | None = None,
    features: Sequence[str] | None = None,
) -> RegionTables:
    """One file a region, called by its name; the columns `agent` and `target`, and numeric features by the same names.

    These are in the order of the first region, or of those given. A column `cluster` says the same of all records of an
    agent. With `private` only what a single record shows is checked, as for every table.
    """
    roles = {agent: "agent", target: "target", **({} if cluster is None else {cluster: "cluster"})}
    if len(roles) < 2 + (cluster is not None):
        raise InputError("agent, target and cluster", "different columns", f"found {listed(list(roles))}")
    texts = [name for name in roles if name != target]
    regions = sorted((_read(path, texts, private) for path in paths), key=lambda region: region.name)
    if not regions:
        raise InputError("regions", "at least one file", "found none")
    check_file_names([(region.name, region.path) for region in regions], "region")
    for region in regions:
        _check_columns(region, roles)
    own = _others(regions[0], roles)
    if not own:
        raise InputError(regions[0].where, "at least one feature", f"it has no column but {listed(list(roles))}")
    wanted = own if features is None else tuple(features)
    owner = f"of region {shortened(regions[0].name)}" if features is None else "that all regions have"
    agents, home, records, clusters = [], [], [], []
    for number, region in enumerate(regions):
        rows = _rows_of_agents(region, agent)
        x, y = _numbers(region, wanted, target, texts, f"the features {owner}", private)
        for name in sorted(rows):
            agents.append(f"{region.name}/{name}")
            home.append(number)
            records.append((x[rows[name]], y[rows[name]]))
            if cluster is not None:
                clusters.append(_cluster_of(region, cluster, rows[name], name))
    names = tuple(region.name for region in regions)
    return RegionTables(names, wanted, tuple(agents), tuple(home), tuple(records), tuple(clusters))


def check_one_home(agents: Sequence[str], region: str = "region", agent: str = "agent") -> None:
    """Refuse an agent, of those called region/agent, that is in two regions: what is said of one would hold for
    neither."""
    homes: dict[str, str] = {}
    for name in agents:
        home, own = name.split("/", 1)
        other = homes.setdefault(own.casefold(), home)
        if other != home:
            raise InputError(
                f"{region}s {other} and {home}",
                f"every {agent} in one {region}",
                f"both have {own}: its budget would be paid once and spent twice",
                f"If it is one {agent}, give it to one {region}; if they are two, name them differently.",
            )


def _cluster_of(region: _Region, cluster: str, rows: list[int], agent: str) -> str:
    """What an agent's records say of its cluster."""
    said = [_text(region.columns[cluster][row]) for row in rows]
    for row, name in zip(rows, said, strict=True):
        if not name or name != said[0]:
            place = f"{region.where}, column {shortened(cluster)}, data row {row + 1}"
            expected = f"one cluster for all records of {shortened(agent)}"
            raise InputError(
                place, expected, f"found {shortened(name)} after {shortened(said[0])}" if name else "found none"
            )
    return said[0]


def _text(cell: object) -> str:
    return "" if cell is None or cell != cell else str(cell).strip()


def read_test(path: str | Path, target: str, features: Sequence[str], agent: str | None = None) -> Records:
    """x (N, M) and y (N,) of a test file, with the features in the given order; a column `agent` is ignored."""
    texts = [] if agent is None else [agent]
    table = _read(path, texts)
    _check_columns(table, {target: "target"})
    return _numbers(table, features, target, texts, _LEARNED)


def read_tests(
    path: str | Path, agent: str, target: str, features: Sequence[str], ignored: str | None
) -> dict[str, Records]:
    """The records of a test file by agent; a column `ignored` is not looked at."""
    texts = [agent, *([] if ignored is None else [ignored])]
    table = _read(path, texts)
    _check_columns(table, {agent: "agent", target: "target"})
    x, y = _numbers(table, features, target, texts, _LEARNED)
    return {name: (x[rows], y[rows]) for name, rows in _rows_of_agents(table, agent).items()}


def _read(path: str | Path, texts: Sequence[str], private: bool = False) -> _Region:
    path = Path(path)
    where = shown(path)
    name, columns = read_named_columns(path, texts, private=private)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(where, "at least one record", "there is no row of data", "Leave the file out, or fill it.")
    return _Region(name, path, where, columns)


def _check_columns(region: _Region, needed: dict[str, str]) -> None:
    for column, role in needed.items():
        if column not in region.columns:
            raise InputError(
                region.where,
                f"a column {shortened(column)}, the {role}",
                f"its columns are {listed(list(region.columns))}",
                f"Name the {role}'s column as it is called in the file.",
            )


def _others(region: _Region, named: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in region.columns if name not in named)


def _numbers(
    region: _Region, features: Sequence[str], target: str, texts: Sequence[str], expected: str, private: bool = False
) -> Records:
    """The features, matched by name, and the target."""
    todo = "Every file must have the same features, by the same names; the order does not matter."
    check_same_names(_others(region, [*texts, target]), features, region.where, expected, todo)
    wanted = [*features, target]

    def place(column: int, row: int) -> str:
        return f"{region.where}, column {shortened(wanted[column])}, data row {row + 1}"

    values = checked_values([region.columns[name] for name in wanted], place, private)
    return np.ascontiguousarray(values[:, :-1]), values[:, -1].copy()


def _rows_of_agents(region: _Region, agent: str) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, cell in enumerate(region.columns[agent].tolist()):
        name = _text(cell)
        if not can_name_file(name):
            found, todo = (f"found {shortened(name)}", RENAME) if name else ("it is empty", "Say whose record it is.")
            place = f"{region.where}, column {shortened(agent)}, data row {row + 1}"
            raise InputError(place, "the name of an agent", found, todo)
        rows.setdefault(name, []).append(row)
    return rows
