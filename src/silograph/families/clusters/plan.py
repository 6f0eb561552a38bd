"""The plan of clustered models: clients of several servers, in clusters that are given or found."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.schema import Amount, Cohort, Count, Portion, Positive, Scale, Seed, Share
from silograph.core.types import EngineName
from silograph.data.features import Between, Classes, FeatureOptions
from silograph.families.servers import Servers, check_answers, check_classes, check_masks, left_out_of_servers
from silograph.run.plan import DEFAULT_DELTA, NOT_COMPARED, Plan
from silograph.run.sections import Delta, TotalEpsilon, naming_files, option

_LEAST_DECAY = 1e-12  # of the first round's noise or leakage


@dataclass(frozen=True)
class ClusterData(FeatureOptions):
    """One table a server, named relative to the plan; columns say whose a record is, and of which cluster.

    Without a `cluster` column, or where the method says `find`, clusters are found. `test` is a table of the same
    clients that nobody asks to be protected: errors are measured on it. `classes` are a target's two words, the one
    that is 0 first; `answers` the least and the most of a target in numbers, from public knowledge.
    """

    agent: str
    target: str
    files: tuple[str, ...] = naming_files(())
    cluster: str | None = None
    test: str | None = naming_files(None, private=False)
    classes: Classes | None = None
    answers: Between | None = None


@dataclass(frozen=True)
class ClusteredMethod:
    """Random effects, calibrated models with a budget, or S2 (4)-(13): `learner_of` says which. `find` is how many
    clusters to look for; with 1 all clients are one, and nothing is spent on it.

    All but `loss`, `huber`, `intercept`, `rounds`, `find`, `masks`, `minimum`, `reach` and `compare` is S2's. `tau` is
    the weight of other clusters, or `learned`.
    `step` is the client's: its own problem solved exactly, or a gradient step, whose gradient can be clipped for any
    loss. `radius` bounds the length of a record's features, `clip` a record's gradient (records) or a client's
    difference (clients, masks). `compare` also learns what each client gets alone and what one model gives to all,
    without privacy: by default where there is a test table.
    With `reach` all there is one sum for a cluster over all servers' clients, under masks, not one for each server;
    calibrated models have no other.
    """

    name: Literal["clustered_admm"] = "clustered_admm"
    loss: Literal["ridge", "huber", "logistic"] = option("ridge", "The loss to minimise; logistic is for two classes.")
    huber: Positive = 1.0
    intercept: bool = option(True, "Whether models have a constant.")
    penalty: Positive = option(3.0, "S2's rho: how strongly clients are held to their cluster.")
    ridge: Amount = option(
        0.01, "S2's lambda: the weight of half a model's squared length, shared among a server's clients."
    )
    rounds: Count = option(
        100,
        "How many rounds S2 takes; with random effects, the most that each of four stages takes; with calibrated "
        "models it follows from the budget.",
    )
    tau: Portion | Literal["learned"] = option(
        "learned", 'S2: the weight of other clusters, from 0 to 1, or "learned".'
    )
    tau_decay: Share = 1.0
    form: Literal["others", "all"] = "others"
    weights: Literal["uniform", "mixing", "alone"] = "mixing"
    step: Literal["exact", "linearised"] = "exact"
    sample: Count | None = None
    learner: Literal["calibrated", "effects", "papers"] | None = option(
        None,
        '"effects" shrinks clients towards clusters by estimated variances, "calibrated" needs a budget and chooses '
        'all settings, "papers" is S2; None: chosen automatically.',
    )
    find: Count | None = option(
        None, "How many clusters to find; 1: all are one cluster; None: the clusters are given."
    )
    radius: Scale | None = None
    clip: Scale | None = None
    masks: Literal["protocol", "skipped", "none"] | None = None
    minimum: Cohort = 3
    compare: bool | None = None
    reach: Literal["region", "all"] | None = None


@dataclass(frozen=True)
class ClusterBudget:
    """The total budget of every client, for one of its records or for all of them together.

    `schedule` says how it is spread over the rounds where records are protected: evenly, with noise whose variance
    shrinks by `decay` a round, or with a leakage that does.
    """

    epsilon: TotalEpsilon = field(
        metadata={"help": "Budget of every client over the whole run; None means no privacy."}
    )
    delta: Delta = option(DEFAULT_DELTA, "Delta of the budget.")
    protect: Literal["records", "clients"] = option(
        "records", 'What the budget is for: each of a client\'s "records", or whole "clients".'
    )
    schedule: Literal["even", "variance_decay", "leakage_decay"] = "even"
    decay: Share = 0.99


@dataclass(frozen=True)
class ClusteredPlan(Plan):
    data: ClusterData
    topology: Servers = field(default_factory=Servers)
    method: ClusteredMethod = ClusteredMethod()
    privacy: ClusterBudget | None = None
    engine: EngineName = "vector"
    seed: Seed | None = None

    @property
    def protect(self) -> Literal["none", "records", "clients"]:
        return "none" if self.privacy is None else self.privacy.protect

    @property
    def masks(self) -> Literal["protocol", "skipped", "none"]:
        return self.method.masks or ("protocol" if learner_of(self) == "calibrated" else "none")

    @property
    def compares(self) -> bool:
        return self.data.test is not None if self.method.compare is None else self.method.compare

    @property
    def reach(self) -> Literal["region", "all"]:
        return self.method.reach or ("all" if learner_of(self) == "calibrated" else "region")

    @property
    def sought(self) -> int | None:
        """How many clusters are looked for: one cluster needs no looking."""
        return None if self.method.find == 1 else self.method.find

    @property
    def tells_counts(self) -> bool:
        return self.protect != "clients"

    @property
    def tells_clusters(self) -> bool:
        """Where clusters are to be found, nobody learns what tables say of them."""
        return self.method.find is None

    def deployable(self) -> ClusteredPlan:
        # Organisations agree on what they send by its name, not by what a default was.
        learner = "effects" if learner_of(self) == "effects" else self.method.learner
        chosen = replace(self.method, compare=False, learner=learner)
        chosen = replace(chosen, masks="protocol") if self.masks == "skipped" else chosen
        return replace(self, data=replace(self.data, test=None), method=chosen)

    def left_out(self) -> list[str]:
        compared = [NOT_COMPARED] if self.compares else []
        return left_out_of_servers(self.data.test, self.masks) + compared

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = self.method
        check_classes(self.data.classes, chosen.loss)
        if self.data.cluster is None and chosen.find is None:
            expected = "a cluster column in [data], or how many to find in [method]"
            todo = "If clients have no groups, say find = 1: all are one cluster."
            raise InputError(wording.setting("clusters"), expected, "found neither", todo)
        if learner_of(self) == "calibrated":
            self._check_calibrated()
            return
        check_masks(self.masks, chosen.clip, chosen.sample, chosen.minimum)
        if self.reach == "all" and self.masks == "none":
            found = "found none: some server would have to see all clients' differences"
            raise InputError(wording.setting("masks"), 'masks with reach = "all"', found, 'Set masks = "protocol".')
        if self.sought is not None and self.masks != "none":
            found = "found clusters to find: every client would show its server a gradient"
            raise InputError(wording.setting("find"), "given clusters with masks", found)
        if chosen.step == "linearised" and chosen.radius is not None:
            raise InputError(
                wording.setting("radius"), "none with the linearised step, whose clip bounds gradients", "found one"
            )
        if chosen.learner == "effects" and (given := papers_only(self) or ("privacy" if self.privacy else None)):
            todo = "Leave learner out." if given == "privacy" else ""
            raise InputError(wording.setting(given), 'learner = "papers"', "random effects have no such setting", todo)
        if self.privacy is not None:
            self._check_privacy(self.privacy)

    def _check_calibrated(self) -> None:
        if self.privacy is None:
            raise InputError(
                wording.setting("learner"), "a budget with calibrated models", "found none", "Leave learner out."
            )
        if given := papers_only(self):
            raise InputError(wording.setting(given), 'learner = "papers"', "calibrated models have no such setting")
        check_answers(self.data.answers, self.method.loss)
        if self.sought is not None and self.privacy.protect == "clients":
            raise InputError(
                wording.setting("find"), "given clusters where clients are protected", "found clusters to find"
            )

    def _check_privacy(self, privacy: ClusterBudget) -> None:
        chosen = self.method
        if privacy.decay**chosen.rounds <= _LEAST_DECAY:
            expected = f"a number up to 1 that leaves {_LEAST_DECAY:g} or more after all rounds"
            raise InputError(wording.setting("decay"), expected, f"found {privacy.decay}")
        if privacy.protect == "records":
            self._check_records()
        elif chosen.clip is None:
            raise InputError(
                wording.setting("clip"), "a bound on a client's difference, with privacy", "found none", "Try clip = 1."
            )
        elif self.sought is not None:
            raise InputError(
                wording.setting("find"), "given clusters where clients are protected", "found clusters to find"
            )
        elif privacy.schedule != "even":
            raise InputError(
                wording.setting("schedule"), "even, where clients are protected", f"found {privacy.schedule}"
            )

    def _check_records(self) -> None:
        chosen = self.method
        if self.masks != "none":
            raise InputError(wording.setting("masks"), "none where records are protected by S2", f"found {self.masks}")
        if chosen.step == "exact" and (chosen.loss == "ridge" or chosen.radius is None):
            raise InputError(
                wording.setting("step"),
                "a gradient that is really bounded, to protect records",
                "the exact step of this loss has none",
                'Set step = "linearised" and a clip, or take huber or logistic with a radius.',
            )
        if chosen.step == "linearised" and chosen.clip is None:
            raise InputError(
                wording.setting("clip"), "a bound on a record's gradient, with privacy", "found none", "Try clip = 1."
            )
        if chosen.step == "exact" and chosen.clip is not None:
            raise InputError(
                wording.setting("clip"), "none with the exact step, whose radius bounds gradients", "found one"
            )
        if self.sought is not None and chosen.step == "exact":
            raise InputError(
                wording.setting("find"), 'step = "linearised" to find clusters under privacy', "found the exact step"
            )


_SHARED = ("name", "loss", "huber", "intercept", "rounds", "learner", "find", "masks", "minimum", "reach", "compare")


def papers_only(plan: ClusteredPlan) -> str | None:
    """The first thing asked for that only S2 has."""
    plain, chosen, privacy = ClusteredMethod(), plan.method, plan.privacy
    names = (part.name for part in fields(plain) if part.name not in _SHARED)
    given = next((name for name in names if getattr(chosen, name) != getattr(plain, name)), None)
    if privacy is None:  # random effects have no masks, and no other sums than over all
        settled = {"masks": chosen.masks not in (None, "none"), "reach": chosen.reach == "all"}
    else:
        settled = {
            "loss": chosen.loss == "huber",
            "intercept": not chosen.intercept,
            "masks": chosen.masks == "none",
            "reach": chosen.reach == "region",
            "schedule": privacy.schedule != "even",
        }
    return given or next((name for name, found in settled.items() if found), None)


def learner_of(plan: ClusteredPlan) -> Literal["calibrated", "effects", "papers"]:
    """What was asked for, or S2 where a setting was that only S2 has; else what privacy leaves."""
    if plan.method.learner is not None or papers_only(plan) is not None:
        return plan.method.learner or "papers"
    return "effects" if plan.privacy is None else "calibrated"


PLAN = ClusteredPlan
