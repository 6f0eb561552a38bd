"""Categories: a column of words becomes a column of 0 and 1 for each declared level but the first.

Levels are declared, not searched for: a budget also protects which ones occur at a site, and a site that lacks one
still has the same columns. The first level is the reference, with 0 in all other columns: with a column of its own,
each column would follow from the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.results import Label
from silograph.core.schema import Such
from silograph.core.types import BoolArray
from silograph.data.tables import Grid, is_missing, listed, named, shortened

_POINT_ZERO = re.compile(r"([+-]?[0-9]{1,18})\.0*")  # how pandas writes whole numbers of a column that once had gaps


def _good(levels: tuple[str, ...]) -> bool:
    texts = [level.strip() for level in levels]
    return len(set(texts)) == len(texts) >= 2 and "" not in texts


def _how() -> str:
    return f"Write it as {wording.option('categories', {'sex': ['f', 'm'], 'ward': ['a', 'b', 'c']})}."


_Levels = Annotated[tuple[str, ...], Such("two or more different levels", _good, todo=_how)]
#: By column, all its possible levels.
Categories = Annotated[Mapping[str, _Levels], Such("every column with its levels", todo=_how)]


def parse_categories(given: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """Parse `--categories 'sex=f,m;ward=a,b,c'`; empty if it was not given."""
    found: dict[str, tuple[str, ...]] = {}
    for part in (part for text in given for part in text.split(";") if part.strip()):
        name, told, levels = part.partition("=")
        name, listed_levels = named(name), tuple(level.strip() for level in levels.split(","))
        if not (told and name and _good(listed_levels)) or name in found:
            expected, wrong = "a column once, and two or more levels", f"found {shortened(part.strip())}"
            raise InputError(wording.setting("categories"), expected, wrong, _how())
        found[name] = listed_levels
    return found or None


def cell_text(cell: object) -> str:
    """A cell as a word: whole numbers have no fraction, and missing values are empty."""
    if cell is None or cell != cell:
        return ""
    text = str(cell).strip()
    whole = _POINT_ZERO.fullmatch(text) if isinstance(cell, str | float | Decimal | np.floating) else None
    return whole[1] if whole else text


def labels_of(words: tuple[str, str]) -> tuple[Label, Label]:
    """A target's two labels: numbers and truth values if both words are how `cell_text` writes these.

    >>> labels_of(("1", "2")), labels_of(("False", "True")), labels_of(("0", "00"))
    ((1, 2), (False, True), ('0', '00'))
    """
    no, yes = (word.strip() for word in words)
    if {no, yes} == {"False", "True"}:
        return no == "True", yes == "True"
    first, second = _number(no), _number(yes)
    return (no, yes) if first is None or second is None else (first, second)


def _number(word: str) -> float | None:
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if cell_text(value) == word and isfinite(value):
            return value
    return None


def second_of(answers: ArrayLike, labels: tuple[Label, Label], where: str) -> BoolArray:
    """Which answers are the second label, as a value or as a word; -1 stands for 0, as it does where models learn."""
    no, yes = labels
    known = {no: False, yes: True, cell_text(no): False, cell_text(yes): True}
    if no == 0:
        known[-1] = False
    cells = np.asarray(answers).ravel().tolist()
    found = [known.get(cell, known.get(cell_text(cell))) for cell in cells]
    if None in found:
        row = found.index(None)
        there = f"found {shortened(cells[row])}" if cell_text(cells[row]) else "it is missing"
        raise InputError(f"{where}, record {row + 1}", f"{no} or {yes}", there, "Correct it, or leave the record out.")
    return np.array(found, dtype=np.bool_)


def level_nodes(categories: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The category of every node of 0 and 1 that `with_levels` makes, by the node's name."""
    return {f"{name}={level.strip()}": name for name, levels in categories.items() for level in levels[1:]}


def with_levels(grid: Grid, categories: Mapping[str, Sequence[str]] | None, where: str, private: bool) -> Grid:
    """The grid with 0 and 1 instead of categories; a gap stays one. A value of no level is refused."""
    if not categories or grid.column_names is None:
        return grid
    columns: list[NDArray[Any]] = []
    names: list[str] = []
    for name, column in zip(map(named, grid.column_names), grid.columns, strict=True):
        if name not in categories:
            columns.append(column)
            names.append(name)
            continue
        levels = [level.strip() for level in categories[name]]
        number = _numbered(column, levels, f"{where}, column {shortened(name)}", grid, private)
        for k, level in enumerate(levels[1:], start=1):
            columns.append(np.where(number < 0, np.nan, number == k))
            names.append(f"{name}={level}")
    return Grid(columns, names, grid.row_names, grid.place)


def occurring(grid: Grid, categories: Mapping[str, Sequence[str]] | None) -> tuple[Grid, list[str]]:
    """The grid without columns of levels that carry no information here, and their names: levels of no row, or of every
    row; and if no row has the reference, the first of the others, which follows from them."""
    gone: list[str] = []
    if not categories or grid.column_names is None:
        return grid, gone
    names = list(grid.column_names)
    column = dict(zip(names, grid.columns, strict=True))
    for category, levels in categories.items():
        made = [name for name in (f"{category}={level.strip()}" for level in levels[1:]) if name in column]
        values = {name: column[name][~np.isnan(column[name])] for name in made}
        still = [name for name in made if not values[name].size or (values[name] == values[name][0]).all()]
        vary = [name for name in made if name not in still]
        seen = sum(values[name] for name in made) if len(made) == len(levels) - 1 else np.zeros(1)
        gone += still + (vary[:1] if np.all(seen == 1.0) else [])
    kept = [k for k, name in enumerate(names) if name not in gone]
    return replace(grid, columns=[grid.columns[k] for k in kept], column_names=[names[k] for k in kept]), gone


def _numbered(column: NDArray[Any], levels: Sequence[str], where: str, grid: Grid, private: bool) -> NDArray[np.intp]:
    """The number of every cell's level, -1 for none."""
    known = {level: k for k, level in enumerate(levels)}
    numbers = np.empty(len(column), np.intp)
    for row, cell in enumerate(column.tolist()):
        text = cell_text(cell)
        if text in known:
            numbers[row] = known[text]
        elif is_missing(text):
            numbers[row] = -1
        else:
            found = "found another word" if private else f"found {shortened(text)}"
            todo = f"Correct the cell, or add the level to {wording.called('categories')}."
            raise InputError(f"{where}, {grid.at(row)}", f"one of the levels {listed(levels)}", found, todo)
    return numbers
