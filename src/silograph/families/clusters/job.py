"""From the plan of clustered models and its tables to what will run, and from its outcome to what it leaves."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from silograph.core import schema, wording
from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.results import Compared, Privacy, Test, filled
from silograph.core.spreadsheet import csv_of
from silograph.core.types import Array, Json
from silograph.data.regions import Records, RegionTables, check_one_home, read_regions, read_tests
from silograph.data.tables import shortened
from silograph.families.clusters.learners import Learner, Task, clusters_sought, learner, task_of, too_small
from silograph.families.clusters.plan import ClusteredPlan, learner_of
from silograph.families.clusters.result import Client, Cluster, ClusteredResult, Parameters, Variances
from silograph.families.servers import (
    OBSERVERS,
    ServersJob,
    calibration_notes,
    check_intercept,
    compared_note,
    graph_of,
    noise_of_choice,
    of_choice,
    with_intercept,
)
from silograph.methods.base import Outcome, Private
from silograph.methods.calibrated import Calibrated, own_constant
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.find_clusters import FoundClusters
from silograph.methods.random_effects import RandomEffects
from silograph.privacy import accounting
from silograph.privacy.bound import CLIPPED_AGENT
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian, Noise, Scheduled, SharedGaussian
from silograph.run.loop import play
from silograph.run.results import UNPROTECTED, costs, rehearsal_note, stated
from silograph.tasks.alone import alone
from silograph.tasks.linear import PROTECTED_UNIT, Linear, signs
from silograph.topology import Topology, regions

PACKAGES = ()
_HOLDS = (
    "The guarantee holds as long as fewer than a third of the clients that are added up together drop out or tell "
    "others what noise they drew, not counting the observer."
)

#: By what a plan protects: the protected unit, and how neighbours differ.
PROTECTED = {
    "none": ("none", "none"),
    "records": (PROTECTED_UNIT, "replace-one: how many records a client has, and its cluster, are public"),
    "clients": (CLIPPED_AGENT, "replace-one: which clients there are, and their clusters, are public"),
}


@dataclass(frozen=True, eq=False)
class ClusteredJob(ServersJob):
    """`names` are the clusters'; where they are found rather than given they are numbered."""

    plan: ClusteredPlan
    method: Learner | FoundClusters
    tests: dict[str, Records]
    names: tuple[str, ...]
    task: Task

    @classmethod
    def of(cls, plan: ClusteredPlan, tables: RegionTables, tests: dict[str, Records], graph: Topology) -> ClusteredJob:
        data, chosen, private = plan.data, plan.method, plan.privacy is not None
        check_intercept(chosen.intercept, tables.features)
        if chosen.loss == "logistic" and not private:
            signs(tables.answers, f"column {data.target}")
        topo = regions(graph, np.bincount(tables.home).tolist(), tables.agents)
        sought = clusters_sought(plan, tables)
        if chosen.find is None:
            names, told = tuple(sorted(set(tables.clusters))), list(tables.clusters)
        else:
            names = tuple(f"cluster {k + 1}" for k in range(sought or 1))
            told = [names[k % len(names)] for k in range(len(tables.agents))]  # in turn, until they are found
        of = dict(zip(tables.agents, told, strict=True))
        task, clusters = task_of(plan, tables), tuple(names.index(of[name]) for name in topo.silos)
        method = learner(plan, task, tables, topo, clusters, sought)
        method.start(topo)  # refuses what does not fit together before anything is written
        job = cls(plan, tables, topo, method, tests, names, task)
        job._check()
        return job

    def at(self, region: str, without: Collection[str] = ()) -> ClusteredJob:
        star_only = "needs all regions' models at one server"
        todo = "Leave --regions out: it runs as a star."
        if not isinstance(self.method, ClusteredADMM):
            chosen = "found settings that are chosen" if isinstance(self.method, Calibrated) else "found random effects"
            found = "found clusters that are found" if self.plan.sought else chosen
            raise InputError(
                "deployment, regions", 'learner = "papers" with clusters given', f"{found}: {star_only}", todo
            )
        part: ClusteredJob = super().at(region, without)
        return part

    @property
    def hears_all(self) -> bool:
        return super().hears_all or self.plan.method.tau == "learned"

    @property
    def inner(self) -> Learner:
        return self.method.inner if isinstance(self.method, FoundClusters) else self.method

    def _too_small(self) -> list[str]:
        """Cells whose sum may never be known; with found clusters that cannot be told beforehand."""
        if self.masks is None or self.plan.sought is not None or self.plan.reach == "all":
            return []
        names = [f"{server}/{name}" for server in self.topo.servers for name in self.names]
        return [name for name, size in zip(names, self._cell_sizes, strict=True) if 0 < size < self.masks.minimum]

    @property
    def _cell_sizes(self) -> list[int]:
        """How many clients each cluster of each server has."""
        sizes: list[int] = np.bincount(self._cells, minlength=len(self.topo.servers) * len(self.names)).tolist()
        return sizes

    @property
    def _cells(self) -> Array:
        return np.asarray(self.inner.start(self.topo).servers["cell"])

    @property
    def _cohorts(self) -> Array:
        """For each client the number of the group with which it is added up: its cell, or its cluster."""
        if self.plan.reach == "region":
            return self._cells
        if isinstance(self.inner, Calibrated):  # levels and steps are of all
            return np.zeros(len(self.topo.silos), dtype=np.intp)
        return np.array(self.inner.clusters)

    @property
    def given_clusters(self) -> Array:
        """Of the clients here, where the method knows those of all."""
        clusters = self.inner.groups if isinstance(self.inner, Calibrated) else self.inner.clusters
        return np.array(clusters)[self.topo.graph.index(self.topo.silos)]

    def _check(self) -> None:
        if self.masks is not None and np.bincount(self._cohorts).max() < self.masks.minimum:
            raise InputError(
                wording.setting("minimum"),
                "at most the size of the largest cohort: the clients of one cluster, of one server or of all",
                f"found {self.masks.minimum}, and the largest has {np.bincount(self._cohorts).max()}",
                "Lower it, or join servers or clusters.",
            )
        privacy = self.plan.privacy
        if privacy is not None:
            of = dict(zip(self.tables.agents, self.tables.records, strict=True))
            cohorts = np.bincount(self._cohorts)
            for k, name in enumerate(self.topo.silos):
                if privacy.protect == "records":
                    size, what = len(of[name][1]), "records"
                else:
                    size, what = int(cohorts[self._cohorts[k]]), "clients"
                accounting.check_budget(privacy.epsilon, privacy.delta, size, f"client {name}", what)
            check_one_home(self.tables.agents, "server", "client")
        self._test()  # whatever is wrong with it, now rather than when the budget is spent

    @property
    def trusting(self) -> bool:
        return self.plan.protect == "clients" and self.masks is None

    @cached_property
    def releases(self) -> int:
        """The most that any client releases: its rounds follow from the public schedule."""
        if isinstance(self.inner, Calibrated):
            return self.most_rounds
        times, start = np.zeros(len(self.topo.silos)), self.inner.start(self.topo).servers
        for number in range(self.plan.method.rounds):
            rows = self.inner.asked({**start, "round": np.int64(number)}, self.topo)
            times[slice(None) if rows is None else rows] += 1
        return int(times.max()) + (self.plan.sought is not None)

    @property
    def mechanism(self) -> Noise | None:
        privacy, count = self.plan.privacy, self.plan.method.rounds
        if privacy is None:
            return None
        if isinstance(self.inner, Calibrated):
            return noise_of_choice(self.inner.choice, privacy.epsilon, privacy.delta)
        if privacy.protect == "clients" and self.masks is not None:
            return SharedGaussian(accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, count))
        if privacy.protect == "clients":
            return Gaussian(accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, count))
        even = Gaussian(accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, self.releases))
        if privacy.schedule == "even":
            return even
        ratio = privacy.decay if privacy.schedule == "variance_decay" else 1.0 / privacy.decay
        # Whoever takes part in every round spends exactly the budget: the sum of 1/multiplier^2 is what `even` has.
        total = sum(ratio**-number for number in range(count + (self.plan.sought is not None)))
        return Scheduled(Gaussian(even.multiplier * math.sqrt(total / self.releases)), ratio)

    @property
    def finds(self) -> bool:
        """Whether clusters are found, before anything else."""
        return isinstance(self.method, FoundClusters)

    @property
    def most_rounds(self) -> int:
        return (self.inner.rounds if isinstance(self.inner, ClusteredADMM) else self.inner.most_rounds) + self.finds

    def data(self, silos: Sequence[str] | None = None) -> Private:
        return self.prepared(self.task, silos)

    # ---- what it costs ----

    @property
    def _sites(self) -> Sequence[str]:
        """Whose rows the cost is read from: clients', those of cells that have clients, or servers' where nothing is
        protected."""
        if self.plan.protect == "records":
            return self.topo.silos
        if self.plan.protect == "clients":
            cells = [f"{server}/cluster-{q}" for server in self.topo.servers for q in range(len(self.names))]
            return [cell for cell, size in zip(cells, self._cell_sizes, strict=True) if size]
        return self.topo.servers

    def forecast(self) -> Json:
        privacy, cost, releases = self.plan.privacy, UNPROTECTED, 0
        if privacy is not None:
            # Calibrated to the budget; a client that takes part less often than the most pays less.
            cost = accounting.Cost(privacy.epsilon, privacy.delta, accounting.EXACT_GAUSSIAN)
            if isinstance(self.inner, Calibrated):
                noise = noise_of_choice(self.inner.choice, privacy.epsilon, privacy.delta)
                cost = accounting.planned_cost(noise, 1, 1, privacy.delta)
            # A cell may release in every round, whoever of it is sampled.
            calibrated = isinstance(self.inner, Calibrated)
            releases = self.releases if calibrated or privacy.protect == "records" else self.plan.method.rounds
        further: Json = {"noise_multiplier": None, "sums_take": self.takes, "chosen": None}
        if isinstance(self.inner, Calibrated):
            further["chosen"] = of_choice(self.inner.choice)
        return costs(releases, self.planned(self._sites, cost), None, self._notes(), **further)

    @property
    def added_up(self) -> Sequence[int]:
        sizes: list[int] = np.bincount(self._cohorts).tolist()
        return sizes

    def privacy_section(self, door: Door) -> Json:
        """For estimators, which show it as it would be written."""
        told: Json = schema.write(self._privacy(door))
        return told

    def _privacy(self, door: Door) -> Privacy:
        """What it cost, read from the ledger."""
        protect, delta = self.plan.protect, self.plan.total_delta
        mode = "dp" if protect != "none" else "exact" if self.masks is None else "obfuscation"
        guarantees = stated(door, self._sites, OBSERVERS, delta, None, self.plan.rehearsal)
        return Privacy(mode, *PROTECTED[protect], guarantees, self._notes())

    def _notes(self) -> list[str]:
        plan, notes = self.plan, rehearsal_note(self.plan)
        if plan.protect == "none" and self.masks is None:
            notes.append("No privacy was asked for: servers see their clients' updates, and results hold their models.")
        if plan.protect == "none" and self.masks is not None:
            notes.append(
                "No privacy was asked for: masks hide a client's update from its server, but not the sum over its "
                "cell. The model written here for a client is its server's model of its cluster."
            )
        if silent := self._too_small():
            notes.append(
                f"{len(silent)} cell{' has' if len(silent) == 1 else 's have'} fewer clients than the minimum of "
                f"{plan.method.minimum}: their updates are left out, and their clients get only the others' models: "
                f"{', '.join(silent[:5])}" + (", ..." if len(silent) > 5 else ".")
            )
        if plan.protect == "records":
            notes.append(
                "A client's own model stays with it. The model written here for a client is its server's model of its "
                "cluster, computed from what all clients released."
            )
        if plan.protect == "clients" and self.masks is None:
            notes.append("A client's own server sees its clipped differences as they are: clients must trust it.")
        if isinstance(self.inner, Calibrated):
            notes += calibration_notes(self.inner, plan.data) + self._choice_notes(self.inner)
        if plan.reach == "all" and plan.privacy is not None:
            whose = "all clients, or all of a cluster" if isinstance(self.inner, Calibrated) else "a cluster"
            notes.append(
                f"There is one sum for {whose} over all servers: the noise is sized for all its clients together. "
                f"{_HOLDS}"
            )
        elif plan.protect == "clients" and self.masks is not None:
            notes.append(f"The clients add the noise themselves. {_HOLDS}")
        if plan.masks == "skipped":
            notes.append("Masks were skipped in this simulation: the sums are those that the secure sum gives.")
        if plan.privacy is not None:
            notes.append(
                "Not protected: which clients there are, their clusters if given, how many records each has "
                "(where records are protected), and that they took part. Links "
                "between a client and its server must be encrypted. Runs add up: another run costs its budget again."
            )
        if plan.compares:
            notes.append(compared_note("each client"))
        if self.tests:
            notes.append("The test table is not protected: errors on it are exact.")
        return notes + self.of_tables()

    def _choice_notes(self, inner: Calibrated) -> list[str]:
        """What of clusters and clients the budget leaves."""
        notes = []
        if self.plan.sought is not None and not self.finds:
            notes.append(
                "The run does not look for clusters: with the noise of this budget a client has too few records to "
                "tell its cluster. All clients are in one cluster."
            )
        elif len(self.names) > 1 and not inner.choice.grouped:
            notes.append(
                "Clusters have no models of their own: they are too small for this budget. All clients share one model."
            )
        elif inner.choice.offsets:
            notes.append("Clusters share slopes and have constants of their own, as far as those are not noise.")
        if not self.finds and (small := [self.names[q] for q in too_small(self.plan, inner)]):
            lack = "a constant" if inner.choice.together or not inner.choice.slopes else "slopes"
            which = ", ".join(map(shortened, small[:5])) + ", ..." * (len(small) > 5)
            notes.append(
                f"Too small for {lack} of their own: {which}. Clients of such a cluster get what the larger "
                "clusters have, weighted by size. Join clusters, or raise epsilon."
            )
        if inner.choice.personal:
            notes.append(
                "A last sum tells how far clients' constants are apart. With it a client adapts the model to its own "
                "records, at no cost (`personalise`); that model stays with the client and is not written here."
            )
        return notes

    # ---- what it leaves ----

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> ClusteredResult:
        arrays, chosen = outcome.arrays, self.plan.method
        cluster = arrays.get("cluster", self.given_clusters).astype(int)
        # Under protection a client's own model is its own: what is told is its cell's.
        models = arrays["model"] if self.plan.protect == "none" and self.masks is None else arrays["cell_model"]
        clusters = arrays["cluster_model"].mean(0)
        (folder / "models").mkdir(exist_ok=True)
        named = [(name, self.names[q]) for name, q in zip(self.topo.silos, cluster, strict=True)]
        for file, header, names, rows in (
            ("clients.csv", ("client", "cluster"), named, models),
            ("clusters.csv", ("cluster",), [(name,) for name in self.names], clusters),
        ):
            lines = [(*name, *map(repr, row.tolist())) for name, row in zip(names, rows, strict=True)]
            write_atomically(folder / "models" / file, csv_of((*header, *self.features), lines))
        papers, effects = isinstance(self.inner, ClusteredADMM), isinstance(self.inner, RandomEffects)
        tau = 0.0 if chosen.tau == "learned" else chosen.tau * chosen.tau_decay ** (chosen.rounds - 1)
        return ClusteredResult(
            method=chosen.name,
            task=self.told_task,
            parameters=filled(
                Parameters,
                chosen,
                **dict.fromkeys(() if papers else ("penalty", "tau", "tau_decay", "form", "weights", "step")),
                learner=learner_of(self.plan),
                variances=_variances(arrays, chosen.intercept) if effects else None,
                **_told_choice(self.inner, arrays),
                protect=self.plan.protect,
                masks=self.plan.masks,
                reach=self.plan.reach,
                noise=max((row.noise for row in door.ledger.rows if row.noise is not None), default=None),
                found=self.finds,
            ),
            topology=self.told_graph,
            clusters=[
                Cluster(
                    name,
                    int((cluster == q).sum()),
                    clusters[q].tolist(),
                    self._mean(np.flatnonzero(cluster == q).tolist(), models),
                )
                for q, name in enumerate(self.names)
            ],
            exchange=arrays.get("exchange", _uniform(len(self.names), tau, chosen.form)).tolist(),
            clients=[
                Client(name, name.split("/", 1)[0], of, self._mean([k], models)) for k, (name, of) in enumerate(named)
            ],
            comparison=self._comparison(models, _told_choice(self.inner, arrays).get("own_constants")),
            test=self._test(),
            disagreement=None if self.apart else outcome.facts["disagreement"],
            rounds=outcome.facts["rounds"],
            trace=self.told_trace(trace),
            privacy=self._privacy(door),
            numbers_are={
                **dict.fromkeys(("model", "movement", "disagreement", "test_error"), "released"),
                "comparison": "simulation only",
            },
        )

    def _mean(self, clients: Sequence[int], models: Array) -> float | None:
        """The mean error over all test records of these clients."""
        wrong, count = 0.0, 0
        for k in clients:
            records = self.tests.get(self.topo.silos[k].split("/", 1)[1])
            if records is not None:
                x, y = records
                wrong, count = wrong + len(y) * float(self.errors(self.task, models[k], x, y)), count + len(y)
        return wrong / count if count else None

    def _comparison(self, models: Array, spread: float | None) -> list[Compared]:
        everybody = list(range(len(models)))
        chosen, rows = self.plan.method, [Compared("this run", self._mean(everybody, models))]
        if not self.plan.compares:
            return rows
        if isinstance(self.inner, Calibrated) and spread is not None and spread > 0.0:
            own = self._with_own_constants(models, spread)
            rows.append(Compared("with each client's own constant, which stays with it", self._mean(everybody, own)))
        bare = "" if self.plan.privacy is None else ", without privacy"
        plain = Linear(self.task.features, self.task.most, chosen.loss, 0.0, chosen.huber)
        data = self.prepared(plain, None)
        own_records = ((x[: int(n)], y[: int(n)]) for x, y, n in zip(data["x"], data["y"], data["count"], strict=True))
        each = np.array([alone(plain, x, y, chosen.intercept) for x, y in own_records])
        together = RandomEffects(plain, (0,) * len(models), chosen.intercept, deviations=False)
        one = play(together, self.topo, data, Door(0, Ledger()))[1].arrays["model"]
        for name, others in ((f"each client alone{bare}", each), (f"one model for all{bare}", one)):
            rows.append(Compared(name, self._mean(everybody, others)))
        return rows

    def _with_own_constants(self, models: Array, spread: float) -> Array:
        """The models that clients have in the end, each with its own constant."""
        of = dict(zip(self.tables.agents, self.tables.records, strict=True))
        classes, own = self.task.loss == "logistic", []
        for name, model in zip(self.topo.silos, models, strict=True):
            x, y = of[name]
            y = signs(y, f"column {self.plan.data.target}") if classes else y
            own.append(own_constant(model, with_intercept(np.clip(x, -1.0, 1.0), True), y, spread, classes))
        return np.array(own)

    def _test(self) -> Test | None:
        return self.told_test(np.concatenate([y for _, y in self.tests.values()])) if self.tests else None


