"""What leaves an organisation that takes part in clustered models, in words."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.report.deployment import BARE, NOISY, Leaving, OfServers
from silograph.report.words import number


class SpokenOfClusters(OfServers):
    one, group = "client", "server and cluster"
    goal = "personal models for clients in clusters"
    comes_back = "the model that its server holds for each client’s cluster"
    kept = "your clients’ models"

    @property
    def protects_silos(self) -> bool:
        return self.private and self.privacy.get("protect") == "clients"

    @property
    def hands_over(self) -> bool:
        return "clip" not in self.method or (self.private and not self.protects_silos)

    @property
    def rounds(self) -> str:
        stages = 10 if self.method.get("loss") == "logistic" else 5  # of random effects
        most = stages * self.method.get("rounds", 100)
        return f"until solved, at most {number(most + self.finds)}" if self.effects else super().rounds

    @property
    def finds(self) -> bool:
        return bool(self.method.get("find", 1) > 1)

    @property
    def effects(self) -> bool:
        return bool(self.method.get("learner") == "effects")

    def _of_effects(self) -> Iterator[Leaving]:
        d, how = len(self.facts["columns"]) + self.method.get("intercept", True), self.handed_over

        def size(numbers: int) -> str:
            return f"{number(numbers)} numbers of each {self.one}"

        yield Leaving("sums of each client’s columns and of their squares", size(2 * d + 3), "once, first", *how)
        what = "each client’s part of the sums that models and variances are learned from"
        yield Leaving(what, size(d * (d + 1) // 2 + 3 * d + 3), "in every other round", *how)
        yield Leaving("each client’s model as the result", size(d), "once, at the end", BARE, True)

    def sent(self) -> Iterator[Leaving]:
        if self.finds:
            how = (NOISY, False) if self.private else (BARE, True)
            yield Leaving("the mean gradient at zero, to find clusters", self.features, "once, first", *how)
        if self.effects:
            yield from self._of_effects()
            return
        if self.private and not self.protects_silos:
            yield Leaving("each client’s model", self.features, f"{self.each_round}, the last again at the end", NOISY)
            return
        what = "how far each client’s model is from its cluster’s"
        yield Leaving(what, self.features, self.each_round, *self.handed_over)
        if self.hands_over:
            yield Leaving("each client’s model as the result", self.features, "once, at the end", BARE, True)
        yield from self.of_masks()


SPOKEN = SpokenOfClusters
