"""Consensus graphs as an estimator in scikit-learn's shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from silograph.core.errors import InputError
from silograph.core.keys import seed_of
from silograph.core.types import Array
from silograph.data.silos import Silos, from_arrays
from silograph.estimators.base import PlanEstimator, RandomState
from silograph.families.graphs.job import GraphJob
from silograph.families.graphs.plan import ConsensusGraph as MethodPlan
from silograph.families.graphs.plan import Data, GraphPlan, Privacy
from silograph.families.graphs.results import edges, privacy_section, to_networkx
from silograph.kernels.edges import adjacency
from silograph.kernels.spaces import AllPairs
from silograph.report.notebook_card import COST, card, protected, small_graph, worst


@dataclass(eq=False, repr=False)
class ConsensusGraph(PlanEstimator):
    """A graph for every site and the consensus graph, from the sites' signals.

    Attributes
    ----------
    graphs_ : (sites, nodes, nodes) weight matrices, in the order the sites were given; sparse ones on candidate edges.
    consensus_ : (nodes, nodes) weight matrix.
    confidence_ : like `graphs_`, how often an edge is there when signals are drawn again; None under privacy.
    weights_ : contribution weight of every site to the consensus.
    gap_ : certified relative gap of (8), or None for the papers' solver.
    ledger_ : the rows of what left every site.
    privacy_ : the bill read from the ledger, as in result.json.
    parameters_, names_, nodes_, objective_, n_iter_ : as used.
    """

    _sections = (Data, MethodPlan, Privacy)

    degree: float | None = MethodPlan.degree
    _: KW_ONLY
    density: float | None = MethodPlan.density
    consensus_density: float | None = MethodPlan.consensus_density
    neighbours: int | None = Data.neighbours
    resamples: int | None = MethodPlan.resamples
    beta: float | None = MethodPlan.beta
    nu: float | None = MethodPlan.nu
    lam: float | None = MethodPlan.lam
    alpha: float = MethodPlan.alpha
    solver: Literal["exact", "paper"] = MethodPlan.solver
    epsilon: float | None = None
    delta: float | None = Privacy.delta
    clip: float | None = Privacy.clip
    random_state: RandomState = None

    def fit(self, X: Any, y: None = None, *, names: Sequence[str] | None = None) -> Self:
        """Learn from a list of (signals, nodes) tables, one per site; a single table is one site."""
        silos = self._silos(X, names)
        plan = self._plan()
        job = GraphJob.of(plan, silos, Path())
        outcome, door = self._learn(job)

        setup, self._space = job.setup, job.setup.task.space
        order = setup.topo.index(silos.names)
        self._vectors = outcome.arrays["graph"][order]
        self._consensus = outcome.arrays["consensus"]
        self._confidence = outcome.arrays["confidence"][order] if "confidence" in outcome.arrays else None
        self.names_, self.nodes_ = list(silos.names), list(silos.nodes)
        self.graphs_ = self._matrices(self._vectors)
        self.consensus_ = self._matrices(self._consensus[None])[0]
        self.confidence_ = None if self._confidence is None else self._matrices(self._confidence)
        self.weights_ = outcome.arrays["gamma"][order]
        self.gap_, self.objective_ = outcome.facts["certified_gap"], outcome.facts["objective"]
        self.parameters_, self.n_iter_ = outcome.facts["parameters"], outcome.facts["rounds"]
        self.privacy_ = privacy_section(plan, setup, door, outcome.facts)
        return self

    def to_networkx(self, site: str | None = None, threshold: float = 0.0) -> Any:
        """The consensus graph, or a site's, as a networkx.Graph with edge attribute `weight`."""
        check_is_fitted(self)
        if site is not None and site not in self.names_:
            raise InputError("to_networkx", f"one of {', '.join(self.names_)}", f"{site!r} came")
        w, sure = self._consensus, None if self._confidence is None else self._confidence.mean(0)
        if site is not None:
            k = self.names_.index(site)
            w, sure = self._vectors[k], None if self._confidence is None else self._confidence[k]
        return to_networkx(list(edges(w, self.nodes_, threshold, self._space, sure)), self.nodes_)

    def _matrices(self, vectors: Array) -> Any:
        """Symmetric matrices: sparse ones on candidate edges, else one array."""
        if isinstance(self._space, AllPairs):
            return np.stack([adjacency(w) for w in vectors])
        from scipy.sparse import coo_array

        ends, shape = self._space.ends(), (self._space.nodes, self._space.nodes)
        halves = [coo_array((w, ends), shape=shape).tocsr() for w in vectors]
        for half in halves:
            half.eliminate_zeros()
        return [half + half.T for half in halves]

    def _card(self) -> str:
        costs, nodes = worst(self.privacy_["guarantees"]), len(self.nodes_)
        drawn = [(e.source, e.target, e.weight) for e in edges(self._consensus, self.nodes_, 0.0, self._space)]
        facts = [
            ("sites", len(self.names_)),
            ("nodes", nodes),
            ("consensus edges", len(drawn)),
            ("certified gap", self.gap_),
            ("rounds", self.n_iter_),
            *protected(self.privacy_),
        ]
        counts = [int((w > 0.0).sum()) for w in self._vectors]
        rows = [(s, n, 2 * n / nodes, *costs[s]) for s, n in zip(self.names_, counts, strict=True)]
        header = ("site", "edges", "mean degree", *COST)
        return card(repr(self), facts, header, rows, small_graph(self.nodes_, drawn, "Consensus graph"))

    def _silos(self, X: Any, names: Sequence[str] | None) -> Silos:
        if isinstance(X, list | tuple) and X and np.ndim(X[0]) == 2:
            silos = from_arrays(X, names, private=self.epsilon is not None)
            self.n_features_in_ = len(silos.nodes)
            return silos
        table = validate_data(self, X, dtype="numeric", ensure_min_samples=2, ensure_min_features=3)
        nodes = getattr(self, "feature_names_in_", None)
        return from_arrays([table], names, None if nodes is None else list(nodes), self.epsilon is not None)

    def _plan(self) -> GraphPlan:
        privacy, seed = self._budget(Privacy, "delta", "clip"), seed_of(self.random_state)
        return GraphPlan(self._section(Data), self._section(MethodPlan), privacy, seed=seed)
