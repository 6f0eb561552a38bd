"""Settings of calibrated models for a budget, from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from silograph.privacy.masking import counted_on

Stage = Literal["look", "length", "level", "step", "check", "offset", "spread"]
STAGES: tuple[Stage, ...] = ("look", "length", "level", "step", "check", "offset", "spread")

#: Clips of the vectors of a stage, in sizes of answers; those of steps and checks are of agents with one record.
STEP_CLIP, CHECK_CLIP, SPREAD_CLIP = 0.5, 1.5, 2.0
MOST_RECORDS = 1024.0  # most records of an agent that count for the length of its vectors
MOST_LONGER = 3.0  # steps of agents with many records are at most so many times longer
LONGEST = 4.0  # answers, in their deviations, and so models: what is longer is a walk that noise makes
CLASS_SIZE = 0.45  # of y - chance, about

_LOOK, _CHECK, _SPREAD = 0.1, 0.15, 0.05  # shares of the budget
_LEVEL, _MOST_LEVEL = 0.05, 0.35
_FINE, _COARSE = 0.003, 0.008  # squared error of the level, in variances: wanted, and allowed
_FINE_OFFSET, _COARSE_OFFSET = 0.02, 0.1  # of a group's own level, before it is shrunk
_FINE_LENGTH, _LENGTH, _MOST_LENGTH = 0.25, 0.01, 0.05  # error of r in octaves; the least share of it, and the most
_COARSE_SPREAD = 0.2  # error of the variance of agents' constants, over a record's: beyond, it is not estimated
_MOMENTS = 0.15  # error of a feature's mean, over half its range
_SIGNAL, _SIGNAL_APART = 0.5, 0.1  # expected error of slopes, in variances: beyond, there are none
SURE = 3.0  # deviations of noise that a bin of the histogram of answers must rise above
#: For answers with bounds four deviations from their middle: the share of the fullest bin, and the factor on the
#: squared error if no bin is seen.
_FULLEST, _UNSEEN = 0.2, 16.0 / 3.0
_WIDE = 4.0  # such bounds, in deviations
_LEVEL_CLIPS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
_FEWEST, _MOST = 20, 80  # steps


@dataclass(frozen=True)
class Choice:
    """How a budget is spent. `noise` is the standard deviation in a mean of vectors of length 1 that gets all of it, in
    one group; `schedule` has a stage and a share of the budget for every round. `expected` is the excess squared error
    to expect, in units of the variance of answers (for classes: of their logits), beyond what the features leave
    unexplained, if agents have one record each (more records reduce it) and answers' bounds are no more than four
    deviations from their middle. `slopes`: whether there are any; `together`: whether groups share them; `most_noise`:
    the most `noise` that leaves a group slopes of its own. `pure`: whether all of the budget goes to one mean answer
    with Laplace noise, and no delta."""

    schedule: tuple[tuple[Stage, float], ...]
    step: float
    level_clip: float
    noise: float
    slopes: bool
    moments: bool
    together: bool
    expected: float
    pure: bool = False
    most_noise: float = math.inf

    @property
    def rounds(self) -> int:
        return sum(stage == "step" for stage, _ in self.schedule)

    @property
    def offsets(self) -> bool:
        """Whether groups that share slopes have their own levels."""
        return any(stage == "offset" for stage, _ in self.schedule)

    @property
    def personal(self) -> bool:
        """Whether the variance of agents' own constants is estimated."""
        return any(stage == "spread" for stage, _ in self.schedule)

    @property
    def grouped(self) -> bool:
        """Whether groups have their own levels or models."""
        return self.offsets or not self.together


def noise_in_mean(multiplier: float, members: int, units: int | None = None) -> float:
    """The noise in a mean of vectors of length at most 1: so many agents add noise, for so many protected units
    (default: themselves).

    Replacing a unit moves the sum by at most 2; the agents counted on add enough noise for that, and all others add
    theirs.
    """
    return 2.0 * multiplier * math.sqrt(members / max(counted_on(members), 1)) / (members if units is None else units)


