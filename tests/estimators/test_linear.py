"""What estimators of linear models share: labels as they came, columns by their names, chances and scores."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV

from silograph import ClusteredModels, RegionModels, open_run
from silograph.core.errors import InputError

WEIGHTS = np.array([3.0, -2.0, 0.0])


def silos(count=6, labels=None, seed=0):
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(count):
        x = rng.normal(size=(40, 3))
        y = x @ WEIGHTS + 0.5 + 0.3 * rng.normal(size=40)
        parts.append((x, y if labels is None else np.array(labels)[(y > 0.0).astype(int)]))
    return parts


def fitted(estimator, parts):
    if estimator is ClusteredModels:
        return ClusteredModels(loss="logistic", rounds=30).fit(parts, clusters=["all"] * len(parts)), 2
    return RegionModels(rounds=40).fit(parts, regions=["north", "south"] * (len(parts) // 2)), "south"


@pytest.mark.parametrize("estimator", [ClusteredModels, RegionModels])
@pytest.mark.parametrize("labels", [(-1, 1), (0, 1), ("ill", "well"), (False, True)])
def test_labels_come_back_as_they_came(estimator, labels):
    parts = silos(labels=labels)
    model, who = fitted(estimator, parts)
    x, y = parts[0]
    assert list(model.classes_) == list(labels)
    assert set(model.predict(x, who)) == set(labels)
    assert model.score(x, y, who) == (model.predict(x, who) == y).mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(x, who).sum(1), 1.0)
    np.testing.assert_array_equal(model.classes_[model.predict_proba(x, who).argmax(1)], model.predict(x, who))


def test_classes_can_be_named_and_the_first_is_the_negative_one():
    parts = silos(labels=("well", "ill"))
    model = ClusteredModels(loss="logistic", rounds=30, classes=("well", "ill")).fit(parts, clusters=["all"] * 6)
    assert list(model.classes_) == ["well", "ill"]
    assert model.cluster_models_[0][0] > 0.0  # the first feature speaks for the second class
    with pytest.raises(InputError, match="client 0, answers: expected the labels 0 and 1"):
        ClusteredModels(loss="logistic", classes=(0, 1)).fit(parts, clusters=["all"] * 6)
    with pytest.raises(InputError, match="two classes"):
        RegionModels().fit([(x, np.zeros(40)) for x, _ in parts])


def test_under_privacy_somebody_says_that_labels_are_public():
    parts = silos(labels=(0, 1))
    with pytest.warns(UserWarning, match="taken for public"):
        RegionModels(epsilon=4.0, clip=0.5, rounds=2, random_state=1).fit(parts)
    model = RegionModels(epsilon=4.0, clip=0.5, rounds=2, classes=(0, 1), random_state=1).fit(parts)
    assert max(guarantee["epsilon"] for guarantee in model.privacy_["guarantees"]) <= 4.0


@pytest.mark.parametrize("estimator", [ClusteredModels, RegionModels])
def test_columns_are_matched_by_name(estimator):
    plain, names = silos(labels=(0, 1)), ["age", "weight", "pulse"]
    frames = [(pd.DataFrame(x, columns=names)[names[:: 1 if k % 2 else -1]], y) for k, (x, y) in enumerate(plain)]
    model, who = fitted(estimator, frames)
    turned = [(x[:, ::-1], y) for x, y in plain]  # the first frame's order
    same, _ = fitted(estimator, turned)
    np.testing.assert_array_equal(model.models_, same.models_)
    assert list(model.feature_names_in_) == names[::-1]
    x = pd.DataFrame(plain[0][0], columns=names)
    np.testing.assert_array_equal(model.predict_proba(x, who), same.predict_proba(turned[0][0], who))
    with pytest.raises(InputError, match="it lacks 'pulse'"):
        model.predict(x.rename(columns={"pulse": "height"}), who)
    with pytest.raises(InputError, match="one has names of columns"):
        fitted(estimator, [frames[0], *plain[1:]])


def test_regions_learn_what_everybody_together_would():
    parts = silos(labels=(0, 1), count=10)
    x, y = (np.concatenate(side) for side in zip(*parts, strict=True))
    pooled = LogisticRegression().fit(x, y)
    model = RegionModels(rounds=100, step=2.0, graph="ring").fit(parts, regions=[f"r{k % 5}" for k in range(10)])
    tests = silos(seed=1, labels=(0, 1))[0]
    assert model.score(*tests) >= pooled.score(*tests) - 0.03
    assert model.regions_ == [f"r{k}" for k in range(5)]
    one = model.predict_proba(tests[0], "r3")[:, 1]
    np.testing.assert_allclose(one, expit(tests[0] @ model.models_[3][:3] + model.models_[3][3]))
    with pytest.raises(InputError, match="a region"):
        model.predict(tests[0], "r9")
    assert clone(model).get_params() == model.get_params()


def test_numbers_have_a_score_and_no_chances():
    parts = silos()
    model = RegionModels("ridge", rounds=60, step=0.2).fit(parts)
    x, y = parts[0]
    assert model.score(x, y) == r2_score(y, model.predict(x)) > 0.9
    with pytest.raises(InputError, match='loss="logistic"'):
        model.predict_proba(x)


@pytest.mark.parametrize("estimator", [ClusteredModels, RegionModels])
@pytest.mark.parametrize("labels", [(-1, 1), (1, 2), (0.5, 1.5), ("ill", "well"), (False, True)])
def test_a_saved_run_predicts_and_scores_by_the_labels_it_learned(estimator, labels, tmp_path):
    parts = silos(labels=labels)
    model, who = fitted(estimator, parts)
    model.save(tmp_path / "run")
    run, (x, y) = open_run(tmp_path / "run"), parts[2]
    name = who if who in run.models else next(name for name in run.models if name.endswith("000002"))
    guess = run.predict(x, name)
    assert guess.tolist() == model.predict(x, who).tolist()
    assert run.score(x, y, name) == (guess == y).mean() > 0.9


def test_models_are_saved_as_run_folders_and_searched_where_that_makes_sense(tmp_path):
    rng = np.random.default_rng(5)
    records = [pd.DataFrame(rng.normal(size=(40, 3)), columns=list("abc")) for _ in range(6)]
    agents = [(x, x.to_numpy() @ [1.0, -2.0, 0.5]) for x in records]
    model = RegionModels("ridge", rounds=5).fit(agents, regions=list("nnnsss"))
    model.save(tmp_path / "run")
    run = open_run(tmp_path / "run")
    np.testing.assert_allclose(run.predict(records[0], "n"), model.predict(records[0], "n"))
    assert "made in Python" in model.report()
    search = GridSearchCV(RegionModels("ridge", rounds=30), {"ridge": [0.01, 0.5]}, cv=2, error_score="raise")
    assert search.fit(agents).best_params_ == {"ridge": 0.01}
    with pytest.raises(InputError, match="GridSearchCV would leave out whole clients"):
        ClusteredModels(find=None).fit(agents, clusters=list("aabbab")).score(agents)


@pytest.mark.parametrize("estimator", [ClusteredModels, RegionModels])
@pytest.mark.parametrize(
    ("loss", "labels", "gap"),
    [("logistic", ("no", "yes"), None), ("logistic", (0.0, 1.0), np.nan), ("ridge", None, None)],
)
def test_an_answer_that_is_missing_is_refused_with_its_place(estimator, loss, labels, gap):
    parts = silos(labels=labels)
    x, y = parts[1]
    parts[1] = x, pd.Series([gap if k == 3 else label for k, label in enumerate(y)], dtype=object)
    kind = {"find": 1} if estimator is ClusteredModels else {}
    what = "client" if kind else "agent"
    with pytest.raises(InputError, match=f"{what} 1, answers, record 4: expected an answer, but it is missing. Leave"):
        estimator(loss=loss, **kind).fit(parts)
    whole = silos(labels=labels)
    model = estimator(loss=loss, rounds=5, **kind).fit(whole)
    with pytest.raises(InputError, match="score, answers, record 4: expected an answer, but it is missing"):
        model.score(*parts[1], *([0] if kind else []))


@pytest.mark.parametrize("estimator", [ClusteredModels, RegionModels])
def test_words_need_classes_and_labels_are_of_one_type(estimator):
    kind = {"find": 1} if estimator is ClusteredModels else {}
    with pytest.raises(InputError, match=r'answers, record 1: expected a number, but found none. .*loss="logistic"'):
        estimator(loss="ridge", **kind).fit(silos(labels=("no", "yes")))
    mixed = [
        (x, np.array([1 if label == "no" else label for label in y], dtype=object))
        for x, y in silos(labels=("no", "yes"))
    ]
    with pytest.raises(InputError, match=r"labels of one type, but found several types. .*classes=\(no, yes\)"):
        estimator(loss="logistic", **kind).fit(mixed)


@pytest.mark.parametrize("estimator", [ClusteredModels, RegionModels])
def test_fit_says_what_it_learns_from(estimator):
    x, y = silos()[0]
    for given in ((x, y), (x[:, :2], y), (pd.DataFrame(x), y), ([(x, y, y)],), (zip([x], [y], strict=True),)):
        with pytest.raises(
            InputError, match=rf"{estimator.__name__}.fit: expected a list of \(records, answers\), one for"
        ):
            estimator(loss="ridge").fit(*given)


def test_a_bound_without_width_is_named():
    wrong = [(-1, 1), (2, 2), (0, 1)]
    with pytest.raises(InputError, match=r"bounds, column 2: expected a least and a most above it, .*found 2 and 2"):
        RegionModels("ridge", bounds=wrong).fit(silos())
    with pytest.raises(InputError, match=r"3 pairs, but found shape \(2, 2\)"):
        RegionModels("ridge", bounds=wrong[:2]).fit(silos())


@pytest.mark.parametrize("estimator", [ClusteredModels, RegionModels])
@pytest.mark.parametrize(("loss", "labels"), [("ridge", None), ("logistic", (0, 1))])
def test_a_model_that_will_be_a_constant_is_said_before_anything_is_spent(estimator, loss, labels):
    kind = {"find": 1, "protect": "records"} if estimator is ClusteredModels else {}
    public = {"bounds": [(-3, 3)] * 3, "masks": None if kind else "skipped", "random_state": 1, "loss": loss}
    public |= {"answers": (-9, 9)} if labels is None else {"classes": labels}
    little, parts = estimator(**kind, **public, epsilon=0.01), silos(labels=labels)
    with pytest.warns(UserWarning, match="^A constant would do as well") as caught:
        little.fit(parts)
    assert str(caught[0].message) in little.privacy_["notes"]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        stopped = clone(little)
        with pytest.raises(UserWarning, match="constant"):
            stopped.fit(parts)
        assert not hasattr(stopped, "ledger_")
        estimator(**kind, **public, epsilon=50.0).fit(silos(60, labels))
