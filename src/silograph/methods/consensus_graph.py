"""Consensus graphs: a graph for every silo and one for all, S3 (8) and S0 (8).

    F(W) = sum_i g_i(w_i) + rho sum_i |w_i - w_con|_2 + lam |w_con|_1,    w >= 0,    rho = lam nu            (8)

`ExactConsensus` reaches the optimum of (8) with a certificate. The papers' own algorithm is in `algorithm_one`.

If sites lack nodes, P_i are the pairs with both nodes at site i. Its graph has these alone, g_i has the degrees of its
own nodes, and it is coupled to, and pays its part of lam for, the visible part of the consensus:

    F(W) = sum_i [g_i(w_i) + rho |w_i - w_con|_2,P_i + (lam / I) |w_con|_1,P_i]                                      (a)

which is (8) if nothing is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.kernels.descent import roughness
from silograph.kernels.multipliers import feasible, over
from silograph.kernels.own_nodes import OwnNodes, joined_nodes, own_of, pairs_of
from silograph.kernels.prox import soft_threshold
from silograph.kernels.spaces import AllPairs, EdgeList, Space, without_dust
from silograph.methods.base import ANYTHING, Limits, Outcome, Outlet, Plain, Private, Start, Up, everywhere
from silograph.methods.choosing import (
    EDGES,
    FACTS,
    LOG_BETA,
    LOWER,
    RESIDUAL,
    SCALE,
    SMOOTHNESS,
    UPPER,
    check_positive,
    choose,
    learn_alone,
)
from silograph.privacy.bound import clip_rows
from silograph.privacy.released import Message
from silograph.topology import Topology

OPEN = "no privacy was asked for"
TUNING_GAP = 1e-4  # close enough to the optimum of (8) to count its edges
FINE_GAP = 1e-5  # or those of the consensus, which settle later
TUNING_RANGE = math.log(10.0)  # beta may move this far from its value for silos alone
MOST_WEAKENED = 5  # how often the coupling may be quartered for a wanted degree
DEGREE_TOLERANCE = 0.02
MOST_APART = 1e4  # an edge may cost so many times more at one site than at another
CONSENSUS_TOLERANCE = 0.05
SPARSITY_RANGE = math.log(1e4)  # lam may move this far for a wanted consensus
RELAXED = 1.6  # how far beyond its own step a multiplier goes
BALANCE = 1.0  # weight of disagreement against movement when the penalty adapts; measured, and flat around it
GAMMA_FLOOR = 1e-3  # keeps (25) finite if a silo's graph equals the consensus

_ANEW = {"gap": np.float64(np.inf), "floor": np.float64(-np.inf)}  # another problem, nothing is known of it yet

# Columns that the server sends every silo, besides the consensus graph.
PENALTY, BETA, LAM, NU = range(4)


def contribution_weights(w: Array, consensus: Array) -> Array:
    return np.asarray(1.0 / (np.sqrt(((w - consensus) ** 2).sum(-1)) + GAMMA_FLOOR))  # S3 (25)


def _check_units(scale: Array) -> None:
    """Refuse signals in different units: their graphs have weights of different size, and nothing to agree on."""
    if scale.max() > MOST_APART * scale.min():
        raise InputError(
            "sites",
            "signals in the same units",
            f"what an edge costs differs by a factor of {scale.max() / scale.min():.1g} between them",
            f"Bring the tables to the same units, or take {wording.option('scale', 'own')}.",
        )


@dataclass(frozen=True)
class ExactConsensus(Plain):
    """The optimum of (8), by consensus ADMM over exact local solves.

    Each silo keeps a copy v_i of the consensus. Given the server's v it solves, with its multiplier y_i,

        w_i, v_i = argmin g_i(w) + rho |w - v_i| + (penalty/2) |v_i - t|^2,      t = v - y_i / penalty

    and sends one vector, its pull m_i = penalty (v_i - t), |m_i| <= rho. Their sum moves the consensus:

        v <- max(0, v + (sum_i m_i - lam) / (I penalty))

    Pulls with |m_i| <= rho and sum_i m_i <= lam are feasible multipliers of (8), and bound the optimum from below. An
    excess of the sum is divided among the silos so that no pull becomes longer than necessary (`multipliers`).
    Parameters left None are chosen after the first round: beta for the wanted mean degree, lam and nu by `choose`.
    """

    nodes: int
    alpha: float = 1.0
    beta: float | None = None
    nu: float | None = None
    lam: float | None = None
    zeta: float = 0.0
    degree: float | None = None
    consensus_edges: float | None = None
    tolerance: float = 1e-7
    rounds: int = 2000
    candidates: EdgeList | None = None  # the only edges there can be
    lacks: tuple[tuple[int, ...], ...] = ()  # the nodes that each silo lacks; empty if all have all of them

    @property
    def space(self) -> Space:
        return AllPairs(self.nodes) if self.candidates is None else self.candidates

    @cached_property
    def _own(self) -> BoolArray | None:
        """The nodes of each silo, (I, d), if some lack some."""
        return own_of(self.lacks, self.nodes) if any(self.lacks) else None

    @cached_property
    def _seen(self) -> BoolArray | None:
        """P_i of (a), (I, p)."""
        return None if self._own is None else pairs_of(self._own, self.space)

    def _space_of(self, zbar: Array) -> Space:
        """The space of the nodes that the silos in a call have."""
        return self.space if self._own is None else OwnNodes(self.space, joined_nodes(self.space, zbar))

    def __post_init__(self) -> None:
        check_positive("ExactConsensus", alpha=self.alpha, beta=self.beta, nu=self.nu, lam=self.lam, degree=self.degree)

    def start(self, topo: Topology) -> Start:
        silos, edges = len(topo.silos), self.space.size
        vectors = {name: np.zeros((silos, edges)) for name in ("w", "graph", "own", "pull", "seen")}
        carry: Carry = {**vectors, "q": np.zeros((silos, self.nodes))}
        carry |= {name: np.zeros(silos) for name in ("gamma", "penalty", "beta", "smoothness")}
        servers: Carry = {
            "consensus": np.zeros(edges),
            "certified": np.zeros(edges),
            "vectors": np.zeros((silos, edges)),
            "anchors": np.zeros((silos, edges)),
            "knobs": np.zeros(4),
            "shares": np.zeros((silos, 2)),
            "facts": np.full((silos, FACTS), np.inf),
            "present": np.zeros(silos, bool),
            "steady": np.bool_(False),
            "moved": np.float64(0.0),
            "bracket": np.zeros(2),
            "sparser": np.array([-np.inf, np.inf]),
            "alone": np.float64(0.0),
            "sparsity": np.float64(0.0),
            "weakened": np.int64(0),
            "tuned": np.bool_(self.degree is None and self.consensus_edges is None),
            "floor": np.float64(-np.inf),
            "objective": np.float64(np.inf),
            "gap": np.float64(np.inf),
            "round": np.int64(0),
        }
        return Start(carry, servers, self._answer(servers, topo))

    def _answer(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        return {name: everywhere(servers[name], topo) for name in ("consensus", "knobs")} | {
            "shares": servers["shares"]
        }

    def limits(self) -> dict[str, Limits]:
        return dict.fromkeys(("consensus", "knobs", "shares"), ANYTHING)

    # ---- in the silo ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        if down["knobs"].value[0, PENALTY] == 0.0:
            return self._alone(carry, data, gate)
        zbar, v = data["zbar"], down["consensus"].value
        space, kept = self._space_of(zbar), without_dust(self.space, v)
        if isinstance(space, OwnNodes):
            here = pairs_of(space.own, space)
            v, kept = np.where(here, v, 0.0), np.where(here, kept, 0.0)
        penalty, beta, lam, nu = (float(x) for x in down["knobs"].value[0])
        rho = lam * nu
        first = carry["penalty"][:, None] == 0.0  # a silo that joins late has no multiplier yet
        y = np.where(first, 0.0, carry["pull"] + carry["penalty"][:, None] * (carry["seen"] - v))
        facts, graph = self._facts(space, carry, zbar, v, kept, down["shares"].value, beta, rho)
        t = v - y / penalty
        w, q, gamma = space.huber_solve(zbar, t, rho, penalty, self.alpha, beta, self.zeta, carry["q"], carry["gamma"])
        own = clip_rows(gamma[:, None] * (w - t), rho)
        carry = {
            "w": w,
            "graph": graph,
            "own": t + own / penalty,
            "pull": y + RELAXED * (own - y),
            "seen": v,
            "q": q,
            "gamma": gamma,
            "penalty": np.full(len(w), penalty),
            "beta": np.full(len(w), beta),
            "smoothness": facts[:, SMOOTHNESS],
        }
        return carry, {
            "vector": gate.reveal(carry["pull"], "vector", OPEN),
            "facts": gate.reveal(facts, "facts", OPEN),
        }

    def _alone(self, carry: Carry, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        """Play the first round: each silo's own graph, and what the server needs to choose beta, lam and the
        penalty."""
        zbar = data["zbar"]
        solution, facts = learn_alone(self._space_of(zbar), zbar, self.alpha, self.beta, self.zeta, self.degree)
        carry = {**carry, "w": solution.w, "q": solution.q, "graph": solution.w, "beta": np.exp(facts[:, LOG_BETA])}
        carry["smoothness"] = roughness(zbar, solution.w)
        return carry, {
            "vector": gate.reveal(solution.w, "vector", OPEN),
            "facts": gate.reveal(facts, "facts", OPEN),
        }

    def _facts(
        self, space: Space, carry: Carry, zbar: Array, v: Array, kept: Array, shares: Array, beta: float, rho: float
    ) -> tuple[Array, Array]:
        """Upper and lower bounds of this silo's part of (8) at its last pull and the resulting consensus v; `kept` is
        the part of v that is more than dust."""
        pull, penalty = carry["pull"], carry["penalty"][:, None]
        w = without_dust(space, carry["w"])
        distance = np.sqrt(((w - kept) ** 2).sum(-1))
        apart = space.objective(zbar, w, self.alpha, beta, self.zeta) + rho * distance
        merged = space.objective(zbar, kept, self.alpha, beta, self.zeta)
        graph = np.where((merged < apart)[:, None], kept, w)
        multiplier = (pull - shares[:, :1] * over(v, carry["seen"], penalty)) * shares[:, 1:]
        facts = np.full((len(w), FACTS), np.inf)
        facts[:, UPPER] = np.minimum(apart, merged)
        facts[:, LOWER] = space.lower_bound(zbar + multiplier, carry["q"], self.alpha, beta, self.zeta)
        facts[:, RESIDUAL] = ((carry["own"] - v) ** 2).sum(-1)
        facts[:, EDGES] = (graph > 0.0).sum(-1)
        facts[:, SMOOTHNESS] = roughness(zbar, graph)
        late = carry["penalty"] == 0.0
        facts[late, LOWER] = -np.inf
        return facts, graph

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        told = {"graph": carry["graph"], "smoothness": carry["smoothness"]}
        if "again" in data:
            told["confidence"] = self._confidence(carry, data["again"])
        if "reach" in data and self.candidates is not None:
            proven = map(self.candidates.proven, carry["q"], data["reach"])
            told["proven"] = np.array(list(proven))
        return {name: gate.reveal(value, name, OPEN) for name, value in told.items()}

    def _confidence(self, carry: Carry, again: Array) -> Array:
        """How often each edge occurs in graphs learned from resampled signals, with the pull of the others fixed.

        w_i minimises g_i(w) + m_i . w, so that the same signals would give the same graph.
        """
        confidence = np.empty_like(carry["pull"])
        for i, (costs, pull) in enumerate(zip(again, carry["pull"], strict=True)):
            q = np.tile(carry["q"][i], (len(costs), 1))
            beta = float(carry["beta"][i])
            solution = self._space_of(costs).solve(costs + pull, self.alpha, beta, self.zeta, q, TUNING_GAP)
            confidence[i] = (solution.w > 0.0).mean(0)
        return np.asarray(confidence)

    # ---- at the server ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        vectors, anchors = servers["vectors"].copy(), servers["anchors"].copy()
        present = np.zeros(len(topo.silos), bool)
        present[up.rows] = True
        facts = np.full_like(servers["facts"], np.nan)
        vectors[up.rows], facts[up.rows] = up.values["vector"], up.values["facts"]
        anchors[up.rows] = servers["consensus"]
        # A certificate needs every silo's bounds, all about the same pair of rounds.
        steady = np.bool_(present.all() and servers["present"].all())
        fresh = {"vectors": vectors, "anchors": anchors, "facts": facts, "present": present, "steady": steady}
        return {**servers, **fresh, "round": servers["round"] + 1}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        if servers["knobs"][PENALTY] == 0.0:
            servers = self._choose(servers)
        else:
            servers = self._certify(servers)
            if not self.done(servers):
                servers = self._move(servers)
        return servers, self._answer(servers, topo)

    def _choose(self, servers: Carry) -> Carry:
        """Choose after the first round: beta, lam, and a penalty that fits how far apart the silos' own graphs are."""
        present, facts = servers["present"], servers["facts"]
        _check_units(facts[present, SCALE])
        silos, vectors = len(present), servers["vectors"][present]
        mean = self._mean(vectors, present)
        beta, lam, nu = choose(facts[present], silos, self.lam, self.nu)
        apart = np.sqrt(((vectors - self._visible(mean, present)) ** 2).sum(-1)).mean()
        typical = max(apart, 0.05 * math.sqrt((mean**2).sum())) or 1.0  # all graphs may be empty if zeta is large
        knobs = np.array([2.0 * lam * nu / typical, beta, lam, nu])
        alone = np.float64(math.log(beta))
        bracket = alone + np.array([-TUNING_RANGE, TUNING_RANGE])
        still = {
            "vectors": np.zeros_like(servers["vectors"]),
            "anchors": np.broadcast_to(mean, servers["anchors"].shape),
        }
        return {
            **servers,
            **still,
            "knobs": knobs,
            "bracket": bracket,
            "alone": alone,
            "sparsity": np.float64(math.log(lam)),
            "consensus": mean,
            "certified": mean,
        }

    def _certify(self, servers: Carry) -> Carry:
        """Compute objective and relative gap of (8) at the silos' last graphs and the consensus they were measured
        against."""
        v, facts = without_dust(self.space, servers["consensus"]), servers["facts"]
        lam = servers["knobs"][LAM]
        gap = total = np.float64(np.inf)
        floor = servers["floor"]
        nodes = self.nodes * len(facts) if self._own is None else int(self._own.sum())
        scale = self.alpha * nodes  # (8) without the part that depends on units: z.w + 4 beta |w|^2 = alpha d
        if servers["steady"]:
            total = facts[:, UPPER].sum() + lam * self._paid(v).sum()
            floor = max(floor, facts[:, LOWER].sum())  # every round's bound is for the same problem
            gap = (total - floor) / min(max(abs(total), self.alpha), scale)
            # Below 0 by more than rounding a certificate contradicts itself and certifies nothing.
            gap = np.float64(np.inf) if gap < -1e-12 else max(gap, np.float64(0.0))
        servers = {**servers, "objective": total, "floor": floor, "gap": gap, "certified": v}
        close = scale * (TUNING_GAP if self.consensus_edges is None else FINE_GAP)
        return self._tune(servers) if not servers["tuned"] and total - floor <= close else servers

    def _tune(self, servers: Carry) -> Carry:
        """Search beta for the wanted mean degree of the silos' graphs, then lam for the wanted edges of the consensus,
        until both are as wanted; each answer is measured on (8) itself."""
        if self.degree is None:
            return self._tune_consensus(servers)
        return self._tune_degree(servers, self.degree)

    def _tune_consensus(self, servers: Carry) -> Carry:
        """A larger lam with the same coupling rho makes the consensus sparser, and changes silos' graphs only through
        it."""
        if self.consensus_edges is None:
            return {**servers, "tuned": np.bool_(True)}
        knobs, (low, high) = servers["knobs"].copy(), servers["sparser"]
        edges, at = np.count_nonzero(servers["certified"]), math.log(knobs[LAM])
        low, high = (at, high) if edges > self.consensus_edges else (low, at)
        close = abs(edges - self.consensus_edges) <= max(0.5, CONSENSUS_TOLERANCE * self.consensus_edges)
        if close or high - low <= 1e-2 or abs(at - servers["sparsity"]) > SPARSITY_RANGE:
            return {**servers, "tuned": np.bool_(True)}
        rho, fresh = knobs[LAM] * knobs[NU], 0.5 * (low + high)
        if math.isinf(high - low):
            fresh = at + math.copysign(math.log(2.0), edges - self.consensus_edges)
        knobs[LAM], knobs[NU] = math.exp(fresh), rho / math.exp(fresh)
        near = math.log(knobs[BETA]) + np.array([-TUNING_RANGE, TUNING_RANGE])
        return {**servers, "knobs": knobs, "bracket": near, "sparser": np.array([low, high]), **_ANEW}

    def _tune_degree(self, servers: Carry, degree: float) -> Carry:
        """The coupling itself adds edges. If no beta near the silos' own is sparse enough and lam was not given, the
        coupling is weakened and the search starts again."""
        knobs, bracket = servers["knobs"].copy(), servers["bracket"].copy()
        edges = servers["facts"][:, EDGES]
        if self._own is not None:  # as if each saw all pairs
            edges = edges / OwnNodes(self.space, self._own).share
        now = 2.0 * max(edges.mean(), 0.1) / self.nodes  # graphs may be empty
        at, alone = math.log(knobs[BETA]), servers["alone"]
        bracket[0 if now < degree else 1] = at
        low, high = bracket
        close = abs(now - degree) <= DEGREE_TOLERANCE * degree
        stuck = high - low <= 1e-2
        if stuck and not close and now > degree and self.lam is None and servers["weakened"] < MOST_WEAKENED:
            knobs[LAM], knobs[PENALTY], knobs[BETA] = 0.25 * knobs[LAM], 0.25 * knobs[PENALTY], math.exp(alone)
            bracket = alone + np.array([-TUNING_RANGE, TUNING_RANGE])
            fresh = {"weakened": servers["weakened"] + 1, "sparser": np.array([-np.inf, np.inf]), **_ANEW}
            return {**servers, **fresh, "knobs": knobs, "bracket": bracket}
        if close or stuck:
            return self._tune_consensus({**servers, "bracket": bracket})
        guess = at + 1.5 * math.log(degree / now)
        margin = 0.1 * (high - low)
        knobs[BETA] = math.exp(guess if low + margin < guess < high - margin else 0.5 * (low + high))
        return {**servers, "knobs": knobs, "bracket": bracket, **_ANEW}

    def _move(self, servers: Carry) -> Carry:
        """v <- max(0, mean_i(anchor_i + m_i / penalty) - lam / (I penalty)), then balance the residuals."""
        v, knobs, silos = servers["consensus"], servers["knobs"].copy(), len(servers["vectors"])
        penalty = knobs[PENALTY]
        mean = self._mean(servers["anchors"] + servers["vectors"] / penalty)
        fresh = soft_threshold(mean, knobs[LAM] / (silos * penalty))
        rho = knobs[LAM] * knobs[NU]
        shares = feasible(servers["vectors"], over(fresh, v, penalty), knobs[LAM], rho, self._seen)
        # Both residuals are relative to the values they belong to, so that units do not matter.
        moved = penalty * math.sqrt(((fresh - v) ** 2).sum()) / rho
        size = math.sqrt(silos * self._paid(fresh**2).sum())
        apart = BALANCE * math.sqrt(np.nansum(servers["facts"][:, RESIDUAL])) / max(size, 1e-300)
        if math.isfinite(apart) and servers["moved"] > 0.0:
            if apart > 1.5 * servers["moved"]:
                knobs[PENALTY] *= 1.2
            elif servers["moved"] > 1.5 * apart:
                knobs[PENALTY] /= 1.2
        return {**servers, "consensus": fresh, "knobs": knobs, "shares": shares, "moved": np.float64(moved)}

    def _mean(self, rows: Array, of: BoolArray | slice = slice(None)) -> Array:
        """Mean over the silos that can see a pair; 0 if none can."""
        if self._seen is None:
            return np.asarray(rows.mean(0))
        seen = self._seen[of]
        return np.asarray((rows * seen).sum(0) / np.maximum(seen.sum(0), 1))

    def _visible(self, v: Array, of: BoolArray | slice = slice(None)) -> Array:
        """What each silo can see of a consensus, (I, p); the same for all if all have all nodes."""
        return v if self._seen is None else np.where(self._seen[of], v, 0.0)

    def _paid(self, v: Array) -> Array:
        """The part of lam paid for every pair: by the share of silos that can see it, (a)."""
        return v if self._seen is None else v * self._seen.mean(0)

    def done(self, servers: Carry) -> bool:
        return bool(servers["round"] >= self.rounds or (servers["tuned"] and servers["gap"] <= self.tolerance))

    def trace(self, servers: Carry) -> Json | None:
        if not math.isfinite(servers["gap"]):
            return None
        # During the search for beta, objectives belong to different problems and are no single curve.
        return {"objective": float(servers["objective"]) if servers["tuned"] else None, "gap": float(servers["gap"])}

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Give a site that is gone when graphs are handed over the consensus; its smoothness there is unknown."""
        silos = len(topo.silos)
        graph = np.broadcast_to(self._visible(servers["certified"]), (silos, self.space.size)).copy()
        return {"graph": graph, "smoothness": np.full(silos, np.nan)}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        _, beta, lam, nu = (float(x) for x in servers["knobs"])
        consensus = servers["certified"]
        weights = contribution_weights(delivered["graph"], self._visible(consensus))
        gone = np.isnan(delivered["smoothness"])  # the consensus replaces its graph, and follows nobody
        arrays = {**delivered, "consensus": consensus, "gamma": np.where(gone, 0.0, weights)}
        parameters = {"alpha": self.alpha, "beta": beta, "nu": nu, "lambda": lam, "zeta": self.zeta}
        facts = {"parameters": parameters, "objective": float(servers["objective"])}
        return Outcome(arrays, {**facts, "certified_gap": float(servers["gap"]), "rounds": int(servers["round"])})
