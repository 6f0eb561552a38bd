"""Compare private meta-learning, its printed version and no privacy, run by run: every repetition has its own clients,
which all methods share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from silograph.core.types import Array, Json
from silograph.methods.base import State
from silograph.methods.meta_baselines import PaperMeta
from silograph.methods.private_meta import SUPPORT, Order, PrivateMeta
from silograph.privacy.accounting import Planned, sampled_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.reproduce.meta_clients import EVERY, Collection, Pictures, Problem, World
from silograph.reproduce.runner import Progress, Row, Table, curve, repeat, rounded
from silograph.reproduce.verdicts import Verdict, compared, with_interval
from silograph.run.loop import REHEARSAL, play

if TYPE_CHECKING:
    pass

RATE, DELTA = 0.1, 1e-3
SMALLER = 3  # times fewer clients, where little time is given

#: A line's case and method.
Key = tuple[str, str]


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


@dataclass(frozen=True, eq=False)
class Trained:
    """Scores (points, 2, 2) along the way; the cost; accuracy at the end with other personal steps."""

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
    unlike: str = ""
    pictures: Mapping[Collection, Pictures] = field(default_factory=dict)

    def short(self, data: Path | None) -> Figure:
        """A quick version with few rounds and clients; if records are few, too, only all clients keep the noise low."""
        problems = dict.fromkeys(line.run.problem for line in self.lines)
        varied = len({(p.name, p.records) for p in problems}) > len({p.name for p in problems})
        smaller = 1 if varied else SMALLER
        lines = [replace(line, run=line.run.shortened(smaller)) for line in self.lines]
        unlike = "; ".join(dict.fromkeys(problem.in_short(smaller) for problem in problems))
        return replace(self, lines=lines, unlike=unlike).open(data)

    def open(self, data: Path | None) -> Figure:
        collections = dict.fromkeys(line.run.problem.collection for line in self.lines)
        return replace(self, pictures={collection: collection.pictures(data) for collection in collections})

    def run(self, seeds: int, progress: Progress) -> Table:
        runs: dict[Problem, list[Run]] = {}
        for run in dict.fromkeys(line.run for line in self.lines):
            runs.setdefault(run.problem, []).append(run)
        untrained: dict[Problem, list[Array]] = {problem: [] for problem in runs}

        def draw(problem: Problem, seed: int) -> World:
            world = problem.world(self.pictures[problem.collection], seed)
            untrained[problem].append(world.by_step(world.task.start))
            return world

        made = repeat(self.name, seeds, progress, runs, draw, Run.go, lambda run: run.problem.rounds // EVERY)
        result = Result(self, made, untrained)
        notes, curves = self.notes(result), result.curves()
        return Table.of(self.name, seeds, result.rows, notes, self.title, curves, self.unlike)


# ---- what they come to -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Result:
    """The result of every run, seed by seed; and untrained starts with the steps TRIED."""

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
        cell = (measure.case(line.case), line.key[1], measure.metric)
        reference = self.figure.reference.get(line.key) if measure == ACCURACY else None
        return Row.of(cell, self.each(line, measure), self._printed(line, measure), reference)

    def _printed(self, line: Line, measure: Measure) -> float | None:
        private = line.run.contender.clip is not None
        return self.figure.printed.get((measure.case(line.case), measure.metric)) if private else None

    # ---- statements ----

    def _levels(self, lines: Sequence[Line], measure: Measure) -> str:
        return ", ".join(f"{line.case} {self.level(line, measure):.3f}" for line in lines)

    def _apart(self, a: Line, b: Line, measure: Measure) -> str:
        """The difference of two lines, run by run."""
        apart = self.each(a, measure) - self.each(b, measure)
        names = [", ".join(x for x, y in zip(p, q, strict=True) if x != y) for p, q in ((a.key, b.key), (b.key, a.key))]
        return f"{names[0]} against {names[1]} {with_interval(apart)}"

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
        """The cost that the printed version claims, and that of its releases by the ledger."""
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
        """Every private method has a panel, with the method without privacy to compare."""
        private = [line for line in self.figure.lines if line.run.contender.clip is not None]
        panels: dict[tuple[str, str], list[Line]] = {}
        for line in private:
            panels.setdefault((line.run.problem.name, line.key[1]), []).append(line)
        for (problem, method), lines in panels.items():
            none = {line.run: line for line in self.lines("none", problem)}
            for line in (*lines, *none.values()):
                label = line.case if line in lines else "none" if len(none) == 1 else f"none, {line.case}"
                y = np.mean([ACCURACY.of(trained.scores) for trained in self.made[line.run]], axis=0)
                x = range(EVERY, line.run.problem.rounds + 1, EVERY)
                yield curve(f"{problem}: {method}", label, x, rounded(y), "accuracy")

    def _sweeps(self) -> Iterator[Json]:
        across: Json = {"x_name": self.figure.across, "x_log": self.figure.x_log}
        for measure in self.figure.measures:
            sweeps: dict[tuple[str, str], list[Line]] = {}
            for line in self.figure.lines:
                sweeps.setdefault((line.run.problem.name, line.key[1]), []).append(line)
            for (problem, method), lines in sweeps.items():
                panel = f"{problem}, {measure.case(f'{measure.metric} over {self.figure.across}')}"
                y = [self.level(line, measure) for line in lines]
                yield curve(panel, method, [line.x for line in lines], rounded(y), measure.metric, **across)
                known = {line.x: self._printed(line, measure) for line in lines}
                printed = {x: value for x, value in known.items() if value is not None}
                if printed and method == "sound":  # once for all methods of a panel
                    yield curve(panel, "printed", printed, rounded(printed.values()), measure.metric, **across)
