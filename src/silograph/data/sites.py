"""One table for every site from the paths that the user names: files, folders of files, one long table of all sites.

A folder stands for its content: every table is a site, and so is every sub-folder, with one table per person. If the
column that names a row's person is called "file", a named folder without sub-folders is itself such a site.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.data.categories import cell_text
from silograph.data.columns import without
from silograph.data.readers import is_table
from silograph.data.tables import Grid, check_same_names, has_index, listed, named, shortened, shown, without_index

#: The column with a row's file, in a table that was put together from files.
FILE = "file"

#: First lines of lists that runs read beside the tables, or write: no site has these columns.
_LISTS = (["column", "centre", "spread"], ["source", "target"], ["node", "x", "y"], ["node", "x", "y", "z"])

_OF_PERSONS = "If each is one person's time series, make a table of them: silograph people FOLDER -o SITE.parquet."

#: Reads a file: its name without the suffix, and its table.
Read = Callable[[Path], tuple[str, Grid]]


@dataclass(frozen=True)
class Site:
    """A site's table as it was given; `where` names it in messages, `notes` say what was left out."""

    name: str
    path: Path
    where: str
    grid: Grid
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Source:
    """A file, or a folder with a file for every person."""

    path: Path
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def read_sites(
    paths: Iterable[str | Path],
    read: Read,
    person: str | None = None,
    site_column: str | None = None,
    private: bool = False,
    refused: list[InputError] | None = None,
) -> Iterator[Site]:
    """Read each site's table, one after the other; `person` is the column that names a row's person, if there is one.
    If `refused` is given, it gets the errors of files that are no tables, and the others are still read."""
    aside: tuple[str, ...] = ()
    for source in _sources([Path(path) for path in paths], person):
        try:
            site = _put_together(source, read, person, private) if source.files else None
            name, grid = ("", Grid([])) if site is not None else read(source.path)
        except InputError as problem:
            if refused is None:
                raise
            refused.append(problem)
            continue
        if site is None:
            if list(grid.column_names or ()) in _LISTS:
                aside += (
                    f"{shown(source.path)}: not a site, left out: its columns are {listed(grid.column_names or ())}.",
                )
                continue
            site = Site(
                name, source.path, shown(source.path), grid, (*source.notes, *_index(source.path, grid, private))
            )
        site, aside = replace(site, notes=(*aside, *site.notes)), ()
        yield from [site] if site_column is None else _divided(site, named(site_column), private)


def in_folders(paths: Iterable[str | Path]) -> list[Path]:
    """The files, with the tables in it instead of every folder."""
    sources = list(_sources([Path(path) for path in paths], None))
    deep = next((source for source in sources if source.files), None)
    if deep is not None:
        raise InputError(
            shown(deep.path),
            "tables, one per client",
            "it is a folder inside a folder",
            "Name the inner folder by itself.",
        )
    return [source.path for source in sources]


def check_one(names: Collection[str], where: str) -> None:
    """Refuse a path with several sites if one organisation's own table is needed."""
    if len(names) != 1:
        raise InputError(
            where,
            "one organisation's own table",
            f"it holds {len(names)} sites: {listed(sorted(names))}",
            "Name every organisation's table by itself, and leave out site_column.",
        )


def _index(path: Path, grid: Grid, private: bool) -> list[str]:
    told = f"{shown(path)}: the first column has no name and was left out, because it counts the rows."
    return [told] if has_index(grid, private) else []


def _sources(paths: Sequence[Path], person: str | None) -> Iterator[_Source]:
    for path in paths:
        if not path.is_dir():
            yield _Source(path)
            continue
        folders, tables, notes = _looked_into(path)
        if person == FILE and tables and not folders:
            yield _Source(path, tuple(tables), notes)
            continue
        if folders and tables:
            found = f"{listed([table.name for table in tables])} beside {listed([folder.name for folder in folders])}"
            todo = "Keep tables, one per site, or sub-folders, each a site with a table for every person."
            raise InputError(shown(path), "tables or sub-folders", f"found {found}", todo)
        yield from (_Source(table, (), notes if k == 0 else ()) for k, table in enumerate(tables))
        for folder in folders:
            deeper, own, left = _looked_into(folder)
            if deeper:
                found = f"found the folder {shortened(deeper[0].name)}"
                raise InputError(shown(folder), "one table per person, and no more folders", found)
            yield _Source(folder, tuple(own), (*notes, *left) if folder == folders[0] else left)


