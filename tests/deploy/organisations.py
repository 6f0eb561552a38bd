"""A deployment with real processes on this machine: a server and organisations in their own folders, killed and
restarted."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from silograph.deploy.deployment import Terms, deploy
from silograph.deploy.organisation import enrol
from silograph.privacy.ledger import Ledger
from silograph.report.deployment import page
from silograph.run.plan import load
from silograph.run.run import execute

COMMAND = (sys.executable, "-c", "from silograph.cli import main; main()")
QUIET = {"OMP_NUM_THREADS": "1"}
TERMINATED = 143  # exit code after SIGTERM
LIMIT = 240.0  # seconds: whatever takes longer hangs


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@dataclass
class Organisations:
    """`prefix` goes before every command, such as a namespace without a network."""

    folder: Path
    plan: Path  # its tables lie beside it
    options: dict = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    running: dict[str, subprocess.Popen] = field(default_factory=dict)
    more: dict[str, list[str]] = field(default_factory=dict)  # options of a command, by who types it

    def __post_init__(self) -> None:
        terms = Terms(f"127.0.0.1:{free_port()}", **{"minimum": 2, "deadline": 60.0, "patience": 120.0} | self.options)
        self.goal, self.out = self.folder / "deployment", self.folder / "out"
        self.deployment = deploy(load(self.plan), self.plan.parent, self.goal, terms, page)
        self.organisations = list(self.deployment.facts.organisations)
        for organisation in self.organisations:
            card = enrol(self.goal / organisation, self.plan.parent / f"{organisation}.csv").card
            (self.goal / "server" / "nodes" / card.name).write_bytes(card.read_bytes())

    def command(self, name: str) -> list[str]:
        if name == "server":
            return [*COMMAND, "serve", str(self.goal / "server"), "-o", str(self.out), *self.more.get(name, [])]
        return [*COMMAND, "join", str(self.goal / name), *self.more.get(name, [])]

    def start(self, name: str, before: Callable[[], None] | None = None) -> None:
        log = open(self.folder / f"{name}.log", "ab")  # noqa: SIM115 (the process has it)
        self.running[name] = subprocess.Popen(
            [*self.prefix, *self.command(name)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIET},
            preexec_fn=before,
        )
        log.close()

    def kill(self, name: str) -> None:
        process = self.running[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_nats(self) -> None:
        """The server's nats-server, found by its configuration."""
        self._kill_nats(self.goal / "server" / "nats.conf")

    def _kill_nats(self, configuration: Path) -> None:
        where = str(configuration).encode()
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = entry.read_bytes().split(b"\0")
                if words[0].endswith(b"nats-server") and where in words:
                    os.kill(int(entry.parent.name), signal.SIGKILL)

    def log(self, name: str) -> str:
        """What a process has said so far; nothing if it has only just begun."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, name: str, text: str) -> None:
        """Until it is in that log."""
        end = time.monotonic() + LIMIT
        while not re.search(text, self.log(name)):
            assert time.monotonic() < end, self.log(name)[-3000:]
            time.sleep(0.05)

    def run(self, disturb: Callable[[float], None] = lambda seconds: None) -> None:
        """From the start to the end."""
        for name in ("server", *self.organisations):
            self.start(name)
        self.run_on(disturb)

    def run_on(self, disturb: Callable[[float], None] = lambda seconds: None) -> None:
        """Until all have ended well; whoever was killed is started again, as a supervisor would. Never for ever."""
        begun = time.monotonic()
        while any(process.poll() != 0 for process in self.running.values()):
            now = time.monotonic() - begun
            if now > LIMIT:
                raise TimeoutError("\n".join(f"--- {name}\n{self.log(name)[-2000:]}" for name in self.running))
            for name, process in list(self.running.items()):
                if process.poll() in (-signal.SIGKILL, TERMINATED):
                    self.start(name)
                elif process.poll() not in (None, 0):
                    raise AssertionError(f"{name} ended with {process.poll()}:\n{self.log(name)[-3000:]}")
            disturb(now)
            time.sleep(0.02)

    def close(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    # ---- what came of it ----

    def in_one_process(self) -> Path:
        """The folder of the same run, beside the tables; it is made once."""
        expected = self.plan.parent / "expected"
        if not expected.exists():
            execute(self.deployment.plan, self.plan.parent, expected, lambda number, line: None, lambda folder: "")
        return expected

    def check_same_as_in_one_process(self) -> None:
        """Result and ledgers, byte for byte; every organisation's own ledger has its rows, once."""
        expected = self.in_one_process()
        for path in expected.rglob("*"):
            if path.is_file() and path.name not in ("plan.toml", "report.html", "result.json"):
                assert (self.out / path.relative_to(expected)).read_bytes() == path.read_bytes(), path.name
        rows = Ledger(expected / "ledger.jsonl").rows
        for organisation, silos in self.deployment.facts.organisations.items():
            own = Ledger(self.goal / organisation / "ledger.jsonl").rows
            assert len({row.place for row in own}) == len(own)
            assert [row for row in own if row in rows] == [row for row in rows if row.silo in silos]
