"""The sensitivity searcher on every method: no swap of a record moves a release further than its bound.

Random swaps and local search from the worst of them, along the first round of the plan's own method. The bound of a
method whose geometry reaches it is also nearly reached; and where a clip is taken out the search finds it.
"""

import numpy as np
import pytest

from audits import PRIVATE, job, tables
from silograph.audit.parts import stages_of
from silograph.families.graphs.canary import Keeper
from silograph.families.servers import with_intercept
from silograph.methods.base import begin, take
from silograph.methods.private_meta import QUERY
from silograph.privacy.attacks.search import worst_swap
from silograph.privacy.bound import Bounded
from silograph.privacy.gate import Batch, Door, Total, relay, sealed_rows
from silograph.privacy.ledger import Ledger

RECORDS = [name for name in PRIVATE if name.startswith(("graphs", "clusters, records")) and name != "graphs, persons"]
AGENTS = [name for name in PRIVATE if "trusted" in name]
#: How much of its bound each is known to reach; the others' bounds are theorems that no record meets.
REACHED = {
    "graphs, one release": 0.9,
    "graphs, one release, clip": 0.9,
    "graphs, correlated": 0.9,
    "graphs, secure sum": 0.9,
    "graphs, one release, Laplace": 0.9,
    "graphs, per round, Corollary 1": 0.6,
    "clusters, records, huber": 0.9,
    "clusters, records, linearised": 0.99,
    "clusters, records, linearised, schedule": 0.99,
    "clusters, records, found clusters": 0.99,
    "federation, trusted server": 0.9,
    "clusters, clients, trusted server": 0.9,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tables(tmp_path_factory.mktemp("swaps"))


def of_record(made):
    """A record of the first silo -> what its first round would release; and how many numbers a record is."""
    stage = stages_of(made)[0]
    state = begin(made.method, made.topo)
    alone = np.array([stage.victim])
    carry, down = take(state.carry, alone), {name: value.rows(alone) for name, value in state.down.items()}
    if hasattr(made, "silos"):
        task, length, count = made.setup.task, made.setup.task.nodes, made.setup.counts[stage.victim]

        def data(record):
            table = np.random.default_rng(0).normal(size=(count, length))
            table[0] = np.clip(record, -1e60, 1e60)
            return task.prepare(table)
    else:
        task, intercept = made.task, made.plan.method.intercept
        length = task.features - intercept + 1
        x, y = dict(zip(made.tables.agents, made.tables.records, strict=True))[made.topo.silos[stage.victim]]

        def data(record):
            other, answers = x.copy(), y.astype(float)
            other[0], answers[0] = record[:-1], np.sign(record[-1]) or 1.0 if task.loss == "logistic" else record[-1]
            return task.prepare((with_intercept(other, intercept), answers))

    def released(record):
        keeper = Keeper()
        made.method.local(carry, down, {name: value[None] for name, value in data(record).items()}, keeper)
        return keeper.kept

    return released, length


def seeds(length):
    one, two = 1e6 * np.eye(length)[:2]
    flipped = one.copy()
    one[-1], flipped[-1] = 1e9, -1e9
    return [(one, flipped), (1e3 * np.eye(length)[0], 1e3 * np.eye(length)[1]), (two, np.zeros(length))]


@pytest.mark.parametrize("name", RECORDS)
def test_no_record_moves_a_release_further_than_its_bound(name, folder):
    released, length = of_record(job(PRIVATE[name], folder))
    with np.errstate(over="ignore"):
        found = worst_swap(released, length, np.random.default_rng(1), 30, 30, seeds(length))
    assert 0.0 < found.ratio <= 1.0
    assert found.ratio >= REACHED.get(name, 0.0)


def test_a_missing_clip_is_found(folder, monkeypatch):
    monkeypatch.setattr("silograph.tasks.smooth_graph.clip_rows", lambda x, radius: x)
    released, length = of_record(job(PRIVATE["graphs, one release, clip"], folder))
    assert worst_swap(released, length, np.random.default_rng(1), 10, 0).ratio > 10.0


@pytest.mark.parametrize("name", AGENTS)
def test_no_agent_moves_a_mean_further_than_its_bound(name, folder):
    """One agent of a unit has any record; the mean that its server would release is watched."""
    made = job(PRIVATE[name], folder)
    stage = stages_of(made)[0]
    task, intercept, logistic = stage.unit.task, made.plan.method.intercept, made.plan.method.loss == "logistic"
    features, size = task.features - intercept, stage.size
    silent = (with_intercept(np.zeros((1, features)), intercept), np.full(1, -1.0))
    memory = stage.begin(1)

    class Server(Keeper):
        """Adds up what it is handed, and keeps what it would release of it."""

        def contribute(self, value, site, clip=None):
            return Door(1, Ledger()).gate(["u"], 0).contribute(value, site, clip)

        def total(self, sealed, rows, home, names):
            return Total(sealed_rows(sealed).sum(0)[None], np.array([float(size)]), False, np.ones(size, bool))

    def released(record):
        y = (np.sign(record[-1]) or 1.0) if logistic else record[-1]
        own = (with_intercept(np.clip(record[None, :-1], -1e100, 1e100), intercept), np.full(1, y))
        keeper = Server()
        with np.errstate(all="ignore"):
            stage.step(0, memory, task.prepare_all([own] + [silent] * (size - 1)), keeper)
        return keeper.kept

    found = worst_swap(released, features + 1, np.random.default_rng(1), 30, 30, seeds(features + 1))
    assert REACHED.get(name, 0.0) <= found.ratio <= 1.0


@pytest.mark.parametrize("name", ["meta, second order", "meta, first order"])
def test_no_record_moves_a_networks_sums_further_than_their_bound(name, folder):
    """In or out of the query set: a record's part of each sum against an empty place, at the same released values."""
    pytest.importorskip("torch", reason="neural networks need the extra `neural`")
    made = job(PRIVATE[name], folder)
    data = made.data([made.topo.silos[0]])
    model = begin(made.method, made.topo).down["model"].rows([0])
    shape, classes = data[f"{QUERY}_x"].shape[2:], len(made.tables.classes)

    class Everybody(Keeper):
        """All records take part; releases are answered with zeros, so that later ones are at the same models."""

        def __init__(self, absent):
            super().__init__()
            self.absent = absent

        def poisson(self, counts, rate, site, part):
            chosen = np.arange(int(counts.max())) < counts[:, None]
            chosen[:, 0] &= not (self.absent and part == QUERY)
            return Batch(chosen, rate, site, part, 0)

        def release(self, bounded, site, batch=None, share=1.0):
            self.kept.append(Bounded(bounded.value.copy(), bounded.l2, bounded.unit, bounded.why))
            return relay(np.full_like(bounded.value, 0.1))

    def released(record):
        keeper = Everybody(absent=not record.any())
        own = {key: np.array(value) for key, value in data.items()}
        own[f"{QUERY}_x"][0, 0] = np.clip(record[:-1], -1e18, 1e18)
        own[f"{QUERY}_y"][0, 0] = int(record[-1] > 0.0) % classes
        made.method.local({}, {"model": model}, own, keeper)
        return keeper.kept

    length = int(np.prod(shape)) + 1
    empty = np.zeros(length)
    swaps = [(np.append(size * np.ones(length - 1), sign), empty) for size in (1.0, 30.0) for sign in (1.0, -1.0)]
    found = worst_swap(released, length, np.random.default_rng(1), 15, 0, swaps)
    against_empty = max(
        worst_swap(released, length, np.random.default_rng(k), 0, 0, [(record, empty)]).ratio
        for k, (record, _) in enumerate(swaps)
    )
    assert 0.9 < against_empty <= 1.0
    assert found.ratio <= 2.0  # two records that differ: out and in again
