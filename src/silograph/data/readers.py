"""Tables from files: CSV, TSV, Parquet, NPY, NPZ and MAT, read exactly or refused with a reason."""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.columns import ColumnsError, findings, without
from silograph.data.matlab import read_mat
from silograph.data.tables import (
    Grid,
    NodesIn,
    Table,
    array_grid,
    checked_names,
    checked_table,
    frame_grid,
    listed,
    reads_as_number,
    shortened,
    shown,
    without_index,
)

__all__ = ["SUFFIXES", "Table", "read_columns", "read_named_columns", "read_people", "read_table"]

_MISSING = {"", "na", "n/a", "#n/a", "null", "none", "<na>"}
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
#: Dates and times with letters in them; those without are known by that.
_DATE = re.compile(
    rf"^\s*\d{{4}}-?\d\d-?\d\dT|^\s*\d\d?:\d\d|^\s*\d{{1,4}}[ ./-]*{_MONTH}[ .,/-]*\d+|^\s*{_MONTH}[ .]+\d\d?,? +\d+",
    re.IGNORECASE,
)
_V73 = "Matlab's v7.3 (HDF5) files are not read: save it again with save(..., '-v7')."


def read_table(
    path: str | Path,
    nodes_in: NodesIn = "columns",
    private: bool = False,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
) -> Table:
    """One site's table. Rows are signals and columns are nodes, or the other way round with nodes_in="rows".

    Columns in `drop` are left out; those in `keep` are measurements, whatever they look like.
    """
    path = Path(path)
    name, grid = _parsed(path, {suffix: partial(parse, nodes_in=nodes_in) for suffix, parse in _PARSERS.items()})
    columns = tuple(name.strip() for name in grid.column_names or ())
    if nodes_in == "columns":
        grid = without(without_index(grid, private), drop)
        if odd := findings(grid, private, keep):
            raise ColumnsError({shown(path): odd})
    return replace(checked_table(grid, name, path, shown(path), nodes_in, private), columns=columns)


def read_people(
    path: str | Path,
    unit_column: str,
    private: bool = False,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
) -> Table:
    """One site's table with a column that says whose each signal is; all others are nodes, but those in `drop`."""
    path = Path(path)
    where = shown(path)
    name, grid = read_columns(path, [unit_column])
    names = [column.strip() for column in grid.column_names or ()]
    if unit_column not in names:
        found = f"its columns are {listed(names)}" if names else "its columns have no names"
        raise InputError(where, f"a column {shortened(unit_column)}, which says whose a signal is", found)
    at = names.index(unit_column)
    persons = ["" if cell is None or cell != cell else str(cell).strip() for cell in grid.columns[at].tolist()]
    if "" in persons:
        place = f"{where}, column {shortened(unit_column)}, data row {persons.index('') + 1}"
        raise InputError(place, "whose signal it is", "it is empty", "Say it, or leave out the row.")
    others = without(Grid(grid.columns, names), {unit_column, *drop})
    if odd := findings(others, private, keep):
        raise ColumnsError({where: odd})
    table = checked_table(others, name, path, where, private=private)
    person = np.unique(persons, return_inverse=True)[1].astype(np.intp)
    return replace(table, person=person, columns=tuple(names))


def read_columns(path: str | Path, text: Collection[str] = (), others: Sequence[str] = ()) -> tuple[str, Grid]:
    """The name of a CSV, TSV or Parquet file and its columns, unchecked; no cell of the columns `text` is a number.

    `others` are suffixes that the caller reads itself: a name that ends in none may be mended to one of them, too.
    """
    parsers = {suffix: partial(parse, nodes_in="columns", text=text) for suffix, parse in _FRAME_PARSERS.items()}
    return _parsed(Path(path), parsers, others)


def read_named_columns(
    path: str | Path, text: Collection[str] = (), others: Sequence[str] = (), private: bool = False
) -> tuple[str, dict[str, NDArray[Any]]]:
    """As `read_columns`, by the names in the first line, which must be there; without the index that pandas writes."""
    where = shown(Path(path))
    name, grid = read_columns(path, text, others)
    if grid.column_names is None:
        raise InputError(where, "a first line with the columns' names", "it begins with data", "Name the columns.")
    grid = without_index(grid, private)
    names = checked_names(where, grid.column_names or (), len(grid.columns), "column")
    return name, dict(zip(names, grid.columns, strict=True))


def _parsed(
    path: Path, parsers: Mapping[str, Callable[[bytes, str], Grid]], others: Sequence[str] = ()
) -> tuple[str, Grid]:
    """The file's name without its suffix, and what the suffix's parser makes of its contents."""
    where = shown(path)
    suffix, data = _contents(path, tuple(parsers), others)
    try:
        # The parsers' warnings are either refused below as errors or of no use to the reader.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return path.name[: -len(suffix)], parsers[suffix](data, where)
    except InputError:
        raise
    except MemoryError:
        raise InputError(where, "a table that fits in memory", "it does not") from None
    except Exception as problem:  # a damaged file may raise anything from inside a parser
        raise InputError(where, f"a table in the {suffix} format", f"it cannot be read ({reason(problem)})") from None


