"""Probabilities that a site has an edge, and that sites share it: empirical Bayes over strengths from a first fit.

1. The first fit is T_k, with W_k = T_k^-1. One Newton step along an edge gives its strength without the fit's
   shrinkage. For the joint likelihood of correlations R_k, penalised so that edges are shared (`joint_likelihood`):

       r_ke = -[T_ab sqrt(h) + (W - R)_ab / sqrt(h)],    h = W_aa W_bb + W_ab^2,    variance 1 / N_k                 (a)

   Other edges do not move in (a). What the penalty took off strong edges then appears between nodes that both follow a
   third. So if others explain half of a node's variance or more, T_aa W_aa > 2 (the mean of all sites), strong edges
   have no penalty, and edges of that node take a step in all entries at once (Jankova and van de Geer 2015, theorem 1):

       D_k = 2 T_k - T_k R_k T_k,    r_ke = -D_ab / sqrt(T_aa T_bb + T_ab^2),    variance 1 / N_k                    (c)

   For rows without a level common to all nodes and without negative relations, T_k is a Laplacian, the most likely one
   with a ridge (`kernels/log_det.py`) for moments shrunk to the mean of all sites. With the resistance h of a pair, the
   mean squared difference z that T_k expects,

       r_ke = [w h + (h - z) / h] / sqrt(2),    variance 1 / N_k                                                     (b)

2. Empirical Bayes over all edges of all sites (`kernels/edge_mixture.py`) learns how dense graphs are, how many edges
   sites share and how alike their strengths are, and gives each edge its probability. Strengths err by more than their
   noise, so p becomes 1 - (1 - p)^g, with g from other synthetic truths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray, Json
from silograph.kernels import joint_likelihood, log_det
from silograph.kernels.edge_mixture import Posterior, posterior
from silograph.kernels.edges import adjacency, moment_distances, pairs
from silograph.kernels.masks import filled_by_others, square
from silograph.kernels.pooling import effective_rows, empirical_bayes
from silograph.tasks.smooth_graph import centred_basis, distances_of

Device = Literal["cpu", "cuda"]

FIRST_PASS = 0.4  # of sqrt(log d / N), the penalty of the first pass at 30 nodes; more where there are more
GROUPED = 0.7  # the part of that penalty that is on all sites' entries of an edge together
_DOUBT, _DOUBT_SHARED = 0.8, 0.7  # g: the most likely on 108 worlds like those of benchmarks/graph_quality.py
_DOUBT_LAPLACIAN, _DOUBT_LAPLACIAN_SHARED = 0.6, 0.65  # on 68 worlds of the papers' signals, seeds 7000 to 7003
_SHARPER, _FEW_ROWS = 1.5, 5.0  # times that penalty: a second pass for shared edges, below so many rows per node
_MANY, _RELIEF = 200, 0.2  # from so many nodes strong edges always lose their penalty; what is left of it
_LIFTS = 2  # how often: edges that strong ones hide show after the first time
_EXPLAINED = 2.0  # T_aa W_aa: others explain half of the node's variance
_ROUGH = 100.0  # so many tolerances are enough to see which edges are strong
_LAPLACIAN_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Evidence:
    """Strengths (K, p); probabilities that a site has an edge (K, p) or that it is shared (p,), before and after doubt;
    the learned prior; the certified gap of the first fit, in nats per record and node; and the number of edges by
    Schwarz' criterion, if rows may be too few for the mixture: it can take a dense graph for noise."""

    strengths: Array
    site: Array
    shared: Array
    probability: Array
    probability_shared: Array
    prior: Json
    gap: float
    schwarz: int = 0


def joint_evidence(
    correlations: Array, rows: Array, nonnegative: bool, tolerance: float, device: Device = "cpu",
    pair_rows: Array | None = None,
) -> Evidence:  # fmt: skip
    """Evidence from the joint likelihood. `pair_rows` (K, p), if not all rows saw a pair: `rows` is then their mean. A
    graph of some nodes alone would join nodes with a common neighbour that a site lacks: for the first pass these are
    filled up, and are not used after it."""
    filled, known = (correlations, None) if pair_rows is None else filled_by_others(correlations, pair_rows)
    first = _first_pass(filled, rows, nonnegative, tolerance, device=device, pair_rows=known)
    r, found = _by_mixture(filled, rows, first, nonnegative, pair_rows)
    shared, gap = _shared(found.shared, filled, rows, first, nonnegative, tolerance, pair_rows, known)
    sure = _doubted(found.site, _DOUBT), _doubted(shared, _DOUBT_SHARED)
    return Evidence(r, found.site, shared, *sure, found.prior, max(first.relative_gap, gap))


