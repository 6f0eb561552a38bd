"""The estimators of private meta-learning: what a data scientist types."""

import json
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from silograph import PrivateMetaClassifier, PrivateMetaRegressor
from silograph.core.errors import DamageError, InputError
from silograph.families.meta.plan import MetaBudget, MetaData, MetaMethod, MetaPlan
from silograph.privacy.accounting import cost
from silograph.run.run import execute
from silograph.tasks import networks
from silograph.tasks.fixed import FixedFeatures

EPSILON, DELTA = 2.0, 1e-4
QUICK = {"hidden": (4,), "rounds": 3, "rate": 1.0, "random_state": 1}


def inputs(client, count=20):
    return np.random.default_rng([7, client]).normal(size=(count, 3)).astype(np.float32)


def clients(labels=(0, 1), count=20, number=3):
    """Each client's labels say on which side of a plane its records are."""
    parts = []
    for k in range(number):
        x = inputs(k, count)
        parts.append((x, np.array(labels)[(x[:, 0] > 0.1 * k).astype(int)]))
    return parts


def answers():
    return [(x, x[:, 0] - 0.5 * x[:, 1] + 0.1 * k) for k, (x, _) in enumerate(clients())]


def network(hidden=4, outputs=2):
    return nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, outputs)).double()


def at(model, module=None):
    """The network with a model's parameters, in double precision."""
    module = network() if module is None else module
    vector_to_parameters(torch.from_numpy(np.array(model)), module.parameters())
    return module


def scores(model, x, module=None):
    with torch.no_grad():
        return at(model, module)(torch.from_numpy(np.asarray(x, dtype=np.float64))).numpy()


# ---- fit, personalise, predict ---------------------------------------------------------------------------------------


def test_with_persons_a_person_is_protected():
    pairs = clients()
    whose = [[f"p{k // 3}" for k in range(len(y))] for _, y in pairs]
    model = PrivateMetaClassifier("linear", rounds=2, epsilon=4, delta=1e-3, classes=[0, 1], bounds=(-5, 5))
    model.fit(pairs, persons=whose)
    assert {row.protected_unit.partition(" of the ")[0] for row in model.ledger_} == {
        "one person (all records of a person at one client)"
    }
    assert model.privacy_["protected_unit"].startswith("one person")
    assert model.personalise(*pairs[0]).score(*pairs[0]) > 0.5
    with pytest.raises(InputError, match="a person for each of the 20 records"):
        model.fit(pairs, persons=[["ann"]] * len(pairs))
    with pytest.raises(InputError, match="a privacy budget, whose protected unit it names"):
        PrivateMetaClassifier("linear").fit(pairs, persons=whose)


def test_a_personal_model_is_gradient_steps_from_the_shared_start():
    parts = clients()
    shared = PrivateMetaClassifier(**QUICK, inner_step=0.3).fit(parts)
    start = shared.start_.copy()
    assert shared.n_iter_ == 3
    np.testing.assert_array_equal(shared.model_, start)
    x, y = parts[0]
    for options, step, steps in (({"steps": 1}, 0.3, 1), ({"steps": 3, "step": 0.2}, 0.2, 3)):
        mine = shared.personalise(x, y, **options)
        module = at(start)
        descent = torch.optim.SGD(module.parameters(), lr=step)
        for _ in range(steps):
            descent.zero_grad()
            nn.functional.cross_entropy(module(torch.from_numpy(x).double()), torch.from_numpy(y)).backward()
            descent.step()
        expected = parameters_to_vector(module.parameters()).detach().numpy()
        np.testing.assert_allclose(mine.model_, expected, atol=1e-6)
        np.testing.assert_array_equal(mine.start_, start)
        np.testing.assert_allclose(mine.predict_proba(x), softmax(scores(expected, x), 1), atol=1e-5)
    np.testing.assert_array_equal(shared.start_, start)
    np.testing.assert_array_equal(shared.model_, start)
    np.testing.assert_allclose(shared.predict_proba(x), softmax(scores(start, x), 1), atol=1e-5)


