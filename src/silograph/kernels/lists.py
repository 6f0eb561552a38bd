"""Graphs on a list of candidate edges: the same solver if all pairs of nodes are too many.

A list comes from the user, or from each node's nearest neighbours. The certificate of `dual_newton` then holds for the
problem on the list. If no pair outside the list costs node a less than reach_a, such a pair is provably inactive in the
problem on *all* pairs wherever

    q_a + q_b <= max(reach_a, reach_b)

and if that holds for all partners of all nodes, w, its objective and its certificate are those of the full problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray
from silograph.kernels.dual_newton import (
    _GOOD,
    _LEAST,
    _NEAR,
    _PATH,
    Columns,
    Listed,
    Room,
    Starts,
    _descend,
    _guess,
    _insert,
    _reached,
    _room,
)
from silograph.kernels.memory import check_memory
from silograph.kernels.neighbours import BLOCK, Search, approximate, exact, node_rows

_EXACT_NODES = 30_000  # beyond, an exact search must be requested: its time grows with the square
_LESS = "Fewer neighbours, fewer signals or single precision need less."


@dataclass(frozen=True)
class Candidates:
    """Edges a < b that a graph may have, ordered by their lower end, with their costs.

    Parameters
    ----------
    start : Where each node's edges begin (d + 1,): those with the lower end a are start[a] .. start[a + 1] - 1.
    col : The higher end of each edge (m,).
    cost : The cost of each edge (m,).
    reach : No pair outside the list costs node a less than reach[a], (d,). None: nothing is known about such pairs.

    >>> candidates = listed(4, a=np.array([3, 0]), b=np.array([2, 1]), cost=np.array([0.5, 1.0]))
    >>> candidates.ends(), candidates.cost
    ((array([0, 2], dtype=int32), array([1, 3], dtype=int32)), array([1. , 0.5]))
    """

    start: Starts
    col: Columns
    cost: Array
    reach: Array | None = None

    @property
    def nodes(self) -> int:
        return len(self.start) - 1

    def ends(self) -> tuple[Columns, Columns]:
        """The two ends of every edge, in the order of the weights."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.start)), self.col


@dataclass(frozen=True)
class ListSolution:
    """The answer of `solve_list`: weights, what proves them, and whether they are the optimum on all pairs.

    Parameters
    ----------
    w : Weights (m,), in the order of the list.
    q : Potentials of the nodes (d,).
    objective : g(w).
    gap : The certificate: g(w) is above the minimum on the list by at most this.
    steps : Newton steps.
    proven : Nodes (d,) that certainly have no active edge outside the list; if all are, w is the optimum on all pairs.

    >>> x = np.random.default_rng(0).normal(size=(50, 30))
    >>> few, many = (solve_list(nearest(x, k), alpha=1.0, beta=0.05) for k in (2, 28))
    >>> bool(few.proven.all()), bool(many.proven.all())
    (False, True)
    """

    w: Array
    q: Array
    objective: float
    gap: float
    steps: int
    proven: BoolArray


# ---- candidates ----


def listed(nodes: int, a: NDArray[np.integer], b: NDArray[np.integer], cost: Array) -> Candidates:
    """List the user's pairs as candidates, with the user's costs.

    Parameters
    ----------
    nodes : How many nodes d there are.
    a : One end of each pair (m,).
    b : The other end (m,), in any order; each pair comes once.
    cost : The cost of each pair (m,), finite; single precision stays single.

    >>> listed(3, np.array([1, 1]), np.array([0, 2]), np.array([4.0, 1.0])).cost
    array([4., 1.])
    """
    a, b, cost = np.asarray(a), np.asarray(b), np.asarray(cost)
    _check_pairs(nodes, a, b)
    if cost.shape != a.shape or not np.isfinite(cost).all():
        raise InputError("candidate edges", f"a finite cost for each of the {len(a)} pairs", _odd(cost, a.shape))
    start, col, place = _arrange(nodes, a, b)
    kind = np.float32 if cost.dtype == np.float32 else np.float64
    return Candidates(start, col, np.ascontiguousarray(cost[place], dtype=kind))


def masked(mask: BoolArray, signals: Array) -> Candidates:
    """List the pairs that a mask allows; their cost is the mean squared difference of the signals.

    Parameters
    ----------
    mask : Which pairs are allowed (d, d): symmetric or upper triangular, without the diagonal.
    signals : n signals on d nodes, (n, d).

    >>> road = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    >>> masked(road, np.array([[0.0, 1.0, 3.0]])).cost
    array([1., 4.])
    """
    nodes = signals.shape[1]
    if mask.dtype != np.bool_ or mask.shape != (nodes, nodes):
        raise InputError("mask", f"truth values ({nodes}, {nodes})", f"found {mask.dtype} {mask.shape}")
    if mask.diagonal().any():
        raise InputError("mask", "no node joined to itself", f"node {int(mask.diagonal().argmax())} is")
    below = np.tril(mask)
    if below.any() and not (mask == mask.T).all():
        raise InputError(
            "mask", "the same answer for (a, b) and (b, a)", "they differ", "Or leave the lower half empty."
        )
    a, b = np.nonzero(np.triu(mask))
    return with_costs(signals, a, b)


