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
    """Observe a silo's answer without reading it: whether there is one, the class of its error if not, and shapes.

    Parameters
    ----------
    answer : Makes the answer: named arrays.

    >>> seen_from_outside(lambda: {"mean": np.zeros((1, 3))})
    Outside(answered=True, error='', sizes=(('mean', (1, 3)),))
    >>> seen_from_outside(lambda: [][0]).error
    'IndexError'
    """
    try:
        message = answer()
    except Exception as error:
        return Outside(False, type(error).__name__, ())
    return Outside(True, "", tuple(sorted((name, np.shape(value)) for name, value in message.items())))


def timing(without: Iterable[float], with_it: Iterable[float]) -> float:
    """Compute how often an observer with a clock tells two tables apart: the best accuracy over thresholds, 0.5 being
    chance.

    The threshold is chosen on the trials that judge it, so a little above one half means nothing.

    Parameters
    ----------
    without : Seconds of each trial with one table.
    with_it : Seconds of each trial with the other, as many.

    >>> timing([0.10, 0.11, 0.10], [0.13, 0.12, 0.10])
    0.8333333333333334
    """
    times = np.array([list(without), list(with_it)])
    return max(success(times)[1], success(-times)[1])


def numbers_quoted(text: str, records: Array, digits: int = 4) -> list[str]:
    """Find numbers in an error text that are a record's value: they would leave with it.

    Parameters
    ----------
    text : The text.
    records : The silo's records, of any shape.
    digits : To how many digits a number must be the value.

    >>> numbers_quoted("row 7: 36.62 is above the limit", np.array([[36.6184, 120.0]]))
    ['36.62']
    """
    own = {f"{value:.{digits - 1}e}" for value in np.asarray(records, dtype=float).ravel() if value != 0.0}
    return [found for found in _NUMBER.findall(text) if f"{float(found):.{digits - 1}e}" in own]
