"""The privacy of a run in words: what is protected, against whom, how strongly, and what is not. All numbers are those
of the accountant."""

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

#: A sentence of a note, which is part of the promise.
HOLDS = re.compile(r"The guarantee holds [^.]*\.")

REFUTED = "An attack on this plan learned more than the promise allows: do not rely on the promise; see “Attacked”."


@dataclass(frozen=True)
class Protected:
    """What a guarantee is about, in plain words; the technical name of this unit is in the ledger."""

    what: str
    #: Several of them: what an attacker looks for.
    things: str
    #: Who is protected less, because they contributed more than that.
    less: str


def row_of(owner: str, kind: str = "row") -> Protected:
    return Protected(f"one {kind} of one {owner}’s table", f"{kind}s", f"a person who has several {kind}s")


def person_of(owner: str) -> Protected:
    return Protected(
        f"one person at one {owner}, with all rows of that person",
        "persons",
        f"a person who has rows at several {owner}s",
    )


def whole(owner: str) -> Protected:
    return Protected(f"one {owner}, with all its records", f"{owner}s", f"a person who has records at several {owner}s")


@dataclass(frozen=True)
class Promise:
    """A guarantee, first for those who must understand it, then for those who check it (`terms`)."""

    what: str
    against: str
    strength: str
    meaning: str
    #: On what it depends.
    conditions: list[str]
    terms: str

    def __str__(self) -> str:
        told = f"Protected: {self.what}. Against: {self.against}. Strength: {self.strength}. {self.meaning}"
        return " ".join([told, *self.conditions])


