"""A round of secure sums of thousands of agents in one process: python -m benchmarks.secure_sums [--json]

Every message of the protocol is made and checked, for every agent: keys, sealed shares, masks, confirmations. Vectors
have 100 numbers, nobody drops out. CPU seconds of one core and peak of memory, from 300 agents to 3,000 in one sum;
3,000 must take less than a minute. Then seconds by the clock of a whole round of a graph federation with 8 regions of
616 agents, from one model to the next, on one core and on all cores of the machine. Each case in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.secure_sum import secure_sum
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

SIZES, NUMBERS, REGIONS, AGENTS = (300, 1000, 3000), 100, 8, 616
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def one_sum(agents: int) -> None:
    rng = np.random.default_rng(0)
    vectors = {f"agent {k}": vector / NUMBERS for k, vector in enumerate(rng.normal(size=(agents, NUMBERS)))}
    total = secure_sum(vectors, 1.0, 20)
    assert np.abs(total.values - sum(vectors.values())).max() <= agents * 2.0**-21


def one_round() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(REGIONS * AGENTS, 2, NUMBERS))
    data = {"x": x, "y": rng.normal(size=x.shape[:2]), "count": np.full(len(x), 2.0)}
    topo = regions(server_graph("ring", REGIONS), AGENTS)
    method = GraphFederation(Linear(NUMBERS, 2, "ridge", 0.01), 0.1, 1, batch=(2, 2), clip=0.1)
    with tempfile.TemporaryDirectory() as folder:
        door = Door(0, Ledger(Path(folder) / "ledger.jsonl"), masks=Masks("protocol"))
        for _ in rounds(method, topo, ENGINES["vector"](data, topo, door), door):
            pass


def measure(what: str, cores: int) -> dict[str, float]:
    """CPU and wall seconds, and peak of memory in GB."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    one_sum(10)  # what loads and compiles once is no part of it
    cpu, wall = time.process_time(), time.perf_counter()
    one_round() if what == "round" else one_sum(int(what))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    here, worker = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    peak = here.ru_maxrss + min(cores, REGIONS) * worker.ru_maxrss  # at most: of the largest worker, if there are any
    return {"cpu": cpu + worker.ru_utime + worker.ru_stime, "wall": wall, "peak_gb": peak / 2**20}


def apart(what: str | int, cores: int = 1) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.secure_sums", "--measure", str(what), str(cores)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | ONE_THREAD).stdout
    found: dict[str, float] = json.loads(said)
    return found


def rows() -> Iterator[dict[str, Any]]:
    for agents in SIZES:
        found = apart(agents)
        row = {"case": f"a sum of {agents:,} agents", "ours": found["cpu"], "unit": "CPU s"}
        yield row | {"peak_gb": found["peak_gb"], "sweep": "agents", "size": agents}
    case, machine = f"a round of {REGIONS} regions of {AGENTS} agents", len(os.sched_getaffinity(0))
    for cores in dict.fromkeys((1, machine)):
        found = apart("round", cores)
        name = f"{case}, on {cores} core" + ("s" if cores > 1 else "")
        yield {"case": name, "ours": found["wall"], "unit": "s", "peak_gb": found["peak_gb"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, cores = options.measure
        print(json.dumps(measure(what, int(cores))))
    elif options.json:
        print(json.dumps({"rows": list(rows())}))
    else:
        for row in rows():
            print(f"{row['case']}: {row['ours']:.1f} {row['unit']}, {row['peak_gb']:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
