"""Compare methods for clustered clients run by run: every repetition has its own records and graph, which all methods
share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from silograph.core.types import Array, Json
from silograph.data.regions import Records
from silograph.methods.base import Method, Private, State
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.model_baselines import Alone
from silograph.privacy.accounting import zcdp
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Scheduled
from silograph.privacy.released import bare
from silograph.reproduce.runner import Progress, Row, Table, curve, repeat, rounded
from silograph.reproduce.verdicts import ALIKE, Verdict, alike, compared, with_interval
from silograph.run.loop import REHEARSAL, play
from silograph.tasks.clustered import Linearised, Proximal
from silograph.topology import Topology

LAM, DELTA = 0.01, 1e-5
EVERY = 2  # rounds between the points of a curve
EARLY = 10  # rounds
NEAR = 0.5  # dB: so close are curves that end alike

PHI_0, ZETA = 0.001, 0.99  # zCDP of the first round, and its factor every round

EVERYBODY, SCHEDULED = "everybody", "schedule=60%"
NO_NOISE, NOISE = "no privacy", f"phi0={PHI_0:g}"
SERVERS, CLIENTS, SAMPLE = 10, 15, 9  # clients of a server, and how many of them are scheduled
PRIVATE_RHO = 10.0

#: A line's case and method.
Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class World:
    """One repetition. `score` is of the clients' own models (K, d): NMSD (50), or test accuracy."""

    topo: Topology
    records: Sequence[Records]
    clusters: tuple[int, ...]
    score: Callable[[Array], float]
    _prepared: dict[Proximal | Linearised, list[Private]] = field(default_factory=dict)

    def prepared(self, task: Proximal | Linearised) -> list[Private]:
        if task not in self._prepared:
            self._prepared[task] = [task.prepare(part) for part in self.records]
        return self._prepared[task]


@dataclass(frozen=True)
class Setting:
    """How the methods of a case are run. With `noise` records are protected."""

    case: str
    task: Proximal | Linearised
    rho: float
    rounds: int
    sample: int | None = None
    noise: Scheduled | None = None


