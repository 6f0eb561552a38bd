"""What families over a graph of servers have in common: the graph in a plan, its lines in a result, test errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.privacy.gate import OWN_SERVER
from silograph.run.sections import naming_files, said
from silograph.tasks.linear import signs
from silograph.topology import Topology, graph_from, server_graph, spectral_gap

OBSERVERS = (OWN_SERVER, "neighbour", "another agent", "wire", "public")
INTERCEPT = "intercept"


@dataclass(frozen=True)
class Servers:
    """Which servers talk to each other: a shape (complete if nothing is said), pairs of units, or a GraphML file."""

    graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] | None = said(
        None, 'Which servers talk to each other: "complete", "ring", "grid", "random" or "erdos-renyi".'
    )
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


def check_masks(masks: str, clip: float | None, sample: int | None, minimum: int) -> None:
    """What a secure sum needs."""
    if masks == "none":
        return
    if clip is None:
        raise InputError("plan, clip", "a number with masks, so that no sum overflows", "none came", "Try clip = 1.")
    if sample is not None and sample < minimum:
        raise InputError("plan, sample", f"at least the minimum cohort of {minimum} with masks", f"{sample} came")


def check_intercept(intercept: bool, features: Sequence[str]) -> None:
    if intercept and INTERCEPT in features:
        raise InputError("plan, intercept", f"no feature called {INTERCEPT}", "there is one", "Say intercept = false.")


def with_intercept(x: Array, intercept: bool) -> Array:
    return np.column_stack([x, np.ones(len(x))]) if intercept else x


def topology_told(topo: Topology, weights: str) -> Json:
    """The graph of servers, as result.json has it."""
    a, names = topo.mixing, topo.servers
    links = [[names[p], names[m], float(a[p, m])] for p, m in np.argwhere(np.triu(a, 1))]
    return {"servers": list(names), "links": links, "weights": weights, "spectral_gap": spectral_gap(a)}


def test_told(answers: Array, loss: str, where: str) -> Json:
    """What a model without features would get on test records: the commoner class, or the mean."""
    if loss == "logistic":
        positive = float((signs(answers, where) > 0.0).mean())
        return {"records": len(answers), "measure": "error rate", "baseline": min(positive, 1.0 - positive)}
    return {"records": len(answers), "measure": "mean squared error", "baseline": float(answers.var())}


def left_out_of_servers(test: str | None, masks: str | None) -> list[str]:
    """What a deployment leaves out of a plan."""
    words = [] if test is None else [f"the test table {test}: no errors are measured"]
    return words + (["skipping the masks: agents' updates are masked, by the secure sum"] if masks == "skipped" else [])
