"""Tables in text: cells between commas, semicolons, tabs or bars, with points or commas in their numbers."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from silograph.core.errors import InputError
from silograph.core.spreadsheet import as_named
from silograph.data.tables import MISSING, MONTH, Grid, NodesIn, frame_grid, is_missing, named, reads_as_number, shown

_SEPARATORS = ",;\t|"
_SAMPLE = 50  # rows that decide on a separator
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_TO_UTF_8 = (
    "Save it again as UTF-8: in Excel as 'CSV UTF-8', or with iconv -f windows-1252 -t utf-8. Which letters are "
    "meant differs by country, so it is not guessed."
)
#: Dates and times with letters in them; those without letters are known by that.
_DATE = re.compile(
    rf"^\s*\d{{4}}-?\d\d-?\d\dT|^\s*\d\d?:\d\d|^\s*\d{{1,4}}[ ./-]*{MONTH}[ .,/-]*\d+|^\s*{MONTH}[ .]+\d\d?,? +\d+",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_IN_TEXT = re.compile(rb'(?:^|[;\t|"\n])[ ]*[+-]?\d*,\d+(?:[eE][+-]?\d+)?[ ]*(?=$|[;\t|"\r\n])')
#: Not three digits in a group behind one to three others, the first of which is no 0.
_NO_THOUSANDS = re.compile(rb"[+-]?(?:0?,\d+|0\d+,\d+|\d+,(?:\d{1,2}|\d{4,})|\d{4,},\d+)(?:[eE][+-]?\d+)?|.*[eE].*")


def read_delimited(
    data: bytes, where: str, nodes_in: NodesIn, delimiter: str, text: Collection[str] = (), private: bool = False
) -> Grid:
    """The table; `delimiter` is the one that the file's name promises, taken unless another one fits better.

    With `private` only the first line decides what separates cells, and a comma in a number is a decimal comma: how a
    record is read must not depend on others.
    """
    import pandas as pd

    data = _plain_text(data, where)
    first = _first_row(data, delimiter)
    if not first:
        raise InputError(where, "a table", "the file is empty")
    if not private:
        _check_title(data, where)
    delimiter = _separator(data, delimiter, 1 if private else _SAMPLE)
    first = _first_row(data, delimiter)
    headed = is_header(first, where, nodes_in)
    lines = _lines(data)
    if headed:
        next(row for row in csv.reader(lines, delimiter=delimiter) if row)  # the rest is data
    # From 3.1 on pandas reads every digit and deprecates the option that asked for it.
    exact: dict[str, Any] = {} if _version(pd.__version__) >= (3, 1) else {"float_precision": "round_trip"}
    # As bytes a cell is kept as it stands in the file: of text pandas would still take "NA" for a gap.
    as_text = {k: str.encode for k, name in enumerate(first) if headed and named(name) in text}
    decimal = "," if _has_decimal_commas(data, delimiter, where, private) else "."
    try:
        frame = pd.read_csv(
            lines,
            sep=delimiter,
            header=None,
            low_memory=False,
            converters=as_text,
            na_values=MISSING,
            skipinitialspace=True,
            decimal=decimal,
            **exact,
        )
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame(columns=range(len(first)))
    except pd.errors.ParserError:
        _check_widths(data, where, delimiter)
        raise
    if frame.shape[1] != len(first):
        _check_widths(data, where, delimiter)
        raise ValueError("its rows have different lengths")
    if len(frame.columns) and frame.iloc[:, -1].isna().any():
        _check_widths(data, where, delimiter)  # a short row does not end in a gap
    for k in as_text:
        frame[k] = frame[k].map(bytes.decode)
    grid = frame_grid(frame, first if headed else None, nodes_in)
    check_row_names(grid.row_names, where)
    return grid


def csv_rows(path: Path, what: str) -> tuple[list[str], list[dict[str, str]]]:
    """The names in the first line of a small file with `what` in it, and its rows by these names: cells are separated
    by what the first line has most of, numbers have decimal points, and names no apostrophe that silograph wrote."""
    where = shown(path)
    if path.exists() and not path.is_file():
        raise InputError(where, what, "it is no ordinary file")
    try:
        data = _plain_text(path.read_bytes(), where)
        delimiter = max(_SEPARATORS, key=lambda mark: len(_first_row(data, mark)))
        commas = _has_decimal_commas(data, delimiter, where, private=False)
        reader = csv.DictReader(_lines(data), delimiter=delimiter, restval="")
        names, rows = list(reader.fieldnames or []), list(reader)
    except FileNotFoundError:
        raise InputError(where, what, "there is no such file") from None
    except (OSError, csv.Error) as error:
        raise InputError(where, what, f"it cannot be read ({error})") from None
    return names, [{name: _as_meant(cell, commas) for name, cell in row.items()} for row in rows]


def _as_meant(cell: Any, commas: bool) -> Any:
    if not isinstance(cell, str):  # the cells beyond the last name, in a list
        return cell
    return cell.replace(",", ".") if commas and _has_decimal_comma(cell) else as_named(cell)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _plain_text(data: bytes, where: str) -> bytes:
    """The text in UTF-8, which it is already unless a mark says that it is in UTF-16, as Excel's "Unicode text" is."""
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    try:
        text = data.decode(encoding or "utf-8-sig")
    except UnicodeDecodeError as problem:
        found = f"byte {problem.start + 1} is in another encoding, as of older Windows programs"
        raise InputError(where, "UTF-8 text", found, _TO_UTF_8) from None
    if "\0" in text:  # the parser would silently end the cell there
        raise InputError(where, "a table in plain text", "it holds binary data", "Save it again as UTF-8 text.")
    return data.removeprefix(codecs.BOM_UTF8) if encoding is None else text.encode()


