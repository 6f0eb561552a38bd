"""What crosses a silo's border: values that passed the gate, and contributions that only a server's gate adds up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import LeakError
from silograph.core.types import Array, BoolArray
from silograph.privacy.bound import Bounded, Within
from silograph.privacy.masking import MaskedSum
from silograph.privacy.secure_messages import Total as SumTotal

_SEAL = object()  # for `gate` and `relay` alone: nobody else can mint a Released

#: Named values that passed the gate. Axis 0 is "which silo".
Message = dict[str, "Released"]

#: The same with contributions to a sum among them.
Sent = Mapping[str, "Released | Sealed"]


class Released:
    """A value that passed the gate. You can read, slice and post-process it, but not make one.

    Parameters
    ----------
    value : The array; it cannot be written to.
    seal : What only the gate has.
    owned : Whether nobody else can write to the value, so that it need not be copied.

    >>> from silograph.privacy.relay import relay
    >>> noisy = relay(np.array([[-1.0], [4.0]]))  # as a gate would give it
    >>> noisy.map(np.maximum, 0.0).value.ravel(), noisy.rows([1]).value
    (array([0., 4.]), array([[4.]]))
    >>> noisy.with_rows([0], relay(np.array([[7.0]]))).value.ravel()
    array([7., 4.])
    """

    __slots__ = ("value",)
    value: Array

    def __init__(self, value: Array, seal: object, owned: bool = False) -> None:
        if seal is not _SEAL:
            raise LeakError("Released", "to be made by a gate", "it was constructed directly", "Use gate.release.")
        if np.ndim(value) and not owned and value.strides[0] == 0 and len(value):
            # The same for every silo: one copy serves them all.
            frozen = np.broadcast_to(np.array(value[0], dtype=np.float64), np.shape(value))
        else:
            frozen = np.asarray(value, dtype=np.float64) if owned else np.array(value, dtype=np.float64, order="C")
        frozen.flags.writeable = False
        object.__setattr__(self, "value", frozen)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a released value does not change")

    def map(self, function: Callable[..., Array], *constants: Released | float | int | bool | str) -> Released:
        """Post-process: `function(self.value, *constants)`. It costs nothing.

        The function may use nothing private: silograph refuses one that has captured an array from its surroundings.

        Parameters
        ----------
        function : Takes the array and the constants, and returns an array.
        constants : Released values or plain numbers.

        >>> from silograph.privacy.relay import relay
        >>> records = np.ones((2, 1))
        >>> relay(np.zeros((2, 1))).map(lambda value: value + records)
        Traceback (most recent call last):
            ...
        silograph.core.errors.LeakError: Released.map(<lambda>): expected a function of its arguments alone, ...
        """
        _refuse_captured(function)
        for constant in constants:
            if not isinstance(constant, Released | float | int | bool | str):
                raise LeakError(
                    "Released.map",
                    "constants that are released values or plain numbers",
                    f"found a {type(constant).__name__}",
                    "Release it, or keep the computation inside the silo.",
                )
        plain = [c.value if isinstance(c, Released) else c for c in constants]
        made = np.asarray(function(self.value, *plain))
        # What is fresh need not be copied: the function can have kept it nowhere.
        return Released(made, _SEAL, owned=made.flags.owndata and made.flags.c_contiguous)

    def rows(self, index: Sequence[int] | NDArray[np.intp] | slice) -> Released:
        """Return some rows.

        Parameters
        ----------
        index : Their places, or a slice.
        """
        return Released(self.value[index], _SEAL, owned=True)

    def with_rows(self, index: Sequence[int] | NDArray[np.intp] | slice, fresh: Released) -> Released:
        """Return the same value with some rows replaced by released ones.

        Parameters
        ----------
        index : The places of the rows, or a slice.
        fresh : What they become.
        """
        out = np.array(self.value)
        out[index] = fresh.value
        return Released(out, _SEAL, owned=True)


def bare(value: Any) -> Any:
    """The array of what may be released or not."""
    return value.value if isinstance(value, Released) else value


def _refuse_captured(function: Callable[..., Any]) -> None:
    """Refuse an array held by a closure, a default, a bound object or a global: it would be a way around the gate.

    This catches mistakes. It cannot stop a method that wants to cheat: that is code that you installed.
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


