"""What leaves an organisation that takes part in a graph federation, in words."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.report.deployment import Leaving, OfServers


class SpokenOfRegions(OfServers):
    one, group = "agent", "region"
    goal = "a model for every region of agents"
    comes_back = "the model of their own region"

    @property
    def masked(self) -> bool:
        return bool(self.method.get("masks", "protocol" if self.private else "none") != "none")

    @property
    def protects_silos(self) -> bool:
        return self.private

    def sent(self) -> Iterator[Leaving]:
        yield Leaving(f"how each {self.one} would move the model", self.features, self.each_round, *self.handed_over)
        yield from self.of_masks()


SPOKEN = SpokenOfRegions
