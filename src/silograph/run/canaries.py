"""What an audit puts into the tables: canaries, the worst records for each method, from the geometry of its clip.

They are longer than any clip, so that one that is missing shows, and lie across all coordinates, so that a clip by
another norm does. Their neighbours are silent, or what `scenes` makes of them.

What is played with them is a stage (`stages`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.silos import People
from silograph.families.clusters.job import ClusteredJob
from silograph.families.federation.job import FederationJob
from silograph.families.graphs.job import GraphJob
from silograph.families.meta.job import MetaJob
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.base import Private, begin, take
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.finding import FoundClusters
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.attacks.search import worst_swap
from silograph.privacy.bound import Bounded
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.gate import relay
from silograph.privacy.masking import Masks, counted_on
from silograph.run.jobs import Job
from silograph.run.network_canaries import stages_of_networks
from silograph.run.scenes import DIVIDED, LOUD, QUIET, divided, flat_basis
from silograph.run.stages import Bits, Scene, SharedNoiseStage, SiloStage, Stage, Tables, UnitStage
from silograph.tasks.clustered import Proximal
from silograph.tasks.linear import Linear
from silograph.tasks.smooth_graph import SmoothGraph, centred_basis

_SEARCH = 40
_SEVERAL = 5  # signals of a person
_MOST_CANARIES = 4000  # of one site in a single run
_NUMBERS = 4_000_000  # that say how each of its different canaries moves what is released


def stages_of(job: Job, many: bool = False) -> tuple[Stage, ...]:
    """Where the plan's promise can be attacked, each with the worst canary that its clip allows. The site with the
    fewest records is attacked, or for `many` canaries a typical one: as many like it have as many records as the plan.
    """
    if isinstance(job, GraphJob):
        return (_of_graphs(job, many),)
    if isinstance(job, MetaJob):
        return stages_of_networks(job)
    if isinstance(job, ClusteredJob) and job.plan.protect == "records":
        return (_of_clients(job, many),)
    if isinstance(job, FederationJob | ClusteredJob):
        return (_of_units(job),)
    raise InputError("audit", "a plan of a method that can be audited", f"{type(job).__name__} came")


def _with_tellers(words: str, size: int, honest: int) -> str:
    return f"{words}; {size - honest} of {size} tell what noise they drew"


def _by_pattern(bits: Bits, prepare: Callable[[Bits], Private]) -> Private:
    """Tables with the same bits are the same: each is prepared once."""
    patterns, place = np.unique(bits, axis=0, return_inverse=True)
    return take(prepare(patterns), place.ravel())


# ---- graphs ----------------------------------------------------------------------------------------------------------


def _of_graphs(job: GraphJob, many: bool) -> Stage:
    task, method, nodes = job.setup.task, job.method, job.setup.task.nodes
    victim = _nearest(job.setup.counts, many)[0]
    count = job.setup.counts[victim]
    rounds = range(method.rounds) if isinstance(method, PaperConsensus) else range(1)
    large, across = 1e3 * task.radius, centred_basis(nodes) @ flat_basis(nodes - 1)
    if task.statistic == "moment" or job.mechanism is None:
        # Of orthonormal a and b, a + b and a - b: their outer products are as far apart as the clip allows, and differ
        # by 2(ab' + ba'), which is at right angles to that of any other two.
        different = min(count, max(1, _NUMBERS // task.moment_size))
        two = islice(((i, j) for j in range(nodes - 1) for i in range(j)), different)
        pairs = [(large * (across[:, i] + across[:, j]), large * (across[:, i] - across[:, j])) for i, j in two]
        words = "two signals longer than the clip at right angles, all other signals zero"
    elif task.statistic == "clipped-distances":
        # All of a node against all of another: their squared differences share one pair of d - 1.
        pairs = [(large * np.eye(nodes)[k], large * np.eye(nodes)[k + 1]) for k in range(0, nodes - 1, 2)]
        words = "a signal at one node alone against one at another, all other signals zero"
    else:
        pairs = [_searched_signals(job, victim, count)]
        words = "the pair of signals that a search found to move the release furthest, all other signals zero"
    pairs = (pairs or [(across[:, 0], np.zeros(nodes))])[:count]
    room = sum(job.setup.counts) if isinstance(method, SummedConsensus) else count  # all sites are in one sum
    distinct, most = len(pairs), min(room, _MOST_CANARIES)
    pairs = [pairs[k % distinct] for k in range(most)]

    def made_of(neighbours: Array, pairs: Sequence[tuple[Array, Array]]) -> Tables:
        def prepared(bits: Bits) -> Private:
            made = []
            for pattern in bits:
                signals = neighbours.copy()
                for k, with_it in enumerate(pattern):
                    signals[k] = pairs[k][int(with_it)]
                made.append(task.prepare(signals if task.person is None else _several_each(signals)))
            return {name: np.stack([part[name] for part in made]) for name in made[0]}

        return partial(_by_pattern, prepare=prepared)

    def among_sites(neighbours: Array, own: Sequence[tuple[Array, Array]]) -> Tables:
        """The victim's tables, among those of other sites where these are in the same sum or share noise."""
        tables, counts = made_of(neighbours, own), job.setup.counts
        if not isinstance(method, SummedConsensus) and not isinstance(job.mechanism, CorrelatedGaussian):
            return tables
        sites, first = {victim: tables}, counts[victim]  # who has which of the canaries: the victim the first ones
        for site, n in enumerate(counts):
            if site != victim:
                sites[site] = made_of(np.zeros((n, nodes)), [pairs[(first + k) % distinct] for k in range(n)])
                first += n
        return _joined(sites, counts)

    # At the clip, one way and the other: signals that differ in nothing but their sign say the same.
    voice = across[:, 0] * (_reach(task) if task.statistic == "clipped-distances" else task.radius)
    scenes = [
        Scene(
            f"a signal longer than the clip, or none; {LOUD}",
            among_sites(np.tile(voice, (count, 1)), [(0 * voice, pairs[0][0])]),
        ),
        Scene(
            f"a signal at the clip, or all but none; {DIVIDED}",
            among_sites(divided(count)[:, None] * voice, [(QUIET * voice, voice)]),
        ),
    ]
    tables = among_sites(np.zeros((count, nodes)), pairs)
    start = begin(method, job.topo)
    if isinstance(method, SummedConsensus):
        size = len(method.counts)
        told = partial(_with_tellers, size=size, honest=counted_on(size))
        site = job.topo.silos[victim]
        stage: Stage = UnitStage(
            job, method, site, size, words, (0,), most, tables, Masks("skipped"), victim=victim, distinct=distinct
        )
    elif isinstance(job.mechanism, CorrelatedGaussian):
        moves = tuple(task.longest_term / n for n in job.setup.counts)
        told = partial(_with_tellers, size=len(moves), honest=job.mechanism.honest)
        stage = SharedNoiseStage(job, victim, words, (0,), most, tables, start, sensitivities=moves, distinct=distinct)
    else:
        return SiloStage(
            job, victim, words, tuple(rounds), most, tables, start, distinct=distinct, scenes=tuple(scenes)
        )
    scenes = [replace(scene, canary=told(scene.canary)) for scene in scenes]
    return replace(stage, canary=told(words), scenes=tuple(scenes))


