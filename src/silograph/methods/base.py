"""What a method is, and the one round all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import LeakError
from silograph.core.types import Array, Carry, Json
from silograph.privacy.bound import Bounded
from silograph.privacy.flooding import Joined
from silograph.privacy.relay import OpenGate, relay
from silograph.privacy.released import Batch, Message, Released, Sealed, Sent, Total, check_message
from silograph.topology import Topology

#: Which silos or servers, by their place in the topology.
Rows = NDArray[np.intp]

#: A silo's private data as its task prepared it; axis 0 is "which silo".
Private = dict[str, Array]


class Outlet(Protocol):
    """What a method may do at a silo's border; implemented by `privacy.gate.Gate`.

    >>> from silograph.privacy.bound import Bounded
    >>> from silograph.privacy.door import Door
    >>> from silograph.privacy.ledger import Ledger
    >>> from silograph.privacy.mechanisms import Gaussian
    >>> gate: Outlet = Door(0, Ledger(), Gaussian(0.1)).gate(["north"], 0, "own server")
    >>> gate.release(Bounded(np.array([[1.0]]), np.array([0.5]), "one record", "an example"), "mean").value.shape
    (1, 1)
    """

    def rows(self, index: Sequence[int] | Rows) -> Outlet: ...

    def poisson(self, counts: Array, rate: float, release_point: str, part: str) -> Batch: ...

    def release(
        self, bounded: Bounded, release_point: str, batch: Batch | None = None, share: float = 1.0
    ) -> Released: ...

    def reveal(self, value: Array, release_point: str, why: str) -> Released: ...

    def contribute(
        self,
        value: Array | Bounded,
        release_point: str,
        clip: float | None = None,
        share: float = 1.0,
        joined: bool = False,
    ) -> Sealed: ...

    def uniforms(self, count: int, release_point: str) -> Array: ...


class ServerOutlet(Outlet, Protocol):
    """What it may also do at a server's border, where there are no records.

    >>> from silograph.privacy.relay import OpenGate
    >>> gate: ServerOutlet = OpenGate()
    >>> gate.relay(np.array([1.0, 2.0])).value
    array([1., 2.])
    """

    def rows(self, index: Sequence[int] | Rows) -> ServerOutlet: ...

    def over(self, names: Sequence[str]) -> ServerOutlet: ...

    def total(
        self,
        sealed: Sealed,
        rows: Rows,
        home: Rows,
        names: Sequence[str],
        joined: Joined | None = None,
    ) -> Total: ...

    def relay(self, value: Array) -> Released: ...

    def sync(self) -> None: ...


@dataclass(frozen=True)
class Up:
    """Messages of the silos that answered: row k of every value is from silo `rows[k]` of the topology.

    `sealed` are contributions to sums, which only the gate can open.

    >>> up = Up(np.array([0, 2]), {"update": np.array([[1.0], [3.0]])})  # silo 1 did not answer
    >>> up.values["update"].mean(0)
    array([2.])
    """

    rows: Rows
    values: dict[str, Array]
    sealed: dict[str, Sealed] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """Silo carry, server carry, and the first message down. `public` is silo carry too, as released values.

    >>> start = Start({"own": np.zeros((2, 1))}, {"round": np.zeros(1)}, {"model": np.zeros((2, 3))})  # of two silos
    >>> start.carry["own"].shape, start.down["model"].shape
    ((2, 1), (2, 3))
    """

    carry: Carry
    servers: Carry
    down: dict[str, Array]
    public: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The result of a finished run: arrays by name (axis 0: silos, if it applies) and plain facts.

    >>> outcome = Outcome({"model": np.array([2.0])}, {"rounds": 5})
    >>> outcome.arrays["model"], outcome.facts["rounds"]
    (array([2.]), 5)
    """

    arrays: dict[str, Array]
    facts: Json


@dataclass(frozen=True, eq=False)
class Limits:
    """The numbers that an honest server can send down in one field: from `low` to `high`, or only whole ones of them.

    A bound is one number, or an array for the values sent to one silo. Silos of other organisations check only this
    before they read their records.
    """

    low: float | Array
    high: float | Array
    whole: bool = False

    def hold(self, value: Array) -> bool:
        inside = bool(((value >= self.low) & (value <= self.high)).all())  # what is no number is not inside
        return inside and not (self.whole and bool((value != np.rint(value)).any()))


#: No run whose numbers mean anything gets here, and squares of such numbers do not overflow.
LARGEST = 1e100
ANYTHING, SWITCH = Limits(-LARGEST, LARGEST), Limits(0.0, 1.0, whole=True)


