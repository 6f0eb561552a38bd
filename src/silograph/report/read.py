"""What every run folder holds, read and checked; a folder that is not what silograph wrote is refused."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple
from urllib.parse import quote

from silograph.core.errors import DamageError, InputError
from silograph.core.files import LONGEST_RESULT, read_at_most
from silograph.core.toml import parse_toml
from silograph.core.types import Json

#: Source, target, weight.
Edge = tuple[str, str, float]

ADVICE = "Restore the file from a copy, or run again into a new folder."

TEXT, WHOLE, NUMBER, FLAG = (str,), (int,), (int, float), (bool,)
MAYBE_NUMBER, MAYBE_WHOLE, EPSILON = (int, float, NoneType), (int, NoneType), (int, float, str)
NAME_OF_TYPE = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"} | {
    dict: "an object with named values"
}

#: The keys of every result.json that a report reads; further keys are welcome and ignored.
RESULT: Json = {
    "format": WHOLE,
    "method": TEXT,
    "rounds": WHOLE,
    "privacy": {
        "mode": TEXT,
        "unit": TEXT,
        "relation": TEXT,
        "guarantees": [{"site": TEXT, "observer": TEXT, "epsilon": EPSILON, "delta": MAYBE_NUMBER, "accountant": TEXT}],
        "notes": [TEXT],
    },
    "seed": MAYBE_WHOLE,
    "versions": {},
}
CLAIM: Json = {"epsilon": EPSILON, "delta": MAYBE_NUMBER, "basis": TEXT, "defect": (str, NoneType)}
AUDIT: Json = {
    "observer": TEXT,
    "site": TEXT,
    "unit": TEXT,
    "canary": TEXT,
    "trials": WHOLE,
    "trial": (str, NoneType),
    "epsilon_lower": (int, float, str, NoneType),
    "confidence": MAYBE_NUMBER,
    "epsilon_accounted": EPSILON,
    "epsilon_budget": MAYBE_NUMBER,
    "delta": MAYBE_NUMBER,
    "refuted": FLAG,
    "largest_possible": (int, float, str, NoneType),
    "could_refute": (bool, NoneType),
    "enough_runs": MAYBE_WHOLE,
    "rehearsal": FLAG,
    "how": (str, NoneType),
    "bounds": [{"how": TEXT, "epsilon": EPSILON, "trials": WHOLE}],
    "accuracy": MAYBE_NUMBER,
    "leak": (str, NoneType),
    "attacks": [{"attack": TEXT, "aim": TEXT, "words": TEXT}],
    "versions": {},
}
GUESSED = "a guess without features"  # how `Measured` calls the majority baseline
AUDIT_CONFIDENCE = 0.99  # of every audit
#: Whom an audit calls so, as guarantees call them.
AUDITED: dict[str, tuple[str, ...]] = {
    "server": ("server", "own server"),
    "neighbour": ("neighbour", "other sites"),
    "wire": ("wire",),
    "public": ("public",),
}
AUDIT_ADVICE = (
    "Restore audit.json from a copy. If there is none, remove it and audit the folder again; a refutation that it held "
    "is lost then."
)
LEDGER_ROW: Json = {"silo": TEXT, "site": TEXT, "mechanism": TEXT}


@dataclass(frozen=True)
class RunFolder:
    """What any run left behind, checked."""

    result: Json
    ledger: list[Json]
    plan: str
    #: What `silograph audit` found, as often as somebody asked it.
    audits: list[Json]

    @property
    def graphs(self) -> dict[str, list[Edge]]:
        """The graphs it learned by their names, the one for all first; none where it learned models."""
        return {}

    @property
    def signs(self) -> dict[str, dict[frozenset[str], int]]:
        """Of the edges of these graphs, 1 or -1; none where relations have no signs."""
        return {}

    @property
    def message(self) -> int | None:
        """How many numbers a silo sends in a round, where its ledger's rows do not say it."""
        return None


class Measured(NamedTuple):
    """A number that says how good a result is; `mark` is where `numbers_are` says what kind of number it is."""

    name: str
    measure: str
    mark: str
    value: float | None


def read_result(folder: Path) -> Json:
    """result.json, as far as all runs share it; the rest is for the reader of its method to check."""
    if not folder.is_dir():
        raise DamageError(str(folder), "the folder of a finished run", "there is no such folder", "Check the path.")
    path = folder / "result.json"
    result: Json = read_json(read_text(path), str(path))
    check(result, {"format": WHOLE}, str(path))
    if result["format"] != 1:
        todo = "Use the version of silograph that wrote this folder, or a newer one."
        raise DamageError(str(path), "format 1", f"it says format {result['format']}", todo)
    check(result, RESULT, str(path))
    marks = result.setdefault("numbers_are", {})
    check(marks, dict.fromkeys(marks if isinstance(marks, dict) else (), TEXT), f"{path}: numbers_are")
    for index, guarantee in enumerate(result["privacy"]["guarantees"]):
        where = f"{path}: privacy.guarantees[{index}]"
        guarantee["epsilon"] = _epsilon(guarantee["epsilon"], where)
        claim = guarantee.setdefault("claim", None)
        if claim is not None:
            check(claim, CLAIM, f"{where}.claim")
            claim["epsilon"] = _epsilon(claim["epsilon"], f"{where}.claim")
    return result


