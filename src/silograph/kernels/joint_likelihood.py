"""Precision matrices of several sites at once: the Gaussian likelihood with penalties that couple sites, edge by edge.

    minimise  sum_k nu_k [tr(S_k T_k) - logdet T_k] + 2 sum_{a<b} P_ab(theta_ab)                                     (a)

    P_ab(t) = sum_k lam_k |t_k| + gam |t|_2 + (beta / 2) |t|^2                                                       (b)

theta_ab is the vector of the sites' off-diagonal entries T_k[a, b]; diagonals are free. lam_k (infinite: no edge),
gam and beta may differ from edge to edge. lam makes graphs sparse, gam makes sites share edges, beta is a ridge. With
`nonnegative` relations are positive, T_k[a, b] <= 0: M-matrices, such as Laplacians with something on the diagonal.

The dual: for any W_k > 0 with diag W_k = diag S_k, with A_k = nu_k (W_k - S_k),

    (a) >= sum_k nu_k (logdet W_k + d) - 2 sum_{a<b} P*_ab(A_ab),                                                    (c)
    P*(A) = max(0, |soft(A, lam)|_2 - gam)^2 / (2 beta),                                                             (d)

which for beta = 0 is 0 where |soft(A, lam)|_2 <= gam and infinite elsewhere. At W = T^-1, made feasible edge by edge,
(a) minus (c) is the certificate. Divided by sum_k nu_k d it is an error per record and node, in nats: units do not
matter.

The method is proximal Newton: coordinate descent over the edges that are not at rest, then a line search. Every step
looks at all pairs, so no list of candidates is needed and the certificate holds for all of them. Nodes that no edge can
connect (|soft(nu S, lam)|_2 <= gam, exact as W = 0 there) are separate problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from silograph.core.types import Array, BoolArray
from silograph.kernels.definite import inverse
from silograph.kernels.joint_newton import GAP, OBJECTIVE, STEPS, begin, newton, newtons, step

_SCREENED = 64  # from so many nodes, looking for separate blocks pays
_LARGE = 96  # from so many nodes, LAPACK's inverse from a factor pays, although it is outside compiled code


@dataclass(frozen=True)
class Penalty:
    """The penalty (b) of one problem. Everything broadcasts, lam to (K, d, d), gam and beta to (d, d).

    Parameters
    ----------
    lam : Weight of |t_k|, at least 0: makes the graph of each site sparse; infinite where a site may not have an edge.
    gam : Weight of |t|_2 over the sites, at least 0: makes them share edges.
    beta : Weight of |t|^2 / 2, at least 0: a ridge.
    nonnegative : Whether relations must be positive: then T_k[a, b] <= 0.

    >>> lam = np.full((3, 3), 0.1)
    >>> lam[0, 2] = lam[2, 0] = np.inf  # nodes 0 and 2 are never joined
    >>> solve(0.5 * np.ones((1, 3, 3)) + 0.5 * np.eye(3), np.ones(1), Penalty(lam)).theta[0].round(2)
    array([[ 1.19, -0.48,  0.  ],
           [-0.48,  1.38, -0.48],
           [ 0.  , -0.48,  1.19]])
    """

    lam: Array | float = 0.0
    gam: Array | float = 0.0
    beta: Array | float = 0.0
    nonnegative: bool = False


@dataclass(frozen=True)
class Joint:
    """The minimum of (a).

    Parameters
    ----------
    theta : Precision matrices T_k, (K, d, d).
    covariance : Their inverses (K, d, d).
    objective : The value of (a).
    gap : The certificate: the value is above the minimum by at most this.
    relative_gap : The gap over sum_k nu_k d: an error in nats, per record and node.
    steps : Newton steps, the most of any block of nodes.

    >>> found = solve(np.array([[[1.0, 0.5], [0.5, 1.0]]]), np.ones(1), Penalty(), tolerance=1e-12)
    >>> found.theta.round(3), found.relative_gap < 1e-9  # without a penalty, the inverse of the moments
    (array([[[ 1.333, -0.667],
            [-0.667,  1.333]]]), True)
    """

    theta: Array
    covariance: Array
    objective: float
    gap: float
    relative_gap: float
    steps: int


def solve(
    moments: Array, weights: Array, penalty: Penalty, start: Array | None = None, tolerance: float = 1e-6
) -> Joint:
    """Find the precision matrices of several sites at once: the minimum of (a).

    Parameters
    ----------
    moments : Second moments S_k of the sites (K, d, d), with positive diagonals.
    weights : Weights nu_k of the sites (K,), above 0, such as their numbers of rows.
    penalty : What makes graphs sparse and alike.
    start : Precision matrices (K, d, d) to start from. None: the diagonal ones.
    tolerance : The relative gap to reach.

    >>> moments = np.array([[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.1], [0.1, 1.0]]])
    >>> solve(moments, np.ones(2), Penalty(lam=0.2)).covariance[:, 0, 1].round(3)  # less lam / nu
    array([0.3, 0. ])
    >>> solve(moments, np.ones(2), Penalty(gam=0.3)).covariance[:, 0, 1].round(2)  # both by the same factor
    array([0.21, 0.04])
    """
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
    """Solve many problems in one call: moments (B, K, d, d) with a penalty for all or for each, or moments (K, d, d)
    and a path of penalties, each one starting at the solution before."""
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
    newtons(s, nu, lam, gam, beta, which, each[0].nonnegative, path, theta, covariance, tolerance, facts)
    return [_joint(*one, float(nu.sum()) * nodes) for one in zip(theta, covariance, facts, strict=True)]


def _solve_block(
    moments: Array, weights: Array, lam: Array, gam: Array, beta: Array, nonnegative: bool, start: Array | None,
    tolerance: float, here: tuple[Any, ...],
) -> Joint:  # fmt: skip
    """Solve the problem of some nodes alone."""
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
        newton(*problem, theta, covariance, roots, tolerance, facts)
    else:
        begin(*problem, theta, roots, facts)
        for k in range(len(s)):
            inverse(roots[k], covariance[k])
        while step(*problem, theta, covariance, roots, tolerance, facts):
            for k in range(len(s)):
                inverse(roots[k], covariance[k])
    return _joint(theta, covariance, facts, float(nu.sum()) * nodes)


def _joint(theta: Array, covariance: Array, facts: Array, scale: float) -> Joint:
    objective, gap, steps = float(facts[OBJECTIVE]), float(facts[GAP]), int(facts[STEPS])
    return Joint(theta, covariance, objective, gap, gap / scale, steps)


def _touching(moments: Array, weights: Array, lam: Array, gam: Array, nonnegative: bool) -> BoolArray:
    """Pairs of nodes that an edge could connect: those that would leave 0 if all others were at 0."""
    pull = -weights[:, None, None] * moments
    left = np.maximum(np.abs(pull) - lam, 0.0)
    if nonnegative:
        left[pull > 0.0] = 0.0
    return np.asarray(np.sqrt((left**2).sum(0)) > gam)
