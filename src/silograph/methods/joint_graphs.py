"""Precision graphs of several sites and what they share, from second moments and counts alone.

1. Each site's moments become correlations R_k, so no unit matters. A joint likelihood with a penalty that shares edges
   (`kernels/joint_likelihood.py`), solved to a certified gap, is a first pass T_k, with W_k = T_k^-1.
2. What the first pass says of one edge, its own shrinkage undone: one Newton step along the edge,

       r_ke = -[T_ab sqrt(h) + (W - R)_ab / sqrt(h)],    h = W_aa W_bb + W_ab^2,    variance 1 / N_k                 (a)

3. Empirical Bayes over all edges of all sites (`kernels/edge_mixture.py`) learns how dense graphs are, how many edges
   sites share and how alike their strengths are, and gives each edge its probability: of a site, and of being shared.
   Strengths err by more than their noise, so p becomes 1 - (1 - p)^g, with g from other synthetic truths.
4. The most probable edges, as many as were asked for or as the expected F-score says, are refitted without penalty
   (`kernels/support_likelihood.py`), on moments drawn to the pooled ones as far as their noise asks:

       R_k <- (1 - c_k) R_k + c_k Rbar,    c_k = v_k / (v_k + tau^2)                                                 (b)

   v_k is the variance of a correlation, of N_k independent rows or seen between folds, tau^2 that between sites.

Rows that follow each other in time say less than as many independent ones: where folds show it, N_k is the number of
rows that would say as much. Where rows have gaps, or sites lack nodes, N_k is that of every pair (`pair_rows`): an edge
that a site could not see is held at 0 there, and counts for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray, Json
from silograph.kernels import joint_likelihood, support_likelihood
from silograph.kernels.edge_mixture import posterior
from silograph.kernels.edges import edge_count, pairs
from silograph.kernels.masks import definite, drawn_with_gaps, mean_rows, over_seen, pooled, square

Criterion = Literal["expected-F", "ebic", "held-out"]

FIRST_PASS = 0.4  # of sqrt(log d / N), the penalty of the first pass at 30 nodes; more where there are more
GROUPED = 0.7  # of that penalty, the part that is on all sites' entries of an edge together
_DOUBT, _DOUBT_SHARED = 0.8, 0.7  # g: the most likely on 108 worlds like those of benchmarks/graph_quality.py
_LOOSER = 10.0  # than the fits may the first pass be: (a) takes a Newton step from it, and F-scores stay the same
_CERTAIN = 0.99  # edges more probable than that are ranked by strength: what is left of their odds is noise
_MANY, _RELIEF = 200, 0.2  # nodes from which strong edges are relieved of their penalty, and what is left of it
_RIDGE = 0.01  # of the identity that moments are drawn to before a fit without penalty
_TRIED = 16  # numbers of edges on the path


@dataclass(frozen=True)
class JointGraphs:
    """What was learned; axis 0 of `precision`, `signs` and `probability` is the site.

    Edge vectors are in the order of `triu_indices(d, 1)`. `probability` is that a site has an edge, `shared` that sites
    share it; `signs` are -1, 0 and 1, positive for nodes that move together; `path` is what was compared to choose.
    """

    precision: Array  # (K, d, d), in the units of the moments
    signs: NDArray[np.int8]  # (K, p)
    probability: Array  # (K, p)
    consensus: Array  # (d, d), the precision of the pooled moments on the edges that are shared
    consensus_signs: NDArray[np.int8]  # (p,)
    shared: Array  # (p,)
    drawn_to_mean: Array  # (K,), c of (b)
    effective_rows: Array  # (K,), N_k
    prior: Json
    path: list[Json]
    first_gap: float  # certified, of the first pass and of the fits, in nats per record and node
    gap: float
    reason: str  # why as many edges as there are

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
    tolerance: float = 1e-4,
    pair_rows: Array | None = None,
) -> JointGraphs:
    """`moments` (K, d, d) is each site's covariance, `counts` (K,) its rows. `folds` (K, F, d, d) are the moments
    of F consecutive parts of a site's rows: they show the noise of dependent rows, and allow held-out likelihood.
    `pair_rows` (K, d, d) says how many rows saw both nodes of a pair, where that is not all of them.

    At most one of `edges`, `degree` and `density` says how many edges every site gets.
    """
    if pair_rows is not None and (pair_rows == np.asarray(counts)[:, None, None]).all():
        pair_rows = None
    moments, counts = _checked(moments, counts)
    nodes = moments.shape[1]
    deviation = np.sqrt(np.einsum("kaa->ka", moments))
    scale = deviation[:, :, None] * deviation[:, None, :]
    correlations = moments / scale
    a, b = pairs(nodes)
    seen = None if pair_rows is None else pair_rows[:, a, b]  # rows of every pair, (K, p)
    if seen is not None:
        correlations = np.array([definite(one) for one in correlations])
    noise = None if folds is None else _noise_of(folds / scale[:, None], seen)
    base = counts if seen is None else mean_rows(seen)
    rows = base if noise is None else effective_rows(correlations, base, noise, seen)
    every = None if seen is None else seen * (rows / base)[:, None]
    first = _first_pass(correlations, rows, nonnegative, _LOOSER * tolerance, every)
    r = strengths(correlations, first) * (1.0 if every is None else every > 0.0)
    found = posterior(r, rows if every is None else every, nonnegative)
    if every is not None:  # nobody draws an edge that it could not see
        found = replace(found, site=found.site * (every > 0.0), shared=found.shared * (every > 0.0).any(0))
    probability, shared = _doubted(found.site, _DOUBT), _doubted(found.shared, _DOUBT_SHARED)
    mean = np.abs(counts / counts.sum() @ r if every is None else pooled(r, every))
    rank, rank_shared = _ranked(found.site, 0.5 * (np.abs(r) + mean)), _ranked(found.shared[None], mean[None])
    if every is not None:
        rank, rank_shared = np.where(every > 0.0, rank, -1.0), np.where((every > 0.0).any(0), rank_shared, -1.0)
    drawn, share = drawn_to_mean(correlations, counts, noise, every)
    number, reason, path = _wanted(edges, degree, density, nodes)
    if number is None:
        number, path, reason = _choose(
            criterion, probability, rank, drawn, rows, folds, scale, nonnegative, tolerance, every
        )
    fitted = _fit(drawn, _first_ones(rank, _of_each(number, every)), nonnegative, tolerance)
    if every is not None and len({*(every > 0.0).sum(1).tolist()}) > 1:
        reason += ", of one that sees all pairs; others get as large a share of those that they see"
    consensus_number = consensus_edges or best_number(shared[None])
    possible = len(shared) if every is None else int((every > 0.0).any(0).sum())
    together = _first_ones(rank_shared, min(consensus_number, possible))
    whole = np.tensordot(counts / counts.sum(), moments, 1) if pair_rows is None else pooled(moments, pair_rows)
    spread = np.sqrt(np.diagonal(whole))
    standard = whole / np.outer(spread, spread)
    standard = standard if pair_rows is None else definite(standard)
    consensus = _fit(_ridged(standard)[None], together, nonnegative, tolerance)
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
        first_gap=first.relative_gap,
        gap=float(max(fitted.gap.max(), consensus.gap.max())),
        reason=reason if path or consensus_edges else f"{reason}; the consensus has its own number, {together.sum()}",
    )


def strengths(correlations: Array, first: joint_likelihood.Joint) -> Array:
    """(a), (K, p)."""
    a, b = pairs(correlations.shape[-1])
    theta, w = first.theta, first.covariance
    variance = np.einsum("kaa->ka", w)
    h = np.sqrt(variance[:, a] * variance[:, b] + w[:, a, b] ** 2)
    return np.asarray(-(theta[:, a, b] * h + (w[:, a, b] - correlations[:, a, b]) / h))


def effective_rows(correlations: Array, counts: Array, noise: Array, pair_rows: Array | None = None) -> Array:
    """N_k, of as many independent rows as have correlations with this noise: the same share of rows at all sites."""
    a, b = pairs(correlations.shape[-1])
    independent = over_seen((1.0 - correlations[:, a, b] ** 2) ** 2, pair_rows) / counts
    share = float((independent / np.maximum(noise, 1e-300)).mean())
    return np.asarray(np.maximum(counts * min(share, 1.0), 2.0))


def drawn_to_mean(
    correlations: Array, counts: Array, noise: Array | None = None, pair_rows: Array | None = None
) -> tuple[Array, Array]:
    """(b): correlations drawn to the pooled ones, and how far. `noise` v (K,): as if rows were independent if None.
    `pair_rows` (K, p), where not all rows saw a pair."""
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
    pooled = np.tensordot(share, correlations, 1)
    mixed = (1.0 - c)[:, None, None] * correlations + c[:, None, None] * pooled
    return _ridged(mixed), c


def best_number(probability: Array) -> int:
    """The number of edges with the largest expected F-score, 2 E[true ones taken] / (taken + E[true ones]), as a mean
    over rows."""
    return _best(*_expected(probability))


def _expected(probability: Array) -> tuple[Array, Array]:
    """What taking the most probable edges finds in the mean, for every number of them, and all there are."""
    return np.cumsum(-np.sort(-probability, axis=-1), -1), probability.sum(-1, keepdims=True)


def _best(found: Array, all_there_are: Array) -> int:
    score = found / (np.arange(1, found.shape[-1] + 1) + all_there_are)
    return round(float((1 + score.argmax(-1)).mean()))


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


def _of_each(number: int, pair_rows: Array | None) -> int | NDArray[np.intp]:
    """The number of edges of every site: the same share of the pairs that it sees."""
    return number if pair_rows is None else np.rint(number * (pair_rows > 0.0).mean(1)).astype(np.intp)


def _first_pass(
    correlations: Array, counts: Array, nonnegative: bool, tolerance: float, pair_rows: Array | None = None
) -> joint_likelihood.Joint:
    sites, nodes = correlations.shape[0], correlations.shape[1]
    strength = FIRST_PASS * max(1.0, nodes / 30.0) ** 0.25 * math.sqrt(math.log(nodes) / counts.mean())
    nu = counts / counts.mean()
    lam, gam = (1.0 - GROUPED) * strength * np.sqrt(nu)[:, None, None], GROUPED * strength * math.sqrt(sites)
    if pair_rows is not None:  # the noise of an entry is that of its own rows; without any it stays 0
        with np.errstate(divide="ignore"):
            lam = lam * np.sqrt(square(counts[:, None] / pair_rows))
        gam = gam * np.sqrt(square((pair_rows > 0.0).mean(0)))

    def solve(relief: Array | float, start: Array | None, tolerance: float) -> joint_likelihood.Joint:
        penalty = joint_likelihood.Penalty(lam * relief, gam * relief, nonnegative=nonnegative)
        return joint_likelihood.solve(correlations, nu, penalty, start, tolerance)

    if nodes < _MANY:
        return solve(1.0, None, tolerance)
    # So large a penalty takes so much off the strong edges that pairs with a common neighbour seem to have one.
    rough = solve(1.0, None, _LOOSER**2 * tolerance)
    relief = np.ones((nodes, nodes))
    a, b = pairs(nodes)
    strong = _beyond_noise(counts @ strengths(correlations, rough) ** 2, sites)
    relief[a[strong], b[strong]] = relief[b[strong], a[strong]] = _RELIEF
    return solve(relief, rough.theta, tolerance)


def _beyond_noise(square: Array, sites: int) -> BoolArray:
    """Sums of so many squared normals that are larger than those of noise anywhere, but for a chance of 1 in 20
    (Laurent and Massart 2000, lemma 1)."""
    x = math.log(20.0 * len(square))
    return np.asarray(square > sites + 2.0 * math.sqrt(sites * x) + 2.0 * x)


def _noise_of(folds: Array, pair_rows: Array | None = None) -> Array:
    """v of (b): the variance of a site's correlations, as consecutive parts of its rows differ."""
    a, b = pairs(folds.shape[-1])
    return np.asarray(over_seen(folds[:, :, a, b].var(axis=1, ddof=1), pair_rows) / folds.shape[1])


