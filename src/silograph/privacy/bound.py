"""A private value that knows how far one record can move it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silograph.core.errors import LeakError
from silograph.core.schema import Positive
from silograph.core.types import Array

REPLACE_ONE = "replace-one"
#: The relation that Poisson sampling amplifies. The place stays: the number of places is public.
ADD_OR_REMOVE_ONE = "add-or-remove-one: a record's place is left empty"

#: The protected unit of a method that knows nothing smaller than a record.
RECORD = "one record (a row of a table)"
#: The protected unit if whole updates are clipped.
CLIPPED_AGENT = "one agent (all its records)"


@dataclass(frozen=True, eq=False)
class Bounded:
    """A value with one row per silo; changing one `protected_unit` of silo i moves row i by at most `l2[i]`.

    `l2` never comes from a user: it comes from a clip that was performed or from a theorem, named in `why`.

    Parameters
    ----------
    value : What is to be released, finite, (silos, ...).
    l2 : How far one protected unit moves each silo's row, in Euclidean length, (silos,), above 0 and finite.
    protected_unit : What neighbouring tables differ by, in words for the ledger.
    why : Where l2 is from, in words for the ledger.
    relation : What a neighbour is: `REPLACE_ONE`, or `ADD_OR_REMOVE_ONE` for what is computed from a sample.

    >>> rows = clip_rows(np.array([[[3.0, 4.0], [0.0, 1.0]]]), radius=2.0)  # one silo with two records
    >>> mean = Bounded(rows.mean(1), np.array([2.0 * 2.0 / 2]), RECORD, "rows clipped to 2: 2 C / N")
    >>> mean.value.round(2), mean.l2
    (array([[0.6, 1.3]]), array([2.]))
    """

    value: Array
    l2: Array
    protected_unit: str
    why: str
    relation: str = REPLACE_ONE

    def __post_init__(self) -> None:
        # Raised, not asserted: these guard a promise and must hold under `python -O` too.
        if self.l2.shape != self.value.shape[:1]:
            raise LeakError("Bounded", "one sensitivity per silo", f"found shapes {self.l2.shape}, {self.value.shape}")
        if not ((self.l2 > 0.0) & (self.l2 < np.inf)).all():
            raise LeakError("Bounded", "sensitivities that are positive and finite", "found another")
        if not np.isfinite(self.value).all():
            raise LeakError("Bounded", "finite values", "found another")


@dataclass(frozen=True)
class Within:
    """How far one `protected_unit` inside a vector can move the vector: a sum of such vectors protects that unit, and
    not a whole vector."""

    l2: Positive
    protected_unit: str
    why: str


def clip_rows(x: Array, radius: float) -> Array:
    """Scale every row longer than `radius` back to it: x min(1, radius / |x|).

    Parameters
    ----------
    x : Rows along the last axis, (..., d).
    radius : The Euclidean length, above 0. Longer rows become shorter than it by 1e-9 of it: room for rounding.

    >>> clip_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), radius=1.0).round(6)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    # The tiny shrink leaves room for rounding here and in a mean taken later, so that the bound really holds.
    inner = radius * (1.0 - 1e-9)
    with np.errstate(over="ignore"):  # a length that is not a number scales its row to zero
        return np.asarray(x * (inner / np.maximum(row_lengths(x), inner)))


def row_lengths(x: Array) -> Array:
    """Return the Euclidean length of every row, as a column; no square overflows or vanishes."""
    largest = np.abs(x).max(-1, keepdims=True)
    scale = np.where(largest > 0.0, largest, 1.0)
    return np.asarray(scale * np.sqrt(((x / scale) ** 2).sum(-1, keepdims=True)))
