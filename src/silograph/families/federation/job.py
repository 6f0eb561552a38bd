"""From the plan of a graph federation and its tables to what will run, and from its outcome to what it leaves."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from silograph.core import schema
from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.results import Claim, Compared, Privacy, filled
from silograph.core.spreadsheet import csv_of
from silograph.core.types import Array, BoolArray, Json
from silograph.data.regions import Records, RegionTables, check_one_home, read_regions, read_test
from silograph.families.federation.coalitions import Reached, coalitions
from silograph.families.federation.plan import FederationMethod, FederationPlan, learner_of
from silograph.families.federation.result import Centroid, FederationResult, Parameters, Region
from silograph.families.servers import (
    OBSERVERS,
    ServersJob,
    calibration_notes,
    check_intercept,
    compared_note,
    graph_of,
    noise_of_choice,
    of_choice,
)
from silograph.methods.base import Outcome, Private, take
from silograph.methods.calibrated import Calibrated
from silograph.methods.calibration import choose, noise_in_mean, pure_noise_in_mean
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.region_effects import RegionEffects
from silograph.privacy import accounting
from silograph.privacy.bound import CLIPPED_AGENT
from silograph.privacy.door import Door
from silograph.privacy.masking import planned
from silograph.privacy.mechanisms import Gaussian, Mechanism, SharedGaussian
from silograph.run.results import UNPROTECTED, costs, rehearsal_note, stated
from silograph.tasks.linear import Linear, signs
from silograph.theory.graph_federation import claimed_epsilon
from silograph.topology import Topology, regions

PACKAGES = ()
CENTROID = "centroid"
_DROWNED = 10.0  # lengths of noise in a length of update
_BLURRED = 2.0  # of x.w: beyond, classes cannot be told apart


@dataclass(frozen=True, eq=False)
class FederationJob(ServersJob):
    plan: FederationPlan
    method: GraphFederation | Calibrated | RegionEffects
    test: Records | None

    @classmethod
    def of(cls, plan: FederationPlan, tables: RegionTables, test: Records | None, graph: Topology) -> FederationJob:
        chosen = plan.method
        check_intercept(chosen.intercept, tables.features)
        if chosen.loss == "logistic" and plan.privacy is None:
            signs(tables.answers, f"column {plan.data.target}")
        if CENTROID in [name.casefold() for name in tables.regions]:
            raise InputError(f"region {CENTROID}", "another name", "the mean of all regions' models is called that")
        topo = regions(graph, np.bincount(tables.home).tolist(), tables.agents)
        features, most = len(tables.features) + chosen.intercept, max(len(y) for _, y in tables.records)
        task = Linear(features, most, chosen.loss, chosen.ridge, chosen.huber)
        method: GraphFederation | Calibrated | RegionEffects
        if learner_of(plan) == "effects":
            rounds = RegionEffects.rounds if chosen.rounds == FederationMethod.rounds else chosen.rounds
            method = RegionEffects(task, (0,) * len(topo.silos), chosen.intercept, rounds)
        elif learner_of(plan) == "calibrated":
            method = _calibrated(plan, task, topo)
        else:
            known = {"perturbation": plan.perturbation, "reach": plan.reach, "seed": plan.seed or 0}
            method = filled(GraphFederation, chosen, task=task, **known)
        method.start(topo)  # refuses what does not fit together before anything is written
        job = cls(plan, tables, topo, method, test)
        job._check_cohorts()
        if test is not None:
            job.told_test(test[1])  # whatever is wrong with it, now rather than when the budget is spent
        return job

    def at(self, region: str, without: Collection[str] = ()) -> FederationJob:
        if isinstance(self.method, RegionEffects):
            found = "found random effects: it needs all regions' sums at one server"
            todo = "Leave --regions out: it runs as a star."
            raise InputError("deployment, regions", 'learner = "papers", or a budget', found, todo)
        part: FederationJob = super().at(region, without)
        return part

    @property
    def _cohorts(self) -> list[tuple[str, int]]:
        """Who is added up together, by name and size."""
        regions = [(f"region {name}", int(size)) for name, size in zip(self.topo.servers, self.topo.sizes, strict=True)]
        everybody = [("all regions", int(self.topo.sizes.sum()))] if self.plan.reach == "all" else []
        return everybody + (regions if not everybody or self.plan.method.personal else [])

    def _check_cohorts(self) -> None:
        for cohort, size in self._cohorts:
            if self.masks is not None and size < self.masks.minimum:
                raise InputError(
                    cohort,
                    f"at least {self.masks.minimum} agents, the smallest cohort whose sum may be known",
                    f"it has {size}",
                    "Join it with another region, or run without masks.",
                )
            if self.plan.privacy is not None:
                accounting.check_budget(self.plan.privacy.epsilon, self.plan.privacy.delta, size, cohort, "agents")
        if self.plan.privacy is not None:
            check_one_home(self.tables.agents)

    @property
    def trusting(self) -> bool:
        return self.plan.privacy is not None and self.masks is None

    @property
    def mechanism(self) -> Mechanism | None:
        """Noise for which an agent that is sampled in every round spends exactly its budget."""
        privacy, rounds, personal = self.plan.privacy, self.plan.method.rounds, self.plan.method.personal
        if privacy is None:
            return None
        if isinstance(self.method, Calibrated):
            return noise_of_choice(self.method.choice, privacy.epsilon, privacy.delta)
        each = accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, rounds)
        if self.masks is None:
            return Gaussian(each)
        return SharedGaussian(each / math.sqrt(1.0 - personal))

    @property
    def most_rounds(self) -> int:
        return self.method.most_rounds

    @property
    def _pure(self) -> bool:
        return isinstance(self.method, Calibrated) and self.method.choice.pure

    def data(self, silos: Sequence[str] | None = None) -> Private:
        return self.prepared(self.method.task, silos)

    # ---- what it costs ----

    def forecast(self) -> Json:
        """An agent's cost if it is sampled in every round, and the noise that takes."""
        privacy, mechanism = self.plan.privacy, self.mechanism
        if privacy is None or mechanism is None:
            cost, noise, releases = UNPROTECTED, None, 0
        elif isinstance(self.method, Calibrated):  # rounds have shares of one release
            noise, releases = mechanism.multiplier, self.most_rounds
            cost = accounting.planned_cost(mechanism, 1, 1, privacy.delta)
        else:
            noise, releases = mechanism.multiplier, self.most_rounds
            mu = math.sqrt(self.plan.method.rounds / (1.0 - self.plan.method.personal)) / noise
            epsilon = accounting.gaussian_epsilon(mu, privacy.delta)
            cost = accounting.Cost(epsilon, privacy.delta, accounting.EXACT_GAUSSIAN)
        guarantees = self.planned(self.topo.servers, cost)
        further = {
            "noise_multiplier": noise,
            "noise": self._noises(),
            "reach": self.reaches(),
            "sums_take": self.takes,
            "chosen": of_choice(self.method.choice) if isinstance(self.method, Calibrated) else None,
        }
        return costs(releases, guarantees, self._claim(), self._notes(), **further)

    def reaches(self) -> list[Json]:
        """For both values of `reach`: the noise in a coordinate with this budget, and epsilon against coalitions."""
        privacy, method = self.plan.privacy, self.plan.method
        if privacy is None or self.masks is None:
            return []
        told = []
        sampled = self.asked_sizes
        small = min(sampled) < self.masks.minimum  # then a region has no sum of its own
        for reach in ("all",) if small else ("region", "all"):
            personal = method.personal if reach == self.plan.reach else 0.0
            reached = Reached(privacy.epsilon, privacy.delta, sampled, reach, personal, self._pure)
            against = [{"who": one.words, "epsilon": reached.epsilon_against(one)} for one in coalitions(sampled)]
            cohort = min(sampled) if reach == "region" else sum(sampled)
            noise = self._noise_of(cohort) / (1.0 if reach == "all" else math.sqrt(len(sampled)))
            chosen = reach == self.plan.reach
            if not chosen:  # it has no personal share, and all of the budget for these sums
                noise *= math.sqrt(1.0 - method.personal)
            told.append({"reach": reach, "chosen": chosen, "centroid_noise": noise, "coalitions": against})
        return told

    @property
    def added_up(self) -> Sequence[int]:
        return self.asked_sizes if self.plan.reach == "region" else (sum(self.asked_sizes),)

    @property
    def asked_sizes(self) -> tuple[int, ...]:
        """How many agents of each region are asked in a round."""
        return tuple(self.plan.method.sample or int(size) for size in self.topo.sizes)

    def _noises(self) -> list[float] | None:
        """Standard deviation of the noise in a coordinate of what each region sends, if everybody asked answers; of
        calibrated models that of a mean of vectors of length 1 which has all of the budget."""
        if self.plan.perturbation == "none":
            return None
        sizes = self.asked_sizes
        if self.plan.reach == "all":
            return [self._noise_of(sum(sizes))] * len(sizes)
        return [self._noise_of(size) for size in sizes]

    def _noise_of(self, cohort: int) -> float:
        mechanism, clip = self.mechanism, 1.0 if isinstance(self.method, Calibrated) else self.plan.method.clip
        if mechanism is None or clip is None:
            return math.sqrt(self.plan.method.variance)
        # Noise of the agents themselves is dealt so that the threshold of them has enough; usually all are there.
        if mechanism.own_noise is not None:
            length = 1 if self._pure else len(self.features)
            return planned(cohort, clip, length, mechanism.own_noise).noise_of(cohort) / cohort
        return mechanism.multiplier * 2.0 * clip / cohort

    def _claim(self) -> Claim | None:
        chosen = self.plan.method
        if self.plan.perturbation != "homomorphic" or chosen.clip is None or chosen.variance == 0.0:
            return None
        bound = chosen.clip / chosen.step  # an update no longer than the clip is a gradient no longer than this
        epsilon = claimed_epsilon(chosen.rounds, chosen.step, bound, math.sqrt(chosen.variance))
        defect = "false: whoever hears a server and its neighbours can remove the noise of all rounds but one"
        return Claim(epsilon, 0.0, "S1 Theorem 2", defect)

    def privacy_section(self, door: Door) -> Json:
        """For estimators, which show it as it would be written."""
        told: Json = schema.write(self._privacy(door))
        return told

    def _privacy(self, door: Door) -> Privacy:
        """What it cost, read from the ledger, by region and observer: the cost to any one agent of the region."""
        mode = {"none": "exact", "private": "dp"}.get(self.plan.perturbation, "obfuscation")
        if mode == "exact" and self.masks is not None:
            mode = "obfuscation"
        protected = CLIPPED_AGENT, "replace-one: how many agents a region has, and who takes part, is public"
        claim, rehearsal = self._claim(), self.plan.rehearsal
        guarantees = stated(door, self.topo.servers, OBSERVERS, self.plan.total_delta, claim, rehearsal)
        return Privacy(mode, *(protected if mode == "dp" else ("none", "none")), guarantees, self._notes())

    def _notes(self) -> list[str]:
        notes = rehearsal_note(self.plan)
        if self.plan.perturbation == "none":
            seen = (
                "a server sees its agents' updates"
                if self.masks is None
                else "masks hide an agent's update from a server that follows the plan, but not the sum over its region"
            )
            to_others = "others see its region's model"
            if isinstance(self.method, RegionEffects):
                seen = "a server sees sums over each agent's records, such as their second moments"
                to_others = "others see such sums over a region"
            notes.append(f"No privacy was asked for: {seen}, and {to_others}.")
        noises, clip = self._noises(), self.plan.method.clip
        if self.plan.privacy is not None and noises is not None and clip is not None:
            loud = max(noises) * math.sqrt(len(self.features)) / clip
            if loud > _DROWNED:
                notes.append(
                    f"Noise is up to {loud:.0f} times as long as any update: the models are mostly noise. A larger "
                    "epsilon, larger regions, fewer rounds or fewer features would help."
                )
            # Rounds add their noise up, and servers average it.
            rounds, servers = self.plan.method.rounds, len(self.topo.servers)
            blur = max(noises) * math.sqrt(len(self.features) * rounds / servers)
            useless = "; a constant would do as well" if blur > _BLURRED else ""
            notes.append(f"Expect noise of about {blur:.2g} in a prediction for features of size 1{useless}.")
        if self.plan.perturbation in ("edge", "sender", "homomorphic"):
            notes.append(
                f"The {self.plan.perturbation} perturbation is obfuscation: it has no epsilon, and over many rounds "
                "whoever hears the servers learns the regions' updates. [privacy] with an epsilon gives a guarantee."
            )
        if self.plan.masks == "skipped":
            notes.append(
                "Masks were skipped in this simulation: the sums are those that the secure sum gives. A deployment "
                "that skipped them would show every update to the agent's own server."
            )
        if isinstance(self.method, Calibrated):
            notes += calibration_notes(self.method, self.plan.data)
        if self.plan.reach == "all" and self.plan.privacy is not None:
            *others, everybody = (each["coalitions"][-1] for each in self.reaches())
            instead = "".join(f", where sums for each region would keep {one['epsilon']:.4g}" for one in others)
            notes.append(
                f"There is one sum over all {sum(self.asked_sizes)} agents, and its noise is sized for all of them. If "
                "others collude against an agent, less of that noise is left: epsilon "
                f"{everybody['epsilon']:.4g} against {everybody['who']}{instead}."
            )
        if self.masks is not None and self.plan.privacy is not None:
            notes.append(
                "The agents add the noise themselves. The guarantee holds as long as fewer than a third of a cohort "
                "drop out or tell others what noise they drew, not counting the observer."
            )
        if self.plan.privacy is not None and self.masks is None:
            notes.append("An agent's own server sees its clipped updates as they are: agents must trust it.")
        if self.plan.privacy is not None:
            notes.append(
                "Not protected: which agents there are, that they took part, and how long they took. Links between an "
                "agent and its server must be encrypted. Runs add up: another run on the same data costs its own "
                "budget again."
            )
        if self.plan.compares and self.test is not None:
            notes.append(compared_note("each region"))
        if self.test is not None:
            notes.append("The test table is not protected: errors on it are exact.")
        return notes + self.of_tables()

    # ---- what it leaves ----

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> FederationResult:
        chosen, models, centre = self.plan.method, outcome.arrays["model"], outcome.arrays["centroid"]
        (folder / "models").mkdir(exist_ok=True)
        named = [*zip(self.topo.servers, models, strict=True), *([] if self.apart else [(CENTROID, centre)])]
        for name, model in named:
            rows = zip(self.features, map(repr, model.tolist()), strict=True)
            write_atomically(folder / "models" / f"{name}.csv", csv_of(("feature", "weight"), rows))
        errors, noises = self._errors(np.vstack([models, centre])), self._noises()
        # How many records an agent has is part of what is protected.
        records = None if self.plan.privacy is not None else [len(y) for _, y in self.tables.records]
        return FederationResult(
            method=chosen.name,
            task=self.told_task,
            parameters=filled(
                Parameters,
                chosen,
                perturbation=self.plan.perturbation,
                noise=None if noises is None else max(noises),
                noise_least=None if noises is None else min(noises),
                masks=self.plan.masks,
                reach=self.plan.reach,
                learner=learner_of(self.plan),
                **_told_choice(self.method),
            ),
            topology=self.told_graph,
            regions=[
                Region(
                    server,
                    int(self.topo.sizes[p]),
                    None if records is None else int(np.bincount(self.tables.home, records)[p]),
                    models[p].tolist(),
                    errors[p],
                    None if noises is None else noises[p],
                )
                for p, server in enumerate(self.topo.servers)
            ],
            centroid=None if self.apart else Centroid(centre.tolist(), errors[-1]),
            test=None if self.test is None else self.told_test(self.test[1]),
            disagreement=None if self.apart else outcome.facts["disagreement"],
            rounds=outcome.facts["rounds"],
            trace=self.told_trace(trace),
            comparison=self._comparison(errors[-1]),
            privacy=self._privacy(door),
            numbers_are={
                **dict.fromkeys(("model", "movement", "disagreement", "test_error"), "released"),
                "comparison": "simulation only",
            },
        )

    def _comparison(self, error: float | None) -> list[Compared]:
        """The centroid beside what needs all records in one place, and what each region would get alone."""
        if self.test is None or not self.plan.compares:
            return []
        data = self.data()
        regions = [self._fitted(data, self.topo.home == p) for p in range(len(self.topo.servers))]
        everybody = self._fitted(data, np.ones(len(self.topo.silos), dtype=np.bool_))
        alone = [each for each in self._errors(np.array(regions)) if each is not None]
        return [
            Compared("this run", error),
            Compared("one model without privacy", self._errors(everybody[None])[0]),
            Compared("each region alone, without privacy", float(np.mean(alone))),
        ]

    def _fitted(self, data: Private, rows: BoolArray) -> Array:
        """The best model on all records of some agents, each record weighing the same: with the plan's ridge weight, or
        with 1 / (2 records), scikit-learn's, beside calibrated models, which have none."""
        own = take(data, np.flatnonzero(rows))
        given = self.plan.method.ridge if learner_of(self.plan) == "papers" else 0.5 / float(own["count"].sum())
        return replace(self.method.task, rho=max(given, 1e-6)).optimum(own, own["count"])

    def _errors(self, models: Array) -> list[float | None]:
        if self.test is None:
            return [None] * len(models)
        return [float(error) for error in self.errors(self.method.task, models, *self.test)]


