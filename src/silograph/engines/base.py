"""What an engine is: it runs `local` at every silo. It knows no method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, Carry
from silograph.methods.base import Method, Outlet, Private, Rows, State, put, take, values
from silograph.privacy.door import Door
from silograph.privacy.relay import inside
from silograph.privacy.released import Sent, check_message, stack
from silograph.topology import Topology


class Engine(Protocol):
    """Where the silos are and how their part runs."""

    def local(self, method: Method, state: State, rows: Rows) -> tuple[Carry, Sent, Rows]:
        """Run `method.local` at the silos `rows`; return the whole new carry, messages, and the rows that answered."""
        ...

    def deliver(self, method: Method, state: State) -> dict[str, Array]: ...


def stacked(data: Sequence[Private] | Private) -> Private:
    """Stack values of silos: axis 0 of every array is the silo."""
    return data if isinstance(data, dict) else {name: np.stack([part[name] for part in data]) for name in data[0]}


class InProcess:
    """Silos in this process, called in groups: all at once, or one by one.

    `data` is a dictionary for each silo, or one of arrays that already have the silos on axis 0.
    """

    def __init__(
        self,
        data: Sequence[Private] | Private,
        topo: Topology,
        door: Door,
        grouping: Callable[[Rows], list[Rows]],
    ) -> None:
        self.topo, self.door, self._grouping = topo, door, grouping
        self._all = np.arange(len(topo.silos))
        self._data = stacked(data)

    def local(self, method: Method, state: State, rows: Rows) -> tuple[Carry, Sent, Rows]:
        carry, messages = state.carry, []
        for part, index, carried, here, gate in self._parts(state, rows):
            down = {name: value.rows(index) for name, value in state.down.items()}
            with inside(f"{type(method).__name__}.local") as name:
                fresh, message = method.local(carried, down, here, gate)
            carry = put(carry, index, fresh)
            messages.append(check_message(message, len(part), name))
        return carry, self._joined(messages), rows

    def deliver(self, method: Method, state: State) -> dict[str, Array]:
        messages = []
        for part, _, carried, here, gate in self._parts(state, self._all):
            with inside(f"{type(method).__name__}.deliver") as name:
                message = method.deliver(carried, here, gate)
            messages.append(check_message(message, len(part), name))
        return values(self._joined(messages))

    def _parts(self, state: State, rows: Rows) -> Iterator[tuple[Rows, Rows | slice, Carry, Private, Outlet]]:
        """Each group: its silos and their places, what they remember, their records and their gate."""
        for part in self._grouping(rows):
            everybody = len(part) == len(self._all)
            index = slice(None) if everybody else part  # slices are not copied
            silos = self.topo.silos if everybody else [self.topo.silos[k] for k in part]
            yield part, index, take(state.carry, index), take(self._data, index), self.door.gate(silos, state.round)

    def _joined(self, messages: Sequence[Sent]) -> Sent:
        """Join messages into one; it exists only once its ledger rows are on disk."""
        self.door.sync()
        return {name: stack([message[name] for message in messages]) for name in messages[0]} if messages else {}


def vector(data: Sequence[Private] | Private, topo: Topology, door: Door) -> InProcess:
    """All silos in one call: the fast way to simulate."""
    return InProcess(data, topo, door, lambda rows: [rows] if len(rows) else [])


def silowise(data: Sequence[Private] | Private, topo: Topology, door: Door) -> InProcess:
    """One silo at a time, as each would run on its own machine: the reference for the other engines."""
    return InProcess(data, topo, door, lambda rows: [rows[k : k + 1] for k in range(len(rows))])


def on_ray(data: Sequence[Private] | Private, topo: Topology, door: Door) -> Engine:
    """Groups of silos as workers of a Ray cluster; Ray is imported only here, when needed."""
    if find_spec("ray") is None:
        raise InputError("engine ray", "the package ray", "it is not installed", 'pip install "silograph[ray]"')
    from silograph.engines.on_ray import OnRay

    return OnRay(data, topo, door)
