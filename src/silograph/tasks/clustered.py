"""The step of one client of clustered models in a round (S2, (4)): exact, or with its loss replaced by a tangent.

The losses are those of `Linear`, with the half that (49) has: r^2/2 for ridge, the same within delta for Huber, and the
logistic loss (51) as it is. The ridge weight lam/|C_s| is the method's, so `Linear`'s own is 0.

Only the part of a model in the span of a client's records depends on them. With X = A V, the r = min(D, d) rows of V
orthonormal, the minimiser of the mean loss and (weight/2) |w - centre|^2 is

    w = centre + V'(z - V centre),    z the minimiser of the same with A for X and V centre for the centre.

V comes from one SVD, when the data are prepared; after that a round costs O(r d). For ridge z is a quotient in every
coordinate, and for the others it takes a few Newton steps on r x r matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from silograph.core.schema import Positive
from silograph.core.types import Array
from silograph.privacy.bound import clip_rows
from silograph.tasks.linear import LOSSES, Integers, Linear, slope_of

_PRECISION = 1e-13  # of a gradient, relative to its terms
_ROUNDING = 1e-15  # a step this short, relative to its start, changes nothing any more
_LEFT = 1e-9  # of one record's largest gradient, in what is left of the gradient
_STEPS = 100  # of Newton's method, and of a line search; a handful is the rule


class Client(Protocol):
    """The task that the method needs."""

    @property
    def features(self) -> int: ...

    @property
    def largest(self) -> float | None:
        """C: no record's gradient is longer where `step` takes it, whatever the record; None without such a bound."""
        ...

    def prepare(self, records: ArrayLike | tuple[ArrayLike, ArrayLike], where: str = "records") -> dict[str, Array]: ...

    def step(self, what: Array, phi: Array, rho: float, ridge: Array, data: dict[str, Array]) -> Array:
        """(n, M): w_k of (4), with the ridge weights lam/|C_s| (n,)."""
        ...


@dataclass(frozen=True)
class _Client(Linear):
    rho: float = field(default=0.0, init=False)

    @property
    def _factor(self) -> float:
        """S2's loss, of `Linear`'s."""
        return 1.0 if self.loss == "logistic" else 0.5  # (49), (51)

    def loss_gradient(self, w: Array, data: dict[str, Array], clip: float = math.inf) -> Array:
        """(n, M): the gradient of S2's mean loss; with a `clip` every record's part is first scaled back to it."""
        return self._factor * self.gradient(w, data, clip=clip / self._factor)


@dataclass(frozen=True)
class Proximal(_Client):
    """(4) exactly. With a `radius` every record's features are scaled back to that length, which bounds its gradient.

    Under privacy the exact step needs this bound at all models, so ridge, whose gradient grows with them, has none.
    """

    radius: Positive | None = None

    def curvature(self) -> float:
        """The most a mean loss can curve with this radius."""
        assert self.radius is not None
        return self._factor * self.radius**2 * (0.25 if self.loss == "logistic" else 2.0)

    @property
    def largest(self) -> float | None:
        if self.radius is None or self.loss == "ridge":
            return None
        return self._factor * self.radius * (2.0 * self.delta if self.loss == "huber" else 1.0)

    def prepare(self, records: ArrayLike | tuple[ArrayLike, ArrayLike], where: str = "records") -> dict[str, Array]:
        data = super().prepare(records, where)
        if self.radius is not None:
            data["x"] = clip_rows(data["x"], self.radius)
        count, width = int(data["count"]), min(self.most, self.features)
        u, s, v = np.linalg.svd(data["x"][:count], full_matrices=False)
        data["basis"] = _padded(v, (width, self.features))
        if self.loss == "ridge":  # all that is left of the records: the diagonal of A'A / D, and A'y / D
            data["spectrum"] = _padded(s * s / count, (width,))
            data["moment"] = _padded(s * (u.T @ data["y"][:count]) / count, (width,))
        else:
            data["scores"] = _padded(u * s, (self.most, width))  # A
        return data

    def near(self, centre: Array, weight: Array, data: dict[str, Array]) -> Array:
        """(n, M): the minimisers of each client's mean loss and (weight/2) |w - centre|^2, for weights (n,) above 0."""
        w, basis = np.array(centre), np.ascontiguousarray(data["basis"])
        count = data["count"].astype(np.int64)
        if self.loss == "ridge":
            _ridge_rows(weight, basis, data["spectrum"], data["moment"], count, w)
        else:
            kind, scores = LOSSES.index(self.loss), np.ascontiguousarray(data["scores"])
            _newton_rows(kind, self.delta, weight / self._factor, basis, scores, data["y"], count, w)
        return w

    def step(self, what: Array, phi: Array, rho: float, ridge: Array, data: dict[str, Array]) -> Array:
        weight = rho + ridge
        return self.near((rho * what + phi) / weight[:, None], weight, data)  # (4)


