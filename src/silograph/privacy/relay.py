"""Make released values from plain arrays: for servers, which know only released values, and for reading released values
back. Inside a silo use `Released.map` and the gate; no method imports this module (import-linter)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import LeakError
from silograph.core.types import Array
from silograph.privacy.bound import Bounded
from silograph.privacy.flooding import Joined
from silograph.privacy.released import _SEAL, Batch, Released, Sealed, Total

#: The part of a method that runs in a silo now.
_INSIDE: ContextVar[str] = ContextVar("inside a silo", default="")


@contextmanager
def inside(part: str) -> Iterator[str]:
    """Refuse to relay while the named part of a method runs that sees records."""
    token = _INSIDE.set(part)
    try:
        yield part
    finally:
        _INSIDE.reset(token)


def relay(value: Array, owned: bool = False) -> Released:
    """Mark a value as computed from released values alone, such as all that a server sends on: post-processing.

    silograph refuses it while the part of a method runs that sees records.

    Parameters
    ----------
    value : The value; axis 0 is which silo.
    owned : Whether the caller gives the array away and does not write to it again, so that it need not be copied.

    >>> relay(np.zeros((2, 3))).value.shape
    (2, 3)
    >>> with inside("local"):
    ...     relay(np.zeros((2, 3)))
    Traceback (most recent call last):
        ...
    silograph.core.errors.LeakError: local: expected relay to be called at a server, but it was called in a silo. ...
    """
    if part := _INSIDE.get():
        todo = "Use Released.map for what is computed from released values; all else passes the gate."
        raise LeakError(part, "relay to be called at a server", "it was called in a silo", todo)
    return Released(value, _SEAL, owned)


class OpenGate:
    """The border around released values: whatever is computed from them is post-processing and costs nothing."""

    def rows(self, index: Sequence[int] | NDArray[np.intp]) -> OpenGate:
        return self

    def over(self, names: Sequence[str]) -> OpenGate:
        return self

    def poisson(self, counts: Array, rate: float, release_point: str, part: str) -> Batch:
        raise LeakError(
            f"sample at {release_point!r}", "no records behind an open gate", "a sample of them was asked for"
        )

    def release(self, bounded: Bounded, release_point: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        raise LeakError(f"release at {release_point!r}", "nothing private behind an open gate", "found a private value")

    def reveal(self, value: Array, release_point: str, why: str) -> Released:
        return relay(value)

    def relay(self, value: Array) -> Released:
        return relay(value)

    def sync(self) -> None:
        """There is no ledger."""

    def contribute(
        self,
        value: Array | Bounded,
        release_point: str,
        clip: float | None = None,
        share: float = 1.0,
        joined: bool = False,
    ) -> Sealed:
        raise LeakError(f"contribution at {release_point!r}", "nothing to add up behind an open gate", "found a vector")

    def total(
        self,
        sealed: Sealed,
        rows: NDArray[np.intp],
        home: NDArray[np.intp],
        names: Sequence[str],
        joined: Joined | None = None,
    ) -> Total:
        raise LeakError(
            f"total at {sealed.release_point!r}", "nothing to add up behind an open gate", "a sum was asked for"
        )

    def uniforms(self, count: int, release_point: str) -> Array:
        raise LeakError(f"draw at {release_point!r}", "nothing to perturb behind an open gate", "noise was asked for")
