"""Which learner, how strongly coupled, how sure: python -m benchmarks.learners [--json] [--only PART] [--device cuda]

papers: the likelihood beside the papers' model, at the true number of edges, on the papers' generator (20 nodes, 5
sites that keep a share q of the consensus), with the papers' signals, and with signals that have a level common to all
nodes.

coupling: `--coupling-by held-out` beside the rule, and the best strength of its path, which only the truth knows.

confidence: how many edges are true, by how often they appear when signals are resampled (the papers' model).

probabilities: how many edges are true, by their stated probability, on the worlds of `graph_quality`. "Laplacian" are
its worlds of the papers' signals, where the likelihood finds Laplacians.

explained: five sites of nodes that each follow one other, with correlations of .5 to .99 or .9 to .99; "long tails":
every column is the exponential of such a one.

times: `learn_graphs` on chains of many nodes, five sites of 400 rows: CPU time; with `--device cuda` seconds of a GPU
beside it.

Seeds are 7030 and up, and those of `graph_quality`; nothing was chosen on them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import graph_quality as quality
from silograph import ConsensusGraph
from silograph.data.synthetic import PaperGraphs, paper_graphs, smooth_signals
from silograph.families.graphs.coupling import STEPS
from silograph.methods.joint_graphs import learn_graphs

FIRST_SEED, SITES = 7030, 5
PAPERS_ROWS, PAPERS_KEPT, PAPERS_SEEDS = (25, 100, 400, 1000), (0.9, 0.5), 4
COUPLED_SEEDS = 12
COUPLED = ((20, 0.5), (50, 0.5), (100, 0.3), (100, 0.6), (100, 0.9), (400, 0.5), (400, 0.9), (2000, 0.5))
RESAMPLED, RESAMPLED_SEEDS = ((50, 0.5), (100, 0.6), (250, 0.7), (400, 0.9), (1000, 0.5)), 3
CONFIDENCE, PROBABILITY = (0.0, 0.5, 0.8, 0.95, 1.01), (0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.01)
EXPLAINED = ((20, 50), (20, 200), (20, 1000), (60, 100))  # nodes, rows
FOLLOWED = (0.5, 0.9)  # the least correlation with the one that a node follows
EXPLAINED_SEEDS, SURE, SURER = 5, 0.95, 0.999
CHAINS, CHAIN_ROWS = (1000, 2000), 400

Row = dict[str, Any]


def world(seed: int, rows: int, keep: float, level: bool = False) -> tuple[PaperGraphs, list[np.ndarray]]:
    """The papers' graphs, and tables whose rows have a level common to all nodes or not."""
    graphs = paper_graphs(seed, SITES, keep=keep)
    rng = np.random.default_rng([seed, rows, round(10 * keep)])
    if level:
        return graphs, [quality.rows_of(rng, w, "gmrf", rows) for w in graphs.local]
    return graphs, [smooth_signals(rng, w, rows) for w in graphs.local]


def vectors(matrices: Any) -> np.ndarray:
    return np.asarray(matrices)[..., *np.triu_indices(np.shape(matrices)[-1], 1)]


def strongest(score: np.ndarray, truth: np.ndarray) -> float:
    """The F-score of as many edges as are true, or of all that there are."""
    chosen = np.zeros(len(truth), dtype=bool)
    chosen[np.argsort(-score, kind="stable")[: truth.sum()]] = True
    return quality.f_score(chosen & (score > 0.0), truth)


def scores(sites: np.ndarray, shared: np.ndarray, graphs: PaperGraphs) -> tuple[float, float]:
    """Of sites and of the consensus."""
    each = [strongest(s, w > 0.0) for s, w in zip(sites, graphs.local, strict=True)]
    return float(np.mean(each)), strongest(shared, graphs.consensus > 0.0)


def mean_degree(graphs: PaperGraphs) -> float:
    return float(2.0 * (graphs.local > 0.0).sum(1).mean() / quality.nodes_of(graphs.local))


