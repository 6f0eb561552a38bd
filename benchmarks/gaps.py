"""What gaps and different columns cost, and whether noise is called noise: python -m benchmarks.gaps [--json]

Worlds as in `graph_quality` (gmrf, pinv, signed: 30 nodes, 5 sites, three kinds of graphs) and the papers' own (20
nodes, 5 sites that keep half or nine tenths of the consensus), 200 and 1000 rows, four seeds of three worlds a cell. Of
a table 30 % of the values are taken away at random; of a world, 40 % of the nodes, each from two of its five sites.
F-score of sites by probability and of the consensus, at the true number of edges, on the pairs that all sites have;
beside them complete tables of as many rows as see a pair, and F-score of what is drawn where nothing is asked for.

Private: the same worlds with 1000 rows, all nodes and unshared nodes, at the true mean degree.

The bound: with the true edges known and nothing else, how much of the information on one more edge is left of a table
with gaps (Fisher's, the worst case of everything that could be done), and what complete tables of as many rows find.

`--noise N` draws N tables a cell of shuffled columns, and as many with a graph, complete, with gaps, with different
columns and with both, and counts what the report calls noise. Seeds are 8400 and up; nothing was chosen on them.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import graph_quality as quality
from silograph import ConsensusGraph
from silograph.data.synthetic import laplacian, paper_graphs, smooth_signals
from silograph.kernels.edges import pairs
from silograph.kernels.gaps import moments_with_gaps, pair_rows
from silograph.methods.consensus_graph import ExactConsensus
from silograph.methods.moments_once import FOLDS, JointLearner
from silograph.run.loop import simulate
from silograph.tasks.smooth_graph import SmoothGraph

FIRST_SEED, SEEDS, SITES, MISSING, UNSHARED = 8400, 4, 5, 0.3, 0.4
ROWS, KEPT = (200, 1000), {"papers, half": 0.5, "papers, nine tenths": 0.9}
PATTERNS = 150  # of gaps, over which information is a mean
NOISE_ROWS, NODES = (30, 100, 300), 15
#: Worlds, how they are learned, and the settings for that.
PRIVATE = [
    *((name, "one release, epsilon 10", {"epsilon": 10.0}) for name in quality.SIGNALS),
    *((name, "the same, papers' model", {"epsilon": 10.0, "learner": "papers"}) for name in quality.SIGNALS[:2]),
    *((name, "secure sum, epsilon 4", {"epsilon": 4.0, "mode": "secure-sum"}) for name in quality.SIGNALS),
]

Truth = tuple[np.ndarray, np.ndarray]  # a site's edges (K, p), those of the consensus (p,)


def worlds(name: str, rows: int, seeds: int) -> Iterator[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        if name in quality.SIGNALS:
            yield from (quality.world(kind, name, rows, seed) for kind in quality.KINDS)
            continue
        for part in range(3):
            graphs = paper_graphs(3 * seed + part, keep=KEPT[name])
            rng = np.random.default_rng([seed, part, rows])
            yield graphs.local, graphs.consensus, [smooth_signals(rng, w, rows) for w in graphs.local]


def thinned(rng: np.random.Generator, tables: list[np.ndarray], gaps: bool, lacks: bool) -> list[np.ndarray]:
    """The tables without what they lack."""
    nodes = tables[0].shape[1]
    own = np.ones((len(tables), nodes), dtype=bool)
    for node in rng.choice(nodes, round(UNSHARED * nodes), replace=False) if lacks else ():
        own[rng.choice(len(tables), 2, replace=False), node] = False
    share = MISSING if gaps else 0.0
    return [np.where(here & (rng.random(x.shape) >= share), x, np.nan) for here, x in zip(own, tables, strict=True)]


def learned(tables: list[np.ndarray], edges: int | None = None) -> Any:
    folds = np.array([moments_with_gaps(table, FOLDS) for table in tables])
    counts = np.array([float(len(table)) for table in tables])
    rows = np.array([pair_rows(table) for table in tables])
    place, share = np.arange(FOLDS), counts[:, None]
    weight = (share // FOLDS + (place < share % FOLDS)) / share
    return JointLearner(edges=edges).learn(np.einsum("kf,kfab->kab", weight, folds), counts, folds, rows)


def scores(found: Any, truth: Truth, here: np.ndarray) -> dict[str, float]:
    of_sites, shared = truth[0][:, here], truth[1][here]
    each = zip(found.probability[:, here], found.signs[:, here] != 0, of_sites, strict=True)
    told = [(quality.at_true_number(p, t), quality.f_score(drawn, t)) for p, drawn, t in each]
    sites, drawn = np.mean(told, axis=0)
    return {"sites": sites, "drawn": drawn, "consensus": quality.at_true_number(found.shared[here], shared)}


def drawn_scores(sites: np.ndarray, consensus: np.ndarray, truth: Truth, here: np.ndarray) -> dict[str, float]:
    """F-scores of weights above 0, of sites if there are any."""
    each = [quality.f_score(w[here] != 0.0, t[here]) for w, t in zip(sites, truth[0], strict=False)]
    found = {"drawn": float(np.mean(each))} if each else {}
    return found | {"consensus drawn": quality.f_score(consensus[here] != 0.0, truth[1][here])}


def frames(tables: list[np.ndarray]) -> list[pd.DataFrame]:
    names = [f"node {k:02d}" for k in range(tables[0].shape[1])]
    return [pd.DataFrame(x, columns=names).dropna(axis=1, how="all") for x in tables]


def papers_model(tables: list[np.ndarray], degree: float) -> tuple[np.ndarray, np.ndarray]:
    """Of (8), the weights of sites and of the consensus."""
    own = np.array([~np.isnan(table).all(0) for table in tables])
    spread = [np.where(here, table.std(0), 1.0) for here, table in zip(own, tables, strict=True)]
    data = {f"site {k}": table / one for k, (table, one) in enumerate(zip(tables, spread, strict=True))}
    lacks = tuple(tuple(np.flatnonzero(~here).tolist()) for here in own)
    method = ExactConsensus(own.shape[1], degree=degree, lacks=lacks if any(lacks) else ())
    arrays = simulate(method, SmoothGraph(own.shape[1], "distances"), data)[0].arrays
    return arrays["graph"], arrays["consensus"]


def cells(seeds: int) -> Iterator[dict[str, Any]]:
    for name in (*quality.SIGNALS, *KEPT):
        for rows in ROWS:
            told: dict[str, list[dict[str, float]]] = defaultdict(list)
            for number, (weights, consensus, tables) in enumerate(worlds(name, rows, seeds)):
                truth, rng = (weights != 0.0, consensus != 0.0), np.random.default_rng([FIRST_SEED, number, rows])
                everywhere, (a, b) = np.ones(len(consensus), dtype=bool), pairs(tables[0].shape[1])
                few = int((1.0 - MISSING) ** 2 * rows)
                for case, some in (
                    ("complete", tables),
                    ("complete, rows that see a pair", [table[:few] for table in tables]),
                    ("gaps", thinned(rng, tables, True, False)),
                ):
                    told[case].append(scores(learned(some), truth, everywhere))
                for case, gaps in (("unshared nodes", False), ("unshared nodes and gaps", True)):
                    some = thinned(rng, tables, gaps, True)
                    here = ~np.isnan(some).all(1).any(0)
                    told[case].append(scores(learned(some), truth, here[a] & here[b]))
                    if not gaps:
                        told["complete, the same pairs"].append(scores(learned(tables), truth, here[a] & here[b]))
                        if rows == ROWS[0] and name in quality.SIGNALS[:2]:
                            for model, of in (("(8), complete, the same pairs", tables), ("(8), unshared nodes", some)):
                                found = papers_model(of, quality.DEGREE)
                                told[model].append(drawn_scores(*found, truth, here[a] & here[b]))
            for case, every in told.items():
                yield from means(f"{name}, {rows} rows, {case}", every)


def means(case: str, every: list[dict[str, float]]) -> Iterator[dict[str, Any]]:
    for measure in every[0]:
        value = float(np.mean([one[measure] for one in every]))
        yield {"case": f"{case}: {measure}", "ours": value, "unit": "F-score"}


def private(seeds: int) -> Iterator[dict[str, Any]]:
    for name, how, settings in PRIVATE if seeds else ():
        told: dict[str, list[dict[str, float]]] = defaultdict(list)
        for number, (weights, consensus, tables) in enumerate(worlds(name, ROWS[1], seeds)):
            some = thinned(np.random.default_rng([FIRST_SEED, number, ROWS[1]]), tables, False, True)
            here, (a, b) = ~np.isnan(some).all(1).any(0), pairs(tables[0].shape[1])
            for case, of in (("complete, the same pairs", tables), ("unshared nodes", some)):
                model = ConsensusGraph(quality.DEGREE, scale="none", nodes="all", random_state=number, **settings)
                model.fit(frames(of))
                own = np.argsort(model.nodes_)
                sites = np.zeros((0, len(a))) if model.graphs_ is None else model.graphs_[:, own[a], own[b]]
                truth = (weights != 0.0, consensus != 0.0)
                told[case].append(drawn_scores(sites, model.consensus_[own[a], own[b]], truth, here[a] & here[b]))
        for case, every in told.items():
            yield from means(f"{name}, {ROWS[1]} rows, private, {how}, {case}", every)


def information(weights: np.ndarray, name: str, rng: np.random.Generator) -> float:
    """The part of the information on a pair's weight that gaps leave, a mean over pairs: the other edges' weights and
    all variances have to be learned too."""
    nodes = quality.nodes_of(weights)
    a, b = pairs(nodes)
    if name in ("gmrf", "signed"):
        matrix = np.zeros((nodes, nodes))
        matrix[a, b] = matrix[b, a] = -weights
        degree = np.abs(matrix).sum(0)
        covariance = np.linalg.inv(matrix + np.diag(degree + 0.1 * degree.mean()))
        first, second = np.concatenate([a, np.arange(nodes)]), np.concatenate([b, np.arange(nodes)])
        left, right = covariance[:, first], covariance[:, second]  # dS = -(left right' + right left')
    else:
        inverse = np.linalg.pinv(laplacian(weights))
        covariance = inverse + 0.01 * np.eye(nodes)
        left = right = inverse[:, a] - inverse[:, b]

    def fisher(patterns: np.ndarray) -> np.ndarray:
        total = np.zeros((left.shape[1], left.shape[1]))
        for seen in patterns:
            inner = np.linalg.inv(covariance[np.ix_(seen, seen)])
            l, r = inner @ left[seen], inner @ right[seen]
            lr, ll, rr = left[seen].T @ r, left[seen].T @ l, right[seen].T @ r
            total += lr * lr.T + ll * rr
        return total / len(patterns)

    def alone(matrix: np.ndarray) -> np.ndarray:
        """Of every pair, beside all that is there."""
        there = np.concatenate([weights != 0.0, np.ones(matrix.shape[0] - len(a), dtype=bool)])
        inverse, left_over = np.linalg.inv(matrix[np.ix_(there, there)]), matrix[np.ix_(~there, there)]
        found = np.empty(len(matrix))
        found[there] = 1.0 / np.diagonal(inverse)
        found[~there] = np.diagonal(matrix)[~there] - np.einsum("ij,jk,ik->i", left_over, inverse, left_over)
        return found[: len(a)]

    gaps = rng.random((PATTERNS, nodes)) >= MISSING
    return float((alone(fisher(gaps)) / alone(fisher(np.ones((1, nodes), dtype=bool)))).mean())


def bounds(seeds: int) -> Iterator[dict[str, Any]]:
    for name in (*quality.SIGNALS, *KEPT) if seeds else ():
        rng = np.random.default_rng(FIRST_SEED)
        left = float(np.mean([information(weights[0], name, rng) for weights, *_ in worlds(name, 2, 1)]))
        yield {"case": f"{name}: information that gaps leave", "ours": left, "unit": "of the rows"}
        for rows in ROWS:
            found = [
                scores(learned([x[: int(left * rows)] for x in tables]), (w != 0.0, c != 0.0), np.ones(len(c), bool))
                for w, c, tables in worlds(name, rows, seeds)
            ]
            yield from means(f"{name}, {rows} rows, at the bound", found)


def noise(number: int) -> Iterator[dict[str, Any]]:
    """How many tables are called noise by the report."""
    for rows in NOISE_ROWS if number else ():
        for gaps, lacks in ((False, False), (True, False), (False, True), (True, True)):
            called = {"shuffled": 0, "with a graph": 0}
            for seed in range(FIRST_SEED, FIRST_SEED + number):
                rng = np.random.default_rng([seed, rows, gaps, lacks])
                weights = np.where(rng.random(NODES * (NODES - 1) // 2) < 0.2, 1.0, 0.0)
                root = np.linalg.cholesky(np.linalg.inv(laplacian(weights) + 0.3 * np.eye(NODES)))
                tables = [rng.standard_normal((rows, NODES)) @ root.T for _ in range(SITES)]
                for kind, some in (("with a graph", tables), ("shuffled", [rng.permuted(x, axis=0) for x in tables])):
                    page = ConsensusGraph().fit(frames(thinned(rng, some, gaps, lacks))).report()
                    called[kind] += "no better than one of shuffled columns" in page
            what = {(False, False): "complete", (True, False): "gaps", (False, True): "unshared nodes"}
            for kind, count in called.items():
                case = f"{rows} rows, {what.get((gaps, lacks), 'both')}, {kind}: called noise"
                yield {"case": case, "ours": count, "unit": f"of {number}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--noise", type=int, default=0)
    given = parser.parse_args()
    rows = []
    for row in chain(cells(given.seeds), private(given.seeds), bounds(given.seeds), noise(given.noise)):
        rows.append(row)
        if not given.json:
            print(f"{row['case']:>70}  {row['ours']:.3f} {row['unit']}", flush=True)
    if given.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
