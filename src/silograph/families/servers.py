"""What families over a graph of servers have in common: the graph in a plan, and most of a job."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.processes import time_of, workers_for
from silograph.core.results import Guarantee, Label, LinearTask, ServerGraph, ServerRound, Test
from silograph.core.types import Array, Json
from silograph.data.categories import labels_of
from silograph.data.features import raw_values
from silograph.data.regions import RegionTables
from silograph.data.silos import Elsewhere, records_of
from silograph.methods.base import Private
from silograph.methods.calibrated import Calibrated
from silograph.methods.calibration import Choice
from silograph.privacy import accounting
from silograph.privacy.accounting import Cost
from silograph.privacy.door import Budget
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import SharedGaussian, SharedLaplace
from silograph.privacy.observers import OWN_SERVER
from silograph.privacy.secure_partners import loads
from silograph.run.results import UNPROTECTED, guarantee
from silograph.run.sections import naming_files, option
from silograph.tasks.linear import Linear, signs
from silograph.topology import Topology, graph_from, server_graph, spectral_gap

OBSERVERS = (OWN_SERVER, "neighbour", "another agent", "wire", "public")
INTERCEPT = "intercept"
NOTICED = 0.01  # of the variance of answers


@dataclass(frozen=True)
class Servers:
    """Which servers talk to each other: a shape (complete by default), pairs of regions, or a GraphML file."""

    graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] | None = option(
        None, 'Which servers talk to each other: "complete", "ring", "grid", "random" or "erdos-renyi".'
    )
    links: tuple[tuple[str, str], ...] | None = None
    file: str | None = naming_files(None)
    weights: Literal["lazy", "metropolis"] = "lazy"
    seed: int = 0

    def __post_init__(self) -> None:
        if sum(way is not None for way in (self.graph, self.links, self.file)) > 1:
            raise InputError(wording.setting("[topology]"), "a graph, links or a file", "found more than one")


def graph_of(servers: Servers, names: Sequence[str], base: Path) -> Topology:
    """The plan's graph over the tables' regions."""
    if servers.file is not None:
        given = graph_from(base / servers.file, weights=servers.weights)
        if set(given.servers) != set(names):
            odd = sorted(set(given.servers) ^ set(names))
            raise InputError(
                str(servers.file), "the regions of the tables as its nodes", f"{', '.join(odd[:5])} differ"
            )
        order = [given.servers.index(name) for name in names]
        return Topology((), tuple(names), mixing=given.mixing[np.ix_(order, order)])
    if servers.graph is not None and servers.graph != "complete":
        shape = server_graph(servers.graph, len(names), servers.seed, weights=servers.weights)
        return Topology((), tuple(names), mixing=shape.mixing)
    linked = np.zeros((len(names), len(names)))
    for pair in servers.links or []:
        for name in pair:
            if name not in names:
                raise InputError(wording.setting("links"), f"regions: {', '.join(names)}", f"found {name!r}")
        a, b = (names.index(name) for name in pair)
        linked[a, b] = linked[b, a] = float(a != b)
    if servers.links is None:
        linked = 1.0 - np.eye(len(names))
    return graph_from(linked, names, weights=servers.weights)


def check_masks(masks: str, clip: float | None, sample: int | None, minimum: int) -> None:
    """What a secure sum needs."""
    if masks == "none":
        return
    if clip is None:
        raise InputError(
            wording.setting("clip"), "a number with masks, so that no sum overflows", "found none", "Try clip = 1."
        )
    if sample is not None and sample < minimum:
        raise InputError(
            wording.setting("sample"), f"at least the minimum cohort of {minimum} with masks", f"found {sample}"
        )


def check_classes(classes: tuple[str, str] | None, loss: str) -> None:
    if classes is not None and loss != "logistic":
        raise InputError(wording.setting("classes"), 'none, or loss = "logistic"', f"found the loss {loss}")


def check_answers(answers: tuple[float, float] | None, loss: str) -> None:
    """What a private mean of answers needs to know beforehand."""
    if loss == "logistic" and answers is not None:
        raise InputError(wording.setting("answers"), "none with classes", "found some")
    if loss != "logistic" and answers is None:
        todo = "From public knowledge, in [data]: answers = [0, 100]. What lies beyond counts as the bound."
        raise InputError(
            wording.setting("answers"), "the least and the most of the target, with privacy", "found none", todo
        )


def check_intercept(intercept: bool, features: Sequence[str]) -> None:
    if intercept and INTERCEPT in features:
        raise InputError(
            wording.setting("intercept"), f"no feature called {INTERCEPT}", "there is one", "Set intercept = false."
        )


def with_intercept(x: Array, intercept: bool) -> Array:
    return np.column_stack([x, np.ones(len(x))]) if intercept else x


def left_out_of_servers(test: str | None, masks: str | None) -> list[str]:
    """What a deployment leaves out of a plan."""
    words = [] if test is None else [f"the test table {test}: no errors are measured"]
    return words + (["skipping the masks: agents' updates are masked, by the secure sum"] if masks == "skipped" else [])


@dataclass(frozen=True, eq=False)
class ServersJob:
    """What the jobs of such families share; the names of a family's own plan and method narrow these types."""

    plan: Any
    tables: RegionTables
    topo: Topology
    method: Any

    @property
    def most_rounds(self) -> int:
        raise NotImplementedError

    def at(self, region: str, without: Collection[str] = ()) -> Any:
        """The job as one region's server does it, with its neighbours and nobody in the middle."""
        if without and self.hears_all:
            found = f"{', '.join(sorted(without))} would be left out"
            todo = "All servers add up one sum, so all must take part: make a new deployment with those that are left."
            raise InputError("deployment, regions", "all regions, neighbours or not", found, todo)
        return replace(self, topo=self.topo.at(region, without), tables=self.tables.at(region))

    @property
    def hears_all(self) -> bool:
        """Whether messages of a server reach all servers, and not only its neighbours."""
        return bool(self.plan.reach == "all")

    @property
    def trusting(self) -> bool:
        """Whether agents trust their own server: it sees what the budget protects against others."""
        raise NotImplementedError

    @property
    def added_up(self) -> Sequence[int]:
        """How many agents are added up in each sum of a round."""
        raise NotImplementedError

    @property
    def takes(self) -> Json | None:
        """About how many seconds all secure sums take here, and on how many cores."""
        if self.plan.masks != "protocol":
            return None
        load = loads(self.added_up)
        return {"seconds": self.most_rounds * time_of(*load), "cores": workers_for(*load)}

    @property
    def masks(self) -> Masks | None:
        arithmetic = self.plan.masks
        return None if arithmetic == "none" else Masks(arithmetic, self.plan.method.minimum)

    @property
    def budget(self) -> Budget | None:
        privacy = self.plan.privacy
        trusted = frozenset({OWN_SERVER}) if self.trusting else frozenset[str]()
        return None if privacy is None else Budget(privacy.epsilon, privacy.delta, trusted)

    def of_tables(self) -> list[str]:
        """What tables ask for; their values only where nothing is protected."""
        here = [x for x, _ in self.tables.records if not isinstance(x, Elsewhere)]
        return [*self.tables.notes, *raw_values(self.tables.features, here, self.plan.privacy is not None)]

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.tables.features, *([INTERCEPT] if self.plan.method.intercept else []))

    def prepared(self, task: Linear, silos: Sequence[str] | None) -> Private:
        of = records_of(silos, self.topo.silos, self.tables.agents, self.tables.records)
        return task.prepare_all([(with_intercept(x, self.plan.method.intercept), y) for x, y in of.values()], list(of))

    def planned(self, sites: Sequence[str], cost: Cost) -> list[Guarantee]:
        """Guarantees with this cost against every observer that the budget does not trust."""
        trusted = frozenset() if self.budget is None else self.budget.trusted
        return [
            guarantee(site, observer, UNPROTECTED if observer in trusted else cost, None, self.plan.rehearsal)
            for site in sites
            for observer in OBSERVERS
        ]

    # ---- what result.json says ----

    @property
    def told_task(self) -> LinearTask:
        target, method = self.plan.data.target, self.plan.method
        return LinearTask(method.loss, method.ridge, target, list(self.features), self._labels)

    @property
    def _labels(self) -> tuple[Label, Label] | None:
        """The plan's classes; else -1 and 1 if tables that are here have them and nothing is protected, or 0 and 1."""
        if self.plan.method.loss != "logistic":
            return None
        if self.plan.data.classes is not None:
            return labels_of(self.plan.data.classes)
        negative = self.plan.privacy is None and (self.tables.answers == -1.0).any()
        return (-1 if negative else 0), 1

    @property
    def told_graph(self) -> ServerGraph:
        a, names = self.topo.graph.mixing, self.topo.graph.servers
        links = [(names[p], names[m], float(a[p, m])) for p, m in np.argwhere(np.triu(a, 1))]
        return ServerGraph(list(names), links, self.plan.topology.weights, spectral_gap(a))

    @property
    def apart(self) -> bool:
        """Whether this is one region's part, which does not know the others' models."""
        return self.topo.whole is not None

    def told_trace(self, trace: Sequence[Json]) -> list[ServerRound]:
        unknown = {"disagreement": None} if self.apart else {}
        return [ServerRound(**line | unknown) for line in trace]

    def told_test(self, answers: Array) -> Test:
        """What a model without features would get on test records: the commoner class, or the mean."""
        if self.plan.method.loss != "logistic":
            return Test(len(answers), "mean squared error", float(answers.var()))
        data = self.plan.data
        positive = float((signs(answers, f"{data.test}, column {data.target}") > 0.0).mean())
        return Test(len(answers), "error rate", min(positive, 1.0 - positive))

    def errors(self, task: Linear, models: Array, x: Array, y: Array) -> Array:
        """Errors of one model, or of each of several, on test records."""
        measure = task.error_rate if task.loss == "logistic" else task.squared_error
        return measure(models, with_intercept(x, self.plan.method.intercept), y)


