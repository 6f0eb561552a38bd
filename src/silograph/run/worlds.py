"""Two neighbouring tables for the party that an audit attacks, and silent tables for all others.

They are made up from the public facts of a deployment, in the shape that each party reported, and differ in one
protected unit: the loudest that the method's clip allows, against the opposite one. No real record is needed.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silograph.core.types import Array
from silograph.deploy.deployment import Deployment
from silograph.deploy.public_facts import Facts, Holding
from silograph.families.clusters.job import ClusteredJob
from silograph.families.federation.job import FederationJob
from silograph.families.graphs.job import GraphJob
from silograph.families.meta.job import MetaJob
from silograph.families.meta.plan import MetaPlan
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.graph_federation import GraphFederation
from silograph.run.jobs import Job
from silograph.tasks.smooth_graph import centred_basis

LOUD, OPPOSITE, SILENT = range(3)  # worlds

_LOUD = 1e6  # times a feature: longer than any clip, and far from where a table is refused


@dataclass(frozen=True)
class Worlds:
    """`tables[k]` is what the victim's party holds in world k: a loud unit, its opposite, or a silent one. `silent` is
    what another party holds in all of them.

    `steps`: how many steps of the ledger's neighbouring relation lie between the worlds. Where the relation leaves a
    place empty, a table with another record in that place is two steps away.
    """

    party: str
    silo: str
    words: str
    tables: tuple[bytes, bytes, bytes]
    silent: Callable[[str], bytes]
    suffix: str = ".csv"
    steps: int = 1


def worlds_of(deployment: Deployment, job: Job) -> Worlds:
    """`job` is the deployment's, opened without any record."""
    facts = deployment.facts
    if isinstance(job, GraphJob):
        return _of_graphs(job, facts)
    if isinstance(job, MetaJob):
        return _of_networks(job, facts)
    assert isinstance(job, FederationJob | ClusteredJob)
    return _of_records(job, facts) if _protects_records(job) else _of_agents(job, facts)


def _protects_records(job: Job) -> bool:
    return isinstance(job, ClusteredJob) and job.plan.protect == "records"


def _fewest(facts: Facts) -> tuple[Holding, int]:
    """The party, and the place in it, of the silo with the fewest records: there a record weighs most."""
    _, holding, place = min(
        ((count, holding, k) for holding in facts.holdings for k, count in enumerate(holding.records or ())),
        key=lambda found: found[0],
    )
    return holding, place


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


# ---- graphs ----------------------------------------------------------------------------------------------------------


def _of_graphs(job: GraphJob, facts: Facts) -> Worlds:
    (holding, _), task, nodes = _fewest(facts), job.setup.task, len(facts.columns)
    large, basis = 1e3 * task.radius, centred_basis(nodes)
    pair = (large * basis[:, 0], large * basis[:, 1])
    words = "two signals at right angles, longer than the clip; all other signals are zero"
    if isinstance(job.method, PaperConsensus) or task.statistic == "clipped-distances":
        pair = (large * np.eye(nodes)[0], large * np.eye(nodes)[1])
        words = "a signal at one node alone against one at another; all other signals are zero"

    def table(party: str, first: Array) -> bytes:
        count = next(h.records[0] for h in facts.holdings if h.party == party and h.records)
        signals = np.zeros((count, nodes))
        signals[0] = first
        return _signals(job, facts.columns, signals)

    worlds = (table(holding.party, pair[0]), table(holding.party, pair[1]), table(holding.party, np.zeros(nodes)))
    return Worlds(holding.party, holding.silos[0], words, worlds, lambda party: table(party, np.zeros(nodes)))


def _signals(job: GraphJob, nodes: Sequence[str], signals: Array) -> bytes:
    data, rows = job.plan.data, signals.tolist()
    if data.unit_column is not None:
        return _csv([data.unit_column, *nodes], [[f"p{k:06d}", *row] for k, row in enumerate(rows)])
    if data.nodes_in == "rows":
        return _csv(
            ["node", *(f"s{k}" for k in range(len(rows)))],
            [[n, *v] for n, v in zip(nodes, signals.T.tolist(), strict=True)],
        )
    return _csv(nodes, rows)


# ---- agents and their records ----------------------------------------------------------------------------------------


