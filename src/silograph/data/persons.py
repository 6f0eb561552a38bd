"""A client's records by person: as many places as persons, each with the same few places for records. So nothing
protected, such as how many records a person has, shows in the size of an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import BoolArray
from silograph.data.categories import cell_text

_NOBODY = -1  # the class of a place without a record; in a regression it is no number


@dataclass(frozen=True)
class Persons:
    """The `column` that names a record's person, and the most records of a person that take part. Without a number the
    column is left out, and each record stands for itself."""

    column: str
    most: int | None = None


def by_person(
    x: NDArray[Any], y: NDArray[Any], whose: NDArray[Any], most: int, where: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(N, most, ...) and (N, most) of N persons, in the order of their first records.

    If a person has more records, those that take part are spread over all of theirs, independent of other persons'
    records.
    """
    places: dict[str, list[int]] = {}
    for row, cell in enumerate(whose.tolist()):
        name = "" if cell is None or cell != cell else cell_text(cell)
        if not name:
            found = "it is missing"
            raise InputError(f"{where}, record {row + 1}", "the person whose it is", found, "Leave out such records.")
        places.setdefault(name, []).append(row)
    if len(places) < 2:
        todo = "A client divides its persons in two: leave it out."
        raise InputError(where, "records of at least 2 persons", f"found {len(places)}", todo)
    nothing = np.nan if y.dtype.kind == "f" else _NOBODY
    of_x = np.zeros((len(places), most, *x.shape[1:]), dtype=x.dtype)
    of_y = np.full((len(places), most), nothing, dtype=y.dtype)
    for person, rows in enumerate(places.values()):
        count = min(len(rows), most)
        taken = [rows[place * len(rows) // count] for place in range(count)]
        of_x[person, :count], of_y[person, :count] = x[taken], y[taken]
    return of_x, of_y


def present(y: NDArray[Any]) -> BoolArray:
    """Where there is a record."""
    return np.asarray(~np.isnan(y) if y.dtype.kind == "f" else y != _NOBODY)


def names_of(whose: Sequence[Any] | NDArray[Any], records: int, where: str) -> NDArray[Any]:
    """The person's name of each record."""
    names = np.asarray(whose, dtype=object)
    if names.shape != (records,):
        raise InputError(where, f"a person for each of the {records} records", f"found the shape {names.shape}")
    return names
