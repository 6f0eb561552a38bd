"""Random server strategies against the real code of parties, and every private method for them to be played on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import clusters
import federations
from parties import DEPLOYMENT, Federation, stacked
from silograph.core.errors import SilographError
from silograph.engines.question import NEVER, Question, read_reply
from silograph.engines.silo import Silo
from silograph.engines.sums import read_said, run_sum
from silograph.methods.base import begin
from silograph.methods.find_clusters import FindClusters, FoundClusters
from silograph.methods.private_graph import LikelyGraphs
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.accounting import Planned, gaussian_multiplier, sampled_multiplier
from silograph.privacy.door import Budget
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian, SharedGaussian
from silograph.privacy.released import Sealed
from silograph.privacy.sums import sum_of
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import star
from support import NODES, cases, federation

#: One protected unit of the victim in two worlds: as it is, ordinary but other, and loud beyond all clips.
WORLDS = ("as it is", "another", "loud")


@dataclass(frozen=True)
class Holding:
    """`data(world)` are all silos' prepared records; they differ in one protected unit of the first silo."""

    name: str
    method: object
    topo: object
    data: Callable[[str], dict]
    mechanism: object
    budget: Budget | None
    masks: Masks | None = None
    rounds: int = 6

    def federation(self, folder: Path, world: str = "as it is") -> Federation:
        homes: dict[str, list[str]] = {}
        for name, home in zip(self.topo.silos, self.topo.home, strict=True):
            homes.setdefault(f"unit {home}", []).append(name)
        # In a star every site is its own party, else every unit is one.
        together = homes if len(homes) > 1 else {f"party {name}": (name,) for name in self.topo.silos}
        common = {"together": together, "most_rounds": self.rounds}
        data = self.data(world)
        return Federation(self.method, self.topo, data, folder, self.mechanism, self.budget, self.masks, **common)


def _changed(x, world, record):
    """Records with one of them (or all, where the silo is the unit) replaced."""
    x = np.array(x)
    if world == "another":
        x[record] = -x[record][..., ::-1]
    if world == "loud":
        x[record] = 1e100 * np.where(np.arange(x.shape[-1]) % 2, -1.0, 1.0)
    return x


def _graphs(case) -> Holding:
    counts = {"ada": 30, "bob": 40, "cyd": 50}
    signals = federation(counts=counts)

    def data(world):
        tables = {**signals, "ada": _changed(signals["ada"], world, 0)}
        return stacked([case.task.prepare(tables[name]) for name in tables])

    return Holding(case.name, case.method, star(list(signals)), data, case.mechanism, case.budget, rounds=12)


def _sites() -> Holding:
    counts = {"ada": 30, "bob": 40, "cyd": 50, "dan": 6, "eve": 20}
    task, noise = SmoothGraph(NODES, "moment"), SharedGaussian(gaussian_multiplier(2.0, 1e-5, 1))
    method, signals = SummedConsensus(task, LikelyGraphs(3.0), noise, tuple(counts.values())), federation(counts=counts)

    def data(world):
        tables = {**signals, "ada": _changed(signals["ada"], world, 0)}
        return stacked([task.prepare(tables[name]) for name in tables])

    return Holding("sites, secure sum", method, star(list(signals)), data, noise, Budget(2.0, 1e-5), Masks(), 5)


def _models(kind, case) -> Holding:
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

    title = f"{kind.__name__}, {case.name}"
    return Holding(title, case.method, topo, data, case.mechanism, case.budget, case.masks, kind.ROUNDS)


def _found() -> Holding:
    """Clusters from a released gradient, then clustered models of records."""
    case = clusters.named("records, huber")
    inner = case.method
    method = FoundClusters(FindClusters(inner.task, 3, clip=1.0), inner)
    noise = Gaussian(gaussian_multiplier(clusters.EPSILON, clusters.DELTA, clusters.ROUNDS + 1))
    known = _models(clusters, case)
    budget = Budget(clusters.EPSILON, clusters.DELTA)
    return Holding("clusters, found", method, known.topo, known.data, noise, budget, rounds=clusters.ROUNDS + 1)


