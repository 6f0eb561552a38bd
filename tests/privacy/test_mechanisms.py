"""Noise is what its ledger row says. Each statistical test has a false-alarm rate of 1e-4, at fixed seeds."""

import math

import numpy as np
import pytest
from scipy import stats

from silograph.core.keys import stream
from silograph.privacy.mechanisms import Gaussian, Laplace, grid_step, on_grid, perturb
from silograph.privacy.samplers import Keystream, discrete_laplace

ALARM = 1e-4
SIZE = 20_000


@pytest.mark.parametrize(
    ("mechanism", "law"), [(Gaussian(3.0), lambda s: stats.norm(0, s)), (Laplace(3.0), lambda s: stats.laplace(0, s))]
)
@pytest.mark.parametrize("l2", [1e-6, 1.0, 1e4])
def test_noise_has_the_stated_law(mechanism, law, l2):
    value = np.linspace(-5 * l2, 5 * l2, SIZE)
    noise = perturb(value, l2, mechanism, Keystream(1, "a", 0, "x")) - value
    scale = mechanism.scale(on_grid(l2, SIZE), SIZE)
    assert stats.kstest(noise, law(scale).cdf).pvalue > ALARM
    # Variance: its estimate is within 5 standard errors (two-sided rate below 1e-6).
    deviation = mechanism.deviation(on_grid(l2, SIZE), SIZE)
    kurtosis = 3.0 if isinstance(mechanism, Gaussian) else 6.0
    assert np.var(noise) / deviation**2 == pytest.approx(1.0, abs=5.0 * math.sqrt((kurtosis - 1.0) / SIZE))


def test_halved_noise_is_noticed():
    """The broken twin: the same test on noise of half the scale."""
    value = np.zeros(SIZE)
    noise = perturb(value, 1.0, Gaussian(1.5), Keystream(1, "a", 0, "x"))
    assert stats.kstest(noise, stats.norm(0, 3.0).cdf).pvalue < ALARM


def test_everything_lies_on_the_grid_whatever_the_value():
    """Low-order bits must not tell which of two close values was noised."""
    l2, rng = 0.37, np.random.default_rng(0)
    value = rng.normal(size=500)
    out = perturb(value, l2, Gaussian(1.0), Keystream(1, "a", 0, "x"))
    steps = out / grid_step(l2, 500)
    np.testing.assert_array_equal(steps, np.rint(steps))


def test_plain_float_noise_leaks_through_low_bits_and_the_grid_does_not():
    """Sums of a value and float noise reach different floats for different values; on the grid both reach all."""
    noise = np.random.default_rng(1).normal(size=4000)
    plain = [set(np.float64(v) + noise) for v in (0.0, 0.1)]
    assert len(plain[0] & plain[1]) < 10
    gridded = [perturb(np.full(4000, v), 1.0, Gaussian(1e-3), Keystream(2, "a", 0, "x")) for v in (0.0, 0.1)]
    step = grid_step(1.0, 4000)
    assert all((np.mod(g / step, 1.0) == 0.0).all() for g in gridded)


@pytest.mark.parametrize("dim", [1, 190, 100_000])
@pytest.mark.parametrize("l2", [1e-9, 0.3, 7e5])
def test_rounding_to_the_grid_is_charged(l2, dim):
    assert l2 < on_grid(l2, dim) <= l2 * (1 + 2.0**-22)
    # Worst case: every coordinate of two neighbours rounded half a step apart, on top of l2.
    assert l2 + grid_step(l2, dim) * math.sqrt(dim) <= on_grid(l2, dim)


def test_absurd_values_are_held_not_refused():
    """Whether a silo fails may not depend on its data; holding a value brings no two values further apart."""
    out = perturb(np.array([1e30, -1e30]), 1e-6, Gaussian(1.0), Keystream(1, "a", 0, "x"))
    assert np.isfinite(out).all()
    assert out[0] > 1e3 > -1e3 > out[1]


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5])
def test_the_laplace_has_the_stated_mass_at_every_integer(scale):
    """Chi-square over all integers with at least 20 expected draws (rate 1e-4)."""
    support = np.arange(-4000, 4001)
    expected = np.exp(-np.abs(support) / scale)
    expected *= 100_000 / expected.sum()
    drawn = discrete_laplace(Keystream(3, "a", 0, "x"), scale, 100_000)
    often = expected >= 20.0
    counts = np.array([np.count_nonzero(drawn == k) for k in support[often]])
    counts, wanted = (np.append(x, 100_000 - x.sum()) for x in (counts, expected[often]))
    statistic = ((counts - wanted) ** 2 / np.maximum(wanted, 1.0)).sum()
    assert stats.chi2.sf(statistic, often.sum()) > ALARM


def test_the_tail_has_no_holes():
    """Floating-point noise misses most grid points far out; here every low bit is a fair coin there (rate 1e-4)."""
    drawn = discrete_laplace(Keystream(5, "a", 0, "x"), 1e9, 400_000)
    tail = np.abs(drawn[np.abs(drawn) > 8e9])
    assert len(tail) > 50
    odd = np.count_nonzero(tail & 1)
    assert stats.binomtest(odd, len(tail)).pvalue > ALARM


def test_streams_are_independent_across_every_part_of_their_name():
    """Correlation of 20000 draws of different names stays within 4.5 standard errors (rate 7e-6 each)."""
    names = [(1, "a", 0, "x"), (2, "a", 0, "x"), (1, "b", 0, "x"), (1, "a", 1, "x"), (1, "a", 0, "y"), (1, "ax", 0, "")]
    draws = np.array([stream(*name).normal(size=SIZE) for name in names])
    correlation = np.corrcoef(draws) - np.eye(len(names))
    assert np.abs(correlation).max() < 4.5 / math.sqrt(SIZE)


def test_the_same_name_gives_the_same_numbers():
    np.testing.assert_array_equal(stream(1, "a", 0, "x").normal(size=5), stream(1, "a", 0, "x").normal(size=5))
