"""Baselines for private meta-learning: S4's own version, to the letter, and learning without privacy.

FedAvg and Reptile move a start by local gradient steps on all of a client's records; fine-tuning either is
`personalising`. Per-FedAvg is `PrivateMeta` without a clip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, Carry
from silograph.methods.base import Outlet, Private, Up
from silograph.methods.private_meta import (
    IN_THE_CLEAR,
    PROTECTED_UNIT,
    QUERY,
    SUPPORT,
    Known,
    OneStart,
    PrivateMeta,
    descended,
    mean_model,
)
from silograph.privacy.bound import ADD_OR_REMOVE_ONE, Bounded, clip_rows
from silograph.privacy.released import Batch, Message, Released, Sent
from silograph.topology import Topology

if TYPE_CHECKING:
    pass

#: The error in the printed version, in one line.
DEFECT = (
    "it clips the mean over records, which one record moves by up to twice the clip, "
    "and pays once for a sample that it uses twice"
)


@dataclass(frozen=True, eq=False)
class PaperMeta(PrivateMeta):
    """S4's Algorithm 1 as printed (`paper:`). The door's noise multiplier is half of S4's sigma: the sensitivity of a
    clipped mean is 2 C, and the noise's deviation C sigma. DEFECT says what its own account misses.

    (9) clips a matrix, I - eta H, and a vector, each at sqrt(C), so that their product is at most C long; here the
    product is clipped.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is None or self.order != "second":
            raise InputError("S4's own version", "a clip, and the second order", f"found {self.clip} and {self.order}")

    def _step(self, w: Known, data: Private, gate: Outlet, step: int) -> Known:
        assert self.clip is not None
        query = gate.poisson(data[QUERY], self.rate, f"query {step}", QUERY)
        support = gate.poisson(data[SUPPORT], self.rate, f"support {step}", SUPPORT)
        # Both releases of a step depend on the query sample: they are charged together, for every record.
        both = replace(query, name=f"step {step}", part="")
        here = self._at(w, data, query)
        inner = self._noisy(here.gradient(None), query, gate, both, f"inner {step}")  # (6)
        theta = descended(w, self.inner_step, inner)  # (7)
        g2 = clip_rows(self._average(self._at(theta, data, support).gradient(None), support), math.sqrt(self.clip))
        bent = self._average(here.curvature(g2, None), query)
        outer = g2 - self.inner_step * bent  # (10) times (11)
        return descended(w, self.outer_step, self._released(outer, gate, both, f"outer {step}"))  # (9)

    def _average(self, total: Array, batch: Batch) -> Array:
        return np.asarray(total / np.maximum(batch.chosen.sum(1), 1)[:, None])

    def _noisy(self, total: Array, batch: Batch, gate: Outlet, charged: Batch, release_point: str) -> Released:
        return self._released(self._average(total, batch), gate, charged, release_point)

    def _released(self, mean: Array, gate: Outlet, charged: Batch, release_point: str) -> Released:
        assert self.clip is not None
        finite = np.where(np.isfinite(mean).all(-1, keepdims=True), mean, 0.0)
        why = f"the mean is clipped to {self.clip:g}, so a record can move it by twice that"
        l2 = np.full(len(mean), 2.0 * self.clip)
        bounded = Bounded(clip_rows(finite, self.clip), l2, PROTECTED_UNIT, why, ADD_OR_REMOVE_ONE)
        return gate.release(bounded, release_point, charged)


@dataclass(
    frozen=True,
    eq=False,
)
class LocalTraining(OneStart):
    """`steps` gradient steps of size `step` in every client; the server goes `server_step` of the way to their mean.

    With server_step 1 this is FedAvg, with less Reptile. Nothing is protected.
    """

    step: float
    steps: int = 1
    server_step: float = 1.0
    rate: float = 1.0

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        w = down["model"].value
        for step in range(self.steps):
            total, count = np.zeros_like(w), np.zeros(len(w))
            for part in (QUERY, SUPPORT):
                batch = gate.poisson(data[part], self.rate, f"{part} {step}", part)
                here = self.task.at(w, data[f"{part}_x"], data[f"{part}_y"], batch.chosen, self.rate)
                total += here.gradient(None)
                count += self.rate * data[part]
            w = w - self.step * total / count[:, None]
        return {}, {"model": gate.reveal(w, "model", IN_THE_CLEAR)}

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        mean = mean_model(up.values["model"], np.array(self.weights)[up.rows])
        model = servers["model"] + self.server_step * (mean - servers["model"])
        return servers, {"model": gate.reveal(model[None], "model", IN_THE_CLEAR)}
