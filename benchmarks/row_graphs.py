"""Private graphs of 100 nodes with a row as protected unit; `private_graph` prints them.

Ours is the default (`methods/behind_noise.py`), from a secure sum or one release a site, beside the former pipeline at
the same epsilon (delta 1e-5): the papers' model of the sum, or (8) of the releases. Sites keep 90 % of the edges.
Geometric and block graphs of degree 8 with Laplacian precision, the same with signs, and the papers' own generator.
F-score of the consensus at the true number of edges, which is given; worlds and noise of `FIRST_SEED` on, on which
nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.person_graphs import DELTA, EDGES, EPSILONS, KINDS, NODES, shape
from silograph.core.keys import stream
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.methods.behind_noise import BehindNoise
from silograph.methods.consensus_graph import ExactConsensus
from silograph.methods.private_graph import ReleasedConsensus
from silograph.methods.summed_graph import SmoothestGraph, SummedConsensus
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian, SharedGaussian
from silograph.run.loop import simulate
from silograph.tasks.smooth_graph import SmoothGraph

FIRST_SEED, ROWS, KEPT = 3000, 1000, 0.9


@dataclass(frozen=True)
class Case:
    kind: str  # of graph, "signed" before it for relations of both signs
    sites: int
    summed: bool = True

    @property
    def name(self) -> str:
        how = "secure sum" if self.summed else "one release"
        return f"{self.kind}, {self.sites} x {ROWS} rows, d={NODES}, {how}"


CASES = [
    *(Case(kind, 20) for kind in ("geometric", "block", "signed geometric", "signed block")),
    *(Case(kind, 5) for kind in ("geometric", "papers' generator")),
    *(Case(kind, 20, summed=False) for kind in ("geometric", "block", "signed block")),
]


def world(case: Case, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The consensus' edges, and rows by site."""
    names = [f"site {k:02d}" for k in range(case.sites)]
    if case.kind == "papers' generator":
        graphs = paper_graphs(seed, case.sites, NODES, KEPT)
        made = zip(names, graphs.local, strict=True)
        return graphs.consensus > 0.0, {n: smooth_signals(stream(seed, n, 0, "signals"), w, ROWS) for n, w in made}
    signed, kind = case.kind.startswith("signed "), case.kind.removeprefix("signed ")
    rng = np.random.default_rng([seed, KINDS.index(kind), signed, case.sites])
    truth, (a, b) = shape(rng, kind), np.triu_indices(NODES, 1)
    sign = np.where((rng.random(len(a)) < 0.5) & signed, -1.0, 1.0)
    tables, changed = {}, round((1.0 - KEPT) * EDGES)
    for name in names:
        own = truth.copy()
        own[rng.choice(np.flatnonzero(truth), changed, replace=False)] = False
        own[rng.choice(np.flatnonzero(~truth), changed, replace=False)] = True
        matrix = np.zeros((NODES, NODES))
        matrix[a, b] = matrix[b, a] = -np.where(own, sign * rng.uniform(0.5, 1.5, len(a)), 0.0)
        degree = np.abs(matrix).sum(0)
        root = np.linalg.cholesky(np.linalg.inv(matrix + np.diag(degree + 0.1 * degree.mean())))
        tables[name] = rng.standard_normal((ROWS, NODES)) @ root.T
    return truth, tables


def found(case: Case, truth: np.ndarray, tables: dict[str, np.ndarray], epsilon: float, seed: int) -> dict[str, float]:
    """F of ours and of the former pipeline."""
    degree, counts, task = 2.0 * truth.sum() / NODES, (ROWS,) * case.sites, SmoothGraph(NODES, "moment")
    multiplier = gaussian_multiplier(epsilon, DELTA, 1)
    noise = SharedGaussian(multiplier) if case.summed else Gaussian(multiplier)
    ours, scores = BehindNoise(degree), {}
    former = SmoothestGraph(degree=degree) if case.summed else ExactConsensus(NODES, degree=degree)
    for name, inner, shrink in (("ours", ours, ours.shrinks(NODES)), ("former", former, False)):
        method = (SummedConsensus if case.summed else ReleasedConsensus)(task, inner, noise, counts, shrink)
        masks = Masks("skipped") if case.summed else None
        arrays = simulate(method, task, tables, noise, seed=seed, masks=masks)[0].arrays
        heaviest = np.argsort(-arrays["consensus"], kind="stable")[: truth.sum()]
        scores[name] = float(truth[heaviest].mean())
    return scores


def measure(seeds: int, only: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Means over the seeds, case by case whose name has these words."""
    for case in (case for case in CASES if only in case.name):
        every: dict[float, list[dict[str, float]]] = {epsilon: [] for epsilon in EPSILONS}
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            truth, tables = world(case, seed)
            for epsilon, scores in every.items():
                scores.append(found(case, truth, tables, epsilon, seed))
        for epsilon, scores in every.items():
            mean = {name: float(np.mean([each[name] for each in scores])) for name in scores[0]}
            yield f"{case.name}, epsilon={epsilon:g}", mean
