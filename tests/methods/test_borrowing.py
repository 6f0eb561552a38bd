"""An exchange between clusters that is learned: it follows the models' likeness, and leaves strangers alone."""

from dataclasses import replace

import numpy as np
import pytest

from silograph.data.clusters import ClusteredRecords, nmsd
from silograph.methods.borrowing import learned_exchange
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.clustered import Proximal
from silograph.topology import regions, server_graph

SERVERS, CLIENTS, FEATURES = 10, 15, 40


def world(kind, seed):
    """Clients with 2 to 9 records; clusters alike, alike in pairs, or strangers."""
    rng = np.random.default_rng(seed)
    if kind == "alike":
        models = rng.standard_normal(FEATURES) * (1.0 + rng.uniform(-0.15, 0.15, (3, 1)))
    elif kind == "pairs":
        models = np.repeat(rng.standard_normal((2, FEATURES)), 2, 0) * (1.0 + rng.uniform(-0.15, 0.15, (4, 1)))
    else:
        models = rng.standard_normal((3, FEATURES))
    chosen, parts = rng.integers(len(models), size=SERVERS * CLIENTS), []
    for q in chosen:
        x = rng.standard_normal((int(rng.integers(2, 10)), FEATURES))
        parts.append((x, x @ models[q] + np.sqrt(0.75) * rng.standard_normal(len(x))))
    return ClusteredRecords(parts, tuple(int(q) for q in chosen), models)


def level(made, tau):
    """NMSD of the local models, in dB."""
    topo = regions(server_graph("random", SERVERS, 1, weights="metropolis"), CLIENTS)
    task = Proximal(FEATURES, 9)
    method = ClusteredADMM(task, made.clusters, 3.0, 150, 0.01, tau)
    door = Door(1, Ledger())
    place = ENGINES["vector"]([task.prepare(part) for part in made.records], topo, door)
    *_, last = rounds(method, topo, place, door)
    outcome = method.outcome(last.servers, place.deliver(method, last), topo)
    return 10.0 * np.log10(nmsd(outcome.arrays["model"], made)), last.servers.get("exchange")


@pytest.mark.parametrize(("kind", "gain"), [("alike", 0.3), ("pairs", 0.5)])
def test_borrowing_from_those_who_are_alike_helps(kind, gain):
    """Better than none in the mean of six worlds, and than the paper's fixed weight wherever some are strangers."""
    levels = np.array([[level(world(kind, seed), tau)[0] for tau in ("learned", 0.0, 0.4)] for seed in range(6)])
    learned, none, fixed = levels.mean(0)
    assert learned < none - gain
    if kind == "pairs":
        assert learned < fixed - 5.0


def test_strangers_are_left_alone():
    """No world more than 0.3 dB worse than without any exchange, while a fixed weight ruins all of them."""
    for seed in range(4):
        made = world("strangers", seed)
        learned, exchange = level(made, "learned")
        assert learned < level(made, 0.0)[0] + 0.3
        assert level(made, 0.4)[0] > learned + 5.0
        assert exchange.diagonal().min() > 0.98


def test_pairs_borrow_within_the_pair():
    _, exchange = level(world("pairs", 0), "learned")
    assert min(exchange[0, 1], exchange[1, 0], exchange[2, 3], exchange[3, 2]) > 0.02
    assert exchange[:2, 2:].max() < 0.003


def signals(seed=0, servers=6, clusters=4):
    rng = np.random.default_rng(seed)
    model = np.broadcast_to(rng.normal(size=(clusters, 30)), (servers, clusters, 30))
    first = 0.3 * model
    return model, 0.02 * rng.normal(size=model.shape), first, np.ones((servers, clusters), bool)


def test_rows_are_weights_and_the_order_of_clusters_does_not_matter():
    model, steps, first, heard = signals()
    exchange = learned_exchange(model, steps, first, heard)
    np.testing.assert_allclose(exchange.sum(1), 1.0)
    assert exchange.min() >= 0.0
    np.testing.assert_allclose(exchange, exchange.T)
    order = [2, 0, 3, 1]
    moved = learned_exchange(model[:, order], steps[:, order], first[:, order], heard[:, order])
    np.testing.assert_allclose(moved, exchange[np.ix_(order, order)], atol=1e-9)


def test_noisier_models_borrow_more_and_like_ones_more_than_unlike():
    model, steps, first, heard = signals()
    model = model.copy()
    model[:, 1] = model[:, 0] + 0.05
    first = 0.3 * model
    quiet, loud = (learned_exchange(model, size * steps, first, heard) for size in (1.0, 3.0))
    assert (np.diag(loud) < np.diag(quiet)).all()
    assert quiet[0, 1] > 5.0 * quiet[0, 2:].max()


@pytest.mark.parametrize("lost", ["one server", "no model", "no steps", "backwards"])
def test_where_nothing_can_be_told_everybody_keeps_to_itself(lost):
    model, steps, first, heard = (np.array(part) for part in signals())
    if lost == "one server":
        heard[1:] = False
    if lost == "no model":
        model[:] = 0.0
    if lost == "no steps":
        steps[:] = 0.0
    if lost == "backwards":
        first = -first
    np.testing.assert_array_equal(learned_exchange(model, steps, first, heard), np.eye(4))


def test_a_cluster_only_one_server_has_keeps_to_itself():
    model, steps, first, heard = signals()
    heard = heard.copy()
    heard[1:, 2] = False
    exchange = learned_exchange(model, steps, first, heard)
    np.testing.assert_array_equal(exchange[2], np.eye(4)[2])
    np.testing.assert_array_equal(exchange[:, 2], np.eye(4)[2])


def test_the_single_step_has_no_learned_exchange():
    made = ClusteredADMM(Proximal(3, 4), (0, 1), 1.0, 3, tau="learned")
    with pytest.raises(ValueError, match="single step"):
        replace(made, steps="single")
