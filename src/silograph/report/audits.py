"""Read from audit.json what audits of a run found. A file that contradicts the run or itself is refused."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silograph.core import old_names, schema
from silograph.core.errors import DamageError, InputError
from silograph.core.results import Guarantee, Made, Result, read_text
from silograph.core.schema import Epsilon, shortened
from silograph.core.toml import parse_toml

FILE, FORMAT = "audit.json", 2
CONFIDENCE = 0.99  # of every audit
#: Whom an audit calls so, as guarantees call them.
AUDITED: dict[str, tuple[str, ...]] = {
    "server": ("server", "own server"),
    "neighbour": ("neighbour", "other sites"),
    "wire": ("wire",),
    "public": ("public",),
}
ADVICE = (
    "Restore audit.json from a copy. If there is none, remove it and audit the folder again; a refutation that it held "
    "is lost then."
)


@dataclass(frozen=True)
class LowerBound:
    how: str
    epsilon: Epsilon
    trials: int


@dataclass(frozen=True)
class Attack:
    """On what a plan sends that claims no epsilon: `off_by` is relative to the length of the truth."""

    aim: str
    attack: str
    off_by: float
    words: str


@dataclass(frozen=True)
class Audit:
    """Bounds, confidence and what could have been shown are None where no epsilon is claimed."""

    observer: str
    site: str
    protected_unit: str
    canary: str
    trials: int
    trial: str | None
    epsilon_lower: Epsilon | None
    confidence: float | None
    epsilon_accounted: Epsilon
    epsilon_budget: float | None
    delta: float | None
    accountant: str
    refuted: bool
    largest_possible: Epsilon | None
    could_refute: bool | None
    enough_runs: int | None
    rehearsal: bool
    how: str | None
    bounds: list[LowerBound]
    distinguisher: str
    accuracy: float | None
    leak: str | None
    attacks: list[Attack]
    versions: dict[str, str]

    @property
    def promised(self) -> float:
        """The promise that is attacked: the budget or the cost in the ledger, whichever is smaller."""
        return min(self.epsilon_accounted, math.inf if self.epsilon_budget is None else self.epsilon_budget)

    @property
    def verdict(self) -> tuple[str, str]:
        """A class of the style sheet, and the audit's result in words."""
        if self.epsilon_lower is None:
            return "partial", "No promise was attacked"
        if self.refuted:
            return "none", "Refuted"
        if not self.could_refute:
            return "partial", "Could not have refuted"
        return "", "Nothing found" if self.lower == 0.0 else "Not refuted"

    @property
    def lower(self) -> float:
        return self.epsilon_lower or 0.0

    @property
    def largest(self) -> float:
        return math.inf if self.largest_possible is None else self.largest_possible


@dataclass(frozen=True)
class Audits:
    """All audits of one run."""

    plan: str
    ledger: str
    audits: list[Audit]


def strongest(audits: Sequence[Audit]) -> Audit | None:
    """Return the audit that found most; a refutation comes before all others."""
    return max(audits, key=lambda each: (each.refuted, each.epsilon_lower is not None, each.lower), default=None)


def read_audits(folder: Path, result: Result, made: Made) -> list[Audit]:
    """audit.json, if there is one."""
    if not (folder / FILE).exists():
        return []
    try:
        return checked_audits(read_text(folder / FILE), folder, result, made)
    except DamageError as error:
        raise DamageError(error.where, error.expected, error.found, ADVICE) from None


def checked_audits(text: str, folder: Path, result: Result, made: Made) -> list[Audit]:
    """The audits in the text of an audit.json, whether it is in the folder already or not."""
    path, plan = str(folder / FILE), read_text(folder / "plan.toml")
    told = schema.of_format(old_names.audits(schema.parse_json(text, path, DamageError)), FORMAT, path, DamageError)
    found = schema.read(Audits, told, path, DamageError, further=True)
    ran = hashlib.sha256(plan.encode()).hexdigest()
    if not found.plan == ran == made.plan or found.ledger != made.ledger:
        raise DamageError(path, "audits of the run in this folder", "they are of another plan or ledger")
    budget = _budget(plan, str(folder / "plan.toml"))
    for index, audit in enumerate(found.audits):
        expect = _Expecting(audit, f"{path}, audits[{index}]")
        _check_itself(audit, expect)
        _check_against_run(audit, result, made, budget, expect)
    return found.audits


