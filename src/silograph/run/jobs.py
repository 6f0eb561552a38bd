"""A job is what a plan and its tables come to: everything a run needs besides its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from silograph.core.keys import secret_root
from silograph.core.types import Json
from silograph.data.candidates import read_candidates
from silograph.data.silos import Silos, read_silos, records_of, standardise
from silograph.methods.base import Method, Outcome, Private
from silograph.privacy.gate import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Mechanism, Scheduled
from silograph.run.build import Setup, build
from silograph.run.clustered_job import ClusteredJob
from silograph.run.clustered_plan import ClusteredPlan
from silograph.run.federation_job import FederationJob
from silograph.run.federation_plan import FederationPlan
from silograph.run.loop import ENGINES, REHEARSAL, SECRET, rounds
from silograph.run.meta_job import MetaJob
from silograph.run.meta_plan import MetaPlan
from silograph.run.plan import AnyPlan, Plan
from silograph.run.results import forecast, write_graphs
from silograph.topology import Topology


class Job(Protocol):
    @property
    def plan(self) -> AnyPlan: ...

    @property
    def topo(self) -> Topology: ...

    @property
    def method(self) -> Method: ...

    @property
    def mechanism(self) -> Mechanism | Scheduled | None: ...

    @property
    def budget(self) -> Budget | None: ...

    @property
    def masks(self) -> Masks | None: ...

    @property
    def most_rounds(self) -> int:
        """In how many rounds a silo can be asked at the most, rounds in which nobody answered not counted."""
        ...

    def data(self, silos: Sequence[str] | None = None) -> Sequence[Private] | Private:
        """What the task of each of these silos (all if None) made of its records, in the topology's order.

        Rows are the same whichever silos are asked for, and nobody else's records are looked at.
        """
        ...

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> Json:
        """Write the learned things into the folder; returns the job's part of result.json."""
        ...

    def forecast(self) -> Json:
        """What the run will cost, from public numbers alone."""
        ...


@dataclass(frozen=True)
class GraphJob:
    """Consensus graphs."""

    plan: Plan
    silos: Silos
    setup: Setup
    masks: None = None

    @classmethod
    def of(cls, plan: Plan, silos: Silos, base: Path) -> GraphJob:
        """Candidate edges are read relative to `base`."""
        candidates = plan.data.candidates
        allowed = None if candidates is None else read_candidates(base / candidates, silos.nodes)
        return cls(plan, silos, build(plan, silos, allowed))

    @property
    def topo(self) -> Topology:
        return self.setup.topo

    @property
    def method(self) -> Method:
        return self.setup.method

    @property
    def mechanism(self) -> Mechanism | None:
        return self.setup.mechanism

    @property
    def budget(self) -> Budget | None:
        return self.setup.budget

    @property
    def most_rounds(self) -> int:
        return self.setup.most_rounds

    def data(self, silos: Sequence[str] | None = None) -> list[Private]:
        signals = records_of(silos, self.topo.silos, self.silos.names, self.silos.signals)
        return [self.setup.task.prepare(own) for own in signals.values()]

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> Json:
        return write_graphs(folder, self.plan, self.silos.nodes, self.setup, outcome, trace, door)

    def forecast(self) -> Json:
        return forecast(self.plan, self.setup)


def run_in_memory(job: Job, seed: int | None) -> tuple[Outcome, Door]:
    """A whole run without a folder; with a seed it is a rehearsal."""
    root, randomness = (secret_root(), SECRET) if seed is None else (seed, REHEARSAL)
    door = Door(root, Ledger(), job.mechanism, job.budget, randomness, job.masks)
    place = ENGINES["vector"](job.data(), job.topo, door)
    *_, last = rounds(job.method, job.topo, place, door)
    return job.method.outcome(last.servers, place.deliver(job.method, last), job.topo), door


def open_job(plan: AnyPlan, base: Path) -> Job:
    """Read the plan's tables, which lie relative to `base`, and put the parts together."""
    if isinstance(plan, ClusteredPlan):
        return ClusteredJob.open(plan, base)
    if isinstance(plan, FederationPlan):
        return FederationJob.open(plan, base)
    if isinstance(plan, MetaPlan):
        return MetaJob.open(plan, base)
    data, private = plan.data, plan.privacy is not None
    silos = read_silos([base / name for name in data.files], data.nodes_in, private, unit_column=data.unit_column)
    return GraphJob.of(plan, standardise(silos) if plan.data.standardise else silos, base)
