"""From the plan of consensus graphs and its tables to what will run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from silograph.core import schema
from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.types import Array, Json
from silograph.data.candidates import read_candidates
from silograph.data.coordinates import Coordinates, read_coordinates
from silograph.data.groups import read_groups
from silograph.data.notes import notes_on
from silograph.data.silos import People, Silos, read_silos, records_of, standardise
from silograph.families.graphs.build import Setup, build
from silograph.families.graphs.coupling import choose_coupling
from silograph.families.graphs.neighbours import nearest_neighbours, needs_neighbours
from silograph.families.graphs.plan import GraphPlan
from silograph.families.graphs.result import GraphResult
from silograph.families.graphs.results import forecast, write_graphs
from silograph.kernels.spaces import EdgeList
from silograph.methods.base import Method, Outcome, Private
from silograph.privacy.door import Budget, Door
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Mechanism
from silograph.topology import Topology

PACKAGES = ()


@dataclass(frozen=True)
class GraphJob:
    """Consensus graphs."""

    plan: GraphPlan
    silos: Silos
    setup: Setup
    reach: Mapping[str, Array] | None = None  # of each site's lists of neighbours, where they are exact
    path: Json | None = None  # how the coupling was chosen, where it was
    coordinates: Coordinates | None = None

    @classmethod
    def of(cls, plan: GraphPlan, silos: Silos, base: Path) -> GraphJob:
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
        return cls(
            plan, silos, build(plan, silos, candidates, None if known is None else known.places), reach, path, known
        )

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

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> GraphResult:
        if self.coordinates is not None:
            write_atomically(folder / "nodes.csv", self.coordinates.to_csv())
        told = write_graphs(folder, self.plan, self.silos.nodes, self.setup, outcome, trace, door, self.coordinates)
        tried = {} if self.path is None else {"path": self.path}
        return schema.read(GraphResult, told | tried, "result of graphs")

    def forecast(self) -> Json:
        return forecast(self.plan, self.setup)


def read_sites(plan: GraphPlan, files: Sequence[Path], nodes: Sequence[str] | None = None) -> Silos:
    """The plan's tables, over these nodes or the first one's; where groups are compared, with each person's group."""
    data, private = plan.data, plan.privacy is not None
    drop = data.drop if data.group_column is None else (*data.drop, data.group_column)
    silos = read_silos(
        files,
        data.nodes_in,
        private,
        nodes,
        data.unit_column,
        drop,
        data.keep,
        categories=data.categories,
        site_column=data.site_column,
    )
    if data.group_column is None or data.unit_column is None:
        return silos
    if len(silos.names) != len(files):
        expected = "one table for each site where groups are compared"
        raise InputError("plan, group_column", expected, "found a folder, or a long table", "Name every table.")
    groups = [read_groups(path, data.unit_column, data.group_column, data.groups) for path in files]
    people = zip(silos.signals, groups, strict=True)
    return replace(silos, signals=tuple(replace(own, group=at) for own, at in people if isinstance(own, People)))


def open_job(plan: GraphPlan, base: Path) -> GraphJob:
    silos = read_sites(plan, [base / name for name in plan.data.files])
    job = GraphJob.of(plan, standardise(silos) if plan.data.standardise else silos, base)
    notes = (*silos.notes, *([] if plan.privacy is not None else notes_on(silos)))
    return replace(job, setup=replace(job.setup, notes=(*job.setup.notes, *notes)))
