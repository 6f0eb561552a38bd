"""The votes of one silo's persons for each edge. The record is one person, with all rows.

A person's votes are a function of that person's rows and of public numbers alone: 0 or 1 for every pair of nodes, at
most k ones. Another person in its place changes at most 2k of them, by 1 each, and 2k if the two sets are disjoint: the
sum moves by at most sqrt(2k), for any rows.

If two groups are compared, each has its own votes and a count, to which a person adds w = sqrt(k)/2. Then another
person in its place, perhaps of the other group, moves the sum by at most sqrt(2k + 2 w^2).
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
    """`edges`: the k edges a person may vote for, a public number. `person`: the column that names a row's person.

    `groups`: the two that are compared, or none.
    """

    nodes: int
    edges: int
    person: str
    groups: tuple[str, ...] = ()

    @property
    def pairs(self) -> int:
        return edge_count(self.nodes)

    @property
    def size(self) -> int:
        """Numbers that a silo adds up: votes for each pair, or for each pair and group, and the groups' counts."""
        return self.pairs if not self.groups else len(self.groups) * (self.pairs + 1)

    @property
    def mark(self) -> float:
        """The amount that a person adds to the count of its group."""
        return 0.5 * math.sqrt(self.edges) if self.groups else 0.0

    @property
    def space(self) -> AllPairs:
        return AllPairs(self.nodes)

    @property
    def protected_unit(self) -> str:
        return PERSON.format(self.person)

    @property
    def longest_term(self) -> float:
        """The most that one person adds to the sum."""
        return math.sqrt(self.edges + self.mark**2)

    def prepare(self, people: Array | People) -> dict[str, Array]:
        """Votes by edge, person after person, so that memory does not grow with their number."""
        assert isinstance(people, People), "only persons vote"
        votes = np.zeros((max(1, len(self.groups)), self.pairs))
        group = np.zeros(len(people), dtype=np.intp) if people.group is None or not self.groups else people.group
        order = np.argsort(people.person, kind="stable")
        ends = np.searchsorted(people.person[order], np.arange(1, len(people)))
        for own, at in zip(np.split(order, ends), group, strict=True):
            votes[at] += vote(people.rows[own], self.edges)
        counts = self.mark * np.bincount(group, minlength=len(self.groups)) if self.groups else np.zeros(0)
        return {"votes": np.concatenate([votes.ravel(), counts]), "count": np.array(float(len(people)))}

    def summand(self, data: dict[str, Array]) -> Bounded:
        within = self.summand_bound
        return Bounded(data["votes"], np.full(len(data["count"]), within.l2), within.protected_unit, within.why)

    @property
    def summand_bound(self) -> Within:
        why = f"votes of 0 or 1, at most k = {self.edges} ones a person: sqrt(2k) where two persons share none"
        if self.groups:
            why = (
                f"votes of 0 or 1 in the person's group, at most k = {self.edges} ones, and a mark of sqrt(k)/2 in its "
                "count: sqrt(2k + k/2) where two persons are of different groups"
            )
        return Within(math.sqrt(2.0 * self.edges + 2.0 * self.mark**2), self.protected_unit, why)
