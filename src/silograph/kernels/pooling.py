"""Noisy second moments of several silos, denoised together: all of it post-processing of what was released."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array


def project_psd(moments: Array) -> Array:
    """Find the nearest positive semidefinite matrices with the same trace (or 0 where the trace is not positive).

    Parameters
    ----------
    moments : Symmetric matrices (..., m, m), such as noisy second moments.

    >>> project_psd(np.diag([3.0, 1.0, -1.0]))  # the spectrum, projected on {l >= 0, sum l = 3}
    array([[2.5, 0. , 0. ],
           [0. , 0.5, 0. ],
           [0. , 0. , 0. ]])
    """
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
    """Released moments of all silos, shrunk towards their mean.

    Parameters
    ----------
    moments : Each silo's own moment, shrunk as far as its noise asks, (I, m, m).
    mean : Their weighted mean (m, m).
    shrinkage : How far each silo's is shrunk (I,): 0 keeps its own release, 1 replaces it by the mean.
    share : The share of each silo in the mean (I,).
    variance : The variance of each silo's moment around its truth (I,), per coordinate.
    mean_variance : The variance of the mean around what the silos' truths are drawn around, per coordinate.

    >>> released = np.array([1.0, 4.0])[:, None, None] * np.eye(2)
    >>> pooled = empirical_bayes(released, noise=np.array([0.01, 0.01]), counts=np.array([1e6, 1e6]))
    >>> pooled.shrinkage.round(2), pooled.mean.round(2)  # sites that really differ keep their own
    (array([0., 0.]), array([[2.5, 0. ],
           [0. , 2.5]]))
    """

    moments: Array
    mean: Array
    shrinkage: Array
    share: Array
    variance: Array
    mean_variance: float


def empirical_bayes(released: Array, noise: Array, counts: Array) -> Pooled:
    """Shrink each silo's released moment towards the precision-weighted mean, as far as its noise asks:

        S_i <- (1 - c_i) S_i + c_i mean,    c_i = v_i / (v_i + tau^2),    v_i = noise_i^2 + sampling variance

    The spread tau^2 of the silos' truths around their mean is estimated by moments.

    Parameters
    ----------
    released : Moments as they were released (I, m, m).
    noise : The known standard deviation of the privacy noise per coordinate (I,).
    counts : The number of records of each silo (I,).

    >>> released = np.array([0.9, 1.1])[:, None, None] * np.eye(2)
    >>> pooled = empirical_bayes(released, noise=np.array([0.5, 0.5]), counts=np.array([100.0, 100.0]))
    >>> pooled.shrinkage, pooled.moments[0].round(2)  # they differ by less than the noise: both become the mean
    (array([1., 1.]), array([[1., 0.],
           [0., 1.]]))
    """
    silos, m = len(released), released.shape[-1]
    size = m * (m + 1) / 2.0
    trace = np.einsum("iaa->i", released)
    power = (project_psd(released) ** 2).sum((1, 2))
    v = noise**2 + (trace**2 + power) / (counts * size)
    if silos == 1:
        return Pooled(released, released[0], np.zeros(1), np.ones(1), v, float(v[0]))
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
    # Silo i's moment is a mean of all releases with these weights; what it takes of others is off by their spread.
    mixing = np.diag(1.0 - shrink) + shrink[:, None] * share
    apart = others**2 + (share**2).sum() - share**2
    variance = mixing**2 @ v + shrink**2 * spread * apart
    return Pooled(moments, mean, shrink, share, variance, float((share**2 * (v + spread)).sum()))


def correlated_bayes(released: Array, covariance: Array, counts: Array) -> Pooled:
    """The same for privacy noise that is correlated between silos: best linear predictions, with the spread by the
    residuals' likelihood (REML), which for independent noise is a weighted mean of the same moments.

    `covariance` (I, I) is the known one of the privacy noise, per coordinate.
    """
    silos, m = len(released), released.shape[-1]
    size, one, unit = m * (m + 1) / 2.0, np.ones(len(released)), np.eye(len(released))
    trace = np.einsum("iaa->i", released)
    power = (project_psd(released) ** 2).sum((1, 2))
    known = covariance + np.diag((trace**2 + power) / (counts * size))
    flat = released.reshape(silos, -1)
    products = flat @ flat.T / size
    spread = 0.0
    for _ in range(200):
        precision, share = _generalised_mean(known + spread * unit)
        residual = precision - np.outer(precision @ one, share)
        excess = np.trace(residual @ (products - known) @ residual)
        before, spread = spread, max(0.0, float(excess / np.trace(residual @ residual))) if silos > 1 else 0.0
        if abs(spread - before) <= 1e-12 * (spread + known.trace() / silos):
            break
    precision, share = _generalised_mean(known + spread * unit)
    mixing = np.outer(one, share) + spread * precision @ (unit - np.outer(one, share))
    off = mixing - unit
    return Pooled(
        np.einsum("ij,jab->iab", mixing, released),
        np.einsum("i,iab->ab", share, released),
        1.0 - spread * precision.diagonal(),
        share,
        (mixing @ known @ mixing.T + spread * off @ off.T).diagonal(),
        float(1.0 / precision.sum()),
    )


def _generalised_mean(covariance: Array) -> tuple[Array, Array]:
    """Precision, and the weights of the most precise mean."""
    precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    return precision, np.asarray(precision.sum(1) / precision.sum())


def effective_rows(moments: Array, variance: Array) -> Array:
    """N_eff: how many Gaussian records would give second moments (I, m, m) with this variance per coordinate."""
    m = moments.shape[-1]
    trace = np.einsum("iaa->i", moments)
    power = (project_psd(moments) ** 2).sum((1, 2))
    return np.asarray((trace**2 + power) / (m * (m + 1) / 2.0 * variance))


def denoise(moments: Array, variance: Array, always: bool = False) -> Array:
    """Positive semidefinite moments with the same trace; where noise swamps the spectrum, or `always`, it is shrunk
    first.

    Noise of this variance spreads eigenvalues over a half circle of radius sqrt(2 m V). Once that is more than the mean
    eigenvalue, each is replaced by what, given the eigenvectors, it is in the mean: l - m V Re g(l), where g is the
    Stieltjes transform of the spectrum (Bun, Allez, Bouchaud, Potters 2016).
    """
    m = moments.shape[-1]
    values, vectors = np.linalg.eigh(moments)
    swamped = always | (np.sqrt(2.0 * m * variance) > values.sum(-1) / m)
    between = values[:, :, None] - values[:, None, :]
    width = np.sqrt(variance / 2.0)[:, None, None]  # the noise's deviation over sqrt(m): some eigenvalues wide
    transform = (between / (between**2 + width**2)).mean(-1)
    shrunk = np.where(swamped[:, None], values - m * variance[:, None] * transform, values)
    return project_psd(np.einsum("iak,ik,ibk->iab", vectors, shrunk, vectors, optimize=True))


_DRAWS, _TIMES = 4096, 40  # a dozen steps leave the size 8 % short where three signals in four are clipped


def undo_clip(moments: Array, radius: float | None) -> Array:
    """Second moments (I, m, m) of Gaussian signals from those of the same signals clipped to length `radius`, or
    scaled to length 1 (None), when the traces are made 1.

    Clipping keeps the eigenvectors, by symmetry. An eigenvalue l_k becomes the mean of l_k g_k^2 min(1, R^2 / |y|^2)
    with |y|^2 = sum_j l_j g_j^2 and g standard normal, which is solved for l by fixed-point steps on fixed draws.
    Scaled signals need not be Gaussian: any law whose level sets are ellipsoids has the same directions.
    """
    m = moments.shape[-1]
    squares = np.random.default_rng(0).standard_normal((_DRAWS, m)) ** 2
    squares /= squares.mean(0)
    observed, vectors = np.linalg.eigh(moments)
    observed = np.maximum(observed, 0.0)
    solved = observed.copy()
    for i, values in enumerate(observed):
        if not values.any():
            continue
        for _ in range(_TIMES):
            length = squares @ solved[i]
            kept = 1.0 / length if radius is None else np.minimum(1.0, radius**2 / length)
            solved[i] = values / (squares * kept[:, None]).mean(0)
            if radius is None:
                solved[i] /= solved[i].sum()
    return np.asarray(np.einsum("iak,ik,ibk->iab", vectors, solved, vectors, optimize=True))
