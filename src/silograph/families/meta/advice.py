"""What to learn a shared start with, from public numbers alone: records, clients, features, classes and the budget.

With all records in every round (rate 1) a round's mean gradient has noise of length sqrt(T P) / (mu N sqrt(K)) clips:
P parameters, T rounds, K clients of N records each, mu of the budget. It may be three clips long at the most: personal
steps, which cost nothing, mend what noise of that length leaves. So many rounds, from 10 to 50, and a hidden layer
only where all 50 are to be had with a tenth of that noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from silograph.core.types import Json
from silograph.methods.private_meta import SUPPORT, part_sizes
from silograph.privacy.accounting import gaussian_multiplier

_LONGEST, _DEEP, _FEWEST, _MOST = 3.0, 0.1, 10, 50


@dataclass(frozen=True)
class Advice:
    """`noise` is the length of a round's noise, in clips."""

    model: Literal["linear", "mlp"]
    rounds: int
    rate: float
    noise: float

    @property
    def settings(self) -> Json:
        return {"model": self.model, "rounds": self.rounds, "rate": self.rate}


def advised(
    epsilon: float, delta: float, counts: Sequence[int], inputs: int, outputs: int, hidden: Sequence[int]
) -> Advice:
    """For clients with so many records of so many inputs."""
    records = sorted(part_sizes(count)[SUPPORT] for count in counts)[len(counts) // 2]
    reach = records * math.sqrt(len(counts)) / gaussian_multiplier(epsilon, delta, 1)  # mu N sqrt(K)
    sizes = (inputs, *hidden, outputs)
    deep = sum((before + 1) * after for before, after in pairwise(sizes))
    model: Literal["linear", "mlp"] = "mlp" if _rounds(deep, _DEEP * reach) >= _MOST else "linear"
    parameters = deep if model == "mlp" else (inputs + 1) * outputs
    rounds = round(min(max(_rounds(parameters, reach), _FEWEST), _MOST))
    return Advice(model, rounds, 1.0, math.sqrt(rounds * parameters) / reach)


def _rounds(parameters: int, reach: float) -> float:
    return (_LONGEST * reach) ** 2 / parameters
