"""A secure sum between organisations: the server's and the agents' ends of `privacy.secure_sum`, in questions.

Keys live in memory, for one round. The row of an agent's own ledger is on disk before its masked input leaves. From
then on it takes part in no other sum of this round and release point: a server that begins a sum again before it asked
for masked inputs gets it, and one that does so later does not. Asked the same again, an agent says the same.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.engines.question import Question
from silograph.engines.wire import pack, unpack
from silograph.privacy.door import Door
from silograph.privacy.masking import MaskedSum
from silograph.privacy.released import Sealed, sealed_rows
from silograph.privacy.secure_messages import (
    STEPS,
    Advertisement,
    Answer,
    Confirmation,
    Delivery,
    MaskedInput,
    Message,
    Proof,
    ProtocolError,
    Request,
    Roster,
    Session,
    Shares,
    Total,
)
from silograph.privacy.secure_sum import Agent, Server
from silograph.privacy.secure_wire import from_json, to_json
from silograph.privacy.sums import join, refuse_second, sum_of

_SAID: dict[str, type[Message]] = {
    "advertise": Advertisement,
    "share": Shares,
    "mask": MaskedInput,
    "confirm": Confirmation,
    "unmask": Answer,
}


def _session(run: str, nonce: str, asked: MaskedSum, identities: Mapping[str, bytes]) -> Session:
    return Session(
        f"{run} {nonce}",
        asked.round,
        asked.unit,
        {name: identities[name] for name in asked.members},
        asked.length,
        asked.clip,
        asked.cohort.bits,
        asked.cohort.share,
        asked.masks.minimum,
    )


# ---- at the server ---------------------------------------------------------------------------------------------------

#: What stands for an agent that refused because it was added up before: it has paid, whatever became of that sum.
SUMMED: Json = {"summed": True}

#: Puts one question to each of the members and returns what came back; who is missing is left out.
AskMembers = Callable[[Mapping[str, Json]], Mapping[str, Json]]


def run_sum(
    run: str, asked: MaskedSum, field: str, identities: Mapping[str, bytes], ask: AskMembers
) -> tuple[Total, set[str]]:
    """All steps with whoever answers; a total over nobody where too few did. And who may have paid: all who were asked
    for a masked input, since one that did not arrive may have left, and all who say that they have."""
    nonce = secrets.token_hex(8)
    session = _session(run, nonce, asked, identities)
    server, silent, paid = Server(session), set[str](), set[str]()
    place: Json = {"nonce": nonce, "field": field, "unit": asked.unit, "members": list(asked.members)}
    place["identities"] = {name: identities[name].hex() for name in asked.members}

    def hear(step: str, says: Callable[[str], Json]) -> None:
        waiting = [name for name in asked.members if name not in silent]
        if step == "mask":
            paid.update(waiting)
        replies = ask({name: {**place, "step": step, "message": says(name)} for name in waiting})
        paid.update(name for name in waiting if replies.get(name) == SUMMED)
        for name in waiting:
            try:
                message = from_json(_SAID[step], replies[name])
                if message.sender != name:
                    raise InputError("secure sum", f"a message of {name}", "one of somebody else came")
                server.receive(message)
            except (KeyError, InputError, ProtocolError):
                silent.add(name)

    try:
        hear("advertise", lambda name: {})
        roster = to_json(server.roster())
        hear("share", lambda name: roster)
        deliveries = server.deliveries()
        hear("mask", lambda name: to_json(deliveries[name]))
        request = to_json(server.request())
        hear("confirm", lambda name: request)
        proof = to_json(server.proof())
        hear("unmask", lambda name: proof)
        return server.total(), paid
    except ProtocolError:
        return Total(np.zeros(asked.length, dtype=np.int64), asked.cohort.bits, ()), paid


# ---- at the agents ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """One agent's part in one sum: what names the sum, and by step what it was told and what it said."""

    round: int
    place: Json
    agent: Agent
    said: dict[str, tuple[Json, Json]] = field(default_factory=dict)


