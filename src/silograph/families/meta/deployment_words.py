"""What leaves an organisation that takes part in learning a shared start, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from silograph.families.meta.result import USUAL_LAYERS
from silograph.report.deployment import BARE, Leaving, Spoken
from silograph.report.words import number


class SpokenOfAStart(Spoken):
    extras, labels = "deploy,neural", True
    goal = "a shared start for personal models"
    comes_back = "the shared start"

    @property
    def enforced(self) -> bool:
        return self.private and self.method.get("version") != "paper:"

    def sent(self) -> Iterator[Leaving]:
        noisy = ("computed from nothing but sums with noise, for a share of the budget", False)
        how = noisy if self.private else (BARE, True)
        yield Leaving("the start, moved by the organisation’s own steps", self._network, self.each_round, *how)

    @property
    def rounds(self) -> str:
        if self.private and "rounds" not in self.method:
            return "5 to 50"  # as the budget has it (`advice`)
        return number(self.method.get("rounds", 200))

    @property
    def _network(self) -> str:
        """How many parameters a network has, where that is easily said."""
        layers_asked = tuple(self.method["hidden"]) != USUAL_LAYERS
        usual = "network" if self.private and not layers_asked else "mlp"  # as the budget has it (`advice`)
        model, classes = self.method.get("model", usual), self.facts["classes"]
        if model not in ("linear", "mlp", "random_features"):
            return f"as many numbers as the {model} has parameters"
        hidden = self.method["hidden"] if model == "mlp" else []
        inputs = self.method["width"] if model == "random_features" else math.prod(self.facts["shape"])
        layers = [inputs, *hidden, len(classes) or 1]
        return f"{number(sum((before + 1) * after for before, after in pairwise(layers)))} numbers"


SPOKEN = SpokenOfAStart
