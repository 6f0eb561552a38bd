"""`--monitor PORT` of `serve` and `join`: how they are, at a port of this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silograph.cli.attendance import Seen
from silograph.core.errors import InputError
from silograph.core.results import FILE
from silograph.core.toml import parse_toml
from silograph.report.local_page import JSON, METRICS, LocalPages
from silograph.report.pulse import Pulse

if TYPE_CHECKING:
    from silograph.deploy.organisation import Approved
    from silograph.engines.neighbours import Neighbours
    from silograph.engines.transport import Answerer, Asker

Port = Annotated[int | None, typer.Option("--monitor", help="Port of this machine for /health and /metrics.")]


@contextlib.contextmanager
def monitored(port: int | None, pulse: Callable[[], Pulse], tell: Callable[[str], None]) -> Iterator[None]:
    """Answer at `port` of this machine; None: nowhere."""
    if port is None:
        yield
        return

    def health() -> tuple[int, str, str]:
        now = pulse()
        return 200 if now.healthy else 503, JSON, json.dumps(now.health()) + "\n"

    with LocalPages(port, {"/health": health, "/metrics": lambda: (200, METRICS, pulse().metrics())}) as pages:
        tell(f"How this is: http://127.0.0.1:{pages.port}/health and /metrics")
        yield


def expiry_in(folder: Path) -> dict[str, float]:
    """When the certificates in a folder end."""
    from silograph.engines.certificates import ends_in

    return {name: at.timestamp() for name, at in ends_in(folder).items()}


@dataclass
class ServerMonitor:
    """Of a server that writes to `out`; `line` is its connection, once there is one."""

    folder: Path
    out: Path
    deployment: str = ""
    line: Asker | None = None
    organisations: tuple[str, ...] = ()
    neighbours: Neighbours | None = None

    def seen(self) -> Seen:
        """Organisations and neighbours: who is connected now, and whom the server waits for."""
        names, present, waiting = set(self.organisations), set[str](), set[str]()
        if self.line is not None:
            present, waiting = self.line.present(), set(self.line.waiting())
        if self.neighbours is not None:
            names |= set(self.neighbours.names)
            present, waiting = present | self.neighbours.present(), waiting | self.neighbours.waiting()
        folders = (self.out, self.out.parent / f".{self.out.name}.unfinished")
        return Seen(names, present, waiting, any((folder / FILE).is_file() for folder in folders))

    def pulse(self) -> Pulse:
        from silograph.report.watch import state_of

        healthy = self.line is not None and self.line.online.is_set()
        waiting = frozenset() if self.line is None else self.line.waiting()
        here = set() if self.line is None else self.line.present()
        now = Pulse(
            "server",
            self.deployment,
            healthy,
            "waiting",
            waiting=waiting,
            connected={name: name in here for name in self.organisations},
            expiry=expiry_in(self.folder),
        )
        try:
            seen = state_of(self.out)
        except InputError:
            return now
        lines, last = seen.rounds, seen.rounds[-1] if seen.rounds else {}
        return replace(
            now,
            state="over" if seen.state == "finished" else "under way" if lines else "waiting",
            rounds=len(lines),
            seconds=last.get("seconds"),
            asked=last.get("asked"),
            answered=last.get("answered"),
            down=sum(line.get("bytes", {}).get("down", 0) for line in lines),
            up=sum(line.get("bytes", {}).get("up", 0) for line in lines),
            refusals=sum(len(line.get("refused", {})) for line in lines),
            spent=seen.spent,
            budget=None if seen.budget is None else seen.budget["epsilon"],
        )


@dataclass
class OrganisationMonitor:
    """Of an organisation that answers with `answer`; `line` is its connection, once there is one."""

    organisation: Approved
    answer: Callable[[bytes], bytes]
    line: Answerer | None = None
    rounds: int = 0
    asked: int = 0
    refusals: int = 0
    down: int = 0
    up: int = 0

    def __call__(self, question: bytes) -> bytes:
        self.asked, self.down = self.asked + 1, self.down + len(question)
        try:
            reply = self.answer(question)
        except BaseException:
            self.refusals += 1
            raise
        self.up += len(reply)
        return reply

    def pulse(self) -> Pulse:
        from silograph.report.watch import budget_of, spent_in

        folder, deployment = self.organisation.folder, self.organisation.deployment
        budget = budget_of(parse_toml(deployment.plan_text, "deployment, plan"))
        spent = () if budget is None else tuple(spent_in(folder, budget["delta"]))
        return Pulse(
            self.organisation.organisation,
            deployment.digest,
            self.line is not None and self.line.online.is_set(),
            "under way" if self.asked else "waiting",
            self.rounds,
            down=self.down,
            up=self.up,
            refusals=self.refusals,
            spent=spent,
            budget=None if budget is None else budget["epsilon"],
            expiry=expiry_in(folder),
        )
