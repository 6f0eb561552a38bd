"""Compare perturbations of servers' messages: their effect on the centroid and on the regions' own models.

A repetition has its own records, schedule and noise; all methods share its records and schedule, so that they can be
compared run by run. The graph of servers is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from silograph.core.types import Array, Json
from silograph.data.regions import Records
from silograph.kernels import mixing
from silograph.methods.base import Private
from silograph.methods.graph_federation import GraphFederation, Perturbation
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.reproduce.runner import Progress, Row, Table, curve, repeat, rounded
from silograph.reproduce.verdicts import Verdict
from silograph.run.loop import REHEARSAL, play
from silograph.tasks.linear import Linear
from silograph.topology import Topology, Weights, regions, server_graph

METHODS: tuple[Perturbation, ...] = ("none", "homomorphic", "edge", "sender", "private")
METRICS = ("centroid", "average", "disagreement")
PANELS = {"centroid": "centroid", "average": "average over regions", "disagreement": "disagreement"}
WEIGHTS: dict[Weights, str] = {"metropolis": "Metropolis", "lazy": "lazy"}

GRAPH_SEED = 11
EPOCHS, BATCH = (1, 10), (5, 10)
ROUNDS = 120
CLIP, DELTA = 1.0, 1e-6
MOST_POINTS = 200  # of a curve

#: (case, method, metric) -> measured by another implementation.
Reference = Mapping[tuple[str, str, str], float]


@dataclass(frozen=True, eq=False)
class World:
    """One repetition's records, and for classes some to test on."""

    task: Linear
    data: Private
    test: Records | None = None

    @cached_property
    def optimum(self) -> Array:
        return self.task.optimum(self.data)  # (55)

    def scores(self, models: Array) -> Array:
        """(rounds, metrics) of models (rounds, P, M)."""
        if self.test is None:
            errors = [mixing.msd_centroid(models, self.optimum), mixing.msd_regions(models, self.optimum)]  # (58), (59)
        else:
            both = mixing.centroid(models)[:, None], models
            errors = [self.task.error_rate(w, *self.test).mean(-1) for w in both]
        return np.stack([*errors, mixing.disagreement(models)], -1)


@dataclass(frozen=True)
class Case:
    """Step size mu, variance sigma_g^2 of the noise, and the servers' weights."""

    step: float
    variance: float
    weights: Weights = "metropolis"

    @property
    def rounds(self) -> int:
        """The first half is for forgetting the start, which takes longer with smaller steps."""
        return max(ROUNDS, round(24.0 / self.step))


Kind = tuple[Case, Perturbation]


@dataclass(frozen=True)
class Problem:
    """P regions of K agents, L of them sampled a round; `world(seed)` draws the records."""

    servers: int
    agents: int
    sample: int
    world: Callable[[int], World]
    tested: bool = False

    def topology(self, weights: Weights) -> Topology:
        return regions(server_graph("erdos-renyi", self.servers, GRAPH_SEED, weights=weights), self.agents)

    def run(self, kind: Kind, world: World, seed: int, tick: Callable[[], None]) -> tuple[Array, float]:
        """(rounds, metrics), and, by the ledger, epsilon of an agent against anybody who hears its server."""
        case, method = kind
        topo, clip = self.topology(case.weights), CLIP if method == "private" else None
        settings = (case.step, case.rounds, self.sample, EPOCHS, BATCH)
        federation = GraphFederation(world.task, *settings, method, case.variance, clip=clip, seed=seed)
        # `private` has the same variance: the deviation is that many times what an agent moves, 2 C / L.
        mechanism = None if clip is None else Gaussian(math.sqrt(case.variance) * self.sample / (2.0 * clip))
        door = Door(seed, Ledger(), mechanism, randomness=REHEARSAL)
        models: list[Array] = []
        play(federation, topo, world.data, door, lambda state: models.append(state.servers["model"]))
        return world.scores(np.array(models)), door.spent(topo.servers[0], DELTA, "neighbour").epsilon

    def unit(self, metric: str) -> str:
        return "test error" if self.tested and metric != "disagreement" else "dB"

    def shown(self, means: Array, metric: str) -> Array:
        """Squared distances in dB, test errors as they are."""
        return np.asarray(10.0 * np.log10(means)) if self.unit(metric) == "dB" else means


