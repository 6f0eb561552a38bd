"""The worst signals for an audit of graphs, from the geometry of the clip.

They are longer than any clip, so that one that is missing shows, and lie across all coordinates, so that a clip by
another norm does. Their neighbours are silent, or what `scenes` makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from silograph.audit.exposure import Listener, found, off_by
from silograph.audit.scenes import DIVIDED, LOUD, QUIET, by_pattern, divided, flat_basis, joined, nearest, with_tellers
from silograph.audit.stages import Bits, RegionStage, Scene, SharedNoiseStage, SiloStage, Stage, Tables
from silograph.audit.worlds import Worlds, as_csv, fewest
from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.data.silos import People
from silograph.deploy.public_facts import Facts, Holding
from silograph.families.graphs import canary_votes
from silograph.families.graphs.job import GraphJob
from silograph.kernels.descent import extrapolate
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.base import Private, begin, take
from silograph.methods.choosing import LOG_BETA
from silograph.methods.consensus_graph import BETA, ExactConsensus
from silograph.methods.moments_once import MomentsOnce, MomentsSummed
from silograph.methods.private_scale import ScaledFirst
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.attacks.graphs import distances_of_graph, distances_of_step
from silograph.privacy.attacks.search import worst_swap
from silograph.privacy.bound import Bounded
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.masking import Masks, counted_on
from silograph.privacy.relay import relay
from silograph.tasks.person_votes import PersonVotes
from silograph.tasks.smooth_graph import SmoothGraph

_SEARCH = 40
_OTHER_CELLS = 2.0**5  # how many times longer a signal is whose values are to be counted elsewhere
_SEVERAL = 5  # signals of a person
_MOST_CANARIES = 4000  # of one site in a single run
_APART = 20  # rows for each canary, where rows are compared
_ROWS_HELD = 20_000_000  # numbers of rows in all trials of a world
_NUMBERS = 4_000_000  # that say how each of its different canaries moves what is released


def stages(job: GraphJob, many: bool) -> tuple[Stage, ...]:
    if isinstance(job.setup.task, PersonVotes):
        return (canary_votes.stage(job, job.setup.task, many),)
    return (_of_graphs(job, job.setup.task, many),)


def exposed(job: GraphJob, own: bool, root: int) -> list[Json]:
    method = job.method
    if isinstance(method, ExactConsensus):
        return [_inverted_graph(job, method, root)]
    if isinstance(method, PaperConsensus) and method.local_steps == 1:
        return [_inverted_step(job, method, root)]
    if isinstance(method, MomentsOnce):
        return [found("a site's statistics", "read as they are", 0.0, "every site's second moments lie open")]
    if isinstance(method, MomentsSummed):
        words = "the sum of all sites' correlations lies open; all sites but one together know the last one's"
        return [found("the sites' statistics together", "read as they are", 0.0, words)]
    return []


def worlds(job: GraphJob, facts: Facts) -> Worlds:
    (holding, _), task, nodes = fewest(facts), job.setup.task, len(facts.columns)
    if isinstance(task, PersonVotes):
        return canary_votes.worlds(job, task, facts)
    gone = _lacked(holding, facts)
    large, back = 1e3 * task.radius, task.back if not gone else task.back[:, task.coordinates_of(gone)]
    pair = (large * back[:, 0], large * back[:, 1])
    words = "two signals at right angles, longer than the clip; all other signals are zero"
    if isinstance(job.method, PaperConsensus) or task.statistic == "clipped-distances":
        pair = (large * np.eye(nodes)[0], large * np.eye(nodes)[1])
        words = "a signal at one node alone against one at another; all other signals are zero"

    lacked = {each.organisation: _lacked(each, facts) for each in facts.holdings}

    def table(organisation: str, first: Array) -> bytes:
        count = next(h.records[0] for h in facts.holdings if h.organisation == organisation and h.records)
        signals = np.zeros((count, nodes))
        signals[0] = first
        own = [k for k in range(nodes) if k not in lacked[organisation]]
        return _signals(job, [facts.columns[k] for k in own], signals[:, own])

    tables = (
        table(holding.organisation, pair[0]),
        table(holding.organisation, pair[1]),
        table(holding.organisation, np.zeros(nodes)),
    )
    return Worlds(
        holding.organisation, holding.silos[0], words, tables, lambda organisation: table(organisation, np.zeros(nodes))
    )


def _lacked(holding: Holding, facts: Facts) -> set[int]:
    """Where the columns that an organisation lacks are among all."""
    gone = holding.lacks or ()
    return {k for k, name in enumerate(facts.columns) if name in gone}


def _signals(job: GraphJob, nodes: Sequence[str], signals: Array) -> bytes:
    data, rows = job.plan.data, signals.tolist()
    if data.unit_column is not None:
        return as_csv([data.unit_column, *nodes], [[f"p{k:06d}", *row] for k, row in enumerate(rows)])
    if data.nodes_in == "rows":
        return as_csv(
            ["node", *(f"s{k}" for k in range(len(rows)))],
            [[n, *v] for n, v in zip(nodes, signals.T.tolist(), strict=True)],
        )
    return as_csv(nodes, rows)


def _of_graphs(job: GraphJob, task: SmoothGraph, many: bool) -> Stage:
    method, learning, nodes = job.method, job.setup.learning, task.nodes
    scaled = isinstance(method, ScaledFirst)
    victim = nearest(job.setup.counts, many)[0]
    count = job.setup.counts[victim]
    rounds = range(method.rounds) if isinstance(method, PaperConsensus) else range(3 if scaled else 1)
    large, across = 1e3 * task.radius, task.back @ flat_basis(task.dimensions)
    if task.statistic == "moment" or job.mechanism is None:
        # Of orthonormal a and b, a + b and a - b: their outer products are as far apart as the clip allows, and differ
        # by 2(ab' + ba'), which is at right angles to that of any other two.
        different = min(count, max(1, _NUMBERS // task.moment_size))
        two = islice(((i, j) for j in range(task.dimensions) for i in range(j)), different)
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
    if scaled:  # as far beyond the clip, but in other cells of every column
        pairs = [(one, _OTHER_CELLS * other) for one, other in pairs]
    room = (
        sum(job.setup.counts) if isinstance(learning, SummedConsensus | MomentsSummed) else count
    )  # all sites are in one sum
    if scaled:  # rows are compared in pairs: few enough canaries that hardly two of them meet
        room = max(1, room // _APART)
    distinct, most = len(pairs), min(room, _MOST_CANARIES)
    fits = max(1, _ROWS_HELD // (nodes * _APART * room)) if scaled else None  # a trial keeps all rows of its sites
    pairs = [pairs[k % distinct] for k in range(most)]

    def made_of(neighbours: Array, pairs: Sequence[tuple[Array, Array]]) -> Tables:
        def prepared(bits: Bits) -> Private:
            made = []
            for pattern in bits:
                signals = neighbours.copy()
                for k, with_it in enumerate(pattern):
                    signals[k] = pairs[k][int(with_it)]
                prepare = method.raw.prepare if isinstance(method, ScaledFirst) else task.prepare
                made.append(prepare(signals if task.person is None else _several_each(signals)))
            return {name: np.stack([part[name] for part in made]) for name in made[0]}

        return partial(by_pattern, prepare=prepared)

    def among_sites(neighbours: Array, own: Sequence[tuple[Array, Array]]) -> Tables:
        """The victim's tables, among those of other sites where these are in the same sum or share noise."""
        tables, counts = made_of(neighbours, own), job.setup.counts
        if not isinstance(learning, SummedConsensus | MomentsSummed) and not isinstance(
            job.mechanism, CorrelatedGaussian
        ):
            return tables
        sites, first = {victim: tables}, counts[victim]  # who has which of the canaries: the victim the first ones
        for site, n in enumerate(counts):
            if site != victim:
                sites[site] = made_of(np.zeros((n, nodes)), [pairs[(first + k) % distinct] for k in range(n)])
                first += n
        return joined(sites, counts)

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
    if isinstance(method, SummedConsensus | MomentsSummed) or (
        isinstance(method, ScaledFirst) and isinstance(learning, SummedConsensus)
    ):
        size = len(method.counts)
        told = partial(with_tellers, size=size, honest=counted_on(size))
        site = job.topo.silos[victim]
        stage: Stage = RegionStage(
            job,
            method,
            site,
            size,
            words,
            tuple(rounds),
            most,
            tables,
            Masks("skipped"),
            victim=victim,
            distinct=distinct,
        )
    elif isinstance(job.mechanism, CorrelatedGaussian):
        moves = tuple(task.longest_term / n for n in job.setup.counts)
        told = partial(with_tellers, size=len(moves), honest=job.mechanism.honest)
        stage = SharedNoiseStage(job, victim, words, (0,), most, tables, start, sensitivities=moves, distinct=distinct)
    else:
        return SiloStage(
            job,
            victim,
            words,
            tuple(rounds),
            most,
            tables,
            start,
            distinct=distinct,
            scenes=tuple(scenes),
            most_trials=fits,
        )
    scenes = [replace(scene, canary=told(scene.canary)) for scene in scenes]
    return replace(stage, canary=told(words), scenes=tuple(scenes), most_trials=fits)


