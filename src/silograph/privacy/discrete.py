"""Numbers as integers on a grid of step 2^-fraction_bits, and noise that a cohort makes together on that grid.

A secure sum adds integers mod 2^k. Fixed point makes the sum exact; noise drawn on the integers has no low-order bits
that could tell one value from another, which floating-point noise has.

**What the sum of the agents' noise guarantees.** It is not a discrete Gaussian: those are not closed under addition. It
is very close to one, and `distributed_rho` charges the difference. Write Z for the sum of n independent discrete
Gaussians of parameter s, and Q for the discrete Gaussian of parameter s sqrt(n).

- Completing the square, a discrete Gaussian of parameter s sqrt(k) plus one of parameter s has the weights of the
  discrete Gaussian of parameter s sqrt(k+1) times a theta sum over a shifted grid of variance v = s^2 k/(k+1). By
  Poisson summation that factor is 1 + 2 sum_j q^(j^2) cos(2 pi j c), q = exp(-2 pi^2 v), so its logarithm varies by at
  most log(1 + 4q / ((1 - q^8)(1 - 2q))).
- Convolution widens no such range and ranges add along k, so log(Z/Q) varies by at most their sum eta.
- A log ratio of range eta has Renyi divergence at most a eta^2 / 8 at order a (its cumulant function vanishes at 0 and
  1 and has second derivative at most eta^2 / 4). Q against Q shifted by an integer vector of length l2 has
  a l2^2 / (2 n s^2) (Canonne, Kamath, Steinke 2020). Square roots of such bounds add along the chain
  Z, Q, shifted Q, shifted Z, which gives, for d coordinates,

      rho = (l2 / (s sqrt(n)) + eta sqrt(d))^2 / 2,    concentrated differential privacy (zCDP).

It is the bound of Kairouz, Liu and Steinke (2021), who have 10 sum q for our eta of about 4 sum q. More survivors than
n only add independent noise, and the reduction mod 2^k is post-processing: the bound holds for both.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.bound import row_lengths
from silograph.privacy.shamir import Source

Integers = NDArray[np.int64]

LEAST_SHARE = 0.5  # grid steps; below, the noise of an agent is mostly zeros and eta is large
MOST_SHARE = 2.0**40  # so that every integer drawn is exact as a float
_SAMPLER_RANGE = 2.0**-39  # see `discrete_gaussian`
_INVERSE_E = math.exp(-1.0)
_LENGTH_ROUNDING = 1.0 + 1e-12  # the length check below is itself done in floating point


# ---- fixed point -----------------------------------------------------------------------------------------------------


def word_bits(clip: float, fraction_bits: int, agents: int, noise: float = 0.0) -> int:
    """32 or 64: the least word in which no sum can wrap around.

    A coordinate of the sum is at most agents * clip / step, and twelve deviations of the noise if there is any (passed
    with probability 4e-33, and then only the sum is wrong, not the privacy); two bits are the sign and room for
    rounding.
    """
    steps = clip * 2.0**fraction_bits
    if not (1.0 <= steps < math.inf):
        raise InputError(
            "secure sum", "a clip of at least one grid step", f"{clip:g} with {fraction_bits} fraction bits came"
        )
    needed = math.log2(agents * steps + 12.0 * math.sqrt(agents) * noise) + 2.0
    for bits in (32, 64):
        if needed <= bits:
            return bits
    raise InputError(
        "secure sum",
        "a sum that fits into 64 bits",
        f"clip {clip:g} with {fraction_bits} fraction bits, {agents} agents and noise {noise:g} needs {needed:.1f}: "
        "it could overflow",
        f"Use at most {math.floor(fraction_bits - needed + 64.0)} fraction bits.",
    )


def encode(vector: Array, clip: float, fraction_bits: int) -> Integers:
    """The nearest grid point, for a vector of Euclidean length at most `clip`; a longer one is refused, not cut."""
    if not np.isfinite(vector).all():
        raise InputError("secure sum", "finite numbers", "an infinite or missing one came")
    length = float(row_lengths(vector)[0])
    if length > clip:
        raise InputError(
            "secure sum", f"a vector of length at most the clip {clip:g}", f"length {length:g} came", "Clip it first."
        )
    return np.rint(vector * 2.0**fraction_bits).astype(np.int64)


def decode(whole: Integers, fraction_bits: int) -> Array:
    return np.asarray(whole * 2.0**-fraction_bits)


def grid_l2(clip: float, fraction_bits: int, length: int) -> float:
    """The longest an encoded vector can be, in grid steps: rounding adds half a step a coordinate.

    Replacing one agent moves the sum by at most twice this.
    """
    return (clip * 2.0**fraction_bits + 0.5 * math.sqrt(length)) * _LENGTH_ROUNDING


# ---- noise -----------------------------------------------------------------------------------------------------------


def noise_share(sigma: float, fraction_bits: int, contributors: int) -> float:
    """What each agent adds, in grid steps, so that `contributors` of them together have at least parameter `sigma`.

    `contributors` is the fewest whose noise counts: the threshold of the secure sum, less the agents that may collude
    with the observer, since those know their own noise. A discrete Gaussian's variance is a little below the square of
    its parameter (by 2e-7 of it at parameter 1, by less than 1e-30 from 2 on); `distributed_rho` needs the parameter.
    """
    share = sigma * 2.0**fraction_bits / math.sqrt(contributors)
    check_share(share)
    return share


def distributed_rho(l2: float, share: float, contributors: int, length: int) -> float:
    """zCDP of a sum of `length` coordinates that one unit moves by at most `l2` grid steps (see the module).

    The samplers' own error, a range of 2^-39 an agent, is charged with the rest.
    """
    check_share(share)
    k = np.arange(1, contributors)
    q = np.exp(-2.0 * math.pi**2 * share**2 * k / (k + 1))
    eta = float(np.log1p(4.0 * q / ((1.0 - q**8) * (1.0 - 2.0 * q))).sum()) + contributors * _SAMPLER_RANGE
    return (l2 / (share * math.sqrt(contributors)) + eta * math.sqrt(length)) ** 2 / 2.0


def check_share(share: float) -> None:
    if not LEAST_SHARE <= share <= MOST_SHARE:
        raise InputError(
            "distributed noise",
            f"each agent's share between {LEAST_SHARE:g} and 2^40 grid steps",
            f"{share:g} came",
            "Change the fraction bits.",
        )


def discrete_gaussian(source: Source, sigma: float, size: int) -> Integers:
    """Integers with P(x) proportional to exp(-x^2 / (2 sigma^2)), from random bytes.

    Rejection from the discrete Laplace (Canonne, Kamath, Steinke 2020). A Laplace magnitude is `offset`
    within a block of floor(sigma) + 1 integers plus a geometric number of blocks; its own test and the Gaussian's are
    one coin with chance exp(-g). Such a coin is thrown in factors exp(-1) and one of at least exp(-1), so that small
    chances keep their relative accuracy: every P(x) is right to a factor within 1 +- 2^-40 out to 30 sigma (beyond lies
    a mass of e^-450). It does not run in constant time, and how long it takes tells of
    the numbers drawn: who can watch the machine that closely is not kept out.
    """
    if not 0.0 < sigma <= MOST_SHARE:
        todo = "Under a budget: raise epsilon or cut rounds."
        raise InputError(
            "discrete Gaussian", "a parameter above 0 and at most 2^40 grid steps", f"{sigma:g} came", todo
        )
    out = np.empty(size, dtype=np.int64)
    words, filled = _words(source, 16 * size + 64), 0
    while True:
        filled, used = _proposals(words, sigma, out, filled)
        if filled == size:
            return out
        # The proposal that ran out of words is made again from the same words and more, so that none is favoured.
        words = np.concatenate([words[used:], _words(source, 16 * (size - filled) + 64)])


def noisy(vector: Array, clip: float, fraction_bits: int, share: float, source: Source) -> Integers:
    """What one agent adds to a sum: its vector on the grid, and its share of the noise if there is any."""
    whole = encode(vector, clip, fraction_bits)
    return whole + discrete_gaussian(source, share, vector.size) if share else whole


@njit(cache=True)
def _proposals(words: NDArray[np.uint64], sigma: float, out: Integers, filled: int) -> tuple[int, int]:
    """Go on filling `out`; returns how much is filled and how many words were used up by whole proposals."""
    block = math.floor(sigma) + 1
    mask = np.uint64(0)
    while mask < np.uint64(block - 1):
        mask = (mask << np.uint64(1)) | np.uint64(1)
    used, at, end = 0, 0, len(words)
    while filled < len(out) and at < end:
        negative = words[at] >> np.uint64(63) == np.uint64(1)
        offset = int(words[at] & mask)  # at most 41 low bits: independent of the sign's
        at += 1
        if offset >= block:
            used = at
            continue
        blocks, at = _heads(words, at, -1)
        magnitude = offset + block * blocks
        # Zero is proposed with one sign only, else it would come twice as often as it should.
        kept = not (negative and magnitude == 0)
        if kept:
            exponent = _exponent(offset, magnitude, sigma)
            whole = math.floor(exponent)
            heads, at = _heads(words, at, whole)
            kept = heads == whole
            if kept:
                kept = at < end and _coin(words[at], math.exp(whole - exponent))
                at += 1
        if at > end:
            break
        used = at
        if kept:
            out[filled] = -magnitude if negative else magnitude
            filled += 1
    return filled, used


@njit(cache=True)
def _exponent(offset: int, magnitude: int, sigma: float) -> float:
    """g = offset / block + (magnitude - sigma^2 / block)^2 / (2 sigma^2)."""
    block = math.floor(sigma) + 1
    surplus = (magnitude - sigma * (sigma / block)) / sigma
    return float(offset / block + 0.5 * surplus * surplus)


@njit(cache=True)
def _heads(words: NDArray[np.uint64], at: int, most: int) -> tuple[int, int]:
    """How often a coin with chance 1/e comes up before it first does not, or `most` times; and where it stopped.

    Past the end if the words ran out.
    """
    heads = 0
    while heads != most:
        if at >= len(words):
            return heads, len(words) + 1
        at += 1
        if not _coin(words[at - 1], _INVERSE_E):
            break
        heads += 1
    return heads, at


@njit(cache=True)
def _coin(word: np.uint64, chance: float) -> bool:
    """True with the given probability, to 2^-53."""
    return bool(float(word >> np.uint64(11)) < chance * 2.0**53)


def _words(source: Source, count: int) -> NDArray[np.uint64]:
    return np.frombuffer(source(8 * count), dtype="<u8").astype(np.uint64)
