"""Features of models: the same tables and checks, with gaps filled and columns scaled by public numbers.

The plan gives the values that fill gaps and scale columns. Computed from tables, both would depend on all records
before anything is protected. The best value for gaps can be learned with the model, without releasing a mean: if a gap
counts as the middle c of a column's bounds, and u is 1 for a gap and 0 otherwise, any other value m is

    w (x with m for gaps) = w (x with c for gaps) + w (m - c) u,

the weight of one more feature u. The model has the least loss over all m, the mean among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.schema import Finite, Such, did_you_mean, write
from silograph.data.categories import Categories, with_levels
from silograph.data.columns import ColumnsError, Finding, findings, without
from silograph.data.readers import read_columns
from silograph.data.sites import FILE, Site, read_sites
from silograph.data.tables import (
    Grid,
    as_frame,
    checked_names,
    frame_grid,
    is_missing,
    listed,
    named,
    shortened,
    without_index,
)

Floats = TypeVar("Floats", bound=NDArray[Any])
#: The two words of a target: the one that is 0, and the one that is 1.
Classes = Annotated[
    tuple[str, str], Such('two different names, such as ["no", "yes"]', lambda pair: pair[0].strip() != pair[1].strip())
]
#: The value that fills a gap: a number, the middle of the column's bounds, or the best one, learned by the model.
Fill = Finite | Literal["middle", "learned"]
Between = Annotated[tuple[Finite, Finite], Such("the least and the most of a column", lambda ends: ends[0] < ends[1])]
#: Problems that harm models. A constant or a copy does no harm.
_HARMFUL = ("identifier", "counter", "date", "category")
_LARGE = 10.0  # features of models are best at about -1 to 1


@dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """The columns of tables in a plan of models; everything in it is public.

    drop        columns that are left out; keep: columns that are measurements, whatever they look like
    categories  columns of words with their levels, each a feature of 0 and 1 but the first
    fill        what stands for a gap, by column: a number; "middle", of the column's bounds; "learned": the same, and a
                feature "COLUMN missing" of 0 and 1, by which the model learns what fits best
    bounds      the least and the most of a column, which become -1 and 1; what lies beyond counts as the bound
    site_column of one long table, the column that names a row's region or client
    """

    drop: tuple[str, ...] | None = None
    keep: tuple[str, ...] | None = None
    categories: Categories | None = None
    fill: Mapping[str, Fill] | None = None
    bounds: Mapping[str, Between] | None = None
    site_column: str | None = None

    def fills(self) -> dict[str, float]:
        """The value that fills gaps, by column."""
        ends = {named(name): between for name, between in (self.bounds or {}).items()}
        found: dict[str, float] = {}
        for name, value in ((named(name), value) for name, value in (self.fill or {}).items()):
            if isinstance(value, str) and name not in ends:
                expected, todo = f"bounds for {shortened(name)} as well", f"Add bounds = {{{name} = [low, high]}}."
                raise InputError(wording.setting("fill"), expected, f"found {value!r} alone", todo)
            found[name] = 0.5 * sum(ends[name]) if isinstance(value, str) else value
        return found

    def with_fills(self, columns: Mapping[str, NDArray[Any]], where: str) -> dict[str, NDArray[Any]]:
        """Fill the declared gaps of columns, and add the columns that mark them."""
        fills, made = self.fills(), dict(columns)
        for name in (name for name in columns if name in fills):
            made[name] = np.where(gap := _gaps(columns[name]), fills[name], columns[name])
            if (self.fill or {}).get(name) == "learned":
                if f"{name} missing" in columns:
                    raise InputError(where, f"no column {name} missing", "there is one", "Rename it.")
                made[f"{name} missing"] = gap.astype(np.float64)
        return made

    def told(self) -> dict[str, Any]:
        """The options for columns, for those who read a table by themselves later."""
        said = {part.name: getattr(self, part.name) for part in fields(FeatureOptions) if part.name != "site_column"}
        return {name: write(value) for name, value in said.items() if value is not None}


@dataclass(frozen=True)
class FeatureTable:
    """One file, or one part of it, by the names of its columns; `where` names it in messages."""

    name: str
    path: Path
    where: str
    columns: dict[str, NDArray[Any]]
    grid: Grid
    known: tuple[str, ...]  # columns that were left out, too
    notes: tuple[str, ...] = ()

    def at(self, row: int) -> str:
        return self.grid.at(row)


def read_features(
    paths: Iterable[str | Path],
    told: FeatureOptions,
    text: Collection[str],
    roles: Collection[str],
    private: bool,
    others: Sequence[str] = (),
    classes: Mapping[str, tuple[str, str]] | None = None,
    needed: Mapping[str, str] | None = None,
) -> list[FeatureTable]:
    """Read every table; cells of the columns `text` are never numbers, and columns with `roles` are no features.

    `classes` are those of a target in words, by its column. Columns that are `needed` must be there, as what is said.
    """
    site_column = told.site_column
    categories = {**(told.categories or {}), **(classes or {})}
    said = [*text, *categories, *([] if site_column is None else [site_column])]
    person = FILE if FILE in text else ""  # other columns say whose a row is
    tables: list[FeatureTable] = []
    odd: dict[str, list[Finding]] = {}
    read = partial(read_columns, text=said, others=others, private=private)
    for site in read_sites(paths, read, person, site_column, private):
        _check_columns(site, needed or {})
        try:
            tables.append(_checked(site, told, {*map(named, roles)}, private, classes or {}))
        except ColumnsError as problem:
            odd |= problem.by_file
    if odd:
        raise ColumnsError(odd)
    if tables:
        known = {name for table in tables for name in table.known}
        for option in ("drop", "keep", "categories", "fill", "bounds"):
            for name in getattr(told, option) or ():
                if len(tables) > 1 and named(name) not in known:  # another organisation's table may have it
                    todo = did_you_mean(name, known)
                    raise InputError(
                        wording.setting(option), "columns of the tables", f"none has {shortened(name)}", todo
                    )
    return tables


def _check_columns(site: Site, needed: Mapping[str, str]) -> None:
    names = [name for name in map(named, site.grid.column_names or ()) if name]
    for column, role in needed.items():
        if names and named(column) not in names:
            todo = f"Name the {role}'s column as it is called in the file."
            expected, found = f"a column {shortened(column)}, the {role}", f"its columns are {listed(names)}"
            raise InputError(site.where, expected, found, todo)


def _checked(
    site: Site,
    told: FeatureOptions,
    roles: Collection[str],
    private: bool,
    classes: Mapping[str, tuple[str, str]],
) -> FeatureTable:
    if site.grid.column_names is None:
        raise InputError(site.where, "a first line with the columns' names", "it begins with data", "Name the columns.")
    drop, whole = told.drop or (), without_index(site.grid, private)
    grid = with_levels(without(whole, drop), {**(told.categories or {}), **classes}, site.where, private)
    grid = without(grid, drop)  # a level may be dropped, too
    numbered = {f"{named(target)}={pair[1].strip()}": named(target) for target, pair in classes.items()}
    grid = replace(grid, column_names=[numbered.get(name, name) for name in grid.column_names or ()])
    names = checked_names(site.where, grid.column_names or (), len(grid.columns), "column")
    odd = findings(without(grid, roles), private, told.keep or ())
    if harmful := [each for each in odd if each.kind in _HARMFUL]:
        raise ColumnsError({site.where: harmful})
    columns = told.with_fills(dict(zip(names, grid.columns, strict=True)), site.where)
    known = (*map(named, whole.column_names or ()), *names)
    return FeatureTable(site.name, site.path, site.where, columns, grid, known, site.notes)


def as_learned(frame: Any, told: FeatureOptions) -> Any:
    """Turn the columns of a DataFrame of records to predict into features, as in the plan, but for their scale; nothing
    is refused for its looks."""
    grid = frame_grid(frame, [str(name) for name in frame.columns], "columns")
    grid = with_levels(grid, told.categories, "records", False)
    columns = dict(zip(map(named, grid.column_names or ()), grid.columns, strict=True))
    return type(frame)(told.with_fills(columns, "records"))


def numbers(frame: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """The columns of a DataFrame of records as numbers; a word is refused with its place."""
    for name in names:
        try:
            frame[name].to_numpy(dtype=np.float64)
        except (TypeError, ValueError):
            for row, value in enumerate(frame[name]):
                _check_number(value, f"record {row + 1}, {name}")
            raise
    return np.array(frame[list(names)].to_numpy(dtype=np.float64))


def _check_number(value: Any, where: str) -> None:
    try:
        np.float64(value)
    except (TypeError, ValueError):
        todo = "Write a number. Columns of words that models learn from are declared as categories in the plan."
        raise InputError(where, "a number", f"found {shortened(str(value))}", todo) from None


def odd_features(tables: Iterable[Any], private: bool) -> list[str]:
    """Problems that harm models among features of DataFrames: reported, not refused, since the caller can drop
    columns."""
    said: dict[str, None] = {}
    for frame in map(as_frame, tables):
        if frame is None:
            continue
        found = findings(frame_grid(frame, [str(name) for name in frame.columns], "columns"), private)
        said |= {
            f"Column {shortened(each.column)} {each.found}: is it a feature?": None
            for each in found
            if each.kind in _HARMFUL
        }
    return list(said)


def _gaps(column: NDArray[Any]) -> NDArray[np.bool_]:
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind != "O":
        return np.zeros(len(column), bool)
    cells = column.tolist()
    return np.array([cell is None or cell != cell or (isinstance(cell, str) and is_missing(cell)) for cell in cells])


def scaled(values: Floats, names: Sequence[str], bounds: Mapping[str, tuple[float, float]] | None) -> Floats:
    """The columns of the values that have bounds, from -1 to 1."""
    ends = {named(name): between for name, between in (bounds or {}).items()}
    for k, name in enumerate(names):
        if name in ends:
            low, high = ends[name]
            values[..., k] = 2.0 * (np.clip(values[..., k], low, high) - low) / (high - low) - 1.0
    return values


def raw_values(features: Sequence[str], records: Iterable[NDArray[Any]], private: bool) -> list[str]:
    """A note on features far outside -1 to 1. Under privacy none is made."""
    if private or not features:
        return []
    largest = np.max([np.abs(x).max(axis=0, initial=0.0) for x in records if len(x)], axis=0, initial=0.0)
    if not np.ndim(largest) or largest.max() <= _LARGE:
        return []
    k = int(largest.argmax())
    return [
        f"Feature {shortened(features[k])} reaches {largest[k]:.3g}; steps and clips suit features of about -1 to 1. "
        f"Add its public least and most to [data] in the plan: bounds = {{{features[k]} = [low, high]}}."
    ]
