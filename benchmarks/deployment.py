"""A round of a deployment on one machine, over TLS, as organisations send it: python -m benchmarks.deployment [--json]

Every organisation is a process of its own that answers with the numbers it was asked with, and signs them: what is
timed is the transport alone, from the first question to the last checked answer. The median of many rounds, on
loopback; all processes share this machine's cores.

The peer is silograph's former transport on private parts of Flower 1.41, which is gone: its figures are constants,
measured once with the same work on the machine this was written on (two shared cores, Python 3.11, load average 3 to
5, 16 November 2026, 40 rounds of 1,000 numbers and 6 rounds of 1,000,000), so a ratio is true there alone. Turn by turn
on that machine at a load of 12 to 13, three times 40 rounds: 331, 346 and 157 ms against 25, 3.5 and 14 ms.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from silograph.data.synthetic import write_sample_sites
from silograph.deploy.deployment import Terms, deploy
from silograph.deploy.organisation import enrol
from silograph.engines.broker import Broker, Secured, write_configuration
from silograph.engines.certificates import (
    CA,
    NODE_KEY,
    NODE_PUBLIC,
    SERVER,
    SERVER_KEY,
    SERVER_NAME,
    TLS,
    certify_node,
    client_tls,
    make_authority,
    make_node_key,
    node_name,
    read_public,
)
from silograph.engines.transport import Answerer, Asker
from silograph.engines.wire import pack
from silograph.run.plan import load

HERE, DEPLOYMENT, WARMING = "127.0.0.1", "d" * 64, 3
#: Seconds a round of the former link: by organisations and numbers.
FORMER = {(5, 1_000): 0.154, (5, 1_000_000): 2.02}


def answer(address: str, folder: Path) -> None:
    """An organisation that echoes until the server is gone."""
    ca = folder.parent / CA
    with Answerer(address, client_tls(ca, folder), DEPLOYMENT, folder.name, folder / NODE_KEY, ca) as line:
        line.serve(lambda question: question, lambda: os.getppid() == 1, 60.0, lambda text: None)


def measure(organisations: int, numbers: int, rounds: int) -> dict[str, float]:
    """Median seconds of a round, and the mean CPU seconds that the server's process took for it."""
    names = [f"organisation{k}" for k in range(organisations)]
    with tempfile.TemporaryDirectory() as made, socket.socket() as probe:
        base = Path(made)
        probe.bind((HERE, 0))
        port = probe.getsockname()[1]
        probe.close()
        make_authority(base, [HERE], 2)
        make_node_key(base)
        certify_node(base, SERVER_NAME)
        for name in names:
            make_node_key(base / name)
            certify_node(base / name, node_name(name))
        clients = b"".join((folder / TLS).read_bytes() for folder in (base, *(base / name for name in names)))
        secured = Secured(base / SERVER, base / SERVER_KEY, clients)
        configuration = write_configuration(base, HERE, port, DEPLOYMENT, dict.fromkeys(names), secured)
        keys = {name: read_public(base / name / NODE_PUBLIC) for name in names}
        with Broker(configuration, HERE, port):
            command = [sys.executable, "-m", "benchmarks.deployment", "--answer", f"{HERE}:{port}"]
            children = [subprocess.Popen([*command, str(base / name)]) for name in names]
            try:
                with Asker(f"{HERE}:{port}", client_tls(base / CA, base), DEPLOYMENT, keys, HERE) as line:
                    return _timed(line, names, numbers, rounds)
            finally:
                for child in children:
                    child.kill()
                    child.wait()


def _timed(line: Asker, names: list[str], numbers: int, rounds: int) -> dict[str, float]:
    values = np.random.default_rng(0).normal(size=(1, numbers))
    wall = []
    for number in range(rounds + WARMING):
        if number == WARMING:
            before = resource.getrusage(resource.RUSAGE_SELF)
        question = pack({"round": number}, {"values": values})
        begun = time.perf_counter()
        answers = line.ask(dict.fromkeys(names, question), 300.0)
        wall.append(time.perf_counter() - begun)
        if answers.replies != dict.fromkeys(names, question):
            raise RuntimeError("an answer is missing or wrong")
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / rounds
    return {"wall": statistics.median(wall[WARMING:]), "cpu": cpu}


def rows() -> Iterator[dict[str, Any]]:
    for organisations, numbers, rounds in (
        (5, 1_000, 100),
        (20, 1_000, 30),
        (100, 1_000, 10),
        (5, 1_000_000, 8),
        (2, 11_250_000, 3),
    ):
        found, former = measure(organisations, numbers, rounds), FORMER.get((organisations, numbers))
        yield {
            "case": f"{organisations} organisations, {numbers} numbers each way",
            "ours": 1e3 * found["wall"],
            "cpu": 1e3 * found["cpu"],
            "peer": None if former is None else "former link, as measured once",
            "theirs": None if former is None else 1e3 * former,
            "ratio": None if former is None else former / found["wall"],
            "unit": "ms a round",
        }


def memory() -> Iterator[dict[str, Any]]:
    """The most that a process of `silograph join` has, in a small private run of five organisations."""
    with tempfile.TemporaryDirectory() as made, socket.socket() as probe:
        probe.bind((HERE, 0))
        base, address = Path(made), f"{HERE}:{probe.getsockname()[1]}"
        probe.close()
        sites = [path.name for path in write_sample_sites(base, rows=(300,) * 5, nodes=8)]
        plan = f"format = 1\n[data]\nfiles = {json.dumps(sites)}\nscale = 'none'\n[method]\nname = 'consensus_graph'\n"
        (base / "plan.toml").write_text(plan + "[privacy]\nepsilon = 2.0\ndelta = 1e-6\n")
        terms = Terms(address, deadline=60.0, patience=120.0)
        names = list(deploy(load(base / "plan.toml"), base, base / "to", terms, lambda *_: "").facts.organisations)
        for name in names:
            card = enrol(base / "to" / name, base / f"{name}.csv").card
            (base / "to" / "server" / "nodes" / card.name).write_bytes(card.read_bytes())
        words = [sys.executable, "-c", "from silograph.cli import main; main()"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen([*words, "serve", str(base / "to" / "server"), "-o", str(base / "out")], **quiet)
        joined = [subprocess.Popen([*words, "join", str(base / "to" / name)], **quiet) for name in names]
        most = {"VmHWM": 0, "Pss": 0}
        while any(process.poll() is None for process in (server, *joined)):
            for process, (key, file) in itertools.product(joined, (("VmHWM", "status"), ("Pss", "smaps_rollup"))):
                most[key] = max(most[key], _kilobytes(process.pid, key, file))
            time.sleep(0.05)
        if server.returncode or any(process.returncode for process in joined):
            raise RuntimeError("a process did not end well")
    for key, what in (("VmHWM", "resident, at most"), ("Pss", "its own share of it (PSS)")):
        case = f"memory of an organisation's process, {what}"
        yield {"case": case, "ours": most[key] / 1e3, "peer": None, "theirs": None, "ratio": None, "unit": "MB"}


def _kilobytes(process: int, key: str, file: str) -> int:
    try:
        lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return max((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of a round of a deployment.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--answer", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer(options.answer[0], Path(options.answer[1]))
    elif options.json:
        print(json.dumps({"rows": [*rows(), *memory()]}))
    else:
        for row in itertools.chain(rows(), memory()):
            against = "" if row["ratio"] is None else f"; {row['peer']}: {row['theirs']:.0f}, {row['ratio']:.1f} times"
            print(f"{row['case']}: {row['ours']:.1f} {row['unit']}{against}", flush=True)


if __name__ == "__main__":
    main()
