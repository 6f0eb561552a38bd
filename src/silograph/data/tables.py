"""A table of signals, and the one check that every table passes, whether it came from a file or from Python."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Array

if TYPE_CHECKING:
    import pandas as pd

NodesIn = Literal["columns", "rows"]
Place = Callable[[int, int], str]

#: Fourth powers of anything larger may overflow once they are summed (the weight of |w|^2 is in units of x^4).
LARGEST = 1e70
#: Every integer up to here is a float64, not every one beyond.
LARGEST_INTEGER = 2**53
#: Halves of characters, which no file can hold, and control characters, which GraphML cannot.
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")

_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "<na>", "-", "--", "?", "."}
#: What people write for a missing value.
MISSING = sorted({form for word in _MISSING for form in (word, word.upper(), word.title())})

_NOT_NUMBERS = {
    "b": "true/false values",
    "c": "complex numbers",
    "M": "dates or times",
    "m": "time spans",
    "U": "text",
    "T": "text",
    "S": "text",
}
MONTH = r"(jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-z]*\.?"
_NUMBER = r"[\W_]*(id|no|nr|num|nummer|number|code|key|name|#)\W*"
_IDENTIFIER = re.compile(
    rf"(.*[\W_])?((person|patient|subject|participant|customer|household|user|member|u?u?id|identifier|pseudonym"
    rf"|mrn|ssn|zip|post[\W_]?code|postal|plz|phone|telephone|fax|e?[\W_]?mail|iban|passport|barcode"
    rf"|codice[\W_]fiscale|dossier)({_NUMBER})?"
    rf"|(case|rec|record|row|sample|account|invoice|encounter|visit|admission|chart|insurance|security|nhs|study|hospital"
    rf"|cust|employee|staff|serial|specimen|pat|patienten|fall|personal|kunden|versicherten|matrikel|aufnahme|proben|akten"
    rf"|ausweis|konto|mitglieds|lfd|laufende|p|u?subj){_NUMBER})"
    rf"|nr\W*|nummer|index|unnamed: ?\d+",
    re.IGNORECASE,
)
_UNNAMED = "Unnamed: 0"  # as pandas calls an index that it read and writes again
_FILL = "Set what a gap counts as (`fill` in a plan), or leave out those rows or columns."
#: What is often found in the first row, and in the last.
_AT_ENDS = {1: "If this row tells units, delete it. ", 0: "If this row is a total or a remark, delete it. "}
_LIMIT = (
    "A limit of what can be measured is no number: replace it in all rows, for example by half the limit, or leave "
    "those cells empty."
)
_ALIKE = "Write all numbers of a table alike: as numbers and not as text, with points or with commas."


class CellsError(InputError):
    """A cell that is not a number; `others` are the first ones of other columns."""

    others: tuple[InputError, ...] = ()


@dataclass(frozen=True)
class Table:
    """One site's signals: row n is a signal, column a is the node `nodes[a]`. `signals` is C-contiguous float64."""

    name: str
    nodes: tuple[str, ...]
    signals: Array
    path: Path
    person: NDArray[np.intp] | None = None  # where a column says it: whose each signal is, counted from 0
    columns: tuple[str, ...] = ()  # of the file, those that were left out too
    notes: tuple[str, ...] = ()  # what was left out here alone, for people


@dataclass(frozen=True)
class Grid:
    """A table as it was given, before any check: columns of one type each, and the names that came with them."""

    columns: Sequence[NDArray[Any]]
    column_names: Sequence[str] | None = None
    row_names: Sequence[str] | None = None
    place: Callable[[int], str] | None = None  # where a row is, where the table was put together or divided

    def at(self, row: int) -> str:
        """A row of data in words."""
        return f"data row {row + 1}" if self.place is None else self.place(row)


def array_grid(array: NDArray[Any], nodes: Sequence[str] | None, where: str, nodes_in: NodesIn) -> Grid:
    """A 2-D array as a grid."""
    if array.ndim != 2:
        raise InputError(where, "a 2-D array of signals", f"found a {array.ndim}-D array")
    return Grid(list(array.T), nodes) if nodes_in == "columns" else Grid(list(array.T), None, nodes)


