"""Find clusters from one released gradient per client, by k-means.

Each client once releases the mean gradient of its records at the zero model. For a linear model with independent
features it is in expectation a multiple of the client's own model. Only directions are clustered, since the length
depends on how many records a client has and how well the model fits them. Everything after the release is
post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from silograph.core.errors import InputError
from silograph.core.schema import Count, Positive, check
from silograph.core.types import Array, Carry, Json
from silograph.methods.base import (
    SWITCH,
    Limits,
    Outcome,
    Outlet,
    Plain,
    Private,
    Rows,
    ServerOutlet,
    Start,
    Up,
    everywhere,
)
from silograph.methods.calibrated import Calibrated, within
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.random_effects import RandomEffects
from silograph.privacy.bound import Bounded, row_lengths
from silograph.privacy.released import Message, Sent
from silograph.tasks.linear import PROTECTED_UNIT, Linear
from silograph.topology import Topology

_STARTS = 20  # of k-means


@dataclass(frozen=True)
class FindClusters(Plain):
    """Find `count` clusters. With a `clip` every record's gradient is scaled back to it and the mean is released with
    noise.

    The number of a client's records is public then: neighbours replace one. With `answers`, the public bounds of
    answers, these and features are scaled to -1 to 1 first. The noise uses a `share` of the run's precision.
    """

    task: Linear
    count: Count
    clip: Positive | None = None
    seed: int = 0
    answers: tuple[float, float] | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        check(self, "clusters to find")

    def start(self, topo: Topology) -> Start:
        silos = len(topo.silos)
        if self.count > silos:
            raise InputError(
                "clusters to find", f"at most as many as there are clients, {silos}", f"found {self.count}"
            )
        servers: Carry = {"gradient": np.zeros((silos, self.task.features)), "heard": np.zeros(silos, dtype=np.bool_)}
        return Start({}, servers, {})

    def limits(self) -> dict[str, Limits]:
        return {}

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        zero = np.zeros((len(data["count"]), self.task.features))
        if self.answers is not None:
            scaled = within(data["y"], self.answers, self.task.loss)
            data = {**data, "x": np.clip(data["x"], -1.0, 1.0), "y": scaled}
        if self.clip is None:
            gradient = self.task.gradient(zero, data)
            return {}, {"gradient": gate.reveal(gradient, "gradient", "no protection was asked for")}
        gradient = self.task.gradient(zero, data, clip=self.clip)
        why = f"each record's gradient is clipped to {self.clip:g}: another one moves the mean of D by 2 clip / D"
        bounded = Bounded(gradient, 2.0 * self.clip / data["count"], PROTECTED_UNIT, why)
        return {}, {"gradient": gate.release(bounded, "gradient", share=self.share)}

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        gradient, heard = servers["gradient"].copy(), servers["heard"].copy()
        gradient[up.rows], heard[up.rows] = up.values["gradient"], True
        return {"gradient": gradient, "heard": heard}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return servers, {}

    def done(self, servers: Carry) -> bool:
        """One round is enough: clients that did not take part are put into the first cluster."""
        return bool(servers["heard"].any())

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        heard = np.flatnonzero(servers["heard"])
        cluster = np.zeros(len(topo.silos))
        cluster[heard] = clustered(servers["gradient"][heard], self.count, self.seed)
        return Outcome({"cluster": cluster}, {"clusters": self.count, "rounds": 1})


def clustered(vectors: Array, count: int, seed: int = 0) -> Array:
    """Cluster the vectors' directions by k-means; clusters are numbered in the order of their first members."""
    from sklearn.cluster import KMeans

    length = row_lengths(vectors)
    found = KMeans(count, n_init=_STARTS, random_state=seed).fit_predict(vectors / np.where(length > 0.0, length, 1.0))
    order = list(dict.fromkeys(int(q) for q in found))
    return np.array([float(order.index(int(q))) for q in found])


@dataclass(frozen=True)
class FoundClusters:
    """One round of `finder`, then `inner` with the clusters that were found; its own clusters only give their
    number."""

    finder: FindClusters
    inner: ClusteredADMM | RandomEffects | Calibrated

    def start(self, topo: Topology) -> Start:
        self.finder.start(topo)
        begun = self.inner.start(topo)
        servers = {**begun.servers, "finding": np.bool_(True)}
        return replace(begun, servers=servers, down=self._told(begun.down, servers, topo))

    def _told(self, down: dict[str, Array], servers: Carry, topo: Topology) -> dict[str, Array]:
        return {**down, "finding": everywhere(np.asarray(float(servers["finding"])), topo)}

    def asked(self, servers: Carry, topo: Topology) -> Rows | None:
        return None if servers["finding"] else self.inner.asked(servers, topo)

    def limits(self) -> dict[str, Limits]:
        return {**self.inner.limits(), "finding": SWITCH}

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        return (self.finder if down["finding"].value.any() else self.inner).local(carry, down, data, gate)

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        if not servers["finding"]:
            return self.inner.gather(servers, up, topo, gate)
        cluster = np.zeros(len(topo.silos), dtype=np.intp)  # clients that did not take part go into the first
        cluster[up.rows] = clustered(up.values["gradient"], self.finder.count, self.finder.seed)
        return {**servers, "cell": topo.home * self.finder.count + cluster}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        if servers["finding"]:
            servers = {**servers, "finding": np.bool_(False)}
            return servers, self._told(self.inner.answer(servers), servers, topo)
        servers, down = self.inner.settle(servers, across, topo)
        return servers, self._told(down, servers, topo)

    def done(self, servers: Carry) -> bool:
        return self.inner.done(servers)

    def trace(self, servers: Carry) -> Json | None:
        return self.inner.trace(servers)

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        return self.inner.instead(servers, topo)

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        return self.inner.deliver(carry, data, gate)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        found = self.inner.outcome(servers, delivered, topo)
        cluster = np.asarray(servers["cell"] % self.finder.count, dtype=np.float64)
        return Outcome({**found.arrays, "cluster": cluster}, found.facts)
