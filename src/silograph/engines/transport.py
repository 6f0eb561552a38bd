"""Questions to organisations and their answers over NATS: the server asks, nobody else does.

Every organisation has two subjects, and the NATS server lets nobody else use them:

    silograph.DEPLOYMENT.ORGANISATION.ask    the server writes, this organisation alone reads
    silograph.DEPLOYMENT.ORGANISATION.say    this organisation alone writes, the server reads

No message is trusted for its subject: a reply counts if its organisation signed it for this question, and lost messages
are asked for again.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nats.aio.client import Client

from silograph.core.errors import InputError, OwnEyes, SilenceError
from silograph.engines.certificates import not_ours, public_key, read_private, sign_reply, signed
from silograph.engines.line import LIMIT, Incoming, Line, frame, host_of, subject
from silograph.engines.remote import Answers, Refusal
from silograph.engines.route import Route

_PART, _MORE, _WHO, _HERE, _GONE = b"p", b"m", b"w", b"h", b"g"
_REPLY, _REFUSED = b"r", b"x"
_LARGEST = LIMIT - 1024  # bytes of a question or a reply, beside its signature

_BEAT, _LOST = 4.0, 20.0  # seconds between calls, and until an organisation that does not answer them counts as gone
_FIRST_ATTEMPT, _LONGEST_ATTEMPT = 3.0, 24.0  # seconds until a question is repeated
_AGAIN = 0.5  # seconds until a reply that cannot be used is asked for again
_ADMISSION = 25.0  # seconds in which a server may add an organisation that it turns away
_PARTING = 10.0  # seconds in which a last reply is offered to a server that cannot be reached
_LOOK = 0.2
_LONGEST_NAME = 100


# ---- the server ------------------------------------------------------------------------------------------------------


@dataclass
class _Asked:
    """An organisation that has not answered yet: when it is due to be asked, and how long it then has."""

    question: bytes
    number: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    attempt: float = _FIRST_ATTEMPT
    due: float = 0.0
    incoming: Incoming = field(default_factory=Incoming)


class Asker(Line):
    """The server's end. `keys` are the organisations' public keys, as in node.pub; NATS is certified as `host`."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None,
        deployment: str,
        keys: Mapping[str, bytes],
        host: str,
        route: Route | None = None,
    ) -> None:
        super().__init__(address, tls, host, subject(deployment, None, "say"), route)
        self._keys = {name: public_key(text, f"key of {name}") for name, text in keys.items()}
        self._names = {subject(deployment, name, "say"): name for name in keys}
        self._to = {name: subject(deployment, name, "ask") for name in keys}
        self._seen: dict[str, tuple[bytes, float]] = {}  # by organisation: its connection, and when it was last heard
        self._open: dict[str, _Asked] = {}
        self._answers = Answers({}, {})
        self._bell = threading.Condition()

    def present(self) -> set[str]:
        with self._bell:
            return {name for name, (_, at) in self._seen.items() if time.monotonic() - at < _LOST}

    def waiting(self) -> frozenset[str]:
        """Organisations that were asked and have not answered yet."""
        with self._bell:
            return frozenset(self._open)

    def ask(
        self, questions: Mapping[str, bytes], deadline: float, enough: Callable[[set[str]], bool] | None = None
    ) -> Answers:
        """Ask the organisations until all have answered or refused, `enough` accepts those that did, or so many seconds
        are over."""
        for name, question in questions.items():
            if name not in self._keys:
                known = ", ".join(sorted(self._keys))
                raise InputError(f"organisation {name}", f"one of {known}", "its key is not known")
            _check_size(question, f"question to {name}")
        end = time.monotonic() + deadline
        with self._bell:
            self._open = {name: _Asked(question) for name, question in questions.items()}
            answers = self._answers = Answers({}, {})
            try:
                while True:
                    left = end - time.monotonic()
                    heard = answers.replies.keys() | answers.refusals.keys()
                    if not self._open or left <= 0 or (enough is not None and enough(heard)):
                        return answers
                    self._bell.wait(min(left, self._put()))
            finally:
                self._open = {}

    def _put(self) -> float:
        """Ask those who are due; return the seconds until somebody is due again, at most until presence may have
        changed."""
        now, soonest = time.monotonic(), time.monotonic() + 1.0
        for name, asked in self._open.items():
            if asked.due <= now:
                self.send(self._to[name], frame(_PART, asked.number, 0, asked.question))
                asked.due = now + asked.attempt
                asked.attempt = min(2.0 * asked.attempt, _LONGEST_ATTEMPT)
            soonest = min(soonest, asked.due)
        return max(0.0, soonest - time.monotonic())

    def connected(self) -> None:
        self._loop.create_task(self._call_everybody(self._client))

    async def _call_everybody(self, client: Client) -> None:
        """Call everybody as long as this connection lasts: organisations hear that the server lives."""
        while client.is_connected:
            for where in self._to.values():
                await self.publish(where, frame(_WHO, bytes(16)))
            await asyncio.sleep(_BEAT)

    def heard(self, where: str, kind: bytes, number: bytes, start: int, total: int, part: bytes) -> None:
        if (name := self._names.get(where)) is None:
            return
        with self._bell:
            asked = self._open.get(name)
            if kind == _GONE:
                self._seen.pop(name, None)
            else:
                session = number if kind == _HERE else self._seen.get(name, (b"",))[0]
                if kind == _HERE and asked is not None and session != self._seen.get(name, (b"",))[0]:
                    asked.due = 0.0  # it connected again, and has lost its messages
                self._seen[name] = (session, time.monotonic())
            if asked is not None and asked.number == number:
                if kind == _MORE:
                    self.send(self._to[name], frame(_PART, number, start, asked.question))
                elif kind == _PART:
                    self._taken(name, asked, start, total, part)
            self._bell.notify_all()

    def _taken(self, name: str, asked: _Asked, start: int, total: int, part: bytes) -> None:
        whole, needed = asked.incoming.take(asked.number, start, total, part)
        if needed is not None:
            self.send(self._to[name], frame(_MORE, asked.number, needed))
        if whole is None:
            return
        size = whole[0] if whole else 0
        signature, body = whole[1 : 1 + size], whole[1 + size :]
        if not signed(self._keys[name], asked.question, body, signature):
            asked.due = min(asked.due, time.monotonic() + _AGAIN)
            return
        del self._open[name]
        if body[:1] == _REPLY:
            self._answers.replies[name] = body[1:]
        else:
            text = body[1:].decode("ascii", "replace")
            self._answers.refusals[name] = Refusal(
                text if text.isidentifier() and len(text) <= _LONGEST_NAME else "Exception"
            )


