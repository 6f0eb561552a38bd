"""The plan of a graph federation: regions of agents, a graph of their servers, one linear model for each region."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from silograph.core.errors import InputError
from silograph.core.schema import Amount, Cohort, Count, Portion, Scale, Seed, Span
from silograph.data.features import Classes, FeatureOptions
from silograph.families.servers import Servers, check_classes, check_masks, left_out_of_servers
from silograph.run.plan import DEFAULT_DELTA, Plan
from silograph.run.sections import Delta, TotalEpsilon, naming_files

_MOST_DRAWS = 1_000_000  # records an agent looks at in a round


@dataclass(frozen=True)
class RegionData(FeatureOptions):
    """One table a region, named relative to the plan; a column says which agent a record belongs to.

    `test` is a table nobody asks to be protected: errors are measured on it. `classes` are a target's two words, the
    one that is 0 first.
    """

    agent: str
    target: str
    files: tuple[str, ...] = naming_files(())
    test: str | None = naming_files(None, private=False)
    classes: Classes | None = None


@dataclass(frozen=True)
class FederationMethod:
    """S1 (3)-(8). `perturbation` is `private` with a budget and `none` without, by default.

    `masks` hide an agent's update from its own server: by the secure sum, or, to save time, only in name. `reach` says
    over whom sums go: the agents of a region, or all agents, of whom all servers then know the same sum; that has a
    curator's noise. `personal` is the share of the budget for models of the regions' own, with `reach` all.
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
    reach: Literal["region", "all"] = "region"
    personal: Portion = 0.0


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
    engine: Literal["vector", "silowise"] = "vector"
    seed: Seed | None = None

    @property
    def perturbation(self) -> Literal["none", "edge", "sender", "homomorphic", "private"]:
        return self.method.perturbation or ("none" if self.privacy is None else "private")

    @property
    def masks(self) -> Literal["protocol", "skipped", "none"]:
        return self.method.masks or ("none" if self.privacy is None else "protocol")

    @property
    def tells_counts(self) -> bool:
        return self.privacy is None

    def deployable(self) -> FederationPlan:
        masked = replace(self.method, masks="protocol") if self.masks == "skipped" else self.method
        return replace(self, data=replace(self.data, test=None), method=masked)

    def left_out(self) -> list[str]:
        return left_out_of_servers(self.data.test, self.method.masks)

    def __post_init__(self) -> None:
        super().__post_init__()
        method = self.method
        check_classes(self.data.classes, method.loss)
        if method.epochs[1] * (method.batch or (1, 1))[1] > _MOST_DRAWS:
            expected = f"epochs times batch of at most {_MOST_DRAWS:,}"
            raise InputError("plan, epochs and batch", expected, f"found {method.epochs[1]} times {method.batch}")
        self._check_privacy()
        self._check_reach()
        check_masks(self.masks, method.clip, method.sample, method.minimum)

    def _check_reach(self) -> None:
        method = self.method
        if method.reach == "all" and self.masks == "none":
            found = "found none: some server would have to see all agents' updates"
            raise InputError("plan, masks", 'masks with reach = "all"', found, 'Say masks = "protocol".')
        if method.reach == "all" and self.perturbation not in ("none", "private"):
            expected = 'none or private with reach = "all", where servers have nothing to hide from each other'
            raise InputError("plan, perturbation", expected, f"found {self.perturbation}")
        if method.personal and (method.reach == "region" or self.privacy is None):
            expected = 'a budget and reach = "all" with a personal share'
            raise InputError("plan, personal", expected, "found it without", "Leave personal out.")
        if method.personal == 1.0:
            raise InputError("plan, personal", "a share below 1", "found 1: nothing would be left for the common model")

    def _check_privacy(self) -> None:
        if self.privacy is None:
            if self.perturbation == "private":
                raise InputError("plan, [privacy]", "epsilon with the private perturbation", "found none")
            return
        if self.perturbation != "private":
            raise InputError(
                "plan, perturbation",
                "private, or nothing, with a budget",
                f"found {self.perturbation}, which is not differential privacy",
                "Leave one of the two out.",
            )
        if self.method.clip is None:
            raise InputError(
                "plan, clip",
                "a bound on an agent's update, with privacy",
                "found none",
                "A public number: updates longer than it are scaled back. Try clip = 0.5.",
            )


PLAN = FederationPlan
