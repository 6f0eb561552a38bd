"""Positive definite matrices inside compiled loops: a factor that can fail, an inverse, a determinant; products."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg.lapack import dpotri

from silograph.core.types import Array

_SMALL = 48  # up to so many nodes the plain loop beats the library


@njit(cache=True, nogil=True)
def cholesky(matrix: Array, root: Array) -> bool:
    """Compute the factor; return False if the matrix is not positive definite."""
    nodes = len(matrix)
    if nodes > _SMALL:
        try:
            root[:] = np.linalg.cholesky(matrix)
        except Exception:
            return False
        return True
    for i in range(nodes):
        for j in range(i + 1):
            left = matrix[i, j]
            for k in range(j):
                left -= root[i, k] * root[j, k]
            if j < i:
                root[i, j] = left / root[j, j]
            elif left <= 0.0:
                return False
            else:
                root[i, i] = np.sqrt(left)
    return True


@njit(cache=True, nogil=True)
def invert(matrix: Array, out: Array) -> None:
    """Invert, symmetric to the last bit; free for a diagonal matrix, with which every solution starts."""
    nodes = len(matrix)
    diagonal = True
    for a in range(nodes):
        diagonal = diagonal and not matrix[a, :a].any()
    if diagonal:
        out[:] = np.diag(1.0 / np.diag(matrix))
        return
    out[:] = np.linalg.inv(matrix)
    for a in range(nodes):
        for b in range(a):
            out[b, a] = out[a, b]


@njit(cache=True, nogil=True)
def log_det(root: Array) -> float:
    total = 0.0
    for a in range(len(root)):
        total += 2.0 * np.log(root[a, a])
    return total


def inverse(root: Array, out: Array) -> None:
    """The inverse of the matrix with this factor, for large matrices: a third of the work, but not for compiled
    code."""
    out[:] = dpotri(root.T, lower=0)[0].T
    _mirror(out)


@njit(cache=True, nogil=True)
def _mirror(lower: Array) -> None:
    """Fill in the upper half, square by square so that both halves stay in fast memory."""
    nodes = len(lower)
    for first in range(0, nodes, 32):
        for second in range(0, first + 1, 32):
            for a in range(first, min(first + 32, nodes)):
                for b in range(second, min(second + 32, a)):
                    lower[b, a] = lower[a, b]


@njit(cache=True, nogil=True, fastmath=True)
def dot(x: Array, y: Array) -> float:
    """Dot product of short vectors, for which calling a library costs more than the product."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@njit(cache=True, nogil=True, fastmath=True)
def add(x: Array, factor: float, y: Array) -> None:
    """x <- x + factor y."""
    for i in range(len(x)):
        x[i] += factor * y[i]
