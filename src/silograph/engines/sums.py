"""A secure sum between organisations: the server's and the agents' ends of `privacy.secure_sum`, in questions.

Keys live in memory, for one round. The row of an agent's own ledger is on disk before its masked input leaves. From
then on it takes part in no other sum of this round and release point: a server that restarts a sum before it asked for
masked inputs gets it, later it does not. Asked the same again, an agent says the same.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.engines.joined import AskMembers, Together
from silograph.engines.question import Question
from silograph.engines.wire import pack, unpack
from silograph.privacy.door import Door
from silograph.privacy.masking import MaskedSum
from silograph.privacy.released import Sealed, sealed_rows
from silograph.privacy.secure_graph import DishonestServerError
from silograph.privacy.secure_messages import SAID, STEPS, TOLD, Message, ProtocolError, Step, Told, Total
from silograph.privacy.secure_sum import Agent, Server, run_steps
from silograph.privacy.secure_wire import from_json, to_json
from silograph.privacy.sums import join, refuse_second, sum_of
from silograph.topology import Topology

# ---- at the server ---------------------------------------------------------------------------------------------------

#: Replaces the answer of an agent that refused because it was added up before: it has paid, with or without a total.
SUMMED: Json = {"summed": True}


def run_sum(
    run: str,
    asked: MaskedSum,
    field: str,
    identities: Mapping[str, bytes],
    ask: AskMembers,
    together: Together | None = None,
) -> tuple[Total, set[str]]:
    """Run all steps with the agents that answer; the total is over nobody if too few did. Return also who may have
    paid: all who were asked for a masked input, since a missing one may have left, and all who say that they have.

    In a sum `together` over all servers, `ask` reaches the agents of this one."""
    nonce, paid = secrets.token_hex(8) if together is None else together.nonce, set[str]()
    ask = ask if together is None else together.asking(ask)
    session = asked.session(f"{run} {nonce}", identities)
    place: Json = {"nonce": nonce, "field": field, "region": asked.region, "members": list(asked.members)}
    place["identities"] = {name: identities[name].hex() for name in asked.members}

    def put(step: Step, told: Mapping[str, Told | None]) -> dict[str, Message]:
        if step == "mask":
            paid.update(told)
        different = {id(message): message for message in told.values()}  # most are told the same
        texts = {key: {} if message is None else to_json(message) for key, message in different.items()}
        replies = ask({name: {**place, "step": step, "message": texts[id(message)]} for name, message in told.items()})
        paid.update(name for name in told if replies.get(name) == SUMMED)
        said: dict[str, Message] = {}
        for name in told.keys() & replies.keys():
            with suppress(InputError):  # unreadable answers do not count
                said[name] = from_json(SAID[step], replies[name])
        return said

    try:
        return run_steps(Server(session), put) if together is None else together.steps(session, put), paid
    except DishonestServerError:
        raise
    except ProtocolError:
        return Total(np.zeros(asked.length, dtype=np.int64), asked.cohort.bits, ()), paid


def one_question(messages: Mapping[str, Json]) -> dict[str, Json]:
    """Pack a step's messages to the agents of one organisation: parts that are the same for all are sent once."""
    first = next(iter(messages.values()))
    same = {key: part for key, part in first.items() if all(told[key] == part for told in messages.values())}
    rest = {name: {key: part for key, part in told.items() if key not in same} for name, told in messages.items()}
    return {"same": same, "to": rest}


def read_step(question: Question) -> dict[str, Json]:
    """Read a step: by agent, the message to it."""
    step = question.sum or {}
    same, rest = step.get("same", {}), step.get("to", {})
    if not all(isinstance(part, dict) for part in (same, rest, *rest.values())):
        raise InputError("secure sum", "a message for each silo that is asked", "found something else")
    return {name: {**same, **told} for name, told in rest.items()}


# ---- at the agents ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """One agent's part in one sum: the sum's name, and by step the message it got and its answer."""

    round: int
    place: Json
    agent: Agent
    said: dict[str, tuple[Json, Json]] = field(default_factory=dict)


def home_of(topo: Topology) -> dict[str, str]:
    """The server of every silo."""
    graph = topo.graph
    return {silo: graph.servers[p] for silo, p in zip(graph.silos, graph.home, strict=True)}


