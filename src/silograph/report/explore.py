"""What the live graph of a page knows: nodes, and the edges of every graph, heaviest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from silograph.core.types import Json
from silograph.report import figures, words
from silograph.report.read import Edge

#: Edges on one page, shared by all its graphs: so it stays a small file.
MOST_EDGES = 40_000


@dataclass(frozen=True)
class Kind:
    """Edges that look alike: a class of the style sheet, and what they are called."""

    look: str
    name: str


@dataclass(frozen=True)
class Drawn:
    """A graph to choose: its edges by kind, and how sure the run is of them."""

    name: str
    edges: Sequence[tuple[Edge, int]]
    confidence: Mapping[frozenset[str], float]


def explorer(
    nodes: Sequence[str], kinds: Sequence[Kind], graphs: Sequence[Drawn], order: Sequence[str], *, drawn: bool
) -> Json:
    """`order` is that of the heat map; `drawn` whether there are pictures to bring to life."""
    place = {name: index for index, name in enumerate(nodes)}
    limit = MOST_EDGES // max(len(graphs), 1)
    chosen = [sorted(graph.edges, key=_heaviest)[:limit] for graph in graphs]
    return {
        "nodes": [words.visible(name) for name in nodes],
        "order": [place[name] for name in order] if drawn else [],
        "crowd": figures.crowding(len(nodes)),
        "heaviest": max((edge[2] for edges in chosen for edge, _ in edges), default=1.0),
        "kinds": [[kind.look, kind.name] for kind in kinds],
        "graphs": [
            {
                "name": words.visible(graph.name),
                "total": len(graph.edges),
                "edges": [_packed(edge, kind, place, graph.confidence) for edge, kind in edges],
            }
            for graph, edges in zip(graphs, chosen, strict=True)
        ],
    }


def pairs(edges: Collection[Edge]) -> set[frozenset[str]]:
    return {frozenset(edge[:2]) for edge in edges}


def _heaviest(row: tuple[Edge, int]) -> tuple[float, str, str]:
    (source, target, weight), _ = row
    return -weight, source, target


def _packed(edge: Edge, kind: int, place: Mapping[str, int], confidence: Mapping[frozenset[str], float]) -> list[float]:
    source, target, weight = edge
    sure = confidence.get(frozenset((source, target)))
    return [place[source], place[target], weight, kind, *([] if sure is None else [sure])]
