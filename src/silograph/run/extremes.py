"""Questions with numbers that no honest server sends, and a search for those whose answer depends on records.

The auditor has both worlds, so it can look for the size of a number at which one of them refuses and the other does
not: a bisection between two sizes that are answered differently.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from silograph.core.types import Array
from silograph.engines.question import NEVER
from silograph.run.hostile import Attacked, Theatre
from silograph.run.strategies import Strategy, one_round
from silograph.run.worlds import LOUD, SILENT

_SIZES = (5e-324, 1e-300, 1.0, 1e8, 1e16, 1e77, 1e154, 1e200, 1e300, 1.7976931348623157e308)
ALL = "every field"
_ODD = (math.nan, math.inf, -math.inf)
_BISECTIONS = 24

Signs = Callable[[tuple[int, ...]], Array]


def _alternating(shape: tuple[int, ...]) -> Array:
    return np.where(np.indices(shape).sum(0) % 2, -1.0, 1.0)


def _first(shape: tuple[int, ...]) -> Array:
    signs = np.zeros(shape)
    signs[..., :1] = 1.0
    return signs


_SIGNS: dict[str, Signs] = {
    "plus": np.ones,
    "minus": lambda shape: -np.ones(shape),
    "alternating": _alternating,
    "first alone": _first,
}


def _fields(theatre: Theatre) -> tuple[str, ...]:
    """Each field alone, and all together."""
    return (*theatre.down, ALL) if len(theatre.down) > 1 else tuple(theatre.down)


def _sent(theatre: Theatre, name: str, signs: Signs, size: float) -> dict[str, Array]:
    """What the method sends down first, with one field, or all, of another size."""
    changed = theatre.down if name == ALL else {name: theatre.down[name]}
    return {**theatre.down, **{name: signs(value.shape) * size for name, value in changed.items()}}


def extreme_strategies(theatre: Theatre, root: int, until: float) -> list[Strategy]:
    """Nothing where a method sends nothing down."""
    if not theatre.down:
        return []
    words = "numbers from 5e-324 to 1.8e308 with signs in patterns, infinities and none"
    found = [Strategy("extreme downs", words, _extremes, most_rounds=len(_SIGNS), against=SILENT)]
    question = _Search(theatre, root).found(until)
    if question is not None:
        name, words, down = question
        words = f"{name} of {words}, which a search found to be answered in one world only; asked twice"
        found.append(Strategy("searched downs", words, partial(_twice, down=down), most_rounds=1, against=SILENT))
    return found


def _extremes(at: Attacked, rounds: int) -> None:
    """All of them in turn, as questions whose answers are never used; `rounds` of each size. Sums take their time."""
    round = 0
    for name in _fields(at.theatre):
        for size in (*_ODD, *(_SIZES[::3] if at.theatre.masked else _SIZES)):
            for signs in list(_SIGNS.values())[:rounds]:
                round += one_round(at, round, NEVER, _sent(at.theatre, name, signs, size))


def _twice(at: Attacked, rounds: int, down: Mapping[str, Array]) -> None:
    for _ in range(2):
        at.local(0, NEVER, down)


class _Search:
    def __init__(self, theatre: Theatre, root: int) -> None:
        self._theatre, self._root = theatre, root

    def found(self, until: float) -> tuple[str, str, dict[str, Array]] | None:
        """A field, its size in words, and the question that only one world answers."""
        for name, pattern in ((name, pattern) for pattern in _SIGNS for name in _fields(self._theatre)):
            for size in self._differing(name, _SIGNS[pattern]):
                return name, f"{size:.17g} ({pattern})", _sent(self._theatre, name, _SIGNS[pattern], size)
            if time.monotonic() > until:
                break
        return None

    def _differing(self, name: str, signs: Signs) -> Iterator[float]:
        """Sizes at which the worlds answer differently, from a grid and from bisections in between."""
        before: tuple[float, str] | None = None
        for size in _SIZES:
            kinds = self._kinds(name, signs, size)
            if kinds[0] != kinds[1]:
                yield size
                return
            if before is not None and before[1] != kinds[0]:
                low, high = before[0], size
                for _ in range(_BISECTIONS):
                    middle = math.exp(0.5 * (math.log(low) + math.log(high)))
                    kinds = self._kinds(name, signs, middle)
                    if kinds[0] != kinds[1]:
                        yield middle
                        return
                    low, high = (middle, high) if kinds[0] == before[1] else (low, middle)
            before = (size, self._kinds(name, signs, size)[0])

    def _kinds(self, name: str, signs: Signs, size: float) -> tuple[str, str]:
        """What a fresh party of either world says to the same question."""
        found = []
        for world in (LOUD, SILENT):
            parties = self._theatre.open(world, self._root)
            parties.local(0, NEVER, _sent(self._theatre, name, signs, size))
            found.append(parties.seen[-1].kind)
            parties.close()
        return found[0], found[1]
