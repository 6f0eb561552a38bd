"""Private graphs by one release: each silo releases its clipped second moment once, the server learns from it.

Everything after the release is post-processing, so the solver, its rounds and every choice of parameters are free. The
server pools the silos' moments as far as their noise requires, undoes noise and clip, states the effective rows of the
result, and learns graphs from it: as the most likely precision of Gaussian signals, or by (8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.kernels import log_det
from silograph.kernels.descent import roughness
from silograph.kernels.edges import moment_distances, node_count
from silograph.kernels.pooling import Pooled, correlated_bayes, denoise, effective_rows, empirical_bayes, undo_clip
from silograph.kernels.spaces import AllPairs
from silograph.methods.base import (
    Limits,
    Method,
    Outcome,
    Outlet,
    Plain,
    Private,
    Rows,
    Start,
    Up,
    play_at_server,
    put,
    take,
)
from silograph.methods.choosing import learn_alone
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.mechanisms import Mechanism
from silograph.privacy.released import Message
from silograph.tasks.smooth_graph import SmoothGraph, from_coordinates
from silograph.topology import Topology

# With fewer, graphs of 20 nodes are chance if silos differ; if they are alike, some would still be useful.
LEAST_EFFECTIVE_ROWS = 30.0
PATIENCE = 5  # rounds the server waits for a silo that has not released yet


@dataclass(frozen=True)
class Statistics:
    """Statistics that the server computes from the releases: zbar of the silos that were heard, and in the last row of
    their mean."""

    zbar: Array  # (I + 1, p)
    moments: Array  # (I + 1, d, d), around the mean over nodes unless `levels`
    effective_rows: Array  # (I + 1,), so many rows without noise would be as good
    share: Array  # (I,), of each silo in the mean
    pair_rows: Array | None = None  # (d, d), effective rows of every pair in the mean, if silos lack nodes
    levels: bool = False  # whether signals kept their mean over nodes


def moments_of(released: Array, task: SmoothGraph) -> Array:
    """Second moments from their coordinates, (n, size) to (n, m, m), around each silo's mean if that is known."""
    moments = from_coordinates(released)
    moments = task.around_mean(moments) if task.with_mean else moments
    if task.clip is not None:
        return moments
    # Signals were scaled to length 1, so only the shape has a meaning: let the trace be 1.
    trace = np.einsum("iaa->i", moments)[:, None, None]
    return np.asarray(moments / np.where(trace > 0.0, trace, 1.0))


def cleaned(noisy: Array, variance: Array, share: Array, task: SmoothGraph, shrink: bool = False) -> Statistics:
    """Statistics of moments with this variance per coordinate, with noise and clip undone; `shrink`: shrink eigenvalues
    even if noise does not swamp them."""
    clean = denoise(noisy, variance, shrink)
    if task.person is None:  # a person's signals are scaled by one number, which hardly distorts their moment
        clean = undo_clip(clean, task.clip)
    moments = of_signals(clean, task)
    # Noise can be larger than the trace itself, which is then meaningless.
    positive = np.einsum("iaa->i", noisy) > 0.0
    effective = np.where(positive, effective_rows(noisy, variance), 0.0)
    return Statistics(task.wall(moment_distances(moments)), moments, effective, share, levels=task.with_mean)


def of_signals(moments: Array, task: SmoothGraph) -> Array:
    """Second moments of signals, (n, d, d), from those of their coordinates."""
    return np.asarray(np.einsum("ak,ikl,bl->iab", task.back, moments, task.back, optimize=True))


def refuse(released: Array, effective: float, task: SmoothGraph) -> NoReturn:
    """Refuse to learn a graph from noise, and say what would help."""
    trace = np.einsum("iaa->i", moments_of(released, task)).max()
    why, todo = "a graph of them would be chance", "Use more records or a larger epsilon."
    if task.clip is not None and trace < 0.1 * task.clip**2:
        why, todo = "the clip is far longer than the signals", "Take a clip near the signals' length, or none."
    raise InputError(
        "released statistics",
        f"at least {LEAST_EFFECTIVE_ROWS:.0f} effective rows after the noise",
        f"there are at most {effective:.2g}: {why}",
        f"This budget is spent. {todo}",
    )


