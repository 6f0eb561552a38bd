"""Numbers and findings of a run in plain words. Bounds are rounded up, so that no printed guarantee is too good."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from typing import TypeGuard

from silograph.core.types import Json
from silograph.report.read import RunFolder

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Control characters, halves of a character, and marks that turn the reading direction: none belongs in a name.
INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
NO_PROTECTION = (
    "No privacy protection: whoever receives these files or saw the messages "
    "can learn the sites’ second moments exactly."
)


def number(value: object, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> str:
    """A number as a person writes it: 4 digits, thousands marked, powers of ten where it is tiny or huge."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) and abs(value) < 10**9:
        return f"{value:,}".replace("-", "−")
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    exact = Decimal(repr(value))
    if exact == 0:
        return "0"
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding)
    power = rounded.adjusted()
    if -5 < power < 6:
        return _trim(f"{rounded:,f}").replace("-", "−")
    mantissa = _trim(f"{rounded.scaleb(-power):f}").replace("-", "−")
    return ("" if mantissa == "1" else f"{mantissa} × ") + f"10{superscript(power)}"


def superscript(power: int) -> str:
    return str(power).translate(SUPERSCRIPT)


def column(values: Iterable[object]) -> list[str]:
    """Numbers under each other with equally many decimals, unless they are too unlike for that."""
    values = list(values)
    sizes = [abs(value) for value in values if is_number(value) and value and math.isfinite(value)]
    top = max(sizes, default=0.0)
    if not sizes or not 1e-3 <= top < 1e6 or min(sizes) < top / 1000:
        return [number(value) for value in values]
    decimals = max(0, 3 - math.floor(math.log10(top)))
    return [
        f"{value:,.{decimals}f}".replace("-", "−") if is_number(value) and math.isfinite(value) else number(value)
        for value in values
    ]


def bound(value: object) -> str:
    """A number that promises "at most": rounded up."""
    return number(value, rounding=ROUND_CEILING)


def spread(values: Iterable[object]) -> str:
    """One number, or the range of several. Anything that is not a number is left out."""
    found = sorted(float(value) for value in values if is_number(value))
    if not found:
        return "–"
    low, high = number(_whole(found[0])), number(_whole(found[-1]))
    return low if low == high else f"{low} to {high}"


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def visible(text: str) -> str:
    """The text with a mark in the place of every character that could hide or reorder what is read."""
    return INVISIBLE.sub("\ufffd", text)


def counted(amount: int, thing: str) -> str:
    return f"{number(amount)} {thing}" + ("" if amount == 1 else "s")


def listed(items: Sequence[str], most: int = 12) -> str:
    """a, b and c; a long list ends in how many more there are."""
    if len(items) > most:
        items = [*items[: most - 1], f"{number(len(items) - most + 1)} more"]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" and {items[-1]}" if items else ""


def what_was_learned(result: Json) -> tuple[str, str]:
    """The headline, and the sentence below it."""
    sites, edges = result["sites"], [site["edges"] for site in result["sites"]]
    who = f"{counted(len(sites), 'site')} learned " + ("a graph" if len(sites) == 1 else "graphs together")
    found = f"The consensus graph has {counted(result['consensus']['edges'], 'edge')}"
    per_site = f"; the graph of each site has {spread(edges)}" if sites else ""
    return f"{who} over {counted(len(result['nodes']), 'node')}.", f"{found}{per_site}."


def how_exact(gap: float | None) -> str:
    if gap is None:
        return (
            "No certificate: this solver cannot say how far the result is from the best possible one. "
            "Treat it as approximate."
        )
    if not math.isfinite(gap):
        return "The certificate is empty: nothing is proven about how far the result is from the best possible one."
    if gap > 1e-2:
        return "Not solved: the run stopped early, and its certificate is too weak to say anything useful."
    # The gap is relative to the value reached; relative to the best possible one it may be a little more.
    above = max(gap, 1e-6) if gap <= 1e-6 else gap / (1.0 - gap)
    percent = float(Decimal(repr(above)).scaleb(2))  # scaled as a decimal: times 100 would round up a digit
    proven = f"the objective is proven to be at most {bound(percent)} % above the best possible value."
    if gap <= 1e-4:
        return f"Solved: {proven}"
    return f"Nearly solved: {proven}"


def is_protected(privacy: Json) -> bool:
    """Whether at least one site has a finite epsilon against somebody."""
    return privacy["mode"] != "exact" and any(math.isfinite(row["epsilon"]) for row in privacy["guarantees"])


