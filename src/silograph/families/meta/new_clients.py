"""New clients of a shared start: their steps from it, and how well the models do that they get."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    return _usable(_stepped(task, start, step, steps, records, names, door, clip))


def _stepped(
    task: Neural,
    start: Array,
    step: float,
    steps: int,
    records: Sequence[tuple[Any, Any]],
    names: Sequence[str],
    door: Door | None = None,
    clip: float | None = None,
) -> Array:
    method = Personalise(task, start, step, steps, clip)
    last, _ = play(method, star(names), padded(records, OWN), Door(0, Ledger()) if door is None else door)
    return np.asarray(bare(last.carry["model"]))


def _usable(models: Array) -> Array:
    if not (np.abs(models) < _LARGEST).all():
        raise SolverError("personal model", "numbers that a network can use", "they grew without bound", _SMALLER)
    return models


@dataclass(frozen=True, eq=False)
class Own:
    """A client's model: `steps` steps of size `step` from the shared start or, `alone`, from an untrained one.

    `losses` are those of the client's records, each at such steps that do not see it.
    """

    model: Array
    step: float
    steps: int
    losses: Array
    alone: bool = False


def own_models(task: Neural, start: Array, step: float, records: Sequence[tuple[Any, Any]]) -> list[Own]:
    """The model that each client's own records ask for, with the start or without it: nothing leaves a client."""
    return better(best_models(task, start, step, records), models_alone(task, step, records))


def models_alone(task: Neural, step: float, records: Sequence[tuple[Any, Any]]) -> list[Own]:
    """Of every client, without the start. A linear model may take its steps in features scaled by the client's own
    means and deviations, if that predicts left-out records better: of raw pixels, plain steps learn the brightness."""
    plain = best_models(task, task.start, step, records)
    if not task.is_linear:
        return plain
    scales = [_own_scale(np.asarray(x, dtype=np.float64)) for x, _ in records]
    scaled = [((x - mean) / scale, y) for (x, y), (mean, scale) in zip(records, scales, strict=True)]
    found = best_models(task, task.start, step, scaled)
    return [
        replace(own, model=_unscaled(own.model, *of)) if own.losses.mean() < other.losses.mean() else other
        for own, of, other in zip(found, scales, plain, strict=True)
    ]


def _own_scale(x: Array) -> tuple[Array, Array]:
    """Means, and deviations times the root of how many features there are: records are then about 1 long."""
    deviation = x.std(0)
    return x.mean(0), np.where(deviation > 0.0, deviation, 1.0) * math.sqrt(deviation.size)


def _unscaled(model: Array, mean: Array, scale: Array) -> Array:
    """A linear model of features (x - mean) / scale, for the features x."""
    outputs = len(model) // (mean.size + 1)
    weight = model[:-outputs].reshape(outputs, mean.size) / scale.ravel()
    return np.concatenate([weight.ravel(), model[-outputs:] - weight @ mean.ravel()])


def better(shared: Sequence[Own], alone: Sequence[Own]) -> list[Own]:
    """Client by client the start's, unless its own records are predicted better alone by more than chance."""
    pairs = zip(shared, alone, strict=True)
    return [replace(apart, alone=True) if _loses(together, apart) else together for together, apart in pairs]


def _loses(together: Own, apart: Own) -> bool:
    """By more than a standard error of the difference."""
    known, other = (bool(np.isfinite(own.losses).all()) for own in (together, apart))
    if not (known and other):
        return other
    worse = together.losses - apart.losses
    return bool(worse.mean() > worse.std(ddof=1) / math.sqrt(len(worse)))


def best_models(task: Neural, start: Array, step: float, records: Sequence[tuple[Any, Any]]) -> list[Own]:
    """Of every client, after as many steps from `start`, as long, as its own records ask for.

    They are put into three parts, each predicted by steps on the two others; with fewer records it is one step.
    """
    parts = [_parts(len(y)) for _, y in records]
    # Four models of a client: one that does not see a part, for each part, and one that sees everything.
    seen = [
        (x[part != k], y[part != k]) for (x, y), part in zip(records, parts, strict=True) for k in range(_FOLDS + 1)
    ]
    names = [f"{row:09}" for row in range(len(seen))]
    best: list[Own | None] = [None] * len(records)
    for size in (factor * step for factor in _SIZES):
        models = start
        for before, steps in pairwise((0, *_COUNTS)):
            models = _stepped(task, models, size, steps - before, seen, names)
            for client, (own, (x, y), part) in enumerate(
                zip(models.reshape(len(records), _FOLDS + 1, -1), records, parts, strict=True)
            ):
                losses, known = _left_out(task, own, x, y, part), best[client]
                if known is None or losses.mean() < known.losses.mean():
                    best[client] = Own(own[-1], size, steps, losses)
    found = [own for own in best if own is not None]
    _usable(np.array([own.model for own in found]))
    return found


