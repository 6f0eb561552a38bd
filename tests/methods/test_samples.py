"""Samples of records are samples, and what is released from them costs what is accounted.

False alarms, at fixed seeds: below 1e-4 for all statistics of samples together, below 0.002 for an audit.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from silograph.core.errors import BudgetError
from silograph.methods.meta_baselines import LocalTraining
from silograph.methods.private_meta import QUERY, SUPPORT, PrivateMeta, divided
from silograph.privacy.accounting import (
    Planned,
    cost,
    sampled_epsilon,
    sampled_multiplier,
)
from silograph.privacy.door import Budget, Door
from silograph.privacy.gate import Gate
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.run.loop import ENGINES, rounds
from silograph.topology import star

torch = pytest.importorskip("torch", reason="neural networks need the extra `neural`")

from torch import nn  # noqa: E402

from silograph.tasks.networks import initialise, mlp  # noqa: E402
from silograph.tasks.neural import Neural  # noqa: E402

FEATURES, CLASSES = 5, 3
SIZES = {"cyd": 31, "ada": 24, "dan": 40, "bob": 13}
ROUNDS, RATE, EPSILON, DELTA = 4, 0.5, 1.0, 1e-4


def tables(sizes=SIZES):
    """Name -> records; each client's from its own stream."""
    out = {}
    for name, n in sizes.items():
        rng = np.random.default_rng(list(name.encode()))
        out[name] = rng.standard_normal((n, FEATURES)), rng.integers(0, CLASSES, n)
    return out


TASK = Neural(initialise(mlp(FEATURES, CLASSES, (4,)), 2), (FEATURES,), CLASSES)
SIGMA = sampled_multiplier(EPSILON, DELTA, RATE, ROUNDS)


def played(kind, mechanism=None, budget=None, rows=(), engine="vector", begun=None, **options):
    """The states of a run, and its door."""
    topo = star(list(SIZES))
    data = divided([tables()[name] for name in topo.silos], topo.silos, 5)
    method = kind(TASK, tuple(map(int, data[SUPPORT])), ROUNDS, rate=RATE, **options)
    door = Door(5, Ledger(), mechanism, budget)
    door.ledger.append(rows)
    return list(rounds(method, topo, ENGINES[engine](data, topo, door), door, begun)), door


def private(sigma=SIGMA, **more):
    budget = Budget(EPSILON, DELTA, planned=Planned(SIGMA, RATE, ROUNDS))
    return played(PrivateMeta, Gaussian(sigma), budget, clip=0.5, curvature_clip=0.2, **more)


# ---- the budget ------------------------------------------------------------------------------------------------------


def test_a_resumed_run_has_no_second_budget():
    """The rows of the first run count, planned or not."""
    (*_, last), door = private()
    with pytest.raises(BudgetError):
        private(rows=door.ledger.rows, begun=replace(last, servers={**last.servers, "round": np.int64(0)}))


def test_less_noise_than_planned_is_refused():
    with pytest.raises(BudgetError):
        private(0.4 * SIGMA)


def test_what_private_starts_are_held_against_is_the_same_in_both_engines_and_goes_on():
    """FedAvg is no method of a plan, so the contract suite does not know it. To the rounding of single precision."""
    states, _ = played(LocalTraining, step=0.5, steps=2)
    others, _ = played(LocalTraining, engine="silowise", step=0.5, steps=2)
    one, other = (found[-1].servers["model"] for found in (states, others))
    assert np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(one)
    resumed, _ = played(LocalTraining, begun=states[1], step=0.5, steps=2)
    np.testing.assert_array_equal(resumed[-1].servers["model"], one)


# ---- samples are samples ---------------------------------------------------------------------------------------------


class Watching:
    """A task without a model: it writes down whose records take part."""

    start = np.zeros(1)

    def __init__(self):
        self.chosen = []

    def at(self, models, x, y, chosen, rate):
        self.chosen.append(np.array(chosen))
        return self

    def gradient(self, clip):
        return np.zeros((len(self.chosen[-1]), 1))

    def curvature(self, direction, clip):
        return np.zeros((len(self.chosen[-1]), 1))


COINS_RATE, COINS_ROUNDS, COINS_STEPS, RECORDS = 0.2, 600, 2, 24
ALARM = 1e-5  # for each of at most ten statistics, two-sided


