"""Silos in groups on a Ray cluster: for simulations that outgrow one machine.

A group is a worker that keeps the records of its silos. Its results return with their ledger rows; budget and ledger
are here, and rows are on disk before anybody sees a message. A worker that dies is made again from the same records and
asked the same; nothing of its earlier work was written, so no row is written twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayTaskError

from silograph.core.errors import SilographError
from silograph.core.types import Array, Carry
from silograph.engines.base import stacked
from silograph.methods.base import Method, Private, Rows, State, put, take, values
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.relay import inside, relay
from silograph.privacy.released import Released, Sealed, Sent, check_message, sealed_rows, stack
from silograph.topology import Topology

_DEATHS = 3  # deaths of workers with the same silos in one round that are no longer chance

#: Values as they travel: plain arrays, and the kinds of those that are not.
_Packed = dict[str, tuple[str, Any]]


def _pack(content: Carry | Sent) -> _Packed:
    def packed(value: Any) -> tuple[str, Any]:
        if isinstance(value, Released):
            return "released", value.value
        if isinstance(value, Sealed):
            return "sealed", {part.name: getattr(value, part.name) for part in fields(value)}
        return "plain", value

    return {name: packed(value) for name, value in content.items()}


def _unpack(content: _Packed) -> dict[str, Any]:
    """Unpack values; shared memory is read-only, so a silo gets its own copy."""
    made: dict[str, Callable[[Any], Any]] = {"released": relay, "sealed": lambda parts: Sealed(**parts), "plain": _own}
    return {name: made[kind](value) for name, (kind, value) in content.items()}


def _own(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value


def _method(pickled: bytes) -> Method:
    method: Method = ray.cloudpickle.loads(pickled)
    return method


class _Border(Door):
    """The border of a group: the process with the budget decides whether a row can be afforded."""

    def afford(self, row: Row) -> None:
        return None


class _Group:
    """A worker: some silos and their records."""

    def __init__(self, silos: Sequence[str], data: Private, border: _Border) -> None:
        self._silos, self._data, self._border = silos, {name: _own(value) for name, value in data.items()}, border

    def local(
        self, pickled: bytes, index: Rows, carry: _Packed, down: _Packed, round: int
    ) -> tuple[_Packed, _Packed, list[Row]]:
        method, carried, told = _method(pickled), _unpack(carry), _unpack(down)
        self._border.forget()
        gate = self._border.gate([self._silos[k] for k in index], round)
        with inside(f"{type(method).__name__}.local") as name:
            fresh, message = method.local(carried, told, take(self._data, index), gate)
        return _pack(fresh), _pack(check_message(message, len(index), name)), self._border.waiting

    def deliver(
        self, pickled: bytes, index: Rows, carry: _Packed, down: _Packed, round: int
    ) -> tuple[_Packed, _Packed, list[Row]]:
        method, carried = _method(pickled), _unpack(carry)
        self._border.forget()
        gate = self._border.gate(self._silos, round)
        with inside(f"{type(method).__name__}.deliver") as name:
            message = method.deliver(carried, self._data, gate)
        return {}, _pack(check_message(message, len(index), name)), self._border.waiting


class OnRay:
    """The engine: a worker for every core of the cluster at RAY_ADDRESS, or of this machine."""

    def __init__(self, data: Sequence[Private] | Private, topo: Topology, door: Door) -> None:
        self.topo, self.door = topo, door
        _connect()
        workers = min(len(topo.silos), max(1, int(ray.cluster_resources().get("CPU", 1))))
        self._groups = np.array_split(np.arange(len(topo.silos)), workers)
        everything = stacked(data)
        self._records = [ray.put(take(everything, group)) for group in self._groups]
        self._border = ray.put(_Border(door.root, Ledger(), door.mechanism, door.budget, door.randomness, door.masks))
        self._workers = [self._worker(k) for k in range(workers)]

    def _worker(self, k: int) -> Any:
        silos = [self.topo.silos[i] for i in self._groups[k]]
        return ray.remote(_Group).options(num_cpus=1).remote(silos, self._records[k], self._border)

    def local(self, method: Method, state: State, rows: Rows) -> tuple[Carry, Sent, Rows]:
        fresh, message, where = self._ask("local", method, state, rows)
        return put(state.carry, where, fresh), message, rows

    def deliver(self, method: Method, state: State) -> dict[str, Array]:
        return values(self._ask("deliver", method, state, np.arange(len(self.topo.silos)))[1])

    def _ask(self, what: str, method: Method, state: State, rows: Rows) -> tuple[Carry, Sent, Rows]:
        """Ask groups; return their new carry, their message with its rows in order, and the silos they belong to."""
        questions = {}
        for k, group in enumerate(self._groups):
            if len(index := np.flatnonzero(np.isin(group, rows))):
                here = group[index]
                down = {name: value.rows(here) for name, value in state.down.items()}
                questions[k] = (index, _pack(take(state.carry, here)), _pack(down), state.round)
        if not questions:
            return {}, {}, rows
        answers = self._answers(what, ray.put(ray.cloudpickle.dumps(method)), questions)
        where = np.concatenate([self._groups[k][questions[k][0]] for k in questions])
        for k in questions:
            for row in answers[k][2]:
                self.door.admit(row)
        self.door.sync()
        carries, messages = ([_unpack(answers[k][i]) for k in questions] for i in (0, 1))
        order = np.searchsorted(where, rows)
        message = {name: stack([part[name] for part in messages]) for name in messages[0]}
        return _joined(carries), {name: _in_order(value, order) for name, value in message.items()}, where

    def _answers(self, what: str, method: Any, questions: dict[int, Any]) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        for _ in range(_DEATHS):
            asked = {
                k: getattr(self._workers[k], what).remote(method, *questions[k]) for k in questions.keys() - answers
            }
            for k, answer in asked.items():
                try:
                    answers[k] = ray.get(answer)
                except RayTaskError as error:
                    raise error.cause from None
                except RayActorError:
                    self._workers[k] = self._worker(k)
            if len(answers) == len(questions):
                return answers
        lost = self.topo.silos[self._groups[min(questions.keys() - answers)][0]]
        todo = "Check the memory: use fewer workers, or larger machines."
        raise SilographError(f"worker with {lost}", "a worker that lives", f"it died {_DEATHS} times", todo)


def _joined(carries: Sequence[Carry]) -> Carry:
    def one(parts: Sequence[Any]) -> Any:
        return stack(parts) if isinstance(parts[0], Released) else np.concatenate(parts)

    return {name: one([carry[name] for carry in carries]) for name in carries[0]}


def _in_order(value: Released | Sealed, order: Rows) -> Released | Sealed:
    if isinstance(value, Released):
        return value.rows(order)
    return replace(value, _rows=sealed_rows(value)[order])


def _connect() -> None:
    """Connect to the cluster at RAY_ADDRESS, or to this machine's own, which nobody else reaches. It reports
    nothing."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False)
    else:
        ray.init(include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
