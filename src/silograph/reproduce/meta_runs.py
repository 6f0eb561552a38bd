"""Private meta-learning, its printed version and none at all, run by run: every repetition has its own clients, which
all methods share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array, Json
from silograph.data.clients import Single
from silograph.data.collections import VARIABLE
from silograph.data.personal import Classes, PictureSet, class_federation, pool, split
from silograph.data.tables import shown
from silograph.families.meta.new_clients import personal_models
from silograph.methods.base import Private, State
from silograph.methods.meta_baselines import PaperMeta
from silograph.methods.private_meta import SUPPORT, Order, PrivateMeta, divided
from silograph.privacy.accounting import Planned, sampled_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.reproduce.entries import Progress, Row, Table, check_seeds
from silograph.reproduce.verdicts import Verdict, compared, said
from silograph.run.loop import REHEARSAL, play
from silograph.topology import Topology, star

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural

RATE, DELTA = 0.1, 1e-3
EVERY = 10  # rounds between the points of a curve
SHORTER, SMALLER = 10, 3  # times fewer rounds and clients, where little time is given
TRIED = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0)  # personal steps from the last start of a run

Pictures = tuple[Single, Classes]
#: Of a line: its case and its method.
Key = tuple[str, str]


# ---- clients ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Collection:
    """Pictures that a user has a copy of. Pooled two by two, their numbers are (x - centre) * scale, x from 0 to 1."""

    name: str
    files: tuple[str, ...]
    read: Callable[[Path | None], PictureSet | None]
    centre: float = 0.0
    scale: float = 1.0

    def pictures(self, folder: Path | None) -> Pictures:
        found = self.read(folder)
        if found is None:
            named = os.environ.get(VARIABLE) if folder is None else folder
            came = f"it is not in {shown(Path(named))}" if named else "no folder was named"
            todo = f"Name the folder with --data or in {VARIABLE}."
            raise InputError(self.name, f"a file {' or '.join(self.files)} in your folder of data sets", came, todo)
        learn, classes, test, others = found  # clients hold back records of their own, so both are dealt
        pictures = np.concatenate([pool(learn), pool(test)])
        return (pictures - np.float32(self.centre)) * np.float32(self.scale), np.concatenate([classes, others])


@dataclass(frozen=True)
class Problem:
    """Clients that have three classes of a collection each, and the network that learns to tell classes apart.

    The first `sources` of them learn the start, with `records` each; the others are new clients.
    """

    name: str
    collection: Collection
    network: Callable[[int], Neural]  # of a seed
    clients: int = 50
    sources: int = 30
    per_class: int = 200
    records: int = 600
    rounds: int = 200

    def shortened(self, smaller: int) -> Problem:
        rounds = max(EVERY, self.rounds // SHORTER // EVERY * EVERY)
        sources, new = (max(2, count // smaller) for count in (self.sources, self.clients - self.sources))
        return replace(self, rounds=rounds, sources=sources, clients=sources + new)

    def in_short(self, smaller: int) -> str:
        small = self.shortened(smaller)
        return (
            f"{self.name} with {small.rounds} rounds instead of {self.rounds}, {small.sources} source clients instead "
            f"of {self.sources} and {small.clients - small.sources} new ones instead of {self.clients - self.sources}"
        )

    def world(self, pictures: Pictures, seed: int) -> World:
        parts = class_federation(*pictures, seed, self.clients, 3, self.per_class)
        topo, new = (
            star([f"client {k:03d}" for k in ks]) for ks in (range(self.sources), range(self.sources, self.clients))
        )
        source = [(x[: self.records], y[: self.records]) for x, y in parts[: self.sources]]
        halves = []
        for name, (x, y) in zip(new.silos, parts[self.sources :], strict=True):
            own, test = split(len(y), 0.5, stream(seed, name, 0, "held back"))
            halves.append(((x[own], y[own]), (x[test], y[test])))
        known = np.concatenate([x for x, _ in source]), np.concatenate([y for _, y in source])
        return World(self.network(seed), topo, divided(source, topo.silos, seed), known, new, halves)


@dataclass(frozen=True, eq=False)
class World:
    """One repetition: source clients and their records, once more without whose they are; new clients, and the halves
    of their records to learn from and to test on."""

    task: Neural
    topo: Topology
    data: Private
    known: Pictures
    new: Topology
    halves: Sequence[tuple[Pictures, Pictures]]

    def tested(self, start: Array, step: float) -> Array:
        """Loss and accuracy of the new clients' models, one step (4) from the start, on average over the clients."""
        own = [half for half, _ in self.halves]
        models = personal_models(self.task, start, step, 1, own, self.new.silos)
        pairs = [self.task.measure(w, *test) for w, (_, test) in zip(models, self.halves, strict=True)]
        return np.asarray(np.mean(pairs, axis=0))

    def score(self, start: Array, step: float) -> Array:
        """(2, 2): loss and accuracy of new clients, and of the start itself on the records it was learned from."""
        return np.array([self.tested(start, step), self.task.measure(start, *self.known)])

    def by_step(self, start: Array) -> Array:
        """Accuracy of new clients with each of the steps TRIED."""
        return np.array([self.tested(start, step)[1] for step in TRIED])


