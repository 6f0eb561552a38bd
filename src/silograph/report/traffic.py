"""Who took part, and how much each silo sent, read from the ledger."""

from __future__ import annotations

from typing import Any

from silograph.core.types import Json
from silograph.report import words
from silograph.report.read import RunFolder

MOST_SILOS = 40
#: What a number takes on its way, as the arrays of a message hold it.
BYTES = 8


def traffic(run: RunFolder[Any]) -> Json:
    """The silos of the ledger: in how many rounds they released something, how often, and how many numbers left.

    A run has a size of its messages where releases are made inside the silo and only what follows from them is sent.
    Results are handed over after the last round, and that is no further round.
    """
    rounds, message = run.result.rounds, run.message
    silos: dict[str, list[Json]] = {}
    for row in run.ledger:
        silos.setdefault(row["silo"], []).append(row)
    rows = []
    for name, sent in silos.items():
        taken = {row["round"] for row in sent if words.is_number(row.get("round"))}
        numbers = sum(row["dim"] for row in sent if words.is_number(row.get("dim")))
        if message is not None:
            numbers = message * len(taken)
        rows.append(
            {
                "name": name,
                "rounds": sum(number < rounds for number in taken),
                "releases": len(sent),
                "numbers": numbers,
                "bytes": BYTES * numbers,
            }
        )
    return {
        "rows": rows[:MOST_SILOS],
        "left_out": len(rows[MOST_SILOS:]),
        "rounds": rounds,
        "bytes": sum(row["bytes"] for row in rows),
        "inside": message is not None,
    }
