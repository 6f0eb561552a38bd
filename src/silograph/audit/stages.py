"""What an audit plays: the part of a plan that releases something about one protected unit, in many trials at once.

A stage is the plan's own method; everything else is chosen for the attacker: all other records are silent (or what its
scenes make of them), a server answers every round as suits it, and of sites that protect each other by their noise
those who are not counted on tell theirs. `tables` makes the data of n trials, each with its own bits: canary k in or
out, or, where a record is replaced, one of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from silograph.core.types import Array, BoolArray, Carry
from silograph.methods.base import Method, Outlet, Private, ServerOutlet, State, Up, begin, take, values
from silograph.methods.calibrated import Calibrated
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.moments_once import MomentsSummed
from silograph.methods.person_votes import SummedVotes
from silograph.methods.private_scale import ScaledFirst
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.ledger import Row
from silograph.privacy.masking import MaskedSum, Masks
from silograph.privacy.mechanisms import Noise, Place
from silograph.privacy.observers import OTHER_SERVERS, SERVER
from silograph.privacy.relay import relay
from silograph.privacy.released import Message
from silograph.run.jobs import Job
from silograph.topology import Topology

Bits = BoolArray  # (trials, canaries)
Tables = Callable[[Bits], Private]
#: From what a trial sent in its last round to minus the canary's loss under it, one number a trial.
Loss = Callable[[Mapping[str, Array]], Array]


@dataclass(frozen=True, eq=False)
class Scene:
    """Other neighbours of one canary, and so another canary: what a statistic of all records does shows among some."""

    canary: str
    tables: Tables
    company: int = 0


@dataclass(frozen=True, eq=False)
class Drawn:
    """Where noise was drawn in a round of all trials, what was released there, and from which sums, if any."""

    root: int
    round: int
    release_point: str
    observed: Array
    sums: Sequence[MaskedSum]


@dataclass(frozen=True, eq=False)
class Noises:
    """What others reveal of the noise in all trials, row for row of what was observed, and what each site of the first
    drew."""

    revealed: Array
    each: Sequence[Array]


@dataclass(frozen=True, eq=False)
class SiloStage:
    """One silo, whose records are protected, with a server that answers every round as it did the first.

    `rounds` are those it takes part in; there is room for `most` canaries, which repeat themselves after `distinct`
    ones. Where records are sampled, canaries are the first of their `part`, and after them come so many in their
    `company`. `scenes` are the same with other neighbours.
    """

    job: Job
    victim: int
    canary: str
    rounds: tuple[int, ...]
    most: int
    tables: Tables
    state: State
    part: str = ""
    loss: Loss | None = None
    observer: str = SERVER
    masks: None = None
    distinct: int | None = None
    company: int = 0
    scenes: tuple[Scene, ...] = ()
    most_trials: int | None = None  # that fit into memory, where tables are large

    @property
    def site(self) -> str:
        return self.job.topo.silos[self.victim]

    @property
    def drawing(self) -> int:
        """How many draw noise in a trial."""
        return 1

    def mechanism(self, trials: int) -> Noise | None:
        return self.job.mechanism

    def about(self, row: Row) -> bool:
        """Whether a ledger row is about what the canary is in."""
        return True

    def view(self, values: Array) -> Array:
        """What an attacker looks at of a release, a row for each trial."""
        return values

    def noises(self, drawn: Drawn) -> Noises | None:
        """Of sites that add noise together, what each adds, and what an attacker is told of it."""
        return None

    def begin(self, trials: int) -> Carry:
        return take(self.state.carry, np.full(trials, self.victim))

    def step(self, round: int, memory: Carry, data: Private, gate: ServerOutlet) -> tuple[Carry, dict[str, Array]]:
        """One round of all trials: what each remembers, and what anybody could read."""
        trials = np.full(len(next(iter(data.values()))), self.victim)
        down: Message = {name: value.rows(trials) for name, value in self.state.down.items()}
        if "finding" in down and round:  # clusters are found in the first round
            down["finding"] = relay(np.zeros_like(down["finding"].value))
        if "stage" in down:  # of releases that follow each other, one a round
            down["stage"] = relay(np.full_like(down["stage"].value, round))
        fresh, sent = self.job.method.local(memory, down, data, gate)
        after = {**memory, **fresh}
        last = round == self.rounds[-1]
        return after, values(sent) | (_delivered(self.job.method, after, data, gate) if last else {})


Summing = GraphFederation | Calibrated | ClusteredADMM | SummedConsensus | MomentsSummed | SummedVotes | ScaledFirst


@dataclass(frozen=True, eq=False)
class RegionStage:
    """One server with `size` agents, who are protected as a whole; no trial hears of another. With `honest` all agents
    but so many tell others what noise they drew, instead of those who are not counted on."""

    job: Job
    method: Summing
    site: str
    size: int
    canary: str
    rounds: tuple[int, ...]
    most: int
    tables: Tables
    masks: Masks | None
    part: str = ""
    loss: None = None
    observer: str = OTHER_SERVERS
    victim: int | None = None  # whose records are protected, where it is not whole agents
    honest: int | None = None
    distinct: int | None = None
    company: int = 0
    scenes: tuple[Scene, ...] = ()
    most_trials: int | None = None

    @property
    def drawing(self) -> int:
        return 1 if self.masks is None else self.size

    def mechanism(self, trials: int) -> Noise | None:
        return self.job.mechanism

    def view(self, values: Array) -> Array:
        return values

    def about(self, row: Row) -> bool:
        return self.victim is None or row.silo.endswith(f"/{self.victim:05d}")

    def noises(self, drawn: Drawn) -> Noises | None:
        """Of a sum with the agents' own noise: that of those who are not counted on is told, and taken off the sum."""
        if not drawn.sums:
            return None
        first = drawn.sums[0]
        tellers = _tellers(self.size, self.honest or first.cohort.contributors, self.victim or 0)
        nothing = np.zeros(first.length)
        told = [sum((asked.noise_of(drawn.root, asked.members[k]) for k in tellers), nothing) for asked in drawn.sums]
        return Noises(np.stack(told), [first.noise_of(drawn.root, name) for name in first.members])

    def _method(self, trials: int) -> Summing:
        if isinstance(self.method, ScaledFirst):
            return replace(self.method, inner=replace(self.method.inner, counts=self.method.counts * trials))
        if isinstance(self.method, SummedConsensus | MomentsSummed | SummedVotes):
            return replace(self.method, counts=self.method.counts * trials)
        if isinstance(self.method, GraphFederation):
            return replace(self.method, sample=None, reach="region")
        if isinstance(self.method, Calibrated):
            counts = None if self.method.counts is None else self.method.counts[:1] * (trials * self.size)
            groups = tuple(np.repeat(np.arange(trials), self.size).tolist())
            return replace(self.method, groups=groups, counts=counts, named=False, separate=True)
        # What a cluster borrows is computed from what was released: here there is one.
        return replace(self.method, sample=None, clusters=(0,) * (trials * self.size), tau=0.0, reach="region")

    def begin(self, trials: int) -> Carry:
        topo, method = _apart(trials, self.size), self._method(trials)
        state = begin(method, topo)
        return {"carry": state.carry, "servers": state.servers, "down": state.down, "method": method, "topo": topo}

    def step(self, round: int, memory: Carry, data: Private, gate: ServerOutlet) -> tuple[Carry, dict[str, Array]]:
        """One round of all trials. A sum hides what is sealed; what agents send beside it anybody could read."""
        method, topo = memory["method"], memory["topo"]
        agents = gate.over(topo.silos)
        fresh, sent = method.local(memory["carry"], memory["down"], data, agents)
        carry = {**memory["carry"], **fresh}
        sealed = {name: value for name, value in sent.items() if name not in values(sent)}
        up = Up(np.arange(len(topo.silos)), values(sent), sealed)
        servers, across = method.gather(memory["servers"], up, topo, gate)
        servers, told = method.settle(servers, values(across), topo)
        down = {name: relay(value) for name, value in told.items()}
        seen = _named("sent", values(sent)) | values(across) | _named("answer", told)
        if round == self.rounds[-1]:
            seen |= _delivered(method, carry, data, agents)
        return {**memory, "carry": carry, "servers": servers, "down": down}, seen


