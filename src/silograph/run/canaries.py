"""What an audit puts into the tables: canaries, the worst records for each method, from the geometry of its clip.

They are longer than any clip, so that one that is missing shows. What is played with them is a stage (`stages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from silograph.methods.finding import FoundClusters
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.private_meta import QUERY, SUPPORT
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.attacks.search import worst_swap
from silograph.privacy.bound import Bounded
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.gate import relay
from silograph.privacy.masking import Masks, counted_on
from silograph.run.jobs import Job
from silograph.run.stages import Bits, SharedNoiseStage, SiloStage, Stage, Tables, UnitStage
from silograph.tasks.linear import Linear
from silograph.tasks.smooth_graph import centred_basis

_CANDIDATES = 16  # records of the client itself that are tried as canaries
_SCALES = (1.0, 3.0, 10.0, 30.0, 100.0, 1e3, 1e4)  # and how large
_MODELS = 8  # at which they are tried
_SEARCH = 40
_SEVERAL = 5  # signals of a person


def stages_of(job: Job) -> tuple[Stage, ...]:
    """Where the plan's promise can be attacked, each with the worst canary that its clip allows."""
    if isinstance(job, GraphJob):
        return (_of_graphs(job),)
    if isinstance(job, MetaJob):
        return _of_meta(job)
    if isinstance(job, ClusteredJob) and job.plan.protect == "records":
        return (_of_clients(job),)
    if isinstance(job, FederationJob | ClusteredJob):
        return (_of_units(job),)
    raise InputError("audit", "a plan of a method that can be audited", f"{type(job).__name__} came")


def _with_tellers(words: str, size: int, honest: int) -> str:
    return f"{words}; {size - honest} of {size} tell what noise they drew"


def _one_silo(job: Job, victim: int, rounds: Sequence[int], canary: str, most: int, tables: Tables) -> SiloStage:
    return SiloStage(job, victim, canary, tuple(rounds), most, tables, begin(job.method, job.topo))


def _by_pattern(bits: Bits, prepare: Callable[[Bits], Private]) -> Private:
    """Tables with the same bits are the same: each is prepared once."""
    patterns, place = np.unique(bits, axis=0, return_inverse=True)
    return take(prepare(patterns), place.ravel())


# ---- graphs ----------------------------------------------------------------------------------------------------------


def _of_graphs(job: GraphJob) -> Stage:
    task, method, nodes = job.setup.task, job.method, job.setup.task.nodes
    victim = int(np.argmin(job.setup.counts))
    count = job.setup.counts[victim]
    rounds = range(method.rounds) if isinstance(method, PaperConsensus) else range(1)
    basis, large = centred_basis(nodes), 1e3 * task.radius
    if task.statistic == "moment" or job.mechanism is None:
        # Orthogonal signals of the clip's whole length: their outer products are as far apart as it allows.
        pairs = [(large * basis[:, k], large * basis[:, k + 1]) for k in range(0, nodes - 2, 2)]
        words = "two signals longer than the clip at right angles, all other signals zero"
    elif task.statistic == "clipped-distances":
        # All of a node against all of another: their squared differences share one pair of d - 1.
        pairs = [(large * np.eye(nodes)[k], large * np.eye(nodes)[k + 1]) for k in range(0, nodes - 1, 2)]
        words = "a signal at one node alone against one at another, all other signals zero"
    else:
        pairs = [_searched_signals(job, victim, count)]
        words = "the pair of signals that a search found to move the release furthest, all other signals zero"
    pairs = (pairs or [(basis[:, 0], np.zeros(nodes))])[:count]

    def tables(bits: Bits) -> Private:
        return _by_pattern(bits, prepared)

    def prepared(bits: Bits) -> Private:
        made = []
        for pattern in bits:
            signals = np.zeros((count, nodes))
            for k, with_it in enumerate(pattern):
                signals[k] = pairs[k][int(with_it)]
            made.append(task.prepare(signals if task.person is None else _several_each(signals)))
        return {name: np.stack([part[name] for part in made]) for name in made[0]}

    if isinstance(method, SummedConsensus):
        return _of_a_sum(job, method, victim, words, len(pairs), tables)
    if isinstance(job.mechanism, CorrelatedGaussian):
        among = _among_silent(tables, victim, job.setup.counts)
        moves = tuple(task.longest_term / n for n in job.setup.counts)
        start = begin(method, job.topo)
        words = _with_tellers(words, len(moves), job.mechanism.honest)
        return SharedNoiseStage(job, victim, words, (0,), len(pairs), among, start, sensitivities=moves)
    return _one_silo(job, victim, rounds, words, len(pairs), tables)


def _of_a_sum(job: GraphJob, method: SummedConsensus, victim: int, words: str, most: int, tables: Tables) -> UnitStage:
    """All sites of the plan in one sum."""
    among, size, site = _among_silent(tables, victim, method.counts), len(method.counts), job.topo.silos[victim]
    words = _with_tellers(words, size, counted_on(size))
    return UnitStage(job, method, site, size, words, (0,), most, among, Masks("skipped"), victim=victim)


def _among_silent(tables: Tables, victim: int, counts: Sequence[int]) -> Tables:
    """The victim's tables among those of all sites, whose signals are zero."""

    def joined(bits: Bits) -> Private:
        own = tables(bits)
        sites = [own if k == victim else _silent(own, count) for k, count in enumerate(counts)]
        return {name: np.stack([site[name] for site in sites], 1).reshape(-1, *own[name].shape[1:]) for name in own}

    return joined


def _silent(data: Private, count: int) -> Private:
    return {"moment": np.zeros_like(data["moment"]), "count": np.full_like(data["count"], count)}


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