@dataclass(frozen=True)
class Linearised(_Client):
    """(4) with f_k replaced by its tangent at what_sq: one gradient step of length 1/rho, at a public model.

    With a `clip` each record's gradient is scaled back to that length there, which bounds it for every loss.
    """

    clip: Positive | None = None

    @property
    def largest(self) -> float | None:
        return self.clip

    def step(self, what: Array, phi: Array, rho: float, ridge: Array, data: dict[str, Array]) -> Array:
        slope = self.loss_gradient(what, data, math.inf if self.clip is None else self.clip) + ridge[:, None] * what
        return np.asarray(what + (phi - slope) / rho)


def _padded(values: Array, shape: tuple[int, ...]) -> Array:
    out = np.zeros(shape)
    out[tuple(slice(size) for size in values.shape)] = values
    return out


@njit(cache=True)
def _ridge_rows(weight: Array, basis: Array, spectrum: Array, moment: Array, count: Integers, w: Array) -> None:
    for i in range(w.shape[0]):
        for j in range(min(count[i], w.shape[1])):
            row = basis[i, j]
            move = (moment[i, j] - spectrum[i, j] * _inner(row, w[i])) / (weight[i] + spectrum[i, j])
            for m in range(len(row)):
                w[i, m] += move * row[m]


@njit(cache=True)
def _newton_rows(
    kind: int, delta: float, weight: Array, basis: Array, scores: Array, y: Array, count: Integers, w: Array
) -> None:
    for i in range(w.shape[0]):
        n, r = count[i], min(count[i], w.shape[1])
        start = np.empty(r)
        for j in range(r):
            start[j] = _inner(basis[i, j], w[i])
        z = _minimum(kind, delta, weight[i], scores[i, :n, :r], y[i, :n], start)
        for _ in range(2):  # the second time for what the first has rounded, where w is far shorter than the centre
            for j in range(r):
                move = z[j] - _inner(basis[i, j], w[i])
                for m in range(w.shape[1]):
                    w[i, m] += move * basis[i, j, m]


@njit(cache=True)
def _minimum(kind: int, delta: float, weight: float, a: Array, y: Array, start: Array) -> Array:
    """Newton's method on the mean of `Linear`'s losses and (weight/2) |z - start|^2, with a line search by slopes.

    Along a step the slope only rises. If it is not positive at the end, the whole step is taken. If it is, false
    position (Illinois) finds a place before the minimum where at most half of the first slope is left. So every step
    goes down by a fixed part of what it could, and none has to compare two nearly equal values.
    """
    n, r = a.shape
    z, trial, step = start.copy(), np.empty(r), np.empty(r)
    gradient, slopes, hessian = np.empty(r), np.empty(n), np.empty((r, r))
    size = _gradient(kind, delta, weight, a, y, start, z, slopes, gradient)
    for _ in range(_STEPS):
        _curvature(kind, delta, weight, a, slopes, hessian)
        _solve(hessian, weight, gradient, step)
        small = math.sqrt(_inner(step, step)) <= _ROUNDING * math.sqrt(_inner(z, z))
        if small or math.sqrt(_inner(gradient, gradient)) <= _PRECISION * size:
            break
        fall = _inner(gradient, step)
        length, low, high, below, above = 1.0, 0.0, 1.0, -fall, 0.0
        for _ in range(_STEPS):
            for j in range(r):
                trial[j] = z[j] - length * step[j]
            size = _gradient(kind, delta, weight, a, y, start, trial, slopes, gradient)
            slope = -_inner(gradient, step)
            if slope <= _PRECISION * fall and (length == 1.0 or slope >= -0.5 * fall):
                break
            if slope > 0.0:
                high, above = length, slope
                below *= 0.5
            else:
                low, below = length, slope
                above *= 0.5
            length = (low * above - high * below) / (above - below)
        z[:] = trial
    return _finished(kind, delta, weight, a, y, start, z)


