"""New clients of a shared start: their steps from it, and how well the models do that they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from silograph.core.errors import SolverError
from silograph.core.keys import stream
from silograph.core.results import Test
from silograph.core.types import Array, Json
from silograph.data.class_clients import split
from silograph.data.clients import ClientTables
from silograph.families.meta.plan import MetaPlan
from silograph.families.meta.result import NewClient
from silograph.methods.personalising import OWN, Personalise
from silograph.methods.private_meta import padded
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.released import bare
from silograph.run.loop import play
from silograph.topology import star

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural

_LARGEST = 1e15  # of a parameter
_FOLDS, _SIZES, _COUNTS = 3, (1.0, 10.0), (1, 3, 10, 30, 100)
_SMALLER = "Use smaller or fewer personal steps, or scale the features to about -1 to 1."


def personal_models(
    task: Neural,
    start: Array,
    step: float,
    steps: int,
    records: Sequence[tuple[Any, Any]],
    names: Sequence[str],
    door: Door | None = None,
    clip: float | None = None,
) -> Array:
    """A start made the own of every client, whose records come in the order of their names in a star.

    Without a clip nothing leaves a client, and no door is needed.
    """
    method = Personalise(task, start, step, steps, clip)
    last, _ = play(method, star(names), padded(records, OWN), Door(0, Ledger()) if door is None else door)
    models = np.asarray(bare(last.carry["model"]))
    if not (np.abs(models) < _LARGEST).all():
        raise SolverError("personal model", "numbers that a network can use", "they grew without bound", _SMALLER)
    return models


def chosen_steps(task: Neural, start: Array, step: float, x: Any, y: Any) -> tuple[float, int]:
    """The size and number of personal steps that a client's own records ask for: nothing leaves it.

    Its records are put into three parts, each predicted by steps on the two others.
    """
    if len(y) < _FOLDS:
        return step, 1
    part = stream(0, "", 0, "parts to choose steps by").permutation(len(y)) % _FOLDS
    folds = [(x[part != k], y[part != k]) for k in range(_FOLDS)]

    def loss(size: float, count: int) -> float:
        try:
            models = personal_models(task, start, size, count, folds, [f"part {k}" for k in range(_FOLDS)])
        except SolverError:  # steps too long for these records
            return np.inf
        each = [task.measure(model, x[part == k], y[part == k])[0] for k, model in enumerate(models)]
        return float(np.mean(each))

    return min(((factor * step, count) for factor in _SIZES for count in _COUNTS), key=lambda way: loss(*way))


@dataclass(frozen=True, eq=False)
class NewClients:
    """Each holds back a share of its records to test on."""

    plan: MetaPlan
    tables: ClientTables
    task: Neural

    @property
    def names(self) -> tuple[str, ...]:
        return star(self.tables.names).silos

    @cached_property
    def records(self) -> list[tuple[Any, Any]]:
        """What each learns from, and what it holds back."""
        of = dict(zip(self.tables.names, self.tables.records, strict=True))
        parts = []
        for name in self.names:
            x, y = of[name]
            drawn = stream(self.plan.seed or 0, name, 0, "held back")
            learn, test = split(len(y), 1.0 - self.plan.method.held_back, drawn)
            parts.append(((x[learn], y[learn]), (x[test], y[test])))
        return parts

    def personalise(self, start: Array, door: Door, folder: Path, spec: Json) -> list[NewClient]:
        """Take the plan's steps; models that are not their owners' alone are written to the folder."""
        from silograph.tasks.networks import save_model

        privacy, own, clip = self.plan.privacy, None, None
        if privacy is not None and privacy.personal_epsilon is not None:
            multiplier = gaussian_multiplier(privacy.personal_epsilon, privacy.delta, self.plan.method.personal_steps)
            budget = Budget(privacy.personal_epsilon, privacy.delta)
            own = Door(door.root, door.ledger, Gaussian(multiplier), budget, door.randomness)
            clip = self.plan.method.clip
        models = self._models(start, own, clip)
        if privacy is None or clip is not None:
            (folder / "new").mkdir(exist_ok=True)
            for name, model in zip(self.names, models, strict=True):
                save_model(folder / "new" / f"{name}.npz", spec, self.task.layout, model)
        return [self._scores(*each, start) for each in zip(self.names, models, self.records, strict=True)]

    def _models(self, start: Array, door: Door | None = None, clip: float | None = None) -> Array:
        step, steps = self.plan.personal_step, self.plan.method.personal_steps
        return personal_models(
            self.task, start, step, steps, [learn for learn, _ in self.records], self.names, door, clip
        )

    def _scores(self, name: str, model: Array, records: tuple[Any, Any], start: Array) -> NewClient:
        learn, test = records
        loss, after = self.task.measure(model, *test)
        before = self.task.measure(start, *test)[1]
        return NewClient(name, len(learn[1]), len(test[1]), before, after, loss)

    def score(self, start: Array, personal: bool = True) -> float:
        """What they get from another start: the mean of their scores."""
        models = self._models(start) if personal else [start] * len(self.names)
        each = [self.task.measure(model, *test)[1] for model, (_, test) in zip(models, self.records, strict=True)]
        return float(np.mean(each))

    def baseline(self) -> Test:
        """What a client gets by always saying the commonest class of its test records, or their mean."""
        numbers = self.plan.data.answers == "numbers"
        baselines = [
            float(y.var()) if numbers else float((y == np.bincount(y).argmax()).mean()) for _, (_, y) in self.records
        ]
        records = sum(len(y) for _, (_, y) in self.records)
        return Test(records, "mean squared error" if numbers else "accuracy", float(np.mean(baselines)))
