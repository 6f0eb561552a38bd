"""A secure sum between organisations: the server's and the agents' ends of `privacy.secure_sum`, in questions.

Keys live in memory, for one round. An agent that lost them, or that has already signed a list of survivors in this
round, sits the rest of it out: so a server that begins a sum again before anybody signed gets it, and one that does so
later does not.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silograph.core.errors import InputError
from silograph.core.types import Json
from silograph.engines.question import Question
from silograph.engines.wire import pack, unpack
from silograph.privacy.gate import Door, Sealed, sealed_rows
from silograph.privacy.masking import MaskedSum
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

#: Puts one question to each of the members and returns what came back; who is missing is left out.
AskMembers = Callable[[Mapping[str, Json]], Mapping[str, Json]]


def run_sum(
    run: str, asked: MaskedSum, field: str, identities: Mapping[str, bytes], ask: AskMembers
) -> tuple[Total, bool]:
    """All steps with whoever answers; a total over nobody where too few did. And whether agents were asked to sign:
    from then on they count it as spent."""
    nonce = secrets.token_hex(8)
    session = _session(run, nonce, asked, identities)
    server, silent, signing = Server(session), set[str](), False
    place: Json = {"nonce": nonce, "field": field, "unit": asked.unit, "members": list(asked.members)}
    place["identities"] = {name: identities[name].hex() for name in asked.members}

    def hear(step: str, says: Callable[[str], Json]) -> None:
        waiting = [name for name in asked.members if name not in silent]
        replies = ask({name: {**place, "step": step, "message": says(name)} for name in waiting})
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
        request, signing = to_json(server.request()), True
        hear("confirm", lambda name: request)
        proof = to_json(server.proof())
        hear("unmask", lambda name: proof)
        return server.total(), signing
    except ProtocolError:
        return Total(np.zeros(asked.length, dtype=np.int64), asked.cohort.bits, ()), signing


# ---- at the agents ---------------------------------------------------------------------------------------------------


class SumAgents:
    """The agents of one party, with the party's registered identity.

    The identities of other parties' agents are those of `roster`, a file made of their enrolments; nobody's is taken
    from the server. A sum among this party's own agents needs no such file.
    """

    def __init__(self, run: str, identity: Ed25519PrivateKey, silos: Sequence[str], roster: Path) -> None:
        self._run, self._identity, self._silos, self._roster = run, identity, silos, roster
        self._agents: dict[str, tuple[str, Agent, MaskedSum]] = {}
        self._said: dict[str, bytes] = {}  # by question: one that is put twice is answered once

    def step(self, question: Question, sealed: Mapping[str, Sealed], silos: Sequence[str], door: Door) -> bytes:
        """`sealed` has a row for each of `silos`, of which some are asked now."""
        key = hashlib.sha256(question.pack()).hexdigest()
        if key not in self._said:
            told = question.sum or {}
            if not (isinstance(told.get("to"), dict) and told["to"].keys() == set(question.silos)):
                raise InputError("secure sum", "a message for each silo that is asked", "something else came")
            said = {
                silo: to_json(self._speak(silo, dict(message), question, sealed, silos, door))
                for silo, message in told["to"].items()
            }
            self._said = {key: pack({"said": said}, {})}
        return self._said[key]

    def _speak(
        self,
        silo: str,
        told: dict[str, Any],
        question: Question,
        sealed: Mapping[str, Sealed],
        silos: Sequence[str],
        door: Door,
    ) -> Message:
        try:
            step, nonce, field, unit = (str(told[name]) for name in ("step", "nonce", "field", "unit"))
            held, members = sealed[field], tuple(str(name) for name in told["members"])
            identities = {str(name): bytes.fromhex(key) for name, key in told["identities"].items()}
            vector = sealed_rows(held)[silos.index(silo)]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("secure sum", "a step, its place and its members", "something else came") from None
        gate = door.gate([silo], question.round)
        if step == STEPS[0]:
            if silo not in members or len(set(members)) < len(members) or not set(members) <= set(question.members):
                raise InputError("secure sum", "a cohort of this round", "another one came")
            asked = gate.sum_of(held, members, unit)
            self._check_identities({name: identities.get(name, b"") for name in members}, self._silos)
            source = asked.noise_source(door.root, silo)
            session = _session(self._run, nonce, asked, identities)
            agent = Agent(session, silo, self._identity, noise_source=source)
            self._agents[silo] = (nonce, agent, asked)
            return agent.advertise()
        if silo not in self._agents or self._agents[silo][0] != nonce:
            raise ProtocolError("secure sum", "a sum that this agent began", "another one came")
        _, agent, asked = self._agents[silo]
        match step:
            case "share":
                return agent.share(from_json(Roster, told["message"]))
            case "mask":
                return agent.mask(from_json(Delivery, told["message"]), vector)
            case "confirm":
                request = from_json(Request, told["message"])
                gate.join(asked, vector)
                return agent.confirm(request)
            case "unmask":
                return agent.unmask(from_json(Proof, told["message"]))
        raise InputError("secure sum", "a step of it", "something else came")

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


def read_said(blob: bytes) -> dict[str, Json]:
    """What the agents of a party said; what cannot be read was not said."""
    try:
        said = unpack(blob)[0].get("said")
    except InputError:
        return {}
    return said if isinstance(said, dict) else {}
