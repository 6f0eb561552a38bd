"""From the plan of consensus graphs and its tables to what will run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from silograph.core import schema
from silograph.core.files import write_atomically
from silograph.core.types import Array, Json
from silograph.data.candidates import read_candidates
from silograph.data.coordinates import Coordinates, read_coordinates
from silograph.data.groups import read_groups
from silograph.data.notes import notes_on
from silograph.data.silos import People, Silos, read_silos, records_of
from silograph.data.tables import listed
from silograph.families.graphs.build import Setup, build
from silograph.families.graphs.coupling import choose_coupling
from silograph.families.graphs.findings import (
    Looked,
    notes,
    of_gaps,
    of_lacking,
    of_levels,
    of_messages,
    of_spreads,
    of_strangers,
    of_tables,
    ranks_of,
    spread_apart,
)
from silograph.families.graphs.neighbours import nearest_neighbours, needs_neighbours
from silograph.families.graphs.plan import GraphPlan, learner_of
from silograph.families.graphs.result import GraphResult
from silograph.families.graphs.results import forecast, write_graphs
from silograph.families.graphs.units import in_units, units_of, write_scale
from silograph.families.graphs.with_gaps import check_gaps
from silograph.kernels.spaces import EdgeList
from silograph.methods.base import Method, Outcome, Private
from silograph.methods.private_scale import ScaledFirst
from silograph.privacy.door import Budget, Door
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Mechanism
from silograph.tasks.column_scale import padded
from silograph.tasks.smooth_graph import SmoothGraph
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
        check_gaps(plan, silos)
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
        prepared = {name: self._prepared(name, own) for name, own in signals.items()}
        if self.reach is not None:
            prepared = {name: {**own, "reach": self.reach[name]} for name, own in prepared.items()}
        found = list(prepared.values())
        return padded(found) if isinstance(self.method, ScaledFirst) else found

    def _prepared(self, name: str, signals: Array | People) -> Private:
        task, lacks = self.setup.task, self.setup.lacks
        gone = lacks[self.topo.silos.index(name)] if lacks else ()
        if isinstance(self.method, ScaledFirst):
            return self.method.raw.prepare(signals, gone)
        return task.prepare(signals, gone) if isinstance(task, SmoothGraph) else task.prepare(signals)

    def write(self, folder: Path, outcome: Outcome, trace: list[Json], door: Door) -> GraphResult:
        if self.coordinates is not None:
            write_atomically(folder / "nodes.csv", self.coordinates.to_csv())
        if isinstance(self.method, ScaledFirst):
            centre, spread = outcome.arrays["centre"], outcome.arrays["spread"]
            write_scale(folder / "scale.csv", self.silos.nodes, centre, spread, outcome.facts["untold"])
        notes = tuple(self._notes(outcome, looked := self._looked(outcome)))
        told = write_graphs(
            folder, self.plan, self.silos.nodes, self.setup, outcome, trace, door, self.coordinates, looked, notes
        )
        tried = {} if self.path is None else {"path": self.path}
        return schema.read(GraphResult, told | tried, "result of graphs")

    def _looked(self, outcome: Outcome) -> Looked | None:
        """What the run says beside its graphs; nothing that was not released, under privacy."""
        if self.plan.privacy is not None or self.masks is not None:
            return None
        return of_messages(outcome.arrays, self.setup.counts) or of_tables(self.silos, self.topo.silos)

    def _notes(self, outcome: Outcome, looked: Looked | None) -> Iterator[str]:
        if self.silos.left_out:
            yield f"Left out, because some site lacks them (--nodes common): {listed(self.silos.left_out)}."
        if looked is not None:
            yield from of_gaps(looked, self.topo.silos, self.silos.nodes)
        yield from of_lacking(self.silos)
        if self.plan.data.categories:
            drawn = outcome.arrays["consensus"] > self.plan.method.threshold
            a, b = (end[drawn].tolist() for end in self.setup.task.space.ends())
            yield from of_levels(self.plan.data.categories, self.silos.nodes, a, b)
        if looked is not None:
            signed = "signs" in outcome.arrays and not self.plan.method.nonnegative
            edges = int((outcome.arrays["consensus"] > self.plan.method.threshold).sum())
            ranks = ranks_of(self.silos, self.topo.silos)
            yield from notes(looked, self.topo.silos, self.silos.nodes, signed, edges, ranks)
            yield from of_strangers(looked, self.topo.silos, ranks)
            if "signs" not in outcome.arrays:
                yield from of_spreads(self.silos, self.topo.silos)

    def forecast(self) -> Json:
        return forecast(self.plan, self.setup)


def read_sites(plan: GraphPlan, files: Sequence[Path], nodes: Sequence[str] | None = None) -> Silos:
    """The plan's tables, over these nodes, which an organisation has all of, or as the plan says; where groups are
    compared, with each person's group."""
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
        rule=data.nodes or ("same" if private or nodes is not None else "all"),
    )
    if data.group_column is None or data.unit_column is None:
        return silos
    groups = read_groups(files, data.unit_column, data.group_column, data.groups, data.site_column)
    people = [(own, groups[name]) for name, own in zip(silos.names, silos.signals, strict=True)]
    return replace(silos, signals=tuple(replace(own, group=at) for own, at in people if isinstance(own, People)))


def open_job(plan: GraphPlan, base: Path) -> GraphJob:
    silos = read_sites(plan, [base / name for name in plan.data.files])
    job = GraphJob.of(plan, in_units(plan, silos, base), base)
    said = (*job.setup.notes, *silos.notes, *_said_of_tables(plan, job.silos))
    return replace(job, setup=replace(job.setup, notes=said))


def _said_of_tables(plan: GraphPlan, silos: Silos) -> list[str]:
    """Nothing under privacy. What the run will find of a whole site, in its own words, is not said here as well."""
    if plan.privacy is not None:
        return []
    likely = learner_of(plan, len(silos.nodes)) == "likelihood"
    raw = not likely and units_of(plan, len(silos.nodes)) == "none"
    return notes_on(silos, () if likely else spread_apart(silos, silos.names), raw)
