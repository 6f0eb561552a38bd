"""The exact smooth-graph solver: semismooth Newton-CG on the d-dimensional dual, with a certificate.

Primal, for one silo (S3 (7), (18)), over edge weights w >= 0:

    g(w) = c . w - alpha sum_a log(deg_a + zeta) + 2 beta |w|^2,      deg = S w

Dual, over node potentials q > 0, with t_ab = max(0, q_a + q_b - c_ab):

    D(q) = alpha sum log q_a - zeta sum q_a - sum t^2 / (8 beta) + alpha d - alpha d log alpha

and w(q) = t / (4 beta). For *any* q > 0 the distance of w(q) from the optimum is at most

    g(w(q)) - D(q) = alpha sum_a (r_a - 1 - log r_a),      r_a = q_a (deg_a + zeta) / alpha

which is what we return: it needs no second solver and does not suffer from cancellation.
Edges with c_ab > h_a + h_b are provably inactive while q <= h, so the solver reads only the others again: one pass over
the costs finds each node's nearest, to guess q and the box h, and a second one lists the edges.

This file is long because a solve is one algorithm: its parts are read together and compiled together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array
from silograph.kernels.edges import node_count
from silograph.kernels.memory import check_memory

Starts = NDArray[np.int64]  # where each node's list begins
Columns = NDArray[np.int32]  # the other end of each listed edge

_BOX = 1.1  # screening box: h = 1.1 q
_NEAR = 12  # the first q is guessed from this many nearest neighbours
_SWEEPS = 2
_SAMPLE = 16  # and from this many of the others, if they matter
_MAX_STEPS = 200
_ARMIJO = 1e-4
_LEAST = 1e-140  # a warm start outside of 1e-140 .. 1e140 is not one
_GOOD = 1e-9  # a gap where digits ran out, not Newton
_SAME = 1e-9  # grid points with log(alpha beta) closer than this count as one
_FAR_BELOW = 1e-4  # share of the requested gap that the linear solver may leave
_PATH = 6  # the fallback starts at 10^6 beta
_LESS = "Candidate edges need less (silograph.kernels.lists), single precision half."


class Listed(NamedTuple):
    """Edges a < b, ordered by their lower end: those of node a are start[a] .. start[a + 1]."""

    start: Starts
    col: Columns
    val: Array


class Room(NamedTuple):
    """Work space of a solve, used again for the next one."""

    astart: Starts  # the active edges, listed like the others
    acol: Columns
    box: Array
    deg: Array
    grad: Array
    direction: Array
    trial: Array
    work: Array  # (5, d)


@njit(cache=True)
def _room(nodes: int, edges: int) -> Room:
    return Room(
        np.empty(nodes + 1, np.int64),
        np.empty(edges, np.int32),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes),
        np.empty((5, nodes)),
    )


@njit(cache=True)
def _list_for(c: Array, nodes: int) -> Listed:
    return Listed(np.empty(nodes + 1, np.int64), np.empty(c.size, np.int32), np.empty(c.size, c.dtype))


@njit(cache=True)
def _insert(ascending: Array, names: Columns, x: float, name: int) -> float:
    """Put x into its place and drop the largest; return the largest that stayed."""
    j = ascending.size - 1
    while j > 0 and ascending[j - 1] > x:
        ascending[j] = ascending[j - 1]
        names[j] = names[j - 1]
        j -= 1
    ascending[j] = x
    names[j] = name
    return float(ascending[-1])


@njit(cache=True)
def _nearest(c: Array, nodes: int, near: Array, who: Columns) -> None:
    """The smallest costs of every node, ascending, and the nodes they belong to; infinite if there are fewer."""
    near[:] = np.inf
    who[:] = 0
    last = np.full(nodes, np.inf)
    k = 0
    for a in range(nodes - 1):
        row = c[k : k + nodes - 1 - a]
        tail = last[a + 1 :]
        others, names = near[a + 1 :], who[a + 1 :]
        own, mine = near[a], who[a]
        limit = last[a]
        for j in range(row.size):
            x = row[j]
            if x < limit:
                limit = _insert(own, mine, x, a + 1 + j)
            if x < tail[j]:
                tail[j] = _insert(others[j], names[j], x, a)
        k += row.size


@njit(cache=True)
def _usual(c: Array, nodes: int, a: int) -> float:
    """The mean finite cost of a few edges of node a, evenly chosen."""
    total = 0.0
    count = 0
    for s in range(_SAMPLE):
        b = (a + 1 + s * (nodes - 1) // _SAMPLE) % nodes
        low, high = min(a, b), max(a, b)
        x = c[low * (2 * nodes - low - 1) // 2 + high - low - 1]
        if x < np.inf:
            total += x
            count += 1
    return total / count if count > 0 else np.inf


@njit(cache=True)
def _root(mean: float, room: float) -> float:
    """The positive x with x (x - mean) = room, in the form that does not cancel."""
    root = math.sqrt(mean * mean + 4.0 * room)
    return 0.5 * (mean + root) if mean >= 0.0 else 2.0 * room / (root - mean)


@njit(cache=True)
def _alone(ascending: Array, own: float, alpha: float, beta: float) -> tuple[float, float, int]:
    """The level q with alpha / q = sum_j max(0, own q - cost_j) / (4 beta), and the total and number of the costs that
    count: own = 1 if the others' potentials are in the costs, own = 2 if they are taken to be q too."""
    total = 0.0
    count = 0
    level = np.inf
    while count < ascending.size and ascending[count] < own * level and ascending[count] < np.inf:
        total += ascending[count]
        count += 1
        level = _root(total / count, 4.0 * own * alpha * beta / count) / own
    return level, total, count


