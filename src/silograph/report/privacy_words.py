"""What a run cost in privacy, in words: from the accounted numbers only, with what they leave open said beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from silograph.core.results import Claim, Guarantee, Privacy
from silograph.core.types import Json
from silograph.report.read import RunFolder
from silograph.report.words import alike, bound, capital, counted, first_seen, is_number, listed

OBFUSCATED = (
    "There is no guarantee. What was sent was blurred or masked, which hinders a casual listener; but whoever collects "
    "enough of it can learn the values behind it. This is not differential privacy."
)

FALSE_ALARMS, MOST_SHARE = 0.05, 0.99
#: Lines of a table of guarantees, and names in a cell of it.
MOST_GUARANTEES, MOST_NAMES = 20, 4

OBSERVERS = {"server": "the server", "wire": "eavesdroppers", "public": "the public"}

REFUTED = "An attack on this plan learned more than the promise allows: do not rely on the promise; see “Attacked”."


@dataclass(frozen=True)
class PrivacyWords:
    """The findings about one run, and the few words in which the kinds of run differ."""

    run: RunFolder[Any]
    #: Whom a guarantee is for: what one of them is called, and their names.
    noun: str
    names: Sequence[str]
    #: What it means here that nothing was protected.
    unprotected: str
    #: What the page itself gives away.
    stated: str
    #: How to write an observer, where its own name does not read well.
    observers: Mapping[str, str] = field(default_factory=lambda: OBSERVERS)
    #: Parts of the names that have a noun of their own.
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def is_protected(self) -> bool:
        """Whether at least one name has a finite epsilon against somebody."""
        rows = self._privacy.guarantees
        return self._privacy.mode not in ("exact", "obfuscation") and any(r.finite for r in rows)

    def verdict(self) -> tuple[str, str]:
        """How much of the run is protected: a class of the style sheet, and a label."""
        if self._is_refuted():
            return "none", "Refuted by an attack"
        if self._privacy.mode == "obfuscation":
            return "partial", "Obfuscation only: not differential privacy"
        if not self.is_protected():
            return "none", "Not private"
        if not self._is_complete():
            return "partial", "Private in part"
        if self._false_claims():
            return "partial", "Private, but less than the paper claims"
        return ("partial", "Rehearsal of privacy") if self._is_rehearsal() else ("full", "Private")

    def summary(self) -> str:
        """Privacy in a sentence or a few."""
        if self._is_refuted():
            return f"{REFUTED} What was promised: {self._promise()}"
        return self._promise()

    def _promise(self) -> str:
        if not self.is_protected():
            return self._why_not()
        privacy = self._privacy
        finite = [row for row in privacy.guarantees if row.finite]
        covered: dict[str, set[str]] = {}
        for row in finite:
            covered.setdefault(row.observer, set()).add(row.site)
        everywhere = [observer for observer, names in covered.items() if names.issuperset(self.names)]
        rows = [row for row in finite if row.observer in everywhere] if everywhere else finite
        who = f"Each {self.noun} is" if everywhere else f"Some {self.noun}s, not all, are"
        sentence = (
            f"{who} differentially private with {_budget(rows)} "
            f"against {self._people(everywhere or list(covered))}; "
            f"what is protected is {privacy.protected_unit} (relation: {privacy.relation})."
        )
        sentence += f" {_meaning(rows)}"
        observers = first_seen(row.observer for row in privacy.guarantees)
        open_to = [name for name in observers if name not in everywhere]
        if open_to:
            sentence += (
                f" Not every {self.noun} is protected against {self._people(open_to)}: see the table of guarantees."
            )
        if false := self._false_claims():
            claim = f"ε = {bound(false[0].epsilon)}"
            sentence += f" {false[0].basis} claims {claim} for this version; that claim is false."
        if self._is_rehearsal():
            sentence += " This run was a rehearsal: its noise comes from a stated seed, and only secret noise protects."
        return sentence

    def guarantees(self) -> Json:
        """What observers can learn, and what a paper claims: one line for all names and observers with the same printed
        numbers; if lines are too many, those that protect least."""
        stated = [(each.site, each.observer, each) for each in self._privacy.guarantees]
        found = alike(stated, key=_as_printed)
        if len(found) > MOST_GUARANTEES:
            found.sort(key=lambda line: -line[0].epsilon)
        rows = [
            vars(each) | {"names": self.everybody(names), "observers": capital(self._people(observers))}
            for each, names, observers in found[:MOST_GUARANTEES]
        ]
        left_out = len({name for _, names, _ in found[MOST_GUARANTEES:] for name in names})
        return {"noun": self.noun, "rows": rows, "left_out": left_out}

    def left_open(self) -> list[str]:
        """What the guarantees do not cover, each in one sentence."""
        privacy, seed = self._privacy, self.run.made.seed
        found: list[str] = []
        if self.is_protected():
            bare: dict[str, list[str]] = {}
            for row in privacy.guarantees:
                if not row.finite:
                    bare.setdefault(row.observer, []).append(row.site)
            for observer, names in bare.items():
                who = listed(first_seen(names)) if set(self.names) - set(names) else f"any {self.noun}"
                found.append(f"Against {self._people([observer])} there is no protection (ε = ∞) for {who}.")
            found.append(
                f"The guarantee covers {privacy.protected_unit}. A person who contributed more than that is protected "
                "less."
            )
        else:
            found.append(self._why_not())
        stated = {row.site for row in privacy.guarantees}
        silent = [name for name in self.names if name not in stated]
        if silent:
            found.append(f"No guarantee is stated for {listed(silent)}: assume none.")
        revealed: dict[tuple[str, str], list[str]] = {}
        for left in self.run.ledger:
            if left["mechanism"] == "reveal":
                # How many agents a sum has differs from server to server; that they trust it does not.
                why = re.sub(r"^\d+ (?=agents)", "", str(left.get("why") or "no reason given"))
                revealed.setdefault((left["release_point"], why), []).append(left["silo"])
        for (what, why), silos in revealed.items():
            found.append(
                f"Released on purpose without protection: {what}, {counted(len(silos), 'time')}, "
                f"by {listed(first_seen(silos), MOST_NAMES)} ({why.rstrip('.')})."
            )
        if self._is_rehearsal():
            source = "a seed" if seed is None else f"the seed {seed} printed below"
            found.append(
                f"The noise of this run was drawn from {source}: whoever knows the seed can remove the noise."
                + (" The guarantees hold for the same run with secret noise." if self.is_protected() else "")
            )
        return [*found, self.stated]

    @property
    def _privacy(self) -> Privacy:
        privacy: Privacy = self.run.result.privacy
        return privacy

    def _is_complete(self) -> bool:
        """Whether every name has a finite epsilon against every observer named."""
        rows = self._privacy.guarantees
        stated = {(row.site, row.observer) for row in rows}
        wanted = {(name, row.observer) for name in self.names for row in rows}
        return wanted <= stated and all(row.finite for row in rows)

    def _false_claims(self) -> list[Claim]:
        """Of a paper's own version: claims that are better than what was accounted."""
        if self._privacy.mode != "paper:":
            return []
        rows = self._privacy.guarantees
        return [row.claim for row in rows if row.claim and row.claim.epsilon < row.epsilon]

    def _is_refuted(self) -> bool:
        return any(audit.refuted for audit in self.run.audits)

    def _is_rehearsal(self) -> bool:
        """Whether noise came from a seed: the run says so, or its folder states the seed."""
        if any(row.rehearsal and row.finite for row in self._privacy.guarantees):
            return True
        return self.run.made.seed is not None and any(
            is_number(row.get("noise")) and row["noise"] > 0 and "secret" not in str(row.get("randomness")).lower()
            for row in self.run.ledger
        )

    def _why_not(self) -> str:
        return OBFUSCATED if self._privacy.mode == "obfuscation" else self.unprotected

    def everybody(self, names: Sequence[str]) -> str:
        groups = {self.noun: self.names, **self.groups}
        every = (noun for noun, members in groups.items() if len(members) > 1 and set(names) == set(members))
        return next((f"Every {noun}" for noun in every), listed(names, MOST_NAMES))

    def _people(self, observers: Sequence[str]) -> str:
        return listed([self.observers.get(name, name) for name in observers])


