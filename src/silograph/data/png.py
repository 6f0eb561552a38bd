"""Grey pictures from PNG files, by Pillow (the extra `pictures`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.tables import shown

_MOST_PIXELS = 1 << 24


def read_grey_png(path: str | Path) -> NDArray[np.uint8]:
    """The picture (height, width), dark 0 to bright 255."""
    try:
        from PIL import Image
    except ImportError:
        todo = "pip install 'silograph[pictures]'"
        raise InputError(shown(Path(path)), "Pillow, which reads pictures", "it is not installed", todo) from None
    where = shown(Path(path))
    try:
        with Image.open(path, formats=["PNG"]) as picture:  # reads no more than the header
            width, height = picture.size
            if picture.mode != "L" or width * height > _MOST_PIXELS:
                found = f"it has {width} x {height} pixels of Pillow's mode {picture.mode}"
                raise InputError(where, "a grey picture of 8 bits per pixel", found, "Save it as such.")
            return np.asarray(picture)
    except (OSError, SyntaxError, Image.DecompressionBombError) as problem:  # what Pillow says of damage
        raise InputError(where, "a PNG picture", f"it cannot be read ({problem})") from None
