"""S2's theory in numbers: where the iteration ends and how fast, what clusters do to each other, what one record can
move; and what replaces the claims that do not hold.

The iteration is (4), (8), (9), (10), (5) with every client in every round. Models are (S, Q, d): server, cluster,
feature; a cell is the clients of one server and cluster. `mixing` (S, S) is what servers take of each other, with rows
that sum to 1. All rests on one identity, `aggregated`: duals cancel in (8), which leaves a step of length 1/rho down
the cell's mean gradient. So the iteration stands still where w = B (w - gradients / rho), B being (9) and (10) at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from silograph.core.types import Array

Form = Literal["others", "all"]
Schedule = Literal["variance_decay", "leakage_decay"]


def aggregated(received: Array, gradient: Array, rho: float) -> Array:
    """What (8) comes to, from what a cell received before and the mean of its clients' gradients at their new models.

    Exact for differentiable losses, whatever the duals and whoever takes part; in (13) the mean of the noise is added.
    """
    return np.asarray(received - gradient / rho)  # (8), (27)


def neighbourhood_means(adjacency: ArrayLike) -> Array:
    """Each server's plain mean of its own and its neighbours' models. Columns sum to 1 only on regular graphs."""
    linked = np.asarray(adjacency) != 0
    near = linked | np.eye(len(linked), dtype=np.bool_)
    return np.asarray(near / near.sum(1, keepdims=True))  # (9)


def exchange(clusters: int, tau: float, form: Form = "others") -> Array:
    """(Q, Q): what clusters take of each other; a tau of `others` is tau Q/(Q - 1) of `all`."""
    share = _share(clusters, tau, form)
    return np.asarray((1.0 - share) * np.eye(clusters) + share / clusters)  # (10)


def _share(clusters: int, tau: float, form: Form) -> float:
    return tau if form == "all" else tau * clusters / max(clusters - 1, 1)


@dataclass(frozen=True, eq=False)
class Ridge:
    """f_k(w) = |y - X w|^2 / (2 D) + lam |w|^2 / (2 |C_s|), (16) with (49), of client k, who has x[k] (D, d) and
    y[k] (D,), server home[k] and cluster[k]. A cell without clients has no gradient."""

    x: Sequence[Array]
    y: Sequence[Array]
    home: NDArray[np.intp]
    cluster: NDArray[np.intp]
    lam: float

    @cached_property
    def hessians(self) -> Array:
        weight = self.lam / np.bincount(self.home)[self.home]
        return np.stack([x.T @ x / len(x) + w * np.eye(x.shape[1]) for x, w in zip(self.x, weight, strict=True)])

    @cached_property
    def slopes(self) -> Array:
        return np.stack([x.T @ y / len(x) for x, y in zip(self.x, self.y, strict=True)])

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.home.max()) + 1, int(self.cluster.max()) + 1

    @cached_property
    def cells(self) -> Array:
        """(S Q, K): 1 for the clients of a cell."""
        servers, clusters = self.shape
        return np.eye(servers * clusters)[:, self.home * clusters + self.cluster]

    @cached_property
    def means(self) -> Array:
        """(S Q, K): takes a cell's mean."""
        return np.asarray(self.cells / np.maximum(self.cells.sum(1, keepdims=True), 1.0))


# ---- Theorem I -------------------------------------------------------------------------------------------------------


def cluster_optimum(r: Ridge, weights: ArrayLike = 1.0) -> Array:
    """(Q, d): minimisers of the sum over servers of weights[s, q] times the mean of f_k over the cell.

    With 1 this is what (8) can aim at; the optimum of (1), where clients count alike, has the cells' sizes as weights.
    """
    each = (np.broadcast_to(weights, r.shape)[..., None] * r.means.reshape(*r.shape, -1)).sum(0)
    hessians, slopes = np.einsum("qk,kab->qab", each, r.hessians), each @ r.slopes
    return np.linalg.solve(hessians, slopes[..., None])[..., 0]


def fixed_point(r: Ridge, mixing: Array, rho: float, tau: float = 0.0, form: Form = "others") -> Array:
    """(S, Q, d): where the iteration ends if it does (`rate`). Exact, with a constant tau.

    Theorem I says `cluster_optimum` for tau = 0. True on a complete graph, where all weights are 1/S. Elsewhere it does
    NOT hold, since gradients that differ between servers at the optimum do not vanish in a neighbourhood's mean:

    doubly stochastic    (Metropolis, or equal degrees) ends O(1/rho) away; as rho grows, or with a high power of it as
                         `mixing`, the distance goes to 0
    (9) in general       weighs servers by |N_s|: as rho grows it goes to cluster_optimum with these weights
    cells of any size    are weighed alike by (8), so (1)'s optimum is met only if their sizes are equal, too
    """
    both = np.kron(mixing, exchange(r.shape[1], tau, form))  # (9), (10)
    hessians, slopes = np.einsum("ck,kab->cab", r.means, r.hessians), r.means @ r.slopes
    d = slopes.shape[1]
    system = np.einsum("ij,jab->iajb", both, hessians / rho - np.eye(d)).reshape(slopes.size, slopes.size)
    return np.linalg.solve(system + np.eye(slopes.size), (both @ slopes / rho).ravel()).reshape(*r.shape, d)