def is_complete(result: Json) -> bool:
    """Whether every site has a finite epsilon against every observer named."""
    rows = result["privacy"]["guarantees"]
    stated = {(row["site"], row["observer"]) for row in rows}
    wanted = {(site["name"], row["observer"]) for site in result["sites"] for row in rows}
    return wanted <= stated and all(math.isfinite(row["epsilon"]) for row in rows)


def is_noise_known(run: RunFolder) -> bool:
    """Whether noise came from the seed that the run folder itself states."""
    return run.result["seed"] is not None and any(
        is_number(row.get("noise")) and row["noise"] > 0 and "secret" not in str(row.get("randomness")).lower()
        for row in run.ledger
    )


def how_private(run: RunFolder) -> str:
    """Privacy in a sentence or a few, from the accounted numbers only."""
    privacy = run.result["privacy"]
    if not is_protected(privacy):
        return NO_PROTECTION
    sites = [site["name"] for site in run.result["sites"]]
    finite = [row for row in privacy["guarantees"] if math.isfinite(row["epsilon"])]
    covered: dict[str, set[str]] = {}
    for row in finite:
        covered.setdefault(row["observer"], set()).add(row["site"])
    everywhere = [observer for observer, names in covered.items() if names.issuperset(sites)]
    rows = [row for row in finite if row["observer"] in everywhere] if everywhere else finite
    sentence = (
        f"{'Each site is' if everywhere else 'Some sites, not all, are'} differentially private with {_budget(rows)} "
        f"against {listed(everywhere or list(covered))}; "
        f"what is protected is {privacy['unit']} (relation: {privacy['relation']})."
    )
    open_to = [name for name in _first_seen(row["observer"] for row in privacy["guarantees"]) if name not in everywhere]
    if open_to:
        sentence += f" Not every site is protected against {listed(open_to)}: see the table of guarantees."
    if is_noise_known(run):
        sentence += (
            " This run was a rehearsal: its noise came from a stated seed, and protects only where it is secret."
        )
    return sentence


def not_protected(run: RunFolder) -> list[str]:
    """What the guarantees leave open, each in one sentence."""
    privacy, result = run.result["privacy"], run.result
    found: list[str] = []
    bare: dict[str, list[str]] = {}
    for row in privacy["guarantees"]:
        if not math.isfinite(row["epsilon"]):
            bare.setdefault(row["observer"], []).append(row["site"])
    if is_protected(privacy):
        for observer, sites in bare.items():
            found.append(f"Against {observer} there is no protection (ε = ∞) for {listed(_first_seen(sites))}.")
        found.append(
            f"The guarantee covers {privacy['unit']}. A person who contributed to more than that is protected less."
        )
    else:
        found.append(NO_PROTECTION)
    stated = {row["site"] for row in privacy["guarantees"]}
    silent = [site["name"] for site in result["sites"] if site["name"] not in stated]
    if silent:
        found.append(f"No guarantee is stated for {listed(silent)}: assume none.")
    revealed: dict[tuple[str, str], list[str]] = {}
    for row in run.ledger:
        if row["mechanism"] == "reveal":
            revealed.setdefault((row["site"], str(row.get("why") or "no reason given")), []).append(row["silo"])
    for (what, why), silos in revealed.items():
        found.append(
            f"Released on purpose without protection: {what}, {counted(len(silos), 'time')}, "
            f"by {listed(_first_seen(silos))} ({why.rstrip('.')})."
        )
    if is_noise_known(run):
        found.append(
            f"The noise of this run was drawn from the seed {result['seed']} printed below: whoever knows the seed can "
            "take the noise off again. The guarantees describe a run whose noise is secret."
        )
    found.append("The names of nodes and sites and the number of signals of each site are stated here as they are.")
    return found


def _budget(rows: Sequence[Json]) -> str:
    epsilons = sorted(row["epsilon"] for row in rows)
    low, high = bound(epsilons[0]), bound(epsilons[-1])
    text = f"ε = {high}" if low == high else f"ε from {low} to {high}"
    deltas = sorted({row["delta"] for row in rows if row["delta"]})
    if deltas:
        same = len(deltas) == 1 and all(row["delta"] for row in rows)
        text += f" and δ {'=' if same else 'at most'} {bound(deltas[-1])}"
    return text


def _first_seen(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _whole(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e9 else value
