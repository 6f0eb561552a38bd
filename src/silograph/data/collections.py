"""Data sets that are not ours to ship: where the user keeps a copy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.tables import shown

VARIABLE = "SILOGRAPH_DATA"


def find_data(folder: Path | None, relative: str) -> Path | None:
    """The file `relative` in the folder, or without one in the folder that SILOGRAPH_DATA names; None if not there."""
    if folder is not None and not folder.is_dir():
        raise InputError(shown(folder), "a folder with data sets", "there is none of that name")
    if folder is None:
        named = os.environ.get(VARIABLE)
        if not named:
            return None
        folder = Path(named)
    path = folder / relative
    return path if path.is_file() else None


def read_arrays(path: str | Path) -> dict[str, NDArray[np.generic]]:
    """All arrays of an NPZ file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as problem:  # a damaged file may raise anything
        raise InputError(shown(Path(path)), "an NPZ file", f"it cannot be read ({problem})") from None
