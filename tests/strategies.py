"""Random server strategies against the real code of organisations, and what they are played on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

import federations
from cases import Case
from local_organisations import DEPLOYMENT, Federation, stacked
from neighbours import opened_on, worlds_of
from silograph.audit.worlds import LOUD, OPPOSITE, SILENT
from silograph.core.errors import SilographError
from silograph.core.schema import write
from silograph.deploy.public_facts import gather_facts, open_server
from silograph.engines.question import NEVER, Question, read_reply
from silograph.engines.silo import Silo
from silograph.engines.sums import read_answers, run_sum
from silograph.methods.base import begin
from silograph.privacy.door import Budget
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.released import Sealed
from silograph.privacy.sums import sum_of

#: One protected unit of the victim in two worlds: as it is, ordinary but other, and loud beyond all clips.
WORLDS = ("as it is", "another", "loud")


@dataclass(frozen=True, eq=False)
class Holding:
    """`data(world)` are all silos' prepared records; they differ in one protected unit of one silo."""

    name: str
    method: object
    topo: object
    data: Callable[[str], dict]
    mechanism: object
    budget: Budget | None
    masks: Masks | None
    rounds: int
    together: dict

    @classmethod
    def of(cls, case: Case) -> Holding:
        worlds, plan = worlds_of(case), case.plan().deployable()
        facts = gather_facts(plan, case.base)
        job, records = open_server(plan, facts, case.base), {}
        deployed = replace(case, content={"format": 1, **write(plan, nulls=False)})

        def data(world: str) -> dict:
            if world not in records:
                table = worlds.tables[dict(zip(WORLDS, (SILENT, OPPOSITE, LOUD), strict=True))[world]]
                records[world] = arrays_of(opened_on(deployed, worlds, table).data())
            return records[world]

        attacked_first = {worlds.organisation: facts.organisations[worlds.organisation], **facts.organisations}
        rest = (job.mechanism, job.budget, job.masks, job.most_rounds, attacked_first)
        return cls(case.title, job.method, job.topo, data, *rest)

    def federation(self, folder: Path, world: str = WORLDS[0]) -> Federation:
        common = {"together": self.together, "most_rounds": self.rounds}
        data = self.data(world)
        return Federation(self.method, self.topo, data, folder, self.mechanism, self.budget, self.masks, **common)


def arrays_of(data: object) -> dict:
    return data if isinstance(data, dict) else stacked(data)


def _changed(x, world, record):
    """Records with one of them (or all, where the silo is the unit) replaced."""
    x = np.array(x)
    if world == "another":
        x[record] = -x[record][..., ::-1]
    if world == "loud":
        x[record] = 1e100 * np.where(np.arange(x.shape[-1]) % 2, -1.0, 1.0)
    return x


def by_hand(kind, case) -> Holding:
    """Records beyond all clips instead of what an audit would take: for attacks on the last bits of a number."""
    topo = kind.topology()
    records = kind.records(topo=topo) if kind is federations else kind.data_of(case)
    protect = getattr(case.method, "protect", "clients")
    task = getattr(case.method, "inner", case.method).task

    def data(world):
        x, y = records[topo.silos[0]]
        own = _changed(x, world, 0 if protect == "records" else slice(None))
        tables = {**records, topo.silos[0]: (own, np.array(y) if world == "as it is" else _changed_answers(y, world))}
        return stacked([task.prepare(tables[name]) for name in topo.silos])

    def _changed_answers(y, world):
        which = 0 if protect == "records" else slice(None)
        y = np.array(y)
        y[which] = -y[which] if task.loss == "logistic" or world == "another" else -1e100
        return y

    homes: dict[str, list[str]] = {}
    for name, home in zip(topo.silos, topo.home, strict=True):
        homes.setdefault(f"unit {home}", []).append(name)
    rest = (case.mechanism, case.budget, case.masks, kind.ROUNDS, homes)
    return Holding(f"{kind.__name__}, {case.name}", case.method, topo, data, *rest)


# ---- a server that asks at random ------------------------------------------------------------------------------------


def rows_of(folder: Path) -> list[dict]:
    """What the ledgers below a folder say, but for the digests of what was sent."""
    paths = sorted(folder.glob("*/ledger.jsonl"))
    return [{**asdict(row), "digest": ""} for path in paths for row in Ledger(path, mend=False).rows]


def digits(blob: bytes) -> int:
    """How many are in an answer's sensitivities and noises. They follow from the question and from what was released
    before, which the server has: models that differ by their noise alone differ in the last digits of a slack."""
    return sum(len(f"{row.l2}{row.noise}") for row in read_reply(blob, "").rows)


