"""What one client of clustered models does in a round (S2, (4)): exactly, or with its loss replaced by a tangent.

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

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.bound import clip_rows
from silograph.tasks.linear import _LOSSES, Integers, Linear, _dot, _slope

_PRECISION = 1e-13  # of a gradient, relative to what it is made of
_STEPS = 100  # of Newton's method; a handful is the rule


class Client(Protocol):
    """What the method asks of a task."""

    @property
    def features(self) -> int: ...

    @property
    def largest(self) -> float | None:
        """C: no record's gradient is longer where `step` takes it, whatever the record. None where there is no bound."""
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


@dataclass(frozen=True)
class Proximal(_Client):
    """(4) exactly. With a `radius` every record's features are scaled back to that length, which bounds its gradient.

    Under privacy the exact step needs this bound at all models, so ridge, whose gradient grows with them, has none.
    """

    radius: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("proximal step, radius", self.radius)

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
            kind, scores = _LOSSES.index(self.loss), np.ascontiguousarray(data["scores"])
            _newton_rows(kind, self.delta, weight / self._factor, basis, scores, data["y"], count, w)
        return w

    def step(self, what: Array, phi: Array, rho: float, ridge: Array, data: dict[str, Array]) -> Array:
        weight = rho + ridge
        return self.near((rho * what + phi) / weight[:, None], weight, data)  # (4)


@dataclass(frozen=True)
class Linearised(_Client):
    """(4) with f_k replaced by its tangent at what_sq: one gradient step of length 1/rho, at a model that is public.

    With a `clip` each record's gradient is scaled back to that length there, which bounds it for every loss.
    """

    clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("linearised step, clip", self.clip)

    @property
    def largest(self) -> float | None:
        return self.clip

    def step(self, what: Array, phi: Array, rho: float, ridge: Array, data: dict[str, Array]) -> Array:
        clip = math.inf if self.clip is None else self.clip
        loss = self._factor * self.gradient(what, data, clip=clip / self._factor)
        return np.asarray(what + (phi - loss - ridge[:, None] * what) / rho)


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0.0 < value < math.inf:
        raise InputError(name, "a number above 0", f"{value} came")


def _padded(values: Array, shape: tuple[int, ...]) -> Array:
    out = np.zeros(shape)
    out[tuple(slice(size) for size in values.shape)] = values
    return out


@njit(cache=True)
def _ridge_rows(weight: Array, basis: Array, spectrum: Array, moment: Array, count: Integers, w: Array) -> None:
    for i in range(w.shape[0]):
        model = w[i]
        for j in range(min(count[i], w.shape[1])):
            row = basis[i, j]
            move = (moment[i, j] - spectrum[i, j] * _dot(row, model)) / (weight[i] + spectrum[i, j])
            for m in range(len(model)):
                model[m] += move * row[m]


@njit(cache=True)
def _newton_rows(
    kind: int, delta: float, weight: Array, basis: Array, scores: Array, y: Array, count: Integers, w: Array
) -> None:
    """Newton's method on the mean of `Linear`'s losses and (weight/2) |z - start|^2, with a line search by slopes.

    Along a step the slope only rises. Where it is still negative at the step's end, all of it went down. Where not, the
    secant that aims as far below zero as the slope was above keeps a good step's accuracy, and halving does the rest.
    So every step goes down by a fixed part of what it could, and none needs a difference of nearly equal values.
    """
    width = basis.shape[1]
    start, z, trial, direction = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    gradient, slopes, hessian = np.empty(width), np.empty(scores.shape[1]), np.empty((width, width))
    for i in range(w.shape[0]):
        n, r, k = count[i], min(count[i], w.shape[1]), weight[i]
        a = scores[i]
        for j in range(r):
            z[j] = start[j] = _dot(basis[i, j], w[i])
        for _ in range(_STEPS):
            size = _gradient(kind, delta, k, a, y[i], n, r, start, z, slopes, gradient)
            fall = 0.0
            for j in range(r):
                fall += gradient[j] * gradient[j]
            if math.sqrt(fall) <= _PRECISION * size:
                break
            _curvature(kind, delta, k, a, n, r, slopes, hessian)
            _solve(hessian, gradient, r, direction)
            fall = 0.0
            for j in range(r):
                fall += gradient[j] * direction[j]
            length = 1.0
            while length > _PRECISION:
                rise = 0.0
                for j in range(r):
                    trial[j] = z[j] - length * direction[j]
                _gradient(kind, delta, k, a, y[i], n, r, start, trial, slopes, gradient)
                for j in range(r):
                    rise -= gradient[j] * direction[j]
                if rise <= 0.0:
                    break
                length = fall / (fall + 2.0 * rise) if length == 1.0 else 0.5 * length
            for j in range(r):
                z[j] = trial[j]
        for j in range(r):
            for m in range(w.shape[1]):
                w[i, m] += (z[j] - start[j]) * basis[i, j, m]


@njit(cache=True)
def _gradient(
    kind: int,
    delta: float,
    weight: float,
    a: Array,
    y: Array,
    n: int,
    r: int,
    start: Array,
    z: Array,
    slopes: Array,
    out: Array,
) -> float:
    """The gradient, the records' slopes, and the length of what the gradient is made of."""
    size = 0.0
    for j in range(r):
        out[j] = weight * (z[j] - start[j])
        size += abs(out[j])
    for b in range(n):
        margin, length = 0.0, 0.0
        for j in range(r):
            margin += a[b, j] * z[j]
        slopes[b] = _slope(kind, delta, margin, y[b])
        for j in range(r):
            part = slopes[b] * a[b, j] / n
            out[j] += part
            length += abs(part)
        size += length
    return size


@njit(cache=True)
def _curvature(kind: int, delta: float, weight: float, a: Array, n: int, r: int, slopes: Array, out: Array) -> None:
    """The lower triangle of the Hessian. A record's curvature follows from its slope."""
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
def _solve(matrix: Array, right: Array, r: int, out: Array) -> None:
    """By Cholesky's factors, which replace the matrix's lower triangle."""
    for j in range(r):
        for l in range(j + 1):
            rest = matrix[j, l]
            for m in range(l):
                rest -= matrix[j, m] * matrix[l, m]
            matrix[j, l] = rest / matrix[l, l] if l < j else math.sqrt(rest)
        rest = right[j]
        for m in range(j):
            rest -= matrix[j, m] * out[m]
        out[j] = rest / matrix[j, j]
    for j in range(r - 1, -1, -1):
        rest = out[j]
        for m in range(j + 1, r):
            rest -= matrix[m, j] * out[m]
        out[j] = rest / matrix[j, j]
