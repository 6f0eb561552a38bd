"""Algorithm 1 of S3 and S0, the papers' way to (8), and S0's private form of it.

Kept for reproduction only: it stalls above the optimum of (8) where silos merge, needs its step size tuned, and has no
certificate. Use `consensus_graph.ExactConsensus`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from silograph.core.errors import SolverError
from silograph.core.types import Array, Carry, Json
from silograph.kernels.descent import extrapolate, gradient, objective, pulled_step, roughness
from silograph.kernels.prox import soft_threshold
from silograph.kernels.spaces import AllPairs
from silograph.methods.base import ANYTHING, LARGEST, Limits, Outcome, Outlet, Plain, Private, Start, Up, everywhere
from silograph.methods.choosing import FACTS, UPPER, check_positive, choose, learn_alone
from silograph.methods.consensus_graph import BETA, GAMMA_FLOOR, LAM, NU, OPEN
from silograph.privacy.bound import Bounded, clip_rows
from silograph.privacy.released import Message, Released
from silograph.tasks.smooth_graph import PROTECTED_UNIT, SmoothGraph
from silograph.topology import Topology

_RUNAWAY = 1e12  # a weight that no graph has


def sensitivity_growth(steps: int, momentum: float, shrink: float) -> float:
    """C_s of S0 Theorem 2 by its recursion (82): how far `steps` unit differences add up from equal starts.

    The closed form (24) of the paper is the same number, but singular at a + b = 1 and complex for b < 0.
    """
    a, b = abs((1.0 + momentum) * shrink), abs(momentum * shrink)  # S0 (24)
    before, now = 0.0, 0.0
    for _ in range(steps):
        before, now = now, a * now + b * before + 1.0  # S0 (82)
    return now


@dataclass(frozen=True)
class PaperConsensus(Plain):
    """Algorithm 1 of S3 and S0: K momentum steps in each silo, weighted soft-threshold at the server.

    With `release` (the task whose clipped statistic may leave) it is S0's private algorithm. With one local step
    (Corollary 1), the gradient's only private part, zbar, is released every round and the step is post-processing. With
    more steps (Theorem 2), gradients are clipped to `gradient_clip` in norm, and the momentum restarts every round:
    otherwise the theorem's premise of equal starting points is false.
    """

    nodes: int
    alpha: float = 1.0
    beta: float | None = None
    nu: float | None = None
    lam: float | None = None
    zeta: float = 1e-4
    degree: float | None = None
    step: float = 0.005
    momentum: float = 0.9
    local_steps: int = 5
    rounds: int = 50
    form: Literal["S3", "S0"] = "S3"
    implicit: bool = True
    adaptive: bool = True
    release: SmoothGraph | None = None
    gradient_clip: float | None = None

    def __post_init__(self) -> None:
        check_positive("PaperConsensus", alpha=self.alpha, beta=self.beta, nu=self.nu, lam=self.lam, degree=self.degree)
        check_positive("PaperConsensus", zeta=self.zeta, step=self.step, gradient_clip=self.gradient_clip)

    def start(self, topo: Topology) -> Start:
        silos, edges = len(topo.silos), self.nodes * (self.nodes - 1) // 2
        w = np.full((silos, edges), 1.0 / (self.nodes - 1))
        knobs = self._knobs
        servers: Carry = {
            "consensus": w[0],
            "gamma": np.full(silos, 1.0 / silos),
            "vectors": w,
            "present": np.zeros(silos, bool),
            "facts": np.full((silos, FACTS), np.inf),
            "knobs": np.zeros(4) if knobs is None else knobs,
            "round": np.int64(0),
            "best": np.float64(1e300),
        }
        at_first: Carry = {"w": w, "previous": w}
        carry: Carry = {"smoothness": np.full(silos, np.nan)}
        if self.release is None:
            return Start(at_first | carry, servers, self._answer(servers, topo))
        return Start(carry, servers, self._answer(servers, topo), at_first)

    def _answer(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        shared = {name: everywhere(servers[name], topo) for name in ("consensus", "knobs")}
        return {**shared, "pull": self._rho(servers) * servers["gamma"]}

    def _rho(self, servers: Carry) -> float:
        rho = float(servers["knobs"][LAM] * servers["knobs"][NU])
        return rho if self.form == "S3" else 2.0 * rho  # S0's coupling is written with rho / 2

    @property
    def _knobs(self) -> Array | None:
        """Where nothing is left to be chosen."""
        if self.beta is None or self.nu is None or self.lam is None:
            return None
        return np.array([0.0, self.beta, self.lam, self.nu])

    def limits(self) -> dict[str, Limits]:
        knobs = self._knobs
        if knobs is None:
            return {"consensus": Limits(0.0, _RUNAWAY), "knobs": ANYTHING, "pull": Limits(0.0, LARGEST)}
        tightest = 2.0 * knobs[LAM] * knobs[NU] * max(1.0 / GAMMA_FLOOR, 1.0)  # (25), and `_rho`
        return {
            "consensus": Limits(0.0, _RUNAWAY),
            "knobs": Limits(knobs, knobs),
            "pull": Limits(0.0, float(tightest)),
        }

    # ---- in the silo ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        beta = float(down["knobs"].value[0, BETA])
        anchor, pull = down["consensus"], down["pull"]
        if beta == 0.0:
            _, facts = learn_alone(AllPairs(self.nodes), data["zbar"], self.alpha, self.beta, self.zeta, self.degree)
            return carry, {"facts": gate.reveal(facts, "facts", OPEN)}
        if self.release is not None:
            noisy = self._private_steps(self.release, carry, down, data, gate, beta)
            return {**carry, "w": noisy, "previous": carry["w"]}, {"vector": noisy}
        zbar = data["zbar"]
        # A forbidden edge must not pass its momentum to the others.
        w, previous = (np.where(np.isfinite(zbar), carry[name], 0.0) for name in ("w", "previous"))
        for _ in range(self.local_steps):
            w, previous = self._step(zbar, w, previous, anchor.value, pull.value, beta), w
        facts = np.full((len(w), FACTS), np.inf)
        facts[:, UPPER] = objective(zbar, w, self.alpha, beta, self.zeta)
        carry = {"w": w, "previous": previous, "smoothness": roughness(zbar, w)}
        return carry, {"vector": gate.reveal(w, "vector", OPEN), "facts": gate.reveal(facts, "facts", OPEN)}

    def _step(self, zbar: Array, w: Array, previous: Array, anchor: Array, pull: Array, beta: float) -> Array:
        ahead = extrapolate(w, previous, self.momentum)  # S3 (19), S0 (10)
        slope = gradient(zbar, ahead, self.alpha, beta, self.zeta)
        if self.gradient_clip is not None:
            # At a degree of exactly 0 the slope has no value; 0 is as good, and bounded.
            slope = clip_rows(np.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0), self.gradient_clip)
        return np.maximum(
            pulled_step(ahead, slope, anchor, pull, self.step, self.implicit), 0.0
        )  # (20)-(21), (11)-(12)

    def _private_steps(
        self, task: SmoothGraph, carry: Carry, down: Message, data: Private, gate: Outlet, beta: float
    ) -> Released:
        anchor, pull = down["consensus"], down["pull"]
        if self.local_steps == 1:  # S0 (21)-(23), Corollary 1
            assert task.statistic == "clipped-distances", "Corollary 1 releases clipped distances"
            noisy = gate.release(task.bounded(data), "gradient")
            return noisy.map(self._step, carry["w"], carry["previous"], anchor, pull, beta)
        assert self.gradient_clip is not None, "Theorem 2 needs bounded gradients"
        w = previous = carry["w"].value
        for _ in range(self.local_steps):
            w, previous = self._step(data["zbar"], w, previous, anchor.value, pull.value, beta), w
        shrink = 1.0 / (1.0 + self.step * pull.value) if self.implicit else 1.0 - self.step * pull.value
        size = self.step / (1.0 + self.step * pull.value) if self.implicit else np.full_like(pull.value, self.step)
        growth = np.array([sensitivity_growth(self.local_steps, self.momentum, float(s)) for s in shrink])
        bounded = Bounded(
            w,
            2.0 * size * self.gradient_clip * growth,  # S0 Lemma 3
            PROTECTED_UNIT,
            "Theorem 2 of S0: steps with gradients clipped to B from equal starts, 2 eta' B C_s",
        )
        return gate.release(bounded, "steps").map(_project)

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        if self.release is not None:
            return {"graph": carry["w"]}
        return {
            "graph": gate.reveal(carry["w"], "graph", OPEN),
            "smoothness": gate.reveal(carry["smoothness"], "smoothness", OPEN),
        }

    # ---- at the server ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        fresh = {"vectors": servers["vectors"].copy(), "facts": np.full_like(servers["facts"], np.nan)}
        fresh["present"] = np.zeros(len(topo.silos), bool)
        fresh["present"][up.rows] = True
        for field, name in (("vectors", "vector"), ("facts", "facts")):
            if name in up.values:
                fresh[field][up.rows] = up.values[name]
        return {**servers, **fresh}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        if servers["knobs"][BETA] == 0.0:
            beta, lam, nu = choose(servers["facts"][servers["present"]], len(topo.silos), self.lam, self.nu)
            servers = {**servers, "knobs": np.array([0.0, beta, lam, nu])}
            return servers, self._answer(servers, topo)
        w, gamma, lam = servers["vectors"], servers["gamma"], servers["knobs"][LAM]
        total = gamma.sum()
        v = soft_threshold((gamma[:, None] * w).sum(0) / total, lam / (total * self._rho(servers)))  # S3 (24), S0 (15)
        if self.adaptive:
            distance = np.sqrt(((w - v) ** 2).sum(-1))
            gamma = 1.0 / ((distance if self.form == "S3" else 2.0 * distance) + GAMMA_FLOOR)  # S3 (25), S0 (16)
        servers = {**servers, "consensus": v, "gamma": gamma, "round": servers["round"] + 1}
        return self._watched(servers), self._answer(servers, topo)

    def _watched(self, servers: Carry) -> Carry:
        """Stop if the objective rises far above its best value, or the weights grow without bound."""
        value, best = self._objective(servers), float(servers["best"])
        runaway = value is not None and value > best + 10.0 * max(abs(best), self.alpha * self.nodes)
        if runaway or not (np.abs(servers["vectors"]) < _RUNAWAY).all():
            raise SolverError(
                f"Algorithm 1, round {int(servers['round'])}",
                "a falling objective",
                "it diverged",
                "Take a smaller step, the implicit coupling, or the exact solver.",
            )
        return {**servers, "best": np.float64(best if value is None else min(best, value))}

    def done(self, servers: Carry) -> bool:
        return bool(servers["round"] >= self.rounds)

    def trace(self, servers: Carry) -> Json | None:
        value = self._objective(servers)
        return None if value is None else {"objective": value, "gap": None}

    def _objective(self, servers: Carry) -> float | None:
        """(8), where every silo sent its part."""
        if self.release is not None or not np.isfinite(servers["facts"][:, UPPER]).all():
            return None
        w, v, (_, _, lam, nu) = servers["vectors"], servers["consensus"], servers["knobs"]
        distance = np.sqrt(((w - v) ** 2).sum(-1))
        return float(servers["facts"][:, UPPER].sum() + lam * nu * distance.sum() + lam * v.sum())

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Give a site that is gone when graphs are handed over the consensus; its smoothness there is unknown."""
        silos = len(topo.silos)
        return {"graph": np.tile(servers["consensus"], (silos, 1)), "smoothness": np.full(silos, np.nan)}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        _, beta, lam, nu = (float(x) for x in servers["knobs"])
        arrays = {**delivered, "consensus": servers["consensus"], "gamma": servers["gamma"]}
        parameters = {"alpha": self.alpha, "beta": beta, "nu": nu, "lambda": lam, "zeta": self.zeta}
        facts = {"parameters": parameters, "objective": self._objective(servers), "certified_gap": None}
        return Outcome(arrays, {**facts, "rounds": int(servers["round"])})


def _project(w: Array) -> Array:
    return np.maximum(w, 0.0)
