"""Join time series in one file per person into one table per site: a column names the person of a row.

A file holds a row for every time and a column for every node: what nilearn's maskers return, saved by numpy (.npy,
.npz, savetxt), a CSV or TSV, or AFNI's text (.1D). Lengths may differ. A node that was not measured in a person (its
column has a gap) is 0 throughout: it does not vary, so the person does not vote for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.readers import reason
from silograph.data.tables import check_same_names, checked_names, reads_as_number, shown

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": None, ".1d": None}
_GAPS = {"", "na", "n/a", "nan", "null"}
SUFFIXES = (".npy", ".npz", *_SEPARATORS)
ROWS_OF_A_PERSON = "rows of one person, a column for every node"


@dataclass(frozen=True, eq=False)
class Series:
    """One person's rows; `nodes` are None if the file does not name them."""

    person: str
    nodes: tuple[str, ...] | None
    rows: Array


@dataclass(frozen=True, eq=False)
class Gathered:
    """A site's table, and how often a node of a person was not measured."""

    table: pd.DataFrame
    masked: int


def read_series(path: Path) -> Series:
    where, suffix = shown(path), path.suffix.lower()
    try:
        if suffix in (".npy", ".npz"):
            names, rows = _arrays(path)
        elif suffix in _SEPARATORS:
            names, rows = _text(path, _SEPARATORS[suffix])
        else:
            raise InputError(where, f"a name that ends in {', '.join(SUFFIXES)}", f"found {path.suffix or 'no suffix'}")
    except InputError:
        raise
    except Exception as problem:  # a parser may raise any error for a damaged file
        raise InputError(where, ROWS_OF_A_PERSON, f"it cannot be read ({reason(problem)})") from None
    if rows.ndim != 2 or not rows.size:
        raise InputError(where, ROWS_OF_A_PERSON, f"found an array of shape {rows.shape}")
    if names is not None and len(names) != rows.shape[1]:
        raise InputError(where, f"a name for each of {rows.shape[1]} columns", f"found {len(names)}")
    return Series(path.name[: -len(path.suffix)], names, rows)


def _arrays(path: Path) -> tuple[tuple[str, ...] | None, Array]:
    held = np.load(path, allow_pickle=False)
    if not hasattr(held, "files"):
        return None, np.ma.filled(held.astype(np.float64), np.nan)
    with held:
        names = tuple(map(str, held["nodes"].tolist())) if "nodes" in held else None
        others = [name for name in held.files if name != "nodes"]
        if "signals" not in others and len(others) != 1:
            found = f"it has {len(others)}"
            raise InputError(shown(path), "one array, or one called signals", found, "Save one array per person.")
        return names, held["signals" if "signals" in others else others[0]].astype(np.float64)


def _text(path: Path, separator: str | None) -> tuple[tuple[str, ...] | None, Array]:
    """Numbers below a line of names, which # may begin; without one, or where it only counts columns, as pandas writes
    it, nothing names the nodes."""
    lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if not lines:
        raise ValueError("the file is empty")
    first = [name.strip().strip('"').lstrip("#") for name in lines[0].lstrip("#").split(separator)]
    counts = len(first) > 2 and any(first == [str(k + start) for k in range(len(first))] for start in (0, 1))
    named = counts or lines[0].startswith("#") or not all(_is_number(cell) for cell in first)
    body = [line.split(separator) for line in lines[named:]]
    wrong = next((k for k, row in enumerate(body, 1 + named) if len(row) != len(body[0])), None)
    if wrong is not None:
        raise ValueError(f"line {wrong} has a different number of cells than the first")
    rows = np.array([[_number(cell, k) for cell in row] for k, row in enumerate(body, 1 + named)])
    names = tuple(first) if named and not counts and body and len(first) == len(body[0]) else None
    return names, rows


def _is_number(cell: str) -> bool:
    return cell.strip().lower() in _GAPS or reads_as_number(cell)


def _number(cell: str, line: int) -> float:
    """Read a number; a gap must be written as one: any other word is a mistake."""
    if cell.strip().lower() in _GAPS:
        return np.nan
    if not reads_as_number(cell):
        raise ValueError(f"line {line} has a cell that is not a number")
    return float(cell)


def read_site(folder: Path, column: str = "person", names: Sequence[str] | None = None) -> Gathered:
    """The persons of a site: the files of a folder, in the order of their names. `names` are those of the nodes."""
    import pandas as pd

    if not folder.is_dir():
        raise InputError(shown(folder), "a folder with one file for each person of a site", "it is not one")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(shown(folder), f"files that end in {', '.join(SUFFIXES)}", "there are none")
    every = [read_series(path) for path in files]
    _check_persons(every, folder)
    nodes = tuple(names) if names is not None else every[0].nodes
    first = every[0].rows.shape[1]
    nodes = checked_names(shown(folder), nodes or [f"node_{k}" for k in range(first)], first)
    if column in nodes:
        raise InputError(shown(folder), "nodes of other names than the column of persons", f"{column} is one of them")
    rows, masked = [], 0
    for path, own in zip(files, every, strict=True):
        in_order = _in_order(own, nodes, path, named=names is None)
        gaps = ~np.isfinite(in_order).all(0)
        masked += int(gaps.sum())
        rows.append(np.where(gaps, 0.0, in_order))
    table = pd.DataFrame(np.concatenate(rows), columns=list(nodes))
    table.insert(0, column, np.repeat([own.person for own in every], [len(own.rows) for own in every]))
    return Gathered(table, masked)


def _check_persons(every: Sequence[Series], folder: Path) -> None:
    persons = [own.person for own in every]
    if len(set(persons)) < len(persons):
        twice = next(name for name in persons if persons.count(name) > 1)
        raise InputError(shown(folder), "one file for each person", f"{twice} has two", "Leave one out.")


def _in_order(own: Series, nodes: tuple[str, ...], path: Path, named: bool) -> Array:
    if own.rows.shape[1] != len(nodes):
        raise InputError(shown(path), f"{len(nodes)} nodes, as in the first file", f"it has {own.rows.shape[1]}")
    if not named or own.nodes is None or own.nodes == nodes:
        return own.rows
    todo = "Every person needs the same nodes, by the same names; the order does not matter."
    check_same_names(own.nodes, nodes, shown(path), "the nodes of the first file", todo)
    return own.rows[:, [own.nodes.index(name) for name in nodes]]
