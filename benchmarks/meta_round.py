"""A full round of private meta-learning: python -m benchmarks.meta_round [--json] [--device cuda] [--net 196-32-10]

A round is everything between two models: samples drawn, clipped sums of every client's gradients (and, in second order,
curvatures), noise, the ledger's rows written and synced to disk, the mean at the server. 30 clients of 600 random
records, half of them query and half support; full batches under a budget of epsilon 2.

Dense nets have one thread on one core, and CPU time counts, the median of several rounds. The peers, in an environment
of their own (made on the first run), do first-order private meta-learning client by client: Opacus with a gradient for
every record, Opacus with ghost clipping, torch.func; and, without any privacy, second order by autograd. They have
torch's noise and no ledger. Their sums without noise are compared with ours. Then the growth with the clients and the
peak of memory, each size in a process of its own.

Where a first-order round of 196-32-10 goes (13.4 ms, on a core that others used too): gradients 5.3, rows of the ledger
3.2, noise 2.3, keys, models and the rest 2.6. Opacus' ghost clipping, without a ledger and round by round in turns with
ours, took 67.5 ms: 5.05 times as much (5.1 and 4.9 at other times; this benchmark, which measures one after the other,
found 4.1 to 4.9). A gradient for every record took 25 times as much by Opacus and 11 to 14 by torch.func.

What is left: matrix products take 3 ms if records are in the cache, at 200 of the 260 GFLOP/s that one core can do here
with AVX-512 (MKL does not know this processor and does 100), and up to 2 more if records come from memory. Digests are
half of the ledger's time, at 2 GB/s, and noise takes 4.5 ns a number, 1.2 of them the cipher's.

With --device cuda, and with --net cnn (for pictures of 3 x 32 x 32), wall time counts: on all cores and, in the same
process, on the device.
On an H200 with 16 cores the cnn's round takes .57 s in first order and .95 s in second; both waited for copies of 30
models from memory that the device cannot read by itself, and took 1.35 and 2.00 s. Of the .95, sums are half (launches
of some 200 small kernels for each client), noise and ledger a quarter, and numbers in the server's memory the rest.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks import peers
from silograph.methods.private_meta import QUERY, SUPPORT, Order, PrivateMeta, divided
from silograph.privacy import mechanisms
from silograph.privacy.accounting import Planned, sampled_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.gate import Gate
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.networks import cnn, initialise, mlp
from silograph.tasks.neural import Neural, Sums
from silograph.topology import Topology, star

NETS = ("196-32-10", "784-64-10")
PICTURE, CLASSES = (3, 32, 32), 10  # of the cnn
INNER_STEP, OUTER_STEP, CLIP, RATE = 0.1, 1.0, 1.0, 1.0
EPSILON, DELTA, PLANNED = 2.0, 1e-3, 200  # the planned rounds fix the noise; fewer are timed
WARMUP = 2
LONG = 30.0  # seconds of rounds, after which no other is begun
AGREED = 1e-4  # what the peers' sums may differ from ours, in their lengths
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

FIRST_ORDER = {
    "hooks": "Opacus, a gradient for every record",
    "ghost": "Opacus, ghost clipping",
    "func": "torch.func, client by client",
}

#: Methods and functions whose time, with all that they call, is one part of a round; noise may be drawn in threads.
SUMS: dict[str, tuple[tuple[Any, str], ...]] = {
    "gradients": ((Sums, "gradient"),),
    "curvatures": ((Sums, "curvature"),),
}
STAGES: dict[str, dict[str, tuple[tuple[Any, str], ...]]] = {
    "cpu": SUMS | {"noise": ((mechanisms, "perturb"),), "ledger": ((Gate, "row"), (Door, "admit"), (Door, "sync"))},
    "wall": SUMS | {"noise and ledger": ((Gate, "release"), (Door, "sync"))},
}


# ---- ours ------------------------------------------------------------------------------------------------------------


def setting(net: str, clients: int, records: int, device: str = "cpu") -> tuple[Neural, dict[str, Any]]:
    """A network, and random records of every client, divided as the method wants them."""
    shape: tuple[int, ...]
    if net == "cnn":
        shape, outputs, module = PICTURE, CLASSES, cnn(PICTURE, CLASSES)
    else:
        inputs, *hidden, outputs = layer_sizes(net)
        shape, module = (inputs,), mlp(inputs, outputs, hidden)
    rng = np.random.default_rng(0)
    x = rng.random((clients, records, *shape), dtype=np.float32)
    y = rng.integers(outputs, size=(clients, records))
    task = Neural(initialise(module, 0), shape, outputs, device=device)
    return task, divided(list(zip(x, y, strict=True)), around(clients).silos, 0)


def layer_sizes(net: str) -> list[int]:
    return [int(size) for size in net.split("-")]


def around(clients: int) -> Topology:
    return star([f"client {k:04d}" for k in range(clients)])


def measure(task: Neural, data: dict[str, Any], order: Order, repeat: int, clock: str) -> dict[str, Any]:
    """CPU and wall seconds of a round, the peak memory of this process in GB, and seconds by stage."""
    topo = around(len(data[QUERY]))
    weights = tuple(int(count) for count in data[SUPPORT])
    method = PrivateMeta(task, weights, PLANNED, INNER_STEP, OUTER_STEP, 1, RATE, order, CLIP)
    noise = sampled_multiplier(EPSILON, DELTA, RATE, PLANNED)
    budget = Budget(EPSILON, DELTA, planned=Planned(noise, RATE, PLANNED))
    turns: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, clocks(clock) as spent:
        door = Door(0, Ledger(Path(folder) / "ledger.jsonl"), Gaussian(noise), budget)
        run = rounds(method, topo, ENGINES["vector"](data, topo, door), door)
        while len(turns) < WARMUP + repeat and sum(turn["wall"] for turn in turns) < LONG:
            spent.update(dict.fromkeys(spent, 0.0))
            begun = time.process_time(), time.perf_counter()
            next(run)
            turns.append({"cpu": time.process_time() - begun[0], "wall": time.perf_counter() - begun[1], **spent})
    counted = turns[WARMUP:] or turns[-1:]
    found = {name: statistics.median(turn[name] for turn in counted) for name in counted[0]}
    by_stage = {stage: found[stage] for stage in spent}
    return {
        "cpu": found["cpu"],
        "wall": found["wall"],
        "peak_gb": peak_kb() / 2**20,
        "stages": {**by_stage, "rest": found[clock] - sum(by_stage.values())},
    }


def peak_kb() -> int:
    """The most memory of this process; what getrusage says begins with that of the process that started it."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


