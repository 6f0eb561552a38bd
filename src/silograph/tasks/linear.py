"""Linear models (S1, section V): one silo minimises the mean of its records' losses plus rho |w|^2.

The record is one row: features x and an answer y. With r = y - x.w, and no halves, so gradients have a factor 2:

    ridge       r^2                                          (54)
    huber       r^2, and 2 delta |r| - delta^2 where |r| > delta
    logistic    log(1 + exp(-y x.w)), y = -1 or 1

Silos have different numbers of records: arrays are padded to `most`, and `count` says how many are real.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from silograph.core.errors import InputError, SolverError
from silograph.core.schema import Amount, Count, Positive, check
from silograph.core.types import Array
from silograph.privacy.bound import row_lengths

PROTECTED_UNIT = "one record (one row of a silo's table)"

Loss = Literal["ridge", "logistic", "huber"]
Integers = NDArray[np.int64]

LOSSES: tuple[Loss, ...] = ("ridge", "logistic", "huber")
_STEPS = 500
_PRECISION = 1e-13  # of a gradient, relative to the sum of what it is made of
_ROOM = 1.0 - 1e-9  # left below a clip for rounding, so that the bound really holds


@dataclass(frozen=True)
class Linear:
    """`features` M of each record, at most `most` records in a silo, ridge weight `rho`; `delta` is Huber's alone."""

    features: Count
    most: Count
    loss: Loss = "ridge"
    rho: Amount = 0.0
    delta: Positive = 1.0

    def __post_init__(self) -> None:
        check(self, "linear task")

    def prepare(self, records: ArrayLike | tuple[ArrayLike, ArrayLike], where: str = "records") -> dict[str, Array]:
        """The silo's private data as `local` will see it: of (N, M + 1) with y last, or a tuple of (N, M) and (N,)."""
        if isinstance(records, tuple) and len(records) == 2:
            x, y = _numbers(records[0], where, 2), _numbers(records[1], f"{where}, answers", 1)
            if len(x) != len(y):
                raise InputError(where, f"an answer for each of the {len(x)} records", f"there are {len(y)}")
        else:
            table = _numbers(records, where, 2)
            x, y = table[:, :-1], table[:, -1]
        if x.shape[1] != self.features:
            raise InputError(where, f"{self.features} features a record", f"there are {x.shape[1]}")
        if not 1 <= len(x) <= self.most:
            raise InputError(where, f"1 to {self.most} records", f"there are {len(x)}")
        if self.loss == "logistic":
            y = _sides(y, where)
        data = {"x": np.zeros((self.most, self.features)), "y": np.zeros(self.most), "count": np.array(float(len(x)))}
        data["x"][: len(x)], data["y"][: len(x)] = x, y
        return data

    def prepare_all(self, records: Sequence[Any], names: Sequence[str] | None = None) -> dict[str, Array]:
        """Several silos at once, stacked; `names` are for messages."""
        wheres = [f"silo {k}" for k in range(len(records))] if names is None else [f"silo {name}" for name in names]
        parts = [self.prepare(part, where) for part, where in zip(records, wheres, strict=True)]
        return {name: np.stack([part[name] for part in parts]) for name in parts[0]}

    def gradient(
        self,
        w: Array,
        data: dict[str, Array],
        batch: Integers | None = None,
        sizes: ArrayLike | None = None,
        clip: float = math.inf,
    ) -> Array:
        """(n, M): for each silo the mean over the records `batch[i, :sizes[i]]` of the loss's gradient, and 2 rho w.

        All records without a batch. With a `clip` each record's part, without 2 rho w, is first scaled back to that
        length, and counts as 0 where it overflows: another record in one of b places moves the mean by <= 2 clip / b.
        """
        batch, sizes = _batch(data, batch, sizes)
        out = np.zeros(w.shape)
        x, y = np.ascontiguousarray(data["x"]), np.ascontiguousarray(data["y"])
        kind = LOSSES.index(self.loss)
        _gradient_rows(kind, self.delta, self.rho, clip, np.ascontiguousarray(w), x, y, batch, sizes, out)
        return out  # (3)

    def descend(
        self,
        w: Array,
        data: dict[str, Array],
        batch: Integers,
        epochs: Integers,
        sizes: Integers,
        step: float,
    ) -> Array:
        """(n, M): each silo's model after `epochs[i]` steps of length step / epochs[i], each on a batch of its own.

        Step e of silo i uses the records `batch[i, e, :sizes[i]]`.
        """
        w = np.array(w)
        steps, each = batch.shape[1:]
        assert (epochs <= steps).all(), "a batch for every step"
        assert (sizes <= each).all(), "a batch has that many records"
        x, y = np.ascontiguousarray(data["x"]), np.ascontiguousarray(data["y"])
        _descend_rows(LOSSES.index(self.loss), self.delta, self.rho, w, x, y, batch, epochs, sizes, step)
        return w  # (6), (9)

    def record_norms(self, w: Array, data: dict[str, Array], batch: Integers | None = None) -> Array:
        """(n, B): the length of each record's gradient, without 2 rho w; of all records (padding 0) without a batch."""
        x, y = data["x"], data["y"]
        if batch is not None:
            x, y = np.take_along_axis(x, batch[:, :, None], 1), np.take_along_axis(y, batch, 1)
        slopes = self.terms(np.einsum("nrm,nm->nr", x, w), y)[1]
        return np.asarray(np.abs(slopes) * row_lengths(x)[..., 0])

    def value(self, w: Array, data: dict[str, Array]) -> Array:
        """(n,): what each silo minimises, at one model (M,) or at each silo's own (n, M)."""
        w = np.broadcast_to(w, (len(data["x"]), self.features))
        losses = self.terms(np.einsum("nrm,nm->nr", data["x"], w), data["y"])[0]
        real = np.arange(self.most) < data["count"][:, None]
        return np.asarray((losses * real).sum(-1) / data["count"] + self.rho * (w * w).sum(-1))  # (2), (54)

    def optimum(self, data: dict[str, Array], weights: ArrayLike | None = None) -> Array:
        """The minimiser of the silos' weighted mean: silos, not records, weigh equally unless `weights` (n,) say more.

        For regions of different sizes (1) has the weights 1 / (P K_p).
        """
        count = data["count"]
        share = np.full(len(count), 1.0 / len(count)) if weights is None else np.asarray(weights, dtype=np.float64)
        if share.shape != count.shape or not (share >= 0.0).all() or not 0.0 < share.sum() < math.inf:
            raise InputError("weights", f"{len(count)} numbers that are not negative", f"found {share}")
        real = np.arange(self.most) < count[:, None]
        each = (share / share.sum() / count)[:, None] * real  # the weight of every record
        kept = real.ravel()
        x, y, each = data["x"].reshape(-1, self.features)[kept], data["y"].ravel()[kept], each.ravel()[kept]
        if self.loss == "ridge":
            moment = (x.T * each) @ x  # (56)
            return self._solve(moment + self.rho * np.eye(self.features), (x.T * each) @ y)  # (55)
        return self._newton(x, y, each)

    def error_rate(self, w: Array, x: Array, y: ArrayLike) -> Array:
        """The part of the records (N, M) that a model (M,), or each of several (n, M), puts in the wrong class."""
        guess = np.where(np.einsum("nm,...m->...n", x, w) >= 0.0, 1.0, -1.0)
        return np.asarray((guess != signs(np.asarray(y, dtype=np.float64), "answers")).mean(-1))

    def squared_error(self, w: Array, x: Array, y: ArrayLike) -> Array:
        """The mean of r^2 over the records (N, M), for a model (M,) or each of several (n, M)."""
        return np.asarray(((np.einsum("nm,...m->...n", x, w) - np.asarray(y)) ** 2).mean(-1))

    def terms(self, margin: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """Loss, slope and curvature in x.w, and a curvature whose parabola lies above the loss, of every record."""
        if self.loss == "logistic":
            z = -y * margin
            chance = 0.5 * (1.0 + np.tanh(0.5 * z))
            return np.logaddexp(0.0, z), -y * chance, chance * (1.0 - chance), np.full_like(z, 0.25)
        r = y - margin
        if self.loss == "ridge":
            return r * r, -2.0 * r, np.full_like(r, 2.0), np.full_like(r, 2.0)
        inner = np.clip(r, -self.delta, self.delta)
        ratio = self.delta / np.maximum(np.abs(r), self.delta)
        return inner * (2.0 * r - inner), -2.0 * inner, 2.0 * (ratio == 1.0), 2.0 * ratio

    def _newton(self, x: Array, y: Array, each: Array) -> Array:
        """Newton's method with halved steps. Huber's loss has no curvature far out: the parabola above helps there."""
        w, logistic = np.zeros(self.features), self.loss == "logistic"

        def goal(w: Array) -> float:
            return float(each @ self.terms(x @ w, y)[0] + self.rho * (w @ w))

        for _ in range(_STEPS):
            _, slope, curve, above = self.terms(x @ w, y)
            gradient = x.T @ (each * slope) + 2.0 * self.rho * w
            scale = np.linalg.norm(np.abs(x.T) @ (each * np.abs(slope)) + 2.0 * self.rho * np.abs(w))
            if np.linalg.norm(gradient) <= _PRECISION * scale:
                return w
            if logistic and self.rho == 0.0 and (y * (x @ w) > 0.0).all():  # longer models are always better
                break
            damping = np.linalg.norm(gradient) / scale if self.loss == "huber" else 0.0
            hessian = (x.T * (each * (curve + damping * above))) @ x + 2.0 * self.rho * np.eye(self.features)
            step = self._solve(hessian, gradient)
            now, descent, length = goal(w), float(gradient @ step), 1.0
            if descent <= 1e-13 * now:  # no digit of the goal is left to fall: the last step is a full one
                return w - step
            while length > 1e-15 and goal(w - length * step) > now - 0.25 * length * descent:
                length *= 0.5
            w = w - length * step
        todo = "Without a ridge weight separable classes have no optimum: give rho > 0."
        raise SolverError(f"optimum of the {self.loss} loss", "convergence", "it does not converge", todo)

    def _solve(self, matrix: Array, right: Array) -> Array:
        if np.linalg.matrix_rank(matrix, hermitian=True) < self.features:
            raise InputError("optimum", "one minimiser", "the features are dependent", "Give rho > 0.")
        return np.asarray(np.linalg.solve(matrix, right))


def signs(y: Array, where: str = "labels") -> Array:
    """Labels -1 and 1; 0 and 1 are read as these, but not both -1 and 0."""
    sides = _sides(y, where)
    if np.isin((-1.0, 0.0), y).all():
        raise InputError(where, "the labels -1 and 1, or 0 and 1", "-1 and 0 are both there")
    return sides


def _sides(y: Array, where: str) -> Array:
    """The same, record by record: no refusal depends on several records, so none reveals anything about all of them."""
    strange = np.flatnonzero(~np.isin(y, (-1.0, 0.0, 1.0)))
    if strange.size:
        raise InputError(where, "the labels -1 and 1, or 0 and 1", f"row {strange[0]} has {y[strange[0]]:g}")
    return np.where(y == 1.0, 1.0, -1.0)


def _numbers(values: Any, where: str, dimensions: int) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(where, "numbers", "found something else") from None
    if array.ndim != dimensions:
        raise InputError(where, f"{dimensions} dimensions, records first", f"found shape {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        place = ", column ".join(map(str, bad[0]))
        raise InputError(f"{where}, row {place}", "finite numbers", f"found {array[tuple(bad[0])]}")
    return array


def _batch(data: dict[str, Array], batch: Integers | None, sizes: ArrayLike | None) -> tuple[Integers, Integers]:
    """Which records, and how many of them are meant, for every silo."""
    count = data["count"].astype(np.int64)
    if batch is None:
        assert sizes is None, "sizes say how much of a batch is meant"
        batch, sizes = np.broadcast_to(np.arange(data["x"].shape[1]), data["y"].shape), count
    if sizes is None:
        sizes = batch.shape[1]
    lengths = np.ascontiguousarray(np.broadcast_to(np.asarray(sizes, dtype=np.int64), count.shape))
    assert len(batch) == len(count), "a row of the batch for each silo"
    assert ((lengths >= 1) & (lengths <= batch.shape[1])).all(), "a batch has one record or more"
    meant = np.arange(batch.shape[1]) < lengths[:, None]
    assert (~meant | ((batch >= 0) & (batch < count[:, None]))).all(), "a batch names records that are there"
    return np.ascontiguousarray(batch, dtype=np.int64), lengths


@njit(cache=True)
def slope_of(kind: int, delta: float, margin: float, y: float) -> float:
    """The derivative of a record's loss in x.w."""
    if kind == 1:
        return float(-y / (1.0 + math.exp(min(y * margin, 700.0))))
    slope = -2.0 * (y - margin)
    return min(max(slope, -2.0 * delta), 2.0 * delta) if kind == 2 else slope


@njit(cache=True)
def _length(slope: float, x: Array) -> float:
    """Of slope * x, without a square that overflows or vanishes: features of 1e-300 may have an answer of 1e300."""
    if not abs(slope) < math.inf:
        return math.inf
    largest, square = 0.0, 0.0
    for m in range(len(x)):
        largest = max(largest, abs(slope * x[m]))
    if not 0.0 < largest < math.inf:
        return largest
    for m in range(len(x)):
        square += (slope * x[m] / largest) ** 2
    return largest * math.sqrt(square)


@njit(cache=True)
def _gradient_rows(
    kind: int,
    delta: float,
    rho: float,
    clip: float,
    w: Array,
    x: Array,
    y: Array,
    batch: Integers,
    sizes: Integers,
    out: Array,
) -> None:
    features = w.shape[1]
    for i in range(w.shape[0]):
        for b in range(sizes[i]):
            row, margin = batch[i, b], 0.0
            for m in range(features):
                margin += x[i, row, m] * w[i, m]
            slope = slope_of(kind, delta, margin, y[i, row])
            if clip < math.inf:
                length = _length(slope, x[i, row])
                if not length < math.inf:
                    continue
                if length > clip * _ROOM:
                    slope *= clip * _ROOM / length
            for m in range(features):
                out[i, m] += slope * x[i, row, m]
        for m in range(features):
            out[i, m] = out[i, m] / sizes[i] + 2.0 * rho * w[i, m]


@njit(cache=True)
def _descend_rows(
    kind: int,
    delta: float,
    rho: float,
    w: Array,
    x: Array,
    y: Array,
    batch: Integers,
    epochs: Integers,
    sizes: Integers,
    step: float,
) -> None:
    features = w.shape[1]
    pairs = features // 2 * 2
    gradient, model = np.empty(features), np.empty(features)
    for i in range(w.shape[0]):
        model[:] = w[i]
        for e in range(epochs[i]):
            gradient[:] = 0.0
            for b in range(sizes[i]):
                row, even, odd = batch[i, e, b], 0.0, 0.0
                for m in range(0, pairs, 2):  # two sums side by side: half the waiting for additions
                    even += x[i, row, m] * model[m]
                    odd += x[i, row, m + 1] * model[m + 1]
                if pairs < features:
                    even += x[i, row, pairs] * model[pairs]
                slope = slope_of(kind, delta, even + odd, y[i, row])
                for m in range(features):
                    gradient[m] += slope * x[i, row, m]
            for m in range(features):
                model[m] -= step / epochs[i] * (gradient[m] / sizes[i] + 2.0 * rho * model[m])  # (3)
        w[i] = model