def _nearest(counts: Sequence[int], typical: bool) -> list[int]:
    """Sites by how near their number of records is to the least, or to the median."""
    goal = float(np.median(counts)) if typical else 0.0
    return sorted(range(len(counts)), key=lambda site: abs(counts[site] - goal))


def _reach(task: SmoothGraph) -> float:
    """The length of a signal across all nodes whose squared differences are as long as the clip."""
    a, b = np.triu_indices(task.nodes, 1)
    way = (centred_basis(task.nodes) @ flat_basis(task.nodes - 1))[:, 0]
    return math.sqrt(task.radius / float(np.linalg.norm((way[a] - way[b]) ** 2)))


def _joined(sites: Mapping[int, Tables], counts: Sequence[int]) -> Tables:
    """The tables of all sites, one after the other; each has as many of the canaries as it has room for, in turn, and
    is silent otherwise."""

    def joined(bits: Bits) -> Private:
        made, left = dict[int, Private](), bits
        for site, tables in sites.items():
            made[site], left = tables(left[:, : counts[site]]), left[:, counts[site] :]
        parts = [made[site] for site in range(len(counts))]
        return {
            name: np.stack([part[name] for part in parts], 1).reshape(-1, *value.shape[1:])
            for name, value in parts[0].items()
        }

    return joined


def _several_each(signals: Array) -> People:
    """Persons who have the same signal several times: where a person counted as often as that, it would show."""
    return People(np.repeat(signals, _SEVERAL, 0), np.repeat(np.arange(len(signals)), _SEVERAL))


