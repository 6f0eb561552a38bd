"""Bounds from what a server saw: right about simulated organisations whose epsilon is known, blunt where little was
seen."""

import math

import numpy as np
import pytest

from silograph.privacy.accounting import gaussian_epsilon
from silograph.privacy.attacks.sights import CERTAIN, by_event, by_numbers, by_times, telling_event

PAIRS, TUNING, DELTA = 24, 8, 1e-6


def gaussian_answers(rng, mu, questions=3, length=5, coupled=True):
    """Answers with unit noise, whose worlds are mu apart in all questions together."""
    noise = rng.normal(size=(2, PAIRS, questions, length))
    if coupled:
        noise[1] = noise[0]
    noise[1, :, :, 0] += mu / math.sqrt(questions)
    return [[list(trial) for trial in world] for world in noise]


@pytest.mark.parametrize("coupled", [True, False])
def test_a_sound_organisation_is_accused_no_more_often_than_stated(coupled):
    """Of 400 sound organisations at 99 % more than 13 are accused by chance once in 10,000 times."""
    rng, mu = np.random.default_rng(1), 1.0
    spent = gaussian_epsilon(mu, DELTA)
    found = [by_numbers(gaussian_answers(rng, mu, coupled=coupled), TUNING, DELTA, 0.99, True) for _ in range(400)]
    assert sum(bound.epsilon > spent for bound in found) <= 13
    if coupled:  # noise that the worlds do not share leaves so few trials without power, and harmless
        assert np.median([bound.epsilon for bound in found]) > 0.25 * spent


def test_numbers_without_noise_tell_everything_and_equal_ones_nothing():
    rng = np.random.default_rng(2)
    same = gaussian_answers(rng, 0.0)
    assert by_numbers(same, TUNING, DELTA, 0.99, True).epsilon == 0.0
    bare = [[[np.full(3, float(world))] for _ in range(PAIRS)] for world in (0, 1)]
    found = by_numbers(bare, TUNING, DELTA, 0.99, True)
    assert (found.epsilon, found.how) == (math.inf, CERTAIN)


def test_two_answers_with_the_same_noise_are_seen_through():
    """One answer moves with the records, the other has the same noise and does not: their difference has none."""
    rng = np.random.default_rng(3)
    noise = rng.normal(size=PAIRS * 4)
    slack = 1e-3 * rng.normal(size=PAIRS * 4)
    worlds = [
        [[np.array([n + world]), np.array([n + 0.01 * world + s])] for n, s in zip(noise, slack, strict=True)]
        for world in (0, 1)
    ]
    assert by_numbers(worlds, TUNING * 4, DELTA, 0.99, True).epsilon > 100.0


def test_an_answer_beside_a_huge_constant_is_still_looked_at():
    rng = np.random.default_rng(4)
    plain = gaussian_answers(rng, 3.0, questions=1)
    beside = [[[np.append(answer[0], [1e308, np.nan])] for answer in world] for world in plain]
    with np.errstate(all="ignore"):
        assert (
            by_numbers(beside, TUNING, DELTA, 0.99, True).epsilon
            == by_numbers(plain, TUNING, DELTA, 0.99, True).epsilon
        )


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_an_event_is_believed_no_more_than_its_frequencies_allow(epsilon):
    """A refusal with chances e^epsilon apart, in 2000 simulated audits; more than 41 failures come once in 10,000."""
    rng = np.random.default_rng(5)
    chances = (0.3 * math.exp(epsilon), 0.3)
    wrong = 0
    for _ in range(2000):
        seen = [["refused" if u < chance else "answer" for u in rng.random(60)] for chance in chances]
        event = telling_event([world[:20] for world in seen], [[0.0] * 20] * 2)
        wrong += by_event(event, [world[20:] for world in seen], 0.0, 0.99).epsilon > max(
            epsilon, math.log(0.7 / (1.0 - chances[0]))
        )
    assert wrong <= 41


def test_a_history_of_one_world_alone_is_found_and_the_cheaper_one_is_judged():
    seen = [["no"] * PAIRS, ["yes"] * PAIRS]
    event = telling_event(seen, [[0.0] * PAIRS, [2.0] * PAIRS])
    assert (event.history, event.world) == ("no", 0)
    found = by_event(event, seen, DELTA, 0.99)
    assert 0.5 < found.epsilon == found.largest
    assert by_event(event, [["no"] * PAIRS] * 2, DELTA, 0.99).epsilon == 0.0


def test_times_tell_where_one_world_takes_longer():
    rng = np.random.default_rng(6)
    seconds = rng.exponential(size=(2, 90))
    assert by_times(seconds, 30, 0.0, 0.99).epsilon < 0.5
    seconds[0] += 20.0
    assert by_times(seconds, 30, 0.0, 0.99).epsilon > 1.0