@dataclass(frozen=True)
class PrivacyWords:
    """Privacy of one run in words. The fields are the words in which the kinds of run differ."""

    run: RunFolder[Any]
    #: Whom a guarantee is for: what one of them is called, and their names.
    noun: str
    names: Sequence[str]
    #: What it means here that nothing was protected.
    unprotected: str
    protects: Protected
    #: What the page itself gives away: "the names of ...".
    stated: str
    #: What else this kind of run does not protect.
    also: Sequence[str] = ()
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
        """Privacy in a few sentences."""
        promise = self.promise()
        return " ".join([*self.warnings(), *([] if promise is None else [str(promise)])])

    def promise(self) -> Promise | None:
        """What is protected, against whom and how strongly; None if nothing is."""
        if not self.is_protected():
            return None
        privacy = self._privacy
        everywhere, covered = self._covered()
        against = everywhere or list(covered)
        rows = [row for row in privacy.guarantees if row.finite and row.observer in against]
        some = "" if everywhere else f", only at {self.everybody(first_seen(row.site for row in rows))}"
        observers = listed(first_seen(row.observer for row in rows))
        kind, about = "(ε, δ)", "δ is about the chance that more than ε is lost."
        if all(row.delta == 0.0 for row in rows):
            kind, about = "ε", "There is no δ: never is more than ε lost."
        terms = (
            f"{kind}-differential privacy over the whole run. Protected unit: {privacy.protected_unit}. Neighbouring "
            f"relation: {privacy.relation}. Observers: {observers}. {about}"
        )
        meaning = _meaning(rows, self.protects.things)
        conditions = [each for note in privacy.notes for each in HOLDS.findall(note)]
        return Promise(f"{self.protects.what}{some}", self._people(against), _budget(rows), meaning, conditions, terms)

    def warnings(self) -> list[str]:
        """What to know before the promise, or instead of one."""
        if not self.is_protected():
            return [*([REFUTED] if self._is_refuted() else []), self._why_not()]
        found = [REFUTED] if self._is_refuted() else []
        everywhere, _ = self._covered()
        observers = first_seen(row.observer for row in self._privacy.guarantees)
        if open_to := [name for name in observers if name not in everywhere]:
            found.append(
                f"Not every {self.noun} is protected against {self._people(open_to)}: see the table of guarantees."
            )
        if false := self._false_claims():
            claim = f"ε = {bound(false[0].epsilon)}"
            found.append(f"{false[0].basis} claims {claim} for this version; that claim is false.")
        if self._is_rehearsal():
            found.append(
                "This run was a rehearsal: its noise comes from a stated seed, and only secret noise protects."
            )
        return found

    def not_protected(self) -> list[str]:
        """What is not protected, in a few words each; `left_open` has it in full."""
        if not self.is_protected():
            return []
        bare = self._bare().items()
        found = [f"no protection against {self._people([name])} for {self._whom(names)}" for name, names in bare]
        if silent := self._silent():
            found.append(f"no guarantee is stated for {listed(silent, MOST_NAMES)}")
        if revealed := first_seen(what for what, _ in self._revealed()):
            found.append(f"released on purpose as they are: {listed(revealed, MOST_NAMES)}")
        found.append(f"{self.protects.less} (protected less)")
        found += self.also
        found += [self.stated, "who took part, and how long it took"]
        found.append("the same data in other runs: the costs of all runs add up")
        return [capital(each) for each in found]

    def _covered(self) -> tuple[list[str], dict[str, set[str]]]:
        """The observers against whom everybody is protected; and whom a guarantee protects, by observer."""
        covered: dict[str, set[str]] = {}
        for row in self._privacy.guarantees:
            if row.finite:
                covered.setdefault(row.observer, set()).add(row.site)
        return [observer for observer, names in covered.items() if names.issuperset(self.names)], covered

    def _bare(self) -> dict[str, list[str]]:
        """By observer, the names that nothing protects against it."""
        bare: dict[str, list[str]] = {}
        for row in self._privacy.guarantees:
            if not row.finite:
                bare.setdefault(row.observer, []).append(row.site)
        return bare

    def _whom(self, names: Sequence[str]) -> str:
        return listed(first_seen(names), MOST_NAMES) if set(self.names) - set(names) else f"any {self.noun}"

    def _silent(self) -> list[str]:
        stated = {row.site for row in self._privacy.guarantees}
        return [name for name in self.names if name not in stated]

    def _revealed(self) -> dict[tuple[str, str], list[str]]:
        """What was released unprotected and why; for each, who released it, once for every release."""
        revealed: dict[tuple[str, str], list[str]] = {}
        for left in self.run.ledger:
            if left["mechanism"] == "reveal":
                # How many agents a sum has differs from server to server; that they trust it does not.
                why = re.sub(r"^\d+ (?=agents)", "", str(left.get("why") or "no reason given"))
                revealed.setdefault((left["release_point"], why), []).append(left["silo"])
        return revealed

    def guarantees(self) -> Json:
        """A table of what observers can learn, and of a paper's claims. Names and observers with the same printed
        numbers share a line. If there are too many lines, those that protect least are kept."""
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
        seed, found = self.run.made.seed, []
        if self.is_protected():
            for observer, names in self._bare().items():
                found.append(
                    f"Against {self._people([observer])} there is no protection (ε = ∞) for {self._whom(names)}."
                )
            found.append(f"The guarantee is for {self.protects.what}. {capital(self.protects.less)} is protected less.")
        else:
            found.append(self._why_not())
        if silent := self._silent():
            found.append(f"No guarantee is stated for {listed(silent)}: assume none.")
        for (what, why), silos in self._revealed().items():
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
        return [*found, f"This page states {self.stated} as they are."]

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
        """Claims of a paper about its own version that are better than the accounted cost."""
        if self._privacy.mode != "paper:":
            return []
        rows = self._privacy.guarantees
        return [row.claim for row in rows if row.claim and row.claim.epsilon < row.epsilon]

    def _is_refuted(self) -> bool:
        return any(audit.refuted for audit in self.run.audits)

    def _is_rehearsal(self) -> bool:
        """Whether the noise was drawn from a seed: the run says so, or its folder states the seed."""
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


def _meaning(rows: Sequence[Guarantee], things: str) -> str:
    """What the largest epsilon means for an attacker who looks for somebody."""
    from silograph.privacy.accounting import Cost, caught  # its quantiles take a while to import

    worst = max(rows, key=lambda row: row.epsilon)
    share = caught(Cost(worst.epsilon, worst.delta or 0.0, worst.accountant), FALSE_ALARMS)
    alarms = f"{100.0 * FALSE_ALARMS:g}"
    most = f"at most {math.ceil(100.0 * share)} of 100" if share < MOST_SHARE else "nearly all"
    return (
        f"This means: an attacker knows all other data and looks for {things}. It recognises {most} {things} that are "
        f"there, if it accepts {alarms} false alarms for 100 {things} that are not there. By guessing it would "
        f"recognise {alarms}."
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
