"""Where graphs live: on all pairs of nodes, or on a list of candidate edges. Both know the same problems.

Rows of weights and costs are silos; columns are the pairs of `AllPairs` in the order of `triu_indices`, or the edges of
`EdgeList` in the order of the list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array, BoolArray
from silograph.kernels import dual_newton, prox
from silograph.kernels.descent import objective
from silograph.kernels.dual_newton import Columns, Listed, Solution, Starts, _dual_value, _room
from silograph.kernels.edges import degrees, edge_count, pairs, squared_distances
from silograph.kernels.lists import Candidates, _arrange, _costs, _solve_listed, proven_nodes
from silograph.kernels.memory import check_memory
from silograph.kernels.neighbours import node_rows

DUST = 2e-5  # of a node's degree


class Space(ABC):
    @property
    @abstractmethod
    def nodes(self) -> int: ...

    @property
    @abstractmethod
    def size(self) -> int:
        """How many edges there can be."""

    @property
    def listed(self) -> tuple[Starts, Columns] | None:
        """The edges by their lower end, where they are not all pairs."""
        return None

    @property
    def share(self) -> float | Array:
        """Of all pairs of nodes, those of which a row has both."""
        return 1.0

    @abstractmethod
    def among(self, own: BoolArray) -> tuple[NDArray[np.intp], Space]:
        """The edges between some of the nodes, and the space that these are."""

    @abstractmethod
    def ends(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The two ends of every edge."""

    @abstractmethod
    def distances(self, signals: Array) -> Array:
        """zbar: the mean over the signals (n, d) of (x[a] - x[b])^2, for every edge; on a list it is infinite where no
        signal has one of the nodes."""

    @abstractmethod
    def degrees(self, w: Array) -> Array:
        """S w: the sum of the weights at each node."""

    def mean_over_nodes(self, q: Array) -> Array:
        return np.asarray(q.mean(-1))

    def objective(self, zbar: Array, w: Array, alpha: float, beta: float, zeta: float) -> Array:
        """g_i(w) of S3 (8), (18) for every row."""
        return objective(zbar, w, alpha, beta, zeta, self.degrees(w))

    @abstractmethod
    def solve(
        self, c: Array, alpha: float, beta: float | Array, zeta: float, q: Array | None = None, tolerance: float = 1e-12
    ) -> Solution:
        """As `dual_newton.solve`."""

    def huber_solve(
        self,
        z: Array,
        t: Array,
        rho: float,
        penalty: float,
        alpha: float,
        beta: float,
        zeta: float,
        q: Array,
        pull: Array,
    ) -> tuple[Array, Array, Array]:
        """As `prox.huber_solve`."""
        return prox.huber_solve(z, t, rho, penalty, alpha, beta, zeta, q, pull, self.listed)

    @abstractmethod
    def lower_bound(self, c: Array, q: Array, alpha: float, beta: float, zeta: float) -> Array:
        """As `dual_newton.lower_bound`."""


