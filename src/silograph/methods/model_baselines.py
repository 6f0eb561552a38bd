"""Baselines for clustered models: each client alone, and personal models near one that all clients share.

A client's model is fitted exactly, pulled to the anchor it received,

    argmin of its mean loss + (lam/2) |w|^2 + (pull/2) |w - anchor|^2

and it may send a step for the anchor, which then moves by the mean of all clients' steps.

              a client's model     its step for the anchor
    Alone     no pull              none
    Ditto     pulled               a few gradient steps from it, as in federated averaging
    PFedMe    pulled               a few steps down the Moreau envelope: v <- v - rate (v - its model near v)

Graph federation and clusters whose servers are alone are ClusteredADMM itself: with one cluster, and with `weights`
"alone". `methods.baselines` has the same ideas for graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, Carry
from silograph.methods.base import (
    ANYTHING,
    SWITCH,
    Limits,
    Outcome,
    Outlet,
    Plain,
    Private,
    ServerOutlet,
    Start,
    Up,
    everywhere,
)
from silograph.methods.consensus_graph import OPEN
from silograph.privacy.released import Message, Sent
from silograph.tasks.clustered import Proximal
from silograph.topology import Topology


@dataclass(frozen=True)
class _Personal(Plain, ABC):
    """A baseline of `rounds` means, and one last call in which the clients take the final anchor and send nothing."""

    task: Proximal
    lam: float = 0.01
    pull: float = 1.0
    rounds: int = 100

    def __post_init__(self) -> None:
        if not (self.lam >= 0.0 and self.pull >= 0.0 and 0.0 < self.lam + self.pull < np.inf):
            found = f"found {self.lam} and {self.pull}"
            raise InputError(f"{type(self).__name__}, lam and pull", "numbers from 0, not both 0", found)

    @abstractmethod
    def _sent(self, anchor: Array, data: Private) -> dict[str, Array]:
        """Return how each client would move the anchor, as "step"."""

    def _fitted(self, anchor: Array, data: Private) -> Array:
        weight = self.lam + self.pull
        return self.task.near(self.pull / weight * anchor, np.full(len(anchor), weight), data)

    def start(self, topo: Topology) -> Start:
        model = np.zeros((len(topo.silos), self.task.features))
        servers: Carry = {"anchor": model[0], "round": np.int64(0)}
        return Start({"model": model}, servers, self._answer(servers, topo))

    def _answer(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        last = np.full(len(topo.silos), float(servers["round"] == self.rounds))
        return {"anchor": everywhere(servers["anchor"], topo), "last": last}

    def limits(self) -> dict[str, Limits]:
        return {"anchor": ANYTHING, "last": SWITCH}

    # ---- in the client ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        anchor = down["anchor"].value
        if down["last"].value.all():
            return {"model": self._fitted(anchor, data)}, {}
        return {}, {name: gate.contribute(value, name) for name, value in self._sent(anchor, data).items()}

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        return {"model": gate.reveal(carry["model"], "model", OPEN)}

    # ---- at the servers, who all hear each other ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        if "step" not in up.sealed:
            return servers, {}
        total = gate.total(up.sealed["step"], up.rows, topo.home, topo.silos)
        return servers, {"total": gate.reveal(np.column_stack([total.sums, total.counts]), "total", OPEN)}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        servers = {**servers, "round": servers["round"] + 1}
        if "total" in across:
            total = across["total"].sum(0)
            servers["anchor"] = servers["anchor"] + total[:-1] / total[-1]
        return servers, self._answer(servers, topo)

    def done(self, servers: Carry) -> bool:
        return bool(servers["round"] > self.rounds)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        return Outcome({"model": delivered["model"], "anchor": servers["anchor"]}, {"rounds": int(servers["round"])})


@dataclass(frozen=True)
class Alone(_Personal):
    """Each client's own ridge, Huber or logistic regression. Nothing leaves a client but the finished model."""

    pull: float = field(default=0.0, init=False)
    rounds: int = field(default=0, init=False)

    def _sent(self, anchor: Array, data: Private) -> dict[str, Array]:
        return {}


@dataclass(frozen=True)
class Ditto(_Personal):
    """A common model by federated averaging, and personal ones pulled to it, which do not affect it."""

    step: float = 0.01
    local_steps: int = 5

    def _sent(self, anchor: Array, data: Private) -> dict[str, Array]:
        v = anchor
        for _ in range(self.local_steps):
            v = v - self.step * (self.task.loss_gradient(v, data) + self.lam * v)
        return {"step": v - anchor}


@dataclass(frozen=True)
class PFedMe(_Personal):
    """A common model that minimises the mean of the clients' Moreau envelopes; `rate` is pFedMe's eta lambda."""

    rate: float = 0.5
    local_steps: int = 5

    def _sent(self, anchor: Array, data: Private) -> dict[str, Array]:
        v = anchor
        for _ in range(self.local_steps):
            v = v - self.rate * (v - self._fitted(v, data))
        return {"step": v - anchor}