@contextmanager
def clocks(clock: str) -> Iterator[dict[str, float]]:
    """Seconds by stage, as long as this is open."""
    spent = dict.fromkeys(STAGES[clock], 0.0)
    now = time.thread_time if clock == "cpu" else time.perf_counter

    def timed(stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def run(*arguments: Any, **named: Any) -> Any:
            begun = now()
            try:
                return work(*arguments, **named)
            finally:
                spent[stage] += now() - begun

        return run

    with ExitStack() as stack:
        for stage, places in STAGES[clock].items():
            for owner, name in places:
                stack.enter_context(mock.patch.object(owner, name, timed(stage, getattr(owner, name))))
        yield spent


def apart(net: str, clients: int, records: int, order: Order, repeat: int) -> dict[str, Any]:
    """`measure` in a process of its own, so that its peak of memory is its own."""
    arguments = [str(argument) for argument in (net, clients, records, order, repeat)]
    command = [sys.executable, "-m", "benchmarks.meta_round", "--measure", *arguments]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


# ---- theirs ----------------------------------------------------------------------------------------------------------


def write_problem(path: Path, net: str, clients: int, records: int) -> None:
    """Records, start and parameters for the peers, and what our sums over each client's records are without noise."""
    quick, data = setting(net, clients, records)
    # In double precision: a clip in single precision leaves a few thousandths of itself for rounding.
    task = replace(quick, precise=True)
    counts = {part: data[part][:, None] for part in (QUERY, SUPPORT)}

    def at(model: np.ndarray, part: str) -> Any:
        x, y = data[f"{part}_x"], data[f"{part}_y"]
        return task.at(model, x, y, np.ones(y.shape, dtype=np.bool_))

    w = np.repeat(task.start[None], clients, 0)
    here = at(w, QUERY)
    inner = here.gradient(CLIP)
    outer = at(w - INNER_STEP * inner / counts[QUERY], SUPPORT).gradient(CLIP)
    theta = w - INNER_STEP * here.gradient(None) / counts[QUERY]
    slope = at(theta, SUPPORT).gradient(None) / counts[SUPPORT]
    np.savez(
        path,
        **{name: values for name, values in data.items() if name not in counts},
        sizes=layer_sizes(net),
        start=task.start,
        parameters=[INNER_STEP, OUTER_STEP, CLIP, sampled_multiplier(EPSILON, DELTA, RATE, PLANNED)],
        inner=inner,
        outer=outer,
        meta=slope - INNER_STEP * here.curvature(slope, None) / counts[QUERY],
    )


def against(python: Path, net: str, clients: int, records: int, repeat: int) -> dict[str, float]:
    """CPU seconds of a round of each peer, whose sums are ours."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem.npz"
        write_problem(problem, net, clients, records)
        for path in (*FIRST_ORDER, "autograd"):
            said = peers.answer(python, "opacus_round.py", problem, "--path", path, "--repeat", repeat)
            for name, difference in said["differences"].items():
                if not difference <= AGREED:
                    raise SystemExit(f"{net}, {path}: the {name} sums differ from ours by {difference:.2g} of them")
            found[path] = said["cpu_s"]
    return found


# ---- side by side ----------------------------------------------------------------------------------------------------


def rows(nets: list[str], clients: int, records: int, repeat: int) -> Iterator[dict[str, Any]]:
    """On one core with one thread, and so is all that is started from here."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ.update(THREADS)
    python = peers.environment("opacus", peers.OPACUS)
    for net in nets:
        ours = {order: apart(net, clients, records, order, 4 * repeat) for order in ("first", "second")}
        theirs = {} if python is None else against(python, net, clients, records, repeat)
        for path, peer in FIRST_ORDER.items():
            yield _row(f"{net}, first order", ours["first"], "cpu", peer, theirs.get(path))
        for path, peer in FIRST_ORDER.items():
            yield _row(f"{net}, second order", ours["second"], "cpu", f"{peer}; first order", theirs.get(path))
        peer = "autograd, client by client, no privacy"
        yield _row(f"{net}, second order", ours["second"], "cpu", peer, theirs.get("autograd"))
    for more in (30, 100, 300):
        found = apart(nets[0], more, records, "second", repeat)
        row = _row(f"{nets[0]}, second order, {more} clients", found, "cpu")
        yield row | {"sweep": "clients", "size": more}


def rows_by_wall(nets: list[str], device: str, clients: int, records: int, repeat: int) -> Iterator[dict[str, Any]]:
    """On all cores and on the device; if that is the CPU, there is nothing to compare with."""
    for net in nets:
        for order in ("first", "second"):
            found = {}
            for place in dict.fromkeys(("cpu", device)):
                task, data = setting(net, clients, records, place)
                found[place] = measure(task, data, order, repeat, "wall")
            case = f"{net} 3x32x32" if net == "cnn" else net
            case = f"{case}, {order} order, {clients} clients x {records}, {device}"
            cores = f"{len(os.sched_getaffinity(0))} cores"
            if device == "cpu":
                yield _row(f"{case}, {cores}", found[device], "wall")
            else:
                yield _row(case, found[device], "wall", f"ours on {cores}", found["cpu"]["wall"])


def _row(
    case: str, ours: dict[str, Any], clock: str, peer: str | None = None, theirs: float | None = None
) -> dict[str, Any]:
    return {
        "case": case,
        "ours": 1e3 * ours[clock],
        "wall": 1e3 * ours["wall"],
        "peak_gb": ours["peak_gb"],
        "stages": {stage: 1e3 * seconds for stage, seconds in ours["stages"].items()},
        "peer": peer,
        "theirs": None if theirs is None else 1e3 * theirs,
        "ratio": None if theirs is None else theirs / ours[clock],
        "unit": "ms CPU a round" if clock == "cpu" else "ms a round",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of a full round of private meta-learning.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--net", nargs="+", help=f"sizes of dense layers ({', '.join(NETS)}), or cnn (if cuda)")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--records", type=int, default=600, help="of a client")
    parser.add_argument("--repeat", type=int, default=5, help="rounds timed; four times as many of ours")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        net, clients, records, order, repeat = options.measure
        torch.set_num_threads(1)
        print(json.dumps(measure(*setting(net, int(clients), int(records)), order, int(repeat), "cpu")))
        return
    nets = options.net or (["cnn"] if options.device == "cuda" else list(NETS))
    size = options.clients, options.records, options.repeat
    by_wall = options.device == "cuda" or "cnn" in nets
    found = rows_by_wall(nets, options.device, *size) if by_wall else rows(nets, *size)
    if options.json:
        print(json.dumps({"rows": list(found)}))
        return
    last = None
    for row in found:
        if row["stages"] != last:
            spent = ", ".join(f"{stage} {spent:.1f}" for stage, spent in row["stages"].items())
            print(f"{row['case']}: {row['ours']:.1f} {row['unit']}, {row['peak_gb']:.2f} GB; by stage: {spent}")
        if row["ratio"] is not None:
            print(f"    {row['peer']}: {row['theirs']:.1f}, {row['ratio']:.1f} times", flush=True)
        last = row["stages"]


if __name__ == "__main__":
    main()
