"""Shamir's secret sharing: any `threshold` shares give the secret back, fewer reveal nothing about it.

The field is the integers mod 65537 = 2^16 + 1. A secret is cut into limbs of 16 bits, each the value at zero of its own
random polynomial of degree threshold - 1; share x is the polynomials' values at x. A small field makes all limbs and
all shares one integer matrix product, and hides exactly as well as one large field would: every limb has fresh
coefficients, so fewer than `threshold` shares are uniform whatever the secret.

Shares are cut and joined limb by limb, so the shares of two secrets, joined, are the shares of the joined secret.
Wrong shares give a wrong secret without notice: whoever combines one must check it against something public. Nothing
here runs in constant time; it is only called with fresh secrets of one round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError

#: Returns so many random bytes: `os.urandom`, or a seeded one in tests and simulation.
Source = Callable[[int], bytes]

PRIME = 65537
_LIMB, _FIELD = np.dtype("<u2"), np.dtype("<u4")  # 65536 is a field element too, so an element takes four bytes
_LARGEST_TABLE = 1 << 21  # numbers
_ONE_THREAD = 200_000  # multiplications that BLAS does in one thread; a second would only wait, busily
_REFUSED = np.uint32(2**32 - 1)

_Elements = NDArray[np.int64]


def share_size(secret: int) -> int:
    """The size in bytes of one share of a secret of so many bytes."""
    return secret // _LIMB.itemsize * _FIELD.itemsize


def split(secret: bytes, points: Sequence[int], threshold: int, source: Source) -> list[bytes]:
    """Return one share per point: the polynomials' values at that x."""
    if not 1 <= threshold <= len(set(points)) == len(points):
        raise InputError(
            "Shamir sharing",
            "distinct points, at least the threshold",
            f"found {len(points)} for threshold {threshold}",
        )
    if not all(0 < x < PRIME for x in points):
        raise InputError("Shamir sharing", f"points from 1 to {PRIME - 1}", f"found {min(points)} to {max(points)}")
    limbs = np.frombuffer(secret, dtype=_LIMB).astype(np.int64)
    coefficients = np.vstack([limbs, _uniform((threshold - 1) * limbs.size, source).reshape(-1, limbs.size)])
    # Sums of up to 2^16 products of two 17-bit numbers are exact in 53 bits, so that BLAS may do them.
    powers = _powers(np.array(points, dtype=np.int64), threshold).astype(np.float64)
    pieces = np.array_split(powers, 1 + powers.size * limbs.size // _ONE_THREAD)
    products = np.vstack([piece @ coefficients.astype(np.float64) for piece in pieces])
    values = products.astype(np.int64) % PRIME
    return [row.tobytes() for row in values.astype(_FIELD)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret behind the shares at these points; all shares given are used."""
    points = np.array(list(shares), dtype=np.int64)
    values = np.array([np.frombuffer(share, dtype=_FIELD) for share in shares.values()]).astype(np.int64)
    limbs = _weights_at_zero(points) @ (values % PRIME) % PRIME
    return limbs.astype(_LIMB).tobytes()


def _uniform(count: int, source: Source) -> _Elements:
    """Uniform field elements: 2^32 - 1 is a multiple of the prime, so one word in 2^32 is thrown away."""
    words = np.frombuffer(source(4 * count), dtype=_FIELD)
    while (refused := words == _REFUSED).any():
        words = np.concatenate([words[~refused], np.frombuffer(source(4 * int(refused.sum())), dtype=_FIELD)])
    return words.astype(np.int64) % PRIME


def _powers(points: _Elements, count: int) -> _Elements:
    """points^0, points^1, ... as columns; from a table, since many split with the same points and thresholds."""
    largest, most = 1 << int(points.max()).bit_length(), -count // 64 * -64
    if largest * most > _LARGEST_TABLE:
        return _powers_of(points, count)
    return np.asarray(_power_table(largest, most)[points, :count])


@lru_cache(maxsize=4)
def _power_table(largest: int, count: int) -> _Elements:
    return _powers_of(np.arange(largest, dtype=np.int64), count)


def _powers_of(points: _Elements, count: int) -> _Elements:
    out = np.ones((points.size, count), dtype=np.int64)
    for k in range(1, count):
        out[:, k] = out[:, k - 1] * points % PRIME
    return out


def _weights_at_zero(points: _Elements) -> _Elements:
    """Lagrange's weights: w_i = product over j != i of x_j / (x_j - x_i), as a sum of logarithms to the base 3."""
    powers, logs = _logarithms()
    apart = logs[(points - points[:, None]) % PRIME]
    np.fill_diagonal(apart, 0)
    own = logs[points]
    return np.asarray(powers[(own.sum() - own - apart.sum(1)) % (PRIME - 1)])


@cache
def _logarithms() -> tuple[_Elements, _Elements]:
    """Powers of 3, which generates all numbers but 0, and the exponent of each number; that of 0 is never used."""
    powers = np.ones(PRIME - 1, dtype=np.int64)
    for k in range(1, PRIME - 1):
        powers[k] = powers[k - 1] * 3 % PRIME
    logs = np.zeros(PRIME, dtype=np.int64)
    logs[powers] = np.arange(PRIME - 1)
    return powers, logs