def _reach(task: SmoothGraph) -> float:
    """The length of a signal across all nodes whose squared differences are as long as the clip."""
    a, b = np.triu_indices(task.nodes, 1)
    way = (task.back @ flat_basis(task.dimensions))[:, 0]
    return math.sqrt(task.radius / float(np.linalg.norm((way[a] - way[b]) ** 2)))


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

    def release(self, bounded: Bounded, release_point: str, batch: Any = None, share: float = 1.0) -> Any:
        self.kept.append(bounded)
        return relay(bounded.value)

    def contribute(
        self,
        value: Array | Bounded,
        release_point: str,
        clip: float | None = None,
        share: float = 1.0,
        joined: bool = False,
    ) -> Any:
        if not isinstance(value, Bounded):
            raise InputError("search", "a bounded value", "found a whole vector")
        return self.release(value, release_point)

    def __getattr__(self, name: str) -> Any:
        raise InputError("search", "a release", f"the method asked the gate for {name}")


def _inverted_graph(job: GraphJob, method: ExactConsensus, root: int) -> Json:
    """The first upload is the silo's own graph: on its edges the signals' mean squared differences follow."""
    listener = Listener(job, root)
    listener.listen()
    assert not isinstance(listener.data, dict)
    w, facts, truth = listener.value("vector"), listener.value("facts"), [part["zbar"] for part in listener.data]
    shares, errors = [], []
    for graph, fact, zbar in zip(w, facts, truth, strict=True):
        guess, exact = distances_of_graph(graph, method.alpha, math.exp(fact[LOG_BETA]), method.zeta)
        shares.append(float(exact.mean()))
        errors.append(off_by(guess[exact], zbar[exact]))
    words = (
        f"from its first upload alone, {100 * np.mean(shares):.0f} % of a site's mean squared differences of two nodes "
        f"are known to {max(errors):.0e} of their size, and a lower bound on each of the others"
    )
    return found("a site's statistics", "exact inversion of the uploaded graph", max(errors), words)


