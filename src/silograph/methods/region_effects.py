"""Random effects of regions: a region's model is the common one plus a deviation, shrunk by estimated variances.

    y = u.w_p + noise of variance sigma^2,    w_p = beta + a_p

This is `random_effects` with regions for its clusters: a_p has one variance for the constant and one for all slopes,
estimated from all records, so regions with few records, and slopes that hardly differ, get what all regions have in
common. Agents have no deviations of their own, so their model is their region's. Each server adds up its agents' sums
and passes them on over the graph; every server then computes the same models.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from silograph.core.types import Array, Carry
from silograph.kernels.mixing import disagreement
from silograph.methods.base import Outcome, Outlet, Private, ServerOutlet, Start, Up
from silograph.methods.consensus_graph import OPEN
from silograph.methods.random_effects import RandomEffects
from silograph.privacy.released import Message
from silograph.topology import Topology


@dataclass(frozen=True)
class RegionEffects(RandomEffects):
    """The method. `clusters` gives the region of every agent, in the topology's order."""

    deviations: bool = field(default=False, init=False)

    def start(self, topo: Topology) -> Start:
        begun = super().start(topo)
        servers = {**begun.servers, "cell": topo.home}
        return Start(begun.carry, servers, self.answer(servers))

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        return {}

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Return nothing: nobody hands over anything."""
        return {}

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        total = gate.total(up.sealed["sums"], up.rows, topo.home, topo.silos)
        return {**servers, "came": np.int64(len(up.rows))}, {"totals": gate.reveal(total.sums, "totals", OPEN)}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return super().settle(servers, {"sums": across["totals"][None]}, topo)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Return the regions' models in the units of the tables, their mean, the variances of a_p relative to the
        noise's, and the weight of the common slopes' squares."""
        model = self._unscaled(servers["model"], servers["scales"])
        found = {"region_variance": servers["cluster_variance"], "ridge": servers["ridge"]}
        facts = {"rounds": int(servers["round"]), "disagreement": float(disagreement(model))}
        return Outcome({"model": model, "centroid": model.mean(0), **found}, facts)
