"""Silos: the signals of several sites over one set of nodes, in one order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.columns import ColumnsError, Finding, check_named, unnamed_findings
from silograph.data.readers import read_columns, read_grid, site_table
from silograph.data.sites import Site, read_sites
from silograph.data.tables import (
    CellsError,
    Grid,
    NodesIn,
    Table,
    array_grid,
    as_frame,
    check_same_names,
    checked_table,
    frame_grid,
    listed,
    shortened,
    shown,
)

if TYPE_CHECKING:
    import pandas as pd

RENAME = "Rename it: no slash, no dot at the start, no control characters."

#: Nor are marks that a terminal obeys, or that nobody sees.
_NOT_IN_FILE_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]")
_LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class People:
    """Signals of persons: row n belongs to person `person[n]`, counted from 0. Its length is the number of persons,
    because a person is the record that is protected and counted. `group`: that of each person, if groups are
    compared."""

    rows: Array
    person: NDArray[np.intp]
    group: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return int(self.person.max(initial=-1)) + 1


@dataclass(frozen=True)
class Silos:
    """Site `names[i]` holds `signals[i]`: one signal per row, one of the common `nodes` per column; or its people's.
    A gap is NaN, and so is every value of a node that the site lacks."""

    names: tuple[str, ...]
    nodes: tuple[str, ...]
    signals: tuple[Array | People, ...]
    notes: tuple[str, ...] = ()  # what was left out of the tables, for people
    lacks: tuple[frozenset[str], ...] = ()  # the nodes that each site lacks; empty if all sites have all nodes
    gaps_elsewhere: bool = False  # rows that other organisations hold have gaps
    left_out: tuple[str, ...] = ()  # nodes that are not at every site, if only common ones were requested

    def lacked(self, order: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The places of the nodes that each site lacks, for sites in this order; empty if none lacks any."""
        if not self.lacks:
            return ()
        of = dict(zip(self.names, self.lacks, strict=True))
        return tuple(tuple(k for k, node in enumerate(self.nodes) if node in of[name]) for name in order)


class Elsewhere(np.ndarray[Any, Any]):
    """Stands for records that another organisation holds: it has their public shape, and uses no memory."""

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> Elsewhere:
        return np.broadcast_to(np.zeros((), dtype), shape).view(cls)


Records = TypeVar("Records", bound=Sized)


def records_of(
    silos: Sequence[str] | None, order: Sequence[str], names: Sequence[str], records: Sequence[Records]
) -> dict[str, Records]:
    """The records of these silos (all if None) by name, in the given order; `records[k]` are those of `names[k]`."""
    wanted = set(order if silos is None else silos)
    if unknown := sorted(wanted - set(order)):
        raise InputError(f"silo {shortened(unknown[0])}", f"one of {listed(order)}", "there is none of that name")
    of = {name: own for name, own in zip(names, records, strict=True) if name in wanted}
    for name, own in of.items():
        if any(isinstance(part, Elsewhere) for part in (own if isinstance(own, tuple) else (own,))):
            raise InputError(f"silo {shortened(name)}", "records that are here", "another organisation holds them")
    return {name: of[name] for name in order if name in wanted}


#: The nodes to use if sites have different ones: those of any site, those of every site, or refuse differences.
NodeRule = Literal["all", "common", "same"]


def align(tables: Sequence[Table], nodes: Sequence[str] | None = None, rule: NodeRule = "same") -> Silos:
    """Align tables to the given nodes, or those of the first, and their order; nodes are matched by name.

    By the rule "all" a site may lack nodes; by the rule "common" nodes that some site lacks are left out.
    """
    if not tables:
        raise InputError("sites", "at least one table", "found none")
    check_file_names([(table.name, table.path) for table in tables])
    if rule != "same" and (nodes is not None or len({frozenset(table.nodes) for table in tables}) > 1):
        return _matched(tables, nodes, rule)
    common = tables[0].nodes if nodes is None else tuple(nodes)
    owner = f"of site {shortened(tables[0].name)}" if nodes is None else "that all sites have"
    signals = [(_reordered(table, common, f"the nodes {owner}"), table.person) for table in tables]
    held = tuple(rows if person is None else People(rows, person) for rows, person in signals)
    return Silos(tuple(table.name for table in tables), common, held)


