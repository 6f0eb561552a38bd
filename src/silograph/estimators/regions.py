"""Graph federation (S1) as an estimator in scikit-learn's shape: a linear model for every region of agents."""

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
    """A linear model for every region of agents, whose servers mix their models over a graph (S1).

    With epsilon all settings are chosen from public numbers, all regions have one model, and it falls back on a
    constant where noise leaves nothing else; with a clip, S1 learns with the settings given.

    Attributes
    ----------
    models_ : (regions, features, and 1 with an intercept) the regions' models, in the order of `regions_`.
    centroid_ : their mean. regions_ : the regions' names. classes_ : the two labels, with the logistic loss.
    feature_names_in_ : the columns' names, where they had some.
    ledger_, privacy_ : the rows of what left every agent, and the cost read from them.
    """

    _sections = (FederationMethod, Servers, AgentBudget)
    _words: ClassVar[Mapping[str, str]] = {
        "loss": "What is minimised.",
        "ridge": "The ridge weight.",
        "intercept": "Whether models have a constant.",
        "step": "The step an agent takes in a round.",
        "rounds": "How many rounds.",
        "epsilon": "Budget of every agent over the whole run; None means no privacy.",
        "delta": "Delta of the budget.",
        "clip": "The longest update an agent may send; None chooses all settings that are not given.",
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
        """Learn from a list of (records, answers), one for each agent, and each agent's region.

        Columns of DataFrames are matched by their names.
        """
        records = self._read(X, "agent")
        data = self._section(RegionData, agent="agent", target="answer", bounds=None, classes=None)
        topology, privacy = self._section(Servers), self._budget(AgentBudget)
        plan = FederationPlan(data, topology, self._section(FederationMethod), privacy, seed=seed_of(self.random_state))
        bounded = self._bounded = learner_of(plan) == "calibrated" or self.bounds is not None
        if bounded:
            records = self._scaled(records, self.bounds)
        tables, _ = self._tables(records, self._homes(regions, len(records), "regions"))
        job = FederationJob.of(plan, tables, None, graph_of(plan.topology, tables.regions, Path()))
        outcome, door = self._learn(job)
        self.regions_ = list(tables.regions)
        models = [outcome.arrays["model"], outcome.arrays["centroid"]]
        self.models_, self.centroid_ = (self._unscaled(each, self.bounds) for each in models) if bounded else models
        self.privacy_ = job.privacy_section(door)
        return self

    def _write(self, folder: Path, goal: Path) -> None:
        check_is_fitted(self)
        if self._bounded:
            found = "they were scaled by bounds, which a folder's models would not say"
            raise InputError(
                "RegionModels", "features as they are, to save", found, "Put the bounds in a plan instead."
            )
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
        """The answers of a region's model, or of the mean of all models for records of no region."""
        return self._predicted(X, self._model(region))

    def predict_proba(self, X: Any, region: Any = None) -> Array:
        """(records, 2): the chance of each class, in the order of `classes_`."""
        return self._chances(X, self._model(region))

    def score(self, X: Any, y: Any = None, region: Any = None) -> float:
        """Of a region's model, or of their mean: accuracy with the logistic loss, else R^2. Without `y`, as
        GridSearchCV asks: X is a list of (records, answers) of agents, and the mean of all models answers."""
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
