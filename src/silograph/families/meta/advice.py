"""What to learn a shared start with, from public numbers alone: records, clients, features, classes and the budget.

With all records in every round (rate 1) a round's mean gradient has noise of length sqrt(T P) / (mu N sqrt(K)) clips:
P parameters, T rounds, K clients of N records each, mu of the budget. Noise grows with the rounds as fast as the start
moves, so fewer rounds are worse only where there is little noise, and what noise leaves in a start stays in personal
models: their steps go where their own few records point. So it may be as long as the clip, which gives the rounds, from
5 to 50; and a hidden layer is for those who have all 50 with a third of that noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from silograph.core.results import filled
from silograph.core.types import Json
from silograph.data.clients import ClientTables
from silograph.families.meta.plan import MetaPlan, Settled
from silograph.families.meta.result import USUAL_LAYERS
from silograph.methods.private_meta import SUPPORT, part_sizes
from silograph.privacy.accounting import gaussian_multiplier

_LONGEST, _DEEP, _FEWEST, _MOST = 1.0, 0.3, 5, 50


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


@dataclass(frozen=True)
class Known:
    """What is public of source clients: how many records each has, their shape, and the classes."""

    counts: Sequence[int]
    shape: Sequence[int]
    classes: Sequence[str]

    @classmethod
    def of(cls, tables: ClientTables) -> Known:
        return cls([len(y) for _, y in tables.records], tables.shape, tables.classes)


def advice_for(plan: MetaPlan, known: Known) -> Advice | None:
    """For a plan and its source clients; None where nothing is protected, or not by S4's sound version."""
    if plan.privacy is None or plan.method.version == "paper:":
        return None
    inputs, outputs = math.prod(known.shape), max(len(known.classes), 1)
    return advised(plan.privacy.epsilon, plan.privacy.delta, known.counts, inputs, outputs, plan.method.hidden)


def settled(plan: MetaPlan, known: Known) -> Settled:
    """What the plan says, and the rest as the budget has it."""
    said, advice = plan.method, advice_for(plan, known)
    chosen: Json = {} if advice is None else advice.settings
    if said.hidden != USUAL_LAYERS:  # hidden layers were asked for
        chosen["model"] = "mlp"
    asked = {name: value for name in ("model", "rounds", "rate") if (value := getattr(said, name)) is not None}
    rest = {name: getattr(Settled, name) for name in ("model", "rounds", "rate")}
    return filled(Settled, said, **(rest | chosen | asked))


def _rounds(parameters: int, reach: float) -> float:
    return (_LONGEST * reach) ** 2 / parameters
