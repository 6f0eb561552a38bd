"""Clustered models (S2) as an estimator that works like scikit-learn's."""

from __future__ import annotations

import copy
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
from silograph.estimators.linear import ANSWERS, BOUNDS, CLASSES, MASKS, LinearModels
from silograph.families.clusters.job import ClusteredJob
from silograph.families.clusters.plan import ClusterBudget, ClusterData, ClusteredMethod, ClusteredPlan, learner_of
from silograph.families.servers import Servers, graph_of, with_intercept
from silograph.methods.calibrated import Calibrated, own_constant
from silograph.methods.random_effects import RandomEffects
from silograph.report.notebook_card import card, most_paid

_OWN = "Give an epsilon and no clip; without privacy models are the clients' own anyway."


@dataclass(eq=False, repr=False)
class ClusteredModels(LinearModels):
    """Learn a linear model for every client, together with the clients of its cluster and with similar clusters.

    Without privacy, random effects are used: the model w_k of client k is that of its cluster q plus a deviation, both
    shrunk by variances that are estimated from all records,

        y = u . w_k + noise,    w_k = beta + a_q + b_k

    With epsilon, all settings are chosen from public numbers. Clusters have their own models as far as these are not
    noise; a model is a constant if noise leaves nothing else. `personalise` then gives a client's model its own
    constant.

    With a setting that only S2 has (penalty rho, ridge, tau, clip), S2 is used. In every round it computes

        in a client         w_k = argmin f_k(w) - <phi_k, w - what> + (rho/2) |w - what|^2                      (4)
        at its server       w_q = the mean of w_k - phi_k/rho over the server's clients in cluster q            (8)
        between servers     wbar_q = the mean of w_q over neighbouring servers                                  (9)
        between clusters    what_q = (1 - tau) wbar_q + tau times the mean over other clusters                  (10)
        in a client         phi_k = phi_k + rho (what - w_k)                                                    (5)

    With epsilon, (4) is one gradient step with clipped gradients of records, and noise is added to its result.

    Attributes
    ----------
    models_ : (clients, features, plus 1 with an intercept), a model for each client, in the order they were given; with
        privacy, the model that the client's server has of its cluster.
    cluster_models_ : A model for each cluster.
    clusters_ : The cluster of every client.
    classes_ : The two labels, with the logistic loss.
    feature_names_in_ : The names of the columns, if they had names.
    variances_ : (2, features, plus 1 with an intercept), variances of the clients' deviations b_k and of the clusters'
        a_q, relative to the noise in a record; None with S2.
    own_constants_ : With epsilon: the variance of clients' own constants relative to the noise in a record (for
        classes, of their logits), estimated with privacy; None if it was not estimated.
    exchange_ : S2's learned weights: how much each cluster takes from each other; None without them.
    ledger_ : A row for everything that left a client.
    privacy_ : The cost, computed from the ledger.

    Examples
    --------
    >>> import numpy as np
    >>> from silograph import ClusteredModels
    >>> rng = np.random.default_rng(0)
    >>> slopes = np.array([[1.0, 0.0], [0.0, -1.0]])
    >>> x = rng.normal(size=(40, 10, 2))
    >>> clients = [(x[k], x[k] @ slopes[k % 2] + 0.1 * rng.normal(size=10)) for k in range(40)]
    >>> model = ClusteredModels().fit(clients, clusters=["a", "b"] * 20)
    >>> model.predict([[1.0, 0.0]], client=0).round(1)
    array([1.])
    >>> found = ClusteredModels(find=2).fit(clients)
    >>> len(set(found.clusters_[::2])), len(set(found.clusters_))
    (1, 2)
    >>> model.score(*clients[0], client=0) > 0.95
    True
    >>> labels = [(each, np.where(each[:, 0] > each[:, 1], "yes", "no")) for each in x]
    >>> model = ClusteredModels(find=1, loss="logistic").fit(labels)
    >>> model.predict_proba([[2.0, -2.0]], client=0).round(2)  # of "no" and of "yes"
    array([[0., 1.]])
    """

    _sections = (ClusteredMethod, Servers, ClusterBudget)
    _words: ClassVar[Mapping[str, str]] = {
        "clip": "With epsilon, for S2: a longer gradient of a record is scaled back to this length; None: all settings "
        "are chosen automatically.",
        "bounds": BOUNDS,
        "answers": ANSWERS,
        "masks": MASKS,
        "classes": CLASSES,
    }

    find: int | None = ClusteredMethod.find
    _: KW_ONLY
    learner: Literal["calibrated", "effects", "papers"] | None = ClusteredMethod.learner
    loss: Literal["ridge", "huber", "logistic"] = ClusteredMethod.loss
    penalty: float = ClusteredMethod.penalty
    ridge: float = ClusteredMethod.ridge
    rounds: int = ClusteredMethod.rounds
    tau: float | Literal["learned"] = ClusteredMethod.tau
    intercept: bool = ClusteredMethod.intercept
    graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] = "complete"
    epsilon: float | None = None
    delta: float = ClusterBudget.delta
    protect: Literal["records", "clients"] = ClusterBudget.protect
    clip: float | None = ClusteredMethod.clip
    bounds: Sequence[tuple[float, float]] | None = None
    answers: tuple[float, float] | None = None
    masks: Literal["protocol", "skipped", "none"] | None = ClusteredMethod.masks
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
        """Learn from `X`, a list of (records, answers), one for each client; `y` is ignored.

        `servers` names each client's server (default: one for all). `clusters` names each client's cluster; leave it
        out with `find`. Columns of DataFrames are matched by their names.
        """
        records = self._read(X, "client")
        if clusters is not None and len(clusters) != len(records):
            raise InputError("clusters", f"one for each of the {len(records)} clients", f"there are {len(clusters)}")
        plan = self._plan(clusters is not None)
        bounded = self._bounded = learner_of(plan) == "calibrated" or self.bounds is not None
        if bounded:
            records = self._scaled(records, self.bounds)
        tables, names = self._tables(records, self._homes(servers, len(records), "servers"), clusters)
        job = ClusteredJob.of(plan, tables, {}, graph_of(plan.topology, tables.regions, Path()))
        self._warn_of_constant(job.inner)
        outcome, door = self._learn(job)
        place = job.topo.index(names)
        arrays, told = outcome.arrays, "model" if self.epsilon is None else "cell_model"
        models = arrays[told][place], arrays["cluster_model"].mean(0)
        self.models_, self.cluster_models_ = (self._unscaled(each, self.bounds) if bounded else each for each in models)
        cluster = arrays.get("cluster", job.given_clusters)[place].astype(int)
        self.clusters_ = np.array([job.names[q] for q in cluster])
        self.exchange_ = arrays.get("exchange")
        effects = isinstance(job.inner, RandomEffects)
        self.variances_ = np.stack([arrays["variance"], arrays["cluster_variance"]]) if effects else None
        told_own = isinstance(job.inner, Calibrated) and job.inner.choice.personal
        self.own_constants_ = float(arrays["variance"][0]) if told_own else None
        self.privacy_ = job.privacy_section(door)
        return self

    def personalise(self, X: Any, y: Any, client: int) -> Self:
        """Return a copy in which one client's model has its own constant, from that client's records (X, y).

        This needs a fit with epsilon and no clip, which estimates how far clients' constants are apart. It costs
        nothing as long as the copy stays with the client: the copy reveals these records, and no noise hides them.
        `client` is the client's place, as in `predict`.

        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1.0, 1.0, size=(200, 20, 1))
        >>> own = rng.normal(size=200)
        >>> clients = [(each, each[:, 0] + constant) for each, constant in zip(x, own)]
        >>> public = {"bounds": [(-1, 1)], "answers": (-5, 5)}
        >>> model = ClusteredModels(find=1, epsilon=8, **public, masks="skipped", random_state=0).fit(clients)
        >>> mine = model.personalise(*clients[0], client=0)
        >>> [(each.predict([[0.0]], client=0) - own[0]).round(1) for each in (model, mine)]  # errors
        [array([1.4]), array([0.])]
        """
        model, (x, answers) = self._model(client), self._read_own(X, y)
        if self.own_constants_ is None:
            raise InputError("personalise", "a fit that estimated clients' own constants", "found none", _OWN)
        own, classes = copy.copy(self), self.loss == "logistic"
        answers = 2.0 * answers - 1.0 if classes else answers
        own.models_ = self.models_.copy()
        own.models_[client] = own_constant(model, with_intercept(x, True), answers, self.own_constants_, classes)
        return own

    def _write(self, folder: Path, goal: Path) -> None:
        self._refuse_bounded()
        super()._write(folder, goal)

    def _model(self, client: int) -> Array:
        check_is_fitted(self)
        if not 0 <= client < len(self.models_):
            raise InputError("predict", f"a client from 0 to {len(self.models_) - 1}", f"found {client}")
        return np.asarray(self.models_[client])

    def predict(self, X: Any, client: int) -> Any:
        """Predict the answers of the records `X` with one client's model.

        `client` is the client's place, from 0, in the list that `fit` was given.
        """
        return self._predicted(X, self._model(client))

    def predict_proba(self, X: Any, client: int) -> Array:
        """Predict the probability of each class for the records `X` with the model of `client`, as in `predict`.

        The result has the shape (records, 2), in the order of `classes_`. It needs the logistic loss.
        """
        return self._chances(X, self._model(client))

    def score(self, X: Any, y: Any = None, client: int | None = None) -> float:
        """Score the model of `client` on records `X` and answers `y`: accuracy with the logistic loss, else R^2.

        All three are needed.
        """
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
            todo = "Give one of them." if told else "If clients have no groups, say find=1: all are one cluster."
            raise InputError("ClusteredModels", "clusters in fit, or how many to find", found, todo)
        privacy = self._budget(ClusterBudget, "clip")
        cluster, classes = "cluster" if told else None, self._public_classes
        data = self._section(
            ClusterData, agent="client", target="answer", cluster=cluster, bounds=None, classes=classes
        )
        # S2's own step has no bounded gradient.
        step = "exact" if privacy is None or self.clip is None else "linearised"
        method = self._section(ClusteredMethod, step=step)
        return ClusteredPlan(data, self._section(Servers), method, privacy, seed=seed_of(self.random_state))
