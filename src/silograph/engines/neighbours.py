"""One region's server among its neighbours: what it gives to each of them, and what it gets, round by round.

A link is kept by the end whose name comes first: that one asks, with its own row, and the other answers with its row as
soon as it has one. Neither can get anything but what is for it. Both keep their last two rounds, and nobody can need an
older one: who has held round t has heard all its neighbours' rows of t - 1, so these have heard all of t - 2. So a kill
of either end costs nothing but time. Rounds below 0 are a muster, the one after the last a farewell; both are empty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from silograph.core.errors import InputError, SilenceError, SilographError
from silograph.core.types import Array
from silograph.engines.certificates import public_key, sign_reply, signed
from silograph.engines.remote import Asking
from silograph.engines.wire import pack, unpack
from silograph.methods.base import EACH
from silograph.topology import Topology

_PURPOSE = b"silograph neighbours 1"
_LOOK = 1.0  # seconds between looks at what may have ended
_AGAIN = 0.5  # seconds until who has stopped is asked again
_PARTING = 15.0  # seconds in which last answers leave

#: What one server has for another, by field.
Rows = dict[str, Array]


def node_of(region: str) -> str:
    """What a region's server is called where messages go: no organisation can be called so."""
    return f"region/{region}"


class Answering(Protocol):
    """Brings questions and carries answers; `engines.transport.Answerer` does it over NATS."""

    def serve(
        self, answer: Callable[[bytes], bytes], until: Callable[[], bool], patience: float, say: Callable[[str], None]
    ) -> None: ...


