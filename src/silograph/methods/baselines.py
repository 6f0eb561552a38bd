"""Baselines for consensus graphs (S3, V.A): each silo alone, one graph for all, and two methods in between.

All have the same round with different parts. A silo may fit its own graph, exactly, near the anchor it received,

    argmin_w g_i(w) + (pull/2) |w - anchor|^2,    w >= 0

and may send a vector back; the server's weighted mean of those, projected on w >= 0, is the next anchor.

              a silo's graph     it sends                                 the mean is over
    IGL       fitted, no pull    nothing
    FedAvg    the anchor         gradient steps from the anchor           records, as in (28)
    FedProx   the anchor         the same, pulled back to the anchor      records, as in (28)
    MRMTL     fitted             its own graph                            silos
    Ditto     fitted             gradient steps from the anchor           records, as in (28)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from silograph.core.types import Array, Carry
from silograph.kernels.descent import extrapolate, gradient, objective, pulled_step
from silograph.kernels.dual_newton import lower_bound, solve
from silograph.kernels.edges import degrees, edge_count
from silograph.methods.base import ANYTHING, SWITCH, Limits, Outcome, Outlet, Plain, Private, Start, Up, everywhere
from silograph.methods.consensus_graph import OPEN
from silograph.privacy.released import Message
from silograph.topology import Topology


@dataclass(frozen=True)
class _Baseline(Plain, ABC):
    """A baseline of `rounds` means, and one last call in which the silos take the final anchor and send nothing."""

    nodes: int
    beta: float
    pull: float = 0.1
    alpha: float = 1.0
    zeta: float = 1e-4
    rounds: int = 50

    @abstractmethod
    def _own(self, zbar: Array, anchor: Array, pull: Array) -> Array:
        """The silos' graphs, given the anchor."""

    @abstractmethod
    def _sent(self, own: Array, anchor: Array, pull: Array, data: Private) -> dict[str, Array]:
        """Return what each silo adds to the mean, as "vector", and its weight, as "count" (1 if left out)."""

    @abstractmethod
    def _objective(self, delivered: dict[str, Array], consensus: Array, gamma: Array) -> float | None:
        """Return the objective of the whole method, if it has one."""

    def _fitted(self, zbar: Array, anchor: Array, pull: Array) -> Array:
        """Find the exact minimiser of g_i(w) + (pull/2)|w - anchor|^2: the coupling only changes c and beta of the
        dual."""
        moved = zbar - pull[:, None] * anchor
        return solve(moved, self.alpha, self.beta + pull / 4.0, self.zeta).w

    def start(self, topo: Topology) -> Start:
        silos, edges = len(topo.silos), edge_count(self.nodes)
        anchor = np.full(edges, 1.0 / (self.nodes - 1))
        servers: Carry = {"anchor": anchor, "gamma": np.zeros(silos), "round": np.int64(0)}
        return Start({"graph": np.tile(anchor, (silos, 1))}, servers, self._answer(servers, topo))

    def _answer(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        # Before the first mean the anchor is nobody's graph: there is no pull to it.
        pull = self.pull if servers["gamma"].any() else 0.0
        last = servers["round"] == self.rounds
        values = {"anchor": servers["anchor"], "pull": np.float64(pull), "last": np.float64(last)}
        return {name: everywhere(value, topo) for name, value in values.items()}

    def limits(self) -> dict[str, Limits]:
        return {"anchor": ANYTHING, "pull": Limits(0.0, self.pull), "last": SWITCH}

    # ---- in the silo ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        anchor, pull = down["anchor"].value, down["pull"].value
        own = self._own(data["zbar"], anchor, pull)
        sent = {} if down["last"].value.all() else self._sent(own, anchor, pull, data)
        return {"graph": own}, {name: gate.reveal(value, name, OPEN) for name, value in sent.items()}

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        graph, zbar = carry["graph"], data["zbar"]
        told = {
            "graph": graph,
            "smoothness": (zbar * graph).sum(-1),
            "value": objective(zbar, graph, self.alpha, self.beta, self.zeta),
        }
        return {name: gate.reveal(value, name, OPEN) for name, value in told.items()}

    # ---- at the server ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        if "vector" not in up.values:
            return servers, {}
        weight = up.values.get("count", np.ones(len(up.rows)))
        gamma = np.zeros(len(topo.silos))
        gamma[up.rows] = weight / weight.sum()
        anchor = np.maximum((gamma[up.rows, None] * up.values["vector"]).sum(0), 0.0)
        return {**servers, "anchor": anchor, "gamma": gamma}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        servers = {**servers, "round": servers["round"] + 1}
        return servers, self._answer(servers, topo)

    def done(self, servers: Carry) -> bool:
        return bool(servers["round"] > self.rounds)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        graph, consensus, gamma = delivered["graph"], servers["anchor"], servers["gamma"]
        if not gamma.any():  # there was no mean: take that of the graphs handed over
            consensus, gamma = graph.mean(0), np.full(len(graph), 1.0 / len(graph))
        arrays = {"graph": graph, "smoothness": delivered["smoothness"], "consensus": consensus, "gamma": gamma}
        parameters = {"alpha": self.alpha, "beta": self.beta, "pull": self.pull, "zeta": self.zeta}
        facts = {"parameters": parameters, "objective": self._objective(delivered, consensus, gamma)}
        return Outcome(arrays, {**facts, "certified_gap": self._gap(delivered), "rounds": int(servers["round"])})

    def _gap(self, delivered: dict[str, Array]) -> float | None:
        """The certified relative gap of the objective, if there is a certificate."""
        return None


@dataclass(frozen=True)
class IGL(_Baseline):
    """Independent graph learning: each silo's exact optimum of (7). Nothing leaves a silo but its finished graph."""

    pull: float = field(default=0.0, init=False)
    rounds: int = field(default=0, init=False)

    def _own(self, zbar: Array, anchor: Array, pull: Array) -> Array:
        return self._fitted(zbar, anchor, pull)  # S3 (7)

    def _sent(self, own: Array, anchor: Array, pull: Array, data: Private) -> dict[str, Array]:
        return {}

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        q = self.alpha / (degrees(carry["graph"]) + self.zeta)  # the potentials that belong to the graph
        bound = lower_bound(data["zbar"], q, self.alpha, self.beta, self.zeta)
        return {**super().deliver(carry, data, gate), "bound": gate.reveal(bound, "bound", OPEN)}

    def _objective(self, delivered: dict[str, Array], consensus: Array, gamma: Array) -> float | None:
        return float(delivered["value"].sum())

    def _gap(self, delivered: dict[str, Array]) -> float | None:
        total = float(delivered["value"].sum())
        return (total - float(delivered["bound"].sum())) / max(abs(total), self.alpha)


@dataclass(frozen=True)
class _Descent(_Baseline):
    """Baselines with a global graph that silos move by a few projected gradient steps, with S3's settings."""

    step: float = 0.005
    momentum: float = 0.9
    local_steps: int = 5

    def _stepped(self, data: Private, anchor: Array, pull: Array) -> dict[str, Array]:
        w = previous = anchor
        for _ in range(self.local_steps):
            ahead = extrapolate(w, previous, self.momentum)
            slope = gradient(data["zbar"], ahead, self.alpha, self.beta, self.zeta)
            moved = pulled_step(ahead, slope, anchor, pull, self.step, implicit=True)
            w, previous = np.maximum(moved, 0.0), w
        # The server does the last projection, after the mean: then one step per round is projected descent on (28).
        return {"vector": moved, "count": data["count"]}


@dataclass(frozen=True)
class _Global(_Descent):
    """One graph for all."""

    def _own(self, zbar: Array, anchor: Array, pull: Array) -> Array:
        return anchor

    def _sent(self, own: Array, anchor: Array, pull: Array, data: Private) -> dict[str, Array]:
        return self._stepped(data, anchor, pull)

    def _objective(self, delivered: dict[str, Array], consensus: Array, gamma: Array) -> float | None:
        return float((gamma * delivered["value"]).sum())  # S3 (28), all silos having the same graph


@dataclass(frozen=True)
class FedAvg(_Global):
    """One graph for all by (28): the mean, weighted by records, of a few steps from the last mean in each silo."""

    pull: float = field(default=0.0, init=False)


@dataclass(frozen=True)
class FedProx(_Global):
    """FedAvg with steps held back by (pull/2)|w - w_global|^2."""


@dataclass(frozen=True)
class MRMTL(_Baseline):
    """Mean-regularised multi-task learning: sum_i g_i(w_i) + (pull/2)|w_i - mean|^2, alternating between w_i and the
    mean."""

    def _own(self, zbar: Array, anchor: Array, pull: Array) -> Array:
        return self._fitted(zbar, anchor, pull)

    def _sent(self, own: Array, anchor: Array, pull: Array, data: Private) -> dict[str, Array]:
        return {"vector": own}

    def _objective(self, delivered: dict[str, Array], consensus: Array, gamma: Array) -> float | None:
        apart = ((delivered["graph"] - consensus) ** 2).sum()
        return float(delivered["value"].sum() + self.pull / 2.0 * apart)


@dataclass(frozen=True)
class Ditto(_Descent):
    """A global graph by FedAvg, and in each silo a personal one pulled to it, which does not affect the global one."""

    def _own(self, zbar: Array, anchor: Array, pull: Array) -> Array:
        return self._fitted(zbar, anchor, pull)

    def _sent(self, own: Array, anchor: Array, pull: Array, data: Private) -> dict[str, Array]:
        return self._stepped(data, anchor, np.zeros_like(pull))

    def _objective(self, delivered: dict[str, Array], consensus: Array, gamma: Array) -> float | None:
        return None  # two problems, one inside the other
