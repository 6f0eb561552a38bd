"""Tables from files, read exactly or refused: CSV and TSV, packed too, spreadsheets, Parquet, Feather, NPY, MAT."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import warnings
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.categories import occurring, with_levels
from silograph.data.columns import ColumnsError, findings, without, without_empty
from silograph.data.delimited import check_row_names, is_header, read_delimited
from silograph.data.matlab import read_mat
from silograph.data.tables import (
    Grid,
    NodesIn,
    Table,
    array_grid,
    checked_table,
    frame_grid,
    listed,
    named,
    shortened,
    shown,
    without_index,
)

__all__ = ["SUFFIXES", "Table", "is_table", "read_columns", "read_grid", "read_people", "read_table", "site_table"]

_V73 = "Matlab's v7.3 (HDF5) files are not read: save it again with save(..., '-v7')."
_SHEETS = {".xlsx": "openpyxl", ".xls": "calamine", ".xlsb": "calamine", ".ods": "calamine"}
_EXCEL = "Install it with: pip install 'silograph[excel]'. Or save the sheet as CSV."


def read_grid(
    path: str | Path, nodes_in: NodesIn = "columns", text: Collection[str] = (), private: bool = False
) -> tuple[str, Grid]:
    """Read a file: its name without suffix, and its table, unchecked; cells of the columns `text` are never numbers."""
    parsers = _frames(nodes_in, text, private)
    parsers |= {suffix: partial(parse, nodes_in=nodes_in) for suffix, parse in _ARRAY_PARSERS.items()}
    return _parsed(Path(path), parsers)


def read_columns(
    path: str | Path, text: Collection[str] = (), others: Sequence[str] = (), private: bool = False
) -> tuple[str, Grid]:
    """Read a file of a format that names its columns in the same way.

    `others` are suffixes that the caller reads itself: a name without a known suffix may be corrected to one of them,
    too.
    """
    return _parsed(Path(path), _frames("columns", text, private), others)


def _frames(nodes_in: NodesIn, text: Collection[str], private: bool) -> dict[str, Callable[[bytes, str], Grid]]:
    told: dict[str, Any] = {"nodes_in": nodes_in, "text": text}
    return {
        **{suffix: partial(parse, **told, private=private) for suffix, parse in _TEXT_PARSERS.items()},
        **{suffix: partial(parse, **told) for suffix, parse in _FRAME_PARSERS.items()},
    }


def read_table(
    path: str | Path,
    nodes_in: NodesIn = "columns",
    private: bool = False,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """One site's table. Rows are signals and columns are nodes, or the other way round with nodes_in="rows".

    Columns in `drop` are left out; those in `keep` are measurements, whatever they look like.
    """
    name, grid = read_grid(path, nodes_in, tuple(categories or ()), private)
    return site_table(name, Path(path), grid, nodes_in, private, None, drop, keep, categories)


def read_people(
    path: str | Path,
    unit_column: str,
    private: bool = False,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Read one site's table with a column that names each signal's person; all others are nodes, except those in
    `drop`."""
    name, grid = read_columns(path, [unit_column, *(categories or ())], (), private)
    return site_table(name, Path(path), grid, "columns", private, unit_column, drop, keep, categories)


def site_table(
    name: str,
    path: Path,
    grid: Grid,
    nodes_in: NodesIn = "columns",
    private: bool = False,
    unit_column: str | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
    where: str | None = None,
) -> Table:
    """Check a site's grid: columns that are not measurements are refused, with all findings."""
    where = shown(path) if where is None else where
    if nodes_in == "rows":
        return checked_table(grid, name, path, where, nodes_in, private)
    columns, person = [named(column) for column in grid.column_names or ()], None
    if unit_column is not None:
        person = _persons(grid, columns, named(unit_column), where)
        drop = {unit_column, *drop}
    grid = with_levels(without(without_index(grid, private), drop), categories, where, private)
    grid = without(grid, drop)  # a level may be dropped, too
    levels = [named(name) for name in grid.column_names or ()]
    grid, empty = (grid, []) if private else without_empty(grid)
    grid, gone = (grid, []) if private else occurring(grid, categories)
    if odd := findings(grid, private, keep):
        raise ColumnsError({where: odd})
    table = checked_table(grid, name, path, where, nodes_in, private)
    known = tuple(dict.fromkeys([*columns, *levels]))
    why = "no row or every row has them, or they follow from the others"
    notes = [f"{where}: left out, because no row has a value: {listed(empty)}."] if empty else []
    notes += [f"{where}: left out, because these levels say nothing there ({why}): {listed(gone)}."] if gone else []
    return replace(table, person=person, columns=known if columns else (), notes=tuple(notes))


def _persons(grid: Grid, names: Sequence[str], unit_column: str, where: str) -> NDArray[np.intp]:
    """The person of each row, counted from 0."""
    if unit_column not in names:
        found = f"its columns are {listed(names)}" if names else "its columns have no names"
        raise InputError(where, f"a column {shortened(unit_column)}, which names the person of each row", found)
    cells = grid.columns[names.index(unit_column)].tolist()
    persons = ["" if cell is None or cell != cell else str(cell).strip() for cell in cells]
    if "" in persons:
        place = f"{where}, column {shortened(unit_column)}, {grid.at(persons.index(''))}"
        raise InputError(place, "the name of a person", "it is empty", "Fill it in, or leave out the row.")
    return np.unique(persons, return_inverse=True)[1].astype(np.intp)


def is_table(path: Path) -> bool:
    """Whether a file's name is that of a table."""
    return path.name.lower().endswith(SUFFIXES)