# ---- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A method with its step sizes. Without a `clip` nothing is protected; `printed` is S4's version to the letter."""

    name: str
    inner_step: float
    outer_step: float
    personal_step: float
    clip: float | None = None
    order: Order = "second"
    printed: bool = False


@dataclass(frozen=True)
class Run:
    """A contender at a problem. Lines of different cases may be one run, if it has no privacy."""

    problem: Problem
    contender: Contender
    epsilon: float = math.inf
    delta: float = DELTA

    def _method(self, world: World) -> PrivateMeta:
        who = self.contender
        made = PaperMeta if who.printed else PrivateMeta
        weights = tuple(int(count) for count in world.data[SUPPORT])
        steps: tuple[float, float, int] = who.inner_step, who.outer_step, 1
        return made(world.task, weights, self.problem.rounds, *steps, RATE, who.order, who.clip)

    def _door(self, seed: int) -> Door:
        releases = self.problem.rounds
        if self.contender.clip is None:
            return Door(seed, Ledger(), randomness=REHEARSAL)
        if self.contender.printed:
            sigma = sampled_multiplier(self.epsilon, self.delta, RATE, 2 * releases, "rdp")  # Theorem 1
            return Door(seed, Ledger(), Gaussian(sigma / 2.0), randomness=REHEARSAL)
        sigma = sampled_multiplier(self.epsilon, self.delta, RATE, releases)
        budget = Budget(self.epsilon, self.delta, planned=Planned(sigma, RATE, releases))
        return Door(seed, Ledger(), Gaussian(sigma), budget, REHEARSAL)

    def go(self, world: World, seed: int, tick: Callable[[], None]) -> Trained:
        door, scores = self._door(seed), list[Array]()

        def watch(state: State) -> None:
            if state.round % EVERY == 0:
                scores.append(world.score(state.servers["model"], self.contender.personal_step))
                tick()

        last, _ = play(self._method(world), world.topo, world.data, door, watch)
        cost = door.spent(world.topo.silos[0], self.delta)  # all source clients release the same
        return Trained(np.array(scores), cost.epsilon, world.by_step(last.servers["model"]))

    def shortened(self, smaller: int) -> Run:
        return replace(self, problem=self.problem.shortened(smaller))

    @property
    def points(self) -> int:
        return self.problem.rounds // EVERY


@dataclass(frozen=True, eq=False)
class Trained:
    """Scores (points, 2, 2) along the way; what was paid; accuracy at the end with other personal steps."""

    scores: Array
    epsilon: float
    by_step: Array


@dataclass(frozen=True)
class Line:
    """One case and method of the table. In a sweep it is the point at `x`."""

    case: str
    run: Run
    x: float = math.nan

    @property
    def key(self) -> Key:
        return self.case, self.run.contender.name


@dataclass(frozen=True)
class Measure:
    """Of new clients after their step; or of the start itself on its `training` records."""

    metric: Literal["loss", "accuracy"]
    training: bool = False

    def case(self, case: str) -> str:
        return f"{case}, training" if self.training else case

    def of(self, scores: Array) -> Array:
        return np.asarray(scores[..., int(self.training), ("loss", "accuracy").index(self.metric)])

    def gain(self, better: Array, worse: Array) -> Array:
        return better - worse if self.metric == "accuracy" else worse - better


ACCURACY, LOSS = Measure("accuracy"), Measure("loss")
TRAINING_ACCURACY, TRAINING_LOSS = Measure("accuracy", training=True), Measure("loss", training=True)