@njit(cache=True)
def _guess(
    near: Array, who: Columns, usual: Array, among: Starts, alpha: float, beta: float, zeta: float, q: Array
) -> None:
    """Guess a first q: at every node the level at which it joins its nearest neighbours, first as if they were at the
    same level, then given theirs. `usual` is the average cost of the `among` edges of a node."""
    nodes, size = near.shape
    most = alpha / zeta if zeta > 0.0 else np.inf  # the potential of degree 0
    crowded = np.zeros(nodes, np.bool_)
    for a in range(nodes):
        level, total, count = _alone(near[a], 2.0, alpha, beta)
        crowded[a] = count == size and among[a] > size and usual[a] < 2.0 * level
        if crowded[a]:
            mean = (total + usual[a] * (among[a] - size)) / among[a]
            level = 0.5 * _root(mean, 8.0 * alpha * beta / among[a])
        level = min(level, most)
        q[a] = level if level < np.inf else 1.0  # no edge is allowed at this node
    own = np.empty(size)
    for _ in range(_SWEEPS):
        for a in range(nodes):
            if crowded[a] or near[a, 0] == np.inf:
                continue
            for j in range(size):
                x = near[a, j] - q[who[a, j]]
                i = j
                while i > 0 and own[i - 1] > x:
                    own[i] = own[i - 1]
                    i -= 1
                own[i] = x
            level, _, _ = _alone(own, 1.0, alpha, beta)
            q[a] = min(level, most)


@njit(cache=True)
def _start(c: Array, nodes: int, alpha: float, beta: float, zeta: float, q: Array) -> None:
    size = min(_NEAR, nodes - 1)
    near = np.empty((nodes, size))
    who = np.empty((nodes, size), np.int32)
    _nearest(c, nodes, near, who)
    usual = np.empty(nodes)
    for a in range(nodes):
        usual[a] = _usual(c, nodes, a)
    _guess(near, who, usual, np.full(nodes, nodes - 1), alpha, beta, zeta, q)


@njit(cache=True)
def _screen(c: Array, nodes: int, edges: Listed, q: Array, room: Room) -> None:
    """List the edges that may be active while q stays in a box around its place and its target."""
    start, col, val = edges
    box = room.box
    for a in range(nodes):
        box[a] = _BOX * max(q[a], room.trial[a])
    count = 0
    k = 0
    for a in range(nodes - 1):
        row = c[k : k + nodes - 1 - a]
        tail = box[a + 1 :]
        reach = box[a]
        start[a] = count
        for j in range(row.size):
            if row[j] <= reach + tail[j]:
                col[count] = a + 1 + j
                val[count] = row[j]
                count += 1
        k += row.size
    start[nodes - 1] = count
    start[nodes] = count


