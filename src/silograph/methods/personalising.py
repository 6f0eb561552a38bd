"""Turn a shared start into a personal model: gradient steps on a client's own records (S4 (4)).

The model stays with the client, at no cost to privacy. If it is to be published, every step's gradient is clipped
record by record, summed and released, with its own rows in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from silograph.core.types import Array, Carry
from silograph.methods.base import Limits, Outcome, Outlet, Plain, Private, Start, Up
from silograph.methods.private_meta import PROTECTED_UNIT, Known, descended
from silograph.privacy.bound import ADD_OR_REMOVE_ONE, Bounded
from silograph.privacy.released import Message, Sent, bare
from silograph.topology import Topology

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural

OWN = "own"


@dataclass(frozen=True, eq=False)
class Personalise(Plain):
    """Take `steps` full steps of size `step` from `model`, one for all or a row for each.

    With a `clip` the personal model is released.
    """

    task: Neural
    model: Array
    step: float
    steps: int = 1
    clip: float | None = None

    def start(self, topo: Topology) -> Start:
        own: Carry = {"model": np.broadcast_to(self.model, (len(topo.silos), self.model.shape[-1])).copy()}
        servers: Carry = {"round": np.int64(0)}
        return Start(own, servers, {}) if self.clip is None else Start({}, servers, {}, own)

    def limits(self) -> dict[str, Limits]:
        return {}

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        counts = data[OWN]
        everybody = np.arange(data[f"{OWN}_y"].shape[1]) < counts[:, None]
        here = self.task.at(bare(carry["model"]), data[f"{OWN}_x"], data[f"{OWN}_y"], everybody)
        mean = here.gradient(self.clip) / counts[:, None]
        slope: Known = mean
        if self.clip is not None:
            why = f"every record's gradient is clipped to {self.clip:g}; the sum is divided by the public N"
            bounded = Bounded(mean, self.clip / counts, PROTECTED_UNIT, why, ADD_OR_REMOVE_ONE)
            slope = gate.release(bounded, "personal step")
        return {"model": descended(carry["model"], self.step, slope)}, {}  # (4)

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        return servers, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return {"round": servers["round"] + 1}, {}

    def done(self, servers: Carry) -> bool:
        return int(servers["round"]) >= self.steps

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        return {} if self.clip is None else {"model": carry["model"]}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        return Outcome(dict(delivered), {"steps": int(servers["round"])})