class Method(Protocol):
    """One paper: a frozen dataclass of its parameters and these hooks. The loop is not here; nothing here sends.

    >>> class Mean:
    ...     def start(self, topo): return Start({}, {}, {})
    ...     def limits(self): return {}
    ...     def asked(self, servers, topo): return None
    ...     def local(self, carry, down, data, gate):
    ...         return carry, {"number": gate.reveal(data["number"], "number", "an example without privacy")}
    ...     def gather(self, servers, up, topo, gate): return {"mean": up.values["number"].mean()}, {}
    ...     def settle(self, servers, across, topo): return servers, {}
    ...     def done(self, servers): return "mean" in servers
    ...     def trace(self, servers): return None
    ...     def deliver(self, carry, data, gate): return {}
    ...     def outcome(self, servers, delivered, topo): return Outcome({"mean": servers["mean"]}, {})
    >>> from silograph.run.loop import simulate
    >>> class Number:
    ...     def prepare(self, signals): return {"number": np.asarray(signals)}
    >>> outcome, door = simulate(Mean(), Number(), {"north": 1.0, "south": 3.0})
    >>> float(outcome.arrays["mean"]), [(row.silo, row.release_point) for row in door.ledger.rows]
    (2.0, [('north', 'number'), ('south', 'number')])
    """

    def start(self, topo: Topology) -> Start:
        """Make the state before the first round, for the silos and servers of `topo`."""
        ...

    def limits(self) -> dict[str, Limits]:
        """Limits of what an honest server sends down, field by field. Within them `local` cannot fail on any data."""
        ...

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        """Run in the silo: from what it kept (`carry`) and the message `down`, with its `data`, make the next of both.

        What it sends passes `gate`. Axis 0 is the silos in this call: all of them, or one.
        """
        ...

    def asked(self, servers: Carry, topo: Topology) -> Rows | None:
        """Choose the silos of this round from what the `servers` keep, by their places in `topo`; None means all."""
        ...

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        """Run at each server: take `up`, what the silos sent, into what the `servers` keep.

        It returns that and what goes to the neighbouring servers of `topo`, through `gate`.
        """
        ...

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        """Run at each server: combine what the `servers` keep with what came `across` from the neighbours.

        `across` has a row for each of `topo.heard`. It returns what the servers keep, and the answer to the silos.
        """
        ...

    def done(self, servers: Carry) -> bool:
        """Return whether the run is over, from what the `servers` keep."""
        ...

    def trace(self, servers: Carry) -> Json | None:
        """Return the line that this round adds to the trace, from what the `servers` keep, or None."""
        ...

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        """Run in the silo, once, at the end: return what it hands over as its result.

        It comes from what the silo kept (`carry`) and its `data`, and passes `gate`.
        """
        ...

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Return the result, from what the `servers` keep and what the silos of `topo` `delivered`."""
        ...


@runtime_checkable
class StandsIn(Protocol):
    """A method that can end although a silo is gone when results are handed over."""

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Return what replaces a silo's result, field by field, with a row for each silo."""
        ...


@runtime_checkable
class GoesOn(Protocol):
    """A method that lets its servers continue with other silos than before."""

    def taken_over(self, servers: Carry, topo: Topology) -> Start:
        """Return the state after the last round, with what these servers knew then, for the present silos."""
        ...


#: Of what goes across, the field with a part for each server: axis 1 is to whom, in the order of the whole graph, and
#: nobody else gets that part. It arrives with axis 0 for who got it and axis 1 for who is heard.
EACH = "each"

#: The field that is for all servers of the graph, neighbours or not. It arrives with a row for each of them.
ALL = "all"


@dataclass(frozen=True, eq=False)
class Half:
    """A round between `gather` and `settle`: what silos and servers keep, and what the servers send to each other."""

    carry: Carry
    servers: Carry
    sent: dict[str, Array]


class Across(Protocol):
    """How the messages of servers get across, and what a kill must not undo before they have."""

    def held(self, round: int) -> Half | None:
        """Return what was held of this round before a kill: then neither `local` nor `gather` runs again."""
        ...

    def hold(self, round: int, half: Half) -> None:
        """Write it to disk with its waiting ledger rows before anybody can get what is sent."""
        ...

    def exchange(self, round: int, half: Half) -> dict[str, Array]:
        """Send our row and get theirs: a row for each server that is heard."""
        ...


class Here:
    """All servers are in this process, and nothing outlives it."""

    def held(self, round: int) -> Half | None:
        return None

    def hold(self, round: int, half: Half) -> None:
        """There is nothing to lose."""

    def exchange(self, round: int, half: Half) -> dict[str, Array]:
        return {name: value.swapaxes(0, 1) if name == EACH else value for name, value in half.sent.items()}


class Plain:
    """Default hooks: ask all silos in every round, keep no trace, hand nothing over at the end."""

    def asked(self, servers: Carry, topo: Topology) -> Rows | None:
        return None

    def trace(self, servers: Carry) -> Json | None:
        return None

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        return {}


@dataclass(frozen=True)
class State:
    """Everything that a run needs to continue from here.

    >>> state = State(round=3, carry={}, servers={"model": np.array([2.0])}, down={})
    >>> state.round, state.servers["model"]
    (3, array([2.]))
    """

    round: int
    carry: Carry
    servers: Carry
    down: Message


