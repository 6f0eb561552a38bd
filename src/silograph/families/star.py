"""A family for a method in a star: every organisation holds one table of numbers and answers one server.

What all such families share is here: reading and aligning tables, the budget, the cost, facts, a page, words for a
deployment, an audit. A subclass says what is its own: its plan, its method, what one record can do at worst, and what
the result says. An instance of it is a whole family, named in the registry as `module:NAME`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from silograph.audit.scenes import by_pattern, nearest
from silograph.audit.stages import Bits, SiloStage, Stage
from silograph.audit.worlds import Worlds, as_csv, fewest
from silograph.core.files import write_atomically
from silograph.core.results import Privacy, Result
from silograph.core.schema import Seed
from silograph.core.toml import parse_toml
from silograph.core.types import Array, EngineName, Json
from silograph.data.silos import Elsewhere, Silos, read_silos, records_of
from silograph.deploy.public_facts import Facts, Holding, Records, check_columns, check_plain
from silograph.methods.base import Method, Outcome, Private, begin
from silograph.privacy import accounting
from silograph.privacy.bound import RECORD
from silograph.privacy.door import Budget, Door
from silograph.privacy.mechanisms import Gaussian
from silograph.report.deployment import BARE, NOISY, Leaving, Spoken
from silograph.report.page import render_run, summarise
from silograph.report.printed import privacy_lines, table
from silograph.report.privacy_words import PrivacyWords, row_of
from silograph.report.read import Measured, RunFolder
from silograph.report.words import counted
from silograph.run.plan import DEFAULT_DELTA, Plan
from silograph.run.results import STAR_OBSERVERS, UNPROTECTED, costs, guarantee, rehearsal_note, stated
from silograph.run.sections import Delta, TotalEpsilon, naming_files
from silograph.topology import Topology, star

VALUES, PLAN = "values.json", "plan.toml"


@dataclass(frozen=True)
class StarData:
    """One table a site, named relative to the plan; all have the same columns."""

    files: tuple[str, ...] = naming_files(())


@dataclass(frozen=True)
class StarBudget:
    """The total budget of every site, for one of its records."""

    epsilon: TotalEpsilon
    delta: Delta = DEFAULT_DELTA


@dataclass(frozen=True)
class StarPlan(Plan):
    """A subclass adds its `method`."""

    data: StarData
    privacy: StarBudget | None = None
    engine: EngineName = "vector"
    seed: Seed | None = None


@dataclass(frozen=True)
class StarSite:
    name: str
    records: int


@dataclass(frozen=True)
class StarResult(Result):
    """What result.json says."""

    parameters: dict[str, Any]
    sites: list[StarSite]
    values: dict[str, float]
    trace: list[Json]


StarRun = RunFolder[StarResult]


class StarFamily:
    """Subclass it; what raises `NotImplementedError` must be overridden, the rest may be."""

    PLAN: type[StarPlan]
    RESULT = StarResult
    #: `silograph sample --OPTION`, and what its help says.
    OPTION: str
    HELP: str
    PACKAGES: tuple[str, ...] = ()
    SEVERAL, FIRST_ORDERS = False, False
    #: What is learned, in a few words: "the mean of every column".
    goal: str
    #: As the method's bounds name it.
    protected = RECORD
    relation = "replace-one: the number of records of a site is public"

    # ---- what a family overrides ----

    def method(self, plan: Any, columns: Sequence[str], counts: Sequence[int]) -> Method:
        raise NotImplementedError

    def releases(self, plan: Any) -> int:
        """How many protected releases a site makes."""
        raise NotImplementedError

    def learned(self, plan: Any, outcome: Outcome, columns: Sequence[str]) -> dict[str, float]:
        """What was learned: names and numbers, for result.json, the page and the summary."""
        raise NotImplementedError

    def worst(self, plan: Any, columns: Sequence[str]) -> tuple[Array, Array]:
        """Two records between which a release moves as far as its clip allows: an audit swaps them."""
        raise NotImplementedError

    def write(self, folder: Path, seed: int) -> list[Path]:
        """Write sample tables and a plan to start from."""
        raise NotImplementedError

    def cases(self, folder: Path, seed: int) -> dict[str, Json]:
        """What the contract suite plays: the sample's plan as a rehearsal, with a budget and without."""
        self.write(folder, seed)
        plan = {**parse_toml((folder / PLAN).read_text(encoding="utf-8"), PLAN), "seed": 1}
        open_plan = {key: value for key, value in plan.items() if key != "privacy"}
        return {"private": {"privacy": {"epsilon": 1.0}, **plan}, "open": open_plan}

    def prepare(self, plan: Any, records: Array, most: int) -> Private:
        """What a site makes of its table first: all sites' arrays have one shape, so rows are padded to the longest."""
        padded = np.zeros((most, records.shape[1]))
        padded[: len(records)] = records
        return {"x": padded, "count": np.asarray(len(records))}

    # ---- job ----

    def open_job(self, plan: Any, base: Path) -> StarJob:
        silos = read_silos([base / name for name in plan.data.files], private=plan.privacy is not None)
        return StarJob(self, plan, silos)

    # ---- deployed ----

    def check_facts(self, facts: Facts, where: str) -> None:
        check_columns(facts, 1, where)
        check_plain(facts, where)

    def classes_of(self, plan: Any, told: Mapping[str, tuple[str, ...]], fewest: int) -> tuple[str, ...]:
        return ()

    def read_own(self, plan: Any, path: Path, facts: Facts | None = None) -> tuple[Facts, tuple[Any, ...]]:
        columns = None if facts is None else facts.columns
        silos = read_silos([path], "columns", plan.privacy is not None, columns)
        holding = Holding(silos.names[0], records=(len(silos.signals[0]),))
        return Facts(plan.method.name, silos.nodes, (holding,)), silos.signals

    def open_part(self, plan: Any, facts: Facts, records: Records, base: Path) -> StarJob:
        tables = records(lambda count: Elsewhere.of((count, len(facts.columns))))
        return StarJob(self, plan, Silos(tuple(facts.organisations), facts.columns, tables))

    # ---- page ----

    def read(self, run: StarRun) -> StarRun:
        return run

    def privacy_of(self, run: StarRun) -> PrivacyWords:
        return PrivacyWords(
            run,
            noun="site",
            names=[site.name for site in run.result.sites],
            unprotected="No privacy protection: whoever saw the messages saw what sites computed from their tables.",
            protects=row_of("site"),
            stated="the names of sites and columns, and how many records each site has",
        )

    def page(self, run: StarRun) -> str:
        sites, rounds = len(run.result.sites), run.result.rounds
        return render_run(
            "star.html.j2",
            run,
            self.privacy_of(run),
            releases=summarise(run.ledger, by=("release_point", "mechanism", "observer")),
            learned=(f"{counted(sites, 'site')} learned {self.goal}.", f"The run took {counted(rounds, 'round')}."),
        )

    def summary(self, result: StarResult) -> Iterator[str]:
        yield from table(("", "learned"), [(name, f"{value:.4g}") for name, value in result.values.items()])
        yield counted(result.rounds, "round")
        yield from privacy_lines(result)

    def forecast(self, told: Json) -> Iterator[str]:
        return iter(())

    def measured(self, run: StarRun) -> Iterator[Measured]:
        for name, value in run.result.values.items():
            yield Measured(name, "learned", "values", value)

    # ---- leaving ----

    @property
    def SPOKEN(self) -> type[Spoken]:
        family = self

        class SpokenOfAStar(Spoken):
            goal = family.goal
            comes_back = "what all learned so far"

            def sent(self) -> Iterator[Leaving]:
                size = f"about {len(self.facts['columns'])} numbers"
                how = (NOISY, False) if self.private else (BARE, True)
                yield Leaving("what the organisation computed from its table", size, self.each_round, *how)

        return SpokenOfAStar

    # ---- canary ----

    def stages(self, job: StarJob, many: bool) -> tuple[Stage, ...]:
        victim = nearest(job.counts, many)[0]
        pair, count = self.worst(job.plan, job.silos.nodes), job.counts[victim]

        def prepared(bits: Bits) -> Private:
            made = []
            for pattern in bits:
                records = np.zeros((count, len(job.silos.nodes)))
                records[: len(pattern)] = [pair[int(with_it)] for with_it in pattern]
                made.append(self.prepare(job.plan, records, max(job.counts)))
            return {name: np.stack([part[name] for part in made]) for name in made[0]}

        words = "the two records that move a release furthest, all other records zero"
        rounds, tables = tuple(range(job.most_rounds)), partial(by_pattern, prepare=prepared)
        return (SiloStage(job, victim, words, rounds, count, tables, begin(job.method, job.topo), distinct=1),)

    def worlds(self, job: StarJob, facts: Facts) -> Worlds:
        holding, _ = fewest(facts)
        silent = np.zeros(len(facts.columns))

        def table_of(organisation: str, first: Array) -> bytes:
            count = next(
                each.records[0] for each in facts.holdings if each.organisation == organisation and each.records
            )
            return as_csv(facts.columns, [first.tolist(), *([silent.tolist()] * (count - 1))])

        loud, opposite, none = (
            table_of(holding.organisation, x) for x in (*self.worst(job.plan, facts.columns), silent)
        )
        words = "the two records that move a release furthest; all other records are zero"
        return Worlds(
            holding.organisation,
            holding.organisation,
            words,
            (loud, opposite, none),
            lambda organisation: table_of(organisation, silent),
        )

    def exposed(self, job: StarJob, own: bool, root: int) -> list[Json]:
        return []


