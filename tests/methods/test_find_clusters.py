"""Clusters found from one released gradient per client."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from silograph.core.errors import InputError
from silograph.methods.find_clusters import FindClusters, clustered
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.relay import OpenGate
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

FEATURES, MOST = 20, 40


def world(seed, counts=(10, 20)):
    rng = np.random.default_rng(seed)
    models, truth, parts = rng.normal(size=(3, FEATURES)), rng.integers(3, size=60), []
    for q in truth:
        x = rng.normal(size=(int(rng.integers(*counts)), FEATURES))
        parts.append((x, x @ models[q] + 0.5 * rng.normal(size=len(x))))
    return parts, truth


def found(parts, clip=None, multiplier=None, budget=None, engine="vector", present=None):
    topo = regions(server_graph("ring", 4), 15)
    task = Linear(FEATURES, MOST)
    method = FindClusters(task, 3, clip)
    door = Door(1, Ledger(), None if multiplier is None else Gaussian(multiplier), budget)
    place = ENGINES[engine]([task.prepare(part) for part in parts], topo, door)
    *_, last = rounds(method, topo, place, door, present=present)
    return method.outcome(last.servers, place.deliver(method, last), topo).arrays["cluster"].astype(int), door, topo


def right(cluster, truth):
    """The part of clients in the right cluster, under the best naming."""
    table = np.zeros((3, 3))
    np.add.at(table, (truth, cluster), 1)
    return table[linear_sum_assignment(-table)].sum() / len(truth)


def test_clusters_that_differ_are_found_and_engines_agree():
    parts, truth = world(0)
    cluster, door, _ = found(parts)
    assert right(cluster, truth) == 1.0
    np.testing.assert_array_equal(cluster, found(parts, engine="silowise")[0])
    assert {row.mechanism for row in door.ledger.rows} == {"reveal"}


def test_under_a_budget_each_client_pays_for_one_release():
    """With records enough the clusters are still found; the ledger has one row a client, at exactly the budget."""
    parts, truth = world(1, (30, MOST))
    cluster, door, topo = found(parts, 10.0, gaussian_multiplier(8.0, 1e-5, 1), Budget(8.0, 1e-5))
    assert right(cluster, truth) > 0.9
    for name in topo.silos:
        assert len(door.ledger.of(name)) == 1
        assert door.spent(name, 1e-5).epsilon == pytest.approx(8.0, rel=1e-6)


def test_one_record_never_moves_the_gradient_further_than_its_bound():
    parts, _ = world(2)
    task, seen = Linear(FEATURES, MOST), []

    class Recorder(OpenGate):
        def release(self, bounded, release_point, share):
            seen.append(bounded)
            return self.reveal(bounded.value, release_point, "")

    def bounded(part):
        data = {name: value[None] for name, value in task.prepare(part).items()}
        FindClusters(task, 3, 2.0).local({}, {}, data, Recorder())
        return seen[-1]

    (x, y), rng = parts[0], np.random.default_rng(0)
    base, worst = bounded((x, y)), 0.0
    for size in (0.0, 1.0, 1e3, 1e150):
        for sign in (1.0, -1.0):
            other = (x.copy(), y.copy())
            row = int(rng.integers(len(x)))
            other[0][row], other[1][row] = rng.normal(size=FEATURES) * size, sign * size
            moved = float(np.linalg.norm(base.value - bounded(other).value))
            assert moved <= base.l2[0]
            worst = max(worst, moved / base.l2[0])
    assert worst > 0.3


def test_who_does_not_come_is_not_waited_for():
    parts, truth = world(3)
    topo = regions(server_graph("ring", 4), 15)
    cluster, _, _ = found(parts, present=lambda t: [name for name in topo.silos if not name.endswith("agent-003")])
    there = np.array([not name.endswith("agent-003") for name in topo.silos])
    assert right(cluster[there], truth[there]) > 0.9


def test_clusters_are_numbered_as_they_come_and_lengths_do_not_count():
    vectors = np.array([[0.0, 2.0], [5.0, 0.0], [0.0, 90.0], [0.1, 0.001]])
    assert clustered(vectors, 2).tolist() == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize(("count", "clip"), [(0, None), (3, 0.0), (61, None)])
def test_nonsense_is_refused(count, clip):
    with pytest.raises(InputError, match="clusters to find"):
        FindClusters(Linear(2, 3), count, clip).start(regions(server_graph("ring", 4), 15))
