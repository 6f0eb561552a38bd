"""How true a graph of persons' votes is at a given noise: the table that `silograph privacy` reads beforehand.

    python -m benchmarks.expected_votes --seeds 4
    python -m benchmarks.expected_votes --seeds 4 --communities     is their stated agreement the true one?
    python -m benchmarks.expected_votes --seeds 12 --groups         how many differences are found, how many are true?

Synthetic persons with a known graph (`person_graphs`: each keeps 90 % of everybody's edges, 200 rows that follow each
other), mean degree 8, 500 of them. Their votes are added up, shares get noise of the given standard deviation, and the
surest edges, as many as there are, are held against the truth: F-score, mean over the seeds. Seeds 3000 and up, on
which no setting was chosen. What is printed is `TABLE` of `families/graphs/feasible.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from benchmarks.person_graphs import KINDS, rows_of, shape
from silograph.families.graphs.communities import groups_of, reliable
from silograph.families.graphs.files import Edge
from silograph.kernels.share_law import Shares, learn_differences, learn_shares
from silograph.kernels.votes import vote
from silograph.methods.person_votes import MARGIN, SURE

NODES, DEGREE, PERSONS, FIRST_SEED = (60, 100, 200), 8, 500, 3000
NOISE = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.32)


def known(nodes: int, kind: str, seed: int) -> tuple[np.ndarray, Iterator[tuple[Shares, np.ndarray]]]:
    """The truth; and at every noise what is known of the shares, and the surest edges."""
    rng = np.random.default_rng([seed, nodes, KINDS.index(kind)])
    truth = shape(rng, kind, nodes, nodes * DEGREE // 2)
    edges, total = int(truth.sum()), np.zeros(len(truth))
    for _ in range(PERSONS):
        total += vote(rows_of(rng, truth, nodes), edges)
    drawn = rng.standard_normal(len(truth))
    found = (learn_shares(total / PERSONS + noise * drawn, noise, edges) for noise in NOISE)
    return truth, ((shares, np.lexsort((-shares.share, -shares.probability))[:edges]) for shares in found)


def scores(nodes: int, kind: str, seed: int) -> list[float]:
    """F at every noise."""
    truth, every = known(nodes, kind, seed)
    return [float(truth[surest].mean()) for _, surest in every]


def agreements(nodes: int, kind: str, seed: int) -> list[tuple[float, float]]:
    """At every noise how far communities agree, as stated and with those of the votes without noise."""
    names, ends = [str(k) for k in range(nodes)], np.triu_indices(nodes, 1)

    def groups(weights: np.ndarray, chosen: np.ndarray) -> list[list[str]]:
        edges = [Edge(names[ends[0][k]], names[ends[1][k]], float(weights[k])) for k in chosen]
        return groups_of(edges, names)

    rows, quiet = [], None
    for shares, surest in known(nodes, kind, seed)[1]:
        own = groups(shares.share, surest)
        again = shares.drawn_again(20, np.random.default_rng(seed))
        kept = np.argsort(-again, 1)[:, : len(surest)]
        weights = np.zeros_like(again)
        np.put_along_axis(weights, kept, np.maximum(np.take_along_axis(again, kept, 1), 1e-12), 1)
        quiet = weights_of(shares, surest)[None] if quiet is None else quiet
        stated, true = (reliable(own, names, each) for each in (weights, quiet))
        rows.append((stated["agreement"], true["agreement"]) if stated and true else (np.nan, np.nan))
    return rows


def found_differences(apart: float, noise: float, seed: int) -> tuple[float, float]:
    """Two groups of 1000 persons, whose shares differ in 40 of 4950 edges by so much: how many of those are found, and
    how many of what is found are true."""
    rng = np.random.default_rng([seed, 7])
    one = np.clip(rng.beta(0.15, 1.8, 4950), 0.0, 1.0)  # most pairs are nobody's edge, few are everybody's
    other, changed = one.copy(), np.argsort(-one)[:400][rng.permutation(400)[:40]]
    other[changed] -= apart * np.where(other[changed] > apart, 1.0, -1.0)
    seen = rng.binomial(1000, one) / 1000.0 - rng.binomial(1000, other) / 1000.0
    probability, _ = learn_differences(seen + noise * rng.standard_normal(len(one)), np.full(len(one), noise), MARGIN)
    sure = np.flatnonzero(probability > SURE)
    true = np.isin(sure, changed)
    return float(true.sum() / 40.0), float(true.mean()) if len(sure) else np.nan


def weights_of(shares: Shares, surest: np.ndarray) -> np.ndarray:
    weights = np.zeros_like(shares.share)
    weights[surest] = shares.share[surest]
    return weights


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=4)
    options.add_argument("--communities", action="store_true")
    options.add_argument("--groups", action="store_true")
    given = options.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    print(f"NOISE = {NOISE}", flush=True)
    for kind in KINDS if given.communities else ():
        stated, true = np.nanmean([agreements(100, kind, seed) for seed in seeds], axis=0).T
        print(f"{kind}, 100 nodes, stated: {np.round(stated, 2).tolist()}", flush=True)
        print(f"{kind}, 100 nodes, true:   {np.round(true, 2).tolist()}", flush=True)
    for apart, noise in [(a, n) for a in (0.2, 0.3, 0.5) for n in (0.03, 0.05, 0.1)] if given.groups else ():
        found = np.array([found_differences(apart, noise, seed) for seed in seeds])
        precise = found[~np.isnan(found[:, 1]), 1]
        print(f"apart {apart}, noise {noise}: found {found[:, 0].mean():.2f}, true {precise.mean():.2f}", flush=True)
    if given.groups:
        none = [found_differences(0.0, 0.05, seed)[1] for seed in seeds]
        print(f"apart 0: runs that state a difference: {int(np.sum(~np.isnan(none)))} of {len(none)}")
    if given.communities or given.groups:
        return
    for nodes in NODES:
        for kind in KINDS:
            mean = np.mean([scores(nodes, kind, seed) for seed in seeds], axis=0)
            print(f"({nodes}, {kind!r}): ({', '.join(f'{f:.3f}' for f in mean)}),", flush=True)


if __name__ == "__main__":
    main()