def _lines(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")


def _first_row(data: bytes, delimiter: str) -> list[str]:
    return next((row for row in csv.reader(_lines(data), delimiter=delimiter) if row), [])


def _separator(data: bytes, promised: str, sample: int) -> str:
    """The promised separator, unless the first rows are more alike, and more of their cells numbers, with another."""
    best, most = promised, (False, -1.0)
    for candidate in (promised, *_SEPARATORS.replace(promised, "")):
        rows = list(islice((row for row in csv.reader(_lines(data), delimiter=candidate) if row), sample))
        width = len(rows[0])
        even = width > 1 and all(len(row) == width for row in rows)
        cells = [cell for row in rows for cell in row]
        values = sum(_is_value(cell) or (candidate != "," and _has_decimal_comma(cell)) for cell in cells)
        if even and (even, values / len(cells)) > most:
            best, most = candidate, (even, values / len(cells))
    return best


def _has_decimal_comma(cell: str) -> bool:
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def _has_decimal_commas(data: bytes, delimiter: str, where: str, private: bool) -> bool:
    """Whether numbers have decimal commas. One such as 1,234 may be 1234 as well, so another number must decide."""
    if delimiter == ",":
        return False
    found = None
    for match in _IN_TEXT.finditer(data):
        found = match[0].strip(b' ;\t|"\n')
        if private or _NO_THOUSANDS.fullmatch(found):
            return True
    if found is not None:
        raise InputError(
            where,
            "numbers that can be read in one way",
            f"{found.decode()!r} may have a decimal comma, or a comma after the thousands",
            "Save it with decimal points, and without marks between thousands.",
        )
    return False


def is_header(first: Sequence[str], where: str, nodes_in: NodesIn) -> bool:
    """Whether the first row is no row of data: numbers and gaps, after a name if nodes are in rows.

    A name is public, a record is not: a row that may be either is refused. A blank at the beginning is a gap, or the
    name of the index that pandas writes.
    """
    indexed = not first[0].strip()
    values = list(first[1:] if nodes_in == "rows" and (indexed or not _is_value(first[0])) else first)
    counts = len(values) > 2 and any(values == [str(k + start) for k in range(len(values))] for start in (0, 1))
    if all(map(_is_value, values)):
        if not indexed and not counts:
            return False
        doubtful = not (indexed and counts and nodes_in == "rows")  # a node without a name is refused, so it is none
    else:
        doubtful = nodes_in == "columns" and any(map(_may_be_data, values))
    if doubtful:
        data = "put a line of names above it" if counts and not indexed else "fill the gaps"
        raise InputError(
            f"{where}, line 1",
            "names, or data",
            "it may be either: a record must not become the names of the columns",
            f"Give the columns names that are not numbers, dates or times; if it is data, {data}.",
        )
    return True


def check_row_names(names: Sequence[str] | None, where: str) -> None:
    """One word among numbers makes names of a whole column of data."""
    found = next((k for k, name in enumerate(names or ()) if _may_be_data(name)), None)
    if found is not None:
        raise InputError(
            f"{where}, column 1, data row {found + 1}",
            "the name of a node, as in other rows, or data in all rows",
            "found what may be data: it must not become a name",
            "Give every node a name that is not a number, a date or a time; if it is data, correct the other cells.",
        )


def _may_be_data(cell: str) -> bool:
    """Whether a cell reads as a number, a date or a time, however it is written."""
    has_digit, has_letter = re.search(r"\d", cell), re.search(r"[^\W\d_]|#", cell)
    return reads_as_number(cell) or bool(has_digit and not has_letter) or _DATE.search(cell) is not None


def _is_value(cell: str) -> bool:
    return reads_as_number(cell) or _has_decimal_comma(cell) or is_missing(cell)


def _check_title(data: bytes, where: str) -> None:
    """Refuse lines above the names, as laboratories export them: they have words in few cells, and all rows below have
    as many cells as the first that is full."""
    as_read = {mark: _sample(data, mark) for mark in _SEPARATORS}
    if any(len(rows[0][1]) > 1 and all(rows[0][1][1:]) and _even(rows) for rows in as_read.values()):
        return
    for rows in as_read.values():
        width = len(rows[-1][1])
        names = next((k for k, (_, row) in enumerate(rows) if len(row) == width and all(row)), 0)
        above = [[cell for cell in row if cell] for _, row in rows[:names]]
        title = all(len(row) <= width / 2 and not any(map(_is_value, row)) for row in above)
        words = not any(map(_is_value, rows[names][1]))
        if above and title and words and width > 2 and len(rows) > names + 1 and _even(rows[names:]):
            line = rows[names][0]
            found = f"it seems to have a title, and the names in line {line}"
            raise InputError(f"{where}, line 1", "the names of columns", found, f"Remove what is above line {line}.")


def _sample(data: bytes, delimiter: str) -> list[tuple[int, list[str]]]:
    """The first rows that are not empty, each with its line."""
    reader = csv.reader(_lines(data), delimiter=delimiter)
    return list(islice(((reader.line_num, row) for row in reader if row), _SAMPLE))


def _even(rows: Sequence[tuple[int, list[str]]]) -> bool:
    return len({len(row) for _, row in rows}) == 1


def _check_widths(data: bytes, where: str, delimiter: str) -> None:
    """Name the first line that is longer or shorter than the first one."""
    rows = csv.reader(_lines(data), delimiter=delimiter)
    width = 0
    for row in rows:
        width = width or len(row)
        if row and len(row) != width:
            found = f"there {'is 1' if len(row) == 1 else f'are {len(row)}'}"
            expected = f"{width} cell{'s' if width > 1 else ''} as in the first row"
            todo = "Delete titles, remarks and lines of blanks; quote cells that hold the separator."
            raise InputError(f"{where}, line {rows.line_num}", expected, found, todo)
