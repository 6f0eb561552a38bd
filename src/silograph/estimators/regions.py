"""Graph federation (S1) as an estimator like scikit-learn's: a linear model for every region of agents."""

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
from silograph.data.tables import listed
from silograph.estimators.base import RandomState, refuse_search
from silograph.estimators.linear import ANSWERS, BOUNDS, CLASSES, MASKS, LinearModels
from silograph.families.federation.job import FederationJob
from silograph.families.federation.plan import AgentBudget, FederationMethod, FederationPlan, RegionData, learner_of
from silograph.families.servers import Servers, graph_of
from silograph.report.notebook_card import card, most_paid


@dataclass(eq=False, repr=False)
class RegionModels(LinearModels):
    """Learn a linear model for every region of agents, whose servers talk to each other over a graph.

    Without epsilon, a region's model is the common one and a deviation, shrunk by variances that are estimated from all
    records: no setting is needed, and features may have any units. If you give a setting that only S1 has (`step`,
    `ridge`, `masks`, `clip`), S1 is used. In every round, with mu = `step` and the weights a_pm of the servers' graph,
    it computes

        in an agent        w_k   = w_p - mu times the gradient of its loss at its region's model w_p     (3)
        at its server      psi_p = w_p + the mean of w_k - w_p over the agents of region p               (4)
        between servers    w_p   = the sum over servers m of a_pm psi_m                                  (5)

    With epsilon and a clip, updates w_k - w_p are clipped, and noise is added to their sums. With epsilon and no clip,
    settings that you do not give are chosen from public numbers, and all regions have one model; it is a constant if
    noise leaves nothing else.

    Attributes
    ----------
    models_ : (regions, features, plus 1 with an intercept), the regions' models, in the order of `regions_`.
    centroid_ : The mean of the regions' models.
    regions_ : The regions' names.
    classes_ : The two labels, with the logistic loss.
    feature_names_in_ : The names of the columns, if they had names.
    ledger_ : A row for everything that left an agent.
    privacy_ : The cost, computed from the ledger.

    Examples
    --------
    >>> import numpy as np
    >>> from silograph import RegionModels
    >>> x = np.random.default_rng(0).normal(size=(40, 10, 2))
    >>> agents = [(each, each @ [1.0, -2.0]) for each in x]
    >>> model = RegionModels("ridge").fit(agents, regions=["north", "south"] * 20)
    >>> model.regions_, model.models_.shape
    (['north', 'south'], (2, 3))
    >>> model.predict([[1.0, 0.0]], region="north").round(1)
    array([1.])
    >>> labels = [(each, np.where(each[:, 0] > each[:, 1], "yes", "no")) for each in x]
    >>> model = RegionModels("logistic").fit(labels)
    >>> model.predict_proba([[2.0, -2.0]]).round(2)  # of "no" and of "yes"
    array([[0., 1.]])
    >>> model.score(labels) > 0.95
    True
    """

    _sections = (FederationMethod, Servers, AgentBudget)
    _words: ClassVar[Mapping[str, str]] = {
        "loss": "The loss that is minimised; logistic is for two classes.",
        "ridge": "S1: the weight of the model's squared length in the loss.",
        "intercept": "Whether models have a constant.",
        "step": "S1: the size mu of the step that an agent takes in a round.",
        "rounds": "How many rounds are taken; without epsilon, and without S1, at most.",
        "epsilon": "Budget of every agent over the whole run; None means no privacy.",
        "delta": "Delta of the budget.",
        "clip": "A longer update of an agent is scaled back to this length; None: with epsilon, settings that are not "
        "given are chosen automatically.",
        "bounds": BOUNDS,
        "answers": ANSWERS,
        "masks": MASKS,
        "classes": CLASSES,
    }

    loss: Literal["logistic", "ridge", "huber"] = FederationMethod.loss
    _: KW_ONLY
    ridge: float = FederationMethod.ridge
    intercept: bool = FederationMethod.intercept
    step: float = FederationMethod.step
    rounds: int = FederationMethod.rounds
    graph: Literal["complete", "ring", "grid", "random", "erdos-renyi"] = "complete"
    epsilon: float | None = None
    delta: float = AgentBudget.delta
    clip: float | None = FederationMethod.clip
    bounds: Sequence[tuple[float, float]] | None = None
    answers: tuple[float, float] | None = None
    masks: Literal["protocol", "skipped", "none"] | None = FederationMethod.masks
    classes: Sequence[Any] | None = None
    random_state: RandomState = None

    def fit(self, X: Sequence[tuple[Any, Any]], y: None = None, *, regions: Sequence[Any] | None = None) -> Self:
        """Learn from `X`, a list of (records, answers), one for each agent; `y` is ignored.

        `regions` names each agent's region (default: one for all). Columns of DataFrames are matched by their names.
        """
        records = self._read(X, "agent")
        data = self._section(RegionData, agent="agent", target="answer", bounds=None, classes=self._public_classes)
        topology, privacy = self._section(Servers), self._budget(AgentBudget)
        plan = FederationPlan(data, topology, self._section(FederationMethod), privacy, seed=seed_of(self.random_state))
        bounded = self._bounded = learner_of(plan) == "calibrated" or self.bounds is not None
        if bounded:
            records = self._scaled(records, self.bounds)
        tables, _ = self._tables(records, self._homes(regions, len(records), "regions"))
        job = FederationJob.of(plan, tables, None, graph_of(plan.topology, tables.regions, Path()))
        self._warn_of_constant(job.method)
        outcome, door = self._learn(job)
        self.regions_ = list(tables.regions)
        models = [outcome.arrays["model"], outcome.arrays["centroid"]]
        self.models_, self.centroid_ = (self._unscaled(each, self.bounds) for each in models) if bounded else models
        self.privacy_ = job.privacy_section(door)
        return self

    def _write(self, folder: Path, goal: Path) -> None:
        self._refuse_bounded()
        super()._write(folder, goal)

    def _model(self, region: Any) -> Array:
        """A region's model; None asks for the centroid."""
        check_is_fitted(self)
        if region is None:
            return np.asarray(self.centroid_)
        if str(region) not in self.regions_:
            raise InputError("predict", f"a region: {listed(self.regions_)}", f"found {region!r}")
        return np.asarray(self.models_[self.regions_.index(str(region))])

    def predict(self, X: Any, region: Any = None) -> Any:
        """Predict the answers of the records `X` with the model of `region`, by default with the mean of all models."""
        return self._predicted(X, self._model(region))

    def predict_proba(self, X: Any, region: Any = None) -> Array:
        """Predict the probability of each class for the records `X`, with the model of `region` as in `predict`.

        The result has the shape (records, 2), in the order of `classes_`. It needs the logistic loss.
        """
        return self._chances(X, self._model(region))

    def score(self, X: Any, y: Any = None, region: Any = None) -> float:
        """Score the model of `region`, or the mean of all, on records `X` and answers `y`.

        The score is the accuracy with the logistic loss, else R^2.

        Without `y`, as in GridSearchCV, `X` is a list of (records, answers) of agents.
        """
        if y is not None:
            return self._scored(X, y, self._model(region))
        refuse_search(self.epsilon)
        if not isinstance(X, list | tuple) or not all(isinstance(each, tuple) and len(each) == 2 for each in X):
            raise InputError("score", "records and answers, or a list of (records, answers)", "found no answers")
        records = np.concatenate([self._numbers(x, f"agent {k}") for k, (x, _) in enumerate(X)])
        return self._scored(records, np.concatenate([np.asarray(y) for _, y in X]), self._model(region))

    def _card(self) -> str:
        facts = [("regions", len(self.regions_)), ("features", self.n_features_in_)]
        return card(repr(self), [*facts, *most_paid(self.privacy_)])
