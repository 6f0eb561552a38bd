"""What leaves an organisation that takes part in a graph federation, in words."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.report.deployment import Leaving, OfServers


class SpokenOfUnits(OfServers):
    one, group = "agent", "unit"
    goal = "a model for every unit of agents"
    comes_back = "the model of their own unit"

    @property
    def masked(self) -> bool:
        return bool(self.method.get("masks", "protocol" if self.private else "none") != "none")

    @property
    def protects_silos(self) -> bool:
        return self.private

    def sent(self) -> Iterator[Leaving]:
        yield Leaving(f"how each {self.one} would move the model", self.features, self.each_round, *self.handed_over)
        yield from self.of_masks()


SPOKEN = SpokenOfUnits