@dataclass(frozen=True)
class _Expecting:
    audit: Audit
    where: str

    def __call__(self, good: bool, key: str, expected: str) -> None:
        if not good:
            raise DamageError(f"{self.where}.{key}", expected, f"found {shortened(getattr(self.audit, key))}")


def _check_itself(audit: Audit, expect: _Expecting) -> None:
    for key in ("delta", "accuracy"):
        share = getattr(audit, key)
        expect(share is None or 0.0 <= share <= 1.0, key, "a number from 0 to 1")
    claimed = math.isfinite(audit.promised)
    for key in ("epsilon_lower", "confidence", "largest_possible", "could_refute"):
        words = "a value where an epsilon is claimed" if claimed else "null where no epsilon is claimed"
        expect((getattr(audit, key) is not None) == claimed, key, words)
    lower, largest, leaks = audit.epsilon_lower, audit.largest_possible, audit.leak is not None
    if lower is None or largest is None:
        expect(not leaks, "leak", "null where no epsilon is claimed")
        expect(not audit.refuted, "refuted", "false where no epsilon is claimed")
        return
    budget = math.inf if audit.epsilon_budget is None else audit.epsilon_budget
    refuted = lower > audit.promised or audit.epsilon_accounted > budget * (1.0 + 1e-9)
    first = [] if leaks else [(audit.how, lower)]
    expect(audit.delta is not None, "delta", "a number where an epsilon is claimed")
    expect(audit.confidence == CONFIDENCE, "confidence", f"{CONFIDENCE:g}, that of every audit")
    expect(audit.trials > 0 or leaks, "trials", "how many there were")
    expect(leaks == math.isinf(lower), "leak", "told where the lower bound is infinite, and nowhere else")
    expect(audit.refuted == refuted, "refuted", "true where more was found or spent than promised, else false")
    expect(lower <= largest, "largest_possible", "no less than what was found")
    could = refuted or largest > audit.promised
    expect(audit.could_refute == could, "could_refute", "whether so much could have been shown")
    told = [(bound.how, bound.epsilon) for bound in audit.bounds[:1]]
    expect(told == first, "bounds", "first the one that is told; none of a leak")


def _check_against_run(audit: Audit, result: Result, made: Made, budget: float | None, expect: _Expecting) -> None:
    """Refuse audits that do not fit the costs and the plan of the folder."""
    privacy, accounted = result.privacy, audit.epsilon_accounted
    expect(audit.observer in AUDITED, "observer", ", ".join(AUDITED))
    # A server's guarantees may be of its clusters.
    known = any(f"{each.site}/".startswith(f"{audit.site}/") for each in privacy.guarantees)
    expect(known, "site", "one of the sites that the result lists")
    stated = [each for each in privacy.guarantees if each.observer in AUDITED[audit.observer]]
    worst: Guarantee | None = max(stated, key=lambda each: each.epsilon, default=None)
    same = worst is not None and (
        math.isclose(accounted, worst.epsilon, rel_tol=1e-6) or accounted == worst.epsilon == math.inf
    )
    expect(same, "epsilon_accounted", "what the folder's result says of this observer")
    # Whom a plan trusts, and who sees everything, it promises nothing.
    budgets = (budget, None) if math.isinf(accounted) else (budget,)
    expect(audit.epsilon_budget in budgets, "epsilon_budget", f"the plan's, {budget}")
    if worst is not None and math.isfinite(accounted):
        expect(audit.delta == (worst.delta or 0.0), "delta", "that of the result")
        expect(audit.protected_unit.startswith(privacy.protected_unit), "protected_unit", "what the result protects")
        expect(audit.rehearsal == (made.seed is not None), "rehearsal", "true where the plan has a seed")


def _budget(plan: str, where: str) -> float | None:
    """The epsilon that a plan is held to: S4's own version costs what it costs."""
    try:
        told = parse_toml(plan, where)
        epsilon = told["privacy"]["epsilon"] if "privacy" in told else None
        free = told.get("method", {}).get("version") == "paper:"
    except (InputError, LookupError, TypeError, AttributeError) as error:
        raise DamageError(where, "the plan of a run", f"reading failed ({error})") from None
    return None if free else epsilon
