"""From the plan of clustered models and its tables to what will run, and from its outcome to what it leaves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.types import Array, Json
from silograph.data.silos import records_of
from silograph.data.units import Records, UnitTables, check_one_home, read_tests, read_units
from silograph.families.clusters.plan import ClusteredPlan
from silograph.families.servers import (
    INTERCEPT,
    OBSERVERS,
    check_intercept,
    graph_of,
    test_told,
    topology_told,
    with_intercept,
)
from silograph.methods.base import Method, Outcome, Private
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.finding import FindClusters, FoundClusters
from silograph.methods.model_baselines import Alone
from silograph.privacy import accounting
from silograph.privacy.gate import CLIPPED_AGENT, OWN_SERVER, Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import DistributedGaussian, Gaussian, Mechanism, Scheduled
from silograph.run.loop import ENGINES, last, rounds
from silograph.run.results import rehearsal_note, stated, worst_by_site
from silograph.tasks.clustered import Linearised, Proximal
from silograph.tasks.linear import UNIT, Linear, signs
from silograph.topology import Topology, units

PACKAGES = ()

Task = Proximal | Linearised


@dataclass(frozen=True, eq=False)
class ClusteredJob:
    """`names` are the clusters'; where they are found rather than given they are numbered."""

    plan: ClusteredPlan
    tables: UnitTables
    tests: dict[str, Records]
    topo: Topology
    names: tuple[str, ...]
    task: Task
    method: ClusteredADMM | FoundClusters

    @classmethod
    def of(cls, plan: ClusteredPlan, tables: UnitTables, tests: dict[str, Records], graph: Topology) -> ClusteredJob:
        data, chosen, private = plan.data, plan.method, plan.privacy is not None
        check_intercept(chosen.intercept, tables.features)
        if chosen.loss == "logistic" and not private:
            signs(tables.answers, f"column {data.target}")
        topo = units(graph, np.bincount(tables.home).tolist(), tables.agents)
        if chosen.find is None:
            names, told = tuple(sorted(set(tables.clusters))), list(tables.clusters)
        else:
            names = tuple(f"cluster {k + 1}" for k in range(chosen.find))
            told = [names[k % chosen.find] for k in range(len(tables.agents))]  # in turn, until they are found
        of = dict(zip(tables.agents, told, strict=True))
        task = _task(plan, tables)
        inner = ClusteredADMM(
            task,
            tuple(names.index(of[name]) for name in topo.silos),
            chosen.penalty,
            chosen.rounds,
            chosen.ridge,
            chosen.tau,
            chosen.tau_decay,
            chosen.form,
            chosen.weights,
            sample=chosen.sample,
            protect=plan.protect,
            clip=None if plan.protect == "records" else chosen.clip,
            seed=plan.seed or 0,
        )
        method: ClusteredADMM | FoundClusters = inner
        if chosen.find is not None:
            seen = Linear(task.features, task.most, chosen.loss, 0.0, chosen.huber)
            method = FoundClusters(FindClusters(seen, chosen.find, chosen.clip if private else None), inner)
        method.start(topo)  # refuses what does not fit together before anything is written
        job = cls(plan, tables, tests, topo, names, task, method)
        job._check()
        return job

    @property
    def inner(self) -> ClusteredADMM:
        return self.method.inner if isinstance(self.method, FoundClusters) else self.method

    def _too_small(self) -> list[str]:
        """Cells whose sum may never be known; with found clusters that cannot be told beforehand."""
        if self.masks is None or self.plan.method.find is not None:
            return []
        cells = np.bincount(self._cells, minlength=len(self.topo.servers) * len(self.names))
        names = [f"{server}/{name}" for server in self.topo.servers for name in self.names]
        return [name for name, size in zip(names, cells, strict=True) if 0 < size < self.masks.minimum]

    @property
    def _cells(self) -> Array:
        return np.asarray(self.inner.start(self.topo).servers["cell"])

    def _check(self) -> None:
        if self.masks is not None and np.bincount(self._cells).max() < self.masks.minimum:
            raise InputError(
                "plan, minimum",
                "at most the size of the largest cell, the clients of one server and cluster",
                f"{self.masks.minimum} came, and the largest has {np.bincount(self._cells).max()}",
                "Lower it, or join servers or clusters.",
            )
        privacy = self.plan.privacy
        if privacy is not None:
            of = dict(zip(self.tables.agents, self.tables.records, strict=True))
            cells = np.bincount(self._cells)
            for k, name in enumerate(self.topo.silos):
                if privacy.protect == "records":
                    size, what = len(of[name][1]), "records"
                else:
                    size, what = int(cells[self._cells[k]]), "clients"
                accounting.check_budget(privacy.epsilon, privacy.delta, size, f"client {name}", what)
            check_one_home(self.tables.agents, "server", "client")
        self._test()  # whatever is wrong with it, now rather than when the budget is spent

    @property
    def masks(self) -> Masks | None:
        arithmetic = self.plan.method.masks
        return None if arithmetic == "none" else Masks(arithmetic, self.plan.method.minimum)

    @cached_property
    def releases(self) -> int:
        """The most that any client releases: its rounds follow from the public schedule."""
        times, start = np.zeros(len(self.topo.silos)), self.inner.start(self.topo).servers
        for number in range(self.plan.method.rounds):
            rows = self.inner.asked({**start, "round": np.int64(number)}, self.topo)
            times[slice(None) if rows is None else rows] += 1
        return int(times.max()) + (self.plan.method.find is not None)

    @property
    def mechanism(self) -> Mechanism | Scheduled | None:
        privacy, count = self.plan.privacy, self.plan.method.rounds
        if privacy is None:
            return None
        if privacy.protect == "clients" and self.masks is not None:
            return DistributedGaussian(accounting.zcdp_rho(privacy.epsilon, privacy.delta) / count)
        if privacy.protect == "clients":
            return Gaussian(accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, count))
        even = Gaussian(accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, self.releases))
        if privacy.schedule == "even":
            return even
        ratio = privacy.decay if privacy.schedule == "variance_decay" else 1.0 / privacy.decay
        # Whoever takes part in every round spends exactly the budget: the sum of 1/multiplier^2 is what `even` has.
        total = sum(ratio**-number for number in range(count + (self.plan.method.find is not None)))
        return Scheduled(Gaussian(even.multiplier * math.sqrt(total / self.releases)), ratio)

    @property
    def budget(self) -> Budget | None:
        privacy = self.plan.privacy
        if privacy is None:
            return None
        trusting = privacy.protect == "clients" and self.masks is None
        return Budget(privacy.epsilon, privacy.delta, frozenset({OWN_SERVER}) if trusting else frozenset())

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.tables.features, *([INTERCEPT] if self.plan.method.intercept else []))

    @property
    def most_rounds(self) -> int:
        return self.inner.rounds + (self.plan.method.find is not None)  # clusters are found first

    def data(self, silos: Sequence[str] | None = None) -> Private:
        return self._prepared(self.task, silos)

    def _prepared(self, task: Linear, silos: Sequence[str] | None = None) -> Private:
        of = records_of(silos, self.topo.silos, self.tables.agents, self.tables.records)
        return task.prepare_all([(with_intercept(x, self.plan.method.intercept), y) for x, y in of.values()], list(of))

    # ---- what it costs ----

    @property
    def _sites(self) -> Sequence[str]:
        """Whose rows a bill reads: clients', cells', or servers' where nothing is protected."""
        if self.plan.protect == "records":
            return self.topo.silos
        if self.plan.protect == "clients":
            return [f"{server}/cluster-{q}" for server in self.topo.servers for q in range(len(self.names))]
        return self.topo.servers

    def forecast(self) -> Json:
        privacy, mechanism = self.plan.privacy, self.mechanism
        planned: Json = {"epsilon": "infinity", "delta": None, "accountant": accounting.NO_PROTECTION}
        told = planned
        if privacy is not None:
            # Calibrated to the budget; a client that takes part less often than the most pays less.
            how = accounting.CONCENTRATED if isinstance(mechanism, DistributedGaussian) else accounting.EXACT_GAUSSIAN
            told = {"epsilon": privacy.epsilon, "delta": privacy.delta, "accountant": how}
        trusted = self.budget.trusted if self.budget is not None else frozenset()
        guarantees = [
            {
                "site": site,
                "observer": observer,
                **(planned if observer in trusted else told),
                "rehearsal": self.plan.rehearsal,
            }
            for site in self._sites
            for observer in OBSERVERS
        ]
        return {
            # A cell may release in every round, whoever of it is sampled.
            "releases": 0
            if privacy is None
            else self.releases
            if privacy.protect == "records"
            else self.plan.method.rounds,
            "noise_multiplier": None,
            "observers": list(OBSERVERS),
            "sites": worst_by_site(guarantees),
            "guarantees": guarantees,
            "claim": None,
            "notes": self._notes(),
        }

    def privacy_section(self, door: Door) -> Json:
        """The bill, read from the ledger."""
        protect = self.plan.protect
        delta = 0.0 if self.plan.privacy is None else self.plan.privacy.delta
        masked = "obfuscation" if self.masks is not None else "exact"
        relation = {
            "none": "none",
            "records": "replace-one: how many records a client has, and its cluster, are public",
            "clients": "replace-one: which clients there are, and their clusters, are public",
        }
        return {
            "mode": masked if protect == "none" else "dp",
            "unit": {"none": "none", "records": UNIT, "clients": CLIPPED_AGENT}[protect],
            "relation": relation[protect],
            "guarantees": stated(door, self._sites, OBSERVERS, delta, None, self.plan.rehearsal),
            "notes": self._notes(),
        }

    def _notes(self) -> list[str]:
        plan, notes = self.plan, rehearsal_note(self.plan)
        if plan.protect == "none" and self.masks is None:
            notes.append("No privacy was asked for: servers see their clients' updates, and results hold their models.")
        if plan.protect == "none" and self.masks is not None:
            notes.append(
                "No privacy was asked for: masks hide a client's update from its server, not the sum over its cell. "
                "What is written here for a client is its server's model of its cluster."
            )
        if silent := self._too_small():
            notes.append(
                f"{len(silent)} cells have fewer clients than the minimum of {plan.method.minimum} and add nothing; "
                f"their clients only get the others' models: {', '.join(silent[:5])}"
                + (", ..." if len(silent) > 5 else ".")
            )
        if plan.protect == "records":
            notes.append(
                "A client's own model stays with it. What is written here for a client is its server's model of its "
                "cluster, which was computed from what all clients released."
            )
        if plan.protect == "clients" and self.masks is None:
            notes.append("A client's own server sees its clipped differences as they are: it is trusted.")
        if plan.method.masks == "skipped":
            notes.append("Masks were skipped in this simulation: the sums are the ones the secure sum gives.")
        if plan.privacy is not None:
            notes.append(
                "Not protected: which clients there are, their clusters if given, how many records each has "
                "(where records are protected), and that they took part. Links "
                "between a client and its server must be encrypted. Runs add up: another one costs its budget again."
            )
        if plan.method.compare:
            notes.append(
                "What each client gets alone, and one model for all, were learned for comparison: simulation only."
            )
        if self.tests:
            notes.append("The test table is not protected: errors on it are exact.")
        return notes

    # ---- what it leaves ----

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> Json:
        arrays, chosen = outcome.arrays, self.plan.method
        cluster = arrays.get("cluster", np.array(self.inner.clusters)).astype(int)
        # Under protection a client's own model is its own: what is told is its cell's.
        models = arrays["model"] if self.plan.protect == "none" and self.masks is None else arrays["cell_model"]
        clusters = arrays["cluster_model"].mean(0)
        (folder / "models").mkdir(exist_ok=True)
        named = [(name, self.names[q]) for name, q in zip(self.topo.silos, cluster, strict=True)]
        header = ("client", "cluster", *self.features)
        write_atomically(folder / "models" / "clients.csv", _csv(header, named, models))
        own = [(name,) for name in self.names]
        write_atomically(folder / "models" / "clusters.csv", _csv(("cluster", *self.features), own, clusters))
        errors = self._errors(models)
        told = [
            {"name": name, "server": name.split("/", 1)[0], "cluster": of, "test_error": error}
            for (name, of), error in zip(named, errors, strict=True)
        ]
        tau = 0.0 if chosen.tau == "learned" else chosen.tau * chosen.tau_decay ** (chosen.rounds - 1)
        return {
            "method": chosen.name,
            "task": {
                "loss": chosen.loss,
                "ridge": chosen.ridge,
                "target": self.plan.data.target,
                "features": list(self.features),
            },
            "parameters": {
                "penalty": chosen.penalty,
                "rounds": chosen.rounds,
                "tau": chosen.tau,
                "tau_decay": chosen.tau_decay,
                "form": chosen.form,
                "weights": chosen.weights,
                "step": chosen.step,
                "sample": chosen.sample,
                "protect": self.plan.protect,
                "clip": chosen.clip,
                "radius": chosen.radius,
                "masks": chosen.masks,
                "noise": max((row.noise for row in door.ledger.rows if row.noise is not None), default=None),
                "found": chosen.find is not None,
            },
            "topology": topology_told(self.topo, self.plan.topology.weights),
            "clusters": [
                {
                    "name": name,
                    "clients": int((cluster == q).sum()),
                    "model": clusters[q].tolist(),
                    "test_error": self._mean(np.flatnonzero(cluster == q).tolist(), models),
                }
                for q, name in enumerate(self.names)
            ],
            "exchange": arrays.get("exchange", _uniform(len(self.names), tau, chosen.form)).tolist(),
            "clients": told,
            "comparison": self._comparison(models),
            "test": self._test(),
            "disagreement": outcome.facts["disagreement"],
            "rounds": outcome.facts["rounds"],
            "trace": trace,
            "privacy": self.privacy_section(door),
            "numbers_are": {
                **dict.fromkeys(("model", "movement", "disagreement", "test_error"), "released"),
                "comparison": "oracle",
            },
        }

    def _errors(self, models: Array) -> list[float | None]:
        return [self._mean([k], models) for k in range(len(models))]

    def _mean(self, clients: Sequence[int], models: Array) -> float | None:
        """The error over all test records of some clients."""
        wrong, count = 0.0, 0
        for k in clients:
            records = self.tests.get(self.topo.silos[k].split("/", 1)[1])
            if records is not None:
                x, y = records
                logistic = self.task.loss == "logistic"
                measure = self.task.error_rate if logistic else self.task.squared_error
                wrong, count = (
                    wrong + len(y) * float(measure(models[k], with_intercept(x, self.plan.method.intercept), y)),
                    count + len(y),
                )
        return wrong / count if count else None

    def _comparison(self, models: Array) -> list[Json]:
        everybody = list(range(len(models)))
        rows = [{"method": "this run", "test_error": self._mean(everybody, models)}]
        if self.plan.method.compare:
            task = Proximal(self.task.features, self.task.most, self.plan.method.loss, self.plan.method.huber)
            one = replace(self.inner, task=task, clusters=(0,) * len(models), tau=0.0, clip=None)
            for name, method in (
                ("each client alone", Alone(task, max(self.plan.method.ridge, 1e-6))),
                ("one model for all", one),
            ):
                rows.append({"method": name, "test_error": self._mean(everybody, self._learned(method, task))})
        return rows

    def _learned(self, method: Method, task: Linear) -> Array:
        """Another method's models of the same data, in memory."""
        door = Door(0, Ledger())
        place = ENGINES["vector"](self._prepared(task), self.topo, door)
        final = last(rounds(method, self.topo, place, door))
        return method.outcome(final.servers, place.deliver(method, final), self.topo).arrays["model"]

    def _test(self) -> Json | None:
        if not self.tests:
            return None
        y = np.concatenate([answers for _, answers in self.tests.values()])
        return test_told(y, self.plan.method.loss, f"{self.plan.data.test}, column {self.plan.data.target}")