def _networks(order: str) -> Holding:
    from silograph.methods.private_meta import SUPPORT, PrivateMeta, divided
    from silograph.tasks.networks import initialise, mlp
    from silograph.tasks.neural import Neural

    rng, topo = np.random.default_rng(2), star(["ada", "bob", "cyd", "dan"])
    records = [(rng.normal(size=(n, 5)).astype(np.float32), rng.integers(0, 3, n)) for n in (24, 13, 31, 40)]
    known = divided(records, topo.silos, 5)
    task = Neural(initialise(mlp(5, 3, (4,)), 2), (5,), 3)
    method = PrivateMeta(task, tuple(map(int, known[SUPPORT])), 4, rate=0.5, clip=0.5, order=order)
    noise = sampled_multiplier(1.0, 1e-4, 0.5, 4)

    def data(world):
        x = np.array(known["query_x"])
        x[0] = _changed(x[0], world, 0) if world != "loud" else np.where(np.arange(5) % 2, -1e30, 1e30)
        return {**known, "query_x": x}

    budget = Budget(1.0, 1e-4, planned=Planned(noise, 0.5, 4))
    return Holding(f"networks, {order} order", method, topo, data, Gaussian(noise), budget, rounds=4)


def holdings() -> list[Holding]:
    """Every method with a promise, in every mode that a deployment can have."""
    out = [_graphs(case) for case in cases() if case.private and case.name != "correlated"]
    for kind in (federations, clusters):
        out += [_models(kind, case) for case in kind.cases() if case.private and "skipped" not in case.name]
    return [*out, _sites(), _found(), _networks("first"), _networks("second")]


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
    left, `warned` what the parties' own screens showed."""

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
        parties = list(self.there.parties)
        self.parties = parties if len(self.there.parties[parties[0]]) == 1 and self.holding.masks else parties[:1]
        for party in self.parties:
            self.start(party)
        self.round, self.accepted = 0, dict.fromkeys(self.parties, NEVER)
        self.sealed: dict[str, tuple[int, dict]] = {}

    def start(self, party: str) -> None:
        if party in self.silos:
            self.silos[party].close()
        self.silos[party] = (self.open or self.there.silo)(party, warn=self.warned.append)

    def play(self, questions: int) -> Player:
        for _ in range(questions):
            chance = self.rng.random()
            if chance < 0.1:
                self.start(str(self.rng.choice(self.parties)))
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

    def ask(self, party: str, kind: str, round: int, silos, down, told=None) -> bytes | None:
        accepted = self.accepted[party] if self.rng.random() < 0.9 else int(self.rng.integers(-2, 9))
        members = tuple(self.holding.topo.silos)
        question = Question(DEPLOYMENT, party, kind, round, accepted, tuple(silos), members, down, told)
        try:
            blob = self.silos[party].answer(question.pack())
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
        for party in self.parties:
            silos = self.there.parties[party]
            if self.rng.random() < 0.1:
                silos = silos[: int(self.rng.integers(0, len(silos) + 1))]
            rows = self.holding.topo.index(silos)
            blob = self.ask(party, "local", round, silos, {name: value[rows] for name, value in down.items()})
            if blob is None:
                continue
            reply = read_reply(blob, "")
            held = {name: value for name, value in reply.sent.items() if isinstance(value, Sealed)}
            if self.holding.masks is not None and held:
                self.sealed[party] = (round, held)
            else:
                self.note(silos, blob)
            if self.rng.random() < 0.8:
                self.accepted[party] = round

    def note(self, silos, blob: bytes) -> None:
        reply = read_reply(blob, "")
        for k, silo in enumerate(silos):
            numbers = b"".join(
                value.value[k].tobytes() for value in reply.sent.values() if not isinstance(value, Sealed)
            )
            if numbers:
                self.given.setdefault(silo, set()).add(numbers)

    def deliver(self) -> None:
        party = str(self.rng.choice(self.parties))
        self.ask(party, "deliver", self.round + 1, self.there.parties[party], {})

    def sum(self) -> None:
        """Some cohort, some of whom are not asked for some steps."""
        round, held = self.sealed[str(self.rng.choice(list(self.sealed)))]
        name, value = next(iter(held.items()))
        everybody = [silo for party in self.sealed for silo in self.there.parties[party]]
        count = int(self.rng.integers(3, len(everybody) + 1)) if len(everybody) >= 3 else len(everybody)
        members = tuple(str(silo) for silo in self.rng.permutation(everybody)[:count])
        deaf = {
            (str(self.rng.choice(everybody)), str(self.rng.choice(["mask", "confirm", "unmask"]))) for _ in range(2)
        }
        holder = {silo: party for party in self.parties for silo in self.there.parties[party]}

        def ask(messages):
            said = {}
            for silo, message in messages.items():
                if (silo, message["step"]) not in deaf:
                    blob = self.ask(holder[silo], "sum", round, (silo,), {}, {"to": {silo: message}})
                    if blob is not None:
                        said |= read_said(blob)
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
