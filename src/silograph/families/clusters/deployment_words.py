"""What leaves an organisation that takes part in clustered models, in words."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.report.deployment import BARE, NOISY, Leaving, OfServers


class SpokenOfClusters(OfServers):
    one, group = "client", "server and cluster"
    goal = "personal models for clients in clusters"
    comes_back = "the model of each client’s cluster at its server"
    kept = "your clients’ models"

    @property
    def protects_silos(self) -> bool:
        return self.private and self.privacy.get("protect") == "clients"

    @property
    def hands_over(self) -> bool:
        return "clip" not in self.method or (self.private and not self.protects_silos)

    def sent(self) -> Iterator[Leaving]:
        if "find" in self.method:
            how = (NOISY, False) if self.private else (BARE, True)
            yield Leaving("the mean gradient at zero, to find clusters", self.features, "once, first", *how)
        if self.private and not self.protects_silos:
            yield Leaving("each client’s model", self.features, f"{self.each_round}, the last again at the end", NOISY)
            return
        what = "how far each client’s model is from its cluster’s"
        yield Leaving(what, self.features, self.each_round, *self.handed_over)
        if self.hands_over:
            yield Leaving("each client’s model as the result", self.features, "once, at the end", BARE, True)
        yield from self.of_masks()


SPOKEN = SpokenOfClusters
