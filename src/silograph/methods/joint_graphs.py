"""Precision graphs of several sites and what they share, from second moments and counts alone.

1. Each site's moments become correlations R_k, so units do not matter. A first fit, certified, and empirical Bayes over
   all edges of all sites give each edge its probability: of a site, and of being shared (`edge_evidence`).
2. The most probable edges, as many as requested or as the expected F-score chooses, are refitted without penalty
   (`kernels/support_likelihood.py`), on moments shrunk to the pooled ones as far as their noise requires:

       R_k <- (1 - c_k) R_k + c_k Rbar,    c_k = v_k / (v_k + tau^2)                                                 (a)

   v_k is the variance of a correlation, of N_k independent rows or seen between folds, tau^2 that between sites.

Rows that follow each other in time carry less information than as many independent ones: if folds show it, N_k is the
number of independent rows with as much. If rows have gaps, or sites lack nodes, N_k is that of every pair
(`pair_rows`): an edge that a site could not see stays 0 there, and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray, Json
from silograph.kernels import joint_likelihood, support_likelihood
from silograph.kernels.edges import pairs
from silograph.kernels.masks import definite, drawn_with_gaps, mean_rows, over_seen, pooled, where_missing
from silograph.methods.edge_evidence import Device, Evidence, joint_evidence, laplacian_evidence
from silograph.methods.edge_numbers import (
    TRIED,
    best_number,
    expected_number,
    largest_expected,
    not_noise,
    of_each,
    path_of_expected,
    so_many,
    wanted,
)

Criterion = Literal["expected-F", "ebic", "held-out"]

_LOOSER = 10.0  # times coarser than the fits the first pass may be: a Newton step follows, and F-scores stay the same
_CERTAIN = 0.99  # more probable edges are ranked by strength: the rest of their odds is noise
_RIDGE = 0.01  # share of the identity in moments before a fit without penalty


@dataclass(frozen=True)
class JointGraphs:
    """Learned graphs; axis 0 of `precision`, `signs` and `probability` is the site.

    Edge vectors are in the order of `triu_indices(d, 1)`. `probability` is that a site has an edge, `shared` that sites
    share it; `signs` are -1, 0 and 1, positive for nodes that move together; `path` has the choices that were compared.
    """

    precision: Array  # (K, d, d), in the units of the moments
    signs: NDArray[np.int8]  # (K, p)
    probability: Array  # (K, p)
    consensus: Array  # (d, d), the precision of the pooled moments on the shared edges
    consensus_signs: NDArray[np.int8]  # (p,)
    shared: Array  # (p,)
    drawn_to_mean: Array  # (K,), c of (a)
    effective_rows: Array  # (K,), N_k
    prior: Json
    path: list[Json]
    first_gap: float  # certified, of the first pass and of the fits, in nats per record and node
    gap: float
    reason: str  # why there are so many edges

    @property
    def covariance(self) -> Array:
        return np.asarray(np.linalg.inv(self.precision))


def learn_graphs(
    moments: Array,
    counts: Array,
    *,
    folds: Array | None = None,
    edges: int | None = None,
    degree: float | None = None,
    density: float | None = None,
    consensus_edges: int | None = None,
    criterion: Criterion = "expected-F",
    nonnegative: bool = False,
    laplacian: bool = False,
    device: Device = "cpu",
    tolerance: float = 1e-4,
    pair_rows: Array | None = None,
) -> JointGraphs:
    """Learn from `moments` (K, d, d), each site's covariance, and `counts` (K,), its rows. `folds` (K, F, d, d) are the
    moments of F consecutive parts of a site's rows: they show the noise of dependent rows, and allow held-out
    likelihood. `pair_rows` (K, d, d) counts the rows that saw both nodes of a pair, if that is not all of them.

    At most one of `edges`, `degree` and `density` sets the number of edges of every site. `laplacian`: relations are
    positive, and rows have no level common to all nodes except the one added to `moments`. With the device cuda a GPU
    makes the first pass.
    """
    moments, counts = _checked(moments, counts)
    pair_rows = where_missing(pair_rows, counts)
    nodes = moments.shape[1]
    a, b = pairs(nodes)
    seen = None if pair_rows is None else pair_rows[:, a, b]  # rows of every pair, (K, p)
    correlations, scale = _standardised(moments, seen is not None)
    noise = None if folds is None else _noise_of(folds / scale[:, None], seen)
    base = counts if seen is None else mean_rows(seen)
    rows = base if noise is None else effective_rows(correlations, base, noise, seen)
    every = None if seen is None else seen * (rows / base)[:, None]
    found = _evidence(moments, rows, nonnegative, laplacian, tolerance, device, every)
    probability, shared = found.probability, found.probability_shared
    rank, rank_shared = _ranks(found, counts, every)
    drawn, share = drawn_to_mean(correlations, counts, noise, every)
    asked, reason = wanted(edges, degree, density, nodes, len(counts))
    number, path = asked, path_of_expected(found, asked, every)
    if number is None and criterion == "expected-F":
        number, path, reason = largest_expected(found, every)
    elif number is None:

        def evidence(of: Array, rows: Array, every: Array | None) -> Evidence:
            return _evidence(of, rows, nonnegative, laplacian, tolerance, device, every)

        held = None if folds is None else _parted(folds, rows, every, evidence)
        number, path, reason = _choose(criterion, found, rank, drawn, rows, held, nonnegative, tolerance, every)
    fitted = _fit(drawn, _first_ones(rank, of_each(number, every)), nonnegative, tolerance)
    if every is not None and len({*(every > 0.0).sum(1).tolist()}) > 1:
        reason += ", at a site that sees all pairs; a site that misses some gets the same share of those that it sees"
    consensus_number = consensus_edges or not_noise(best_number(shared[None]), found)
    possible = len(shared) if every is None else int((every > 0.0).any(0).sum())
    in_consensus = _first_ones(rank_shared, min(consensus_number, possible))
    whole = np.tensordot(counts / counts.sum(), moments, 1) if pair_rows is None else pooled(moments, pair_rows)
    spread = np.sqrt(np.diagonal(whole))
    standard = whole / np.outer(spread, spread)
    standard = standard if pair_rows is None else definite(standard)
    consensus = _fit(_ridged(standard)[None], in_consensus, nonnegative, tolerance)
    return JointGraphs(
        precision=fitted.precision / scale,
        signs=_signs(fitted.precision[:, a, b]),
        probability=probability,
        consensus=consensus.precision[0] / np.outer(spread, spread),
        consensus_signs=_signs(consensus.precision[0, a, b]),
        shared=shared,
        drawn_to_mean=share,
        effective_rows=rows,
        prior=found.prior,
        path=path,
        first_gap=found.gap,
        gap=float(max(fitted.gap.max(), consensus.gap.max())),
        reason=reason
        if asked is None or consensus_edges or len(counts) == 1
        else f"{reason}; the consensus has its own number, {in_consensus.sum() // 2}",
    )


def strengths_of(precision: Array) -> Array:
    """The partial correlation of every pair of nodes, without its sign."""
    a, b = pairs(precision.shape[-1])
    own = np.sqrt(np.einsum("...aa->...a", precision))
    return np.asarray(np.abs(precision[..., a, b]) / (own[..., a] * own[..., b]))


def effective_rows(correlations: Array, counts: Array, noise: Array, pair_rows: Array | None = None) -> Array:
    """N_k, the number of independent rows that have correlations with this noise: the same share of rows at all
    sites."""
    a, b = pairs(correlations.shape[-1])
    independent = over_seen((1.0 - correlations[:, a, b] ** 2) ** 2, pair_rows) / counts
    share = float((independent / np.maximum(noise, 1e-300)).mean())
    return np.asarray(np.maximum(counts * min(share, 1.0), 2.0))


def drawn_to_mean(
    correlations: Array, counts: Array, noise: Array | None = None, pair_rows: Array | None = None
) -> tuple[Array, Array]:
    """Shrink correlations to the pooled ones by (a); return them and how far. `noise` v (K,); None: rows are
    independent. `pair_rows` (K, p), if not all rows saw a pair."""
    if pair_rows is not None:
        mixed, c = drawn_with_gaps(correlations, pair_rows, noise)
        return _ridged(mixed), c
    a, b = pairs(correlations.shape[-1])
    r, share = correlations[:, a, b], counts / counts.sum()
    if len(counts) == 1:
        return _ridged(correlations), np.zeros(1)
    v = ((1.0 - r**2) ** 2).mean(1) / counts if noise is None else noise
    between = ((r - share @ r) ** 2).mean(1) / (1.0 - share)
    spread = max(0.0, float(share @ (between - v)))
    c = v / (v + spread)
    mean = np.tensordot(share, correlations, 1)
    mixed = (1.0 - c)[:, None, None] * correlations + c[:, None, None] * mean
    return _ridged(mixed), c


# ---- parts -----------------------------------------------------------------------------------------------------------


def _checked(moments: Array, counts: Array) -> tuple[Array, Array]:
    moments, counts = np.asarray(moments, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if moments.ndim != 3 or moments.shape[1] != moments.shape[2] or moments.shape[1] < 2:
        raise InputError(
            "moments", "an array (sites, nodes, nodes) of two nodes or more", f"its shape is {moments.shape}"
        )
    if counts.shape != moments.shape[:1] or not (counts > 1.0).all():
        raise InputError("counts", f"{len(moments)} numbers of rows, two or more each", f"they are {counts.tolist()}")
    if not np.isfinite(moments).all():
        raise InputError("moments", "finite numbers", "some are not", "Leave out rows with missing values.")
    constant = np.argwhere(np.einsum("kaa->ka", moments) <= 0.0)
    if len(constant):
        site, node = constant[0]
        raise InputError(
            f"moments of site {site}", "a variance above 0 at every node", f"node {node} never changes", "Leave it out."
        )
    return 0.5 * (moments + moments.transpose(0, 2, 1)), counts


def _standardised(moments: Array, gaps: bool) -> tuple[Array, Array]:
    """Correlations, made definite if gaps prevent it, and the units that were removed."""
    deviation = np.sqrt(np.einsum("kaa->ka", moments))
    scale = deviation[:, :, None] * deviation[:, None, :]
    correlations = moments / scale
    return (np.array([definite(one) for one in correlations]) if gaps else correlations), scale


def _noise_of(folds: Array, pair_rows: Array | None = None) -> Array:
    """v of (a): the variance of a site's correlations, from differences between consecutive parts of its rows."""
    a, b = pairs(folds.shape[-1])
    return np.asarray(over_seen(folds[:, :, a, b].var(axis=1, ddof=1), pair_rows) / folds.shape[1])


