"""One region's server among its neighbours: the rows it gives to each of them and gets, round by round.

The end with the first name keeps a link: it asks, with its own row, and the other answers with its row as soon as it
has one. Neither can get rows that are not for it. Both keep their last two rounds, and nobody can need an older one: a
server that has held round t has heard all its neighbours' rows of t - 1, so these have heard all of t - 2. So a kill of
either end costs only time. Rounds below 0 are a muster, the one after the last a farewell; both are empty.

A goodbye means "I need no more of your rows". It is noted before anything else, so after a kill nobody waits for it
again. No server can know that its own last word arrived. So one that has all rows waits for a goodbye only as long as
its patience, ends, and keeps its last rows for neighbours that sent none: it can say farewell again with these alone.

Words for all servers are flooded, in turns of a round before its exchange: hop by hop, as many as the graph is wide,
every server passes on what it has heard. The author of a word signs it for this turn of this round, so nobody can
change it, repeat it later, or speak for another. Every row carries marks of what was heard in the last flood: a server
that sends two others different words is found out by two neighbours in the next turn. Each turn is noted before the
next, as a round is held.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from silograph.core.errors import InputError, SilenceError, SilographError
from silograph.core.types import Array, Json
from silograph.engines.certificates import public_key, sign_reply, signed
from silograph.engines.notes import Notes
from silograph.engines.remote import Asking
from silograph.engines.turns import Row, Rows, first, last, last_heard, marks, middle, pack_turn, read_turn, round_of
from silograph.engines.wire import pack, unpack
from silograph.methods.base import ALL, EACH
from silograph.topology import Topology

_PURPOSE = b"silograph neighbours 2"
_LOOK = 1.0  # seconds between checks for an end
_AGAIN = 0.5  # seconds until a stopped server is asked again
_PARTING = 15.0  # seconds for last answers to leave
_FAR = 1 << 60  # beyond every turn


def node_of(region: str) -> str:
    """The name of a region's server in messages: no organisation can have such a name."""
    return f"region/{region}"


class Answering(Protocol):
    """Receives questions and sends answers; `engines.transport.Answerer` does it over NATS."""

    def serve(
        self, answer: Callable[[bytes], bytes], until: Callable[[], bool], patience: float, say: Callable[[str], None]
    ) -> None: ...

    def present(self) -> bool: ...


