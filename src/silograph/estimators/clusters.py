"""Clustered models (S2) as an estimator in scikit-learn's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from silograph.core.errors import InputError
from silograph.core.keys import seed_of
from silograph.data.regions import RegionTables
from silograph.data.tables import LARGEST
from silograph.estimators.base import PlanEstimator, RandomState
from silograph.families.clusters.job import ClusteredJob
from silograph.families.clusters.plan import ClusterBudget, ClusterData, ClusteredMethod, ClusteredPlan
from silograph.families.servers import Servers, graph_of
from silograph.report.notebook_card import card, most_paid


@dataclass(eq=False, repr=False)
class ClusteredModels(PlanEstimator):
    """A linear model for every client, learned with the clients of its cluster and with clusters that are alike (S2).

    Attributes
    ----------
    models_ : (clients, features, and 1 with an intercept) a model for each client, in the order they were given; under
        privacy its server's model of its cluster.
    cluster_models_ : a model for each cluster. clusters_ : the cluster of every client.
    exchange_ : what each cluster takes of each in a round.
    ledger_, privacy_ : the rows of what left every client, and the cost read from them.
    """

    _sections = (ClusteredMethod, Servers, ClusterBudget)
    _words: ClassVar[Mapping[str, str]] = {
        "clip": "The longest gradient a record may have, with privacy; steps are linearised then."
    }

    find: int | None = ClusteredMethod.find
    _: KW_ONLY
    loss: Literal["ridge", "huber", "logistic"] = ClusteredMethod.loss
    penalty: float = ClusteredMethod.penalty
    ridge: float = ClusteredMethod.ridge
    rounds: int = 150
    tau: float | Literal["learned"] = ClusteredMethod.tau
    intercept: bool = ClusteredMethod.intercept
    graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] = "complete"
    epsilon: float | None = None
    delta: float = ClusterBudget.delta
    clip: float | None = ClusteredMethod.clip
    random_state: RandomState = None

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
        job = ClusteredJob.of(plan, tables, {}, graph_of(plan.topology, tables.regions, Path()))
        outcome, door = self._learn(job)
        place = job.topo.index([tables.agents[k] for k in order])
        told = "model" if self.epsilon is None else "cell_model"
        self.models_ = outcome.arrays[told][place]
        self.cluster_models_ = outcome.arrays["cluster_model"].mean(0)
        cluster = outcome.arrays.get("cluster", np.array(job.inner.clusters))[place].astype(int)
        self.clusters_ = np.array([job.names[q] for q in cluster])
        self.exchange_ = outcome.arrays.get("exchange")
        self.privacy_ = job.privacy_section(door)
        self.n_features_in_ = len(tables.features)
        return self

    def predict(self, X: Any, client: int) -> Any:
        """The answers of one client's model, the client being counted as `fit` was given them."""
        check_is_fitted(self)
        if not 0 <= client < len(self.models_):
            raise InputError("predict", f"a client from 0 to {len(self.models_) - 1}", f"found {client}")
        x = np.atleast_2d(np.asarray(X, dtype=np.float64))
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise InputError("predict", f"records of {self.n_features_in_} features", f"found shape {x.shape}")
        margin = np.einsum("nm,m->n", x, self.models_[client][: self.n_features_in_])
        margin = margin + (self.models_[client][-1] if self.intercept else 0.0)
        return np.where(margin >= 0.0, 1, 0) if self.loss == "logistic" else margin

    def _card(self) -> str:
        names, counts = np.unique(self.clusters_, return_counts=True)
        facts = [("clients", len(self.models_)), ("features", self.n_features_in_), ("clusters", len(names))]
        rows = [(str(name), int(count)) for name, count in zip(names, counts, strict=True)]
        return card(repr(self), [*facts, *most_paid(self.privacy_)], ("cluster", "clients"), rows)

    def _tables(
        self, clients: Sequence[tuple[Any, Any]], servers: Sequence[str] | None, clusters: Sequence[Any] | None
    ) -> tuple[RegionTables, list[int]]:
        """The clients as tables, in the order of their names, and where each of those given is in it."""
        count = len(clients)
        homes = ["server"] * count if servers is None else [str(name) for name in servers]
        for what, told in (("servers", homes), ("clusters", clusters)):
            if told is not None and len(told) != count:
                raise InputError(what, f"one for each of the {count} clients", f"there are {len(told)}")
        if not count:
            raise InputError("clients", "at least one (records, answers)", "found none")
        width = np.ndim(clients[0][0]) == 2 and np.shape(clients[0][0])[1]
        names = [f"{home}/client-{k:06d}" for k, home in enumerate(homes)]
        order = sorted(range(count), key=names.__getitem__)
        regions = sorted(set(homes))
        records = [(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)) for x, y in clients]
        for k, part in enumerate(records):
            if any(np.abs(values).max(initial=0.0) > LARGEST for values in part):
                raise InputError(f"client {k}", f"numbers of at most {LARGEST:g}", "found a larger one", "Rescale it.")
        tables = RegionTables(
            tuple(regions),
            tuple(f"x{k}" for k in range(width or 0)),
            tuple(names[k] for k in order),
            tuple(regions.index(homes[k]) for k in order),
            tuple(records[k] for k in order),
            () if clusters is None else tuple(str(clusters[k]) for k in order),
        )
        return tables, [order.index(k) for k in range(count)]

    def _plan(self, told: bool) -> ClusteredPlan:
        if told == (self.find is not None):
            found = "found both" if told else "found neither"
            raise InputError("ClusteredModels", "clusters in fit, or how many to find", found)
        privacy = self._budget(ClusterBudget, "clip")
        method = self._section(ClusteredMethod, step="exact" if privacy is None else "linearised")
        data = ClusterData("client", "answer", cluster="cluster" if told else None)
        return ClusteredPlan(data, self._section(Servers), method, privacy, seed=seed_of(self.random_state))
