"""The part of a family that an audit needs."""

from __future__ import annotations

from typing import Any, Protocol

from silograph import families
from silograph.audit.stages import Stage
from silograph.audit.worlds import Worlds
from silograph.core.types import Json
from silograph.deploy.public_facts import Facts
from silograph.run.jobs import Job


class CanaryPart(Protocol):
    """A family's part `canary`: the worst records that its clips allow, to attack its promise."""

    def stages(self, job: Any, many: bool) -> tuple[Stage, ...]:
        """The stages at which the plan's promise can be attacked, each with the worst canary that its clip allows. The
        site with the fewest records is attacked, or for `many` canaries a typical one: so many sites like it would have
        as many records as the plan."""
        ...

    def worlds(self, job: Any, facts: Facts) -> Worlds:
        """Neighbouring tables of one organisation, generated from public facts; `job` was opened without records."""
        ...

    def exposed(self, job: Any, own: bool, root: int) -> list[Json]:
        """Attacks on messages without protection, and what they got; `own` if the attacker is a silo's own server. None
        if an observer can simply read everything."""
        ...


def canary_part(job: Job) -> CanaryPart:
    return families.part(job.plan.method.name, "canary", CanaryPart)


def stages_of(job: Job, many: bool = False) -> tuple[Stage, ...]:
    return canary_part(job).stages(job, many)
