"""Find columns that are not measurements before anything is learned or spent, each with what to do about it.

An identifier, a date or a category taken for a node gets meaningless edges, with confidence. Under privacy only names
and types are checked: refusing a run is itself a release, and must not depend on values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.schema import did_you_mean
from silograph.core.types import Array
from silograph.data.categories import cell_text
from silograph.data.tables import (
    MONTH,
    Grid,
    is_missing,
    listed,
    looks_like_identifier,
    named,
    reads_as_limit,
    reads_as_number,
    shortened,
)

Kind = Literal["identifier", "counter", "date", "category", "text", "marked", "decimal", "constant", "copy", "code"]

_ENOUGH = 10  # from so many rows, order and distinctness mean something
_DENSE = 1.5  # a shuffled counter leaves few numbers out; so many measurements would meet by chance
_WIDE = 10.0  # times as many numbers as rows: in fewer some would meet by chance
_FLAT = 2.05  # kurtosis
_SINCE_1970 = (946_684_800.0, 2_082_758_400.0)  # seconds until 2000, and until 2036
_YEARS = (1900.0, 2035.0)
_MOST_LEVELS = 50
_SAYABLE = 60  # characters of all levels together
_SHOWN = 5  # findings in one message
_SCREENED = 5000  # rows that show which columns may be copies
_SAME = 1.0 - 1e-6  # correlation of a copy, perhaps in other units, and rounded
_CONSTANT = 1e-12  # rounding's rest of the spread of a column that is constant where another is known
_DAY = (
    rf"\d{{4}}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{{2,4}}"
    rf"|\d{{1,4}}[ ./-]*{MONTH}[ .,/-]*\d+|{MONTH}[ .]+\d\d?,? +\d+"
)
_DATE = re.compile(rf"\s*(({_DAY})(,?[ T]+\d\d?:\d\d.*)?|\d\d?:\d\d.*)\s*", re.IGNORECASE)
#: 1,234.5 and 1.234,5 and 1'234, $5, 5 EUR, 5 %.
_MARKED = re.compile(r"\s*([$€£¥]|[A-Z]{3} )?\s*[+-]?\d+([.,' \u00a0\u202f]\d+)*\s*([$€£¥%]| ?[A-Z]{3})?\s*")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")
_DATE_NAME = re.compile(
    r"((birth|admission|discharge|study|calendar|start|end)[\W_]?)?year|(.*[\W_])?(date|date[\W_]?time|time[\W_]?stamp|dob"
    r"|birth[\W_]?day|(date|year)[\W_]of[\W_].*)",
    re.IGNORECASE,
)

_DROP = "Leave it out with {drop}"
_REMEDY: dict[Kind, str] = {
    "identifier": f"If it names each row's person: {{unit_column}} (with {{epsilon}}). {_DROP}{{keep}}.",
    "counter": f"{_DROP}{{keep}}.",
    "date": f"{_DROP}{{keep}}.",
    "text": f"{_DROP}.",
    "marked": f"Save them without marks of thousands, currencies or per cent. {_DROP} otherwise.",
    "decimal": "Save the table with decimal points, or with semicolons between cells.",
    "code": f"If that stands for a gap, empty these cells. {_DROP}{{keep}}.",
    "category": f"{_DROP}, or declare its levels with {{categories}}.",
    "constant": "A node that never varies has no relation to learn. Leave it out at every site with {drop}.",
    "copy": "Leave one of them out with {drop}{keep}.",
}


@dataclass(frozen=True)
class Finding:
    """A problem of a column, and the remedy; `others` are columns with the same problem, which has one cause."""

    column: str
    kind: Kind
    found: str
    levels: tuple[str, ...] = ("first", "second", "...")  # as an example, if values were not read
    numbers: bool = True  # only these can be a measurement
    others: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, *self.others)

    @property
    def words(self) -> str:
        """What is wrong, without the remedy."""
        if self.kind == "decimal":
            named = f"columns {listed(self.columns)} have" if self.others else f"column {shortened(self.column)} has"
            return f"{named} {self.found}"
        return f"column {shortened(self.column)} {self.found}"

    @property
    def remedy(self) -> str:
        keep = f", or say that it is a measurement with {wording.option('keep', [self.column])}" if self.numbers else ""
        return _REMEDY[self.kind].format(
            keep=keep,
            drop=wording.option("drop", [self.column]),
            unit_column=wording.option("unit_column", self.column),
            epsilon=wording.called("epsilon"),
            categories=wording.option("categories", {self.column: self.levels}),
        )

    def __str__(self) -> str:
        return f"{self.words}. {self.remedy}"


class ColumnsError(InputError):
    """Columns that are not measurements, in one file or in several."""

    def __init__(self, found: dict[str, list[Finding]]) -> None:
        """`found` by file."""
        self.by_file = found
        first: dict[str, Finding] = {}  # for a column that is odd in several files, the finding in the first
        for every in found.values():
            for each in every:
                first.setdefault(each.column, each)
        columns = list(first.values())
        words = [each.words for each in columns]
        drop = wording.option("drop", [name for each in columns[:_SHOWN] for name in each.columns])
        further = wording.either("; `silograph check` says more", "")
        whole = len(columns) == 1 or columns[0].kind == "decimal"
        todo = columns[0].remedy if whole else f"Leave them out with {drop}{further}."
        where = next(iter(found)) if len(found) == 1 else f"{len(found)} tables"
        more = f"; {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
        super().__init__(where, "measurements in every column", "; ".join(words[:_SHOWN]) + more, todo)


def check_named(
    drop: Collection[str], keep: Collection[str], columns: Collection[str], categories: Collection[str] | None = None
) -> None:
    """Refuse names that no table has, and a column in both drop and keep."""
    for setting, names in (("drop", drop), ("keep", keep), ("categories", categories or ())):
        for name in names:
            if columns and named(name) not in columns:
                todo = did_you_mean(name, columns) or f"The columns are {listed(list(dict.fromkeys(columns)))}."
                where = f"{wording.setting(setting)} {shortened(name)}"
                raise InputError(where, "a column of one of the tables", "none has it", todo)
            if name in drop and (name in keep or name in (categories or ())):
                other = wording.called("keep" if name in keep else "categories")
                where = f"{wording.setting('drop')} {shortened(name)}"
                raise InputError(where, f"a column that {other} does not name", "both name it")


def without(grid: Grid, drop: Collection[str]) -> Grid:
    """The grid without these columns; a missing one is no error, since another site may have it."""
    if not drop or grid.column_names is None:
        return grid
    dropped = set(map(named, drop))
    kept = [k for k, name in enumerate(grid.column_names) if named(name) not in dropped]
    return replace(grid, columns=[grid.columns[k] for k in kept], column_names=[grid.column_names[k] for k in kept])


def without_empty(grid: Grid) -> tuple[Grid, list[str]]:
    """The grid without columns that have no value in any row, and their names: the site lacks them."""
    names = [named(name) for name in grid.column_names or ()]
    gone = [name for name, column in zip(names, grid.columns, strict=False) if name and _empty(column)]
    return (without(grid, gone), gone) if len(gone) < len(names) else (grid, [])


def _empty(column: NDArray[Any]) -> bool:
    if column.dtype.kind == "O":
        return len(column) > 0 and all(is_missing(cell_text(cell)) for cell in column.tolist())
    return column.dtype.kind == "f" and len(column) > 0 and bool(np.isnan(column).all())


def findings(grid: Grid, private: bool = False, keep: Collection[str] = ()) -> list[Finding]:
    """All problems in a table with nodes in columns, except for columns declared to be measurements."""
    names = [named(name) for name in grid.column_names or ()]
    keep = set(map(named, keep))
    by_values = not private and bool(grid.columns) and len(grid.columns[0]) >= _ENOUGH
    found: list[Finding] = []
    numbers: dict[str, Array] = {}
    for name, column in zip(names, grid.columns, strict=False):
        if name in keep or not name:
            continue
        kind, words = _by_name_and_type(name, column)
        if kind is None and by_values:
            kind, words = _by_values(column)
        if kind is not None:
            levels = {} if kind != "category" or private else _levels(column)
            found.append(Finding(name, kind, words, **levels, numbers=column.dtype.kind in "iuf"))
        elif by_values and column.dtype.kind in "iuf":
            numbers[name] = column.astype(np.float64, copy=False)
    return _together(found) + _copies(numbers)


def _together(found: list[Finding]) -> list[Finding]:
    """Columns with decimal commas in one finding: the whole table was saved so."""
    commas = [each for each in found if each.kind == "decimal"]
    others = tuple(each.column for each in commas[1:])
    return [*(replace(each, others=others) for each in commas[:1]), *(each for each in found if each not in commas)]


def unnamed_findings(grid: Grid, keep: Collection[str] = ()) -> list[Finding]:
    """Problems of columns without names: copies, and whole numbers that count or number rows."""
    names = [f"node_{k}" for k in range(len(grid.columns))]
    found = findings(Grid(grid.columns, names), False, keep)

    def whole(name: str) -> bool:
        column = grid.columns[names.index(name)]
        return column.dtype.kind in "iu" or (column.dtype.kind == "f" and bool((column == np.rint(column)).all()))

    counts = [each for each in found if each.kind in ("counter", "identifier") and whole(each.column)]
    return counts + [each for each in found if each.kind == "copy"]


def _by_name_and_type(name: str, column: NDArray[Any]) -> tuple[Kind | None, str]:
    """Problems visible from public facts: the name of a column, and the type of its values."""
    if column.dtype.kind in "Mm":
        return "date", "holds dates or times"
    if _DATE_NAME.fullmatch(name):
        return "date", "has the name of a date"
    if looks_like_identifier(name):
        return "identifier", "has the name of an identifier"
    if column.dtype.kind == "b":
        return "category", "holds true/false values"
    return None, ""


def _by_values(column: NDArray[Any]) -> tuple[Kind | None, str]:
    if column.dtype.kind in "OUST":
        return _words(column)
    if column.dtype.kind not in "iuf":
        return None, ""
    values = column.astype(np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return None, ""
    if (values == values[0]).all():
        return "constant", f"is constant: every value is {values[0]:g}"
    if len(values) < _ENOUGH:
        return None, ""
    whole = bool((values == np.rint(values)).all())
    if whole and (words := _dates_in_numbers(values)):
        return "date", words
    if (code := _nines(values)) is not None:
        return "code", f"holds {code:g} in {int((values == code).sum())} rows, far from all other values"
    step = np.diff(values)
    if (step > 0.0).all() or (step < 0.0).all():
        return "counter", f"only {'rises' if step[0] > 0.0 else 'falls'} from row to row, as a counter or a time does"
    if whole and len(np.unique(values)) == len(values):
        span = float(np.ptp(values)) + 1.0
        if span <= _DENSE * len(values):
            return "identifier", f"numbers its rows: {len(values)} different whole numbers, with hardly a gap"
        if _code(values):
            return "identifier", "holds different whole numbers, evenly spread, as codes are"
    return None, ""


def _levels(column: NDArray[Any]) -> dict[str, tuple[str, ...]]:
    """The levels that occur, to name in the remedy if possible."""
    levels = sorted({cell for cell in map(cell_text, column.tolist()) if not is_missing(cell)})
    if len(levels) < 2 or len("".join(levels)) > _SAYABLE or any(mark in level for level in levels for mark in ",;="):
        return {}
    return {"levels": tuple(levels)}


def _words(column: NDArray[Any]) -> tuple[Kind | None, str]:
    cells = [cell for cell in map(cell_text, column.tolist()) if not is_missing(cell)]
    words = [cell for cell in cells if not reads_as_number(cell)]
    if not words or len(words) < len(cells) / 2 or all(map(reads_as_limit, words)):
        return None, ""  # a column of numbers with something else in it, which the table's check names by its row
    if all(_DATE.fullmatch(cell) for cell in words):
        return "date", "holds dates or times"
    if all(map(_DECIMAL_COMMA.fullmatch, words)) and not all(map(_THOUSANDS.fullmatch, words)):
        return "decimal", f"decimal commas ({shortened(words[0])})"
    if all(_MARKED.fullmatch(cell) for cell in words):
        return "marked", f"holds numbers with marks that are not read, such as {shortened(words[0])}"
    levels = sorted(set(cells))
    if len(levels) == len(cells) and len(cells) >= _ENOUGH:
        return "identifier", "holds a different word in every row"
    if len(levels) <= _MOST_LEVELS:
        return "category", f"holds words: {listed(levels)}"
    return "text", f"holds words, {len(levels)} different ones"


def _dates_in_numbers(values: Array) -> str:
    """What dates whole numbers are, if every one reads as a day, such as 20240131, a time since 1970, or a year."""
    year, rest = np.divmod(values, 10_000)
    month, day = np.divmod(rest, 100)
    if ((year >= 1900) & (year <= 2100) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all():
        return "holds dates, written as numbers"
    for unit, size in (("seconds", 1.0), ("milliseconds", 1e3), ("microseconds", 1e6)):
        if ((values >= _SINCE_1970[0] * size) & (values <= _SINCE_1970[1] * size)).all():
            return f"holds times, as {unit} since 1970"
    if ((values >= _YEARS[0]) & (values <= _YEARS[1])).all():
        return "holds years"
    return ""


def _nines(values: Array) -> float | None:
    """A number of nines such as -999 that several rows have, further from all others than these are from each other."""
    for code in (values.min(), values.max()):
        others = values[values != code]
        apart = np.abs(others - code).min(initial=np.inf)
        if set(f"{abs(code):g}") <= set("9.") and len(values) - len(others) > 1 and apart > np.ptp(others):
            return float(code)
    return None


def _code(values: Array) -> bool:
    """Whether different whole numbers lie as evenly as drawn ones would: from the least to the largest that have four
    digits or more, all as many; or, where there are rows enough to know, from the least to the largest of them.

    Kolmogorov's distance to an even law, at 5 %: measurements bunch, so that they lie further off, and have longer
    tails (an even law has a kurtosis of 1.8).
    """
    digits = math.floor(math.log10(max(float(values.max()), 1.0))) + 1
    low, high = 10.0 ** (digits - 1), 10.0**digits
    if digits >= 4 and len(values) >= 30 and values.min() >= low and _evenly(values, low, high):
        return True
    low, high = float(values.min()), float(values.max())
    around = values - values.mean()
    flat = (around**4).mean() < _FLAT * (around**2).mean() ** 2
    return len(values) >= 100 and high - low >= _WIDE * len(values) and flat and _evenly(values, low, high)


def _evenly(values: Array, low: float, high: float) -> bool:
    even = (np.sort(values) - low) / (high - low)
    rank = np.arange(1, len(values) + 1) / len(values)
    return bool(np.abs(even - rank).max() <= 1.36 / math.sqrt(len(values)))


def _copies(numbers: dict[str, Array]) -> list[Finding]:
    """Columns that copy another one in other units. Some rows show candidates; all rows that have both decide."""
    if len(numbers) < 2:
        return []
    names, step = list(numbers), max(1, len(next(iter(numbers.values()))) // _SCREENED)
    some = np.array([column[::step] for column in numbers.values()])
    if not all(map(_varies, some)):
        some = np.array(list(numbers.values()))
    found = {}
    for a, b in np.argwhere(np.triu(np.abs(correlations(some)) > _SAME, 1)):
        pair = correlations(np.array([numbers[names[a]], numbers[names[b]]]))
        if b not in found and abs(pair[0, 1]) > _SAME:
            found[b] = a
    return [
        Finding(names[b], "copy", f"is the same as column {shortened(names[a])}, perhaps in other units")
        for b, a in sorted(found.items())
    ]


def _varies(column: Array) -> bool:
    values = column[np.isfinite(column)]
    return bool(values.size and values.max() > values.min())


def correlations(columns: Array) -> Array:
    """Of every two columns, one a row, over the rows that have both; 0 where these are few, or one is constant."""
    seen = np.isfinite(columns)
    values = np.where(seen, columns, 0.0)
    values /= np.maximum(np.abs(values).max(1, keepdims=True), np.finfo(np.float64).tiny)
    count = np.maximum(seen.sum(1, keepdims=True), 1)
    values -= np.where(seen, values.sum(1, keepdims=True) / count, 0.0)
    values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    there = seen.astype(np.float64)
    both = there @ there.T
    total = values @ there.T  # of a row's column, over the rows that the other has too
    spread = both * (values**2 @ there.T) - total**2
    covariance = both * (values @ values.T) - total * total.T
    known = (np.minimum(spread, spread.T) > _CONSTANT * both) & (both >= min(3 * _ENOUGH, columns.shape[1]))
    return np.asarray(np.where(known, covariance / np.sqrt(np.where(known, spread * spread.T, 1.0)), 0.0))
