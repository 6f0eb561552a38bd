"""The estimator of clustered models: what a data scientist types."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from silograph import ClusteredModels
from silograph.core.errors import InputError

FEATURES = 6


def world(seed=0, clients=36, logistic=False, counts=(4, 9)):
    """Four servers, three clusters, few records each; and records to test on."""
    rng = np.random.default_rng(seed)
    models = 2.0 * rng.normal(size=(3, FEATURES))
    truth, parts, tests = rng.integers(3, size=clients), [], []
    for q in truth:
        x = rng.normal(size=(int(rng.integers(*counts)) + 30, FEATURES))
        answers = x @ models[q] + 1.0 + 0.5 * rng.normal(size=len(x))
        answers = (answers > 0.0).astype(float) if logistic else answers
        parts.append((x[30:], answers[30:]))
        tests.append((x[:30], answers[:30]))
    return parts, tests, [f"server {k % 4}" for k in range(clients)], [f"kind {q}" for q in truth]


def error(model, tests):
    return np.mean([((model.predict(x, k) - y) ** 2).mean() for k, (x, y) in enumerate(tests)])


def alone(parts, tests):
    """Each client's own ridge regression with an intercept."""
    found = []
    for (x, y), (a, b) in zip(parts, tests, strict=True):
        one = np.column_stack([x, np.ones(len(x))])
        w = np.linalg.solve(one.T @ one / len(x) + 0.01 * np.eye(FEATURES + 1), one.T @ y / len(x))
        found.append(((np.column_stack([a, np.ones(len(a))]) @ w - b) ** 2).mean())
    return np.mean(found)


def test_together_clients_do_far_better_than_alone_and_than_one_model_for_all():
    parts, tests, servers, clusters = world()
    model = ClusteredModels().fit(parts, servers=servers, clusters=clusters)
    everybody = ClusteredModels().fit(parts, servers=servers, clusters=["all"] * len(parts))
    assert error(model, tests) < 0.3 * alone(parts, tests)
    assert error(model, tests) < 0.3 * error(everybody, tests)
    assert model.models_.shape == (36, FEATURES + 1)
    assert model.cluster_models_.shape == (3, FEATURES + 1)
    assert list(model.clusters_) == clusters
    assert model.variances_.shape == (2, FEATURES + 1)
    assert (
        model.variances_[1, 0] > 10.0 * model.variances_[0, :-1].max()
    )  # clusters differ in slopes, clients of one do not
    papers = ClusteredModels(learner="papers").fit(parts, servers=servers, clusters=clusters)
    np.testing.assert_allclose(papers.exchange_.sum(1), 1.0)
    assert error(model, tests) < 1.05 * error(papers, tests)
    assert {g["epsilon"] for g in model.privacy_["guarantees"]} == {"infinity"}


def test_clients_may_come_in_any_order():
    parts, _, servers, clusters = world()
    order = np.random.default_rng(1).permutation(len(parts))
    one = ClusteredModels(rounds=20).fit(parts, servers=servers, clusters=clusters)
    other = ClusteredModels(rounds=20).fit(
        [parts[k] for k in order], servers=[servers[k] for k in order], clusters=[clusters[k] for k in order]
    )
    # Sums are over clients in the order of their names, which follow the order given.
    np.testing.assert_allclose(other.models_, one.models_[order], rtol=1e-9, atol=1e-12)


def test_clusters_can_be_found():
    parts, tests, servers, clusters = world(2, counts=(12, 20))
    model = ClusteredModels(3).fit(parts, servers=servers)
    table = np.zeros((3, 3))
    np.add.at(table, ([int(name[-1]) for name in clusters], [int(name[-1]) - 1 for name in model.clusters_]), 1)
    assert table[linear_sum_assignment(-table)].sum() >= 0.9 * len(parts)  # under the best naming
    assert error(model, tests) < error(ClusteredModels().fit(parts, clusters=["all"] * len(parts)), tests)


def test_classes_are_predicted_as_0_and_1():
    parts, tests, servers, clusters = world(3, logistic=True)
    model = ClusteredModels(loss="logistic").fit(parts, servers=servers, clusters=clusters)
    found = np.concatenate([model.predict(x, k) for k, (x, _) in enumerate(tests)])
    assert set(np.unique(found)) <= {0, 1}
    assert (found == np.concatenate([y for _, y in tests])).mean() > 0.8


def test_a_budget_is_met_and_own_models_stay_home():
    parts, _, servers, clusters = world(4)
    settings = {"epsilon": 3.0, "delta": 1e-5, "clip": 2.0, "rounds": 10, "random_state": 1}
    model = ClusteredModels(**settings).fit(parts, servers=servers, clusters=clusters)
    for guarantee in model.privacy_["guarantees"]:
        assert 0.999 * 3.0 < guarantee["epsilon"] <= 3.0
        assert guarantee["rehearsal"]
    cells = {(server, cluster) for server, cluster in zip(servers, clusters, strict=True)}
    assert len(np.unique(model.models_.round(12), axis=0)) == len(cells)  # a model a cell, none of a client's own