def test_one_step_makes_a_start_a_clients_own():
    """Half of the clients name the sides the other way round, so no shared model suits them all."""
    parts = [(x, y if k % 2 else 1 - y) for k, (x, y) in enumerate(clients(count=60, number=12))]
    model = PrivateMetaClassifier(hidden=(8,), rounds=60, rate=1.0, inner_step=1.0, random_state=1).fit(parts[:8])
    after, before = (
        np.mean([use(x[:30], y[:30]).score(x[30:], y[30:]) for x, y in parts[8:]])
        for use in (model.personalise, lambda x, y: model)
    )
    assert after > 0.8
    assert after > before + 0.2


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param([0, 1], id="ints"),
        pytest.param([10, 9], id="ints out of order"),
        pytest.param([-1, 1], id="negative"),
        pytest.param(["ill", "well"], id="strings"),
        pytest.param(np.array([3, 7], dtype=np.int8), id="numpy ints"),
        pytest.param([False, True], id="bools"),
        pytest.param([0.0, 1.0], id="whole floats"),
    ],
)
def test_labels_come_back_as_they_came(labels, tmp_path):
    parts = clients(labels)
    model = PrivateMetaClassifier(**QUICK).fit(parts)
    x, y = parts[0]
    mine = model.personalise(x, y, steps=50, step=1.0)
    mine.save(tmp_path / "mine.npz")
    for found in (mine, PrivateMetaClassifier.load(tmp_path / "mine.npz")):
        assert sorted(found.classes_.tolist()) == sorted(np.array(labels).tolist())
        guesses = found.predict(x)
        assert {type(guess) for guess in guesses.tolist()} <= {type(label) for label in np.array(labels).tolist()}
        assert found.score(x, y) == np.mean(guesses == y) > 0.9
        np.testing.assert_array_equal(guesses, found.classes_[found.predict_proba(x).argmax(1)])


@pytest.mark.parametrize("made", [list, pd.Series, lambda y: np.array(y, dtype=object)])
def test_labels_may_come_in_any_container(made):
    parts = [(x, made([f"side {label}" for label in y])) for x, y in clients()]
    model = PrivateMetaClassifier(**QUICK).fit(parts)
    assert model.classes_.tolist() == ["side 0", "side 1"]


def test_classes_may_be_given_and_more_than_occur():
    parts = clients(["ill", "well"])
    model = PrivateMetaClassifier(**QUICK, classes=["dead", "ill", "well"]).fit(parts)
    assert model.classes_.tolist() == ["dead", "ill", "well"]
    chances = model.predict_proba(parts[0][0])
    assert chances.shape == (20, 3)
    np.testing.assert_allclose(chances.sum(1), 1.0)
    assert PrivateMetaClassifier(**QUICK, classes=[2, 1, 0]).fit(clients()).classes_.tolist() == [0, 1, 2]
    for wrong in (lambda: clone(model).set_params(classes=["ill", "dead"]).fit(parts),
                  lambda: model.personalise(parts[0][0], ["gone"] * 20)):  # fmt: skip
        with pytest.raises(InputError, match="one of the classes"):
            wrong()


def test_a_regression_gives_numbers_and_its_score(tmp_path):
    parts = answers()
    model = PrivateMetaRegressor("linear", rounds=40, rate=1.0, outer_step=0.5, random_state=1).fit(parts)
    x, y = parts[1]
    mine = model.personalise(x, y, steps=20)
    guess = x @ mine.model_[:3] + mine.model_[3]
    np.testing.assert_allclose(mine.predict(x), guess, atol=1e-5)
    assert mine.score(x, y) == pytest.approx(1.0 - ((guess - y) ** 2).sum() / ((y - y.mean()) ** 2).sum(), abs=1e-5)
    assert mine.score(x, y) > max(0.99, model.score(x, y))
    mine.save(tmp_path / "mine.npz")
    np.testing.assert_array_equal(PrivateMetaRegressor.load(tmp_path / "mine.npz").predict(x), mine.predict(x))
    with pytest.raises(InputError, match="a model for classes, but found one for numbers"):
        PrivateMetaClassifier.load(tmp_path / "mine.npz")


@pytest.mark.parametrize("estimator", [PrivateMetaClassifier, PrivateMetaRegressor])
def test_no_records_and_a_single_one_can_be_predicted(estimator):
    parts = clients()
    model = estimator(**QUICK).fit(parts)
    x = parts[0][0]
    np.testing.assert_allclose(model.predict(x[:1]), model.predict(x)[:1], rtol=1e-6)
    assert model.predict(x[:0]).shape == (0,)
    if estimator is PrivateMetaClassifier:
        assert model.predict_proba(x[:0]).shape == (0, 2)
        np.testing.assert_allclose(model.predict_proba(x[:1]), model.predict_proba(x)[:1], rtol=1e-6)


