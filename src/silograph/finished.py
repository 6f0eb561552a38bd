"""A finished run, opened again: its numbers, its graphs, its ledger."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from silograph.core.errors import InputError
from silograph.core.types import Json
from silograph.report.build import read
from silograph.report.notebook_card import COST, card, protected, small_graph, worst
from silograph.report.read import Edge


@dataclass(frozen=True)
class FinishedRun:
    """What the folder holds. `result` is result.json, `ledger` the rows of what left every site, `plan` the plan file;
    `edges` are those of the consensus (by the name "consensus") and of every site, where graphs were learned."""

    folder: Path
    result: Json = field(repr=False)
    ledger: list[Json] = field(repr=False)
    plan: str = field(repr=False)
    edges: dict[str, list[Edge]] = field(repr=False)
    #: By graph, 1 or -1 for every pair of nodes that is joined, where relations have signs.
    signs: dict[str, dict[frozenset[str], int]] = field(default_factory=dict, repr=False)

    @property
    def graphs(self) -> dict[str, Any]:
        """Every graph as a networkx.Graph with edge attribute `weight`, and `sign` where relations have one:
        "consensus", and each site's by its name."""
        return {name: self.graph(name) for name in self.edges}

    def graph(self, name: str = "consensus") -> Any:
        import networkx as nx

        if name not in self.edges:
            known = ", ".join(self.edges) or "no graph: this run learned models"
            raise InputError("graph", f"one of {known}", f"found {name!r}")
        made = nx.Graph()
        made.add_nodes_from(self.result["nodes"])
        made.add_weighted_edges_from(self.edges[name])
        signs = {tuple(pair): {"sign": sign} for pair, sign in self.signs.get(name, {}).items()}
        nx.set_edge_attributes(made, signs)
        return made

    def _repr_html_(self) -> str:
        result, costs = self.result, worst(self.result["privacy"]["guarantees"])
        facts = [
            ("method", result["method"]),
            ("sites", len(costs)),
            ("rounds", result["rounds"]),
            ("certified gap", result.get("certified_gap")),
            *protected(result["privacy"]),
        ]
        counts = {site["name"]: site["edges"] for site in result.get("sites", ())}
        header = ("site", *(["edges"] if counts else []), *COST)
        rows = [(site, *([counts.get(site)] if counts else []), *cost) for site, cost in costs.items()]
        consensus = self.edges.get("consensus")
        drawn = (
            ""
            if consensus is None
            else small_graph(result["nodes"], consensus, "Consensus graph", self.signs.get("consensus"))
        )
        return card(f"silograph run {self.folder.name}", facts, header, rows, drawn)


def open_run(folder: str | Path) -> FinishedRun:
    """The folder of a finished run, read and checked."""
    run = read(folder)
    result = run.json | {"privacy": asdict(run.result.privacy)}
    return FinishedRun(Path(folder), result, run.ledger, run.plan, run.graphs, run.signs)
