"""Feasible multipliers of S3 (8) from the silos' pulls: |m_i| <= rho and sum_i m_i <= lam.

With them each silo bounds its part of the optimum from below; the less they are changed, the sooner a solution is
certified. The excess over lam is divided among the silos if that makes no pull longer than rho; one scale does the
rest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from silograph.core.types import Array, BoolArray

_HALVINGS = 50


def over(v: Array, seen: Array, penalty: float | Array) -> Array:
    """The excess of the pulls over lam, per silo, when they moved the consensus from `seen` to v."""
    return np.asarray(penalty * (v - seen))


def feasible(pulls: Array, excess: Array, lam: float, rho: float, seen: BoolArray | None = None) -> Array:
    """Each silo's share of the excess, and the scale that makes its pull a multiplier despite rounding.

    `seen` (I, p), if silos cannot see all pairs: a pair's lam is then reduced to the share of silos that can see it,
    and these take equal parts of the excess, because other shares would not add up at every pair.
    """
    share = np.ones(len(pulls)) if seen is not None else _shares(pulls, excess, rho)
    left = pulls - share[:, None] * excess
    allowed: float | Array = lam
    if seen is not None:
        left, allowed = np.where(seen, left, 0.0), np.where(seen.any(0), lam * seen.mean(0), lam)
    rounding = 4.0 * len(pulls) * np.finfo(float).eps * np.abs(left).sum(0)
    longest = max(np.sqrt((left**2).sum(-1)).max() / rho, ((left.sum(0) + rounding) / allowed).max(), 1.0)
    return np.stack([share, np.full(len(pulls), (1.0 - 1e-14) / longest)], axis=-1)


def _shares(pulls: Array, excess: Array, rho: float) -> Array:
    """How much of the excess each silo takes, I in all: as equal as possible with |pull - share * excess| <= rho.

    For a given length, a silo's shares are an interval. If those of length rho do not admit the sum, the least length
    that does is searched for.
    """
    silos, along, square, size = len(pulls), (pulls * excess).sum(-1), (pulls**2).sum(-1), float((excess**2).sum())
    if size == 0.0:
        return np.ones(silos)
    middle = along / size
    least = square - along * middle  # the square of the shortest possible rest of a pull

    def ends(level: float) -> tuple[Array, Array]:
        spread = np.sqrt(np.maximum(level - least, 0.0) / size)
        return middle - spread, middle + spread

    def admits(level: float) -> bool:
        low, high = ends(level)
        return bool(low.sum() <= silos <= high.sum())

    level = max(rho**2, float(least.max()))
    if not admits(level):
        level = _bisect(admits, level, float((square - 2.0 * along + size).max()))
    low, high = ends(level)
    common = _bisect(lambda x: bool(np.clip(x, low, high).sum() >= silos), float(low.min()), float(high.max()))
    return np.asarray(np.clip(common, low, high))


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least number at which this holds; it holds at `high`."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