def as_frame(given: Any) -> pd.DataFrame | None:
    """A DataFrame of pandas, or what polars and pyarrow make one of; known without importing any of them."""
    if hasattr(given, "columns") and hasattr(given, "iloc"):
        return given  # type: ignore[no-any-return]
    if hasattr(given, "columns") and hasattr(given, "to_pandas"):
        return given.to_pandas()  # type: ignore[no-any-return]
    return None


def frame_grid(frame: pd.DataFrame, column_names: Sequence[str] | None, nodes_in: NodesIn) -> Grid:
    """A DataFrame as a grid; if nodes are in rows, a first column that is not numeric names them."""
    columns = [_plain(frame.iloc[:, k]) for k in range(frame.shape[1])]
    if nodes_in == "rows" and columns and columns[0].dtype == object:
        row_names = ["" if cell != cell else str(cell) for cell in columns[0]]
        return Grid(columns[1:], column_names[1:] if column_names else None, row_names)
    return Grid(columns, column_names)


def checked_table(
    grid: Grid, name: str, path: Path, where: str, nodes_in: NodesIn = "columns", private: bool = False
) -> Table:
    """Check a grid and return it as a table, or raise an InputError with the place of the problem. Gaps are NaN.

    With `private` only checks of single records are made: refusing a run is itself a release, and must not depend on
    all records together.
    """
    if nodes_in not in ("columns", "rows"):
        raise InputError(where, "nodes_in to be 'columns' or 'rows'", f"found {nodes_in!r}")
    by_column = nodes_in == "columns"
    grid = without_index(grid, private)
    shape = (len(grid.columns[0]) if grid.columns else 0, len(grid.columns))
    count, signal_count = shape[::-1] if by_column else shape
    _check_size(where, count, signal_count, nodes_in)
    given = grid.column_names if by_column else grid.row_names
    nodes = checked_names(where, [f"node_{k}" for k in range(count)] if given is None else given, count)

    def place(column: int, row: int) -> str:
        column_names = nodes if by_column else grid.column_names
        column_name = shortened(column_names[column]) if column_names else column + 1
        return f"{where}, column {column_name}, {grid.at(row) if by_column else f'data row {shortened(nodes[row])}'}"

    values = checked_values(grid.columns, place, private, gaps=True)
    signals = np.ascontiguousarray(values if by_column else values.T)
    if not private:
        _check_variation(signals, nodes, where, "column" if by_column else "row")
    return Table(name, nodes, signals, path)


def without_index(grid: Grid, private: bool = False) -> Grid:
    """The grid without the index that pandas and R write unless told not to: a first column that has no name, and
    counts from 0 or 1."""
    if not has_index(grid, private):
        return grid
    return replace(grid, columns=grid.columns[1:], column_names=(grid.column_names or ())[1:])


def has_index(grid: Grid, private: bool = False) -> bool:
    if not grid.column_names or grid.column_names[0].strip() not in ("", _UNNAMED) or not grid.columns:
        return False
    column = grid.columns[0]
    if private:
        return True
    return column.dtype.kind in "iuf" and any((column == np.arange(k, k + len(column))).all() for k in (0, 1))


def checked_values(columns: Sequence[NDArray[Any]], place: Place, private: bool = False, gaps: bool = False) -> Array:
    """The columns as one array of finite numbers, or an InputError about the first cell that is none; NaN are `gaps`.

    With `private` it says where the cell is, but neither what is in it nor how many there are.
    """
    values = np.empty((len(columns[0]), len(columns)))
    odd: list[InputError] = []
    for k, column in enumerate(columns):
        try:
            values[:, k] = _as_floats(column, k, place, private)
        except InputError as problem:
            odd.append(problem)
    if odd:
        first = CellsError(odd[0].where, odd[0].expected, odd[0].found, odd[0].todo)
        first.others = tuple(odd[1:])
        raise first
    _check_values(values, place, private, gaps)
    return values