def begin(method: Method, topo: Topology) -> State:
    """Return the state before the first round.

    `topo` says which silos and servers `method` will run over.

    >>> from silograph.methods.graph_federation import GraphFederation
    >>> from silograph.tasks.linear import Linear
    >>> from silograph.topology import star
    >>> method, topo = GraphFederation(Linear(2, most=50), step=0.5, rounds=10), star(["north", "south"])
    >>> state = begin(method, topo)
    >>> state.round, state.down["model"].value  # a row for each silo
    (0, array([[0., 0.],
           [0., 0.]]))
    """
    start = method.start(topo)
    return State(0, {**relayed(start.public), **start.carry}, start.servers, relayed(start.down))


def advance(
    method: Method,
    state: State,
    topo: Topology,
    gate: ServerOutlet,
    run_local: Callable[[State], tuple[Carry, Sent, Rows]],
    across: Across | None = None,
) -> State:
    """Play one round: local -> gate -> gather -> gate -> exchange over the server graph -> settle -> back down.

    `run_local` is the engine: it returns only after the ledger rows of its messages are on disk. The round is the same
    for a star, for all servers of a graph in one process, and for one of them (`topo.at`), which reaches the others by
    `across`.

    `state` is what `method` left after the round before.

    >>> from silograph.methods.graph_federation import GraphFederation
    >>> from silograph.privacy.relay import OpenGate
    >>> from silograph.tasks.linear import Linear
    >>> from silograph.topology import star
    >>> method, topo = GraphFederation(Linear(1, most=50), step=0.5, rounds=10), star(["north", "south"])
    >>> state = begin(method, topo)
    >>> nobody = lambda state: ({}, {}, np.array([], dtype=int))  # no silo answers
    >>> after = advance(method, state, topo, OpenGate(), nobody)
    >>> after.round, after.servers is state.servers
    (1, True)
    """
    across = across or Here()
    half = across.held(state.round)
    if half is None:
        carry, sent, rows = run_local(state)
        if not len(rows):  # nobody came: the round passes and nothing changes
            return State(state.round + 1, state.carry, state.servers, state.down)
        sealed = {name: value for name, value in sent.items() if isinstance(value, Sealed)}
        servers, message = method.gather(state.servers, Up(rows, values(sent), sealed), topo, gate)
        checked = check_message(message, len(topo.servers), f"{type(method).__name__}.gather")
        half = Half(carry, servers, values(checked))
        across.hold(state.round, half)
    gate.sync()
    servers, down = method.settle(half.servers, across.exchange(state.round, half), topo)
    return State(state.round + 1, half.carry, servers, relayed(down))


def play_at_server(method: Method, topo: Topology, data: Private) -> tuple[Outcome, list[Json]]:
    """Play a whole method at a server that has released `data`, and return its trace: all of it is post-processing."""
    gate, trace = OpenGate(), []

    def run_local(now: State) -> tuple[Carry, Sent, Rows]:
        return (*method.local(now.carry, now.down, data, gate), np.arange(len(topo.silos)))

    state = begin(method, topo)
    while not method.done(state.servers):
        state = advance(method, state, topo, gate, run_local)
        line = method.trace(state.servers)
        if line is not None:
            trace.append({"round": state.round, **line})
    return method.outcome(state.servers, values(method.deliver(state.carry, data, gate)), topo), trace


def values(message: Sent) -> dict[str, Array]:
    """What can be read of a message."""
    return {name: value.value for name, value in message.items() if isinstance(value, Released)}


def relayed(down: dict[str, Array]) -> Message:
    """What servers tell silos."""
    return {name: relay(value) for name, value in down.items()}


def take(carry: Carry, rows: Rows | slice) -> Carry:
    """Return the rows of some silos.

    `carry` has a row for each silo; `rows` are the places of those to take.

    >>> take({"model": np.array([[1.0], [2.0], [3.0]])}, np.array([0, 2]))
    {'model': array([[1.],
           [3.]])}
    """
    return {name: value.rows(rows) if isinstance(value, Released) else value[rows] for name, value in carry.items()}


def put(carry: Carry, rows: Rows | slice, fresh: Carry) -> Carry:
    """Return the carry with the rows of some silos replaced: absent silos keep theirs, and so do fields left out.

    `fresh` has new rows of some fields of `carry`, for the silos at the places `rows`.

    >>> put({"model": np.zeros((3, 1))}, np.array([0, 2]), {"model": np.ones((2, 1))})["model"].ravel()
    array([1., 0., 1.])
    """

    def replaced(name: str) -> Any:
        old, new = carry[name], fresh[name]
        if isinstance(old, Released) and isinstance(new, Released):
            return old.with_rows(rows, new)
        if isinstance(old, Released) or isinstance(new, Released):
            raise LeakError(f"carry field {name!r}", "released rows beside released rows", "private ones are mixed in")
        out = np.array(old)
        out[rows] = new
        return out

    return {**carry, **{name: replaced(name) for name in fresh}}


def everywhere(value: Array, topo: Topology) -> Array:
    """Return the same message to every silo.

    `value` is sent to each silo of `topo`.

    >>> from silograph.topology import star
    >>> everywhere(np.array([0.5, 1.0]), star(["north", "south"]))
    array([[0.5, 1. ],
           [0.5, 1. ]])
    """
    return np.broadcast_to(value, (len(topo.silos), *np.shape(value)))
