"""Parameters of estimators are fields of plans; and learning keeps no round but the last."""

from __future__ import annotations

import gc
import inspect
import weakref
from dataclasses import MISSING, fields
from typing import get_type_hints

import numpy as np
import pytest

import silograph.run.loop as loop
from silograph import ClusteredModels, ConsensusGraph, PrivateMetaClassifier, PrivateMetaRegressor, RegionModels
from silograph.core.errors import InputError

ESTIMATORS = (ConsensusGraph, ClusteredModels, RegionModels, PrivateMetaClassifier, PrivateMetaRegressor)
#: Wider than the plan's, or with another default, on purpose.
WIDER = {"model", "hidden", "epsilon", "graph"}
OTHER_DEFAULT = {
    (ClusteredModels, "graph"),
    (ClusteredModels, "clip"),
    (RegionModels, "graph"),
}


def planned(estimator):
    """Every parameter that a section of the plan has: its field and its type there."""
    for section in estimator._sections:
        hints = get_type_hints(section)
        for part in fields(section):
            if part.name in inspect.signature(estimator).parameters:
                yield part, hints[part.name]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_types_and_defaults_are_the_plans(estimator):
    hints, given = get_type_hints(estimator), inspect.signature(estimator).parameters
    seen = set()
    for part, kind in planned(estimator):
        seen.add(part.name)
        if part.name not in WIDER:
            assert hints[part.name] == kind, part.name
        if (estimator, part.name) not in OTHER_DEFAULT:
            assert given[part.name].default == (None if part.default is MISSING else part.default), part.name
    assert set(given) - seen <= {
        "random_state",
        "classes",
        "bounds",
        "answers",
        "unit_rows",
    }  # a plan has them in [data]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_help_tells_every_parameter(estimator):
    text = inspect.getdoc(estimator)
    parameters, attributes = text.split("Parameters\n----------\n")[1].split("Attributes\n----------\n")
    told = dict(line.split(" : ", 1) for line in parameters.splitlines() if line and not line.startswith(" "))
    assert list(told) == list(inspect.signature(estimator).parameters)
    assert "None" not in [words.strip() for words in told.values()]  # a field without a description
    assert "ledger_" in attributes
    first, *others = inspect.signature(estimator).parameters.values()
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {other.kind for other in others} == {inspect.Parameter.KEYWORD_ONLY}


def test_a_value_of_another_type_is_refused_by_its_name():
    table = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(InputError, match="ConsensusGraph, degree: expected a number"):
        ConsensusGraph(degree="two").fit([table])
    with pytest.raises(InputError, match="ClusteredModels, rounds: expected a whole number"):
        ClusteredModels(rounds=2.5).fit([(table, table[:, 0])], clusters=["a"])
    fitted = ConsensusGraph(degree=np.float32(2)).fit([table])  # numbers of numpy are numbers
    np.testing.assert_array_equal(fitted.graphs_, ConsensusGraph(degree=2).fit([table]).graphs_)


def fit_graphs(rounds):
    tables = [np.random.default_rng(k).normal(size=(30, 6)) for k in range(2)]
    ConsensusGraph(degree=2, solver="paper").fit(tables)  # S3's 50 rounds


def fit_clusters(rounds):
    rng = np.random.default_rng(0)
    ClusteredModels(rounds=rounds).fit(
        [(rng.normal(size=(5, 2)), rng.normal(size=5)) for _ in range(4)], clusters="aabb"
    )


def fit_meta(rounds):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 2)), rng.normal(size=8)) for _ in range(3)]
    PrivateMetaRegressor("linear", rounds=rounds, personal_steps=rounds, random_state=0).fit(clients).personalise(
        *clients[0]
    )


@pytest.mark.parametrize("fit", [fit_graphs, fit_clusters, fit_meta])
def test_states_of_earlier_rounds_are_let_go(fit, monkeypatch):
    """A state has every site's graph: five sites with 1000 nodes, 18 GB in some hundred rounds when all were kept."""
    made, most, real = [], 0, loop.advance

    def advance(*given, **more):
        nonlocal most
        state = real(*given, **more)
        made.append(weakref.ref(state))
        gc.collect()
        most = max(most, sum(one() is not None for one in made))
        return state

    monkeypatch.setattr(loop, "advance", advance)
    fit(30)
    assert len(made) >= 30
    assert most <= 3
