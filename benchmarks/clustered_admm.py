"""CPU time of clustered models after set-up, one thread: python -m benchmarks.clustered_admm [--json]

Ridge in the paper's setting (d = 60, 2 to 9 records a client, 3 clusters, 15 clients a server) for more and more
clients and rounds, then other losses and client scheduling, each round with its ledger. The peer is what the equations
look like in NumPy: every client's d x d matrix solved anew in every round, no gate and no ledger. The best of several
runs counts: machines are noisy.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from silograph.data.clusters import ClusteredRecords, clustered_regression
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.clustered import Linearised, Proximal
from silograph.topology import Topology, regions, server_graph

FEATURES, MOST, CLIENTS, RHO, LAM, TAU = 60, 9, 15, 3.0, 0.01, 0.4


def setting(servers: int) -> tuple[ClusteredRecords, Topology]:
    return clustered_regression(0, servers, CLIENTS), regions(server_graph("random", servers, 0, degree=3.0), CLIENTS)


def best(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times)


def ours(method: ClusteredADMM, made: ClusteredRecords, topo: Topology) -> Callable[[], object]:
    """A run from prepared data; the first two rounds compile, and do not count."""
    logistic = method.task.loss == "logistic"
    records = [(x, np.where(y > 0.0, 1.0, -1.0)) for x, y in made.records] if logistic else made.records
    data = method.task.prepare_all(records)

    def run(method: ClusteredADMM = method) -> None:
        door = Door(1, Ledger())
        for _ in rounds(method, topo, ENGINES["vector"](data, topo, door), door):
            pass

    run(replace(method, rounds=2))
    return run


def numpy_rounds(made: ClusteredRecords, topo: Topology, count: int) -> None:
    """(4), (8), (9), (10), (5) with batched solves."""
    clusters, near = len(made.models), topo.mixing > 0.0
    cell = topo.home * clusters + np.array(made.clusters)
    sizes = np.maximum(np.bincount(cell, minlength=len(topo.servers) * clusters), 1)[:, None]
    weight = (RHO + LAM / topo.sizes[topo.home])[:, None, None]
    left = np.stack([x.T @ x / len(x) for x, _ in made.records]) + weight * np.eye(FEATURES)
    right = np.stack([x.T @ y / len(x) for x, y in made.records])
    what, phi = np.zeros((len(sizes), FEATURES)), np.zeros_like(right)
    for _ in range(count):
        w = np.linalg.solve(left, (right + phi + RHO * what[cell])[:, :, None])[:, :, 0]
        sums = np.zeros_like(what)
        np.add.at(sums, cell, w - phi / RHO)
        wbar = np.einsum(
            "sm,mqd->sqd", near / near.sum(1, keepdims=True), (sums / sizes).reshape(-1, clusters, FEATURES)
        )
        total = wbar.sum(1, keepdims=True)
        what = ((1.0 - TAU) * wbar + TAU / (clusters - 1) * (total - wbar)).reshape(what.shape)
        phi = phi + RHO * (what[cell] - w)


def main() -> None:
    rows = []
    ridge = Proximal(FEATURES, MOST)

    def add(case: str, servers: int, count: int, repeats: int, peer: bool = False, **options: object) -> None:
        made, topo = setting(servers)
        method = ClusteredADMM(ridge, made.clusters, RHO, count, LAM, TAU)
        time_of = best(ours(replace(method, **options), made, topo), repeats)  # type: ignore[arg-type]
        theirs = best(lambda: numpy_rounds(made, topo, count), 1) if peer else None
        rows.append(
            {
                "case": case,
                "ours": time_of,
                "peer": "numpy, batched solves",
                "theirs": theirs,
                "ratio": None if theirs is None else theirs / time_of,
                "unit": "s",
            }
        )

    for count in (100, 300, 900):
        add(f"150 clients x {count} rounds", 10, count, 5, peer=count == 300)
    add("150 clients x 300 rounds, 9 of 15 a round", 10, 300, 3, sample=9)
    add("150 clients x 300 rounds, single step", 10, 300, 3, steps="single")
    add("150 clients x 300 rounds, huber", 10, 300, 3, task=Proximal(FEATURES, MOST, "huber"))
    add("150 clients x 300 rounds, logistic", 10, 300, 3, task=Proximal(FEATURES, MOST, "logistic"))
    add("150 clients x 300 rounds, linearised", 10, 300, 3, task=Linearised(FEATURES, MOST), rho=60.0)
    for servers in (100, 1000, 6667):
        add(f"{servers * CLIENTS} clients x 10 rounds", servers, 10, 1)
        rows[-1] |= {"sweep": "clients", "size": servers * CLIENTS}
    if "--json" in sys.argv:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        peer = "" if row["theirs"] is None else f"  {row['peer']} {row['theirs']:.3g} s, ratio {row['ratio']:.0f}"
        print(f"{row['case']:>42}  {row['ours']:.3f} s{peer}")


if __name__ == "__main__":
    main()
