"""The gate: the only way out of a silo. `Released` values are made in this module alone."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from silograph.core.errors import BudgetError, DamageError, LeakError
from silograph.core.types import Array
from silograph.privacy.accounting import Cost, cost
from silograph.privacy.bound import Bounded
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.mechanisms import Mechanism, on_grid, perturb
from silograph.privacy.samplers import Keystream

_SEAL = object()  # known to this module only: nobody else can mint a Released

#: What crosses a silo's border: named values that passed the gate. Axis 0 is "which silo".
Message = dict[str, "Released"]


class Released:
    """A value that passed the gate. It can be read, cut and post-processed, not made."""

    __slots__ = ("value",)
    value: Array

    def __init__(self, value: Array, seal: object) -> None:
        if seal is not _SEAL:
            raise LeakError("Released", "to be made by a gate", "it was constructed directly", "Use gate.release.")
        frozen = np.array(value, dtype=np.float64)
        frozen.flags.writeable = False
        object.__setattr__(self, "value", frozen)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a released value does not change")

    def map(self, function: Callable[..., Array], *constants: Released | float | int | bool | str) -> Released:
        """Post-processing: `function(self.value, *constants)`.

        The function may use nothing private, so constants are released values or plain numbers, and a function that
        has captured an array from its surroundings is refused.
        """
        _refuse_captured(function)
        for constant in constants:
            if not isinstance(constant, Released | float | int | bool | str):
                raise LeakError(
                    "Released.map",
                    "constants that are released values or plain numbers",
                    f"a {type(constant).__name__} came",
                    "Release it, or keep the computation inside the silo.",
                )
        plain = [c.value if isinstance(c, Released) else c for c in constants]
        return Released(function(self.value, *plain), _SEAL)

    def rows(self, index: Sequence[int] | slice) -> Released:
        return Released(self.value[index], _SEAL)


def _refuse_captured(function: Callable[..., Any]) -> None:
    """An array held by a closure, a default, a bound object or a global would be a way around the gate.

    This catches mistakes. It cannot stop a method that wants to cheat: that is code you installed.
    """
    held: list[object] = []
    if isinstance(function, partial):
        held += [function.func, *function.args, *function.keywords.values()]
    elif inspect.ismethod(function):
        held += [function.__func__, *getattr(function.__self__, "__dict__", {}).values()]
    elif inspect.isfunction(function):
        seen = inspect.getclosurevars(function)
        held += [*seen.nonlocals.values(), *(v for v in seen.globals.values() if isinstance(v, np.ndarray))]
        held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value in held:
        if isinstance(value, np.ndarray | Bounded | Mapping | list | tuple):
            raise LeakError(
                f"Released.map({getattr(function, '__name__', function)})",
                "a function of its arguments alone",
                f"it has captured a {type(value).__name__}",
                "Pass released values as constants.",
            )
        if value is not function and (inspect.isroutine(value) or isinstance(value, partial)):
            _refuse_captured(value)


def stack(parts: Sequence[Released]) -> Released:
    """Rows of several silos as one value."""
    return Released(np.concatenate([part.value for part in parts]), _SEAL)


def relay(value: Array) -> Released:
    """What a server sends on: it only ever saw released values, so this is post-processing."""
    return Released(value, _SEAL)


def digest(value: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Budget:
    """The most a silo may spend in total."""

    epsilon: float
    delta: float


@dataclass
class Door:
    """One run's border: randomness, mechanism, budget and ledger. Gates are cut from it, one per call."""

    root: int
    ledger: Ledger
    mechanism: Mechanism | None = None
    budget: Budget | None = None
    randomness: str = "seeded stream (simulation)"
    observer: str = "server"
    _waiting: dict[tuple[str, int, str], Row] = field(default_factory=dict)

    def gate(self, silos: Sequence[str], round: int) -> Gate:
        return Gate(self, tuple(silos), round)

    def admit(self, row: Row) -> None:
        """Take a row for the next `sync`, unless it would break the budget or repeat a place with another value."""
        known = self.ledger.find(row.place)
        if known is not None:
            if known != row:
                raise DamageError(
                    f"silo {row.silo}, round {row.round}, {row.site}",
                    "the value that was released there before",
                    "another one came: the data, the plan or the software changed since the run was interrupted",
                    "Put them back, or start a new run in a new folder; what was spent stays spent.",
                )
            return
        if row.place in self._waiting:
            raise LeakError(
                f"silo {row.silo}, round {row.round}",
                "one release per site name and round, so that no noise is used twice",
                f"site {row.site!r} was used again",
                "Give each release its own site name.",
            )
        if self.budget is not None:
            self._within_budget(row, self.budget)
        self._waiting[row.place] = row

    def _within_budget(self, row: Row, budget: Budget) -> None:
        before = [*self.ledger.of(row.silo), *(r for r in self._waiting.values() if r.silo == row.silo)]
        after = cost([*before, row], budget.delta)
        if after.epsilon > budget.epsilon * (1.0 + 1e-9):
            spent = cost(before, budget.delta)
            raise BudgetError(
                f"silo {row.silo}, round {row.round}, {row.site}",
                f"a total of at most epsilon {budget.epsilon:g} at delta {budget.delta:g}",
                f"{spent.epsilon:.4g} is spent and this release would make it {after.epsilon:.4g}",
                "It was not made. Plan fewer rounds, more noise, or a larger budget in a new run.",
            )

    def sync(self, silos: Sequence[str]) -> None:
        """Write the waiting rows in the order of `silos`, whatever order the engine took; then messages may go."""
        position = {silo: k for k, silo in enumerate(silos)}
        self.ledger.append(sorted(self._waiting.values(), key=lambda row: position[row.silo]))
        self._waiting.clear()

    def spent(self, silo: str, delta: float) -> Cost:
        return cost(self.ledger.of(silo), delta)


