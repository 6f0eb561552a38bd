"""Where the budget of a record goes in a run that learned a shared start: a reading of its ledger."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from silograph.core.types import Json
from silograph.families.meta.read import MetaRun
from silograph.report import words
from silograph.report.page import summarise

#: What the ledger's sites are, without the number of their local step.
RELEASES = {"inner": "inner gradient", "outer": "outer gradient"}


def _kind(release_point: str) -> str:
    """What was released, whatever the local step."""
    return re.sub(r" \d+$", "", release_point)


def releases(ledger: Iterable[Json]) -> list[Json]:
    """The ledger in one row for each kind of release, with the sample it was made from."""
    rows = summarise(
        ({**row, "kind": _kind(row["release_point"])} for row in ledger), by=("kind", "mechanism", "observer")
    )
    return [row | {"release_point": row["release_point"] + _sample(row)} for row in rows]


def _sample(row: Json) -> str:
    if row["sampling"] in ("1", "–"):
        return ""
    return f", from a sample of {_records(row['part'])} at the rate {row['sampling']}"


def _records(part: str) -> str:
    return f"the {part} set" if part else "all records"


def spending(run: MetaRun) -> Json:
    """Where a record's budget goes, from the ledger: by the set it is in, and what is released from that."""
    new = set(run.result.newcomers)
    sets: dict[tuple[bool, str], list[Json]] = {}
    for row in run.ledger:
        if row["mechanism"] == "gaussian":
            sets.setdefault((row["silo"] in new, row.get("part", "")), []).append(row)
    lines = []
    for (own, part), rows in sets.items():
        whole = sum(map(_precision, rows))
        kinds: dict[str, list[Json]] = {}
        for row in rows:
            kinds.setdefault(_kind(row["release_point"]), []).append(row)
        who = words.capital(_records(part)) + (" of a new client" if own else "")
        lines += [
            {"set": who, "what": RELEASES.get(kind, kind), "share": _percent(sum(map(_precision, found)) / whole)}
            | _sizes(found)
            for kind, found in kinds.items()
        ]
        if len(kinds) > 1:
            lines.append({"set": who, "what": "together", "share": _percent(1.0)} | _sizes(_paid_together(rows)))
    return {"rows": lines, "sets": any(part for _, part in sets)}


def _precision(row: Json) -> float:
    """(l2 / noise)^2, which adds up over Gaussian releases."""
    return float((row["l2"] / row["noise"]) ** 2)


def _paid_together(rows: Iterable[Json]) -> list[Json]:
    """One release in place of all that a sample gave: who is in the sample is in all of them."""
    samples: dict[tuple[str, int, str], Json] = {}
    for row in rows:
        place = (row["silo"], row["round"], row["batch"])
        known = samples.setdefault(place, row | {"l2": 1.0, "noise": math.inf})
        known["noise"] = 1.0 / math.sqrt(_precision(known) + _precision(row))
    return list(samples.values())


def _sizes(rows: Sequence[Json]) -> Json:
    return {
        "times": words.spread(Counter(row["silo"] for row in rows).values()),
        "rate": words.spread(row["sampling"] for row in rows),
        "noise": words.spread(row["noise"] / row["l2"] for row in rows),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
