"""Randomness is named, not passed: the same name gives the same numbers in any order, engine or resumed run."""

from __future__ import annotations

import hashlib
import secrets

import numpy as np

from silograph.core.errors import InputError


def stream(root: int, silo: str, round: int, release_point: str) -> np.random.Generator:
    """The random stream of one place in a run.

    Names are length-prefixed before hashing, so no two different places share a stream.
    """
    name = b"".join(
        len(part).to_bytes(4, "big") + part
        for part in (str(root).encode(), silo.encode(), str(round).encode(), release_point.encode())
    )
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16, person=b"silograph stream").digest(), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def seed_of(random_state: object) -> int | None:
    """The seed that scikit-learn's users mean; a generator gives another one each time, and None is none."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if random_state is None:
        return None
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    expected = "None, a whole number, or a numpy Generator or RandomState"
    raise InputError("random_state", expected, f"found {random_state!r}")


def secret_root() -> int:
    """A root nobody else knows, from the operating system's entropy."""
    return secrets.randbits(128)
