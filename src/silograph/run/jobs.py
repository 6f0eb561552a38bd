"""A job is what a plan and its tables come to: everything a run needs besides its folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from silograph import families
from silograph.core.keys import secret_root
from silograph.core.results import Result
from silograph.core.types import Json
from silograph.methods.base import Method, Outcome, Private
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Noise
from silograph.run.loop import REHEARSAL, SECRET, Watch, play
from silograph.run.plan import Plan
from silograph.topology import Topology


class Guarded(Protocol):
    """What a border is made of."""

    @property
    def mechanism(self) -> Noise | None: ...

    @property
    def budget(self) -> Budget | None: ...

    @property
    def masks(self) -> Masks | None: ...


class Job(Guarded, Protocol):
    @property
    def plan(self) -> Plan: ...

    @property
    def topo(self) -> Topology: ...

    @property
    def method(self) -> Method: ...

    @property
    def most_rounds(self) -> int:
        """In how many rounds a silo can be asked at the most, rounds in which nobody answered not counted."""
        ...

    def data(self, silos: Sequence[str] | None = None) -> Sequence[Private] | Private:
        """What the task of each of these silos (all if None) made of its records, in the topology's order.

        Rows are the same whichever silos are asked for, and nobody else's records are looked at.
        """
        ...

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> Result:
        """Write the learned things into the folder; returns what result.json says of them."""
        ...

    def forecast(self) -> Json:
        """What the run will cost, from public numbers alone."""
        ...


@runtime_checkable
class Slow(Protocol):
    """A job that knows before it runs that it will take long."""

    @property
    def takes(self) -> Json | None:
        """About how many `seconds`, on how many `cores`; None where that is not known."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """A job that servers can do each on their own, with nobody in the middle."""

    def at(self, region: str, without: Collection[str] = ()) -> Job:
        """One region's part of it, `without` neighbours that it talks to no more; or a refusal that says why all of it
        needs one server."""
        ...

    @property
    def hears_all(self) -> bool:
        """Whether every server must know the keys of all others, whose words reach it through neighbours."""
        ...


class JobPart(Protocol):
    """A family's part `job`."""

    #: Packages, beside those that every run needs, whose versions a result notes.
    PACKAGES: tuple[str, ...]

    def open_job(self, plan: Any, base: Path) -> Job:
        """Read the plan's tables, which lie relative to `base`, and put the parts together."""
        ...


def door_of(job: Guarded, root: int, ledger: Ledger, seed: int | None) -> Door:
    """A job's border; with the `seed` of a plan it is a rehearsal's."""
    randomness = SECRET if seed is None else REHEARSAL
    return Door(root, ledger, job.mechanism, job.budget, randomness, job.masks)


def run_in_memory(job: Job, seed: int | None, watch: Watch = lambda state: None) -> tuple[Outcome, Door]:
    """A whole run without a folder; with a seed it is a rehearsal."""
    door = door_of(job, secret_root() if seed is None else seed, Ledger(), seed)
    return play(job.method, job.topo, job.data(), door, watch)[1], door


def job_part(method: str) -> JobPart:
    return families.part(method, "job", JobPart)


def open_job(plan: Plan, base: Path) -> Job:
    """Read the plan's tables, which lie relative to `base`, and put the parts together."""
    return job_part(plan.method.name).open_job(plan, base)