def _of_agents(job: FederationJob | ClusteredJob, facts: Facts) -> Worlds:
    """The first agent of the party with most agents: the more there are, the more cohorts a server can put it in."""
    holding, method, chosen = max(facts.holdings, key=lambda each: len(each.agents)), job.method, job.plan.method
    logistic, features = chosen.loss == "logistic", len(facts.columns)
    length = 1e3 if logistic else 1.0
    if logistic and isinstance(method, GraphFederation):
        # Long enough for the clip in one local step, and not so long that the loss is flat after it.
        length = 4.0 * method.epochs[1] * (method.clip or 1.0) / method.step

    def table(party: str, answer: float | None) -> bytes:
        of = next(each for each in facts.holdings if each.party == party)
        loud, silent = np.full(features, length / math.sqrt(features)), np.zeros(features)
        rows = [
            (k, loud if k == 0 and answer is not None else silent, answer if k == 0 and answer is not None else 0.0)
            for k in range(len(of.agents))
        ]
        return _agents(job, facts, of, rows)

    answers = (0.0, 1.0) if logistic else (-1e8, 1e8)
    worlds = (table(holding.party, answers[0]), table(holding.party, answers[1]), table(holding.party, None))
    words = "one agent whose update is as long as the clip, against the opposite one; all other agents are silent"
    return Worlds(holding.party, holding.silos[0], words, worlds, lambda party: table(party, None))


def _of_records(job: FederationJob | ClusteredJob, facts: Facts) -> Worlds:
    (holding, place), features = _fewest(facts), len(facts.columns)
    answers = (0.0, 1.0) if job.plan.method.loss == "logistic" else (-1e12, 1e12)

    def table(party: str, answer: float | None) -> bytes:
        of = next(each for each in facts.holdings if each.party == party)
        rows = []
        for k, count in enumerate(of.records or ()):
            for number in range(count):
                loud = answer is not None and k == place and number == 0
                rows.append((k, np.full(features, _LOUD * loud), answer if loud and answer is not None else 0.0))
        return _agents(job, facts, of, rows)

    worlds = (table(holding.party, answers[0]), table(holding.party, answers[1]), table(holding.party, None))
    words = "a record whose gradient is clipped to its whole length, against the opposite one; all others are silent"
    return Worlds(holding.party, holding.silos[place], words, worlds, lambda party: table(party, None))


def _agents(
    job: FederationJob | ClusteredJob, facts: Facts, of: Holding, rows: Sequence[tuple[int, Array, float]]
) -> bytes:
    data, cluster = job.plan.data, job.plan.data.cluster if isinstance(job, ClusteredJob) else None
    header = [data.agent, *([] if cluster is None else [cluster]), *facts.columns, data.target]
    lines = []
    for k, x, y in rows:
        own = [] if cluster is None else [of.clusters[k] if of.clusters else "0"]
        lines.append([of.agents[k], *own, *x.tolist(), y])
    return _csv(header, lines)


# ---- networks --------------------------------------------------------------------------------------------------------


def _of_networks(job: MetaJob, facts: Facts) -> Worlds:
    holding, _ = _fewest(facts)
    regression = job.plan.data.answers == "numbers"

    def table(party: str, sign: float) -> bytes:
        count = next(h.records[0] for h in facts.holdings if h.party == party and h.records)
        x = np.zeros((count, *facts.shape), dtype=np.float32)
        x[0] = 30.0 * sign
        which = np.zeros(count, dtype=np.int64)
        which[0] = sign > 0.0
        answers = 1e3 * sign * (np.arange(count) == 0) if regression else np.array(facts.classes)[which]
        return _labelled(job.plan, facts, x, answers)

    words = "a record whose gradient is longer than the clip, against the opposite one; all others are alike"
    worlds = (table(holding.party, -1.0), table(holding.party, 1.0), table(holding.party, 0.0))
    suffix = ".csv" if facts.columns else ".npz"
    return Worlds(holding.party, holding.party, words, worlds, lambda party: table(party, 0.0), suffix, 2)


def _labelled(plan: MetaPlan, facts: Facts, x: Any, answers: Any) -> bytes:
    if facts.columns:
        lines = [[*row, answer] for row, answer in zip(x.tolist(), answers.tolist(), strict=True)]
        return _csv([*facts.columns, plan.data.target], lines)
    packed = io.BytesIO()
    np.savez(packed, x=x, y=answers)
    return packed.getvalue()


def secret(deployment: Deployment) -> Deployment:
    """The same deployment with noise that is secret: whoever knows a plan's seed takes its noise off."""
    from silograph.run.plan import dumps

    return replace(deployment, plan_text=dumps(replace(deployment.plan, seed=None)))
