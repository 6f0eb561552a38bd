"""How true a graph of persons' votes is at a given noise: the table that `silograph privacy` reads beforehand.

    python -m benchmarks.expected_votes --seeds 4

Synthetic persons with a known graph (`person_graphs`: each keeps 90 % of everybody's edges, 200 rows that follow each
other), mean degree 8, 500 of them. Their votes are added up, shares get noise of the given standard deviation, and the
surest edges, as many as there are, are held against the truth: F-score, mean over the seeds. Seeds 3000 and up, on
which no setting was chosen. What is printed is `TABLE` of `families/graphs/feasible.py`.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.person_graphs import KINDS, rows_of, shape
from silograph.kernels.share_law import learn_shares
from silograph.kernels.votes import vote

NODES, DEGREE, PERSONS, FIRST_SEED = (60, 100, 200), 8, 500, 3000
NOISE = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.32)


def scores(nodes: int, kind: str, seed: int) -> list[float]:
    """F at every noise."""
    rng = np.random.default_rng([seed, nodes, KINDS.index(kind)])
    truth = shape(rng, kind, nodes, nodes * DEGREE // 2)
    edges, total = int(truth.sum()), np.zeros(len(truth))
    for _ in range(PERSONS):
        total += vote(rows_of(rng, truth, nodes), edges)
    drawn = rng.standard_normal(len(truth))
    found = (learn_shares(total / PERSONS + noise * drawn, noise, edges) for noise in NOISE)
    surest = (np.lexsort((-known.share, -known.probability))[:edges] for known in found)
    return [float(truth[each].mean()) for each in surest]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=4)
    seeds = range(FIRST_SEED, FIRST_SEED + options.parse_args().seeds)
    print(f"NOISE = {NOISE}", flush=True)
    for nodes in NODES:
        for kind in KINDS:
            mean = np.mean([scores(nodes, kind, seed) for seed in seeds], axis=0)
            print(f"({nodes}, {kind!r}): ({', '.join(f'{f:.3f}' for f in mean)}),", flush=True)


if __name__ == "__main__":
    main()