@njit(cache=True)
def _evaluate(edges: Listed, q: Array, beta: float, room: Room) -> float:
    """Degrees of w(q), the active edges, and sum t^2."""
    start, col, val = edges
    astart, acol, deg = room.astart, room.acol, room.deg
    scale = 1.0 / (4.0 * beta)
    deg[:] = 0.0
    square = 0.0
    active = 0
    for a in range(q.size):
        astart[a] = active
        qa = q[a]
        total = 0.0
        for j in range(start[a], start[a + 1]):
            b = col[j]
            t = qa + q[b] - val[j]
            if t > 0.0:
                total += t
                deg[b] += t * scale
                square += t * t
                acol[active] = b
                active += 1
        deg[a] += total * scale
    astart[q.size] = active
    return square


@njit(cache=True)
def _dual_value(q: Array, square: float, alpha: float, beta: float, zeta: float) -> float:
    total = 0.0
    scale = 1.0 / alpha
    for a in range(q.size):
        total += alpha * math.log(q[a] * scale) - zeta * q[a] + alpha
    return total - square / (8.0 * beta)


@njit(cache=True)
def _gap(q: Array, deg: Array, alpha: float, zeta: float) -> float:
    total = 0.0
    scale = 1.0 / alpha
    for a in range(q.size):
        r = q[a] * (deg[a] + zeta) * scale
        if not 0.0 < r < np.inf:
            return np.inf
        total += max(0.0, r - 1.0 - math.log(r)) if abs(r - 1.0) > 1e-3 else _small_gap(r - 1.0)
    return alpha * total


@njit(cache=True)
def _small_gap(x: float) -> float:
    """x - log(1 + x) by its series: exact digits although the two nearly cancel."""
    return x * x * (0.5 - x * (1.0 / 3.0 - x * (0.25 - 0.2 * x)))


@njit(cache=True)
def _reached(objective: float, gap: float, alpha: float, tolerance: float) -> bool:
    return gap < np.inf and gap <= tolerance * max(alpha, abs(objective))


@njit(cache=True)
def _newton_direction(
    q: Array,
    grad: Array,
    astart: Starts,
    acol: Columns,
    alpha: float,
    beta: float,
    goal: float,
    work: Array,
    direction: Array,
) -> None:
    """Jacobi-CG on (diag(alpha/q^2) + (D_A + A_A)/(4 beta)) x = grad, A the active edges.

    It ends early if the residual alone would leave a gap far below the goal.
    """
    nodes = q.size
    scale = 1.0 / (4.0 * beta)
    diag, res, pre, step, prod = work[0], work[1], work[2], work[3], work[4]
    for a in range(nodes):
        diag[a] = 0.0
    for a in range(nodes):
        diag[a] += (astart[a + 1] - astart[a]) * scale
        for j in range(astart[a], astart[a + 1]):
            diag[acol[j]] += scale
    size = 0.0
    for a in range(nodes):
        diag[a] += alpha / (q[a] * q[a])
        direction[a] = 0.0
        res[a] = grad[a]
        pre[a] = res[a] / diag[a]
        step[a] = pre[a]
        size += res[a] * pre[a]
    # Inexact Newton: the forcing term shrinks with the residual, which keeps convergence superlinear.
    relative = 0.0
    for a in range(nodes):
        relative = max(relative, abs(grad[a]) * q[a] / alpha)
    stop = size * min(0.1, relative) ** 2 * 0.01
    left = np.inf
    for _ in range(nodes + 20):
        if size <= stop or left <= _FAR_BELOW * goal:
            break
        for a in range(nodes):
            prod[a] = diag[a] * step[a]
        for a in range(nodes):
            sa = step[a] * scale
            total = 0.0
            for j in range(astart[a], astart[a + 1]):
                b = acol[j]
                total += step[b]
                prod[b] += sa
            prod[a] += total * scale
        curve = 0.0
        for a in range(nodes):
            curve += step[a] * prod[a]
        move = size / curve
        fresh = 0.0
        left = 0.0
        for a in range(nodes):
            direction[a] += move * step[a]
            res[a] -= move * prod[a]
            pre[a] = res[a] / diag[a]
            fresh += res[a] * pre[a]
            left += (res[a] * q[a]) ** 2 / (2.0 * alpha)  # the gap's leading term
        for a in range(nodes):
            step[a] = pre[a] + (fresh / size) * step[a]
        size = fresh


