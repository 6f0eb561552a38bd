"""What a sum's reach buys and costs: how loud its noise is, and the epsilon left when others join up against an agent.

Agents add the noise. Each adds as much as lets those who are counted on reach what was planned. Whoever joins the other
side tells its own, so that with h honest agents in a sum, the one attacked among them, the ratio is

    mu(h) = mu(planned) sqrt(counted on / h).

Shares of Laplace noise have a law of their own (`privacy.laplace_shares`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from silograph.privacy.accounting import gaussian_epsilon, gaussian_mu, laplace_multiplier
from silograph.privacy.laplace_shares import epsilon_with_fewer
from silograph.privacy.masking import counted_on, planned
from silograph.privacy.mechanisms import SharedLaplace

_WHOLE = 3  # regions that join up


@dataclass(frozen=True)
class Coalition:
    """Who joins up against an agent, and how many stay honest: of its region, and of all regions."""

    words: str
    own: int
    everybody: int


def coalitions(sizes: Sequence[int]) -> list[Coalition]:
    """Coalitions against an agent of the smallest region. All servers belong to each coalition."""
    own, everybody, larger = min(sizes), sum(sizes), sorted(sizes, reverse=True)
    found = [Coalition("all servers and fewer than a third of the agents", counted_on(own), counted_on(everybody))]
    if len(sizes) > _WHOLE:
        words = "all servers and three whole regions of others"
        found.append(Coalition(words, own, everybody - sum(larger[:_WHOLE])))
    if len(sizes) > 1:
        words = "all servers and all other agents" if own == 1 else "all servers, all other regions and one more agent"
        found.append(Coalition(words, max(own - 1, 1), max(own - 1, 1)))
    return found


@dataclass(frozen=True)
class Reached:
    """A budget over sums whose cohorts are so large: all agents, or one region's."""

    epsilon: float
    delta: float
    sizes: tuple[int, ...]
    reach: str
    personal: float = 0.0
    pure: bool = False

    def epsilon_against(self, coalition: Coalition) -> float:
        if self.pure:
            return self._of_shares(coalition)
        squared = 0.0
        if self.reach == "all":
            squared += (1.0 - self.personal) * counted_on(sum(self.sizes)) / coalition.everybody
        if (alone := self.personal if self.reach == "all" else 1.0) > 0.0:
            squared += alone * counted_on(min(self.sizes)) / coalition.own
        return gaussian_epsilon(gaussian_mu(self.epsilon, self.delta) * math.sqrt(squared), self.delta)

    def _of_shares(self, coalition: Coalition) -> float:
        everybody = self.reach == "all"
        members = sum(self.sizes) if everybody else min(self.sizes)
        honest = coalition.everybody if everybody else coalition.own
        cohort = planned(members, 1.0, 1, SharedLaplace(laplace_multiplier(self.epsilon, 1)))
        return epsilon_with_fewer(self.epsilon, honest, cohort.contributors, cohort.share)
