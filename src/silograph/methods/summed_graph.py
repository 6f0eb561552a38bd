"""A private consensus graph from a secure sum: the silos' second moments are added up under masks, with noise once.

The server sees the noisy sum alone, so there is a consensus and no graph of any silo. Every record weighs the same in
every silo, and replacing one moves the sum as far in a small silo as in a large one. Learning from the sum is
post-processing, as in `private_graph`; it cannot show how far silos differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from silograph.core.errors import SilenceError
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.kernels.descent import roughness
from silograph.kernels.edges import node_count
from silograph.kernels.pooling import empirical_bayes
from silograph.kernels.spaces import AllPairs
from silograph.methods.base import Limits, Outcome, Outlet, Plain, Private, ServerOutlet, Start, Up
from silograph.methods.choosing import LOG_BETA, learn_alone
from silograph.methods.private_graph import (
    LEAST_EFFECTIVE_ROWS,
    PATIENCE,
    Graphs,
    Learner,
    Statistics,
    cleaned,
    moments_of,
    refuse,
)
from silograph.privacy.bound import Bounded
from silograph.privacy.masking import Cohort, planned
from silograph.privacy.mechanisms import SharedGaussian
from silograph.privacy.released import Message, Sent
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import Topology


@dataclass(frozen=True)
class SmoothestGraph:
    """The papers' model (7) of every statistic by itself: nothing couples it with others."""

    alpha: float = 1.0
    beta: float | None = None
    zeta: float = 0.0
    degree: float | None = None

    def learn(self, known: Statistics, drawn: BoolArray) -> Graphs:
        pairs = AllPairs(node_count(known.zbar.shape[-1]))
        solution, told = learn_alone(pairs, known.zbar[drawn], self.alpha, self.beta, self.zeta, self.degree)
        w = np.zeros_like(known.zbar)
        w[drawn] = solution.w
        facts = {
            "parameters": {"alpha": self.alpha, "beta": math.exp(told[-1, LOG_BETA]), "zeta": self.zeta},
            "objective": float(solution.objective.sum()),
            "certified_gap": float((solution.gap / np.maximum(np.abs(solution.objective), 1e-300)).max()),
            "rounds": 1,
            "learner": "papers",
        }
        return Graphs(w, known.share, roughness(known.zbar, w)[:-1], np.full(len(drawn), np.nan), facts, [])


def noise_of(made: Cohort, summed: int) -> float:
    """The standard deviation of a coordinate of a sum: so many shares of noise, dealt for the whole cohort."""
    return made.share * 2.0**-made.bits * math.sqrt(summed)


class AddedUp(Plain):
    """The rounds of every method that adds up its sites once, under masks; each method uses the sum in its own way.

    `counts` (records per silo, in the topology's order) are public: neighbours replace a record, they do not add one.
    `point` is the release point.
    """

    point: ClassVar[str] = "moment"
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        """Coordinates of the sum."""
        raise NotImplementedError

    @property
    def clip(self) -> float:
        """The greatest length of a silo's vector."""
        raise NotImplementedError

    def summand(self, data: Private) -> Bounded:
        """Return each silo's summand, with how far one of its records can move it."""
        raise NotImplementedError

    def start(self, topo: Topology) -> Start:
        servers: Carry = {
            "sum": np.zeros((len(topo.servers), self.size)),
            "summed": np.zeros(len(topo.silos), bool),
            "cohort": np.int64(0),
            "round": np.int64(0),
        }
        return Start({}, servers, {})

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        return {}, {self.point: gate.contribute(self.summand(data), self.point, self.clip)}

    def limits(self) -> dict[str, Limits]:
        return {}

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        """Add up once: when all have answered, or the server stops waiting for the others."""
        servers = {**servers, "round": servers["round"] + 1}
        last = servers["round"] >= PATIENCE
        if len(up.rows) < len(topo.silos) and not last:
            return servers, {}
        total = gate.total(up.sealed[self.point], up.rows, topo.home, topo.silos)
        if not total.counts.all():
            if last:
                todo = "Ask them, and run again: no sum was made. What a ledger says was spent is spent."
                raise SilenceError("secure sum", "enough sites to the end", f"{len(up.rows)} answered", todo)
            return servers, {}
        summed = np.zeros(len(topo.silos), bool)
        summed[up.rows[total.summed]] = True
        return {**servers, "sum": total.sums, "summed": summed, "cohort": np.int64(len(up.rows))}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return servers, {}

    def done(self, servers: Carry) -> bool:
        return bool(servers["summed"].any())

    def weights(self, servers: Carry) -> Array:
        """The share of each silo in the sum, by its records."""
        counts = np.where(servers["summed"], self.counts, 0.0)
        return np.asarray(counts / counts.sum())

    def who(self, servers: Carry, topo: Topology) -> Json:
        """The silos that are in the sum and those that are not."""
        summed, cohort = servers["summed"], int(servers["cohort"])
        silent = [topo.silos[k] for k in np.flatnonzero(~summed)]
        return {"trace": [], "silent": silent, "cohort": cohort, "dropped": int(cohort - summed.sum())}


@dataclass(frozen=True)
class SummedConsensus(AddedUp):
    """`inner` learns the consensus from the sum of the silos' statistics by `task`, with noise they add themselves."""

    task: SmoothGraph
    inner: Learner
    mechanism: SharedGaussian | None
    counts: tuple[int, ...]
    shrink: bool = False  # eigenvalues, also where noise does not swamp them

    @property
    def size(self) -> int:
        return self.task.moment_size

    @property
    def clip(self) -> float:
        return self.task.longest_term * max(self.counts)

    def summand(self, data: Private) -> Bounded:
        return self.task.summand(data)

    def noise(self, cohort: int, summed: int) -> float:
        """The standard deviation of a coordinate of the sum: `summed` shares of noise, dealt for the whole cohort."""
        if self.mechanism is None:
            return 0.0
        made = planned(cohort, self.clip, self.size, self.mechanism, self.task.summand_bound)
        return noise_of(made, summed)

    def statistics(self, total: Array, cohort: int, summed: BoolArray) -> Statistics:
        """Compute statistics from the noisy sum (1, D) and public numbers alone."""
        records = np.array([np.asarray(self.counts, dtype=float)[summed].sum()])
        noise = self.noise(cohort, int(summed.sum())) / records / self.task.kept
        alone = empirical_bayes(moments_of(total / records, self.task), noise, records)
        return cleaned(alone.moments, alone.variance, np.zeros(0), self.task, self.shrink)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        summed = servers["summed"]
        known = self.statistics(servers["sum"], int(servers["cohort"]), summed)
        if known.effective_rows[0] < LEAST_EFFECTIVE_ROWS:
            refuse(servers["sum"] / sum(self.counts), float(known.effective_rows[0]), self.task)
        graphs = self.inner.learn(known, np.ones(1, bool))
        arrays = {
            "consensus": graphs.w[0],
            "gamma": self.weights(servers),
            "effective_rows": known.effective_rows,
            "agreement": graphs.agreement,
        }
        if graphs.signs is not None:
            arrays["consensus_signs"] = graphs.signs[0]
        return Outcome(arrays, {**graphs.facts, **self.who(servers, topo)})