def _searched_signals(job: GraphJob, victim: int, count: int) -> tuple[Array, Array]:
    """For S0's Theorem 2, whose steps clip gradients: a gradient-free search over pairs of signals."""
    state, nodes = begin(job.method, job.topo), job.setup.task.nodes
    alone = np.array([victim])
    carry, down = take(state.carry, alone), {name: value.rows(alone) for name, value in state.down.items()}

    def released(signal: Array) -> list[Bounded]:
        table = np.zeros((count, nodes))
        table[0] = np.clip(signal, -1e60, 1e60)
        keeper = Keeper()
        data = {name: value[None] for name, value in job.setup.task.prepare(table).items()}
        job.method.local(carry, down, data, keeper)
        return keeper.kept

    seeds = [(np.zeros(nodes), 1e3 * np.eye(nodes)[0]), (1e3 * np.eye(nodes)[0], 1e3 * np.eye(nodes)[1])]
    found = worst_swap(released, nodes, np.random.default_rng(0), _SEARCH, _SEARCH, seeds)
    return tuple(np.clip(signal, -1e60, 1e60) for signal in (found.one, found.other))  # type: ignore[return-value]


class Keeper:
    """In the place of a gate: keeps what would be released, and lets it through as it is. For searches, in memory."""

    def __init__(self) -> None:
        self.kept: list[Bounded] = []

    def rows(self, index: Any) -> Keeper:
        return self

    def over(self, names: Any) -> Keeper:
        return self

    def release(self, bounded: Bounded, site: str, batch: Any = None, share: float = 1.0) -> Any:
        self.kept.append(bounded)
        return relay(bounded.value)

    def contribute(self, value: Array | Bounded, site: str, clip: float | None = None) -> Any:
        if not isinstance(value, Bounded):
            raise InputError("search", "a bounded value", "a whole vector came")
        return self.release(value, site)

    def __getattr__(self, name: str) -> Any:
        raise InputError("search", "a release", f"the method asked the gate for {name}")


# ---- a client's records ----------------------------------------------------------------------------------------------


def _of_clients(job: ClusteredJob, many: bool) -> Stage:
    inner, task = job.inner, job.task
    servers = inner.start(job.topo).servers
    took: list[list[int]] = [[] for _ in job.topo.silos]
    first = int(isinstance(job.method, FoundClusters))
    for number in range(inner.rounds):
        rows = inner.asked({**servers, "round": np.int64(number)}, job.topo)
        for k in range(len(took)) if rows is None else rows:
            took[k].append(number + first)
    of = dict(zip(job.tables.agents, (len(y) for _, y in job.tables.records), strict=True))
    counts = [of[silo] for silo in job.topo.silos]
    victim = max(_nearest(counts, many), key=lambda site: len(took[site]))
    count, rounds = counts[victim], [0] * first + took[victim]
    features, intercept = task.features - job.plan.method.intercept, job.plan.method.intercept
    loud = 1e6 * flat_basis(features)
    answer = 1.0 if task.loss == "logistic" else 1e12

    def made_of(neighbours: Array, answers: Array, pairs: Sequence[tuple[Record, Record]]) -> Tables:
        def prepared(bits: Bits) -> Private:
            tables = []
            for pattern in bits:
                x, y = neighbours.copy(), answers.copy()
                for k, with_it in enumerate(pattern):
                    x[k], y[k] = pairs[k][int(with_it)]
                tables.append((with_one(x, intercept), y))
            return task.prepare_all(tables)

        return partial(_by_pattern, prepare=prepared)

    pairs = [((loud[:, k % features], -answer), (loud[:, k % features], answer)) for k in range(count)]
    silent = np.zeros(features), 0.0 if task.loss != "logistic" else -1.0
    voice = 1e-6 * loud[:, -1] * _length_of(task)
    quiet, size = (QUIET * voice, answer if task.loss == "logistic" else QUIET * answer), divided(count)
    scenes = (
        Scene(
            f"a record whose gradient is clipped to its whole length, or a silent one; {LOUD}",
            made_of(np.tile(voice, (count, 1)), np.full(count, answer), [(silent, (loud[:, 0], answer))]),
        ),
        Scene(
            f"a record at the clip, or all but none; {DIVIDED}",
            made_of(np.outer(size, voice), np.where(size == 1.0, answer, quiet[1]), [(quiet, (voice, answer))]),
        ),
    )
    words = "a record whose gradient is clipped to its whole length, against the opposite one; all other records silent"
    tables = made_of(np.zeros((count, features)), np.full(count, silent[1]), pairs)
    start = begin(job.method, job.topo)
    return SiloStage(job, victim, words, tuple(rounds), count, tables, start, distinct=features, scenes=scenes)