def _ridged(correlations: Array) -> Array:
    return np.asarray((1.0 - _RIDGE) * correlations + _RIDGE * np.eye(correlations.shape[-1]))


def _evidence(
    moments: Array, rows: Array, nonnegative: bool, laplacian: bool, tolerance: float, device: Device = "cpu",
    pair_rows: Array | None = None,
) -> Evidence:  # fmt: skip
    if laplacian and pair_rows is None:
        return laplacian_evidence(moments, rows)
    correlations = _standardised(moments, pair_rows is not None)[0]
    return joint_evidence(correlations, rows, nonnegative or laplacian, _LOOSER * tolerance, device, pair_rows)


def _ranks(found: Evidence, counts: Array, pair_rows: Array | None) -> tuple[Array, Array]:
    """Ranks of the edges of every site, and of shared edges; those that nobody saw are last."""
    mean = np.abs(counts / counts.sum() @ found.strengths if pair_rows is None else pooled(found.strengths, pair_rows))
    own, shared = _ranked(found.site, 0.5 * (np.abs(found.strengths) + mean)), _ranked(found.shared[None], mean[None])
    if pair_rows is None:
        return own, shared
    return np.where(pair_rows > 0.0, own, -1.0), np.where((pair_rows > 0.0).any(0), shared, -1.0)