def test_pictures_are_read_in_every_layout():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(6, 8, 8)), np.arange(6) % 2) for _ in range(2)]
    model = PrivateMetaClassifier("cnn", **(QUICK | {"rounds": 1})).fit(parts)
    x = parts[0][0]
    for turned in (x[:, None], x[..., None]):
        np.testing.assert_allclose(model.predict_proba(turned), model.predict_proba(x), rtol=1e-6)
    assert model.personalise(*parts[1]).model_.shape == model.start_.shape
    with pytest.raises(InputError, match="shape"):
        model.predict(rng.normal(size=(6, 10, 10)))


def frames():
    return [(pd.DataFrame(x, columns=["age", "dose", "weight"]), y) for x, y in clients()]


def test_columns_of_clients_tables_are_matched_by_name():
    parts = frames()
    turned = [(x[["weight", "age", "dose"]], y) if k else (x, y) for k, (x, y) in enumerate(parts)]
    one, other = (PrivateMetaClassifier(**QUICK).fit(data) for data in (parts, turned))
    np.testing.assert_array_equal(one.start_, other.start_)


@pytest.mark.parametrize("use", ["predict_proba", "personalise"])
def test_columns_of_new_records_are_matched_by_name_too(use):
    parts = frames()
    model = PrivateMetaClassifier(**QUICK).fit(parts)
    x, y = parts[0]

    def used(records):
        return model.predict_proba(records) if use == "predict_proba" else model.personalise(records, y).model_

    np.testing.assert_array_equal(used(x[["weight", "age", "dose"]]), used(x))
    np.testing.assert_array_equal(used(x.to_numpy()), used(x))  # arrays have no names
    with pytest.raises(InputError, match="height"):
        used(x.rename(columns={"age": "height"}))


# ---- scikit-learn's conventions --------------------------------------------------------------------------------------


def test_parameters_are_scikit_learns():
    model = PrivateMetaClassifier("linear", rounds=7, hidden=(3, 2), classes=["a", "b"], epsilon=1.0)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.set_params(rounds=9, order="first").get_params() == model.get_params() | {
        "rounds": 9,
        "order": "first",
    }
    assert model.rounds == 7
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(nonsense=1)
    assert is_classifier(model)
    assert is_regressor(PrivateMetaRegressor())
    fitted = PrivateMetaClassifier(**QUICK).fit(clients())
    assert not hasattr(clone(fitted), "start_")
    np.testing.assert_array_equal(clone(fitted).fit(clients()).start_, fitted.start_)


def test_before_fit_there_is_nothing_to_predict_with(tmp_path):
    model = PrivateMetaClassifier()
    for use in (
        lambda: model.predict(inputs(0)),
        lambda: model.predict_proba(inputs(0)),
        lambda: model.personalise(*clients()[0]),
        lambda: model.save(tmp_path / "model.npz"),
    ):
        with pytest.raises(NotFittedError):
            use()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_a_generator_gives_every_fit_its_own_seed(kind):
    """As scikit-learn has it: the same generator in the same state, the same results. It is a rehearsal too."""
    private = QUICK | {"epsilon": EPSILON, "delta": DELTA}
    model = PrivateMetaClassifier(**private | {"random_state": kind(5)})
    one, two = (model.fit(clients()).start_ for _ in range(2))
    again = PrivateMetaClassifier(**private | {"random_state": kind(5)}).fit(clients())
    np.testing.assert_array_equal(again.start_, one)
    assert not np.allclose(one, two)
    assert {each["rehearsal"] for each in again.privacy_["guarantees"]} == {True}


def test_a_seed_repeats_everything_and_none_repeats_nothing():
    private = QUICK | {"epsilon": EPSILON, "delta": DELTA}
    one, two = (PrivateMetaClassifier(**private).fit(clients()) for _ in range(2))
    np.testing.assert_array_equal(one.start_, two.start_)
    assert one.ledger_ == two.ledger_
    assert {each["rehearsal"] for each in one.privacy_["guarantees"]} == {True}
    free, other = (PrivateMetaClassifier(**private | {"random_state": None}).fit(clients()) for _ in range(2))
    assert not np.allclose(free.start_, other.start_)
    assert {each["rehearsal"] for each in free.privacy_["guarantees"]} == {False}
    assert all("secret" in row.randomness for row in free.ledger_)


