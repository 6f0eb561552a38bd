"""Precision matrices of several sites at once: the Gaussian likelihood with penalties that couple sites, edge by edge.

    minimise  sum_k nu_k [tr(S_k T_k) - logdet T_k] + 2 sum_{a<b} P_ab(theta_ab)                                     (a)

    P_ab(t) = sum_k lam_k |t_k| + gam |t|_2 + (beta / 2) |t|^2                                                       (b)

theta_ab is the vector of the sites' off-diagonal entries T_k[a, b]; diagonals are free. lam_k (infinite: no edge),
gam and beta may differ from edge to edge. lam makes graphs sparse, gam makes sites share edges, beta is a ridge. With
`nonnegative` relations are positive, T_k[a, b] <= 0: M-matrices, such as Laplacians with something on the diagonal.

The dual: for any W_k > 0 with diag W_k = diag S_k, with A_k = nu_k (W_k - S_k),

    (a) >= sum_k nu_k (logdet W_k + d) - 2 sum_{a<b} P*_ab(A_ab),                                                    (c)
    P*(A) = max(0, |soft(A, lam)|_2 - gam)^2 / (2 beta),                                                             (d)

which for beta = 0 is 0 where |soft(A, lam)|_2 <= gam and infinite elsewhere. At W = T^-1, mended edge by edge to be
feasible, (a) minus (c) is the certificate. Divided by sum_k nu_k d it is an error per record and node, in nats: units
do not matter.

The method is proximal Newton: coordinate descent over the edges that are not at rest, then a line search. Every step
looks at all pairs, so no list of candidates is needed and the certificate holds for all of them. Nodes that no edge can
connect (|soft(nu S, lam)|_2 <= gam, exact as W = 0 there) are problems of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from silograph.core.types import Array, BoolArray
from silograph.kernels.definite import add, cholesky, dot, inverse, invert, log_det

NEWTON_STEPS = 100
_ARMIJO = 1e-3
_SCREENED = 64  # nodes from which looking for separate blocks pays
_LARGE = 96  # nodes from which inverses by LAPACK's routine for factors do, for which compiled code has to be left
OBJECTIVE, GAP, STEPS, FIT, COST = range(5)


@dataclass(frozen=True)
class Penalty:
    """(b) for one problem; everything broadcasts, lam to (K, d, d), gam and beta to (d, d)."""

    lam: Array | float = 0.0
    gam: Array | float = 0.0
    beta: Array | float = 0.0
    nonnegative: bool = False


@dataclass(frozen=True)
class Joint:
    """The minimum of (a): `theta` (K, d, d), its inverse, the value, the gap in units of (a), and the same per record
    and node."""

    theta: Array
    covariance: Array
    objective: float
    gap: float
    relative_gap: float
    steps: int


def solve(
    moments: Array, weights: Array, penalty: Penalty, start: Array | None = None, tolerance: float = 1e-6
) -> Joint:
    """One problem: moments (K, d, d) with positive diagonals, weights nu (K,), and a theta to start from if known."""
    sites, nodes = moments.shape[0], moments.shape[1]
    lam = np.broadcast_to(penalty.lam, moments.shape)
    gam, beta = np.broadcast_to(penalty.gam, moments.shape[1:]), np.broadcast_to(penalty.beta, moments.shape[1:])
    whole = slice(None), slice(None), slice(None)
    if nodes < _SCREENED:
        return _solve_block(moments, weights, lam, gam, beta, penalty.nonnegative, start, tolerance, whole)
    blocks = connected_components(_touching(moments, weights, lam, gam, penalty.nonnegative), False)[1]
    theta, covariance = np.zeros(moments.shape), np.zeros(moments.shape)
    gap, objective, steps = 0.0, 0.0, 0
    for inside in np.split(np.argsort(blocks, kind="stable"), np.cumsum(np.bincount(blocks))[:-1]):
        here = np.ix_(np.arange(sites), inside, inside)
        part = _solve_block(moments, weights, lam, gam, beta, penalty.nonnegative, start, tolerance, here)
        theta[here], covariance[here] = part.theta, part.covariance
        gap, objective, steps = gap + part.gap, objective + part.objective, max(steps, part.steps)
    return Joint(theta, covariance, objective, gap, gap / (float(weights.sum()) * nodes), steps)


def solve_batch(
    moments: Array, weights: Array, penalties: Penalty | Sequence[Penalty], tolerance: float = 1e-6
) -> list[Joint]:
    """Many problems in one call: moments (B, K, d, d) with a penalty for all or for each, or moments (K, d, d) and a
    path of penalties, on which each one starts at the one before."""
    path = moments.ndim == 3
    each = [penalties] * len(moments) if isinstance(penalties, Penalty) else list(penalties)
    nodes = moments.shape[-1]
    if not each or nodes >= _SCREENED or nodes == 1 or len({penalty.nonnegative for penalty in each}) > 1:
        found: list[Joint] = []
        for b, penalty in enumerate(each):
            start = found[-1].theta if path and found else None
            found.append(solve(moments if path else moments[b], weights, penalty, start, tolerance))
        return found
    s = np.ascontiguousarray(moments[None] if path else moments, dtype=np.float64)
    nu = np.ascontiguousarray(weights, dtype=np.float64)
    different = {id(penalty): penalty for penalty in each}
    place = {key: number for number, key in enumerate(different)}
    lam = np.array([np.broadcast_to(penalty.lam, s.shape[1:]) for penalty in different.values()])
    gam, beta = (
        np.array([np.broadcast_to(getattr(penalty, name), s.shape[2:]) for penalty in different.values()])
        for name in ("gam", "beta")
    )
    which = np.array([place[id(penalty)] for penalty in each])
    theta, covariance, facts = (np.empty((len(each), *shape)) for shape in (s.shape[1:], s.shape[1:], (5,)))
    _newtons(s, nu, lam, gam, beta, which, each[0].nonnegative, path, theta, covariance, tolerance, facts)
    return [_joint(*one, float(nu.sum()) * nodes) for one in zip(theta, covariance, facts, strict=True)]


def _solve_block(
    moments: Array, weights: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool, start: Array | None,
    tolerance: float, here: tuple[Any, ...],
) -> Joint:  # fmt: skip
    """The problem of some nodes alone."""
    s, l = np.ascontiguousarray(moments[here]), np.ascontiguousarray(lam[here])
    nodes = s.shape[1]
    within = here[1:] if isinstance(here[1], slice) else (here[1][0], here[2][0])
    diagonal = np.arange(nodes)
    theta = np.zeros(s.shape) if start is None else np.where(np.isinf(l), 0.0, start[here])
    theta[:, diagonal, diagonal] = (
        1.0 / s[:, diagonal, diagonal] if start is None else start[here][:, diagonal, diagonal]
    )
    nu = np.ascontiguousarray(weights, dtype=np.float64)
    if nodes == 1:
        return Joint(1.0 / s, s, float((nu * (1.0 + np.log(s[:, 0, 0]))).sum()), 0.0, 0.0, 0)
    covariance, facts, roots = np.empty_like(s), np.zeros(5), np.zeros_like(s)
    problem = (s, nu, l, np.ascontiguousarray(gam[within]), np.ascontiguousarray(beta[within]), nonnegative)
    if nodes < _LARGE:
        _newton(*problem, theta, covariance, roots, tolerance, facts)
    else:
        _begin(*problem, theta, roots, facts)
        for k in range(len(s)):
            inverse(roots[k], covariance[k])
        while _step(*problem, theta, covariance, roots, tolerance, facts):
            for k in range(len(s)):
                inverse(roots[k], covariance[k])
    return _joint(theta, covariance, facts, float(nu.sum()) * nodes)


def _joint(theta: Array, covariance: Array, facts: Array, scale: float) -> Joint:
    objective, gap, steps = float(facts[OBJECTIVE]), float(facts[GAP]), int(facts[STEPS])
    return Joint(theta, covariance, objective, gap, gap / scale, steps)


def _touching(moments: Array, weights: Array, lam: Array, gam: Array, nonnegative: bool) -> BoolArray:
    """Pairs of nodes that an edge could connect: those that do not rest at 0 when nothing else does not."""
    pull = -weights[:, None, None] * moments
    left = np.maximum(np.abs(pull) - lam, 0.0)
    if nonnegative:
        left[pull > 0.0] = 0.0
    return np.asarray(np.sqrt((left**2).sum(0)) > gam)


# ---- one edge --------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _soft(value: float, lam: float, nonnegative: bool) -> float:
    """What is left of a pull after |.| has taken lam; with `nonnegative` only pulls below 0 count."""
    if value < -lam:
        return value + lam
    if value > lam and not nonnegative:
        return value - lam
    return 0.0


@njit(cache=True, nogil=True)
def _minimum(curve: Array, pull: Array, gam: float, out: Array) -> None:
    """argmin of sum_k (curve_k / 2) x_k^2 - pull_k x_k + gam |x|; lam is already taken off the pulls."""
    sites = len(pull)
    norm = 0.0
    for k in range(sites):
        norm += pull[k] * pull[k]
    norm = np.sqrt(norm)
    if norm <= gam:
        out[:] = 0.0
        return
    if gam == 0.0:
        for k in range(sites):
            out[k] = pull[k] / curve[k]
        return
    # x_k = pull_k t / (curve_k t + gam) with t = |x|: 1 = sum (pull_k / (curve_k t + gam))^2, convex and falling in t.
    t = (norm - gam) / curve.max()
    for _ in range(60):
        value, slope = -1.0, 0.0
        for k in range(sites):
            part = pull[k] / (curve[k] * t + gam)
            value += part * part
            slope -= 2.0 * part * part * curve[k] / (curve[k] * t + gam)
        step = value / slope
        t -= step
        if abs(step) <= 1e-8 * t:  # Newton's next step would be the square of that
            break
    for k in range(sites):
        out[k] = pull[k] * t / (curve[k] * t + gam)


# ---- all edges -------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _penalty(theta: Array, lam: Array, gam: Array, beta: Array) -> float:
    """2 sum_{a<b} P_ab."""
    sites, nodes, total = theta.shape[0], theta.shape[1], 0.0
    for a in range(nodes):
        for b in range(a):
            square = 0.0
            for k in range(sites):
                t = theta[k, a, b]
                if t != 0.0:
                    total += lam[k, a, b] * abs(t)
                    square += t * t
            if square > 0.0:
                total += gam[a, b] * np.sqrt(square) + 0.5 * beta[a, b] * square
    return 2.0 * total


@njit(cache=True, nogil=True)
def _fit(s: Array, nu: Array, theta: Array, roots: Array) -> float:
    """sum_k nu_k [tr(S_k T_k) - logdet T_k], infinite where some T_k is not positive definite."""
    total = 0.0
    for k in range(len(s)):
        if not cholesky(theta[k], roots[k]):
            return np.inf
        total += nu[k] * (dot(s[k].ravel(), theta[k].ravel()) - log_det(roots[k]))
    return total


@njit(cache=True, nogil=True)
def _dual(s: Array, nu: Array, w: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool) -> float:
    """(c) at W mended: the diagonals of S, and every edge without beta drawn back into its ball."""
    sites, nodes = s.shape[0], s.shape[1]
    value, pull = 0.0, np.empty(sites)
    mended = w.copy()
    for a in range(nodes):
        for k in range(sites):
            mended[k, a, a] = s[k, a, a]
        for b in range(a):
            scale, square = 1.0, 0.0
            for k in range(sites):
                pull[k] = nu[k] * (w[k, a, b] - s[k, a, b])
                square += _soft(pull[k], lam[k, a, b], nonnegative) ** 2
            if beta[a, b] > 0.0:
                value -= max(0.0, np.sqrt(square) - gam[a, b]) ** 2 / beta[a, b]  # (d), twice
            elif square > gam[a, b] ** 2:
                scale = _within(pull, lam[:, a, b], gam[a, b], nonnegative)
            for k in range(sites):
                kept = pull[k] if lam[k, a, b] == np.inf else scale * pull[k]
                mended[k, a, b] = s[k, a, b] + kept / nu[k]  # the factor reads the lower half alone
    root = np.zeros((nodes, nodes))
    for k in range(sites):
        if not cholesky(mended[k], root):
            return -np.inf
        value += nu[k] * (log_det(root) + nodes)
    return value


@njit(cache=True, nogil=True)
def _within(pull: Array, lam: Array, gam: float, nonnegative: bool) -> float:
    """The largest factor up to 1 by which the pulls satisfy |soft(pull, lam)|_2 <= gam."""
    low, high = 0.0, 1.0
    for attempt in range(60):
        middle = 1.0 if attempt == 0 else 0.5 * (low + high)
        square = 0.0
        for k in range(len(pull)):
            square += _soft(middle * pull[k], lam[k], nonnegative) ** 2
        if square <= gam * gam:
            if middle == 1.0:
                return 1.0
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _free(
    s: Array, nu: Array, w: Array, theta: Array, lam: Array, gam: Array, nonnegative: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges that are there, or that the gradient would move; by their second end."""
    sites, nodes = s.shape[0], s.shape[1]
    first, last = np.empty(nodes * (nodes - 1) // 2, dtype=np.int64), np.zeros(nodes + 1, dtype=np.int64)
    number = 0
    for b in range(nodes):
        for a in range(b):
            there, square = False, 0.0
            for k in range(sites):
                if theta[k, b, a] != 0.0:
                    there = True
                    break
                square += _soft(nu[k] * (w[k, b, a] - s[k, b, a]), lam[k, b, a], nonnegative) ** 2
            if there or square > gam[b, a] ** 2:
                first[number] = a
                number += 1
        last[b + 1] = number
    return first[:number].copy(), last


@njit(cache=True, nogil=True)
def _sweep(
    s: Array, nu: Array, w: Array, theta: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool,
    first: NDArray[np.int64], last: NDArray[np.int64], step: Array, moved: Array,
) -> float:  # fmt: skip
    """One round of coordinate descent on the quadratic model; `step` is D, `moved` is D W. Returns the largest move,
    in units of the nodes' deviations."""
    sites, nodes = s.shape[0], s.shape[1]
    column = np.empty((sites, nodes))  # of `moved`, contiguous while b stays
    curve, pull, fresh = np.empty(sites), np.empty(sites), np.empty(sites)
    largest = 0.0
    for b in range(nodes):
        for k in range(sites):
            column[k] = moved[k, :, b]
            row = w[k, b]
            grad = s[k, b, b] - row[b] + dot(row, column[k])
            delta = -grad / (row[b] * row[b])
            step[k, b, b] += delta
            add(moved[k, b], delta, row)
            column[k, b] += delta * row[b]
            largest = max(largest, abs(delta) * row[b])
        for place in range(last[b], last[b + 1]):
            a = first[place]
            for k in range(sites):
                if lam[k, b, a] == np.inf:
                    curve[k], pull[k] = 1.0, 0.0
                    continue
                w_ab = w[k, b, a]
                grad = nu[k] * (s[k, b, a] - w_ab + dot(w[k, a], column[k]))
                second = nu[k] * (w_ab * w_ab + w[k, a, a] * w[k, b, b])
                curve[k] = second + beta[b, a]
                pull[k] = _soft(second * (theta[k, b, a] + step[k, b, a]) - grad, lam[k, b, a], nonnegative)
            _minimum(curve, pull, gam[b, a], fresh)
            for k in range(sites):
                delta = fresh[k] - theta[k, b, a] - step[k, b, a]
                if delta == 0.0:
                    continue
                step[k, b, a] += delta
                step[k, a, b] += delta
                add(moved[k, a], delta, w[k, b])
                add(moved[k, b], delta, w[k, a])
                column[k, a] += delta * w[k, b, b]
                column[k, b] += delta * w[k, a, b]
                largest = max(largest, abs(delta) * np.sqrt(w[k, a, a] * w[k, b, b]))
    return largest


# ---- Newton's method -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _begin(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool, theta: Array, roots: Array,
    facts: Array,
) -> None:  # fmt: skip
    """The value of (a) at the start and its factors; at a diagonal where these moments do not allow that start."""
    facts[FIT], facts[GAP], facts[STEPS] = _fit(s, nu, theta, roots), np.inf, 0.0
    if facts[FIT] == np.inf:
        theta[:] = 0.0
        for k in range(len(s)):
            for a in range(s.shape[1]):
                theta[k, a, a] = 1.0 / s[k, a, a]
        facts[FIT] = _fit(s, nu, theta, roots)
    facts[COST] = _penalty(theta, lam, gam, beta)


