"""The plan of private meta-learning: source clients learn a shared start, new clients make it their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.schema import Scale, Seed, Share, Such
from silograph.core.types import EngineName
from silograph.data.features import FeatureOptions
from silograph.data.persons import Persons
from silograph.families.meta.result import USUAL_LAYERS
from silograph.privacy.accounting import LEAST_SAMPLED_DELTA
from silograph.run.plan import DEFAULT_DELTA, NOT_COMPARED, Plan
from silograph.run.sections import Delta, TotalEpsilon, naming_files, option

Model = Literal["linear", "mlp", "cnn", "resnet18", "random_features"]

_MOST = 10**6  # rounds, steps, units
_Size = Annotated[int, Such(f"a whole number from 1 to {_MOST:g}", lambda size: 1 <= size <= _MOST)]
_Step = Annotated[float, Such("a number above 0 and at most 1e+06", lambda step: 0.0 < step <= 1e6)]
_Part = Annotated[float, Such("a number between 0 and 1", lambda part: 0.0 < part < 1.0)]


@dataclass(frozen=True)
class MetaData(FeatureOptions):
    """One file a client, named relative to the plan: a table with a column of labels, or an NPZ file with x and y.

    `target` is the column; of NPZ files, where it is always y, it is only what the page calls it.
    `new` clients take no part in learning: they personalise the start and hold back records to test it on. `classes`
    are the labels there can be, a public list; with privacy they have to be said.

    With privacy `unit_column` names the person whose a record is: a person is protected then, and not one record. Of a
    person with more records than `unit_rows`, a public number, that many take part.
    """

    target: str = "y"
    files: tuple[str, ...] = naming_files(())
    new: tuple[str, ...] = naming_files(())
    answers: Literal["classes", "numbers"] = "classes"
    classes: tuple[str, ...] | None = None
    unit_column: str | None = None
    unit_rows: _Size = option(8, "If a person has more records, only so many take part; a public number.")

    @property
    def persons(self) -> Persons | None:
        """For reading source clients."""
        return None if self.unit_column is None else Persons(self.unit_column, self.unit_rows)

    @property
    def nobody(self) -> Persons | None:
        """For reading new clients, whose records stay with them: whose each is does not matter."""
        return None if self.unit_column is None else Persons(self.unit_column)

    def told(self) -> dict[str, Any]:
        said = super().told()
        return said if self.unit_column is None else {**said, "drop": [*(self.drop or ()), self.unit_column]}


@dataclass(frozen=True)
class MetaMethod:
    """S4 (1)-(11). `version` is sound, or S4's own, whose account does not hold.

    `model` is linear, an mlp with `hidden` units, a cnn (64-128-256 filters, 128-256 units), a resnet18 of `width`, or
    linear on `width` fixed random features.
    A record's gradient is clipped to `clip` where records are protected, its curvature to `curvature_clip`. The
    personal model is `personal_steps` steps of size `personal_step` (inner_step if left out) away from the start.
    `compare` also learns without meta-learning: simulation only.

    None is chosen automatically: `model`, `rounds` and `rate` from public numbers (`advice.settled`), a client's
    personal steps on its own records.
    """

    name: Literal["private_meta"] = "private_meta"
    version: Literal["sound", "paper:"] = "sound"
    model: Model | None = None
    hidden: tuple[_Size, ...] = option(USUAL_LAYERS, "Sizes of an mlp's hidden layers.")
    width: _Size = option(64, "How many random features, or first filters of a resnet18.")
    rounds: _Size | None = option(
        None, "How often clients are asked; None: 5 to 50, depending on the budget, or 200 without one."
    )
    local_steps: _Size = option(1, "How many steps a client takes each time it is asked.")
    rate: Share | None = option(
        None, "The probability that a record takes part in a step; None: 1 with a budget, 0.1 without."
    )
    order: Literal["first", "second"] = option("second", '"second" follows (2); "first" leaves the curvature out.')
    inner_step: _Step = option(0.1, "The size eta of the step that a client tries on its query records, (1).")
    outer_step: _Step = option(1.0, "The size beta of the step that the start then takes, (2).")
    clip: Scale = option(1.0, "With privacy, a record's gradient longer than this is scaled back to this length.")
    curvature_clip: Scale | None = option(None, "The same for a record's curvature; None: the same as clip.")
    personal_step: _Step | None = option(None, "The size of the steps that personalise the start; None: inner_step.")
    personal_steps: _Size | None = option(
        None, "How many such steps; None: each client chooses number and size on its own records."
    )
    held_back: _Part = 0.5
    compare: bool = False
    device: str = option("cpu", 'Where networks are computed: "cpu" or "cuda".')


@dataclass(frozen=True)
class Settled(MetaMethod):
    """With all that has to be known before anything is learned."""

    model: Model = "mlp"
    rounds: int = 200
    rate: float = 0.1


@dataclass(frozen=True)
class MetaBudget:
    """The total budget of every source client, for one of its records or, with `unit_column`, one of its persons.

    A new client's model stays with it, unless it has a budget of its own for publishing it: `personal_epsilon`.
    `protect` need not be said. Whole clients are not protected, and a plan that asks for that is refused.
    """

    epsilon: TotalEpsilon = field(
        metadata={"help": "Budget for each record, or person, of each client, over the whole run; None: no privacy."}
    )
    delta: Delta = option(DEFAULT_DELTA, "Delta of the budget.")
    personal_epsilon: TotalEpsilon | None = None
    protect: Literal["records", "clients", "persons"] | None = None


@dataclass(frozen=True)
class MetaPlan(Plan):
    data: MetaData
    method: MetaMethod = MetaMethod()
    privacy: MetaBudget | None = None
    engine: EngineName = "vector"
    seed: Seed | None = None

    @property
    def personal_step(self) -> float:
        chosen = self.method
        return chosen.inner_step if chosen.personal_step is None else chosen.personal_step

    @property
    def personal_steps(self) -> int | None:
        """None: every client chooses on its own records, which none can do that publishes its model."""
        publishes = self.privacy is not None and self.privacy.personal_epsilon is not None
        return 1 if self.method.personal_steps is None and publishes else self.method.personal_steps

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
        super().__post_init__()
        chosen = self.method
        if self.data.answers == "numbers" and self.data.classes is not None:
            raise InputError(wording.setting("classes"), "none where answers are numbers", "found some")
        if chosen.version == "paper:" and self.privacy is None:
            raise InputError(wording.setting("version"), "a [privacy] section with S4's own version", "found none")
        if chosen.version == "paper:" and chosen.order == "first":
            raise InputError(wording.setting("order"), "second, with S4's own version", "found first")
        if self.privacy is not None:
            self._check_unit(self.privacy)
            self._check_privacy(self.privacy)
        elif self.data.unit_column is not None:
            expected = "a privacy budget, whose protected unit it names"
            raise InputError(
                wording.setting("unit_column"), expected, "found none", "Add an epsilon, or drop the column."
            )

    def _check_unit(self, privacy: MetaBudget) -> None:
        column, protect = self.data.unit_column, privacy.protect
        if column is not None and not column.strip():
            raise InputError(wording.setting("unit_column"), "the name of a column", "found an empty one")
        if protect == "clients":
            expected = "records or persons: a start bounds what one of these can change at a client, and no more"
            todo = 'Personal models can protect whole clients: name = "clustered_admm" with protect = "clients".'
            raise InputError(wording.setting("protect"), expected, "found clients", todo)
        if protect == "persons" and column is None:
            todo = 'Name it in [data]: unit_column = "...".'
            raise InputError(wording.setting("protect"), "the column that says whose a record is", "found none", todo)
        if protect == "records" and column is not None:
            found = "found records and a unit_column"
            raise InputError(
                wording.setting("protect"), "persons where a column names them", found, "Leave out one of the two."
            )
        if column is not None and self.method.version == "paper:":
            raise InputError(
                wording.setting("unit_column"), "no persons with S4's own version, which bounds a mean", "found some"
            )
        if column is not None and privacy.personal_epsilon is not None:
            expected = "new clients that keep their models, where persons are protected"
            found = "a budget for publishing them, which protects one record"
            raise InputError(wording.setting("personal_epsilon"), expected, found)

    def _check_privacy(self, privacy: MetaBudget) -> None:
        chosen = self.method
        sampled = chosen.version == "paper:" if chosen.rate is None else chosen.rate < 1.0
        if sampled and privacy.delta < LEAST_SAMPLED_DELTA:
            expected = f"a delta from {LEAST_SAMPLED_DELTA:g} up where records are sampled"
            raise InputError(
                wording.setting("delta"), expected, f"found {privacy.delta:g}", "Or sample none: rate = 1."
            )
        if self.data.answers == "classes" and self.data.classes is None:
            raise InputError(
                wording.setting("classes"),
                "the labels there can be, with privacy",
                "found none: which labels occur in private tables is private, too",
                'Set classes = ["...", "..."] in [data].',
            )
        if self.method.compare:
            found = "one was asked for: it would reveal what is learned without protection, and no budget pays for that"
            raise InputError(wording.setting("compare"), "no comparison, with privacy", found)
        if privacy.personal_epsilon is not None and not self.data.new:
            raise InputError(wording.setting("personal_epsilon"), "new clients in [data]", "found none")


PLAN = MetaPlan
