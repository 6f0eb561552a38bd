"""What an engine is: it runs `local` at every silo. It knows no method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from silograph.core.types import Array, Carry
from silograph.methods.base import Method, Outlet, Private, State, put, take
from silograph.privacy.gate import Door, Message, check_message, stack
from silograph.topology import Topology


class Engine(Protocol):
    """Where the silos are and how their part is run."""

    def local(self, method: Method, state: State, rows: Sequence[int]) -> tuple[Carry, Message]:
        """Run `method.local` at the silos `rows`; returns the whole new carry and their messages."""
        ...

    def deliver(self, method: Method, state: State) -> dict[str, Array]: ...


class InProcess:
    """Silos in this process, called in groups: all at once, or one by one."""

    def __init__(
        self, data: Sequence[Private], topo: Topology, door: Door, grouping: Callable[[Sequence[int]], list[list[int]]]
    ) -> None:
        self.topo, self.door, self._grouping = topo, door, grouping
        self._data: Private = {name: np.stack([part[name] for part in data]) for name in data[0]}

    def local(self, method: Method, state: State, rows: Sequence[int]) -> tuple[Carry, Message]:
        def call(part: list[int], gate: Outlet) -> tuple[Carry, dict[str, Any]]:
            down = {name: value.rows(part) for name, value in state.down.items()}
            return method.local(take(state.carry, part), down, take(self._data, part), gate)

        carry, messages = state.carry, []
        for part in self._grouping(rows):
            fresh, message = call(part, self._gate(part, state.round))
            carry = put(carry, part, fresh)
            messages.append(check_message(message, len(part), f"{type(method).__name__}.local"))
        return carry, self._joined(messages)

    def deliver(self, method: Method, state: State) -> dict[str, Array]:
        messages = []
        for part in self._grouping(range(len(self.topo.silos))):
            gate = self._gate(part, state.round)
            message = method.deliver(take(state.carry, part), take(self._data, part), gate)
            messages.append(check_message(message, len(part), f"{type(method).__name__}.deliver"))
        return {name: released.value for name, released in self._joined(messages).items()}

    def _gate(self, part: Sequence[int], round: int) -> Outlet:
        return self.door.gate([self.topo.silos[k] for k in part], round)

    def _joined(self, messages: Sequence[Message]) -> Message:
        """One message for all; it exists only once its ledger rows are on disk."""
        self.door.sync(self.topo.silos)
        return {name: stack([message[name] for message in messages]) for name in messages[0]} if messages else {}