def with_costs(signals: Array, a: NDArray[np.integer], b: NDArray[np.integer]) -> Candidates:
    """List the user's pairs as candidates; their cost is the mean squared difference of the signals.

    Parameters
    ----------
    signals : n signals on d nodes, (n, d).
    a : One end of each pair (m,).
    b : The other end (m,), in any order; each pair comes once.

    >>> with_costs(np.array([[0.0, 1.0, 3.0]]), np.array([0, 2]), np.array([1, 0])).cost
    array([1., 9.])
    """
    a, b = np.asarray(a), np.asarray(b)
    _check_pairs(signals.shape[1], a, b)
    start, col, _ = _arrange(signals.shape[1], a, b)
    return Candidates(start, col, _costs(node_rows(signals), start, col))


def nearest(signals: Array, neighbours: int, search: Search | None = None) -> Candidates:
    """List every node's nearest neighbours by the mean squared difference of the signals.

    The exact search works in the precision of the signals; the distances it keeps are computed again in double
    precision, and its reach allows for rounding. The approximate one gives no bound for other pairs.

    Parameters
    ----------
    signals : n signals on d nodes, (n, d).
    neighbours : How many nearest neighbours each node names, from 1 to d - 1; a pair is listed if one end names it.
    search : "exact", or "approximate" (needs the extra `knn`). None: exact, refused beyond 30 000 nodes.

    >>> nearest(np.array([[0.0, 1.0, 3.0, 7.0]]), neighbours=1).ends()
    (array([0, 1, 2], dtype=int32), array([1, 2, 3], dtype=int32))
    """
    nodes = signals.shape[1]
    if not 1 <= neighbours < nodes:
        raise InputError("neighbours", f"from 1 to {nodes - 1}, as there are {nodes} nodes", f"found {neighbours}")
    if search is None and nodes > _EXACT_NODES:
        raise InputError(
            "nearest neighbours",
            f'at most {_EXACT_NODES} nodes, or search="exact" or "approximate"',
            f"found {nodes} nodes",
            "The exact search takes time with the square of the nodes.",
        )
    check_memory("nearest neighbours", 64 * nodes * neighbours + 3 * signals.nbytes + 2 * BLOCK, _LESS)
    y = node_rows(signals)
    if search == "approximate":
        return _union(y, approximate(y, neighbours), None)
    who, reach = exact(y, np.arange(nodes), neighbours)
    return _union(y, who, reach)


def _check_pairs(nodes: int, a: NDArray[np.integer], b: NDArray[np.integer]) -> None:
    if a.ndim != 1 or a.shape != b.shape or not (a.dtype.kind in "iu" and b.dtype.kind in "iu"):
        raise InputError("candidate edges", "two whole-number arrays of one length", f"found {a.shape} and {b.shape}")
    for end in (a, b):
        if len(end) and not (end.min() >= 0 and end.max() < nodes):
            raise InputError("candidate edges", f"nodes 0 to {nodes - 1}", f"found {end.min()} to {end.max()}")
    if (a == b).any():
        raise InputError("candidate edges", "two different nodes", f"node {a[(a == b).argmax()]} is joined to itself")
    check_memory("candidate edges", 48 * len(a), _LESS)
    key = np.minimum(a, b).astype(np.int64) * nodes + np.maximum(a, b)
    key.sort()
    if len(again := np.flatnonzero(key[1:] == key[:-1])):
        low, high = divmod(int(key[again[0]]), nodes)
        raise InputError("candidate edges", "every edge once", f"found {low} - {high} again", "Drop the duplicates.")


def _odd(cost: Array, shape: tuple[int, ...]) -> str:
    return f"found {cost.shape}" if cost.shape != shape else f"{int((~np.isfinite(cost)).sum())} are not finite"


def _arrange(nodes: int, a: NDArray[np.integer], b: NDArray[np.integer]) -> tuple[Starts, Columns, NDArray[np.int64]]:
    """Order pairs by their lower, then higher end: (start, col, the place of each in the input)."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    place = np.lexsort((high, low))
    start = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(low, minlength=nodes), out=start[1:])
    return start, np.ascontiguousarray(high[place], dtype=np.int32), place


@njit(cache=True)
def _costs(y: Array, start: Starts, col: Columns) -> Array:
    """The mean squared difference of the listed pairs of rows, in double precision."""
    cost = np.empty(col.size)
    signals = y.shape[1]
    for a in range(start.size - 1):
        one = y[a]
        for j in range(start[a], start[a + 1]):
            other = y[col[j]]
            total = 0.0
            for n in range(signals):
                total += (np.float64(one[n]) - np.float64(other[n])) ** 2
            cost[j] = total / signals
    return cost


def _union(y: Array, who: Columns, reach: Array | None) -> Candidates:
    """The pairs in which at least one end names the other; who (d, k) has a node's own name for a missing neighbour."""
    start, col = _merge(who)
    return Candidates(start, col, _costs(y, start, col), reach)


