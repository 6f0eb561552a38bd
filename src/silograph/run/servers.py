"""The graph of servers in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.run.sections import naming_files
from silograph.topology import Topology, graph_from, server_graph


@dataclass(frozen=True)
class Servers:
    """Which servers talk to each other: a shape (complete if nothing is said), pairs of units, or a GraphML file."""

    graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] | None = None
    links: tuple[tuple[str, str], ...] | None = None
    file: str | None = naming_files(None)
    weights: Literal["lazy", "metropolis"] = "lazy"
    seed: int = 0

    def __post_init__(self) -> None:
        if sum(way is not None for way in (self.graph, self.links, self.file)) > 1:
            raise InputError("plan, [topology]", "a graph, links or a file", "more than one came")


def graph_of(servers: Servers, names: Sequence[str], base: Path) -> Topology:
    """The plan's graph over the tables' units."""
    if servers.file is not None:
        given = graph_from(base / servers.file, weights=servers.weights)
        if set(given.servers) != set(names):
            odd = sorted(set(given.servers) ^ set(names))
            raise InputError(str(servers.file), "the units of the tables as its nodes", f"{', '.join(odd[:5])} differ")
        order = [given.servers.index(name) for name in names]
        return Topology((), tuple(names), mixing=given.mixing[np.ix_(order, order)])
    if servers.graph is not None and servers.graph != "complete":
        shape = server_graph(servers.graph, len(names), servers.seed, weights=servers.weights)
        return Topology((), tuple(names), mixing=shape.mixing)
    linked = np.zeros((len(names), len(names)))
    for pair in servers.links or []:
        for name in pair:
            if name not in names:
                raise InputError("plan, links", f"units: {', '.join(names)}", f"{name!r} came")
        a, b = (names.index(name) for name in pair)
        linked[a, b] = linked[b, a] = float(a != b)
    if servers.links is None:
        linked = 1.0 - np.eye(len(names))
    return graph_from(linked, names, weights=servers.weights)