@njit(cache=True, nogil=True)
def _step(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool,
    theta: Array, w: Array, roots: Array, tolerance: float, facts: Array,
) -> bool:  # fmt: skip
    """One step from theta, whose inverse is w; False, and no step, at a minimum. `roots` are then theta's factors."""
    scale, before = nu.sum() * s.shape[1], facts[FIT] + facts[COST]
    facts[OBJECTIVE] = before
    facts[GAP] = min(facts[GAP], max(0.0, before - _dual(s, nu, w, lam, gam, beta, nonnegative)))
    if facts[GAP] <= tolerance * scale or facts[STEPS] >= NEWTON_STEPS:
        return False
    first, last = _free(s, nu, w, theta, lam, gam, nonnegative)
    step, moved = np.zeros_like(theta), np.zeros_like(theta)
    begun = 0.0
    for sweep in range(2 + int(facts[STEPS])):
        move = _sweep(s, nu, w, theta, lam, gam, beta, nonnegative, first, last, step, moved)
        if sweep == 0:
            begun = move
        elif move <= 0.1 * begun:
            break
    trial = theta + step
    slope = _penalty(trial, lam, gam, beta) - facts[COST]
    for k in range(len(s)):
        slope += nu[k] * (dot(s[k].ravel(), step[k].ravel()) - dot(w[k].ravel(), step[k].ravel()))
    if slope >= -1e-15 * scale:
        return False
    length = 1.0
    for _ in range(40):
        fit, cost = _fit(s, nu, trial, roots), _penalty(trial, lam, gam, beta)
        if fit + cost <= before + _ARMIJO * length * slope:
            theta[:] = trial
            facts[FIT], facts[COST] = fit, cost
            facts[STEPS] += 1.0
            return True
        length *= 0.5
        trial = theta + length * step
    return False


