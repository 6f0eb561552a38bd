"""A client alone: what scikit-learn finds, and what leaving each record out in turn finds."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import RidgeCV

from silograph.tasks.alone import _WEIGHTS, alone
from silograph.tasks.linear import Linear

D = 3


def records(seed, n=30, loss="ridge", noise=1.0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, D))
    y = z @ [1.0, -0.5, 0.0] + 2.0 + noise * rng.normal(size=n)
    y = np.where(rng.random(n) < expit(y), 1.0, -1.0) if loss == "logistic" else y
    return np.column_stack([z * [1.0, 1000.0, 0.001] + [0.0, 5000.0, 1.0], np.ones(n)]), y


@pytest.mark.parametrize("noise", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(3))
def test_squares_are_scikit_learns_with_the_same_weight(seed, noise):
    x, y = records(seed, noise=noise)
    z = (x[:, :-1] - x[:, :-1].mean(0)) / x[:, :-1].std(0)
    # Theirs leaves the constant free, ours all but free.
    theirs = RidgeCV(alphas=len(y) * _WEIGHTS, scoring="neg_mean_squared_error").fit(z, y)
    ours = alone(Linear(D + 1, 99), x, y, True)
    np.testing.assert_allclose(x @ ours, theirs.predict(z), rtol=0.003, atol=0.003 * y.std())


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_the_weight_chosen_predicts_left_out_records_as_well_as_any(loss):
    """By leaving each record out and minimising again; over worlds in which different weights are best."""
    task, losses = Linear(D + 1, 99, loss), []
    for seed in range(6):
        x, y = records(seed, 25, loss, noise=[0.3, 10.0][seed % 2])
        u = (x - x.mean(0)) / np.where(x.std(0) > 0.0, x.std(0), 1.0)
        u[:, -1] = 100.0
        keep = [np.arange(len(y)) != n for n in range(len(y))]
        found = []
        for rho in _WEIGHTS:
            one = Linear(D + 1, 99, loss, rho)
            w = np.array([one.optimum(one.prepare_all([(u[k], y[k])])) for k in keep])
            found.append(task.terms(np.einsum("nm,nm->n", u, w), y)[0].sum())
        ours = alone(task, x, y, True)
        nearest = [np.abs(u @ _optimum(loss, rho, u, y) - x @ ours).max() for rho in _WEIGHTS]
        losses.append((found[int(np.argmin(nearest))], min(found)))
        assert min(nearest) < 1e-6
    ours, best = np.array(losses).T
    assert (ours <= 1.05 * best).all()  # one step of Newton is not the minimum


def _optimum(loss, rho, u, y):
    task = Linear(D + 1, 99, loss, rho)
    return task.optimum(task.prepare_all([(u, y)]))


@pytest.mark.parametrize("loss", ["ridge", "logistic", "huber"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_records_and_columns_that_say_nothing(loss, intercept, n):
    x, y = records(0, n, loss)
    x[:, 0] = 7.0
    w = alone(Linear(D + 1, 99, loss), x if intercept else np.column_stack([x[:, :-1], x[:, 0]]), y, intercept)
    assert np.isfinite(w).all()


def test_one_class_is_likely_but_not_certain():
    x, y = records(1, 10, "logistic")
    w = alone(Linear(D + 1, 99, "logistic"), x, np.ones(len(y)), True)
    np.testing.assert_allclose(expit(x @ w), 1.0 - 0.5 / 11.0)