@pytest.fixture(scope="module")
def coins():
    """(time, clients, sets, records): who took part in each local step, in the order in which they were made."""
    names, watching = ["ada", "bob", "cyd"], Watching()
    topo = star(names)
    data = divided([(np.zeros((2 * RECORDS, 1)), np.zeros(2 * RECORDS))] * 3, topo.silos, 0)
    method = PrivateMeta(
        watching, (RECORDS,) * 3, COINS_ROUNDS, local_steps=COINS_STEPS, rate=COINS_RATE, clip=1.0, order="first"
    )
    door = Door(1, Ledger(), Gaussian(1.0))
    for _ in rounds(method, topo, ENGINES["vector"](data, topo, door), door):
        pass
    assert len(watching.chosen) == 2 * COINS_STEPS * COINS_ROUNDS  # query, support, query, ...
    return np.stack(watching.chosen).reshape(-1, 2, 3, RECORDS).transpose(0, 2, 1, 3)


def frequencies(coins):
    """Chi-square of how often each record was in: its quantile."""
    time = len(coins)
    counts = coins.sum(0).ravel()
    squares = (counts - time * COINS_RATE) ** 2 / (time * COINS_RATE * (1.0 - COINS_RATE))
    return stats.chi2.cdf(squares.sum(), counts.size)


def sizes(coins):
    """Chi-square of a sample's size over time, as a binomial's: its quantile."""
    sizes = coins.sum(-1).ravel()
    variance = RECORDS * COINS_RATE * (1.0 - COINS_RATE)
    return stats.chi2.cdf(((sizes - RECORDS * COINS_RATE) ** 2).sum() / variance, sizes.size)


def scores(coins):
    """(time, all coins), standardised."""
    flat = coins.reshape(len(coins), -1).astype(float)
    return (flat - COINS_RATE) / math.sqrt(COINS_RATE * (1.0 - COINS_RATE))


def between_coins(coins):
    """The largest correlation of any two records, of any clients and sets: its chance, Bonferroni's."""
    z = scores(coins)
    correlations = np.abs(z.T @ z)[np.triu_indices(z.shape[1], 1)] / math.sqrt(len(z))
    return min(1.0, correlations.size * 2.0 * stats.norm.sf(correlations.max()))


def over_time(coins):
    """The same between a record's coins of local steps up to four apart."""
    z = scores(coins)
    lags = [np.abs((z[lag:] * z[:-lag]).sum(0)) / math.sqrt(len(z) - lag) for lag in range(1, 5)]
    return min(1.0, np.size(lags) * 2.0 * stats.norm.sf(np.max(lags)))


def is_fair(quantile):
    return ALARM < quantile < 1.0 - ALARM


def test_every_record_is_in_a_sample_with_its_own_chance(coins):
    assert is_fair(frequencies(coins))
    assert is_fair(sizes(coins))
    low, high = stats.binom.ppf([ALARM, 1.0 - ALARM], coins.size, COINS_RATE)
    assert low < coins.sum() < high
    # Sizes of samples, as a whole distribution: tails of less than 1 % are taken together.
    expected = stats.binom.pmf(np.arange(RECORDS + 1), RECORDS, COINS_RATE)
    found = np.bincount(coins.sum(-1).ravel(), minlength=RECORDS + 1)
    common = expected > 0.01
    pairs = [np.append(counts[common], counts[~common].sum()) for counts in (found, expected * found.sum())]
    assert stats.chisquare(*pairs).pvalue > ALARM


def test_coins_of_records_sets_clients_steps_and_rounds_are_independent(coins):
    assert between_coins(coins) > ALARM
    assert over_time(coins) > ALARM
    query, support = (scores(coins[:, :, part : part + 1]) for part in (0, 1))
    together = (query * support).sum() / math.sqrt(query.size)  # the record of the same number in the other set
    assert abs(together) < stats.norm.isf(ALARM / 2.0)


def drawn(rng, shape=(COINS_ROUNDS * COINS_STEPS, 3, 2)):
    return rng.random((*shape, RECORDS)) < COINS_RATE


def test_samples_of_a_fixed_size_are_caught():
    """Shuffled and cut off: every record has the right chance, but sizes never vary."""
    rng = np.random.default_rng(0)
    order = rng.random((COINS_ROUNDS * COINS_STEPS, 3, 2, RECORDS)).argsort(-1)
    fixed = order < round(COINS_RATE * RECORDS)
    assert not is_fair(sizes(fixed))