def suffix_of(path: PurePath, suffixes: Collection[str]) -> str | None:
    """The longest of these that the file's name ends in."""
    return max((suffix for suffix in suffixes if path.name.lower().endswith(suffix)), key=len, default=None)


def _parsed(
    path: Path, parsers: Mapping[str, Callable[[bytes, str], Grid]], others: Sequence[str] = ()
) -> tuple[str, Grid]:
    """The file's name without its suffix, and its contents, read by the suffix's parser."""
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
    except Exception as problem:  # a parser may raise any error for a damaged file
        raise InputError(where, f"a table in the {suffix} format", f"it cannot be read ({reason(problem)})") from None


def reason(problem: Exception) -> str:
    """Why a parser failed, in its own words, except numpy's advice to trust the file."""
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
        suffix = suffix_of(path, suffixes)
        if suffix is None:
            found = f"its name ends in {path.suffix!r}" if path.suffix else "its name has no suffix"
            plain = [suffix for suffix in suffixes if suffix.count(".") == 1]
            expected = f"a name that ends in {', '.join([*plain, *others])}"
            raise InputError(where, expected, found, "Save it as CSV, Excel (.xlsx) or Parquet.")
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


def _packed(data: bytes, where: str, unpack: Callable[[bytes], bytes], **told: Any) -> Grid:
    return read_delimited(unpack(data), where, **told)


def _zipped(data: bytes, where: str, **told: Any) -> Grid:
    """The only table in the archive, whatever else lies beside it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [PurePosixPath(name) for name in archive.namelist() if not name.endswith("/")]
        open_files = [file for file in files if not any(part.startswith((".", "__MACOSX")) for part in file.parts)]
        tables = [file for file in open_files if suffix_of(file, _TEXTS) is not None]
        if len(tables) != 1:
            found = f"it holds {listed([str(file) for file in tables or open_files]) or 'nothing'}"
            raise InputError(where, "an archive of one CSV or TSV file", found, "Pack every table by itself.")
        inside = archive.read(str(tables[0]))
    return read_delimited(inside, where, delimiter=_TEXTS[suffix_of(tables[0], _TEXTS) or ".csv"], **told)


def _parquet(data: bytes, where: str, nodes_in: NodesIn, text: Collection[str] = ()) -> Grid:
    import pandas as pd

    return _framed(pd.read_parquet(io.BytesIO(data)), nodes_in, text)


def _feather(data: bytes, where: str, nodes_in: NodesIn, text: Collection[str] = ()) -> Grid:
    import pandas as pd

    return _framed(pd.read_feather(io.BytesIO(data)), nodes_in, text)


def _framed(frame: Any, nodes_in: NodesIn, text: Collection[str]) -> Grid:
    import pandas as pd

    names_nodes = nodes_in == "rows" and not pd.api.types.is_numeric_dtype(frame.index)
    if names_nodes or any(name in frame.index.names for name in text):
        frame = frame.reset_index()
    return frame_grid(frame, [str(name) for name in frame.columns], nodes_in)


def _excel(data: bytes, where: str, nodes_in: NodesIn, engine: str, text: Collection[str] = ()) -> Grid:
    """The only sheet that is not empty; rows and columns without any cell are no part of it."""
    import pandas as pd

    if b"\0" not in data and not data.startswith(b"PK"):
        raise InputError(where, "a spreadsheet", "it is text under another name", "Rename it to .csv or .tsv.")
    try:
        sheets = pd.read_excel(io.BytesIO(data), sheet_name=None, header=None, engine=engine)  # type: ignore[call-overload]
    except ImportError:
        package = "openpyxl" if engine == "openpyxl" else "python-calamine"
        raise InputError(where, f"the package {package}, to read such files", "it is not installed", _EXCEL) from None
    full = {name: sheet.dropna(how="all").dropna(how="all", axis=1) for name, sheet in sheets.items()}
    full = {name: sheet for name, sheet in full.items() if sheet.size}
    if len(full) != 1:
        found = f"found {listed([str(name) for name in full])}" if full else "all are empty"
        raise InputError(where, "one sheet with a table", found, "Save every sheet as a file of its own.")
    (sheet,) = full.values()
    first = ["" if cell != cell else str(cell) for cell in sheet.iloc[0].tolist()]
    if not is_header(first, where, nodes_in):
        grid = frame_grid(sheet, None, nodes_in)
    else:
        grid = frame_grid(sheet.iloc[1:].infer_objects(), first, nodes_in)
    check_row_names(grid.row_names, where)
    return grid


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


_TEXTS = {".csv": ",", ".tsv": "\t"}
_UNPACKED = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
_TEXT_PARSERS: dict[str, Callable[..., Grid]] = {
    **{suffix: partial(read_delimited, delimiter=delimiter) for suffix, delimiter in _TEXTS.items()},
    **{
        suffix + packed: partial(_packed, delimiter=delimiter, unpack=unpack)
        for suffix, delimiter in _TEXTS.items()
        for packed, unpack in _UNPACKED.items()
    },
    ".csv.zip": _zipped,
    ".tsv.zip": _zipped,
    ".zip": _zipped,
}
_FRAME_PARSERS: dict[str, Callable[..., Grid]] = {
    **{suffix: partial(_excel, engine=engine) for suffix, engine in _SHEETS.items()},
    ".parquet": _parquet,
    ".feather": _feather,
}
_ARRAY_PARSERS: dict[str, Callable[..., Grid]] = {".npy": _npy, ".npz": _npz, ".mat": _mat}
#: The longest first: a file is called by its name without it.
SUFFIXES = tuple(sorted([*_TEXT_PARSERS, *_FRAME_PARSERS, *_ARRAY_PARSERS], key=len, reverse=True))
