"""What a ledger costs: epsilon is a reading of its rows.

Gaussian releases compose to one Gaussian with mu^2 = sum (l2 / sd)^2, which has an exact curve; everything else goes to
dp-accounting. Only this module imports it, so this module is long: closed forms are beside what they are checked
against.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from functools import cache, lru_cache, reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from silograph.core.errors import DamageError, InputError
from silograph.privacy.ledger import Row
from silograph.privacy.mechanisms import DISTRIBUTED, Mechanism
from silograph.privacy.samplers import LEAST_DELTA

EXACT_GAUSSIAN = "exact Gaussian curve"
CONCENTRATED = "concentrated differential privacy (zCDP)"
PLD = "privacy loss distribution (dp-accounting)"
RENYI = "Renyi divergences (dp-accounting)"
NO_PROTECTION = "none: something left without protection"

#: Below, the convolutions of privacy loss distributions lose their digits, and with them the upper bound.
LEAST_SAMPLED_DELTA = 1e-10
NOTHING = "nothing was released"

GAUSSIANS = ("gaussian", DISTRIBUTED)

_NOTHING_LEFT = 100.0  # an epsilon beyond which anything is recognised
_LEAST_EPSILON, _MOST_EPSILON = 1e-6, 1e6  # outside, nothing is protected, or nothing is left


@dataclass(frozen=True)
class Cost:
    """A cost (epsilon, delta), and how it was computed.

    Parameters
    ----------
    epsilon : The cost; infinite if something left without protection.
    delta : The delta that it is for.
    accountant : The name of the curve or bound that epsilon was read from.

    >>> cost([], delta=1e-6)
    Cost(epsilon=0.0, delta=0.0, accountant='nothing was released')
    """

    epsilon: float
    delta: float
    accountant: str


# ---- exact Gaussian ----------------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Compute delta of a Gaussian release at epsilon, exactly:

        delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)

    Parameters
    ----------
    mu : The sensitivity over the standard deviation, l2 / sd, at least 0.
    epsilon : The epsilon to be paid, at least 0.

    >>> round(gaussian_delta(mu=1.0, epsilon=1.0), 6)
    0.126937
    """
    if mu == 0.0:
        return 0.0
    first = float(log_ndtr(-epsilon / mu + mu / 2.0))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0))
    return math.exp(first) * -math.expm1(min(0.0, second - first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute what Gaussian releases cost: the least eps >= 0 with `gaussian_delta(mu, eps)` <= delta, rounded up.

    Parameters
    ----------
    mu : The sensitivity over the standard deviation; of several releases the root of the sum of their squares.
    delta : The delta that the cost is for, below 1. With 0 the cost is infinite.

    >>> textbook = math.sqrt(2.0 * math.log(1.25 / 1e-5))  # sd for epsilon 1
    >>> round(gaussian_epsilon(math.sqrt(50.0) / textbook, delta=1e-5), 2)  # fifty such releases are not 50
    6.82
    """
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0.0:  # the curve underflows to 0 at a finite epsilon, but never is 0
        return math.inf
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2.0
    return _least(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, 0.0, high)


@cache
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Compute the most that Gaussian releases may show: the largest mu with `gaussian_delta(mu, epsilon)` <= delta.

    Parameters
    ----------
    epsilon : The budget, at least 0.
    delta : The delta that the budget is for, above 0 and below 1.

    >>> round(gaussian_epsilon(gaussian_mu(2.0, 1e-6), 1e-6), 9)
    2.0
    """
    if not delta > 0.0:
        raise InputError("Gaussian noise", "a delta above 0", f"found {delta:g}", "Try delta 1e-6.")
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2.0
    return -_least(lambda negative: gaussian_delta(-negative, epsilon) <= delta, -high, 0.0)


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Bisection for the least x in (low, high] where `holds`; it holds at the result, never only near it."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


# ---- zCDP ----------------------------------------------------------------------------------------------------------


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Convert rho-zCDP to epsilon (Canonne, Kamath, Steinke 2020, Proposition 12): the least over orders a > 1 of

        rho a + log(1 - 1/a) - (log delta + log a) / (a - 1)

    Parameters
    ----------
    rho : The cost in zCDP, at least 0; that of Gaussian releases is mu^2 / 2.
    delta : The delta that epsilon is for, above 0 and below 1.

    >>> round(zcdp_epsilon(0.5, 1e-5), 2), round(gaussian_epsilon(1.0, 1e-5), 2)  # a bound, and the exact curve
    (4.73, 4.38)
    """
    if rho == 0.0:
        return 0.0

    def slope(log_order: float) -> float:
        # derivative of the bound in a, times (a - 1)^2, as a function of log(a - 1)
        a = 1.0 + math.exp(log_order)
        return rho * (a - 1.0) ** 2 + math.log(delta) + math.log(a)

    from scipy.optimize import brentq  # late: it takes 20 MB, and most organisations need none of it

    a = 1.0 + math.exp(brentq(slope, -40.0, 40.0))
    return max(0.0, rho * a + math.log1p(-1.0 / a) - (math.log(delta) + math.log(a)) / (a - 1.0))


@cache
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Compute the largest rho with `zcdp_epsilon(rho, delta)` <= epsilon.

    Parameters
    ----------
    epsilon : The budget, at least 0.
    delta : The delta that the budget is for, above 0 and below 1.

    >>> round(zcdp_epsilon(zcdp_rho(2.0, 1e-6), 1e-6), 9)
    2.0
    """
    high = 1.0
    while zcdp_epsilon(high, delta) <= epsilon:
        high *= 2.0
    return -_least(lambda negative: zcdp_epsilon(-negative, delta) <= epsilon, -high, 0.0)


def caught(guarantee: Cost, false_alarms: float) -> float:
    """Compute the largest share that any attack can find of what it looks for, at this rate of false alarms.

    Exact for Gaussian noise: Phi(Phi^-1(false alarms) + mu). Otherwise epsilon with its delta bounds it from both ends
    of the trade-off; for a whole curve of them (zCDP) it is the best of the points.

    Parameters
    ----------
    guarantee : What was spent.
    false_alarms : The rate of false alarms that the attacker accepts, between 0 and 1.

    >>> exact = Cost(gaussian_epsilon(1.0, 1e-6), 1e-6, EXACT_GAUSSIAN)  # mu is 1
    >>> round(caught(exact, false_alarms=0.01), 3)
    0.092
    >>> round(caught(Cost(math.log(3.0), 0.0, "exact Laplace"), false_alarms=0.01), 3)  # e^epsilon times as many
    0.03
    """
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if not (0.0 <= epsilon <= _NOTHING_LEFT and 0.0 <= delta < 1.0):
        return 1.0
    if guarantee.accountant == EXACT_GAUSSIAN and epsilon > 0.0 and delta > 0.0:
        return float(ndtr(ndtri(false_alarms) + gaussian_mu(epsilon, delta)))
    points = [(epsilon, delta)]
    if guarantee.accountant == CONCENTRATED and epsilon > 0.0 and delta > 0.0:
        rho = zcdp_rho(epsilon, delta)
        points += [(zcdp_epsilon(rho, other), other) for other in np.logspace(-6.0, -0.5, 23)]
    lost = 1.0 - false_alarms
    return min(min(math.exp(e) * false_alarms + d, 1.0 - math.exp(-e) * (lost - d)) for e, d in points)


def zcdp(rows: Sequence[Row]) -> float:
    """Total rho of Gaussian rows, a cohort's own among them: zCDP adds."""
    return sum(_ratio(row) ** 2 / 2.0 for row in rows)


# ---- a ledger --------------------------------------------------------------------------------------------------------


def _ratio(row: Row) -> float:
    assert row.l2 is not None
    assert row.noise is not None
    return row.l2 / row.noise


def cost(rows: Sequence[Row], delta: float) -> Cost:
    """Compute what one silo's rows cost: the largest cost of any record. A record is in one part only.

    Gaussian rows are one release with mu^2 = sum (l2 / noise)^2, which is exact. Noise that agents make themselves adds
    up as zCDP; Laplace noise and samples, as a rule, as privacy loss distributions. These are upper bounds.

    Parameters
    ----------
    rows : Rows of one silo's ledger, those that the observer sees.
    delta : The delta that the cost is for, at least 0; 0 suits Laplace noise alone.

    >>> from silograph.privacy.bound import Bounded
    >>> from silograph.privacy.door import Door
    >>> from silograph.privacy.ledger import Ledger
    >>> from silograph.privacy.mechanisms import Gaussian
    >>> door = Door(0, Ledger(), Gaussian(gaussian_multiplier(2.0, 1e-6, 1)))
    >>> _ = door.gate(["north"], round=0).release(Bounded(np.zeros((1, 2)), np.ones(1), "a row", "clip"), "mean")
    >>> door.sync()
    >>> round(cost(door.ledger.of("north"), delta=1e-6).epsilon, 3)
    2.0
    """
    parts = sorted({row.part for row in rows if row.part})
    shares = [_cost([row for row in rows if row.part in ("", part)], delta) for part in parts or [""]]
    return max(shares, key=lambda share: share.epsilon)


def _cost(rows: Sequence[Row], delta: float) -> Cost:
    if not rows:
        return Cost(0.0, 0.0, NOTHING)
    if any(row.mechanism == "reveal" for row in rows):
        return Cost(math.inf, 1.0, NO_PROTECTION)
    if all(row.mechanism in GAUSSIANS and row.sampling == 1.0 for row in rows):
        if any(row.mechanism == DISTRIBUTED for row in rows):
            return Cost(zcdp_epsilon(zcdp(rows), delta), delta, CONCENTRATED)
        return Cost(gaussian_epsilon(math.sqrt(2.0 * zcdp(rows)), delta), delta, EXACT_GAUSSIAN)
    if all(row.mechanism == "laplace" and row.sampling == 1.0 for row in rows) and (len(rows) == 1 or delta == 0.0):
        return Cost(sum(_pure(row) for row in rows), 0.0, "exact Laplace" if len(rows) == 1 else "basic composition")
    if delta < LEAST_SAMPLED_DELTA and any(row.sampling < 1.0 for row in rows):
        return Cost(rdp_epsilon(rows, delta), delta, RENYI)
    return Cost(pld_epsilon(rows, delta), delta, PLD)


@dataclass(frozen=True)
class Planned:
    """A plan of samples: those who keep it need no accountant for each release, since the whole was computed before.

    Parameters
    ----------
    multiplier : The noise of all that is released from one sample together, sd / l2.
    rate : The chance of a record to be in a sample.
    count : How many samples are taken.

    >>> plan = Planned(multiplier=2.0, rate=0.1, count=100)
    >>> round(sampled_epsilon(plan.multiplier, plan.rate, plan.count, delta=1e-5), 2)
    2.34
    """

    multiplier: float
    rate: float
    count: int


class Tally:
    """One silo's rows with a running sum, so that checking whether one more fits the budget takes almost no time.

    Rows within what was `planned` need no accountant: the cost of the plan was computed once, for all silos.
    """

    def __init__(self, epsilon: float, delta: float, planned: Planned | None = None) -> None:
        self._epsilon, self._delta, self._planned = epsilon, delta, planned
        self._rows: list[Row] = []
        self._rho = 0.0
        # Gaussian rows of either kind fit for certain below this; above it the accountant decides.
        self._surely = min(gaussian_mu(epsilon, delta) ** 2 / 2.0, zcdp_rho(epsilon, delta)) if delta else 0.0
        self._batches: dict[tuple[str, int, str], float] = {}  # squared ratios by part, round and batch
        self._counts: Counter[str] = Counter()  # batches of a part
        self._all_planned = planned is not None

    def add(self, row: Row) -> None:
        self._all_planned = self._is_planned(row)
        self._rows.append(row)
        self._rho += self._of(row)
        batch = (row.part, row.round, row.batch)
        self._counts[row.part] += batch not in self._batches
        self._batches[batch] = self._batches.get(batch, 0.0) + 2.0 * self._of(row)

    def fits(self, row: Row) -> bool:
        if self._rho + self._of(row) <= self._surely or self._is_planned(row):
            return True
        return self.cost(row).epsilon <= self._epsilon * (1.0 + 1e-9)

    def cost(self, *more: Row) -> Cost:
        return cost([*self._rows, *more], self._delta)

    def _of(self, row: Row) -> float:
        return _ratio(row) ** 2 / 2.0 if row.mechanism in GAUSSIANS else math.inf

    def _is_planned(self, row: Row) -> bool:
        """Whether this row, like all before it, is of a sample that is no larger and no dearer than planned.

        A row about all of a silo's records would count for every part: none is planned.
        """
        plan = self._planned
        if not self._all_planned or plan is None or not (row.part and row.batch and row.mechanism == "gaussian"):
            return False
        batch = (row.part, row.round, row.batch)
        squared = self._batches.get(batch, 0.0) + 2.0 * self._of(row)
        return (
            row.sampling <= plan.rate
            and math.sqrt(squared) * plan.multiplier <= 1.0 + 1e-12
            and self._counts[row.part] + (batch not in self._batches) <= plan.count
            and _plan_fits(plan, self._epsilon, self._delta)
        )


@lru_cache(maxsize=256)
def _plan_fits(plan: Planned, epsilon: float, delta: float) -> bool:
    return sampled_epsilon(plan.multiplier, plan.rate, plan.count, delta) <= epsilon * (1.0 + 1e-9)


def _pure(row: Row) -> float:
    """Pure epsilon of a Laplace row: l1 / b with l1 = sqrt(dim) l2."""
    return math.sqrt(row.dim) * _ratio(row)


#: Mechanism, sensitivity over noise, sampling rate; and how many such releases.
Kinds = tuple[tuple[tuple[str, float, float], int], ...]


def _kinds(rows: Sequence[Row]) -> Kinds:
    """Equal releases counted together: the accountants are far faster at that.

    Gaussian releases from one sample of the records are one release, whose squared ratio is the sum of theirs: who is
    in the sample is in all of them.
    """
    found: Counter[tuple[str, float, float]] = Counter()
    batches: Counter[tuple[int, str, str, float]] = Counter()
    for row in rows:
        if row.mechanism == "gaussian" and row.batch:
            batches[row.round, row.batch, row.part, row.sampling] += _ratio(row) ** 2  # type: ignore[assignment]
        else:
            found[row.mechanism, _pure(row) if row.mechanism == "laplace" else _ratio(row), row.sampling] += 1
    for (*_, sampling), squared in batches.items():
        found["gaussian", _rounded_up(math.sqrt(squared)), sampling] += 1
    return tuple(sorted(found.items()))


def _rounded_up(ratio: float) -> float:
    """To twelve digits, so that the same releases look the same whatever the rounding of their sums."""
    return float(f"{ratio * (1.0 + 1e-12):.13e}")


def _events(kinds: Kinds) -> Any:
    import dp_accounting as dp

    def event(mechanism: str, ratio: float, sampling: float) -> Any:
        if mechanism in GAUSSIANS:
            # A cohort's noise is bounded at every Renyi order by the Gaussian of its rho; no more is claimed of it.
            base = dp.GaussianDpEvent(1.0 / ratio)
        elif mechanism == "laplace":
            # A d-dimensional Laplace release is dominated by one coordinate that takes the whole l1 sensitivity.
            base = dp.LaplaceDpEvent(1.0 / ratio)
        else:
            expected = f"releases by {', '.join((*GAUSSIANS, 'laplace'))}"
            raise DamageError("ledger", expected, f"found one by {mechanism!r:.60}", "Use the silograph that wrote it.")
        return base if sampling == 1.0 else dp.PoissonSampledDpEvent(sampling, base)

    return dp.ComposedDpEvent([dp.SelfComposedDpEvent(event(*kind), count) for kind, count in kinds])


def pld_epsilon(rows: Sequence[Row], delta: float) -> float:
    """dp-accounting's privacy loss distribution: pessimistic by less than its grid, for any mix of rows."""
    assert not any(row.mechanism == DISTRIBUTED for row in rows), "only its Renyi divergences are bounded"
    return _pld(_kinds(rows), delta)


#: Grids of the privacy loss distribution. Coarser ones are quicker and no less true: they round up more, which matters
#: little where single releases cost much. The coarsest is for looking around.
_FINE, _MEDIUM, _COARSE = 1e-4, 5e-4, 5e-3


@lru_cache(maxsize=1024)
def _pld(kinds: Kinds, delta: float, grid: float | None = None) -> float:
    if grid is None:
        grid = _MEDIUM if any(ratio > 1.0 for (_, ratio, _), _ in kinds) else _FINE
    return float(_composed(kinds, grid).get_epsilon(delta))


@lru_cache(maxsize=64)
def _composed(kinds: Kinds, grid: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    # With sampling 1 replace-one is what the sensitivities already say; REPLACE_SPECIAL would double them.
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=grid)
    return accountant.compose(_events(kinds))


def rdp_epsilon(rows: Sequence[Row], delta: float) -> float:
    """dp-accounting's Renyi accountant: an independent upper bound."""
    return _rdp(_kinds(rows), delta)


def _rdp(kinds: Kinds, delta: float) -> float:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    plain = all(rate == 1.0 for (_, _, rate), _ in kinds)
    sampled = np.concatenate([np.arange(1.1, 11.0, 0.1), np.arange(11, 64), 2 ** np.arange(6, 11)])
    orders = np.concatenate([1.0 + np.geomspace(1e-3, 10.0, 200), np.arange(12, 512)]) if plain else sampled
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    with _quietly():
        return float(accountant.compose(_events(kinds)).get_epsilon(delta))


@contextmanager
def _quietly() -> Iterator[None]:
    """Where records are sampled the library leaves out orders whose series does not converge, and warns of each."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


# ---- sampled Gaussians -----------------------------------------------------------------------------------------------

Accountant = Literal["pld", "rdp"]


def sampled_epsilon(
    multiplier: float, rate: float, releases: int, delta: float, accountant: Accountant = "pld"
) -> float:
    """Compute what Gaussian releases cost if each is about a Poisson sample of the records, which nobody knows.

    Parameters
    ----------
    multiplier : The noise of a release, sd / l2, above 0.
    rate : The chance of a record to be in a sample, above 0 and at most 1.
    releases : How many releases there are, each from a sample of its own.
    delta : The delta that the cost is for, above 0 and below 1.
    accountant : "pld": privacy loss distributions, rounded up; "rdp": Renyi divergences, a looser bound.

    >>> [round(sampled_epsilon(1.0, 0.01, 1000, 1e-5, accountant), 2) for accountant in ("pld", "rdp")]
    [1.83, 2.1]
    """
    if rate == 1.0 and accountant == "pld":
        return gaussian_epsilon(math.sqrt(releases) / multiplier, delta)
    kinds = ((("gaussian", _rounded_up(1.0 / multiplier), rate), releases),)
    return _pld(kinds, delta) if accountant == "pld" else _rdp(kinds, delta)


@dataclass(frozen=True, eq=False)
class LedgerCurves:
    """For audits: the privacy curves that rows would have, had their noise been a share of what they state.

    A cohort's noise counts as the Gaussian that it is made to resemble.
    """

    rows: Sequence[Row]
    delta: float

    def deltas(self, share: float, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._gaussian:
            return np.array([gaussian_delta(self._mu / share, float(epsilon)) for epsilon in epsilons])
        return np.asarray(_composed(_kinds(self._with(share)), _COARSE).get_delta(epsilons), dtype=np.float64)

    def epsilon(self, share: float) -> float:
        if self._gaussian:
            return gaussian_epsilon(self._mu / share, self.delta)
        rows = self._with(share)
        if share >= 1.0 or any(row.sampling == 1.0 for row in rows):
            return _cost(rows, self.delta).epsilon
        return _pld(_kinds(rows), self.delta, _COARSE)  # more than is promised; how much more need not be exact

    @property
    def _gaussian(self) -> bool:
        return all(row.mechanism in GAUSSIANS and row.sampling == 1.0 for row in self.rows)

    @property
    def _mu(self) -> float:
        return math.sqrt(2.0 * zcdp(self.rows))

    def _with(self, share: float) -> list[Row]:
        return [replace(row, noise=share * row.noise) for row in self.rows if row.noise is not None]


def sampled_epsilon_from_below(ratios: Sequence[float], rate: float, delta: float) -> float:
    """Of Gaussian releases with these l2 / sd, each about a Poisson sample at `rate`, rounded down everywhere: what
    they tell for certain. For audits; what a release costs is rounded up."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    kinds = Counter(float(Context(3, ROUND_FLOOR).create_decimal(ratio)) for ratio in ratios if ratio > 0.0)
    if not kinds:
        return 0.0
    grid = _MEDIUM if len(ratios) <= 40 else _FINE  # every release is rounded down by up to that much
    parts = [
        from_gaussian_mechanism(
            1.0 / ratio,
            pessimistic_estimate=False,
            value_discretization_interval=grid,
            sampling_prob=rate,
            use_connect_dots=False,
        ).self_compose(count)
        for ratio, count in sorted(kinds.items())
    ]
    total = reduce(lambda one, other: one.compose(other), parts)
    return max(0.0, float(total.get_epsilon_for_delta(delta)))


_LEAST_LOG, _MOST_LOG = -1.5, 25.0  # of a multiplier; less noise than that would hide nothing worth hiding


@cache
def sampled_multiplier(
    epsilon: float, delta: float, rate: float, releases: int, accountant: Accountant = "pld", rough: bool = False
) -> float:
    """Compute the noise of such releases, sd / l2, with which they cost epsilon, or less by at most 1e-4 of it.

    Parameters
    ----------
    epsilon : The budget of all releases together, above 0.
    delta : The delta that the budget is for, above 0 and below 1.
    rate : The chance of a record to be in a sample, above 0 and at most 1.
    releases : How many releases there are, each from a sample of its own.
    accountant : "pld" or "rdp", as in `sampled_epsilon`.
    rough : Whether about that much will do, which takes less time.

    >>> noise = sampled_multiplier(epsilon=2.0, delta=1e-5, rate=0.01, releases=1000)
    >>> 1.9998 <= sampled_epsilon(noise, 0.01, 1000, 1e-5) <= 2.0, noise < 1.0
    (True, True)
    """
    if rate == 1.0 and accountant == "pld":
        return gaussian_multiplier(epsilon, delta, releases)
    grid = min(_COARSE, 0.01 * epsilon)

    def excess(log: float, exactly: bool) -> float:
        """Of the cost, in logarithms, which are nearly linear in the multiplier's."""
        sigma = math.exp(log)
        if exactly or accountant == "rdp":
            cost = sampled_epsilon(sigma, rate, releases, delta, accountant)
        else:
            cost = _pld(((("gaussian", 1.0 / sigma, rate), releases),), delta, grid)
        return math.log(max(cost, 1e-9) / epsilon)

    # Many sampled releases are close to a Gaussian whose ratio is smaller by the rate.
    low = high = max(math.log(gaussian_multiplier(epsilon, delta, releases) * rate), -1.0)
    while (above := excess(high, False)) > 0.0:
        low, high = high, high + 0.2
        if high > _MOST_LOG:
            expected = f"noise that keeps {releases} releases within epsilon {epsilon:g} at delta {delta:g}"
            raise InputError("privacy budget", expected, "no accountant finds any", "Allow a larger epsilon or delta.")
    while (below := excess(low, False)) <= 0.0:
        if low <= _LEAST_LOG:
            return math.exp(low)  # that few records are ever chosen costs less than this by itself
        low, high, above = low - 0.2, low, below
    from scipy.optimize import brentq

    found = float(brentq(excess, low, high, (False,), xtol=1e-4))
    if rough:
        return math.exp(found)
    slope = (above - below) / (high - low)
    for _ in range(10):
        if -1e-4 < (over := excess(found, True)) <= 0.0:
            break
        found -= (over + 5e-6) / slope  # Newton's step, to a little less than all of the budget
    while excess(found, True) > 0.0:
        found += 1e-4
    return math.exp(found) * _ROUND_UP


# ---- calibration -----------------------------------------------------------------------------------------------------


_ROUND_UP = 1.0 + 1e-12  # so that adding up many rows cannot round past the budget


def gaussian_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Compute the noise of Gaussian releases, sd / l2, with which they cost (epsilon, delta) in total.

    Parameters
    ----------
    epsilon : The budget of all releases together, above 0.
    delta : The delta that the budget is for, above 0 and below 1.
    releases : How many releases there are about the same records.

    >>> [round(gaussian_multiplier(2.0, 1e-6, releases), 3) for releases in (1, 4)]  # grows with the root
    [2.23, 4.461]
    """
    return math.sqrt(releases) / gaussian_mu(epsilon, delta) * _ROUND_UP


def laplace_multiplier(epsilon: float, releases: int) -> float:
    """Compute the noise of Laplace releases, b / l1, with which they cost epsilon in total, by basic composition.

    Parameters
    ----------
    epsilon : The budget of all releases together, above 0.
    releases : How many releases there are about the same records.

    >>> round(laplace_multiplier(epsilon=2.0, releases=4), 9)
    2.0
    """
    return releases / epsilon * _ROUND_UP


def planned_cost(mechanism: Mechanism, dim: int, releases: int, delta: float) -> Cost:
    """Compute what releases of a mechanism will cost, from the rows that they will leave.

    Parameters
    ----------
    mechanism : The noise.
    dim : How many numbers a release has; it matters for Laplace noise.
    releases : How many releases there are about the same records.
    delta : The delta that the cost is for.

    >>> from silograph.privacy.mechanisms import Gaussian
    >>> spent = planned_cost(Gaussian(gaussian_multiplier(2.0, 1e-6, 10)), dim=100, releases=10, delta=1e-6)
    >>> round(spent.epsilon, 6), spent.accountant
    (2.0, 'exact Gaussian curve')
    """
    row = Row(
        silo="",
        round=0,
        release_point="",
        observer="",
        mechanism=mechanism.name,
        l2=1.0,
        noise=mechanism.scale(1.0, dim),
        dim=dim,
        sampling=1.0,
        protected_unit="",
        relation="",
        randomness="",
        why="",
        digest="",
    )
    return cost([row] * releases, delta)


def check_budget(epsilon: float, delta: float, records: int, where: str, protected_unit: str = "records") -> None:
    """Refuse an epsilon or delta that guarantees nothing; `protected_unit` is what is protected, in the plural."""
    if not _LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        expected = f"a privacy budget epsilon from {_LEAST_EPSILON:g} to {_MOST_EPSILON:g}"
        raise InputError(where, expected, f"epsilon is {epsilon:g}", "Try epsilon 1; above 10 little is protected.")
    if not 0.0 <= delta < 1.0:
        raise InputError(where, "delta between 0 and 1", f"delta is {delta:g}", "Try delta 1e-6.")
    if 0.0 < delta < LEAST_DELTA:
        raise InputError(where, f"delta from {LEAST_DELTA:g} up", f"delta is {delta:g}", "The noise is exact to that.")
    if delta >= 1.0 / records:
        raise InputError(
            where,
            f"delta below 1/N = {1.0 / records:.3g}",
            f"delta is {delta:g}: it would allow one of the {records} {protected_unit} to be published outright",
            f"Try delta {0.01 / records:.0e} or smaller.",
        )