def test_dependent_samples_are_caught():
    rng = np.random.default_rng(0)
    fair = drawn(rng)
    assert between_coins(fair) > ALARM
    assert over_time(fair) > ALARM
    same_sets = fair.copy()
    same_sets[:, :, 1] = same_sets[:, :, 0]
    assert between_coins(same_sets) < ALARM
    same_clients = fair.copy()
    same_clients[:, 2] = same_clients[:, 0]
    assert between_coins(same_clients) < ALARM
    kept = fair.copy()
    kept[1::2] = kept[::2]  # the second step takes the first one's sample
    assert over_time(kept) < ALARM
    assert not is_fair(frequencies(np.repeat(fair[:1], len(fair), 0)))  # the same one for ever


# ---- audit -----------------------------------------------------------------------------------------------------------

AUDIT_RATE, AUDIT_DELTA, TUNING, JUDGED = 0.3, 1e-2, 500, 1500


def lower_bound(multiplier, monkeypatch, confidence=0.999):
    """Empirical epsilon of R1 in the real local step, through the real gate; and what its ledger row costs.

    Every client is a trial. Its other query record has no gradient; the canary's is clipped to all of the clip, in a
    direction that the attacker knows, or its place is empty: a record of zeros, which has no gradient either.
    """
    task = Neural(initialise(nn.Sequential(nn.Linear(2, 1, bias=False)), 1), (2,), 1, "squared")
    trials = TUNING + JUDGED
    topo = star([f"{k:05d}" for k in range(2 * trials)])
    data = {
        QUERY: np.full(2 * trials, 2),
        f"{QUERY}_x": np.zeros((2 * trials, 2, 2)),
        f"{QUERY}_y": np.zeros((2 * trials, 2)),
        SUPPORT: np.ones(2 * trials, dtype=int),
        f"{SUPPORT}_x": np.zeros((2 * trials, 1, 2)),
        f"{SUPPORT}_y": np.zeros((2 * trials, 1)),
    }
    data[f"{QUERY}_x"][:trials, 0], data[f"{QUERY}_y"][:trials, 0] = (1e3, 0.0), -1e6
    method = PrivateMeta(task, (1,) * 2 * trials, 1, rate=AUDIT_RATE, clip=1.0)
    door, release, noisy = Door(3, Ledger(), Gaussian(multiplier)), Gate.release, {}

    def spy(gate, bounded, release_point, batch=None, share=1.0):
        noisy[release_point] = release(gate, bounded, release_point, batch, share)
        return noisy[release_point]

    monkeypatch.setattr(Gate, "release", spy)
    list(rounds(method, topo, ENGINES["vector"](data, topo, door), door))
    score = noisy["inner 0"].value[:, 0].reshape(2, trials)  # with and without the canary

    def bound(held, threshold):
        hits, alarms = (held > threshold).sum(1)
        n = held.shape[1]
        power = stats.beta.ppf(1.0 - confidence, hits, n - hits + 1) if hits else 0.0
        return math.log(max(power - AUDIT_DELTA, 1e-9) / stats.beta.ppf(confidence, alarms + 1, n - alarms))

    tuning, held = score[:, :TUNING], score[:, TUNING:]
    best = max(np.quantile(tuning, np.linspace(0.5, 0.995, 100)), key=lambda threshold: bound(tuning, threshold))
    return bound(held, best), cost(
        [row for row in door.ledger.of("00000") if row.release_point == "inner 0"], AUDIT_DELTA
    )


SOUND = 1.0 / math.sqrt(2.0)  # R1's own noise is sqrt(2) times larger


def test_the_attack_on_the_first_release_stays_below_its_accounted_epsilon(monkeypatch):
    found, accounted = lower_bound(SOUND, monkeypatch)
    assert accounted.epsilon == pytest.approx(sampled_epsilon(1.0, AUDIT_RATE, 1, AUDIT_DELTA), rel=1e-4)
    assert 0.0 < found <= accounted.epsilon


def test_half_the_noise_is_caught(monkeypatch):
    found, _ = lower_bound(0.5 * SOUND, monkeypatch)
    assert found > sampled_epsilon(1.0, AUDIT_RATE, 1, AUDIT_DELTA)


def test_a_sample_of_everybody_is_caught(monkeypatch):
    """The twin charges for a sample and takes all records."""
    sample = Gate.poisson

    def everybody(gate, counts, rate, release_point, part):
        batch = sample(gate, counts, rate, release_point, part)
        return replace(batch, chosen=np.arange(batch.chosen.shape[1]) < counts[:, None])

    monkeypatch.setattr(Gate, "poisson", everybody)
    found, accounted = lower_bound(SOUND, monkeypatch)
    assert found > accounted.epsilon
