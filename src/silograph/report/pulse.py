"""How a server or an organisation is at this moment, for whoever looks after it: `/health` and Prometheus' `/metrics`.

Nothing here comes from a record: rounds, bytes, names of organisations and silos, what the ledger says was spent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from silograph.core.types import Json

if TYPE_CHECKING:
    from silograph.report.watch import Spent  # it loads the accountants

State = Literal["waiting", "under way", "over"]


@dataclass(frozen=True)
class Pulse:
    """`healthy`: there is a connection. `waiting` are organisations that were asked and have not answered yet, of all
    that take part (`connected` says whether each is there). `expiry` is when certificates end, in seconds since 1970.
    """

    name: str
    deployment: str
    healthy: bool
    state: State
    rounds: int = 0
    seconds: float | None = None
    asked: int | None = None
    answered: int | None = None
    down: int = 0
    up: int = 0
    refusals: int = 0
    waiting: frozenset[str] = frozenset()
    connected: Mapping[str, bool] = field(default_factory=dict)
    spent: tuple[Spent, ...] = ()
    budget: float | None = None
    expiry: Mapping[str, float] = field(default_factory=dict)

    @property
    def left(self) -> float | None:
        """What the silo that spent most may still spend, against all it does not trust; None without a budget."""
        if self.budget is None:
            return None
        return max(0.0, self.budget - max(map(_counted, self.spent), default=0.0))

    def health(self) -> Json:
        return {
            "name": self.name,
            "deployment": self.deployment,
            "healthy": self.healthy,
            "state": self.state,
            "rounds": self.rounds,
            "waiting": sorted(self.waiting),
            "epsilon_left": self.left,
        }

    def metrics(self) -> str:
        """In Prometheus' text format."""
        return "\n".join(line for each in self._metrics() for line in each) + "\n"

    def _metrics(self) -> Iterator[Iterator[str]]:
        yield _metric("info", "gauge", "Who this is.", [({"name": self.name, "deployment": self.deployment}, 1)])
        yield _metric("healthy", "gauge", "Whether there is a connection.", [({}, self.healthy)])
        yield _metric("over", "gauge", "Whether the run is over.", [({}, self.state == "over")])
        yield _metric("rounds_total", "counter", "Rounds that are done.", [({}, self.rounds)])
        if self.seconds is not None:
            yield _metric("round_seconds", "gauge", "How long the last round took.", [({}, self.seconds)])
        if self.asked is not None and self.answered is not None:
            yield _metric("asked", "gauge", "Silos asked in the last round.", [({}, self.asked)])
            yield _metric("answered", "gauge", "Silos that answered in the last round.", [({}, self.answered)])
        sizes = [({"direction": "down"}, self.down), ({"direction": "up"}, self.up)]
        yield _metric("bytes_total", "counter", "Bytes of questions (down) and answers (up).", sizes)
        yield _metric("refusals_total", "counter", "Questions that were refused.", [({}, self.refusals)])
        if self.connected:
            there = [({"organisation": name}, here) for name, here in self.connected.items()]
            yield _metric("connected", "gauge", "Whether an organisation is there.", there)
            awaited = [({"organisation": name}, name in self.waiting) for name in self.connected]
            yield _metric("waiting", "gauge", "Whether an organisation's answer is waited for.", awaited)
        if self.spent:
            rows = [({"silo": row.silo}, row.releases) for row in self.spent]
            yield _metric("releases_total", "counter", "Rows of a silo's ledger.", rows)
            costs = [({"silo": row.silo}, _counted(row)) for row in self.spent]
            yield _metric("epsilon_spent", "gauge", "What a silo has spent against all it does not trust.", costs)
        if self.budget is not None and self.left is not None:
            yield _metric("epsilon_budget", "gauge", "What a silo may spend in all.", [({}, self.budget)])
            yield _metric("epsilon_left", "gauge", "What the silo that spent most has left.", [({}, self.left)])
        if self.expiry:
            ends = [({"certificate": name}, at) for name, at in self.expiry.items()]
            yield _metric("certificate_expiry_seconds", "gauge", "When a certificate ends, since 1970.", ends)


def _counted(row: Spent) -> float:
    """What counts against a budget: where the own server is trusted, what others see."""
    return row.against_others if math.isinf(row.epsilon) else row.epsilon


def _metric(name: str, kind: str, what: str, samples: Iterable[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# HELP silograph_{name} {what}"
    yield f"# TYPE silograph_{name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        number = "+Inf" if math.isinf(value) else repr(float(value))
        yield f"silograph_{name}{{{inside}}} {number}" if inside else f"silograph_{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
