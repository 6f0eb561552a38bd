"""Private meta-learning (S4) as estimators like scikit-learn's: fit a shared start, personalise it, predict."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from silograph.core.errors import InputError
from silograph.core.keys import seed_of, stream
from silograph.core.types import Array, Json
from silograph.data.clients import ClientTables, from_arrays
from silograph.data.features import odd_features, scaled
from silograph.estimators.base import PlanEstimator, RandomState, plain
from silograph.families.meta.job import MetaJob
from silograph.families.meta.network import build_network, load_networks, network
from silograph.families.meta.new_clients import own_models, personal_models
from silograph.families.meta.plan import MetaBudget, MetaData, MetaMethod, MetaPlan
from silograph.report.notebook_card import card, most_paid

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural

_TARGET, _PERSON = "answer", "person"
_SAME = "Give the module it was learned with."
#: From a label's text to the label, by numpy's letters for kinds of arrays.
_KINDS: dict[str, Callable[[str], Any]] = {"b": "True".__eq__, "i": int, "u": int, "f": float}


@dataclass(eq=False, repr=False)
class _PrivateMeta(PlanEstimator):
    _sections = (MetaMethod, MetaBudget)
    _words: ClassVar[Mapping[str, str]] = {
        "model": '"linear", "mlp" (with `hidden` units), "cnn", "resnet18", "random_features" '
        "(linear on `width` of them), or a torch.nn.Module with an output for each class, or with one for a "
        'regression; None: "linear" or "mlp" by the budget, "mlp" without one.',
        "classes": "The labels there can be, a public list (not for a regression). None: it is made of all clients' "
        "labels and becomes public, so give it where the presence of a label is private.",
        "bounds": "The least and the most of all features, or of each, from public knowledge: they become -1 and 1, "
        "and a value beyond a bound counts as the bound. None: features are taken as they are.",
        "unit_rows": "If `fit` is told whose records are: of a person with more, so many take part; a public number.",
    }
    _answers: ClassVar[Literal["classes", "numbers"]]

    model: Any = None
    _: KW_ONLY
    hidden: Sequence[int] = MetaMethod.hidden
    width: int = MetaMethod.width
    rounds: int | None = None
    local_steps: int = MetaMethod.local_steps
    rate: float | None = None
    order: Literal["first", "second"] = MetaMethod.order
    inner_step: float = MetaMethod.inner_step
    outer_step: float = MetaMethod.outer_step
    personal_step: float | None = MetaMethod.personal_step
    personal_steps: int | None = None
    epsilon: float | None = None
    delta: float = MetaBudget.delta
    clip: float = MetaMethod.clip
    curvature_clip: float | None = MetaMethod.curvature_clip
    classes: Sequence[Any] | None = None
    unit_rows: int = MetaData.unit_rows
    bounds: tuple[float, float] | Sequence[tuple[float, float]] | None = None
    device: str = MetaMethod.device
    random_state: RandomState = None

    def fit(
        self,
        X: Sequence[tuple[Any, Any]],
        y: None = None,
        *,
        names: Sequence[str] | None = None,
        persons: Sequence[Any] | None = None,
    ) -> Self:
        """Learn the shared start from `X`, a list of (records, answers), one for each client; `y` is ignored.

        `names` are the clients' names. If they are not given, clients are numbered.
        `persons` says for each client, record by record, whose it is: then epsilon protects a person instead of one
        record. A person with records at several clients is protected at each of them separately.
        """
        regression, private = self._answers == "numbers", self.epsilon is not None
        labels = plain(self.classes)
        if not isinstance(labels, list | None):
            raise InputError(f"{type(self).__name__}, classes", "a list of labels", f"found {labels!r}")
        classes = None if labels is None or regression else [str(label) for label in labels]
        if private and classes is None and not regression:
            classes = list(from_arrays(X, names).classes)
            warnings.warn("The labels that occur are taken for public; say `classes` if they are not.", stacklevel=2)
        tables = from_arrays(X, names, classes, regression, private, whose=persons, most=self.unit_rows)
        told = self._told(tables)
        tables = _within(tables, told)
        for odd in odd_features([records for records, _ in X], private):
            warnings.warn(odd, stacklevel=2)
        plan = self._plan(tables, persons is not None)
        job = MetaJob.of(plan, tables, None, self._network(plan, tables))
        outcome, door = self._learn(job)
        self.task_: Neural = job.task
        self.spec_: Json = job.model_spec | ({} if isinstance(self.model, str | None) else {"model": "module"})
        self.spec_ |= {"steps": self.personal_steps, **({"columns": {"bounds": told}} if told else {})}
        self.start_: Array = outcome.arrays["model"]
        self.model_: Array = self.start_
        self.privacy_: Json = job.privacy_section(door)
        self.n_iter_: int = outcome.facts["rounds"]
        # Labels come back as they came; tables hold them as texts. How a single record writes its label is private.
        said = {str(label): label for label in labels or ()}
        kind = _KINDS.get(np.asarray(X[0][1]).dtype.kind, str)
        self.spec_["labels"] = [said.get(name, kind(name)) for name in tables.classes]
        self._set_labels()
        return self

    def personalise(self, X: Any, y: Any, *, steps: int | None = None, step: float | None = None) -> Self:
        """Return a copy with a client's own model, from its records `X` and answers `y`. Nothing leaves the client.

        The model is the start w after `steps` steps of size `step` on the client's mean loss:

            w <- w - step grad loss(w)                                                 (4)

        If neither is given, here or in the constructor, both are chosen on these records, and so is whether to use the
        start.
        """
        check_is_fitted(self)
        mine = self._read(X, y)
        size = self.spec_["step"] if step is None else step
        count = self.spec_["steps"] if steps is None else steps
        if not ((count is None or count >= 1) and 0.0 < size < np.inf):
            raise InputError("personalise", "at least one step of a size above 0", f"found {count} of {size}")
        if count is None and step is not None:
            count = 1
        personal = copy(self)
        if count is None:
            personal.model_ = own_models(self.task_, self.start_, size, mine.records)[0].model
        else:
            personal.model_ = personal_models(self.task_, self.start_, size, count, mine.records, mine.names)[0]
        return personal

    def save(self, path: str | Path) -> None:
        """Write the model, personal or shared, into the file `path`: NPZ, without pickle."""
        from silograph.tasks.networks import save_model

        check_is_fitted(self)
        spec = self.spec_ | ({"trial": self._trial()} if self.spec_["model"] == "module" else {})
        save_model(path, spec, self.task_.layout, self.model_)

    @classmethod
    def load(cls, path: str | Path, module: Any = None, device: str = "cpu") -> Self:
        """Read a model from the file `path` that `save` or a run wrote.

        If you learned your own network, give it again as `module`. `device` is where the model computes: "cpu" or
        "cuda".
        """
        spec, layout, vector = load_networks().load_model(path)
        if spec.get("answers") != cls._answers:
            raise InputError(str(path), f"a model for {cls._answers}", f"found one for {spec.get('answers')}")
        out = cls(device=device)
        outputs = 1 if cls._answers == "numbers" else len(spec["classes"])
        task = build_network({**spec, "module": module}, tuple(spec["shape"]), outputs, cls._answers, device, 0)
        if task.layout != layout:
            differ = next(pair for pair in zip_longest(layout, task.layout) if pair[0] != pair[1])
            known, found = (f"{each[0]} of shape {each[1]}" if each else "no more" for each in differ)
            raise InputError(str(path), f"the parameters of the network it names: {known}", f"found {found}", _SAME)
        out.task_, out.spec_, out.start_, out.model_ = task, spec, vector, vector
        if not np.allclose(out._trial(), spec.get("trial", out._trial()), rtol=1e-3, atol=1e-4):
            found = "found one with the same parameters that computes something else"
            raise InputError(str(path), "the network it was learned with", found, _SAME)
        out._set_labels()
        return out

    def _card(self) -> str:
        whose = "the shared start" if self.model_ is self.start_ else "a client's own"
        facts = [("model", whose), ("parameters", len(self.model_)), ("rounds", getattr(self, "n_iter_", None))]
        return card(repr(self), [*facts, *most_paid(getattr(self, "privacy_", None))])

    def _trial(self) -> list[list[float]]:
        """What the model says of two records: parameters alone do not tell a ReLU from a tanh."""
        x = stream(0, "", 0, "records to know a network by").standard_normal((2, *self.spec_["shape"]))
        return list(self.task_.predict(self.model_, x).tolist())

    def _plan(self, tables: ClientTables, persons: bool) -> MetaPlan:
        classes = tables.classes if self._answers == "classes" else None
        column = _PERSON if persons else None
        public = {"target": _TARGET, "answers": self._answers, "classes": classes, "unit_column": column}
        data = self._section(MetaData, bounds=None, **public)
        privacy = self._budget(MetaBudget)
        method = self._section(MetaMethod, **({} if isinstance(self.model, str | None) else {"model": None}))
        return MetaPlan(data, method, privacy, seed=seed_of(self.random_state))

    def _told(self, tables: ClientTables) -> dict[str, Any]:
        """The bounds of every feature, as a plan says them."""
        if self.bounds is None:
            return {}
        where, count = f"{type(self).__name__}, bounds", len(tables.features)
        if not count:
            raise InputError(where, "none with pictures", "found some", "Scale pixels to 0 to 1 beforehand.")
        try:
            ends = np.broadcast_to(np.asarray(self.bounds, dtype=np.float64), (count, 2))
        except (TypeError, ValueError):
            ends = np.full((count, 2), np.nan)
        if not (np.isfinite(ends).all() and (ends[:, 0] < ends[:, 1]).all()):
            expected = f"the least and the most of all {count} features, or of each"
            raise InputError(
                where, expected, f"found {self.bounds!r}", "From public knowledge, such as bounds=(0, 16)."
            )
        return dict(zip(tables.features, ends.tolist(), strict=True))

    def _network(self, plan: MetaPlan, tables: ClientTables) -> Neural:
        return network(plan, tables, None if isinstance(self.model, str | None) else self.model)

    def _read(self, X: Any, y: Any) -> ClientTables:
        """One client's records, checked against what the start was learned from."""
        regression = self._answers == "numbers"
        classes = None if regression else self.spec_["classes"]
        mine = from_arrays([(X, y)], None, classes, regression, features=self._features(X), least=1)
        mine = _within(mine, self.spec_.get("columns", {}).get("bounds"))
        if mine.shape != tuple(self.spec_["shape"]):
            raise InputError("records", f"shape {tuple(self.spec_['shape'])}, as learned", f"found {mine.shape}")
        return mine

    def _outputs(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        if not len(X):
            return np.empty((0, self.task_.outputs), np.float32)
        # Read like records to learn from, whose answers do not matter.
        read = from_arrays([(X, np.zeros(len(X)))], regression=True, features=self._features(X), least=1)
        read = _within(read, self.spec_.get("columns", {}).get("bounds"))
        if read.shape != tuple(self.spec_["shape"]):
            raise InputError("records", f"shape {tuple(self.spec_['shape'])}, as learned", f"found {read.shape}")
        return self.task_.predict(self.model_, read.records[0][0])

    def _features(self, X: Any) -> list[str] | None:
        """The names that columns are matched by, where both sides have them."""
        known: list[str] = self.spec_["features"]
        numbered = known == [f"feature_{k}" for k in range(len(known))]
        return known if hasattr(X, "columns") and not numbered else None

    def _set_labels(self) -> None:
        """What `predict` answers with; a regression has no labels."""


def _within(tables: ClientTables, bounds: Mapping[str, tuple[float, float]] | None) -> ClientTables:
    """Features from -1 to 1 where there are bounds."""
    if not bounds:
        return tables
    return replace(tables, records=tuple((scaled(x.copy(), tables.features, bounds), y) for x, y in tables.records))


class PrivateMetaClassifier(ClassifierMixin, _PrivateMeta):
    """Learn one shared start for many clients' classifiers, which each client personalises on its own records (S4).

    The start w is learned so that one step of size eta makes it a client's own. Each client divides its records into
    query and support records. In a local step, with its mean losses `query` and `support` on them, it computes

        theta = w - eta grad query(w)                                              (1)
        w <- w - beta (I - eta Hessian of query(w)) grad support(theta)            (2)

    and the server takes the mean of all clients' w, weighted by their numbers of support records (3). With epsilon,
    every gradient and curvature of a record is clipped, and noise is added to their sums.

    Attributes
    ----------
    start_ : The shared start, all parameters in a row.
    model_ : The parameters that predict: the start, or after `personalise` a client's own.
    classes_ : The labels.
    n_iter_ : How many rounds were taken.
    ledger_ : The rows of what left every client.
    privacy_ : The cost, computed from the ledger.

    Examples
    --------
    >>> import numpy as np
    >>> from silograph import PrivateMetaClassifier
    >>> x = np.random.default_rng(0).normal(size=(40, 20, 2))
    >>> clients = [(each, np.where(each[:, 0] > 0, "yes", "no")) for each in x]
    >>> start = PrivateMetaClassifier("linear", rounds=20, random_state=0).fit(clients[:39])
    >>> mine = start.personalise(*clients[39])  # nothing leaves this client
    >>> mine.predict([[3.0, 0.0], [-3.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    >>> mine.predict_proba([[3.0, 0.0]]).round(1)  # of "no" and of "yes"
    array([[0., 1.]])
    >>> mine.score(*clients[39])
    1.0
    >>> start.save("start.npz")
    >>> bool((PrivateMetaClassifier.load("start.npz").start_ == start.start_).all())
    True
    """

    _answers = "classes"

    def _set_labels(self) -> None:
        # A run's model file knows its classes as texts: whole numbers are numbers again.
        texts: list[str] = self.spec_["classes"]
        numbers = all(text.lstrip("+-").isdecimal() for text in texts)
        self.classes_ = np.array(self.spec_.get("labels", [int(text) for text in texts] if numbers else texts))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the probability of each class for the records `X`: (records, classes), as in `classes_`."""
        scores = self._outputs(X).astype(np.float64)
        odds = np.exp(scores - scores.max(1, keepdims=True)) if len(scores) else scores
        return np.asarray(odds / odds.sum(1, keepdims=True)) if len(odds) else odds

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the likeliest label of every record in `X`."""
        scores = self._outputs(X)
        return np.asarray(self.classes_[scores.argmax(1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on records `X` and labels `y`, with the weights `sample_weight` of the records, if given.

        Labels are read as `fit` reads them: 3, 3.0 and "3" are one label.
        """
        check_is_fitted(self)
        right = self._outputs(X).argmax(1) == self._read(X, y).records[0][1]
        return float(np.average(right, weights=sample_weight))


class PrivateMetaRegressor(RegressorMixin, _PrivateMeta):
    """Learn one shared start for many clients' regressions, which each client personalises on its own records (S4).

    The equations are those of `PrivateMetaClassifier`. Answers should be of about unit size: with epsilon, a record's
    gradient is clipped.

    Attributes
    ----------
    start_ : The shared start, all parameters in a row.
    model_ : The parameters that predict: the start, or after `personalise` a client's own.
    n_iter_ : How many rounds were taken.
    ledger_ : The rows of what left every client.
    privacy_ : The cost, computed from the ledger.

    Examples
    --------
    >>> import numpy as np
    >>> from silograph import PrivateMetaRegressor
    >>> x = np.random.default_rng(0).normal(size=(40, 20, 2))
    >>> clients = [(each, each @ [1.0, -1.0]) for each in x]
    >>> start = PrivateMetaRegressor("linear", rounds=20, random_state=0).fit(clients[:39])
    >>> mine = start.personalise(*clients[39])
    >>> mine.score(*clients[39]) > 0.9
    True
    >>> mine.predict([[1.0, 0.0]]).round(1)
    array([1.])
    >>> start.save("start.npz")
    >>> bool((PrivateMetaRegressor.load("start.npz").start_ == start.start_).all())
    True
    """

    _answers = "numbers"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the number of every record in `X`."""
        return np.asarray(self._outputs(X)[:, 0], dtype=np.float64)
