"""From an attack's scores to a lower bound on epsilon. A high score says "with the canary".

Three ways, all from many trials; one run with many canaries is in `one_run`. Clopper and Pearson's bounds on the two
error rates at one threshold assume nothing, and are blunt: n trials can never show more than about log(n).

The two fits assume that scores are normal, as the likelihood ratio of Gaussian releases is, and read the whole curve
off a few numbers, each within its own confidence interval. The check of that is rough: heavier tails than a Gaussian's,
or none beyond three deviations, pass it, and then a fit says too much or too little.

    by_pairs     The scores are N(m0, s0^2) without the canary and N(m1, s1^2) with it. With s = max(s0, s1) the plan
                 tells at least as much as the Gaussian with mu = (m1 - m0) / s: its threshold lies above m0 (below m1
                 for the converse test), and there the narrower of the two worlds only errs less. m1 - m0 has Student's
                 interval for the differences of pairs, s0 and s1 have the chi-square's. Where the two runs of a pair
                 have the same noise, differences hardly vary and the shift is nearly exact; where they do not, it is
                 less exact and no less true, since neither interval looks at how the two are coupled.
    by_samples   The canary takes part in each of several samples by a coin. How often it does, how far it then moves
                 the score and how wide the noise is have intervals too, and the bound is the epsilon of the sampled
                 Gaussian at their ends, from below. Assumes that samples are independent of each other.

Thresholds come from trials of their own, never from those that are judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv
from scipy.stats import chi2, kstest, norm
from scipy.stats import t as student

from silograph.core.types import Array, BoolArray
from silograph.privacy.accounting import gaussian_epsilon, sampled_epsilon_from_below

CLOPPER_PEARSON = "Clopper-Pearson bounds on both error rates, at a threshold from other trials"
_SHAPE = "noise has the shape that the ledger states, which is only roughly checked"
PAIRED_FIT = f"Gaussian-DP fit: pairs with the same noise bound the shift, all trials the spread; assumes that {_SHAPE}"
SAMPLED_FIT = f"sampled-Gaussian fit: coins, shift and spread, each within its interval; assumes that {_SHAPE}"

#: If scores look less normal, or rounds less independent, than this, a fit gives no bound.
FIT_ALARM = 1e-4
_THRESHOLDS = 100
_MOST_MU = 1e3  # nothing is left to hide long before
_OF_SHIFT = 0.1  # of the allowed chance to err; pairs make the shift nearly exact, the spread needs the rest


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon: with `confidence` epsilon is at least this, at `delta`.

    Parameters
    ----------
    epsilon : The bound, at least 0.
    delta : The delta that it is for.
    confidence : The chance with which such a bound is true.
    how : How it was computed, and what that assumes.
    trials : How many were judged: pairs of runs, one in each world, or the canaries of one run.
    largest : The most that so many trials could have shown: they cannot refute a promise above it.

    >>> right = np.array([np.zeros(1000), np.ones(1000)])  # scores that always tell the two worlds apart
    >>> found = by_threshold(right, right, delta=0.0, confidence=0.99)
    >>> round(found.epsilon, 2), found.trials, found.epsilon == found.largest  # no attack can show more
    (5.24, 1000, True)
    """

    epsilon: float
    delta: float
    confidence: float
    how: str
    trials: int
    largest: float = math.inf


# ---- without assumptions ---------------------------------------------------------------------------------------------


def rate_bounds(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """Bound a rate from below and from above, each with `confidence` (Clopper and Pearson).

    Parameters
    ----------
    hits : In how many trials it happened.
    trials : How many trials there were.
    confidence : The chance with which each of the two bounds is true, such as 0.95.

    >>> low, high = rate_bounds(hits=0, trials=100, confidence=0.95)
    >>> low, round(high, 6), round(1.0 - 0.05 ** (1 / 100), 6)  # (1 - high)^100 = 0.05
    (0.0, 0.029513, 0.029513)
    """
    low = float(betaincinv(hits, trials - hits + 1, 1.0 - confidence)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, confidence)) if hits < trials else 1.0
    return low, high


