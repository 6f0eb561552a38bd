"""Objects seen from all sides (COIL-20), from a user's copy; and their pictures as the silos of S3, V.C.

Read are `coil20/coil20_32.npz` (arrays images (N, 32, 32), labels and view) and the original download: a folder
`coil-20-proc` or `coil20` of pictures obj1__0.png to obj20__71.png.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.collections import first_data, read_arrays
from silograph.data.png import read_grey_png
from silograph.data.tables import shown

PLACES = ("coil20/coil20_32.npz", "coil-20-proc", "coil20")
WHERE_TO_GET = (
    "COIL-20 is Columbia University's object image library; its page offers coil-20-proc.zip, the processed "
    "pictures. Unpack it there, or put an NPZ file with images, labels and view in its place."
)
WIDTH = 32
OBJECTS, VIEWS, ANGLES = 4, 3, 12  # of S3: four objects, three views of twelve neighbouring angles

_NAME = re.compile(r"obj(\d+)__(\d+)\.png")


def load_views(folder: Path | None) -> Array:
    """Pixels from 0 to 1, (objects, angles, 1024), of the copy in the folder."""
    path = first_data(folder, PLACES, WHERE_TO_GET)
    return read_pictures(path) if path.is_dir() else read_packed(path)


def read_packed(path: Path) -> Array:
    there = read_arrays(path, ("images", "labels", "view"))
    images, label, view = (there[name] for name in ("images", "labels", "view"))
    if images.shape[1:] != (WIDTH, WIDTH) or not len(images) == len(label) == len(view):
        found = f"images have the shape {images.shape}, labels {label.shape}, view {view.shape}"
        raise InputError(shown(path), f"images (N, {WIDTH}, {WIDTH}) with a label and a view each", found)
    pixels = images.reshape(len(images), -1).astype(float)
    ordered = pixels[np.lexsort((view, label))]
    _check_counts(shown(path), label)
    # Means of 4 x 4 blocks of bytes are kept exactly as 16 times their value, up to 4080.
    largest = {"uint16": 4080.0, "uint8": 255.0}.get(images.dtype.name, 1.0)
    return np.asarray(ordered.reshape(len(np.unique(label)), -1, WIDTH * WIDTH) / largest)


def read_pictures(folder: Path) -> Array:
    """Every obj*__*.png of the folder, brought to 32 x 32 pixels by means of blocks."""
    found = {
        (int(match[1]), int(match[2])): path
        for path in sorted(folder.rglob("*.png"))
        if (match := _NAME.fullmatch(path.name))
    }
    if not found:
        raise InputError(shown(folder), "pictures obj1__0.png and so on", "there is none", WHERE_TO_GET)
    _check_counts(shown(folder), np.array([label for label, _ in found]))
    pixels = np.stack([_small(found[key]) for key in sorted(found)])
    return np.asarray(pixels.reshape(len({label for label, _ in found}), -1, WIDTH * WIDTH))


def _check_counts(where: str, label: np.ndarray) -> None:
    objects, counts = np.unique(label, return_counts=True)
    if len(objects) < OBJECTS or counts.min() != counts.max() or counts[0] < VIEWS * ANGLES:
        raise InputError(
            where,
            f"{OBJECTS} objects or more, all with the same number of angles, {VIEWS * ANGLES} or more",
            f"there are {len(objects)} with {counts.min()} to {counts.max()}",
            WHERE_TO_GET,
        )


def _small(path: Path) -> Array:
    picture = read_grey_png(path) / 255.0
    height, width = picture.shape
    if height != width or height % WIDTH:
        raise InputError(shown(path), f"a square picture, a multiple of {WIDTH} wide", f"it is {width} x {height}")
    block = height // WIDTH
    return np.asarray(picture.reshape(WIDTH, block, WIDTH, block).mean((1, 3)).ravel())


def draw_objects(objects: int, seed: int) -> list[int]:
    """Four of them, drawn by the seed."""
    chosen = stream(seed, "world", 0, "objects").choice(objects, OBJECTS, replace=False)
    return [int(k) for k in chosen]


def view_signals(pixels: Array, chosen: list[int]) -> dict[str, Array]:
    """Every view's signals: one a pixel, over 48 nodes, object by object; each picture at mean 0 and deviation 1."""
    signals = {}
    for view in range(VIEWS):
        pictures = pixels[chosen, view * ANGLES : (view + 1) * ANGLES].reshape(OBJECTS * ANGLES, -1)
        centred = pictures - pictures.mean(1, keepdims=True)
        signals[f"view_{view + 1}"] = (centred / centred.std(1, keepdims=True)).T
    return signals
