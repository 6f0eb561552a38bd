"""Bounds from a single run: against brute force, and erring as seldom as they say, for mechanisms of many kinds.

Simulations have fixed seeds; the rate at which a sound bound would fail is said with each. A bound of guesses is a
function of how many are right, so it is made once for each number.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from silograph.core.errors import InputError
from silograph.privacy.accounting import (
    LedgerCurves,
    cost,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_multiplier,
)
from silograph.privacy.attacks import one_run
from silograph.privacy.attacks.one_run import Aligned, by_alignment, by_guesses, clearest, fits, least_ratio
from silograph.privacy.ledger import Row

DELTA = 1e-5
ROW = Row("", 0, "", "", "gaussian", 1.0, gaussian_multiplier(3.0, DELTA, 1), 1, 1.0, "", "", "", "", "")


@dataclass(frozen=True)
class Gaussian:
    """mu-GDP with mu over the share."""

    mu: float
    delta: float = DELTA

    def deltas(self, share, epsilons):
        return np.array([gaussian_delta(self.mu / share, float(each)) for each in epsilons])

    def epsilon(self, share):
        return gaussian_epsilon(self.mu / share, self.delta)


@dataclass(frozen=True)
class Response:
    """Randomised response at `pure` over the share, which with the chance `slip` tells everything."""

    pure: float
    slip: float = 0.0

    def deltas(self, share, epsilons):
        right, wrong = 1.0 / (1.0 + math.exp(-self.pure / share)), 1.0 / (1.0 + math.exp(self.pure / share))
        return self.slip + (1.0 - self.slip) * np.maximum(0.0, right - np.exp(epsilons) * wrong)

    def epsilon(self, share):
        return self.pure / share


# ---- guesses ---------------------------------------------------------------------------------------------------------


def most_likely_tail(curves, canaries, guesses, right):
    """The largest chance of so many right guesses that (1) allows, by a linear program over all chances p_0 ... p_n."""
    i, rows, limits = np.arange(guesses + 1.0), [], []
    slopes = one_run._SLOPES[one_run._SLOPES < 12.0]  # steeper ones are beyond a linear program's digits
    deltas = curves.deltas(1.0, slopes)
    for a in range(1, guesses + 1):
        left = np.where(i >= a, i, 0.0) / canaries
        inside = np.where(i >= a - 1, guesses - i, 0.0) / canaries
        for slope, delta in zip(np.exp(slopes), deltas, strict=True):
            rows += [left - slope * inside, left - inside / slope]
            limits += [delta, 1.0 - (1.0 - delta) / slope]
    done = linprog(
        -(i >= right).astype(float), np.array(rows), np.array(limits), np.ones((1, guesses + 1)), [1.0], (0.0, 1.0)
    )
    assert done.success
    return -done.fun


@pytest.mark.parametrize("curves", [Gaussian(0.7), Response(1.0), Response(0.5, 0.05)])
@pytest.mark.parametrize(("canaries", "guesses", "right"), [(12, 12, 10), (20, 8, 7), (30, 10, 10), (6, 6, 5)])
def test_the_recursion_is_the_linear_program(curves, canaries, guesses, right):
    most = most_likely_tail(curves, canaries, guesses, right)
    assert 0.0 < most <= 1.0
    assert fits(curves, 1.0, canaries, guesses, right, most * (1.0 - 1e-6))
    assert most > 1.0 - 1e-6 or not fits(curves, 1.0, canaries, guesses, right, most * (1.0 + 1e-4))


@pytest.mark.parametrize("right", [6, 8, 10, 12])
def test_what_randomised_response_does_is_allowed(right):
    """Its right guesses are coins, and by (1) none does better by much."""
    tail = float(stats.binom.sf(right - 1, 12, 1.0 / (1.0 + math.exp(-1.0))))
    assert fits(Response(1.0), 1.0, 12, 12, right, tail)
    assert not fits(Response(1.0), 1.0, 12, 12, right, min(1.0, 3.0 * tail)) or 3.0 * tail >= 0.5


def test_bad_counts_are_refused():
    with pytest.raises(InputError, match="right guesses"):
        by_guesses(5, 6, 3, Gaussian(1.0), DELTA, 0.99)


def in_bits(rng, canaries):
    return rng.random(canaries) < 0.5


def gaussian(rng, bits, mu):
    return mu * (bits - 0.5) + rng.normal(size=bits.size)


def shared_noise(rng, bits, mu):
    """Half of the noise's variance is one number for all, which the guesses do not take off."""
    return mu * (bits - 0.5) + math.sqrt(0.5) * (rng.normal(size=bits.size) + rng.normal())


