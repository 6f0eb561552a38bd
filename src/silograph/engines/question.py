"""Questions of a server to a silo, and the silo's answers: plain data, checked before any of it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.schema import Positive, Such, of_format, read, write
from silograph.core.types import Array, Json
from silograph.engines.wire import pack, unpack
from silograph.privacy.bound import Within
from silograph.privacy.ledger import Row
from silograph.privacy.mechanisms import NAMES
from silograph.privacy.observers import EVERYBODY, OTHER_SERVERS, OWN_SERVER, SERVER
from silograph.privacy.relay import relay
from silograph.privacy.released import Released, Sealed, Sent, sealed_rows

VERSION = 2
NEVER = -1
_MOST = 10**8  # silos of an organisation, or numbers of a silo
_OBSERVERS = (SERVER, OTHER_SERVERS, EVERYBODY, OWN_SERVER)

Kind = Literal["local", "deliver", "sum", "end"]

#: A step of a secure sum: the message to all silos, and that to each.
_Steps = Annotated[Mapping[str, Json], Such("an object for each silo, in to", lambda told: "to" in told)]
_Size = Annotated[int, Such(f"a whole number from 0 to {_MOST}", lambda size: 0 <= size <= _MOST)]


@dataclass(frozen=True, eq=False)
class Question:
    """A question to one organisation: for its part of a round, its result at the end, a step of a secure sum, or the
    news that the run is over.

    `deployment` is the digest of everything that the organisations agreed on. `accepted` is the last round of this
    organisation that the server has used. `silos` are the organisation's silos that are asked, `members` all that are
    asked in this round.
    """

    deployment: str
    organisation: str
    kind: Kind
    round: int
    accepted: int
    silos: tuple[str, ...]
    members: tuple[str, ...]
    down: dict[str, Array] = field(default_factory=dict, metadata={"key": ""})  # beside the facts
    sum: _Steps | None = None

    def pack(self) -> bytes:
        return pack({"version": VERSION, **write(self)}, self.down)

    @property
    def content(self) -> str:
        """A digest of the question without its round: the same question gets the same answer."""
        facts = {"kind": self.kind, "silos": list(self.silos)}
        return hashlib.sha256(pack(facts, self.down)).hexdigest()


def read_question(blob: bytes) -> Question:
    facts, down = unpack(blob)
    where = "question of the server"
    told = of_format(facts, VERSION, where, todo="Use the same silograph at both ends.", key="version")
    question = replace(read(Question, told, where), down=down)
    if any(value.dtype != np.float64 or value.shape[:1] != (len(question.silos),) for value in down.values()):
        raise InputError(f"{where}, down", "a row of numbers for each silo that is asked", "found others")
    return question


# ---- refusals --------------------------------------------------------------------------------------------------------


class RefusedError(InputError):
    """The server asked for something this organisation did not agree to. It gets a refusal, and nothing else."""

    code = "refused"


class OlderServerError(RefusedError):
    """The server knows less of this organisation's answers than it did before."""

    todo_here = "The server is an older copy of itself, or began again: its operator must restore the newest state."


class OlderFolderError(RefusedError):
    """The server has used answers that this folder knows nothing of."""

    todo_here = "This folder is an older copy: restore the newest one. The others continue if they are enough."


# ---- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reply:
    """An answer: `sent` has a row for each silo that was asked; `rows` are the rows of the silo's own ledger for it."""

    organisation: str
    round: int
    sent: Sent
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class _About:
    """Everything about sealed vectors except the vectors."""

    release_point: str
    clip: float | None
    within: Within | None
    share: Positive
    joined: bool = field(default=False, kw_only=True)

    def sealed(self, vectors: Array) -> Sealed:
        return Sealed(vectors, self.release_point, self.clip, self.within, self.share, self.joined)


@dataclass(frozen=True)
class _Waiting(_About):
    shape: tuple[_Size, _Size]


def about_sealed(sealed: Sealed) -> Json:
    told: Json = write(_About(sealed.release_point, sealed.clip, sealed.within, sealed.share, joined=sealed.joined))
    return told


def sealed_again(vectors: Array, about: Json) -> Sealed:
    return read(_About, about, "sealed vectors").sealed(vectors)


@dataclass(frozen=True)
class _Facts:
    """A reply without its arrays."""

    organisation: str
    round: int
    sealed: Mapping[str, _Waiting]
    rows: tuple[Row, ...]


def pack_reply(reply: Reply, masked: bool) -> bytes:
    """Pack a reply. Under masks it has only the size of a vector: the vector waits for the secure sum."""
    arrays: dict[str, Array] = {}
    sealed: dict[str, _Waiting] = {}
    for name, value in reply.sent.items():
        if isinstance(value, Released):
            arrays[name] = value.value
        else:
            vectors = sealed_rows(value)
            count, length = vectors.shape
            about = (value.release_point, value.clip, value.within, value.share)
            sealed[name] = _Waiting(*about, (count, length), joined=value.joined)
            if not masked:
                arrays[name] = vectors
    return pack({"version": VERSION, **write(_Facts(reply.organisation, reply.round, sealed, reply.rows))}, arrays)


def _check_row(row: Row, where: str) -> None:
    """Check that an accountant can read a ledger row from another organisation."""
    protected = row.mechanism in NAMES
    if not protected and row.mechanism != "reveal":
        raise InputError(f"{where}, mechanism", f"reveal, {', '.join(NAMES)}", f"found {row.mechanism!r:.60}")
    if row.observer not in _OBSERVERS:
        raise InputError(f"{where}, observer", f"one of {', '.join(_OBSERVERS)}", f"found {row.observer!r:.60}")
    if any((amount is None) == protected for amount in (row.l2, row.noise)):
        raise InputError(where, "l2 and noise where there is a mechanism, and only there", "found others")


def read_reply(blob: bytes, where: str) -> Reply:
    """Read a reply. Values become `Released` again: they passed the silo's gate, as its signature confirms."""
    facts, arrays = unpack(blob)
    told = read(_Facts, of_format(facts, VERSION, where, key="version"), where)
    sent: dict[str, Released | Sealed] = {}
    for name, about in told.sealed.items():
        if name in arrays:
            _check_numbers(arrays[name], arrays[name].shape == about.shape, f"{where}, {name}")
        sent[name] = about.sealed(arrays.pop(name, np.broadcast_to(0.0, about.shape)))
    for name, value in arrays.items():
        _check_numbers(value, value.ndim > 0, f"{where}, {name}")
        sent[name] = relay(value)
    for row in told.rows:
        _check_row(row, f"{where}, rows")
    return Reply(told.organisation, told.round, sent, told.rows)


def _check_numbers(value: Array, fits: bool, where: str) -> None:
    if value.dtype != np.float64 or not fits or np.isnan(value).any():
        raise InputError(where, "numbers, in the shape that is stated", "found others")