@dataclass(frozen=True)
class Figure:
    """Its lines, drawn round by round; or as a sweep over what `across` names."""

    name: str
    title: str
    lines: Sequence[Line]
    notes: Callable[[Result], Iterable[str | Verdict]]
    measures: tuple[Measure, ...] = (ACCURACY,)
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)  # by case and metric
    reference: Mapping[Key, float] = field(default_factory=dict)
    across: str = ""
    x_log: bool = False

    def run_short(self, seeds: int, data: Path | None, progress: Progress) -> Table:
        """With few rounds and clients, for a look; where records are few, too, only all clients keep the noise down."""
        problems = dict.fromkeys(line.run.problem for line in self.lines)
        varied = len({(p.name, p.records) for p in problems}) > len({p.name for p in problems})
        smaller = 1 if varied else SMALLER
        lines = [replace(line, run=line.run.shortened(smaller)) for line in self.lines]
        table = replace(self, lines=lines).run(seeds, data, progress)
        table.unlike = "; ".join(dict.fromkeys(problem.in_short(smaller) for problem in problems))
        return table

    def run(self, seeds: int, data: Path | None, progress: Progress) -> Table:
        check_seeds(seeds)
        runs = list(dict.fromkeys(line.run for line in self.lines))
        collections = dict.fromkeys(run.problem.collection for run in runs)
        pictures = {collection: collection.pictures(data) for collection in collections}
        ticks, total = 0, seeds * sum(run.points for run in runs)

        def tick() -> None:
            nonlocal ticks
            ticks += 1
            progress(ticks / total, f"{self.name}, repetition {seed + 1} of {seeds}")

        made: dict[Run, list[Trained]] = {run: [] for run in runs}
        untrained: dict[Problem, list[Array]] = {run.problem: [] for run in runs}
        for seed in range(seeds):
            for problem, starts in untrained.items():
                world = problem.world(pictures[problem.collection], seed)
                starts.append(world.by_step(world.task.start))
                for run in runs:
                    if run.problem == problem:
                        made[run].append(run.go(world, seed, tick))
        result = Result(self, made, untrained)
        return Table.of(self.name, seeds, result.rows, self.notes(result), self.title, result.curves())