def noise_of_choice(choice: Choice, epsilon: float, delta: float) -> SharedGaussian | SharedLaplace:
    """The noise of a run that has all of the budget; rounds have shares of it."""
    if choice.pure:
        return SharedLaplace(accounting.laplace_multiplier(epsilon, 1))
    return SharedGaussian(accounting.gaussian_multiplier(epsilon, delta, 1))


def of_choice(choice: Choice) -> Json:
    """The settings chosen from public numbers, before anything is spent."""
    shares: dict[str, float] = {}
    for stage, share in choice.schedule:
        shares[stage] = shares.get(stage, 0.0) + share
    return {
        "slopes": choice.slopes,
        "together": choice.together,
        "rounds": choice.rounds,
        "step": choice.step,
        "shares": shares,
        "expected": choice.expected,
    }


def calibration_notes(method: Calibrated, data: Any) -> list[str]:
    """Notes on the chosen settings."""
    notes = [
        constant_note(method)
        or f"{_cost(method)} if columns fill their bounds, and much more if bounds are much wider than the data: the "
        "model helps if features explain more than that. A last sum measures it and removes what is noise; if all is "
        "noise, the model is a constant."
    ]
    if data.files and data.bounds is None:  # what was in memory was scaled before
        notes.append(
            "Features have no bounds in [data]: silograph takes them as within -1 and 1 and clips what is beyond."
        )
    return notes