class Neighbours:
    """`topo` is one server of a graph; `keys` are the neighbours' public keys. `asking` reaches those whose links are
    kept here, `answering` leads to the others. Nobody is waited for longer than `patience`."""

    def __init__(
        self,
        topo: Topology,
        deployment: str,
        key: ec.EllipticCurvePrivateKey,
        keys: Mapping[str, bytes],
        asking: Asking,
        answering: Mapping[str, Answering],
        patience: float,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        (self.me,) = topo.servers
        self._topo, self._deployment, self._key = topo, deployment, key
        self._keys = {name: public_key(text, f"key of region {name}") for name, text in keys.items()}
        self._asking, self._answering, self._patience, self._say = asking, answering, patience, say
        self._place = {name: k for k, name in enumerate(topo.graph.servers)}
        self._guests = [name for name in topo.heard if name != self.me and name not in answering]
        self._sent: dict[int, Rows] = {}  # ours, of the last two rounds
        self._theirs: dict[str, dict[int, Rows]] = {name: {} for name in answering}
        self._said = dict.fromkeys(answering, -(1 << 30))  # the last round that was answered, by who asked
        self._broken: dict[str, Exception] = {}
        self._bell, self._over, self._last = threading.Condition(), False, 1 << 30
        self._threads = [threading.Thread(target=self._serve, args=(name,), daemon=True) for name in answering]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._bell:
            self._over = True
            self._bell.notify_all()
        for thread in self._threads:
            thread.join(_PARTING)

    # ---- at the call of the round loop ----

    def muster(self) -> None:
        """Until all servers of the graph are there, not only neighbours: one step for each link that lies between."""
        for step in range(-self._topo.graph.diameter, 0):
            self._meet(step, {})

    def exchange(self, round: int, sent: Rows, before: Callable[[], Rows | None]) -> Rows:
        """Rows of all who are heard, in their order. `before` brings ours of the last round, after a kill."""
        if round - 1 not in self._sent and (known := before()) is not None:
            self._sent[round - 1] = known
        theirs = self._meet(round, sent)
        theirs[self.me] = self._part(sent, self.me)
        rows = {name: np.stack([theirs[server][name] for server in self._topo.heard]) for name in sent}
        return {name: value[None] if name == EACH else value for name, value in rows.items()}

    def farewell(self, round: int, before: Callable[[], Rows | None]) -> None:
        """After the last round: until no neighbour needs ours any more."""
        if round - 1 not in self._sent and (known := before()) is not None:
            self._sent[round - 1] = known
        self._meet(round, {})
        self._last = round
        for thread in self._threads:
            thread.join(_PARTING)

    def _meet(self, round: int, sent: Rows) -> dict[str, Rows]:
        """Give and get one round; by neighbour, its row."""
        with self._bell:
            self._sent = {known: rows for known, rows in self._sent.items() if known == round - 1} | {round: sent}
            self._bell.notify_all()
        end = time.monotonic() + self._patience
        shapes = {name: self._part(sent, self.me)[name].shape for name in sent}
        theirs = {name: self._checked(rows, shapes, name) for name, rows in self._asked(round).items()}
        for name in self._answering:
            theirs[name] = self._checked(self._told(name, round, end), shapes, name)
        return theirs

    def _asked(self, round: int) -> dict[str, Rows]:
        """The rows of those who answer us. Who stops while it is asked may come back, and is asked again."""
        found: dict[str, Rows] = {}
        end = time.monotonic() + self._patience
        while missing := [name for name in self._guests if name not in found]:
            if (left := end - time.monotonic()) <= 0.0:
                raise self._silent(missing, round)
            heard = self._asking.ask({node_of(name): self._question(name, round) for name in missing}, left)
            for name in missing:
                refusal, reply = heard.refusals.get(node_of(name)), heard.replies.get(node_of(name))
                if refusal is not None and refusal.name != SilenceError.__name__:
                    todo = "Compare the digests of deployment.json, and which of the two folders is the newest."
                    said = f"it refused ({refusal.name})"
                    raise InputError(f"region {name}", f"its row of round {round}", said, todo)
                if reply is not None:
                    found[name] = self._read(reply, name)[1].get(round, {})
            if heard.refusals:
                time.sleep(min(_AGAIN, max(0.0, end - time.monotonic())))
        return found

    def _told(self, name: str, round: int, end: float) -> Rows:
        """The row of one who asks us. After a kill it may be further than a muster."""

        def there() -> bool:
            known = self._theirs[name]
            return name in self._broken or round in known or (round < 0 and max(known, default=round - 1) >= round)

        with self._bell:
            self._bell.wait_for(there, max(0.0, end - time.monotonic()))
            if name in self._broken:
                raise self._broken[name]
            if not there():
                raise self._silent([name], round)
            return self._theirs[name].get(round, {})

    def _silent(self, missing: Collection[str], round: int) -> SilenceError:
        what = "all regions to be there" if round < 0 else f"the neighbours' rows of round {round}"
        todo = "Ask whoever runs them, then type the same command again: it goes on where it stopped."
        return SilenceError(
            f"region {self.me}", f"{what} within {self._patience:g} s", f"missing: {', '.join(missing)}", todo
        )

    # ---- at the call of those who ask us ----

    def _serve(self, name: str) -> None:
        def over() -> bool:
            return self._over or self._said[name] >= self._last

        def answer(question: bytes) -> bytes:
            return self._answer(name, question)

        try:
            self._answering[name].serve(answer, over, float("inf"), lambda text: self._say(f"{name}: {text}"))
        except SilographError as error:
            with self._bell:
                self._broken[name] = error
                self._bell.notify_all()

    def _answer(self, name: str, question: bytes) -> bytes:
        size = question[0] if question else 0
        signature, body = question[1 : 1 + size], question[1 + size :]
        if not signed(self._keys[name], _PURPOSE, body, signature):
            raise InputError(f"region {name}", "a question that it signed", "found another")
        round, rows = self._read(body, name)
        with self._bell:
            self._theirs[name] = rows
            self._bell.notify_all()
            while not self._over and max(self._sent, default=round - 1) < round:
                self._bell.wait(_LOOK)
            if self._over:
                raise SilenceError(f"region {self.me}", "a round to answer in", "it has stopped")
            if round not in self._sent and round >= 0:
                raise InputError(f"region {name}", f"a round from {min(self._sent)}", f"found {round}: an older copy")
            self._said[name] = round
            return self._packed(name, round, (round,))

    # ---- what goes over a link ----

    def _question(self, name: str, round: int) -> bytes:
        body = self._packed(name, round, (round - 1, round))
        signature = sign_reply(self._key, _PURPOSE, body)
        return b"".join([bytes([len(signature)]), signature, body])

    def _packed(self, name: str, round: int, rounds: tuple[int, ...]) -> bytes:
        facts = {"deployment": self._deployment, "from": self.me, "to": name, "round": round}
        rows = {k: self._part(self._sent[k], name) for k in rounds if k in self._sent}
        return pack({**facts, "rounds": list(rows)}, {f"{k}/{field}": v for k in rows for field, v in rows[k].items()})

    def _part(self, sent: Rows, name: str) -> Rows:
        """What of ours is for that neighbour."""
        return {field: value[0, self._place[name]] if field == EACH else value[0] for field, value in sent.items()}

    def _read(self, blob: bytes, name: str) -> tuple[int, dict[int, Rows]]:
        facts, arrays = unpack(blob)
        where = f"region {name}"
        if (facts.get("deployment"), facts.get("from"), facts.get("to")) != (self._deployment, name, self.me):
            raise InputError(where, f"what is for {self.me}, in this deployment", "found something else")
        round, known = facts.get("round"), facts.get("rounds")
        if not isinstance(round, int) or not isinstance(known, list) or not set(known) <= {round - 1, round}:
            raise InputError(where, "a round and the one before it", "found something else")
        rows: dict[int, Rows] = {int(k): {} for k in known}
        for key, value in arrays.items():
            k, _, field = key.partition("/")
            if k.lstrip("-").isdecimal() and int(k) in rows:
                rows[int(k)][field] = value
        return round, rows

    def _checked(self, rows: Rows, shapes: Mapping[str, tuple[int, ...]], name: str) -> Rows:
        found = {field: value.shape for field, value in rows.items()}
        if found != shapes or any(value.dtype != np.float64 or np.isnan(value).any() for value in rows.values()):
            raise InputError(f"region {name}", "numbers, in the shapes that this region sends", "found others")
        return rows