def test_fit_is_the_plans_run(tmp_path):
    """The same records, parameters and seed: the same start, the same rows in the ledger."""
    parts = clients(["ill", "well"])
    for k, (x, y) in enumerate(parts):
        np.savez(tmp_path / f"client_{k}.npz", x=x, y=y)
    data = MetaData("answer", tuple(f"client_{k}.npz" for k in range(3)), classes=("ill", "well"))
    method = MetaMethod(rounds=3, rate=1.0, hidden=(4,), clip=0.5)
    private = PrivateMetaClassifier("mlp", **QUICK, clip=0.5, epsilon=EPSILON, delta=DELTA).fit(parts)
    plan = MetaPlan(data, method, MetaBudget(EPSILON, DELTA), seed=1)
    folder = execute(plan, tmp_path, tmp_path / "out", lambda *_: None, lambda folder: "").folder
    loaded = PrivateMetaClassifier.load(folder / "models/start.npz")
    np.testing.assert_array_equal(loaded.start_, private.start_)
    np.testing.assert_array_equal(loaded.predict(parts[0][0]), private.predict(parts[0][0]))
    result = json.loads((folder / "result.json").read_text())
    assert result["privacy"]["guarantees"] == private.privacy_["guarantees"]
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == len(private.ledger_)


# ---- privacy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [PrivateMetaClassifier, PrivateMetaRegressor])
@pytest.mark.parametrize(("order", "releases"), [("second", 3), ("first", 2)])
def test_the_budget_is_kept_and_told(estimator, order, releases):
    parts = clients() if estimator is PrivateMetaClassifier else answers()
    model = estimator(**QUICK, order=order, local_steps=2, epsilon=EPSILON, delta=DELTA).fit(parts)
    assert len(model.ledger_) == 3 * 3 * 2 * releases
    assert {row.mechanism for row in model.ledger_} == {"gaussian"}
    for each in model.privacy_["guarantees"]:
        assert each["epsilon"] == cost([row for row in model.ledger_ if row.silo == each["site"]], DELTA).epsilon
        assert EPSILON * (1.0 - 1e-6) < each["epsilon"] <= EPSILON
        assert each["delta"] == DELTA
    # Everything a record's owner pays for: sets of ten records, each record's part at most 1 long.
    outer = [row for row in model.ledger_ if row.release_point.startswith("outer")]
    assert [row.l2 for row in outer] == pytest.approx([0.1] * len(outer), rel=1e-6)
    mine = model.personalise(*parts[0])
    assert mine.ledger_ == model.ledger_  # nothing leaves for it


def test_without_a_budget_there_is_no_promise():
    model = PrivateMetaClassifier(**QUICK).fit(clients())
    assert {each["epsilon"] for each in model.privacy_["guarantees"]} == {"infinity"}
    assert {row.mechanism for row in model.ledger_} == {"reveal"}
    assert model.privacy_["mode"] == "exact"


# ---- networks of one's own -------------------------------------------------------------------------------------------


