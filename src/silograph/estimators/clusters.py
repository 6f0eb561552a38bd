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
from silograph.core.types import Array
from silograph.estimators.base import RandomState
from silograph.estimators.linear import CLASSES, LinearModels
from silograph.families.clusters.job import ClusteredJob
from silograph.families.clusters.plan import ClusterBudget, ClusterData, ClusteredMethod, ClusteredPlan
from silograph.families.servers import Servers, graph_of
from silograph.report.notebook_card import card, most_paid


@dataclass(eq=False, repr=False)
class ClusteredModels(LinearModels):
    """A linear model for every client, learned with the clients of its cluster and with clusters that are alike.

    Without privacy by random effects: a client's model is its cluster's and a deviation, shrunk by variances that all
    records tell. With privacy, or with a setting that only S2 has (penalty, ridge, tau), by S2.

    Attributes
    ----------
    models_ : (clients, features, and 1 with an intercept) a model for each client, in the order they were given; under
        privacy its server's model of its cluster.
    cluster_models_ : a model for each cluster. clusters_ : the cluster of every client.
    classes_ : the two labels, with the logistic loss. feature_names_in_ : the columns' names, where they had some.
    variances_ : of clients' deviations from their cluster and of clusters' from each other, for the constant and the
        slopes, relative to the noise in a record; None with S2. exchange_ : what each cluster of S2 takes of each.
    ledger_, privacy_ : the rows of what left every client, and the cost read from them.
    """

    _sections = (ClusteredMethod, Servers, ClusterBudget)
    _words: ClassVar[Mapping[str, str]] = {
        "clip": "The longest gradient a record may have, with privacy; steps are linearised then.",
        "classes": CLASSES,
    }

    find: int | None = ClusteredMethod.find
    _: KW_ONLY
    learner: Literal["effects", "papers"] | None = ClusteredMethod.learner
    loss: Literal["ridge", "huber", "logistic"] = ClusteredMethod.loss
    penalty: float = ClusteredMethod.penalty
    ridge: float = ClusteredMethod.ridge
    rounds: int = ClusteredMethod.rounds
    tau: float | Literal["learned"] = ClusteredMethod.tau
    intercept: bool = ClusteredMethod.intercept
    graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] = "complete"
    epsilon: float | None = None
    delta: float = ClusterBudget.delta
    clip: float | None = ClusteredMethod.clip
    classes: Sequence[Any] | None = None
    random_state: RandomState = None

    def fit(
        self,
        X: Sequence[tuple[Any, Any]],
        y: None = None,
        *,
        servers: Sequence[str] | None = None,
        clusters: Sequence[Any] | None = None,
    ) -> Self:
        """Learn from a list of (records, answers), one for each client, and each client's server and cluster.

        Columns of DataFrames are matched by their names.
        """
        records = self._read(X, "client")
        if clusters is not None and len(clusters) != len(records):
            raise InputError("clusters", f"one for each of the {len(records)} clients", f"there are {len(clusters)}")
        tables, names = self._tables(records, self._homes(servers, len(records), "servers"), clusters)
        plan = self._plan(clusters is not None)
        job = ClusteredJob.of(plan, tables, {}, graph_of(plan.topology, tables.regions, Path()))
        outcome, door = self._learn(job)
        place = job.topo.index(names)
        told = "model" if self.epsilon is None else "cell_model"
        self.models_ = outcome.arrays[told][place]
        self.cluster_models_ = outcome.arrays["cluster_model"].mean(0)
        cluster = outcome.arrays.get("cluster", np.array(job.inner.clusters))[place].astype(int)
        self.clusters_ = np.array([job.names[q] for q in cluster])
        self.exchange_ = outcome.arrays.get("exchange")
        arrays, spread = outcome.arrays, ("variance", "cluster_variance")
        self.variances_ = np.stack([arrays[name] for name in spread]) if spread[0] in arrays else None
        self.privacy_ = job.privacy_section(door)
        return self

    def _model(self, client: int) -> Array:
        check_is_fitted(self)
        if not 0 <= client < len(self.models_):
            raise InputError("predict", f"a client from 0 to {len(self.models_) - 1}", f"found {client}")
        return np.asarray(self.models_[client])

    def predict(self, X: Any, client: int) -> Any:
        """The answers of one client's model, the client being counted as `fit` was given them."""
        return self._predicted(X, self._model(client))

    def predict_proba(self, X: Any, client: int) -> Array:
        """(records, 2): the chance of each class, in the order of `classes_`."""
        return self._chances(X, self._model(client))

    def score(self, X: Any, y: Any = None, client: int | None = None) -> float:
        """Of one client's model: accuracy with the logistic loss, else R^2."""
        if y is None or client is None:
            todo = "GridSearchCV would leave out whole clients, who then have no model: hold back records instead."
            raise InputError("score", "records, their answers and whose they are", "something is missing", todo)
        return self._scored(X, y, self._model(client))

    def _card(self) -> str:
        names, counts = np.unique(self.clusters_, return_counts=True)
        facts = [("clients", len(self.models_)), ("features", self.n_features_in_), ("clusters", len(names))]
        rows = [(str(name), int(count)) for name, count in zip(names, counts, strict=True)]
        return card(repr(self), [*facts, *most_paid(self.privacy_)], ("cluster", "clients"), rows)

    def _plan(self, told: bool) -> ClusteredPlan:
        if told == (self.find is not None):
            found = "found both" if told else "found neither"
            raise InputError("ClusteredModels", "clusters in fit, or how many to find", found)
        privacy = self._budget(ClusterBudget, "clip")
        method = self._section(ClusteredMethod, step="exact" if privacy is None else "linearised")
        data = ClusterData("client", "answer", cluster="cluster" if told else None)
        return ClusteredPlan(data, self._section(Servers), method, privacy, seed=seed_of(self.random_state))
