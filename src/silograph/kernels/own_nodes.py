"""Rows with different nodes: sites that lack some of the nodes solve the same problems on those they have.

A row is solved in the space of its own nodes, so a node that it lacks is in none of its terms, and stays 0 in all its
results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from silograph.core.types import Array, BoolArray
from silograph.kernels.dual_newton import Solution
from silograph.kernels.spaces import Space


def own_of(lacks: Sequence[Collection[int]], nodes: int) -> BoolArray:
    """Which nodes each site has, (K, d), from those that it lacks."""
    own = np.ones((len(lacks), nodes), bool)
    for row, gone in zip(own, lacks, strict=True):
        row[list(gone)] = False
    return own


def pairs_of(own: BoolArray, space: Space) -> BoolArray:
    """Which pairs each site has both nodes of, (K, p)."""
    a, b = space.ends()
    return np.asarray(own[:, a] & own[:, b])


def joined_nodes(space: Space, costs: Array) -> BoolArray:
    """Which nodes have a pair with a finite cost, (K, d)."""
    (a, b), here = space.ends(), np.zeros((len(costs), space.nodes), bool)
    for row, cost in zip(here, costs, strict=True):
        finite = np.isfinite(cost)
        row[a[finite]] = row[b[finite]] = True
    return here


@dataclass(frozen=True)
class _Part:
    """Rows with the same nodes, and the places of their nodes and pairs among all."""

    rows: NDArray[np.intp]
    nodes: NDArray[np.intp]
    columns: NDArray[np.intp]
    space: Space

    def of(self, values: Array, places: NDArray[np.intp]) -> Array:
        return np.ascontiguousarray(values[np.ix_(self.rows, places)])


@dataclass(frozen=True, eq=False)
class OwnNodes(Space):
    """The space `inner`, with only the nodes `own[i]` in row i."""

    inner: Space
    own: BoolArray  # (K, d)

    @property
    def nodes(self) -> int:
        return self.inner.nodes

    @property
    def size(self) -> int:
        return self.inner.size

    @cached_property
    def share(self) -> Array:
        here = self.own.sum(1)
        return np.asarray(here * (here - 1) / (self.nodes * (self.nodes - 1)))

    @cached_property
    def _parts(self) -> list[_Part]:
        kinds, which = np.unique(self.own, axis=0, return_inverse=True)
        places = (np.flatnonzero(which.ravel() == k) for k in range(len(kinds)))
        return [
            _Part(rows, np.flatnonzero(own), *self.inner.among(own)) for own, rows in zip(kinds, places, strict=True)
        ]

    def among(self, own: BoolArray) -> tuple[NDArray[np.intp], Space]:
        return self.inner.among(own)

    def ends(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        return self.inner.ends()

    def distances(self, signals: Array) -> Array:
        return self.inner.distances(signals)

    def degrees(self, w: Array) -> Array:
        return self.inner.degrees(w)

    def mean_over_nodes(self, q: Array) -> Array:
        return np.asarray(np.where(self.own, q, 0.0).sum(-1) / self.own.sum(-1))

    def objective(self, zbar: Array, w: Array, alpha: float, beta: float, zeta: float) -> Array:
        out = np.empty(len(self.own))
        for part in self._parts:
            z, x = (part.of(values, part.columns) for values in (zbar, w))
            out[part.rows] = part.space.objective(z, x, alpha, beta, zeta)
        return out

    def solve(
        self, c: Array, alpha: float, beta: float | Array, zeta: float, q: Array | None = None, tolerance: float = 1e-12
    ) -> Solution:
        rows = len(self.own)
        betas = np.broadcast_to(np.asarray(beta, dtype=np.float64), (rows,))
        found = Solution(
            np.zeros((rows, self.size)),
            np.zeros((rows, self.nodes)),
            np.empty(rows),
            np.empty(rows),
            np.empty(rows, np.int64),
        )
        for part in self._parts:
            warm = None if q is None else part.of(q, part.nodes)
            each = part.space.solve(part.of(c, part.columns), alpha, betas[part.rows], zeta, warm, tolerance)
            found.w[np.ix_(part.rows, part.columns)], found.q[np.ix_(part.rows, part.nodes)] = each.w, each.q
            for name in ("objective", "gap", "steps"):
                getattr(found, name)[part.rows] = getattr(each, name)
        return found

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
        w, potentials, pulls = np.zeros(z.shape), np.zeros(q.shape), np.empty(len(z))
        for part in self._parts:
            costs, anchor = (part.of(values, part.columns) for values in (z, t))
            warm = part.of(q, part.nodes), pull[part.rows]
            found = part.space.huber_solve(costs, anchor, rho, penalty, alpha, beta, zeta, *warm)
            w[np.ix_(part.rows, part.columns)], potentials[np.ix_(part.rows, part.nodes)] = found[0], found[1]
            pulls[part.rows] = found[2]
        return w, potentials, pulls

    def lower_bound(self, c: Array, q: Array, alpha: float, beta: float, zeta: float) -> Array:
        out = np.empty(len(self.own))
        for part in self._parts:
            costs, potentials = part.of(c, part.columns), part.of(q, part.nodes)
            out[part.rows] = part.space.lower_bound(costs, potentials, alpha, beta, zeta)
        return out