def rate(r: Ridge, mixing: Array, rho: float, tau: float = 0.0, form: Form = "others") -> float:
    """The factor by which errors shrink in a round, in the long run: the spectral radius of a round. Dense; small data.

    Theorem I's linear convergence for convex, smooth losses does NOT hold. Where B has an eigenvalue -b < 0, as (9) has
    on most graphs, clients that share a curvature beyond (1 + 1/b) rho diverge. Without negative ones (lazy weights,
    tau <= (Q - 1)/Q) all convex losses converge at any rho (`coupling`), but in general not linearly: (w - 1)^4.
    """
    both, (cells, clients), d = np.kron(mixing, exchange(r.shape[1], tau, form)), r.means.shape, r.slopes.shape[1]
    each = np.eye((cells + clients) * d).reshape(-1, cells + clients, d)  # every unit vector as a state
    received, duals = each[:, :cells], each[:, cells:]
    near = r.cells.T @ received
    w = np.einsum("kab,nkb->nka", np.linalg.inv(r.hessians + rho * np.eye(d)), duals + rho * near)  # (4)
    gradients = duals + rho * (near - w)
    received = both @ aggregated(received, r.means @ gradients, rho)  # (8), (9), (10)
    duals = duals + rho * (r.cells.T @ received - w)  # (5)
    after = np.concatenate([received, duals], 1).reshape(len(each), -1)
    return float(np.abs(np.linalg.eigvals(after)).max())


def stationary(mixing: Array) -> Array:
    """(S,): the weights servers end up with, of mean 1; |N_s| over its mean for (9), 1 for doubly stochastic."""
    servers = len(mixing)
    return np.linalg.solve((np.eye(servers) - mixing + 1.0).T, np.full(servers, float(servers)))


def coupling(mixing: Array, clusters: int, rho: float, tau: float = 0.0, form: Form = "others") -> Array:
    """(S Q, S Q), in place of Theorem I: the C with which the iteration is two-block ADMM for

    sum over cells of stationary[s] (mean of f_k over the cell, at w_sq) + (1/2) sum over c, e of C_ce <w_c, w_e>,

    C = rho diag(stationary) (1/B - 1). So it ends at this problem's minimiser, for all convex losses that have one and
    from any start, if B has positive eigenvalues (lazy weights) and mixing is reversible, as (9) and Metropolis are. An
    eigenvalue 0, as on a complete graph, is the limit of an infinite penalty: there the cells agree.
    """
    both = np.kron(mixing, exchange(clusters, tau, form))
    weights = np.repeat(stationary(mixing), clusters)[:, None]
    return np.asarray(rho * weights * (np.linalg.inv(both) - np.eye(len(both))))


def similarity_penalty(servers: int, clusters: int, rho: float, tau: float, form: Form = "others") -> float:
    """The coefficient in (1) that a constant tau stands for on a complete graph, f_k summed over servers of cell means.

    It grows with rho, is infinite at tau = (Q - 1)/Q (`all`: 1) and negative beyond: clusters then repel each other.
    """
    share = _share(clusters, tau, form)
    return rho * servers / clusters * share / (1.0 - share) if share != 1.0 else math.inf  # (1)


def decibels(models: Array, optima: Array) -> float:
    """Mean squared distance of (S, Q, d) to (Q, d), relative to the optimum's length."""
    return float(10.0 * np.log10((((models - optima) ** 2).sum(-1) / (optima**2).sum(-1)).mean()))  # (50)


# ---- Theorem II ------------------------------------------------------------------------------------------------------


def farthest(optima: Array) -> float:
    """d_max of clusters' optima (Q, d)."""
    return float(np.linalg.norm(optima[:, None] - optima, axis=-1).max())  # (29)


def exchange_bound(taus: ArrayLike, d_max: float) -> Array:
    """Theorem II: how far models with and without exchange are said to be apart at most after rounds 1, 2, ...

    It is NOT a bound. (38) takes models on their way to be as close as the optima: clusters that want the same model at
    different curvatures have d_max = 0 and still differ on the way. At the paper's sizes and rho = 3 it fails by up to
    2x in the first 10 to 25 rounds and holds from 100 on; a larger rho only draws this out (50: often beyond 100). Nor
    need it hold in the end: if clusters' curvatures differ in direction, their compromise may be far from all of them.
    """
    return np.asarray(d_max * (1.0 - np.cumprod(1.0 - np.asarray(taus, dtype=np.float64))))  # (28)


# ---- privacy: Lemma 1, Theorems III and IV ---------------------------------------------------------------------------


def sensitivity(clip: float, rho: float, records: int) -> float:
    """How far another record in place of one of D moves the w_k of (4), given all that was released before.

    For convex losses whose gradients are nowhere longer than `clip` (Huber or logistic, rows of bounded length): (4) is
    rho-strongly convex, so 2 C/D of gradient move its minimum by 2 C/(rho D) at most, and they can. Lemma 1 does NOT
    hold without convexity, which it forgets, nor for ridge, whose gradients have no bound. One linear step from the
    received model with clipped gradients has the same sensitivity for every loss. All D records at once: D times this.
    """
    return 2.0 * clip / (rho * records)  # (43)


def round_leakage(moved: float, sigma: float) -> float:
    """Theorem III: zCDP of one release with sensitivity `moved`. The dual (5) must use the released model as well."""
    return moved**2 / (2.0 * sigma**2)  # (47)


def leakage(schedule: Schedule, initial: float, decay: float, rounds: Sequence[int]) -> float:
    """Theorem IV: total zCDP of the rounds a client took part in, `initial` being round 0's.

    variance_decay    sigma^2 falls by `decay` every round, as the paper sets it: leakage grows, it does NOT fall
    leakage_decay     leakage falls by `decay`, as the paper's total .095 assumes: sigma^2 grows

    privacy.accounting.zcdp_epsilon makes epsilon of it; for Gaussian noise gaussian_epsilon at (2 total)^(1/2) is less.
    """
    n = np.asarray(rounds, dtype=np.float64)
    return float(initial * (decay ** (n if schedule == "leakage_decay" else -n)).sum())  # (48)