def _ranked(probability: Array, strength: Array) -> Array:
    """Rank by probability, and by strength among those that are certain."""
    return np.minimum(probability, _CERTAIN) + (1.0 - _CERTAIN) * strength


def _first_ones(rank: Array, numbers: int | NDArray[np.intp]) -> BoolArray:
    """Mark (K, d, d) so many edges of every row, those that rank highest."""
    rows, edges = rank.shape
    nodes = (1 + math.isqrt(1 + 8 * edges)) // 2
    a, b = pairs(nodes)
    taken = np.zeros((rows, nodes, nodes), dtype=bool)
    for row, number in enumerate(np.broadcast_to(numbers, rows)):
        chosen = np.argpartition(-rank[row], number - 1)[:number] if 0 < number < edges else np.arange(number)
        taken[row, a[chosen], b[chosen]] = taken[row, b[chosen], a[chosen]] = True
    return taken


def _fit(moments: Array, taken: BoolArray, nonnegative: bool, tolerance: float) -> support_likelihood.Fitted:
    if not nonnegative:
        return support_likelihood.fit(moments, taken, tolerance)
    penalty = joint_likelihood.Penalty(lam=np.where(taken, 0.0, np.inf), nonnegative=True)
    joint = joint_likelihood.solve(moments, np.ones(len(moments)), penalty, tolerance=tolerance)
    return support_likelihood.Fitted(joint.theta, _likelihood(moments, joint.theta), np.array([joint.relative_gap]))