@dataclass(frozen=True)
class Graphs:
    """Graphs learned from statistics; rows that were not drawn are empty."""

    w: Array  # (I + 1, p), the consensus last
    gamma: Array  # (I,), each silo's weight in the consensus
    smoothness: Array  # (I,)
    agreement: Array  # (I + 1,), share of edges that the papers' model would also choose; NaN if not computed
    facts: Json
    trace: list[Json]
    signs: Array | None = None  # (I + 1, p), if relations have signs


@runtime_checkable
class Learner(Protocol):
    """Learns graphs from statistics, one by one."""

    def learn(self, known: Statistics, drawn: BoolArray) -> Graphs: ...


@dataclass(frozen=True)
class LikelyGraphs:
    """The graph under which Gaussian signals with these statistics are the most likely, with a ridge for their noise.

    `degree` sets the number of edges; None: Schwarz' criterion does, at the effective rows.
    """

    degree: float | None = None

    def learn(self, known: Statistics, drawn: BoolArray) -> Graphs:
        z, effective = known.zbar[drawn], known.effective_rows[drawn]
        mean = np.array([row[np.isfinite(row)].mean() for row in z])
        ridge = (node_count(z.shape[-1]) - 1.0) * mean**2 / effective
        first = log_det.solve(z, ridge)
        chosen = [self._edges(z[i], float(ridge[i]), first.w[i], float(effective[i])) for i in range(len(z))]
        w, agreement = np.zeros_like(known.zbar), np.full(len(drawn), np.nan)
        w[drawn] = [likely.w[0] for likely in chosen]
        agreement[drawn] = [_agreement(z[i], chosen[i].w[0]) for i in range(len(z))]
        facts = {
            "parameters": {"ridge": float(ridge.mean())},
            "objective": float(sum(likely.objective[0] for likely in chosen)),
            "certified_gap": float(max(first.gap.max(), *(likely.gap[0] for likely in chosen))),
            "rounds": 1,
            "learner": "log-det",
        }
        return Graphs(w, known.share, roughness(known.zbar, w)[:-1], agreement, facts, [])

    def _edges(self, z: Array, ridge: float, w: Array, effective: float) -> log_det.Likely:
        if self.degree is None:
            return log_det.most_likely(z, ridge, w, effective)
        return log_det.strongest(z, ridge, w, round(0.5 * self.degree * node_count(len(z))))


def _agreement(z: Array, w: Array) -> float:
    """The share of the edges of w that are also among as many heaviest ones of the papers' model (7)."""
    edges = np.count_nonzero(w)
    if not edges:
        return 1.0
    nodes = node_count(len(z))
    other = learn_alone(AllPairs(nodes), z[None], 1.0, None, 0.0, 2.0 * edges / nodes)[0].w[0]
    heaviest = np.argsort(-other, kind="stable")[:edges]
    return float((w[heaviest] > 0.0).mean())


@dataclass(frozen=True)
class Coupled:
    """The graphs of (8), by a method that runs at the server among the silos whose graphs are drawn."""

    method: Method

    def learn(self, known: Statistics, drawn: BoolArray) -> Graphs:
        here = np.flatnonzero(drawn[:-1])
        topo, silos = Topology(tuple(f"{k:09d}" for k in here)), len(drawn) - 1
        found, trace = play_at_server(self.method, topo, {"zbar": known.zbar[here]})
        w, gamma, smoothness = np.zeros_like(known.zbar), np.zeros(silos), np.full(silos, np.nan)
        w[here], w[-1] = found.arrays["graph"], found.arrays["consensus"]
        gamma[here], smoothness[here] = found.arrays["gamma"], found.arrays["smoothness"]
        return Graphs(w, gamma, smoothness, np.full(silos + 1, np.nan), found.facts, trace)