def _of_clients(job: ClusteredJob) -> Stage:
    inner, task = job.inner, job.task
    start = inner.start(job.topo).servers
    took: list[list[int]] = [[] for _ in job.topo.silos]
    first = int(isinstance(job.method, FoundClusters))
    for number in range(inner.rounds):
        rows = inner.asked({**start, "round": np.int64(number)}, job.topo)
        for k in range(len(took)) if rows is None else rows:
            took[k].append(number + first)
    counts = [len(y) for _, y in job.tables.records]
    of = dict(zip(job.tables.agents, counts, strict=True))
    victim = max(range(len(took)), key=lambda k: (len(took[k]), -of[job.topo.silos[k]]))
    count, rounds = of[job.topo.silos[victim]], [0] * first + took[victim]
    features = task.features - job.plan.method.intercept

    def tables(bits: Bits) -> Private:
        return _by_pattern(bits, prepared)

    def prepared(bits: Bits) -> Private:
        x, y = np.zeros((len(bits), count, features)), np.zeros((len(bits), count))
        for k in range(bits.shape[1]):  # every canary has a feature for itself
            x[:, k, k] = 1e6
            y[:, k] = np.where(bits[:, k], 1.0, -1.0) * (1.0 if task.loss == "logistic" else 1e12)
        return task.prepare_all([(with_one(x[k], job.plan.method.intercept), y[k]) for k in range(len(bits))])

    words = "a record whose gradient is clipped to its whole length, against the opposite one; all other records silent"
    return _one_silo(job, victim, rounds, words, min(features, count), tables)


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
    most = min(features, least)

    def tables(bits: Bits) -> Private:
        agents = []
        for k in range(least):
            for sign in (-1.0, 1.0):
                x, y = np.zeros((1, features)), -1.0 if loss == "logistic" else 0.0
                if k < bits.shape[1]:
                    x[0, k], y = length, sign if loss == "logistic" else 1e8 * sign
                agents.append((with_one(x, chosen.intercept), np.full(1, y)))
        which = np.zeros((len(bits), least), dtype=np.intp)
        which[:, : bits.shape[1]] = bits
        return take(task.prepare_all(agents), (2 * np.arange(least) + which).ravel())

    words = f"one agent of {least} whose update is as long as the clip, against the opposite one; all others silent"
    if job.masks is not None and job.mechanism is not None:
        words = _with_tellers(words, least, counted_on(least))
    # The secure sum gives the same bits with and without its messages; thousands of trials go without.
    masks = None if job.masks is None else Masks("skipped", job.masks.minimum)
    site = topo.servers[int(topo.sizes.argmin())]
    return UnitStage(job, method, site, least, words, tuple(range(method.rounds)), most, tables, masks)


# ---- networks --------------------------------------------------------------------------------------------------------


def _of_meta(job: MetaJob) -> tuple[Stage, Stage]:
    """A canary in the query set, and one in the support set, of a client whose other places are empty.

    The server sends the start again every round.
    """
    victim = int(np.argmin(job.data()[QUERY]))
    own = job.data([job.topo.silos[victim]])
    x, y = _loudest(job, own)

    def tables(bits: Bits, part: str) -> Private:
        trials, canaries = bits.shape
        made: Private = {}
        for each in (QUERY, SUPPORT):
            width = canaries if each == part else 1
            made |= {f"{each}_{name}": value[None, :width].repeat(trials, 0) for name, value in (("x", x), ("y", y))}
            made[each] = own[each].repeat(trials)  # how many places there are is public
        return made

    def loss(told: Mapping[str, Array]) -> Array:
        return np.array([-job.task.measure(sent, x[:1], y[:1])[0] for sent in told["model"]])

    def stage(part: str) -> SiloStage:
        words = f"a record of the {part} set whose gradient is as long as the clip, or its place left empty; no others"
        most = min(len(x), int(own[part][0]))
        made = _one_silo(job, victim, range(job.method.rounds), words, most, partial(tables, part=part))
        return replace(made, part=part, loss=loss)

    return stage(QUERY), stage(SUPPORT)


def _loudest(job: MetaJob, data: Private) -> tuple[Any, Any]:
    """The client's own records, each at the size and with the answer that bring its gradient to the clip at the start
    and at models as far from it as noise takes a client within a round; those that are longest in the mean first."""
    method, clip = job.method, job.method.clip or 1.0
    own = data[f"{QUERY}_x"][0, : min(_CANDIDATES, int(data[QUERY][0]))]
    answers = np.array([-1e3, 1e3]) if job.plan.data.answers == "numbers" else np.arange(len(job.tables.classes))
    forms = [(scale, answer) for scale in _SCALES for answer in answers]
    x = np.concatenate([scale * own for scale, _ in forms])
    y = np.repeat([answer for _, answer in forms], len(own))
    alone = np.ones((len(x), 1), dtype=np.bool_)
    noise = 0.0 if job.mechanism is None else job.mechanism.multiplier * clip / (method.rate * float(data[QUERY][0]))
    reach = noise * (method.inner_step + (method.local_steps - 1) * method.outer_step)
    rng, total = np.random.default_rng(0), np.zeros(len(x))
    for _ in range(_MODELS):
        model = np.asarray(job.task.start) + reach * rng.normal(size=job.task.size)
        gradients = job.task.at(np.repeat(model[None], len(x), 0), x[:, None], y[:, None], alone).gradient(None)
        lengths = np.sqrt((np.asarray(gradients, dtype=np.float64) ** 2).sum(1))
        total += np.where(lengths < 1e6 * clip, np.minimum(lengths, clip), 0.0)
    heard = total.reshape(len(forms), len(own))
    which = heard.argmax(0) * len(own) + np.arange(len(own))
    order = np.argsort(-heard.max(0), kind="stable")
    return x[which[order]], y[which[order]]