def _as_printed(row: Guarantee) -> str:
    return repr((bound(row.epsilon), bound(row.delta), row.accountant, row.claim))


def _meaning(rows: Sequence[Guarantee]) -> str:
    """What the largest epsilon means to whoever looks for somebody."""
    from silograph.privacy.accounting import Cost, caught  # its quantiles take a while to import

    worst = max(rows, key=lambda row: row.epsilon)
    share = caught(Cost(worst.epsilon, worst.delta or 0.0, worst.accountant), FALSE_ALARMS)
    alarms = f"{100.0 * FALSE_ALARMS:g}\N{NO-BREAK SPACE}%"
    most = f"at most {math.ceil(100.0 * share)}\N{NO-BREAK SPACE}%" if share < MOST_SHARE else "nearly all"
    return (
        f"In other words: an attacker who knows all other data and accepts {alarms} false alarms recognises "
        f"{most} of those it looks for (by guessing: {alarms})."
    )


def _budget(rows: Sequence[Guarantee]) -> str:
    epsilons = sorted(row.epsilon for row in rows)
    low, high = bound(epsilons[0]), bound(epsilons[-1])
    text = f"ε = {high}" if low == high else f"ε from {low} to {high}"
    deltas = sorted({row.delta for row in rows if row.delta})
    if deltas:
        same = len(deltas) == 1 and all(row.delta for row in rows)
        text += f" and δ {'=' if same else 'at most'} {bound(deltas[-1])}"
    return text
