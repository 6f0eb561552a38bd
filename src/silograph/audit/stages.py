"""Stages of an audit: the part of a plan that releases something about one protected unit, in many trials at once.

A stage is the plan's own method; everything else favours the attacker: all other records are silent (or as its scenes
set them), a server answers every round as suits it, and of sites that protect each other by their noise those not
counted on reveal theirs. `tables` makes the data of n trials, each with its own bits: canary k in or out, or, if a
record is replaced, one of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from silograph.methods.unlike_sites import UnlikeReleases, UnlikeSum
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
#: From a trial's last message to minus the canary's loss under it, one number per trial.
Loss = Callable[[Mapping[str, Array]], Array]


@dataclass(frozen=True, eq=False)
class Scene:
    """Other neighbours of a canary, and so another canary: some neighbours show what a statistic of all records
    does."""

    canary: str
    tables: Tables
    company: int = 0


@dataclass(frozen=True, eq=False)
class Drawn:
    """The places where noise was drawn in a round of all trials, the releases there, and their sums, if any."""

    root: int
    round: int
    release_point: str
    observed: Array
    sums: Sequence[MaskedSum]


@dataclass(frozen=True, eq=False)
class Noises:
    """The noise that others reveal in all trials, in the rows of the observations, and the draw of each site of the
    first."""

    revealed: Array
    each: Sequence[Array]


@dataclass(frozen=True, eq=False)
class SiloStage:
    """One silo with protected records, and a server that answers every round as it did the first.

    `rounds` are those it takes part in; there is room for `most` canaries, which repeat after `distinct` ones. If
    records are sampled, canaries are the first of their `part`, followed by so many records, their `company`. `scenes`
    are the same with other neighbours.
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
        """The number of sites that draw noise in a trial."""
        return 1

    def mechanism(self, trials: int) -> Noise | None:
        return self.job.mechanism

    def about(self, row: Row) -> bool:
        """Whether a ledger row is about data that include the canary."""
        return True

    def view(self, values: Array) -> Array:
        """The attacker's view of a release, a row for each trial."""
        return values

    def noises(self, drawn: Drawn) -> Noises | None:
        """The noise that each of several sites adds to a sum, and the part that an attacker learns."""
        return None

    def begin(self, trials: int) -> Carry:
        return take(self.state.carry, np.full(trials, self.victim))

    def step(self, round: int, memory: Carry, data: Private, gate: ServerOutlet) -> tuple[Carry, dict[str, Array]]:
        """Play one round of all trials; return what each remembers, and what anybody could read."""
        trials = np.full(len(next(iter(data.values()))), self.victim)
        down: Message = {name: value.rows(trials) for name, value in self.state.down.items()}
        if "finding" in down and round:  # clusters are found in the first round
            down["finding"] = relay(np.zeros_like(down["finding"].value))
        if "stage" in down:  # of successive releases, one per round
            down["stage"] = relay(np.full_like(down["stage"].value, round))
        fresh, sent = self.job.method.local(memory, down, data, gate)
        after = {**memory, **fresh}
        last = round == self.rounds[-1]
        return after, values(sent) | (_delivered(self.job.method, after, data, gate) if last else {})


Summing = GraphFederation | Calibrated | ClusteredADMM | SummedConsensus | MomentsSummed | SummedVotes | ScaledFirst


def _as_often(method: Any, trials: int) -> Any:
    """Make the same method with every site so many times."""
    lacks: dict[str, Any] = {"lacks": method.lacks * trials} if isinstance(method, UnlikeReleases | UnlikeSum) else {}
    return replace(method, counts=method.counts * trials, **lacks)


@dataclass(frozen=True, eq=False)
class RegionStage:
    """One server with `size` agents, each protected as a whole; no trial hears of another. With `honest` all agents but
    so many reveal their noise, instead of only those not counted on."""

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
    victim: int | None = None  # its records are protected, if not whole agents
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
        """The noises of a sum with the agents' own noise: agents not counted on reveal theirs, and it is subtracted
        from the sum."""
        if not drawn.sums:
            return None
        first = drawn.sums[0]
        tellers = _tellers(self.size, self.honest or first.cohort.contributors, self.victim or 0)
        nothing = np.zeros(first.length)
        told = [sum((asked.noise_of(drawn.root, asked.members[k]) for k in tellers), nothing) for asked in drawn.sums]
        each = [first.noise_of(drawn.root, name) for name in first.members]
        if first.cohort.laplace:  # most shares are zero or next to it, and so alike; all of them never are
            large = 1e-3 * first.cohort.charged
            each = [noise for noise in each if abs(noise[0]) > large] or [noise for noise in each if not noise.any()]
        return Noises(np.stack(told), each)

    def _method(self, trials: int) -> Summing:
        if isinstance(self.method, ScaledFirst):
            return replace(self.method, inner=_as_often(self.method.inner, trials))
        if isinstance(self.method, SummedConsensus | MomentsSummed | SummedVotes):
            summing: Summing = _as_often(self.method, trials)
            return summing
        if isinstance(self.method, GraphFederation):
            return replace(self.method, sample=None, reach="region")
        if isinstance(self.method, Calibrated):
            counts = None if self.method.counts is None else self.method.counts[:1] * (trials * self.size)
            groups = tuple(np.repeat(np.arange(trials), self.size).tolist())
            return replace(self.method, groups=groups, counts=counts, named=False, separate=True)
        # Borrowing between clusters is computed from releases: here there is one cluster.
        return replace(self.method, sample=None, clusters=(0,) * (trials * self.size), tau=0.0, reach="region")

    def begin(self, trials: int) -> Carry:
        topo, method = _apart(trials, self.size), self._method(trials)
        state = begin(method, topo)
        return {"carry": state.carry, "servers": state.servers, "down": state.down, "method": method, "topo": topo}

    def step(self, round: int, memory: Carry, data: Private, gate: ServerOutlet) -> tuple[Carry, dict[str, Array]]:
        """Play one round of all trials. A sum hides sealed values; anybody could read what agents send besides."""
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
    """The victim among all sites of the plan, which share noise with it. All releases are seen, and reveal a part of
    its noise; sites not counted on reveal theirs, and what they share with others."""

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
        """The noise that a site shares with those that reveal theirs: what it adds among them, less what it adds
        alone."""
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
    """The sites that reveal their noise: the last ones; the others, with the victim, are counted on."""
    return [k for k in range(size) if k != victim][honest - 1 :]


def _delivered(method: Method, carry: Carry, data: Private, gate: Outlet) -> dict[str, Array]:
    """The results that silos hand over at the end."""
    return _named("delivered", values(method.deliver(carry, data, gate)))


def _named(kind: str, message: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{kind}: {name}": value for name, value in message.items()}


def _apart(trials: int, size: int) -> Topology:
    """Servers with their own agents. A topology must be connected; trials must not be, so the links are removed."""
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


#: For the noise, names of trials are names of sites. They differ only in the middle, so that noise named by a part of a
#: name occurs more than once.
_HEAD, _TAIL = "the trial of an audit " * 12, " of many that look alike" * 12


def trial_names(trials: int) -> list[str]:
    return [f"{_HEAD}{k:06d}{_TAIL}" for k in range(trials)]