def _ridged(correlations: Array) -> Array:
    return np.asarray((1.0 - _RIDGE) * correlations + _RIDGE * np.eye(correlations.shape[-1]))


def _wanted(
    edges: int | None, degree: float | None, density: float | None, nodes: int
) -> tuple[int | None, str, list[Json]]:
    """The number of edges that was asked for, or None; the reason; and no path."""
    asked = {"edges": edges, "degree": degree, "density": density}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) > 1:
        raise InputError("number of edges", "one of edges, degree and density", f"found {', '.join(given)} together")
    if not given:
        return None, "", []
    name, value = next(iter(given.items()))
    pairs_of_nodes = edge_count(nodes)
    most = {"edges": pairs_of_nodes, "degree": nodes - 1, "density": 1.0}[name]
    if not 0 <= value <= most:
        raise InputError(name, f"a number from 0 to {most}", f"found {value}")
    number = round({"edges": value, "degree": value * nodes / 2.0, "density": value * pairs_of_nodes}[name])
    return number, f"{name} {value:g} was asked for: {number} edges a site", []


def _doubted(probability: Array, power: float) -> Array:
    return np.asarray(1.0 - np.maximum(1.0 - probability, 0.0) ** power)


def _ranked(probability: Array, strength: Array) -> Array:
    """By probability; by strength among those that are certain."""
    return np.minimum(probability, _CERTAIN) + (1.0 - _CERTAIN) * strength


