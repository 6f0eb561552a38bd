"""What a method is, and the one round all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from silograph.core.errors import LeakError
from silograph.core.types import Array, Carry, Json
from silograph.privacy.bound import Bounded
from silograph.privacy.gate import Message, Released, relay
from silograph.topology import Topology

#: A silo's private data as its task prepared it; axis 0 is "which silo".
Private = dict[str, Array]


class Outlet(Protocol):
    """What a method may do at a border; `privacy.gate.Gate` does it."""

    def rows(self, index: Sequence[int]) -> Outlet: ...

    def release(self, bounded: Bounded, site: str) -> Released: ...

    def reveal(self, value: Array, site: str, why: str) -> Released: ...


@dataclass(frozen=True)
class Up:
    """What the present silos sent: row k of every value is from silo `rows[k]` of the topology."""

    rows: Sequence[int]
    values: dict[str, Array]


@dataclass(frozen=True)
class Start:
    """Silo carry, server carry, and the first message down."""

    carry: Carry
    servers: Carry
    down: dict[str, Array]


@dataclass(frozen=True)
class Outcome:
    """What a finished run knows: arrays by name (axis 0: silos, where it applies) and plain facts."""

    arrays: dict[str, Array]
    facts: Json


class Method(Protocol):
    """One paper: a frozen dataclass of its parameters and these hooks. The loop is not here; nothing here sends."""

    def start(self, topo: Topology) -> Start:
        """The state before the first round."""
        ...

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Message]:
        """In the silo. Axis 0 is the silos in this call: all of them, or one."""
        ...

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: Outlet) -> tuple[Carry, dict[str, Array]]:
        """At each server: take in what the silos sent; returns what goes to the neighbouring servers."""
        ...

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        """At each server: combine with the neighbours; returns the answer to the silos."""
        ...

    def done(self, servers: Carry) -> bool: ...

    def trace(self, servers: Carry) -> Json | None:
        """The line this round adds to the trace, from what the server knows; None where there is none yet."""
        ...

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        """In the silo, once, at the end: what it hands over as its result."""
        ...

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome: ...


@dataclass(frozen=True)
class State:
    """Everything a run needs to go on from here."""

    round: int
    carry: Carry
    servers: Carry
    down: Message


def begin(method: Method, topo: Topology) -> State:
    start = method.start(topo)
    return State(0, start.carry, start.servers, _relayed(start.down))


def advance(
    method: Method,
    state: State,
    topo: Topology,
    gate: Outlet,
    run_local: Callable[[State], tuple[Carry, Message, Sequence[int]]],
) -> State:
    """One round: local -> gate -> gather -> gate -> exchange over the server graph -> settle -> back down.

    `run_local` is the engine: it may only return once the ledger rows of its messages are on disk.
    """
    carry, sent, rows = run_local(state)
    if not rows:  # nobody came: the round passes and nothing changes
        return State(state.round + 1, state.carry, state.servers, state.down)
    up = Up(rows, {name: released.value for name, released in sent.items()})
    servers, across = method.gather(state.servers, up, topo, gate)
    # A star has one server: what goes across comes back to it.
    servers, down = method.settle(servers, across, topo)
    return State(state.round + 1, carry, servers, _relayed(down))


def _relayed(down: dict[str, Array]) -> Message:
    return {name: relay(value) for name, value in down.items()}


def take(carry: Carry, rows: Sequence[int]) -> Carry:
    """The rows of some silos."""
    return {name: value.rows(rows) if isinstance(value, Released) else value[rows] for name, value in carry.items()}


def put(carry: Carry, rows: Sequence[int], fresh: Carry) -> Carry:
    """The carry with the rows of some silos replaced: absent silos keep theirs."""

    def replaced(name: str) -> Any:
        old, new = carry[name], fresh[name]
        if isinstance(old, Released) and isinstance(new, Released):
            out = np.array(old.value)
            out[rows] = new.value
            return relay(out)
        if isinstance(old, Released) or isinstance(new, Released):
            raise LeakError(f"carry field {name!r}", "released rows beside released rows", "private ones are mixed in")
        out = np.array(old)
        out[rows] = new
        return out

    return {name: replaced(name) for name in carry}


def everywhere(value: Array, topo: Topology) -> Array:
    """The same message to every silo."""
    return np.broadcast_to(value, (len(topo.silos), *np.shape(value)))
