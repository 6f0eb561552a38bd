"""What estimators of linear models share: records read by their columns' names, labels, predictions and scores."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.categories import cell_text
from silograph.data.features import odd_features
from silograph.data.regions import Records, RegionTables
from silograph.data.tables import LARGEST, check_same_names, listed, reads_as_number, shortened
from silograph.estimators.base import PlanEstimator, plain
from silograph.families.servers import constant_note

BOUNDS = (
    "The least and the most of every column, from public knowledge; needed with epsilon, unless a clip is given. "
    "A value beyond a bound counts as the bound."
)
ANSWERS = "The least and the most of the answers, from public knowledge; needed with epsilon where answers are numbers."
MASKS = (
    '"protocol" runs the secure sums; "skipped" adds up the same numbers without them, much faster, in a simulation; '
    '"none" shows each update to its server; None: "protocol" with epsilon, else "none".'
)
CLASSES = (
    "With the logistic loss: the two labels, the negative one first. They are public. None: they are taken from all "
    "answers, and become public."
)
_LEAVE_OUT = "Leave the record out."
_TODO = "Give every client the same columns, by the same names; their order does not matter."


class LinearModels(PlanEstimator):
    """Linear models of several silos; a subclass says which model predicts."""

    if TYPE_CHECKING:  # parameters of every subclass
        loss: Any
        intercept: Any
        epsilon: Any
        classes: Any
        bounds: Any

    # ---- records ----

    def _read(self, silos: Sequence[tuple[Any, Any]], what: str) -> list[Records]:
        """Every silo's records, columns matched by name where they have names, and answers as numbers."""
        pairs, todo = f"a list of (records, answers), one for each {what}", f"Write fit([(X_{what}, y_{what}), ...])."
        if not isinstance(silos, Sequence | np.ndarray):
            raise InputError(f"{type(self).__name__}.fit", pairs, f"found a {type(silos).__name__}", todo)
        if not len(silos):
            raise InputError(f"{what}s", "at least one (records, answers)", "found none", todo)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in silos):
            found = "found something else, such as the records and the answers of scikit-learn's fit"
            raise InputError(f"{type(self).__name__}.fit", pairs, found, todo)
        named = [hasattr(x, "columns") for x, _ in silos]
        if any(named) and not all(named):
            odd = named.index(not named[0])
            raise InputError(
                f"{what} {odd}", f"records like those of {what} 0", "one has names of columns, one has not"
            )
        self.__dict__.pop("feature_names_in_", None)
        if named[0]:
            self.feature_names_in_ = np.array([str(name) for name in silos[0][0].columns], dtype=object)
        for question in odd_features([x for x, _ in silos], self.epsilon is not None):
            warnings.warn(question, stacklevel=3)
        records = [self._numbers(x, f"{what} {k}") for k, (x, _) in enumerate(silos)]
        self.n_features_in_ = records[0].shape[1]
        answers = [np.asarray(y) for _, y in silos]
        for k, (x, y) in enumerate(zip(records, answers, strict=True)):
            if y.shape != (len(x),):
                raise InputError(f"{what} {k}", f"an answer for each of the {len(x)} records", f"found shape {y.shape}")
            self._check_gaps(y, f"{what} {k}")
        return list(zip(records, self._answers(answers, what), strict=True))

    def _numbers(self, given: Any, where: str) -> Array:
        """Records as numbers, in the order of the columns that the first silo had."""
        known = getattr(self, "feature_names_in_", None)
        if hasattr(given, "columns") and known is not None:
            names = [str(name) for name in given.columns]
            check_same_names(names, known, where, "the columns it was learned from", _TODO)
            given = given.iloc[:, [names.index(name) for name in known]]
        try:
            x = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(where, "records of numbers", "found something else") from None
        if x.ndim != 2:
            raise InputError(where, "records of two dimensions", f"found shape {x.shape}")
        if np.isnan(x).any():
            todo = (
                "Fill them by a public value, as sklearn.impute.SimpleImputer(strategy='constant', add_indicator=True) "
                "does; or say `fill` in a plan."
            )
            raise InputError(where, "records without gaps", "some values are missing", todo)
        if np.abs(x).max(initial=0.0) > LARGEST:
            raise InputError(where, f"numbers of at most {LARGEST:g}", "found a larger one", "Rescale it.")
        return x

    def _answers(self, answers: Sequence[NDArray[Any]], what: str) -> list[Array]:
        """Numbers as they are; of labels, 0 for the first class and 1 for the second."""
        if self.loss != "logistic":
            return [self._number_answers(y, f"{what} {k}") for k, y in enumerate(answers)]
        try:
            found = np.unique(np.concatenate(answers)) if self.classes is None else np.array(plain(self.classes))
        except TypeError:  # they have no order
            todo = "Write all labels alike, or name the two: classes=(no, yes)."
            raise InputError(f"{what}s, answers", "labels of one type", "found several types", todo) from None
        if len(found) != 2 or found[0] == found[1]:
            expected, there = "two classes with the logistic loss", f"found {listed([str(label) for label in found])}"
            raise InputError(f"{type(self).__name__}, classes", expected, there, "Name them: classes=(no, yes).")
        if self.classes is None and self.epsilon is not None:
            warnings.warn("The labels that occur are taken for public; say `classes` if they are not.", stacklevel=4)
        self.classes_ = found
        return [self._of_classes(y, found, f"{what} {k}") for k, y in enumerate(answers)]

    @staticmethod
    def _of_classes(answers: NDArray[Any], classes: NDArray[Any], where: str) -> Array:
        if not np.isin(answers, classes).all():
            expected, todo = f"the labels {classes[0]} and {classes[1]}", "Correct it, or leave the record out."
            raise InputError(f"{where}, answers", expected, "found another", todo)
        return np.asarray(answers == classes[1], dtype=np.float64)

    @staticmethod
    def _check_gaps(answers: NDArray[Any], where: str) -> None:
        import pandas as pd

        gaps = np.flatnonzero(pd.isna(answers))
        if gaps.size:
            raise InputError(f"{where}, answers, record {gaps[0] + 1}", "an answer", "it is missing", _LEAVE_OUT)

    @staticmethod
    def _number_answers(answers: NDArray[Any], where: str) -> Array:
        try:
            numbers = answers.astype(np.float64)
        except (TypeError, ValueError):
            row = next(row for row, cell in enumerate(answers.tolist()) if not reads_as_number(cell))
            todo = 'For two classes set loss="logistic".'
            raise InputError(f"{where}, answers, record {row + 1}", "a number", "found none", todo) from None
        if np.abs(numbers).max(initial=0.0) > LARGEST:
            expected = f"numbers of at most {LARGEST:g}"
            raise InputError(f"{where}, answers", expected, "found a larger one", "Rescale it.")
        return numbers

    @staticmethod
    def _warn_of_constant(method: object) -> None:
        """Say so before anything is spent."""
        if words := constant_note(method):
            warnings.warn(words, stacklevel=3)

    @property
    def _public_classes(self) -> list[str] | None:
        """The two labels as a plan names them."""
        return [cell_text(label) for label in self.classes_.tolist()] if self.loss == "logistic" else None

    def _read_own(self, X: Any, y: Any) -> Records:
        """One silo's records, for a model that knows columns and classes; what lies beyond a bound is the bound."""
        x, answers = self._within(self._numbers(X, "records")), np.asarray(y)
        if x.shape[1:] != (self.n_features_in_,) or answers.shape != (len(x),):
            expected = f"records of {self.n_features_in_} features, and an answer for each"
            raise InputError("records", expected, f"found shapes {x.shape} and {answers.shape}")
        self._check_gaps(answers, "records")
        if self.loss != "logistic":
            return x, self._number_answers(answers, "records")
        return x, self._of_classes(answers, self.classes_, "records")

    # ---- public bounds ----

    _bounded = False  # whether features were scaled by them

    def _refuse_bounded(self) -> None:
        check_is_fitted(self)
        if self._bounded:
            found = "they were scaled by bounds, which a folder's models would not say"
            todo = "Put the bounds in a plan instead."
            raise InputError(type(self).__name__, "features as they are, to save", found, todo)

    def _within(self, x: Array) -> Array:
        """Columns as the models know them: they never saw what lies beyond a bound."""
        if not self._bounded or x.ndim != 2 or x.shape[1] != self.n_features_in_:
            return x
        return np.clip(x, *self._ends(self.bounds).T)

    def _scaled(self, records: Sequence[Records], bounds: Any) -> list[Records]:
        """Columns from -1 to 1 by public bounds; what lies beyond counts as the bound."""
        ends = self._ends(bounds)
        middle, half = ends.mean(1), 0.5 * (ends[:, 1] - ends[:, 0])
        return [(np.clip((x - middle) / half, -1.0, 1.0), y) for x, y in records]

    def _unscaled(self, models: Array, bounds: Any) -> Array:
        """Models (..., features and a constant) of columns as they were given."""
        ends = self._ends(bounds)
        middle, half = ends.mean(1), 0.5 * (ends[:, 1] - ends[:, 0])
        slopes = models[..., :-1] / half
        return np.concatenate([slopes, models[..., -1:] - (slopes * middle).sum(-1, keepdims=True)], -1)

    def _ends(self, bounds: Any) -> Array:
        where, expected = f"{type(self).__name__}, bounds", "the least and the most of every column"
        if not self.intercept:
            raise InputError(where, "models with a constant", "found intercept=False")
        if bounds is None:
            todo = "From public knowledge: bounds=[(0, 120), (-1, 1), ...]. Noise is sized for columns of a known size."
            raise InputError(where, f"{expected}, with privacy", "found none", todo)
        try:
            ends = np.asarray(bounds, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(where, expected, "found something else") from None
        if ends.shape != (self.n_features_in_, 2):
            todo = "Write bounds=[(low, high), ...], a pair for each column in their order."
            raise InputError(where, f"{expected}, {self.n_features_in_} pairs", f"found shape {ends.shape}", todo)
        for k, (low, high) in enumerate(ends.tolist()):
            if not (low < high and np.isfinite(high - low)):
                found, todo = f"found {low:g} and {high:g}", "Take wider public bounds, or leave the column out."
                raise InputError(f"{where}, column {k + 1}", "a least and a most above it, both finite", found, todo)
        return ends

    @staticmethod
    def _homes(homes: Sequence[Any] | None, count: int, what: str) -> list[str]:
        told = ["server"] * count if homes is None else [str(name) for name in homes]
        if len(told) != count:
            raise InputError(what, f"one for each of the {count} clients", f"there are {len(told)}")
        return told

    def _tables(
        self, records: Sequence[Records], homes: Sequence[str], clusters: Sequence[Any] | None = None
    ) -> tuple[RegionTables, list[str]]:
        """The silos as tables, in the order of their names, and the names in the order they were given."""
        names = [f"{home}/client-{k:06d}" for k, home in enumerate(homes)]
        order = sorted(range(len(names)), key=names.__getitem__)
        regions = sorted(set(homes))
        known = getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])
        tables = RegionTables(
            tuple(regions),
            tuple(known),
            tuple(names[k] for k in order),
            tuple(regions.index(homes[k]) for k in order),
            tuple(records[k] for k in order),
            () if clusters is None else tuple(str(clusters[k]) for k in order),
        )
        return tables, names

    # ---- predictions ----

    def _margins(self, X: Any, model: Array) -> Array:
        check_is_fitted(self)
        x = self._numbers(np.atleast_2d(X) if not hasattr(X, "columns") else X, "records")
        if x.shape[1] != self.n_features_in_:
            raise InputError("records", f"records of {self.n_features_in_} features", f"found shape {x.shape}")
        margin = np.einsum("nm,m->n", self._within(x), model[: self.n_features_in_])
        return np.asarray(margin + (model[-1] if self.intercept else 0.0))

    def _predicted(self, X: Any, model: Array) -> NDArray[Any]:
        margin = self._margins(X, model)
        return np.asarray(self.classes_[(margin >= 0.0).astype(int)]) if self.loss == "logistic" else margin

    def _chances(self, X: Any, model: Array) -> Array:
        check_is_fitted(self)
        if self.loss != "logistic":
            raise InputError("predict_proba", 'loss="logistic"', f"the loss is {self.loss}", "Use predict.")
        chance = expit(self._margins(X, model))
        return np.column_stack([1.0 - chance, chance])

    def _scored(self, X: Any, y: Any, model: Array) -> float:
        """Accuracy, or the share of the answers' variance that is explained (R^2)."""
        guess, answers = self._predicted(X, model), np.asarray(y)
        self._check_gaps(answers, "score")
        if self.loss != "logistic":
            return float(r2_score(self._number_answers(answers, "score"), guess))
        strange = [label for label in np.unique(answers) if label not in self.classes_]
        if strange:
            expected = f"the labels {self.classes_[0]} and {self.classes_[1]}"
            raise InputError("score, answers", expected, f"found {shortened(strange[0])}")
        return float(accuracy_score(answers, guess))