def open_job(plan: ClusteredPlan, base: Path) -> ClusteredJob:
    data, private = plan.data, plan.privacy is not None
    tables = read_units([base / name for name in data.files], data.agent, data.target, private, data.cluster)
    tests = {} if data.test is None else _tests(plan, base / data.test, tables)
    return ClusteredJob.of(plan, tables, tests, graph_of(plan.topology, tables.units, base))


def _task(plan: ClusteredPlan, tables: UnitTables) -> Task:
    chosen, most = plan.method, max(len(y) for _, y in tables.records)
    features = len(tables.features) + chosen.intercept
    if chosen.step == "linearised":
        return Linearised(
            features, most, chosen.loss, chosen.huber, clip=chosen.clip if plan.protect == "records" else None
        )
    return Proximal(features, most, chosen.loss, chosen.huber, radius=chosen.radius)


def _tests(plan: ClusteredPlan, path: Path, tables: UnitTables) -> dict[str, Records]:
    check_one_home(tables.agents, "server", "client")
    tests = read_tests(path, plan.data.agent, plan.data.target, tables.features, plan.data.cluster)
    unknown = sorted(set(tests) - {name.split("/", 1)[1] for name in tables.agents})
    if unknown:
        raise InputError(str(path), "clients of the tables", f"{unknown[0]!r} is none of them")
    return tests


def _uniform(count: int, tau: float, form: str) -> Array:
    """(10) as a matrix."""
    if count == 1:
        return np.eye(1)
    others = np.full((count, count), 1.0 / count) if form == "all" else (1.0 - np.eye(count)) / (count - 1)
    return (1.0 - tau) * np.eye(count) + tau * others


def _csv(header: Sequence[str], names: Sequence[tuple[str, ...]], models: Array) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows((*name, *map(repr, model.tolist())) for name, model in zip(names, models, strict=True))
    return buffer.getvalue().encode()
