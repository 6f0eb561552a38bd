"""How much of the truth private graphs show: python -m benchmarks.private_graph [--json] [--data FOLDER]

F-scores by total epsilon and records a silo, on the papers' graphs (20 nodes, 5 silos, replace one record, delta 1e-5),
means over all silos and `SEEDS`. Ours is one release and the default pipeline; beside it are its smallest silo alone,
the same with a public clip, and its effective rows. The peers are S0's noise in every one of 50 rounds at the same true
total epsilon, with the paper's settings and with clip, step and momentum tuned on the truth, which flatters it, and
chance: the complete graph. Peers take the true number of edges; so does ours, unless BIC does.

Of the consensus alone: ours is noise once on a secure sum, of which three of five silos' shares are counted on; the
peers are the consensus of one release a silo at the same cost, and a trusted server that adds all noise itself. Of
noise that silos share: ours is its graphs, sized for three honest silos of five, beside those of independent noise.

Of rows at 100 nodes (`row_graphs`, which says more): the default beside the former pipeline.

Of persons at 90 to 116 nodes (`person_graphs`, which says more): votes beside the former pipeline.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks import person_graphs, row_graphs
from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.data.synthetic import PaperGraphs, paper_graphs, smooth_signals
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.behind_noise import BehindNoise
from silograph.methods.private_graph import ReleasedConsensus
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.masking import Masks, counted_on
from silograph.privacy.mechanisms import Gaussian, SharedGaussian
from silograph.run.loop import simulate
from silograph.tasks.smooth_graph import SmoothGraph

NODES, DELTA, ROUNDS = 20, 1e-5, 50
SEEDS = range(16)
WORLDS = 12  # of 100 nodes
PUBLIC_SEED = 1_000_000  # other graphs and signals, of which a scale may be known
UNEQUAL = (50, 158, 500, 1581, 5000)
PAPER = {"beta": 0.05, "nu": 5.0, "lam": 0.1, "form": "S0", "local_steps": 1, "rounds": ROUNDS}
S0 = (20.0, 0.01, 0.1)  # clip, step and momentum of the paper
TUNED = [(clip, step, momentum) for clip in (5.0, 10.0, 20.0) for step in (0.01, 0.03) for momentum in (0.1, 0.9)]


#: F-scores by name, ours among them; None where it was refused.
Measure = Callable[["Case", Sequence[int]], dict[str, float | None]]


@dataclass(frozen=True)
class Case:
    """`counts` signals in the silos, whose graphs keep so much of the consensus; `told`: edges are as many as true."""

    keep: float
    counts: tuple[int, ...]
    epsilon: float
    told: bool = True

    @property
    def name(self) -> str:
        size = f"N={self.counts[0]}" if len(set(self.counts)) == 1 else f"N={self.counts[0]}..{self.counts[-1]}"
        return f"q={self.keep:g} {size} epsilon={self.epsilon:g}" + ("" if self.told else ", edges by BIC")


def equal(keep: float, count: int, epsilon: float, told: bool = True) -> Case:
    return Case(keep, (count,) * 5, epsilon, told)


CASES = [
    *(equal(0.5, count, epsilon) for count in (200, 1000, 5000) for epsilon in (1.0, 4.0)),
    *(equal(0.9, count, epsilon) for count in (200, 1000, 5000) for epsilon in (1.0, 4.0)),
    equal(0.5, 1000, 4.0, told=False),
    equal(0.5, 5000, 1.0, told=False),
    equal(0.9, 1000, 4.0, told=False),
    Case(0.9, UNEQUAL, 1.0),
]
SUMS = [equal(0.9, count, epsilon) for count in (200, 1000) for epsilon in (1.0, 4.0)] + [Case(0.9, UNEQUAL, 1.0)]


@cache
def world(keep: float, counts: tuple[int, ...], seed: int) -> tuple[PaperGraphs, dict[str, np.ndarray]]:
    graphs = paper_graphs(seed, len(counts), NODES, keep)
    names = [f"silo {k}" for k in range(len(counts))]
    signals = {
        name: smooth_signals(stream(seed, name, 0, "signals"), graph, count)
        for name, graph, count in zip(names, graphs.local, counts, strict=True)
    }
    return graphs, signals


def public_clip(keep: float) -> float:
    """The lower quartile of signals' lengths, of other graphs."""
    _, signals = world(keep, (2000,), PUBLIC_SEED)
    centred = signals["silo 0"] - signals["silo 0"].mean(1, keepdims=True)
    return math.sqrt(np.quantile((centred**2).sum(1), 0.25))