@njit(cache=True)
def _finished(kind: int, delta: float, weight: float, a: Array, y: Array, start: Array, z: Array) -> Array:
    """The same problem to the end by accelerated descent, which cannot fail, from where Newton's method stopped.

    A sensitivity holds at the minimiser: what is left of the gradient may be 1e-9 of one record's. Where Newton's
    method got there, as it nearly always does, this looks once and is done.
    """
    n, r = a.shape
    longest, squares = 0.0, 0.0
    for b in range(n):
        square = _inner(a[b], a[b])
        longest, squares = max(longest, math.sqrt(square)), squares + square / n
    lipschitz = weight + (0.25 if kind == 1 else 2.0) * squares
    ratio = math.sqrt(lipschitz / weight)
    momentum = (ratio - 1.0) / (ratio + 1.0)
    goal = _LEFT * longest * (1.0 if kind == 1 else 2.0 * delta) / n
    ahead, gradient, slopes = z.copy(), np.empty(r), np.empty(n)
    for _ in range(int(100.0 * ratio) + 100):
        size = _gradient(kind, delta, weight, a, y, start, ahead, slopes, gradient)
        if math.sqrt(_inner(gradient, gradient)) <= max(goal, _PRECISION * size):
            return ahead
        for j in range(r):
            stepped = ahead[j] - gradient[j] / lipschitz
            ahead[j] = stepped + momentum * (stepped - z[j])
            z[j] = stepped
    return z


@njit(cache=True)
def _gradient(
    kind: int, delta: float, weight: float, a: Array, y: Array, start: Array, z: Array, slopes: Array, out: Array
) -> float:
    """The gradient, the records' slopes, and the sum of what the gradient is made of."""
    n, r = a.shape
    size = 0.0
    for j in range(r):
        out[j] = weight * (z[j] - start[j])
        size += abs(out[j])
    for b in range(n):
        slopes[b] = slope_of(kind, delta, _inner(a[b], z), y[b])
        for j in range(r):
            part = slopes[b] * a[b, j] / n
            out[j] += part
            size += abs(part)
    return size


@njit(cache=True)
def _curvature(kind: int, delta: float, weight: float, a: Array, slopes: Array, out: Array) -> None:
    """The Hessian's lower triangle. A record's curvature follows from its slope."""
    n, r = a.shape
    for j in range(r):
        for l in range(j + 1):
            out[j, l] = weight if l == j else 0.0
    for b in range(n):
        steep = abs(slopes[b])
        curve = steep * (1.0 - steep) if kind == 1 else (2.0 if steep < 2.0 * delta else 0.0)
        if curve > 0.0:
            for j in range(r):
                for l in range(j + 1):
                    out[j, l] += curve / n * a[b, j] * a[b, l]


@njit(cache=True)
def _solve(matrix: Array, least: float, right: Array, out: Array) -> None:
    """By Cholesky's factors, which replace the lower triangle; no eigenvalue, so no pivot, is below `least`."""
    r = len(right)
    for j in range(r):
        for l in range(j + 1):
            rest = matrix[j, l] - _inner(matrix[j, :l], matrix[l, :l])
            matrix[j, l] = rest / matrix[l, l] if l < j else math.sqrt(max(rest, least))
        out[j] = (right[j] - _inner(matrix[j, :j], out[:j])) / matrix[j, j]
    for j in range(r - 1, -1, -1):
        out[j] = (out[j] - _inner(matrix[j + 1 :, j], out[j + 1 :])) / matrix[j, j]


@njit(cache=True)
def _inner(a: Array, b: Array) -> float:
    total = 0.0
    for m in range(len(a)):
        total += a[m] * b[m]
    return total
