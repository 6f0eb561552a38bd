"""A server that may do anything, and the real organisations of a deployment that it asks.

Organisations are opened from folders on disk, by the code of `silograph join`, and answer in this process. Everything
that a server could see is kept: whether an organisation answered and how it refused, sizes, times, and numbers.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from silograph.audit.parts import canary_part
from silograph.audit.worlds import LOUD, OPPOSITE, SILENT, Worlds
from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.deploy.deployment import FILE, Deployment
from silograph.deploy.organisation import ENROLMENT, LEDGER, ROSTER, Approved, enrol
from silograph.deploy.public_facts import part_of
from silograph.engines.question import NEVER, Kind, Question, read_reply
from silograph.engines.silo import Silo
from silograph.engines.sums import read_answers, run_sum
from silograph.methods.base import begin
from silograph.privacy.accounting import GAUSSIANS, Cost, cost
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.released import Released, Sealed
from silograph.privacy.secure_messages import STEPS, threshold
from silograph.privacy.sums import sum_of
from silograph.run.jobs import Job

ANSWER, SUM, NO_SUM, GONE = "answer", "sum", "no sum", "gone"


@dataclass(frozen=True, eq=False)
class Seen:
    """What a server saw of one question: an answer, or the class of a refusal; and the numbers that it could read."""

    kind: str
    size: int
    seconds: float
    numbers: Array


class _Opened(Approved):
    """An organisation as `silograph join` opens it, except for two things: the auditor sets its secret root, so that
    both worlds of a pair have the same noise, and a table is read only once."""

    root: int
    known: Job

    def _root(self) -> int:
        return self.root

    def job(self) -> Job:
        return self.known


class Theatre:
    """Worlds of enrolled organisations, generated from a deployment's public facts, as folders that trials copy."""

    def __init__(self, deployment: Deployment, job: Job, folder: Path, plot: int) -> None:
        """`plot`: the source of questions of a server that asks at random."""
        self.deployment, self.job, self.folder, self.plot = deployment, job, folder, plot
        self.worlds: Worlds = canary_part(job).worlds(job, deployment.facts)
        self.trials = 0
        self.jobs: dict[tuple[int, str], Job] = {}
        for world in (LOUD, OPPOSITE, SILENT):
            self._enrol(world)

    @cached_property
    def organisations(self) -> dict[str, tuple[str, ...]]:
        """The organisations to open: the victim's, or all if sites are added up with each other."""
        everybody, own = self.deployment.facts.organisations, self.worlds.organisation
        alone = part_of(self.job.plan.method.name).SEVERAL or not self.masked
        return {own: everybody[own]} if alone else everybody

    @property
    def masked(self) -> bool:
        return self.job.masks is not None

    @cached_property
    def down(self) -> dict[str, Array]:
        """The method's first message down, a row for each silo."""
        return {name: value.value for name, value in begin(self.job.method, self.job.topo).down.items()}

    def paid(self, rows: Sequence[Row]) -> Cost:
        """The cost of rows for a silo against its server; between worlds that are two steps apart, twice that and
        more."""
        spent = cost(rows, self.delta)
        if self.worlds.steps == 2:  # group privacy
            return Cost(2.0 * spent.epsilon, (1.0 + np.exp(min(spent.epsilon, 700.0))) * spent.delta, spent.accountant)
        return spent

    @property
    def delta(self) -> float:
        return self.job.plan.total_delta

    @property
    def gaussian(self) -> bool:
        """Whether all noise is Gaussian, and no records are sampled: then scores are normal."""
        mechanism = self.job.mechanism
        if mechanism is None or self.job.plan.samples_records:
            return False
        return mechanism.at(0).name in GAUSSIANS

    @cached_property
    def digest(self) -> str:
        return self.deployment.digest

    def identities(self, world: int) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for organisation, silos in self.organisations.items():
            card = json.loads((self.place(world, organisation) / f"{organisation}{ENROLMENT}").read_bytes())
            found |= dict.fromkeys(silos, bytes.fromhex(card["identity"]))
        return found

    def place(self, world: int, organisation: str) -> Path:
        return self.folder / f"world {world}" / organisation

    def _enrol(self, world: int) -> None:
        for organisation in self.organisations:
            folder, own = self.place(world, organisation), organisation == self.worlds.organisation
            folder.mkdir(parents=True)
            (folder / FILE).write_bytes(self.deployment.to_bytes())
            table = folder.parent / f"{organisation}{self.worlds.suffix}"
            table.write_bytes(self.worlds.tables[world] if own else self.worlds.silent(organisation))
            enrol(folder, table)
            self.jobs[world, organisation] = Approved.open(folder).job()
        if len(self.organisations) > 1:
            roster = json.dumps({name: key.hex() for name, key in self.identities(world).items()})
            for organisation in self.organisations:
                (self.place(world, organisation) / ROSTER).write_text(roster, encoding="utf-8")

    def open(self, world: int, root: int) -> Attacked:
        self.trials += 1
        return Attacked(self, world, root, self.folder / f"trial {self.trials}")


