"""What an audit of the run's plan found, in words: a lower bound on epsilon beside the accounted one."""

from __future__ import annotations

import math

from silograph.core.types import Json
from silograph.report.words import bound, found, number

LIMIT = "An audit cannot prove a promise, it can refute one."
OBSERVERS = {
    "server": "the server",
    "neighbour": "a neighbour (another site or server)",
    "wire": "an eavesdropper",
    "public": "the public",
}


def attacked(audit: Json | None) -> Json | None:
    """A verdict with its class of the style sheet, its sentences, and the facts behind it."""
    if audit is None:
        return None
    observer = str(OBSERVERS.get(audit["observer"], audit["observer"]))
    if math.isinf(audit["epsilon_accounted"]):
        attacks = [f"{each['attack']}, after {each['aim']}: {each['words']}." for each in audit["attacks"]]
        nothing = f"Against {observer} no epsilon was claimed: something leaves without protection. Nothing to refute."
        return {"verdict": ("partial", "No promise was attacked"), "sentences": [nothing, *attacks], "facts": []}
    verdict = ("none", "Refuted") if audit["refuted"] else ("", "The promise stands")
    return {
        "verdict": verdict,
        "sentences": [_told(audit, observer), *_meaning(audit)],
        "facts": _facts(audit, observer),
    }


def _told(audit: Json, observer: str) -> str:
    unit = audit["unit"].partition(":")[0]
    who = f"An attacker who knows everything but {unit}, and sees what {observer} sees,"
    accounted = f"{bound(audit['epsilon_accounted'])} was accounted, at delta {bound(audit['delta'])}."
    if audit["leak"] is not None:
        return f"{who} can tell it whatever the noise: {audit['leak']}. No epsilon holds; {accounted}"
    lower = f"epsilon is at least {found(audit['epsilon_lower'])} ({_percent(audit['confidence'])} confidence)"
    return f"{who} could show that {lower}; {accounted}"


def _meaning(audit: Json) -> list[str]:
    if audit["refuted"]:
        wrong = (
            "That is more than was promised: noise, clip or accounting is wrong. Do not rely on the guarantees above."
        )
        chance = (
            f"Chance alone accuses at most {_percent(1.0 - audit['confidence'])} of sound plans; a second audit tells."
        )
        return [wrong] if audit["leak"] is not None else [wrong, chance]
    if audit["epsilon_lower"] == 0.0:
        return [f"This attack was too weak to say anything; that does not mean that nothing leaks. {LIMIT}"]
    return [f"That is no more than was promised. {LIMIT}"]


def _facts(audit: Json, observer: str) -> list[tuple[str, str]]:
    lower = f"{found(audit['epsilon_lower'])}, with {_percent(audit['confidence'])} confidence"
    facts = [
        ("ε, at least", "∞" if audit["leak"] is not None else lower),
        ("ε, accounted", bound(audit["epsilon_accounted"])),
        ("δ", bound(audit["delta"])),
        ("Refuted", "yes" if audit["refuted"] else "no"),
        ("Who attacks", observer),
        ("What is to be hidden", audit["unit"]),
        ("What was hidden", f"{audit['canary']} (at {audit['site']})"),
        ("Trials", f"{number(audit['trials'])}, each {audit['trial']}"),
    ]
    if audit["accuracy"] is not None:
        facts.append(("Told right", f"{_percent(audit['accuracy'])} (a coin: 50 %)"))
    return facts if audit["how"] is None else [*facts, ("How the bound follows", audit["how"])]


def _percent(share: float) -> str:
    return f"{number(100.0 * share, digits=3)} %"
