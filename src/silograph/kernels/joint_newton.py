"""The compiled part of `joint_likelihood.py`, in the same notation: one edge, all edges, Newton's method."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array
from silograph.kernels.definite import add, cholesky, dot, invert, log_det

NEWTON_STEPS = 100
_ARMIJO = 1e-3
OBJECTIVE, GAP, STEPS, FIT, COST = range(5)

# ---- one edge --------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _soft(value: float, lam: float, nonnegative: bool) -> float:
    """Shrink a pull by lam, at most to 0; with `nonnegative` only pulls below 0 count."""
    if value < -lam:
        return value + lam
    if value > lam and not nonnegative:
        return value - lam
    return 0.0


@njit(cache=True, nogil=True)
def _minimum(curve: Array, pull: Array, gam: float, out: Array) -> None:
    """argmin of sum_k (curve_k / 2) x_k^2 - pull_k x_k + gam |x|; lam is already subtracted from the pulls."""
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
    """sum_k nu_k [tr(S_k T_k) - logdet T_k], infinite if some T_k is not positive definite."""
    total = 0.0
    for k in range(len(s)):
        if not cholesky(theta[k], roots[k]):
            return np.inf
        total += nu[k] * (dot(s[k].ravel(), theta[k].ravel()) - log_det(roots[k]))
    return total


@njit(cache=True, nogil=True)
def dual(s: Array, nu: Array, w: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool) -> float:
    """(c) at W made feasible: with the diagonals of S, and every edge without beta scaled back into its ball."""
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
    """Edges that are not 0, or that the gradient would move; by their second end."""
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
    """Take one round of coordinate descent on the quadratic model; `step` is D, `moved` is D W. Return the largest
    move, in units of the nodes' deviations."""
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
def begin(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool, theta: Array, roots: Array,
    facts: Array,
) -> None:  # fmt: skip
    """Return the value of (a) at the start, and its factors; start at a diagonal if these moments do not allow that
    start."""
    facts[FIT], facts[GAP], facts[STEPS] = _fit(s, nu, theta, roots), np.inf, 0.0
    if facts[FIT] == np.inf:
        theta[:] = 0.0
        for k in range(len(s)):
            for a in range(s.shape[1]):
                theta[k, a, a] = 1.0 / s[k, a, a]
        facts[FIT] = _fit(s, nu, theta, roots)
    facts[COST] = _penalty(theta, lam, gam, beta)


@njit(cache=True, nogil=True)
def step(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool,
    theta: Array, w: Array, roots: Array, tolerance: float, facts: Array,
) -> bool:  # fmt: skip
    """Take one step from theta, with inverse w; return False, without a step, at a minimum. `roots` are then theta's
    factors."""
    scale, before = nu.sum() * s.shape[1], facts[FIT] + facts[COST]
    facts[OBJECTIVE] = before
    facts[GAP] = min(facts[GAP], max(0.0, before - dual(s, nu, w, lam, gam, beta, nonnegative)))
    if facts[GAP] <= tolerance * scale or facts[STEPS] >= NEWTON_STEPS:
        return False
    first, last = _free(s, nu, w, theta, lam, gam, nonnegative)
    change, moved = np.zeros_like(theta), np.zeros_like(theta)
    begun = 0.0
    for sweep in range(2 + int(facts[STEPS])):
        move = _sweep(s, nu, w, theta, lam, gam, beta, nonnegative, first, last, change, moved)
        if sweep == 0:
            begun = move
        elif move <= 0.1 * begun:
            break
    trial = theta + change
    slope = _penalty(trial, lam, gam, beta) - facts[COST]
    for k in range(len(s)):
        slope += nu[k] * (dot(s[k].ravel(), change[k].ravel()) - dot(w[k].ravel(), change[k].ravel()))
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
        trial = theta + length * change
    return False


@njit(cache=True, nogil=True)
def newton(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool,
    theta: Array, w: Array, roots: Array, tolerance: float, facts: Array,
) -> None:  # fmt: skip
    """Move theta to the minimum of (a), and w to its inverse."""
    begin(s, nu, lam, gam, beta, nonnegative, theta, roots, facts)
    moving = True
    while moving:
        for k in range(len(s)):
            invert(theta[k], w[k])
        moving = step(s, nu, lam, gam, beta, nonnegative, theta, w, roots, tolerance, facts)


@njit(cache=True, nogil=True)
def newtons(
    s: Array, nu: Array, lam: Array, gam: Array, beta: Array, which: NDArray[np.intp], nonnegative: bool, path: bool,
    theta: Array, w: Array, tolerance: float, facts: Array,
) -> None:  # fmt: skip
    """Solve a batch: problem b has moments s[b], or s[0] on a path, and the penalty which[b]."""
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
        newton(mine, nu, lam[c], gam[c], beta[c], nonnegative, theta[b], w[b], roots, tolerance, facts[b])
