"""What a server asks a silo, and what a silo answers: plain data, checked before anything of it is used."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.engines.wire import pack, unpack
from silograph.privacy.bound import Within
from silograph.privacy.ledger import Row
from silograph.privacy.mechanisms import NAMES
from silograph.privacy.observers import EVERYBODY, OTHER_SERVERS, OWN_SERVER, SERVER
from silograph.privacy.relay import relay
from silograph.privacy.released import Released, Sealed, Sent, sealed_rows

VERSION = 1
NEVER = -1
_MOST = 10**8  # silos of a party, or numbers of a silo
_OBSERVERS = (SERVER, OTHER_SERVERS, EVERYBODY, OWN_SERVER)

Kind = Literal["local", "deliver", "sum", "end"]


@dataclass(frozen=True, eq=False)
class Question:
    """For one party: its part of a round, its result at the end, a step of a secure sum, or that the run is over.

    `deployment` is the digest of all that the parties agreed on. `accepted` is the last round of this party that the
    server has used. `silos` are those of the party's that are asked, `members` all that are asked in this round.
    """

    deployment: str
    party: str
    kind: Kind
    round: int
    accepted: int
    silos: tuple[str, ...]
    members: tuple[str, ...]
    down: dict[str, Array]
    sum: Json | None = None

    def pack(self) -> bytes:
        facts = {name: value for name, value in vars(self).items() if name != "down"}
        return pack({"version": VERSION, **facts}, self.down)

    @property
    def content(self) -> str:
        """A digest of what is asked, whatever the round: the same question gets the same answer."""
        facts = {"kind": self.kind, "silos": list(self.silos)}
        return hashlib.sha256(pack(facts, self.down)).hexdigest()


def read_question(blob: bytes) -> Question:
    facts, down = unpack(blob)
    where = "question of the server"
    if facts.pop("version", None) != VERSION:
        raise InputError(where, f"version {VERSION}", "another came", "Use the same silograph at both ends.")
    texts, lists = ("deployment", "party", "kind"), ("silos", "members")
    good = (
        facts.keys() == {*texts, *lists, "round", "accepted", "sum"}
        and all(isinstance(facts[name], str) for name in texts)
        and all(isinstance(facts[name], list) and all(isinstance(x, str) for x in facts[name]) for name in lists)
        and all(type(facts[name]) is int for name in ("round", "accepted"))
        and (facts["sum"] is None or _is_for_each(facts["sum"]))
        and facts["kind"] in get_args(Kind)
        and all(value.dtype == np.float64 and value.shape[:1] == (len(facts["silos"]),) for value in down.values())
    )
    if not good:
        raise InputError(where, "deployment, party, kind, round, accepted, silos, members", "something else came")
    return Question(**{**facts, **{name: tuple(facts[name]) for name in lists}}, down=down)


def _is_for_each(told: object) -> bool:
    """Whether a step of a secure sum is told to each silo as an object."""
    to = told.get("to") if isinstance(told, dict) else None
    return isinstance(to, dict) and all(isinstance(message, dict) for message in to.values())


# ---- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reply:
    """`sent` has a row for each silo that was asked; `rows` are what the silo's own ledger says of it."""

    party: str
    round: int
    sent: Sent
    rows: tuple[Row, ...]


def about_sealed(sealed: Sealed) -> Json:
    """All but the vectors."""
    within = None if sealed.within is None else asdict(sealed.within)
    return {"site": sealed.site, "clip": sealed.clip, "within": within}


def sealed_again(vectors: Array, about: Json) -> Sealed:
    clip, within = about["clip"], about["within"]
    if within is not None:
        within = Within(float(within["l2"]), str(within["unit"]), str(within["why"]))
        if not 0.0 < within.l2 < math.inf:
            raise ValueError
    return Sealed(vectors, str(about["site"]), None if clip is None else float(clip), within)


def pack_reply(reply: Reply, masked: bool) -> bytes:
    """Under masks nothing of a vector goes out with the reply but its size: it waits for the secure sum."""
    arrays: dict[str, Array] = {}
    sealed: dict[str, Any] = {}
    for name, value in reply.sent.items():
        if isinstance(value, Released):
            arrays[name] = value.value
        else:
            vectors = sealed_rows(value)
            sealed[name] = {**about_sealed(value), "shape": list(vectors.shape)}
            if not masked:
                arrays[name] = vectors
    facts = {"version": VERSION, "party": reply.party, "round": reply.round, "sealed": sealed}
    return pack({**facts, "rows": [asdict(row) for row in reply.rows]}, arrays)


def _row(told: Json) -> Row:
    """A ledger row as another organisation tells it: of the right types, and one that an accountant can read."""
    row = Row(**told)
    texts = (row.silo, row.site, row.observer, row.unit, row.relation, row.randomness, row.why, row.digest)
    amounts = (row.l2, row.noise)
    protected = row.mechanism in NAMES
    good = (
        all(isinstance(text, str) for text in (*texts, row.batch, row.part))
        and (protected or row.mechanism == "reveal")
        and type(row.round) is int
        and type(row.dim) is int
        and isinstance(row.sampling, float)
        and 0.0 < row.sampling <= 1.0
        and row.observer in _OBSERVERS
        and all((type(x) is float and 0.0 < x < math.inf) if protected else x is None for x in amounts)
    )
    if not good:
        raise ValueError
    return row


def read_reply(blob: bytes, where: str) -> Reply:
    """Values become `Released` again: they passed the silo's gate, and its signature says so."""
    facts, arrays = unpack(blob)
    try:
        if facts["version"] != VERSION or type(facts["round"]) is not int:
            raise ValueError
        sent: dict[str, Released | Sealed] = {}
        for name, about in facts["sealed"].items():
            count, length = (int(n) for n in about["shape"])
            if not (0 <= count <= _MOST and 0 <= length <= _MOST):
                raise ValueError
            sent_along = name in arrays
            vectors = arrays.pop(name) if sent_along else np.broadcast_to(0.0, (count, length))
            if vectors.shape != (count, length) or vectors.dtype != np.float64:
                raise ValueError
            if sent_along and np.isnan(vectors).any():
                raise ValueError
            sent[name] = sealed_again(vectors, about)
        for name, value in arrays.items():
            if value.dtype != np.float64 or not value.ndim or np.isnan(value).any():
                raise ValueError
            sent[name] = relay(value)
        rows = tuple(_row(row) for row in facts["rows"])
        return Reply(str(facts["party"]), facts["round"], sent, rows)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise InputError(where, "an answer of silograph", "something else came") from None
