"""What an engine is: it runs `local` at every silo. It knows no method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from silograph.core.types import Array, Carry
from silograph.methods.base import Method, Outlet, Private, Rows, State, put, take, values
from silograph.privacy.door import Door
from silograph.privacy.relay import inside
from silograph.privacy.released import Sent, check_message, stack
from silograph.topology import Topology


class Engine(Protocol):
    """Where the silos are and how their part is run."""

    def local(self, method: Method, state: State, rows: Rows) -> tuple[Carry, Sent, Rows]:
        """Run `method.local` at the silos `rows`; returns the whole new carry, messages, and the rows that answered."""
        ...

    def deliver(self, method: Method, state: State) -> dict[str, Array]: ...


class InProcess:
    """Silos in this process, called in groups: all at once, or one by one.

    `data` is a dictionary for each silo, or one of arrays whose axis 0 is "which silo" already.
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
        self._data: Private = (
            data if isinstance(data, dict) else {name: np.stack([part[name] for part in data]) for name in data[0]}
        )

    def local(self, method: Method, state: State, rows: Rows) -> tuple[Carry, Sent, Rows]:
        carry, messages = state.carry, []
        for part in self._grouping(rows):
            index = self._index(part)
            down = {name: value.rows(index) for name, value in state.down.items()}
            carried, here, gate = take(state.carry, index), take(self._data, index), self._gate(part, state.round)
            with inside(f"{type(method).__name__}.local"):
                fresh, message = method.local(carried, down, here, gate)
            carry = put(carry, index, fresh)
            messages.append(check_message(message, len(part), f"{type(method).__name__}.local"))
        return carry, self._joined(messages), rows

    def deliver(self, method: Method, state: State) -> dict[str, Array]:
        messages = []
        for part in self._grouping(self._all):
            index, gate = self._index(part), self._gate(part, state.round)
            carried, here = take(state.carry, index), take(self._data, index)
            with inside(f"{type(method).__name__}.deliver"):
                message = method.deliver(carried, here, gate)
            messages.append(check_message(message, len(part), f"{type(method).__name__}.deliver"))
        return values(self._joined(messages))

    def _index(self, part: Rows) -> Rows | slice:
        """All silos as a slice: what is sliced is not copied."""
        return slice(None) if len(part) == len(self._all) else part

    def _gate(self, part: Rows, round: int) -> Outlet:
        silos = self.topo.silos
        return self.door.gate(silos if len(part) == len(silos) else [silos[k] for k in part], round)

    def _joined(self, messages: Sequence[Sent]) -> Sent:
        """One message for all; it exists only once its ledger rows are on disk."""
        self.door.sync()
        return {name: stack([message[name] for message in messages]) for name in messages[0]} if messages else {}