def _calibrated(plan: FederationPlan, task: Linear, topo: Topology) -> Calibrated:
    """Make calibrated models: settings that were not given are chosen from public numbers."""
    assert plan.privacy is not None
    plain, chosen = FederationMethod(), plan.method
    multiplier = accounting.gaussian_multiplier(plan.privacy.epsilon, plan.privacy.delta, 1)
    noise = noise_in_mean(multiplier, len(topo.silos))
    pure = pure_noise_in_mean(plan.privacy.epsilon, len(topo.silos))
    rounds, step = (
        None if getattr(chosen, name) == getattr(plain, name) else getattr(chosen, name) for name in ("rounds", "step")
    )
    choice = choose(noise, noise, task.features - 1, chosen.loss == "logistic", rounds=rounds, step=step, pure=pure)
    return Calibrated(task, (0,) * len(topo.silos), choice, plan.data.answers or (-1.0, 1.0))


def _told_choice(method: GraphFederation | Calibrated | RegionEffects) -> Json:
    if isinstance(method, RegionEffects):
        return {"step": None}
    if isinstance(method, GraphFederation):
        return {}
    choice = method.choice
    told = {"step": choice.step, "rounds": method.most_rounds, "slopes": choice.slopes, "expected": choice.expected}
    return told


def open_job(plan: FederationPlan, base: Path) -> FederationJob:
    data, private = plan.data, plan.privacy is not None
    files, told = [base / name for name in data.files], (data, data.classes)
    tables = read_regions(files, data.agent, data.target, private, None, None, *told)
    test = None if data.test is None else read_test(base / data.test, data.target, tables.features, data.agent, *told)
    return FederationJob.of(plan, tables, test, graph_of(plan.topology, tables.regions, base))
