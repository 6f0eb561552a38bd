"""Private graphs of sites that lack nodes: each release, or summand, covers only the nodes of its site.

A site's nodes are public, by its columns' names. A signal's level is its mean over the nodes that every site has, so a
coordinate of a second moment (`levelled_basis`) means the same at every site that sees it. Missing nodes are 0 in a
site's release: its clip bounds its own columns, and noise on the rest is discarded. The rest is post-processing:

    mean_kl = sum_i s_ikl M_ikl,    s_ikl = [i sees k and l] / (v_i + tau^2), to sum 1                               (a)
    var_kl  = sum_i s_ikl^2 (v_i + tau^2)                                                                            (b)

where v_i is the variance of site i's coordinates and tau^2 how far sites differ; of a secure sum, mean_kl is
S_kl / N_kl with the records N_kl of the sites that see k and l. Pairs that no site sees are never joined.

A graph of some nodes alone would join nodes with a common neighbour that the site lacks. So missing nodes are predicted
from the site's own as in the mean of all sites ((a) of `kernels/masks.py`), and a site gets the pairs that it sees of
the graph learned from this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from silograph.core.types import Array, BoolArray, Carry
from silograph.kernels.edges import moment_distances, pairs
from silograph.kernels.masks import filled_up
from silograph.kernels.own_nodes import own_of, pairs_of
from silograph.kernels.pooling import denoise, effective_rows, project_psd, undo_clip
from silograph.kernels.spaces import AllPairs
from silograph.methods.base import Rows
from silograph.methods.private_graph import Graphs, ReleasedConsensus, Statistics, of_signals
from silograph.methods.summed_graph import SummedConsensus
from silograph.tasks.smooth_graph import SmoothGraph, from_coordinates

Lacks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class UnlikeReleases(ReleasedConsensus):
    """`ReleasedConsensus` for sites that lack nodes."""

    lacks: Lacks = ()

    def known(self, servers: Carry, heard: Rows) -> Statistics:
        counts, lacks = np.asarray(self.counts, dtype=float)[heard], [self.lacks[k] for k in heard]
        own = np.array([self.task.coordinates_of(each) for each in lacks])
        part = np.array([self.task.part(each) for each in lacks])
        moments = from_coordinates(servers["moments"][heard])
        if self.task.with_mean:
            moments = self.task.around_mean(moments, np.broadcast_to(part[:, None, None], moments.shape))
        released = _masked(moments, own)
        sensitivity = self.task.longest_term / self.task.kept * part / counts
        noise = np.array([self.mechanism.deviation(float(l2), self._size) for l2 in sensitivity])
        if self.task.clip is None:  # only the shape has a meaning
            trace = np.einsum("iaa->i", released)
            scale = np.where(trace > 0.0, part / np.where(trace > 0.0, trace, 1.0), 1.0)
            released = released * scale[:, None, None]
        pooled = pool(released, noise, counts, own)
        union = _union(pooled.mean, pooled.mean_variance, self.task, self.shrink)
        sites = [
            _site(moment[np.ix_(here, here)], float(variance), self.task, here, union, self.shrink)
            for moment, variance, here in zip(pooled.moments, pooled.variance, own, strict=True)
        ]
        rows = [*sites, union]
        return Statistics(
            np.array([row.zbar for row in rows]),
            np.array([row.moments for row in rows]),
            np.array([row.effective_rows for row in rows]),
            pooled.share,
            union.pair_rows,
            self.task.with_mean,
        )

    def learned(self, known: Statistics, drawn: BoolArray, heard: Rows) -> Graphs:
        found = super().learned(known, drawn, heard)
        seen = np.concatenate([self._seen[heard], np.ones((1, known.zbar.shape[1]), bool)])
        return replace(found, w=found.w * seen, signs=None if found.signs is None else found.signs * seen)

    @property
    def _seen(self) -> BoolArray:
        return pairs_of(own_of(self.lacks, self.task.nodes), AllPairs(self.task.nodes))

    def seen_of(self, consensus: Array, silos: int) -> Array:
        return np.where(self._seen, consensus, 0.0)


@dataclass(frozen=True)
class UnlikeSum(SummedConsensus):
    """`SummedConsensus` for sites that lack nodes."""

    lacks: Lacks = ()

    def statistics(self, total: Array, cohort: int, summed: BoolArray) -> Statistics:
        own = np.array([self.task.coordinates_of(each) for each in self.lacks])
        counts = np.where(summed, self.counts, 0.0)
        mean, records = self._mean(total, counts, own)
        seen = records > 0.0
        mean = np.where(seen, mean, 0.0)
        noise = self.noise(cohort, int(summed.sum())) / self.task.kept
        if self.task.clip is None and (trace := float(np.trace(mean))) > 0.0:
            mean = mean / trace
        size = len(mean) * (len(mean) + 1) / 2.0
        sampled = (np.trace(mean) ** 2 + (project_psd(mean[None]) ** 2).sum()) / size
        variance = np.where(seen, (noise / np.maximum(records, 1.0)) ** 2 + sampled / np.maximum(records, 1.0), np.inf)
        union = _union(mean, variance, self.task, self.shrink)
        effective = np.array([union.effective_rows])
        made = union.zbar[None], union.moments[None], effective, np.zeros(0), union.pair_rows
        return Statistics(*made, self.task.with_mean)

    def _mean(self, total: Array, counts: Array, own: BoolArray) -> tuple[Array, Array]:
        """The mean from the sum of all silos, by the records behind each coordinate, and the number of these: both (m,
        m)."""
        task = self.task
        there = np.column_stack([own, np.ones(len(own), bool)]) if task.with_mean else own
        part = np.array([task.part(each) for each in self.lacks])
        records = np.einsum("i,ik,il->kl", counts, there, there)
        some = np.where(records > 0.0, records, 1.0)
        mean = from_coordinates(total)[0] / some
        if not task.with_mean:
            return mean, records
        of = np.where(records > 0.0, np.einsum("i,ik,il->kl", counts * part, there, there) / some, 1.0)
        return task.around_mean(mean, of), records[:-1, :-1]


# ---- pooling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pooled:
    moments: Array  # (I, m, m), each silo's own coordinates, shrunk to the mean as far as its noise requires
    mean: Array  # (m, m), 0 where no silo sees a coordinate
    share: Array  # (I,), of each silo in the mean, over all coordinates
    variance: Array  # (I,), of each silo's moment around its truth, per coordinate
    mean_variance: Array  # (m, m), infinite where no silo sees a coordinate


def pool(released: Array, noise: Array, counts: Array, own: BoolArray) -> Pooled:
    """`pooling.empirical_bayes` for silos i that have only the coordinates own[i], in the same notation."""
    seen = (own[:, :, None] & own[:, None, :]).astype(float)
    size = own.sum(1) * (own.sum(1) + 1) / 2.0
    trace, power = np.einsum("iaa->i", released), (project_psd(released) ** 2).sum((1, 2))
    v = noise**2 + (trace**2 + power) / (counts * size)
    spread = 0.0
    for _ in range(100):
        weight = 1.0 / (v + spread)
        of = weight[:, None, None] * seen
        share = of / np.maximum(of.sum(0), 1e-300)  # (a)
        mean = (share * released).sum(0)
        left = (seen * (1.0 - share)).sum((1, 2)) / seen.sum((1, 2))  # the others' part of a silo's coordinates
        distance = (seen * (released - mean) ** 2).sum((1, 2)) / (size * np.maximum(left, 1e-12))
        known = weight**2 * (left > 1e-9)
        fresh = max(0.0, float((known * (distance - v)).sum() / max(known.sum(), 1e-300)))
        done = abs(fresh - spread) <= 1e-12 * (fresh + v.mean())
        spread = fresh
        if done:
            break
    shrink = (v / (v + spread))[:, None, None]
    moments = seen * ((1.0 - shrink) * released + shrink * mean)
    # For every coordinate: its own release and the others', each by its share; the others' part is off by tau^2.
    squares = (share**2).sum(0)
    noisy = ((1.0 - shrink) ** 2 + 2.0 * (1.0 - shrink) * shrink * share) * v[:, None, None]
    noisy = noisy + shrink**2 * np.einsum("jkl,j->kl", share**2, v)
    apart = shrink**2 * spread * ((1.0 - share) ** 2 + squares - share**2)
    variance = (seen * (noisy + apart)).sum((1, 2)) / seen.sum((1, 2))
    mean_variance = np.where(seen.any(0), np.einsum("jkl,j->kl", share**2, v + spread), np.inf)  # (b)
    return Pooled(moments, mean, share.sum((1, 2)) / share.sum(), variance, mean_variance)


def _masked(moments: Array, own: BoolArray) -> Array:
    return np.asarray(moments * (own[:, :, None] & own[:, None, :]))


# ---- statistics ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    inner: Array  # (m, m), clean
    zbar: Array  # (p,)
    moments: Array  # (d, d)
    effective_rows: float
    pair_rows: Array  # (d, d), of the mean; 0 if no site sees a pair


def _site(noisy: Array, variance: float, task: SmoothGraph, own: BoolArray, union: _Row, shrink: bool) -> _Row:
    """Statistics from a site's own coordinates."""
    clean, here = _clean(noisy, variance, task, shrink), np.ix_(own, own)
    as_large = union.inner * np.trace(clean) / max(float(np.trace(union.inner[here])), 1e-300)
    inner = filled_up(clean, as_large, own)
    return _row(inner, task, _effective(noisy, variance), union.pair_rows)