def pure_noise_in_mean(epsilon: float, members: int, units: int | None = None) -> float:
    """The same of one number with Laplace noise: the deviation of shares for a scale of 2 / epsilon."""
    noise = 2.0 * math.sqrt(2.0 * members / max(counted_on(members), 1)) / epsilon
    return noise / (members if units is None else units)


def noise_in_groups(noises: Sequence[float], units: Sequence[int]) -> float:
    """The noise in the mean of a typical group, from that of each, if groups are added up one by one: two thirds
    of all units are in groups with no more noise. The others lose little by sums of their own: their models are drawn
    to those of the large groups.

    >>> noise_in_groups([0.1, 3.0, 0.1], [60, 2, 60])
    0.1
    """
    order = sorted(zip(noises, units, strict=True))
    up_to = accumulate(n for _, n in order)
    return next(noise for (noise, _), n in zip(order, up_to, strict=True) if 3 * n >= 2 * sum(units))


def choose(
    noise: float,
    noise_together: float,
    features: int,
    classes: bool,
    personal: bool = False,
    rounds: int | None = None,
    step: float | None = None,
    agents: bool = True,
    pure: float = math.inf,
    pure_apart: float = math.inf,
) -> Choice:
    """Choose from public numbers: the noise in a mean of vectors of length 1, in a group and over all groups, and the
    number of features besides the constant. Given `rounds` and `step` are kept. With one group both noises are the
    same. `agents`: whether agents are the protected units, not their records. `pure`: the noise in the mean over all of
    one number, if it is Laplace's and all of the budget; `pure_apart`: in a group, if these are added up one by one."""
    several = noise != noise_together
    for together in dict.fromkeys((not several, True)):
        for moments in (True, False):
            asked = (noise, noise_together, features, classes, personal, together, moments, rounds, step, agents)
            found = _with_slopes(*asked)
            if found is not None:
                return found
    look = 0.0 if classes else _LOOK
    spread = _of_spread(noise_together) if personal else 0.0
    offset = _of_offset(noise, classes) if several else 0.0
    level = 1.0 - look - spread - offset
    expected, clip = _of_level(noise_together, level, classes)
    if not classes and SURE * noise_together / math.sqrt(look) > _FULLEST:
        expected *= _UNSEEN
    alone, apart = _of_pure_level(pure, pure_apart, classes, several)
    if alone < expected and not spread and (apart or not offset or expected > _COARSE):
        return Choice((("level", 1.0),), 0.0, 1.0, noise, False, False, not apart, alone, pure=True)
    schedule = _scheduled(look, 0.0, level, 0.0, 0, 0.0, offset, spread)
    return Choice(schedule, 0.0, clip, noise, False, False, True, expected)


def _of_level(noise: float, share: float, classes: bool) -> tuple[float, float]:
    """The expected squared error of a level, and the clip with the least: noise, plus half of what the clip would cut
    from answers with an exponential tail. Classes are never longer than 1."""
    if classes:
        return noise**2 / share, 1.0
    return min(((noise * clip) ** 2 / share + 0.5 * math.exp(-2.0 * (1.0 + clip)), clip) for clip in _LEVEL_CLIPS)


def _of_pure_level(pure: float, pure_apart: float, classes: bool, several: bool) -> tuple[float, bool]:
    """The expected squared error of a level with Laplace noise and no clip, and whether each group has its own: if its
    noise is not too large, and that in their mean, pure_apart / sqrt(groups) with pure_apart = groups * pure."""
    unit = 1.0 if classes else _WIDE**2
    together, overall = unit * pure**2, unit * pure * pure_apart
    if several and unit * pure_apart**2 <= _COARSE_OFFSET and overall <= _COARSE:
        return overall, True
    return together, False


def offset_clip(classes: bool) -> float:
    """The clip of a residual; those of classes are never longer."""
    return 1.0 / CLASS_SIZE if classes else CHECK_CLIP


