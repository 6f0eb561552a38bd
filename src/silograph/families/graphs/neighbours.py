"""Candidate edges from the signals: every site names each node's nearest neighbours, and all names are joined.

The names leave the sites in the clear before the first round, so this is for runs without privacy, in one place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.silos import Elsewhere, People, Silos
from silograph.families.graphs.plan import GraphPlan, learner_of
from silograph.kernels.lists import Candidates, nearest
from silograph.kernels.neighbours import Search
from silograph.kernels.spaces import EdgeList

MOST_NODES_DENSE = 3000  # beyond, all pairs are more than anybody waits for
USUAL_DEGREE = 6.0
PER_DEGREE = 2  # neighbours searched for, for each that is wanted


@dataclass(frozen=True)
class Near:
    edges: EdgeList
    reach: Mapping[str, Array] | None


def needs_neighbours(plan: GraphPlan, nodes: int) -> bool:
    """Whether candidates are searched for: if asked for, or where all pairs are too many."""
    if plan.data.neighbours is not None:
        return True
    large = nodes > MOST_NODES_DENSE and plan.data.candidates is None
    papers = plan.method.solver == "exact" and learner_of(plan, nodes) == "papers"
    return large and plan.privacy is None and papers


def nearest_neighbours(plan: GraphPlan, silos: Silos) -> Near:
    nodes, lists = len(silos.nodes), {}
    count = plan.data.neighbours
    if count is None:
        wanted = plan.method.wanted_degree(nodes) or USUAL_DEGREE
        count = min(math.ceil(PER_DEGREE * wanted), nodes - 1)
    for name, signals in zip(silos.names, silos.signals, strict=True):
        if isinstance(signals, Elsewhere):
            todo = "Agree on a list of candidate edges, as a file."
            raise InputError(
                wording.setting("neighbours"), "all tables in one place", "they are at several organisations", todo
            )
        assert not isinstance(signals, People), "persons are for privacy"
        lists[name] = _near(signals, count, plan.data.search)
    ends = [found.ends() for found in lists.values()]
    key = np.unique(np.concatenate([a.astype(np.int64) * nodes + b for a, b in ends]))
    reach = {name: found.reach for name, found in lists.items() if found.reach is not None}
    return Near(EdgeList.of(nodes, *np.divmod(key, nodes)), reach or None)


def _near(signals: Array, count: int, search: Search | None) -> Candidates:
    """A site's lists over all nodes: those that it lacks have no neighbours, and no pair of theirs costs anything less
    than infinity."""
    own = np.flatnonzero(~np.isnan(signals).all(0))
    if len(own) == signals.shape[1]:
        return nearest(signals, count, search)
    found = nearest(np.ascontiguousarray(signals[:, own]), min(count, len(own) - 1), search)
    a, b = (own[end] for end in found.ends())
    reach = None
    if found.reach is not None:
        reach = np.full(signals.shape[1], np.inf)
        reach[own] = found.reach
    start = np.searchsorted(a, np.arange(signals.shape[1] + 1))
    return Candidates(start, b.astype(np.int32), found.cost, reach)
