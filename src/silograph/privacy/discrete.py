"""Numbers as integers on a grid of step 2^-fraction_bits, and noise that a cohort makes together on that grid.

A secure sum adds integers mod 2^k. Fixed point makes the sum exact; noise drawn on the integers has no low-order bits
that could tell one value from another; floating-point noise has.

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

**The same by the exact Gaussian curve**, on fine grids. Z and Q both sum to 1, so for all d coordinates together their
log ratio is at most h = d eta in size, and for every event and shift

    delta_Z(eps) <= e^h delta_Q(eps - 2h).

From 2^18 steps per deviation on, Q is a rounded Gaussian (`mechanisms` says how closely), whose curve is exact. With mu
its ratio, the right side is at most the curve at mu + 7h wherever that is below 1/2: along (mu + 7t, eps + 2t) its
logarithm grows at least as fast as t. For its derivative in mu is phi(a), a = mu/2 - eps/mu; that in eps is no larger
than 1.26 phi(a); and it is itself at most 3.5 phi(a), as a < 1. `distributed_mu` charges those 7h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.bound import row_lengths
from silograph.privacy.laplace_shares import laplace_share
from silograph.privacy.shamir import Source

Integers = NDArray[np.int64]

LEAST_FINE = 2.0**18  # grid steps in a deviation from which on a discrete Gaussian is a rounded one
LEAST_SHARE = 0.5  # grid steps; below, the noise of an agent is mostly zeros and eta is large
MOST_SHARE = 2.0**40  # so that every integer drawn is exact as a float
SAMPLER_RANGE = 2.0**-39  # see `discrete_gaussian`
_INVERSE_E = math.exp(-1.0)
_LAYERS = 256  # chosen by eight bits of a word; one bit is the sign, and the others choose a place in the layer
_PLACE_BITS = 55
_EDGE = 3.656  # the sigmas at which the tail begins, or a little more
_AT_ONCE, _MANY = 2048, 1 << 16  # numbers: few for the cache; more if many are drawn, so that threads seldom wait
_NARROW = 2**31  # so that half a word times a limit fits in a word
_LEAST_LAYERED = 2.0**10  # below, a layer would hold too few integers to be worth its table
_LENGTH_ROUNDING = 1.0 + 1e-12  # the length check below is itself done in floating point


# ---- fixed point -----------------------------------------------------------------------------------------------------


def word_bits(clip: float, fraction_bits: int, agents: int, noise: float = 0.0) -> int:
    """32 or 64: the smallest word in which no sum can wrap around.

    A coordinate of the sum is at most agents * clip / step, plus twelve deviations of the noise if there is any
    (exceeded with probability 4e-33, and then only the sum is wrong, not the privacy); two bits are for the sign and
    for rounding.
    """
    steps = clip * 2.0**fraction_bits
    if not (1.0 <= steps < math.inf):
        raise InputError(
            "secure sum", "a clip of at least one grid step", f"found {clip:g} with {fraction_bits} fraction bits"
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
    """Round a vector of Euclidean length at most `clip` to the nearest grid point; refuse a longer one, do not cut
    it."""
    if not np.isfinite(vector).all():
        raise InputError("secure sum", "finite numbers", "found an infinite or missing one")
    length = float(row_lengths(vector)[0])
    if length > clip:
        raise InputError(
            "secure sum", f"a vector of length at most the clip {clip:g}", f"found length {length:g}", "Clip it first."
        )
    return np.rint(vector * 2.0**fraction_bits).astype(np.int64)


def decode(whole: Integers, fraction_bits: int) -> Array:
    return np.asarray(whole * 2.0**-fraction_bits)


def grid_l2(clip: float, fraction_bits: int, length: int) -> float:
    """The greatest length of an encoded vector, in grid steps: rounding adds at most half a step per coordinate.

    Replacing one agent moves the sum by at most twice this.
    """
    return (clip * 2.0**fraction_bits + 0.5 * math.sqrt(length)) * _LENGTH_ROUNDING


def grid_move(l2: float, fraction_bits: int, length: int) -> float:
    """How far apart, in grid steps, two vectors can be on the grid if they were `l2` apart: every coordinate of each
    moves by up to half a step."""
    return (l2 * 2.0**fraction_bits + math.sqrt(length)) * _LENGTH_ROUNDING


# ---- noise -----------------------------------------------------------------------------------------------------------


def distributed_rho(l2: float, share: float, contributors: int, length: int) -> float:
    """zCDP of a sum of `length` coordinates that one protected unit moves by at most `l2` grid steps (see the module).

    The samplers' own error, a range of 2^-39 per agent, is charged with the rest.
    """
    eta = _unlike_one(share, contributors)
    return (l2 / (share * math.sqrt(contributors)) + eta * math.sqrt(length)) ** 2 / 2.0


def distributed_mu(l2: float, share: float, contributors: int, length: int) -> float:
    """The Gaussian ratio whose exact curve bounds such a sum, for shares of `LEAST_FINE` steps or more."""
    if share < LEAST_FINE:
        raise InputError("distributed noise", f"shares of at least {LEAST_FINE:g} grid steps", f"found {share:g}")
    return l2 / (share * math.sqrt(contributors)) + 7.0 * length * _unlike_one(share, contributors)


def _unlike_one(share: float, contributors: int) -> float:
    """eta: the range, per coordinate, of the logarithm of the sum's law over that of one discrete Gaussian."""
    check_share(share)
    k = np.arange(1, contributors)
    q = np.exp(-2.0 * math.pi**2 * share**2 * k / (k + 1))
    return float(np.log1p(4.0 * q / ((1.0 - q**8) * (1.0 - 2.0 * q))).sum()) + contributors * SAMPLER_RANGE


