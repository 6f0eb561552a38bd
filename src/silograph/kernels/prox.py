"""Shrinkage: the proximal steps of the coupling and sparsity terms of S3 (8)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from silograph.core.types import Array
from silograph.kernels.dual_newton import Columns, Listed, Room, Starts, _list_for, _room, _solve_one
from silograph.kernels.edges import node_count
from silograph.kernels.lists import _solve_listed

_ROOT_STEPS = 60
_ROOT_TOLERANCE = 1e-12
_INNER_TOLERANCE = 1e-15


def soft_threshold(x: Array, amount: float | Array) -> Array:
    """The proximal operator of amount * |.|_1 on w >= 0."""
    return np.maximum(x - amount, 0.0)


@njit(cache=True)
def _solve_at(
    z: Array,
    t: Array,
    pull: float,
    alpha: float,
    beta: float,
    zeta: float,
    c: Array,
    q: Array,
    w: Array,
    edges: Listed,
    room: Room,
    given: bool,
) -> float:
    """w = argmin g(w) + (pull/2)|w - t|^2 by the dual with c = z - pull t and beta + pull/4; returns |w - t|.

    `given`: the list of edges is the user's, and what they cost is c.
    """
    for e in range(z.size):
        c[e] = z[e] - pull * t[e]
    if given:
        listed = Listed(edges.start, edges.col, c)
        _solve_listed(listed, alpha, beta + 0.25 * pull, zeta, _INNER_TOLERANCE, q, w, room)
    else:
        _solve_one(c, alpha, beta + 0.25 * pull, zeta, _INNER_TOLERANCE, q, w, edges, room)
    total = 0.0
    for e in range(z.size):
        total += (w[e] - t[e]) ** 2
    return math.sqrt(total)


@njit(cache=True)
def _huber_rows(
    z: Array,
    t: Array,
    rho: float,
    penalty: float,
    alpha: float,
    beta: float,
    zeta: float,
    q: Array,
    pull: Array,
    w: Array,
    edges: Listed,
    given: bool,
) -> None:
    c = np.empty(z.shape[1])
    room = _room(q.shape[1], c.size)
    for i in range(z.shape[0]):
        guess = pull[i]
        distance = _solve_at(z[i], t[i], penalty, alpha, beta, zeta, c, q[i], w[i], edges, room, given)
        pull[i] = penalty
        if penalty * distance <= rho:
            continue
        # pull * |w(pull) - t| grows with the pull: find where it equals rho, by secants on logarithms in a bracket.
        low, high = 0.0, penalty
        last, last_error = math.log(penalty), math.log(penalty * distance / rho)
        x = math.log(guess) if 0.0 < guess < penalty else math.log(rho / distance)
        for _ in range(_ROOT_STEPS):
            pull[i] = math.exp(x)
            distance = _solve_at(z[i], t[i], pull[i], alpha, beta, zeta, c, q[i], w[i], edges, room, given)
            error = math.log(pull[i] * distance / rho)
            if error > 0.0:
                high = pull[i]
            else:
                low = pull[i]
            if abs(error) <= _ROOT_TOLERANCE or high - low <= 1e-15 * high:
                break
            fresh = x - error
            if error != last_error:
                fresh = x - error * (x - last) / (error - last_error)
            last, last_error = x, error
            if not low < math.exp(fresh) < high:
                fresh = math.log(0.5 * (low + high))
            x = fresh


def huber_solve(
    z: Array,
    t: Array,
    rho: float,
    penalty: float,
    alpha: float,
    beta: float,
    zeta: float,
    q: Array,
    pull: Array,
    listed: tuple[Starts, Columns] | None = None,
) -> tuple[Array, Array, Array]:
    """Bring every silo's graph near an anchor: for every row, minimise over w >= 0 and v

        g(w) + rho |w - v|_2 + (penalty/2) |v - t|^2

    With v eliminated the last two terms are a Huber function of |w - t|, so w solves g(w) + (pull/2)|w - t|^2 with pull
    = min(penalty, rho / |w - t|): the contribution weight of S3 (11), found exactly. Returns (w, q, pull).

    Parameters
    ----------
    z : Costs of the edges (n, p), c in g of `dual_newton.solve`.
    t : Anchors (n, p).
    rho : Weight of the distance of w from v, above 0: how strongly silos are coupled.
    penalty : Weight of the squared distance of v from the anchor, above 0.
    alpha : Weight of the barrier in g, above 0.
    beta : Weight of the squares in g, above 0.
    zeta : What is added to each degree in g, at least 0.
    q : Potentials (n, d) to start from; zeros where none are known.
    pull : Pulls (n,) to start from; zeros where none are known.
    listed : The edges that the columns are, as (start, col) of `lists.Candidates`. None: all pairs.

    >>> start = {"q": np.zeros((1, 2)), "pull": np.zeros(1)}
    >>> w, q, pull = huber_solve(np.array([[1.0]]), np.array([[0.0]]), 0.7, 10.0, 1.0, 0.25, 0.0, **start)
    >>> w.round(6), pull.round(6)  # without the coupling w is 1; here 1 - 2 / w + w + 0.7 = 0, and pull = 0.7 / 0.8
    (array([[0.8]]), array([0.875]))
    """
    rows, edges = z.shape
    w = np.empty((rows, edges))
    potentials = np.array(q, dtype=np.float64)
    pulls = np.array(pull, dtype=np.float64)
    if listed is None:
        assert potentials.shape == (rows, node_count(edges))
        room = _list_for(w[0], potentials.shape[1])
    else:
        room = Listed(*listed, np.empty(0))
    z, t = np.ascontiguousarray(z), np.ascontiguousarray(t)
    _huber_rows(z, t, rho, penalty, alpha, beta, zeta, potentials, pulls, w, room, listed is not None)
    return w, potentials, pulls
