"""Attacks on what really leaves, for a plan that claims no epsilon against an observer.

Each attack states its target and its error, relative to the length of the truth. No epsilon is claimed or printed; the
page shows success. The family chooses the attacks that fit (`CanaryPart.exposed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from silograph.audit.parts import canary_part
from silograph.core.types import Array, Json
from silograph.deploy.public_facts import part_of
from silograph.methods.base import Method, State, advance, begin
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.observers import OTHER_SERVERS, hidden_from
from silograph.privacy.released import Sealed, Sent, sealed_rows
from silograph.run.jobs import Job
from silograph.run.loop import ENGINES


def exposure(job: Job, observer: str, root: int) -> list[Json]:
    """Run the attacks that fit the plan and the observer; return what they got."""
    star = not part_of(job.plan.method.name).SEVERAL
    if observer == "public" or (observer == "neighbour" and star):
        return [RESULTS]
    own = "own server" not in hidden_from(observer)
    attacks = canary_part(job).exposed(job, own, root)
    return attacks or [found("what is sent", "read as it is", 0.0, "nothing hides it")]


def found(aim: str, attack: str, off_by: float, words: str) -> Json:
    return {"aim": aim, "attack": attack, "off_by": off_by, "words": words}


RESULTS = found(
    "what is computed from everybody's records",
    "read as it is",
    0.0,
    "nothing hides the results; an attack needs messages that this observer does not see, and none was run",
)
OWN_UPDATES = found(
    "an agent's update",
    "read as it is",
    0.0,
    "every agent's update, and with it the gradient of its records, lies before its own server as it is",
)


def off_by(guess: Array, truth: Array) -> float:
    return float(np.linalg.norm(guess - truth) / max(float(np.linalg.norm(truth)), 1e-300))


class Listener:
    """Runs a job without a folder and records the messages up and across, and each server's true sums."""

    def __init__(self, job: Job, root: int) -> None:
        masks = None if job.masks is None else Masks("skipped", job.masks.minimum)
        self.job, self.door = job, Door(root, Ledger(), job.mechanism, masks=masks)
        self.data = job.data()
        self._place = ENGINES["vector"](self.data, job.topo, self.door)
        self.state = begin(job.method, job.topo)
        self.up: Sent = {}
        self.rows = np.arange(len(job.topo.silos))
        self.across: dict[str, Array] = {}

    def listen(self) -> None:
        """Play one more round."""
        topo, method = self.job.topo, self.job.method

        def local(now: State) -> tuple[Any, Sent, Any]:
            rows = method.asked(now.servers, topo)
            carry, self.up, self.rows = self._place.local(method, now, self.rows if rows is None else rows)
            return carry, self.up, self.rows

        gate = self.door.gate(topo.servers, self.state.round, OTHER_SERVERS)
        self.state = advance(_Heard(method, self.across), self.state, topo, gate, local)

    def value(self, name: str) -> Array:
        sent = self.up[name]
        return np.asarray(sealed_rows(sent) if isinstance(sent, Sealed) else sent.value)


class _Heard:
    """A method with its messages across recorded."""

    def __init__(self, method: Method, across: dict[str, Array]) -> None:
        self._method, self._across = method, across

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def settle(self, servers: Any, across: Mapping[str, Array], topo: Any) -> Any:
        self._across.update(across)
        return self._method.settle(servers, dict(across), topo)
