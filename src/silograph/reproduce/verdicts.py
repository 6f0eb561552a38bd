"""Judge whether a paper's statements hold, by rules that are written down before anything is run.

A statement compares methods run by run; a printed number is compared with ours and its spread. Both may stay open: few
repetitions decide little, and one decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from silograph.core.types import Array, Json

Outcome = Literal["reproduced", "not reproduced", "statement does not hold", "not clear", "not enough repetitions"]
REPRODUCED: Outcome = "reproduced"
NOT_REPRODUCED: Outcome = "not reproduced"  # of printed numbers
DOES_NOT_HOLD: Outcome = "statement does not hold"
UNCLEAR: Outcome = "not clear"
TOO_FEW: Outcome = "not enough repetitions"  # fewer than the verdicts of an entry are made for

CONFIDENCE = 0.95
THREE_SIGMA = 0.9973  # how much of a normal distribution is within three standard deviations
RESOLUTION = 0.1  # of a printed number: a wider tolerance confirms nothing
ROUNDING = 0.0005  # half a unit of the last printed digit

COMPARED = (
    "Reproduced where the mean difference run by run is on the stated side of 0 by more than its "
    f"{100 * CONFIDENCE:.0f} % confidence interval (Student's t), in every comparison; does not hold where it is as "
    "clearly on the other side in one; otherwise not clear."
)
ALIKE = (
    f"Reproduced where the {100 * CONFIDENCE:.0f} % confidence interval (Student's t) of the mean difference run by "
    "run is within {within}, in every comparison; does not hold where it is wholly outside in one; otherwise not clear."
)
PRINTED = (
    f"A printed number is reproduced where ours is within the larger of the rounding, {ROUNDING:g}, and the "
    f"{100 * THREE_SIGMA:.1f} % interval (Student's t) of the difference of two means of as many repetitions as ours, "
    f"since the papers do not say how many theirs have; not clear where that is more than {100 * RESOLUTION:.0f} % of "
    "the number. All of a measure are reproduced if each is; one that is not decides."
)


@dataclass(frozen=True)
class Verdict:
    """A statement of a paper, whether it holds, what was found, and the rule by which it was judged.

    `why` is the reason for a failure, if known; it is shown only if the statement fails.
    """

    statement: str
    outcome: Outcome
    found: str
    rule: str = COMPARED
    why: str = ""

    def to_json(self) -> Json:
        why = f". {self.why}" if self.why and self.outcome == DOES_NOT_HOLD else ""
        found = f"{self.found}{why}"
        return {"statement": self.statement, "outcome": self.outcome, "found": found, "rule": self.rule}

    def __str__(self) -> str:
        return f"{self.statement}. {self.outcome.capitalize()}: {self.to_json()['found']}."


def half_width(values: Array, confidence: float = CONFIDENCE) -> float:
    """Of the mean's confidence interval, by Student's t; infinite for one run."""
    count = len(values)
    return _quantile(count, confidence) * float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf


def standard_error(values: Array) -> float:
    """Of the mean; infinite for one run."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.inf


def _quantile(count: int, confidence: float) -> float:
    return float(stdtrit(count - 1, (1.0 + confidence) / 2.0))


def sign(gains: Array) -> int:
    """1 or -1 if the mean is clearly above or below 0, otherwise 0."""
    mean = float(gains.mean())
    return 0 if abs(mean) <= half_width(gains) else int(math.copysign(1.0, mean))


def compared(wanted: Sequence[Array], unwanted: Sequence[Array] = ()) -> Outcome:
    """Judge a statement that all `wanted` gains are above 0, and that no `unwanted` one is below."""
    signs = [sign(gains) for gains in wanted]
    if -1 in signs or -1 in [sign(gains) for gains in unwanted]:
        return DOES_NOT_HOLD
    return REPRODUCED if all(signs) else UNCLEAR


def alike(differences: Sequence[Array], within: float) -> Outcome:
    """Judge a statement that all differences are practically 0."""
    sizes = [(abs(float(each.mean())), half_width(each)) for each in differences]
    if any(mean - width > within for mean, width in sizes):
        return DOES_NOT_HOLD
    return REPRODUCED if all(mean + width < within for mean, width in sizes) else UNCLEAR


def printed(ours: float, std: float, repetitions: int, paper: float) -> Outcome:
    """Whether a printed number is ours, by the rule PRINTED."""
    if repetitions < 2:
        return UNCLEAR
    width = _quantile(repetitions, THREE_SIGMA) * std * math.sqrt(2.0 / repetitions)
    if abs(ours - paper) > max(ROUNDING, width):
        return NOT_REPRODUCED
    return REPRODUCED if width <= RESOLUTION * abs(paper) else UNCLEAR


def with_few(outcome: Outcome) -> Outcome:
    """Limit a verdict from few repetitions: they may confirm, and a statement may clearly fail; they refute no
    number."""
    return TOO_FEW if outcome in (NOT_REPRODUCED, UNCLEAR) else outcome


def left_open(verdict: Verdict) -> Verdict:
    """Leave open a verdict on an experiment that is not the paper's own: it is a hint, and decides nothing."""
    points = "" if verdict.outcome == UNCLEAR else f" (as far as this experiment can say, {verdict.outcome})"
    return replace(verdict, outcome=UNCLEAR, found=verdict.found + points)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Join several verdicts into one: a failure decides, then an open one."""
    return next(worst for worst in (DOES_NOT_HOLD, NOT_REPRODUCED, TOO_FEW, UNCLEAR, REPRODUCED) if worst in outcomes)


def with_interval(differences: Array, digits: int = 3) -> str:
    """A mean difference with the half width of its confidence interval."""
    wide = f" (within {half_width(differences):.{digits}f})" if len(differences) > 1 else ""
    return f"{float(np.mean(differences)):+.{digits}f}{wide}"
