"""Silos in other organisations: every `local` is a question that goes out, and an answer that may not arrive.

The server never sees what a silo remembers. Its own carry is the last round of each silo that it has used, which every
question includes: a silo with a late answer then knows that it does not count.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import DamageError, InputError, SilenceError, SolverError
from silograph.core.types import Array, Carry, Json
from silograph.engines.joined import Around, Together
from silograph.engines.question import NEVER, Kind, OlderServerError, Question, Reply, read_reply
from silograph.engines.sums import SUMMED, home_of, one_question, read_answers, run_sum
from silograph.methods.base import Method, Rows, StandsIn, State, values
from silograph.privacy.door import Door
from silograph.privacy.masking import MaskedSum
from silograph.privacy.relay import relay
from silograph.privacy.released import Released, Sealed, Sent, check_message, sealed_rows
from silograph.privacy.secure_messages import STEPS, ProtocolError, Total, threshold
from silograph.privacy.sums import SummedError
from silograph.topology import Topology

ACCEPTED = "accepted"
_TOLD = ("release_point", "clip", "within", "share", "joined")  # of what is handed over
_COMING_BACK = 25.0  # seconds in which an organisation that lost its server returns
_PASSING = ("OSError",)  # refusals that may pass: a full disk
_AGAIN = 1.0
_LOOK = 0.1
_PACE = 5.0  # most seconds that a round waits for an organisation that missed one before and is away


@dataclass(frozen=True)
class Refusal:
    """A silo's refusal to answer: the name of its error's class, and nothing else of the error."""

    name: str


@dataclass(frozen=True)
class Answers:
    """Replies and refusals, by organisation. An organisation in neither was silent until the deadline."""

    replies: dict[str, bytes]
    refusals: dict[str, Refusal]


class Asking(Protocol):
    """Carries questions to organisations and brings their answers; `engines.transport.Asker` does it over NATS."""

    def ask(
        self, questions: Mapping[str, bytes], deadline: float, enough: Callable[[set[str]], bool] | None = None
    ) -> Answers:
        """Ask until all have answered or refused, or `enough` is true, or so many seconds are over."""
        ...

    def present(self) -> set[str]:
        """The organisations that are connected now."""
        ...


@dataclass(eq=False)
class Remote:
    """The engine. `organisations` gives the silos that each one holds. A round waits `deadline` seconds for connected
    organisations, and, if fewer than `minimum` silos answer, up to `patience` for more.

    An organisation that missed a round and is away gets a few seconds per round, so that the others do not run far
    ahead of it; after `patience` the server stops waiting for it. `said` gets a line about every round, with its secure
    sums. `around` are the servers of other organisations, for sums over all of them.
    """

    link: Asking
    topo: Topology
    door: Door
    organisations: Mapping[str, Sequence[str]]
    deployment: str
    minimum: int = 1
    deadline: float = 120.0
    patience: float = 600.0
    identities: Mapping[str, bytes] = field(default_factory=dict)
    said: Callable[[Json], None] = lambda line: None
    around: Around | None = None
    _lost: dict[str, float] = field(default_factory=dict)  # since when
    _line: Json | None = None
    gone: tuple[str, ...] = ()  # when results were handed over
    _bytes: dict[str, int] = field(default_factory=lambda: {"down": 0, "up": 0})

    # ---- the engine's two calls ----

    def local(self, method: Method, state: State, rows: Rows) -> tuple[Carry, Sent, Rows]:
        accepted = self._accepted(state)
        down = {name: value.value for name, value in state.down.items()}
        self._check_down(method, down, state.round)
        names = [self.topo.silos[k] for k in rows]
        self.tell()
        begun, self._bytes = time.monotonic(), {"down": 0, "up": 0}
        replies, refused = self._collect("local", state.round, names, accepted, down)
        answered, sent = self._joined(replies, names)
        self._line = {
            "round": state.round,
            "asked": len(names),
            "answered": len(answered),
            "absent": sorted(self._holders(names).keys() - replies.keys()),
            "refused": refused,
            "seconds": time.monotonic() - begun,
        }
        fresh = accepted.copy()
        fresh[answered] = state.round
        self.door.sync()
        return {ACCEPTED: fresh}, sent, answered

    def wait_for_everybody(self) -> None:
        """Wait until all organisations are there, for up to `patience`: nobody releases anything before."""
        end = time.monotonic() + self.patience
        while missing := sorted(self.organisations.keys() - self.link.present()):
            if time.monotonic() > end:
                raise self._silent(missing, "all organisations to be there", {})
            time.sleep(_LOOK)

    def tell(self) -> None:
        """Print the line of the last round, once, after its secure sums."""
        if self._line is not None:
            self.said({**self._line, "bytes": dict(self._bytes)})
            self._line = None

    def deliver(self, method: Method, state: State) -> dict[str, Array]:
        self.tell()
        names = list(self.topo.silos)
        replies, refused = self._collect("deliver", state.round, names, self._accepted(state), {}, everybody=True)
        answered, sent = self._joined(replies, names)
        found = values(sent)
        if sent and len(answered) < len(names):
            missing = sorted(set(self.organisations) - replies.keys())
            instead = method.instead(state.servers, self.topo) if isinstance(method, StandsIn) else {}
            if found.keys() - instead.keys():
                raise self._silent(missing, f"all {len(names)} silos to hand over their results", refused)
            self.gone = tuple(missing)
            for name, handed in found.items():
                found[name] = instead[name].copy()
                found[name][answered] = handed
        self.door.sync()
        return found

    def endings(self, method: Method, state: State) -> dict[str, bytes]:
        """Make for each organisation the message that the run is over, with the last message to its silos."""
        questions = {}
        for organisation, silos in self.organisations.items():
            last, index = self._last(organisation, self._accepted(state)), self.topo.index(silos)
            down = {name: np.ascontiguousarray(value.value[index]) for name, value in state.down.items()}
            if not all(limits.hold(down[name]) for name, limits in method.limits().items()):
                down = {}
            names = tuple(self.topo.silos)
            questions[organisation] = Question(
                self.deployment, organisation, "end", state.round, last, tuple(silos), names, down
            ).pack()
        return questions

    def end(self, questions: Mapping[str, bytes]) -> set[str]:
        """Send the messages of `endings` to all who are there; return those who received them."""
        begun = time.monotonic()

        def enough(answered: set[str]) -> bool:
            # A server that was started again for this waits for the organisations to return.
            missing = questions.keys() - answered
            return not missing or (not missing & self.link.present() and time.monotonic() - begun > _COMING_BACK)

        return set(self._ask(questions, self.deadline, enough).replies)

    def _last(self, organisation: str, accepted: NDArray[np.int64]) -> int:
        return int(accepted[self.topo.index(self.organisations[organisation])].max())

    def _accepted(self, state: State) -> NDArray[np.int64]:
        return np.asarray(state.carry.get(ACCEPTED, np.full(len(self.topo.silos), NEVER)), dtype=np.int64)

    def _check_down(self, method: Method, down: Mapping[str, Array], round: int) -> None:
        """Stop a run with values that an honest server cannot send: organisations would refuse them."""
        for name, limits in method.limits().items():
            if not limits.hold(down[name]):
                found = f"{name!r} is beyond what {type(method).__name__} can send down"
                raise SolverError(f"round {round}", "numbers that mean something", found, "Take smaller steps.")

    # ---- asking ----

    def _holders(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The silos of each organisation that are among `names`."""
        wanted = set(names)
        held = {
            organisation: tuple(name for name in silos if name in wanted)
            for organisation, silos in self.organisations.items()
        }
        return {organisation: silos for organisation, silos in held.items() if silos}

    def _collect(
        self,
        kind: Kind,
        round: int,
        names: Sequence[str],
        accepted: NDArray[np.int64],
        down: dict[str, Array],
        everybody: bool = False,
    ) -> tuple[dict[str, Reply], dict[str, str]]:
        """Collect answers by organisation, from all that are connected and from enough of them; and the classes of
        refusals.

        `everybody`: wait for all, up to `patience`, if answers have content."""
        questions = {}
        for organisation, silos in self._holders(names).items():
            index = self.topo.index(silos)
            part = {name: np.ascontiguousarray(value[index]) for name, value in down.items()}
            last = self._last(organisation, accepted)
            questions[organisation] = Question(
                self.deployment, organisation, kind, round, last, silos, tuple(names), part
            ).pack()
        replies: dict[str, Reply] = {}
        refused: dict[str, str] = {}
        begun = time.monotonic()
        end = begun + self.patience
        # A first round waits for everybody as long as allowed: organisations do not arrive at the same moment.
        limit = self.patience if everybody or round == 0 else self.deadline
        least = min(self.minimum, len(names))
        while True:
            waiting = {
                organisation: blob for organisation, blob in questions.items() if organisation not in replies | refused
            }
            insisting = everybody and any(reply.sent for reply in replies.values())
            enough = None if insisting else partial(self._enough, set(waiting), time.monotonic())
            heard = self._ask(waiting, limit, enough)
            told = {organisation: refusal.name for organisation, refusal in heard.refusals.items()}
            passing = {
                organisation
                for organisation, name in told.items()
                if name in _PASSING and time.monotonic() < begun + limit
            }
            refused |= {organisation: name for organisation, name in told.items() if organisation not in passing}
            for organisation, blob in heard.replies.items():
                try:
                    replies[organisation] = self._checked(blob, organisation, round, self._holders(names)[organisation])
                except Exception as error:  # any bad message counts as no answer from that organisation
                    refused[organisation] = type(error).__name__
            replies = self._alike(replies)
            if passing and not waiting.keys() - passing - refused.keys() - replies.keys():
                time.sleep(_AGAIN)  # a full disk may get room
                continue
            away, now = questions.keys() - replies.keys() - self.link.present(), time.monotonic()
            self._lost = {name: self._lost.get(name, now) for name in (self._lost.keys() | away) - self.link.present()}
            over = time.monotonic() >= end or not waiting.keys() - refused.keys() - replies.keys()
            if sum(len(self._holders(names)[organisation]) for organisation in replies) >= least and (
                over or not everybody or not any(reply.sent for reply in replies.values())
            ):
                self._take_rows(replies)
                return replies, refused
            if over and (older := sorted(name for name, kind in refused.items() if kind == OlderServerError.__name__)):
                raise self._older(older)
            if over:
                raise self._silent(
                    sorted(questions.keys() - replies.keys()),
                    f"at least {least} silos to answer in round {round}",
                    refused,
                )
            limit = end - time.monotonic()

    def _ask(self, questions: Mapping[str, bytes], limit: float, enough: Callable[[set[str]], bool] | None) -> Answers:
        heard = self.link.ask(questions, limit, enough)
        self._bytes["down"] += sum(map(len, questions.values()))
        self._bytes["up"] += sum(map(len, heard.replies.values()))
        return heard

    def _enough(self, asked: set[str], begun: float, answered: set[str]) -> bool:
        """Wait a little for organisations that missed a round and have not returned, and after `patience` not at
        all."""
        missing, now = asked - answered, time.monotonic()
        if not answered or not missing <= self._lost.keys() - self.link.present():
            return False
        return now - begun > _PACE or all(now - self._lost[name] > self.patience for name in missing)

    def _silent(self, missing: Sequence[str], what: str, refused: Mapping[str, str]) -> SilenceError:
        names = ", ".join(
            f"{organisation} (refused: {refused[organisation]})" if organisation in refused else organisation
            for organisation in missing
        )
        return SilenceError(
            "deployment",
            f"{what} within {self.patience:g} s",
            f"missing are {names}",
            "Ask them, then start the server again: it resumes.",
        )

    def _older(self, organisations: Sequence[str]) -> DamageError:
        return DamageError(
            "run folder of the server",
            "the newest state of this run",
            f"it is an older copy: {', '.join(organisations)} gave answers that it does not know",
            "Restore the newest copy. If there is none, make a new deployment; what was spent stays spent.",
        )

    def _nobody_comes(self, round: int, against: Sequence[str]) -> InputError:
        """Stop the run: they would refuse in every round, and it would learn nothing to its end."""
        names = ", ".join(sorted(against))
        todo = "`join` there says why: mostly an enrolment is missing in its `nodes`, or another was put there."
        return InputError(f"secure sum of round {round}", "agents that take part", f"refused by {names}", todo)

    def _checked(self, blob: bytes, organisation: str, round: int, asked: Sequence[str]) -> Reply:
        """Check a reply of this organisation in this round."""
        where = f"answer of {organisation}"
        reply, silos = read_reply(blob, where), set(self.organisations[organisation])
        if (reply.organisation, reply.round) != (organisation, round):
            raise InputError(where, f"round {round}", f"found round {reply.round} of {reply.organisation}")
        check_message(reply.sent, len(asked), where)
        if any(row.silo not in silos or not 0 <= row.round <= round for row in reply.rows):
            raise InputError(where, "ledger rows of its own", "found others")
        released = [value.value for value in reply.sent.values() if isinstance(value, Released)]
        if self.door.budget is not None and not all(np.isfinite(value).all() for value in released):
            raise InputError(where, "finite numbers", "found others")
        for row in reply.rows:
            self.door.afford(row)
        return reply

    def _take_rows(self, replies: Mapping[str, Reply]) -> None:
        """Take the ledger rows of the answers that are used."""
        for reply in replies.values():
            handed = {value.release_point for value in reply.sent.values() if isinstance(value, Sealed)}
            for row in reply.rows:
                # Values that a silo hands to its own server are in the server's ledger by region, where they are added
                # up.
                if row.release_point not in handed:
                    self.door.admit(row)

    def _alike(self, replies: dict[str, Reply]) -> dict[str, Reply]:
        """The organisations with messages of the fields and shapes that most have."""
        looks = {organisation: _look(reply.sent) for organisation, reply in replies.items()}
        usual = [look for look, _ in Counter(looks.values()).most_common(1)]
        return {organisation: reply for organisation, reply in replies.items() if looks[organisation] in usual}

    def _joined(self, replies: Mapping[str, Reply], names: Sequence[str]) -> tuple[Rows, Sent]:
        """Join all messages into one, in the topology's order."""
        held = self._holders(names)
        silos = [name for organisation in replies for name in held[organisation]]
        place = np.array(self.topo.index(silos), dtype=np.intp)
        order = np.argsort(place)
        sent: dict[str, Released | Sealed] = {}
        for name, value in next(iter(replies.values())).sent.items():
            parts: list[Any] = [reply.sent[name] for reply in replies.values()]
            if isinstance(value, Released):
                sent[name] = relay(np.concatenate([part.value for part in parts])[order])
            else:
                rows = np.concatenate([sealed_rows(part) for part in parts])[order]
                elsewhere = None if self.door.masks is None else _Sums(self, name, tuple(names))
                sent[name] = replace(value, _rows=rows, elsewhere=elsewhere)
        return place[order], sent

    # ---- secure sums ----

    def together(self, names: Sequence[str]) -> Together | None:
        """Prepare a sum over the agents of all servers, with `names` here; None if there is no other server."""
        if self.around is None:
            return None
        own = {name: self.identities[name] for name in names}
        return Together.come(self.around, own, home_of(self.topo))

    def sum(
        self, field: str, members: tuple[str, ...], asked: MaskedSum, together: Together | None
    ) -> tuple[Total, set[str]]:
        """Run a sum with one question for each step and organisation; the protocol leaves behind those that miss
        one."""
        begun = time.monotonic()

        def ask(messages: Mapping[str, Json]) -> dict[str, Json]:
            questions = {}
            for organisation, silos in self._holders(list(messages)).items():
                step = one_question({silo: messages[silo] for silo in silos})
                question = Question(self.deployment, organisation, "sum", asked.round, NEVER, silos, members, {}, step)
                questions[organisation] = question.pack()
            heard = self._ask(questions, self.deadline, partial(self._enough, set(questions), -math.inf))
            said: dict[str, Json] = {}
            first = next(iter(messages.values()))["step"] == STEPS[0]
            against = [name for name, why in heard.refusals.items() if first and why.name == ProtocolError.__name__]
            for organisation, refusal in heard.refusals.items():
                if refusal.name == SummedError.__name__:
                    said |= dict.fromkeys(self._holders(list(messages))[organisation], SUMMED)
            for organisation, blob in heard.replies.items():
                told = read_answers(blob)
                said |= {silo: told[silo] for silo in self.organisations[organisation] if silo in told}
            if against and len(said) < (threshold(len(messages)) if together is None else 1):
                raise self._nobody_comes(asked.round, against)
            return said

        identities = self.identities if together is None else together.identities
        total = run_sum(self.deployment, asked, field, identities, ask, together)
        if self._line is not None:
            self._line["seconds"] += time.monotonic() - begun
        return total


@dataclass(eq=False)
class _Sums:
    """The secure sums of the vectors that answers held back, among those who were asked."""

    place: Remote
    field: str
    asked: tuple[str, ...]
    _together: Together | None = None

    def everybody(self, names: Sequence[str]) -> Mapping[str, str]:
        self._together = self.place.together(names)
        return {} if self._together is None else self._together.home

    def total(self, asked: MaskedSum) -> tuple[Total, set[str]]:
        together, self._together = self._together, None
        members = self.asked if together is None else asked.members
        return self.place.sum(self.field, members, asked, together)


def _look(sent: Sent) -> tuple[Any, ...]:
    """Describe the fields of a message and the shapes of their rows."""
    return tuple(
        (name, "released", value.value.shape[1:])
        if isinstance(value, Released)
        else (name, *(getattr(value, told) for told in _TOLD), sealed_rows(value).shape[1:])
        for name, value in sorted(sent.items())
    )
