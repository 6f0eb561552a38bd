"""How servers combine the values they hear from each other (S1), with noise, and how far apart they are.

`a` is a combination matrix (P, P), symmetric and doubly stochastic; models are (P, M), a row for each server. Sums over
servers and silos are loops in a fixed order, so that a server alone and all at once get the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from silograph.core.types import Array


def combine(a: Array, psi: Array) -> Array:
    """Combine what servers send: w_p = sum over m of a_pm psi_m, (5) of S1.

    Parameters
    ----------
    a : Combination matrix (P, P), or the rows of some servers only; servers without weight are ignored.
    psi : The servers' models (P, M).

    >>> a = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> combine(a, np.array([[0.0], [4.0]]))
    array([[1.],
           [3.]])
    """
    out = np.zeros((len(a), psi.shape[1]))
    _combine_rows(_rows(a), _rows(psi), out)
    return out  # (5)


def combine_links(a: Array, received: Array) -> Array:
    """w_p = sum over m of a_pm received[p, m]: every link has its own message, (P, P, M)."""
    out = np.zeros((len(a), received.shape[2]))
    _link_rows(_rows(a), _rows(received), out)
    return out  # (8)


def centroid(w: Array) -> Array:
    """Compute the mean model of the servers, (15) of S1.

    Parameters
    ----------
    w : The servers' models (..., P, M); the mean is (..., M).

    >>> centroid(np.array([[0.0], [4.0]]))
    array([2.])
    """
    return np.asarray(w.mean(-2))  # (15)


def disagreement(w: Array) -> Array:
    """Compute the servers' mean squared distance to the centroid, (30) of S1: (1/P) sum_p |w_p - centroid|^2.

    Parameters
    ----------
    w : The servers' models (..., P, M).

    >>> disagreement(np.array([[0.0], [4.0]]))
    array(4.)
    """
    return msd_regions(w, centroid(w)[..., None, :])  # (30)


def msd_centroid(w: Array, optimum: Array) -> Array:
    """Mean-square deviation of the centroid."""
    return np.asarray(((centroid(w) - optimum) ** 2).sum(-1))  # (58)


def msd_regions(w: Array, optimum: Array) -> Array:
    """Mean-square deviation of the servers' own models: `msd_centroid` and `disagreement` together."""
    return np.asarray(((w - optimum) ** 2).sum(-1).mean(-1))  # (59)


def homomorphic_disagreement(a: Array, variance: float, features: int) -> float:
    """E (30) of w <- A w + homomorphic noise (47) in the long run: (M s^2/P) sum over l != 1 of (1 - l)/(1 + l)."""
    l = _other_eigenvalues(a)
    return float(features * variance / len(a) * ((1.0 - l) / (1.0 + l)).sum())


def sender_disagreement(a: Array, variance: float, features: int) -> float:
    """E (30) of w <- A (w + g), a draw for each server, in the long run: (M s^2/P) sum over l != 1 of l^2/(1 - l^2)."""
    l = _other_eigenvalues(a)
    return float(features * variance / len(a) * (l**2 / (1.0 - l**2)).sum())


def edge_disagreement(a: Array, variance: float, features: int) -> float:
    """E (30) of w <- A w + `combine_links`(A, g), a draw for each link but a server's own, in the long run."""
    values, vectors = np.linalg.eigh(a)
    received = (a**2).sum(1) - a.diagonal() ** 2
    power = np.einsum("pk,p->k", vectors**2, received)[
        :-1
    ]  # of the noise along every eigenvector but the last, 1/sqrt P
    return float(features * variance / len(a) * (power / (1.0 - values[:-1] ** 2)).sum())


def _other_eigenvalues(a: Array) -> Array:
    """All eigenvalues but the 1 of every doubly stochastic matrix; a connected graph has only one such."""
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
def _link_rows(a: Array, g: Array, out: Array) -> None:
    for p in range(a.shape[0]):
        for m in range(a.shape[1]):
            if a[p, m] != 0.0:
                for k in range(g.shape[2]):
                    out[p, k] += a[p, m] * g[p, m, k]
