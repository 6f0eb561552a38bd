"""An organisation of a deployment: it answers a server it need not trust, and remembers on its own disk.

The order of steps makes a kill at any moment harmless:

    check the question -> compute, through the gate -> state with the answer on disk -> ledger rows on disk -> send

Asked the same again, an organisation sends the same bytes: no noise is drawn twice, nothing is paid twice, nothing is
refunded. An answer that the server never used is forgotten, but its cost stays.

A refusal is an answer too, and free: so none may depend on records. All reasons to refuse a question are checked before
any record is read. If the computation fails on a silo's records, the organisation computes as if that silo had none,
pays the cost of any answer and sends that. An error that also occurs without records is due to the question.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from silograph.core.errors import BudgetError, DamageError, InputError, LeakError, OwnEyes
from silograph.core.files import write_atomically
from silograph.core.types import Carry, Json
from silograph.engines.question import (
    NEVER,
    OlderFolderError,
    OlderServerError,
    Question,
    RefusedError,
    Reply,
    about_sealed,
    pack_reply,
    read_question,
    read_reply,
    sealed_again,
)
from silograph.engines.saved import load, save
from silograph.engines.sums import SumAgents
from silograph.methods.base import Method, Private, Rows, begin, put, take
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.relay import inside, relay
from silograph.privacy.released import Sealed, Sent, bare, check_message, sealed_rows
from silograph.privacy.sums import hand_over
from silograph.topology import Topology

_LAST = 10**9  # round
_STATE = "state.npz"
OWN = "own.npz"


@dataclass(frozen=True, eq=False)
class _Pending:
    """An answer that the server may or may not have used; `name` is that of its noise."""

    round: int
    kind: str
    content: str
    name: str
    silos: tuple[str, ...]
    reply: bytes
    carry: Carry
    sealed: dict[str, Sealed]


@dataclass(frozen=True, eq=False)
class _Memory:
    """An organisation's memory: `carry` is as of round `committed`; `answered` counts the rounds with a computed
    answer.

    `history` is the origin of the carry: all answers that the server used, by the names of their noise.
    """

    carry: Carry
    committed: int = NEVER
    answered: int = 0
    history: str = ""
    pending: _Pending | None = None


class Silo:
    """One organisation's end of a run.

    `silos` are those of the topology that it holds, `data` their prepared records. `most_rounds` is how often the plan
    allows asking them, `minimum` the smallest cohort. With a `secret` root, noise is named by the question and by the
    history too: a copy of this folder that is asked something else draws other noise. `warn` is for the organisation
    only. `taken_over` is the tip of a ledger that an earlier deployment left.
    """

    def __init__(
        self,
        folder: Path,
        deployment: str,
        organisation: str,
        silos: Sequence[str],
        method: Method,
        topo: Topology,
        data: Private,
        door: Door,
        most_rounds: int,
        minimum: int,
        sums: SumAgents | None = None,
        secret: bool = False,
        tell: Callable[[Question], None] = lambda question: None,
        warn: Callable[[str], None] = lambda text: None,
        taken_over: str = "",
    ) -> None:
        self._folder, self._deployment, self._organisation, self._silos = folder, deployment, organisation, tuple(silos)
        self._method, self._topo, self._data, self._door = method, topo, data, door
        self._most_rounds, self._minimum, self._sums, self._tell = most_rounds, minimum, sums, tell
        self._secret, self._warn, self._limits = secret, warn, method.limits()
        self._first_tip = taken_over or Ledger().tip
        down = begin(method, topo).down
        self._shapes: dict[bool, dict[str, tuple[int, ...]]] = {
            True: {name: value.value.shape[1:] for name, value in down.items()},
            False: {},
        }
        if missing := down.keys() ^ self._limits.keys():
            raise LeakError(
                type(method).__name__, "limits for every field that goes down", f"{min(missing)!r} has none"
            )
        self.finished = (folder / OWN).exists()
        self._lock = self._take_lock()
        self._memory = self._load()

    def close(self) -> None:
        self._lock.close()

    def _take_lock(self) -> io.TextIOWrapper:
        lock = open(self._folder / "lock", "w", encoding="utf-8")  # noqa: SIM115 (held as long as the organisation answers)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise InputError(str(self._folder), "one process for an organisation", "another one is running") from None
        return lock

    # ---- answering ----

    def answer(self, blob: bytes) -> bytes:
        question = read_question(blob)
        self._check(question)
        self._tell(question)
        try:
            return self._step_of_a_sum(question) if question.kind == "sum" else self._answered(question)
        except BaseException:
            self._door.forget()
            raise

    def _answered(self, question: Question) -> bytes:
        memory = self._memory if self.finished else self._settled(question)
        if question.kind == "end":
            return self._ended(memory, question)
        known = memory.pending
        if known is not None and (known.kind, known.content) == (question.kind, question.content):
            return self._again(memory, known, question.round)
        if known is not None and known.round == question.round:
            raise self._refused("the question that was asked in this round before", "found another one")
        if question.kind == "local" and memory.answered >= self._most_rounds:
            raise self._refused(f"at most {self._most_rounds} rounds, as planned", "one more was asked for")
        return self._fresh(memory, question)

    def _check(self, question: Question) -> None:
        """Check, before using any part of a question, that this organisation agreed to it."""
        if question.deployment != self._deployment:
            raise self._refused("the deployment that was approved here", "found another plan")
        if (
            question.organisation != self._organisation
            or not set(question.silos) <= set(self._silos)
            or not question.silos
        ):
            raise self._refused(f"a question for {self._organisation}", "found one for somebody else")
        if len(set(question.silos)) < len(question.silos):
            raise self._refused("every silo once", "found one twice")
        if self.finished and question.kind != "end":
            raise self._refused("no question after the end", "found one")
        members = set(question.members)
        if not set(question.silos) <= members or not members <= set(self._topo.silos):
            raise self._refused("a cohort of the deployment, this organisation in it", "found another one")
        if question.kind == "local" and len(members) < self._minimum:
            raise self._refused(f"a cohort of at least {self._minimum}", f"found one of {len(members)}")
        if not 0 <= question.round <= _LAST:
            raise self._refused("a round from 0", "found another one")
        told = {name: value.shape[1:] for name, value in question.down.items()}
        if told != self._shapes[question.kind == "local"] and not (
            question.kind == "end" and told == self._shapes[True]
        ):
            raise self._refused("the fields and shapes that the method sends down", "found others")
        if not all(self._limits[name].hold(value) for name, value in question.down.items()):
            raise self._refused("numbers that the method can send down", "found others")

    def _settled(self, question: Question) -> _Memory:
        """Take in which of our answers the server says it has used."""
        memory, pending = self._memory, self._memory.pending
        if pending is not None and question.accepted == pending.round and pending.kind == "local":
            if question.round <= pending.round and question.kind == "local":
                raise self._refused("a round after the one that was used", f"found round {question.round}")
            return _Memory(pending.carry, pending.round, memory.answered, pending.name)
        if question.accepted != memory.committed:
            # The server started again or from an older copy, or this folder is older than the run.
            kind = OlderServerError if question.accepted < memory.committed else OlderFolderError
            raise kind(
                f"organisation {self._organisation}",
                f"{memory.committed} as the last round used",
                f"found {question.accepted}",
                kind.todo_here,
            )
        if question.round < (memory.committed if pending is None else pending.round):
            raise self._refused("no round twice", f"found round {question.round} after a later one")
        return memory

    def _again(self, memory: _Memory, known: _Pending, round: int) -> bytes:
        """Return the answer given before; if it was too late, under the round that asks the same now."""
        self._door_has(known)
        if round == known.round:
            return known.reply
        reply = read_reply(known.reply, "answer in this folder")
        blob = pack_reply(replace(reply, round=round, sent={**reply.sent, **known.sealed}), self._masked)
        self._save(replace(memory, pending=replace(known, round=round, reply=blob)))
        return blob

    def _fresh(self, memory: _Memory, question: Question) -> bytes:
        name = hashlib.sha256(f"{memory.history} {question.content} {question.round}".encode()).hexdigest()
        door = self._door_for(name)
        try:
            pending = self._computed(question, memory.carry, self._data, door, name)
        except (BudgetError, DamageError):  # about rows, whose costs are public
            raise
        except Exception as error:
            if self._door.mechanism is None:  # nothing is promised, and the server may learn the error
                raise
            pending = self._stood_in(question, memory.carry, door, name)
            self._warn(OwnEyes(f"Round {question.round}: an answer without records is sent.", error))
        answered = memory.answered + (question.kind == "local")
        self._save(replace(memory, answered=answered, pending=pending))
        self._door.sync()
        return pending.reply

    def _computed(self, question: Question, before: Carry, data: Private, door: Door, name: str) -> _Pending:
        """Compute the answer, with its rows waiting at the door. Nothing of it is on disk yet."""
        index = self._places(question.silos)
        gate = door.gate(question.silos, question.round)
        carry, here = take(before, index), take(data, index)
        sent: Sent
        down = {name: relay(value) for name, value in question.down.items()}
        fresh: Carry = {}
        # A warning that was made an error would depend on records.
        with np.errstate(all="ignore"), inside(f"{type(self._method).__name__}.{question.kind}") as part:
            if question.kind == "local":
                fresh, sent = self._method.local(carry, down, here, gate)
            else:
                sent = self._method.deliver(carry, here, gate)
        after = put(before, index, fresh)
        sent = check_message(sent, len(question.silos), part)
        sealed = {name: value for name, value in sent.items() if isinstance(value, Sealed)}
        if not self._masked:
            for value in sealed.values():
                hand_over(gate, value)
        blob = pack_reply(Reply(self._organisation, question.round, sent, tuple(self._door.waiting)), self._masked)
        read_reply(blob, f"answer of {type(self._method).__name__}")  # else it is neither kept nor sent
        held = sealed if self._masked else {}
        return _Pending(question.round, question.kind, question.content, name, question.silos, blob, after, held)

    def _stood_in(self, question: Question, carry: Carry, door: Door, name: str) -> _Pending:
        """Compute the same as if silos with failing records had none and remembered nothing; all of them, if need
        be."""

        def fails(silos: tuple[str, ...], carry: Carry, data: Private) -> bool:
            rows = [question.silos.index(name) for name in silos]
            part = replace(question, silos=silos, down={name: value[rows] for name, value in question.down.items()})
            self._door.forget()
            try:
                self._computed(part, carry, data, door, name)
            except Exception:
                return True
            return False

        def without(silos: Sequence[str]) -> tuple[Carry, Private]:
            index = self._places(silos)
            return put(carry, index, take(self._begun(), index)), _without_records(self._data, index)

        failing = [name for name in question.silos if fails((name,), carry, self._data)]
        if fails(question.silos, *without(failing)):
            failing = list(question.silos)
        self._door.forget()
        return self._computed(question, *without(failing), door, name)

    def _places(self, silos: Sequence[str]) -> Rows:
        return np.array([self._silos.index(name) for name in silos], dtype=np.intp)

    def _begun(self) -> Carry:
        """The initial memory of this organisation's silos."""
        return take(begin(self._method, self._topo).carry, np.array(self._topo.index(self._silos), dtype=np.intp))

    def _ended(self, memory: _Memory, question: Question) -> bytes:
        """End the run. This organisation's last state stays here, with the last message to it; files that only a run
        needs go."""
        if not self.finished:
            buffer = io.BytesIO()
            own: Json = {name: bare(value) for name, value in memory.carry.items()}
            own |= {f"told_{name}": value for name, value in question.down.items()}
            own["rounds_answered"] = np.array(memory.answered)
            np.savez(buffer, **own)
            write_atomically(self._folder / OWN, buffer.getvalue(), 0o600)
            (self._folder / _STATE).unlink(missing_ok=True)
            self.finished = True
        return pack_reply(Reply(self._organisation, NEVER, {}, ()), self._masked)

    def _door_for(self, name: str) -> Door:
        """Make a door with noise named by everything that an answer depends on: the table (in the root), the question,
        the round, and the history of the memory. So two different answers, of this folder or of copies of it, never
        have the same noise."""
        if not self._secret:
            return self._door
        root = hashlib.sha256(f"{self._door.root} {name}".encode()).digest()
        return replace(self._door, root=int.from_bytes(root, "big"))

    @property
    def _masked(self) -> bool:
        return self._door.masks is not None

    def _refused(self, expected: str, found: str) -> RefusedError:
        return RefusedError(f"organisation {self._organisation}", expected, found)

    # ---- secure sums ----

    def _step_of_a_sum(self, question: Question) -> bytes:
        pending = self._memory.pending
        if self._sums is None or pending is None or pending.round != question.round:
            raise self._refused("a sum of what this round's answer held back", "there is nothing of the kind")
        return self._sums.step(question, pending.sealed, pending.silos, self._door_for(pending.name))

    # ---- memory ----

    def _save(self, memory: _Memory) -> None:
        """Save to disk before sending any of it; all or nothing."""
        facts: Json = {name: getattr(memory, name) for name in ("committed", "answered", "history")}
        facts["ledger"] = self._door.ledger.tip
        parts: Json = {"carry": memory.carry}
        if memory.pending is not None:
            pending = memory.pending
            facts["pending"] = {name: getattr(pending, name) for name in ("round", "kind", "content", "name", "silos")}
            facts["sealed"] = {name: about_sealed(value) for name, value in pending.sealed.items()}
            parts["after"], parts["reply"] = pending.carry, np.frombuffer(pending.reply, dtype=np.uint8)
            parts["sealed"] = {name: sealed_rows(value) for name, value in pending.sealed.items()}
        save(self._folder / _STATE, parts, facts)
        self._memory = memory

    def _load(self) -> _Memory:
        path = self._folder / _STATE
        if self.finished:
            return _Memory({})
        if not path.exists():
            if self._door.ledger.tip != self._first_tip:
                raise self._damaged(path)
            return _Memory(self._begun())
        try:
            parts, facts = load(path)
            self._door.ledger.check_tip(facts["ledger"])
            pending = None
            if "pending" in facts:
                about = facts["sealed"]
                sealed = {name: sealed_again(rows, about[name]) for name, rows in parts["sealed"].items()}
                told = {**facts["pending"], "silos": tuple(facts["pending"]["silos"])}
                pending = _Pending(**told, reply=parts["reply"].tobytes(), carry=parts["after"], sealed=sealed)
            memory = _Memory(parts["carry"], facts["committed"], facts["answered"], facts["history"], pending)
        except DamageError:
            raise
        except Exception:
            # For all errors of numpy or zipfile about a damaged file, its owner needs to know one thing.
            raise self._damaged(path) from None
        if memory.pending is not None:
            self._door_has(memory.pending)
        return memory

    def _door_has(self, pending: _Pending) -> None:
        """Put the ledger rows of an answer on disk before it is sent, even if a kill came between the two."""
        for row in read_reply(pending.reply, "answer in this folder").rows:
            if row.silo not in self._silos:
                raise LeakError(f"organisation {self._organisation}", "rows of its own", f"a row of {row.silo}")
            self._door.admit(row)
        self._door.sync()

    def _damaged(self, path: Path) -> DamageError:
        todo = "Restore the newest copy, never an older one, which would not know what was sent. Or enrol again."
        return DamageError(str(path), "the state that silograph wrote", "it is damaged or gone", todo)


def _without_records(data: Private, index: Rows) -> Private:
    """Zeros for some silos' records. Their number stays: it is public if records are protected, and if whole silos are,
    zeros give the same for any number."""
    out = {name: value if value.ndim == 1 else np.array(value) for name, value in data.items()}
    for value in out.values():
        if value.ndim > 1:
            value[index] = 0
    return out