def test_it_is_an_estimator():
    model = ClusteredModels(3, tau=0.2, epsilon=1.0)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("settings", "told", "words"),
    [
        ({}, {}, "found neither. If clients have no groups, say find=1"),
        ({"find": 2}, {"clusters": ["a"] * 36}, "found both"),
        ({}, {"clusters": ["a"]}, "one for each of the 36 clients"),
        ({}, {"clusters": ["a"] * 36, "servers": ["s"]}, "one for each of the 36 clients"),
        ({"tau": 2.0}, {"clusters": ["a"] * 36}, "tau"),
        ({"penalty": 0.0}, {"clusters": ["a"] * 36}, "penalty"),
        ({"epsilon": 1.0}, {"clusters": ["a"] * 36}, "answers"),
        ({"clip": 1.0}, {"clusters": ["a"] * 36}, "epsilon"),
        ({"find": 99}, {}, "at most as many"),
    ],
)
def test_nonsense_is_refused_with_words(settings, told, words):
    with pytest.raises(InputError, match=words):
        ClusteredModels(**settings).fit(world()[0], **told)


def test_wrong_records_are_refused():
    parts, _, servers, clusters = world()
    model = ClusteredModels(rounds=3).fit(parts, servers=servers, clusters=clusters)
    with pytest.raises(InputError, match="a client from 0 to 35"):
        model.predict(parts[0][0], 36)
    with pytest.raises(InputError, match="6 features"):
        model.predict(np.zeros((2, 3)), 0)
    with pytest.raises(InputError):
        ClusteredModels().fit([], clusters=[])
    huge = [(1e300 * parts[0][0], parts[0][1]), *parts[1:]]
    with pytest.raises(InputError, match="client 0: expected numbers of at most 1e"):
        ClusteredModels().fit(huge, servers=servers, clusters=clusters)


def test_private_clusters_choose_everything_and_a_client_makes_its_model_its_own():
    """Slopes 1 and -1 in two clusters, clients' constants of variance 1, noise of .3: own constants explain most."""
    rng = np.random.default_rng(3)
    x, own = rng.uniform(0.0, 10.0, (60, 20, 1)), rng.normal(size=60)
    slope = np.where(np.arange(60) % 2, -0.3, 0.3)
    y = x[..., 0] * slope[:, None] + own[:, None] + 0.3 * rng.normal(size=(60, 20))
    model = ClusteredModels(epsilon=8.0, bounds=[(0, 10)], answers=(-6, 6), masks="skipped", random_state=1)
    model.fit([(x[k], y[k]) for k in range(60)], clusters=["up", "down"] * 30)
    assert model.predict([[10.0]], client=0) - model.predict([[0.0]], client=0) > 1.5
    assert model.predict([[10.0]], client=1) - model.predict([[0.0]], client=1) < -1.5
    assert model.privacy_["mode"] == "dp"
    assert len({tuple(row) for row in model.models_}) == 2  # what is told is the clusters'

    def error(answer):
        return np.mean([((answer(k).predict(x[k, 10:], k) - y[k, 10:]) ** 2).mean() for k in range(60)])

    assert error(lambda k: model.personalise(x[k, :10], y[k, :10], k)) < 0.5 * error(lambda k: model)
    np.testing.assert_array_equal(model.predict([[11.0]], client=0), model.predict([[10.0]], client=0))
    with pytest.raises(InputError, match="estimated clients' own constants"):
        ClusteredModels().fit([(x[k], y[k]) for k in range(60)], clusters=["up", "down"] * 30).personalise(
            x[0], y[0], 0
        )


def test_costs_and_reasons_name_cells_and_servers_that_exist():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (24, 5, 2))
    clients = [(each, np.clip(each @ [0.5, -0.5], -1.0, 1.0)) for each in x]
    servers, clusters = list("aabbcc") * 4, ["one", "two", "one", "one", "two", "two"] * 4
    public = {"bounds": [(-1, 1)] * 2, "answers": (-1, 1), "protect": "clients", "masks": "skipped"}
    estimator = ClusteredModels(epsilon=2.0, delta=1e-3, random_state=1, **public)
    with pytest.warns(UserWarning, match="A constant would do as well"):
        model = estimator.fit(clients, servers=servers, clusters=clusters)
    sites = {each["site"] for each in model.privacy_["guarantees"]}
    assert sites == {"a/cluster-0", "a/cluster-1", "b/cluster-0", "c/cluster-1"} == {row.silo for row in model.ledger_}
    assert all(0.0 < each["epsilon"] <= 2.0 for each in model.privacy_["guarantees"])
    whys = {row.why.split("sum of ")[1].split(",")[0] for row in model.ledger_}
    assert whys <= {"24 agents of 3 servers", "12 agents of 2 servers"}
    assert whys


@pytest.mark.parametrize("budget", [{}, {"epsilon": 4.0}, {"epsilon": 4.0, "protect": "clients"}])
def test_one_cluster_is_given_and_costs_nothing_to_find(budget):
    """The same bits leave clients, at the same cost, as if each had said that it is of one cluster."""
    rng = np.random.default_rng(0)
    clients = [(x, x @ [1.0, -1.0]) for x in rng.uniform(-1.0, 1.0, (30, 5, 2))]
    public = {"bounds": [(-1, 1)] * 2, "answers": (-2, 2), "masks": "skipped", **budget} if budget else {}
    one = ClusteredModels(find=1, random_state=0, **public).fit(clients)
    told = ClusteredModels(random_state=0, **public).fit(clients, clusters=["cluster 1"] * 30)
    np.testing.assert_array_equal(one.models_, told.models_)
    assert one.clusters_.tolist() == told.clusters_.tolist() == ["cluster 1"] * 30
    assert one.ledger_ == told.ledger_
    assert not any(row.release_point == "gradient" for row in one.ledger_)