def _union(mean: Array, variance: Array, task: SmoothGraph, shrink: bool) -> _Row:
    """Statistics from all coordinates; those that no site sees are 0. A pair's effective rows follow from its own
    variance; those of the whole are their mean."""
    seen = np.isfinite(variance)
    information = np.where(seen, 1.0 / np.where(seen, variance, 1.0), 0.0)
    typical, place = 1.0 / float(information[seen].mean()), _coordinate(task)
    effective = _effective(mean, typical)
    pair_rows = effective * typical * information[np.ix_(place, place)]
    return _row(_clean(mean, float(variance[seen].mean()), task, shrink), task, effective, pair_rows)


def _row(inner: Array, task: SmoothGraph, effective: float, pair_rows: Array) -> _Row:
    moments = of_signals(inner[None], task)[0]
    moments = moments if task.with_mean else _centred(moments)
    zbar = np.where(pair_rows[pairs(task.nodes)] > 0.0, moment_distances(moments), np.inf)
    return _Row(inner, task.wall(zbar), moments, effective, pair_rows)


def _coordinate(task: SmoothGraph) -> Rows:
    """One coordinate for every node: all coordinates of common nodes are seen by the same sites."""
    if task.with_mean:
        return np.arange(task.nodes)
    assert task.common is not None, "all sites have all nodes"
    place, common = np.zeros(task.nodes, dtype=np.intp), len(task.common)
    others = [node for node in range(task.nodes) if node not in task.common]
    place[others] = common - 1 + np.arange(len(others))
    return place


def _clean(noisy: Array, variance: float, task: SmoothGraph, shrink: bool) -> Array:
    clean = denoise(noisy[None], np.array([variance]), shrink)
    return np.asarray((undo_clip(clean, task.clip) if task.person is None else clean)[0])


def _effective(noisy: Array, variance: float) -> float:
    return float(effective_rows(noisy[None], np.array([variance]))[0]) if np.trace(noisy) > 0.0 else 0.0


def _centred(moment: Array) -> Array:
    """Centre around the mean over nodes."""
    rows = moment - moment.mean(0)
    return np.asarray(rows - rows.mean(1, keepdims=True))
