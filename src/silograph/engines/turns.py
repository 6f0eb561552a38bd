"""The rows that servers give each other in one turn of a round, and how turns are counted and noted.

A round's turns are floods of its sums, from `first`, then floods of words for all, from `middle`; `last` is the
exchange with neighbours. Turns below 0 are a muster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from silograph.core.types import Array, Json
from silograph.engines.wire import pack, unpack

_BITS = 20

#: The values of one server for another, by field.
Rows = dict[str, Array]


@dataclass(frozen=True)
class Row:
    """A server's row for a neighbour in one turn; `heard` are marks of the words it heard in the flood before, by
    author."""

    rows: Rows
    heard: dict[str, str] = field(default_factory=dict)


def first(round: int) -> int:
    return round << _BITS


def middle(round: int) -> int:
    return first(round) + (1 << (_BITS - 1))


def last(round: int) -> int:
    return first(round + 1) - 1


def round_of(turn: int) -> int:
    return turn >> _BITS


def marks(told: Json) -> dict[str, str]:
    return {str(of): str(mark) for of, mark in told.items()}


def last_heard(notes: Mapping[str, bytes]) -> dict[str, str]:
    """Marks of the last flood that was noted."""
    found = [noted for name, noted in notes.items() if name.endswith(" heard")]
    return marks(json.loads(found[-1])) if found else {}


def pack_turn(ours: Mapping[str, Row], theirs: Mapping[str, Row]) -> bytes:
    both = [*ours.items(), *theirs.items()]
    facts = {"ours": len(ours), "rows": [[name, row.heard, list(row.rows)] for name, row in both]}
    return pack(facts, {f"{k}/{of}": word for k, (_, row) in enumerate(both) for of, word in row.rows.items()})


def read_turn(noted: bytes) -> tuple[dict[str, Row], dict[str, Row]]:
    facts, arrays = unpack(noted)
    rows = [
        (str(name), Row({of: arrays[f"{k}/{of}"] for of in words}, marks(heard)))
        for k, (name, heard, words) in enumerate(facts["rows"])
    ]
    return dict(rows[: facts["ours"]]), dict(rows[facts["ours"] :])
