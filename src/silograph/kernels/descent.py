"""Momentum gradient steps on the smooth-graph objective: the papers' local update."""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array
from silograph.kernels.edges import degrees, spread


def roughness(zbar: Array, w: Array) -> Array:
    """zbar . w for every row; an unused edge costs nothing, even if its cost is infinite."""
    return np.asarray(
        np.multiply(zbar, w, out=np.zeros(np.broadcast_shapes(zbar.shape, w.shape)), where=w > 0.0).sum(-1)
    )


def objective(zbar: Array, w: Array, alpha: float, beta: float, zeta: float, degree: Array | None = None) -> Array:
    """g_i(w) of S3 (8), (18) for every row; infinite if a degree is not positive.

    `degree`: the degree of every node, if the edges are not all pairs.
    """
    w = np.ascontiguousarray(w)  # rows that share memory would be summed in another order
    total = (degrees(w) if degree is None else degree) + zeta
    safe = np.where(total > 0.0, total, 1.0)
    barrier = np.where(total > 0.0, np.log(safe), -np.inf).sum(-1)
    return np.asarray(roughness(zbar, w) - alpha * barrier + 2.0 * beta * (w * w).sum(-1))


def gradient(zbar: Array, w: Array, alpha: float, beta: float, zeta: float) -> Array:
    """zbar - alpha S'(1 / (S w + zeta)) + 4 beta w, below (21) of S3."""
    return np.asarray(zbar - alpha * spread(1.0 / (degrees(w) + zeta)) + 4.0 * beta * w)


def extrapolate(w: Array, previous: Array, momentum: float) -> Array:
    return w + momentum * (w - previous)  # S3 (19), S0 (10)


def pulled_step(x: Array, slope: Array, anchor: Array, pull: Array, step: float, implicit: bool) -> Array:
    """One gradient step of size `step` with the coupling (pull/2)|w - anchor|^2, before projection.

    The papers take the coupling explicitly, S3 (20), S0 (11), which diverges once step * pull > 2;
    taking it implicitly is stable for any pull.
    """
    pull = pull[..., None]
    if implicit:
        return np.asarray((x - step * slope + step * pull * anchor) / (1.0 + step * pull))
    return np.asarray(x - step * (slope + pull * (x - anchor)))
