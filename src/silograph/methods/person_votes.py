"""A private graph of many nodes by votes: each person votes for the k edges of its own graph, and votes are added up.

    public   d, k = d degree / 2, N, epsilon, delta
    person   1 for each of the k strongest positive partial correlations of its own rows (`kernels.votes`)
    silo     the sum of its persons' votes, whole numbers -> the secure sum of all silos, or one release a silo
    noise    in the secure sum once, by the silos themselves, else once a silo; one Gaussian release with l2 = sqrt(2k),
             since votes of two persons differ in at most 2k places by 1 each, and differ in 2k where they share none
    server   share = sum / N with known noise sigma; the law of all shares; P(edge) = P(share above the level that k
             edges are expected to pass); with public coordinates a law for each distance (`kernels.share_law`)
    groups   if two are compared: votes and a count of each; the law of the differences of their shares

Everything after the sum is post-processing. Noise on p dense covariances, which are then inverted, swamps the graph of
a hundred nodes; a person's own graph is sparse, so votes need sqrt(2k) while a release of covariances pays for all p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.kernels.edges import pairs
from silograph.kernels.share_law import Shares, learn_differences, learn_shares
from silograph.methods.base import Limits, Outcome, Outlet, Plain, Private, Start, Up, put, take
from silograph.methods.private_graph import PATIENCE
from silograph.methods.summed_graph import AddedUp, noise_of
from silograph.privacy.bound import Bounded
from silograph.privacy.masking import planned
from silograph.privacy.mechanisms import Mechanism, SharedGaussian
from silograph.privacy.released import Message
from silograph.tasks.person_votes import PersonVotes
from silograph.topology import Topology

MOST_NOISE = 0.25  # standard deviation of a share; beyond, k edges would be mostly chance
MOST_NOISE_OF_GROUPS = 0.1  # of a difference of two groups' shares; beyond, hardly any stands out from noise
MARGIN = 0.1  # a smaller difference of shares does not count
SURE = 0.9  # an edge more probable than this may be drawn at any noise
_BINS = 12
_AGAIN = 20  # graphs that the noise allows, to see which edges of the drawn one they keep


class Votes:
    """Learns the graph from votes at the server, however they were added up; `share_noise` is the noise of a share."""

    task: PersonVotes
    counts: tuple[int, ...]
    confidence: float | None
    coordinates: Array | None

    def sum_noise(self, cohort: int, summed: BoolArray) -> float:
        """The standard deviation of a number of the sum, from public numbers alone."""
        raise NotImplementedError

    def share_noise(self, cohort: int, summed: BoolArray) -> float:
        """The standard deviation of a share of all persons; with separate groups it has the noise of each."""
        apart = math.sqrt(max(1, len(self.task.groups)))
        return apart * self.sum_noise(cohort, summed) / float(np.asarray(self.counts)[summed].sum())

    @property
    def expected_noise(self) -> float:
        """The same if all silos take part."""
        return self.share_noise(len(self.counts), np.ones(len(self.counts), dtype=np.bool_))

    def check(self) -> None:
        """Refuse, before anything is spent, k edges that would be mostly chance."""
        noise = self.expected_noise
        if self.confidence is None and noise > MOST_NOISE:
            persons = math.ceil(sum(self.counts) * noise / MOST_NOISE)
            raise InputError(
                "votes of persons",
                f"noise of at most {MOST_NOISE:g} in the share of persons who have an edge",
                f"it would be {noise:.2g}: most of {self.task.edges} edges would be chance",
                f"Nothing was spent. Draw only the edges that are sure ({wording.option('confidence', SURE)}), or take "
                f"about {persons} persons, or a larger epsilon.",
            )

    def check_groups(self) -> None:
        """Refuse, before anything is spent, to compare groups if noise would hide their differences."""
        # Of two halves: each has half the persons.
        noise = 2.0 * self.expected_noise
        if self.task.groups and noise > MOST_NOISE_OF_GROUPS:
            persons = math.ceil(sum(self.counts) * noise / MOST_NOISE_OF_GROUPS)
            raise InputError(
                "groups of persons",
                f"noise of at most {MOST_NOISE_OF_GROUPS:g} in the difference of two groups' shares",
                f"it would be {noise:.2g}: it would hide what sets the groups apart",
                f"Nothing was spent. It takes about {persons} persons, half of them in each group, or a larger "
                "epsilon; or learn one graph of all, without groups.",
            )

    def differences(self, total: Array, cohort: int, summed: BoolArray) -> tuple[dict[str, Array], Json]:
        """Differences of two groups: the probability that their shares differ by more than the margin, and by how
        much."""
        persons, noise = float(np.asarray(self.counts)[summed].sum()), self.sum_noise(cohort, summed)
        votes = total[: 2 * self.task.pairs].reshape(2, -1)
        first, second = total[2 * self.task.pairs :] / self.task.mark
        # The sum of both counts is known, so each gives the other.
        sizes = np.clip(0.5 * (persons + np.array([first - second, second - first])), 1.0, persons - 1.0)
        shares = votes / sizes[:, None]
        # A relative error of a count is the relative error of all shares of its group.
        off = noise / (math.sqrt(2.0) * self.task.mark) / sizes
        deviation = np.sqrt(((noise / sizes) ** 2).sum() + (off**2 @ np.clip(shares, 0.0, 1.0) ** 2))
        probability, difference = learn_differences(shares[0] - shares[1], deviation, MARGIN)
        told = {"names": list(self.task.groups), "persons": sizes.tolist(), "noise": float(np.median(deviation))}
        return {"difference": difference, "differs": probability}, {"groups": told}

    def shares(self, total: Array, cohort: int, summed: BoolArray) -> tuple[Shares, float]:
        """Compute shares from the noisy sum (p,) and public numbers alone; return the noise of a share too."""
        persons, noise = float(np.asarray(self.counts)[summed].sum()), self.share_noise(cohort, summed)
        group = None if self.coordinates is None else distance_bins(self.coordinates)
        return learn_shares(total / persons, noise, self.task.edges, group), noise

    def graph(self, total: Array, cohort: int, summed: BoolArray) -> tuple[dict[str, Array], Json]:
        """The arrays and facts of the consensus."""
        groups, told = self.differences(total, cohort, summed) if self.task.groups else ({}, {})
        votes = total[: max(1, len(self.task.groups)) * self.task.pairs].reshape(-1, self.task.pairs).sum(0)
        known, noise = self.shares(votes, cohort, summed)
        drawn = self._drawn(known, noise)
        counts = np.where(summed, self.counts, 0.0)
        again = known.drawn_again(_AGAIN, stream(0, "votes", 0, "graphs that the noise leaves possible"))
        arrays = {
            "consensus": np.where(drawn, np.maximum(known.share, 1e-12), 0.0),
            "probability": known.probability,
            "share": known.share,
            "again": _strongest(again, int(drawn.sum())),
            "gamma": counts / counts.sum(),
            **groups,
        }
        facts: Json = {
            "parameters": {"votes": self.task.edges, "level": known.level, "noise": noise},
            "objective": None,
            "certified_gap": None,
            "rounds": 1,
            "trace": [],
            **told,
        }
        if self.coordinates is not None:
            nearest = np.argsort(distances(self.coordinates), kind="stable")[: self.task.edges]
            facts["distance_alone"] = float(known.probability[nearest].mean())
        return arrays, facts

    def _drawn(self, known: Shares, noise: float) -> BoolArray:
        """Draw edges; if dropped silos left too much noise, only sure ones."""
        if self.confidence is not None or noise > MOST_NOISE:
            return known.probability > (SURE if self.confidence is None else self.confidence)
        drawn = np.zeros(len(known.probability), dtype=np.bool_)
        drawn[np.lexsort((-known.share, -known.probability))[: self.task.edges]] = True
        return drawn


@dataclass(frozen=True)
class SummedVotes(Votes, AddedUp):
    """The consensus of all persons. `confidence`: draw the edges above it; None: the k most probable ones.

    `coordinates` (d, 2 or 3) of the nodes, if they are public: near pairs, also across the mirror plane, are likelier.
    """

    point: ClassVar[str] = "votes"
    task: PersonVotes
    mechanism: SharedGaussian | None
    counts: tuple[int, ...]
    confidence: float | None = None
    coordinates: Array | None = None

    @property
    def size(self) -> int:
        return self.task.size

    @property
    def clip(self) -> float:
        return self.task.longest_term * max(self.counts)

    def summand(self, data: Private) -> Bounded:
        return self.task.summand(data)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        arrays, facts = self.graph(servers["sum"][0], int(servers["cohort"]), servers["summed"])
        return Outcome(arrays, facts | self.who(servers, topo))

    def sum_noise(self, cohort: int, summed: BoolArray) -> float:
        if self.mechanism is None:
            return 0.0
        made = planned(cohort, self.clip, self.size, self.mechanism, self.task.summand_bound)
        return noise_of(made, int(summed.sum()))


@dataclass(frozen=True)
class ReleasedVotes(Votes, Plain):
    """The same from one release per silo: needs no secure sum, and has the noise of every silo."""

    task: PersonVotes
    mechanism: Mechanism
    counts: tuple[int, ...]
    confidence: float | None = None
    coordinates: Array | None = None

    def start(self, topo: Topology) -> Start:
        silos = len(topo.silos)
        votes, nobody = np.zeros((silos, self.task.size)), np.zeros(silos, bool)
        servers: Carry = {"votes": votes, "heard": nobody, "round": np.int64(0)}
        return Start({"sent": nobody.copy()}, servers, {}, {"votes": votes.copy()})

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        """Release once; a silo that is asked again sends what it sent before."""
        fresh = np.flatnonzero(~carry["sent"])
        if fresh.size:
            released = gate.rows(fresh).release(self.task.summand(take(data, fresh)), "votes")
            carry = {**put({"votes": carry["votes"]}, fresh, {"votes": released}), "sent": np.ones_like(carry["sent"])}
        return carry, {"votes": carry["votes"]}

    def limits(self) -> dict[str, Limits]:
        return {}

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        votes, heard = servers["votes"].copy(), servers["heard"].copy()
        votes[up.rows], heard[up.rows] = up.values["votes"], True
        return {"votes": votes, "heard": heard, "round": servers["round"] + 1}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return servers, {}

    def done(self, servers: Carry) -> bool:
        return bool(servers["heard"].all() or (servers["heard"].any() and servers["round"] >= PATIENCE))

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        heard = servers["heard"]
        arrays, facts = self.graph(servers["votes"][heard].sum(0), int(heard.sum()), heard)
        return Outcome(arrays, facts | {"silent": [topo.silos[k] for k in np.flatnonzero(~heard)]})

    def sum_noise(self, cohort: int, summed: BoolArray) -> float:
        each = self.mechanism.deviation(self.task.summand_bound.l2, self.task.size)
        return each * math.sqrt(summed.sum())


def _strongest(shares: Array, edges: int) -> Array:
    """Keep so many largest values in every row; set the others to 0."""
    kept = np.argsort(-shares, axis=1, kind="stable")[:, :edges]
    found = np.zeros_like(shares)
    np.put_along_axis(found, kept, np.maximum(np.take_along_axis(shares, kept, 1), 1e-12), 1)
    return found


def distances(coordinates: Array) -> Array:
    """The distance of each pair, or that to the other's mirror image (left and right), whichever is smaller."""
    a, b = pairs(len(coordinates))
    mirrored = coordinates * np.array([-1.0] + [1.0] * (coordinates.shape[1] - 1))
    apart = np.linalg.norm(coordinates[a] - coordinates[b], axis=1)
    return np.asarray(np.minimum(apart, np.linalg.norm(coordinates[a] - mirrored[b], axis=1)))


def distance_bins(coordinates: Array) -> NDArray[np.intp]:
    """The bin of each pair's distance; all bins have equally many pairs."""
    distance = distances(coordinates)
    edges = np.quantile(distance, np.linspace(0.0, 1.0, _BINS + 1)[1:-1])
    return np.asarray(np.searchsorted(edges, distance))
