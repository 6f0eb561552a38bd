"""Noise and coins of the real gate, as statistics with a fixed rate of false alarms.

ALARM is what each statistic may cry wolf with: 1e-5, two-sided where it has two sides. There are fewer than fifty, so
all together stay below 5e-4, at fixed roots. Every check is also turned on a broken twin, which it must catch.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from silograph.privacy.bound import Bounded
from silograph.privacy.door import Door
from silograph.privacy.gate import Gate
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian, Laplace, grid_step, perturb
from silograph.privacy.samplers import Keystream

ALARM = 1e-5
SIZE, SILOS, ROUNDS, SITES = 400, ("a", "b", "c"), 6, ("x", "y")


def drawn(mechanism, root=5, ledger=None, rounds=range(ROUNDS)):
    """Noise over what the ledger says it is, by silo, round and release point: (silos, rounds, points, SIZE)."""
    door = Door(root, Ledger() if ledger is None else ledger, mechanism)
    out = np.empty((len(SILOS), len(rounds), len(SITES), SIZE))
    value = np.tile(np.linspace(-3.0, 3.0, SIZE), (len(SILOS), 1))
    for i, number in enumerate(rounds):
        gate = door.gate(SILOS, number)
        for j, site in enumerate(SITES):
            out[:, i, j] = gate.release(Bounded(value, np.array([1.0, 0.5, 2.0]), "u", "w"), site).value - value
        door.sync()
    noise = {row.place: row.noise for row in door.ledger.rows}
    scale = [[[noise[silo, number, site] for site in SITES] for number in rounds] for silo in SILOS]
    return out / np.array(scale)[..., None]


def scale_alarm(noise, law):
    """Chi-square of all squares: of the noise being larger or smaller than stated."""
    deviation = noise.std() / law.std()
    kurtosis = float(law.stats(moments="k"))
    z = (deviation**2 - 1.0) / math.sqrt((2.0 + kurtosis) / noise.size)
    return 2.0 * stats.norm.sf(abs(z))


def shape_alarm(noise, law):
    return stats.kstest(noise.ravel(), law.cdf).pvalue


def dependence_alarm(noise):
    """The largest correlation between any two places, Bonferroni's; of the numbers, and of their sizes."""
    rows = noise.reshape(-1, SIZE)
    chances = []
    for values in (rows, np.abs(rows)):
        z = (values - values.mean(1, keepdims=True)) / values.std(1, keepdims=True)
        largest = np.abs(z @ z.T / math.sqrt(SIZE))[np.triu_indices(len(z), 1)]
        chances.append(min(1.0, largest.size * 2.0 * stats.norm.sf(largest.max())))
    return min(chances)


KINDS = pytest.mark.parametrize(("mechanism", "law"), [(Gaussian(2.0), stats.norm()), (Laplace(0.3), stats.laplace())])


@KINDS
def test_noise_has_its_scale_its_shape_and_no_memory(mechanism, law):
    noise = drawn(mechanism)
    assert scale_alarm(noise, law) > ALARM
    assert shape_alarm(noise, law) > ALARM
    assert dependence_alarm(noise) > ALARM


@KINDS
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_less_noise_than_stated_is_caught(mechanism, law, share, monkeypatch):
    def less(value, l2, mechanism, stream, out=None):
        return perturb(value, l2, replace(mechanism, multiplier=share * mechanism.multiplier), stream, out)

    monkeypatch.setattr("silograph.privacy.mechanisms.perturb", less)
    assert scale_alarm(drawn(mechanism), law) < ALARM


FORGET = {
    "silo": lambda root, silo, round, release_point: Keystream(root, "", round, release_point),
    "round": lambda root, silo, round, release_point: Keystream(root, silo, 0, release_point),
    "release_point": lambda root, silo, round, release_point: Keystream(root, silo, round, ""),
}


@pytest.mark.parametrize("forgotten", list(FORGET))
def test_noise_that_is_used_again_is_caught(forgotten, monkeypatch):
    monkeypatch.setattr("silograph.privacy.mechanisms.Keystream", FORGET[forgotten])
    assert dependence_alarm(drawn(Gaussian(2.0))) < ALARM