def _by_mixture(
    correlations: Array, rows: Array, first: joint_likelihood.Joint, nonnegative: bool, pair_rows: Array | None
) -> tuple[Array, Posterior]:
    """Apply (a), then 2. No site gets an edge that it could not see."""
    r = _strengths(correlations, first)
    if pair_rows is None:
        return r, posterior(r, rows, nonnegative)
    seen = pair_rows > 0.0
    found = posterior(r * seen, pair_rows, nonnegative)
    return r * seen, replace(found, site=found.site * seen, shared=found.shared * seen.any(0))


def laplacian_evidence(moments: Array, rows: Array) -> Evidence:
    """Take the mean of two probabilities: by (b) of every site's own moments, all sites together; and by (b) of the
    pooled moments, one by one at their effective rows, with the mean of all sites for shared edges."""
    nodes = moments.shape[-1]
    basis = centred_basis(nodes)
    own = np.einsum("ak,iab,bl->ikl", basis, moments, basis, optimize=True)
    pooled = empirical_bayes(own, np.zeros(len(own)), rows)
    every = np.concatenate([pooled.moments, pooled.mean[None]])
    effective = effective_rows(every, np.append(pooled.variance, pooled.mean_variance))
    z = distances_of(every, nodes)
    ridge = (nodes - 1.0) * z.mean(-1) ** 2 / effective
    first = log_det.solve(z, ridge, _LAPLACIAN_TOLERANCE)
    r = _laplacian_strengths(distances_of(own, nodes), first.w[:-1])
    together = posterior(r, rows, True)
    alone = _laplacian_strengths(z, first.w)
    each = np.array([posterior(alone[k : k + 1], effective[k : k + 1], True).site[0] for k in range(len(alone))])
    site, shared = 0.5 * (together.site + each[:-1]), 0.5 * (together.shared + each[-1])
    sure = _doubted(site, _DOUBT_LAPLACIAN), _doubted(shared, _DOUBT_LAPLACIAN_SHARED)
    most_likely = log_det.most_likely(z[-1], float(ridge[-1]), first.w[-1], float(effective[-1]))
    return Evidence(
        r, site, shared, *sure, together.prior, float(first.gap.max()), int(np.count_nonzero(most_likely.w))
    )


def _strengths(correlations: Array, first: joint_likelihood.Joint) -> Array:
    """(a), and (c) for edges of nodes that others explain; (K, p)."""
    a, b = pairs(correlations.shape[-1])
    theta, w = first.theta, first.covariance
    variance = np.einsum("kaa->ka", w)
    h = np.sqrt(variance[:, a] * variance[:, b] + w[:, a, b] ** 2)
    r = -(theta[:, a, b] * h + (w[:, a, b] - correlations[:, a, b]) / h)
    explained = _explained(first)
    if explained.any():
        of = np.flatnonzero(explained[a] | explained[b])
        a, b, diagonal = a[of], b[of], np.einsum("kaa->ka", theta)
        step = 2.0 * theta - theta @ correlations @ theta
        r[:, of] = -step[:, a, b] / np.sqrt(diagonal[:, a] * diagonal[:, b] + theta[:, a, b] ** 2)
    return np.asarray(r)


def _explained(first: joint_likelihood.Joint) -> BoolArray:
    """The nodes with half or more of their variance explained by others, in the mean of all sites."""
    left = np.einsum("kaa->ka", first.theta) * np.einsum("kaa->ka", first.covariance)
    return np.asarray(left.mean(0) > _EXPLAINED)


def _laplacian_strengths(z: Array, w: Array) -> Array:
    """(b), (K, p)."""
    joined = np.array([adjacency(row) for row in w])
    degree = joined.sum(-1)
    level = degree.mean(-1)[:, None, None] / w.shape[-1]  # any value: it cancels in differences
    h = moment_distances(np.linalg.inv(degree[:, :, None] * np.eye(joined.shape[-1]) - joined + level))
    return np.asarray((w * h + (h - z) / h) / math.sqrt(2.0))