def open_job(plan: ClusteredPlan, base: Path) -> ClusteredJob:
    data, private = plan.data, plan.privacy is not None
    files = [base / name for name in data.files]
    tables = read_regions(files, data.agent, data.target, private, data.cluster, None, data, data.classes)
    tests = {} if data.test is None else _tests(plan, base / data.test, tables)
    return ClusteredJob.of(plan, tables, tests, graph_of(plan.topology, tables.regions, base))


def _tests(plan: ClusteredPlan, path: Path, tables: RegionTables) -> dict[str, Records]:
    check_one_home(tables.agents, "server", "client")
    data = plan.data
    tests = read_tests(path, data.agent, data.target, tables.features, data.cluster, data, data.classes)
    unknown = sorted(set(tests) - {name.split("/", 1)[1] for name in tables.agents})
    if unknown:
        raise InputError(str(path), "clients of the tables", f"{unknown[0]!r} is none of them")
    return tests


def _told_choice(inner: Learner, arrays: dict[str, Array]) -> Json:
    if not isinstance(inner, Calibrated):
        return {}
    choice = inner.choice
    told: Json = {"rounds": inner.most_rounds, "slopes": choice.slopes, "expected": choice.expected}
    return told | {"own_constants": float(arrays["variance"][0]) if choice.personal else None}


def _variances(arrays: dict[str, Array], intercept: bool) -> Variances:
    """How far clients are from their cluster, and clusters from each other: relative to the variance of a record."""
    clients, clusters = (arrays[name].tolist() for name in ("variance", "cluster_variance"))
    own, shared = (part.pop() if intercept else 0.0 for part in (clients, clusters))
    return Variances(own, tuple(clients), shared, max(clusters, default=0.0))


def _uniform(count: int, tau: float, form: str) -> Array:
    """The weights of (10) as a matrix."""
    if count == 1:
        return np.eye(1)
    others = np.full((count, count), 1.0 / count) if form == "all" else (1.0 - np.eye(count)) / (count - 1)
    return (1.0 - tau) * np.eye(count) + tau * others