class Skips(nn.Module):
    """No chain of layers: gradients are taken record by record."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(7, 2)

    def forward(self, x):
        return self.last(torch.cat([x, torch.tanh(self.norm(self.first(x)))], -1))


@pytest.mark.parametrize("make", [network, Skips])
def test_a_module_of_ones_own_learns_from_its_own_start(make, tmp_path):
    torch.manual_seed(0)
    module, parts = make(), clients()
    before = parameters_to_vector(module.parameters()).detach().clone()
    model = PrivateMetaClassifier(module, rounds=2, rate=1.0, epsilon=EPSILON, delta=DELTA, random_state=1)
    model.fit(parts)
    torch.testing.assert_close(parameters_to_vector(module.parameters()).detach(), before, rtol=0.0, atol=0.0)
    still = clone(model).set_params(epsilon=None, outer_step=1e-12).fit(parts)
    np.testing.assert_allclose(still.start_, before.double().numpy(), atol=1e-9)
    x = parts[0][0]
    np.testing.assert_allclose(model.predict_proba(x), softmax(scores(model.start_, x, make().double()), 1), atol=1e-5)
    mine = model.personalise(*parts[0])
    mine.save(tmp_path / "mine.npz")
    loaded = PrivateMetaClassifier.load(tmp_path / "mine.npz", make())
    np.testing.assert_array_equal(loaded.predict_proba(x), mine.predict_proba(x))
    with pytest.raises(InputError, match="the torch module it was learned with, but found none"):
        PrivateMetaClassifier.load(tmp_path / "mine.npz")
    first = next(iter(dict(make().named_parameters())))
    with pytest.raises(InputError, match="parameters of the network it names") as error:
        PrivateMetaClassifier.load(tmp_path / "mine.npz", network(hidden=5))
    assert f"{first} of shape (4, 3), but found 0.weight of shape (5, 3)" in str(error.value)


def on_an_extractor(middle=0.5):
    """A head on features that somebody brought along, whose batch norm knows other records."""
    norm = nn.BatchNorm1d(3)
    norm.running_mean.fill_(middle)
    return nn.Sequential(FixedFeatures(nn.Sequential(norm, nn.Tanh())), nn.Linear(3, 2))


def test_a_head_on_an_extractor_is_a_linear_model_of_its_features(tmp_path):
    torch.manual_seed(0)
    module, parts = on_an_extractor(), clients()
    options = {"rounds": 2, "rate": 1.0, "epsilon": EPSILON, "delta": DELTA, "random_state": 1}
    model = PrivateMetaClassifier(module, **options).fit(parts)
    linear = nn.Linear(3, 2)
    linear.load_state_dict(module[1].state_dict())
    features = [(np.tanh((x - 0.5) / np.sqrt(1.0 + 1e-5)), y) for x, y in parts]
    by_hand = PrivateMetaClassifier(linear, **options).fit(features)
    np.testing.assert_allclose(model.start_, by_hand.start_, rtol=1e-4, atol=1e-5)
    assert len(model.start_) == 8
    model.personalise(*parts[0]).save(tmp_path / "mine.npz")
    PrivateMetaClassifier.load(tmp_path / "mine.npz", on_an_extractor())
    with pytest.raises(InputError, match="the same parameters that computes something else"):
        PrivateMetaClassifier.load(tmp_path / "mine.npz", on_an_extractor(0.4))


@pytest.mark.parametrize("epsilon", [None, EPSILON])
def test_random_features_come_back_from_a_file(epsilon, tmp_path):
    """They are not in it: everybody draws the same."""
    model = PrivateMetaClassifier("random_features", width=9, epsilon=epsilon, delta=DELTA, **QUICK).fit(clients())
    assert len(model.start_) == (9 + 1) * 2
    mine = model.personalise(*clients()[0])
    mine.save(tmp_path / "mine.npz")
    x = inputs(0)
    loaded = PrivateMetaClassifier.load(tmp_path / "mine.npz")
    np.testing.assert_array_equal(loaded.predict_proba(x), mine.predict_proba(x))


def test_parameters_do_not_make_a_network(tmp_path):
    """The same names and shapes, and another function: its predictions would be nonsense."""
    model = PrivateMetaClassifier(network(), **QUICK).fit(clients())
    model.save(tmp_path / "model.npz")
    loaded = PrivateMetaClassifier.load(tmp_path / "model.npz", network())
    loaded.personalise(*clients()[0]).save(tmp_path / "mine.npz")  # which has another trial
    for name in ("model.npz", "mine.npz"):
        PrivateMetaClassifier.load(tmp_path / name, network())
        with pytest.raises(InputError, match="the same parameters that computes something else"):
            PrivateMetaClassifier.load(tmp_path / name, nn.Sequential(network()[0], nn.Tanh(), network()[2]))
        with pytest.raises(InputError, match=r"no more, but found 3.weight of shape \(2, 2\)"):
            PrivateMetaClassifier.load(tmp_path / name, network().append(nn.Linear(2, 2).double()))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), "batch norm.*GroupNorm"),
        (nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2)), "dropout draws at random"),
        (nn.Sequential(nn.Linear(3, 5)), "outputs of shape"),
        (nn.Sequential(nn.Linear(4, 2)), "takes records of shape"),
        (nn.ReLU(), "parameters to learn"),
    ],
)
@pytest.mark.parametrize("epsilon", [None, EPSILON])
def test_a_module_whose_records_cannot_be_told_apart_is_refused(module, words, epsilon):
    with pytest.raises(InputError, match=words):
        PrivateMetaClassifier(module, **QUICK, epsilon=epsilon).fit(clients())


@pytest.mark.parametrize("shape", [(3,), (8, 8)])
def test_a_network_nobody_knows_is_refused_by_name(shape, monkeypatch):
    """Not taken for another one."""
    monkeypatch.setattr(networks, "resnet18", lambda *_: pytest.fail("it was taken for a resnet18"))
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(4, *shape)), np.arange(4) % 2) for _ in range(2)]
    with pytest.raises(InputError, match=r"mlp, cnn.*transformer"):
        PrivateMetaClassifier("transformer", **(QUICK | {"rounds": 1})).fit(parts)


# ---- what does not fit -----------------------------------------------------------------------------------------------


def spoiled(value):
    x = inputs(0)
    x[4, 1] = value
    return x


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_features_that_are_no_numbers_are_refused(value):
    parts, x = clients(), spoiled(value)
    model = PrivateMetaClassifier(**QUICK).fit(parts)
    y = parts[0][1]
    for use in (
        lambda: clone(model).fit([(x, y), *parts[1:]]),
        lambda: clone(model).set_params(epsilon=1.0).fit([(x, y), *parts[1:]]),
        lambda: model.personalise(x, y),
        lambda: model.predict(x),
        lambda: model.predict(x[4:5]),
        lambda: PrivateMetaRegressor(**QUICK).fit([(parts[0][0], x[:, 1]), *answers()]),
    ):
        with pytest.raises(InputError):
            use()


@pytest.mark.parametrize(
    ("data", "names", "words"),
    [
        ([], None, "at least one"),
        ([(inputs(0), [0, 1])], None, "one label for each of the 20 records"),
        ([(inputs(0)[:1], [0])], None, "at least 2 records, but there is only one"),
        ([(inputs(0)[:, 0], [0, 1] * 10)], None, "records"),
        ([(inputs(0), [0, 1] * 10), (inputs(1)[:, :2], [0, 1] * 10)], None, "features"),
        ([(inputs(0), [0] * 20), (inputs(1), [0] * 20)], None, "at least 2 classes"),
        ([(inputs(0), [0.5, 1.5] * 10)], None, "a class: text or a whole number"),
        ([(inputs(0), [0, "one"] * 10)], None, "all whole numbers or all text"),
        (clients(), ["a", "b"], "one for each of the 3 clients"),
        (clients(), ["a", "b", "a"], "different names"),
    ],
)
def test_clients_that_do_not_fit_are_refused_with_words(data, names, words):
    with pytest.raises(InputError, match=words):
        PrivateMetaClassifier(**QUICK).fit(data, names=names)


def test_records_of_another_shape_than_learned_are_refused():
    model = PrivateMetaClassifier(**QUICK).fit(clients())
    wide = np.zeros((20, 4))
    for use in (
        lambda: model.personalise(wide, [0, 1] * 10),
        lambda: model.predict(wide),
        lambda: model.predict(wide[0]),
    ):
        with pytest.raises(InputError):
            use()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "PrivateMetaClassifier, rounds"),
        ({"rate": 1.5}, "PrivateMetaClassifier, rate"),
        ({"order": "third"}, "order"),
        ({"inner_step": -1.0}, "PrivateMetaClassifier, inner_step"),
        ({"hidden": (0,)}, "PrivateMetaClassifier, hidden"),
        ({"epsilon": 0.0}, "PrivateMetaClassifier, epsilon"),
        ({"epsilon": 1.0, "delta": 0.2}, "delta below 1/N"),
        ({"classes": ["1"]}, "classes"),
        ({"device": "abacus"}, "cpu or cuda"),
        ({"random_state": -1}, "plan, seed"),
        ({"random_state": 1.5}, "random_state: expected None, a whole number, or a numpy Generator"),
        ({"model": "cnn"}, "pictures for a cnn"),
        ({"model": lambda: network()}, "expected a torch.nn.Module, but found a function"),
        ({"model": nn.Linear}, "expected a torch.nn.Module, but found a type"),
        ({"rounds": 1.5}, "PrivateMetaClassifier, rounds: expected a whole number from 1 to .*, but found 1.5"),
        ({"rounds": True}, "PrivateMetaClassifier, rounds: expected a whole number from 1 to .*, but found true"),
        ({"hidden": 8}, "PrivateMetaClassifier, hidden: expected a list of whole numbers, but found 8"),
        ({"hidden": (4.5,)}, r"PrivateMetaClassifier, hidden\[0\]: expected a whole number"),
        ({"rate": "often"}, "PrivateMetaClassifier, rate: expected a number above 0 and at most 1, but found 'often'"),
        (
            {"epsilon": "little"},
            "PrivateMetaClassifier, epsilon: expected a privacy budget above 0, but found 'little'",
        ),
        (
            {"epsilon": 1.0, "delta": None},
            "PrivateMetaClassifier, delta: expected a number between 0 and 1, but found nothing",
        ),
        ({"classes": 2}, "PrivateMetaClassifier, classes: expected a list of labels, but found 2"),
        ({"classes": "01"}, "PrivateMetaClassifier, classes: expected a list of labels, but found '01'"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_with_words(options, words):
    with pytest.raises(InputError, match=words):
        PrivateMetaClassifier(**QUICK | options).fit(clients())


def test_numpys_numbers_are_numbers():
    """As they come from a search over a grid."""
    plain = PrivateMetaClassifier(**QUICK, inner_step=0.25, classes=[0, 1]).fit(clients())
    numpys = {"hidden": np.array([4]), "rounds": np.int64(3), "rate": np.float32(1.0), "random_state": np.int64(1)}
    model = PrivateMetaClassifier(**numpys, inner_step=np.float32(0.25), classes=np.array([0, 1])).fit(clients())
    np.testing.assert_array_equal(model.start_, plain.start_)
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("given", [inputs(0), 5, {"ann": clients()[0]}, clients()[0], [(*clients()[0], "ann")]])
def test_what_is_no_list_of_clients_is_refused_with_words(given):
    with pytest.raises(InputError, match=r"a list of \(records, labels\), one for each.*write \[\(X, y\)\]"):
        PrivateMetaClassifier(**QUICK).fit(given, clients()[0][1])


def test_one_record_is_enough_to_personalise():
    """Nothing is divided then; a step along its gradient makes it likelier."""
    parts = clients()
    model = PrivateMetaClassifier(**QUICK).fit(parts)
    x, y = parts[0][0][:1], parts[0][1][:1]
    assert model.personalise(x, y).predict_proba(x)[0, y[0]] > model.predict_proba(x)[0, y[0]]
    with pytest.raises(InputError, match="at least one record, but there is none"):
        model.personalise(x[:0], y[:0])


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"step": 0.0}, {"step": -1.0}, {"step": math.nan}, {"step": math.inf}]
)
def test_steps_that_lead_nowhere_are_refused(options):
    parts = clients()
    model = PrivateMetaClassifier(**QUICK).fit(parts)
    with pytest.raises(InputError, match="at least one step of a size above 0"):
        model.personalise(*parts[0], **options)


def test_steps_that_leave_the_numbers_are_not_silent():
    """A model of infinities predicts nonsense and cannot be told from a good one."""
    parts = answers()
    model = PrivateMetaRegressor(**QUICK).fit(parts)
    with pytest.raises((InputError, ArithmeticError)):
        model.personalise(*parts[0], step=1e60)


def test_a_folder_is_no_file_to_save_a_model_to(tmp_path):
    model = PrivateMetaClassifier(**QUICK).fit(clients())
    with pytest.raises(InputError, match="a file to write, but it is a folder"):
        model.save(tmp_path)
    assert list(tmp_path.iterdir()) == list(tmp_path.parent.glob("*.tmp")) == []


def test_files_that_are_no_model_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(InputError, match="it cannot be read"):
        PrivateMetaClassifier.load(path)
    PrivateMetaClassifier(**QUICK).fit(clients()).save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["model.npz"]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DamageError, match=r"model\.npz"):
        PrivateMetaClassifier.load(path)


# ---- torch is an extra -----------------------------------------------------------------------------------------------

WITHOUT_TORCH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from silograph import PrivateMetaClassifier, PrivateMetaRegressor
from silograph.core.errors import InputError
try:
    {}
except InputError as error:
    print(error)
"""


