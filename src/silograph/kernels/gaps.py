"""Rows with gaps: second moments of the most likely Gaussian, and how many rows saw each pair of nodes.

A gap is a NaN. Its place does not depend on the missing value, given the rest of the row (missing at random). With the
row's other values x_o and the precision T of the rows, the missing values have

    E[x_m] = mu_m - T_mm^-1 T_mo (x_o - mu_o),    Cov[x_m] = T_mm^-1                                                 (a)

and the moments are those of rows completed by (a), with Cov[x_m] added; then T is computed from them again (EM;
Dempster, Laird, Rubin, 1977). Moments of each pair from its own rows would not be those of any rows: their errors do
not fit together, and the precision enlarges them. T is shrunk a little towards independence if rows are few.

A completed value only repeats what other rows show of a pair. So the rows that count for a pair are those that saw both
of its nodes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array, BoolArray
from silograph.kernels.edges import pairs

_PASSES = 60  # of EM, at most
_CLOSE, _OF_NOISE = 1e-4, 0.02  # the last move of a correlation, absolute or as a part of the noise of so many rows
_SOME = 4000  # rows that EM starts with, if there are more
_DRAWN, _MOST_DRAWN = 0.3, 0.2  # shrinkage to independence: this part of nodes / rows, and at most so much


def pair_rows(signals: Array) -> Array:
    """Count the rows that saw both nodes of every pair, (d, d); on the diagonal, those that saw the node."""
    seen = (~np.isnan(signals)).astype(float)
    return np.asarray(seen.T @ seen)


def moments_with_gaps(signals: Array, folds: int = 1) -> Array:
    """Compute second moments of rows with gaps, around the common mean: those of the most likely Gaussian, by EM (a).

    A node without a value has variance 1 and no correlation.

    Parameters
    ----------
    signals : n signals on d nodes, (n, d); NaN is a gap.
    folds : In how many consecutive parts of the rows moments are computed; they are (folds, d, d).

    >>> x = np.random.default_rng(0).normal(size=(2000, 1)) + np.array([0.0, 5.0])  # two nodes that move together
    >>> x[1000:, 1] = np.nan
    >>> moments_with_gaps(x)[0].round(2)  # the rows that saw node 0 alone count for both
    array([[1., 1.],
           [1., 1.]])
    """
    seen = ~np.isnan(signals)
    own = np.flatnonzero(seen.any(0))
    found = np.tile(np.eye(signals.shape[1]), (folds, 1, 1))
    z, spread = _scaled(signals[:, own], seen[:, own])
    found[:, own[:, None], own] = _completed(z, seen[:, own], folds) * np.outer(spread, spread)
    return found


def distances_with_gaps(signals: Array) -> Array:
    """The mean of (x[a] - x[b])^2 over the rows that saw both, for every pair; infinite if none did."""
    seen = ~np.isnan(signals)
    level = np.where(seen, signals, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
    y, here = np.where(seen, signals - level, 0.0), seen.astype(float)
    a, b = pairs(signals.shape[1])
    rows, inner, square, first = here.T @ here, y.T @ y, (y**2).T @ here, y.T @ here
    apart = level[a] - level[b]
    total = square[a, b] + square[b, a] - 2.0 * inner[a, b] + 2.0 * apart * (first[a, b] - first[b, a])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rows[a, b] > 0.0, np.maximum(total / rows[a, b] + apart**2, 0.0), np.inf)


def _scaled(signals: Array, seen: BoolArray) -> tuple[Array, Array]:
    """Scale nodes to mean 0 and deviation 1, with 0 in gaps; return the deviations too."""
    rows = seen.sum(0)
    centre = np.where(seen, signals, 0.0).sum(0) / rows
    apart = np.where(seen, signals - centre, 0.0)
    spread = np.sqrt((apart**2).sum(0) / rows)
    spread = np.where(spread > 0.0, spread, 1.0)
    return apart / spread, spread


def _completed(z: Array, seen: BoolArray, folds: int) -> Array:
    """Run EM; return the moments of every part."""
    rows, nodes = z.shape
    ends = np.cumsum([len(part) for part in np.array_split(z[:, 0], folds)])
    drawn, close = min(_MOST_DRAWN, _DRAWN * nodes / rows), max(_CLOSE, _OF_NOISE / math.sqrt(rows))
    thin = slice(None, None, rows // _SOME)
    few = rows >= 2 * _SOME and bool(seen[thin].any(0).all())
    mean, moment = np.zeros(nodes), _completed(z[thin], seen[thin], 1)[0] if few else _first(z, seen)
    whole, added = np.empty_like(z), np.empty((folds, nodes, nodes))
    for _ in range(_PASSES):
        own = np.diag(np.diag(moment))
        precision = np.linalg.inv((1.0 - drawn) * moment + drawn * own)
        _expect(z, seen, mean, precision, ends, whole, added)
        before, mean = moment, whole.mean(0)
        moment = ((whole - mean).T @ (whole - mean) + added.sum(0)) / rows
        if np.abs(moment - before).max() <= close:
            break
    parts = np.split(whole - mean, ends[:-1])
    return np.array([(part.T @ part + more) / len(part) for part, more in zip(parts, added, strict=True)])


def _first(z: Array, seen: BoolArray) -> Array:
    """Start half-way between independence and the moments of pairs from their own rows, with no eigenvalue near 0."""
    rows = np.maximum(pair_rows(np.where(seen, 0.0, np.nan)), 1.0)
    values, vectors = np.linalg.eigh(0.5 * (z.T @ z) / rows + 0.5 * np.eye(z.shape[1]))
    return np.asarray((vectors * np.maximum(values, 0.05)) @ vectors.T)


@njit(cache=True, nogil=True)
def _invert(a: Array) -> None:
    """Invert a positive definite matrix in place (Gauss and Jordan): for many small ones, LAPACK is slow."""
    size = len(a)
    for p in range(size):
        pivot = 1.0 / a[p, p]
        a[p, p] = 1.0
        for j in range(size):
            a[p, j] *= pivot
        for i in range(size):
            if i != p:
                factor = a[i, p]
                a[i, p] = 0.0
                for j in range(size):
                    a[i, j] -= factor * a[p, j]


@njit(cache=True, nogil=True)
def _expect(
    z: Array, seen: BoolArray, mean: Array, precision: Array, ends: NDArray[np.intp], whole: Array, added: Array
) -> None:
    """Complete rows into `whole` by (a), and add up the covariances of the missing values, part by part."""
    added[:] = 0.0
    part = 0
    for n in range(len(z)):
        while n >= ends[part]:
            part += 1
        gone = np.flatnonzero(~seen[n])
        whole[n] = z[n]
        if not gone.size:
            continue
        inner, pull = np.empty((gone.size, gone.size)), np.zeros(gone.size)
        for i in range(gone.size):
            line = precision[gone[i]]
            for b in range(z.shape[1]):
                if seen[n, b]:
                    pull[i] += line[b] * (z[n, b] - mean[b])
            for j in range(gone.size):
                inner[i, j] = line[gone[j]]
        _invert(inner)
        for i in range(gone.size):
            value = mean[gone[i]]
            for j in range(gone.size):
                value -= inner[i, j] * pull[j]
                added[part, gone[i], gone[j]] += inner[i, j]
            whole[n, gone[i]] = value
