"""Random effects: a client's model is its cluster's plus a deviation, shrunk by variances estimated from all records.

    y = u.w_k + noise of variance sigma^2,    w_k = beta_q + b_k,    beta_q = beta + a_q

u are the features, centred and scaled, and a constant. Deviations of clients b_k and of clusters a_q are independent,
with variances sigma^2 lambda: one for the constant, one for all slopes or one for each; beta's slopes have one too.
Only sums over clients are needed. With weights W and residuals e = y - u.beta_q (for classes those of the tangent at
the client's own model), a client has

    G = sum of W u u',   r = sum of W u e,   A = (I + G L)^-1 G,   c = (I + G L)^-1 r,   b_k = L c,   L = diag lambda

where A is the information on beta_q once b_k is integrated out, and c the gradient. Sums of A and c move beta_q by
Newton's method; clusters are to beta what clients are to beta_q, so the same code serves both. The variances follow a
fixed-point iteration (Harville 1977, Schall 1991) to a stationary point of the restricted likelihood, with two more
sums:

    lambda_j <- lambda_j (sum of c_j^2) / (sigma^2 sum of B_jj),   B = A - A M A,   M = (sum of A)^-1

So only sums leave a server, for any number of records. lambda = 0 gives one model for all, infinite lambda a model for
each. Round 0 finds centres and scales. Partial sums travel over the servers' graph until all servers have them.

By likelihood alone, one extreme record could give everybody their own slopes. So clients' slopes first have no
variance, then one for all of them, then one each (if only some differ, one for all is far too small for these), then
each client is nearly alone; the stage is kept that best predicts records left out one at a time (by the leverage h of
each, beta fixed). Tangents
for classes make variances far too small if clients have few records (also found by Breslow and Clayton 1993): so
clients' variances are doubled as long as left-out records are predicted better.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from silograph.core.schema import Count, check
from silograph.core.types import Array, Carry, Json
from silograph.methods.base import ANYTHING, SWITCH, Limits, Outcome, Outlet, Plain, Private, ServerOutlet, Start, Up
from silograph.methods.consensus_graph import OPEN
from silograph.privacy.released import Message, Sent
from silograph.tasks.linear import Linear
from silograph.topology import Topology

_FIRST = 0.1  # the first variance, relative to the noise's
_LARGEST = 1e6  # largest variance, relative to the noise's
_PRECISION = 1e-4  # of the largest move, in scaled units
_LEAST_CURVATURE = 1e-5  # of a record's chance: p (1 - p)
#: Clients have their own constants; then their own slopes too; then each slope has a variance of its own; then (except
#: for classes) clients have entirely their own models; then the best of these. For classes, variances are then doubled
#: as long as that pays; then the best is kept.
_CONSTANTS, _SLOPES, _EACH, _ALONE, _CHOSEN, _WIDER, _WIDEST, _DONE = range(8)
_DOUBLINGS = 5


@dataclass(frozen=True)
class Records:
    u: Array  # (n, most, M), scaled features
    y: Array  # (n, most), scaled answers
    weight: Array  # (n, most), 0 where there is no record
    e: Array  # (n, most), residuals from the common model

    @property
    def sums(self) -> tuple[Array, Array, Array]:
        """G, r, and the sum of weighted squares of residuals."""
        G = np.einsum("nr,nri,nrj->nij", self.weight, self.u, self.u)
        r = np.einsum("nr,nri,nr->ni", self.weight, self.u, self.e)
        return G, r, np.einsum("nr,nr,nr->n", self.weight, self.e, self.e)


@dataclass(frozen=True)
class Shrunk:
    b: Array  # (n, M), deviations
    posterior: Array  # (n, M, M), their covariance, relative to the noise's variance
    parts: Array  # (n, ...), what is added up over all


@dataclass(frozen=True)
class RandomEffects(Plain):
    """The method. `clusters` gives the cluster of every client, in the topology's order. Without `deviations` clients
    have the models of their clusters. `rounds` is the maximum per stage."""

    task: Linear
    clusters: tuple[int, ...]
    intercept: bool = True
    rounds: Count = 100
    deviations: bool = True

    def __post_init__(self) -> None:
        check(self, "random effects")

    @cached_property
    def _count(self) -> int:
        return max(self.clusters) + 1

    @property
    def most_rounds(self) -> int:
        return (5 + _DOUBLINGS if self.task.loss == "logistic" else 5) * self.rounds

    @cached_property
    def _slopes(self) -> NDArray[np.bool_]:
        """(M,): which coordinates are slopes; the constant is last."""
        return np.arange(self.task.features) < self.task.features - self.intercept

    @cached_property
    def _triangle(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        rows, columns = np.triu_indices(self.task.features)
        return rows.astype(np.intp), columns.astype(np.intp)

    def start(self, topo: Topology) -> Start:
        servers = self._first(topo)
        return Start({"model": np.zeros((len(topo.silos), self.task.features))}, servers, self.answer(servers))

    def _first(self, topo: Topology) -> Carry:
        """What servers know before the first round."""
        features = self.task.features
        return {
            "cell": topo.home * self._count + np.asarray(self.clusters, dtype=np.intp),
            "round": np.int64(0),
            "came": np.int64(0),
            "movement": np.float64(np.inf),
            "scales": np.stack([np.zeros(features + 1), np.ones(features + 1)]),  # centres and scales, answers last
            "centre": np.zeros(features),
            "model": np.zeros((self._count, features)),
            "inverse": np.zeros((self._count, features, features)),
            # Of clients' deviations, relative to the noise's.
            "variance": np.where(self._slopes & self.intercept, 0.0, _FIRST * float(self.deviations)),
            "cluster_variance": np.full(features, _FIRST * (self._count > 1)),
            "noise": np.float64(1.0),
            "ridge": np.float64(1.0),  # the noise's variance, relative to that of beta's slopes
            "stage": np.int64(_CONSTANTS),
            "left_out": np.float64(np.inf),
            "doubled": np.int64(0),
            **{f"best_{name}": value for name, value in self._kept_before(features).items()},
        }

    def _kept_before(self, features: int) -> Carry:
        """The initial value of what is kept from the best stage."""
        zero, numbers = np.zeros(features), {"noise": np.float64(1.0), "ridge": np.float64(1.0)}
        models = {"centre": zero, "model": np.zeros((self._count, features))}
        return {**models, "variance": zero, "cluster_variance": zero, **numbers}

    def answer(self, servers: Carry) -> dict[str, Array]:
        cluster = servers["cell"] % self._count

        def everybody(value: Array) -> Array:
            return np.broadcast_to(value, (len(cluster), *np.shape(value)))

        return {
            "scales": everybody(servers["scales"]),
            "model": servers["model"][cluster],
            "inverse": servers["inverse"][cluster],
            "variance": everybody(servers["variance"]),
            "scaled": everybody(np.asarray(float(servers["round"] > 0))),
        }

    def limits(self) -> dict[str, Limits]:
        above = Limits(0.0, _LARGEST)
        return {"scales": ANYTHING, "model": ANYTHING, "inverse": ANYTHING, "variance": above, "scaled": SWITCH}

    # ---- in the client ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        if not down["scaled"].value.all():
            return {"model": carry["model"]}, {"sums": gate.contribute(self._moments(data), "moments")}
        told = {name: field.value for name, field in down.items()}
        model, sums = self._fitted(carry["model"], told, data)
        return {"model": model}, {"sums": gate.contribute(sums, "sums")}

    def _columns(self, data: Private) -> tuple[Array, Array]:
        """Features and answers side by side (n, most, M + 1), and which rows are records."""
        real = (np.arange(self.task.most) < data["count"][:, None]).astype(np.float64)
        return np.concatenate([data["x"], data["y"][..., None]], -1), real

    def _moments(self, data: Private) -> Array:
        columns, real = self._columns(data)
        sums = [np.einsum("nr,nrm->nm", real, power) for power in (columns, columns**2)]
        return np.concatenate([data["count"][:, None], *sums], 1)

    def _fitted(self, own: Array, told: dict[str, Array], data: Private) -> tuple[Array, Array]:
        """Return the client's model for the common values, and what it adds to the sums."""
        records, beta = self._records(own, told, data), told["model"]
        shrunk = self._shrunk(*records.sums, told)
        left_out = self._left_out(records, beta, shrunk.b, shrunk.posterior)
        return beta + shrunk.b, np.concatenate([shrunk.parts, data["count"][:, None], left_out], 1)

    def _records(self, own: Array, told: dict[str, Array], data: Private) -> Records:
        """Scaled records with weights and residuals from the common model, by the tangent at `own`."""
        columns, real = self._columns(data)
        columns = (columns - told["scales"][:, None, 0]) / told["scales"][:, None, 1]
        u, y = columns[..., :-1], columns[..., -1]
        weight, e = self._working(np.einsum("nrm,nm->nr", u, own), y, told["scales"][:, 1, -1])
        return Records(u, y, weight * real, e + np.einsum("nrm,nm->nr", u, own - told["model"]))

    def _shrunk(self, G: Array, r: Array, squares: Array, told: dict[str, Array]) -> Shrunk:
        """The deviations b that follow from sums over records, and what they add to sums over all."""
        spread = told["variance"]
        A, c = integrated(G, r, spread)
        b = spread * c
        rest = squares - np.einsum("nm,nm->n", r, b)
        prior = np.einsum("ij,nj->nij", np.eye(self.task.features), spread)
        posterior = np.linalg.solve(_system(G, spread).swapaxes(1, 2), prior)
        B = A - np.einsum("nij,njk,nkl->nil", A, told["inverse"], A)
        return Shrunk(b, posterior, np.concatenate([A[:, *self._triangle], c, c**2, _diagonals(B), rest[:, None]], 1))

    def _working(self, margin: Array, y: Array, scale: Array) -> tuple[Array, Array]:
        """Weights, and residuals from the client's own model, of the loss or of its tangent there."""
        if self.task.loss == "logistic":
            chance = 0.5 * (1.0 + np.tanh(0.5 * margin))
            weight = np.maximum(chance * (1.0 - chance), _LEAST_CURVATURE)
            return weight, ((y > 0.0) - chance) / weight
        e = y - margin
        if self.task.loss == "huber":
            bend = self.task.delta / scale[:, None]
            return bend / np.maximum(np.abs(e), bend), e
        return np.ones_like(e), e

    def _left_out(self, records: Records, beta: Array, b: Array, posterior: Array) -> Array:
        """(n, 1): the loss of all records, each predicted without it."""
        u, y, weight, e = records.u, records.y, records.weight, records.e
        moved = np.einsum("nrm,nm->nr", u, b)
        leverage = np.minimum(weight * np.einsum("nri,nij,nrj->nr", u, posterior, u), 1.0 - 1e-9)
        without = np.einsum("nrm,nm->nr", u, beta) + moved - leverage / (1.0 - leverage) * (e - moved)
        classes = self.task.loss == "logistic"
        losses = np.logaddexp(0.0, -np.sign(y) * without) if classes else (y - without) ** 2
        return np.asarray((losses * (weight > 0.0)).sum(1, keepdims=True))

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        return {"model": gate.reveal(carry["model"], "model", OPEN)}

    # ---- at the servers ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        names = [f"{server}/cluster-{q}" for server in topo.servers for q in range(self._count)]
        total = gate.over(names).total(up.sealed["sums"], up.rows, servers["cell"], topo.silos)
        sums = total.sums.reshape(len(topo.servers), self._count, -1)
        return {**servers, "came": np.int64(len(up.rows))}, {"sums": gate.reveal(sums, "sums", OPEN)}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        sums = across["sums"].sum(0)  # over the servers: by cluster
        fresh = self._scales(sums.sum(0)) if servers["round"] == 0 else self._moved(servers, sums)
        servers = {**servers, **fresh, "round": servers["round"] + 1}
        if servers["round"] > 1 and (servers["movement"] < _PRECISION or servers["round"] % self.rounds == 0):
            servers = self._next_stage(servers, float(sums[:, -1].sum()))
        return servers, self.answer(servers)

    def _next_stage(self, servers: Carry, left_out: float) -> Carry:
        """Go on from own constants to own slopes, of one variance and of one each, to each alone, to the best."""
        again = {**servers, "movement": np.float64(np.inf)}
        stage, better, classes = int(servers["stage"]), left_out <= servers["left_out"], self.task.loss == "logistic"
        now = {f"best_{name}": servers[name] for name in self._kept_before(1)} | {"left_out": np.float64(left_out)}
        before = {name: servers[f"best_{name}"] for name in self._kept_before(1)}
        kept = now if better else {}
        if stage == _CONSTANTS and self.intercept and self.deviations and self.task.features > 1:
            wide = np.where(self._slopes, _FIRST, servers["variance"])
            return {**again, **kept, "variance": wide, "stage": np.int64(_SLOPES)}
        if stage in (_CONSTANTS, _SLOPES) and self.deviations and self._slopes.sum() > 1:
            wide = np.where(self._slopes, _FIRST, servers["variance"])
            return {**again, **kept, "variance": wide, "stage": np.int64(_EACH)}
        if stage in (_CONSTANTS, _SLOPES, _EACH) and self.deviations and not classes:
            alone = np.full(self.task.features, _LARGEST)
            return {**again, **kept, "variance": alone, "stage": np.int64(_ALONE)}
        if stage in (_SLOPES, _EACH, _ALONE) and not better:
            return {**again, **before, "stage": np.int64(_CHOSEN)}
        if stage == _WIDEST or not classes or not self.deviations:
            return {**servers, "stage": np.int64(_DONE)}
        doubled = int(servers["doubled"]) if stage == _WIDER else 0
        if stage == _WIDER and (not better or doubled == _DOUBLINGS):
            return {**again, **before, "stage": np.int64(_WIDEST)}
        fresh = {"variance": 2.0 * servers["variance"], "doubled": np.int64(doubled + 1)}
        return {**again, **now, **fresh, "stage": np.int64(_WIDER)}

    def _scales(self, sums: Array) -> Carry:
        """Centres and scales of the features and of the answer; a constant column keeps its own."""
        width = self.task.features + 1
        mean, square = (part / sums[0] for part in (sums[1 : 1 + width], sums[1 + width :]))
        centred = np.full(width, self.intercept)
        centred[-1] &= self.task.loss != "logistic"
        centre = np.where(centred, mean, 0.0)
        variance = np.maximum(square - centre**2, 0.0)
        # Treat a constant's variance that is only rounding as 0.
        scale = np.sqrt(np.where(variance > 1e-12 * square, variance, 1.0))
        if self.intercept:
            centre[-2], scale[-2] = 0.0, 1.0
        if self.task.loss == "logistic":
            scale[-1] = 1.0
        return {"scales": np.stack([centre, scale])}

    def _moved(self, servers: Carry, sums: Array) -> Carry:
        """Take one step of Newton's method for the models, and one of the fixed-point iteration for the variances."""
        features, size = self.task.features, len(self._triangle[0])
        A = np.zeros((self._count, features, features))
        A[:, *self._triangle] = sums[:, :size]
        A = A + np.triu(A, 1).swapaxes(1, 2)
        c, squares, traces = sums[:, size:-3].reshape(self._count, 3, features).swapaxes(0, 1)
        rest, count = sums[:, -3:-1].sum(0)
        slopes, spread = self._slopes, servers["cluster_variance"]
        ridge, beta, noise = servers["ridge"] * slopes, servers["centre"], servers["noise"]
        r = c + np.einsum("qij,qj->qi", A, servers["model"] - beta)
        above, pull = integrated(A, r, np.broadcast_to(spread, c.shape))
        inverse = np.linalg.pinv(above.sum(0) + np.diag(ridge), hermitian=True)
        beta = beta + inverse @ (pull.sum(0) - ridge * beta)
        # The clusters' deviations from where beta is now.
        model = beta + spread * (pull - np.einsum("qij,j->qi", above, beta - servers["centre"]))
        fresh: Carry = {
            "centre": beta,
            "model": model,
            "inverse": np.linalg.pinv(A + np.diag(ridge), hermitian=True),
            "movement": np.abs(model - servers["model"]).max(),
        }
        if self.task.loss != "logistic":
            noise = np.maximum(rest / max(count - features, 1.0), 1e-12)
        variance, stage = servers["variance"], servers["stage"]
        if stage in (_CONSTANTS, _SLOPES, _EACH):
            variance = _updated(variance, noise, squares, traces, slopes & (stage != _EACH))
        moved = pull - np.einsum("qij,j->qi", above, beta - servers["centre"])
        B = above - np.einsum("qij,jk,qkl->qil", above, inverse, above)
        size_of_slopes = (slopes @ beta**2 + noise * (slopes @ inverse.diagonal())) / max(slopes.sum(), 1.0)
        return fresh | {
            "noise": noise,
            "ridge": noise / np.maximum(size_of_slopes, 1e-12),  # EM
            "variance": variance,
            "cluster_variance": _updated(spread, noise, moved**2, _diagonals(B), slopes),
        }

    def done(self, servers: Carry) -> bool:
        return bool(servers["stage"] == _DONE)

    def trace(self, servers: Carry) -> Json | None:
        if not np.isfinite(servers["movement"]):
            return None
        answered = int(servers["came"])
        return {"movement": float(servers["movement"]), "disagreement": 0.0, "answered": answered, "skipped": 0}

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Give a client that is gone when models are handed over the model of its cluster."""
        return {"model": servers["model"][servers["cell"] % self._count]}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Return models in the units of the tables, and the variances, relative to the noise's."""
        model, scales = self._unscaled(servers["model"], servers["scales"]), servers["scales"]
        cells = model[servers["cell"] % self._count]
        own = self._unscaled(delivered["model"], scales) if "model" in delivered else cells
        arrays = {
            "model": own,
            "cell_model": cells,
            "cluster_model": np.repeat(model[None], len(topo.servers), 0),
            "variance": servers["variance"],
            "cluster_variance": servers["cluster_variance"],
        }
        facts = {"rounds": int(servers["round"]), "disagreement": 0.0, "clusters": self._count}
        return Outcome(arrays, facts)

    def _unscaled(self, model: Array, scales: Array) -> Array:
        (*centre, answer), (*scale, unit) = scales
        out = unit * model / np.array(scale)
        if self.intercept:
            out[:, -1] += answer - out[:, :-1] @ np.array(centre[:-1])
        return np.asarray(out)


def integrated(G: Array, r: Array, spread: Array) -> tuple[Array, Array]:
    """(n, M, M) and (n, M): information and gradient once deviations of these variances are integrated out."""
    both = np.linalg.solve(_system(G, spread), np.concatenate([G, r[..., None]], -1))
    return both[..., :-1], both[..., -1]


def _system(G: Array, spread: Array) -> Array:
    """I + G L."""
    return np.asarray(np.eye(G.shape[-1]) + G * spread[:, None, :])


def _diagonals(B: Array) -> Array:
    return np.asarray(np.einsum("nmm->nm", B))


def _updated(variance: Array, noise: Array, squares: Array, traces: Array, shared: NDArray[np.bool_]) -> Array:
    """The variances after one more step; one of 0 stays there. Coordinates that are `shared` have one in common."""
    found, expected = squares.sum(0), noise * traces.sum(0)
    found, expected = (np.where(shared, part[shared].sum(), part) for part in (found, expected))
    ratio = np.where(expected > 0.0, found / np.where(expected > 0.0, expected, 1.0), 1.0)
    return np.asarray(np.minimum(variance * np.maximum(ratio, 0.0), _LARGEST))