@dataclass
class Player:
    """Plays one strategy, which follows from its seed and from what it was refused. `seen` is all that it saw of each
    question but the numbers: an answer's size, or a refusal's class. `given` are the distinct numbers of each silo that
    left, `warned` what the organisations' own screens showed."""

    holding: Holding
    there: Federation
    seed: int
    open: Callable[..., Silo] | None = None
    seen: list = field(default_factory=list)
    given: dict = field(default_factory=dict)
    warned: list = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.begun = begin(self.holding.method, self.holding.topo).down
        self.limits = self.holding.method.limits()
        self.silos: dict[str, Silo] = {}
        organisations = list(self.there.organisations)
        self.organisations = (
            organisations
            if len(self.there.organisations[organisations[0]]) == 1 and self.holding.masks
            else organisations[:1]
        )
        for organisation in self.organisations:
            self.start(organisation)
        self.round, self.accepted = 0, dict.fromkeys(self.organisations, NEVER)
        self.sealed: dict[str, tuple[int, dict]] = {}

    def start(self, organisation: str) -> None:
        if organisation in self.silos:
            self.silos[organisation].close()
        self.silos[organisation] = (self.open or self.there.silo)(organisation, warn=self.warned.append)

    def play(self, questions: int) -> Player:
        for _ in range(questions):
            chance = self.rng.random()
            if chance < 0.1:
                self.start(str(self.rng.choice(self.organisations)))
            elif chance < 0.2:
                self.deliver()
            elif self.holding.masks is not None and chance < 0.6 and self.sealed:
                self.sum()
            else:
                self.local()
        for silo in self.silos.values():
            silo.close()
        return self

    # ---- questions ----

    def ask(self, organisation: str, kind: str, round: int, silos, down, told=None) -> bytes | None:
        accepted = self.accepted[organisation] if self.rng.random() < 0.9 else int(self.rng.integers(-2, 9))
        members = tuple(self.holding.topo.silos)
        question = Question(DEPLOYMENT, organisation, kind, round, accepted, tuple(silos), members, down, told)
        try:
            blob = self.silos[organisation].answer(question.pack())
        except Exception as error:  # of whatever class: that is what goes out
            self.seen.append((kind, "refused", type(error).__name__))
            return None
        self.seen.append((kind, "answered", len(blob) - (0 if kind == "sum" else digits(blob))))
        return blob

    def local(self) -> None:
        if self.rng.random() < 0.8:
            self.round += 1
        strange = [0, self.round - 1, self.round + 1, self.round + 1000, -1, 10**12]
        round = self.round if self.rng.random() < 0.8 else int(self.rng.choice(strange))
        down = self.down()
        for organisation in self.organisations:
            silos = self.there.organisations[organisation]
            if self.rng.random() < 0.1:
                silos = silos[: int(self.rng.integers(0, len(silos) + 1))]
            rows = self.holding.topo.index(silos)
            blob = self.ask(organisation, "local", round, silos, {name: value[rows] for name, value in down.items()})
            if blob is None:
                continue
            reply = read_reply(blob, "")
            held = {name: value for name, value in reply.sent.items() if isinstance(value, Sealed)}
            if self.holding.masks is not None and held:
                self.sealed[organisation] = (round, held)
            else:
                self.note(silos, blob)
            if self.rng.random() < 0.8:
                self.accepted[organisation] = round

    def note(self, silos, blob: bytes) -> None:
        reply = read_reply(blob, "")
        for k, silo in enumerate(silos):
            numbers = b"".join(
                value.value[k].tobytes() for value in reply.sent.values() if not isinstance(value, Sealed)
            )
            if numbers:
                self.given.setdefault(silo, set()).add(numbers)

    def deliver(self) -> None:
        organisation = str(self.rng.choice(self.organisations))
        self.ask(organisation, "deliver", self.round + 1, self.there.organisations[organisation], {})

    def sum(self) -> None:
        """Some cohort, some of whom are not asked for some steps."""
        round, held = self.sealed[str(self.rng.choice(list(self.sealed)))]
        name, value = next(iter(held.items()))
        everybody = [silo for organisation in self.sealed for silo in self.there.organisations[organisation]]
        count = int(self.rng.integers(3, len(everybody) + 1)) if len(everybody) >= 3 else len(everybody)
        members = tuple(str(silo) for silo in self.rng.permutation(everybody)[:count])
        deaf = {
            (str(self.rng.choice(everybody)), str(self.rng.choice(["mask", "confirm", "unmask"]))) for _ in range(2)
        }
        holder = {
            silo: organisation for organisation in self.organisations for silo in self.there.organisations[organisation]
        }

        def ask(messages):
            said = {}
            for silo, message in messages.items():
                if (silo, message["step"]) not in deaf:
                    blob = self.ask(holder[silo], "sum", round, (silo,), {}, {"to": {silo: message}})
                    if blob is not None:
                        said |= read_answers(blob)
                        if message["step"] == "mask":
                            self.given.setdefault(silo, set()).add(blob)
            return said

        try:
            gate = self.there.door().gate(list(self.holding.topo.servers), round)
            asked = sum_of(gate, value, members, "unit")
            run_sum(DEPLOYMENT, asked, name, self.there.keys(), ask)
        except SilographError:
            self.seen.append(("sum", "not begun", ""))

    def down(self) -> dict[str, np.ndarray]:
        return {name: self.numbers(value.value, self.limits[name]) for name, value in self.begun.items()}

    def numbers(self, honest, limits) -> np.ndarray:
        """What the method sends first, or anything: huge, tiny, denormal, at the limits, with chosen signs, none."""
        rng, shape = self.rng, honest.shape
        low, high = np.broadcast_to(limits.low, shape), np.broadcast_to(limits.high, shape)
        signs = rng.choice([-1.0, 1.0], shape)
        kinds = [
            lambda: honest,
            lambda: honest + 0.1 * rng.normal(size=shape),
            lambda: np.where(signs > 0.0, low, high),
            lambda: np.where(rng.random(shape) < 0.5, honest, high),
            lambda: signs * 10.0 ** rng.uniform(-320.0, 308.0),
            lambda: signs * 10.0 ** rng.uniform(-320.0, 308.0, shape),
            lambda: signs * 5e-324,
            lambda: signs * 1.7e308,
            lambda: np.where(rng.random(shape) < 0.1, np.nan, honest),
            lambda: np.rint(8.0 * rng.random(shape)),
        ]
        out = np.array(kinds[int(rng.integers(len(kinds)))]())
        if rng.random() < 0.7:  # within what is allowed, as far as that goes
            out = np.clip(np.nan_to_num(out), low, high)
            out = np.rint(out) if limits.whole else out
        return out
