"""Random numbers named by silo: row i depends on the key and on `ids[i]` alone, not on other rows of the call.

Row i is, bit for bit, what `numpy.random.Philox(key=[key, ids[i]])` gives (Philox-4x64-10 of Salmon et al., 2011),
without a generator per silo. Use it to choose agents, batches and data only: a key has 64 bits and others may know it,
so privacy noise and secret samples must not be drawn here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from silograph.core.types import Array

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)  # multipliers
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)  # what is added to the key every round
_ROUNDS = 10
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_DROP = np.uint64(11)  # a float64 has 53 bits
_UNIT = 2.0**-53


def draw_key(root: int, round: int, release_point: str) -> int:
    """Derive the 64-bit key of one place in a run; names are length-prefixed, so that no two places have the same
    input."""
    parts = (str(root).encode(), str(round).encode(), release_point.encode())
    name = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return int.from_bytes(hashlib.blake2b(name, digest_size=8, person=b"silograph draws").digest(), "little")


def silo_ids(names: Iterable[str]) -> Words:
    """A 64-bit number for every silo, from its name: of a million silos two share one with probability 3e-8."""
    digests = (hashlib.blake2b(name.encode(), digest_size=8, person=b"silograph silo").digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def words(key: int, ids: ArrayLike, count: int) -> Words:
    """(n, count) uniform 64-bit words."""
    out = np.empty(_shape(ids, count), dtype=np.uint64)
    _word_rows(_key(key), _ids(ids), out)
    return out


def uniforms(key: int, ids: ArrayLike, count: int) -> Array:
    """(n, count) uniform numbers in [0, 1), multiples of 2^-53."""
    out = np.empty(_shape(ids, count))
    _uniform_rows(words(key, ids, count), out)
    return out


def integers(key: int, ids: ArrayLike, count: int, below: ArrayLike) -> Integers:
    """(n, count) uniform whole numbers from 0 to `below` - 1; `below` is one number, or one for each silo.

    floor(word * below / 2^64): no probability is off by more than 2^-64.
    """
    limits = np.ascontiguousarray(np.broadcast_to(np.asarray(below, dtype=np.int64), np.shape(ids)))
    assert (limits > 0).all(), "there is a number to choose"
    out = np.empty(_shape(ids, count), dtype=np.int64)
    _integer_rows(words(key, ids, count), limits, out)
    return out


def batches(key: int, ids: ArrayLike, steps: int, most: int, below: ArrayLike) -> Integers:
    """(n, steps, most): for every step a batch of different whole numbers from 0 to `below` - 1, one `below` per silo.

    A silo with fewer than `most` numbers gets all of them; the rest of its row is meaningless.
    """
    limits = np.ascontiguousarray(below, dtype=np.int64)
    assert (limits > 0).all(), "there is a number to choose"
    raw = words(key, ids, steps * most).reshape(-1, steps, most)
    out = np.zeros(raw.shape, dtype=np.int64)
    _batch_rows(raw, limits, np.arange(limits.max(initial=0)), np.empty(most, dtype=np.int64), out)
    return out


def _key(key: int) -> np.uint64:
    assert 0 <= key < 2**64, "a key has 64 bits"
    return np.uint64(key)


def _ids(ids: ArrayLike) -> Words:
    return np.ascontiguousarray(ids, dtype=np.uint64)


def _shape(ids: ArrayLike, count: int) -> tuple[int, int]:
    (n,) = np.shape(ids)
    return n, count


@njit(cache=True)
def _high(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of a * b."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    return a1 * b1 + (middle >> _HALF) + ((a0 * b1 + (middle & _LOW)) >> _HALF)


@njit(cache=True)
def _philox(c0: np.uint64, k0: np.uint64, k1: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The four words of counter (c0, 0, 0, 0) under the key (k0, k1)."""
    c1 = c2 = c3 = _ZERO
    for _ in range(_ROUNDS):
        c0, c1, c2, c3 = _high(_M1, c2) ^ c1 ^ k0, _M1 * c2, _high(_M0, c0) ^ c3 ^ k1, _M0 * c0
        k0, k1 = k0 + _W0, k1 + _W1
    return c0, c1, c2, c3


@njit(cache=True)
def _word_rows(key: np.uint64, ids: Words, out: Words) -> None:
    count = out.shape[1]
    for i in range(out.shape[0]):
        counter = _ZERO
        for j in range(0, count, 4):
            counter = counter + _ONE  # numpy counts up before the first block
            block = _philox(counter, key, ids[i])
            for k in range(min(4, count - j)):
                out[i, j + k] = block[k]


@njit(cache=True)
def _uniform_rows(raw: Words, out: Array) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = (raw[i, j] >> _DROP) * _UNIT


@njit(cache=True)
def _integer_rows(raw: Words, below: Integers, out: Integers) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.int64(_high(raw[i, j], np.uint64(below[i])))


@njit(cache=True)
def _batch_rows(raw: Words, below: Integers, order: Integers, swapped: Integers, out: Integers) -> None:
    """Fill in batches by the beginning of a shuffle; its swaps are undone after each step, so that no step depends on
    another."""
    for i in range(out.shape[0]):
        size = min(out.shape[2], below[i])
        for e in range(out.shape[1]):
            for b in range(size):
                j = b + np.int64(_high(raw[i, e, b], np.uint64(below[i] - b)))
                order[b], order[j] = order[j], order[b]
                out[i, e, b], swapped[b] = order[b], j
            for b in range(size - 1, -1, -1):
                order[b], order[swapped[b]] = order[swapped[b]], order[b]