def by_papers(graphs: PaperGraphs, tables: list[np.ndarray], **settings: Any) -> ConsensusGraph:
    """The papers' model at the true number of edges."""
    model = ConsensusGraph(mean_degree(graphs), learner="papers", **{"resamples": 0} | settings)
    return model.fit(tables)


def papers() -> Iterator[Row]:
    rounds = []
    for level in (False, True):
        for keep in PAPERS_KEPT:
            for rows in PAPERS_ROWS:
                found = []
                for seed in range(FIRST_SEED, FIRST_SEED + PAPERS_SEEDS):
                    graphs, tables = world(seed, rows, keep, level)
                    likely, theirs = ConsensusGraph().fit(tables), by_papers(graphs, tables)
                    one = scores(vectors(likely.probabilities_), vectors(likely.consensus_probabilities_), graphs)
                    rounds.append(theirs.n_iter_)
                    found.append([one, scores(vectors(theirs.graphs_), vectors(theirs.consensus_), graphs)])
                mean = np.mean(found, axis=0)
                for part, name in enumerate(("sites", "consensus")):
                    case = f"{'signals with a level' if level else 'papers'}, {rows} rows, q {keep:g}, {name}"
                    yield beside(case, mean[0, part], "--learner papers", mean[1, part])
    for name, number in (("fewest", min(rounds)), ("most", max(rounds))):
        yield {"case": f"--learner papers, {name} rounds of these", "ours": float(number), "unit": "rounds"}


def coupling() -> Iterator[Row]:
    for rows, keep in COUPLED:
        found = []
        for seed in range(FIRST_SEED, FIRST_SEED + COUPLED_SEEDS):
            graphs, tables = world(seed, rows, keep)

            rule = by_papers(graphs, tables)
            lam, nu = rule.parameters_["lambda"], rule.parameters_["nu"]
            held_out = by_papers(graphs, tables, coupling_by="held-out")
            path = [by_papers(graphs, tables, nu=nu * 2.0**step, lam=lam) for step in STEPS]
            each = [scores(vectors(one.graphs_), vectors(one.consensus_), graphs) for one in (rule, held_out, *path)]
            found.append([*each[:2], np.max(each[2:], axis=0)])
        mean = np.mean(found, axis=0)
        for part, name in enumerate(("sites", "consensus")):
            case = f"{rows} signals, q {keep:g}, {name}: the rule"
            yield beside(case, mean[0, part], "--coupling-by held-out", mean[1, part])
            yield beside(case, mean[0, part], "the best of the path, by the truth", mean[2, part])


def confidence() -> Iterator[Row]:
    for rows, keep in RESAMPLED:
        said, true = [], []
        for seed in range(FIRST_SEED, FIRST_SEED + RESAMPLED_SEEDS):
            graphs, tables = world(seed, rows, keep)
            model = by_papers(graphs, tables, resamples=None)
            drawn = vectors(model.graphs_) > 0.0
            said.append(vectors(model.confidence_)[drawn])
            true.append(graphs.local[drawn] > 0.0)
        yield from calibrated(f"{rows} signals, q {keep:g}, confidence", said, true, CONFIDENCE)


def probabilities() -> Iterator[Row]:
    for kind, signals in (("", ("gmrf", "signed")), ("Laplacian, ", ("pinv",))):
        said: dict[str, list[Any]] = {"edges of sites": [], "shared edges": []}
        true: dict[str, list[Any]] = {name: [] for name in said}
        for signal in signals:
            for shape in quality.KINDS:
                for rows in quality.ROWS:
                    for seed in range(quality.FIRST_SEED, quality.FIRST_SEED + 12):
                        weights, consensus, tables = quality.world(shape, signal, rows, seed)
                        learned, _ = quality.ours(tables)
                        said["edges of sites"].append(learned.probability.ravel())
                        true["edges of sites"].append(weights.ravel() != 0.0)
                        said["shared edges"].append(learned.shared)
                        true["shared edges"].append(consensus)
        for name in said:
            yield from calibrated(f"{kind}{name}, probability", said[name], true[name], PROBABILITY)


