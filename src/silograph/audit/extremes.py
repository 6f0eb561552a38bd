"""Questions with numbers that no honest server sends, and a search for those with answers that depend on records.

The auditor has both worlds, so it can search for a size of number at which only one of them refuses, by bisection
between two sizes with different answers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from silograph.audit.hostile import ANSWER, Attacked, Theatre
from silograph.audit.strategies import Strategy, one_round
from silograph.audit.worlds import LOUD, SILENT
from silograph.core.types import Array
from silograph.engines.question import NEVER

_SIZES = (1.7976931348623157e308, 1e300, 1e200, 1e154, 1e77, 1e16, 1e8, 1.0, 1e-300, 5e-324)  # the worst first
ALL = "every field"
_ODD = (math.nan, math.inf, -math.inf)
_BISECTIONS = 24
_WORLDS = (LOUD, SILENT)

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
    """The method's first message down, with one field, or all, of another size."""
    changed = theatre.down if name == ALL else {name: theatre.down[name]}
    return {**theatre.down, **{name: signs(value.shape) * size for name, value in changed.items()}}


def extreme_strategies(theatre: Theatre, root: int, until: float) -> list[Strategy]:
    """The strategies with extreme numbers; none if a method sends nothing down."""
    if not theatre.down:
        return []
    words = (
        "the largest numbers that an organisation takes, then from 1.8e308 to 5e-324 in patterns of signs, "
        "infinities, none"
    )
    found = [Strategy("extreme downs", words, _extremes, most_rounds=len(_SIGNS), against=SILENT)]
    question = _Search(theatre, root).found(until)
    if question is not None:
        name, words, down = question
        words = f"{name} of {words}, which a search found to be answered in one world only; asked twice"
        found.append(Strategy("searched downs", words, partial(_twice, down=down), most_rounds=1, against=SILENT))
    return found


def _extremes(at: Attacked, rounds: int) -> None:
    """Ask all of them in turn, without ever using the answers; `rounds` of each size. Sums are slow."""
    round, limits, usual = 0, at.theatre.job.method.limits(), at.theatre.down
    for name in usual:  # the limit of what an organisation accepts
        for edge in (limits[name].high, limits[name].low):
            at_edge = np.array(np.broadcast_to(edge, usual[name].shape))
            round += one_round(at, round, NEVER, {**usual, name: at_edge})
    for name in _fields(at.theatre):
        for size in (*_ODD, *(_SIZES[::3] if at.theatre.masked else _SIZES)):
            for signs in list(_SIGNS.values())[:rounds]:
                round += one_round(at, round, NEVER, _sent(at.theatre, name, signs, size))


def _twice(at: Attacked, rounds: int, down: Mapping[str, Array]) -> None:
    for _ in range(2):
        at.local(0, NEVER, down)


class _Search:
    """Both worlds, opened with the same noise; an organisation that answered is opened again."""

    def __init__(self, theatre: Theatre, root: int) -> None:
        self._theatre, self._root = theatre, root
        self._open: dict[int, Attacked] = {}

    def found(self, until: float) -> tuple[str, str, dict[str, Array]] | None:
        """Return a field, its size in words, and a question that only one world answers."""
        try:
            for name, pattern, size in self._differing(until):
                return name, f"{size:.17g} ({pattern})", _sent(self._theatre, name, _SIGNS[pattern], size)
            return None
        finally:
            for organisations in self._open.values():
                organisations.close()

    def _differing(self, until: float) -> Iterator[tuple[str, str, float]]:
        """Find sizes at which the worlds answer differently: on a grid, the worst first, then between its points."""
        places = [(name, pattern) for pattern in _SIGNS for name in _fields(self._theatre)]
        kinds: dict[tuple[str, str], list[str]] = {place: [] for place in places}
        for size in _SIZES:
            for name, pattern in places:
                first, second = self._kinds(name, pattern, size)
                if first != second:
                    yield name, pattern, size
                kinds[name, pattern].append(first)
        for name, pattern in places:
            for k in range(1, len(_SIZES)):
                if kinds[name, pattern][k - 1] != kinds[name, pattern][k] and time.monotonic() < until:
                    yield from self._between(name, pattern, _SIZES[k], _SIZES[k - 1], kinds[name, pattern][k])

    def _between(
        self, name: str, pattern: str, low: float, high: float, below: str
    ) -> Iterator[tuple[str, str, float]]:
        for _ in range(_BISECTIONS):
            middle = math.exp(0.5 * (math.log(low) + math.log(high)))
            first, second = self._kinds(name, pattern, middle)
            if first != second:
                yield name, pattern, middle
            low, high = (middle, high) if first == below else (low, middle)

    def _kinds(self, name: str, pattern: str, size: float) -> tuple[str, str]:
        """How each world answers the same question, asked first."""
        first, second = (self._kind(world, _sent(self._theatre, name, _SIGNS[pattern], size)) for world in _WORLDS)
        return first, second

    def _kind(self, world: int, down: Mapping[str, Array]) -> str:
        if world not in self._open:
            self._open[world] = self._theatre.open(world, self._root)
        organisations = self._open[world]
        organisations.local(0, NEVER, down)
        kind = organisations.seen[-1].kind
        if kind == ANSWER:
            self._open.pop(world).close()
        return kind