def _matched(tables: Sequence[Table], nodes: Sequence[str] | None, rule: NodeRule) -> Silos:
    """The tables over the nodes of any site, or of every one."""
    by_name = sorted(tables, key=lambda table: table.name)  # the order of files does not matter
    every = tuple(dict.fromkeys(name for table in by_name for name in table.nodes))
    shared = frozenset[str].intersection(*(frozenset(table.nodes) for table in tables))
    chosen = tuple(nodes or (every if rule == "all" else (name for name in every if name in shared)))
    if len(chosen) < 3:
        found = f"there {'is 1' if len(chosen) == 1 else f'are {len(chosen)}'}: {listed(chosen) or 'none'}"
        raise InputError("sites", "at least 3 nodes that every site has", found, "Do all sites use the same names?")
    known = set(chosen)
    for k, table in enumerate(tables if nodes is None and rule == "all" else ()):
        others = {name for other in (*tables[:k], *tables[k + 1 :]) for name in other.nodes}
        if len(others.intersection(table.nodes)) < 2:
            found = f"its nodes are {listed(table.nodes)}, the others' {listed(sorted(others))}"
            todo = "Do all sites use the same names, and is there a line of names at the top?"
            raise InputError(f"site {shortened(table.name)}", "two nodes that other sites have as well", found, todo)
    for table in tables if nodes is not None and rule == "all" else ():
        if odd := [name for name in table.nodes if name not in known]:
            raise InputError(f"site {shortened(table.name)}", "nodes of the list", f"it also has {listed(odd)}")
    held = []
    for table in tables:
        position = {name: k for k, name in enumerate(table.nodes)}
        rows = np.full((len(table.signals), len(chosen)), np.nan)
        for k, name in enumerate(chosen):
            if name in position:
                rows[:, k] = table.signals[:, position[name]]
        held.append(rows if table.person is None else People(rows, table.person))
    lacks = tuple(frozenset(known.difference(table.nodes)) for table in tables)
    left_out = tuple(name for name in every if name not in known)
    names = tuple(table.name for table in tables)
    return Silos(names, chosen, tuple(held), lacks=lacks if any(lacks) else (), left_out=left_out)


def standardise(silos: Silos) -> Silos:
    """Scale each node of each silo to mean 0 and standard deviation 1, if its records are here."""
    scaled = (own if isinstance(own, Elsewhere) else _standardised(own) for own in silos.signals)
    return replace(silos, signals=tuple(scaled))


def read_silos(
    paths: Iterable[str | Path],
    nodes_in: NodesIn = "columns",
    private: bool = False,
    nodes: Sequence[str] | None = None,
    unit_column: str | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
    site_column: str | None = None,
    all_here: bool = False,
    rule: NodeRule = "same",
) -> Silos:
    """Read the sites' tables, aligned; with a `unit_column`, which names each signal's person, people instead of
    signals.

    A path is a site's file, a folder, or with a `site_column` one long table of several sites. Columns in `drop` are
    left out, those in `categories` become columns of 0 and 1. Columns that are not measurements are refused, with the
    findings in all files, unless they are in `keep`. If these are all tables, a name that none has is refused.
    """
    tables: list[Table] = []
    odd: dict[str, list[Finding]] = {}
    notes: list[str] = []
    for site in _sites(paths, nodes_in, private, unit_column, categories, site_column):
        notes += site.notes
        try:
            tables.append(_table(site, nodes_in, private, unit_column, drop, keep, categories))
            notes += tables[-1].notes
        except ColumnsError as problem:
            odd |= problem.by_file
    if odd:
        raise ColumnsError(odd)
    if all_here or len(tables) > 1:  # one organisation's table may lack a column that another has
        check_named(drop, keep, [name for table in tables for name in table.columns], categories)
    return replace(align(tables, nodes, rule), notes=tuple(notes))