def read_audits(folder: Path, result: Json) -> list[Json]:
    """audit.json, if there is one: audits of this folder's run, which contradict neither it nor themselves."""
    path = folder / "audit.json"
    if not path.exists():
        return []
    try:
        return checked_audits(read_text(path), folder, result)
    except DamageError as error:
        raise DamageError(error.where, error.expected, error.came, AUDIT_ADVICE) from None


def checked_audits(text: str, folder: Path, result: Json) -> list[Json]:
    """The audits in the text of an audit.json, whether it is in the folder already or not."""
    path = folder / "audit.json"
    told: Json = read_json(text, str(path))
    check(told, {"format": WHOLE}, str(path))
    if told["format"] != 2:
        raise DamageError(str(path), "format 2", f"it says format {told['format']}")
    check(told, {"plan": TEXT, "ledger": TEXT, "audits": [AUDIT]}, str(path))
    plan = read_text(folder / "plan.toml")
    ran = hashlib.sha256(plan.encode()).hexdigest()
    if not told["plan"] == ran == result.get("plan") or told["ledger"] != result.get("ledger"):
        raise DamageError(str(path), "audits of the run in this folder", "they are of another plan or ledger")
    for index, audit in enumerate(told["audits"]):
        where = f"{path}: audits[{index}]"
        _check_audit(audit, where)
        _check_against_run(audit, result, _budget(plan, str(folder / "plan.toml")), where)
    audits: list[Json] = told["audits"]
    return audits


def _check_audit(audit: Json, where: str) -> None:
    """Against itself."""

    def expect(good: bool, key: str, expected: str) -> None:
        _expect(good, audit, key, expected, where)

    accounted = audit["epsilon_accounted"] = _epsilon(audit["epsilon_accounted"], f"{where}: epsilon_accounted")
    budget = math.inf if audit["epsilon_budget"] is None else float(audit["epsilon_budget"])
    promised = audit["promised"] = min(accounted, budget)
    for key in ("delta", "accuracy"):
        expect(audit[key] is None or 0.0 <= audit[key] <= 1.0, key, "a number from 0 to 1")
    if math.isinf(promised):
        for key in ("epsilon_lower", "confidence", "largest_possible", "could_refute", "leak"):
            expect(audit[key] is None, key, "null where no epsilon is claimed")
        expect(not audit["refuted"], "refuted", "false where no epsilon is claimed")
        return
    needed = {"epsilon_lower": EPSILON, "confidence": NUMBER, "delta": NUMBER, "largest_possible": EPSILON}
    check(audit, needed, where)
    for key in ("epsilon_lower", "largest_possible"):
        audit[key] = _epsilon(audit[key], f"{where}: {key}")
    lower, largest, leaks = audit["epsilon_lower"], audit["largest_possible"], audit["leak"] is not None
    refuted = lower > promised or accounted > budget * (1.0 + 1e-9)
    expect(audit["confidence"] == AUDIT_CONFIDENCE, "confidence", f"{AUDIT_CONFIDENCE:g}, that of every audit")
    expect(audit["trials"] > 0 or leaks, "trials", "how many there were")
    expect(leaks == math.isinf(lower), "leak", "told where the lower bound is infinite, and nowhere else")
    expect(audit["refuted"] == refuted, "refuted", "true where more was found or spent than promised, else false")
    expect(lower <= largest, "largest_possible", "no less than what was found")
    expect(
        audit["could_refute"] == (refuted or largest > promised),
        "could_refute",
        "whether so much could have been shown",
    )
    found = [(each["how"], _epsilon(each["epsilon"], f"{where}: bounds")) for each in audit["bounds"]]
    expect(
        found[:1] == ([] if leaks else [(audit["how"], lower)]), "bounds", "first the one that is told; none of a leak"
    )


def _check_against_run(audit: Json, result: Json, budget: float | None, where: str) -> None:
    """Against the folder's own bill and plan."""

    def expect(good: bool, key: str, expected: str) -> None:
        _expect(good, audit, key, expected, where)

    privacy, accounted, guarantees = result["privacy"], audit["epsilon_accounted"], result["privacy"]["guarantees"]
    expect(audit["observer"] in AUDITED, "observer", ", ".join(AUDITED))
    # A unit's guarantees may be of its clusters.
    known = any(f"{each['site']}/".startswith(f"{audit['site']}/") for each in guarantees)
    expect(known, "site", "one of the sites of the bill")
    stated = [each for each in guarantees if each["observer"] in AUDITED[audit["observer"]]]
    worst = max(stated, key=lambda each: each["epsilon"], default=None)
    same = worst is not None and (
        math.isclose(accounted, worst["epsilon"], rel_tol=1e-6) or accounted == worst["epsilon"] == math.inf
    )
    expect(same, "epsilon_accounted", "what the folder's bill says of this observer")
    # Whom a plan trusts, and who sees everything, it promises nothing.
    budgets = (budget, None) if math.isinf(accounted) else (budget,)
    expect(audit["epsilon_budget"] in budgets, "epsilon_budget", f"the plan's, {budget}")
    if worst is not None and math.isfinite(accounted):
        expect(audit["delta"] == (worst["delta"] or 0.0), "delta", "the bill's")
        expect(audit["unit"].startswith(privacy["unit"]), "unit", "what the bill protects")
        expect(audit["rehearsal"] == (result["seed"] is not None), "rehearsal", "true where the plan has a seed")


