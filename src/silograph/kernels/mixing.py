"""What servers do with what they hear from each other (S1): combination, perturbation, and how far apart they are.

`a` is a combination matrix (P, P), symmetric and doubly stochastic; models are (P, M), a row for each server. Sums over
servers and silos are loops in a fixed order, so that a server alone and all at once get the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array


def combine(a: Array, psi: Array) -> Array:
    """w_p = sum over m of a_pm psi_m. Rows of `a` may be some servers' alone; who has no weight is not heard."""
    out = np.zeros((len(a), psi.shape[1]))
    _combine_rows(_rows(a), _rows(psi), out)
    return out  # (5)


def homomorphic(a: Array, g: Array) -> Array:
    """The noise in each server's combination where server p adds g_p to what it sends and takes
    -(1 - a_pp)/a_pp g_p into its own copy.

    That is sum over m != p of a_pm g_m - (1 - a_pp) g_p. Since a row sums to 1 it is a sum of differences: what a pair
    of servers puts in at one end it takes out at the other, so the total is 0 to rounding for any symmetric matrix.
    """
    out = np.zeros(g.shape)
    _difference_rows(_rows(a), _rows(g), out)
    return out  # (8), (47)


def link_noise(a: Array, g: Array) -> Array:
    """The noise in each server's combination where the link to p from m has its own g[p, m], (P, P, M)."""
    out = np.zeros((len(a), g.shape[2]))
    _link_rows(_rows(a), _rows(g), out)
    return out  # (8)


def unit_means(values: Array, home: NDArray[np.intp], servers: int) -> tuple[Array, Array]:
    """The mean over each server's silos, `values` (n, M) and their `home` (n,), and how many there were: (P, M), (P,).

    A server that heard nobody gets zeros and the count 0.
    """
    sums, counts = np.zeros((servers, values.shape[1])), np.zeros(servers)
    _add_rows(_rows(values), np.ascontiguousarray(home), sums, counts)
    return sums / np.maximum(counts, 1.0)[:, None], counts  # (4)


def centroid(w: Array) -> Array:
    """The mean model, (..., P, M) to (..., M)."""
    return np.asarray(w.mean(-2))  # (15)


def disagreement(w: Array) -> Array:
    """The servers' mean squared distance to the centroid."""
    return msd_units(w, centroid(w)[..., None, :])  # (30)


def msd_centroid(w: Array, optimum: Array) -> Array:
    """Mean-square deviation of the centroid."""
    return np.asarray(((centroid(w) - optimum) ** 2).sum(-1))  # (58)


def msd_units(w: Array, optimum: Array) -> Array:
    """Mean-square deviation of the servers' own models: `msd_centroid` and `disagreement` together."""
    return np.asarray(((w - optimum) ** 2).sum(-1).mean(-1))  # (59)


def homomorphic_disagreement(a: Array, variance: float, features: int) -> float:
    """E (30) of w <- A w + `homomorphic`(A, g) in the long run: (M s^2/P) sum over l != 1 of (1 - l)/(1 + l)."""
    l = _other_eigenvalues(a)
    return float(features * variance / len(a) * ((1.0 - l) / (1.0 + l)).sum())


def sender_disagreement(a: Array, variance: float, features: int) -> float:
    """E (30) of w <- A (w + g), a draw for each server, in the long run: (M s^2/P) sum over l != 1 of l^2/(1 - l^2)."""
    l = _other_eigenvalues(a)
    return float(features * variance / len(a) * (l**2 / (1.0 - l**2)).sum())


def edge_disagreement(a: Array, variance: float, features: int) -> float:
    """E (30) of w <- A w + `link_noise`(A, g), a draw for each link but a server's own, in the long run."""
    values, vectors = np.linalg.eigh(a)
    received = (a**2).sum(1) - a.diagonal() ** 2
    power = np.einsum("pk,p->k", vectors**2, received)[
        :-1
    ]  # of the noise along every eigenvector but the last, 1/sqrt P
    return float(features * variance / len(a) * (power / (1.0 - values[:-1] ** 2)).sum())


def _other_eigenvalues(a: Array) -> Array:
    """All but the 1 that every doubly stochastic matrix has; in a connected graph there is only one."""
    return np.asarray(np.linalg.eigvalsh(a)[:-1], dtype=np.float64)


def _rows(x: Array) -> Array:
    return np.ascontiguousarray(x, dtype=np.float64)


@njit(cache=True)
def _combine_rows(a: Array, psi: Array, out: Array) -> None:
    for p in range(a.shape[0]):
        for m in range(a.shape[1]):
            if a[p, m] != 0.0:
                for k in range(psi.shape[1]):
                    out[p, k] += a[p, m] * psi[m, k]


@njit(cache=True)
def _difference_rows(a: Array, g: Array, out: Array) -> None:
    for p in range(a.shape[0]):
        for m in range(a.shape[1]):
            if m != p and a[p, m] != 0.0:
                for k in range(g.shape[1]):
                    out[p, k] += a[p, m] * (g[m, k] - g[p, k])


@njit(cache=True)
def _link_rows(a: Array, g: Array, out: Array) -> None:
    for p in range(a.shape[0]):
        for m in range(a.shape[1]):
            if a[p, m] != 0.0:
                for k in range(g.shape[2]):
                    out[p, k] += a[p, m] * g[p, m, k]


@njit(cache=True)
def _add_rows(values: Array, home: NDArray[np.intp], sums: Array, counts: Array) -> None:
    for i in range(values.shape[0]):
        counts[home[i]] += 1.0
        for k in range(values.shape[1]):
            sums[home[i], k] += values[i, k]
