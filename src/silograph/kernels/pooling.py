"""Noisy second moments of several silos, denoised together: all of it post-processing of what was released."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array


def project_psd(moments: Array) -> Array:
    """The nearest positive semidefinite matrices with the same trace (or 0 where the trace is not positive)."""
    values, vectors = np.linalg.eigh(moments)
    descending = values[..., ::-1]
    total = np.maximum(values.sum(-1, keepdims=True), 0.0)
    # Projection of the spectrum on the simplex {l >= 0, sum l = trace}.
    excess = (np.cumsum(descending, -1) - total) / np.arange(1, values.shape[-1] + 1)
    last = np.maximum((descending > excess).sum(-1, keepdims=True) - 1, 0)
    clipped = np.maximum(values - np.take_along_axis(excess, last, -1), 0.0)
    return np.asarray(np.einsum("...ak,...k,...bk->...ab", vectors, clipped, vectors, optimize=True))


@dataclass(frozen=True)
class Pooled:
    moments: Array  # (I, m, m), each silo's own, shrunk towards the mean as far as its noise asks
    mean: Array  # (m, m)
    shrinkage: Array  # (I,), 0 keeps a silo's own release, 1 replaces it by the mean


def empirical_bayes(released: Array, noise: Array, counts: Array) -> Pooled:
    """Shrink each silo's released moment (I, m, m) towards the precision-weighted mean.

    `noise` is the known standard deviation of the privacy noise per coordinate, `counts` the number of records.
    The spread tau^2 of the silos' truths around their mean is estimated by moments.
    """
    silos, m = len(released), released.shape[-1]
    size = m * (m + 1) / 2.0
    trace = np.einsum("iaa->i", released)
    power = (project_psd(released) ** 2).sum((1, 2))
    v = noise**2 + (trace**2 + power) / (counts * size)
    if silos == 1:
        return Pooled(released, released[0], np.zeros(1))
    spread = 0.0
    for _ in range(100):
        weight = 1.0 / (v + spread)
        share = weight / weight.sum()
        others = np.array([np.delete(share, i).sum() for i in range(silos)])  # 1 - share would cancel
        mean = np.einsum("i,iab->ab", share, released)
        distance = ((released - mean) ** 2).sum((1, 2)) / (size * others)
        fresh = max(0.0, float((weight**2 * (distance - v)).sum() / (weight**2).sum()))
        if abs(fresh - spread) <= 1e-12 * (fresh + v.mean()):
            spread = fresh
            break
        spread = fresh
    shrink = v / (v + spread)
    moments = (1.0 - shrink)[:, None, None] * released + shrink[:, None, None] * mean
    return Pooled(moments, mean, shrink)
