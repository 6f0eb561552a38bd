"""From the plan of private meta-learning and its tables to what will run, and from its outcome to what it leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from silograph.core import schema
from silograph.core.errors import InputError
from silograph.core.results import Claim, Privacy, filled
from silograph.core.types import Array, Json
from silograph.data.clients import ClientTables, read_clients
from silograph.data.features import raw_values
from silograph.data.silos import Elsewhere, records_of
from silograph.families.meta.advice import Known, advice_for, settled
from silograph.families.meta.network import network
from silograph.families.meta.new_clients import NewClients
from silograph.families.meta.plan import MetaPlan, Settled
from silograph.families.meta.result import Compared, MetaResult, Model, NewClient, Parameters, Round, SourceClient, Task
from silograph.methods.base import Method, Outcome, Private
from silograph.methods.meta_baselines import DEFECT, LocalTraining, PaperMeta
from silograph.methods.private_meta import PERSON, PROTECTED_UNIT, QUERY, SUPPORT, PrivateMeta, divided, part_sizes
from silograph.privacy import accounting
from silograph.privacy.bound import ADD_OR_REMOVE_ONE
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.run.loop import play
from silograph.run.results import STAR_OBSERVERS, UNPROTECTED, costs, guarantee, stated
from silograph.theory.private_meta import theorem_one, true_cost_of_the_literal_version
from silograph.topology import Topology, star

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural

PACKAGES = ("torch",)
_PLANNED_ROUNDS, _PLANNED_RATES = (25, 50, 100, 200, 400, 800), (0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, eq=False)
class MetaJob:
    """`tables` are of the source clients, `new` of those that personalise."""

    plan: MetaPlan
    tables: ClientTables
    new: ClientTables | None
    task: Neural
    masks: None = None

    @classmethod
    def of(cls, plan: MetaPlan, tables: ClientTables, new: ClientTables | None, task: Neural) -> MetaJob:
        job = cls(plan, tables, new, task)
        job._check()
        return job

    def _check(self) -> None:
        if self.new is not None:
            if self.new.shape != self.tables.shape:
                raise InputError("new clients", f"records of shape {self.tables.shape}", f"found {self.new.shape}")
            if both := sorted(set(self.new.names) & set(self.tables.names)):
                expected, found = (
                    "a new client, or a source client",
                    "it is both: it would be tested on what it taught",
                )
                raise InputError(f"client {both[0]}", expected, found)
        privacy = self.plan.privacy
        if privacy is not None:
            for name, (_, y) in zip(self.tables.names, self.tables.records, strict=True):
                accounting.check_budget(privacy.epsilon, privacy.delta, len(y), f"client {name}")
            if privacy.personal_epsilon is not None and self.new is not None:
                for name, (_, y) in zip(self.new.names, self.new.records, strict=True):
                    accounting.check_budget(privacy.personal_epsilon, privacy.delta, len(y), f"client {name}")

    # ---- what will run ----

    @cached_property
    def chosen(self) -> Settled:
        """The plan's method, with what it leaves open chosen from public numbers."""
        return settled(self.plan, Known.of(self.tables))

    @property
    def topo(self) -> Topology:
        return star(self.tables.names)

    @property
    def most_rounds(self) -> int:
        return self.chosen.rounds

    @property
    def _counts(self) -> list[int]:
        """How many records each client has, in the topology's order."""
        of = {name: len(y) for name, (_, y) in zip(self.tables.names, self.tables.records, strict=True)}
        return [of[name] for name in self.topo.silos]

    def data(self, silos: Sequence[str] | None = None) -> Private:
        of = records_of(silos, self.topo.silos, self.tables.names, self.tables.records)
        return divided(list(of.values()), list(of), self.plan.seed or 0, max(self._counts))

    @property
    def _weights(self) -> tuple[int, ...]:
        return tuple(part_sizes(count)[SUPPORT] for count in self._counts)

    @property
    def method(self) -> PrivateMeta:
        chosen, private = self.chosen, self.plan.privacy is not None
        kind = PaperMeta if chosen.version == "paper:" else PrivateMeta
        return filled(
            kind,
            chosen,
            task=self.task,
            weights=self._weights,
            clip=chosen.clip if private else None,
            curvature_clip=chosen.curvature_clip if private else None,
            protected_unit=self.protected_unit,
        )

    @property
    def protected_unit(self) -> str:
        return PROTECTED_UNIT if self.plan.data.unit_column is None else PERSON

    @property
    def _samples(self) -> int:
        """Of each set of a client's records, over the run."""
        return self.chosen.rounds * self.chosen.local_steps

    @cached_property
    def sigma(self) -> float | None:
        """S4's sigma: the noise of a sum in units of the clip, for all that is released from one sample."""
        privacy, rate = self.plan.privacy, self.chosen.rate
        if privacy is None:
            return None
        if self.chosen.version == "paper:":  # Theorem 1 charges both sets to every record
            return accounting.sampled_multiplier(privacy.epsilon, privacy.delta, rate, 2 * self._samples, "rdp")
        return accounting.sampled_multiplier(privacy.epsilon, privacy.delta, rate, self._samples)

    @property
    def mechanism(self) -> Gaussian | None:
        if self.sigma is None:
            return None
        return Gaussian(self.sigma / 2.0 if self.chosen.version == "paper:" else self.sigma)

    @property
    def budget(self) -> Budget | None:
        privacy = self.plan.privacy
        # S4's own version costs more than its budget: it is read from the ledger, not held to a bound.
        if privacy is None or self.sigma is None or self.chosen.version == "paper:":
            return None
        planned = accounting.Planned(self.sigma, self.chosen.rate, self._samples)
        return Budget(privacy.epsilon, privacy.delta, planned=planned)

    # ---- what it costs ----

    def _claim(self) -> Claim | None:
        """What S4 would have said of this noise, beside what is true."""
        privacy, chosen = self.plan.privacy, self.chosen
        if privacy is None or self.sigma is None:
            return None
        claimed = theorem_one(self.sigma, chosen.rate, chosen.rounds, chosen.local_steps, privacy.delta)
        sound = "it adds up what disjoint sets of records pay; a record is in one of them"
        return Claim(claimed, privacy.delta, "S4 Theorem 1", DEFECT if chosen.version == "paper:" else sound)

    def forecast(self) -> Json:
        privacy, chosen, cost = self.plan.privacy, self.chosen, UNPROTECTED
        spends: list[Json] = []
        if privacy is not None and self.sigma is not None:
            how = accounting.PLD if chosen.rate < 1.0 else accounting.EXACT_GAUSSIAN
            if chosen.version == "paper:":
                true = true_cost_of_the_literal_version(
                    self.sigma, chosen.rate, chosen.rounds, chosen.local_steps, privacy.delta
                )
                epsilon = true.epsilon
            else:
                epsilon = accounting.sampled_epsilon(self.sigma, chosen.rate, self._samples, privacy.delta)
                spends = self._spends()
            cost = accounting.Cost(epsilon, privacy.delta, how)
        guarantees = [
            guarantee(name, observer, paid, None, self.plan.rehearsal)
            for names, paid in ((self.topo.silos, cost), self._published())
            for name in names
            for observer in STAR_OBSERVERS
        ]
        each = 2 if chosen.order == "first" or chosen.version == "paper:" else 3
        releases = 0 if privacy is None else each * self._samples
        told = costs(releases, guarantees, self._claim(), self._notes(), noise_multiplier=self.sigma)
        return told | {"chosen": self._choice(), "spends": spends, "planner": self._planner()}

    def _choice(self) -> Json:
        """What the plan leaves open, as it was chosen."""
        names = ("model", "rounds", "rate")
        return {name: getattr(self.chosen, name) for name in names if getattr(self.plan.method, name) is None}

    def _published(self) -> tuple[Sequence[str], accounting.Cost]:
        """New clients whose models are to be released, and what each pays for that."""
        privacy = self.plan.privacy
        if privacy is None or privacy.personal_epsilon is None or self.new is None:
            return (), UNPROTECTED
        steps = self.plan.personal_steps or 1
        mu = math.sqrt(steps) / accounting.gaussian_multiplier(privacy.personal_epsilon, privacy.delta, steps)
        epsilon = accounting.gaussian_epsilon(mu, privacy.delta)
        return star(self.new.names).silos, accounting.Cost(epsilon, privacy.delta, accounting.EXACT_GAUSSIAN)

    def _spends(self) -> list[Json]:
        """Where a record's budget goes, and the noise in a coordinate of the mean at the client with most records."""
        assert self.sigma is not None
        chosen = self.chosen
        curvature = chosen.clip if chosen.curvature_clip is None else chosen.curvature_clip
        second = chosen.order == "second"
        rows = [(QUERY, "inner gradient", chosen.clip, 0.5 if second else 1.0)]
        rows += [(QUERY, "curvature", curvature, 0.5)] if second else []
        rows += [(SUPPORT, "outer gradient", chosen.clip, 1.0)]
        return [
            {
                "set": part,
                "release": what,
                "share": share,
                "times": self._samples,
                "noise": self.sigma * clip / math.sqrt(share) / (chosen.rate * part_sizes(max(self._counts))[part]),
            }
            for part, what, clip, share in rows
        ]

    def _planner(self) -> list[Json]:
        """Other rounds, and other rates, at the same budget: sigma, and how the noise compares with what is learned.

        `noise` is the length of all rounds' noise in the shared start, over the most that all rounds can move it:
        sigma sqrt(P) / (q N sqrt(K T tau0)). It says nothing of how far rounds still help.
        """
        privacy, chosen = self.plan.privacy, self.chosen
        if privacy is None or chosen.version == "paper:":
            return []
        records, clients = float(np.median(self._weights)), len(self.tables.names)
        options = {(rounds, chosen.rate) for rounds in (*_PLANNED_ROUNDS, chosen.rounds)}
        options |= {(chosen.rounds, rate) for rate in (*_PLANNED_RATES, chosen.rate)}
        rows = []
        for number, rate in sorted(options):
            count = number * chosen.local_steps
            sigma = accounting.sampled_multiplier(privacy.epsilon, privacy.delta, rate, count, rough=True)
            noise = sigma * math.sqrt(self.task.size / (clients * count)) / (rate * records)
            planned = (number, rate) == (chosen.rounds, chosen.rate)
            rows.append({"rounds": number, "rate": rate, "sigma": sigma, "noise": noise, "planned": planned})
        return rows

    def privacy_section(self, door: Door) -> Json:
        """For estimators, which show it as it would be written."""
        told: Json = schema.write(self._privacy(door))
        return told

    def _privacy(self, door: Door) -> Privacy:
        """What it cost, read from the ledger."""
        privacy, delta, rehearsal = self.plan.privacy, self.plan.total_delta, self.plan.rehearsal
        guarantees = stated(door, self.topo.silos, STAR_OBSERVERS, delta, self._claim(), rehearsal)
        guarantees += stated(door, self._published()[0], STAR_OBSERVERS, delta, None, rehearsal)
        if privacy is None:
            return Privacy("exact", "none", "none", guarantees, self._notes())
        mode = "paper:" if self.chosen.version == "paper:" else "dp"
        relation = f"{ADD_OR_REMOVE_ONE}; how many places there are is public"
        return Privacy(mode, self.protected_unit, relation, guarantees, self._notes())

    def _notes(self) -> list[str]:
        plan, notes = self.plan, []
        if self.plan.rehearsal:
            notes.append(
                "Rehearsal: the noise and the samples come from the seed in this folder, so whoever has the seed can "
                "remove the noise. The guarantee is the one that the same plan gives without a seed. Run real data "
                "without one."
            )
        if plan.privacy is None:
            notes.append("No privacy was asked for: clients send their models as they are.")
        else:
            units = "records" if self.protected_unit == PROTECTED_UNIT else "persons"
            notes.append(
                f"Not protected: which clients there are, how many {units} each has, the classes, that a client took "
                "part, and how long it took. Runs add up: another run on the same data costs its budget again."
            )
            if units == "persons":
                notes.append(
                    f"A person counts once, with up to {plan.data.unit_rows} records. A person with records at several "
                    "clients is protected at each of them separately."
                )
            if plan.method.version == "paper:":
                notes.append(f"S4's own version: {DEFECT}. The cost is computed from what it really releases.")
        if self.new is not None:
            kept = plan.privacy is None or plan.privacy.personal_epsilon is None
            notes.append(
                "New clients' models stay with them. Their test scores are simulation only."
                if kept and plan.privacy is not None
                else "New clients' models are written here. Their test scores are exact and not protected."
            )
        notes += self._advice()
        if plan.method.compare:
            notes.append("Other methods were run for comparison: simulation only.")
        here = [x for x, _ in self.tables.records if not isinstance(x, Elsewhere)]
        return [*notes, *self.tables.notes, *raw_values(self.tables.features, here, plan.privacy is not None)]

    def _advice(self) -> list[str]:
        """What the budget would rather have, where the plan's noise is much longer; and where nothing helps."""
        best, chosen = advice_for(self.plan, Known.of(self.tables)), self.chosen
        if best is None or self.sigma is None:
            return []
        said = []
        records, clients = float(np.median(self._weights)), len(self.tables.names)
        noise = self.sigma * math.sqrt(self.task.size / clients) / (chosen.rate * records)
        if noise >= 2.0 * max(best.noise, 1.0) and chosen.model in ("linear", "mlp"):
            said.append(
                f'A round\'s noise is {noise:.1f} times as long as the clip. With model = "{best.model}", rounds = '
                f"{best.rounds} and rate = {best.rate:g} it would be {best.noise:.1f} times as long, for the same "
                "budget."
            )
        if best.noise > 1.0:
            said.append(
                f"With this budget a round's noise is at least {best.noise:.1f} times as long as the clip: a client "
                "alone will do about as well. More records, more clients or a larger epsilon would help."
            )
        return said

    # ---- what it leaves ----

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> MetaResult:
        from silograph.tasks.networks import save_model

        chosen, data, start = self.chosen, self.plan.data, outcome.arrays["model"]
        (folder / "models").mkdir(exist_ok=True)
        save_model(folder / "models" / "start.npz", self.model_spec, self.task.layout, start)
        new = None if self.new is None else NewClients(self.plan, self.new, self.task)
        told = [] if new is None else new.personalise(start, door, folder / "models", self.model_spec)
        tables = self.tables
        return MetaResult(
            method=chosen.name,
            task=Task(data.answers, data.target, list(tables.classes), list(tables.features), list(tables.shape)),
            model=Model(chosen.model, self.task.size),
            parameters=filled(
                Parameters,
                chosen,
                personal_step=self.plan.personal_step,
                personal_steps=self.plan.personal_steps,
                clip=self.method.clip,
                curvature_clip=self.method.curvature_clip,
                sigma=self.sigma,
            ),
            clients=[SourceClient(name, len(y)) for name, (_, y) in zip(tables.names, tables.records, strict=True)],
            new=told,
            comparison=[] if new is None else self._comparison(new, start, told),
            test=None if new is None else new.baseline(),
            rounds=outcome.facts["rounds"],
            trace=[Round(**line) for line in trace],
            privacy=self._privacy(door),
            numbers_are={
                **dict.fromkeys(("model", "movement"), "released"),
                **dict.fromkeys(("new", "comparison", "test"), "simulation only"),
            },
        )

    @property
    def model_spec(self) -> Json:
        """What is needed to build the network again, and to read a client's table for it."""
        chosen, data, tables = self.chosen, self.plan.data, self.tables
        return {
            "model": chosen.model,
            "hidden": list(chosen.hidden),
            "width": chosen.width,
            **{name: list(getattr(tables, name)) for name in ("shape", "features", "classes")},
            "target": data.target,
            "answers": data.answers,
            "step": self.plan.personal_step,
            "steps": self.plan.personal_steps,
            **({"columns": told} if (told := data.told()) else {}),
        }

    def _comparison(self, new: NewClients, start: Array, told: list[NewClient]) -> list[Compared]:
        chosen = self.chosen
        scores = {"this run": float(np.mean([client.after for client in told]))}
        alone = [client.alone for client in told if client.alone is not None]
        if alone:
            scores["each client alone"] = float(np.mean(alone))
        if self.plan.privacy is None:
            # One step of every client, and their mean: a step on all records together.
            samples, step = self._samples, min(chosen.outer_step, 0.5)
            together = LocalTraining(self.task, self._weights, samples, step, rate=chosen.rate)
            pooled = self._learned(together)
            scores["one model for all, of all records together"] = new.score(pooled, personal=False)
            if chosen.compare:
                averaging = replace(together, rounds=chosen.rounds, steps=chosen.local_steps)
                shared = pooled if chosen.local_steps == 1 else self._learned(averaging)
                reptile = self._learned(replace(averaging, steps=5, server_step=0.5))
                scores["federated averaging, then the same steps"] = new.score(shared)
                scores["Reptile, then the same steps"] = new.score(reptile)
        return [Compared(*score) for score in scores.items()]

    def _learned(self, method: Method) -> Array:
        """Another method's start from the same data, in memory."""
        return play(method, self.topo, self.data(), Door(self.plan.seed or 0, Ledger()))[1].arrays["model"]


def open_job(plan: MetaPlan, base: Path) -> MetaJob:
    data, private = plan.data, plan.privacy is not None
    regression = data.answers == "numbers"
    files = [base / name for name in data.files]
    tables = read_clients(files, data.target, private, data.classes, regression, told=data, persons=data.persons)
    new = None
    if data.new:
        paths = [base / name for name in data.new]
        classes = None if regression else tables.classes
        features, nobody = tables.features, data.nobody
        new = read_clients(paths, data.target, private, classes, regression, features, told=data, persons=nobody)
    return MetaJob.of(plan, tables, new, network(plan, tables))
