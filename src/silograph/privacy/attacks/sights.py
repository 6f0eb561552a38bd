"""Lower bounds on epsilon from what a server saw in two neighbouring worlds: answers and refusals, numbers, times.

events   A whole history (which questions were answered, how others were refused, sizes) is one event. With chance p
         in one world and p' in the other, e^epsilon is at least (p - delta) / p'. Clopper and Pearson bound both.
         The cost set against it is what ledgers said *in the trials where it happened*: a refusal that cost nothing
         must be as likely in both worlds.
numbers  Both worlds of a pair have the same noise, so the difference of what they show is the direction in which to
         look. Each question gives one number along it. They are added up with weights shift over variance, or along
         Fisher's direction if the noise of two answers is related.
times    The total time of all answers, against a threshold from other trials.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array
from silograph.privacy.attacks.bounds import Bound, by_pairs, by_threshold, rate_bounds
from silograph.privacy.attacks.scores import fitted

EVENTS = "Clopper-Pearson bounds on how often one history of answers and refusals happens in either world"
TIMES = "Clopper-Pearson bounds on both error rates of a threshold on the time of all answers"
CERTAIN = "numbers that differ between the worlds and have no noise"
_NO_NOISE = 1e-9  # of the shift


@dataclass(frozen=True)
class Event:
    """A history that is more likely in `world`."""

    history: Hashable
    world: int


def telling_event(histories: Sequence[Sequence[Hashable]], paid: Sequence[Sequence[float]]) -> Event:
    """Choose from two worlds' tuning trials the history with the most different frequency; of several, the cheapest."""
    counts = [Counter(world) for world in histories]
    found = []
    for world in (0, 1):
        for history, count in counts[world].items():
            paid_for = max(cost for seen, cost in zip(histories[world], paid[world], strict=True) if seen == history)
            found.append((count - counts[1 - world][history], -paid_for, world, history))
    best = max(found, key=lambda each: each[:2])
    return Event(best[3], best[2])


def by_event(event: Event, histories: Sequence[Sequence[Hashable]], delta: float, confidence: float) -> Bound:
    """Bound epsilon, at most what so many trials could have shown, from judged trials, which did not choose the
    event."""
    side, n = 1.0 - (1.0 - confidence) / 2.0, len(histories[0])

    def least(hits: int, alarms: int) -> float:
        power = rate_bounds(hits, n, side)[0] - delta
        return math.log(power / rate_bounds(alarms, n, side)[1]) if power > 0.0 else 0.0

    hits = sum(history == event.history for history in histories[event.world])
    alarms = sum(history == event.history for history in histories[1 - event.world])
    return Bound(max(0.0, least(hits, alarms)), delta, confidence, EVENTS, n, max(0.0, least(n, 0)))


def by_numbers(
    numbers: Sequence[Sequence[Sequence[Array]]], tuning: int, delta: float, confidence: float, gaussian: bool
) -> Bound:
    """Bound epsilon from `numbers[world][trial][question]`; the first `tuning` pairs choose where to look, others are
    judged.

    With `gaussian` noise, scores are normal and their whole curve follows from shift and spread.
    """
    features = _features(numbers, tuning)
    judged = features.shape[1] - tuning
    if not features.shape[2]:
        return Bound(0.0, delta, confidence, "no number differs between the worlds", judged)
    shift = (features[1] - features[0]).mean(0)
    spread = (features - features.mean(1, keepdims=True)).std((0, 1))
    if (np.abs(shift) > 0.0).any() and (spread < _NO_NOISE * np.abs(shift)).any():
        return Bound(math.inf, delta, confidence, CERTAIN, judged)
    scores = features @ _weights(features[:, :tuning])
    fit = by_pairs(scores[:, tuning:], delta, confidence) if gaussian else None
    return by_threshold(scores[:, :tuning], scores[:, tuning:], delta, confidence) if fit is None else fit


def _features(numbers: Sequence[Sequence[Sequence[Array]]], tuning: int) -> Array:
    """Return (2, n, k): for each question that shows a difference, where the answer lies along it."""
    trials, columns = len(numbers[0]), []
    for question in range(min(len(seen) for world in numbers for seen in world)):
        shapes = {seen[question].shape for world in numbers for seen in world}
        if len(shapes) > 1 or shapes == {(0,)}:
            continue
        values = np.array([[seen[question] for seen in world] for world in numbers])
        values = values[:, :, np.isfinite(values).all((0, 1))]
        values = values - values[0, 0]  # then a huge constant, such as what the server itself sent, hides nothing
        apart = (values[1, :tuning] - values[0, :tuning]).mean(0)
        length = float(np.abs(apart).max(initial=0.0))
        if 0.0 < length < math.inf:
            direction = apart / length / np.linalg.norm(apart / length)
            columns.append(values @ direction)
    return np.stack(columns, -1) if columns else np.zeros((2, trials, 0))


def _weights(tuning: Array) -> Array:
    """Weigh questions by shift over variance, or by Fisher's direction if it does clearly better on tuning trials."""
    half = tuning.shape[1] // 2
    variance = np.maximum(tuning.var(1).mean(0), 1e-300)
    plain = np.asarray((tuning[1] - tuning[0]).mean(0) / variance)
    if tuning.shape[2] < 2 or half < 2 * tuning.shape[2]:
        return plain

    def apart(weights: Array) -> float:
        scores = tuning[:, half:] @ weights
        return float((scores[1] - scores[0]).mean() / max(scores.std(1).mean(), 1e-300))

    if apart(fitted(tuning[:, :half])) > 2.0 * apart(plain) + 5.0 * math.sqrt(2.0 / half):
        return fitted(tuning)
    return plain


def by_times(seconds: Array, tuning: int, delta: float, confidence: float) -> Bound:
    """Bound epsilon from seconds (2, n) of all answers of a trial; tuning trials show which world takes longer."""
    first, second = seconds[:, :tuning].mean(1)
    seconds = seconds if second >= first else -seconds
    return by_threshold(seconds[:, :tuning], seconds[:, tuning:], delta, confidence, TIMES)
