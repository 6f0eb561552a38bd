"""The estimator in scikit-learn's world."""

import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from silograph import ConsensusGraph
from silograph.core.errors import InputError
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import squared_distances
from support import federation

TWO_NODES = "fits a table of two columns; a graph needs three nodes"
NOT_APPLICABLE = dict.fromkeys(
    (
        "check_estimators_overwrite_params",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_fit_idempotent",
        "check_fit_check_is_fitted",
        "check_n_features_in",
    ),
    TWO_NODES,
)


@parametrize_with_checks([ConsensusGraph()], expected_failed_checks=lambda estimator: NOT_APPLICABLE)
def test_scikit_learns_own_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_the_front_door():
    signals = federation()
    model = ConsensusGraph(degree=3).fit(list(signals.values()), names=list(signals))
    assert model.graphs_.shape == (3, 8, 8)
    assert model.consensus_.shape == (8, 8)
    assert model.weights_.shape == (3,)
    assert model.gap_ <= 1e-6
    assert {row.silo for row in model.ledger_} == set(signals)
    np.testing.assert_array_equal(model.graphs_, model.graphs_.transpose(0, 2, 1))
    made = model.to_networkx("bob")
    assert isinstance(made, nx.Graph)
    a, b = next(iter(made.edges))
    k, l = (model.nodes_.index(x) for x in (a, b))
    assert made[a][b]["weight"] == model.graphs_[1, k, l]
    assert model.to_networkx().number_of_nodes() == 8
    with pytest.raises(InputError, match="one of"):
        model.to_networkx("zoe")


def test_sites_keep_the_order_they_were_given_in():
    signals = federation()
    forward = ConsensusGraph(degree=3).fit(list(signals.values()), names=list(signals))
    backward = ConsensusGraph(degree=3).fit(list(signals.values())[::-1], names=list(signals)[::-1])
    np.testing.assert_array_equal(forward.graphs_, backward.graphs_[::-1])
    np.testing.assert_array_equal(forward.weights_, backward.weights_[::-1])


def test_the_privacy_budget_is_met():
    signals = list(federation().values())
    model = ConsensusGraph(degree=3, epsilon=2.0, delta=1e-5, random_state=0).fit(signals)
    again = clone(model).fit(signals)
    np.testing.assert_array_equal(model.graphs_, again.graphs_)
    assert all(g["epsilon"] <= 2.0 for g in model.privacy_["guarantees"])
    secret = ConsensusGraph(degree=3, epsilon=2.0, delta=1e-5).fit(signals)
    assert not np.array_equal(model.graphs_, secret.graphs_)
    assert all("secret" in row.randomness for row in secret.ledger_)


def test_a_single_table_is_one_site_and_frames_name_the_nodes():
    x = federation()["ada"]
    frame = pd.DataFrame(x, columns=list("stuvwxyz"))
    model = ConsensusGraph(beta=0.05).fit(frame)
    assert model.nodes_ == list("stuvwxyz")
    alone = solve(squared_distances(x)[None], 1.0, 0.05).w[0]
    np.testing.assert_allclose(model.graphs_[0][np.triu_indices(8, 1)], alone, atol=1e-4)


def test_bad_parameters():
    x = federation()["ada"]
    with pytest.raises(InputError, match="degree and beta came"):
        ConsensusGraph(degree=3, beta=1.0).fit([x])
    with pytest.raises(InputError, match="epsilon"):
        ConsensusGraph(delta=1e-5).fit([x])
