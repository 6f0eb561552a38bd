"""Which edges are there, and which are shared: posterior probabilities by empirical Bayes over all edges of all sites.

Every edge e of site k has an estimate r_ke of its strength, with noise of variance v_k. The prior: an edge is shared
with probability pi; then it has a strength m from the law g, and each site has it with probability q, at m with a
deviation of tau m. If it is not shared, each site has it with probability own, with a strength from the same law g:

    p(r_e) = pi sum_m g(m) prod_k [q N(r_ke; m, v_k + (tau m)^2) + (1 - q) N(r_ke; 0, v_k)]
           + (1 - pi) prod_k [own sum_m g(m) N(r_ke; m, v_k + (tau m)^2) + (1 - own) N(r_ke; 0, v_k)]               (a)

EM finds g on a grid of strengths of both signs, pi, q, own, tau, the inflation of the noise and each site's mean under
"no edge" (which a level common to all nodes moves off 0): those that make all r together most likely. It learns from r
rounded to a twentieth of its noise, so that sites have few different values; probabilities are of the exact r.

If a site saw some pairs of nodes in fewer rows than others, v_ke is that of the pair. A pair it never saw has no factor
in (a); its probability then follows from the other sites.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.types import Array, Json

_GRID, _WEAKEST, _STRONGEST = 10, 0.12, 0.8  # strengths of one sign; much weaker ones are left over from other edges
_STEPS = 30
_LEARNED = 20_000  # edges from which the prior is learned, if there are more
_ROUNDED = 0.05  # of the noise
_ROUNDED_ROWS = 0.1  # of the logarithm of a pair's rows
_CHUNK = 1024  # edges whose ratios are computed together
_SMOOTH = 0.02  # a little of every strength
PI, Q, OWN, INFLATION, TAU = range(5)
SHARED, PRESENT, ALONE, SPREAD, UNSEEN, UNSEEN_SHARED = range(6)


@dataclass(frozen=True)
class Posterior:
    """Probabilities of edges, and the prior that was learned.

    Parameters
    ----------
    site : That a site has an edge (K, p).
    site_positive : That a site has it, with a positive strength (K, p).
    shared : That an edge is shared by the sites (p,).
    shared_positive : That it is shared and positive (p,).
    prior : By name: pi ("shared"), q ("kept"), own ("own"), tau ("spread"), the inflation of the noise
        ("noise_inflation") and the share of positive strengths ("positive").

    >>> found = posterior(np.repeat([[0.5, 0.0, 0.0, 0.0]], 3, axis=0), counts=np.full(3, 400.0))
    >>> found.shared.round(2), found.site.shape
    (array([1., 0., 0., 0.]), (3, 4))
    """

    site: Array
    site_positive: Array
    shared: Array
    shared_positive: Array
    prior: Json


def posterior(r: Array, counts: Array, nonnegative: bool = False) -> Posterior:
    """Compute how probably each edge is there, at each site and shared, with a prior learned from all edges: (a).

    Parameters
    ----------
    r : Estimated strengths of the edges (K, p), such as partial correlations.
    counts : The rows behind them, (K,): the noise of r has a variance near 1 / counts. Or (K, p), with 0 for a pair
        that a site never saw.
    nonnegative : Whether no strength is below 0.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.where(np.arange(300) < 30, 0.4, 0.0)  # 30 edges of 300, the same at three sites
    >>> found = posterior(truth + rng.normal(size=(3, 300)) / np.sqrt(400.0), counts=np.full(3, 400.0))
    >>> bool((found.shared[:30] > 0.99).all()), round(found.prior["shared"], 2)
    (True, 0.1)
    """
    sites, edges = r.shape
    half = np.geomspace(_WEAKEST, _STRONGEST, _GRID)
    grid = half if nonnegative else np.concatenate([-half[::-1], half])
    law = np.full(len(grid), 1.0 / len(grid))
    prior, shift = np.array([0.1, 0.7, 0.03, 1.0, 0.15]), np.zeros(sites)
    if sites == 1:
        prior[Q], prior[OWN] = 1.0 - 1e-12, 0.0  # nothing tells shared from own
    every, out = np.ascontiguousarray(r.T), np.empty((edges, 2 * sites + 2))
    rows = np.broadcast_to(counts[:, None] if counts.ndim == 1 else counts, r.shape).T  # (p, K)
    some, weight = _telling(every * np.sqrt(rows))
    few, rows_of_few, place = _rounded(every[some], rows[some] if counts.ndim > 1 else counts)
    for step in range(_STEPS):
        sums, null, usage = np.zeros(6), np.zeros((3, sites)), np.zeros(len(grid))
        _expect(few, place, weight, rows_of_few, grid, law, prior, shift, sums, null, usage, out[:0])
        before = prior.copy()
        _maximise(prior, shift, law, sums, null, usage, edges, step > 5)
        if step > 8 and (np.abs(prior - before) <= 0.01 * before).all():
            break
    itself = np.arange(_CHUNK)[:, None].repeat(sites, 1)
    for begin in range(0, edges, _CHUNK):
        part = every[begin : begin + _CHUNK]
        here = np.ascontiguousarray(part.T), itself[: len(part)], np.ones(len(part))
        own_rows = np.ascontiguousarray(rows[begin : begin + _CHUNK].T)
        _expect(*here, own_rows, grid, law, prior, shift, sums, null, usage, out[begin : begin + _CHUNK])
    words = {"shared": PI, "kept": Q, "own": OWN, "noise_inflation": INFLATION, "spread": TAU}
    known: Json = {name: float(prior[place]) for name, place in words.items()}
    known["positive"] = float(law[grid > 0.0].sum())
    site, positive, shared = out[:, :sites], out[:, sites:-2], out[:, -2:]
    return Posterior(site.T.copy(), positive.T.copy(), shared[:, 0].copy(), shared[:, 1].copy(), known)


def _telling(z: Array) -> tuple[NDArray[np.intp], Array]:
    """Choose the edges that teach the prior, with weights: all that stand out, and a sample of the others."""
    largest = np.abs(z).max(1)
    if len(z) <= _LEARNED:
        return np.arange(len(z)), np.ones(len(z))
    dull = np.flatnonzero(largest < 4.0)
    sample = np.random.default_rng(0).choice(dull, min(_LEARNED // 2, len(dull)), replace=False)
    telling = np.flatnonzero(largest >= 4.0)
    weight = np.full(len(sample), len(dull) / max(len(sample), 1))
    return np.concatenate([telling, sample]), np.concatenate([np.ones(len(telling)), weight])


def _rounded(r: Array, counts: Array) -> tuple[Array, Array, NDArray[np.intp]]:
    """The different rounded values of r (p, K) at every site, (K, most), their rows, and the place of each edge's
    value, (p, K)."""
    places, values = np.empty(r.shape, dtype=np.intp), []
    for k in range(r.shape[1]):
        if counts.ndim == 1:
            rows, alike = counts[k], None
        else:
            alike = np.rint(np.log(np.maximum(counts[:, k], 1e-3)) / _ROUNDED_ROWS)
            rows = np.where(counts[:, k] > 0.0, np.exp(_ROUNDED_ROWS * alike), 0.0)
        unit = _ROUNDED / np.sqrt(np.where(rows > 0.0, rows, 1.0))
        steps = np.rint(r[:, k] / unit)
        if alike is None:
            different, places[:, k] = np.unique(steps, return_inverse=True)
            values.append((different * unit, np.full(len(different), rows)))
        else:
            _, first, places[:, k] = np.unique(np.stack([steps, alike]), axis=1, return_index=True, return_inverse=True)
            values.append(((steps * unit)[first], rows[first]))
    few, rows_of_few = np.zeros((2, len(values), max(len(mine) for mine, _ in values)))
    for k, (mine, rows) in enumerate(values):
        few[k, : len(mine)], rows_of_few[k, : len(mine)] = mine, rows
    return few, rows_of_few, places


def _maximise(
    prior: Array, shift: Array, law: Array, sums: Array, null: Array, usage: Array, edges: int, settled: bool
) -> None:
    """Take the M step. Bounds keep parameters that few edges determine from running away."""
    sites, tiny = len(shift), 1e-300
    prior[PI] = np.clip(sums[SHARED] / edges, 0.002, 0.6)
    if sites > 1:
        seen = sites * sums[SHARED] - sums[UNSEEN_SHARED]
        prior[Q] = np.clip(sums[PRESENT] / max(seen, tiny), 0.3, 0.98)
        seen = sites * (edges - sums[SHARED]) - (sums[UNSEEN] - sums[UNSEEN_SHARED])
        prior[OWN] = np.clip(sums[ALONE] / max(seen, tiny), 0.001, 0.3)
    mass, first, second = null  # of pairs without an edge: count, sum, sum of squares in units of 1 / sqrt(counts)
    mean = first / np.maximum(mass, 1e-9)  # less mass than that has no mean
    prior[INFLATION] = np.clip((second - mass * mean**2).sum() / max(mass.sum(), tiny), 0.3, 3.0)
    shift[:] = mean
    if settled:
        prior[TAU] = math.sqrt(np.clip(sums[SPREAD] / max(sums[PRESENT], tiny), 0.0025, 0.25))
    signs = len(law) // _GRID
    smooth = [np.convolve(part, [0.25, 0.5, 0.25], "same") for part in np.split(usage / sites, signs)]
    law[:] = np.concatenate(smooth) + _SMOOTH
    law /= law.sum()


@njit(cache=True, nogil=True)
def _expect(
    r: Array, place: NDArray[np.intp], weight: Array, counts: Array, grid: Array, law: Array, prior: Array,
    shift: Array, sums: Array, null: Array, usage: Array, out: Array,
) -> None:  # fmt: skip
    """Take the E step of (a) over edges: site k sees r[k, place] in counts[k, place] rows, with `shift` in units of 1 /
    sqrt(counts). If `out` has room it receives the probabilities: of every site's edge, of its positive one, shared,
    shared and positive."""
    edges, sites, size = len(weight), len(r), len(grid)
    pi, q, own, tau = prior[PI], prior[Q], prior[OWN], prior[TAU]
    most = 600.0 / sites  # so that no product over sites overflows
    ratio, has = np.ones((sites, r.shape[1], size)), np.zeros((sites, r.shape[1]))  # N(r; m, .) / N(r; 0, .)
    for k in range(sites):
        for i in range(r.shape[1]):
            if counts[k, i] == 0.0:
                has[k, i] = 1.0
                continue
            noise, x = prior[INFLATION] / counts[k, i], r[k, i] - shift[k] / np.sqrt(counts[k, i])
            for m in range(size):
                wide = noise + (tau * grid[m]) ** 2
                exponent = 0.5 * (x * x / noise - (x - grid[m]) ** 2 / wide)
                ratio[k, i, m] = np.exp(min(exponent, most)) * np.sqrt(noise / wide)
                has[k, i] += law[m] * ratio[k, i, m]
    together, mixed = np.empty(size), np.empty((sites, size))
    for e in range(edges):
        together[:] = pi * law
        apart = 1.0 - pi
        for k in range(sites):
            seen = ratio[k, place[e, k]]
            for m in range(size):
                mixed[k, m] = q * seen[m] + 1.0 - q
                together[m] *= mixed[k, m]
            apart *= own * has[k, place[e, k]] + 1.0 - own
        total = apart + together.sum()
        shared, positive = 0.0, 0.0
        for m in range(size):
            together[m] /= total
            shared += together[m]
            if grid[m] > 0.0:
                positive += together[m]
        sums[SHARED] += weight[e] * shared
        for k in range(sites):
            i = place[e, k]
            rows, seen = counts[k, i], ratio[k, i]
            rest = (1.0 - shared) * own / (own * has[k, i] + 1.0 - own)
            present, alone, above = 0.0, 0.0, 0.0
            if rows == 0.0:
                sums[UNSEEN] += weight[e]
                sums[UNSEEN_SHARED] += weight[e] * shared
                if len(out):
                    out[e, k] = shared * q + rest
                    out[e, sites + k] = positive * q + rest * law[grid > 0.0].sum()
                continue
            noise, x = prior[INFLATION] / rows, r[k, i] - shift[k] / np.sqrt(rows)
            for m in range(size):
                here = together[m] * q * seen[m] / mixed[k, m]
                single = rest * law[m] * seen[m]
                present += here
                alone += single
                usage[m] += weight[e] * (here + single)
                if grid[m] > 0.0:
                    above += here + single
                sums[SPREAD] += weight[e] * here * ((x - grid[m]) ** 2 - noise) / grid[m] ** 2
            sums[PRESENT] += weight[e] * present
            sums[ALONE] += weight[e] * alone
            none = weight[e] * (1.0 - present - alone)
            scaled = r[k, i] * np.sqrt(rows)
            null[0, k] += none
            null[1, k] += none * scaled
            null[2, k] += none * scaled * scaled
            if len(out):
                out[e, k], out[e, sites + k] = present + alone, above
        if len(out):
            out[e, 2 * sites], out[e, 2 * sites + 1] = shared, positive
