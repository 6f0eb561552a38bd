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
    """A cost (epsilon, delta), and how it was computed."""

    epsilon: float
    delta: float
    accountant: str


# ---- exact Gaussian ----------------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), computed in logarithms."""
    if mu == 0.0:
        return 0.0
    first = float(log_ndtr(-epsilon / mu + mu / 2.0))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0))
    return math.exp(first) * -math.expm1(min(0.0, second - first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest eps >= 0 with gaussian_delta(mu, eps) <= delta, rounded up to the next float the search found."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2.0
    return _least(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, 0.0, high)


@cache
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu with gaussian_delta(mu, epsilon) <= delta."""
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
    """The tight conversion of rho-zCDP (Canonne, Kamath, Steinke 2020, Proposition 12): the least over orders a > 1 of

    rho a + log(1 - 1/a) - (log delta + log a) / (a - 1)
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
    """The largest rho with zcdp_epsilon(rho, delta) <= epsilon."""
    high = 1.0
    while zcdp_epsilon(high, delta) <= epsilon:
        high *= 2.0
    return -_least(lambda negative: zcdp_epsilon(-negative, delta) <= epsilon, -high, 0.0)


def caught(guarantee: Cost, false_alarms: float) -> float:
    """Return the largest share that any attack can find of what it looks for, at this rate of false alarms.

    Exact for Gaussian noise. Otherwise epsilon with its delta bounds it from both ends of the trade-off; for a whole
    curve of them (zCDP) it is the best of the points.
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
    """Compute what one silo's rows cost at `delta`: the largest cost of any record. A record is in one part only."""
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
    """So many samples of the records at `rate`, what is released from each having noise `multiplier` in all."""

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
    """Of so many Gaussian releases with sd = multiplier * l2, each about a Poisson sample of the records at `rate`."""
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
    """sd / l2 so that `releases` of them cost epsilon, or less by at most 1e-4 of it; about that much if `rough`."""
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
    """sd / l2 so that `releases` Gaussian releases cost exactly (epsilon, delta) in total."""
    return math.sqrt(releases) / gaussian_mu(epsilon, delta) * _ROUND_UP


def laplace_multiplier(epsilon: float, releases: int) -> float:
    """b / l1 so that `releases` Laplace releases cost exactly epsilon in total by basic composition."""
    return releases / epsilon * _ROUND_UP


def planned_cost(mechanism: Mechanism, dim: int, releases: int, delta: float) -> Cost:
    """What so many releases of a mechanism will cost: a reading of the rows they will leave."""
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
