"""What the tests of both consensus-graph papers share: silos to learn from, and a run one can look into."""

from types import SimpleNamespace

import numpy as np
import pytest

from silograph.core.keys import stream
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.engines.base import vector
from silograph.methods.base import begin
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import rounds
from silograph.topology import star


@pytest.fixture(scope="session")
def silos():
    """silos(seed, ...) -> {name: signals} as in the papers' experiments."""

    def make(seed, count=3, nodes=6, records=50, keep=0.5, scale=1.0):
        graphs = paper_graphs(seed, count, nodes, keep).local
        return {
            f"silo {i}": scale * smooth_signals(stream(seed, f"silo {i}", 0, "signals"), graph, records)
            for i, graph in enumerate(graphs)
        }

    return make


@pytest.fixture(scope="session")
def states():
    """states(method, task, {name: records}) -> the state before the first round and after every round."""

    def run(method, task, records, mechanism=None, seed=0):
        topo = star(list(records))
        door = Door(seed, Ledger(), mechanism)
        engine = vector([task.prepare(records[name]) for name in topo.silos], topo, door)
        return [begin(method, topo), *rounds(method, topo, engine, door)]

    return run


@pytest.fixture(scope="session")
def as_given():
    """A task whose records are zbar already, for theorems that start from there."""
    return SimpleNamespace(prepare=lambda zbar: {"zbar": np.asarray(zbar), "count": np.array(1.0)})