def claimed(job: Job) -> bool:
    """Whether a silo has any promise against its server."""
    trusted = job.budget is not None and bool(job.budget.trusted)
    return job.plan.privacy is not None and not trusted


class Attacked:
    """The organisations of one world in one trial, and everything that the server saw of them."""

    def __init__(self, theatre: Theatre, world: int, root: int, folder: Path) -> None:
        self.theatre, self.world, self._root, self._folder = theatre, world, root, folder
        self.seen: list[Seen] = []
        self.forgotten: list[Row] = []  # rows of copies that were set aside
        for organisation in theatre.organisations:
            shutil.copytree(theatre.place(world, organisation), folder / organisation)
        self._silos: dict[str, Silo] = {}
        self._kept = 0
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    # ---- the organisation's own machine ----

    def start(self) -> None:
        """Run `join` at every organisation; one that does not start is gone."""
        for organisation in self.theatre.organisations:
            try:
                opened = _Opened.open(self._folder / organisation)
                assert isinstance(opened, _Opened)
                opened.known = self.theatre.jobs[self.world, organisation]
                opened.root = int.from_bytes(hashlib.sha256(f"{self._root} {organisation}".encode()).digest(), "big")
                self._silos[organisation] = opened.silo()
            except Exception as error:
                self._see(type(error).__name__, 0, 0.0)

    def stop(self) -> None:
        for silo in self._silos.values():
            silo.close()
        self._silos = {}

    def restart(self) -> None:
        self.stop()
        self.start()

    def keep(self) -> Path:
        """Copy the victim's folder as it is now."""
        self._kept += 1
        copy = self._folder / f"copy {self._kept}"
        shutil.copytree(self._own, copy)
        return copy

    def put_back(self, copy: Path, only: Collection[str] = ()) -> None:
        """Put the victim's files, or `only` some of them, back from an older copy; then start everybody again."""
        self.stop()
        if not only or LEDGER in only:
            older = Ledger(copy / LEDGER, mend=False).rows
            self.forgotten += [row for row in self._ledger() if row not in older]
        if only:
            for name in only:
                (self._own / name).unlink(missing_ok=True)
                if (copy / name).exists():
                    shutil.copy(copy / name, self._own / name)
        else:
            shutil.rmtree(self._own)
            shutil.copytree(copy, self._own)
        self.start()

    @property
    def _own(self) -> Path:
        return self._folder / self.theatre.worlds.organisation

    def _ledger(self) -> list[Row]:
        silo = self.theatre.worlds.silo
        return [row for row in Ledger(self._own / LEDGER, mend=False).rows if row.silo == silo]

    @property
    def rows(self) -> list[Row]:
        """The rows of the victim's own ledger now."""
        return self._ledger()

    # ---- what the server does ----

    def ask(self, organisation: str, blob: bytes, look: bool = True) -> bytes | None:
        """Send any bytes to an organisation; return its answer, if any. Without `look` nothing seen is kept."""
        silo, begun = self._silos.get(organisation), time.perf_counter()
        if silo is None:
            self._see(GONE, 0, 0.0)
            return None
        try:
            reply = silo.answer(blob)
        except Exception as error:  # only the class of any error leaves an organisation
            self._see(type(error).__name__, 0, time.perf_counter() - begun)
            return None
        if look:
            self._see(ANSWER, len(reply), time.perf_counter() - begun, _numbers(reply))
        return reply

    def question(
        self,
        kind: Kind,
        round: int,
        accepted: int = NEVER,
        down: Mapping[str, Array] | None = None,
        silos: Sequence[str] | None = None,
        members: Sequence[str] | None = None,
        organisation: str | None = None,
    ) -> Question:
        """The question of an honest server, except for the given fields."""
        theatre = self.theatre
        topo, organisation = theatre.job.topo, organisation or theatre.worlds.organisation
        alone = (theatre.worlds.silo,)
        silos = tuple(silos or (theatre.organisations[organisation] if theatre.masked else alone))
        index = topo.index(silos)
        sends = theatre.down if down is None else down
        part = {name: np.ascontiguousarray(value[index]) for name, value in sends.items()} if kind == "local" else {}
        return Question(theatre.digest, organisation, kind, round, accepted, silos, tuple(members or topo.silos), part)

    def local(self, round: int, accepted: int = NEVER, down: Mapping[str, Array] | None = None) -> bytes | None:
        """Ask for the victim's part of a round; if sites are added up with each other, for everybody's."""
        own = None
        for organisation in self.theatre.organisations:
            question = self.question("local", round, accepted, down, organisation=organisation)
            reply = self.ask(organisation, question.pack(), organisation == self.theatre.worlds.organisation)
            own = reply if organisation == self.theatre.worlds.organisation else own
        return own

    def add_up(
        self, round: int, reply: bytes, others: Sequence[str], ask: Sequence[str] | None = None, last: str = "unmask"
    ) -> bool:
        """Run a secure sum of the victim with `others`, up to the `last` step; in the two final steps of a sum only
        those in `ask` are asked, if it is given."""
        theatre, begun = self.theatre, time.perf_counter()
        held = read_reply(reply, "answer").sent
        field, sealed = next((name, value) for name, value in held.items() if isinstance(value, Sealed))
        members = tuple(sorted((theatre.worlds.silo, *others)))
        gate = Door(0, Ledger(), theatre.job.mechanism, masks=theatre.job.masks).gate(["server"], round)
        kinds: list[str] = []

        def hear(messages: Mapping[str, Json]) -> dict[str, Json]:
            said: dict[str, Json] = {}
            step = STEPS.index(next(iter(messages.values()))["step"]) if messages else len(STEPS)
            late = step >= STEPS.index("confirm")
            for organisation, silos in theatre.organisations.items():
                asked = [s for s in silos if s in messages and (ask is None or not late or s in ask)]
                if asked and step <= list[str](STEPS).index(last):
                    to: Json = {"to": {silo: messages[silo] for silo in asked}}
                    question = self.question("sum", round, silos=asked, members=members, organisation=organisation)
                    said |= self._step(organisation, replace(question, sum=to), kinds)
            return said

        try:
            asked = sum_of(gate, sealed, members, "server")
            total, _ = run_sum(theatre.digest, asked, field, theatre.identities(self.world), hear)
        except InputError:  # too few for a sum at all
            self._see(NO_SUM, 0, time.perf_counter() - begun)
            return False
        made = theatre.worlds.silo in total.survivors
        how = SUM if made else f"{NO_SUM}: {', '.join(dict.fromkeys(kinds)) or 'too few'}"
        self._see(how, 0, time.perf_counter() - begun, total.values if made else np.zeros(0))
        return made

    def _step(self, organisation: str, question: Question, kinds: list[str]) -> dict[str, Json]:
        """Run a step of a sum, seen only as a part of the whole: masked words are new every time."""
        before = len(self.seen)
        reply = self.ask(organisation, question.pack(), look=False)
        kinds += [seen.kind for seen in self.seen[before:]]
        del self.seen[before:]
        return {} if reply is None else read_answers(reply)

    def _see(self, kind: str, size: int, seconds: float, numbers: Array | None = None) -> None:
        self.seen.append(Seen(kind, size, seconds, np.zeros(0) if numbers is None else numbers))

    # ---- cohorts ----

    @property
    def others(self) -> list[str]:
        """The silos with which the victim can be added up."""
        return [
            name for silos in self.theatre.organisations.values() for name in silos if name != self.theatre.worlds.silo
        ]

    @property
    def fewest(self) -> int:
        """The number of others that a sum needs."""
        masks = self.theatre.job.masks
        return (3 if masks is None else masks.minimum) - 1

    def without_victim(self) -> list[list[str]]:
        """Disjoint groups of others, each large enough to finish a sum in which the victim never confirms."""
        size = self.fewest
        while size < threshold(size + 1):
            size += 1
        return [self.others[k : k + size] for k in range(0, len(self.others) - size + 1, size)]


def _numbers(reply: bytes) -> Array:
    """The numbers that can be read from an answer."""
    try:
        sent = read_reply(reply, "answer").sent
    except InputError:  # of an organisation that is not sound
        return np.zeros(0)
    found = [value.value.ravel() for value in sent.values() if isinstance(value, Released)]
    return np.concatenate(found) if found else np.zeros(0)