def epsilon_of_rates(power: float, false: float, delta: float) -> float:
    """Compute the smallest epsilon that allows a test with these rates:

        power <= e^epsilon false + delta,    1 - false <= e^epsilon (1 - power) + delta

    Parameters
    ----------
    power : How often the test says "with the canary" where it is there.
    false : How often it says so where it is not.
    delta : The delta that epsilon is for.

    >>> round(epsilon_of_rates(power=0.12, false=0.05, delta=0.0), 3), round(math.log(0.12 / 0.05), 3)
    (0.875, 0.875)
    """
    ratios = ((power - delta, false), (1.0 - false - delta, 1.0 - power))
    return max((math.log(up / down) if down > 0.0 else math.inf for up, down in ratios if up > 0.0), default=0.0)


def by_threshold(tuning: Array, judged: Array, delta: float, confidence: float, how: str = CLOPPER_PEARSON) -> Bound:
    """Bound epsilon from scores by the error rates of a threshold; it assumes nothing about the scores.

    Parameters
    ----------
    tuning : Scores (2, n) of trials that choose the threshold, without and with the canary; high ones say "with".
    judged : Scores (2, m) of other trials, which are judged.
    delta : The delta that epsilon is for.
    confidence : The chance with which the bound is true, such as 0.99.
    how : What the answer says of how it was computed.

    >>> from silograph.privacy.accounting import gaussian_epsilon
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(2, 2000)) + np.array([[0.0], [1.0]])  # a Gaussian release with mu 1
    >>> found = by_threshold(scores[:, :1000], scores[:, 1000:], delta=1e-5, confidence=0.99)
    >>> 0.0 < found.epsilon < gaussian_epsilon(1.0, 1e-5), round(found.largest, 2)
    (True, 5.24)
    """
    best = max(_thresholds(tuning), key=lambda threshold: _at(tuning, threshold, delta, confidence))
    n = judged.shape[1]
    epsilon = max(0.0, _at(judged, best, delta, confidence))
    return Bound(epsilon, delta, confidence, how, n, largest_of_threshold(n, delta, confidence))


def largest_of_threshold(trials: int, delta: float, confidence: float) -> float:
    """What `by_threshold` gives if every trial is classified correctly."""
    side = 1.0 - (1.0 - confidence) / 2.0
    return max(0.0, epsilon_of_rates(rate_bounds(trials, trials, side)[0], rate_bounds(0, trials, side)[1], delta))


def threshold_trials(epsilon: float, delta: float, confidence: float) -> int | None:
    """The smallest number of trials with which `by_threshold` can show more than epsilon; None beyond a billion."""
    low, high = 0, 1
    while largest_of_threshold(high, delta, confidence) <= epsilon:
        low, high = high, 2 * high
        if high > 10**9:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if largest_of_threshold(middle, delta, confidence) <= epsilon else (low, middle)
    return high


def told_apart(tuning: Array, judged: Array) -> float:
    """How often an attacker names the right one of two worlds, at the threshold that does best on `tuning`."""

    def right(scores: Array, threshold: float) -> float:
        return 0.5 + 0.5 * float((scores[1] > threshold).mean() - (scores[0] > threshold).mean())

    return right(judged, max(_thresholds(tuning), key=lambda threshold: right(tuning, threshold)))


def _thresholds(tuning: Array) -> list[float]:
    return [float(value) for value in np.quantile(tuning, np.linspace(0.0, 1.0, _THRESHOLDS))]


def _at(scores: Array, threshold: float, delta: float, confidence: float) -> float:
    """Bound epsilon at one threshold; each of the two rates errs with half of the allowed chance."""
    side = 1.0 - (1.0 - confidence) / 2.0
    alarms, hits = (int(count) for count in (scores > threshold).sum(1))
    n = scores.shape[1]
    return epsilon_of_rates(rate_bounds(hits, n, side)[0], rate_bounds(alarms, n, side)[1], delta)


# ---- normal scores ---------------------------------------------------------------------------------------------------


def by_pairs(judged: Array, delta: float, confidence: float) -> Bound | None:
    """Bound epsilon from normal scores, by the exact Gaussian curve at the least mu that fits them.

    None if the scores do not look normal: then the fit would claim more than it knows.

    Parameters
    ----------
    judged : Scores (2, n) without and with the canary; column i is a pair of runs, best with the same noise.
    delta : The delta that epsilon is for, above 0.
    confidence : The chance with which the bound is true, such as 0.99.

    >>> from silograph.privacy.accounting import gaussian_epsilon
    >>> noise = np.random.default_rng(0).normal(size=(1, 4000))
    >>> found = by_pairs(noise + np.array([[0.0], [1.0]]), delta=1e-5, confidence=0.99)  # a Gaussian release with mu 1
    >>> 0.9 < found.epsilon / gaussian_epsilon(1.0, 1e-5) < 1.0
    True
    """
    if not all(looks_normal(row) for row in judged):
        return None
    mu = least_mu(judged, confidence)
    return Bound(gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0, delta, confidence, PAIRED_FIT, judged.shape[1])


