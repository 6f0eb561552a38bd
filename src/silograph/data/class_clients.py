"""Clients that each know a few of many classes (S4, section V.A): dealt from a user's pictures, or sample devices.

A new client has its own records, too few to learn from alone, and takes one step from a start that others learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.clients import Single, as_pictures
from silograph.data.collections import find_data, read_arrays
from silograph.data.tables import listed, shown, write_sample

Rows = NDArray[np.intp]
Classes = NDArray[np.int64]
#: Pictures (N, channels, height, width) from 0 to 1 and their classes, to learn from and to test on.
PictureSet = tuple[Single, Classes, Single, Classes]

#: Where a user may have them, in the order of the search; Keras names the arrays in the second way.
MNIST_FILES = ("mnist/mnist.npz", "mnist.npz")
CIFAR10_FILES = ("cifar10/cifar10.npz", "cifar10.npz", "cifar10/cifar10_10k_2k.npz", "cifar10_10k_2k.npz")
_ARRAYS = (("train_images", "train_labels", "test_images", "test_labels"), ("x_train", "y_train", "x_test", "y_test"))

#: Activities that look alike to a motion sensor, side by side; nobody does both of a pair.
ACTIVITY_PAIRS = (("lying", "sitting"), ("climbing", "walking"), ("running", "skipping"), ("cycling", "rowing"))
MOTIONS = (
    "acceleration_x",
    "acceleration_y",
    "acceleration_z",
    "turning_x",
    "turning_y",
    "turning_z",
    "jerk_x",
    "jerk_y",
    "jerk_z",
    "tilt_forward",
    "tilt_sideways",
    "arm_swing",
    "step_rate",
    "step_evenness",
    "impact",
    "height_change",
)
_SOURCES, _RECORDS = 24, 400  # devices of 32 to learn from, and records of each
_COMMON, _OWN, _SHIFT, _NOISE = 0.35, 0.13, 0.15, 0.3  # what a pair shares, what tells it apart, a device, a record


def class_federation(
    images: NDArray[Any],
    labels: NDArray[Any],
    seed: int,
    clients: int = 50,
    per_client: int = 3,
    per_class: int = 200,
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Records of clients that have `per_client` classes each, no two the same set, and `per_class` records of a class.

    No client has a record twice, and no two clients share one until a class is used up: then all of its records except
    those of the client are shuffled and dealt again. A client's records are in random order.
    """
    classes, counts = np.unique(labels, return_counts=True)
    if not 1 <= per_client <= len(classes) or not 1 <= clients <= math.comb(len(classes), per_client):
        found = f"found {clients} clients with {per_client} of {len(classes)} classes each"
        raise InputError("federation", "a different set of classes for every client", found)
    if not 1 <= per_class <= counts.min():
        scarce = classes[counts.argmin()]
        raise InputError("federation", f"{per_class} records of every class", f"{scarce} has {counts.min()}")
    rng = np.random.default_rng(seed)
    sets: dict[tuple[int, ...], None] = {}
    while len(sets) < clients:
        sets[tuple(sorted(rng.choice(len(classes), per_client, replace=False).tolist()))] = None
    owned = [np.flatnonzero(labels == c) for c in classes]
    left = [rng.permutation(own) for own in owned]
    parts = []
    for chosen in sets:
        rows = []
        for c in chosen:
            if len(left[c]) < per_class:
                left[c] = np.concatenate([left[c], rng.permutation(np.setdiff1d(owned[c], left[c]))])
            rows.append(left[c][:per_class])
            left[c] = left[c][per_class:]
        mixed = rng.permutation(np.concatenate(rows))
        parts.append((images[mixed], labels[mixed]))
    return parts


def split(count: int, share: float, rng: np.random.Generator | None = None) -> tuple[Rows, Rows]:
    """A share of the rows, and the others, at least one each; in random order if there is a generator."""
    if count < 2 or not 0.0 < share < 1.0:
        raise InputError("split", "at least 2 records and a share between 0 and 1", f"found {count} and {share}")
    rows = np.arange(count) if rng is None else rng.permutation(count)
    first = min(max(round(share * count), 1), count - 1)
    return rows[:first], rows[first:]


