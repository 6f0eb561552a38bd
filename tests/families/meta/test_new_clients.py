"""A new client's own records decide how it comes to its model: how many steps, how long, and whether from the start."""

import numpy as np
import pytest
import torch
from torch import nn

from silograph.families.meta.new_clients import best_models, better, models_alone, own_models
from silograph.tasks.networks import initialise, mlp
from silograph.tasks.neural import Neural

INPUTS, CLASSES, STEP = 12, 3, 0.1
TASK = Neural(initialise(mlp(INPUTS, CLASSES, ()), 0), (INPUTS,), CLASSES)
TRUTH = np.random.default_rng(5).normal(size=(CLASSES, INPUTS))


def records(count, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, INPUTS)).astype(np.float32)
    return x, (x @ TRUTH.T + rng.gumbel(size=(count, CLASSES))).argmax(1)


def model_of(weights):
    return np.concatenate([weights.ravel(), np.zeros(CLASSES)])


def right(owns, test):
    return np.mean([TASK.measure(own.model, *test)[1] for own in owns])


def test_a_client_with_few_records_keeps_a_good_start_and_one_with_many_leaves_a_bad_one():
    test = records(4000, 99)
    few, many = ([records(count, seed) for seed in range(6)] for count in (8, 200))
    good, bad = model_of(TRUTH), model_of(50.0 * np.random.default_rng(6).normal(size=TRUTH.shape))
    kept = own_models(TASK, good, STEP, few)
    assert sum(own.alone for own in kept) <= 1
    assert right(kept, test) > right(best_models(TASK, TASK.start, STEP, few), test) + 0.1
    left = own_models(TASK, bad, STEP, many)
    assert sum(own.alone for own in left) >= 5
    # 4,000 records: three deviations of a difference between two scores are less than this.
    assert right(left, test) > right(best_models(TASK, TASK.start, STEP, many), test) - 0.02
    assert right(left, test) > right(best_models(TASK, bad, STEP, many), test) + 0.02


def test_models_are_the_steps_they_say_they_are():
    """By torch's own optimiser."""
    clients = [records(count, seed) for seed, count in enumerate((40, 9, 3))]
    start = model_of(0.3 * TRUTH)
    for own, (x, y) in zip(best_models(TASK, start, STEP, clients), clients, strict=True):
        weight = nn.Parameter(torch.from_numpy(start[: TRUTH.size].reshape(TRUTH.shape).copy()))
        bias = nn.Parameter(torch.zeros(CLASSES, dtype=torch.float64))
        descent = torch.optim.SGD([weight, bias], lr=own.step)
        for _ in range(own.steps):
            descent.zero_grad()
            scores = torch.from_numpy(x).double() @ weight.T + bias
            nn.functional.cross_entropy(scores, torch.from_numpy(y)).backward()
            descent.step()
        expected = np.concatenate([weight.detach().numpy().ravel(), bias.detach().numpy()])
        np.testing.assert_allclose(own.model, expected, atol=1e-4)
        assert len(own.losses) == len(y)


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_records_to_leave_any_out_take_one_step_from_the_start(count):
    (own,) = own_models(TASK, model_of(TRUTH), STEP, [records(count, 0)])
    assert (own.steps, own.step, own.alone) == (1, STEP, False)


def test_a_start_whose_steps_diverge_is_left():
    x, y = records(30, 1)
    wild = model_of(np.full(TRUTH.shape, 1e30))
    shared = best_models(TASK, model_of(TRUTH), STEP, [(x, y)])
    lost = [type(own)(wild, own.step, own.steps, np.full(len(y), np.inf)) for own in shared]
    assert better(lost, shared)[0].alone
    assert not better(shared, lost)[0].alone


def test_alone_a_linear_model_learns_through_a_level_that_all_features_share():
    """As pictures have: one direction is far larger than all that tells classes apart. Scores as scikit-learn's."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(8)

    def pictures(count):
        x, _ = records(count, int(rng.integers(1000)))
        y = (x @ TRUTH.T + rng.gumbel(size=(count, CLASSES))).argmax(1)
        return (5.0 + x + rng.normal(size=(count, 1))).astype(np.float32), y

    mine, test = [pictures(150) for _ in range(4)], pictures(4000)
    alone, plain = models_alone(TASK, STEP, mine), best_models(TASK, TASK.start, STEP, mine)
    known = np.mean([LogisticRegression(C=1e4, max_iter=5000).fit(*one).score(*test) for one in mine])
    assert right(alone, test) > right(plain, test) + 0.1
    assert right(alone, test) > known - 0.05
    for own, (x, y) in zip(alone, mine, strict=True):  # it is a model of the features as they are
        assert TASK.measure(own.model, x, y)[1] > 0.7


@pytest.mark.parametrize("shape", [(INPUTS,), (1, 3, 4)])
def test_a_linear_network_is_told_from_others(shape):
    flat = [] if len(shape) == 1 else [nn.Flatten()]
    for layers, linear in (
        ([nn.Linear(INPUTS, CLASSES)], True),
        ([nn.Linear(INPUTS, CLASSES, bias=False)], False),
        ([nn.Linear(INPUTS, 4), nn.ReLU(), nn.Linear(4, CLASSES)], False),
    ):
        assert Neural(initialise(nn.Sequential(*flat, *layers), 0), shape, CLASSES).is_linear is linear
