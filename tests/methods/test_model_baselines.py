"""What clustered models are held against: each reaches the optimum it is meant to reach, by solves of their own."""

import math

import numpy as np
import pytest

from clusters import FEATURES, MOST, data_of, named, records, topology
from silograph.core.errors import InputError
from silograph.methods.model_baselines import Alone, Ditto, PFedMe
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.clustered import Proximal

TASK, LAM, PULL = Proximal(FEATURES, MOST), 0.2, 0.7
EYE = np.eye(FEATURES)


def run(method, data=None, engine="vector"):
    topo, door, data = topology(), Door(1, Ledger()), data or records()
    place = ENGINES[engine]([method.task.prepare(data[name]) for name in topo.silos], topo, door)
    *_, state = rounds(method, topo, place, door)
    return method.outcome(state.servers, place.deliver(method, state), topo), door


def parts():
    """Every client's matrix and vector: the gradient of its mean loss is H w - b."""
    return [(x.T @ x / len(x), x.T @ y / len(x)) for x, y in (records()[name] for name in topology().silos)]


def test_alone_is_each_clients_own_ridge():
    outcome, door = run(Alone(TASK, LAM))
    for w, (h, b) in zip(outcome.arrays["model"], parts(), strict=True):
        np.testing.assert_allclose(w, np.linalg.solve(h + LAM * EYE, b), rtol=1e-9)
    assert {row.release_point for row in door.ledger.rows} == {"model"}


def test_ditto_pulls_to_the_model_that_averaging_ends_at():
    """With one step a round the anchor ends at the minimum of the clients' mean."""
    outcome, _ = run(Ditto(TASK, LAM, PULL, 800, step=0.1, local_steps=1))
    h, b = (np.mean(each, axis=0) for each in zip(*parts(), strict=True))
    anchor = np.linalg.solve(h + LAM * EYE, b)
    np.testing.assert_allclose(outcome.arrays["anchor"], anchor, atol=1e-9)
    for w, (h, b) in zip(outcome.arrays["model"], parts(), strict=True):
        np.testing.assert_allclose(w, np.linalg.solve(h + (LAM + PULL) * EYE, b + PULL * anchor), rtol=1e-8)


def test_pfedme_ends_where_the_mean_of_the_personal_models_is_the_anchor():
    outcome, _ = run(PFedMe(TASK, LAM, PULL, 400, rate=0.8, local_steps=1))
    each = [np.linalg.inv(h + (LAM + PULL) * EYE) for h, _ in parts()]
    left = EYE - PULL * np.mean(each, axis=0)
    right = np.mean([inverse @ b for inverse, (_, b) in zip(each, parts(), strict=True)], axis=0)
    np.testing.assert_allclose(outcome.arrays["anchor"], np.linalg.solve(left, right), atol=1e-9)
    np.testing.assert_allclose(outcome.arrays["model"].mean(0), outcome.arrays["anchor"], atol=1e-9)


@pytest.mark.parametrize("loss", ["ridge", "huber", "logistic"])
@pytest.mark.parametrize("method", [Alone, Ditto, PFedMe])
def test_engines_agree_bit_for_bit(method, loss):
    task = Proximal(FEATURES, MOST, loss)
    options = {} if method is Alone else {"rounds": 4}
    data = data_of(named("logistic")) if loss == "logistic" else records()
    (one, first), (other, second) = (
        run(method(task, LAM, **options), data, engine) for engine in ("vector", "silowise")
    )
    for name, value in one.arrays.items():
        np.testing.assert_array_equal(value, other.arrays[name])
    assert first.ledger.rows == second.ledger.rows
    assert first.spent(topology().silos[0], 1e-5).epsilon == math.inf


@pytest.mark.parametrize("wrong", [{"lam": -1.0}, {"pull": -1.0}, {"lam": 0.0, "pull": 0.0}, {"lam": math.nan}])
def test_weights_that_leave_no_minimum_are_refused(wrong):
    with pytest.raises(InputError, match="Ditto, lam and pull"):
        Ditto(TASK, **wrong)
