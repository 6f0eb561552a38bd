"""How far the communities of a graph behind noise can be relied on.

Everything is post-processing: graphs that the known noise leaves possible are drawn, each has communities of its own,
and what of the drawn graph's communities they keep is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from silograph.core.types import Array, Json
from silograph.families.graphs.files import Edge
from silograph.kernels.edges import pairs
from silograph.report.heat_map import communities


def groups_of(graph: Sequence[Edge], nodes: Sequence[str]) -> list[list[str]]:
    return communities(nodes, [(edge.source, edge.target, edge.weight) for edge in graph]).groups


def reliable(groups: Sequence[Sequence[str]], nodes: Sequence[str], again: Array) -> Json | None:
    """`again` (graphs, p) are the weights of the graphs that are possible."""
    from sklearn.metrics import adjusted_mutual_info_score

    joined = [name for group in groups for name in group]
    if len(groups) < 2:
        return None
    own, others = _labels(groups, nodes), [_labels(_groups(w, nodes), nodes) for w in again]
    at = [nodes.index(name) for name in joined]
    agreement = np.mean([adjusted_mutual_info_score(own[at], other[at]) for other in others])
    kept = [np.mean([_together(group, nodes, other) for other in others]) for group in groups]
    return {"agreement": float(agreement), "kept": [float(share) for share in kept], "graphs": len(again)}


def _groups(w: Array, nodes: Sequence[str]) -> list[list[str]]:
    a, b = pairs(len(nodes))
    return communities(nodes, [(nodes[a[k]], nodes[b[k]], float(w[k])) for k in np.flatnonzero(w)]).groups


def _labels(groups: Sequence[Sequence[str]], nodes: Sequence[str]) -> Array:
    """The community of every node; who is in none is alone."""
    number = {name: k for k, group in enumerate(groups) for name in group}
    return np.array([number.get(name, len(groups) + k) for k, name in enumerate(nodes)])


def _together(group: Sequence[str], nodes: Sequence[str], labels: Array) -> float:
    inside = [labels[nodes.index(name)] for name in group]
    return float(np.mean([one == other for one, other in combinations(inside, 2)]))
