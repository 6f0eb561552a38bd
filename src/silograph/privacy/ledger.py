"""The ledger: one row per release, written and synced before the message is sent, never taken back.

On disk it is JSON lines. Every row carries the hash of the row before it, so a lost, changed or reordered row shows;
a lost end shows against the `tip` that a run's state and result keep.
A last line without its newline was never synced, so its message was never sent: it is dropped on opening.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.files import LONGEST_RESULT, read_at_most, sync_folder

_CHAIN_START = "0" * 16
_encode = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True)
class Row:
    """What one release was. `digest` is of the value that left, so that a repeated send can be told from a new one.

    Releases that were made from one sample of the records have the same `batch`: they are paid for together. A silo may
    divide its records for good into parts that share none; `part` says which one a release is about.
    """

    silo: str
    round: int
    site: str
    observer: str
    mechanism: str
    l2: float | None
    noise: float | None
    dim: int
    sampling: float
    unit: str
    relation: str
    randomness: str
    why: str
    digest: str
    batch: str = ""
    part: str = ""

    @property
    def place(self) -> tuple[str, int, str]:
        return (self.silo, self.round, self.site)


_TEXTS = ("silo", "site", "observer", "mechanism", "unit", "relation", "randomness", "why", "digest", "batch", "part")


def _typed(row: Row) -> Row:
    """A row as somebody tells it, if every field has its type: hashes bind what a row says, not that it says sense."""
    amounts: list[float | None] = [] if row.mechanism == "reveal" else [row.l2, row.noise]
    good = (
        all(type(getattr(row, name)) is str for name in _TEXTS)
        and all(type(count) is int and abs(count) < 2**63 for count in (row.round, row.dim))
        and all(isinstance(x, int | float) and 0.0 < x < math.inf for x in amounts)
        and type(row.sampling) in (int, float)
        and 0.0 < row.sampling <= 1.0
    )
    if not good:
        raise ValueError
    return row


def _line(row: Row, previous: str) -> tuple[str, str]:
    # Most rows are about no batch and no part, and say nothing of them.
    body = _encode({name: value for name, value in vars(row).items() if value or name not in ("batch", "part")})
    chain = hashlib.sha256((previous + body).encode()).hexdigest()[:16]
    return f'{{"chain": "{chain}", {body[1:]}', chain


class Ledger:
    """Rows in memory and, with a path, on disk."""

    def __init__(self, path: Path | None = None, mend: bool = True) -> None:
        """`mend` drops a torn last line from the file; without it the file is only read."""
        self.path = path
        self.rows: list[Row] = []
        self._chain = _CHAIN_START
        self._links: list[str] = []
        self._known: dict[tuple[str, int, str], Row] = {}
        self._of: dict[str, list[Row]] = {}
        if path is not None and path.exists():
            self._load(path, mend)

    def _load(self, path: Path, mend: bool) -> None:
        data = read_at_most(path, LONGEST_RESULT)
        keep = data.rfind(b"\n") + 1
        for number, raw in enumerate(data[:keep].splitlines(), 1):
            try:
                fields = json.loads(raw)
                chain = fields.pop("chain")
                row = _typed(Row(**fields))
                expected = _line(row, self._chain)[1]
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                chain, expected = None, ""
            if chain != expected:
                raise DamageError(
                    f"{path}, line {number}",
                    "a ledger row that continues the row before it",
                    "the row was changed, lost or reordered",
                    "A ledger is evidence: restore it from a backup. Without it the run cannot go on.",
                )
            self._remember(row, chain)
        if mend and keep < len(data):
            with open(path, "r+b") as file:
                file.truncate(keep)
                os.fsync(file.fileno())

    def _remember(self, row: Row, chain: str) -> None:
        self.rows.append(row)
        self._known[row.place] = row
        self._of.setdefault(row.silo, []).append(row)
        self._chain = chain
        self._links.append(chain)

    @property
    def tip(self) -> str:
        """How many rows there are and the hash of the last: kept elsewhere, it shows a ledger that lost its end."""
        return f"{len(self.rows)}:{self._chain}"

    def check_tip(self, tip: str) -> None:
        """Refuse a ledger that has lost rows since `tip` was noted."""
        count, _, chain = tip.partition(":")
        links = [_CHAIN_START, *self._links]
        if not count.isdecimal() or int(count) >= len(links) or links[int(count)] != chain:
            raise DamageError(
                str(self.path),
                f"a ledger with the {count} rows that were written to it",
                f"it holds {len(self.rows)}, or others",
                "A ledger is evidence: restore it from a backup. Without it nothing can be said of the cost.",
            )

    def find(self, place: tuple[str, int, str]) -> Row | None:
        return self._known.get(place)

    def append(self, rows: Iterable[Row]) -> None:
        """Write and sync rows; only when this returns may their messages leave."""
        lines, added, chain = [], [], self._chain
        for row in rows:
            line, chain = _line(row, chain)
            lines.append(line + "\n")
            added.append((row, chain))
        if not added:
            return
        if self.path is not None:
            self._write(self.path, "".join(lines).encode())
        for row, link in added:
            self._remember(row, link)

    def _write(self, path: Path, content: bytes) -> None:
        with open(path, "ab", buffering=0) as file:
            end = file.tell()
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                os.fsync(file.fileno())
                if not self.rows:
                    sync_folder(path.parent)
            except OSError:
                file.truncate(end)  # no half row may stand before the next one
                raise

    def of(self, silo: str) -> Sequence[Row]:
        return self._of.get(silo, [])
