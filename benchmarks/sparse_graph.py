"""Graphs on candidate lists, from ten thousand nodes to a million: python -m benchmarks.sparse_graph [--json]

Nodes are random places in space, candidates the nearest 20 of each, costs their mean squared differences. CPU time to a
certified relative gap of 1e-6 on the list and peak of memory, without the search; each size in a process of its own.
`growth` is the time of a candidate against the smallest size: 1 would be linear.

Then the exact search of neighbours with its proof, next to scikit-learn's brute force, which gives neighbours alone.
Last, three sites that learn together on the union of their neighbours, with the search for the wanted degree.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from benchmarks.dense_graph import best
from silograph.data.silos import from_arrays
from silograph.families.graphs.job import GraphJob
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan
from silograph.kernels.lists import learn_graph, nearest, solve_list, with_costs
from silograph.run.jobs import run_in_memory

SIZES = (10_000, 100_000, 1_000_000)
TOGETHER = (1_000, 10_000)
NEIGHBOURS = 20


def measure(nodes: int) -> dict[str, float]:
    """CPU seconds of a solve and the peak memory of this process in GB."""
    places = np.random.default_rng(0).random((3, nodes))
    who = cKDTree(places.T).query(places.T, NEIGHBOURS + 1)[1][:, 1:].astype(np.int64)
    own = np.repeat(np.arange(nodes), NEIGHBOURS)
    pair = np.unique(np.minimum(own, who.ravel()) * nodes + np.maximum(own, who.ravel()))
    del who, own
    candidates = with_costs(places, *np.divmod(pair, nodes))
    del pair
    beta = 0.3 * float(np.median(candidates.cost)) ** 2
    spent, found = best(lambda: solve_list(candidates, 1.0, beta), 5 if nodes < 1_000_000 else 2)
    return {
        "cpu": spent,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "candidates": len(candidates.col),
        "gap": found.gap / abs(found.objective),
        "degree": 2.0 * float((found.w > 0.0).sum()) / nodes,
    }


def rows() -> Iterator[dict[str, Any]]:
    first = 0.0
    for nodes in SIZES:
        command = [sys.executable, "-m", "benchmarks.sparse_graph", "--measure", str(nodes)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        each = found["cpu"] / found["candidates"]
        first = first or each
        case = f"d={nodes}, {found['candidates']} candidates"
        facts = {name: found[name] for name in ("peak_gb", "gap", "degree")}
        size = {"sweep": "candidate edges", "size": found["candidates"]}
        yield _row(case, found["cpu"]) | facts | size | {"growth": each / first}
    signals = np.random.default_rng(1).normal(size=(20, 10_000))
    ours, _ = best(lambda: nearest(signals, NEIGHBOURS), 2)
    search = NearestNeighbors(n_neighbors=NEIGHBOURS + 1, algorithm="brute")
    theirs, _ = best(lambda: search.fit(signals.T).kneighbors(signals.T), 2)
    yield _row("d=10000, 20 nearest by 20 signals, all threads", ours, "scikit-learn NearestNeighbors, brute", theirs)
    ours, (_, found) = best(lambda: learn_graph(signals, NEIGHBOURS, 0.05), 1)
    yield {**_row("the same, learned and proven on all pairs", ours), "proven": float(found.proven.mean())}
    for nodes in TOGETHER:
        yield together(nodes)


def together(nodes: int, sites: int = 3) -> dict[str, Any]:
    """Sites whose signals are smooth over the same places, to a certified gap of 1e-6 of (8) on their candidates."""
    places = np.random.default_rng(0).random((nodes, 2)) * np.sqrt(nodes)

    def signals(site: int) -> np.ndarray:
        rng = np.random.default_rng(1 + site)
        waves = np.cos(places @ (0.6 * rng.normal(size=(2, 24))) + 6.28 * rng.random(24))
        return (waves + 0.05 * rng.normal(size=waves.shape)).T

    silos = from_arrays([signals(site) for site in range(sites)])
    plan = GraphPlan(Data(neighbours=12), ConsensusGraph(degree=6.0, tolerance=1e-6, resamples=0))
    job = GraphJob.of(plan, silos, Path())
    spent, (found, door) = best(lambda: run_in_memory(job, None), 1)
    size = job.setup.task.space.size
    sent = sum(8 * row.dim for row in door.ledger.of(job.topo.silos[0]))
    facts = {"rounds": found.facts["rounds"], "gap": found.facts["certified_gap"], "mb_sent_by_a_site": sent / 1e6}
    return {**_row(f"{sites} sites together, d={nodes}, {size} candidates, {facts['rounds']} rounds", spent), **facts}


def _row(case: str, ours: float, peer: str | None = None, theirs: float | None = None) -> dict[str, Any]:
    ratio = None if theirs is None else theirs / ours
    return {"case": case, "ours": ours, "peer": peer, "theirs": theirs, "ratio": ratio, "unit": "s CPU"}


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time to learn a graph on candidate lists.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    if options.json:
        print(json.dumps({"rows": list(rows())}))
        return
    for row in rows():
        against = "" if row["ratio"] is None else f"  {row['peer']} {row['theirs']:.3g} s, {row['ratio']:.3g} times"
        memory = f", {row['peak_gb']:.2f} GB" if "peak_gb" in row else ""
        print(f"{row['case']}: {row['ours']:.3g} s CPU{memory}{against}", flush=True)


if __name__ == "__main__":
    main()
