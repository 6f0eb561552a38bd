"""What an audit asks of a family."""

from __future__ import annotations

from typing import Any, Protocol

from silograph import families
from silograph.audit.stages import Stage
from silograph.audit.worlds import Worlds
from silograph.core.types import Json
from silograph.deploy.public_facts import Facts
from silograph.run.jobs import Job


class CanaryPart(Protocol):
    """A family's part `canary`: the worst records that its clips allow, for whoever attacks its promise."""

    def stages(self, job: Any, many: bool) -> tuple[Stage, ...]:
        """Where the plan's promise can be attacked, each with the worst canary that its clip allows. The site with the
        fewest records is attacked, or for `many` canaries a typical one: as many like it have as many records as the
        plan."""
        ...

    def worlds(self, job: Any, facts: Facts) -> Worlds:
        """Neighbouring tables of one organisation, made up from public facts; `job` was opened without records."""
        ...

    def exposed(self, job: Any, own: bool, root: int) -> list[Json]:
        """Attacks on what leaves without protection, and what they got; `own` where the attacker is a silo's own
        server. None where whoever listens reads all there is."""
        ...


def canary_part(job: Job) -> CanaryPart:
    return families.part(job.plan.method.name, "canary", CanaryPart)


def stages_of(job: Job, many: bool = False) -> tuple[Stage, ...]:
    return canary_part(job).stages(job, many)
