"""The ledger: one row per release, written and synced before the message is sent, never taken back.

On disk it is JSON lines. Every row carries the hash of the row before it, so a lost, changed or reordered row shows;
a lost end shows against the `tip` that a run's state and result keep.
A last line without its newline was never synced, so its message was never sent: it is dropped on opening.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from silograph.core import old_names
from silograph.core.errors import DamageError
from silograph.core.files import LONGEST_RESULT, read_at_most, sync_folder
from silograph.core.schema import Positive, Share, Such, parse_json, read

_CHAIN_START = "0" * 16
_EVIDENCE = "A ledger is evidence: restore it from a backup."
_encode = json.JSONEncoder(sort_keys=True).encode
_Whole = Annotated[int, Such("a whole number of 64 bits", lambda count: abs(count) < 2**63)]


@dataclass(frozen=True)
class Row:
    """One release, as the ledger keeps it; the keys of its line are described on the page of the ledger.

    Parameters
    ----------
    silo : Who released it.
    round : When, from 0.
    release_point : Where in the round.
    observer : Who sees it.
    mechanism : "gaussian", "laplace", "distributed-gaussian", or "reveal": no protection.
    l2 : How far one protected unit can move it, in Euclidean length; None if revealed.
    noise : The scale of the noise in every coordinate: standard deviation, or b of a Laplace; None if revealed.
    dim : How many numbers left.
    sampling : The chance of a record to be in it; 1 if nothing is sampled.
    protected_unit : What is protected.
    relation : What a neighbour is.
    randomness : Where the noise is from.
    why : Where l2 is from, or why there is no protection.
    digest : That of the value that left, so that a repeated message can be told from a new one.
    batch : The sample that it is from: rows of one batch are charged together.
    part : The part of the silo's records that it is about; a record is in one part.

    >>> from silograph.privacy.door import Door
    >>> door = Door(0, Ledger())
    >>> _ = door.gate(["north"], round=2).reveal(np.zeros((1, 3)), "sizes", "sizes are public")
    >>> row = door.waiting[0]
    >>> row.place, row.mechanism, row.dim, row.why
    (('north', 2, 'sizes'), 'reveal', 3, 'sizes are public')
    """

    silo: str
    round: _Whole
    release_point: str
    observer: str
    mechanism: str
    l2: Positive | None
    noise: Positive | None
    dim: _Whole
    sampling: Share
    protected_unit: str
    relation: str
    randomness: str
    why: str
    digest: str
    batch: str = ""
    part: str = ""

    @property
    def place(self) -> tuple[str, int, str]:
        return (self.silo, self.round, self.release_point)


def _line(row: Row, previous: str) -> tuple[str, str]:
    # Most rows are about no batch and no part, and say nothing of them.
    body = _encode({name: value for name, value in vars(row).items() if value or name not in ("batch", "part")})
    chain = _link(previous, body)
    return f'{{"chain": "{chain}", {body[1:]}', chain


def _link(previous: str, body: str) -> str:
    return hashlib.sha256((previous + body).encode()).hexdigest()[:16]


class Ledger:
    """Rows in memory and, with a path, on disk.

    Parameters
    ----------
    path : The file, read if it exists. None: in memory alone.
    mend : Whether a torn last line is dropped from the file; without it the file is only read.

    >>> from pathlib import Path
    >>> from silograph.privacy.door import Door
    >>> door = Door(0, Ledger(Path("ledger.jsonl")))
    >>> for round in (0, 1):
    ...     _ = door.gate(["north"], round).reveal(np.zeros((1, 3)), "sizes", "sizes are public")
    ...     door.sync()
    >>> ledger = Ledger(Path("ledger.jsonl"), mend=False)
    >>> ledger.of("north") == door.ledger.rows, ledger.find(("north", 1, "sizes")).dim, ledger.tip[:2]
    (True, 3, '2:')
    >>> copy = Ledger()
    >>> copy.append(ledger.rows)
    >>> copy.tip == ledger.tip  # kept elsewhere, it shows whether a ledger lost its end
    True
    >>> _ = Path("ledger.jsonl").write_text(Path("ledger.jsonl").read_text().replace('"dim": 3', '"dim": 9'))
    >>> Ledger(Path("ledger.jsonl"))
    Traceback (most recent call last):
        ...
    silograph.core.errors.DamageError: ledger.jsonl, line 1: expected a ledger row that continues the row before it, ...
    """

    def __init__(self, path: Path | None = None, mend: bool = True) -> None:
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
            where, todo = f"{path}, line {number}", f"{_EVIDENCE} Without it the run cannot continue."
            told = parse_json(raw, where, DamageError, todo)
            chain = told.pop("chain", None) if isinstance(told, dict) else None
            row = read(Row, old_names.ledger_row(told), where, DamageError, todo)
            # Hashes bind what a row says, not that it says sense.
            if chain != _link(self._chain, _encode(told)) or (
                row.mechanism != "reveal" and None in (row.l2, row.noise)
            ):
                expected = "a ledger row that continues the row before it"
                raise DamageError(where, expected, "the row was changed, lost or reordered", todo)
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
        """The number of rows and the hash of the last: kept elsewhere, it shows whether a ledger lost its end."""
        return f"{len(self.rows)}:{self._chain}"

    def check_tip(self, tip: str) -> None:
        """Refuse a ledger that has lost rows since `tip` was noted.

        Parameters
        ----------
        tip : The tip as it was.

        >>> Ledger().check_tip("2:0123456789abcdef")
        Traceback (most recent call last):
            ...
        silograph.core.errors.DamageError: None: expected a ledger with the 2 rows that were written to it, ...
        """
        count, _, chain = tip.partition(":")
        links = [_CHAIN_START, *self._links]
        if not count.isdecimal() or int(count) >= len(links) or links[int(count)] != chain:
            raise DamageError(
                str(self.path),
                f"a ledger with the {count} rows that were written to it",
                f"it holds {len(self.rows)}, or others",
                f"{_EVIDENCE} Without it the cost is unknown.",
            )

    def find(self, place: tuple[str, int, str]) -> Row | None:
        """Return the row of a place, or None.

        Parameters
        ----------
        place : Silo, round and release point.
        """
        return self._known.get(place)

    def append(self, rows: Iterable[Row]) -> None:
        """Write and sync rows; only when this returns may their messages leave.

        Parameters
        ----------
        rows : The rows, in the order in which they are to stand.
        """
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
        """Return the rows of one silo.

        Parameters
        ----------
        silo : Its name.
        """
        return self._of.get(silo, [])