@dataclass(frozen=True)
class ReleasedConsensus(Plain):
    """`inner` learns at the server, from the releases of `task` under `mechanism`: likely graphs, or (8).

    `counts` (records per silo, in the topology's order) are public: neighbours replace a record, they do not add one.
    """

    task: SmoothGraph
    inner: Method | Learner
    mechanism: Mechanism
    counts: tuple[int, ...]
    shrink: bool = False  # eigenvalues, even if noise does not swamp them

    @property
    def _size(self) -> int:
        return self.task.moment_size

    def start(self, topo: Topology) -> Start:
        silos = len(topo.silos)
        servers: Carry = {
            "moments": np.zeros((silos, self._size)),
            "heard": np.zeros(silos, bool),
            "round": np.int64(0),
            "inner": None,
        }
        return Start({"sent": np.zeros(silos, bool)}, servers, {}, {"moment": np.zeros((silos, self._size))})

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        """Release once; a silo that is asked again sends the same values again."""
        fresh = np.flatnonzero(~carry["sent"])
        if fresh.size:
            released = gate.rows(fresh).release(self.task.bounded(take(data, fresh)), "moment")
            carry = {
                **put({"moment": carry["moment"]}, fresh, {"moment": released}),
                "sent": np.ones_like(carry["sent"]),
            }
        return carry, {"moment": carry["moment"]}

    def limits(self) -> dict[str, Limits]:
        return {}

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        moments, heard = servers["moments"].copy(), servers["heard"].copy()
        moments[up.rows], heard[up.rows] = up.values["moment"], True
        return {**servers, "moments": moments, "heard": heard, "round": servers["round"] + 1}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        heard = servers["heard"]
        if heard.all() or servers["round"] >= PATIENCE:
            servers = {**servers, "inner": self._learn(servers, topo)}
        return servers, {}

    def statistics(self, moments: Array, counts: Array) -> Statistics:
        """Compute statistics from the released moments and public numbers alone: pool, undo noise and clip, convert."""
        pooled = self._pooled(moments_of(moments, self.task), counts)
        noisy = np.concatenate([pooled.moments, pooled.mean[None]])
        variance = np.append(pooled.variance, pooled.mean_variance)
        return cleaned(noisy, variance, pooled.share, self.task, self.shrink)

    def _pooled(self, released: Array, counts: Array) -> Pooled:
        """Pool by the known noise of every silo."""
        sensitivity = self.task.longest_term / self.task.kept / counts
        if isinstance(self.mechanism, CorrelatedGaussian):
            return correlated_bayes(released, self.mechanism.covariance(sensitivity, self._size), counts)
        noise = np.array([self.mechanism.deviation(float(l2), self._size) for l2 in sensitivity])
        return empirical_bayes(released, noise, counts)

    def known(self, servers: Carry, heard: Rows) -> Statistics:
        """The statistics of the silos that were heard."""
        return self.statistics(servers["moments"][heard], np.asarray(self.counts, dtype=float)[heard])

    def learned(self, known: Statistics, drawn: BoolArray, heard: Rows) -> Graphs:
        return (self.inner if isinstance(self.inner, Learner) else Coupled(self.inner)).learn(known, drawn)

    def seen_of(self, consensus: Array, silos: int) -> Array:
        """What each silo could have seen of the consensus."""
        return np.tile(consensus, (silos, 1))

    def _learn(self, servers: Carry, topo: Topology) -> Json:
        """Learn from the releases; a silo that never took part gets the consensus graph.

        A graph with fewer effective rows than any method needs would be noise: it stays empty.
        """
        heard = np.flatnonzero(servers["heard"])
        known = self.known(servers, heard)
        drawn = known.effective_rows >= LEAST_EFFECTIVE_ROWS
        if not drawn[:-1].any():
            refuse(servers["moments"][heard], float(known.effective_rows[:-1].max()), self.task)
        graphs = self.learned(known, drawn, heard)
        consensus, silos = graphs.w[-1], len(topo.silos)
        # A silo that never took part has the numbers of the consensus.
        everyone = np.append(heard, silos)
        arrays = {"graph": self.seen_of(consensus, silos), "consensus": consensus}
        arrays["graph"][heard] = graphs.w[:-1]
        if graphs.signs is not None:
            arrays["signs"], arrays["consensus_signs"] = self.seen_of(graphs.signs[-1], silos), graphs.signs[-1]
            arrays["signs"][heard] = graphs.signs[:-1]
        for name, of_heard, absent in (("gamma", graphs.gamma, 0.0), ("smoothness", graphs.smoothness, np.nan)):
            arrays[name] = np.full(silos, absent)
            arrays[name][heard] = of_heard
        for name, of_all in (("effective_rows", known.effective_rows), ("agreement", graphs.agreement)):
            arrays[name] = np.full(silos + 1, of_all[-1])
            arrays[name][everyone] = of_all
        return {"arrays": arrays, "facts": graphs.facts, "trace": graphs.trace}

    def done(self, servers: Carry) -> bool:
        return servers["inner"] is not None

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        inner = servers["inner"]
        silent = [topo.silos[k] for k in np.flatnonzero(~servers["heard"])]
        return Outcome(inner["arrays"], {**inner["facts"], "trace": inner["trace"], "silent": silent})