@dataclass(frozen=True)
class Contender:
    """`options` are ClusteredADMM's. `one` model for all clusters is GFL."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    one: bool = False


def pgfl(tau: float, decay: float = 1.0, form: Literal["others", "all"] = "others") -> Contender:
    name = f"{tau:g}" + (f" x {decay:g}^n" if decay < 1.0 else "") + (", all" if form == "all" else "")
    return Contender(f"PGFL({name})", {"tau": tau, "tau_decay": decay, "form": form})


EXCHANGE, NO_EXCHANGE, DECAYING = pgfl(0.4), pgfl(0.0), pgfl(0.4, 0.98)
GFL = Contender("GFL", one=True)
CLUSTER_FL = Contender("ClusterFL", {"tau": 0.4, "weights": "alone"})
ALONE = Contender("alone")
LEARNED = Contender("PGFL(learned)", {"tau": "learned"})
TAUS = tuple(k / 10 for k in range(11))


@dataclass(frozen=True)
class Line:
    """One row of the table. In a sweep it is the point at `x` of the `curve`."""

    setting: Setting
    contender: Contender
    x: float = math.nan
    curve: str = ""

    @property
    def key(self) -> Key:
        return self.setting.case, self.contender.name

    def method(self, world: World, seed: int) -> Method:
        how, who = self.setting, self.contender
        if who is ALONE:
            assert isinstance(how.task, Proximal)
            return Alone(how.task, LAM / world.topo.sizes[0])
        clusters = (0,) * len(world.clusters) if who.one else world.clusters
        return ClusteredADMM(
            how.task,
            clusters,
            how.rho,
            how.rounds,
            lam=LAM,
            sample=how.sample,
            protect="none" if how.noise is None else "records",
            seed=seed,
            **who.options,
        )

    def run(self, world: World, seed: int, tick: Callable[[], None]) -> tuple[Array, Cost | None]:
        """Run a method; return the score after every second round, and the clients' cost if they are protected."""
        door = Door(seed, Ledger(), self.setting.noise, randomness=REHEARSAL)
        scores: list[float] = []

        def watch(state: State) -> None:
            if self.contender is ALONE or state.round % EVERY == 0:
                scores.append(world.score(bare(state.carry["model"])))

        play(self.method(world, seed), world.topo, world.prepared(self.setting.task), door, watch)
        cost = None if self.setting.noise is None else _cost(door, world.topo)
        return np.resize(scores, self.setting.rounds // EVERY), cost


def lines_of(setting: Setting, *contenders: Contender) -> list[Line]:
    return [Line(setting, contender) for contender in contenders]


def tau_lines(setting: Callable[[str], Setting]) -> list[Line]:
    """A sweep over tau; `setting` makes that of a case."""
    return [Line(setting(f"tau={tau:g}"), pgfl(tau), tau, SCHEDULED) for tau in TAUS]


@dataclass(frozen=True)
class Cost:
    """The cost of a client: zCDP, the mean over clients and repetitions; and the largest epsilon at DELTA."""

    zcdp: float
    epsilon: float


@dataclass(frozen=True)
class Figure:
    """Its lines, drawn round by round, a panel for each case; or as a sweep over what `across` names."""

    name: str
    title: str
    world: Callable[[int], World]
    lines: Sequence[Line]
    notes: Callable[[Result], Iterable[str | Verdict]]
    unit: Literal["dB", "accuracy"] = "dB"
    reference: Mapping[Key, float] = field(default_factory=dict)
    across: str = ""
    x_log: bool = False

    def run(self, seeds: int, progress: Progress) -> Table:
        kinds = {None: list(dict.fromkeys(self.lines))}
        scores = repeat(self.name, seeds, progress, kinds, lambda _, seed: self.world(seed), Line.run)
        costs = {line.key: [cost for _, cost in runs if cost is not None] for line, runs in scores.items()}
        paid = {
            key: Cost(float(np.mean([one.zcdp for one in all])), max(one.epsilon for one in all))
            for key, all in costs.items()
            if all
        }
        result = Result(self, {line.key: np.array([made for made, _ in runs]) for line, runs in scores.items()}, paid)
        return Table.of(self.name, seeds, result.rows, self.notes(result), self.title, result.curves())


def _cost(door: Door, topo: Topology) -> Cost:
    total = {silo: zcdp(door.ledger.of(silo)) for silo in topo.silos}
    most = max(total, key=lambda silo: total[silo])
    return Cost(float(np.mean([*total.values()])), door.spent(most, DELTA).epsilon)


@dataclass(frozen=True, eq=False)
class Result:
    """The scores (seeds, points) of every line, and the cost if records were protected."""

    figure: Figure
    scores: Mapping[Key, Array]
    costs: Mapping[Key, Cost]

    def _shown(self, scores: Any) -> Array:
        return np.asarray(10.0 * np.log10(scores) if self.figure.unit == "dB" else scores)

    def each(self, key: Key, at: int | None = None) -> Array:
        """(seeds,): every run after `at` rounds, or at its end."""
        return self._shown(self.scores[key][:, -1 if at is None else at // EVERY - 1])

    def level(self, key: Key) -> float:
        """The level of the mean over the runs."""
        return float(self._shown(self.scores[key][:, -1].mean()))

    @cached_property
    def rows(self) -> list[Row]:
        return [self._row(line.key) for line in self.figure.lines]

    def _row(self, key: Key) -> Row:
        metric = "NMSD" if self.figure.unit == "dB" else "accuracy"
        return Row.of((*key, metric), self.each(key), None, self.figure.reference.get(key), self.level(key))

    # ---- statements ----

    def _gains(self, better: Key, worse: Key, at: int | None = None) -> Array:
        """(seeds,): how much better one line is than another, run by run."""
        apart = self.each(better, at) - self.each(worse, at)
        return -apart if self.figure.unit == "dB" else apart

    def _apart(self, better: Key, worse: Key, at: int | None = None) -> str:
        """How far one line is above or below another, run by run."""
        gains = self._gains(better, worse, at)
        size = (
            f"{with_interval(-gains, 2)} dB"
            if self.figure.unit == "dB"
            else f"{with_interval(100.0 * gains, 1)} points"
        )
        both = [*zip(better, worse, strict=True)]
        common = "".join(f"{a}, " for a, b in both if a == b)
        first, second = (", ".join(side) for side in zip(*((a, b) for a, b in both if a != b), strict=True))
        return f"{common}{first} against {second} {size}, better in {(gains > 0.0).sum()} of {len(gains)} runs"

    def statement(self, text: str, *pairs: tuple[Key, Key], at: int | None = None) -> Verdict:
        """The paper's statement that the first line of every pair is better than the second."""
        when = "" if at is None else f", after {at} rounds"
        outcome = compared([self._gains(*pair, at) for pair in pairs])
        return Verdict(f"The paper: {text}{when}", outcome, "; ".join(self._apart(*pair, at) for pair in pairs))

    def remark(self, text: str, *pairs: tuple[Key, Key]) -> str:
        return f"{text}. {'; '.join(self._apart(*pair) for pair in pairs)}."

    def near(self, text: str, *pairs: tuple[Key, Key], why: str = "") -> Verdict:
        """The paper's statement that the lines of every pair end alike."""
        outcome = alike([self._gains(*pair) for pair in pairs], NEAR)
        found = "; ".join(self._apart(*pair) for pair in pairs)
        return Verdict(f"The paper: {text}", outcome, found, ALIKE.format(within=f"{NEAR:g} dB"), why)

    def paid(self) -> str:
        found = dict.fromkeys(
            f"{case}: {cost.zcdp:.3g} zCDP, epsilon {cost.epsilon:.3g}" for (case, _), cost in self.costs.items()
        )
        return (
            "By the ledger, for one record of a client: zCDP on average over the clients, each in the rounds it really "
            f"took part in, and epsilon at delta {DELTA:g} of the client that paid most: {'; '.join(found)}."
        )

    def tau_statements(self, text: str, good: Sequence[float]) -> Iterator[str | Verdict]:
        """The statements about a sweep over tau: the good values are better than 0, and 1 is worse."""
        keys = {line.x: line.key for line in self.figure.lines}
        yield self.statement(text, *((keys[tau], keys[0.0]) for tau in good))
        levels = {tau: self.level(key) for tau, key in keys.items()}
        best, *_, worst = sorted(levels, key=lambda tau: levels[tau], reverse=self.figure.unit != "dB")
        yield self.statement("too large a tau degrades it", (keys[0.4], keys[1.0]), (keys[0.0], keys[1.0]))
        yield f"tau {best:g} is the best of all and {worst:g} the worst."

    # ---- pictures ----

    def curves(self) -> Iterator[Json]:
        figure = self.figure
        if figure.across:
            for label in dict.fromkeys(line.curve for line in figure.lines):
                lines = [line for line in figure.lines if line.curve == label]
                x, y = [line.x for line in lines], [self.level(line.key) for line in lines]
                panel, axis = f"over {figure.across}", {"x_name": figure.across, "x_log": figure.x_log}
                yield curve(panel, label, x, y, figure.unit, **axis)
            return
        for line in figure.lines:
            rounds, means = range(EVERY, line.setting.rounds + 1, EVERY), self._shown(self.scores[line.key].mean(0))
            yield curve(line.setting.case, line.contender.name, rounds, rounded(means), figure.unit)