def calibrated(what: str, said: list[Any], true: list[Any], bins: tuple[float, ...]) -> Iterator[Row]:
    stated, right = np.concatenate(said), np.concatenate(true)
    for low, high in itertools.pairwise(bins):
        here = (stated >= low) & (stated < high)
        if here.any():
            case = f"{what} {low:g} to {min(high, 1.0):g}, {stated[here].mean():.2f} in the mean: true"
            yield {"case": case, "ours": float(right[here].mean()), "unit": f"of {here.sum()} edges"}


def explained() -> Iterator[Row]:
    cases = [(nodes, rows, False) for nodes, rows in EXPLAINED] + [(20, 200, True)]
    for (nodes, rows, tails), least in itertools.product(cases, FOLLOWED):
        said, true = [], []
        for seed in range(FIRST_SEED, FIRST_SEED + EXPLAINED_SEEDS):
            rng = np.random.default_rng([seed, nodes, rows])
            followed = [int(rng.integers(node)) for node in range(1, nodes)]
            alike = rng.uniform(least, 0.99, nodes - 1)
            edges = np.zeros((nodes, nodes), dtype=bool)
            edges[followed, np.arange(1, nodes)] = True
            tables = [following(rng, rows, followed, alike) for _ in range(SITES)]
            model = ConsensusGraph().fit([np.exp(x) if tails else x for x in tables])
            said.append(vectors(model.probabilities_).ravel())
            true.append(np.tile(vectors(edges | edges.T), SITES))
        kind = f"{nodes} nodes that follow another by {least:g} to .99, {rows} rows{', long tails' if tails else ''}"
        yield from calibrated(f"{kind}, probability", said, true, (SURE, SURER, 1.01))


def following(rng: np.random.Generator, rows: int, followed: list[int], alike: np.ndarray) -> np.ndarray:
    x = rng.standard_normal((rows, len(followed) + 1))
    for node, (other, r) in enumerate(zip(followed, alike, strict=True), 1):
        x[:, node] = r * x[:, other] + np.sqrt(1.0 - r**2) * x[:, node]
    return x


def times(device: str) -> Iterator[Row]:
    for nodes in CHAINS:
        rng = np.random.default_rng([FIRST_SEED, nodes])
        followed, alike = list(range(nodes - 1)), np.full(nodes - 1, 0.5)
        moments = np.array([np.cov(following(rng, CHAIN_ROWS, followed, alike).T) for _ in range(SITES)])
        counts = np.full(SITES, float(CHAIN_ROWS))
        spent = {}
        for where in dict.fromkeys(("cpu", device)):
            learn_graphs(moments[:, :50, :50], counts, device=where)  # compiled
            clock = time.process_time if where == "cpu" else time.perf_counter
            begun = clock()
            learn_graphs(moments, counts, device=where)
            spent[where] = clock() - begun
        case = f"chains, {SITES} sites of {nodes} nodes"
        if device == "cpu":
            yield {"case": case, "ours": spent["cpu"], "unit": "s CPU"}
        else:
            told = {"ours": spent[device], "theirs": spent["cpu"], "ratio": spent["cpu"] / spent[device]}
            yield {"case": f"{case}, {device}", "unit": "s", "peer": "the CPU", **told}


def beside(case: str, ours: float, peer: str, theirs: float) -> Row:
    told = {"ours": float(ours), "theirs": float(theirs), "ratio": float(ours / theirs), "unit": "F-score"}
    return {"case": case, "peer": peer, **told}


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "papers": papers,
    "coupling": coupling,
    "confidence": confidence,
    "probabilities": probabilities,
    "explained": explained,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--only", choices=[*PARTS, "times"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    rows = []
    for name, part in {**PARTS, "times": lambda: times(given.device)}.items():
        for row in part() if given.only in (None, name) else ():
            rows.append(row)
            if not given.json:
                against = "" if row.get("theirs") is None else f"   {row['peer']} {row['theirs']:.3f}"
                print(f"{row['case']:>80}  {row['ours']:.3f} {row['unit']}{against}", flush=True)
    if given.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