Record = tuple[Array, float]


def _length_of(task: Linear) -> float:
    """Of features that a clip of theirs just leaves as they are; where gradients are clipped, they may have any."""
    return (task.radius or 1.0) if isinstance(task, Proximal) else 1.0


def _step(method: GraphFederation | ClusteredADMM) -> float:
    return method.step if isinstance(method, GraphFederation) else 1.0


def with_one(x: Array, intercept: bool) -> Array:
    return np.column_stack([x, np.ones(len(x))]) if intercept else x


# ---- whole agents ----------------------------------------------------------------------------------------------------


def _of_units(job: FederationJob | ClusteredJob) -> Stage:
    """A trial is a server with as few agents as the plan has anywhere, all silent but the canaries."""
    method, chosen, topo = job.inner if isinstance(job, ClusteredJob) else job.method, job.plan.method, job.topo
    task = method.task
    assert isinstance(task, Linear), "agents have linear models"
    features, loss = task.features - chosen.intercept, task.loss
    sizes = topo.sizes if isinstance(job, FederationJob) else np.bincount(method.start(topo).servers["cell"])
    least = int(sizes[sizes >= (1 if job.masks is None else job.masks.minimum)].min())
    least = least if chosen.sample is None else min(chosen.sample, least)
    length = 1e3 if loss == "logistic" else 1.0
    if loss == "logistic" and isinstance(method, GraphFederation):
        # Long enough for the clip in one local step, and not so long that the loss is flat after it.
        length = 4.0 * method.epochs[1] * (method.clip or 1.0) / method.step
    loud = flat_basis(features)
    yes, no = (1.0, -1.0) if loss == "logistic" else (1e8, -1e8)
    silent = np.zeros(features), -1.0 if loss == "logistic" else 0.0

    def made_of(neighbours: Sequence[Record], pairs: Sequence[tuple[Record, Record]]) -> Tables:
        """Agents of one record each."""
        kinds = [*neighbours, *(record for pair in pairs for record in pair)]
        prepared = task.prepare_all([(with_one(x[None], chosen.intercept), np.full(1, y)) for x, y in kinds])

        def tables(bits: Bits) -> Private:
            which = np.tile(np.arange(least), (len(bits), 1))
            which[:, : bits.shape[1]] = least + 2 * np.arange(bits.shape[1]) + bits
            return take(prepared, which.ravel())

        return tables

    pairs = [((length * loud[:, k % features], no), (length * loud[:, k % features], yes)) for k in range(least)]
    clipped = pairs[-1][1]
    # Of a linear gradient the answer says how long it is; a logistic one with an intercept is never short.
    quiet = (
        QUIET * clipped[0],
        yes if loss == "logistic" else 0.25 * QUIET * (method.clip or 1.0) / max(1.0, _step(method)),
    )
    words = f"one agent of {least} whose update is as long as the clip, against the opposite one; all others silent"
    alone = f"one agent of {least} whose update is as long as the clip, or all but nothing"
    scenes: tuple[Scene, ...] = (
        Scene(f"{alone}; {LOUD}", made_of([clipped] * least, [(silent, pairs[0][1])])),
        Scene(
            f"{alone}; {DIVIDED}",
            made_of([clipped if loud else quiet for loud in divided(least) == 1.0], [(quiet, clipped)]),
        ),
    )
    if job.masks is not None and job.mechanism is not None:
        told = partial(_with_tellers, size=least, honest=counted_on(least))
        words, scenes = told(words), tuple(replace(scene, canary=told(scene.canary)) for scene in scenes)
    # The secure sum gives the same bits with and without its messages; thousands of trials go without.
    masks = None if job.masks is None else Masks("skipped", job.masks.minimum)
    site = topo.servers[int(topo.sizes.argmin())]
    tables, rounds = made_of([silent] * least, pairs), tuple(range(method.rounds))
    return UnitStage(job, method, site, least, words, rounds, least, tables, masks, distinct=features, scenes=scenes)
