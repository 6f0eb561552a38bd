"""What one silo makes of its persons: how many of them vote for each edge. The record is one person, all of its rows.

A person's votes are a function of that person's rows and of public numbers alone: 0 or 1 for every pair of nodes, at
most k ones. Another person in its place changes at most 2k of them, by 1 each, and 2k where the two sets are disjoint:
the sum moves by at most sqrt(2k), whatever the rows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array
from silograph.data.silos import People
from silograph.kernels.edges import edge_count
from silograph.kernels.spaces import AllPairs
from silograph.kernels.votes import vote
from silograph.privacy.bound import Bounded, Within
from silograph.tasks.smooth_graph import PERSON


@dataclass(frozen=True)
class PersonVotes:
    """`edges`: the k edges a person may vote for, a public number. `person`: the column that says whose a row is."""

    nodes: int
    edges: int
    person: str

    @property
    def size(self) -> int:
        return edge_count(self.nodes)

    @property
    def space(self) -> AllPairs:
        return AllPairs(self.nodes)

    @property
    def protected_unit(self) -> str:
        return PERSON.format(self.person)

    @property
    def longest_term(self) -> float:
        """The most that one person adds to the sum."""
        return math.sqrt(self.edges)

    def prepare(self, people: Array | People) -> dict[str, Array]:
        """Votes by edge, person after person, so that memory does not grow with their number."""
        assert isinstance(people, People), "only persons vote"
        votes = np.zeros(self.size)
        order = np.argsort(people.person, kind="stable")
        ends = np.searchsorted(people.person[order], np.arange(1, len(people)))
        for own in np.split(order, ends):
            votes += vote(people.rows[own], self.edges)
        return {"votes": votes, "count": np.array(float(len(people)))}

    def summand(self, data: dict[str, Array]) -> Bounded:
        within = self.summand_bound
        return Bounded(data["votes"], np.full(len(data["count"]), within.l2), within.protected_unit, within.why)

    @property
    def summand_bound(self) -> Within:
        why = f"votes of 0 or 1, at most k = {self.edges} ones a person: sqrt(2k) where two persons share none"
        return Within(math.sqrt(2.0 * self.edges), self.protected_unit, why)