@njit(cache=True)
def _descend(
    edges: Listed, alpha: float, beta: float, zeta: float, tolerance: float, q: Array, room: Room
) -> tuple[float, float, int, bool]:
    """Take Newton steps over the listed edges, q in place; return (D(q), certified absolute gap, steps, inside).

    If a step would leave the box, it stops, not inside, and leaves the target in `room.trial`.
    """
    nodes = q.size
    box, deg, grad, direction, trial = room.box, room.deg, room.grad, room.direction, room.trial
    square = _evaluate(edges, q, beta, room)
    value = _dual_value(q, square, alpha, beta, zeta)
    gap = _gap(q, deg, alpha, zeta)
    steps = 0
    while steps < _MAX_STEPS:
        if _reached(value + gap, gap, alpha, tolerance):
            break
        steps += 1
        for a in range(nodes):
            grad[a] = alpha / q[a] - zeta - deg[a]
        goal = tolerance * max(alpha, abs(value + gap)) if gap < np.inf else 0.0
        _newton_direction(q, grad, room.astart, room.acol, alpha, beta, goal, room.work, direction)
        slope = 0.0
        length = 1.0
        for a in range(nodes):
            slope += grad[a] * direction[a]
            if direction[a] < 0.0:
                length = min(length, -0.9 * q[a] / direction[a])
        moved = False
        fresh = new_gap = 0.0
        while length > 1e-12:
            inside = True
            for a in range(nodes):
                trial[a] = q[a] + length * direction[a]
                inside = inside and trial[a] <= box[a]
            if not inside:
                return value, gap, steps, False
            square = _evaluate(edges, trial, beta, room)
            fresh = _dual_value(trial, square, alpha, beta, zeta)
            new_gap = _gap(trial, deg, alpha, zeta)
            # Near the optimum the dual's digits run out before the certificate's do: then the certificate judges.
            if fresh >= value + _ARMIJO * length * slope or new_gap < 0.5 * gap:
                moved = True
                break
            length *= 0.5
        if not moved:
            break
        q[:] = trial
        value, gap = fresh, new_gap
    return value, gap, steps, True


@njit(cache=True)
def _newton(
    c: Array, alpha: float, beta: float, zeta: float, tolerance: float, q: Array, edges: Listed, room: Room
) -> tuple[float, float, int]:
    """Improve q in place and list the edges it needs; return (g(w(q)), certified absolute gap, Newton steps)."""
    nodes = q.size
    warm = True
    for a in range(nodes):
        warm = warm and _LEAST < q[a] < 1.0 / _LEAST
    if not warm:
        _start(c, nodes, alpha, beta, zeta, q)
    room.trial[:] = q
    steps = 0
    inside = False
    while not inside and steps < _MAX_STEPS:
        _screen(c, nodes, edges, q, room)
        value, gap, more, inside = _descend(edges, alpha, beta, zeta, tolerance, q, room)
        steps += more
    return value + gap, gap, steps


@njit(cache=True, fastmath={"reassoc"})
def _certify(c: Array, alpha: float, beta: float, zeta: float, q: Array, w: Array, deg: Array) -> tuple[float, float]:
    """Compute w(q), its objective and its certified gap in one pass over all edges, regardless of earlier screening."""
    nodes = q.size
    scale = 1.0 / (4.0 * beta)
    deg[:] = 0.0
    square = 0.0
    k = 0
    for a in range(nodes - 1):
        row = c[k : k + nodes - 1 - a]
        out = w[k : k + nodes - 1 - a]
        tail, others = q[a + 1 :], deg[a + 1 :]
        qa = q[a]
        total = 0.0
        for j in range(row.size):
            t = max(0.0, qa + tail[j] - row[j])
            out[j] = t * scale
            others[j] += t
            total += t
            square += t * t
        deg[a] += total
        k += row.size
    deg *= scale
    gap = _gap(q, deg, alpha, zeta)
    return _dual_value(q, square, alpha, beta, zeta) + gap, gap


@njit(cache=True)
def _solve_one(
    c: Array, alpha: float, beta: float, zeta: float, tolerance: float, q: Array, w: Array, edges: Listed, room: Room
) -> tuple[float, float, int]:
    """Run Newton from q (from a good guess if it is 0); if that fails, follow a path of falling beta from a cold
    start."""
    objective, gap, steps = _newton(c, alpha, beta, zeta, tolerance, q, edges, room)
    if not _reached(objective, gap, alpha, max(tolerance, _GOOD)):
        q[:] = 0.0
        for power in range(_PATH, -1, -1):
            _, _, more = _newton(c, alpha, beta * 10.0**power, zeta, tolerance, q, edges, room)
            steps += more
    objective, gap = _certify(c, alpha, beta, zeta, q, w, room.deg)
    return objective, gap, steps


