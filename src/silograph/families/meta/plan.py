"""The plan of private meta-learning: source clients learn a shared start, new clients make it their own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from silograph.core.errors import InputError
from silograph.privacy.accounting import LEAST_SAMPLED_DELTA
from silograph.run.plan import DEFAULT_DELTA, NOT_COMPARED, Choice, Plan
from silograph.run.sections import naming_files, said

Model = Literal["linear", "mlp", "cnn", "resnet18"]

_MOST = 10**6  # rounds, steps, units
_LARGEST_STEP = 1e6


@dataclass(frozen=True)
class MetaData:
    """One file a client, named relative to the plan: a table with a column of labels, or an NPZ file with x and y.

    `target` is the column; of NPZ files, where it is always y, it is only what the page calls it.
    `new` clients take no part in learning: they personalise the start and hold back records to test it on. `classes`
    are the labels there can be, a public list; with privacy they have to be said.
    """

    target: str = "y"
    files: tuple[str, ...] = naming_files(())
    new: tuple[str, ...] = naming_files(())
    answers: Literal["classes", "numbers"] = "classes"
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class MetaMethod:
    """S4 (1)-(11). `version` is sound, or S4's own, whose account does not hold.

    `model` is linear, an mlp with `hidden` units, a cnn (64-128-256 filters, 128-256 units) or a resnet18 of `width`.
    A record's gradient is clipped to `clip` where records are protected, its curvature to `curvature_clip`. The
    personal model is `personal_steps` steps of size `personal_step` (inner_step if left out) away from the start.
    `compare` also learns without meta-learning: simulation only.
    """

    name: Literal["private_meta"] = "private_meta"
    version: Literal["sound", "paper:"] = "sound"
    model: Model = "mlp"
    hidden: tuple[int, ...] = said((32,), "Sizes of an mlp's hidden layers.")
    width: int = 64
    rounds: int = said(200, "How often clients are asked.")
    local_steps: int = said(1, "A client's steps each time it is asked.")
    rate: float = said(0.1, "A record's chance to be in a step.")
    order: Literal["first", "second"] = said("second", '"second", or "first", which leaves the curvature out.')
    inner_step: float = said(0.1, "The step a client tries.")
    outer_step: float = said(1.0, "The step the start takes.")
    clip: float = said(1.0, "The longest gradient a record may have, with privacy.")
    curvature_clip: float | None = said(None, "The largest curvature a record may have, with privacy.")
    personal_step: float | None = said(None, "The step that makes the start a client's own; inner_step if left out.")
    personal_steps: int = said(1, "How many such steps.")
    held_back: float = 0.5
    compare: bool = False
    device: str = said("cpu", '"cpu" or "cuda".')


@dataclass(frozen=True)
class MetaBudget:
    """The total budget of every source client, for one of its records.

    A new client's model stays with it, unless it has a budget of its own for publishing it: `personal_epsilon`.
    """

    epsilon: float = field(
        metadata={"help": "Budget for each record of each client, over the whole run; None means no privacy."}
    )
    delta: float = said(DEFAULT_DELTA, "Delta of the budget.")
    personal_epsilon: float | None = None


@dataclass(frozen=True)
class MetaPlan(Plan):
    data: MetaData
    method: MetaMethod = MetaMethod()
    privacy: MetaBudget | None = None
    engine: Literal["vector", "silowise"] = "vector"
    seed: int | None = None

    @property
    def personal_step(self) -> float:
        chosen = self.method
        return chosen.inner_step if chosen.personal_step is None else chosen.personal_step

    @property
    def samples_records(self) -> bool:
        return True

    def without_device(self) -> MetaPlan:
        here = "cpu" if self.method.device.startswith("cuda") else self.method.device
        return replace(self, method=replace(self.method, device=here))

    def deployable(self) -> MetaPlan:
        data, method = replace(self.data, new=()), replace(self.method, compare=False)
        privacy = None if self.privacy is None else replace(self.privacy, personal_epsilon=None)
        return replace(self, data=data, method=method, privacy=privacy)

    def left_out(self) -> list[str]:
        words = []
        if self.data.new:
            words.append(f"{len(self.data.new)} new clients: each makes the start its own on its own machine")
        return words + ([NOT_COMPARED] if self.method.compare else [])

    def __post_init__(self) -> None:
        chosen = self.method
        steps = {name: getattr(chosen, name) for name in ("inner_step", "outer_step", "personal_step")}
        clips = {name: getattr(chosen, name) for name in ("clip", "curvature_clip")}
        wholes = {name: getattr(chosen, name) for name in ("width", "rounds", "local_steps", "personal_steps")}
        most, largest = f"a whole number from 1 to {_MOST:g}", f"a number above 0 and at most {_LARGEST_STEP:g}"
        checks: list[Choice] = [
            *((name, step, step is None or 0.0 < step <= _LARGEST_STEP, largest) for name, step in steps.items()),
            *((name, clip, _positive(clip), "a number above 0") for name, clip in clips.items()),
            *((name, number, 1 <= number <= _MOST, most) for name, number in wholes.items()),
            ("hidden", chosen.hidden, all(1 <= size <= _MOST for size in chosen.hidden), f"each {most}"),
            ("rate", chosen.rate, 0.0 < chosen.rate <= 1.0, "a number above 0 and at most 1"),
            ("held_back", chosen.held_back, 0.0 < chosen.held_back < 1.0, "a number between 0 and 1"),
            ("seed", self.seed, self.seed is None or self.seed >= 0, "a whole number from 0 up"),
        ]
        for name, value, good, expected in checks:
            if not good:
                raise InputError(f"plan, {name}", expected, f"{value} came")
        if self.data.answers == "numbers" and self.data.classes is not None:
            raise InputError("plan, classes", "none where answers are numbers", "some came")
        if chosen.version == "paper:" and self.privacy is None:
            raise InputError("plan, version", "a [privacy] section with S4's own version", "none came")
        if chosen.version == "paper:" and chosen.order == "first":
            raise InputError("plan, order", "second, with S4's own version", "first came")
        if self.privacy is not None:
            self._check_privacy(self.privacy)

    def _check_privacy(self, privacy: MetaBudget) -> None:
        for name in ("epsilon", "personal_epsilon"):
            value = getattr(privacy, name)
            if not _positive(value):
                raise InputError(f"plan, {name}", "a privacy budget above 0", f"{value} came")
        if not 0.0 < privacy.delta < 1.0:
            raise InputError("plan, delta", "a number between 0 and 1", f"{privacy.delta} came", "Try 1e-6.")
        if self.method.rate < 1.0 and privacy.delta < LEAST_SAMPLED_DELTA:
            expected = f"a delta from {LEAST_SAMPLED_DELTA:g} up where records are sampled"
            raise InputError("plan, delta", expected, f"{privacy.delta:g} came", "Or sample none: rate = 1.")
        if self.data.answers == "classes" and self.data.classes is None:
            raise InputError(
                "plan, classes",
                "the labels there can be, with privacy",
                "none came: which labels occur in private tables is private too",
                'Say classes = ["...", "..."] in [data].',
            )
        if self.method.compare:
            came = "one was asked for: what is learned without protection would be told without being paid for"
            raise InputError("plan, compare", "no comparison, with privacy", came)
        if privacy.personal_epsilon is not None and not self.data.new:
            raise InputError("plan, personal_epsilon", "new clients in [data]", "none came")


def _positive(value: float | None) -> bool:
    return value is None or (math.isfinite(value) and 1e-70 <= value <= 1e70)


PLAN = MetaPlan
