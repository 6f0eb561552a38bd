"""Learn the best graph behind privacy noise: choose a likelihood for statistics released once or added up securely.

Everything here is post-processing, so looking at the data before choosing is free.

1. Do signals have a level, so that all nodes can move together? Those of scaled columns kept it, and then each
   statistic gets the joint likelihood (`joint_graphs`) at its effective rows: a Laplacian would need edges between most
   pairs in place of the level. The papers' own signals sum to little, scaled or not; these are taken around their mean
   over nodes, as signals in one unit are.
2. If not, are there negative relations? If the mean of all sites has them (`relation_signs`), or if a graph with signs
   fits as well with fewer edges (`sparser_with_signs`), it is the joint likelihood, too. `nonnegative` False requests
   that.
3. If not, relations are positive, and a Laplacian has fewer ways to follow the noise. Up to 50 nodes it is the most
   likely one with a ridge (`LikelyGraphs`). Beyond, that one is better only with many effective rows and sparse graphs;
   otherwise the papers' model (7) of the same statistic is better:

       N_eff >= 15 (d - 1)  and  wanted density < .2                                                                 (a)

   and for wanted densities of .2 or more, eigenvalues are shrunk whether noise swamps them or not.

A consensus is learned from the mean of all sites, never by (8): that lost up to .1 of its edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from silograph.core.types import Array, BoolArray, Json
from silograph.kernels import log_det
from silograph.kernels.edges import adjacency, moment_distances, node_count, pairs
from silograph.kernels.levels import sums_to_little, with_sparsest_level
from silograph.methods.joint_graphs import JointGraphs, learn_graphs, strengths_of
from silograph.methods.private_graph import Graphs, LikelyGraphs, Statistics
from silograph.methods.relation_signs import has_negative
from silograph.methods.summed_graph import SmoothestGraph
from silograph.tasks.smooth_graph import centred_basis

FEW_NODES = 50  # up to so many nodes the Laplacian likelihood was better at every noise
MOST_NODES_LOG_DET = 200  # beyond, it is too slow for a default: 3 s per graph there
MOST_NODES_SIGNED = 2000
_ROWS_A_NODE, _DENSE = 15.0, 0.2  # (a)
_MANY_PAIRS = 1.0 / 3.0
_LOUD = 30.0  # times the median variance; around their mean all other nodes have a part of a loud one's
_MANY_ROWS_A_NODE, _CAUTION = 75.0, 1.0 / 3.0  # rows per node needed to look for signs; part of Schwarz' penalty
SIGNED_NOTE = "Graphs have signs, {}. --nonnegative draws only positive relations."
WHY_SIGNS = "because what was released fits better with signs"
WHY_LEVELS = "because columns were scaled one by one"
DENSE_NOTE = (
    "The consensus joins {:.0f} % of all pairs. Without negative relations, weak edges may only express what all nodes "
    "have in common: treat single edges with caution. Signs (--signed) or a number of edges (--degree) may help, but "
    "another run spends its own budget."
)
SMOOTH_NOTE = (
    "Graphs are those of the papers' model (7): beyond 50 nodes the likelihood finds truer graphs only from about "
    "{:.0f} effective rows on, and if they have less than a fifth of all pairs."
)


@dataclass(frozen=True)
class BehindNoise:
    """The learner. `degree`: as requested, or None: then the likelihoods choose, and beyond 50 nodes it is `usual`.
    `nonnegative`: as requested, or None: chosen by 2."""

    degree: float | None = None
    usual: float = 6.0
    nonnegative: bool | None = None

    def shrinks(self, nodes: int) -> bool:
        """Whether eigenvalues are shrunk even if noise does not swamp them."""
        return nodes > FEW_NODES and self._density(nodes) >= _DENSE

    def learn(self, known: Statistics, drawn: BoolArray) -> Graphs:
        """Learn graphs, and note the node that is so loud that the graph follows its units, if there is one."""
        found, variance = self._learn(known, drawn), np.diagonal(known.moments[-1])
        if variance.max() <= _LOUD * float(np.median(variance)):
            return found
        return replace(found, facts={**found.facts, "loudest": int(variance.argmax())})

    def _learn(self, known: Statistics, drawn: BoolArray) -> Graphs:
        nodes = node_count(known.zbar.shape[-1])
        if known.levels and sums_to_little(known.moments[-1]):
            known = around_their_mean(known)
        if self._signed(nodes, known, drawn):
            return SignedGraphs(self.degree, self.nonnegative).learn(known, drawn)
        if nodes <= FEW_NODES:
            return self._noted(LikelyGraphs(self.degree).learn(known, drawn))
        many = known.effective_rows >= _ROWS_A_NODE * (nodes - 1)
        likely = drawn & many & (self._density(nodes) < _DENSE) & (nodes <= MOST_NODES_LOG_DET)  # (a)
        degree = self.usual if self.degree is None else self.degree
        laplacian, smoothest = LikelyGraphs(degree), SmoothestGraph(degree=degree)
        if not likely.any():
            found = smoothest.learn(known, drawn)
            return replace(found, facts={**found.facts, "notes": [SMOOTH_NOTE.format(_ROWS_A_NODE * (nodes - 1))]})
        if (likely == drawn).all():
            return laplacian.learn(known, drawn)
        return _together(laplacian.learn(known, likely), smoothest.learn(known, drawn & ~likely), likely)

    def _noted(self, found: Graphs) -> Graphs:
        """Note that a Laplacian joins so many pairs that it may stand for a level common to all nodes."""
        share = np.count_nonzero(found.w[-1]) / found.w.shape[-1]
        if self.degree is not None or self.nonnegative or share < _MANY_PAIRS:
            return found
        return replace(found, facts={**found.facts, "notes": [DENSE_NOTE.format(100.0 * share)]})

    def _signed(self, nodes: int, known: Statistics, drawn: BoolArray) -> bool:
        z, seen = known.zbar[-1], _seen(known)
        walled = not np.isfinite(z if seen is None else z[seen]).all()  # nothing is known of forbidden pairs
        if known.levels and not walled and nodes <= MOST_NODES_SIGNED:
            return True
        if self.nonnegative is not None:
            return not self.nonnegative
        if walled or not drawn[-1] or nodes > MOST_NODES_SIGNED:
            return False
        moment, rows = known.moments[-1], float(known.effective_rows[-1])
        return has_negative(moment, rows) or (nodes <= FEW_NODES and sparser_with_signs(moment, rows))

    def _density(self, nodes: int) -> float:
        return (self.usual if self.degree is None else self.degree) / (nodes - 1)


@dataclass(frozen=True)
class SignedGraphs:
    """Precision graphs with signs, each from its own statistic at its effective rows. Weights are partial correlations.

    They give no probabilities: behind noise those are not calibrated. `nonnegative`: as requested, or None. True draws
    positive relations only.
    """

    degree: float | None = None
    nonnegative: bool | None = None

    def learn(self, known: Statistics, drawn: BoolArray) -> Graphs:
        w, signs, gaps = np.zeros_like(known.zbar), np.zeros_like(known.zbar), [0.0]
        parameters: Json = {}
        for row in np.flatnonzero(drawn):
            found = _signed(known, int(row), self.degree, bool(self.nonnegative))
            signs[row], parameters = found.signs[0], found.prior
            w[row] = strengths_of(found.precision)[0] * (signs[row] != 0.0)
            gaps += [found.first_gap, found.gap]
        facts = {
            "parameters": parameters,
            "objective": None,
            "certified_gap": max(gaps),
            "rounds": 1,
            "learner": "signed",
            "notes": self._notes(known.levels),
        }
        unknown = np.full(len(drawn), np.nan)
        return Graphs(w, known.share, unknown[:-1], unknown, facts, [], signs)

    def _notes(self, levels: bool) -> list[str]:
        if self.nonnegative:
            return []
        why = WHY_LEVELS if levels else WHY_SIGNS
        return [SIGNED_NOTE.format("as you asked" if self.nonnegative is False else why)]


def _signed(known: Statistics, row: int, degree: float | None, nonnegative: bool) -> JointGraphs:
    """Signals around their mean over nodes have no level."""
    moment = known.moments[row : row + 1]
    levelled = moment if known.levels else with_sparsest_level(moment)
    of_pairs = None if known.pair_rows is None or row < len(known.zbar) - 1 else known.pair_rows[None]
    rows = known.effective_rows[row : row + 1]
    return learn_graphs(levelled, rows, degree=degree, nonnegative=nonnegative, pair_rows=of_pairs)


def around_their_mean(known: Statistics) -> Statistics:
    """Statistics of the same signals, each around its mean over nodes: squared differences do not change."""
    rows = known.moments - known.moments.mean(1, keepdims=True)
    return replace(known, moments=rows - rows.mean(2, keepdims=True), levels=False)


def _seen(known: Statistics) -> BoolArray | None:
    """The pairs that some site sees, if sites lack nodes."""
    return None if known.pair_rows is None else known.pair_rows[pairs(len(known.pair_rows))] > 0.0


def sparser_with_signs(moment: Array, rows: float) -> bool:
    """Whether a graph with signs, and its own level, is better by Schwarz' criterion, even with a third of its penalty
    per edge.

    Signals were taken around their mean over nodes. If their graph had a level, as most tables have, a Laplacian needs
    weak edges between nearly all pairs in its place.
    """
    nodes = len(moment)
    if rows < _MANY_ROWS_A_NODE * (nodes - 1):
        return False
    basis = centred_basis(nodes)
    seen = basis.T @ moment @ basis
    z = moment_distances(moment)
    ridge = (nodes - 1.0) * z.mean() ** 2 / rows
    laplacian = log_det.most_likely(z, ridge, log_det.solve(z[None], np.array([ridge])).w[0], rows).w[0]
    joined = adjacency(laplacian)
    signed = learn_graphs(with_sparsest_level(moment[None]), np.array([rows]))
    precisions = (
        basis.T @ (np.diag(joined.sum(1)) - joined) @ basis,
        np.linalg.inv(basis.T @ np.linalg.inv(signed.precision[0]) @ basis),
    )
    likelihood = [0.5 * rows * (np.linalg.slogdet(k)[1] - (seen * k).sum()) for k in precisions]
    more = np.count_nonzero(laplacian) - np.count_nonzero(signed.signs[0]) - nodes  # numbers that a Laplacian needs
    return bool(more > 0 and likelihood[0] - likelihood[1] < _CAUTION * more * 0.5 * math.log(rows))


def _together(likely: Graphs, smoothest: Graphs, rows: BoolArray) -> Graphs:
    """Join rows of one with the other rows of the other; facts are those of the consensus, the last row."""

    def of(first: Array, second: Array) -> Array:
        return np.where(rows[: len(first)].reshape(-1, *[1] * (first.ndim - 1)), first, second)

    facts = (likely if rows[-1] else smoothest).facts
    both = [each.facts["certified_gap"] for each in (likely, smoothest)]
    return replace(
        likely,
        w=of(likely.w, smoothest.w),
        smoothness=of(likely.smoothness, smoothest.smoothness),
        agreement=of(likely.agreement, smoothest.agreement),
        facts={**facts, "certified_gap": max(both)},
    )
