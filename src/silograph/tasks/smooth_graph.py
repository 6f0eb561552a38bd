"""The objective of one silo: how rough its signals are on a graph (S3 (7)). The record is one signal, a row of the
table.

The model only needs zbar from the data, the mean squared difference of every pair of nodes. Under privacy the silo
releases a clipped statistic from which zbar follows, and nothing else. The joint likelihood needs second moments.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from silograph.core.keys import stream
from silograph.core.types import Array, BoolArray
from silograph.data.silos import People
from silograph.kernels.edges import edge_count, moment_distances, node_count, pairs
from silograph.kernels.gaps import distances_with_gaps, moments_with_gaps, pair_rows
from silograph.kernels.spaces import AllPairs, EdgeList, Space
from silograph.privacy.bound import Bounded, Within, clip_rows, row_lengths

_HUGE = 1e70  # no square of anything up to here overflows: one absurd record may not decide whether a silo fails
_OF_MEAN = 0.04  # q, of a signal's squared length: noise in products of means is far below that in moments
_LEVEL_OFF = (
    0.5  # of a row's mean over nodes, where all of it may not go: a level that all share takes most of a length
)
_INSIDE = 1.0 - 1e-9  # of a clip, so that bounds hold after rounding
PROTECTED_UNIT = "one signal of one site: its value at every node"
PERSON = "one person of one site: all signals with the same {!r}"

Statistic = Literal["distances", "listed-distances", "clipped-distances", "moment", "second-moments", "correlations"]


@dataclass(frozen=True)
class SmoothGraph:
    """`statistic`: what the silo works with.

    distances            zbar as it is (no privacy)
    listed-distances     zbar of the candidates alone (no privacy), and of resampled signals
    clipped-distances    mean of z clipped to length `clip` (the papers' way)
    moment               second moment of signals clipped to length `clip`, or scaled to length 1 if None, each around
                         its mean over nodes. If columns were scaled one by one (`with_mean`), half of that mean stays,
                         so nothing is lost; a constant is one coordinate more, so that the server can take means off
    second-moments       of signals around the silo's mean, as they are (no privacy); of `folds` parts of its rows
    correlations         of every pair of nodes, as they are (no privacy)
    """

    nodes: int
    statistic: Statistic = "distances"
    clip: float | None = None
    candidates: EdgeList | None = None  # the only edges there can be; under privacy a public list
    person: str | None = (
        None  # the column that names a signal's person; then a person is the protected unit, not a signal
    )
    resamples: int = 0  # how often signals are drawn again, to see which edges stay
    folds: int = 1  # consecutive parts of the rows
    common: tuple[int, ...] | None = None  # of a moment: the nodes that every site has, where some lack others
    with_mean: bool = False  # of a moment: columns were scaled one by one, and need not vary around 0 at a site
    gaps: bool = False  # whether a site says how many rows saw each pair of nodes, because some rows have gaps

    @property
    def edges(self) -> int:
        return edge_count(self.nodes)

    @property
    def space(self) -> Space:
        if self.statistic != "listed-distances":
            return AllPairs(self.nodes)
        assert self.candidates is not None, "no list"
        return self.candidates

    @property
    def protected_unit(self) -> str:
        return PROTECTED_UNIT if self.person is None else PERSON.format(self.person)

    @property
    def back(self) -> Array:
        """A (d, m): the signal A y has the coordinates y of a second moment. Without `with_mean` A is orthonormal."""
        if self.with_mean:
            return kept_level(self.nodes, self._common)
        return centred_basis(self.nodes) if self.common is None else levelled_basis(self.nodes, self.common)

    @property
    def dimensions(self) -> int:
        """m, one less than nodes where a signal loses its level."""
        return self.nodes if self.with_mean else self.nodes - 1

    @property
    def _common(self) -> tuple[int, ...]:
        return tuple(range(self.nodes)) if self.common is None else self.common

    def coordinates_of(self, lacks: Collection[int]) -> BoolArray:
        """(m,): the coordinates that a site has, by the nodes that it lacks."""
        if self.with_mean:
            return ~np.isin(np.arange(self.nodes), list(lacks))
        assert self.common is not None, "all sites have all nodes"
        others = [node not in lacks for node in range(self.nodes) if node not in self.common]
        return np.array([True] * (len(self.common) - 1) + others)

    def part(self, lacks: Collection[int]) -> float:
        """Of the squared length that a signal of all nodes may have, that of one without some nodes. Where lengths are
        scaled it is their share of the coordinates, so that values are as large at every site."""
        return 1.0 if self.clip is not None else 1.0 - len(lacks) / self.dimensions

    def prepare(self, signals: Array | People, lacks: Collection[int] = ()) -> dict[str, Array]:
        """The silo's private data as `local` will see it. `lacks`: the nodes that it lacks, by its columns' names."""
        count = np.array(float(len(signals)))
        if self.statistic == "moment":
            made = self._moment_of_people(signals) if isinstance(signals, People) else self._moment(signals)
            part = self.part(lacks)
            told = {} if self.common is None else {"part": np.array(part)}
            made = made if part == 1.0 else part * made
            return {"moment": to_coordinates(made), "count": count, **told}
        assert not isinstance(signals, People), "nothing else has a bound for persons"
        if self.statistic == "distances":
            return {"zbar": self.wall(self._distances(signals)), "count": count, **self._again(signals)}
        if self.statistic == "listed-distances":
            return {"zbar": self._distances(signals), "count": count, **self._again(signals)}
        if self.statistic == "second-moments":
            return {"moments": self._moments(signals), "count": count}
        if self.statistic == "correlations":
            return {"correlations": correlations(signals), "count": count}
        assert self.statistic == "clipped-distances", "no other statistic"
        assert self.clip is not None
        return {"zbar": _clipped_distances(signals, self.clip), "count": count}

    def _in_basis(self, rows: Array) -> Array:
        """y of every row. A row's y depends on no other row, whatever it lacks."""
        if self.with_mean:
            return without_level(rows, self._common, _LEVEL_OFF)
        if self.common is None:
            return np.asarray(at_their_level(rows) @ self.back)
        return np.asarray(without_level(rows, self.common) @ self.back)

    def _moment(self, signals: Array) -> Array:
        y = self._in_basis(signals)
        if self.clip is None:
            length = row_lengths(y)
            y = np.where(length > 0.0, y / np.where(length > 0.0, length, 1.0), 0.0)
        y = self._beside_constant(clip_rows(y, self.radius), np.ones(len(y)))
        return np.asarray(y.T @ y / len(signals))

    def _beside_constant(self, y: Array, share: Array) -> Array:
        """Rows no longer than before, of which the mean can be told: (sqrt(1-q) y, sqrt(q) R), times each row's
        `share` of its unit, as y is already."""
        if not self.with_mean:
            return y
        constant = math.sqrt(_OF_MEAN) * self.radius * _INSIDE * share
        return np.column_stack([math.sqrt(self.kept) * y, constant])

    def around_mean(self, moments: Array, part: Array | None = None) -> Array:
        """Of such rows E[y y'] - E[y] E[y]', (n, m+1, m+1) to (n, m, m). `part`, of the same shape: that of R^2 which
        the rows behind a coordinate may have, where silos lack nodes."""
        part = np.ones_like(moments) if part is None else part
        mean = moments[..., :-1, -1] / (math.sqrt(_OF_MEAN * self.kept) * self.radius * part[..., :-1, -1])
        products = part[..., :-1, :-1] * mean[..., :, None] * mean[..., None, :]
        return np.asarray(moments[..., :-1, :-1] / self.kept - products)

    def _moments(self, signals: Array) -> Array:
        if not self.gaps:
            return second_moments(signals, self.folds)
        upper = np.triu_indices(self.nodes)
        told = second_moments(signals, self.folds)
        if np.isnan(signals).any():
            told = np.concatenate([part[upper] for part in moments_with_gaps(signals, self.folds)])
        return np.concatenate([told, pair_rows(signals)[upper]])

    def _distances(self, signals: Array) -> Array:
        """zbar, of rows with gaps that of the rows that saw both nodes."""
        if not np.isnan(signals).any():
            return self.space.distances(signals)
        return distances_with_gaps(signals) if self.statistic == "distances" else self.space.distances(signals)

    def _again(self, signals: Array) -> dict[str, Array]:
        """zbar of signals drawn again, as many with replacement; the same draws for everybody with as many signals."""
        if not self.resamples:
            return {}
        drawn = stream(0, "bootstrap", 0, "signals").random((self.resamples, len(signals)))
        rows = (len(signals) * drawn).astype(np.intp)
        return {"again": np.array([self._distances(signals[row]) for row in rows])}

    def _moment_of_people(self, people: People) -> Array:
        """The mean over persons of M_q, the mean of y y' over a person's signals, scaled back to tr M_q <= R^2.

        Without a clip every M_q is scaled to trace 1, so that a person counts as much as any other.
        """
        y = self._in_basis(people.rows)
        lengths = row_lengths(y)[:, 0]
        largest = np.zeros(len(people))
        np.maximum.at(largest, people.person, lengths)
        largest = np.where(largest > 0.0, largest, 1.0)
        number = np.bincount(people.person, minlength=len(people))
        squares = np.bincount(people.person, (lengths / largest[people.person]) ** 2, len(people))
        typical = largest * np.sqrt(squares / number)  # sqrt(tr M_q), without squaring what could overflow
        inner = self.radius * _INSIDE
        divisor = np.where(typical > 0.0, typical, 1.0) if self.clip is None else np.maximum(typical, inner)
        share = 1.0 / np.sqrt(number)
        y = self._beside_constant(y * (inner / divisor * share)[people.person, None], share[people.person])
        return np.asarray(y.T @ y / len(people))

    def wall(self, zbar: Array) -> Array:
        """Give forbidden edges an infinite cost."""
        if self.candidates is None:
            return zbar
        return np.where(self.candidates.allowed(), zbar, np.inf)

    @property
    def radius(self) -> float:
        return 1.0 if self.clip is None else self.clip

    @property
    def moment_size(self) -> int:
        """Coordinates of a second moment."""
        return edge_count(self.dimensions + self.with_mean + 1)

    @property
    def kept(self) -> float:
        """The part of a signal's squared length that is left to its nodes."""
        return 1.0 - _OF_MEAN if self.with_mean else 1.0

    @property
    def longest_term(self) -> float:
        """The most that one protected unit adds to a sum of moments, and that replacing one moves it: sqrt(2) R^2,
        both."""
        return math.sqrt(2.0) * self.radius**2

    def summand(self, data: dict[str, Array]) -> Bounded:
        """N times the moment: one protected unit moves it equally far for any N."""
        within = self.summand_bound
        bounds = np.full(len(data["count"]), within.l2)
        return Bounded(data["moment"] * data["count"][:, None], bounds, within.protected_unit, within.why)

    @property
    def summand_bound(self) -> Within:
        why = "sum of y y' with |y| <= R and its trace scaled by sqrt(m + 1): sqrt(2) R^2"
        if self.person is not None:
            why = "sum over persons of moments with trace <= R^2, the trace scaled by sqrt(m + 1): sqrt(2) R^2"
        return Within(self.longest_term, self.protected_unit, why)

    def bounded(self, data: dict[str, Array]) -> Bounded:
        """The statistic with how far one signal can move it."""
        count = data["count"]
        if self.statistic == "moment":
            why = "mean of y y' with |y| <= R and its trace scaled by sqrt(m + 1): sqrt(2) R^2 / N"
            if self.person is not None:
                why = "mean over N persons of moments of trace <= R^2, scaled by sqrt(m + 1): sqrt(2) R^2 / N"
            bound = math.sqrt(2.0) * self.radius**2 / count
            if "part" in data:
                bound, why = bound * data["part"], f"{why}, times the part of R^2 of the site's nodes"
            return Bounded(data["moment"], bound, self.protected_unit, why)
        assert self.clip is not None, "plain distances have no bound"
        return Bounded(
            data["zbar"],
            math.sqrt(2.0) * self.clip / count,
            PROTECTED_UNIT,
            "mean of z >= 0 with |z| <= C: sqrt(2) C / N",
        )


def _centred(signals: Array) -> Array:
    """Around the mean row; sums must not depend on how a table lies in memory."""
    rows = np.ascontiguousarray(signals)
    return np.asarray(rows - rows.mean(0))


def second_moments(signals: Array, folds: int = 1) -> Array:
    """Second moments of rows around their common mean: the upper triangles, diagonal included, one fold after the
    other."""
    x = _centred(signals)
    upper = np.triu_indices(signals.shape[1])
    return np.concatenate([(part.T @ part / len(part))[upper] for part in np.array_split(x, folds)])


def correlations(signals: Array) -> Array:
    """The correlation of every pair of nodes; 0 where one never changes."""
    x = _centred(signals)
    length = np.sqrt(np.einsum("na,na->a", x, x))
    y = x / np.where(length > 0.0, length, 1.0)
    return np.asarray(np.clip((y.T @ y)[pairs(signals.shape[1])], -1.0, 1.0))


def at_their_level(rows: Array) -> Array:
    """Rows with gaps, each gap at the mean of what its own row has: y = B'x then has nothing from it.

    A row's result depends on no other row, so that a clip bounds a row with gaps as it bounds any other.
    """
    gone = np.isnan(rows)
    if not gone.any():
        return rows
    level = np.where(gone, 0.0, rows).sum(1) / np.maximum((~gone).sum(1), 1)
    return np.where(gone, level[:, None], rows)


def without_level(rows: Array, common: tuple[int, ...], off: float = 1.0) -> Array:
    """Each row less `off` of its mean over the nodes that every site has, and 0 where it has no value."""
    here = ~np.isnan(rows)
    counted = here & np.isin(np.arange(rows.shape[1]), common)
    counted = np.where(counted.any(1, keepdims=True), counted, here)
    values = np.clip(np.where(here, rows, 0.0), -_HUGE, _HUGE)
    level = np.where(counted, values, 0.0).sum(1) / np.maximum(counted.sum(1), 1)
    return np.where(here, values - off * level[:, None], 0.0)


def _clipped_distances(signals: Array, clip: float) -> Array:
    """Mean over the signals of z / max(1, |z|/C), in blocks: z has p numbers a signal."""
    a, b = pairs(signals.shape[1])
    total = np.zeros(len(a))
    block = max(1, 4_000_000 // len(a))
    for k in range(0, len(signals), block):
        part = np.clip(signals[k : k + block], -_HUGE, _HUGE)
        total += clip_rows((part[:, a] - part[:, b]) ** 2, clip).sum(0)
    return total / len(signals)


@lru_cache(maxsize=8)
def centred_basis(nodes: int) -> Array:
    """B (d, d-1): orthonormal columns that sum to 0 (Helmert), so y = B'x drops what is common to all nodes."""
    basis = np.zeros((nodes, nodes - 1))
    for k in range(1, nodes):
        basis[:k, k - 1] = 1.0
        basis[k, k - 1] = -k
        basis[:, k - 1] /= math.sqrt(k * (k + 1))
    basis.flags.writeable = False
    return basis


@lru_cache(maxsize=8)
def levelled_basis(nodes: int, common: tuple[int, ...]) -> Array:
    """B (d, d-1), orthonormal: `centred_basis` of the common nodes, then every other node by itself.

    Of signals less their mean over common nodes B'x drops nothing. A coordinate is of common nodes, which all sites
    have, or of one node, so a coordinate of a second moment is seen by the sites that have the nodes of both.
    """
    others = [node for node in range(nodes) if node not in common]
    basis = np.zeros((nodes, nodes - 1))
    basis[list(common), : len(common) - 1] = centred_basis(len(common))
    basis[others, len(common) - 1 + np.arange(len(others))] = 1.0
    basis.flags.writeable = False
    return basis


def kept_level(nodes: int, common: tuple[int, ...]) -> Array:
    """A (d, d): undoes what takes a part of each row's mean over common nodes off all its nodes."""
    mean = np.isin(np.arange(nodes), common) / len(common)
    return np.asarray(np.eye(nodes) + _LEVEL_OFF / (1.0 - _LEVEL_OFF) * mean)


def to_coordinates(moment: Array) -> Array:
    """A symmetric (m, m) matrix in an orthonormal basis, its trace direction stretched by sqrt(m + 1).

    With a, b the squared lengths (<= R^2 = 1) of two signals the squared distance of their outer products becomes
    a^2 + b^2 - 2 (x.y)^2 + m (a - b)^2 / m, convex in (a, b), with maximum 2 where both are 1 or one is 0: the stretch
    costs nothing, and makes the released trace m + 1 times more precise in variance. The same holds for means of such
    outer products: A, B >= 0 have |A| <= tr A and A.B >= 0.
    """
    m = len(moment)
    stretched = moment + (math.sqrt(m + 1) - 1.0) * (np.trace(moment) / m) * np.eye(m)
    a, b = pairs(m)
    return np.concatenate([np.diag(stretched), math.sqrt(2.0) * stretched[a, b]])


def from_coordinates(coordinates: Array) -> Array:
    """The inverse of `to_coordinates` for every row: (n, m(m+1)/2) to (n, m, m)."""
    m = node_count(coordinates.shape[-1]) - 1
    a, b = pairs(m)
    stretched = np.zeros((*coordinates.shape[:-1], m, m))
    stretched[..., a, b] = stretched[..., b, a] = coordinates[..., m:] / math.sqrt(2.0)
    k = np.arange(m)
    stretched[..., k, k] = coordinates[..., :m]
    trace = np.einsum("...aa->...", stretched)[..., None, None]
    return np.asarray(stretched - (1.0 - 1.0 / math.sqrt(m + 1)) * (trace / m) * np.eye(m))


def distances_of(moments: Array, nodes: int) -> Array:
    """zbar of second moments in the centred basis, (n, m, m) to (n, p)."""
    basis = centred_basis(nodes)
    return moment_distances(np.einsum("ak,...kl,bl->...ab", basis, moments, basis, optimize=True))