class Gate:
    """The border of the silos in one call, in one round."""

    def __init__(self, door: Door, silos: tuple[str, ...], round: int) -> None:
        self._door, self.silos, self.round = door, silos, round

    def rows(self, index: Sequence[int]) -> Gate:
        """The same border for some of the silos in this call."""
        return Gate(self._door, tuple(self.silos[k] for k in index), self.round)

    def release(self, bounded: Bounded, site: str) -> Released:
        """Add the door's noise to each silo's row; one ledger row each."""
        mechanism = self._door.mechanism
        if mechanism is None:
            raise LeakError(
                f"release at {site!r}", "a mechanism", "the run has none", "Reveal on purpose, or plan one."
            )
        if len(bounded.value) != len(self.silos):
            raise LeakError(
                f"release at {site!r}", f"{len(self.silos)} rows, one per silo", f"{len(bounded.value)} came"
            )
        out = np.empty_like(bounded.value)
        for i, silo in enumerate(self.silos):
            l2 = float(bounded.l2[i])
            stream = Keystream(self._door.root, silo, self.round, site)
            out[i] = perturb(bounded.value[i], l2, mechanism, stream)
            charged = on_grid(l2, out[i].size)
            self._log(
                silo,
                site,
                out[i],
                mechanism=mechanism.name,
                l2=charged,
                noise=mechanism.scale(charged, out[i].size),
                unit=bounded.unit,
                relation=bounded.relation,
                randomness=self._door.randomness,
                why=bounded.why,
            )
        return Released(out, _SEAL)

    def reveal(self, value: Array, site: str, why: str) -> Released:
        """Send on purpose without protection: epsilon is infinite from here on."""
        nothing: dict[str, Any] = {"l2": None, "noise": None, "unit": "", "relation": "", "randomness": "none"}
        for silo, part in zip(self.silos, value, strict=True):
            self._log(silo, site, part, mechanism="reveal", why=why, **nothing)
        return Released(value, _SEAL)

    def _log(self, silo: str, site: str, sent: Array, **facts: Any) -> None:
        """One ledger row for what one silo sends."""
        door, size = self._door, int(np.size(sent))
        place: dict[str, Any] = {"silo": silo, "round": self.round, "site": site, "observer": door.observer}
        door.admit(Row(**place, dim=size, sampling=1.0, digest=digest(sent), **facts))


class OpenGate:
    """The border of what is released already: whatever is computed from it is post-processing and passes free."""

    def rows(self, index: Sequence[int]) -> OpenGate:
        return self

    def release(self, bounded: Bounded, site: str) -> Released:
        raise LeakError(f"release at {site!r}", "nothing private behind an open gate", "a private value came")

    def reveal(self, value: Array, site: str, why: str) -> Released:
        return Released(value, _SEAL)


def check_message(message: Mapping[str, object], rows: int, sender: str) -> Message:
    """Nothing but released values may leave; a method that tries otherwise is refused by name."""
    for name, value in message.items():
        if not isinstance(value, Released):
            raise LeakError(
                f"{sender}, message field {name!r}",
                "a value that passed the gate",
                f"a bare {type(value).__name__} came",
                "Send gate.release(...) or, on purpose, gate.reveal(...).",
            )
        if value.value.shape[:1] != (rows,):
            raise LeakError(
                f"{sender}, message field {name!r}", f"{rows} rows, one per silo", f"shape {value.value.shape} came"
            )
    return {name: value for name, value in message.items() if isinstance(value, Released)}
