"""What a client would do alone: a linear model of its own records, with a ridge weight that these choose themselves.

Features are centred and scaled as the client's own are. Every weight is judged by how well it predicts each record
from the others. For that the record is left out of the minimum in one step of Newton's method, which is exact for
squared errors:

    x.w without it = x.w + s q / (1 - c q),    q = x' H^-1 x

with s and c the slope and curvature of the record's loss in x.w, and H the curvature of all that is minimised.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from silograph.core.types import Array
from silograph.tasks.linear import Linear

_WEIGHTS = np.logspace(2.0, -4.0, 7)  # of the ridge, beside the mean loss; the first of equals is taken
_FREE = 100.0  # the constant column: so large that the ridge weight does not matter to its coefficient


def alone(task: Linear, x: Array, y: Array, intercept: bool) -> Array:
    """(M,) The model for records x (n, M), constant last, and y (n,), by the loss of `task`."""
    count = len(y)
    if intercept and task.loss == "logistic" and (y == y[0]).all():
        # As if half of one more record were of the other class.
        return np.append(np.zeros(task.features - 1), y[0] * math.log(2.0 * count + 1.0))
    centre = np.zeros(task.features)
    if intercept:
        centre[:-1] = x[:, :-1].mean(0)
    scale = np.sqrt(((x - centre) ** 2).mean(0))
    scale = np.where(scale > 1e-9 * np.abs(x).max(0), scale, np.inf)  # what does not vary says nothing
    if intercept:
        scale[-1] = 1.0 / _FREE
    u = (x - centre) / scale
    tried = [_fitted(replace(task, most=count, rho=weight), u, y) for weight in _WEIGHTS.tolist()]
    w = min(tried, key=lambda found: found[1])[0] / scale
    if intercept:
        w[-1] -= centre[:-1] @ w[:-1]
    return np.asarray(w)


def _fitted(task: Linear, u: Array, y: Array) -> tuple[Array, float]:
    """The minimiser, and the loss of all records, each predicted without it."""
    w, count = task.optimum(task.prepare_all([(u, y)])), len(y)
    margin = u @ w
    _, slope, curve, _ = task.terms(margin, y)
    hessian = (u.T * curve) @ u / count + 2.0 * task.rho * np.eye(task.features)
    q = np.einsum("nm,mn->n", u, np.linalg.solve(hessian, u.T)) / count
    without = margin + slope * q / np.maximum(1.0 - curve * q, 1e-9)
    return w, float(task.terms(without, y)[0].sum())