def _first_ones(rank: Array, numbers: int | NDArray[np.intp]) -> BoolArray:
    """(K, d, d): so many edges of every row, those that rank highest."""
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


def _choose(
    criterion: Criterion, probability: Array, rank: Array, drawn: Array, counts: Array, folds: Array | None,
    scale: Array, nonnegative: bool, tolerance: float, pair_rows: Array | None = None,
) -> tuple[int, list[Json], str]:  # fmt: skip
    """The number of edges of every site by a criterion, and the path on which it was compared."""
    sure, everything = _expected(probability)
    expected, most = _best(sure, everything), probability.shape[-1]
    if pair_rows is not None:
        expected = round(expected / float((pair_rows > 0.0).mean()))
    if criterion == "expected-F":
        tried = np.unique([*np.geomspace(1, most, _TRIED).round().astype(int), max(expected, 1)])
        path = [
            {"edges": int(k), "expected_F": float((2.0 * sure[:, k - 1] / (k + everything[:, 0])).mean())}
            for k in tried
        ]
        return expected, path, f"{expected} edges a site have the largest expected F-score"
    if criterion == "held-out" and folds is None:
        raise InputError("criterion", "folds for held-out likelihood", "found none", "Send folds, or take 'ebic'.")
    nodes = drawn.shape[-1]
    tried = np.unique(
        np.geomspace(max(expected / 6.0, 1.0), min(6.0 * expected + 6.0, most), _TRIED).round().astype(int)
    )
    path = []
    for k in tried:
        taken = _first_ones(rank, _of_each(int(k), pair_rows))
        if criterion == "ebic":
            likelihood = _fit(drawn, taken, nonnegative, tolerance).likelihood
            cost = k * (np.log(counts) + 2.0 * math.log(nodes))  # Foygel and Drton 2010, gamma = 1/2
            value = float((counts * likelihood - cost).sum())
        else:
            assert folds is not None
            value = _held_out(folds / scale[:, None], taken, counts, nonnegative, tolerance)
        path.append({"edges": int(k), criterion: value})
    best = max(path, key=lambda line: float(line[criterion]))
    return int(best["edges"]), path, f"{best['edges']} edges a site are the best of {len(path)} numbers by {criterion}"


def _held_out(folds: Array, taken: BoolArray, counts: Array, nonnegative: bool, tolerance: float) -> float:
    """The mean log-likelihood of each fold under a fit to the others."""
    total = 0.0
    for f in range(folds.shape[1]):
        rest = np.delete(folds, f, axis=1).mean(1)
        deviation = np.sqrt(np.einsum("kaa->ka", rest))
        scale = deviation[:, :, None] * deviation[:, None, :]
        fitted = _fit(drawn_to_mean(rest / scale, counts)[0], taken, nonnegative, tolerance)
        total += float(_likelihood(folds[:, f], fitted.precision / scale).mean())
    return total / int(folds.shape[1])