class SumAgents:
    """The agents of one party, with the party's registered identity.

    The identities of other parties' agents are those of `roster`, a file made of their enrolments; nobody's is taken
    from the server. A sum among this party's own agents needs no such file.
    """

    def __init__(self, run: str, identity: Ed25519PrivateKey, silos: Sequence[str], roster: Path) -> None:
        self._run, self._identity, self._silos, self._roster = run, identity, silos, roster
        self._parts: dict[str, _Part] = {}  # of this round, by silo

    def step(self, question: Question, sealed: Mapping[str, Sealed], silos: Sequence[str], door: Door) -> bytes:
        """`sealed` has a row for each of `silos`, of which some are asked now."""
        told = (question.sum or {}).get("to")
        if not (isinstance(told, dict) and told.keys() == set(question.silos)):
            raise InputError("secure sum", "a message for each silo that is asked", "something else came")
        self._parts = {silo: part for silo, part in self._parts.items() if part.round == question.round}
        return pack({"said": {silo: self._said(silo, told[silo], question, sealed, silos, door) for silo in told}}, {})

    def _said(
        self, silo: str, told: Any, question: Question, sealed: Mapping[str, Sealed], silos: Sequence[str], door: Door
    ) -> Json:
        """What an agent says, or has said when it was told the same before."""
        try:
            step, message = str(told["step"]), told["message"]
            place: Json = {name: told[name] for name in ("nonce", "field", "unit", "members", "identities")}
            vector = sealed_rows(sealed[place["field"]])[silos.index(silo)]
        except (KeyError, TypeError, ValueError):
            raise InputError("secure sum", "a step, its place and its members", "something else came") from None
        part = self._parts.get(silo)
        if step == STEPS[0] and (part is None or part.place != place):
            part = self._parts[silo] = self._begun(silo, place, question, sealed[place["field"]], vector, door)
        if part is None or part.place != place:
            raise ProtocolError("secure sum", "a sum that this agent began", "another one came")
        if step not in part.said:
            part.said[step] = (message, to_json(_spoken(part.agent, step, message, vector)))
        known, said = part.said[step]
        if known != message:
            raise ProtocolError("secure sum", f"what came with {step} before", "something else came")
        return said

    def _begun(self, silo: str, place: Json, question: Question, held: Sealed, vector: Array, door: Door) -> _Part:
        """A new agent; one that a masked input of this silo has left already is refused."""
        try:
            members = tuple(str(name) for name in place["members"])
            identities = {str(name): bytes.fromhex(key) for name, key in place["identities"].items()}
        except (TypeError, ValueError, AttributeError):
            raise InputError("secure sum", "members and their identities", "something else came") from None
        if silo not in members or len(set(members)) < len(members) or not set(members) <= set(question.members):
            raise InputError("secure sum", "a cohort of this round", "another one came")
        gate = door.gate([silo], question.round)
        refuse_second(gate, held.site)
        asked = sum_of(gate, held, members, str(place["unit"]))
        self._check_identities({name: identities.get(name, b"") for name in members}, self._silos)
        session = _session(self._run, str(place["nonce"]), asked, identities)
        noise = asked.noise_source(door.root, silo)
        pay = partial(join, gate, asked, vector)
        return _Part(question.round, place, Agent(session, silo, self._identity, noise_source=noise, pay=pay))

    def _check_identities(self, identities: Mapping[str, bytes], silos: Sequence[str]) -> None:
        """A server that could name identities as it likes would play all other agents itself, and be left with one."""
        known: Json = json.loads(self._roster.read_text(encoding="utf-8")) if self._roster.exists() else {}
        known |= dict.fromkeys(silos, self._identity.public_key().public_bytes_raw().hex())
        for name, key in identities.items():
            if known.get(name) != key.hex():
                raise ProtocolError(
                    "secure sum",
                    f"the identity of {name} that is known here",
                    "another one came" if name in known else "none is known",
                    f"Agents of other parties need {self._roster.name}, from their enrolments, before the run.",
                )


def _spoken(agent: Agent, step: str, message: Any, vector: Array) -> Message:
    match step:
        case "advertise":
            return agent.advertise()
        case "share":
            return agent.share(from_json(Roster, message))
        case "mask":
            return agent.mask(from_json(Delivery, message), vector)
        case "confirm":
            return agent.confirm(from_json(Request, message))
        case "unmask":
            return agent.unmask(from_json(Proof, message))
    raise InputError("secure sum", "a step of it", "something else came")


def read_said(blob: bytes) -> dict[str, Json]:
    """What the agents of a party said; what cannot be read was not said."""
    try:
        said = unpack(blob)[0].get("said")
    except InputError:
        return {}
    return said if isinstance(said, dict) else {}
