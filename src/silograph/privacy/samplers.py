"""Random words from a stream cipher, and Laplace noise on the integers with no floating-point holes in its tails.

A geometric variable's binary digits are independent coins: P(digit j is 1) = 1 / (1 + exp(2^j / t)). Each coin is
thrown against a threshold of 128 bits, so the discrete Laplace below is exact to 1e-36.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

_ZEROS = bytes(1 << 18)  # a stream cipher's output for them is its key stream

#: Below this delta the samplers' own error would matter.
LEAST_DELTA = 1e-15


class Keystream:
    """The random words of one place in a run: ChaCha20 under a key that is a hash of the root and the place's name."""

    def __init__(self, root: int, silo: str, round: int, site: str) -> None:
        name = b"".join(
            len(part).to_bytes(4, "big") + part
            for part in (str(root).encode(), silo.encode(), str(round).encode(), site.encode())
        )
        key = hashlib.blake2b(name, digest_size=32, person=b"silograph noise").digest()
        self._cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._lent = bytearray()

    def take(self, count: int) -> bytes:
        return self._cipher.update(bytes(count))

    def lend(self, count: int) -> memoryview:
        """The same bytes, which the next call overwrites: fresh memory costs more than the cipher."""
        if len(self._lent) < count:
            self._lent = bytearray(count)
        view = memoryview(self._lent)[:count]
        for begin in range(0, count, len(_ZEROS)):
            part = view[begin : begin + len(_ZEROS)]
            self._cipher.update_into(memoryview(_ZEROS)[: len(part)], part)
        return view

    def words(self, count: int) -> Words:
        return np.frombuffer(self.take(8 * count), dtype="<u8").astype(np.uint64)


@lru_cache(maxsize=64)
def _coins(scale: float) -> tuple[Words, Words]:
    """P(digit j of a geometric variable is 1), j = 0, 1, ..., as two halves of 128 bits, until it is below 2^-128."""
    chances = []
    with localcontext() as context:
        context.prec = 60
        for j in range(63):
            chance = int(Decimal(2) ** 128 / (1 + (Decimal(2) ** j / Decimal(scale)).exp()))
            if chance == 0:
                break
            chances.append(chance)
    high = np.array([chance >> 64 for chance in chances], dtype=np.uint64)
    low = np.array([chance & (2**64 - 1) for chance in chances], dtype=np.uint64)
    return high[:, None], low[:, None]


def _geometric(stream: Keystream, scale: float, count: int) -> Integers:
    """P(k) proportional to exp(-k / scale), k = 0, 1, ..."""
    high, low = _coins(scale)
    thrown = stream.words(len(high) * count).reshape(len(high), count)
    one = thrown < high
    tie = thrown == high
    if tie.any():  # one throw in 2^64: decided by 64 more bits
        one |= tie & (stream.words(one.size).reshape(one.shape) < low)
    digits = np.int64(1) << np.arange(len(high), dtype=np.int64)
    return np.asarray((one * digits[:, None]).sum(0))


def discrete_laplace(stream: Keystream, scale: float, count: int) -> Integers:
    """P(k) proportional to exp(-|k| / scale) on the integers: the difference of two geometric variables."""
    return _geometric(stream, scale, count) - _geometric(stream, scale, count)