def _is_run(path: Path) -> bool:
    """Whether it is a folder of results, as `silograph learn` leaves one beside the tables."""
    return (path / "result.json").is_file() and (path / "ledger.jsonl").is_file()


def _looked_into(folder: Path) -> tuple[list[Path], list[Path], tuple[str, ...]]:
    """Its folders, its tables, and a word on other files; what is hidden is not looked at."""
    try:
        inside = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "~$")))
    except OSError as problem:
        raise InputError(shown(folder), "a folder that can be read", f"reading failed ({problem.strerror})") from None
    inside = [path for path in inside if not _is_run(path)]
    folders = [path for path in inside if path.is_dir()]
    tables = [path for path in inside if path not in folders and is_table(path)]
    if not folders and not tables:
        found = f"found {listed([path.name for path in inside])}" if inside else "it is empty"
        series = any(path.suffix.lower() in (".1d", ".txt") for path in inside)
        todo = _OF_PERSONS if series else "Put the sites' tables there."
        raise InputError(shown(folder), "a folder with tables", found, todo)
    others = [path.name for path in inside if path not in folders and path not in tables]
    return folders, tables, tuple([f"{shown(folder)}: not tables, left out: {listed(others)}."] if others else [])


def _put_together(source: _Source, read: Read, person: str | None, private: bool) -> Site:
    """One table of all persons' files, whose columns have the same names."""
    where = shown(source.path)
    if private and person is None:
        todo = f"Say {wording.option('unit_column', FILE)}, so that a person is protected."
        raise InputError(where, "a statement that each file is a person, for privacy", "there is none", todo)
    grids = [(file, *read(file)) for file in source.files]
    notes = [note for file, _, grid in grids for note in _index(file, grid, private)]
    parts = [(file, name, without_index(grid, private)) for file, name, grid in grids]
    if any(part.column_names is None for _, _, part in parts):
        raise InputError(where, "tables with names of their columns", "some have none", "Name the columns.")
    names = [named(name) for name in parts[0][2].column_names or ()]
    owner = f"the columns of {shown(source.files[0])}"
    for file, _, part in parts:
        own = [named(name) for name in part.column_names or ()]
        check_same_names(own, names, shown(file), owner, "All persons of a site must have the same columns.")
        if len(own) != len(names) or len(set(own)) != len(own):
            raise InputError(shown(file), "names of columns that differ", "one occurs several times", "Rename it.")
    ordered = [dict(zip(map(named, part.column_names or ()), part.columns, strict=True)) for _, _, part in parts]
    sizes = [len(columns[names[0]]) if names else 0 for columns in ordered]
    ends = np.cumsum(sizes)

    def place(row: int) -> str:
        k = int(np.searchsorted(ends, row, side="right"))
        return f"{source.files[k].name}, data row {row - int(ends[k]) + sizes[k] + 1}"

    columns = [np.concatenate([each[name] for each in ordered]) for name in names]
    if person == FILE:
        columns.append(np.repeat(np.array([name for _, name, _ in parts], dtype=object), sizes))
        names = [*names, FILE]
    return Site(source.path.name, source.path, where, Grid(columns, names, None, place), (*source.notes, *notes))


def _divided(site: Site, column: str, private: bool) -> Iterator[Site]:
    """A site for every name in the column."""
    grid = without_index(site.grid, private)
    names = [named(name) for name in grid.column_names or ()]
    if column not in names:
        found = f"its columns are {listed(names)}" if names else "its columns have no names"
        raise InputError(site.where, f"a column {shortened(column)}, which names the site of a row", found)
    cells = [cell_text(cell) for cell in grid.columns[names.index(column)].tolist()]
    if "" in cells:
        place = f"{site.where}, column {shortened(column)}, {grid.at(cells.index(''))}"
        raise InputError(place, "the name of a site", "it is empty", "Fill it in, or leave out the row.")
    others, first = without(grid, [column]), True
    owner = np.array(cells, dtype=object)
    for name in sorted(set(cells)):
        rows = np.flatnonzero(owner == name)
        own = [part[rows] for part in others.columns]
        part = Grid(own, others.column_names, None, lambda row, rows=rows: grid.at(int(rows[row])))  # type: ignore[misc]
        yield Site(name, site.path, f"{site.where}, site {shortened(name)}", part, site.notes if first else ())
        first = False
