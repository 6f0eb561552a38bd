"""What audits of the run's plan found, in words: a lower bound on epsilon beside what was promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR

from silograph.core.types import Json
from silograph.report.audits import CONFIDENCE, Audit
from silograph.report.words import apart, bound, counted, found, number

LIMIT = "An audit cannot prove a promise, it can refute one."
OBSERVERS = {
    "server": "the server",
    "neighbour": "a neighbour (another site or server)",
    "wire": "an eavesdropper",
    "public": "the public",
}


def attacked(audits: Sequence[Audit]) -> Json | None:
    """A verdict with its class of the style sheet, its sentences, and the facts behind it.

    Of several audits the one that found most is told, a refutation before all: what a weaker one did not find stays
    found.
    """
    if not audits:
        return None
    audit = max(audits, key=lambda each: (each.refuted, each.epsilon_lower is not None, each.lower))
    observer = _who(audit)
    if audit.epsilon_lower is None:
        attacks = [f"{each.attack}, after {each.aim}: {each.words}." for each in audit.attacks]
        nothing = f"Against {observer} no epsilon was claimed: something leaves without protection. Nothing to refute."
        return {"verdict": ("partial", "No promise was attacked"), "sentences": [nothing, *attacks], "facts": []}
    others = [each for each in audits if each is not audit]
    facts = [*_facts(audit, observer), *(("Another audit", _short(each)) for each in others)]
    return {"verdict": _verdict(audit), "sentences": [_told(audit, observer), *_meaning(audit)], "facts": facts}


def _verdict(audit: Audit) -> tuple[str, str]:
    if audit.refuted:
        return "none", "Refuted"
    if not _could_refute(audit):
        return "partial", "Could not have refuted"
    return ("", "Nothing found") if audit.lower == 0.0 else ("", "Not refuted")


def _could_refute(audit: Audit) -> bool:
    return bool(audit.refuted or audit.largest > audit.promised)


def _told(audit: Audit, observer: str) -> str:
    unit = audit.unit.partition(":")[0]
    who = f"An attacker who knows everything but {unit}, and sees what {observer} sees,"
    lower, promised = apart(audit.lower, audit.promised)
    promise = f"{promised} was promised, at delta {bound(audit.delta)}."
    if audit.leak is not None:
        return f"{who} can tell it whatever the noise: {audit.leak}. No epsilon holds; {promise}"
    return f"{who} could show that epsilon is at least {lower} ({_percent(CONFIDENCE)} confidence); {promise}"


def _meaning(audit: Audit) -> list[str]:
    seed = [
        "A rehearsal: whoever knows the seed of this run takes its noise off. The audit is of noise that is secret."
    ]
    rehearsal = seed * audit.rehearsal
    wrong = "That is more than was promised: noise, clip or accounting is wrong. Do not rely on the guarantees above."
    if audit.leak is not None:
        return [wrong, *rehearsal]
    if audit.lower > audit.promised:
        chance = f"Chance alone accuses at most {_percent(1.0 - CONFIDENCE)} of sound plans; a second audit tells."
        return [wrong, chance, *rehearsal]
    if audit.refuted:
        spent, budget = apart(audit.epsilon_accounted, audit.epsilon_budget or 0.0)
        return [
            f"The ledger itself costs epsilon {spent}, more than the budget of {budget}. Do not rely on the guarantees "
            "above.",
            *rehearsal,
        ]
    if not _could_refute(audit):
        largest = f"With so few trials this audit can show no more than {found(audit.largest)}"
        more = "" if audit.enough_runs is None else f"; silograph audit --runs {audit.enough_runs} could"
        return [f"{largest}, whatever leaks: it could not have refuted the promise{more}. {LIMIT}", *rehearsal]
    if audit.lower == 0.0:
        return [
            f"This attack was too weak to say anything; that does not mean that nothing leaks. {LIMIT}",
            *rehearsal,
        ]
    return [f"That is no more than was promised. {LIMIT}", *rehearsal]


def _facts(audit: Audit, observer: str) -> list[tuple[str, str]]:
    lower, promised = apart(audit.lower, audit.promised)
    budget = audit.epsilon_budget
    largest = audit.largest
    facts = [
        (
            "ε, at least",
            "∞" if audit.leak is not None else f"{lower}, with {_percent(CONFIDENCE)} confidence",
        ),
        ("ε, promised", promised),
        ("ε of the ledger", bound(audit.epsilon_accounted)),
        ("ε of the budget", "none" if budget is None else bound(budget)),
        ("δ", bound(audit.delta)),
        ("Refuted", "yes" if audit.refuted else "no" if _could_refute(audit) else "no, and could not have been"),
        ("Largest ε it could have shown", "no limit" if math.isinf(largest) else found(largest)),
        ("Who attacks", observer),
        ("What is to be hidden", audit.unit),
        ("What was hidden", f"{audit.canary} (at {audit.site})"),
        ("Randomness", "a rehearsal: the plan has a seed" if audit.rehearsal else "secret, as in the run"),
    ]
    if audit.trial is not None:
        facts.append(("Trials", f"{number(audit.trials)}, each {audit.trial}"))
    if audit.accuracy is not None:
        facts.append(("Told right", f"{_percent(audit.accuracy)} (a coin: 50 %)"))
    return facts if audit.how is None else [*facts, ("How the bound follows", audit.how)]


def _short(audit: Audit) -> str:
    if audit.epsilon_lower is None:
        return f"{_who(audit)}: no epsilon claimed"
    lower, promised = apart(audit.lower, audit.promised)
    verdict = _verdict(audit)[1].lower()
    return f"{_who(audit)}: at least {lower} of {promised} with {counted(audit.trials, 'trial')}, {verdict}"


def _who(audit: Audit) -> str:
    return str(OBSERVERS.get(audit.observer, audit.observer))


def _percent(share: float) -> str:
    """Rounded down: what is not certain never reads as 100 %."""
    return f"{number(round(100.0 * share, 9), digits=3, rounding=ROUND_FLOOR)} %"
