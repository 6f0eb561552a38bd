"""What the live graph of a page knows: nodes, and the edges of every graph, heaviest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from silograph.core.types import Json
from silograph.report import figures, words
from silograph.report.read import Edge

#: Edges on one page, shared by all its graphs, and names of nodes: so it stays a small file.
MOST_EDGES, MOST_NAMES, LONGEST_NAME = 40_000, 20_000, 100


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
    nodes: Sequence[str],
    kinds: Sequence[Kind],
    graphs: Sequence[Drawn],
    order: Sequence[str],
    *,
    drawn: bool,
    sure: str = "confidence",
) -> Json:
    """Data for the page's script. `order` is the heat map's, `drawn` says whether there are pictures, `sure` is the
    page's word for how sure the run is of an edge."""
    all_nodes, most = len(nodes), MOST_EDGES if len(nodes) <= MOST_NAMES else MOST_NAMES // 2
    limit = most // max(len(graphs), 1)
    chosen = [sorted(graph.edges, key=_heaviest)[:limit] for graph in graphs]
    if all_nodes > MOST_NAMES:
        named = {name for edges in chosen for edge, _ in edges for name in edge[:2]}
        nodes = [name for name in nodes if name in named]
    place = {name: index for index, name in enumerate(nodes)}
    return {
        "all_nodes": all_nodes,
        "nodes": [_short(words.visible(name)) for name in nodes],
        "order": [place[name] for name in order] if drawn else [],
        "crowd": figures.crowding(len(nodes)),
        "heaviest": max((edge[2] for edges in chosen for edge, _ in edges), default=1.0),
        "sure": sure,
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


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _heaviest(row: tuple[Edge, int]) -> tuple[float, str, str]:
    (source, target, weight), _ = row
    return -weight, source, target


def _packed(edge: Edge, kind: int, place: Mapping[str, int], confidence: Mapping[frozenset[str], float]) -> list[float]:
    source, target, weight = edge
    sure = confidence.get(frozenset((source, target)))
    return [place[source], place[target], weight, kind, *([] if sure is None else [sure])]
