"""The plan of a graph federation: regions of agents, a graph of their servers, one linear model for each region."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.schema import Amount, Cohort, Count, Portion, Scale, Seed, Span
from silograph.core.types import EngineName
from silograph.data.features import Between, Classes, FeatureOptions
from silograph.families.servers import Servers, check_answers, check_classes, check_masks, left_out_of_servers
from silograph.run.plan import DEFAULT_DELTA, NOT_COMPARED, Plan
from silograph.run.sections import Delta, TotalEpsilon, naming_files

_MOST_DRAWS = 1_000_000  # records an agent looks at in a round


@dataclass(frozen=True)
class RegionData(FeatureOptions):
    """One table a region, named relative to the plan; a column says which agent a record belongs to.

    `test` is a table nobody asks to be protected: errors are measured on it. `classes` are a target's two words, the
    one that is 0 first; `answers` the least and the most of a target in numbers, from public knowledge.
    """

    agent: str
    target: str
    files: tuple[str, ...] = naming_files(())
    test: str | None = naming_files(None, private=False)
    classes: Classes | None = None
    answers: Between | None = None


@dataclass(frozen=True)
class FederationMethod:
    """Random effects of regions, calibrated models with a budget, or S1 (3)-(8): `learner_of` says which. The first two
    choose all settings but those given.

    `perturbation` is `private` with a budget and `none` without, by default.

    `masks` hide an agent's update from its own server: by the secure sum, or, to save time, only in name. `reach` says
    over whom sums go: the agents of a region, or all agents, of whom all servers then know the same sum; that has a
    curator's noise. `personal` is the share of the budget for models of the regions' own, with `reach` all.
    `compare` also learns, where there is a test table, what all records give without privacy, and each region alone.
    """

    name: Literal["graph_federation"] = "graph_federation"
    loss: Literal["logistic", "ridge", "huber"] = "logistic"
    ridge: Amount = 0.01
    huber: Scale = 1.0
    intercept: bool = True
    step: Scale = 0.5
    rounds: Count = 50
    sample: Count | None = None
    epochs: Span = (1, 1)
    batch: Span | None = None
    perturbation: Literal["none", "edge", "sender", "homomorphic", "private"] | None = None
    variance: Amount = 0.1
    law: Literal["laplace", "gaussian"] = "laplace"
    clip: Scale | None = None
    masks: Literal["protocol", "skipped", "none"] | None = None
    minimum: Cohort = 3
    reach: Literal["region", "all"] | None = None
    personal: Portion = 0.0
    learner: Literal["calibrated", "effects", "papers"] | None = None
    compare: bool | None = None


@dataclass(frozen=True)
class AgentBudget:
    """The total budget of every agent."""

    epsilon: TotalEpsilon
    delta: Delta = DEFAULT_DELTA


@dataclass(frozen=True)
class FederationPlan(Plan):
    data: RegionData
    topology: Servers = field(default_factory=Servers)
    method: FederationMethod = FederationMethod()
    privacy: AgentBudget | None = None
    engine: EngineName = "vector"
    seed: Seed | None = None

    @property
    def perturbation(self) -> Literal["none", "edge", "sender", "homomorphic", "private"]:
        return self.method.perturbation or ("none" if self.privacy is None else "private")

    @property
    def masks(self) -> Literal["protocol", "skipped", "none"]:
        return self.method.masks or ("none" if self.privacy is None else "protocol")

    @property
    def reach(self) -> Literal["region", "all"]:
        return self.method.reach or ("all" if learner_of(self) == "calibrated" else "region")

    @property
    def compares(self) -> bool:
        return self.data.test is not None if self.method.compare is None else self.method.compare

    @property
    def tells_counts(self) -> bool:
        return self.privacy is None

    def deployable(self) -> FederationPlan:
        masked = replace(self.method, masks="protocol") if self.masks == "skipped" else self.method
        return replace(self, data=replace(self.data, test=None), method=replace(masked, compare=None))

    def left_out(self) -> list[str]:
        compared = [NOT_COMPARED] if self.compares else []
        return left_out_of_servers(self.data.test, self.method.masks) + compared

    def __post_init__(self) -> None:
        super().__post_init__()
        method = self.method
        check_classes(self.data.classes, method.loss)
        if method.epochs[1] * (method.batch or (1, 1))[1] > _MOST_DRAWS:
            expected = f"epochs times batch of at most {_MOST_DRAWS:,}"
            raise InputError(
                wording.setting("epochs and batch"), expected, f"found {method.epochs[1]} times {method.batch}"
            )
        self._check_privacy()
        if learner_of(self) != "papers":
            self._check_chosen()
            return
        self._check_step()
        self._check_reach()
        check_masks(self.masks, method.clip, method.sample, method.minimum)

    def _check_chosen(self) -> None:
        calibrated = learner_of(self) == "calibrated"
        if calibrated == (self.privacy is None):
            expected, found = ("a budget with", "none") if calibrated else ("no budget with", "one")
            models = "calibrated models" if calibrated else "random effects"
            raise InputError(wording.setting("learner"), f"{expected} {models}", f"found {found}", "Leave learner out.")
        if given := papers_only(self):
            models = "calibrated models have" if calibrated else "random effects have"
            raise InputError(wording.setting(given), 'learner = "papers"', f"{models} no such setting")
        if calibrated:
            check_answers(self.data.answers, self.method.loss)

    def _check_step(self) -> None:
        """Refuse steps that diverge on any records: the ridge term alone makes each longer than twice the way down."""
        method = self.method
        longest = method.epochs[1] / method.ridge if method.ridge > 0.0 else math.inf  # s 2 rho <= 2, s = mu / E
        if method.clip is None and method.step > longest:
            raise InputError(
                wording.setting("step"),
                f"at most {longest:g} with ridge = {method.ridge:g}: longer ones diverge on any records",
                f"found {method.step:g}",
                f"Try step = {FederationMethod().step:g}.",
            )

    def _check_reach(self) -> None:
        method = self.method
        if self.reach == "all" and self.masks == "none":
            found = "found none: some server would have to see all agents' updates"
            raise InputError(wording.setting("masks"), 'masks with reach = "all"', found, 'Set masks = "protocol".')
        if self.reach == "all" and self.perturbation not in ("none", "private"):
            expected = 'none or private with reach = "all", where servers have nothing to hide from each other'
            raise InputError(wording.setting("perturbation"), expected, f"found {self.perturbation}")
        if method.personal and (self.reach == "region" or self.privacy is None):
            expected = 'a budget and reach = "all" with a personal share'
            raise InputError(wording.setting("personal"), expected, "found it without", "Leave personal out.")
        if method.personal == 1.0:
            raise InputError(
                wording.setting("personal"), "a share below 1", "found 1: nothing would be left for the common model"
            )

    def _check_privacy(self) -> None:
        if self.privacy is None:
            if self.perturbation == "private":
                raise InputError(wording.setting("[privacy]"), "epsilon with the private perturbation", "found none")
            return
        if self.perturbation != "private":
            raise InputError(
                wording.setting("perturbation"),
                "private, or nothing, with a budget",
                f"found {self.perturbation}, which is not differential privacy",
                "Leave one of the two out.",
            )
        if self.method.clip is None and learner_of(self) == "papers":
            given = papers_only(self) or "learner"
            raise InputError(
                wording.setting("clip"),
                "a bound on an agent's update, with privacy",
                f"found none beside {given}",
                "A public number: updates longer than it are scaled back. Try clip = 0.5; or leave out what only S1 "
                "has: then all settings are chosen.",
            )


def papers_only(plan: FederationPlan) -> str | None:
    """The first thing asked for that only S1 has."""
    plain, chosen, private = FederationMethod(), plan.method, plan.privacy is not None
    names = ("ridge", "sample", "epochs", "batch", "variance", "law", "clip", "personal")
    more = ("huber", "intercept") if private else ("step", "minimum")
    given = next((name for name in names + more if getattr(chosen, name) != getattr(plain, name)), None)
    settled = {
        "loss": private and chosen.loss == "huber",
        "masks": (plan.masks == "none") == private,
        "reach": chosen.reach == ("region" if private else "all"),
        "perturbation": plan.perturbation != ("private" if private else "none"),
    }
    return given or next((name for name, found in settled.items() if found), None)


def learner_of(plan: FederationPlan) -> Literal["calibrated", "effects", "papers"]:
    """What was asked for; else calibrated models with a budget, and random effects without, if nothing was asked for
    that only S1 has."""
    if plan.method.learner is not None or papers_only(plan) is not None:
        return plan.method.learner or "papers"
    return "effects" if plan.privacy is None else "calibrated"


PLAN = FederationPlan
