"""Fixed point is exact, noise has its stated law, and the bound for summed noise holds.

Each statistical test has a false-alarm rate of 1e-4, at fixed seeds (OpenDP's sampler, the oracle, takes no seed).
"""

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from silograph.core.errors import InputError
from silograph.privacy.bound import clip_rows
from silograph.privacy.discrete import (
    _exponent,
    _layers,
    check_share,
    decode,
    discrete_gaussian,
    distributed_rho,
    encode,
    grid_l2,
    word_bits,
)

ALARM = 1e-4


def seeded(seed):
    return np.random.default_rng(seed).bytes


def gaussian_pvalue(whole, sigma):
    """Of integers being a Gaussian rounded to the grid: blurred over their steps, by Kolmogorov and Smirnov."""
    blurred = whole + np.random.default_rng(4).uniform(-0.5, 0.5, whole.size)
    return stats.kstest(blurred, stats.norm(0, sigma).cdf).pvalue


def law(sigma, reach):
    """Probabilities of -reach..reach."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * sigma**2))
    return weights / weights.sum()


# ---- fixed point -----------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.integers(0, 30))
def test_encoding_is_off_by_at_most_half_a_step_and_grid_points_by_nothing(numbers, fraction_bits):
    vector, step = np.array(numbers), 2.0**-fraction_bits
    whole = encode(vector, 1e5, fraction_bits)
    assert np.abs(decode(whole, fraction_bits) - vector).max() <= step / 2
    np.testing.assert_array_equal(encode(decode(whole, fraction_bits), 1e5, fraction_bits), whole)
    assert math.sqrt(sum(int(w) ** 2 for w in whole)) <= grid_l2(np.linalg.norm(vector), fraction_bits, len(vector))


def test_a_longer_vector_is_refused_and_a_clipped_one_is_not():
    vector = np.full(9, 2.0)
    with pytest.raises(InputError, match=r"length at most the clip 1, but found length 6"):
        encode(vector, 1.0, 16)
    encode(clip_rows(vector, 1.0), 1.0, 16)
    encode(np.array([0.0, -1.0]), 1.0, 16)
    for wrong in (math.nan, math.inf):
        with pytest.raises(InputError, match="finite"):
            encode(np.array([wrong]), 1.0, 16)


def test_words_are_as_wide_as_the_sum_needs_and_overflow_is_refused():
    assert word_bits(1.0, 24, 64) == 32  # 24 + 0 + 6 + 2
    assert word_bits(1.0, 24, 65) == 64
    assert word_bits(8.0, 53, 64) == 64  # 53 + 3 + 6 + 2
    with pytest.raises(InputError, match=r"could overflow. Use at most 53 fraction bits"):
        word_bits(8.0, 54, 64)
    assert word_bits(1.0, 20, 4, noise=2.0**24) == 32
    assert word_bits(1.0, 20, 4, noise=2.0**27) == 64
    for clip in (0.0, -1.0, 1e-9, math.inf, math.nan):
        with pytest.raises(InputError, match="at least one grid step"):
            word_bits(clip, 16, 3)


# ---- the sampler -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 1.9, 2.5, 7.3])
def test_noise_is_the_discrete_gaussian(sigma):
    drawn = discrete_gaussian(seeded(1), sigma, 100_000)
    reach = 60
    expected = law(sigma, reach) * drawn.size
    counts = np.bincount(drawn + reach, minlength=2 * reach + 1)
    tails = expected < 10.0
    if tails.any():
        expected = np.append(expected[~tails], expected[tails].sum())
        counts = np.append(counts[~tails], counts[tails].sum())
    assert stats.chisquare(counts, expected).pvalue > ALARM


@pytest.mark.parametrize("sigma", [0.8, 3.0, 20.0])
def test_noise_agrees_with_opendp(sigma):
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=sigma)([0] * 20_000))
    ours = discrete_gaussian(seeded(2), sigma, 20_000)
    edges = np.unique(np.round(sigma * np.linspace(-3.0, 3.0, 25))) + 0.5
    table = [np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in (ours, theirs)]
    assert stats.chi2_contingency(table).pvalue > ALARM


@pytest.mark.parametrize("sigma", [50.0, 1e6 + 0.5, 2.0**40])
def test_large_noise_is_gaussian_to_the_eye_of_a_test(sigma):
    """Rounding at these sizes is below what 100 000 draws can tell."""
    drawn = discrete_gaussian(seeded(3), sigma, 100_000)
    assert gaussian_pvalue(drawn, sigma) > ALARM
    # Mean and variance within 3.9 standard errors: rate 1e-4 each.
    assert abs(drawn.mean()) < 3.9 * sigma / math.sqrt(drawn.size)
    assert drawn.var() / sigma**2 == pytest.approx(1.0, abs=3.9 * math.sqrt(2.0 / drawn.size))


def test_the_law_test_notices_a_wrong_scale():
    """The broken twin: two per cent less noise."""
    assert gaussian_pvalue(discrete_gaussian(seeded(3), 49.0, 400_000), 50.0) < ALARM


@pytest.mark.parametrize("sigma", [0.7, 12.34, 1e5 / 3.0, 2.0**40])
def test_the_exponent_is_accurate_enough_for_the_stated_error(sigma):
    """Against exact rational arithmetic, out to 30 sigma: an error below 2^-41, half of what is charged."""
    rng, block = np.random.default_rng(5), math.floor(sigma) + 1
    offset = rng.integers(0, block, 300)
    magnitude = offset + block * rng.integers(0, math.ceil(30 * sigma / block), 300)
    for o, m in zip(offset.tolist(), magnitude.tolist(), strict=True):
        g = _exponent(o, m, sigma)
        s = Fraction(sigma)
        exact = Fraction(o, block) + (m - s * s / block) ** 2 / (2 * s * s)
        assert abs(Fraction(float(g)) - exact) < Fraction(1, 2**41)


@pytest.mark.parametrize("sigma", [1024.0, 1500.3, 77_777.7])
def test_the_layers_make_up_the_curve(sigma):
    """The law that the sampler's own tables stand for, with every coin's chance as it is thrown, against the curve in
    long doubles: within 2^-40 of each other at every integer, and the mass of the tail too."""
    width, sure, _, low, base = _layers(sigma)
    edge = int(width[0])
    x = np.arange(edge)
    made = np.full(edge, np.longdouble(base) / edge)  # of the lowest layer
    curve = np.exp(-0.5 * (x / sigma) * (x / sigma))
    for layer in range(1, len(width)):
        chance = np.clip((curve[: width[layer]] - low[layer]) / (low[layer + 1] - low[layer]), 0.0, 1.0)
        chance[: sure[layer]] = 1.0
        made[: width[layer]] += np.rint(chance * 2.0**53) / 2.0**53 / np.longdouble(width[layer])
    exact = np.exp(-np.longdouble(0.5) * (x.astype(np.longdouble) / np.longdouble(sigma)) ** 2)
    beyond = np.arange(edge, 40 * int(sigma)).astype(np.longdouble) / np.longdouble(sigma)
    tail = np.exp(-np.longdouble(0.5) * beyond**2).sum()
    scale = made[0] / exact[0]
    assert np.abs(made / exact / scale - 1.0).max() < 2.0**-40
    assert abs((1 - np.longdouble(base)) / tail / scale - 1.0) < 2.0**-40


def test_the_same_bytes_give_the_same_noise_and_nothing_else_is_read():
    np.testing.assert_array_equal(discrete_gaussian(seeded(6), 3.0, 50), discrete_gaussian(seeded(6), 3.0, 50))
    assert discrete_gaussian(seeded(6), 3.0, 0).size == 0


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**41])
def test_impossible_parameters_are_refused(sigma):
    with pytest.raises(InputError, match="discrete Gaussian"):
        discrete_gaussian(seeded(0), sigma, 1)


# ---- the sum of many agents' noise -----------------------------------------------------------------------------------


def test_shares_add_up_to_the_wanted_noise():
    """67 contributors' noise, back on the scale of the data, has the wanted deviation; more have more."""
    sigma, bits, contributors = 0.05, 12, 67
    share = sigma * 2.0**bits / math.sqrt(contributors)
    noise = discrete_gaussian(seeded(7), share, contributors * 20_000).reshape(contributors, -1)
    summed = noise.sum(0)
    assert decode(summed, bits).std() / sigma == pytest.approx(1.0, abs=3.9 / math.sqrt(2 * 20_000))  # rate 1e-4
    assert gaussian_pvalue(summed, sigma * 2.0**bits) > ALARM
    with pytest.raises(InputError, match=r"grid steps, but found 0\.195"):
        check_share(sigma * 2.0**5 / math.sqrt(contributors))