def least_mu(judged: Array, confidence: float) -> float:
    """A lower bound on the shift of normal scores (2, n) in units of the wider world's deviation."""
    err = 1.0 - confidence
    wide = max(most_deviation(row, 0.5 * (1.0 - _OF_SHIFT) * err) for row in judged)
    shift = least_mean(judged[1] - judged[0], _OF_SHIFT * err)
    return min(shift / wide, _MOST_MU) if wide > 0.0 else 0.0


def least_mean(values: Array, err: float) -> float:
    """Student's lower bound, which fails with the chance `err`."""
    n = len(values)
    return float(values.mean() - student.isf(err, n - 1) * values.std(ddof=1) / math.sqrt(n))


def most_deviation(values: Array, err: float) -> float:
    """The chi-square's upper bound on a normal deviation, which fails with the chance `err`."""
    n = len(values)
    return float(values.std(ddof=1) * math.sqrt((n - 1) / chi2.ppf(err, n - 1)))


def looks_normal(values: Array) -> bool:
    deviation = float(values.std())
    return deviation > 0.0 and float(kstest((values - values.mean()) / deviation, norm.cdf).pvalue) >= FIT_ALARM


def by_samples(places: Array, apart: Array, coins: BoolArray, delta: float, confidence: float) -> Bound | None:
    """Bound epsilon from n trials with k samples each: (2, n, k) where a sample's release lies, from 0 without the
    canary to `apart` (2, n, k) with it, in units of the stated noise; and whether the canary was in the sample of the
    second world.

    None if the noise does not look normal, or samples do not look independent of each other.
    """
    noise = np.stack([places[0], places[1] - np.where(coins, apart[1], 0.0)])
    inside = (noise[1] - noise[0])[coins]  # pairs with the same noise: hardly any of it is left there
    if inside.size < 2 or not all(looks_normal(world.ravel()) and _looks_independent(world) for world in noise):
        return None
    err = 1.0 - confidence
    wide = max(most_deviation(world.ravel(), 0.4 * err) for world in noise)
    short = min(0.0, least_mean(inside, 0.1 * err))
    rate = rate_bounds(int(coins.sum()), coins.size, 1.0 - 0.1 * err)[0]
    # For each sample the trial in which the worlds were nearest: if a clip fixes their distance, all are alike.
    mus = np.minimum((apart.min((0, 1)) + short) / wide, _MOST_MU)
    epsilon = sampled_epsilon_from_below([float(mu) for mu in mus], rate, delta) if rate > 0.0 else 0.0
    return Bound(epsilon, delta, confidence, SAMPLED_FIT, len(coins))


def _looks_independent(noise: Array) -> bool:
    """Test the largest correlation of any two columns of (n, k), with Bonferroni's correction."""
    n, k = noise.shape
    if k < 2:
        return True
    z = (noise - noise.mean(0)) / noise.std(0)
    largest = float(np.abs(z.T @ z / math.sqrt(n))[np.triu_indices(k, 1)].max())
    return bool(k * (k - 1) * float(norm.sf(largest)) >= FIT_ALARM)


# ---- how often -----------------------------------------------------------------------------------------------------


def success(scores: Array) -> tuple[float, float]:
    """How often an attacker names the right one of two worlds: the area under the curve, and the best accuracy over
    thresholds."""
    without, with_it = (np.sort(row) for row in scores)
    below = np.searchsorted(without, with_it, side="left") + np.searchsorted(without, with_it, side="right")
    area = float(below.sum() / (2.0 * without.size * with_it.size))
    marks = np.unique(scores)
    alarms = 1.0 - np.searchsorted(without, marks, side="left") / without.size
    hits = 1.0 - np.searchsorted(with_it, marks, side="left") / with_it.size
    return area, float(0.5 + 0.5 * (hits - alarms).max(initial=0.0))