def _budget(plan: str, where: str) -> float | None:
    """The epsilon that a plan is held to: S4's own version costs what it costs."""
    try:
        told = parse_toml(plan, where)
        epsilon = told["privacy"]["epsilon"] if "privacy" in told else None
        free = told.get("method", {}).get("version") == "paper:"
    except (InputError, LookupError, TypeError, AttributeError) as error:
        raise DamageError(where, "the plan of a run", f"reading failed ({error})") from None
    return None if free else epsilon


def _expect(good: bool, audit: Json, key: str, expected: str, where: str) -> None:
    if not good:
        raise DamageError(f"{where}: {key}", expected, f"found {short(audit[key])}")


def site_file(name: str) -> str:
    """The file of a site or unit: its name, percent-encoded only where a name could lead out of the folder."""
    return (quote(name, safe="") if set(name) & set("/\\\0") else name) + ".csv"


def read_text(path: Path) -> str:
    # A name that no file system takes raises ValueError, and so does text that is not UTF-8.
    try:
        return read_at_most(path, LONGEST_RESULT).decode("utf-8")
    except FileNotFoundError:
        raise DamageError(str(path), "a file of a finished run", "it is missing", ADVICE) from None
    except (OSError, ValueError) as error:
        raise DamageError(str(path), "a readable UTF-8 text file", f"reading failed ({error})", ADVICE) from error


def read_json(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise DamageError(where, "JSON", f"it does not parse ({error})", ADVICE) from error


def _whole(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError("a number with more than 300 digits")  # no float holds it, so no figure could
    return int(digits)


def read_table(path: Path, columns: Sequence[str], further: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """The rows of a CSV file that must have these columns, and may have a `further` one, each with where it stands."""
    rows = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        header = next(rows, [])
        if header not in (list(columns), [*columns, further]):
            raise DamageError(str(path), f"the columns {','.join(columns)}", f"found {short(header)}", ADVICE)
        for row in rows:
            where = f"{path}: line {rows.line_num}"
            if len(row) != len(header):
                raise DamageError(where, f"{len(header)} values", f"found {len(row)}", ADVICE)
            yield where, row
    except csv.Error as error:
        raise DamageError(
            f"{path}: line {rows.line_num}", "a CSV row", f"it does not parse ({error})", ADVICE
        ) from error


def read_ledger(path: Path) -> list[Json]:
    ledger = []
    # Not splitlines: it would also cut at separators that JSON allows inside a string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            row = read_json(line, where)
            check(row, LEDGER_ROW, where)
            ledger.append(row)
    return ledger


def check(value: Any, shape: Any, where: str) -> None:
    """Walk a value beside its shape: a dict of keys, a list of one repeated shape, or a tuple of types."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise DamageError(where, "an object with named values", f"found {short(value)}", ADVICE)
        for key, inner in shape.items():
            if key not in value:
                raise DamageError(where, f"the key {key!r}", "it is missing", ADVICE)
            check(value[key], inner, f"{where}: {key}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise DamageError(where, "a list", f"found {short(value)}", ADVICE)
        for index, item in enumerate(value):
            check(item, shape[0], f"{where}[{index}]")
    # Python counts true and false as whole numbers; JSON does not.
    elif not isinstance(value, shape) or (isinstance(value, bool) and bool not in shape):
        raise DamageError(where, " or ".join(NAME_OF_TYPE[kind] for kind in shape), f"found {short(value)}", ADVICE)


def check_edge(source: str, target: str, nodes: Collection[str], where: str) -> None:
    for name in (source, target):
        if name not in nodes:
            raise DamageError(where, "a node named in result.json", f"found {short(name)}", ADVICE)
    if source == target:
        raise DamageError(where, "an edge between two nodes", f"both ends are {short(source)}", ADVICE)


def check_unique(names: Sequence[object], where: str) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise DamageError(where, "names that differ", f"{short(name)} comes twice", ADVICE)
        seen.add(name)


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _epsilon(value: float | str, where: str) -> float:
    try:
        epsilon = float(value)
    except (ValueError, OverflowError):
        epsilon = math.nan
    if not epsilon >= 0:
        raise DamageError(where, 'an epsilon of at least 0, or "infinity"', f"found {short(value)}", ADVICE)
    return epsilon