def _sites(
    paths: Iterable[str | Path],
    nodes_in: NodesIn,
    private: bool,
    unit_column: str | None,
    categories: Mapping[str, Sequence[str]] | None,
    site_column: str | None,
    refused: list[InputError] | None = None,
) -> Iterator[Site]:
    text = [name for name in (unit_column, site_column, *(categories or ())) if name is not None]
    if nodes_in == "rows" and text:
        found = f"found {shortened(text[0])}"
        raise InputError("nodes in rows", "no column that says something of rows", found, "Transpose the tables.")

    def read(path: Path) -> tuple[str, Grid]:
        named_columns = unit_column is not None or site_column is not None
        return read_columns(path, text, (), private) if named_columns else read_grid(path, nodes_in, text, private)

    return read_sites(paths, read, unit_column, site_column, private, refused)


def _table(
    site: Site,
    nodes_in: NodesIn,
    private: bool,
    unit_column: str | None,
    drop: Collection[str],
    keep: Collection[str],
    categories: Mapping[str, Sequence[str]] | None,
) -> Table:
    return site_table(
        site.name, site.path, site.grid, nodes_in, private, unit_column, drop, keep, categories, site.where
    )


def problems(
    paths: Sequence[Path],
    nodes_in: NodesIn = "columns",
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    unit_column: str | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    site_column: str | None = None,
) -> list[str]:
    """All problems that prevent learning from these tables; if there are none, whether the tables fit together."""
    tables: list[Table] = []
    refused: list[InputError] = []  # files that are no table, and cells that are no numbers
    odd: dict[tuple[str, str], tuple[Finding, list[str]]] = {}  # of a column and kind the first, and where each was

    def look(site: Site, left_out: Collection[str]) -> None:
        try:
            tables.append(_table(site, nodes_in, False, unit_column, left_out, keep, categories))
        except ColumnsError as problem:
            every = [(where, each) for where, found in problem.by_file.items() for each in found]
            for where, each in every:
                odd.setdefault((each.column, each.kind), (each, []))[1].append(where)
            look(site, [*left_out, *(name for _, each in every for name in each.columns)])
        except CellsError as problem:
            refused.extend([problem, *problem.others])
        except InputError as problem:
            if len(left_out) == len(drop):  # too few columns, once the odd ones are left out, is no problem of its own
                refused.append(problem)

    for path in paths:
        try:
            for site in _sites([path], nodes_in, False, unit_column, categories, site_column, refused):
                look(site, drop)
        except InputError as problem:  # a folder without any table
            refused.append(problem)
    found = list(map(str, refused))
    for each, files in odd.values():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        found.append(f"{files[0]}{more}: {each}")
    if found:
        return found
    check_named(drop, keep, [name for table in tables for name in table.columns], categories)
    for table in tables[1:]:
        try:
            align([tables[0], table], rule="all")
        except InputError as problem:
            found.append(str(problem))
    return found


def from_arrays(
    arrays: Sequence[ArrayLike | pd.DataFrame],
    names: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    private: bool = False,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
    rule: NodeRule = "same",
    unit_column: str | None = None,
) -> Silos:
    """One array or DataFrame per site, with one signal per row, aligned. Gaps are NaN, or masked.

    A DataFrame's columns name its nodes; `nodes` names those of arrays. Sites are site_0, site_1, ... unless named.
    Columns that are not measurements are refused as in files; without names only copies, and whole numbers that count.
    """
    arrays = list(arrays)
    names = [f"site_{k}" for k in range(len(arrays))] if names is None else [str(name) for name in names]
    nodes = None if nodes is None else [str(node) for node in nodes]
    if len(names) != len(arrays):
        raise InputError("names", f"one for each of the {len(arrays)} arrays", f"there are {len(names)}")
    if twice := next((name for name, times in Counter(names).items() if times > 1), None):
        raise InputError("names", "different ones", f"{twice!r} occurs {names.count(twice)} times")
    tables: list[Table] = []
    odd: dict[str, list[Finding]] = {}
    for array, name in zip(arrays, names, strict=True):
        try:
            tables.append(_array_table(array, name, nodes, private, drop, keep, categories, unit_column))
        except ColumnsError as problem:
            odd |= problem.by_file
    if odd:
        raise ColumnsError(odd)
    check_named(drop, keep, [name for table in tables for name in table.columns], categories)
    return replace(align(tables, rule=rule), notes=tuple(note for table in tables for note in table.notes))


