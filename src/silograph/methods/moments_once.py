"""Graphs of all sites from one exchange: every site reveals its second moments once, the server learns from them.

The papers' rounds reveal a site's mean squared differences anyway. Sites that do not want to reveal their moments are
added up under masks instead: then there is a consensus, exact and without noise, and no graph of any site.
`joint_graphs` explains what is learned from moments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.kernels.edges import edge_count, pairs
from silograph.kernels.levels import sums_to_little, sums_to_nothing, with_level, with_mean
from silograph.kernels.masks import definite, mean_rows, pooled, where_missing
from silograph.methods.base import Limits, Outcome, Outlet, Private, Start, Up, put, take
from silograph.methods.edge_evidence import Device
from silograph.methods.joint_graphs import Criterion, JointGraphs, learn_graphs, strengths_of
from silograph.methods.private_graph import PATIENCE
from silograph.methods.relation_signs import has_negative
from silograph.methods.summed_graph import AddedUp
from silograph.privacy.bound import Bounded
from silograph.privacy.released import Message
from silograph.tasks.smooth_graph import PROTECTED_UNIT
from silograph.topology import Topology

FOLDS = 5  # parts of a site's rows: they show the noise of rows that depend on each other
LEAST_ROWS = 3  # of a site: with two rows all correlations are perfect
_MOST_SENT = 9_000_000  # bytes a site sends; large graphs get fewer parts
WHY = "no privacy was asked for: second moments of the site's rows, exact"
NO_LEVEL = (
    "rows have no common level (they are centred, or sum to a constant), so only differences between nodes are learned"
)
_MOST_NODES_LAPLACIAN = 50  # beyond, it was not tested against known truths
_ROUNDING = 1e-8  # how far below 0 rounding takes an eigenvalue of correlations
_SCORES = {"expected_F": "expected F-score", "ebic": "extended BIC", "held-out": "held-out log-likelihood"}


def parts(nodes: int, counts: Sequence[int]) -> int:
    """The number of parts of its rows for which a site sends moments: as many as its rows and the bytes allow."""
    return max(1, min(FOLDS, min(counts) // 2, _MOST_SENT // (4 * nodes * (nodes + 1))))


@dataclass(frozen=True)
class JointLearner:
    """Learns graphs from moments at the server. At most one of `edges`, `degree` and `density` sets the number of
    edges; without any the criterion chooses."""

    edges: int | None = None
    degree: float | None = None
    density: float | None = None
    consensus_edges: int | None = None
    criterion: Criterion = "expected-F"
    nonnegative: bool = False
    device: Device = "cpu"

    def learn(
        self, moments: Array, counts: Array, folds: Array | None = None, pair_rows: Array | None = None
    ) -> JointGraphs:
        pair_rows = where_missing(pair_rows, counts)
        if pair_rows is None:
            levelled, lacking = with_level(moments)
            laplacian = self._is_laplacian(np.tensordot(counts / counts.sum(), moments, 1), counts)
            own = None
        else:
            levelled, lacking = _own_levels(moments, pair_rows)
            laplacian, own = self._is_laplacian_with_gaps(moments, pair_rows), np.einsum("kaa->ka", pair_rows) > 0.0
        if laplacian:
            levelled = with_mean(moments, own)
        if folds is not None:
            folds = folds + (levelled - moments)[:, None]
        learned = learn_graphs(
            levelled,
            counts,
            folds=folds,
            edges=self.edges,
            degree=self.degree,
            density=self.density,
            consensus_edges=self.consensus_edges,
            criterion=self.criterion,
            nonnegative=self.nonnegative,
            laplacian=laplacian,
            device=self.device,
            pair_rows=pair_rows,
        )
        return replace(learned, reason=f"{learned.reason}; {NO_LEVEL}") if lacking.any() or laplacian else learned

    def _is_laplacian(self, mean: Array, counts: Array) -> bool:
        """Whether complete rows have no level common to all nodes, and relations are positive."""
        if len(mean) > _MOST_NODES_LAPLACIAN or not sums_to_nothing(mean):
            return False
        return self.nonnegative or not has_negative(mean, float(counts.sum()))

    def _is_laplacian_with_gaps(self, moments: Array, pair_rows: Array) -> bool:
        """The same, from the pooled moments of sites."""
        together = pooled(moments, pair_rows)
        if len(together) > _MOST_NODES_LAPLACIAN or not sums_to_little(together):
            return False
        deviation = np.sqrt(np.diagonal(together))
        scale = np.outer(deviation, deviation)
        levelled = with_mean((definite(together / scale) * scale)[None])[0]
        rows = float(mean_rows(pair_rows[:, *pairs(len(together))]).sum())
        return self.nonnegative or not has_negative(levelled, rows)


@dataclass(frozen=True)
class MomentsOnce:
    """The method. `counts` (rows per silo, in the topology's order) are public. `folds`: a site sends the moments of so
    many parts of its rows one by one, around its common mean. `gaps`: rows have gaps, or sites lack nodes, so a site
    also sends how many rows saw each pair of nodes."""

    nodes: int
    counts: tuple[int, ...]
    learner: JointLearner = JointLearner()
    folds: int = 1
    gaps: bool = False

    @property
    def _size(self) -> int:
        return (self.folds + self.gaps) * self.nodes * (self.nodes + 1) // 2

    def start(self, topo: Topology) -> Start:
        silos = len(topo.silos)
        servers: Carry = {
            "moments": np.zeros((silos, self._size)),
            "heard": np.zeros(silos, bool),
            "round": np.int64(0),
        }
        return Start({"sent": np.zeros(silos, bool)}, servers, {}, {"moments": np.zeros((silos, self._size))})

    def limits(self) -> dict[str, Limits]:
        return {}

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        """Reveal once; a silo that is asked again, because others are late, sends the same values again."""
        fresh = np.flatnonzero(~carry["sent"])
        if fresh.size:
            revealed = gate.rows(fresh).reveal(take(data, fresh)["moments"], "moments", WHY)
            carry = {
                **put({"moments": carry["moments"]}, fresh, {"moments": revealed}),
                "sent": np.ones_like(carry["sent"]),
            }
        return carry, {"moments": carry["moments"]}

    def asked(self, servers: Carry, topo: Topology) -> None:
        return None

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, Message]:
        moments, heard = servers["moments"].copy(), servers["heard"].copy()
        moments[up.rows], heard[up.rows] = up.values["moments"], True
        return {**servers, "moments": moments, "heard": heard, "round": servers["round"] + 1}, {}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return servers, {}

    def done(self, servers: Carry) -> bool:
        return bool(servers["heard"].all() or servers["round"] >= PATIENCE)

    def trace(self, servers: Carry) -> Json | None:
        return None

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        """Hand over nothing more: the server has everything."""
        return {}

    def moments(self, sent: Array, counts: Array) -> tuple[Array, Array]:
        """Each site's covariance (K, d, d) from its message, and those of its parts (K, F, d, d)."""
        a, b = np.triu_indices(self.nodes)
        parts = np.zeros((len(sent), self.folds, self.nodes, self.nodes))
        parts[:, :, a, b] = parts[:, :, b, a] = sent[:, : self.folds * len(a)].reshape(len(sent), self.folds, -1)
        place, share = np.arange(self.folds), counts[:, None]
        rows = share // self.folds + (place < share % self.folds)  # of a part, as `np.array_split` cuts them
        return np.einsum("kf,kfab->kab", rows / share, parts), parts

    def pair_rows(self, sent: Array, counts: Array) -> Array | None:
        """How many rows of a site saw each pair of nodes, (K, d, d)."""
        if not self.gaps:
            return None
        a, b = np.triu_indices(self.nodes)
        rows = np.zeros((len(sent), self.nodes, self.nodes))
        rows[:, a, b] = rows[:, b, a] = np.rint(sent[:, self.folds * len(a) :])
        if not (np.isfinite(rows).all() and (rows >= 0.0).all() and (rows <= counts[:, None, None]).all()):
            raise InputError("rows of pairs", "numbers up to those of a site's rows", "found others", "Ask the sites.")
        return rows

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Learn from the values received; a silo that never took part gets the consensus."""
        heard, silos = servers["heard"], len(topo.silos)
        names, counts = [topo.silos[k] for k in np.flatnonzero(heard)], np.asarray(self.counts, dtype=float)[heard]
        moments, parts = self.moments(servers["moments"][heard], counts)
        for name, moment in zip(names, moments, strict=True):
            _check_covariance(name, moment)
        rows = self.pair_rows(servers["moments"][heard], counts)
        learned = self.learner.learn(moments, counts, parts if self.folds > 1 else None, rows)
        of_consensus = _consensus(learned)
        arrays = {
            "graph": np.tile(of_consensus["consensus"], (silos, 1)),
            "signs": np.tile(of_consensus["consensus_signs"], (silos, 1)),
            "probability": np.tile(learned.shared, (silos, 1)),
            "precision": np.tile(learned.consensus, (silos, 1, 1)),
            "drawn_to_mean": np.ones(silos),
            "gamma": np.where(heard, self.counts, 0.0) / counts.sum(),
        }
        arrays["graph"][heard] = strengths_of(learned.precision) * (learned.signs != 0)
        arrays["signs"][heard] = learned.signs
        arrays["probability"][heard], arrays["precision"][heard] = learned.probability, learned.precision
        arrays["drawn_to_mean"][heard] = learned.drawn_to_mean
        arrays |= _looked_at(moments, learned, rows, heard)
        silent = [name for name, there in zip(topo.silos, heard, strict=True) if not there]
        return Outcome(arrays | of_consensus, {**_facts(learned), "silent": silent})


@dataclass(frozen=True)
class MomentsSummed(AddedUp):
    """The consensus from the secure sum of the sites' correlations, each site counting by its rows.

    Sites may measure in different units; nobody learns a site's variances.
    """

    nodes: int
    counts: tuple[int, ...]
    learner: JointLearner = JointLearner()

    @property
    def size(self) -> int:
        return edge_count(self.nodes)

    @property
    def clip(self) -> float:
        return max(self.counts) * math.sqrt(self.size)

    def summand(self, data: Private) -> Bounded:
        bound = np.full(len(data["count"]), 2.0 * self.clip)
        why = "N times correlations, each of which is between -1 and 1"
        return Bounded(data["correlations"] * data["count"][:, None], bound, PROTECTED_UNIT, why)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        rows = float(np.asarray(self.counts, dtype=float)[servers["summed"]].sum())
        a, b = pairs(self.nodes)
        pooled = np.eye(self.nodes)
        pooled[a, b] = pooled[b, a] = servers["sum"][0] / rows
        _check_covariance("the sum", pooled)
        learned = self.learner.learn(pooled[None], np.array([rows]))
        arrays = _alone(learned) | {"gamma": self.weights(servers)}
        return Outcome(arrays, {**_facts(learned), **self.who(servers, topo)})


def _check_covariance(name: str, moment: Array) -> None:
    """Check values from another organisation: they may be anything."""
    if not np.isfinite(moment).all() or not (np.diagonal(moment) > 0.0).all():
        todo = "Does a node hardly change there? Leave it out at all sites, or rescale it."
        raise InputError(f"moments of {name}", "finite numbers, and variances above 0", "found others", todo)
    own = np.sqrt(np.diagonal(moment))
    try:
        np.linalg.cholesky(moment / np.outer(own, own) + _ROUNDING * np.eye(len(own)))
    except np.linalg.LinAlgError:
        todo = "Ask that site."
        raise InputError(f"moments of {name}", "those of real rows", "no rows have such moments", todo) from None


def _looked_at(moments: Array, learned: JointGraphs, rows: Array | None, heard: BoolArray) -> dict[str, Array]:
    """Correlations and effective rows of every pair of nodes; where there are gaps, rows of every node."""
    (a, b), own = pairs(moments.shape[-1]), np.sqrt(np.einsum("kaa->ka", moments))
    found = {"correlations": moments[:, a, b] / (own[:, a] * own[:, b])}
    if rows is None:
        found["effective_pair_rows"] = np.repeat(learned.effective_rows[:, None], len(a), 1)
    else:
        seen = rows[:, a, b]
        found["effective_pair_rows"] = seen * (learned.effective_rows / mean_rows(seen))[:, None]
        found["node_rows"] = np.einsum("kaa->ka", rows)
    told = {name: np.zeros((len(heard), value.shape[1])) for name, value in found.items()}
    for name, value in found.items():
        told[name][heard] = value
    return told


def _own_levels(moments: Array, pair_rows: Array) -> tuple[Array, BoolArray]:
    """`with_level` of every site's own nodes."""
    whole, lacking = moments.copy(), np.zeros(len(moments), dtype=np.bool_)
    for k, rows in enumerate(pair_rows):
        here = np.flatnonzero(np.diagonal(rows) > 0.0)
        own = np.ix_(np.array([k]), here, here)
        whole[own], lacking[k : k + 1] = with_level(moments[own])
    return whole, lacking


def _consensus(learned: JointGraphs) -> dict[str, Array]:
    return {
        "consensus": strengths_of(learned.consensus) * (learned.consensus_signs != 0),
        "consensus_signs": learned.consensus_signs.astype(float),
        "shared": learned.shared,
        "consensus_precision": learned.consensus,
    }


def _alone(learned: JointGraphs) -> dict[str, Array]:
    """The graph of a single statistic: nothing shows which edges are shared."""
    return {
        "consensus": (strengths_of(learned.precision) * (learned.signs != 0))[0],
        "consensus_signs": learned.signs[0].astype(float),
        "shared": learned.probability[0],
        "consensus_precision": learned.precision[0],
    }


def _facts(learned: JointGraphs) -> Json:
    return {
        "parameters": learned.prior,
        "objective": None,
        "certified_gap": max(learned.first_gap, learned.gap),
        "rounds": 1,
        "trace": [],
        "reason": learned.reason,
        "path": _path(learned),
    }


def _path(learned: JointGraphs) -> Json | None:
    """The numbers of edges that were compared, as a report shows them."""
    if not learned.path:
        return None
    (criterion,) = learned.path[0].keys() - {"edges"}
    return {
        "parameter": "edges",
        "score": _SCORES.get(criterion, criterion),
        "chosen": int((learned.signs != 0).sum(1).max()),
        "values": [line["edges"] for line in learned.path],
        "scores": [line[criterion] for line in learned.path],
        "spread": [None] * len(learned.path),
    }