# ---- what they come to -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Result:
    """What every run came to, seed by seed; and untrained starts with the steps TRIED."""

    figure: Figure
    made: Mapping[Run, Sequence[Trained]]
    untrained: Mapping[Problem, Sequence[Array]]

    def each(self, line: Line, measure: Measure = ACCURACY) -> Array:
        """(seeds,): every run at its end."""
        return np.array([measure.of(trained.scores[-1]) for trained in self.made[line.run]])

    def level(self, line: Line, measure: Measure = ACCURACY) -> float:
        return float(self.each(line, measure).mean())

    def lines(self, method: str, problem: str = "") -> list[Line]:
        """Those of a method, at the problems of a name, in the figure's order."""
        return [line for line in self.figure.lines if line.key[1] == method and problem in ("", line.run.problem.name)]

    @cached_property
    def rows(self) -> list[Row]:
        return [self._row(line, measure) for line in self.figure.lines for measure in self.figure.measures]

    def _row(self, line: Line, measure: Measure) -> Row:
        each, case = self.each(line, measure), measure.case(line.case)
        spread = float(each.std(ddof=1)) if len(each) > 1 else 0.0
        reference = self.figure.reference.get(line.key) if measure == ACCURACY else None
        return Row(
            case, line.key[1], measure.metric, float(each.mean()), spread, self._printed(line, measure), reference
        )

    def _printed(self, line: Line, measure: Measure) -> float | None:
        private = line.run.contender.clip is not None
        return self.figure.printed.get((measure.case(line.case), measure.metric)) if private else None

    # ---- statements ----

    def _levels(self, lines: Sequence[Line], measure: Measure) -> str:
        return ", ".join(f"{line.case} {self.level(line, measure):.3f}" for line in lines)

    def _apart(self, a: Line, b: Line, measure: Measure) -> str:
        """How far two lines are apart, run by run."""
        apart = self.each(a, measure) - self.each(b, measure)
        names = [", ".join(x for x, y in zip(p, q, strict=True) if x != y) for p, q in ((a.key, b.key), (b.key, a.key))]
        return f"{names[0]} against {names[1]} {said(apart)}"

    def _gains(self, better: Line, worse: Line, measure: Measure) -> Array:
        return measure.gain(self.each(better, measure), self.each(worse, measure))

    def improves(self, text: str, lines: Sequence[Line], measure: Measure = ACCURACY) -> Verdict:
        """The claim that from line to line it gets better: the last is better than the first, and no step worse."""
        ends = self._gains(lines[-1], lines[0], measure)
        steps = [self._gains(b, a, measure) for a, b in pairwise(lines)]
        found = f"{self._levels(lines, measure)}; {self._apart(lines[-1], lines[0], measure)}"
        return Verdict(f"{text}, {lines[0].key[1]}", compared([ends], steps), found)

    def turns(self, text: str, lines: Sequence[Line], measure: Measure = ACCURACY) -> Verdict:
        """The claim that it gets better and then worse: one line between the ends is better than both."""
        best = max(lines[1:-1], key=lambda line: measure.gain(self.each(line, measure), np.zeros(())).mean())
        ends = [lines[0], lines[-1]]
        apart = ", ".join(self._apart(best, end, measure) for end in ends)
        outcome = compared([self._gains(best, end, measure) for end in ends])
        return Verdict(f"{text}, {lines[0].key[1]}", outcome, f"{self._levels(lines, measure)}; {apart}")

    def better(self, text: str, pairs: Sequence[tuple[Line, Line]], measure: Measure = ACCURACY) -> Verdict:
        """The claim that the first line of every pair is better than the second."""
        outcome = compared([self._gains(a, b, measure) for a, b in pairs])
        return Verdict(text, outcome, "; ".join(f"{a.case}, {self._apart(a, b, measure)}" for a, b in pairs))

    def literal_cost(self) -> str:
        """What the printed version claims, and what its releases cost by the ledger."""
        found = dict.fromkeys(
            f"{line.run.problem.name}, {line.run.epsilon:g} claimed, {self.made[line.run][0].epsilon:.2f} true"
            + ("" if line.run.delta == DELTA else f" (delta {line.run.delta:g})")
            for line in self.figure.lines
            if line.run.contender.printed
        )
        return "; ".join(found)

    # ---- pictures ----

    def curves(self) -> Iterator[Json]:
        return self._sweeps() if self.figure.across else self._courses()

    def _courses(self) -> Iterator[Json]:
        """Every private method has a panel, with none in it to compare."""
        private = [line for line in self.figure.lines if line.run.contender.clip is not None]
        panels: dict[tuple[str, str], list[Line]] = {}
        for line in private:
            panels.setdefault((line.run.problem.name, line.key[1]), []).append(line)
        for (problem, method), lines in panels.items():
            none = {line.run: line for line in self.lines("none", problem)}
            for line in (*lines, *none.values()):
                label = line.case if line in lines else "none" if len(none) == 1 else f"none, {line.case}"
                y = np.mean([ACCURACY.of(trained.scores) for trained in self.made[line.run]], axis=0)
                x = [*range(EVERY, line.run.problem.rounds + 1, EVERY)]
                yield _curve(f"{problem}: {method}", label, x, y, "accuracy")

    def _sweeps(self) -> Iterator[Json]:
        across: Json = {"x_name": self.figure.across, "x_log": self.figure.x_log}
        for measure in self.figure.measures:
            sweeps: dict[tuple[str, str], list[Line]] = {}
            for line in self.figure.lines:
                sweeps.setdefault((line.run.problem.name, line.key[1]), []).append(line)
            for (problem, method), lines in sweeps.items():
                panel = f"{problem}, {measure.case(f'{measure.metric} over {self.figure.across}')}"
                y = [self.level(line, measure) for line in lines]
                yield _curve(panel, method, [line.x for line in lines], y, measure.metric) | across
                known = {line.x: self._printed(line, measure) for line in lines}
                printed = {x: value for x, value in known.items() if value is not None}
                if printed and method == "sound":  # once for all methods of a panel
                    yield _curve(panel, "printed", [*printed], printed.values(), measure.metric) | across


def _curve(panel: str, label: str, x: Sequence[float], y: Iterable[Any], unit: str) -> Json:
    return {"panel": panel, "label": label, "x": list(x), "y": [round(float(value), 4) for value in y], "unit": unit}
