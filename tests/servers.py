"""What the small federations of agents and of clustered clients share: one method in one mode, and its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Mechanism, Scheduled
from silograph.run.loop import ENGINES, rounds
from silograph.topology import Topology


@dataclass(frozen=True)
class Case:
    name: str
    method: Any
    mechanism: Mechanism | Scheduled | None = None
    budget: Budget | None = None
    masks: Masks | None = None

    @property
    def private(self) -> bool:
        return self.mechanism is not None


@dataclass
class Ran:
    states: list
    outcome: object
    door: Door
    topo: Topology


def door_of(case: Case, seed: int = 5) -> Door:
    return Door(seed, Ledger(), case.mechanism, case.budget, masks=case.masks)


def engine_of(case: Case, data: dict, topo: Topology, door: Door, engine: str = "vector"):
    return ENGINES[engine]([case.method.task.prepare(data[name]) for name in topo.silos], topo, door)


def played(
    case: Case,
    data: dict,
    topo: Topology,
    engine: str = "vector",
    seed: int = 5,
    present: Callable[[int], list[str]] | None = None,
) -> Ran:
    door = door_of(case, seed)
    place = engine_of(case, data, topo, door, engine)
    states = list(rounds(case.method, topo, place, door, present=present))
    outcome = case.method.outcome(states[-1].servers, place.deliver(case.method, states[-1]), topo)
    return Ran(states, outcome, door, topo)