def reason(problem: Exception) -> str:
    """Why a parser failed, in its own words, but for numpy's advice to trust the file."""
    words = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    if "If you trust the file" in words:
        return "it is damaged, or holds no arrays"
    return words.removesuffix(" when allow_pickle=False")[:120]


def _contents(path: Path, suffixes: Sequence[str], others: Sequence[str]) -> tuple[str, bytes]:
    where = shown(path)
    try:
        if path.is_dir():
            raise InputError(where, "a file", "it is a directory", "Name the files in it.")
        if not path.exists():
            raise InputError(where, "a file", "there is none of that name")
        suffix = next((suffix for suffix in suffixes if path.name.lower().endswith(suffix)), None)
        if suffix is None:
            found = f"its name ends in {path.suffix!r}" if path.suffix else "its name has no suffix"
            expected = f"a name that ends in {', '.join([*suffixes, *others])}"
            raise InputError(where, expected, found, "Save it as CSV or Parquet.")
        if not path.is_file():
            raise InputError(where, "an ordinary file", "it is a device or a pipe", "Save it as a file first.")
        data = path.read_bytes()
    except PermissionError:
        raise InputError(where, "a file that may be read", "permission was denied") from None
    except MemoryError:
        raise InputError(where, "a table that fits in memory", "it does not") from None
    except OSError as problem:
        raise InputError(where, "a file that can be read", f"reading failed ({problem.strerror})") from None
    if not data:
        raise InputError(where, "a table", "the file is empty")
    return suffix, data