@njit(cache=True)
def _merge(who: Columns) -> tuple[Starts, Columns]:
    nodes, size = who.shape
    start = np.zeros(nodes + 1, np.int64)
    for a in range(nodes):
        for j in range(size):
            b = who[a, j]
            if b != a:
                start[min(a, b) + 1] += 1
    start = np.cumsum(start)
    fill = start[:-1].copy()
    col = np.empty(start[-1], np.int32)
    for a in range(nodes):
        for j in range(size):
            b = who[a, j]
            if b != a:
                low = min(a, b)
                col[fill[low]] = max(a, b)
                fill[low] += 1
    count = 0
    for a in range(nodes):
        row = np.sort(col[start[a] : start[a + 1]])
        start[a] = count
        for j in range(row.size):
            if j == 0 or row[j] != row[j - 1]:
                col[count] = row[j]
                count += 1
    start[nodes] = count
    return start, col[:count].copy()


# ---- solving ----


@njit(cache=True)
def _start_listed(edges: Listed, alpha: float, beta: float, zeta: float, q: Array) -> None:
    nodes = q.size
    near = np.full((nodes, _NEAR), np.inf)
    who = np.zeros((nodes, _NEAR), np.int32)
    usual = np.zeros(nodes)
    among = np.zeros(nodes, np.int64)
    for a in range(nodes):
        for j in range(edges.start[a], edges.start[a + 1]):
            b, x = edges.col[j], edges.val[j]
            usual[a] += x
            usual[b] += x
            among[a] += 1
            among[b] += 1
            if x < near[a, _NEAR - 1]:
                _insert(near[a], who[a], x, b)
            if x < near[b, _NEAR - 1]:
                _insert(near[b], who[b], x, a)
    for a in range(nodes):
        usual[a] /= max(1, among[a])
    _guess(near, who, usual, among, alpha, beta, zeta, q)


@njit(cache=True)
def _newton_listed(
    edges: Listed, alpha: float, beta: float, zeta: float, tolerance: float, q: Array, room: Room
) -> tuple[float, float, int]:
    warm = True
    for a in range(q.size):
        warm = warm and _LEAST < q[a] < 1.0 / _LEAST
    if not warm:
        _start_listed(edges, alpha, beta, zeta, q)
    value, gap, steps, _ = _descend(edges, alpha, beta, zeta, tolerance, q, room)
    return value + gap, gap, steps


@njit(cache=True)
def _solve_listed(
    edges: Listed, alpha: float, beta: float, zeta: float, tolerance: float, q: Array, w: Array, room: Room
) -> tuple[float, float, int]:
    room.box[:] = np.inf  # the list is the whole problem
    objective, gap, steps = _newton_listed(edges, alpha, beta, zeta, tolerance, q, room)
    if not _reached(objective, gap, alpha, max(tolerance, _GOOD)):
        q[:] = 0.0
        for power in range(_PATH, -1, -1):
            objective, gap, more = _newton_listed(edges, alpha, beta * 10.0**power, zeta, tolerance, q, room)
            steps += more
    scale = 1.0 / (4.0 * beta)
    for a in range(q.size):
        for j in range(edges.start[a], edges.start[a + 1]):
            w[j] = max(0.0, q[a] + q[edges.col[j]] - edges.val[j]) * scale
    return objective, gap, steps