@dataclass(frozen=True)
class AllPairs(Space):
    """All d(d-1)/2 pairs of `count` nodes d."""

    count: int

    @property
    def nodes(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        return edge_count(self.nodes)

    def among(self, own: BoolArray) -> tuple[NDArray[np.intp], Space]:
        a, b = self.ends()
        return np.flatnonzero(own[a] & own[b]), AllPairs(int(own.sum()))

    def ends(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        return pairs(self.nodes)

    def distances(self, signals: Array) -> Array:
        return squared_distances(signals)

    def degrees(self, w: Array) -> Array:
        return degrees(w)

    def solve(
        self, c: Array, alpha: float, beta: float | Array, zeta: float, q: Array | None = None, tolerance: float = 1e-12
    ) -> Solution:
        return dual_newton.solve(c, alpha, beta, zeta, q, tolerance)

    def lower_bound(self, c: Array, q: Array, alpha: float, beta: float, zeta: float) -> Array:
        return dual_newton.lower_bound(c, q, alpha, beta, zeta)


@dataclass(frozen=True, eq=False)
class EdgeList(Space):
    """Edges a < b by their lower end, those of node a at start[a] .. start[a + 1], each once."""

    start: Starts
    col: Columns

    @classmethod
    def of(cls, nodes: int, a: NDArray[np.integer], b: NDArray[np.integer]) -> EdgeList:
        """Pairs in any order, each once."""
        start, col, _ = _arrange(nodes, a, b)
        return cls(start, col)

    @property
    def nodes(self) -> int:
        return len(self.start) - 1

    @property
    def size(self) -> int:
        return len(self.col)

    @property
    def listed(self) -> tuple[Starts, Columns]:
        return self.start, self.col

    def allowed(self) -> BoolArray:
        """Which of all pairs are listed."""
        a, b = (end.astype(np.int64) for end in self.ends())
        out = np.zeros(edge_count(self.nodes), bool)
        out[a * (2 * self.nodes - a - 1) // 2 + b - a - 1] = True
        return out

    def proven(self, q: Array, reach: Array) -> float:
        """The share of nodes of which no edge outside the list can be active, where such edges cost `reach` or more; of
        those that have a potential, where some are not there."""
        return float(proven_nodes(Candidates(self.start, self.col, np.empty(0), reach), q)[q > 0.0].mean())

    def among(self, own: BoolArray) -> tuple[NDArray[np.intp], Space]:
        a, b = self.ends()
        kept, place = np.flatnonzero(own[a] & own[b]), np.cumsum(own) - 1
        return kept, EdgeList.of(int(own.sum()), place[a[kept]], place[b[kept]])

    def ends(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        return np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.start)), self.col

    def distances(self, signals: Array) -> Array:
        own = np.asarray(~np.isnan(signals).all(0))
        if own.all():
            return _costs(node_rows(signals), self.start, self.col)
        (columns, among), cost = self.among(own), np.full(self.size, np.inf)
        cost[columns] = among.distances(np.ascontiguousarray(signals[:, own]))
        return cost

    def degrees(self, w: Array) -> Array:
        rows = np.atleast_2d(w)
        degree = np.zeros((len(rows), self.nodes))
        for i, row in enumerate(rows):
            _add_degrees(self.start, self.col, row, degree[i])
        return degree.reshape(*w.shape[:-1], -1)

    def solve(
        self, c: Array, alpha: float, beta: float | Array, zeta: float, q: Array | None = None, tolerance: float = 1e-12
    ) -> Solution:
        rows = len(c)
        check_memory("candidate edges", 16 * c.size, "Fewer candidates or sites at a time need less.")
        potentials = np.zeros((rows, self.nodes)) if q is None else np.array(q, dtype=np.float64)
        w, betas = np.empty(c.shape), np.broadcast_to(np.asarray(beta, dtype=np.float64), (rows,))
        objective_, gap, steps = np.empty(rows), np.empty(rows), np.empty(rows, np.int64)
        room = _room(self.nodes, self.size)
        for i in range(rows):
            listed = Listed(self.start, self.col, np.ascontiguousarray(c[i], dtype=np.float64))
            objective_[i], gap[i], steps[i] = _solve_listed(
                listed, float(alpha), float(betas[i]), float(zeta), float(tolerance), potentials[i], w[i], room
            )
        return Solution(w, potentials, objective_, gap, steps)

    def lower_bound(self, c: Array, q: Array, alpha: float, beta: float, zeta: float) -> Array:
        out = np.empty(len(c))
        for i in range(len(c)):
            out[i] = _bound(self.start, self.col, c[i], q[i], alpha, beta, zeta) if (q[i] > 0.0).all() else -np.inf
        return out


def without_dust(space: Space, w: Array) -> Array:
    """The weights less those that are next to nothing at both of their ends: what an iteration has not yet rounded
    to 0."""
    a, b = space.ends()
    degree = DUST * space.degrees(w)
    return np.where((w > degree[..., a]) | (w > degree[..., b]), w, 0.0)


@njit(cache=True)
def _add_degrees(start: Starts, col: Columns, w: Array, degree: Array) -> None:
    for a in range(start.size - 1):
        total = 0.0
        for j in range(start[a], start[a + 1]):
            total += w[j]
            degree[col[j]] += w[j]
        degree[a] += total


@njit(cache=True)
def _bound(start: Starts, col: Columns, c: Array, q: Array, alpha: float, beta: float, zeta: float) -> float:
    square = 0.0
    for a in range(start.size - 1):
        for j in range(start[a], start[a + 1]):
            t = max(0.0, q[a] + q[col[j]] - c[j])
            square += t * t
    return _dual_value(q, square, alpha, beta, zeta)
