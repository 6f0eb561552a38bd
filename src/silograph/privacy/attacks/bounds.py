"""From an attack's scores to a lower bound on epsilon. A high score says "with the canary".

Three ways. Clopper and Pearson's bounds on the two error rates at one threshold assume nothing. The Gaussian fit
assumes that scores are normal, as the likelihood ratio of Gaussian releases is, and so reads all of the curve off one
number mu. One run with many canaries (Steinke, Nasr, Jagielski 2023, Theorem 5.2) assumes nothing and needs no second
run, but many canaries that do not disturb each other.

Thresholds come from trials of their own, never from those that are judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import binom, kstest, norm

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.accounting import gaussian_epsilon

CLOPPER_PEARSON = "Clopper-Pearson bounds on both error rates, at a threshold from other trials"
GAUSSIAN_FIT = "Gaussian-DP fit: the likelihood ratio is normal, its shift bounds mu"
ONE_RUN = "one run, many canaries (Steinke, Nasr, Jagielski 2023)"

#: Where scores look less normal than this the Gaussian fit says nothing.
NORMAL_ALARM = 1e-4
_THRESHOLDS = 100
_MOST_MU = 1e3  # nothing is left to hide long before


@dataclass(frozen=True)
class Bound:
    """With `confidence` epsilon is at least this, at `delta`.

    `trials` were judged: pairs of runs, one in each world, or the canaries of one run.
    """

    epsilon: float
    delta: float
    confidence: float
    how: str
    trials: int


def rate_bounds(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson: a lower and an upper bound on a rate, each of which holds with `confidence`."""
    low = float(betaincinv(hits, trials - hits + 1, 1.0 - confidence)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, confidence)) if hits < trials else 1.0
    return low, high


def epsilon_of_rates(power: float, false: float, delta: float) -> float:
    """The least epsilon that allows such a test: power <= e^epsilon false + delta, and the same for its converse."""
    ratios = ((power - delta, false), (1.0 - false - delta, 1.0 - power))
    return max((math.log(up / down) if down > 0.0 else math.inf for up, down in ratios if up > 0.0), default=0.0)


def by_threshold(tuning: Array, judged: Array, delta: float, confidence: float) -> Bound:
    """Scores (2, n) without and with the canary. The threshold that does best on `tuning` is used on `judged`."""
    thresholds = np.quantile(tuning, np.linspace(0.0, 1.0, _THRESHOLDS))
    best = max(thresholds, key=lambda threshold: _at(tuning, float(threshold), delta, confidence))
    epsilon = max(0.0, _at(judged, float(best), delta, confidence))
    return Bound(epsilon, delta, confidence, CLOPPER_PEARSON, judged.shape[1])


def _at(scores: Array, threshold: float, delta: float, confidence: float) -> float:
    """Each of the two rates errs with half of what the confidence leaves."""
    side = 1.0 - (1.0 - confidence) / 2.0
    alarms, hits = (int(count) for count in (scores > threshold).sum(1))
    n = scores.shape[1]
    return epsilon_of_rates(rate_bounds(hits, n, side)[0], rate_bounds(alarms, n, side)[1], delta)


def by_gaussian(judged: Array, delta: float, confidence: float) -> Bound | None:
    """mu from the two means in units of the common deviation, as a lower confidence bound by Student's law.

    None where the scores do not look normal: then the fit would claim more than it knows.
    """
    n = judged.shape[1]
    centred = judged - judged.mean(1, keepdims=True)
    deviation = math.sqrt(float((centred**2).sum()) / (2 * n - 2))
    if deviation == 0.0:
        return None
    if min(kstest(row / row.std(), norm.cdf).pvalue for row in centred) < NORMAL_ALARM:
        return None
    shift = float(judged[1].mean() - judged[0].mean()) / deviation
    mu = _least_noncentrality(shift, n, confidence)
    return Bound(gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0, delta, confidence, GAUSSIAN_FIT, n)


def _least_noncentrality(shift: float, n: int, confidence: float) -> float:
    """The mu at which a difference as large as `shift` has the chance 1 - confidence.

    Student's t, which is non-central: of hundreds of trials it is normal with the variance 1 + t^2 / (2 freedom).
    """
    statistic, scale = shift * math.sqrt(n / 2.0), math.sqrt(n / 2.0)
    spread = math.sqrt(1.0 + statistic**2 / (4.0 * n - 4.0))
    return min((statistic - float(norm.ppf(confidence)) * spread) / scale, _MOST_MU)


def one_run_chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The largest chance that an (epsilon, delta) mechanism lets so many guesses be right.

    Without delta the guesses are no better than independent coins with chance e^epsilon / (1 + e^epsilon). A delta may
    give some away: alpha is the steepest slope of the tail from `right` down, paid 2 delta for each canary.
    """
    chance = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    alpha = float((below / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, tail + alpha * delta * 2.0 * canaries)


def by_one_run(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> Bound:
    """The least epsilon at which as many right guesses have a chance of 1 - confidence."""
    if not 0 <= right <= guesses <= canaries:
        raise InputError("one run", "right guesses among guesses among canaries", f"{right}, {guesses}, {canaries}")

    def excess(epsilon: float) -> float:
        return one_run_chance(canaries, guesses, right, epsilon, delta) - (1.0 - confidence)

    epsilon = 0.0
    if guesses and excess(0.0) < 0.0:
        epsilon = float(brentq(excess, 0.0, 40.0)) if excess(40.0) > 0.0 else 40.0
    return Bound(epsilon, delta, confidence, ONE_RUN, canaries)


def success(scores: Array) -> tuple[float, float]:
    """How often the better of two worlds is told: the area under the curve, and the best accuracy over thresholds."""
    without, with_it = (np.sort(row) for row in scores)
    below = np.searchsorted(without, with_it, side="left") + np.searchsorted(without, with_it, side="right")
    area = float(below.sum() / (2.0 * without.size * with_it.size))
    marks = np.unique(scores)
    alarms = 1.0 - np.searchsorted(without, marks, side="left") / without.size
    hits = 1.0 - np.searchsorted(with_it, marks, side="left") / with_it.size
    return area, float(0.5 + 0.5 * (hits - alarms).max(initial=0.0))