def pool(images: Single, factor: int = 2) -> Single:
    """The means of squares of `factor` pixels a side, over the last two axes."""
    *others, height, width = images.shape
    if factor < 1 or height % factor or width % factor:
        raise InputError("pictures", f"a height and a width that {factor} divides", f"they are {height} and {width}")
    squares = images.reshape(*others, height // factor, factor, width // factor, factor)
    return np.asarray(squares.mean(axis=(-3, -1)))


def mnist(folder: Path | None) -> PictureSet | None:
    """The handwritten digits (N, 1, 28, 28) of a user's NPZ file, if there is one."""
    return _picture_set(folder, MNIST_FILES, (1, 28, 28))


def cifar10(folder: Path | None) -> PictureSet | None:
    """CIFAR-10's pictures (N, 3, 32, 32), all or a part, of a user's NPZ file, if there is one."""
    return _picture_set(folder, CIFAR10_FILES, (3, 32, 32))


def _picture_set(folder: Path | None, files: Sequence[str], shape: tuple[int, ...]) -> PictureSet | None:
    path = next(filter(None, (find_data(folder, name) for name in files)), None)
    if path is None:
        return None
    where, arrays = shown(path), read_arrays(path)
    names = next((names for names in _ARRAYS if set(names) <= set(arrays)), None)
    if names is None:
        raise InputError(where, f"the arrays {listed(_ARRAYS[0])}", f"it holds {listed(list(arrays)) or 'none'}")
    train_x, train_y, test_x, test_y = (arrays[name] for name in names)
    return *_pictures(train_x, train_y, shape, where), *_pictures(test_x, test_y, shape, where)


def _pictures(x: NDArray[Any], y: NDArray[Any], shape: tuple[int, ...], where: str) -> tuple[Single, Classes]:
    pictures = as_pictures(x, where)
    if pictures.shape[1:] != shape:
        raise InputError(where, f"pictures of the shape {shape}", f"they have the shape {pictures.shape[1:]}")
    if y.shape not in ((len(x),), (len(x), 1)) or y.dtype.kind not in "iu":
        found = f"found an array of {y.dtype} of the shape {y.shape}"
        raise InputError(where, f"a class for each of the {len(x)} pictures", found)
    return pictures, y.reshape(-1).astype(np.int64)


def write_sample_devices(folder: str | Path, seed: int = 1) -> tuple[list[Path], list[Path]]:
    """CSV files of motion sensors that tell activities apart, to learn from and new ones; one seed, the same bytes.

    Every device has its own three of eight activities and its own bias. A sensor may be worn either way round, which
    changes the sign of its measurements, so that the mean of an activity's records does not identify it.
    """
    folder = Path(folder)
    for part in ("devices", "new"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    rng = stream(seed, "world", 0, "activities")
    axes = np.sqrt(len(MOTIONS)) * np.linalg.qr(rng.standard_normal((len(MOTIONS), 2 * len(ACTIVITY_PAIRS))))[0].T
    motions = {
        activity: _COMMON * axes[2 * k] + sign * _OWN * axes[2 * k + 1]
        for k, pair in enumerate(ACTIVITY_PAIRS)
        for activity, sign in zip(pair, (-1.0, 1.0), strict=True)
    }
    sets = [chosen for pairs in combinations(ACTIVITY_PAIRS, 3) for chosen in product(*pairs)]
    paths = []
    for number, k in enumerate(rng.permutation(len(sets))):
        name = f"device-{number + 1:02d}"
        lines = _motions(stream(seed, name, 0, "motions"), {activity: motions[activity] for activity in sets[k]})
        path = folder / ("devices" if number < _SOURCES else "new") / f"{name}.csv"
        paths.append(write_sample(path, ["activity", *MOTIONS], lines))
    return paths[:_SOURCES], paths[_SOURCES:]


def _motions(rng: np.random.Generator, motions: dict[str, Array]) -> list[str]:
    """Lines of a device's table."""
    names, shift = list(motions), _SHIFT * rng.standard_normal(len(MOTIONS))
    chosen, turned = rng.integers(len(names), size=_RECORDS), rng.choice((-1.0, 1.0), (_RECORDS, 1))
    noise = _NOISE * rng.standard_normal((_RECORDS, len(MOTIONS)))
    x = turned * np.array(list(motions.values()))[chosen] + shift + noise
    return [f"{names[c]}," + ",".join(f"{value:.4f}" for value in row) for c, row in zip(chosen, x, strict=True)]