def check_share(share: float) -> None:
    if not LEAST_SHARE <= share <= MOST_SHARE:
        raise InputError(
            "distributed noise",
            f"each agent's share between {LEAST_SHARE:g} and 2^40 grid steps",
            f"found {share:g}",
            "Change the fraction bits.",
        )


def discrete_gaussian(source: Callable[[int], bytes | memoryview], sigma: float, size: int) -> Integers:
    """Draw integers with P(x) proportional to exp(-x^2 / (2 sigma^2)), from random bytes.

    Rejection: from layers of equal area under the curve (a ziggurat, after Marsaglia and Tsang 2000, on the integers),
    most of which are inside it, and beyond them from a discrete Laplace tail (after Canonne, Kamath, Steinke 2020);
    small sigmas from the tail alone. A place in a layer is exactly uniform. A coin with chance exp(-g) is thrown in
    factors exp(-1) and one of at least exp(-1), so that small chances keep their relative accuracy: every P(x) is right
    to a factor within 1 +- 2^-40 out to 30 sigma (beyond lies a mass of e^-450). It does not run in constant time, and
    its time depends on the numbers drawn: an observer who can watch the machine that closely is not kept out.

    Parameters
    ----------
    source : Returns so many random bytes, such as `os.urandom`.
    sigma : The parameter, above 0 and at most 2^40; from about 1 on it is the standard deviation.
    size : How many integers are drawn.

    >>> from silograph.privacy.samplers import Keystream
    >>> drawn = discrete_gaussian(Keystream(0, "north", 0, "mean").take, sigma=1000.0, size=100_000)
    >>> drawn.dtype, bool(abs(drawn.std() / 1000.0 - 1.0) < 0.01)
    (dtype('int64'), True)
    """
    if not 0.0 < sigma <= MOST_SHARE:
        todo = "Under a budget: raise epsilon or cut rounds."
        raise InputError(
            "discrete Gaussian", "a parameter above 0 and at most 2^40 grid steps", f"found {sigma:g}", todo
        )
    out = np.empty(size, dtype=np.int64)
    layers = _layers(sigma)
    each = 1.03 if sigma >= _LEAST_LAYERED else 16.0  # words a number takes
    at_once = min(size, 4 * _AT_ONCE if size < _MANY else 16 * _AT_ONCE)
    words, kept, filled = np.empty(int(each * at_once) + 1024, dtype=np.uint64), 0, 0
    while filled < size:
        # The words kept are those of a proposal that ran out of them: it is made again from them and more, so that none
        # is favoured.
        end = min(kept + int(each * min(size - filled, at_once)) + 64, len(words))
        words[kept:end] = _words(source, end - kept)
        filled, used = _proposals(words[:end], sigma, *layers, out, filled)
        kept = end - used
        words[:kept] = words[used:end].copy()
    return out


