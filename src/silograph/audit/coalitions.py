"""Play agents and servers who join up against an agent, and compare what they learn with what is stated against them.

Agents add the noise of a secure sum themselves. Whoever joins up reveals its own share, so less noise hides the agent
that is attacked, and the epsilon against the coalition is larger than the plan's budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from silograph import families
from silograph.audit.audit import LEAST_RUNS, Progress, against_coalition
from silograph.audit.stages import RegionStage
from silograph.core.errors import InputError
from silograph.core.keys import secret_root
from silograph.core.types import Json
from silograph.families import FamilyError
from silograph.run.jobs import Job

RUNS = 1000


class CoalitionPart(Protocol):
    """What a family's part `canary` has besides, if many agents add up under masks."""

    def coalition_stages(self, job: Any) -> Sequence[tuple[str, float, RegionStage]]:
        """Who joins up, the epsilon that is stated against them, and what to play; none without a budget and masks."""
        ...


@dataclass(frozen=True)
class Joined:
    """`found` is a lower bound on epsilon with 99 % confidence, `stated` what the plan says."""

    who: str
    stated: float
    found: float

    @property
    def refuted(self) -> bool:
        return self.found > self.stated

    def to_json(self) -> Json:
        return {"who": self.who, "stated": self.stated, "found": self.found, "refuted": self.refuted}


def audit_coalitions(
    job: Job, runs: int | None = None, root: int | None = None, progress: Progress = lambda share: None
) -> list[Joined]:
    """Play every coalition in `runs` trials; `root` fixes every random number, for tests."""
    runs, root = RUNS if runs is None else runs, secret_root() if root is None else root
    if runs < LEAST_RUNS:
        raise InputError("audit, runs", f"{LEAST_RUNS} or more", f"found {runs}")
    expected = "a plan of regions whose agents share the noise of secure sums, with a budget"
    try:
        stages = families.part(job.plan.method.name, "canary", CoalitionPart).coalition_stages(job)
    except FamilyError:
        stages = []
    if not stages:
        raise InputError("audit, coalitions", expected, "found another", "Leave --coalitions out.")
    found = []
    for k, (who, stated, stage) in enumerate(stages):
        found.append(Joined(who, stated, against_coalition(stage, job.plan.total_delta, runs, root)))
        progress((k + 1) / len(stages))
    return found