class SumAgents:
    """The agents of one organisation, with the organisation's registered identity.

    The identities of other organisations' agents are those of `roster`, a file made from their enrolments; none is
    taken from the server. A sum among this organisation's own agents needs no such file.
    """

    def __init__(
        self,
        run: str,
        identity: Ed25519PrivateKey,
        silos: Sequence[str],
        roster: Path,
        home: Mapping[str, str] | None = None,
    ) -> None:
        """`home` is the server of every silo, if there are several."""
        self._run, self._identity, self._silos, self._roster = run, identity, silos, roster
        self._home = home or {}
        self._parts: dict[str, _Part] = {}  # of this round, by silo

    def step(self, question: Question, sealed: Mapping[str, Sealed], silos: Sequence[str], door: Door) -> bytes:
        """`sealed` has a row for each of `silos`, of which some are asked now."""
        told = read_step(question)
        if told.keys() != set(question.silos):
            raise InputError("secure sum", "a message for each silo that is asked", "found something else")
        self._parts = {silo: part for silo, part in self._parts.items() if part.round == question.round}
        return pack({"said": {silo: self._said(silo, told[silo], question, sealed, silos, door) for silo in told}}, {})

    def _said(
        self, silo: str, told: Any, question: Question, sealed: Mapping[str, Sealed], silos: Sequence[str], door: Door
    ) -> Json:
        """An agent's answer; the same as before if it was asked the same before."""
        try:
            step, message = str(told["step"]), told["message"]
            place: Json = {name: told[name] for name in ("nonce", "field", "region", "members", "identities")}
            vector = sealed_rows(sealed[place["field"]])[silos.index(silo)]
        except (KeyError, TypeError, ValueError):
            raise InputError("secure sum", "a step, its place and its members", "found something else") from None
        part = self._parts.get(silo)
        if step == STEPS[0] and (part is None or part.place != place):
            part = self._parts[silo] = self._begun(silo, place, question, sealed[place["field"]], vector, door)
        if part is None or part.place != place:
            raise ProtocolError("secure sum", "a sum that this agent began", "found another one")
        if step not in part.said:
            part.said[step] = (message, to_json(_spoken(part.agent, step, message, vector)))
        known, said = part.said[step]
        if known != message:
            raise ProtocolError("secure sum", f"what came with {step} before", "found something else")
        return said

    def _begun(self, silo: str, place: Json, question: Question, held: Sealed, vector: Array, door: Door) -> _Part:
        """Begin with a new agent; refuse if a masked input of this silo has already left."""
        try:
            members = tuple(str(name) for name in place["members"])
            identities = {str(name): bytes.fromhex(key) for name, key in place["identities"].items()}
        except (TypeError, ValueError, AttributeError):
            raise InputError("secure sum", "members and their identities", "found something else") from None
        if silo not in members or len(set(members)) < len(members) or not set(members) <= set(question.members):
            raise InputError("secure sum", "a cohort of this round", "found another one")
        self._check_reach(silo, members, held.joined)
        gate = door.gate([silo], question.round)
        refuse_second(gate, held.release_point)
        asked = sum_of(gate, held, members, str(place["region"]))
        self._check_identities({name: identities.get(name, b"") for name in members}, self._silos)
        session = asked.session(f"{self._run} {place['nonce']}", identities)
        noise = asked.noise_source(door.root, silo)
        pay = partial(join, gate, asked, vector)
        return _Part(question.round, place, Agent(session, silo, self._identity, noise_source=noise, pay=pay))

    def _check_reach(self, silo: str, members: Sequence[str], joined: bool) -> None:
        """Check the members of a sum: their noise protects an agent, so they must be those of the plan, the agents of
        its own server or those of several."""
        servers = {self._home.get(name) for name in members}
        several = len(set(self._home.values())) > 1
        if several and (len(servers) > 1) != joined:
            raise ProtocolError(
                "secure sum",
                "agents of several servers" if joined else f"agents of the server of {silo}",
                "found those of one" if joined else "found others",
            )

    def _check_identities(self, identities: Mapping[str, bytes], silos: Sequence[str]) -> None:
        """Check identities: a server that could choose them would play all other agents itself and see the remaining
        one."""
        known: Json = json.loads(self._roster.read_text(encoding="utf-8")) if self._roster.exists() else {}
        known |= dict.fromkeys(silos, self._identity.public_key().public_bytes_raw().hex())
        for name, key in identities.items():
            if known.get(name) != key.hex():
                raise ProtocolError(
                    "secure sum",
                    f"the identity of {name} that is known here",
                    "found another one" if name in known else "none is known",
                    f"Agents of other organisations need {self._roster.name}, from their enrolments, before the run.",
                )


def _spoken(agent: Agent, step: str, message: Any, vector: Array) -> Message:
    if step not in STEPS:
        raise InputError("secure sum", "a step of it", "found something else")
    return agent.say(step, from_json(TOLD[step], message) if step in TOLD else None, vector)


def read_answers(blob: bytes) -> dict[str, Json]:
    """Read the answers of an organisation's agents; an unreadable one counts as no answer."""
    try:
        said = unpack(blob)[0].get("said")
    except InputError:
        return {}
    return said if isinstance(said, dict) else {}