def _check_variation(signals: Array, nodes: Sequence[str], where: str, kind: str) -> None:
    seen = ~np.isnan(signals)
    few = seen.sum(axis=0) < 2
    if few.any():
        raise InputError(
            f"{where}, {kind} {shortened(nodes[int(few.argmax())])}",
            "a node with two values or more",
            f"it has {int(seen[:, few.argmax()].sum())}: all others are missing",
            f"Leave the {kind} out of this table, or at every site: "
            f"{wording.option('drop', [nodes[int(few.argmax())]])}.",
        )
    largest, least = np.where(seen, signals, -np.inf), np.where(seen, signals, np.inf)
    still = largest.max(axis=0) == least.min(axis=0)
    if still.any():
        raise InputError(
            f"{where}, {kind} {shortened(nodes[int(still.argmax())])}",
            "a node whose values vary",
            f"it is constant: every value is {largest[:, still.argmax()].max():g}",
            "A node that never varies has no relation to learn: remove it at every site.",
        )
    if (largest.max(axis=1) - least.min(axis=1)).max() < 1.0 / LARGEST:
        raise InputError(
            where,
            "nodes that differ from each other",
            "all nodes have the same value in every signal",
            "There is no relation to learn between copies of one node.",
        )


def shortened(value: object, length: int = 40) -> str:
    """A value as it may appear in a message."""
    text = repr(value[: length + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= length else text[: length - 1] + "…"


def shown(path: Path) -> str:
    """A path as it may appear in a message: a file's name can be bytes that are no text."""
    return str(path).encode(errors="replace").decode()


def listed(names: Sequence[str]) -> str:
    """Names as they may appear in a message: the first five."""
    return ", ".join(map(shortened, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def check_same_names(names: Sequence[str], wanted: Sequence[str], where: str, expected: str, todo: str) -> None:
    """Refuse names that are missing and names beyond those wanted; their order does not matter."""
    here, there = set(names), set(wanted)
    missing = [name for name in wanted if name not in here]
    extra = [name for name in names if name not in there]
    if missing or extra:
        found = [f"it lacks {listed(missing)}"] * bool(missing) + [f"it also has {listed(extra)}"] * bool(extra)
        raise InputError(where, expected, " and ".join(found), todo)


def _plain(column: pd.Series[Any]) -> NDArray[Any]:
    if isinstance(column.dtype, np.dtype) and column.dtype != object:
        return column.to_numpy()
    # pandas marks missing cells in several ways; below this line there is one.
    return column.to_numpy(dtype=object, na_value=np.nan)


def _check_size(where: str, nodes: int, signals: int, nodes_in: NodesIn) -> None:
    other = "rows" if nodes_in == "columns" else "columns"
    turn = wording.either(f"set {wording.option('nodes_in', other)}", "pass the transposed table (df.T)")
    if signals < 2:
        unit = "row" if nodes_in == "columns" else "column"
        found = f"there is only one {unit}" if signals else f"there is no {unit} of data"
        raise InputError(
            where, f"at least 2 {unit}s of data", found, f"One {unit} is one signal; a graph is learned from several."
        )
    if nodes < 3:
        raise InputError(
            where,
            "at least 3 nodes",
            f"there {'is 1' if nodes == 1 else f'are {nodes}'}",
            f"A graph needs at least 3 nodes. Are the nodes in {other}? Then {turn}.",
        )


def looks_like_identifier(name: str) -> bool:
    """Whether a column of this name is likely to name the person of a row."""
    place = name.strip().endswith(", ID")  # Boise, ID: in Idaho
    return _IDENTIFIER.fullmatch(name.strip()) is not None and not place


def named(name: str) -> str:
    """A column's name: without blanks around it, and an accent is one character with its letter, not two."""
    return unicodedata.normalize("NFC", name.strip())


def is_missing(cell: str) -> bool:
    """Whether a cell means that there is no value."""
    return cell.strip().lower() in _MISSING


def checked_names(where: str, given: Sequence[str], count: int, kind: str = "node") -> tuple[str, ...]:
    """The names without blanks around them: one for each, all different, and all can be written."""
    names = tuple(map(named, given))
    if len(names) != count:
        raise InputError(where, f"one name for each of the {count} {kind}s", f"there are {len(names)} names")
    if "" in names:
        raise InputError(
            where,
            f"a name for every {kind}",
            f"the name of {kind} {names.index('') + 1} is empty",
            "Name it; if it is an index, a date or a row number, remove it.",
        )
    broken = next((name for name in names if _UNWRITABLE.search(name)), None)
    if broken is not None:
        raise InputError(where, f"{kind} names that can be written", f"found {shortened(broken)}", "Rename it.")
    if len(set(names)) < count:
        name, times = Counter(names).most_common(1)[0]
        raise InputError(
            where,
            f"{kind} names that differ",
            f"{shortened(name)} occurs {times} times",
            "Rename or remove the others.",
        )
    return names


def _numbers_only() -> str:
    drop, levels = wording.option("drop", ["COLUMN"]), wording.option("categories", {"COLUMN": ["A", "B"]})
    return f"Every column must hold real numbers: leave others out ({drop}), or declare the levels of words ({levels})."


def _as_floats(column: NDArray[Any], k: int, place: Place, private: bool) -> Array:
    kind = column.dtype.kind
    if kind == "O":
        return _objects_as_floats(column.tolist(), k, place, private)
    if kind in "iu":
        large = (column > LARGEST_INTEGER) | (column < -LARGEST_INTEGER)
        if large.any():
            row = int(large.argmax())
            raise _too_large_integer(place(k, row))
    elif kind != "f":
        what = _NOT_NUMBERS.get(kind, f"values of type {column.dtype}")
        raise InputError(place(k, 0), "a real number", f"the column holds {what}", _numbers_only())
    with np.errstate(over="ignore"):  # overflowing numbers become infinite and are refused as such
        return column.astype(np.float64)


def _objects_as_floats(cells: list[Any], k: int, place: Place, private: bool) -> Array:
    cells = [None if isinstance(cell, str) and is_missing(cell) else cell for cell in cells]
    odd = [row for row, cell in enumerate(cells) if not (cell is None or _is_real(cell))]
    if odd:
        # One word turns a whole CSV column into text: the culprit is the first cell that does not read as a number.
        row = next((row for row in odd if not reads_as_number(cells[row])), odd[0])
        cell = cells[row]
        if isinstance(cell, str) and re.fullmatch(r"\s*[+-]?[0-9]{16,}\s*", cell):
            raise _too_large_integer(place(k, row))
        what = "text" if isinstance(cell, str) else f"a value of type {type(cell).__name__}"
        found = f"found {what}" + ("" if private else f": {shortened(cell)}")
        if isinstance(cell, str) and reads_as_limit(cell):
            todo = _LIMIT
        elif isinstance(cell, str) and reads_as_number(cell):
            todo = _ALIKE
        else:
            todo = _AT_ENDS.get((row + 1) % len(cells), "") + _numbers_only()
        raise InputError(place(k, row), "a number", found, todo)
    for row, cell in enumerate(cells):
        if isinstance(cell, int) and abs(cell) > LARGEST_INTEGER:
            raise _too_large_integer(place(k, row))
    return np.array([np.nan if cell is None else float(cell) for cell in cells])


def _is_real(cell: object) -> bool:
    return isinstance(cell, int | float | Decimal | np.integer | np.floating) and not isinstance(cell, bool)


def reads_as_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def reads_as_limit(cell: str) -> bool:
    """Whether a cell means that a value is below or above the measurable range, as '<5' does."""
    return re.fullmatch(r"\s*[<>≤≥]=?\s*[0-9]+([.,][0-9]+)?\s*", cell) is not None


def _too_large_integer(where: str) -> InputError:
    return InputError(
        where,
        "integers of at most 2**53",
        "found a larger one, which a float64 cannot hold exactly",
        "Is this column an identifier or a time stamp? Then remove it; otherwise rescale it.",
    )


def _check_values(values: Array, place: Place, private: bool, gaps: bool = False) -> None:
    def refuse(bad: NDArray[np.bool_], expected: str, found: str, todo: str) -> None:
        if bad.any():
            column = int(bad.any(axis=0).argmax())
            at = place(column, int(bad[:, column].argmax()))
            number = int(bad.sum())
            others = f", one of {number}" if number > 1 and not private else ""
            raise InputError(at, expected, f"it is {found}{others}", todo)

    refuse(np.isnan(values) & (not gaps), "a number", "missing", _FILL)
    refuse(np.isinf(values), "a finite number", "infinite", "Replace it, or leave out those rows or columns.")
    refuse(np.abs(values) > LARGEST, f"numbers of at most {LARGEST:g}", "larger", "Its powers overflow: rescale it.")


def write_sample(path: Path, header: Sequence[str], lines: Sequence[str]) -> Path:
    """A sample's CSV file, the same bytes everywhere."""
    path.write_bytes("\n".join([",".join(header), *lines, ""]).encode())
    return path