class Neighbours:
    """`topo` is one server of a graph; `keys` are the neighbours' public keys, or all servers' if something is for all.
    `asking` reaches neighbours with links kept here, `answering` the others. No wait is longer than `patience`."""

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
        self._keys[self.me] = key.public_key()
        self._asking, self._answering, self._patience, self._say = asking, answering, patience, say
        self._place = {name: k for k, name in enumerate(topo.graph.servers)}
        self._guests = [name for name in topo.heard if name != self.me and name not in answering]
        self._others = [name for name in topo.heard if name != self.me]
        self._sent: dict[int, dict[str, Row]] = {}  # ours, of the last two turns, by receiver
        self._theirs: dict[str, dict[int, Row]] = {name: {} for name in answering}
        self._said = dict.fromkeys(answering, -_FAR)  # the last turn that was answered, by asker
        self._broken: dict[str, Exception] = {}
        self._bell, self._over, self._end = threading.Condition(), False, _FAR
        self._leaving, self._parted = _FAR, set[str]()  # the turn of the farewell, and the neighbours that said goodbye
        self._notes: Notes | None = None
        self._turn, self._heard = 0, dict[str, str]()
        self._wanted: int | None = None  # the turn of which we wait for rows
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

    # ---- for those who watch ----

    @property
    def names(self) -> list[str]:
        """All neighbours, as they are called in messages."""
        return [node_of(name) for name in self._others]

    def present(self) -> set[str]:
        """Neighbours with links kept there that are connected now. `asking` knows those with links kept here."""
        return {node_of(name) for name, line in self._answering.items() if line.present()}

    def waiting(self) -> set[str]:
        """Neighbours with links kept there that we wait for now. `asking` knows those with links kept here."""
        with self._bell:
            turn = self._wanted
            return set() if turn is None else {node_of(n) for n in self._answering if not self._is_there(n, turn)}

    # ---- at the call of the round loop ----

    def muster(self) -> None:
        """Wait until all servers of the graph are there, not only neighbours: one step for each link in between."""
        for step in range(-self._topo.graph.diameter, 0):
            self._give(step, {})
            self._get(step)

    def begin(self, round: int, notes: Notes, before: Callable[[], Rows | None]) -> None:
        """Begin a round, or one that a kill broke off: `before` gives our rows of the last one."""
        notes.begin(round)
        self._notes, self._turn, self._heard = notes, first(round), {}
        turns = [name for name in notes.now if name.startswith("turn ")]
        with self._bell:
            self._sent |= {int(name.removeprefix("turn ")): read_turn(notes.now[name])[0] for name in turns[-2:]}
        self._recall(round, before)

    def exchange(self, round: int, sent: Rows, before: Callable[[], Rows | None]) -> Rows:
        """Exchange rows; return those of all neighbours heard, in their order, and for `ALL` of all servers. `before`
        gives ours of the last round, after a kill."""
        self._recall(round, before)
        servers = self._topo.graph.servers
        found: Rows = {}
        if ALL in sent:
            self._turn = middle(round)
            mine = sent[ALL][0]
            words = self.flood(pack({}, {ALL: mine}))
            parts = {name: self._checked(unpack(words[name])[1], {ALL: mine.shape}, name) for name in servers}
            found[ALL] = np.stack([parts[name][ALL] for name in servers])
        if self._notes is not None:
            self._heard = last_heard(self._notes.now)
        near = {name: value for name, value in sent.items() if name != ALL}
        self._give(last(round), near)
        shapes = {name: value.shape for name, value in self._part(near, self.me).items()}
        theirs = {name: self._checked(row.rows, shapes, name) for name, row in self._get(last(round)).items()}
        theirs[self.me] = self._part(near, self.me)
        for name in near:
            rows = np.stack([theirs[server][name] for server in self._topo.heard])
            found[name] = rows[None] if name == EACH else rows
        return found

    def farewell(self, round: int, before: Callable[[], Rows | None]) -> dict[str, bytes]:
        """Wait after the last round until no neighbour needs our rows any more, or patience is over. Return, by
        neighbour that did not say goodbye, the rows it may still need."""
        with self._bell:
            self._leaving = first(round)
            noted = {} if self._notes is None else self._notes.now
            self._parted |= {name for name in self._others if _goodbye(name) in noted}
        self._recall(round, before)
        self._heard = {}
        self._give(self._leaving, {})
        with contextlib.suppress(SilenceError):  # a server with all rows can end without the last word of another
            self._get(self._leaving)
        self._end, end = self._leaving, time.monotonic() + _PARTING
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._bell:
            ours = self._sent[last(round - 1)]
            left = {name: pack_turn({name: ours[name]}, {}) for name in self._others if name not in self._parted}
        if left:
            todo = "If one still asks, type the same command again: it answers as long again."
            self._say(f"no goodbye within {self._patience:g} s from {', '.join(left)}. {todo}")
        return left

    def farewell_again(self, round: int, left: Mapping[str, bytes]) -> dict[str, bytes]:
        """Wait again after the end for those that did not say goodbye; return those that still have not."""
        with self._bell:
            self._parted = set(self._others) - left.keys()
            self._sent[last(round - 1)] = {name: read_turn(words)[0][name] for name, words in left.items()}
        return self.farewell(round, lambda: None)

    def _hear_goodbye(self, name: str) -> None:
        if self._notes is not None:
            self._notes.begin(round_of(self._leaving))  # removes what a full disk cut off
            self._notes.once(_goodbye(name), lambda: b"")
        self._parted.add(name)

    def _recall(self, round: int, before: Callable[[], Rows | None]) -> None:
        """Get our row of the round before, if this process did not give it."""
        if max(self._sent, default=-_FAR) >= last(round - 1) or round < 1 or (known := before()) is None:
            return
        heard = {} if self._notes is None else last_heard(self._notes.before)
        near = {name: value for name, value in known.items() if name != ALL}
        with self._bell:
            self._sent[last(round - 1)] = {name: Row(self._part(near, name), heard) for name in self._others}

    # ---- what is for all ----

    @property
    def servers(self) -> tuple[str, ...]:
        """All servers of the graph."""
        return self._topo.graph.servers

    def once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Do something between two floods, only once even if a kill intervenes."""
        assert self._notes is not None, "a round begins first"
        return self._notes.once(f"{self._turn} {name}", make)

    def flood(self, own: bytes) -> dict[str, bytes]:
        """Everybody's words, by server."""
        begun, graph = self._turn, self._topo.graph
        known = {self.me: self.once("own", lambda: self._signed(begun, own))}
        fresh: dict[str, set[str]] = {self.me: set()}  # by author of a word: the servers that sent it
        for turn in range(begun, begun + graph.diameter):
            to = {name: {of: known[of] for of, by in fresh.items() if name not in by} for name in self._others}
            fresh = {}
            for name, words in self._passed_on(turn, to).items():
                for of, word in words.items():
                    if known.setdefault(of, word) != word:
                        raise self._two_stories(of, name)
                    fresh.setdefault(of, set()).add(name)
        if missing := sorted(set(graph.servers) - known.keys()):
            found = f"nobody passed on that of {', '.join(missing)}"
            raise InputError(f"region {self.me}", "a word of every region", found, "Ask its neighbours.")
        self._heard = {of: hashlib.sha256(word).hexdigest() for of, word in known.items()}
        self.once("heard", lambda: json.dumps(self._heard).encode())
        self._turn = begun + graph.diameter + 1
        return {of: self._word(of, known[of], begun) for of in graph.servers}

    def _passed_on(self, turn: int, to: Mapping[str, Mapping[str, bytes]]) -> dict[str, dict[str, bytes]]:
        """Give neighbours the words they lack, and get theirs; return those that are new here."""

        def meet() -> bytes:
            parts = {name: {of: _array(word) for of, word in words.items()} for name, words in to.items()}
            self._give_each(turn, parts)
            ours, theirs = self._sent[turn], self._get(turn)
            for name, row in theirs.items():
                odd = row.rows.keys() - set(self._topo.graph.servers)
                if odd or any(word.dtype != np.uint8 or word.ndim != 1 for word in row.rows.values()):
                    raise InputError(f"region {name}", "words of the regions", "found something else")
            return pack_turn(ours, theirs)

        assert self._notes is not None, "a round begins first"
        _, theirs = read_turn(self._notes.once(f"turn {turn}", meet))
        return {name: {of: word.tobytes() for of, word in row.rows.items()} for name, row in theirs.items()}

    def _signed(self, turn: int, own: bytes) -> bytes:
        signature = sign_reply(self._key, self._about(turn, self.me), own)
        return b"".join([bytes([len(signature)]), signature, own])

    def _word(self, of: str, word: bytes, turn: int) -> bytes:
        """Check a word: from that server, and nobody else, in this flood."""
        size = word[0] if word else 0
        signature, body = word[1 : 1 + size], word[1 + size :]
        if not signed(self._keys[of], self._about(turn, of), body, signature):
            found = "it was changed on the way, or is of another turn"
            raise InputError(f"region {of}", "a word that it signed for this turn", found, "Ask its neighbours.")
        return body

    def _about(self, turn: int, of: str) -> bytes:
        return json.dumps([_PURPOSE.decode(), self._deployment, of, turn]).encode()

    def _two_stories(self, of: str, name: str) -> InputError:
        todo = "One of the two sends its neighbours different values: compare what they have."
        return InputError(f"region {of}", "the same word wherever it is heard", f"region {name} has another one", todo)

    # ---- a turn ----

    def _give(self, turn: int, sent: Rows) -> None:
        self._give_each(turn, {name: self._part(sent, name) for name in self._others})

    def _give_each(self, turn: int, parts: Mapping[str, Rows]) -> None:
        with self._bell:
            self._sent[turn] = {name: Row(part, self._heard) for name, part in parts.items()}
            self._sent = {known: self._sent[known] for known in sorted(self._sent)[-2:]}
            self._bell.notify_all()

    def _get(self, turn: int) -> dict[str, Row]:
        """Get, by neighbour, its row of a turn in which it has ours."""
        end = time.monotonic() + self._patience
        self._wanted = turn
        try:
            theirs = self._asked(turn)
            for name in self._answering:
                theirs[name] = self._told(name, turn, end)
        finally:
            self._wanted = None
        for name, row in theirs.items() if turn >= 0 else ():
            for of in self._heard:
                if row.heard.get(of) != self._heard[of]:
                    raise self._two_stories(of, name)
        return theirs

    def _asked(self, turn: int) -> dict[str, Row]:
        """Get the rows of those who answer us. A server that stops while it is asked may return, and is asked again."""
        found: dict[str, Row] = {}
        end = time.monotonic() + self._patience
        while missing := [name for name in self._guests if name not in found and name not in self._parted]:
            if (left := end - time.monotonic()) <= 0.0:
                raise self._silent(missing, turn)
            heard = self._asking.ask({node_of(name): self._question(name, turn) for name in missing}, left)
            for name in missing:
                refusal, reply = heard.refusals.get(node_of(name)), heard.replies.get(node_of(name))
                if refusal is not None and refusal.name != SilenceError.__name__:
                    todo = "Compare the digests of deployment.json, and which of the two folders is the newest."
                    said = f"it refused ({refusal.name})"
                    raise InputError(f"region {name}", f"its row of round {round_of(turn)}", said, todo)
                if reply is not None:
                    found[name] = self._read(reply, name)[1].get(turn, Row({}))
                    if turn == self._leaving:
                        with self._bell:
                            self._hear_goodbye(name)
            if heard.refusals:
                time.sleep(min(_AGAIN, max(0.0, end - time.monotonic())))
        return found

    def _told(self, name: str, turn: int, end: float) -> Row:
        """Get the row of one who asks us."""
        with self._bell:
            self._bell.wait_for(lambda: self._is_there(name, turn), max(0.0, end - time.monotonic()))
            if name in self._broken:
                raise self._broken[name]
            if not self._is_there(name, turn):
                raise self._silent([name], turn)
            return self._theirs[name].get(turn, Row({}))

    def _is_there(self, name: str, turn: int) -> bool:
        """Whether one who asks us gave its row. After a kill it may be further than a muster."""
        known = self._theirs[name]
        if turn == self._leaving:
            return name in self._broken or name in self._parted
        return name in self._broken or turn in known or (turn < 0 and max(known, default=turn - 1) >= turn)

    def _silent(self, missing: Collection[str], turn: int) -> SilenceError:
        what = "all regions to be there" if turn < 0 else f"the neighbours' rows of round {round_of(turn)}"
        todo = "Ask whoever runs them, then type the same command again: it resumes."
        return SilenceError(
            f"region {self.me}", f"{what} within {self._patience:g} s", f"missing: {', '.join(missing)}", todo
        )

    # ---- at the call of those who ask us ----

    def _serve(self, name: str) -> None:
        def over() -> bool:
            return self._over or self._said[name] >= self._end

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
        turn, rows = self._read(body, name)
        with self._bell:
            self._theirs[name] = rows
            self._bell.notify_all()
            while not self._over and max(self._sent, default=turn - 1) < turn:
                self._bell.wait(_LOOK)
            if self._over:
                raise SilenceError(f"region {self.me}", "a round to answer in", "it has stopped")
            if turn not in self._sent and turn >= 0:
                least, round = round_of(min(self._sent)), round_of(turn)
                raise InputError(f"region {name}", f"a turn from round {least}", f"found one of {round}: an older copy")
            if turn == self._leaving and name not in self._parted:
                try:
                    self._hear_goodbye(name)
                except OSError as error:  # it asks again
                    raise SilenceError(f"region {self.me}", "room to note a goodbye", str(error)) from None
                self._bell.notify_all()
            self._said[name] = turn
            return self._packed(name, turn, (turn,))

    # ---- what goes over a link ----

    def _question(self, name: str, turn: int) -> bytes:
        body = self._packed(name, turn, tuple(self._sent))
        signature = sign_reply(self._key, _PURPOSE, body)
        return b"".join([bytes([len(signature)]), signature, body])

    def _packed(self, name: str, turn: int, turns: tuple[int, ...]) -> bytes:
        facts: Json = {"deployment": self._deployment, "from": self.me, "to": name, "turn": turn}
        there = {k: self._sent[k][name] for k in turns if k in self._sent}
        facts["turns"] = [[k, row.heard] for k, row in there.items()]
        return pack(facts, {f"{k}/{of}": value for k, row in there.items() for of, value in row.rows.items()})

    def _part(self, sent: Rows, name: str) -> Rows:
        """Our part for that neighbour."""
        return {field: value[0, self._place[name]] if field == EACH else value[0] for field, value in sent.items()}

    def _read(self, blob: bytes, name: str) -> tuple[int, dict[int, Row]]:
        facts, arrays = unpack(blob)
        where = f"region {name}"
        if (facts.get("deployment"), facts.get("from"), facts.get("to")) != (self._deployment, name, self.me):
            raise InputError(where, f"what is for {self.me}, in this deployment", "found something else")
        try:
            turn, known = int(facts["turn"]), {int(k): Row({}, marks(heard)) for k, heard in facts["turns"]}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(where, "a turn and the one before it", "found something else") from None
        if len(known) > 2 or max(known, default=turn) != turn:
            raise InputError(where, "a turn and the one before it", "found others")
        for key, value in arrays.items():
            k, _, of = key.partition("/")
            if k.lstrip("-").isdecimal() and int(k) in known:
                known[int(k)].rows[of] = value
        return turn, known

    def _checked(self, rows: Rows, shapes: Mapping[str, tuple[int, ...]], name: str) -> Rows:
        found = {field: value.shape for field, value in rows.items()}
        if found != shapes or any(value.dtype != np.float64 or np.isnan(value).any() for value in rows.values()):
            raise InputError(f"region {name}", "numbers, in the shapes that this region sends", "found others")
        return rows


def _goodbye(name: str) -> str:
    return f"goodbye {name}"


def _array(word: bytes) -> Array:
    return np.frombuffer(word, dtype=np.uint8)
