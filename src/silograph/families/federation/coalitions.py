"""What a sum's reach buys and costs: how loud its noise is, and the epsilon left when others join up against an agent.

Agents add the noise. Each adds as much as lets those who are counted on reach what was planned. Whoever joins the other
side tells its own, so that with h honest agents in a sum, the one attacked among them, the ratio is

    mu(h) = mu(planned) sqrt(counted on / h).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from silograph.privacy.accounting import gaussian_epsilon, gaussian_mu
from silograph.privacy.masking import counted_on

_WHOLE = 3  # regions that join up


@dataclass(frozen=True)
class Coalition:
    """Who joins up against an agent, and how many stay honest: of its region, and of all regions."""

    words: str
    own: int
    everybody: int


def coalitions(sizes: Sequence[int]) -> list[Coalition]:
    """Against an agent of the smallest region, servers being on the other side always."""
    own, everybody, larger = min(sizes), sum(sizes), sorted(sizes, reverse=True)
    found = [Coalition("all servers and fewer than a third of the agents", counted_on(own), counted_on(everybody))]
    if len(sizes) > _WHOLE:
        words = "all servers and three whole regions of others"
        found.append(Coalition(words, own, everybody - sum(larger[:_WHOLE])))
    if len(sizes) > 1 and own > 1:
        words = "all servers, all other regions and one more agent"
        found.append(Coalition(words, own - 1, own - 1))
    return found


@dataclass(frozen=True)
class Reached:
    """A budget over sums whose cohorts are so large: all agents, or one region's."""

    epsilon: float
    delta: float
    sizes: tuple[int, ...]
    reach: str
    personal: float = 0.0

    def epsilon_against(self, coalition: Coalition) -> float:
        own = counted_on(min(self.sizes)) / coalition.own
        common = counted_on(sum(self.sizes)) / coalition.everybody if self.reach == "all" else own
        squared = (1.0 - self.personal) * common + self.personal * own
        return gaussian_epsilon(gaussian_mu(self.epsilon, self.delta) * math.sqrt(squared), self.delta)