def laplace(rng, bits, epsilon):
    """Its log-likelihood ratio; of epsilon no more is ever told."""
    y = epsilon * bits + rng.laplace(size=bits.size)
    return np.abs(y) - np.abs(y - epsilon)


def response(rng, bits, epsilon, slip=0.0):
    if rng.random() < slip:
        return np.where(bits, 1e3, -1e3)
    right = rng.random(bits.size) < 1.0 / (1.0 + math.exp(-epsilon))
    return np.where(right == bits, 1.0, -1.0) * (1.0 + 1e-9 * rng.random(bits.size))


def sampled(rng, bits, mu, rate=0.5, rounds=4):
    y = mu * (bits[:, None] & (rng.random((bits.size, rounds)) < rate)) + rng.normal(size=(bits.size, rounds))
    return np.log1p(rate * np.expm1(mu * y - 0.5 * mu**2)).sum(1)


SAMPLED = [replace(ROW, round=k, noise=1.0, sampling=0.5, batch="b", part="p") for k in range(4)]
LAPLACE = replace(ROW, mechanism="laplace", noise=1.0 / 1.5)
#: Scores of a run, and the curves among which, with all of the noise, is its own.
MECHANISMS = {
    "Gaussian": (lambda rng, bits: gaussian(rng, bits, 0.72), Gaussian(0.72)),
    "Gaussian with shared noise": (lambda rng, bits: shared_noise(rng, bits, 0.72), Gaussian(0.72)),
    "Laplace": (lambda rng, bits: laplace(rng, bits, 1.5), LedgerCurves([LAPLACE], 0.0)),
    "randomised response": (lambda rng, bits: response(rng, bits, 1.0), Response(1.0)),
    "one run in 50 tells all": (lambda rng, bits: response(rng, bits, 1.0, 0.02), Response(1.0, 0.02)),
    "one run in 500 tells all": (lambda rng, bits: response(rng, bits, 2.0, 0.002), Response(2.0, 0.002)),
    "sampled Gaussian": (lambda rng, bits: sampled(rng, bits, 1.0), LedgerCurves(SAMPLED, DELTA)),
}