@dataclass(frozen=True, eq=False)
class StarJob:
    """What a plan of a star family and its tables come to."""

    family: StarFamily
    plan: Any
    silos: Silos
    masks: None = None

    @property
    def topo(self) -> Topology:
        return star(self.silos.names)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many records each site has, in the topology's order."""
        of = {name: len(x) for name, x in zip(self.silos.names, self.silos.signals, strict=True)}
        return tuple(of[name] for name in self.topo.silos)

    @property
    def method(self) -> Method:
        return self.family.method(self.plan, self.silos.nodes, self.counts)

    @property
    def most_rounds(self) -> int:
        return int(self.plan.method.rounds)

    @property
    def mechanism(self) -> Gaussian | None:
        privacy = self.plan.privacy
        if privacy is None:
            return None
        releases = self.family.releases(self.plan)
        return Gaussian(accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, releases))

    @property
    def budget(self) -> Budget | None:
        privacy = self.plan.privacy
        return None if privacy is None else Budget(privacy.epsilon, privacy.delta)

    def data(self, silos: Sequence[str] | None = None) -> list[Private]:
        tables = records_of(silos, self.topo.silos, self.silos.names, self.silos.signals)
        return [self.family.prepare(self.plan, np.asarray(x), max(self.counts)) for x in tables.values()]

    def _notes(self) -> list[str]:
        if self.plan.privacy is None:
            return ["No privacy was asked for: sites send what they compute as it is."]
        return [
            *rehearsal_note(self.plan),
            "Not protected: how many records a site has, the names of columns, that it took part, how long it took.",
            "Runs add up: another run on the same data spends its own budget in addition.",
        ]

    def forecast(self) -> Json:
        privacy, mechanism = self.plan.privacy, self.mechanism
        releases, cost, noise = 0, UNPROTECTED, None
        if privacy is not None and mechanism is not None:
            releases, noise = self.family.releases(self.plan), mechanism.multiplier
            cost = accounting.planned_cost(mechanism, len(self.silos.nodes), releases, privacy.delta)
        guarantees = [
            guarantee(name, observer, cost, None, self.plan.rehearsal)
            for name in self.topo.silos
            for observer in STAR_OBSERVERS
        ]
        return costs(releases, guarantees, None, self._notes(), noise_multiplier=noise)

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> StarResult:
        values = self.family.learned(self.plan, outcome, self.silos.nodes)
        write_atomically(folder / VALUES, (json.dumps(values, indent=1, allow_nan=False) + "\n").encode())
        private, delta = self.plan.privacy is not None, self.plan.total_delta
        protected = (self.family.protected, self.family.relation) if private else ("none", "none")
        guarantees = stated(door, self.topo.silos, STAR_OBSERVERS, delta, None, self.plan.rehearsal)
        return StarResult(
            method=self.plan.method.name,
            parameters={key: value for key, value in vars(self.plan.method).items() if key != "name"},
            sites=[StarSite(name, n) for name, n in zip(self.topo.silos, self.counts, strict=True)],
            values=values,
            rounds=outcome.facts["rounds"],
            trace=trace,
            privacy=Privacy("dp" if private else "exact", *protected, guarantees, self._notes()),
            numbers_are={"values": "released"},
        )