def _array_table(
    array: Any,
    name: str,
    nodes: Sequence[str] | None,
    private: bool,
    drop: Collection[str],
    keep: Collection[str],
    categories: Mapping[str, Sequence[str]] | None,
    unit_column: str | None,
) -> Table:
    where = f"site {shortened(name)}"
    grid = given_grid(array, where, nodes)
    if grid.column_names is not None or unit_column is not None:
        return site_table(name, Path(name), grid, "columns", private, unit_column, drop, keep, categories, where)
    if not private and (odd := unnamed_findings(grid, keep)):
        raise ColumnsError({where: odd})
    return checked_table(grid, name, Path(name), where, private=private)


def given_grid(array: Any, where: str, nodes: Sequence[str] | None) -> Grid:
    if (frame := as_frame(array)) is not None:
        return frame_grid(frame, [str(name) for name in frame.columns], "columns")
    if np.ma.is_masked(array):
        array = array.astype(float).filled(np.nan)
    try:
        return array_grid(np.asarray(array), nodes, where, "columns")
    except ValueError as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(where, "a 2-D array of signals", f"no array can be made of it ({problem})") from None


def can_name_file(name: str) -> bool:
    sized = 0 < len(name) <= _LONGEST_NAME
    return sized and not name.startswith(".") and not _NOT_IN_FILE_NAMES.search(name)


def check_file_names(named: Iterable[tuple[str, Path]], kind: str = "site") -> None:
    """Check file names: results are written under the sites' names, so each must be a file name, even if case is
    ignored."""
    seen: dict[str, tuple[str, Path]] = {}
    for name, path in named:
        if not can_name_file(name):
            raise InputError(
                shown(path) if name else f"{kind} names",
                f"a {kind} name that can name a file",
                f"found {shortened(name)}",
                RENAME,
            )
        if name.casefold() in seen:
            other, other_path = seen[name.casefold()]
            raise InputError(
                f"{shown(path)} and {shown(other_path)}",
                f"{kind}s with different names",
                f"{shortened(other)} and {shortened(name)} are the same",
                f"Rename one: a {kind} has the name of its file, and case is ignored.",
            )
        seen[name.casefold()] = name, path


def _reordered(table: Table, nodes: tuple[str, ...], expected: str) -> Array:
    check_same_names(
        table.nodes,
        nodes,
        f"site {shortened(table.name)}",
        expected,
        "Every site must have the same nodes, by the same names, in any order. Or add "
        f"{wording.option('nodes', 'common')}: nodes that are not at every site are left out; or "
        f"{wording.option('nodes', 'all')}: sites may lack some.",
    )
    if table.nodes == nodes:
        return table.signals
    position = {name: k for k, name in enumerate(table.nodes)}
    return np.ascontiguousarray(table.signals[:, [position[name] for name in nodes]])


def _standardised(signals: Array | People) -> Array:
    assert not isinstance(signals, People), "people are read under privacy only, and then nothing is standardised"
    if np.isnan(signals).any():
        return np.stack([_standardised_with_gaps(column) for column in signals.T], axis=1)
    centred = signals - signals.mean(axis=0)
    # To size 1 first, so that the squares of very small values do not vanish.
    centred /= np.abs(centred).max(axis=0)
    centred -= centred.mean(axis=0)
    scaled: Array = centred / centred.std(axis=0)
    return scaled


def _standardised_with_gaps(column: Array) -> Array:
    """A node by the values that it has; one that the site lacks stays as it is."""
    out, seen = column.copy(), ~np.isnan(column)
    if seen.any():
        out[seen] = _standardised(column[seen, None])[:, 0]
    return out
