"""The worst agents for audits of families over a graph of servers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.audit.exposure import found
from silograph.audit.scenes import DIVIDED, LOUD, QUIET, divided, flat_basis, with_tellers
from silograph.audit.stages import Bits, RegionStage, Scene, Tables
from silograph.audit.worlds import Worlds, as_csv
from silograph.core.types import Array
from silograph.deploy.public_facts import Facts, Holding
from silograph.families.servers import with_intercept
from silograph.methods.base import Private, take
from silograph.methods.calibrated import Calibrated
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.masking import Masks, counted_on
from silograph.run.jobs import Job
from silograph.tasks.linear import Linear

Record = tuple[Array, float]

OWN_UPDATES = found(
    "an agent's update",
    "read as it is",
    0.0,
    "every agent's update, and with it the gradient of its records, lies before its own server as it is",
)


def stage_of_agents(
    job: Job, method: GraphFederation | ClusteredADMM | Calibrated, sizes: NDArray[np.intp]
) -> RegionStage:
    """A trial is a server with as few agents as the plan has anywhere, all silent but the canaries."""
    plan: Any = job.plan
    chosen, topo = plan.method, job.topo
    task = method.task
    assert isinstance(task, Linear), "agents have linear models"
    features, loss = task.features - chosen.intercept, task.loss
    least = int(sizes[sizes >= (1 if job.masks is None else job.masks.minimum)].min())
    if chosen.sample is not None:
        least = min(chosen.sample * (len(topo.servers) if plan.reach == "all" else 1), least)
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
        prepared = task.prepare_all([(with_intercept(x[None], chosen.intercept), np.full(1, y)) for x, y in kinds])

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
        yes if loss == "logistic" else 0.25 * QUIET * (_clip(method) or 1.0) / max(1.0, _step(method)),
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
        told = partial(with_tellers, size=least, honest=counted_on(least))
        words, scenes = told(words), tuple(replace(scene, canary=told(scene.canary)) for scene in scenes)
    # The secure sum gives the same bits with and without its messages; thousands of trials go without.
    masks = None if job.masks is None else Masks("skipped", job.masks.minimum)
    site = topo.servers[int(topo.sizes.argmin())]
    rounds = tuple(range(method.rounds if isinstance(method, ClusteredADMM) else method.most_rounds))
    tables = made_of([silent] * least, pairs)
    return RegionStage(job, method, site, least, words, rounds, least, tables, masks, distinct=features, scenes=scenes)


def _step(method: GraphFederation | ClusteredADMM | Calibrated) -> float:
    return method.step if isinstance(method, GraphFederation) else 1.0


def _clip(method: GraphFederation | ClusteredADMM | Calibrated) -> float | None:
    return None if isinstance(method, Calibrated) else method.clip


def worlds_of_agents(job: Job, facts: Facts, cluster: str | None) -> Worlds:
    """The first agent of the organisation with most agents: the more there are, the more cohorts a server can put it
    in."""
    holding, method = max(facts.holdings, key=lambda each: len(each.agents)), job.method
    chosen: Any = job.plan.method
    logistic, features = chosen.loss == "logistic", len(facts.columns)
    length = 1e3 if logistic else 1.0
    if logistic and isinstance(method, GraphFederation):
        # Long enough for the clip in one local step, and not so long that the loss is flat after it.
        length = 4.0 * method.epochs[1] * (method.clip or 1.0) / method.step

    def table(organisation: str, answer: float | None) -> bytes:
        of = next(each for each in facts.holdings if each.organisation == organisation)
        loud, silent = np.full(features, length / math.sqrt(features)), np.zeros(features)
        rows = [
            (k, loud if k == 0 and answer is not None else silent, answer if k == 0 and answer is not None else 0.0)
            for k in range(len(of.agents))
        ]
        return table_of(job, facts, of, rows, cluster)

    answers = (0.0, 1.0) if logistic else (-1e8, 1e8)
    worlds = (
        table(holding.organisation, answers[0]),
        table(holding.organisation, answers[1]),
        table(holding.organisation, None),
    )
    words = "one agent whose update is as long as the clip, against the opposite one; all other agents are silent"
    return Worlds(holding.organisation, holding.silos[0], words, worlds, lambda organisation: table(organisation, None))


def table_of(
    job: Job, facts: Facts, of: Holding, rows: Sequence[tuple[int, Array, float]], cluster: str | None
) -> bytes:
    """A table of records, each the place of its agent, features and an answer; `cluster` is that column, if any."""
    data: Any = job.plan.data
    header = [data.agent, *([] if cluster is None else [cluster]), *facts.columns, data.target]
    lines = []
    for k, x, y in rows:
        own = [] if cluster is None else [of.clusters[k] if of.clusters else "0"]
        lines.append([of.agents[k], *own, *x.tolist(), y])
    return as_csv(header, lines)
