"""The worst records and clients for an audit of clustered models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from silograph.audit.exposure import Listener, found, off_by
from silograph.audit.scenes import DIVIDED, LOUD, QUIET, by_pattern, divided, flat_basis, joined, nearest, with_tellers
from silograph.audit.stages import Bits, RegionStage, Scene, SiloStage, Stage, Tables
from silograph.audit.worlds import Worlds, fewest
from silograph.core.types import Array, Json
from silograph.deploy.public_facts import Facts
from silograph.families.canary_servers import OWN_UPDATES, Record, stage_of_agents, table_of, worlds_of_agents
from silograph.families.clusters.job import ClusteredJob
from silograph.families.servers import with_intercept
from silograph.methods.base import Private, begin
from silograph.methods.calibrated import Calibrated
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.random_effects import RandomEffects
from silograph.privacy.attacks.duals import gradients_of_steps, parabola
from silograph.privacy.masking import Masks, counted_on
from silograph.tasks.clustered import Proximal
from silograph.tasks.linear import Linear

_LOUD = 1e6  # times a feature: longer than any clip, and far from where a table is refused


def stages(job: ClusteredJob, many: bool) -> tuple[Stage, ...]:
    inner = job.inner
    assert not isinstance(inner, RandomEffects)  # they promise nothing to attack
    if job.plan.protect == "records":
        alone = () if isinstance(inner, Calibrated) and not job.finds else (_of_clients(job, many),)
        return (*alone, _of_records_in_sums(job, inner, many)) if isinstance(inner, Calibrated) else alone
    return (stage_of_agents(job, inner, _cohorts(job, inner)),)


def _cohorts(job: ClusteredJob, inner: ClusteredADMM | Calibrated) -> NDArray[np.intp]:
    """How many clients are added up together, where they are fewest."""
    if isinstance(inner, Calibrated):
        return np.bincount(inner.groups)
    return np.bincount(inner.start(job.topo).servers["cell"] if job.plan.reach == "region" else inner.clusters)


def worlds(job: ClusteredJob, facts: Facts) -> Worlds:
    if job.plan.protect == "records":
        return _worlds_of_records(job, facts)
    return worlds_of_agents(job, facts, job.plan.data.cluster)


def exposed(job: ClusteredJob, own: bool, root: int) -> list[Json]:
    if own and isinstance(job.inner, RandomEffects):
        return [OWN_UPDATES]
    if not own or job.masks is not None or not isinstance(job.method, ClusteredADMM):
        return []
    if isinstance(job.task, Proximal) and job.task.loss == "ridge" and job.plan.protect == "none":
        return [_parabola(job, job.method, root)]
    return [OWN_UPDATES]


def _worlds_of_records(job: ClusteredJob, facts: Facts) -> Worlds:
    (holding, place), features = fewest(facts), len(facts.columns)
    answers = (0.0, 1.0) if job.plan.method.loss == "logistic" else (-1e12, 1e12)

    def table(organisation: str, answer: float | None) -> bytes:
        of = next(each for each in facts.holdings if each.organisation == organisation)
        rows = []
        for k, count in enumerate(of.records or ()):
            for number in range(count):
                loud = answer is not None and k == place and number == 0
                rows.append((k, np.full(features, _LOUD * loud), answer if loud and answer is not None else 0.0))
        return table_of(job, facts, of, rows, job.plan.data.cluster)

    worlds = (
        table(holding.organisation, answers[0]),
        table(holding.organisation, answers[1]),
        table(holding.organisation, None),
    )
    words = "a record whose gradient is clipped to its whole length, against the opposite one; all others are silent"
    return Worlds(
        holding.organisation, holding.silos[place], words, worlds, lambda organisation: table(organisation, None)
    )


def _of_records_in_sums(job: ClusteredJob, inner: Calibrated, many: bool) -> Stage:
    """A client's records among silent clients, with whom it is added up."""
    task, features = inner.task, inner.task.features - 1
    cohorts = _cohorts(job, inner)
    assert inner.counts is not None
    assert job.masks is not None
    size, count = int(cohorts[cohorts >= job.masks.minimum].min()), inner.counts[nearest(inner.counts, many)[0]]
    classes = task.loss == "logistic"
    yes, no, silent = (1.0, -1.0, -1.0) if classes else (1e8, -1e8, 0.0)
    loud = math.sqrt(features) * flat_basis(features)

    def tables(neighbours: Sequence[Record], pairs: Sequence[tuple[Record, Record]]) -> Tables:
        def of_site(own: Sequence[Record], canaries: Sequence[tuple[Record, Record]]) -> Tables:
            def prepared(bits: Bits) -> Private:
                made = []
                for pattern in bits:
                    records = [canaries[k][int(with_it)] for k, with_it in enumerate(pattern)] + list(own)
                    x, y = zip(*records[:count], strict=True)
                    made.append((with_intercept(np.array(x), True), np.array(y)))
                return task.prepare_all(made)

            return partial(by_pattern, prepare=prepared)

        others = [(np.zeros(features), silent)] * count
        sites = {k: of_site(neighbours if k == 0 else others, pairs[count * k :] or pairs) for k in range(size)}
        return joined(sites, (count,) * size)

    pairs = [((loud[:, k % features], no), (loud[:, k % features], yes)) for k in range(count * size)]
    quiet: Record = (np.zeros(features), silent)
    scenes = (
        Scene(f"a record at the clip, or a silent one; {LOUD}", tables([pairs[0][1]] * count, [(quiet, pairs[0][1])])),
        Scene(
            f"a record at the clip, or all but none; {DIVIDED}",
            tables([pairs[0][1] if each == 1.0 else quiet for each in divided(count)][1:], [(quiet, pairs[0][1])]),
        ),
    )
    told = partial(with_tellers, size=size, honest=counted_on(size))
    words = "a record whose vector is as long as the clip, against the opposite one; all other records silent"
    return RegionStage(
        job,
        replace(inner, counts=(count,) * len(inner.groups)),
        job.topo.servers[0],
        size,
        told(words),
        tuple(range(int(job.finds), job.most_rounds)),
        count * size,
        tables([quiet] * count, pairs),
        Masks("skipped", job.masks.minimum),
        victim=0,
        distinct=features,
        scenes=tuple(replace(scene, canary=told(scene.canary)) for scene in scenes),
    )


