"""Data sets that we may not ship: find the user's copy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.readers import reason
from silograph.data.tables import listed, shown

VARIABLE = "SILOGRAPH_DATA"


def find_data(folder: Path | None, relative: str) -> Path | None:
    """The file `relative` in the folder, or without one in the folder that SILOGRAPH_DATA names; None if it is
    missing."""
    root = _root(folder)
    return root / relative if root is not None and (root / relative).is_file() else None


def find_place(folder: Path | None, relative: str) -> Path | None:
    """As `find_data`, of a file or a folder."""
    root = _root(folder)
    return root / relative if root is not None and (root / relative).exists() else None


def first_data(folder: Path | None, relatives: Sequence[str], todo: str) -> Path:
    """The first of these files or folders that exists; `todo` says where to get them."""
    root = _root(folder)
    if root is None:
        raise InputError(
            "data sets", "a folder with data sets", "none was named", f"Name it with --data or {VARIABLE}. {todo}"
        )
    for relative in relatives:
        if (root / relative).exists():
            return root / relative
    raise InputError(shown(root), f"one of {listed(relatives)} in it", "there is none", todo)


def _root(folder: Path | None) -> Path | None:
    if folder is not None and not folder.is_dir():
        raise InputError(shown(folder), "a folder with data sets", "there is none of that name")
    if folder is None:
        named = os.environ.get(VARIABLE)
        return Path(named) if named else None
    return folder


def worded(names: Sequence[object], kind: str) -> tuple[str, ...]:
    """Names as text, with a word in front if all are numbers: a table's header of numbers alone reads as data."""
    texts = [str(name) for name in names]
    if all(text.strip().lstrip("-").isdigit() for text in texts):
        texts = [f"{kind}_{text.strip()}" for text in texts]
    return tuple(texts)


def read_arrays(path: str | Path, needed: Sequence[str] = ()) -> dict[str, NDArray[np.generic]]:
    """Read all arrays of an NPZ file; the needed ones must be among them."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            there = {name: archive[name] for name in archive.files}
    except Exception as problem:  # a damaged file may raise any error
        raise InputError(shown(Path(path)), "an NPZ file", f"it cannot be read ({reason(problem)})") from None
    if not set(needed) <= set(there):
        raise InputError(shown(Path(path)), f"the arrays {listed(needed)}", f"it holds {listed(list(there))}")
    return there