@dataclass(frozen=True, eq=False)
class SharedNoiseStage(SiloStage):
    """The victim among all sites of the plan, with whom it shares noise. All releases are seen, which tell a part of
    its noise; and those who are not counted on tell theirs, and what they share with others."""

    sensitivities: tuple[float, ...] = ()

    @property
    def drawing(self) -> int:
        return len(self.sensitivities)

    def mechanism(self, trials: int) -> Noise | None:
        return self._sharing(self._cohorts(trials))

    def _sharing(self, cohorts: Iterable[tuple[str, ...]]) -> CorrelatedGaussian:
        return replace(self._shared, cohorts=tuple(cohorts))

    @property
    def _shared(self) -> CorrelatedGaussian:
        assert isinstance(self.job.mechanism, CorrelatedGaussian)
        return self.job.mechanism

    def _cohorts(self, trials: int) -> list[tuple[str, ...]]:
        names, size = self._names(trials), len(self.sensitivities)
        return [tuple(names[k : k + size]) for k in range(0, len(names), size)]

    def _names(self, trials: int) -> list[str]:
        return [f"{trial}/{k:05d}" for trial in trial_names(trials) for k in range(len(self.sensitivities))]

    def about(self, row: Row) -> bool:
        return row.silo.endswith(f"/{self.victim:05d}")

    def noises(self, drawn: Drawn) -> Noises:
        """What a site shares with those who tell is what it adds among them, less what it adds alone."""
        tellers, size = self._tellers, len(self.sensitivities)
        cohorts = self._cohorts(len(drawn.observed) // size)
        alone = self._sharing((name,) for cohort in cohorts for name in cohort)
        among = self._sharing((cohort[k], *(cohort[j] for j in tellers)) for cohort in cohorts for k in self._honest)
        told = np.zeros_like(drawn.observed)
        nothing, noise = np.zeros(told.shape[1:]), np.zeros(told.shape[1:])

        def added(by: CorrelatedGaussian, name: str, k: int) -> Array:
            by.perturb(nothing, self.sensitivities[k], Place(drawn.root, name, drawn.round, drawn.release_point), noise)
            return noise.copy()

        for row, cohort in zip(told.reshape(len(cohorts), size, *nothing.shape), cohorts, strict=True):
            for k in self._honest:
                row[k] = added(among, cohort[k], k) - added(alone, cohort[k], k)
        own = [added(alone, name, k) / self.sensitivities[k] for k, name in enumerate(cohorts[0])]
        return Noises(told, own)

    @property
    def _tellers(self) -> list[int]:
        return _tellers(len(self.sensitivities), self._shared.honest, self.victim)

    @property
    def _honest(self) -> list[int]:
        return [k for k in range(len(self.sensitivities)) if k not in self._tellers]

    def view(self, values: Array) -> Array:
        """The victim's release less the best guess at its noise from those of the other honest, whose signals are
        known: in units of the sensitivities noise has precision 1 + r J, so the guess is -r / (1 + r) times their sum.
        """
        r, units = (self._shared.shared / self._shared.own) ** 2, np.array(self.sensitivities)[:, None]
        each = values.reshape(-1, len(units), values.shape[-1]) / units
        among = each[:, self._honest].sum(1)
        return np.asarray((r * among + each[:, self.victim]) / (1.0 + r) * units[self.victim])

    def begin(self, trials: int) -> Carry:
        return take(self.state.carry, np.tile(np.arange(len(self.sensitivities)), trials))

    def step(self, round: int, memory: Carry, data: Private, gate: ServerOutlet) -> tuple[Carry, dict[str, Array]]:
        sites = gate.over(self._names(len(data["count"]) // len(self.sensitivities)))
        fresh, sent = self.job.method.local(memory, {}, data, sites)
        after = {**memory, **fresh}
        return after, values(sent) | _delivered(self.job.method, after, data, sites)


Stage = SiloStage | RegionStage


def at_scene(stage: Stage, scene: Scene) -> Stage:
    return replace(stage, canary=scene.canary, tables=scene.tables, company=scene.company, scenes=())


def _tellers(size: int, honest: int, victim: int) -> list[int]:
    """Who tells what noise it drew: the last of all but those whose noise is counted on, among them the victim."""
    return [k for k in range(size) if k != victim][honest - 1 :]


def _delivered(method: Method, carry: Carry, data: Private, gate: Outlet) -> dict[str, Array]:
    """What silos hand over at the end."""
    return _named("delivered", values(method.deliver(carry, data, gate)))


def _named(kind: str, message: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{kind}: {name}": value for name, value in message.items()}


def _apart(trials: int, size: int) -> Topology:
    """Servers with agents of their own. A topology must hang together; trials must not, so the links are taken off."""
    names = tuple(trial_names(trials))
    home = np.repeat(np.arange(trials), size)
    topo = Topology(
        tuple(f"{names[p]}/{k:05d}" for p in range(trials) for k in range(size)),
        names,
        home,
        np.full((trials, trials), 1.0 / trials),
    )
    object.__setattr__(topo, "mixing", np.eye(trials))
    return topo


#: Names of trials are sites' names, as far as noise can tell. They are alike in all but the middle, so that noise which
#: is named by a part of a name comes more than once.
_HEAD, _TAIL = "the trial of an audit " * 12, " of many that look alike" * 12


def trial_names(trials: int) -> list[str]:
    return [f"{_HEAD}{k:06d}{_TAIL}" for k in range(trials)]