def _doubted(probability: Array, power: float) -> Array:
    return np.asarray(1.0 - np.maximum(1.0 - probability, 0.0) ** power)


def _shared(
    probability: Array, correlations: Array, counts: Array, first: joint_likelihood.Joint, nonnegative: bool,
    tolerance: float, pair_rows: Array | None, known: Array | None,
) -> tuple[Array, float]:  # fmt: skip
    """Take the mean of two passes' probabilities: shared edges have more rows behind them than those of one site, and
    with few rows a larger penalty finds them better."""
    nodes = correlations.shape[1]
    if len(counts) == 1 or nodes >= _MANY or counts.mean() >= _FEW_ROWS * nodes:
        return probability, 0.0
    second = _first_pass(correlations, counts, nonnegative, tolerance, _SHARPER, first.theta, pair_rows=known)
    again = _by_mixture(correlations, counts, second, nonnegative, pair_rows)[1]
    return 0.5 * (probability + again.shared), second.relative_gap


def _first_pass(
    correlations: Array, counts: Array, nonnegative: bool, tolerance: float, factor: float = 1.0,
    start: Array | None = None, device: Device = "cpu", pair_rows: Array | None = None,
) -> joint_likelihood.Joint:  # fmt: skip
    sites, nodes = correlations.shape[0], correlations.shape[1]
    strength = factor * FIRST_PASS * max(1.0, nodes / 30.0) ** 0.25 * math.sqrt(math.log(nodes) / counts.mean())
    nu = counts / counts.mean()
    lam, gam = (1.0 - GROUPED) * strength * np.sqrt(nu)[:, None, None], GROUPED * strength * math.sqrt(sites)
    if pair_rows is not None:  # the noise of an entry is that of its own rows; without rows it stays 0
        with np.errstate(divide="ignore"):
            lam = lam * np.sqrt(square(counts[:, None] / pair_rows))
        gam = gam * np.sqrt(square((pair_rows > 0.0).mean(0)))

    def solve(relief: Array | float, start: Array | None, tolerance: float) -> joint_likelihood.Joint:
        penalty = joint_likelihood.Penalty(lam * relief, gam * relief, nonnegative=nonnegative)
        return _solve(correlations, nu, penalty, start, tolerance, device)

    first = solve(1.0, start, tolerance if nodes < _MANY else _ROUGH * tolerance)
    if nodes < _MANY and not _explained(first).any():
        return first
    # A penalty this large shrinks strong edges so much that pairs with a common neighbour seem to have an edge.
    a, b = pairs(nodes)
    for _ in range(_LIFTS if nodes < _MANY else 1):
        relief, loud = np.ones((nodes, nodes)), _strengths(correlations, first) ** 2
        strong = _beyond_noise(counts @ loud if pair_rows is None else (pair_rows * loud).sum(0), sites)
        relief[a[strong], b[strong]] = relief[b[strong], a[strong]] = _RELIEF
        first = solve(relief, first.theta, tolerance)
    return first


def _solve(
    correlations: Array, nu: Array, penalty: joint_likelihood.Penalty, start: Array | None, tolerance: float,
    device: Device,
) -> joint_likelihood.Joint:  # fmt: skip
    if device == "cpu":
        return joint_likelihood.solve(correlations, nu, penalty, start, tolerance)
    try:
        from silograph.tasks import joint_on_device
    except ImportError:  # PyTorch is an extra
        todo = "pip install 'silograph[neural]', or take the device cpu."
        raise InputError("device", "PyTorch for the device cuda", "it is not installed", todo) from None
    return joint_on_device.solve(correlations, nu, penalty, start, tolerance, device)


def _beyond_noise(squares: Array, sites: int) -> BoolArray:
    """Which sums of so many squared normals are larger than noise gives anywhere, except with a chance of 1 in 20
    (Laurent and Massart 2000, lemma 1)."""
    x = math.log(20.0 * len(squares))
    return np.asarray(squares > sites + 2.0 * math.sqrt(sites * x) + 2.0 * x)
