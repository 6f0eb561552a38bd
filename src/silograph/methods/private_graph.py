"""Private graphs by one release: each silo releases its clipped second moment once, the server does the rest.

Everything after the release is post-processing, so the solver, its rounds and every choice of parameters are free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, Carry, Json
from silograph.kernels.pooling import empirical_bayes, project_psd
from silograph.methods.base import (
    Method,
    Outcome,
    Outlet,
    Private,
    Rows,
    Start,
    State,
    Up,
    advance,
    begin,
    put,
    take,
    values,
)
from silograph.privacy.gate import Message, OpenGate, Sent, relay
from silograph.privacy.mechanisms import Mechanism
from silograph.tasks.smooth_graph import SmoothGraph, distances_of, from_coordinates
from silograph.topology import Topology

LEAST_EFFECTIVE_RECORDS = 30.0  # fewer, and no pipeline draws more than chance (measured on the papers' graphs)
PATIENCE = 5  # rounds the server waits for a silo that has not released yet


@dataclass(frozen=True)
class ReleasedConsensus:
    """`inner` solves (8) at the server on what `task` released under `mechanism`.

    `counts` (records per silo, in the topology's order) are public: neighbours replace a record, they do not add one.
    """

    task: SmoothGraph
    inner: Method
    mechanism: Mechanism
    counts: tuple[int, ...]

    @property
    def _size(self) -> int:
        return (self.task.nodes - 1) * self.task.nodes // 2

    def start(self, topo: Topology) -> Start:
        silos = len(topo.silos)
        carry: Carry = {"moment": relay(np.zeros((silos, self._size))), "sent": np.zeros(silos, bool)}
        servers: Carry = {
            "moments": np.zeros((silos, self._size)),
            "heard": np.zeros(silos, bool),
            "round": np.int64(0),
            "inner": None,
        }
        return Start(carry, servers, {})

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        """Release once; a silo that is asked again sends what it sent before."""
        fresh = np.flatnonzero(~carry["sent"])
        if fresh.size:
            released = gate.rows(fresh).release(self.task.bounded(take(data, fresh)), "moment")
            carry = {
                **put({"moment": carry["moment"]}, fresh, {"moment": released}),
                "sent": np.ones_like(carry["sent"]),
            }
        return carry, {"moment": carry["moment"]}

    def asked(self, servers: Carry, topo: Topology) -> None:
        return None

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        moments, heard = servers["moments"].copy(), servers["heard"].copy()
        moments[up.rows], heard[up.rows] = up.values["moment"], True
        return {**servers, "moments": moments, "heard": heard, "round": servers["round"] + 1}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        heard = servers["heard"]
        if heard.all() or servers["round"] >= PATIENCE:
            servers = {**servers, "inner": self._learn(servers, topo)}
        return servers, {}

    def distances(self, moments: Array, counts: Array) -> Array:
        """zbar of every silo from the released moments: pooled as far as their noise asks, made positive, converted."""
        nodes = self.task.nodes
        released = from_coordinates(moments, nodes)
        if self.task.clip is None:
            # Signals were scaled to length 1, so only the shape means anything: let the trace be 1.
            trace = np.einsum("iaa->i", released)[:, None, None]
            released = released / np.where(trace > 0.0, trace, 1.0)
        pooled = project_psd(empirical_bayes(released, self._noise(counts), counts).moments)
        return self.task.wall(distances_of(pooled, nodes))

    def _noise(self, counts: Array) -> Array:
        """The known standard deviation of every silo's noise, per coordinate."""
        sensitivity = math.sqrt(2.0) * self.task.radius**2 / counts
        return np.array([self.mechanism.deviation(float(l2), self._size) for l2 in sensitivity])

    def _check_worth(self, moments: Array, counts: Array) -> None:
        """Refuse to draw a graph of noise: N_eff <= 2 t^2 / (D s^2) of all silos, from what was released."""
        trace = np.einsum("iaa->i", from_coordinates(moments, self.task.nodes))
        noise = self._noise(counts)
        worth = float((2.0 * trace**2 / (self._size * noise**2)).sum()) if noise.all() else math.inf
        if worth < LEAST_EFFECTIVE_RECORDS:
            raise InputError(
                "released statistics",
                f"data worth at least {LEAST_EFFECTIVE_RECORDS:.0f} records behind the noise",
                f"they are worth at most {worth:.2g}: the clip is far longer than the signals",
                "This budget is spent. Take a clip near the signals' length, or none.",
            )

    def _learn(self, servers: Carry, topo: Topology) -> Json:
        """Run the inner method here, on what was released; a silo that never came gets the consensus graph."""
        heard = np.flatnonzero(servers["heard"])
        there = Topology(tuple(topo.silos[k] for k in heard))
        counts = np.asarray(self.counts, dtype=float)[heard]
        self._check_worth(servers["moments"][heard], counts)
        zbar = self.distances(servers["moments"][heard], counts)
        data, gate, trace = {"zbar": zbar}, OpenGate(), []

        def run_local(now: State) -> tuple[Carry, Sent, Rows]:
            return (*self.inner.local(now.carry, now.down, data, gate), np.arange(len(heard)))

        state = begin(self.inner, there)
        while not self.inner.done(state.servers):
            state = advance(self.inner, state, there, gate, run_local)
            line = self.inner.trace(state.servers)
            if line is not None:
                trace.append({"round": state.round, **line})
        delivered = self.inner.deliver(state.carry, data, gate)
        inner = self.inner.outcome(state.servers, values(delivered), there)
        arrays = {"consensus": inner.arrays["consensus"]}
        for name, absent in (("graph", arrays["consensus"]), ("gamma", 0.0), ("smoothness", np.nan)):
            whole = np.full((len(topo.silos), *inner.arrays[name].shape[1:]), absent)
            whole[heard] = inner.arrays[name]
            arrays[name] = whole
        return {"arrays": arrays, "facts": inner.facts, "trace": trace}

    def done(self, servers: Carry) -> bool:
        return servers["inner"] is not None

    def trace(self, servers: Carry) -> Json | None:
        return None

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        """Nothing more: the server has all there is."""
        return {}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        inner = servers["inner"]
        silent = [topo.silos[k] for k in np.flatnonzero(~servers["heard"])]
        return Outcome(inner["arrays"], {**inner["facts"], "trace": inner["trace"], "silent": silent})