@lru_cache(maxsize=256)
def _layers(sigma: float) -> tuple[Integers, Integers, Integers, Array, float]:
    """Layers of equal area under the curve f(x) = exp(-x^2 / (2 sigma^2)): the integers below `width`, from height
    `low` to that of the next layer. All below `sure` are under the curve at any height of the layer. `spare` of the
    places that 55 bits can choose are too many. The lowest layer includes the tail, except for the chance that is
    returned last.
    """
    width = np.zeros(_LAYERS + 1, dtype=np.int64)
    low = np.zeros(_LAYERS + 1)
    if sigma < _LEAST_LAYERED:
        return width, width, width, low, 0.0
    edge = math.floor(_EDGE * sigma)
    while True:
        area = edge * math.exp(-0.5 * (edge / sigma) ** 2) + _tail_mass(edge / sigma, sigma)
        if _stack(sigma, edge, area, width, low):
            break
        edge -= math.ceil(sigma / 4096.0)  # the layers must reach the top, at f(0) = 1
    sure = width[1:].copy()
    sure[0] = sure[-1] = 0
    width = width[:-1].copy()
    return width, sure, 2**_PLACE_BITS % width, low, edge * low[1] / area


@njit(cache=True)
def _stack(sigma: float, edge: int, area: float, width: Integers, low: Array) -> bool:
    """Fill in the layers from the lowest up; return whether they reach the top."""
    width[0] = width[1] = edge
    low[1] = math.exp(-0.5 * (edge / sigma) ** 2)
    for i in range(1, len(width) - 1):
        low[i + 1] = low[i] + area / width[i]
        width[i + 1] = math.ceil(sigma * math.sqrt(max(-2.0 * math.log(low[i + 1]), 0.0)))
    return bool(low[-1] >= 1.0)


def _tail_mass(begin: float, sigma: float) -> float:
    """The sum of exp(-x^2 / (2 sigma^2)) over the integers from begin * sigma on, by Euler and Maclaurin.

    What is left out is below sigma^-3 of it.
    """
    here = math.exp(-0.5 * begin**2)
    whole = sigma * math.sqrt(math.pi / 2.0) * math.erfc(begin / math.sqrt(2.0))
    return whole + here * (0.5 + begin / (12.0 * sigma))


def noisy(
    vector: Array, clip: float, fraction_bits: int, share: float, source: Source, laplace_shares: int = 0
) -> Integers:
    """Return what one agent adds to a sum: its vector on the grid, plus its share of the noise if there is any.

    With `laplace_shares`, the share is one of so many of a Laplace number, whose scale is then `share`.
    """
    whole = encode(vector, clip, fraction_bits)
    if laplace_shares:
        return whole + laplace_share(source, share, laplace_shares)
    return whole + discrete_gaussian(source, share, vector.size) if share else whole


@njit(cache=True, nogil=True)
def _proposals(
    words: NDArray[np.uint64],
    sigma: float,
    width: Integers,
    sure: Integers,
    spare: Integers,
    low: Array,
    base: float,
    out: Integers,
    filled: int,
) -> tuple[int, int]:
    """Go on filling `out`; returns how much is filled and how many words were used up by whole proposals."""
    used, at, end, layered = 0, 0, len(words), width[0] > 0
    per_place = 1.0 / (1 << _PLACE_BITS)
    while filled < len(out) and at < end:
        word = words[at]
        at += 1
        sign = np.int64(word) >> 63  # 0, or -1: all bits
        if layered:
            layer = np.int64(word >> np.uint64(_PLACE_BITS)) & (_LAYERS - 1)
            place = np.int64(word & np.uint64((1 << _PLACE_BITS) - 1))
            across = width[layer]
            # place * across / 2^55 rounded down, and the remainder: a product of two words is not available.
            magnitude = np.int64(np.float64(place) * (np.float64(across) * per_place))
            left = place * across - (magnitude << _PLACE_BITS)
            if left < 0:
                magnitude -= 1
                left += 1 << _PLACE_BITS
            elif left >> _PLACE_BITS:
                magnitude += 1
                left -= 1 << _PLACE_BITS
            kept = left >= spare[layer]
            if kept and magnitude >= sure[layer]:
                if layer:
                    height = low[layer + 1] - low[layer]
                    far = magnitude / sigma
                    kept = at < end and _coin(words[at], (math.exp(-0.5 * far * far) - low[layer]) / height)
                    at += 1
                elif at < end and not _coin(words[at], base):
                    beyond, kept, at = _tail(words, at + 1, across, sigma)
                    magnitude = np.int64(beyond)
                else:
                    at += 1
        else:
            beyond, kept, at = _tail(words, at, 0, sigma)
            magnitude = np.int64(beyond)
        if at > end:
            break
        used = at
        # Zero is kept with one sign only, else it would occur twice as often as it should. No branch depends on the
        # sign alone: half of its predictions would be wrong, and that would take as long as all the rest.
        if kept and (magnitude | ~sign) != 0:
            out[filled] = (magnitude ^ sign) - sign
            filled += 1
    return filled, used


