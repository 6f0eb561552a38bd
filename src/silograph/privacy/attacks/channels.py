"""Channels outside messages: how long a silo took, whether it answered, how much it sent, how it failed.

No epsilon covers these. A run's design has to: sizes and rounds are public numbers, refusals look at the table's
shape or at single records before anything is spent, and of an error only its class leaves the silo. These functions
test whether it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array
from silograph.privacy.attacks.bounds import success

_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Outside:
    """What an observer sees of a silo's answer without reading it."""

    answered: bool
    error: str
    sizes: tuple[tuple[str, tuple[int, ...]], ...]


def seen_from_outside(answer: Callable[[], Mapping[str, Array]]) -> Outside:
    """Observe whether it answered, the class of its error if not, and the shapes of what it sent."""
    try:
        message = answer()
    except Exception as error:
        return Outside(False, type(error).__name__, ())
    return Outside(True, "", tuple(sorted((name, np.shape(value)) for name, value in message.items())))


def timing(without: Iterable[float], with_it: Iterable[float]) -> float:
    """How often an observer with a clock tells two tables apart: the best accuracy over thresholds, 0.5 being chance.

    The threshold is chosen on the trials that judge it, so a little above one half means nothing.
    """
    times = np.array([list(without), list(with_it)])
    return max(success(times)[1], success(-times)[1])


def numbers_quoted(text: str, records: Array, digits: int = 4) -> list[str]:
    """Find numbers in an error text that are a record's value to so many digits: they would leave with it."""
    own = {f"{value:.{digits - 1}e}" for value in np.asarray(records, dtype=float).ravel() if value != 0.0}
    return [found for found in _NUMBER.findall(text) if f"{float(found):.{digits - 1}e}" in own]