def _of_clients(job: ClusteredJob, many: bool) -> Stage:
    """A client's records in what it releases itself."""
    inner, task = job.inner, job.task
    servers = inner.start(job.topo).servers
    took: list[list[int]] = [[] for _ in job.topo.silos]
    first = int(job.finds)
    for number in range(inner.rounds if isinstance(inner, ClusteredADMM) else 0):
        rows = inner.asked({**servers, "round": np.int64(number)}, job.topo)
        for k in range(len(took)) if rows is None else rows:
            took[k].append(number + first)
    of = dict(zip(job.tables.agents, (len(y) for _, y in job.tables.records), strict=True))
    counts = [of[silo] for silo in job.topo.silos]
    victim = max(nearest(counts, many), key=lambda site: len(took[site]))
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
                tables.append((with_intercept(x, intercept), y))
            return task.prepare_all(tables)

        return partial(by_pattern, prepare=prepared)

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


def _length_of(task: Linear) -> float:
    """Of features that a clip of theirs just leaves as they are; where gradients are clipped, they may have any."""
    return (task.radius or 1.0) if isinstance(task, Proximal) else 1.0


def _parabola(job: ClusteredJob, method: ClusteredADMM, root: int) -> Json:
    """ADMM steps without noise give the squared loss of a client, and so the moments of its records."""
    listener, sent, asked, answers = Listener(job, root), [], [], []
    for _ in range(min(method.rounds, 2 * method.task.features + 6)):
        down = {name: np.array(value.value[0]) for name, value in listener.state.down.items()}
        carry = listener.state.carry["sent"]
        listener.listen()
        if 0 not in listener.rows:
            continue
        difference = listener.value("step")[int(np.flatnonzero(listener.rows == 0)[0])]
        sent.append(difference + down["model"])
        asked.append(down["model"])
        answers.append(down["answer"])
        assert np.allclose(carry[0], np.zeros_like(carry[0]) if len(sent) == 1 else sent[-2])
    models, gradients = gradients_of_steps(np.array(sent), np.array(asked), np.array(answers), method.rho)
    ridge = float(begin(method, job.topo).carry["ridge"][0])
    matrix, c = parabola(models, gradients, ridge)
    assert isinstance(listener.data, dict)
    x, y, count = (listener.data[name][0] for name in ("x", "y", "count"))
    x, y = x[: int(count)], y[: int(count)]
    error = off_by(np.column_stack([matrix, c]), np.column_stack([x.T @ x, x.T @ y]) / len(x))
    name = job.topo.silos[0]
    words = f"from {len(sent)} steps of client {name} the moments of its {len(x)} records are known to {error:.0e}"
    return found("a client's records", "reconstruction from ADMM steps without noise", error, words)
