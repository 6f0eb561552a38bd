"""Sums of clipped gradients of dense networks in single precision, client by client: what is needed of a client's
records is still in the cache when it is needed again.

`silograph.tasks.chain` says what is computed. It does the same for all other networks and precisions, and tests compare
the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.threads import in_parts
from silograph.core.types import Array
from silograph.kernels.products import TERMS_A_NUMBER, add_product

Single = NDArray[np.float32]
Integers = NDArray[np.int64]

LEAST_FACTOR = 2.0**-100  # by which a gradient may be scaled; below, single precision is not enough
STRAIGHT, RELU, TANH = 0, 1, 2  # what comes after a dense layer

_LEAST_ODDS = -87.0  # logarithm; beyond, single precision has none
_HALVINGS = 10  # of an exponent, until six terms of the series are enough


def add_gradients(
    models: Single,
    layers: Integers,
    x: Single,
    squares: Array,
    y: NDArray[Any],
    classes: bool,
    weights: Single,
    longest: float,
    out: Single,
) -> None:
    """Add to `out` (K, P) the sums of gradients at `models` (K, P), each no longer than `longest`, times its weight.

    Records `x` are (K, B, inputs); their squared lengths, answers and weights (K, B). The loss is the cross-entropy if
    answers are `classes`, else half the squared error. A row of `layers` has a layer's inputs, its outputs, whether it
    has a bias, and what comes after it. What is no number comes through to the sum.
    """
    size = (layers[:, 1] * (layers[:, 0] + layers[:, 2])).sum()
    assert models.shape == out.shape == (len(x), size), "models of these layers"
    assert x.shape == (*weights.shape, layers[0, 0]), "records as wide as the first layer"
    assert squares.shape == y.shape == weights.shape, "one of each for a record"

    def add(part: slice) -> None:
        _add(models[part], layers, x[part], squares[part], y[part], classes, weights[part], longest, out[part])

    in_parts(add, len(out), 2 * x.shape[1] * models.shape[1] // TERMS_A_NUMBER)


@njit(cache=True, nogil=True)
def _add(
    models: Single,
    layers: Integers,
    x: Single,
    squares: Array,
    y: NDArray[Any],
    classes: bool,
    weights: Single,
    longest: float,
    out: Single,
) -> None:
    count, records = len(layers), x.shape[1]
    room = records * layers[:, 1].max()
    values, slopes = np.empty((count, room), np.float32), np.empty((count, room), np.float32)  # at outputs
    squared, factors = np.empty(records), np.empty(records, np.float32)
    for k in range(len(models)):
        for i in range(count):
            weight, shift = _parameters(models[k], layers, i)
            z = _table(values[i], records, layers[i, 1])
            for r in range(records):
                for c in range(len(weight)):
                    z[r, c] = shift[c] if len(shift) else 0.0
            add_product(x[k] if i == 0 else _table(values[i - 1], records, layers[i, 0]), weight.T, z)
            _bend(z, layers[i, 3])
        delta = _table(slopes[count - 1], records, layers[count - 1, 1])
        _slope(_table(values[count - 1], records, layers[count - 1, 1]), y[k], classes, delta)
        squared[:] = 0.0
        for i in range(count - 1, 0, -1):
            a, before = _table(values[i - 1], records, layers[i, 0]), _table(slopes[i - 1], records, layers[i, 0])
            for r in range(records):
                squared[r] += (_square(a[r]) + layers[i, 2]) * _square(delta[r])
            before[:] = 0.0
            add_product(delta, _parameters(models[k], layers, i)[0], before)
            _unbend(before, a, layers[i - 1, 3])
            delta = before
        for r in range(records):
            squared[r] += (squares[k, r] + layers[0, 2]) * _square(delta[r])
            length = math.sqrt(squared[r])
            factor = 1.0 if length <= longest else longest / length
            factors[r] = factor * weights[k, r] if factor > LEAST_FACTOR else 0.0  # nor is NaN
        for i in range(count):
            weight, shift = _parameters(out[k], layers, i)
            delta = _table(slopes[i], records, layers[i, 1])
            total = np.zeros(len(shift), np.float32)
            for r in range(records):
                for c in range(len(weight)):
                    delta[r, c] *= factors[r]
                for c in range(len(shift)):
                    total[c] += delta[r, c]
            add_product(delta.T, x[k] if i == 0 else _table(values[i - 1], records, layers[i, 0]), weight)
            for c in range(len(shift)):
                shift[c] += total[c]


@njit(cache=True, nogil=True)
def _parameters(model: Single, layers: Integers, which: int) -> tuple[Single, Single]:
    """The weight and the shift of a layer; no bias is an empty shift."""
    begin = 0
    for i in range(which):
        begin += layers[i, 1] * (layers[i, 0] + layers[i, 2])
    inputs, outputs, bias, _ = layers[which]
    middle = begin + outputs * inputs
    return model[begin:middle].reshape(outputs, inputs), model[middle : middle + bias * outputs]


@njit(cache=True, nogil=True)
def _table(room: Single, rows: int, columns: int) -> Single:
    return room[: rows * columns].reshape(rows, columns)


@njit(cache=True, nogil=True)
def _bend(z: Single, bend: int) -> None:
    for r in range(len(z)):
        for c in range(z.shape[1]):
            if bend == RELU:
                z[r, c] = 0.0 if z[r, c] < 0.0 else z[r, c]
            elif bend == TANH:
                z[r, c] = math.tanh(z[r, c])


@njit(cache=True, nogil=True)
def _unbend(delta: Single, bent: Single, bend: int) -> None:
    one = np.float32(1.0)
    for r in range(len(delta)):
        for c in range(delta.shape[1]):
            if bend == RELU:
                delta[r, c] = 0.0 if bent[r, c] <= 0.0 else delta[r, c]
            elif bend == TANH:
                delta[r, c] *= one - bent[r, c] * bent[r, c]


@njit(cache=True, nogil=True)
def _slope(z: Single, y: NDArray[Any], classes: bool, delta: Single) -> None:
    """The slope of the loss in the outputs."""
    if not classes:
        for r in range(len(z)):
            delta[r, 0] = z[r, 0] - y[r]
        return
    for r in range(len(z)):
        most = z[r, 0]
        for c in range(1, z.shape[1]):
            most = max(most, z[r, c])
        for c in range(z.shape[1]):
            delta[r, c] = z[r, c] - most
    odds = delta.reshape(delta.size)
    for i in range(len(odds)):
        odds[i] = _exp(odds[i])
    for r in range(len(z)):
        everything = np.float32(0.0)
        for c in range(z.shape[1]):
            everything += delta[r, c]
        for c in range(z.shape[1]):
            delta[r, c] = delta[r, c] / everything - (np.float32(1.0) if y[r] == c else np.float32(0.0))


@njit(cache=True, nogil=True)
def _exp(t: np.float32) -> np.float32:
    """exp(t) for t <= 0, to 1e-8 of itself: the library's goes number by number."""
    u = (_LEAST_ODDS if t < _LEAST_ODDS else np.float64(t)) / 2.0**_HALVINGS
    e = 1.0 + u * (1.0 + u / 2 * (1.0 + u / 3 * (1.0 + u / 4 * (1.0 + u / 5 * (1.0 + u / 6)))))
    for _ in range(_HALVINGS):
        e *= e
    return np.float32(e)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _square(row: Single) -> float:
    """The squared length, in double precision: no square of a single one vanishes there."""
    out = 0.0
    for c in range(len(row)):
        out += np.float64(row[c]) * np.float64(row[c])
    return out