def _cost(method: Calibrated) -> str:
    what = "of the classes' logits" if method.task.loss == "logistic" else "of answers"
    return f"Expect noise to cost {method.choice.expected:.2g} of the variance {what}"


def constant_note(method: object) -> str:
    """The note on chosen settings by which the model is a constant; empty for others."""
    if not isinstance(method, Calibrated) or method.choice.slopes:
        return ""
    choice, cost = method.choice, _cost(method)
    answers = "the mean answer" if choice.together else "the mean answers of the clusters"
    if choice.offsets:
        answers = "mean answers, of all and of each cluster"
    if method.task.loss == "logistic":  # near a half, a share is off by half of what its logit is, or less
        blur = 0.5 * math.sqrt(choice.expected)
        cost = f"Expect noise of {blur:.2g} in a class's share: nearer to a half the commoner class may be mistaken"
    else:
        cost += ", and more where their bounds are wider than four deviations to either side"
        if choice.expected > NOTICED:
            cost += "; a constant that everybody knows beforehand is better, where there is one"
    return (
        "A constant would do as well: noise leaves nothing of the features' effects, so all of the budget goes to "
        f"{answers}{', with Laplace noise, which needs no delta' if choice.pure else ''}. {cost}. A larger epsilon "
        "or more protected units would help."
    )


def compared_note(each: str) -> str:
    return (
        f"For comparison, {each} alone and one model for all were learned without privacy: simulation only. "
        "Their errors are not protected: set compare = false to leave them out of what others see."
    )