@pytest.mark.parametrize("guessed", ["all", "the clearest"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_guesses_claim_too_much_in_one_of_a_hundred_runs_at_the_most(name, guessed):
    """1000 runs of 200 canaries at 99 %: more than 24 failures have the chance 1e-4. Who abstains from all but the
    clearest guesses fixes before how many these are. Of what tells all more often than the confidence leaves to err
    nothing can be shown."""
    run, curves = MECHANISMS[name]
    rng, m = np.random.default_rng(7), 200
    guesses = m if guessed == "all" else clearest(m)

    @cache
    def refuted(share, right):
        return not fits(curves, share, m, guesses, right, 0.01)

    failures, something = 0, 0
    for _ in range(1000):
        bits = in_bits(rng, m)
        scores = run(rng, bits)
        clear = np.argsort(-np.abs(scores), kind="stable")[:guesses]
        right = int(((scores > 0.0) == bits)[clear].sum())
        failures, something = failures + refuted(1.0, right), something + refuted(one_run._MOST_SHARE, right)
    assert failures <= 24
    assert (something > 0) is (name != "one run in 50 tells all")


def test_a_bound_is_larger_than_the_truth_where_the_truth_is_refuted():
    true = Gaussian(0.72).epsilon(1.0)
    for right in range(40, 81, 4):
        bound = by_guesses(200, 80, right, Gaussian(0.72), DELTA, 0.99).epsilon
        assert (bound > true * (1.0 + 1e-3)) is (not fits(Gaussian(0.72), 1.0, 200, 80, right, 0.01))


def test_abstaining_is_worth_it_and_half_is_all_there_is():
    """Gaussian, mu of epsilon 2: of 4000 canaries a quarter is shown if all are guessed, half if the clearest are."""
    mu = gaussian_mu(2.0, 1e-6)
    rng, shown = np.random.default_rng(3), {"all": [], "clear": []}
    for _ in range(5):
        bits = in_bits(rng, 4000)
        scores = gaussian(rng, bits, mu)
        right = (scores > 0.0) == bits
        clear = np.argsort(-np.abs(scores))[: clearest(4000)]
        shown["all"].append(by_guesses(4000, 4000, int(right.sum()), Gaussian(mu, 1e-6), 1e-6, 0.99).epsilon)
        shown["clear"].append(
            by_guesses(4000, clearest(4000), int(right[clear].sum()), Gaussian(mu, 1e-6), 1e-6, 0.99).epsilon
        )
    assert np.mean(shown["all"]) < 0.35 * 2.0 < 0.45 * 2.0 < np.mean(shown["clear"]) < 0.65 * 2.0


def test_more_right_guesses_and_more_confidence_move_the_bound_as_they_should():
    values = [by_guesses(300, 80, right, Gaussian(0.7), DELTA, 0.99).epsilon for right in range(40, 81, 5)]
    assert values == sorted(values)
    assert values[-1] == by_guesses(300, 80, 80, Gaussian(0.7), DELTA, 0.99).largest
    assert by_guesses(300, 80, 70, Gaussian(0.7), DELTA, 0.9).epsilon > values[6]
    # The share of the noise is what is found, whatever share the ledger states: twice the noise, the same epsilon.
    assert by_guesses(300, 80, 70, Gaussian(1.4), DELTA, 0.99).epsilon == pytest.approx(values[6], rel=0.01)


# ---- all canaries together -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("t", "free"), [(3.0, 5), (10.0, 950), (2.0, 50), (30.0, 200), (1.0, 27)])
def test_the_ratio_is_bounded_by_students_noncentral_law(t, free):
    centre = least_ratio(Aligned(along=2.0 * t, ways=4.0, squares=free + t * t, count=free + 1), 0.99) * 2.0
    if centre >= 0.0:  # scipy has no numbers below
        assert stats.nct.cdf(t, free, centre) == pytest.approx(0.99, abs=5e-5)
    assert centre < t - 2.3


def aligned(rng, mu, canaries, coordinates, share=1.0, rate=1.0, rounds=1, orthogonal=False):
    seen, bits = Aligned(), in_bits(rng, canaries)
    ways = rng.normal(size=(canaries, coordinates))
    ways = np.eye(coordinates)[np.arange(canaries) % coordinates] if orthogonal else ways
    ways *= mu / np.linalg.norm(ways, axis=1, keepdims=True)
    for _ in range(rounds):
        there = bits & (rng.random(canaries) < rate)
        noise = share * rng.normal(size=coordinates)
        way = ((there - 0.5 * rate) @ ways)[None]
        seen.add(way + noise, way, np.full((1, 1), mu**2), np.full(1, mu**2))
    return seen


@pytest.mark.parametrize(
    "case",
    [
        {"canaries": 100, "coordinates": 100, "orthogonal": True},
        {"canaries": 400, "coordinates": 28},
        {"canaries": 40, "coordinates": 200},
        {"canaries": 50, "coordinates": 20, "rate": 0.3, "rounds": 20},
        {"canaries": 6, "coordinates": 8},
        {"canaries": 300, "coordinates": 30, "share": 0.5},
        {"canaries": 300, "coordinates": 30, "share": 2.0},
    ],
    ids=str,
)
def test_all_canaries_together_claim_too_much_in_one_of_a_hundred_runs(case):
    """1000 runs at 99 %: more than 24 failures have the chance 1e-4, and none at all too, since the law is exact.
    Canaries may outnumber coordinates and lie as they like."""
    rng, share = np.random.default_rng(11), case.get("share", 1.0)
    failures = sum(least_ratio(aligned(rng, 0.7, **case), 0.99) > 1.0 / share for _ in range(1000))
    assert 1 <= failures <= 24


def test_with_many_canaries_most_of_epsilon_is_shown():
    rng, curves = np.random.default_rng(2), LedgerCurves([ROW], DELTA)
    mu = gaussian_mu(3.0, DELTA)
    shown = [
        by_alignment(aligned(rng, mu, 1000, 200), curves, DELTA, 0.99, 1000).epsilon / curves.epsilon(1.0)
        for _ in range(40)
    ]
    assert 0.7 < np.mean(shown) < 0.9


@pytest.mark.parametrize("reach", [0.5, 1.0, 2.0])
def test_canaries_that_move_less_than_is_stated_show_less_and_those_that_move_more_more(reach):
    """A clip that is missing shows, and a canary that the clip holds back claims no more than it does."""
    rng, mu = np.random.default_rng(2), gaussian_mu(3.0, DELTA)
    seen = aligned(rng, reach * mu, 4000, 400)
    seen.stated = np.full(1, mu**2)
    found = by_alignment(seen, LedgerCurves([ROW], DELTA), DELTA, 0.99, 4000).epsilon
    assert 0.7 < found / gaussian_epsilon(reach * mu, DELTA) < 1.0


def test_what_is_no_noise_makes_the_bound_no_larger():
    """Something else in what came, the same in all runs, only looks like more noise."""
    rng, curves = np.random.default_rng(2), LedgerCurves([ROW], DELTA)
    clean, more = Aligned(), Aligned()
    noise, way = rng.normal(size=(1, 200)), rng.normal(size=(1, 200))
    ones = np.ones((1, 1)), np.ones(1)
    more.add(noise + way + 0.5, way, *ones)
    clean.add(noise + way, way, *ones)
    assert by_alignment(more, curves, DELTA, 0.99, 9).epsilon < by_alignment(clean, curves, DELTA, 0.99, 9).epsilon


def test_noise_that_does_not_look_normal_or_nothing_at_all_gets_no_bound():
    rng, curves, way = np.random.default_rng(2), LedgerCurves([ROW], DELTA), np.ones((1, 3000))
    ones = np.ones((1, 1)), np.ones(1)
    cut = Aligned()
    cut.add(way + rng.laplace(size=way.shape), way, *ones)
    assert by_alignment(cut, curves, DELTA, 0.99, 9) is None
    assert by_alignment(Aligned(), curves, DELTA, 0.99, 9) is None
    none = Aligned()
    none.add(rng.normal(size=way.shape), 0.0 * way, *ones)
    assert by_alignment(none, curves, DELTA, 0.99, 9) is None


# ---- curves of a ledger ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[ROW], SAMPLED, [LAPLACE]])
def test_curves_of_a_ledger_are_what_it_costs_and_less_noise_tells_more(rows):
    delta = 0.0 if rows == [LAPLACE] else DELTA
    curves, bill = LedgerCurves(rows, delta), cost(rows, delta)
    assert curves.epsilon(1.0) == pytest.approx(bill.epsilon, rel=1e-9)
    assert curves.deltas(1.0, np.array([bill.epsilon]))[0] == pytest.approx(delta, rel=0.02, abs=1e-12)
    shares = [0.5, 0.9, 1.0, 2.0, 4.0]
    assert [curves.epsilon(share) for share in shares] == sorted((curves.epsilon(s) for s in shares), reverse=True)
    told = [float(curves.deltas(share, np.zeros(1))[0]) for share in shares]
    assert told == sorted(told, reverse=True)