class Elsewhere(Protocol):
    """The secure sum among those who hold the vectors."""

    def everybody(self, names: Sequence[str]) -> Mapping[str, str]:
        """The region of each member of a sum over all servers: those `names` here, and all others'."""
        ...

    def total(self, asked: MaskedSum) -> tuple[SumTotal, Collection[str]]:
        """The sum, and who here may have paid for it."""
        ...


@dataclass(frozen=True, eq=False)
class Sealed:
    """What silos hand to their own server to be added up: no method can read it, and a server's gate opens only sums.

    Under masks between organisations the rows stay where they are: they are zeros here, and `elsewhere` runs the secure
    sum with those who hold them. It also says who may count it as spent, which they may where no sum came of it.
    What is protected is a whole vector, or what moves one from `within`. The silos' noise is for that `share` of the
    run's precision. Where servers are `joined`, there is one sum over all of them.
    """

    _rows: Array
    release_point: str
    clip: float | None
    within: Within | None = None
    share: float = 1.0
    joined: bool = False
    elsewhere: Elsewhere | None = None

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True, eq=False)
class Total:
    """Sums by server, and of how many silos.

    Parameters
    ----------
    sums : The sums (servers, d).
    counts : How many silos are in each, (servers,): 0 where too few answered.
    released : Whether noise is in the sums already. If not, they are the servers' own knowledge, and may leave them
        only through the gate again.
    summed : Which of the vectors that were to be in a sum are in it.
    noise : The standard deviation of the noise in a coordinate of each sum, (servers,), where masks hide the rest.

    >>> from silograph.privacy.door import Door
    >>> from silograph.privacy.ledger import Ledger
    >>> door, names = Door(0, Ledger()), ["a", "b", "c"]
    >>> sealed = door.gate(names, round=0).contribute(np.ones((3, 2)), "update")
    >>> total = door.gate(["east", "west"], round=0).total(sealed, np.arange(3), np.array([0, 0, 1]), names)
    >>> total.sums, total.counts, total.released
    (array([[2., 2.],
           [1., 1.]]), array([2., 1.]), False)
    """

    sums: Array
    counts: Array
    released: bool
    summed: BoolArray
    noise: Array | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """A Poisson sample of the records of one part of each silo, by `Gate.poisson`.

    Every record has its own coin. The choice stays in the silo: the smaller cost of releases from a sample depends on
    it.

    Parameters
    ----------
    chosen : Whether record k of silo i takes part, (silos, most records).
    rate : The chance of each record.
    name : The release point at which it was drawn; releases with the same batch are charged together.
    part : The part of the silos' records that it is from.
    round : The round that it is for.

    >>> from silograph.privacy.door import Door
    >>> from silograph.privacy.ledger import Ledger
    >>> batch = Door(0, Ledger()).gate(["north"], round=0).poisson(np.array([3]), 1.0, "batch", part="train")
    >>> batch.chosen, batch.rate, batch.name
    (array([[ True,  True,  True]]), 1.0, 'batch')
    """

    chosen: BoolArray
    rate: float
    name: str
    part: str
    round: int


def sealed_rows(sealed: Sealed) -> Array:
    """For the engine that carries them to their server, and for nobody else."""
    return sealed._rows


def stack(parts: Sequence[Released | Sealed]) -> Released | Sealed:
    """Rows of several silos as one value."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Sealed):
        rows = [part._rows for part in parts if isinstance(part, Sealed)]
        first = parts[0]
        return Sealed(np.concatenate(rows), first.release_point, first.clip, first.within, first.share, first.joined)
    return Released(np.concatenate([part.value for part in parts if isinstance(part, Released)]), _SEAL)


def check_message(message: Mapping[str, object], rows: int, sender: str) -> Sent:
    """Let only released values leave; refuse a method that sends anything else, and name it."""
    checked: dict[str, Released | Sealed] = {}
    for name, value in message.items():
        if not isinstance(value, Released | Sealed):
            raise LeakError(
                f"{sender}, message field {name!r}",
                "a value that passed the gate",
                f"found a bare {type(value).__name__}",
                "Send gate.release(...) or, on purpose, gate.reveal(...).",
            )
        found = value.value.shape[:1] if isinstance(value, Released) else (len(value),)
        if found != (rows,):
            raise LeakError(f"{sender}, message field {name!r}", f"{rows} rows, one per silo", f"found shape {found}")
        checked[name] = value
    return checked
