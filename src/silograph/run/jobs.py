"""A job is what a plan and its tables come to: everything a run needs besides its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from silograph.core.files import write_atomically
from silograph.core.keys import secret_root
from silograph.core.types import Array, Json
from silograph.data.candidates import read_candidates
from silograph.data.coordinates import Coordinates, read_coordinates
from silograph.data.silos import Silos, read_silos, records_of, standardise
from silograph.kernels.spaces import EdgeList
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
from silograph.run.neighbours import nearest_neighbours, needs_neighbours
from silograph.run.plan import AnyPlan, Plan
from silograph.run.results import forecast, write_graphs
from silograph.run.selecting import choose_coupling
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
    reach: Mapping[str, Array] | None = None  # of each site's lists of neighbours, where they are exact
    path: Json | None = None  # how the coupling was chosen, where it was
    coordinates: Coordinates | None = None

    @classmethod
    def of(cls, plan: Plan, silos: Silos, base: Path) -> GraphJob:
        """Candidate edges and coordinates are read relative to `base`; or neighbours are candidates."""
        candidates, reach, path = None, None, None
        if needs_neighbours(plan, len(silos.nodes)):
            near = nearest_neighbours(plan, silos)
            candidates, reach = near.edges, near.reach
        elif plan.data.candidates is not None:
            ends = read_candidates(base / plan.data.candidates, silos.nodes)
            candidates = EdgeList.of(len(silos.nodes), *ends)
        if plan.method.coupling_by == "held-out":
            chosen = choose_coupling(plan, silos, candidates)
            plan, path = chosen.plan, chosen.path
        places = plan.data.coordinates
        known = None if places is None else read_coordinates(base / places, silos.nodes)
        return cls(plan, silos, build(plan, silos, candidates), reach, path, known)

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
    def masks(self) -> Masks | None:
        return self.setup.masks

    @property
    def most_rounds(self) -> int:
        return self.setup.most_rounds

    def data(self, silos: Sequence[str] | None = None) -> list[Private]:
        signals = records_of(silos, self.topo.silos, self.silos.names, self.silos.signals)
        prepared = {name: self.setup.task.prepare(own) for name, own in signals.items()}
        if self.reach is not None:
            prepared = {name: {**own, "reach": self.reach[name]} for name, own in prepared.items()}
        return list(prepared.values())

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> Json:
        if self.coordinates is not None:
            write_atomically(folder / "nodes.csv", self.coordinates.to_csv())
        told = write_graphs(folder, self.plan, self.silos.nodes, self.setup, outcome, trace, door, self.coordinates)
        return told if self.path is None else {**told, "path": self.path}

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