def solve_list(
    candidates: Candidates,
    alpha: float,
    beta: float,
    zeta: float = 0.0,
    q: Array | None = None,
    tolerance: float = 1e-6,
) -> ListSolution:
    """Minimise g of `dual_newton.solve` over the weights w >= 0 of the candidates; all others are 0.

    Parameters
    ----------
    candidates : The edges and their costs.
    alpha : Weight of the barrier, above 0.
    beta : Weight of the squares, above 0.
    zeta : What is added to each degree, at least 0; with 0, every node needs a candidate.
    q : Potentials (d,) to start from. None: guessed from each node's nearest candidates.
    tolerance : The gap to reach, as a part of max(|g(w)|, alpha).

    >>> chain = listed(3, np.array([0, 1]), np.array([1, 2]), np.array([1.0, 1.0]))
    >>> solve_list(chain, alpha=1.0, beta=0.25, tolerance=1e-12).w.round(6)  # w^2 + w = 3/2 by symmetry
    array([0.822876, 0.822876])
    """
    nodes, edges = candidates.nodes, len(candidates.col)
    if zeta == 0.0:
        used = np.diff(candidates.start) > 0
        used[candidates.col] = True
        if not used.all():
            alone = int((~used).argmax())
            raise InputError("candidate edges", "an edge at every node, or zeta above 0", f"node {alone} has none")
    check_memory("candidate edges", 12 * edges + 300 * nodes, _LESS)
    potentials = np.zeros(nodes) if q is None else np.array(q, dtype=np.float64)
    w = np.empty_like(candidates.cost)
    listing = Listed(candidates.start, candidates.col, candidates.cost)
    room = _room(nodes, edges)
    found = _solve_listed(listing, float(alpha), float(beta), float(zeta), float(tolerance), potentials, w, room)
    return ListSolution(w, potentials, *found, proven_nodes(candidates, potentials))


def proven_nodes(candidates: Candidates, q: Array) -> BoolArray:
    """Nodes a with q_a + q_b <= max(reach_a, reach_b) for every other node b: no edge outside the list is active."""
    nodes = candidates.nodes
    if len(candidates.col) == nodes * (nodes - 1) // 2:
        return np.ones(nodes, bool)
    if candidates.reach is None:
        return np.zeros(nodes, bool)
    reach = candidates.reach
    # b can spoil a if q_b > reach_a - q_a and reach_b - q_b < q_a: among the largest q, take the least spare room.
    order = np.argsort(-q)
    spare = reach - q
    first = np.minimum.accumulate(spare[order])
    dangerous = np.searchsorted(-q[order], -spare, side="left")  # how many have q_b > reach_a - q_a
    least = np.where(dangerous > 0, first[np.maximum(dangerous, 1) - 1], np.inf)
    return np.asarray(least >= q)


def learn_graph(
    signals: Array,
    neighbours: int,
    beta: float,
    alpha: float = 1.0,
    zeta: float = 0.0,
    tolerance: float = 1e-6,
    search: Search | None = None,
) -> tuple[Candidates, ListSolution]:
    """Learn the graph of signals on each node's nearest neighbours; return the candidates and the solution.

    After an exact search, nodes that might have an active edge outside the list get twice as many neighbours, until
    there is no such node: the answer is then the optimum on all pairs.

    Parameters
    ----------
    signals : n signals on d nodes, (n, d).
    neighbours : How many nearest neighbours each node gets at first.
    beta : Weight of the squares, above 0; as a rule a larger one gives more edges.
    alpha : Weight of the barrier, above 0.
    zeta : What is added to each degree, at least 0.
    tolerance : The gap to reach, as a part of max(|g(w)|, alpha).
    search : "exact" or "approximate", as in `nearest`.

    >>> from silograph.kernels.dual_newton import solve
    >>> from silograph.kernels.edges import squared_distances
    >>> x = np.random.default_rng(0).normal(size=(50, 30))
    >>> candidates, found = learn_graph(x, neighbours=2, beta=0.05)
    >>> whole = solve(squared_distances(x)[None], alpha=1.0, beta=0.05)  # all 435 pairs
    >>> len(candidates.cost), bool(found.proven.all()), bool(np.isclose(found.objective, whole.objective[0], rtol=1e-5))
    (210, True, True)
    """
    candidates = nearest(signals, neighbours, search)
    solution = solve_list(candidates, alpha, beta, zeta, tolerance=tolerance)
    if candidates.reach is None:
        return candidates, solution
    y = node_rows(signals)
    while not solution.proven.all():
        assert candidates.reach is not None
        # Of two ends that may be joined, the one with the larger q has 2 q > reach: more neighbours there are enough.
        short = np.flatnonzero(~solution.proven & (2.0 * solution.q > candidates.reach))
        neighbours = min(2 * neighbours, len(y) - 1)
        who, farther = exact(y, short, neighbours)
        candidates = _widened(y, candidates, short, who, farther)
        solution = solve_list(candidates, alpha, beta, zeta, solution.q, tolerance)
    return candidates, solution


def _widened(y: Array, candidates: Candidates, short: NDArray[np.intp], who: Columns, reach: Array) -> Candidates:
    """Add the candidates newly found at the nodes that were short of them."""
    assert candidates.reach is not None
    a, b = candidates.ends()
    ends = np.stack([np.concatenate([a, np.repeat(short, who.shape[1])]), np.concatenate([b, who.ravel()])])
    key = np.unique(ends.min(0).astype(np.int64) * len(y) + ends.max(0))
    start, col, _ = _arrange(len(y), *np.divmod(key, len(y)))
    grown = candidates.reach.copy()
    grown[short] = reach
    return Candidates(start, col, _costs(y, start, col), grown)