def _delimited(data: bytes, where: str, nodes_in: NodesIn, delimiter: str, text: Collection[str] = ()) -> Grid:
    import pandas as pd

    _check_text(data, where)
    lines = _lines(data)
    first = next((row for row in csv.reader(lines, delimiter=delimiter) if row), [])
    if not first:
        raise InputError(where, "a table", "the file is empty")
    _check_delimiter(first, where, delimiter)
    headed = _is_header(first, where, nodes_in)
    if not headed:
        lines.seek(0)
    # From 3.1 on pandas reads every digit and deprecates the option that asked for it.
    exact: dict[str, Any] = {} if _version(pd.__version__) >= (3, 1) else {"float_precision": "round_trip"}
    # As bytes a cell is kept as it stands in the file: of text pandas would still take "NA" for a gap.
    as_text = {k: str.encode for k, name in enumerate(first) if headed and name.strip() in text}
    try:
        frame = pd.read_csv(lines, sep=delimiter, header=None, low_memory=False, converters=as_text, **exact)
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame(columns=range(len(first)))
    except pd.errors.ParserError:
        _check_widths(data, where, delimiter)
        raise
    if frame.shape[1] != len(first):
        _check_widths(data, where, delimiter)
        raise ValueError("its rows have different lengths")
    if len(frame.columns) and frame.iloc[:, -1].isna().any():
        _check_widths(data, where, delimiter)  # a row that is too short has no gap at its end
    for k in as_text:
        frame[k] = frame[k].map(bytes.decode)
    grid = frame_grid(frame, first if headed else None, nodes_in)
    _check_row_names(grid.row_names, where)
    return grid


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _check_text(data: bytes, where: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        found = f"byte {problem.start + 1} is in another encoding"
        raise InputError(where, "UTF-8 text", found, "Save it again as UTF-8.") from None
    if b"\0" in data:  # the parser would silently end the cell there
        raise InputError(where, "a table in plain text", "it holds binary data", "Save it again as UTF-8 text.")


def _lines(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")


def _is_header(first: list[str], where: str, nodes_in: NodesIn) -> bool:
    """Whether the first row is no row of data: numbers and gaps, after a name if nodes are in rows.

    A name is public, a record is not: what may be either is refused. A blank at the beginning is a gap, or the name of
    the index that pandas writes.
    """
    indexed = not first[0].strip()
    values = first[1:] if nodes_in == "rows" and (indexed or not _is_value(first[0])) else first
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


def _check_row_names(names: Sequence[str] | None, where: str) -> None:
    """One word among numbers makes names of a whole column of data."""
    found = next((k for k, name in enumerate(names or ()) if _may_be_data(name)), None)
    if found is not None:
        raise InputError(
            f"{where}, column 1, data row {found + 1}",
            "the name of a node, as in other rows, or data in all rows",
            "found what may be data: it must not become a name",
            "Give every node a name that is not a number, a date or a time; if it is data, mend the other cells.",
        )


def _may_be_data(cell: str) -> bool:
    """Whether a cell reads as a number, a date or a time, however it is written."""
    has_digit, has_letter = re.search(r"\d", cell), re.search(r"[^\W\d_]|#", cell)
    return reads_as_number(cell) or bool(has_digit and not has_letter) or _DATE.search(cell) is not None


def _is_value(cell: str) -> bool:
    return reads_as_number(cell) or cell.strip().lower() in _MISSING


def _check_delimiter(first: list[str], where: str, delimiter: str) -> None:
    found = next((other for other in ";\t,|" if len(first) == 1 and first[0].count(other) > 1), None)
    if found:
        words = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
        rename = {",": ", or name it .csv", "\t": ", or name it .tsv"}.get(found, "")
        raise InputError(
            where,
            f"columns separated by {words[delimiter]}",
            f"they are separated by {words[found]}",
            f"Save it with {words[delimiter]}{rename}.",
        )


def _check_widths(data: bytes, where: str, delimiter: str) -> None:
    """Name the first line that is longer or shorter than the first one, for a file that could not be read."""
    rows = csv.reader(_lines(data), delimiter=delimiter)
    width = 0
    for row in rows:
        width = width or len(row)
        if row and len(row) != width:
            found = f"there {'is 1' if len(row) == 1 else f'are {len(row)}'}"
            raise InputError(f"{where}, line {rows.line_num}", f"{width} cells as in the first row", found)


def _gzipped(data: bytes, where: str, nodes_in: NodesIn, delimiter: str, text: Collection[str] = ()) -> Grid:
    return _delimited(gzip.decompress(data), where, nodes_in, delimiter, text)


def _parquet(data: bytes, where: str, nodes_in: NodesIn, text: Collection[str] = ()) -> Grid:
    import pandas as pd

    frame = pd.read_parquet(io.BytesIO(data))
    names_nodes = nodes_in == "rows" and not pd.api.types.is_numeric_dtype(frame.index)
    if names_nodes or any(name in frame.index.names for name in text):
        frame = frame.reset_index()
    return frame_grid(frame, [str(name) for name in frame.columns], nodes_in)


def _npy(data: bytes, where: str, nodes_in: NodesIn) -> Grid:
    return array_grid(np.lib.format.read_array(io.BytesIO(data), allow_pickle=False), None, where, nodes_in)


def _npz(data: bytes, where: str, nodes_in: NodesIn) -> Grid:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        wanted = [key for key in ("signals", "nodes") if key in archive] if "signals" in archive else archive.files
        return _named_arrays({key: archive[key] for key in wanted}, where, nodes_in)


def _mat(data: bytes, where: str, nodes_in: NodesIn) -> Grid:
    if b"\x89HDF" in (data[:4], data[512:516]):
        raise InputError(where, "a Matlab file of version 5 to 7", "it is a v7.3 file", _V73)
    variables = read_mat(data)
    for key in ("signals", "nodes"):
        if variables.get(key, 0) is None:
            found = "it is a string array, a sparse matrix, a struct or an object"
            todo = "Use full(...) for signals and cellstr(...) for nodes."
            raise InputError(f"{where}, {key!r}", "a full matrix or a cell of characters", found, todo)
    return _named_arrays(variables, where, nodes_in)


def _named_arrays(arrays: Mapping[str, Any], where: str, nodes_in: NodesIn) -> Grid:
    """The array called "signals", or the only matrix of numbers; and "nodes", if it is there."""
    matrices = [key for key, array in arrays.items() if key != "nodes" and _is_matrix(array)]
    # Matlab knows no scalars or vectors: settings saved beside the signals come as matrices, too.
    candidates = [key for key in matrices if min(arrays[key].shape) > 1] or matrices
    key = "signals" if "signals" in arrays else candidates[0] if len(candidates) == 1 else None
    if key is None:
        found = (
            f"it holds several: {listed(candidates)}" if candidates else f"it holds {listed(list(arrays)) or 'none'}"
        )
        raise InputError(
            where, "one 2-D array of numbers", found, "Save the one with the signals under the key 'signals'."
        )
    nodes = _strings(arrays["nodes"], where) if "nodes" in arrays else None
    return array_grid(np.asarray(arrays[key]), nodes, where, nodes_in)


def _is_matrix(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind in "biufc"


def _strings(names: NDArray[Any], where: str) -> list[str]:
    """Names from an array of strings, or from a Matlab cell, whose strings are arrays themselves."""
    if names.dtype.kind not in "UTO":
        raise InputError(f"{where}, 'nodes'", "an array of strings", f"found an array of {names.dtype}")
    return ["".join(np.ravel(cell)) for cell in np.ravel(names)]


_FRAME_PARSERS: dict[str, Callable[..., Grid]] = {
    ".csv": partial(_delimited, delimiter=","),
    ".tsv": partial(_delimited, delimiter="\t"),
    ".csv.gz": partial(_gzipped, delimiter=","),
    ".tsv.gz": partial(_gzipped, delimiter="\t"),
    ".parquet": _parquet,
}
_PARSERS: dict[str, Callable[..., Grid]] = {
    **_FRAME_PARSERS,
    ".npy": _npy,
    ".npz": _npz,
    ".mat": _mat,
}
SUFFIXES = tuple(_PARSERS)