# ---- an organisation -------------------------------------------------------------------------------------------------


class Answerer(Line):
    """An organisation's end. It answers one question at a time, in the thread that calls `serve`."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None,
        deployment: str,
        organisation: str,
        key: Path,
        ca: Path,
        route: Route | None = None,
    ) -> None:
        super().__init__(address, tls, host_of(address), subject(deployment, organisation, "ask"), route)
        self._to, self._key, self._ca = subject(deployment, organisation, "say"), read_private(key), ca
        self._session, self._incoming, self._bell = b"", Incoming(), threading.Condition()
        self._next: tuple[bytes, bytes] | None = None  # the newest question: the server has given up older ones
        self._current, self._reply = b"", b""  # the question being answered, or the last one; and the signed reply
        self._heard_at = time.monotonic()
        self._turned_away: tuple[float, float] | None = None  # when first, and when last
        self._fatal: InputError | None = None

    def serve(
        self, answer: Callable[[bytes], bytes], until: Callable[[], bool], patience: float, say: Callable[[str], None]
    ) -> None:
        """Answer questions until `until()`.

        The server may ask the same again: `answer` must give the same bytes. Without a server for `patience` seconds
        it is a SilenceError; a server that is not ours, or does not know us, is an InputError.
        """
        online: bool | None = None
        while not until():
            online = self._look(online, patience, say)
            with self._bell:
                self._bell.wait_for(lambda: self._next is not None, _LOOK)
                asked, self._next = self._next, None
            if asked is not None:
                number, question = asked
                body = _said(answer, question, say)
                signature = sign_reply(self._key, question, body)
                with self._bell:
                    if number == self._current:
                        self._reply = b"".join([bytes([len(signature)]), signature, body])
                        self.send(self._to, frame(_PART, number, 0, self._reply))
        if self._reply and self.online.wait(_PARTING):
            self.send(self._to, frame(_PART, self._current, 0, self._reply))  # in case the connection was away

    def _look(self, online: bool | None, patience: float, say: Callable[[str], None]) -> bool:
        """Report changes since the last look, and end if waiting does not help."""
        if self._fatal is not None:
            raise self._fatal
        here, now = self.online.is_set(), time.monotonic()
        if here and not online:
            say(f"Connected to {self.address}.")
        elif not here and online is not False:
            say(f"No connection to {self.address} ({self.trouble or 'not yet'}); trying again.")
        if self._turned_away is not None and self._turned_away[1] - self._turned_away[0] > _ADMISSION:
            found = f"it did not let us in for {_ADMISSION:g} s ({self.trouble})"
            todo = "Send the newest NAME.enrolment.json to whoever runs the server."
            raise InputError(
                f"server {self.address}", "a server that knows this organisation's certificate", found, todo
            )
        if now - self._heard_at > patience:
            found = f"found none ({self.trouble or 'NATS is there, the server is not'})"
            todo = "Ask whoever runs the server, and start again: nothing is lost."
            raise SilenceError(f"server {self.address}", f"an answer within {patience:g} s", found, todo)
        return here

    def present(self) -> bool:
        """Whether the server is there now."""
        return self.online.is_set() and time.monotonic() - self._heard_at < _LOST

    def connected(self) -> None:
        self._session, self._turned_away = secrets.token_bytes(16), None
        self.send(self._to, frame(_HERE, self._session))

    async def leave(self) -> None:
        await self.publish(self._to, frame(_GONE, bytes(16)))
        await super().leave()

    def disconnected(self, problems: list[BaseException]) -> None:
        for error in problems:
            if isinstance(error, ssl.SSLCertVerificationError):
                self._fatal = not_ours(self.address, self._ca, error)
        reset = any(isinstance(error, ConnectionResetError | BrokenPipeError) for error in problems)
        # By WebSocket a client speaks first: then a reset mostly overtakes the server's no. Alone it shows nothing.
        if any(map(_turns_away, problems)) or (reset and self._turned_away):
            self._heard_at = time.monotonic()
            self._turned_away = (self._turned_away or (self._heard_at,))[0], self._heard_at
        elif not reset:
            self._turned_away = None  # a server that is gone may return and know us

    def heard(self, where: str, kind: bytes, number: bytes, start: int, total: int, part: bytes) -> None:
        with self._bell:
            self._heard_at = time.monotonic()
            if kind == _WHO:
                self.send(self._to, frame(_HERE, self._session))
            elif number == self._current:  # asked again: the reply if there is one, or its next part
                if self._reply and kind in (_PART, _MORE):
                    self.send(self._to, frame(_PART, number, start if kind == _MORE else 0, self._reply))
            elif kind == _PART:
                whole, needed = self._incoming.take(number, start, total, part)
                if needed is not None:
                    self.send(self._to, frame(_MORE, number, needed))
                if whole is not None:
                    self._current, self._reply, self._next = number, b"", (number, whole)
                    self._bell.notify_all()


def _turns_away(error: BaseException) -> bool:
    """Whether a server rejected our identity. A line that corrupts data causes other TLS errors."""
    said = str(error).lower()
    about_us = "alert" in said and any(word in said for word in ("certificate", "unknown ca", "access denied"))
    return (isinstance(error, ssl.SSLError) and about_us) or "uthorization" in said


def _said(answer: Callable[[bytes], bytes], question: bytes, say: Callable[[str], None]) -> bytes:
    """A reply, or a refusal: only the class of an error goes out."""
    try:
        reply = answer(question)
        _check_size(reply, "reply")
        return _REPLY + reply
    except Exception as error:
        say(OwnEyes("A question was refused.", error))
        return _REFUSED + type(error).__name__.encode("ascii", "replace")


def _check_size(message: bytes, where: str) -> None:
    if len(message) > _LARGEST:
        raise InputError(where, f"at most {_LARGEST} bytes", f"found {len(message)}", "Learn a smaller model.")