def _parts(count: int) -> NDArray[np.int64]:
    """Which part a record is in; of too few records it is in none."""
    if count < _FOLDS:
        return np.full(count, -1)
    return stream(0, "", 0, "parts to choose steps by").permutation(count) % _FOLDS


def _left_out(task: Neural, models: Array, x: Any, y: Any, part: NDArray[np.int64]) -> Array:
    """The losses of records at models that did not see them; infinite where nothing can be known."""
    out = np.full(len(y), np.inf)
    if part[0] >= 0 and (np.abs(models) < _LARGEST).all():
        for k in range(_FOLDS):
            out[part == k] = task.losses(models[k], x[part == k], y[part == k])
    return out


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
            multiplier = gaussian_multiplier(privacy.personal_epsilon, privacy.delta, self.plan.personal_steps or 1)
            budget = Budget(privacy.personal_epsilon, privacy.delta)
            own = Door(door.root, door.ledger, Gaussian(multiplier), budget, door.randomness)
            clip = self.plan.method.clip
        models = self._models(start, own, clip)
        if privacy is None or clip is not None:
            (folder / "new").mkdir(exist_ok=True)
            for name, (model, _) in zip(self.names, models, strict=True):
                save_model(folder / "new" / f"{name}.npz", spec, self.task.layout, model)
        told = [self._scores(*each, start) for each in zip(self.names, models, self.records, strict=True)]
        if clip is not None:  # scores alone would be told of records that a budget protects
            return told
        alone = self._measured(own.model for own in self.alone)
        return [replace(client, alone=score) for client, score in zip(told, alone, strict=True)]

    @property
    def _learn(self) -> list[tuple[Any, Any]]:
        return [learn for learn, _ in self.records]

    @cached_property
    def alone(self) -> list[Own]:
        """What each gets without the others."""
        return models_alone(self.task, self.plan.personal_step, self._learn)

    def _models(self, start: Array, door: Door | None = None, clip: float | None = None) -> list[tuple[Array, bool]]:
        """Each one's model, and whether it left the start."""
        step, steps = self.plan.personal_step, self.plan.personal_steps
        if steps is None:
            shared = best_models(self.task, start, step, self._learn)
            return [(own.model, own.alone) for own in better(shared, self.alone)]
        models = personal_models(self.task, start, step, steps, self._learn, self.names, door, clip)
        return [(model, False) for model in models]

    def _scores(self, name: str, own: tuple[Array, bool], records: tuple[Any, Any], start: Array) -> NewClient:
        (model, left), (learn, test) = own, records
        loss, after = self.task.measure(model, *test)
        before = self.task.measure(start, *test)[1]
        return NewClient(name, len(learn[1]), len(test[1]), before, after, loss, left=left)

    def _measured(self, models: Iterable[Array]) -> list[float]:
        return [self.task.measure(model, *test)[1] for model, (_, test) in zip(models, self.records, strict=True)]

    def score(self, start: Array, personal: bool = True) -> float:
        """What they get from another start: the mean of their scores."""
        models = [model for model, _ in self._models(start)] if personal else [start] * len(self.names)
        return float(np.mean(self._measured(models)))

    def baseline(self) -> Test:
        """What a client gets by always saying the commonest class of its test records, or their mean."""
        numbers = self.plan.data.answers == "numbers"
        baselines = [
            float(y.var()) if numbers else float((y == np.bincount(y).argmax()).mean()) for _, (_, y) in self.records
        ]
        records = sum(len(y) for _, (_, y) in self.records)
        return Test(records, "mean squared error" if numbers else "accuracy", float(np.mean(baselines)))