def _likelihood(moments: Array, precision: Array) -> Array:
    """logdet T - tr(S T) of every row."""
    return np.asarray(np.linalg.slogdet(precision)[1] - np.einsum("kab,kab->k", moments, precision))


def _signs(entries: Array) -> NDArray[np.int8]:
    return np.asarray(-np.sign(entries), dtype=np.int8)


@dataclass(frozen=True)
class _Part:
    """One fold held out: its moments; and from the others the moments to fit, their units, and the ranks of edges."""

    moments: Array
    drawn: Array
    scale: Array
    rank: Array


def _parted(
    folds: Array, counts: Array, pair_rows: Array | None, evidence: Callable[[Array, Array, Array | None], Evidence]
) -> list[_Part]:
    """Split off one fold; edges are ranked and fitted without any knowledge of it."""
    parts, left = [], 1.0 - 1.0 / folds.shape[1]
    for f in range(folds.shape[1]):
        rest, rows = np.delete(folds, f, axis=1).mean(1), counts * left
        every = None if pair_rows is None else pair_rows * left
        correlations, scale = _standardised(rest, every is not None)
        rank = _ranks(evidence(rest, rows, every), rows, every)[0]
        drawn = drawn_to_mean(correlations, rows, None, every)[0]
        parts.append(_Part(folds[:, f], drawn, scale, rank))
    return parts


def _choose(
    criterion: Criterion, found: Evidence, rank: Array, drawn: Array, counts: Array, parts: list[_Part] | None,
    nonnegative: bool, tolerance: float, pair_rows: Array | None = None,
) -> tuple[int, list[Json], str]:  # fmt: skip
    """Choose the number of edges of every site by a criterion that fits graphs; return it and the path compared."""
    if criterion == "held-out" and parts is None:
        raise InputError("criterion", "folds for held-out likelihood", "found none", "Send folds, or take 'ebic'.")
    (sites, most), nodes = rank.shape, drawn.shape[-1]
    expected = not_noise(expected_number(found, pair_rows), found)
    tried = np.unique(
        np.geomspace(max(expected / 6.0, 1.0), min(6.0 * expected + 6.0, most), TRIED).round().astype(int)
    )
    path = []
    for k in tried:
        numbers = of_each(int(k), pair_rows)
        if criterion == "ebic":
            likelihood = _fit(drawn, _first_ones(rank, numbers), nonnegative, tolerance).likelihood
            cost = numbers * (np.log(counts) + 2.0 * math.log(nodes))  # Foygel and Drton 2010, gamma = 1/2
            value = float((counts * likelihood - cost).sum())
        else:
            assert parts is not None
            value = float(np.mean([_held_out(part, numbers, nonnegative, tolerance) for part in parts]))
        path.append({"edges": int(k), criterion: value})
    best = max(path, key=lambda line: float(line[criterion]))
    chosen = so_many(int(best["edges"]), sites)
    return int(best["edges"]), path, f"{chosen} are the best of {len(path)} numbers by {criterion}"


def _held_out(part: _Part, numbers: int | NDArray[np.intp], nonnegative: bool, tolerance: float) -> float:
    """The mean log-likelihood of a fold under a fit to the others."""
    fitted = _fit(part.drawn, _first_ones(part.rank, numbers), nonnegative, tolerance)
    return float(_likelihood(part.moments, fitted.precision / part.scale).mean())
