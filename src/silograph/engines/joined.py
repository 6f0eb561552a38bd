"""One server's end of a secure sum over the agents of all servers: it sends its words to all, and receives theirs."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from silograph.core.errors import InputError
from silograph.core.schema import parse_json, read, write
from silograph.core.types import Json
from silograph.privacy.secure_graph import Word, at_server
from silograph.privacy.secure_messages import SAID, Message, PartialSum, Session, Total
from silograph.privacy.secure_sum import Ask

#: Puts one question to each of the members and returns the answers; missing members are left out.
AskMembers = Callable[[Mapping[str, Json]], Mapping[str, Json]]

_KINDS: Mapping[str, type[Message]] = {kind.__name__: kind for kind in SAID.values()}


class Around(Protocol):
    """The servers of a graph, as seen from one; `engines.neighbours` reaches them over its links."""

    @property
    def me(self) -> str: ...

    @property
    def servers(self) -> tuple[str, ...]: ...

    def once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Do something once between two floods; after a kill the result is the same."""
        ...

    def flood(self, own: bytes) -> dict[str, bytes]:
        """Spread words; return everybody's, by server."""
        ...


@dataclass(frozen=True)
class _Coming:
    """A server's word before a sum: its agents in the sum, with their identities."""

    nonce: str
    agents: Mapping[str, bytes]


@dataclass(frozen=True)
class Together:
    """The members of a sum over all servers, and its nonce: the same everywhere, and new if one server is honest."""

    around: Around
    nonce: str
    home: Mapping[str, str]
    identities: Mapping[str, bytes]

    @classmethod
    def come(cls, around: Around, own: Mapping[str, bytes], of: Mapping[str, str]) -> Together:
        """Agree on the members: `own` are the identities of the agents here that are in the sum, `of` is the server of
        every agent."""
        mine = around.once("coming", lambda: _json(write(_Coming(secrets.token_hex(16), own))))
        words = around.flood(mine)
        home: dict[str, str] = {}
        identities: dict[str, bytes] = {}
        for server in around.servers:
            where = f"region {server}"
            told = read(_Coming, parse_json(words[server], where), where)
            for name, key in told.agents.items():
                if of.get(name) != server:
                    raise InputError(where, "agents of its own in a sum", f"found {name!r:.60}")
                home[name], identities[name] = server, key
        nonce = hashlib.sha256(b"".join(hashlib.sha256(words[server]).digest() for server in around.servers))
        return cls(around, nonce.hexdigest(), home, identities)

    def asking(self, ask: AskMembers) -> AskMembers:
        """Ask the agents here once for a step, and note their answers before passing them on."""

        def noted(messages: Mapping[str, Json]) -> Mapping[str, Json]:
            step = str(next(iter(messages.values()))["step"])
            said: Mapping[str, Json] = json.loads(self.around.once(step, lambda: _json(dict(ask(messages)))))
            return said

        return noted

    def steps(self, session: Session, ask: Ask) -> Total:
        """Run all steps, with this server's part."""
        servers = self.around.servers
        home = {name: servers.index(server) for name, server in self.home.items()}
        part = at_server(session, home, servers.index(self.around.me), ask)
        word = next(part)
        while True:
            heard = self.around.flood(_json(_written(word)))
            try:
                word = part.send([_word(heard[server], f"region {server}") for server in servers])
            except StopIteration as end:
                total: Total = end.value
                return total


def _json(told: Any) -> bytes:
    return json.dumps(told).encode()


def _written(word: Word) -> Any:
    messages = (word,) if isinstance(word, PartialSum) else word
    return [[type(message).__name__, write(message)] for message in messages]


def _word(content: bytes, where: str) -> Word:
    try:
        told = [(str(kind), message) for kind, message in parse_json(content, where)]
    except (TypeError, ValueError):
        raise InputError(where, "messages of a secure sum", "found something else") from None
    if [kind for kind, _ in told] == [PartialSum.__name__]:
        return read(PartialSum, told[0][1], where)
    if odd := {kind for kind, _ in told} - _KINDS.keys():
        raise InputError(where, "messages of a secure sum", f"found {min(odd)!r:.60}")
    return tuple(read(_KINDS[kind], message, where) for kind, message in told)