@njit(cache=True, nogil=True)
def _newton(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool,
    theta: Array, w: Array, roots: Array, tolerance: float, facts: Array,
) -> None:  # fmt: skip
    """Moves theta to the minimum of (a), w to its inverse."""
    _begin(s, nu, lam, gam, beta, nonnegative, theta, roots, facts)
    moving = True
    while moving:
        for k in range(len(s)):
            invert(theta[k], w[k])
        moving = _step(s, nu, lam, gam, beta, nonnegative, theta, w, roots, tolerance, facts)


@njit(cache=True, nogil=True)
def _newtons(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, which: NDArray[np.intp], nonnegative: bool, path: bool,
    theta: Array, w: Array, tolerance: float, facts: Array,
) -> None:  # fmt: skip
    """A batch: problem b has moments s[b], or s[0] on a path, and the penalty which[b]."""
    roots = np.zeros_like(theta[0])
    for b in range(len(which)):
        mine, c = s[0 if path else b], which[b]
        if path and b > 0:
            theta[b] = np.where(np.isinf(lam[c]), 0.0, theta[b - 1])
        else:
            theta[b] = 0.0
            for k in range(len(mine)):
                for a in range(len(mine[k])):
                    theta[b, k, a, a] = 1.0 / mine[k, a, a]
        _newton(mine, nu, lam[c], gam[c], beta[c], nonnegative, theta[b], w[b], roots, tolerance, facts[b])
