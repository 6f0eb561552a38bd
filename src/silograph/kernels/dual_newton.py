"""The exact smooth-graph solver: semismooth Newton-CG on the d-dimensional dual, with a certificate.

Primal, for one silo (S3 (7), (18)), over edge weights w >= 0:

    g(w) = c . w - alpha sum_a log(deg_a + zeta) + 2 beta |w|^2,      deg = S w

Dual, over node potentials q > 0, with t_ab = max(0, q_a + q_b - c_ab):

    D(q) = alpha sum log q_a - zeta sum q_a - sum t^2 / (8 beta) + alpha d - alpha d log alpha

and w(q) = t / (4 beta). For *any* q > 0 the distance of w(q) from the optimum is at most

    g(w(q)) - D(q) = alpha sum_a (r_a - 1 - log r_a),      r_a = q_a (deg_a + zeta) / alpha

which is what we return: it needs no second solver and does not suffer from cancellation.
Edges with c_ab > h_a + h_b are provably inactive while q <= h, so only the others are ever looked at again.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array
from silograph.kernels.edges import node_count

Starts = NDArray[np.int64]  # where each node's list begins
Columns = NDArray[np.int32]  # the other end of each listed edge

_BOX = 1.2  # screening box: h = 1.2 q
_MAX_STEPS = 200
_ARMIJO = 1e-4
_LEAST = 1e-140  # a warm start outside of 1e-140 .. 1e140 is not one
_GOOD = 1e-9  # a gap where digits ran out, not Newton
_PATH = 6  # the fallback starts at 10^6 beta


@njit(cache=True)
def _start(c: Array, nodes: int, alpha: float, beta: float, zeta: float, q: Array) -> None:
    """A first q: the larger of the nearest neighbour's distance and the potential of the complete graph."""
    nearest = np.full(nodes, np.inf)
    k = 0
    for a in range(nodes - 1):
        row = c[k : k + nodes - 1 - a]
        tail = nearest[a + 1 :]
        low = nearest[a]
        for j in range(row.size):
            low = min(low, row[j])
            tail[j] = min(tail[j], row[j])
        nearest[a] = low
        k += row.size
    # Complete graph, all distances m: alpha / q = (d - 1)(2 q - m) / (4 beta).
    for a in range(nodes):
        m = nearest[a]
        if m == np.inf:  # no edge is allowed at this node: its potential is that of degree 0
            q[a] = alpha / zeta if zeta > 0.0 else 1.0
            continue
        room = 32.0 * alpha * beta / (nodes - 1)
        root = math.sqrt(m * m + room)
        # The positive root, in the form that does not cancel where m is far below 0.
        complete = (m + root) / 4.0 if m >= 0.0 else room / (4.0 * (root - m))
        q[a] = max(m, complete)


@njit(cache=True)
def _screen(c: Array, nodes: int, q: Array, box: Array, start: Starts, col: Columns, val: Array) -> int:
    """List the edges that may be active while q <= box = 1.2 q, row by row; returns how many."""
    for a in range(nodes):
        box[a] = _BOX * q[a]
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
    return count


@njit(cache=True)
def _evaluate(
    start: Starts,
    col: Columns,
    val: Array,
    nodes: int,
    q: Array,
    beta: float,
    deg: Array,
    astart: Starts,
    acol: Columns,
) -> float:
    """Degrees of w(q), the active edges, and sum t^2."""
    scale = 1.0 / (4.0 * beta)
    deg[:] = 0.0
    square = 0.0
    active = 0
    for a in range(nodes):
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
    astart[nodes] = active
    return square


@njit(cache=True)
def _dual_value(q: Array, square: float, alpha: float, beta: float, zeta: float) -> float:
    total = 0.0
    for a in range(q.size):
        total += alpha * math.log(q[a] / alpha) - zeta * q[a] + alpha
    return total - square / (8.0 * beta)


@njit(cache=True)
def _gap(q: Array, deg: Array, alpha: float, zeta: float) -> float:
    total = 0.0
    for a in range(q.size):
        r = q[a] * (deg[a] + zeta) / alpha
        if not 0.0 < r < np.inf:
            return np.inf
        total += max(0.0, r - 1.0 - math.log(r)) if abs(r - 1.0) > 1e-4 else _small_gap(r - 1.0)
    return alpha * total


@njit(cache=True)
def _small_gap(x: float) -> float:
    """x - log(1 + x) by its series: exact digits where the two nearly cancel."""
    return x * x * (0.5 - x * (1.0 / 3.0 - x * (0.25 - 0.2 * x)))


@njit(cache=True)
def _newton_direction(
    q: Array, grad: Array, astart: Starts, acol: Columns, alpha: float, beta: float, work: Array, direction: Array
) -> None:
    """Jacobi-CG on (diag(alpha/q^2) + (D_A + A_A)/(4 beta)) x = grad, A the active edges."""
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
    for _ in range(nodes + 20):
        if size <= stop:
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
        for a in range(nodes):
            direction[a] += move * step[a]
            res[a] -= move * prod[a]
            pre[a] = res[a] / diag[a]
            fresh += res[a] * pre[a]
        for a in range(nodes):
            step[a] = pre[a] + (fresh / size) * step[a]
        size = fresh


