"""Private graphs of 90 to 116 nodes with a person as protected unit; `private_graph` prints them.

Votes in a secure sum beside the former pipeline, a secure sum of persons' second moments, at the same epsilon (delta
1e-5). Synthetic persons: 20 sites x 50, 100 nodes, degree 8, each person keeps 90 % of the edges, 200 rows that follow
each other (AR .6). ABIDE persons, if FOLDER holds them: 10 sites x 100, drawn with replacement; the truth is the graph
of everybody's mean correlation. No truth is known there, and the ridge of that graph decides much: it was set after F
had been seen at several. Without noise votes agree with it to .84 at 1e-4, .88 at .1 (taken here) and .90 at .3 (90
nodes). F-score at the true number of edges, which is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from silograph.core.errors import InputError
from silograph.data.silos import People
from silograph.kernels import log_det
from silograph.methods.person_votes import SummedVotes
from silograph.methods.summed_graph import SmoothestGraph, SummedConsensus
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import SharedGaussian
from silograph.run.loop import simulate
from silograph.tasks.person_votes import PersonVotes
from silograph.tasks.smooth_graph import SmoothGraph

DELTA, EPSILONS, FIRST_SEED = 1e-5, (1.0, 4.0), 2000
KINDS = ("geometric", "block", "scale-free")
NODES, EDGES, SITES, PERSONS, ROWS, KEPT, FOLLOWS = 100, 400, 20, 50, 200, 0.9, 0.6
RIDGE, OTHER_RIDGES = 0.1, (1e-4, 0.3)  # of that graph; see above
ABIDE, ABIDE_SITES, ABIDE_PERSONS = "abide/abide_um_aal116.npz", 10, 100


@dataclass(frozen=True)
class Persons:
    """`truth` (p,) edges; people by site. `others`: what else could be called the truth, by name."""

    nodes: int
    truth: np.ndarray
    silos: dict[str, People]
    others: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def edges(self) -> int:
        return int(self.truth.sum())


def shape(rng: np.random.Generator, kind: str, nodes: int = NODES, wanted: int = EDGES) -> np.ndarray:
    """The edges of everybody's graph."""
    a, b = np.triu_indices(nodes, 1)
    if kind == "scale-free":  # a node joins four others, each with a chance that grows with its degree
        joined, degree = np.zeros((nodes, nodes), dtype=bool), np.ones(nodes)
        for node in range(1, nodes):
            others = rng.choice(node, min(node, wanted // nodes), replace=False, p=degree[:node] / degree[:node].sum())
            joined[others, node] = True
            degree[others] += 1.0
            degree[node] += len(others)
        return joined[a, b]
    places, block = rng.random((nodes, 2)), np.arange(nodes) // 10
    score = -((places[a] - places[b]) ** 2).sum(1) if kind == "geometric" else rng.random(len(a))
    score = score + 0.75 * (block[a] == block[b]) * (kind == "block")
    edges = np.zeros(len(a), dtype=bool)
    edges[np.argsort(-score)[:wanted]] = True
    return edges


def rows_of(rng: np.random.Generator, truth: np.ndarray, nodes: int = NODES) -> np.ndarray:
    """One person's rows: a tenth of the edges are the person's own."""
    a, b = np.triu_indices(nodes, 1)
    own, changed = truth.copy(), round((1.0 - KEPT) * truth.sum())
    own[rng.choice(np.flatnonzero(truth), changed, replace=False)] = False
    own[rng.choice(np.flatnonzero(~truth), changed, replace=False)] = True
    matrix = np.zeros((nodes, nodes))
    matrix[a, b] = matrix[b, a] = -np.where(own, rng.uniform(0.5, 1.5, len(a)), 0.0)
    degree = -matrix.sum(0)
    root = np.linalg.cholesky(np.linalg.inv(matrix + np.diag(degree + 0.1 * degree.mean())))
    rows = rng.standard_normal((ROWS, nodes))
    for t in range(1, ROWS):
        rows[t] = FOLLOWS * rows[t - 1] + np.sqrt(1.0 - FOLLOWS**2) * rows[t]
    return np.asarray(rows @ root.T)


def synthetic(kind: str, seed: int) -> Persons:
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    truth, person = shape(rng, kind), np.repeat(np.arange(PERSONS), ROWS)
    tables = {f"site {k:02d}": np.concatenate([rows_of(rng, truth) for _ in range(PERSONS)]) for k in range(SITES)}
    return Persons(NODES, truth, {name: People(rows, person) for name, rows in tables.items()})


def brains(file: Path, nodes: int, seed: int) -> Persons:
    with np.load(file, allow_pickle=False) as held:
        series = held["X"][:, :, :nodes].astype(np.float64)
    drawn = np.random.default_rng([seed, nodes]).integers(len(series), size=(ABIDE_SITES, ABIDE_PERSONS))
    person = np.repeat(np.arange(ABIDE_PERSONS), series.shape[1])
    silos = {f"site {k}": People(np.concatenate(series[own]), person) for k, own in enumerate(drawn)}
    others = {f"ridge {ridge:g}": everybodys_graph(series, 3 * nodes, ridge) for ridge in OTHER_RIDGES}
    return Persons(nodes, everybodys_graph(series, 3 * nodes, RIDGE), silos, others)


def everybodys_graph(series: np.ndarray, edges: int, ridge: float) -> np.ndarray:
    """The strongest edges of the most likely graph of the mean correlation."""
    mean = np.mean([np.corrcoef(rows.T) for rows in series], axis=0)
    a, b = np.triu_indices(len(mean), 1)
    found = log_det.solve((2.0 - 2.0 * mean[a, b])[None], np.array([ridge])).w[0]
    truth = np.zeros(len(a), dtype=bool)
    truth[np.argsort(-found, kind="stable")[:edges]] = True
    return truth


class Prepared:
    """A task whose work is done once for all budgets."""

    def __init__(self, task: Any, silos: Mapping[str, People]) -> None:
        self._made = {id(people): task.prepare(people) for people in silos.values()}

    def prepare(self, people: People) -> Any:
        return self._made[id(people)]


def scores(world: Persons, seed: int) -> Iterator[tuple[float, dict[str, float]]]:
    """For each epsilon: F of votes and of the former pipeline; precision of the hundred surest, and of P > .9."""
    counts = tuple(len(people) for people in world.silos.values())
    votes, moments = (
        PersonVotes(world.nodes, world.edges, "person"),
        SmoothGraph(world.nodes, "moment", person="person"),
    )
    ready = {task: Prepared(task, world.silos) for task in (votes, moments)}
    for epsilon in EPSILONS:
        noise = SharedGaussian(gaussian_multiplier(epsilon, DELTA, 1))
        run = partial(simulate, signals=world.silos, mechanism=noise, seed=seed, masks=Masks("skipped"))
        ours = run(SummedVotes(votes, noise, counts, confidence=-1.0), ready[votes])[0].arrays["probability"]
        learner = SmoothestGraph(degree=2.0 * world.edges / world.nodes)
        former = float("nan")  # where it was refused: too little is left after the noise
        with contextlib.suppress(InputError):
            theirs = run(SummedConsensus(moments, learner, noise, counts), ready[moments])[0].arrays["consensus"]
            former = float(world.truth[np.argsort(-theirs, kind="stable")[: world.edges]].mean())
        order = np.argsort(-ours, kind="stable")
        sure = ours > 0.9
        yield (
            epsilon,
            {
                "votes": float(world.truth[order[: world.edges]].mean()),
                **{f"votes, {name}": float(each[order[: world.edges]].mean()) for name, each in world.others.items()},
                "former": former,
                "top-100": float(world.truth[order[:100]].mean()),
                "precision of P > .9": float(world.truth[sure].mean()) if sure.any() else float("nan"),
            },
        )


def measure(seeds: int, data: Path | None, only: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Means over the seeds, case by case whose name has these words."""
    cases = {f"{kind}, {SITES} x {PERSONS} persons, d={NODES}": partial(synthetic, kind) for kind in KINDS}
    if data is not None and (data / ABIDE).is_file():
        for nodes in (90, 116):
            cases[f"ABIDE, {ABIDE_SITES} x {ABIDE_PERSONS} persons, d={nodes}"] = partial(brains, data / ABIDE, nodes)
    for name, make in ((name, make) for name, make in cases.items() if only in name):
        found: dict[float, list[dict[str, float]]] = {}
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for epsilon, each in scores(make(seed=seed), seed):
                found.setdefault(epsilon, []).append(each)
        for epsilon, every in found.items():
            table = {key: np.array([each[key] for each in every]) for key in every[0]}
            mean = {
                key: float(column[~np.isnan(column)].mean())
                for key, column in table.items()
                if (column == column).any()
            }
            yield f"{name}, epsilon={epsilon:g}", mean