@njit(cache=True)
def _solve_rows(
    c: Array, alpha: float, beta: Array, zeta: float, tolerance: float, q: Array, w: Array
) -> tuple[Array, Array, NDArray[np.int64]]:
    rows, nodes = q.shape
    objective = np.empty(rows)
    gap = np.empty(rows)
    steps = np.empty(rows, np.int64)
    edges, room = _list_for(c[0], nodes), _room(nodes, c.shape[1])
    for i in range(rows):
        objective[i], gap[i], steps[i] = _solve_one(c[i], alpha, beta[i], zeta, tolerance, q[i], w[i], edges, room)
    return objective, gap, steps


@njit(cache=True)
def _solve_paths(
    c: Array,
    alpha: Array,
    beta: Array,
    zeta: float,
    tolerance: float,
    order: NDArray[np.int64],
    q: Array,
    w: Array,
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Solve every row of c at every (alpha, beta), in the order of alpha beta: if zeta = 0, q depends on that alone."""
    rows, points, nodes = q.shape
    objective = np.empty((rows, points))
    gap = np.empty((rows, points))
    steps = np.zeros((rows, points), np.int64)
    x = np.log(alpha * beta)
    edges, room = _list_for(c[0], nodes), _room(nodes, c.shape[1])
    for i in range(rows):
        cost = c[i]
        q[i, order[0]] = 0.0
        last = older = order[0]
        for s in order:
            here, out = q[i, s], w[i, s]
            # Follow the secant through the last two places that needed Newton, until the certificate fails.
            now, then = q[i, last], q[i, older]
            before = x[last] - x[older]
            share = (x[s] - x[last]) / before if before > _SAME else 0.0
            for a in range(nodes):
                here[a] = max(0.5 * now[a], now[a] + share * (now[a] - then[a]))
            objective[i, s], gap[i, s] = _certify(cost, alpha[s], beta[s], zeta, here, out, room.deg)
            if not _reached(objective[i, s], gap[i, s], alpha[s], tolerance):
                objective[i, s], gap[i, s], steps[i, s] = _solve_one(
                    cost, alpha[s], beta[s], zeta, tolerance, here, out, edges, room
                )
                if x[s] - x[last] > _SAME:
                    older = last
                last = s
    return objective, gap, steps


class Solution:
    """The answer of `solve`, one row per problem; `solve_grid` adds an axis for the points of its grid.

    Parameters
    ----------
    w : Edge weights (n, p).
    q : Potentials of the nodes (n, d), from which w and its certificate follow.
    objective : g(w), (n,).
    gap : The certificate (n,): g(w) is above the minimum by at most this, in the units of g.
    steps : Newton steps (n,).

    >>> found = solve(np.array([[1.0, 4.0, 1.0]]), alpha=1.0, beta=0.1)  # nodes 0 and 2 are far apart
    >>> found.w.round(2), bool(found.gap[0] < 1e-9)
    (array([[1.05, 0.  , 1.05]]), True)
    >>> below = lower_bound(np.array([[1.0, 4.0, 1.0]]), found.q, alpha=1.0, beta=0.1)
    >>> np.allclose(found.objective - found.gap, below)
    True
    """

    __slots__ = ("gap", "objective", "q", "steps", "w")

    def __init__(self, w: Array, q: Array, objective: Array, gap: Array, steps: NDArray[np.int64]) -> None:
        self.w, self.q, self.objective, self.gap, self.steps = w, q, objective, gap, steps


def solve(
    c: Array,
    alpha: float,
    beta: float | Array,
    zeta: float = 0.0,
    q: Array | None = None,
    tolerance: float = 1e-12,
) -> Solution:
    """Minimise over w >= 0, for every row of c, with deg_a the sum of the weights at node a,

        g(w) = c . w - alpha sum_a log(deg_a + zeta) + 2 beta |w|^2

    Parameters
    ----------
    c : Costs of the edges (n, p), one row per problem; they may be negative, and infinite ones forbid an edge. Costs in
        single precision take half the memory; weights are then in single precision too, and everything else in double.
    alpha : Weight of the barrier, above 0; with zeta 0 it gives every node an edge.
    beta : Weight of the squares, above 0: one number, or one for each row. As a rule a larger one gives more edges.
    zeta : What is added to each degree, at least 0; above 0 a node may be left without an edge.
    q : Potentials (n, d) to start from, such as those of a similar problem. None: guessed from each node's nearest.
    tolerance : The gap to reach, as a part of max(|g(w)|, alpha). `Solution.gap` says what was reached.

    >>> found = solve(np.array([[1.0]]), alpha=1.0, beta=0.25)  # one edge: w - 2 log w + w^2 / 2, least at w = 1
    >>> found.w.round(9), found.objective.round(9)
    (array([[1.]]), array([1.5]))
    """
    c = np.ascontiguousarray(c, dtype=np.float32 if c.dtype == np.float32 else np.float64)
    rows, edges = c.shape
    nodes = node_count(edges)
    check_memory("dense graphs", rows * edges * c.itemsize + 16 * edges, _LESS)
    potentials = np.zeros((rows, nodes)) if q is None else np.array(q, dtype=np.float64)
    w = np.empty_like(c)
    betas = np.ascontiguousarray(np.broadcast_to(np.asarray(beta, dtype=np.float64), (rows,)))
    objective, gap, steps = _solve_rows(c, float(alpha), betas, float(zeta), float(tolerance), potentials, w)
    return Solution(w, potentials, objective, gap, steps)


def solve_grid(c: Array, alpha: Array, beta: Array, zeta: float = 0.0, tolerance: float = 1e-12) -> Solution:
    """Minimise g of `solve` for every row of c at every point (alpha_k, beta_k), in one call.

    The fields of the answer have one more axis than those of `solve`: (n, m, ...).

    Parameters
    ----------
    c : Costs of the edges (n, p), in double precision.
    alpha : Weights of the barrier (m,), above 0.
    beta : Weights of the squares (m,), above 0.
    zeta : What is added to each degree, at least 0.
    tolerance : The gap to reach, as a part of max(|g(w)|, alpha), at every point.

    >>> grid = solve_grid(np.array([[1.0, 2.0, 1.5]]), alpha=np.array([1.0, 2.0]), beta=np.array([0.5, 0.25]))
    >>> np.allclose(grid.w[0, 1], 2.0 * grid.w[0, 0])  # w(alpha, beta) = alpha w(1, alpha beta) if zeta is 0
    True
    """
    c = np.ascontiguousarray(c, dtype=np.float64)
    rows, edges = c.shape
    alphas, betas = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    check_memory("a grid of graphs", 8 * rows * alphas.size * edges, "Fewer points or rows at a time need less.")
    q = np.empty((rows, alphas.size, node_count(edges)))
    w = np.empty((rows, alphas.size, edges))
    order = np.argsort(alphas * betas, kind="stable")
    objective, gap, steps = _solve_paths(c, alphas, betas, float(zeta), float(tolerance), order, q, w)
    return Solution(w, q, objective, gap, steps)


def lower_bound(c: Array, q: Array, alpha: float, beta: float, zeta: float = 0.0) -> Array:
    """Bound g from below: no w >= 0 has a smaller g than D(q), with t_ab = max(0, q_a + q_b - c_ab),

        D(q) = alpha sum log q_a - zeta sum q_a - sum t^2 / (8 beta) + alpha d - alpha d log alpha

    Parameters
    ----------
    c : Costs of the edges (n, p), as in `solve`.
    q : Potentials (n, d), any above 0; where one is not, the bound is -infinity.
    alpha : Weight of the barrier, above 0.
    beta : Weight of the squares, above 0.
    zeta : What is added to each degree, at least 0.

    >>> lower_bound(np.array([[1.0]]), np.array([[1.0, 1.0], [0.9, 0.9]]), alpha=1.0, beta=0.25)  # the minimum is 1.5
    array([1.5       , 1.46927897])
    """
    nodes = q.shape[-1]
    a, b = np.triu_indices(nodes, 1)
    t = np.maximum(q[..., a] + q[..., b] - c, 0.0)
    safe = np.where(q > 0.0, q, alpha)
    value = (alpha * np.log(safe / alpha) - zeta * q + alpha).sum(-1) - (t * t).sum(-1) / (8.0 * beta)
    return np.where((q > 0.0).all(-1), value, -np.inf)