@njit(cache=True)
def _newton(
    c: Array, nodes: int, alpha: float, beta: float, zeta: float, tolerance: float, q: Array, w: Array
) -> tuple[float, float, int]:
    """Improve q in place, write w(q); returns (g(w), certified absolute gap, Newton steps)."""
    edges = c.size
    start = np.empty(nodes + 1, np.int64)
    col = np.empty(edges, np.int32)
    val = np.empty(edges)
    astart = np.empty(nodes + 1, np.int64)
    acol = np.empty(edges, np.int32)
    box = np.empty(nodes)
    deg = np.empty(nodes)
    grad = np.empty(nodes)
    direction = np.empty(nodes)
    trial = np.empty(nodes)
    work = np.empty((5, nodes))

    warm = True
    for a in range(nodes):
        warm = warm and _LEAST < q[a] < 1.0 / _LEAST
    if not warm:
        _start(c, nodes, alpha, beta, zeta, q)
    _screen(c, nodes, q, box, start, col, val)
    square = _evaluate(start, col, val, nodes, q, beta, deg, astart, acol)
    value = _dual_value(q, square, alpha, beta, zeta)
    gap = _gap(q, deg, alpha, zeta)
    steps = 0
    while steps < _MAX_STEPS:
        if gap < np.inf and gap <= tolerance * max(alpha, abs(value + gap)):
            break
        steps += 1
        for a in range(nodes):
            grad[a] = alpha / q[a] - zeta - deg[a]
        _newton_direction(q, grad, astart, acol, alpha, beta, work, direction)
        slope = 0.0
        length = 1.0
        for a in range(nodes):
            slope += grad[a] * direction[a]
            if direction[a] < 0.0:
                length = min(length, -0.9 * q[a] / direction[a])
        moved = False
        while length > 1e-12:
            inside = True
            for a in range(nodes):
                trial[a] = q[a] + length * direction[a]
                inside = inside and trial[a] <= box[a]
            if not inside:
                _screen(c, nodes, trial, box, start, col, val)
            square = _evaluate(start, col, val, nodes, trial, beta, deg, astart, acol)
            fresh = _dual_value(trial, square, alpha, beta, zeta)
            new_gap = _gap(trial, deg, alpha, zeta)
            # Near the optimum the dual's digits run out before the certificate's do: then let that one judge.
            if fresh >= value + _ARMIJO * length * slope or new_gap < 0.5 * gap:
                moved = True
                break
            length *= 0.5
        if not moved:
            break
        q[:] = trial
        value, gap = fresh, new_gap

    # Leave w, objective and certificate of the q we keep (a failed line search left the trial's behind).
    inside = True
    for a in range(nodes):
        inside = inside and q[a] <= box[a]
    if not inside:
        _screen(c, nodes, q, box, start, col, val)
    square = _evaluate(start, col, val, nodes, q, beta, deg, astart, acol)
    gap = _gap(q, deg, alpha, zeta)
    value = _dual_value(q, square, alpha, beta, zeta)
    w[:] = 0.0
    scale = 1.0 / (4.0 * beta)
    k = 0
    for a in range(nodes - 1):
        row = w[k : k + nodes - 1 - a]
        for j in range(start[a], start[a + 1]):
            b = col[j]
            t = q[a] + q[b] - val[j]
            if t > 0.0:
                row[b - a - 1] = t * scale
        k += row.size
    return value + gap, gap, steps


@njit(cache=True)
def _solve_one(
    c: Array, nodes: int, alpha: float, beta: float, zeta: float, tolerance: float, q: Array, w: Array
) -> tuple[float, float, int]:
    """Newton from q (from a good guess if it is 0); if that fails, a path of falling beta from a cold start."""
    objective, gap, steps = _newton(c, nodes, alpha, beta, zeta, tolerance, q, w)
    if gap < np.inf and gap <= max(tolerance, _GOOD) * max(alpha, abs(objective)):
        return objective, gap, steps
    q[:] = 0.0
    for power in range(_PATH, -1, -1):
        objective, gap, more = _newton(c, nodes, alpha, beta * 10.0**power, zeta, tolerance, q, w)
        steps += more
    return objective, gap, steps


@njit(cache=True)
def _solve_rows(
    c: Array, nodes: int, alpha: float, beta: Array, zeta: float, tolerance: float, q: Array, w: Array
) -> tuple[Array, Array, NDArray[np.int64]]:
    rows = c.shape[0]
    objective = np.empty(rows)
    gap = np.empty(rows)
    steps = np.empty(rows, np.int64)
    for i in range(rows):
        objective[i], gap[i], steps[i] = _solve_one(c[i], nodes, alpha, beta[i], zeta, tolerance, q[i], w[i])
    return objective, gap, steps


class Solution:
    """w, the potentials q that prove it, g(w) and the certified absolute gap, one row per problem."""

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
    """Minimise g over w >= 0 for every row of c (n, p); `q` (n, d) warm-starts.

    `tolerance` bounds gap / max(|g(w)|, alpha).
    """
    c = np.ascontiguousarray(c, dtype=np.float64)
    rows, edges = c.shape
    nodes = node_count(edges)
    potentials = np.zeros((rows, nodes)) if q is None else np.array(q, dtype=np.float64)
    w = np.empty_like(c)
    betas = np.ascontiguousarray(np.broadcast_to(np.asarray(beta, dtype=np.float64), (rows,)))
    objective, gap, steps = _solve_rows(c, nodes, alpha, betas, zeta, tolerance, potentials, w)
    return Solution(w, potentials, objective, gap, steps)


def lower_bound(c: Array, q: Array, alpha: float, beta: float, zeta: float = 0.0) -> Array:
    """D(q) for every row: no w >= 0 has a smaller g, whatever q > 0 is (and -infinity where q is not)."""
    nodes = q.shape[-1]
    a, b = np.triu_indices(nodes, 1)
    t = np.maximum(q[..., a] + q[..., b] - c, 0.0)
    safe = np.where(q > 0.0, q, alpha)
    value = (alpha * np.log(safe / alpha) - zeta * q + alpha).sum(-1) - (t * t).sum(-1) / (8.0 * beta)
    return np.where((q > 0.0).all(-1), value, -np.inf)