@dataclass(frozen=True)
class Figure:
    """`cases` differ in what is `varied` and have the paper's weights, Metropolis; all are done with lazy ones, too."""

    name: str
    title: str
    problem: Problem
    varied: Literal["step", "variance"]
    cases: Sequence[Case]
    reference: Reference
    notes: Callable[[Result], Iterable[str | Verdict]]

    def run(self, seeds: int, progress: Progress) -> Table:
        kinds = list(dict.fromkeys(_kind(case, method) for case in self.all_cases for method in METHODS))
        worlds: list[World] = []

        def draw(_: None, seed: int) -> World:
            worlds.append(self.problem.world(seed))
            return worlds[-1]

        made = repeat(self.name, seeds, progress, {None: kinds}, draw, self.problem.run)
        scores = {kind: np.array([errors for errors, _ in runs]) for kind, runs in made.items()}
        result = Result(self, worlds, scores, {kind: runs[-1][1] for kind, runs in made.items()})
        return Table.of(self.name, seeds, result.rows, self.notes(result), self.title, result.curves())

    def with_weights(self, weights: Weights) -> list[Case]:
        return [replace(case, weights=weights) for case in self.cases]

    @property
    def all_cases(self) -> list[Case]:
        return [case for weights in WEIGHTS for case in self.with_weights(weights)]

    @property
    def symbol(self) -> str:
        return "mu" if self.varied == "step" else "sigma2"

    def called(self, case: Case) -> str:
        return f"{self.symbol}={getattr(case, self.varied):g}" + (", lazy" if case.weights == "lazy" else "")


def _kind(case: Case, method: Perturbation) -> Kind:
    """The kind of a run; without noise its variance does not matter."""
    return (replace(case, variance=0.0) if method == "none" else case), method


@dataclass(frozen=True, eq=False)
class Result:
    """The worlds, and of every kind of run the scores (seeds, rounds, metrics) and epsilon."""

    figure: Figure
    worlds: Sequence[World]
    scores: Mapping[Kind, Array]
    epsilons: Mapping[Kind, float]

    def _scores(self, case: Case, method: Perturbation, metric: str) -> Array:
        return np.asarray(self.scores[_kind(case, method)][..., METRICS.index(metric)])

    def steady(self, case: Case, method: Perturbation, metric: str) -> Array:
        """(seeds,): each run's mean over the second half of its rounds."""
        return np.asarray(self._scores(case, method, metric)[:, case.rounds // 2 :].mean(1))

    def level(self, case: Case, method: Perturbation, metric: str) -> float:
        return float(self.figure.problem.shown(self.steady(case, method, metric).mean(), metric))

    @cached_property
    def rows(self) -> list[Row]:
        places = [(case, method, metric) for case in self.figure.all_cases for method in METHODS for metric in METRICS]
        return [self._row(*place) for place in places]

    def _row(self, case: Case, method: Perturbation, metric: str) -> Row:
        each = self.figure.problem.shown(self.steady(case, method, metric), metric)
        cell = (self.figure.called(case), method, metric)
        return Row.of(cell, each, None, self.figure.reference.get(cell), self.level(case, method, metric))

    def curves(self) -> Iterator[Json]:
        """Of a single case every method round by round. Of several the steady states, then the paper's own curves."""
        figure = self.figure
        for weights, name in WEIGHTS.items():
            cases = figure.with_weights(weights)
            for metric in METRICS:
                panel = f"{PANELS[metric]}, {name}"
                for method in METHODS:
                    draw = self._course if len(cases) == 1 else self._sweep
                    yield draw(panel, method, cases, method, metric)
        for metric in METRICS[:2] if len(figure.cases) > 1 else ():
            for method in METHODS[1:]:
                panel = f"{PANELS[metric]} round by round, {method}, Metropolis"
                for case in figure.cases:
                    yield self._course(panel, figure.called(case), [case], method, metric)

    def _course(self, panel: str, label: str, cases: Sequence[Case], method: Perturbation, metric: str) -> Json:
        """Of a single case: the mean over the runs in every round, or in every second, third ... one."""
        (case,) = cases
        means = self.figure.problem.shown(self._scores(case, method, metric).mean(0), metric)
        x = range(1, case.rounds + 1, math.ceil(case.rounds / MOST_POINTS))
        return curve(panel, label, x, rounded(means[i - 1] for i in x), self.figure.problem.unit(metric))

    def _sweep(self, panel: str, label: str, cases: Sequence[Case], method: Perturbation, metric: str) -> Json:
        x = [getattr(case, self.figure.varied) for case in cases]
        y, axis = [self.level(case, method, metric) for case in cases], {"x_name": self.figure.symbol, "x_log": True}
        return curve(panel, label, x, y, self.figure.problem.unit(metric), **axis)
