"""Small audits of the default release: the attack stays below the accounted epsilon, and broken twins do not.

Worst-case canary: all records are zero except the one that is present or replaced, so the release differs by exactly
its sensitivity, and the likelihood ratio of the Gaussian is a projection on that difference. Clopper-Pearson bounds of
the two error rates (99.9 % per side, 2 x 1500 trials) give a lower bound on mu and so on epsilon: a sound mechanism is
accused with probability below 0.002, at fixed seeds.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import beta, norm

from silograph.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from silograph.privacy.bound import Bounded, clip_rows
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.tasks.smooth_graph import SmoothGraph, to_coordinates

NODES, RECORDS, TRIALS = 6, 40, 3000
EPSILON, DELTA = 3.0, 1e-3


def canary_pair(length=1.0):
    """Two neighbouring tables whose clipped moments differ by the whole sensitivity: orthogonal unit signals."""
    one, other = np.zeros((2, RECORDS, NODES))
    one[0, :2] = length * np.array([1.0, -1.0]) / math.sqrt(2.0)
    other[0, 2:4] = length * np.array([1.0, -1.0]) / math.sqrt(2.0)
    return one, other


def lower_bound(task, multiplier, pair, confidence=0.999):
    """Empirical epsilon of the real release through the real gate."""
    values = [task.bounded({k: v[None] for k, v in task.prepare(table).items()}) for table in pair]
    direction = (values[0].value - values[1].value).ravel()
    scores = []
    for which, bounded in enumerate(values):
        door = Door(which, Ledger(), Gaussian(multiplier))
        # One gate, many rounds: every trial has its own stream of noise.
        scores.append([door.gate(["a"], t).release(bounded, "moment").value.ravel() @ direction for t in range(TRIALS)])
    scores = np.array(scores)
    tuning, held = scores[:, ::2], scores[:, 1::2]  # the threshold is chosen on half the trials, judged on the other
    hits, alarms = (held > tuning.mean()).sum(1)
    n = held.shape[1]
    power, false = beta.ppf(1 - confidence, hits, n - hits + 1), beta.ppf(confidence, alarms + 1, n - alarms)
    mu = norm.ppf(power) - norm.ppf(false)
    return gaussian_epsilon(mu, DELTA) if mu > 0.0 else 0.0


def test_the_attack_stays_below_the_accounted_epsilon_and_comes_near_it():
    found = lower_bound(SmoothGraph(NODES, "moment"), gaussian_multiplier(EPSILON, DELTA, 1), canary_pair())
    assert 0.5 * EPSILON < found <= EPSILON


def test_half_the_noise_is_caught():
    assert (
        lower_bound(SmoothGraph(NODES, "moment"), 0.5 * gaussian_multiplier(EPSILON, DELTA, 1), canary_pair()) > EPSILON
    )


@dataclass(frozen=True)
class Unclipped(SmoothGraph):
    """A twin that forgot to clip."""

    def prepare(self, signals):
        centred = signals - signals.mean(1, keepdims=True)
        moment = centred.T @ centred / len(signals)
        return {"moment": to_coordinates(moment[1:, 1:]), "count": np.array(float(len(signals)))}


@dataclass(frozen=True)
class MeanClipped(SmoothGraph):
    """A twin that clips the mean instead of each record."""

    def prepare(self, signals):
        centred = signals - signals.mean(1, keepdims=True)
        vector = to_coordinates((centred.T @ centred / len(signals))[1:, 1:])
        return {"moment": clip_rows(vector, 1.0), "count": np.array(float(len(signals)))}


@pytest.mark.parametrize("twin", [Unclipped, MeanClipped])
def test_a_missing_clip_is_caught(twin):
    assert lower_bound(twin(NODES, "moment"), gaussian_multiplier(EPSILON, DELTA, 1), canary_pair(3.0)) > EPSILON


def test_reused_noise_is_caught():
    """Two releases with the same noise: their difference is exact, whatever the noise."""
    task, multiplier = SmoothGraph(NODES, "moment"), gaussian_multiplier(EPSILON, DELTA, 2)
    one, other = (task.bounded({k: v[None] for k, v in task.prepare(t).items()}) for t in canary_pair())
    zero = Bounded(np.zeros_like(one.value), one.l2, "u", "w")
    gate = Door(1, Ledger(), Gaussian(multiplier)).gate(["a"], 0)
    sound = [gate.release(one, "x").value - gate.release(zero, "y").value]
    twin_door = [Door(1, Ledger(), Gaussian(multiplier)).gate(["a"], 0) for _ in range(2)]
    reused = twin_door[0].release(one, "x").value - twin_door[1].release(zero, "x").value
    np.testing.assert_allclose(reused, one.value, atol=1e-6)
    assert np.abs(sound[0] - one.value).max() > 1e-3
    assert not np.allclose(one.value, other.value)