def test_a_resumed_run_repeats_what_was_sent_and_goes_on_with_new_noise(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    first = drawn(Gaussian(2.0), ledger=Ledger(ledger), rounds=range(3))
    rows = len(Ledger(ledger).rows)
    resumed = drawn(Gaussian(2.0), ledger=Ledger(ledger))
    np.testing.assert_array_equal(resumed[:, :3], first)  # the same bytes again, and no row more for them
    assert len(Ledger(ledger).rows) == 2 * rows
    assert dependence_alarm(resumed) > ALARM
    twin = np.concatenate([first, first], axis=1)  # goes on with the old noise
    assert dependence_alarm(twin) < ALARM


def test_two_runs_share_no_noise():
    both = np.concatenate([drawn(Gaussian(2.0), root) for root in (5, 6)])
    assert dependence_alarm(both) > ALARM


def low_bits(value, mechanism, root):
    """Whether the grid's last bit is set in each coordinate of a release."""
    out = perturb(np.full(20_000, value), 1.0, mechanism, Keystream(root, "a", 0, "x"))
    return np.mod(np.rint(out / grid_step(1.0, 20_000)), 2.0)


@KINDS
def test_the_grid_tells_nothing_of_the_value(mechanism, law):
    """The last bit of a release is a fair coin whatever was released; of float noise it is not."""
    for k, value in enumerate((0.0, 0.1, math.pi)):
        odd = int(low_bits(value, mechanism, k).sum())
        assert stats.binomtest(odd, 20_000).pvalue > ALARM
    # The twin adds floats: which of them come out depends on the value.
    noise = np.random.default_rng(0).normal(size=20_000)
    twin = [set(value + noise) for value in (0.0, 0.1)]
    assert len(twin[0] & twin[1]) < 20


# ---- Poisson samples -------------------------------------------------------------------------------------------------

RATE, COINS, STEPS = 0.2, 30, 400


def coins(release_point="q"):
    """(rounds, silos, records): who is in."""
    door = Door(7, Ledger(), Gaussian(1.0))
    counts = np.full(len(SILOS), COINS)
    return np.stack([door.gate(SILOS, t).poisson(counts, RATE, release_point, "p").chosen for t in range(STEPS)])


def rate_alarm(chosen):
    return stats.binomtest(int(chosen.sum()), chosen.size, RATE).pvalue


def size_alarm(chosen):
    """Sizes of samples vary as a binomial's: chi-square, two-sided."""
    sizes = chosen.sum(-1).ravel()
    value = ((sizes - COINS * RATE) ** 2).sum() / (COINS * RATE * (1.0 - RATE))
    below = stats.chi2.cdf(value, sizes.size)
    return 2.0 * min(below, 1.0 - below)


def coin_alarm(chosen):
    """The largest correlation of any two records, and of a record's coins in rounds one to three apart."""
    z = (chosen.reshape(STEPS, -1) - RATE) / math.sqrt(RATE * (1.0 - RATE))
    between = np.abs(z.T @ z / math.sqrt(STEPS))[np.triu_indices(z.shape[1], 1)]
    over = np.array([np.abs((z[lag:] * z[:-lag]).sum(0)) / math.sqrt(STEPS - lag) for lag in (1, 2, 3)])
    largest, many = max(between.max(), over.max()), between.size + over.size
    return min(1.0, many * 2.0 * stats.norm.sf(largest))


def test_samples_have_their_rate_their_sizes_and_no_memory():
    chosen = coins()
    assert rate_alarm(chosen) > ALARM
    assert size_alarm(chosen) > ALARM
    assert coin_alarm(chosen) > ALARM
    other = coins("another site")
    assert coin_alarm(np.concatenate([chosen[:, :1], other[:, :1]], 1)) > ALARM


def test_a_sample_that_is_kept_is_caught(monkeypatch):
    """Charged as a new one every round: the coins of different rounds are the same."""
    sample = Gate.poisson

    def kept(gate, counts, rate, release_point, part):
        return sample(Gate(gate.door, gate.silos, gate.round // 2, gate.observer), counts, rate, release_point, part)

    monkeypatch.setattr(Gate, "poisson", kept)
    assert coin_alarm(coins()) < ALARM


def test_larger_samples_and_samples_of_a_fixed_size_are_caught(monkeypatch):
    rng = np.random.default_rng(0)
    fixed = rng.random((STEPS, len(SILOS), COINS)).argsort(-1) < round(RATE * COINS)
    assert size_alarm(fixed) < ALARM
    sample = Gate.poisson
    monkeypatch.setattr(
        Gate,
        "poisson",
        lambda gate, counts, rate, release_point, part: sample(gate, counts, 1.1 * rate, release_point, part),
    )
    assert rate_alarm(coins()) < ALARM
