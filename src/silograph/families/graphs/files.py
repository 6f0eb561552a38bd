"""A graph as its files: CSV and GraphML. The same graph writes the same bytes.

Weights are above 0. Where relations have signs, they are in a column of their own, 1 or -1, so that whoever reads
weights alone reads how strong an edge is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from silograph.core.files import write_atomically
from silograph.core.spreadsheet import csv_of
from silograph.core.types import Array
from silograph.data.coordinates import Coordinates
from silograph.kernels.spaces import Space

SIGN = "sign"
#: How sure a run is of an edge: what its column is called, by what is known of it.
CONFIDENCE, PROBABILITY, SHARED = "confidence", "probability", "shared"
#: How many sites could have seen an edge, where sites lack nodes.
COULD_SEE = "could_see"


@dataclass(frozen=True)
class Edge:
    """`more` is what is known besides: `sign`; how sure the run is of the edge (`confidence`: how often it is there
    when signals are drawn again, `probability`); how probably all sites share it (`shared`)."""

    source: str
    target: str
    weight: float
    more: Mapping[str, float] = field(default_factory=dict)


def edges(
    w: Array,
    nodes: Sequence[str],
    threshold: float,
    space: Space,
    more: Mapping[str, Array] | None = None,
    least: float | None = None,
) -> Iterator[Edge]:
    """The edges of a graph, in order; weights at or below the threshold are left out, and edges of which the run is
    less sure than `least`."""
    a, b = space.ends()
    more = more or {}
    kept = w > threshold
    for name in (CONFIDENCE, PROBABILITY):
        if least is not None and name in more:
            kept = kept & (more[name] >= least)
    for k in np.flatnonzero(kept):
        yield Edge(nodes[a[k]], nodes[b[k]], float(w[k]), {name: float(value[k]) for name, value in more.items()})


def write_graph(
    stem: Path, graph: Sequence[Edge], nodes: Sequence[str], columns: Sequence[str], coordinates: Coordinates | None
) -> None:
    """`columns` are those of `Edge.more`, for graphs that have no edge."""
    write_atomically(stem.with_name(f"{stem.name}.csv"), _csv(graph, columns))
    write_atomically(stem.with_name(f"{stem.name}.graphml"), _graphml(graph, nodes, coordinates))


def to_networkx(graph: Sequence[Edge], nodes: Sequence[str]) -> Any:
    import networkx as nx

    made = nx.Graph()
    made.add_nodes_from(nodes)
    for edge in graph:
        more = {name: int(value) if name in (SIGN, COULD_SEE) else value for name, value in edge.more.items()}
        made.add_edge(edge.source, edge.target, weight=edge.weight, **more)
    return made


def _csv(graph: Sequence[Edge], columns: Sequence[str]) -> bytes:
    more = ([f"{edge.more[name]:g}" for name in columns] for edge in graph)
    rows = [(edge.source, edge.target, edge.weight, *told) for edge, told in zip(graph, more, strict=True)]
    return csv_of(("source", "target", "weight", *columns), rows)


def _graphml(graph: Sequence[Edge], nodes: Sequence[str], coordinates: Coordinates | None) -> bytes:
    import networkx as nx

    made = to_networkx(graph, nodes)
    if coordinates is not None:
        nx.set_node_attributes(made, coordinates.attributes())
    return ("\n".join(nx.generate_graphml(made)) + "\n").encode()
