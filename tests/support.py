"""What several test modules share: small federations and every method in every mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from silograph.core.keys import stream
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.kernels.edges import pairs
from silograph.kernels.spaces import EdgeList
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.base import Method
from silograph.methods.consensus_graph import ExactConsensus
from silograph.methods.moments_once import MomentsOnce
from silograph.methods.private_graph import LikelyGraphs, ReleasedConsensus
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian, Laplace, Mechanism
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import star

NODES = 8
COUNTS = {"ada": 300, "bob": 400, "cyd": 500}


def federation(seed: int = 0, nodes: int = NODES, counts: dict[str, int] = COUNTS) -> dict[str, np.ndarray]:
    """Signals of a few silos whose graphs share edges."""
    graphs = paper_graphs(seed, silos=len(counts), nodes=nodes, keep=0.7)
    return {
        name: smooth_signals(stream(seed, name, 0, "signals"), w, count)
        for (name, count), w in zip(counts.items(), graphs.local, strict=True)
    }


def all_but(nodes: int, *edges: int) -> EdgeList:
    """Every pair may be joined but these, counted in the order of pairs."""
    return EdgeList.of(nodes, *(np.delete(end, edges) for end in pairs(nodes)))


@dataclass(frozen=True)
class Case:
    """One method in one privacy mode."""

    name: str
    task: SmoothGraph
    method: Method
    mechanism: Mechanism | None = None
    budget: Budget | None = None

    @property
    def private(self) -> bool:
        return self.mechanism is not None


def cases() -> list[Case]:
    budget = Budget(2.0, 1e-5)
    once = Gaussian(gaussian_multiplier(2.0, 1e-5, 1))
    often = Gaussian(gaussian_multiplier(2.0, 1e-5, 12))
    model = {"beta": 0.05, "nu": 3.0, "lam": 0.05}
    moment, distances = SmoothGraph(NODES, "moment"), SmoothGraph(NODES, "clipped-distances", 5.0)
    clipped = SmoothGraph(NODES, "moment", 1.5)
    counts = tuple(COUNTS.values())
    exact = ExactConsensus(NODES, **model, tolerance=1e-5)
    corollary = PaperConsensus(NODES, **model, form="S0", local_steps=1, rounds=12, release=distances)
    theorem = PaperConsensus(NODES, **model, local_steps=3, rounds=12, release=distances, gradient_clip=2.0)
    pure = Laplace(1.0 / 20.0)
    shared = CorrelatedGaussian(once.multiplier, (tuple(sorted(COUNTS)),), 3)
    return [
        Case("exact", SmoothGraph(NODES), exact),
        Case("exact by degree", SmoothGraph(NODES), ExactConsensus(NODES, degree=3.0, tolerance=1e-5)),
        Case("paper S3", SmoothGraph(NODES), PaperConsensus(NODES, degree=3.0, rounds=12)),
        Case("paper S0", SmoothGraph(NODES), PaperConsensus(NODES, **model, form="S0", local_steps=1, rounds=12)),
        Case("moments once", SmoothGraph(NODES, "second-moments"), MomentsOnce(NODES, counts)),
        Case("one release", moment, ReleasedConsensus(moment, exact, once, counts), once, budget),
        Case("one release, clip", clipped, ReleasedConsensus(clipped, exact, once, counts), once, budget),
        Case("one release, likely", moment, ReleasedConsensus(moment, LikelyGraphs(), once, counts), once, budget),
        Case("correlated", moment, ReleasedConsensus(moment, LikelyGraphs(), shared, counts), shared, budget),
        Case("one release, Laplace", moment, ReleasedConsensus(moment, exact, pure, counts), pure, Budget(20.0, 0.0)),
        Case("per round, Corollary 1", distances, corollary, often, budget),
        Case("per round, Theorem 2", distances, theorem, often, budget),
    ]


def run(
    case: Case,
    signals: dict[str, np.ndarray],
    engine: str = "vector",
    seed: int = 5,
    present: Callable[[int], list[str]] | None = None,
):
    """All states of a run, its outcome and its door."""
    topo = star(list(signals))
    door = Door(seed, Ledger(), case.mechanism, case.budget)
    place = ENGINES[engine]([case.task.prepare(signals[name]) for name in topo.silos], topo, door)
    states = list(rounds(case.method, topo, place, door, present=present))
    outcome = case.method.outcome(states[-1].servers, place.deliver(case.method, states[-1]), topo)
    return states, outcome, door


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    """Equal to the last bit."""
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