def ours(case: Case, seed: int, clip: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Learned graphs of the silos, and their effective rows."""
    graphs, signals = world(case.keep, case.counts, seed)
    degree = 2.0 * np.count_nonzero(graphs.local[0]) / NODES if case.told else None
    task, noise = SmoothGraph(NODES, "moment", clip), Gaussian(gaussian_multiplier(case.epsilon, DELTA, 1))
    method = ReleasedConsensus(task, BehindNoise(degree), noise, case.counts)
    arrays = simulate(method, task, signals, noise, seed=seed)[0].arrays
    return arrays["graph"], arrays["effective_rows"][:-1]


def every_round(case: Case, seed: int, clip: float, step: float, momentum: float) -> np.ndarray:
    graphs, signals = world(case.keep, case.counts, seed)
    task, noise = (
        SmoothGraph(NODES, "clipped-distances", clip),
        Gaussian(gaussian_multiplier(case.epsilon, DELTA, ROUNDS)),
    )
    method = PaperConsensus(NODES, step=step, momentum=momentum, release=task, **PAPER)
    w = simulate(method, task, signals, noise, seed=seed)[0].arrays["graph"]
    edges = np.count_nonzero(graphs.local[0])
    heaviest = np.argsort(-w, axis=-1, kind="stable")[:, :edges]
    kept = np.zeros_like(w)
    np.put_along_axis(kept, heaviest, np.take_along_axis(w, heaviest, -1), -1)
    return kept


def consensus(case: Case, seed: int) -> dict[str, np.ndarray]:
    """The consensus by a secure sum, from one release a silo, and with all records and noise at a trusted server."""
    graphs, signals = world(case.keep, case.counts, seed)
    task, inner = SmoothGraph(NODES, "moment"), BehindNoise(2.0 * np.count_nonzero(graphs.consensus) / NODES)
    multiplier = gaussian_multiplier(case.epsilon, DELTA, 1)
    own, plain = SharedGaussian(multiplier), Gaussian(multiplier)
    summed = SummedConsensus(task, inner, own, case.counts)
    released = ReleasedConsensus(task, inner, plain, case.counts)
    trusting = ReleasedConsensus(task, inner, plain, (sum(case.counts),))
    everything = {"all": np.concatenate(list(signals.values()))}
    return {
        "ours": simulate(summed, task, signals, own, seed=seed, masks=Masks())[0].arrays["consensus"],
        "one release a silo": simulate(released, task, signals, plain, seed=seed)[0].arrays["consensus"],
        "a trusted server": simulate(trusting, task, everything, plain, seed=seed)[0].arrays["consensus"],
    }


def measure_consensus(case: Case, seeds: Sequence[int]) -> dict[str, float | None]:
    found = [consensus(case, seed) for seed in seeds]
    truths = [world(case.keep, case.counts, seed)[0].consensus for seed in seeds]
    return {
        name: float(np.mean([scores(learned[name], truth) for learned, truth in zip(found, truths, strict=True)]))
        for name in found[0]
    }


def measure_shared(case: Case, seeds: Sequence[int], alone: bool) -> dict[str, float | None]:
    """Graphs of the silos, or the consensus: with noise of which every two silos share a part, and with independent."""
    task, multiplier = SmoothGraph(NODES, "moment"), gaussian_multiplier(case.epsilon, DELTA, 1)
    found: dict[str, list[np.ndarray]] = {"ours": [], "independent noise": []}
    for seed in seeds:
        graphs, signals = world(case.keep, case.counts, seed)
        truth, silos = graphs.local if alone else graphs.consensus[None], tuple(sorted(signals))
        inner = BehindNoise(2.0 * np.count_nonzero(truth[0]) / NODES)
        shared = CorrelatedGaussian(multiplier, (silos,), counted_on(len(silos)))
        for name, noise in (("ours", shared), ("independent noise", Gaussian(multiplier))):
            method = ReleasedConsensus(task, inner, noise, case.counts)
            arrays = simulate(method, task, signals, noise, seed=seed)[0].arrays
            found[name].append(scores(arrays["graph"] if alone else arrays["consensus"][None], truth))
    return {name: float(np.mean(values)) for name, values in found.items()}


def scores(learned: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """F-score of every silo."""
    found, real = learned > 0.0, truth > 0.0
    return 2.0 * (found & real).sum(-1) / (found.sum(-1) + real.sum(-1))


def measure(case: Case, seeds: Sequence[int]) -> dict[str, float | None]:
    """Mean F-scores; ours is None where some run was refused, as too little is left after the noise."""
    truths = [world(case.keep, case.counts, seed)[0].local for seed in seeds]

    def mean(learned: list[np.ndarray], real: list[np.ndarray] = truths) -> float:
        return float(np.mean([scores(w, truth) for w, truth in zip(learned, real, strict=True)]))

    settings = {each: mean([every_round(case, seed, *each) for seed in seeds]) for each in TUNED}
    own: dict[str, float | None] = {"ours": None}
    try:
        found = [ours(case, seed) for seed in seeds]
        own["ours"] = mean([w for w, _ in found])
        own["effective rows"] = float(np.mean([rows for _, rows in found]))
        own["its smallest silo"] = mean([w[:1] for w, _ in found], [truth[:1] for truth in truths])
        clip = public_clip(case.keep)
        own["ours with a public clip"] = mean([ours(case, seed, clip)[0] for seed in seeds])
    except InputError:
        pass
    return own | {
        "noise in every round": settings[S0],
        "noise in every round, tuned on the truth": max(settings.values()),
        "the complete graph": mean([np.ones_like(truth) for truth in truths]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="How much of the truth private graphs show.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, help="a folder with abide/")
    parser.add_argument("--only", default="", help="cases whose name has these words")
    options = parser.parse_args()
    rows = []
    for name, found in results(options.only, options.data):
        best, effective = found.pop("ours"), found.pop("effective rows", None)
        name += "" if effective is None else f", {effective:.0f} effective rows"
        for peer, theirs in found.items():
            ratio = None if best is None or theirs is None else best / theirs
            rows.append({"case": name, "ours": best, "peer": peer, "theirs": theirs, "ratio": ratio, "unit": "F-score"})
        if not options.json:
            told = ", ".join(f"{peer} {_shown(theirs)}" for peer, theirs in found.items())
            print(f"{name:>36}  {_shown(best)}   {told}", flush=True)
    if options.json:
        print(json.dumps({"rows": rows}))


def results(only: str, data: Path | None) -> Iterator[tuple[str, dict[str, float | None]]]:
    """F-scores by name, case after case."""
    measures: list[tuple[str, Measure, Case]] = [(case.name, measure, case) for case in CASES]
    measures += [(f"consensus, secure sum, {case.name}", measure_consensus, case) for case in SUMS]
    for case in (*SUMS, equal(0.5, 1000, 1.0)):
        measures.append((f"shared noise, {case.name}", partial(measure_shared, alone=True), case))
        measures.append((f"consensus, shared noise, {case.name}", partial(measure_shared, alone=False), case))
    for name, how, case in measures:
        if only in name:
            yield name, how(case, SEEDS)
    for name, rows in row_graphs.measure(WORLDS, only):
        yield f"consensus, {name}", {"ours": rows["ours"], "the former pipeline": rows["former"]}
    for name, found in person_graphs.measure(WORLDS, data, only):
        yield f"persons, {name}", {"ours": found["votes"], "a sum of moments, as before": found.get("former")}
        for truth in (key for key in found if key.startswith("votes, ridge")):
            against = {"ours": found[truth], "against a ridge of 0.1": found["votes"]}
            yield f"persons, {truth.removeprefix('votes, ')} of the truth, {name}", against
        for part in ("top-100", "precision of P > .9"):
            yield f"persons, {part}, {name}", {"ours": found.get(part), "all edges that are drawn": found["votes"]}


def _shown(score: float | None) -> str:
    return "refused" if score is None else f"{score:.3f}"


if __name__ == "__main__":
    main()