def divergence(p, shift):
    """The worst of D_order / order between p and p shifted, by brute force, where both are representable."""
    one, two = p[shift:], p[:-shift]
    both = (one > 1e-300) & (two > 1e-300)
    logs = np.log(one[both]), np.log(two[both])
    return max(
        logsumexp(order * a + (1.0 - order) * b) / (order - 1.0) / order
        for order in (1.001, 1.1, 1.5, 2.0, 3.0, 8.0, 20.0)
        for a, b in (logs, logs[::-1])
    )


@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0, 2.0])
@pytest.mark.parametrize("contributors", [1, 2, 3, 7, 20])
def test_the_bound_dominates_the_true_divergence(sigma, contributors):
    """In one dimension and, since independent coordinates add, in three; and it is at most the published one."""
    summed = one = law(sigma, 60)
    for _ in range(contributors - 1):
        summed = np.convolve(summed, one)
    truth = {shift: divergence(summed, shift) for shift in (1, 2, 3)}
    for shift, worst in truth.items():
        assert worst <= distributed_rho(shift, sigma, contributors, 1)
    assert truth[1] + 2 * truth[2] <= distributed_rho(3.0, sigma, contributors, 3)
    published = 10.0 * sum(math.exp(-2.0 * (math.pi * sigma) ** 2 * k / (k + 1)) for k in range(1, contributors))
    slack = contributors * 2.0**-38
    for shift, length in ((1.0, 1), (3.0, 3), (10.0, 1000)):
        theirs = (shift / (sigma * math.sqrt(contributors)) + published * math.sqrt(length)) ** 2 / 2.0
        assert distributed_rho(shift, sigma, contributors, length) <= theirs * (1.0 + slack) ** 2 + slack * 100


def test_the_extra_term_is_needed():
    """The sum of coarse discrete Gaussians is not as private as the discrete Gaussian of the summed variance."""
    one = law(0.5, 60)
    summed = np.convolve(np.convolve(one, one), one)
    assert divergence(summed, 1) > 1.1 / (2.0 * 3 * 0.5**2)


def test_fine_noise_costs_what_a_gaussian_costs():
    assert distributed_rho(100.0, 40.0, 67, 10_000) == pytest.approx(100.0**2 / (2 * 67 * 40.0**2), rel=1e-7)
    with pytest.raises(InputError, match="share"):
        distributed_rho(1.0, 0.4, 10, 1)