@njit(cache=True, nogil=True)
def _mask(limit: int) -> np.uint64:
    """A mask of as many low bits as the numbers below `limit` have."""
    mask = np.uint64(0)
    while mask < np.uint64(max(limit - 1, 0)):
        mask = (mask << np.uint64(1)) | np.uint64(1)
    return mask


@njit(cache=True, nogil=True)
def _below(words: NDArray[np.uint64], at: int, limit: int, mask: np.uint64) -> tuple[int, int]:
    """Draw a uniform whole number below `limit`; return it and the place of the next word, past the end if the words
    ran out.

    floor(word limit / 2^64), without the words that would favour some numbers (Lemire 2019); large limits by `mask`.
    """
    narrow = np.uint64(limit) if limit < _NARROW else np.uint64(0)
    while at < len(words):
        word = words[at]
        at += 1
        if narrow:
            low = word * narrow
            if low >= narrow or low >= (np.uint64(0) - narrow) % narrow:
                half = ((word & np.uint64(0xFFFFFFFF)) * narrow) >> np.uint64(32)
                return int(((word >> np.uint64(32)) * narrow + half) >> np.uint64(32)), at
        else:
            offset = int(word & mask)
            if offset < limit:
                return offset, at
    return 0, len(words) + 1


@njit(cache=True, nogil=True)
def _tail(words: NDArray[np.uint64], at: int, begin: int, sigma: float) -> tuple[int, bool, int]:
    """Draw a magnitude from `begin` on; return it, whether it is kept, and the place of the next word.

    With begin 0 a proposal that is not kept is dropped. A tail that was chosen for its mass tries until one is.
    """
    # Blocks of a discrete Laplace law: its logarithm falls by at least 1 from block to block.
    block = math.floor(sigma) + 1 if begin == 0 else math.ceil(sigma * (sigma / begin))
    mask = _mask(block)
    while True:
        offset, at = _below(words, at, block, mask)
        blocks, at = _heads(words, at, -1)
        beyond = offset + block * blocks
        if begin == 0:
            exponent = _exponent(offset, beyond, sigma)
        else:
            far = beyond / sigma
            exponent = far * (begin / sigma + 0.5 * far) - blocks
        whole = math.floor(exponent)
        heads, at = _heads(words, at, whole)
        kept = heads == whole
        if kept:
            kept = at < len(words) and _chance(words[at], exponent - whole)
            at += 1
        if kept or begin == 0 or at > len(words):
            return begin + beyond, kept, at


@njit(cache=True, nogil=True)
def _exponent(offset: int, magnitude: int, sigma: float) -> float:
    """g = offset / block + (magnitude - sigma^2 / block)^2 / (2 sigma^2)."""
    block = math.floor(sigma) + 1
    surplus = (magnitude - sigma * (sigma / block)) / sigma
    return float(offset / block + 0.5 * surplus * surplus)


@njit(cache=True, nogil=True)
def _heads(words: NDArray[np.uint64], at: int, most: int) -> tuple[int, int]:
    """Count how often a coin with chance 1/e shows heads before it first does not, at most `most`; return that and
    where it stopped.

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


@njit(cache=True, nogil=True)
def _chance(word: np.uint64, exponent: float) -> bool:
    """Return True with probability exp(-exponent); the line below the curve decides most often."""
    return _coin(word, 1.0 - exponent) or _coin(word, math.exp(-exponent))


@njit(cache=True, nogil=True)
def _coin(word: np.uint64, chance: float) -> bool:
    """Return True with the given probability, to 2^-53."""
    return bool(float(word >> np.uint64(11)) < chance * 2.0**53)


def _words(source: Callable[[int], bytes | memoryview], count: int) -> NDArray[np.uint64]:
    return np.frombuffer(source(8 * count), dtype="<u8")