def _of_offset(noise: float, classes: bool) -> float:
    """The share of the budget for groups' own levels: none if they would be little but noise."""
    error = (noise * offset_clip(classes)) ** 2
    share = min(max(error / _FINE_OFFSET, _LEVEL), _MOST_LEVEL)
    return share if error / share <= _COARSE_OFFSET else 0.0


def _of_spread(noise: float) -> float:
    """The share for the variance of agents' own constants; vectors have half of the products that it needs."""
    return _SPREAD if 2.0 * noise * SPREAD_CLIP / math.sqrt(_SPREAD) <= _COARSE_SPREAD else 0.0


def _with_slopes(
    noise: float,
    noise_together: float,
    features: int,
    classes: bool,
    personal: bool,
    together: bool,
    moments: bool,
    rounds: int | None,
    step: float | None,
    agents: bool,
) -> Choice | None:
    """Choose slopes, if the budget allows them together with a level that is good enough."""
    look = _LOOK if moments or not classes else 0.0
    if moments and noise_together * math.sqrt(2.0 + (not classes)) * math.sqrt(features / look) > _MOMENTS:
        return None
    own = noise_together if together else noise
    level = min(max(3.0 * own**2 / _FINE, _LEVEL), _MOST_LEVEL)
    of_level, level_clip = _of_level(own, level, classes)
    offset = _of_offset(noise, classes) if together and noise != noise_together else 0.0
    spread = _of_spread(noise_together) if personal else 0.0
    octaves = 0.25 * math.log2(MOST_RECORDS) * noise_together  # error of r, with all of the budget
    length = min(max((octaves / _FINE_LENGTH) ** 2, _LENGTH), _MOST_LENGTH) if agents else 0.0
    steps = 1.0 - look - length - level - _CHECK - offset - spread
    if steps <= 0.0:
        return None
    clip = STEP_CLIP * math.sqrt(features + 1.0)
    of_slopes = 2.0 * features * (own * clip) ** 2 / steps
    if of_level > _COARSE or of_slopes > (_SIGNAL if together else _SIGNAL_APART):
        return None
    count = rounds or round(min(max(4.0 / math.sqrt(of_slopes), _FEWEST), _MOST))
    eta = step or _chosen_step(features, classes)
    schedule = _scheduled(look, length, level, steps, count, _CHECK, offset, spread)
    most = math.inf if together else noise * math.sqrt(_SIGNAL / of_slopes)
    return Choice(schedule, eta, level_clip, noise, True, moments, together, of_level + of_slopes, most_noise=most)


def _chosen_step(features: int, classes: bool) -> float:
    return (4.0 if classes else 1.0) / (1.0 + 0.3 * features)


def longest_step(features: int, classes: bool, moments: bool) -> float:
    """The longest step that may be given: steps of gradient descent grow without end if they are longer than
    2 / curvature, and clips then only bound how far each goes. With u the features and 1,

        curvature of squares  <=  mean |u|^2  <=  1 + features s,    of classes a quarter of it, chance (1 - chance)

    s = 1 where `moments` give every feature the mean square 1, and s = 4 where |x| <= 1 was divided by 1/2. This is for
    features that are all alike; the chosen step is for others, and may be longer.

    >>> longest_step(3, classes=False, moments=True), longest_step(1, classes=True, moments=True)
    (0.5263157894736842, 4.0)
    """
    curvature = (1.0 + features * (1.0 if moments else 4.0)) * (0.25 if classes else 1.0)
    return max(2.0 / curvature, _chosen_step(features, classes))


def _scheduled(
    look: float, length: float, level: float, steps: float, count: int, checked: float, offset: float, spread: float
) -> tuple[tuple[Stage, float], ...]:
    each: list[tuple[Stage, float]] = [("look", look), ("length", length), ("level", level)]
    each += [("step", steps / max(count, 1))] * count
    each += [("check", checked), ("offset", offset), ("spread", spread)]
    return tuple((stage, share) for stage, share in each if share > 0.0)
