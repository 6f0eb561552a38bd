"""The findings of an audit and the promise: numbers for machines."""

from __future__ import annotations

import math
from dataclasses import dataclass

from silograph.core.types import Json
from silograph.privacy.accounting import Cost
from silograph.privacy.attacks.bounds import Bound
from silograph.report.audits import CONFIDENCE

PAIR = "a pair of runs with the same noise, one without the canary and one with it"
CANARY = "one canary of a single run, there or not by a coin"


@dataclass(frozen=True)
class Finding:
    """What an audit found. If nothing is claimed there is no `bound`, only the results of `attacks`.

    `accounted` is the cost of a trial's ledger, `budget` the epsilon that the plan promises, if any: the smaller of the
    two is attacked. `enough` is the number of pairs with which the bound could exceed that.
    """

    observer: str
    site: str
    protected_unit: str
    canary: str
    accounted: Cost
    budget: float | None
    delta: float
    rehearsal: bool
    trials: int = 0
    bound: Bound | None = None
    trial: str | None = None
    others: tuple[Bound, ...] = ()
    accuracy: float | None = None
    distinguisher: str = ""
    leak: str | None = None
    enough: int | None = None
    attacks: tuple[Json, ...] = ()

    @property
    def promised(self) -> float:
        """The attacked promise: the budget or the ledger's cost, whichever is less."""
        return min(self.accounted.epsilon, math.inf if self.budget is None else self.budget)

    @property
    def claimed(self) -> bool:
        return math.isfinite(self.promised)

    @property
    def overspent(self) -> bool:
        """Whether the ledger itself costs more than the plan promises; the rounding of floats is no excess."""
        return self.budget is not None and self.accounted.epsilon > self.budget * (1.0 + 1e-9)

    @property
    def epsilon_lower(self) -> float:
        return math.inf if self.leak is not None else 0.0 if self.bound is None else self.bound.epsilon

    @property
    def refuted(self) -> bool:
        return self.claimed and (self.overspent or self.epsilon_lower > self.promised)

    @property
    def largest(self) -> float:
        """The most that so many trials could have shown."""
        return math.inf if self.bound is None else self.bound.largest

    @property
    def could_refute(self) -> bool:
        return self.refuted or self.largest > self.promised

    def to_json(self) -> Json:
        claimed = self.claimed
        return {
            "observer": self.observer,
            "site": self.site,
            "protected_unit": self.protected_unit,
            "canary": self.canary,
            "trials": self.trials,
            "trial": self.trial,
            "epsilon_lower": _number(self.epsilon_lower) if claimed else None,
            "confidence": CONFIDENCE if claimed else None,
            "epsilon_accounted": _number(self.accounted.epsilon),
            "epsilon_budget": self.budget,
            "delta": self.delta if claimed else None,
            "accountant": self.accounted.accountant,
            "refuted": self.refuted,
            "largest_possible": _number(self.largest) if claimed else None,
            "could_refute": self.could_refute if claimed else None,
            "enough_runs": self.enough,
            "rehearsal": self.rehearsal,
            "how": None if self.bound is None else self.bound.how,
            "bounds": [{"how": b.how, "epsilon": _number(b.epsilon), "trials": b.trials} for b in self.others],
            "distinguisher": self.distinguisher,
            "accuracy": self.accuracy,
            "leak": self.leak,
            "attacks": list(self.attacks),
        }


def _number(value: float) -> float | str:
    return "infinity" if math.isinf(value) else value
