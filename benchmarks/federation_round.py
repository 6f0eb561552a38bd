"""A full private round of graph federation, on one core: python -m benchmarks.federation_round [--json]

A round is everything between two models: agents asked, batches drawn, local steps, clip, sum, Gaussian noise, mixing,
and the ledger's rows written and synced to disk. Small logistic models: 20 records of 10 features an agent, 4 local
steps of 5 records; everybody takes part. CPU time, the median of many rounds.

The peer is pfl-research's SimulatedBackend at the same work, one server, in an environment of its own (made on the
first run): as its documentation shows it (torch), and as cheap as its extension points allow (numpy). It has no ledger.

Then the growth from a thousand agents to a million in a thousand regions, with the peak of memory; each size in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.observers import OWN_SERVER
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

RECORDS, FEATURES, STEPS, BATCH, CLIP = 20, 10, 4, 5, 0.1
EPSILON, DELTA = 2.0, 1e-6


def measure(servers: int, agents: int, records: int, features: int, repeat: int) -> dict[str, float]:
    """CPU and wall seconds of a round, and the peak memory of this process in GB."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(servers * agents, records, features))
    y = np.where(rng.random(x.shape[:2]) < 0.5, 1.0, -1.0)
    data = {"x": x, "y": y, "count": np.full(len(x), float(records))}
    task = Linear(features, records, "logistic", 0.01)
    topo = regions(server_graph("ring", servers), agents)
    steps = STEPS if records >= STEPS * BATCH else 1
    method = GraphFederation(
        task, 0.1, repeat, epochs=(steps, steps), batch=(BATCH, BATCH), perturbation="private", clip=CLIP
    )
    with tempfile.TemporaryDirectory() as folder:
        door = Door(
            0,
            Ledger(Path(folder) / "ledger.jsonl"),
            Gaussian(gaussian_multiplier(EPSILON, DELTA, repeat)),
            Budget(EPSILON, DELTA, frozenset({OWN_SERVER})),
        )
        cpu, wall = [], []
        begun = time.process_time(), time.perf_counter()
        for _ in rounds(method, topo, ENGINES["vector"](data, topo, door), door):
            now = time.process_time(), time.perf_counter()
            cpu.append(now[0] - begun[0])
            wall.append(now[1] - begun[1])
            begun = now
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"cpu": statistics.median(cpu[1:]), "wall": statistics.median(wall[1:]), "peak_gb": peak}


def apart(*arguments: int) -> dict[str, float]:
    """`measure` in a process of its own, so that its peak of memory is its own."""
    command = [sys.executable, "-m", "benchmarks.federation_round", "--measure", *map(str, arguments)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(said)
    return found


def rows() -> Iterator[dict[str, Any]]:
    ours = apart(1, 1000, RECORDS, FEATURES, 200)
    yield _row("1000 agents, 10 servers", apart(10, 100, RECORDS, FEATURES, 200))
    for servers in (1, 10, 100, 1000):
        # Fewer records, so that a million agents' data are 0.5 GB.
        found = apart(servers, 1000, 10, 5, 20 if servers < 1000 else 6)
        row = _row(f"{1000 * servers} agents, {servers} servers, 10 records of 5 features", found)
        yield row | {"sweep": "agents", "size": 1000 * servers}
    python = peers.environment("pfl", peers.PFL)
    work = ("--agents", 1000, "--records", RECORDS, "--features", FEATURES, "--steps", STEPS, "--batch", BATCH)
    found = [] if python is None else peers.answer(python, "pfl_round.py", *work)["rows"]
    theirs = {row["path"]: row["cpu_s"] for row in found}
    for path in ("torch", "numpy"):
        yield _row("1000 agents, one server", ours, f"pfl SimulatedBackend, {path}", theirs.get(path))


def _row(case: str, ours: dict[str, float], peer: str | None = None, theirs: float | None = None) -> dict[str, Any]:
    return {
        "case": case,
        "ours": 1e3 * ours["cpu"],
        "wall": 1e3 * ours["wall"],
        "peak_gb": ours["peak_gb"],
        "peer": peer,
        "theirs": None if theirs is None else 1e3 * theirs,
        "ratio": None if theirs is None else theirs / ours["cpu"],
        "unit": "ms CPU a round",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of a full round of graph federation.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=5, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    if options.json:
        print(json.dumps({"rows": list(rows())}))
        return
    for row in rows():
        against = "" if row["ratio"] is None else f"  {row['peer']} {row['theirs']:.0f} ms, {row['ratio']:.0f} times"
        print(f"{row['case']}: {row['ours']:.2f} ms CPU, {row['peak_gb']:.2f} GB{against}", flush=True)


if __name__ == "__main__":
    main()
