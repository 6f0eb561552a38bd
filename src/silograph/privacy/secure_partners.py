"""Who masks towards whom in a large secure sum: a sparse graph of partners instead of all pairs.

Up to `ALL_PAIRS` agents everybody is everybody's partner, as in `secure_sum`. Beyond that, the graph is the union of
independent uniform Hamiltonian cycles over the n agents, drawn from the session that all agree on. An agent with k
partners shares its secrets with them alone, any t(k) of whom can stand in for it, masks towards them alone, and
confirms a list only if t(k) of them survive. All else is as before: one list, signed by more than two thirds of all.

**What holds.** Let fewer than n/3 agents be corrupt, together with all servers, or be declared dropped. The plan may
follow the graph; only the choice of corrupt agents does not depend on it. Then, except with a chance of 2^-46 for any
one honest agent and 2^-46 once for all, the other side learns the sum over all honest survivors and nothing else.

1. *No honest agent has t corrupt partners; it has fewer than t - m, even.* An agent's k partners are, whatever k, a
   uniform choice of k others: nothing tells these apart. So its corrupt ones have a hypergeometric law, and t(k) is
   the least number for which t(k) - m or more have a chance of at most 2^-46 (`threshold_of`). With fewer than t shares
   in the other side's hands, and honest agents revealing one secret of an agent or the other under the one list, the
   other side knows one secret of an honest agent at most.
2. *Honest survivors are connected*, so that their masks leave their sum alone. Let A be a honest survivors without a
   mask towards another honest survivor. If a <= m, an agent of A has t partners that survive and fewer than m of them
   in A: more than t - m are corrupt, which 1 excludes. If a > m, all successors of A in all cycles lie in the set S of
   A, the corrupt and the dropped, |S| < a + n/3. In one cycle that has a chance of at most (|S|/n)^a, in c cycles
   (1/3 + a/n)^(a c). There are at most C(n, a) C(n, n/3) such A and S, and the smaller of two parts has a <= n/2. m is
   chosen so that all this, added up over a, is at most 2^-46 (`cut_off`).

Exactness is not a promise about privacy: if a third of the agents fall silent, a secret that is needed has t holders
left, except with a chance of 2^-20 per agent; otherwise the round is refused.

**How few partners could do?** t must be more than the corrupt partners and no more than those who are left, regardless
of what keeps survivors connected: with m = 0, k = 294 of 3,000 agents and 318 of 10,000 is the least for which both
hold (`fewest_partners`). Graphs here have at least 340 and 449, for 2. With 160 of 3,000, corrupt partners would hold t
shares of an agent with a chance of 2^-15; or, with a threshold for 2^-46, one agent in nine would have fewer than t
partners left when a third fall silent, and every such round would be refused.

After Bell, Bonawitz, Gascon, Lepoint and Raykova (2020). A server that chooses whom it declares dropped can cut their
graph, near neighbours on a ring in random order: two gaps of k/2 agents separate an arc of it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

ALL_PAIRS = 128  # up to so many agents, everybody is everybody's partner
SECURITY, EXACT = 46, 20  # bits


@cache
def sparse(agents: int) -> tuple[int, int]:
    """The number of cycles, and m; both are 0 if all pairs are hardly more."""
    if agents <= ALL_PAIRS:
        return 0, 0
    for m in range(1, agents // 3):
        k = fewest_partners(agents, m)
        if k > 0.9 * agents:
            return 0, 0
        cycles = next((c for c in range(k // 2, 3 * agents) if _fewest(agents, c) >= k), 0)
        if cut_off(agents, cycles, m) <= -SECURITY:
            return cycles, m
    return 0, 0


def fewest_partners(agents: int, m: int) -> int:
    """The least k for which a sum stays exact although t(k) - m is out of reach for corrupt partners."""
    return bisect_left(range(agents), True, lo=32, key=lambda k: _exact(agents, k, m))


@cache
def threshold_of(agents: int, k: int, m: int) -> int:
    """t(k): fewer than t - m of k partners are corrupt, except with a chance of 2^-46, if fewer than n/3 are."""
    from scipy.stats import hypergeom  # slow to load, and small sums do without

    return int(hypergeom.isf(2.0**-SECURITY, agents - 1, (agents - 1) // 3, k)) + 1 + m


def _exact(agents: int, k: int, m: int) -> bool:
    """Whether t of k partners are left if a third of all fall silent, except with a chance of 2^-20."""
    from scipy.stats import hypergeom

    left = hypergeom(agents - 1, agents - 1 - (agents - 1) // 3, k)
    return bool(left.cdf(threshold_of(agents, k, m) - 1) <= 2.0**-EXACT)


def _fewest(agents: int, cycles: int) -> float:
    """The number of partners that all but one in 30,000 agents have at least: four deviations below the mean of the
    number of boxes hit when so many balls are thrown."""
    boxes = agents - 1
    load = 2.0 * cycles / boxes
    missed = math.exp(-load)
    return boxes * (1.0 - missed) - 4.0 * math.sqrt(boxes * missed * (1.0 - (1.0 + load) * missed))


def cut_off(agents: int, cycles: int, m: int) -> float:
    """The logarithm to base 2 of the bound on the chance that more than m honest survivors are cut off."""
    third = math.ceil(agents / 3)
    a = np.arange(m + 1, agents // 2 + 1)
    terms = _choices(agents, a) + _choices(agents, np.array(third))
    terms = terms + a * cycles * np.log(np.minimum((third + a) / agents, 1.0))
    return float(np.logaddexp.reduce(terms) / math.log(2.0))


def _choices(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of C(n, k)."""
    from scipy.special import gammaln

    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def loads(sums: Sequence[int]) -> tuple[list[float], float]:
    """Estimate how many seconds one core takes to simulate all agents of each sum, and how many bytes the largest sum
    takes in a process of its own. Pairs take nearly all: 75 microseconds each, or 110 if everybody is everybody's
    partner and a pair agrees on two keys."""
    pairs = {agents: _pairs(agents) for agents in {*sums}}
    seconds = {agents: (75e-6 if sparse(agents)[0] else 110e-6) * count for agents, count in pairs.items()}
    return [seconds[agents] for agents in sums], 2.5e8 + 2e3 * max(pairs.values(), default=0.0)


def _pairs(agents: int) -> float:
    cycles, _ = sparse(agents)
    all_pairs = agents * (agents - 1) / 2
    return all_pairs * -math.expm1(-2.0 * cycles / (agents - 1)) if cycles else all_pairs


def partners(agents: int, cycles: int, seed: bytes) -> list[NDArray[np.intp]]:
    """The partners' numbers of every agent, by its number, each once and in order."""
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
    after = np.empty((cycles, agents), dtype=np.intp)
    for row in after:
        words = np.frombuffer(stream.update(bytes(8 * agents)), dtype="<u8")
        order = np.argsort(words, kind="stable")
        row[order] = np.roll(order, -1)
    before = np.empty_like(after)
    np.put_along_axis(before, after, np.broadcast_to(np.arange(agents), after.shape), 1)
    both = np.concatenate([after, before])
    return [np.unique(column) for column in both.T]