def said(code, *words):
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_loaded_only_when_it_is_needed():
    code = "import sys, silograph, silograph.cli, silograph.estimators.meta; print('torch' in sys.modules)"
    assert said(code).strip() == "False"


@pytest.mark.parametrize(
    "use",
    ["PrivateMetaRegressor().fit([([[1.0], [2.0]], [0, 1])])", "PrivateMetaClassifier.load(sys.argv[1])"],
)
def test_without_torch_the_extra_is_named(use, tmp_path):
    PrivateMetaClassifier(**QUICK).fit(clients()).save(tmp_path / "model.npz")
    told = said(WITHOUT_TORCH.format(use), tmp_path / "model.npz")
    assert "PyTorch, but it is not installed. pip install 'silograph[neural]'" in told


def test_a_column_that_is_hardly_a_feature_gets_a_word():
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(3):
        x = pd.DataFrame(rng.standard_normal((20, 2)), columns=["a", "b"]).assign(patient_id=rng.permutation(20))
        parts.append((x, rng.integers(0, 2, 20)))
    with pytest.warns(UserWarning, match="'patient_id' has the name of an identifier"):
        PrivateMetaClassifier(rounds=1).fit(parts)


# ---- what is chosen automatically ------------------------------------------------------------------------------------


def digits(seed, number=40, classes=3):
    """scikit-learn's digits, dealt to clients that each know three of them."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    known = [rng.permutation(10)[:classes] for _ in range(number)]
    parts = [[] for _ in known]
    for digit in range(10):
        holders = [k for k, own in enumerate(known) if digit in own]
        for place, row in enumerate(rng.permutation(np.flatnonzero(y == digit))):
            parts[holders[place % len(holders)]].append(row)
    return [(x[rows] / 16.0, y[rows]) for rows in map(rng.permutation, parts)]


@pytest.mark.parametrize(("epsilon", "least"), [(4.0, 0.93), (1.0, 0.82)])
def test_with_no_setting_touched_digits_are_told_apart_under_a_budget(epsilon, least):
    """About 35 records a source client; new clients learn from half of theirs and are tested on the rest."""
    parts = digits(11)
    model = PrivateMetaClassifier(epsilon=epsilon, delta=1e-3, classes=list(range(10)), random_state=11).fit(parts[:28])
    assert model.spec_["model"] == "linear"
    assert max(guarantee["epsilon"] for guarantee in model.privacy_["guarantees"]) <= epsilon
    halves = [(x[: len(y) // 2], y[: len(y) // 2], x[len(y) // 2 :], y[len(y) // 2 :]) for x, y in parts[28:]]
    assert np.mean([model.personalise(x, y).score(a, b) for x, y, a, b in halves]) >= least


def test_a_hidden_layer_is_for_budgets_that_can_pay_for_it():
    from silograph.families.meta.advice import advised

    pictures = advised(4.0, 1e-3, [600] * 30, 196, 10, (32,))  # S4's own size
    assert pictures.model == "mlp"
    small = advised(1.0, 1e-3, [40] * 28, 64, 10, (32,))
    assert (small.model, small.rate) == ("linear", 1.0)
    assert small.rounds < advised(4.0, 1e-3, [40] * 28, 64, 10, (32,)).rounds <= pictures.rounds


def test_features_are_scaled_by_public_bounds_wherever_they_are_read(tmp_path):
    """Pixels from 0 to 16 are the same model's as pixels from -1 to 1, before and after a file."""
    parts = [(16.0 * x, y) for x, y in digits(11)[:6]]
    options = {"rounds": 3, "rate": 1.0, "epsilon": 4, "delta": 1e-3, "classes": list(range(10)), "random_state": 1}
    raw = PrivateMetaClassifier("linear", bounds=(0, 16), **options).fit(parts[:5])
    by_hand = PrivateMetaClassifier("linear", **options).fit([(x / 8.0 - 1.0, y) for x, y in parts[:5]])
    np.testing.assert_allclose(raw.start_, by_hand.start_, rtol=1e-5, atol=1e-6)
    each = PrivateMetaClassifier("linear", bounds=[(0, 16)] * 64, **options).fit(parts[:5])
    np.testing.assert_array_equal(each.start_, raw.start_)
    x, y = parts[5]
    mine = raw.personalise(x, y, steps=4)
    np.testing.assert_allclose(mine.model_, by_hand.personalise(x / 8.0 - 1.0, y, steps=4).model_, rtol=1e-4, atol=1e-5)
    mine.save(tmp_path / "mine.npz")
    loaded = PrivateMetaClassifier.load(tmp_path / "mine.npz")
    np.testing.assert_array_equal(loaded.predict_proba(x), mine.predict_proba(x))
    beyond = np.where(x == 16.0, 99.0, x)  # counts as the bound
    np.testing.assert_array_equal(mine.predict_proba(beyond), mine.predict_proba(x))
    for wrong in ((16, 0), (0, np.inf), 16, (0, 1, 2)):
        with pytest.raises(InputError, match="bounds: expected the least and the most"):
            PrivateMetaClassifier("linear", bounds=wrong, **options).fit(parts[:5])
    pictures = [(x.reshape(-1, 1, 8, 8), y) for x, y in parts[:5]]
    with pytest.raises(InputError, match="none with pictures"):
        PrivateMetaClassifier("linear", bounds=(0, 16), **options).fit(pictures)
