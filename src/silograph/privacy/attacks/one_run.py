"""From a single run with many canaries to a lower bound on epsilon.

Each canary k is present by its own fair coin b_k, all in the same run. Two bounds follow from what one run released.
They bound a curve, not an epsilon: both assume that it is one of those that the ledger's rows would have with another
share of their noise, and find that share and so an epsilon; they cover no other shape.

    by_guesses  for any noise, and however canaries affect each other (Mahloujifar, Melis, Chaudhuri 2025).
                The attacker guesses the clearest n of m coins. f-DP says of every canary, whatever the other coins are,
                that the chance of an event with b_k turned is at most g(its chance before), where g = 1 - f is concave:
                the most power of a test by its rate of false alarms. Let A be the event that b_k is guessed and that
                i - 1 of the *other* guesses are right, i >= a. Turning b_k turns a wrong guess of it into a right one
                and touches no other guess, so P(A, k right) <= g(P(A, k wrong)). The mean over k and coins goes
                inside, because g is concave; with p_i the chance of exactly i right guesses,

                    (1/m) sum_{i >= a} i p_i <= g((1/m) sum_{i >= a} (n - i + 1) p_{i-1})       for every a       (1)

                Whether a tail sum_{i >= c} p_i = t fits (1) and a total of 1 is a recursion: all of t lies at c,
                where it needs least below it, and from there down each level has the least mass that (1) asks for.
                More mass higher up would add to the left of all constraints below and less to their right.

                (1) must allow for mechanisms that, once in a hundred runs, reveal all canaries at once more clearly
                than their curve does on average. It shows about half of a Gaussian's epsilon, for any number of
                canaries.

    by_alignment  for Gaussian noise, equal and independent in all coordinates (in units of the stated noise).
                Canary k moves what is released by v_k, so that y = kappa sum_k (b_k - 1/2) v_k + s n. The sum w of
                the (b_k - 1/2) v_k is known to the auditor, and independent of the noise, because coins are. So the
                regression of y on w, with D coordinates, gives

                    t = (y.w / |w|) / sqrt((|y|^2 - (y.w)^2 / |w|^2) / (D - 1)),

                which has Student's noncentral law with D - 1 degrees of freedom and the centre (kappa / s) |w|. Its
                lower confidence bound is one on kappa / s, one over the share of the stated noise that there is, if the
                longest v_k is as long as the ledger states; where it is not, by the ratio of the two.
                Canaries need not be at right angles: m of them, of length mu each, make |w| about mu sqrt(m) / 2, and
                mu is found to 2 / sqrt(m). Anything in y that is not noise and not the canaries' makes s look larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
from numba import njit
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import chi2

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.attacks.bounds import Bound, looks_normal

_SHAPE = "assumes that the privacy curve has the shape that the ledger states"
GUESSES = f"one run, f-DP bound on right guesses (Mahloujifar, Melis, Chaudhuri 2025); {_SHAPE}"
ALIGNED = "one run, all canaries together against the noise; assumes Gaussian noise, which is only roughly checked"

_SLOPES = np.concatenate([np.linspace(0.0, 1.0, 41), np.geomspace(1.03, 60.0, 120)])  # epsilons of the tangents
_MOST_SHARE, _LEAST_SHARE = 64.0, 1.0 / 8.0  # shares of the stated noise that are tried
_EXACT = 2e-3  # relative precision of the share
_QUANTILES = 1000
_KEPT = 2000  # numbers of a release that the test of normality uses


class Curves(Protocol):
    """Privacy curves by the share of the stated noise that is really there: less noise reveals more."""

    def deltas(self, share: float, epsilons: Array) -> Array:
        """Return delta at each epsilon, or an upper bound on it."""
        ...

    def epsilon(self, share: float) -> float:
        """Return epsilon at the delta of the promise."""
        ...


# ---- all canaries together -------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Aligned:
    """Sums of the regression over all releases of a run, with some of the residuals as a sample of the noise; and the
    squares of how far canaries move the releases, and of how far the ledger states."""

    along: float = 0.0
    ways: float = 0.0
    squares: float = 0.0
    count: int = 0
    left: list[Array] = field(default_factory=list)
    moved: Array = field(default_factory=lambda: np.zeros(1))
    stated: Array = field(default_factory=lambda: np.zeros(1))

    def add(self, y: Array, way: Array, moved: Array, stated: Array) -> None:
        """Add releases, in units of the stated noise: values (n, d) and the canaries' direction (n, d); and, as
        squares, how far each canary moves them (k, n) and how far the ledger says that one may (n,)."""
        self.moved, self.stated = self.moved + moved, self.stated + stated
        self.along += float((y * way).sum())
        self.ways += float((way * way).sum())
        self.squares += float((y * y).sum())
        self.count += y.size
        self.left.append((y - way).ravel()[:_KEPT])


def by_alignment(seen: Aligned, curves: Curves, delta: float, confidence: float, canaries: int) -> Bound | None:
    """Bound epsilon by the regression; None if noise does not look normal, or there is nothing to regress on."""
    if seen.ways == 0.0 or seen.count < 3 or not looks_normal(np.concatenate(seen.left)):
        return None
    ratio = least_ratio(seen, confidence) * math.sqrt(float((seen.moved / seen.stated).max()))
    share = _MOST_SHARE if ratio <= 0.0 else 1.0 / ratio
    epsilon = 0.0 if share >= _MOST_SHARE else curves.epsilon(max(share, _LEAST_SHARE))
    return Bound(epsilon, delta, confidence, ALIGNED, canaries)


def least_ratio(seen: Aligned, confidence: float) -> float:
    """A lower bound on kappa / s, which fails with the chance 1 - confidence."""
    length, free = math.sqrt(seen.ways), seen.count - 1
    along = seen.along / length
    spread = math.sqrt(max(seen.squares - along**2, 0.0) / free)
    t = along / spread if spread > 0.0 else math.inf
    if math.isinf(t):
        return math.inf

    spreads = _spreads(free)

    def excess(centre: float) -> float:
        return float(ndtr(t * spreads - centre).mean()) - confidence

    ends = t * spreads
    return float(brentq(excess, ends.min() - 8.0, ends.max() + 8.0)) / length


@lru_cache(maxsize=8)
def _spreads(free: int) -> Array:
    """Quantiles of S, S^2 = chi^2 / (D - 1): P(T <= t) is the mean of Phi(t S - centre) over them."""
    return np.sqrt(chi2.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES, free) / free)


# ---- guesses ---------------------------------------------------------------------------------------------------------


def by_guesses(canaries: int, guesses: int, right: int, curves: Curves, delta: float, confidence: float) -> Bound:
    """Bound epsilon from the number of guesses, which was fixed before, and the number of right ones.

    No guess may depend on the coin of another canary.
    """
    _check(canaries, guesses, right)

    def refuted(right: int) -> Callable[[float], bool]:
        return lambda share: not fits(curves, share, canaries, guesses, right, 1.0 - confidence)

    found, largest = (_least_epsilon(refuted(number), curves) for number in (right, guesses))
    return Bound(found, delta, confidence, GUESSES, canaries, largest)


def fits(curves: Curves, share: float, canaries: int, guesses: int, right: int, chance: float) -> bool:
    """Whether (1) allows so many right guesses, or more, with this chance."""
    deltas = np.minimum(curves.deltas(share, _SLOPES), 1.0)
    # g(x) <= e^eps x + delta, and the same of its mirror: x >= slope g(x) + offset.
    slopes = np.concatenate([np.exp(-_SLOPES), np.exp(_SLOPES)])
    offsets = np.concatenate([-deltas * np.exp(-_SLOPES), 1.0 - deltas - np.exp(_SLOPES)])
    return bool(_fits(slopes, offsets, canaries, guesses, right, chance))


@njit(cache=True)
def _fits(slopes: Array, offsets: Array, canaries: int, guesses: int, right: int, chance: float) -> bool:
    above, below = right * chance / canaries, (guesses - right) * chance / canaries  # the two sums of (1)
    all_of_it = guesses / canaries
    for level in range(right, 0, -1):
        need = 0.0
        for j in range(len(slopes)):
            need = max(need, slopes[j] * above + offsets[j])
        if need > below:
            above += (level - 1) * (need - below) / (guesses - level + 1)
            below = need
        if above + below > all_of_it:
            return False
    return True


def clearest(canaries: int) -> int:
    """How many canaries, those with the clearest scores, are guessed: few enough that the steep part of the curve
    counts, and enough to count."""
    return min(canaries, math.ceil(5.0 * math.sqrt(canaries)))


def _check(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries:
        raise InputError("one run", "right guesses among guesses among canaries", f"{right}, {guesses}, {canaries}")


def _least_epsilon(refuted: Callable[[float], bool], curves: Curves) -> float:
    """Return epsilon of the curve with the most noise that is not refuted; no curve with less noise is refuted."""
    low, high = 1.0, 1.0
    while refuted(low):
        low, high = 0.5 * low, low
        if low < _LEAST_SHARE:
            return curves.epsilon(high)  # more may be true, but is not tried
    while high <= _MOST_SHARE and not refuted(high):
        low, high = high, 2.0 * high
    if high > _MOST_SHARE:
        return 0.0
    while high > low * (1.0 + _EXACT):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return curves.epsilon(high)
