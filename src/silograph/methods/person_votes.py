"""A private graph of many nodes by votes: each person votes for the k edges of its own graph, and votes are added up.

    public   d, k = d degree / 2, N, epsilon, delta
    person   1 for each of the k strongest positive partial correlations of its own rows (`kernels.votes`)
    silo     the sum of its persons' votes, whole numbers -> the secure sum of all silos
    noise    once, by the silos themselves: one Gaussian release with l2 = sqrt(2k), since votes of two persons differ
             in at most 2k places by 1 each, and differ in 2k where they share none
    server   share = sum / N with known noise sigma; the law of all shares; P(edge) = P(share above the level that k
             edges are expected to pass); with public coordinates a law for each distance (`kernels.share_law`)

Everything after the sum is post-processing. Noise on p dense covariances, which are then inverted, swamps the graph of
a hundred nodes; a person's own graph is sparse, so votes need sqrt(2k) where a release of covariances pays for all p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray, Carry
from silograph.kernels.edges import pairs
from silograph.kernels.share_law import Shares, learn_shares
from silograph.methods.base import Outcome, Private
from silograph.methods.summed_graph import AddedUp, noise_of
from silograph.privacy.bound import Bounded
from silograph.privacy.masking import planned
from silograph.privacy.mechanisms import SharedGaussian
from silograph.tasks.person_votes import PersonVotes
from silograph.topology import Topology

MOST_NOISE = 0.25  # standard deviation of a share; beyond, k edges would be mostly chance
SURE = 0.9  # an edge more probable than this may be drawn at any noise
_BINS = 12


@dataclass(frozen=True)
class SummedVotes(AddedUp):
    """The consensus of all persons. `confidence`: draw the edges above it; None: the k most probable ones.

    `coordinates` (d, 2 or 3) of the nodes, if they are public: near pairs, also across the mirror, are likelier.
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

    def shares(self, total: Array, cohort: int, summed: BoolArray) -> tuple[Shares, float]:
        """From the noisy sum (p,) and public numbers alone; with the noise of a share."""
        persons, noise = float(np.asarray(self.counts)[summed].sum()), self.share_noise(cohort, summed)
        group = None if self.coordinates is None else distance_bins(self.coordinates)
        return learn_shares(total / persons, noise, self.task.edges, group), noise

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        summed = servers["summed"]
        known, noise = self.shares(servers["sum"][0], int(servers["cohort"]), summed)
        drawn = self._drawn(known, noise)
        arrays = {
            "consensus": np.where(drawn, np.maximum(known.share, 1e-12), 0.0),
            "probability": known.probability,
            "gamma": self.weights(servers),
        }
        facts = {"parameters": {"votes": self.task.edges, "level": known.level, "noise": noise}, "rounds": 1}
        return Outcome(arrays, {**facts, **self.who(servers, topo)})

    def share_noise(self, cohort: int, summed: BoolArray) -> float:
        """The standard deviation of a share, from public numbers alone."""
        if self.mechanism is None:
            return 0.0
        made = planned(cohort, self.clip, self.size, self.mechanism, self.task.summand_bound)
        return noise_of(made, int(summed.sum())) / float(np.asarray(self.counts)[summed].sum())

    def check(self) -> None:
        """Refuse, before anything is spent, k edges that would be mostly chance."""
        noise = self.share_noise(len(self.counts), np.ones(len(self.counts), dtype=np.bool_))
        if self.confidence is None and noise > MOST_NOISE:
            persons = math.ceil(sum(self.counts) * noise / MOST_NOISE)
            raise InputError(
                "votes of persons",
                f"noise of at most {MOST_NOISE:g} in the share of persons who have an edge",
                f"it would be {noise:.2g}: most of {self.task.edges} edges would be chance",
                f"Nothing was spent. Draw only the edges that are sure (a confidence of {SURE:g}), or take about "
                f"{persons} persons, or a larger epsilon.",
            )

    def _drawn(self, known: Shares, noise: float) -> BoolArray:
        """Where silos dropped out and left too much noise, only what is sure."""
        if self.confidence is not None or noise > MOST_NOISE:
            return known.probability > (SURE if self.confidence is None else self.confidence)
        drawn = np.zeros(len(known.probability), dtype=np.bool_)
        drawn[np.lexsort((-known.share, -known.probability))[: self.task.edges]] = True
        return drawn


def distance_bins(coordinates: Array) -> NDArray[np.intp]:
    """The bin of each pair's distance, or of the distance to the other's mirror image, whichever is less."""
    a, b = pairs(len(coordinates))
    mirrored = coordinates * np.array([-1.0] + [1.0] * (coordinates.shape[1] - 1))
    distance = np.minimum(
        np.linalg.norm(coordinates[a] - coordinates[b], axis=1), np.linalg.norm(coordinates[a] - mirrored[b], axis=1)
    )
    edges = np.quantile(distance, np.linspace(0.0, 1.0, _BINS + 1)[1:-1])
    return np.asarray(np.searchsorted(edges, distance))
