"""Pictures for clients whose clusters tell classes apart (S2, V.B and V.C): a user's copy, or drawn ones in its place.

Clients come server by server, as in `clusters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.collections import read_arrays
from silograph.data.regions import Records
from silograph.data.tables import shown

#: The classes on either side; the first is 1, the second -1.
Sides = tuple[tuple[int, ...], tuple[int, ...]]
Labels = NDArray[np.intp]
Pixels = NDArray[np.uint8]

_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_WIDTH, _DRAWN, _STROKES, _SHIFT, _NOISE = 28, 80, 4, 2, 0.25  # of drawn pictures


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pixels (N, d) from 0 to 255 and classes (N,), to learn from and to test on."""

    x: Pixels
    label: Labels
    test_x: Pixels
    test_label: Labels


@dataclass(frozen=True, eq=False)
class ClusteredPictures:
    """Each client's records and cluster, and pictures to test each cluster's models on."""

    records: list[Records]
    clusters: tuple[int, ...]
    tests: list[Records]


def read_pictures(path: str | Path) -> Pictures:
    """An NPZ file with train_images and test_images, values 0 to 255, and train_labels and test_labels."""
    where, there = shown(Path(path)), read_arrays(path, _ARRAYS)
    x, label, test_x, test_label = (there[name].reshape(len(there[name]), -1) for name in _ARRAYS)
    if len(x) != len(label) or len(test_x) != len(test_label):
        raise InputError(where, "a label for every picture", f"{len(x)} and {len(test_x)} pictures have fewer or more")
    return Pictures(
        x.astype(np.uint8), label[:, 0].astype(np.intp), test_x.astype(np.uint8), test_label[:, 0].astype(np.intp)
    )


def drawn_pictures(classes: int = 11) -> Pictures:
    """Blots in places that are the class's own, moved a little and with noise; always the same."""
    rng = stream(0, "world", 0, "drawn pictures")
    label = np.repeat(np.arange(classes), _DRAWN)
    centres = rng.uniform(6.0, _WIDTH - 6.0, (classes, _STROKES, 2))[label] + rng.uniform(
        -_SHIFT, _SHIFT, (len(label), 1, 2)
    )
    away = np.arange(_WIDTH)[:, None, None] - centres[:, None]  # (N, width, strokes, axes)
    near = np.exp(-(away**2) / 8.0)
    x = np.einsum("nis,njs->nij", near[..., 0], near[..., 1]).reshape(len(label), -1)
    x = np.clip(255.0 * (x + _NOISE * rng.standard_normal(x.shape)), 0.0, 255.0).astype(np.uint8)
    test = np.arange(len(label)) % 2 == 1
    return Pictures(x[~test], label[~test], x[test], label[test])


def clustered_pictures(
    pictures: Pictures,
    seed: int,
    sides: Sequence[Sides],
    clients: int,
    counts: tuple[int, int],
    servers: int = 10,
    most_tested: int = 500,
) -> ClusteredPictures:
    """Clients in random clusters, with `counts` pictures each, whose classes take turns, one side after the other."""
    wanted = {c for pair in sides for side in pair for c in side}
    missing = sorted(c for c in wanted if c not in pictures.label or c not in pictures.test_label)
    if missing:
        raise InputError("pictures", f"the classes {sorted(wanted)}", f"{missing} are not there")
    there = {int(c): np.flatnonzero(pictures.label == c) for c in np.unique(pictures.label)}
    chosen = stream(seed, "world", 0, "clusters").integers(len(sides), size=servers * clients)
    records = []
    for number, q in enumerate(chosen):
        rng = stream(seed, f"server {number // clients}/client {number % clients}", 0, "clustered pictures")
        turns = np.array(sides[q]).T.ravel()
        classes = np.roll(turns, rng.integers(len(turns)))[np.arange(rng.integers(*counts, endpoint=True)) % len(turns)]
        rows = [rng.choice(there[int(c)]) for c in classes]
        records.append((pictures.x[rows] / 255.0, _signs(classes, sides[q])))
    tests = []
    for q, pair in enumerate(sides):
        own = np.flatnonzero(np.isin(pictures.test_label, pair))
        own = stream(seed, f"cluster {q}", 0, "test pictures").permutation(own)[:most_tested]
        tests.append((pictures.test_x[own] / 255.0, _signs(pictures.test_label[own], pair)))
    return ClusteredPictures(records, tuple(int(q) for q in chosen), tests)


def accuracy(model: Array, made: ClusteredPictures) -> float:
    """The mean over clients of the part of their cluster's test pictures that models (K, d) put on the right side."""
    clusters, right = np.array(made.clusters), np.empty(len(model))
    for q, (x, y) in enumerate(made.tests):
        own = clusters == q
        right[own] = ((model[own] @ x.T >= 0.0) == (y > 0.0)).mean(1)
    return float(right.mean())


def _signs(classes: Labels, sides: Sides) -> Array:
    return np.where(np.isin(classes, sides[0]), 1.0, -1.0)
