"""Estimators in scikit-learn's shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from silograph.core.errors import InputError
from silograph.core.keys import seed_of
from silograph.core.types import Array
from silograph.data.silos import Silos, from_arrays
from silograph.data.tables import LARGEST
from silograph.data.units import UnitTables
from silograph.families.clusters.job import ClusteredJob
from silograph.families.clusters.plan import ClusterBudget, ClusterData, ClusteredMethod, ClusteredPlan
from silograph.families.graphs.job import GraphJob
from silograph.families.graphs.plan import ConsensusGraph as MethodPlan
from silograph.families.graphs.plan import Data, GraphPlan, Privacy
from silograph.families.graphs.results import edges, privacy_section, to_networkx
from silograph.families.servers import Servers, graph_of
from silograph.kernels.edges import adjacency
from silograph.kernels.spaces import AllPairs
from silograph.report.card import COST, card, most_paid, protected, small_graph, worst
from silograph.run.jobs import run_in_memory


class ConsensusGraph(BaseEstimator):
    """A graph for every site and the consensus graph, from the sites' signals.

    Parameters
    ----------
    degree, density : wanted mean degree of the sites' graphs, or share of all pairs that are joined (degree 6, or less
        for few nodes, if neither these nor `beta` are given).
    consensus_density : share of all pairs that are joined in the consensus graph; sets `lam`.
    neighbours : candidate edges are the so many nearest neighbours of every node at any site (all pairs up to 3000
        nodes, if left out); only these are looked at.
    resamples : how often signals are drawn again to say how sure an edge is (100, where memory allows; 0 is never).
    beta, nu, lam, alpha : the weights of the model (8); what is None is chosen.
    solver : "exact" (with a certificate) or "paper" (Algorithm 1).
    epsilon, delta : total privacy budget of every site; None means no privacy.
    clip : public bound on the length of a signal around its own mean; None scales every signal to length 1.
    random_state : a whole number, or a numpy generator, makes the noise repeatable, which is a rehearsal; None draws
        secret noise.

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

    def __init__(
        self,
        degree: float | None = None,
        *,
        density: float | None = None,
        consensus_density: float | None = None,
        neighbours: int | None = None,
        resamples: int | None = None,
        beta: float | None = None,
        nu: float | None = None,
        lam: float | None = None,
        alpha: float = 1.0,
        solver: Literal["exact", "paper"] = "exact",
        epsilon: float | None = None,
        delta: float | None = None,
        clip: float | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.degree = degree
        self.density = density
        self.consensus_density = consensus_density
        self.neighbours = neighbours
        self.resamples = resamples
        self.beta = beta
        self.nu = nu
        self.lam = lam
        self.alpha = alpha
        self.solver = solver
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.random_state = random_state

    def fit(self, X: Any, y: None = None, *, names: Sequence[str] | None = None) -> Self:
        """Learn from a list of (signals, nodes) tables, one per site; a single table is one site."""
        silos = self._silos(X, names)
        plan = self._plan()
        job = GraphJob.of(plan, silos, Path())
        outcome, door = run_in_memory(job, plan.seed)

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
        self.ledger_ = list(door.ledger.rows)
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

    def _html_repr(self) -> str:
        """For notebooks: what was learned, once there is something; before that scikit-learn's own diagram."""
        if not hasattr(self, "graphs_"):
            return str(super()._html_repr())
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
        method = MethodPlan(
            solver=self.solver,
            degree=self.degree,
            density=self.density,
            consensus_density=self.consensus_density,
            resamples=self.resamples,
            alpha=self.alpha,
            beta=self.beta,
            nu=self.nu,
            lam=self.lam,
        )
        privacy = None if self.epsilon is None else Privacy(self.epsilon, self.delta, clip=self.clip)
        if privacy is None and (self.delta is not None or self.clip is not None):
            raise InputError("ConsensusGraph", "epsilon with delta or clip", "it is None")
        return GraphPlan(Data(neighbours=self.neighbours), method, privacy, seed=seed_of(self.random_state))


class ClusteredModels(BaseEstimator):
    """A linear model for every client, learned with the clients of its cluster and with clusters that are alike (S2).

    Parameters
    ----------
    find : how many clusters to find; None means that `fit` is told the clusters.
    loss : "ridge", "huber" or "logistic" (labels 0 and 1, or -1 and 1).
    penalty, ridge, rounds : how strongly clients are held to their cluster, the ridge weight, and how many rounds.
    tau : weight of other clusters from 0 to 1, or "learned".
    intercept : whether models have a constant.
    graph : which servers talk to each other: "complete", "ring", "grid", "random" or "erdos-renyi".
    epsilon, delta, clip : budget for each of a client's records, over the whole run, and the longest gradient a record
        may have; steps are linearised then. None means no privacy.
    random_state : a whole number, or a numpy generator, makes the noise repeatable, which is a rehearsal; None draws
        secret noise.

    Attributes
    ----------
    models_ : (clients, features, and 1 with an intercept) a model for each client, in the order they were given; under
        privacy its server's model of its cluster.
    cluster_models_ : a model for each cluster. clusters_ : the cluster of every client.
    exchange_ : what each cluster takes of each in a round.
    ledger_, privacy_ : the rows of what left every client, and the bill read from them.
    """

    def __init__(
        self,
        find: int | None = None,
        *,
        loss: Literal["ridge", "huber", "logistic"] = "ridge",
        penalty: float = 3.0,
        ridge: float = 0.01,
        rounds: int = 150,
        tau: float | Literal["learned"] = "learned",
        intercept: bool = True,
        graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] = "complete",
        epsilon: float | None = None,
        delta: float = 1e-6,
        clip: float | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.find = find
        self.loss = loss
        self.penalty = penalty
        self.ridge = ridge
        self.rounds = rounds
        self.tau = tau
        self.intercept = intercept
        self.graph = graph
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.random_state = random_state

    def fit(
        self,
        X: Sequence[tuple[Any, Any]],
        y: None = None,
        *,
        servers: Sequence[str] | None = None,
        clusters: Sequence[Any] | None = None,
    ) -> Self:
        """Learn from a list of (records, answers), one for each client, and each client's server and cluster."""
        tables, order = self._tables(X, servers, clusters)
        plan = self._plan(clusters is not None)
        job = ClusteredJob.of(plan, tables, {}, graph_of(plan.topology, tables.units, Path()))
        outcome, door = run_in_memory(job, plan.seed)
        place = job.topo.index([tables.agents[k] for k in order])
        told = "model" if self.epsilon is None else "cell_model"
        self.models_ = outcome.arrays[told][place]
        self.cluster_models_ = outcome.arrays["cluster_model"].mean(0)
        cluster = outcome.arrays.get("cluster", np.array(job.inner.clusters))[place].astype(int)
        self.clusters_ = np.array([job.names[q] for q in cluster])
        self.exchange_ = outcome.arrays.get("exchange")
        self.ledger_, self.privacy_ = list(door.ledger.rows), job.privacy_section(door)
        self.n_features_in_ = len(tables.features)
        return self

    def predict(self, X: Any, client: int) -> Any:
        """The answers of one client's model, the client being counted as `fit` was given them."""
        check_is_fitted(self)
        if not 0 <= client < len(self.models_):
            raise InputError("predict", f"a client from 0 to {len(self.models_) - 1}", f"{client} came")
        x = np.atleast_2d(np.asarray(X, dtype=np.float64))
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise InputError("predict", f"records of {self.n_features_in_} features", f"shape {x.shape} came")
        margin = np.einsum("nm,m->n", x, self.models_[client][: self.n_features_in_])
        margin = margin + (self.models_[client][-1] if self.intercept else 0.0)
        return np.where(margin >= 0.0, 1, 0) if self.loss == "logistic" else margin

    def _html_repr(self) -> str:
        """For notebooks: what was learned, once there is something; before that scikit-learn's own diagram."""
        if not hasattr(self, "models_"):
            return str(super()._html_repr())
        names, counts = np.unique(self.clusters_, return_counts=True)
        facts = [("clients", len(self.models_)), ("features", self.n_features_in_), ("clusters", len(names))]
        rows = [(str(name), int(count)) for name, count in zip(names, counts, strict=True)]
        return card(repr(self), [*facts, *most_paid(self.privacy_)], ("cluster", "clients"), rows)

    def _tables(
        self, clients: Sequence[tuple[Any, Any]], servers: Sequence[str] | None, clusters: Sequence[Any] | None
    ) -> tuple[UnitTables, list[int]]:
        """The clients as tables, in the order of their names, and where each of those given is in it."""
        count = len(clients)
        homes = ["server"] * count if servers is None else [str(name) for name in servers]
        for what, told in (("servers", homes), ("clusters", clusters)):
            if told is not None and len(told) != count:
                raise InputError(what, f"one for each of the {count} clients", f"there are {len(told)}")
        if not count:
            raise InputError("clients", "at least one (records, answers)", "none came")
        width = np.ndim(clients[0][0]) == 2 and np.shape(clients[0][0])[1]
        names = [f"{home}/client-{k:06d}" for k, home in enumerate(homes)]
        order = sorted(range(count), key=names.__getitem__)
        units = sorted(set(homes))
        records = [(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)) for x, y in clients]
        for k, part in enumerate(records):
            if any(np.abs(values).max(initial=0.0) > LARGEST for values in part):
                raise InputError(f"client {k}", f"numbers of at most {LARGEST:g}", "a larger one came", "Rescale it.")
        tables = UnitTables(
            tuple(units),
            tuple(f"x{k}" for k in range(width or 0)),
            tuple(names[k] for k in order),
            tuple(units.index(homes[k]) for k in order),
            tuple(records[k] for k in order),
            () if clusters is None else tuple(str(clusters[k]) for k in order),
        )
        return tables, [order.index(k) for k in range(count)]

    def _plan(self, told: bool) -> ClusteredPlan:
        if told == (self.find is not None):
            came = "both came" if told else "neither came"
            raise InputError("ClusteredModels", "clusters in fit, or how many to find", came)
        method = ClusteredMethod(
            loss=self.loss,
            penalty=self.penalty,
            ridge=self.ridge,
            rounds=self.rounds,
            tau=self.tau,
            intercept=self.intercept,
            step="exact" if self.epsilon is None else "linearised",
            find=self.find,
            clip=self.clip,
        )
        privacy = None if self.epsilon is None else ClusterBudget(self.epsilon, self.delta)
        if privacy is None and self.clip is not None:
            raise InputError("ClusteredModels", "epsilon with clip", "it is None")
        data = ClusterData("client", "answer", cluster="cluster" if told else None)
        return ClusteredPlan(data, Servers(self.graph), method, privacy, seed=seed_of(self.random_state))
