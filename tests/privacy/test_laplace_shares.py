"""Shares of Laplace noise add up to the exact law, and with fewer of them the stated epsilon is what is left.

Each statistical test has a false-alarm rate of 1e-4, at fixed seeds.
"""

import math

import numpy as np
import pytest
from scipy import stats

from silograph.core.errors import InputError
from silograph.privacy.laplace_shares import _geometric, epsilon_with_fewer, laplace_share
from silograph.privacy.masking import MaskedSum, Masks, Summands, counted_on, planned
from silograph.privacy.mechanisms import SharedLaplace
from silograph.privacy.secure_messages import Session
from silograph.privacy.secure_sum import secure_sum

ALARM = 1e-4


def seeded(seed):
    return np.random.default_rng(seed).bytes


def laplace_law(scale, reach):
    """P(-reach), ..., P(reach) of the discrete Laplace law."""
    q = math.exp(-1.0 / scale)
    return (1.0 - q) / (1.0 + q) * q ** np.abs(np.arange(-reach, reach + 1))


def share_law(scale, agents, size, reach):
    """Of the difference of two sums of `size` negative binomial shares, by scipy."""
    parts = stats.nbinom.pmf(np.arange(80 * int(scale) + 400), size / agents, 1.0 - math.exp(-1.0 / scale))
    both = np.correlate(parts, parts, "full")
    middle = len(parts) - 1
    return both[middle - reach : middle + reach + 1]


def pvalue(drawn, law):
    """By chi-square, with what is expected less than ten times put together."""
    reach = (len(law) - 1) // 2
    expected = law * len(drawn)
    counts = np.array([(drawn == k).sum() for k in range(-reach, reach + 1)])
    often = expected >= 10.0
    counts = np.append(counts[often], len(drawn) - counts[often].sum())
    expected = np.append(expected[often], len(drawn) - expected[often].sum())
    return stats.chisquare(counts, expected).pvalue


@pytest.mark.parametrize("agents", [2, 7])
def test_shares_add_up_to_the_discrete_laplace_law(agents):
    source = seeded(agents)
    drawn = np.array([sum(laplace_share(source, 3.3, agents) for _ in range(agents)) for _ in range(2000)])
    assert pvalue(drawn, laplace_law(3.3, 60)) > ALARM
    # A twin with half of the shares is seen.
    few = np.array([sum(laplace_share(source, 3.3, agents) for _ in range(agents // 2)) for _ in range(2000)])
    assert pvalue(few, laplace_law(3.3, 60)) < ALARM


def test_a_share_is_the_difference_of_two_negative_binomial_numbers():
    source = seeded(1)
    drawn = np.array([laplace_share(source, 5.0, 4) for _ in range(5000)])
    assert pvalue(drawn, share_law(5.0, 4, 1, 60)) > ALARM


def test_a_fine_grid_has_the_same_law():
    source, scale = seeded(2), 2.0**30
    drawn = np.array([sum(laplace_share(source, scale, 20) for _ in range(20)) for _ in range(300)])
    assert stats.kstest(drawn / scale, stats.laplace.cdf).pvalue > ALARM


def test_a_jump_is_geometric():
    from decimal import Decimal

    source = seeded(3)
    drawn = np.array([_geometric(source, Decimal("0.8")) for _ in range(5000)])
    expected = 5000 * 0.2 * 0.8 ** np.arange(20)
    counts = np.bincount(drawn, minlength=20)[:20]
    told = stats.chisquare(np.append(counts, 5000 - counts.sum()), np.append(expected, 5000 - expected.sum()))
    assert told.pvalue > ALARM


@pytest.mark.parametrize(("honest", "counted", "epsilon"), [(1, 3, 1.0), (2, 3, 1.0), (1, 7, 0.5), (5, 6, 2.0)])
def test_epsilon_with_fewer_honest_agents_is_the_worst_ratio(honest, counted, epsilon):
    """The oracle: the whole law by scipy, and the largest of all its log ratios at that distance."""
    scale = 200.0
    law = share_law(scale, counted, honest, 4 * int(scale))
    move = round(epsilon * scale)
    worst = np.log(law[:-move] / law[move:]).max()
    assert epsilon_with_fewer(epsilon, honest, counted, scale) == pytest.approx(worst, rel=1e-5)
    assert worst > epsilon
    assert epsilon_with_fewer(epsilon, counted, counted, scale) == epsilon


@pytest.mark.parametrize("agents", [4, 30])
def test_a_sum_is_charged_its_epsilon_and_has_the_noise_that_is_told(agents):
    noise, clip = SharedLaplace(2.0), 1.5
    cohort = planned(agents, clip, 1, noise)
    assert cohort.l2 / cohort.charged == pytest.approx(0.5, rel=1e-9)
    assert cohort.l2 / cohort.charged <= 0.5
    assert cohort.l2 == pytest.approx(2.0 * clip, rel=1e-6)
    names = [f"agent {k:02d}" for k in range(agents)]
    sums = []
    for round in range(200):
        asked = MaskedSum(tuple(names), round, "all", "level", clip, 1, Masks("skipped"), noise)
        sums.append(Summands(dict.fromkeys(names, np.ones(1)), asked).task(5)().values[0] - agents)
    # Its kurtosis is at most 6 (less with more shares than are counted on): standard error of the variance .16 of it.
    assert np.var(sums) == pytest.approx(cohort.noise_of(agents) ** 2, rel=3.9 * 0.16)
    assert cohort.noise_of(counted_on(agents)) == pytest.approx(math.sqrt(2.0) * cohort.charged, rel=1e-6)


def test_the_protocol_gives_the_same_sum_and_refuses_more_than_one_number():
    names = [f"agent {k}" for k in range(5)]
    values = {name: np.array([0.1 * k]) for k, name in enumerate(names)}
    asked = MaskedSum(tuple(names), 0, "all", "level", 1.0, 1, Masks("protocol"), SharedLaplace(1.0))
    skipped = MaskedSum(tuple(names), 0, "all", "level", 1.0, 1, Masks("skipped"), SharedLaplace(1.0))
    assert Summands(values, asked).task(3)().values[0] == Summands(values, skipped).task(3)().values[0]
    with pytest.raises(InputError, match="one number"):
        planned(5, 1.0, 2, SharedLaplace(1.0))
    with pytest.raises(InputError, match="one number"):
        secure_sum(dict.fromkeys(names, np.zeros(2)), 1.0, 20, noise=8.0, laplace_shares=3)


def test_agents_that_expect_another_law_are_in_another_session():
    keys = {name: bytes(32) for name in "abc"}
    plain = Session("run", 0, "all", keys, 1, 1.0, 20, 8.0)
    assert plain.tag != Session("run", 0, "all", keys, 1, 1.0, 20, 8.0, laplace_shares=1).tag
