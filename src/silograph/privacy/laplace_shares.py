"""Laplace noise that a cohort makes together: `agents` shares add up to exactly one discrete Laplace number.

A discrete Laplace number of scale t, P(k) proportional to q^|k| with q = exp(-1/t), is the difference of two geometric
numbers, and a geometric number is the sum of c negative binomial ones of size 1/c. So an agent's share is the
difference of two of these. That is a sum of jumps, each up or down with the same chance:

    N is Poisson with mean -(2/c) log(1 - q);   P(x) = q^x / (-x log(1 - q)),  x = 1, 2, ...

A jump is 1 plus a geometric number of ratio p = 1 - (1 - q)^u, with u uniform (Kemp 1981), whose binary digits are
independent coins: digit j is 1 with chance p^(2^j) / (1 + p^(2^j)). Most agents add nothing, a few add much.

**What the sum guarantees.** With c honest shares, exactly what the discrete Laplace mechanism does: epsilon = l1 / t,
without a delta. More shares only add independent noise. Chances are computed to 60 digits and decided by 128 random
bits, so the law is right to 1e-35 for every agent.

**With fewer honest agents, h < c,** the noise is the difference of two negative binomial numbers of size r = h / c. Its
logarithm is convex on either side of 0, so the ratio of its law to the law shifted by `move` steps is largest at 0:

    epsilon = log P(0) - log P(move),    P(0) = (1 - q)^(2r) F(r, r; 1; q^2)

and P(move) is the density of the variance-gamma law (a grid step is far less than t).

It does not run in constant time: an observer who can time an agent that closely learns whether it added noise, and
is not kept out.

Written by hand, because no library splits this noise, and because noise here is named (`samplers`).
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import lru_cache

from silograph.privacy.shamir import Source

_DIGITS = 60
_BYTES = 16
_ONE = 2 ** (8 * _BYTES)


@lru_cache(maxsize=64)
def _law(scale: float, agents: int) -> tuple[Decimal, Decimal]:
    """1 - q, and the mean number of jumps in a share."""
    with localcontext() as context:
        context.prec = _DIGITS
        rest = 1 - (-1 / Decimal(scale)).exp()
        return rest, -2 * rest.ln() / agents


def laplace_share(source: Source, scale: float, agents: int) -> int:
    """One agent's share, a whole number of grid steps, of noise that so many agents make with this scale."""
    rest, mean = _law(scale, agents)
    share = 0
    with localcontext() as context:
        context.prec = _DIGITS
        for _ in range(_poisson(source, mean)):
            u = (Decimal(_drawn(source)) + Decimal("0.5")) / _ONE
            jump = 1 + _geometric(source, 1 - rest**u)
            share += jump if _drawn(source) < _ONE // 2 else -jump
    return share


def _drawn(source: Source) -> int:
    return int.from_bytes(source(_BYTES), "big")


def _poisson(source: Source, mean: Decimal) -> int:
    u = (Decimal(_drawn(source)) + Decimal("0.5")) / _ONE
    count, term = 0, (-mean).exp()
    below = term
    while u > below:
        count += 1
        term *= mean / count
        below += term
    return count


def _geometric(source: Source, ratio: Decimal) -> int:
    """P(x) proportional to ratio^x, x = 0, 1, ..., digit by digit."""
    number, digit, power = 0, 0, ratio
    while chance := int(_ONE * power / (1 + power)):
        number |= (_drawn(source) < chance) << digit
        digit, power = digit + 1, power * power
    return number


def epsilon_with_fewer(epsilon: float, honest: int, counted: int, scale: float) -> float:
    """The epsilon against all others, if only so many agents keep their shares to themselves, of noise of this scale in
    grid steps that had `epsilon` with those who are counted on."""
    r = honest / counted
    if r >= 1.0:
        return epsilon
    from scipy.special import gammaln, hyp2f1, kve  # late: organisations do without

    rest = -math.expm1(-1.0 / scale)
    at_zero = 2.0 * r * math.log(rest) + math.log(hyp2f1(r, r, 1.0, (1.0 - rest) ** 2))
    move = epsilon  # in scales
    order = r - 0.5
    density = order * math.log(0.5 * move) + math.log(kve(order, move)) - move
    moved = density - 0.5 * math.log(math.pi) - float(gammaln(r)) - math.log(scale)
    return at_zero - moved