def _inverted_step(job: GraphJob, method: PaperConsensus, root: int) -> Json:
    """Two uploads in a row give the gradient between them, and so zbar."""
    listener = Listener(job, root)
    assert not isinstance(listener.data, dict)
    truth = np.array([part["zbar"] for part in listener.data])
    known, guess = np.zeros(truth.shape, dtype=np.bool_), np.zeros(truth.shape)
    before: list[Array] = []
    for _ in range(method.rounds):
        down, knobs = listener.state.down, listener.state.servers["knobs"]
        listener.listen()
        if "vector" not in listener.up:
            continue
        w = listener.value("vector")
        last = before[-1] if before else np.full_like(w, 1.0 / (method.nodes - 1))
        ahead = extrapolate(
            last, before[-2] if len(before) > 1 else np.full_like(w, 1.0 / (method.nodes - 1)), method.momentum
        )
        for k in range(len(w)):
            anchor, pull = down["consensus"].value[k], float(down["pull"].value[k])
            shape = (method.step, method.alpha, float(knobs[BETA]), method.zeta)
            distances, exact = distances_of_step(ahead[k], w[k], anchor, pull, *shape)
            fresh = exact & ~known[k]
            guess[k, fresh], known[k, fresh] = distances[fresh], True
        before.append(w)
    error = off_by(guess[known], truth[known])
    words = f"{100 * known.mean():.0f} % of the sites' mean squared differences are known to {error:.0e} of their size"
    return found("a site's statistics", "exact inversion of the gradient between two uploads", error, words)
