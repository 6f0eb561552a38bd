"""Random effects of regions: a region's model is the common one plus a deviation, shrunk by estimated variances.

    y = u.w_p + noise of variance sigma^2,    w_p = beta + b_p

This is `random_effects` with a region in place of a client. Its records are its agents', so what a client computes from
its records is computed in two places here: an agent has

    G = sum of W u u',   r = sum of W u e,   the sum of W e^2,   and the loss of its records, each left out

and its server, which adds these up over its agents, has A, c, b_p and the posterior covariance of b_p. Sums of A and c
over regions move beta, and so do those of the variances. Agents need w_p and the posterior for the next round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array, Carry
from silograph.kernels.mixing import disagreement
from silograph.methods.base import ANYTHING, Limits, Outcome, Outlet, Private, ServerOutlet, Start, Up
from silograph.methods.consensus_graph import OPEN
from silograph.methods.random_effects import RandomEffects
from silograph.privacy.released import Message, Sent
from silograph.topology import Topology


@dataclass(frozen=True)
class RegionEffects(RandomEffects):
    """The method. All agents are in one cluster."""

    def start(self, topo: Topology) -> Start:
        servers = self._first(topo)
        return Start({}, servers, self.answer(servers))

    def _first(self, topo: Topology) -> Carry:
        features, regions = self.task.features, len(topo.servers)
        own = {"own": np.zeros((regions, features)), "posterior": np.zeros((regions, features, features))}
        return {**super()._first(topo), **own}

    def answer(self, servers: Carry) -> dict[str, Array]:
        own = {name: servers[name][servers["cell"]] for name in ("own", "posterior")}
        return {**super().answer(servers), **own}

    def limits(self) -> dict[str, Limits]:
        return {**super().limits(), "own": ANYTHING, "posterior": ANYTHING}

    # ---- in the agent ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        if not down["scaled"].value.all():
            return {}, {"sums": gate.contribute(self._moments(data), "moments")}
        told = {name: field.value for name, field in down.items()}
        records, beta = self._records(told["own"], told, data), told["model"]
        G, r, squares = records.sums
        left_out = self._left_out(records, beta, told["own"] - beta, told["posterior"])
        parts = [G[:, *self._triangle], r, squares[:, None], data["count"][:, None], left_out]
        return {}, {"sums": gate.contribute(np.concatenate(parts, 1), "sums")}

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        return {}

    # ---- at the servers ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        total = gate.total(up.sealed["sums"], up.rows, topo.home, topo.silos)
        servers, sums = {**servers, "came": np.int64(len(up.rows))}, total.sums
        if servers["round"] > 0:
            servers, sums = self._of_regions(servers, sums)
        return servers, {"totals": gate.reveal(sums, "totals", OPEN)}

    def _of_regions(self, servers: Carry, sums: Array) -> tuple[Carry, Array]:
        """Each region's own model, and what it adds to the sums over all."""
        regions, features, size = len(sums), self.task.features, len(self._triangle[0])
        G = np.zeros((regions, features, features))
        G[:, *self._triangle] = sums[:, :size]
        G = G + np.triu(G, 1).swapaxes(1, 2)
        told = {
            "variance": np.broadcast_to(servers["variance"], (regions, features)),
            "inverse": np.broadcast_to(servers["inverse"][0], (regions, features, features)),
        }
        shrunk = self._shrunk(G, sums[:, size:-3], sums[:, -3], told)
        fresh = {"own": servers["model"][0] + shrunk.b, "posterior": shrunk.posterior}
        return {**servers, **fresh}, np.concatenate([shrunk.parts, sums[:, -2:]], 1)

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return super().settle(servers, {"sums": across["totals"][:, None]}, topo)

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Return nothing: nobody hands over anything."""
        return {}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Return the regions' models in the units of the tables, their mean, the variances of b_p relative to the
        noise's, and the weight of the common slopes' squares."""
        model = self._unscaled(servers["own"], servers["scales"])
        found = {"region_variance": servers["variance"], "ridge": servers["ridge"]}
        facts = {"rounds": int(servers["round"]), "disagreement": float(disagreement(model))}
        return Outcome({"model": model, "centroid": model.mean(0), **found}, facts)
