"""How far does a release really move when one record is swapped? Random swaps, then local search from the best.

A sensitivity is a theorem or a clip that was performed; the search tests it. It needs no gradient: any function from a
table to a `Bounded` will do, however it clips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silograph.core.types import Array
from silograph.privacy.bound import Bounded

#: A record as numbers; the caller of the search knows how to put it into a table.
Record = Array

_SIZES = (1e-300, 1e-3, 1.0, 1e3, 1e6, 1e150)
_SHRINK, _GROW = 0.7, 1.5  # of the local search's step


@dataclass(frozen=True, eq=False)
class Swap:
    """The worst pair found: the two records, how far the release moved, and that distance over its stated bound."""

    one: Record
    other: Record
    moved: float
    ratio: float
    tried: int


def worst_swap(
    released: Callable[[Record], Bounded | Sequence[Bounded]],
    length: int,
    rng: np.random.Generator,
    draws: int = 60,
    steps: int = 60,
    seeds: Sequence[tuple[Any, Any]] = (),
    kept: Callable[[Record], Record] = lambda record: record,
) -> Swap:
    """Find the largest move of a release, relative to its bound, over pairs of records: random swaps, then local
    search.

    The answer has the two records (`one`, `other`), how far the release `moved`, and that over its bound (`ratio`):
    above 1 the bound is refuted.

    Parameters
    ----------
    released : From a record to what would be released; of several bounded values the worst counts.
    length : How many numbers a record has.
    rng : Where swaps are drawn from.
    draws : How many random swaps are tried.
    steps : How many steps the local search makes.
    seeds : Pairs of records that are tried first.
    kept : Makes a legal record of any numbers: a label stays a label, an empty place stays empty.

    >>> from silograph.privacy.bound import Bounded, clip_rows
    >>> def mean(record, bound=2.0 * 1.0 / 10):
    ...     rows = clip_rows(np.vstack([record, np.zeros((9, 3))]), radius=1.0)
    ...     return Bounded(rows.mean(0, keepdims=True), np.array([bound]), "a row", "rows clipped to 1: 2 C / N")
    >>> round(worst_swap(mean, 3, np.random.default_rng(0)).ratio, 3)
    1.0
    >>> worst_swap(lambda record: mean(record, bound=0.1), 3, np.random.default_rng(0)).ratio > 1.0  # a wrong bound
    True
    """
    tried = 0

    def judge(one: Record, other: Record) -> tuple[float, float]:
        nonlocal tried
        tried += 1
        return movement(released(one), released(other))

    def candidates() -> list[tuple[Record, Record]]:
        pairs = [(kept(np.asarray(a, dtype=float)), kept(np.asarray(b, dtype=float))) for a, b in seeds]
        for _ in range(draws):
            a = rng.choice(_SIZES) * rng.normal(size=length)
            kinds = (
                -a,
                np.zeros(length),
                rng.choice(_SIZES) * rng.normal(size=length),
                a * rng.choice([-1, 1], length),
            )
            pairs.append((kept(a), kept(kinds[int(rng.integers(len(kinds)))])))
        return pairs

    best: tuple[float, float, Record, Record] | None = None
    for one, other in candidates():
        ratio, moved = judge(one, other)
        if best is None or ratio > best[0]:
            best = (ratio, moved, one, other)
    assert best is not None, "at least one draw or seed"
    step = 0.5
    for _ in range(steps):
        _, _, one, other = best
        tries = [kept(x + step * _spread(x) * rng.normal(size=length)) for x in (one, other)]
        ratio, moved = judge(*tries)
        if ratio > best[0]:
            best, step = (ratio, moved, tries[0], tries[1]), min(step * _GROW, 2.0)
        else:
            step = max(step * _SHRINK, 1e-4)
    ratio, moved, one, other = best
    return Swap(one, other, moved, ratio, tried)


def _spread(x: Record) -> float:
    """The size of a record's numbers; of a record of nothing, 1."""
    size = float(np.sqrt(np.mean((x / max(np.abs(x).max(), 1e-300)) ** 2)) * np.abs(x).max())
    return size if size > 0.0 else 1.0


def movement(one: Bounded | Sequence[Bounded], other: Bounded | Sequence[Bounded]) -> tuple[float, float]:
    """How far the first silo's rows moved: the largest move relative to its bound, and the length of all moves
    together."""
    ratios, moves = 0.0, 0.0
    first, second = ([x] if isinstance(x, Bounded) else list(x) for x in (one, other))
    for a, b in zip(first, second, strict=True):
        moved = float(np.linalg.norm(a.value[0] - b.value[0]))
        ratios, moves = max(ratios, moved / float(a.l2[0])), moves + moved**2
    return ratios, float(np.sqrt(moves))
