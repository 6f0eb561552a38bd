"""Linear tasks: gradients against loops and differences, optima against scipy and (55), bad data against words."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize

from silograph.core.errors import InputError, SolverError
from silograph.kernels.draws import draw_key, integers, silo_ids
from silograph.tasks.linear import Linear, signs

LOSSES = ["ridge", "logistic", "huber"]
MOST, FEATURES = 12, 3


def records(loss, silos=6, seed=0, features=FEATURES, most=MOST):
    """Silos that differ in size, scale and noise; the first is full, the last has one record."""
    rng = np.random.default_rng(seed)
    truth, parts = rng.normal(size=features), []
    for k in range(silos):
        count = {0: most, silos - 1: 1}.get(k, int(rng.integers(2, most)))
        x = rng.normal(size=(count, features)) * rng.uniform(0.5, 2.0)
        y = x @ truth + rng.standard_t(2.0, size=count)
        parts.append((x, np.sign(y) if loss == "logistic" else y))
    return parts


def one_loss(task, w, x, y):
    """The loss of one record, without the ridge, from its definition."""
    r = y - x @ w
    if task.loss == "logistic":
        return math.log1p(math.exp(-y * (x @ w)))
    if task.loss == "ridge" or abs(r) <= task.delta:
        return r * r
    return 2.0 * task.delta * abs(r) - task.delta**2


def one_gradient(task, w, x, y):
    if task.loss == "logistic":
        return -y * x / (1.0 + math.exp(y * (x @ w)))
    r = y - x @ w
    return -2.0 * x * (r if task.loss == "ridge" or abs(r) <= task.delta else math.copysign(task.delta, r))


def setting(loss, rho=0.1, **options):
    task, parts = Linear(FEATURES, MOST, loss, rho, delta=0.7), records(loss, **options)
    return task, parts, task.prepare_all(parts)


def batches(data, width=7):
    ids = silo_ids(f"agent-{k}" for k in range(len(data["count"])))
    batch = integers(draw_key(1, 0, "batch"), ids, width, data["count"].astype(np.int64))
    return batch, integers(draw_key(1, 0, "size"), ids, 1, width)[:, 0] + 1


# ---- data ------------------------------------------------------------------------------------------------------------


def test_tables_and_pairs_are_the_same_and_padded():
    task = Linear(2, 5)
    table = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    data, same = task.prepare(table), task.prepare((table[:, :2].tolist(), table[:, 2].tolist()))
    for name in data:
        np.testing.assert_array_equal(data[name], same[name])
    assert (data["x"].shape, data["y"].shape, float(data["count"])) == ((5, 2), (5,), 2.0)
    np.testing.assert_array_equal(data["x"][:2], table[:, :2])
    assert not data["x"][2:].any()


@pytest.mark.parametrize("labels", [[0, 1, 1], [-1, 1, -1], [1, 1], [0, 0], [True, False]])
def test_labels(labels):
    expected = [1.0 if label == 1 else -1.0 for label in labels]
    np.testing.assert_array_equal(signs(np.asarray(labels, dtype=float)), expected)


@pytest.mark.parametrize(
    ("loss", "came", "message"),
    [
        ("ridge", np.zeros((0, 3)), "silo bob: expected 1 to 4 records, but there are 0"),
        ("ridge", np.zeros((3, 4)), "2 features a record, but there are 3"),
        ("ridge", np.zeros(3), "silo bob: .*dimensions"),
        ("ridge", [["a", "b", "c"]], "numbers"),
        ("ridge", [[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]], "silo bob, row 1, column 1: expected finite"),
        ("ridge", (np.zeros((3, 2)), [1.0, 2.0, np.inf]), "silo bob, answers, row 2: expected finite"),
        ("ridge", (np.zeros((3, 2)), np.zeros(2)), "each of the 3 records"),
        ("ridge", (np.zeros((3, 2)), np.zeros((3, 1))), "answers.*1 dimensions"),
        ("logistic", [[1.0, 2.0, 2.0]], "row 0 has 2"),
    ],
)
def test_bad_records_are_refused_with_their_place(loss, came, message):
    task = Linear(2, 4, loss)
    with pytest.raises(InputError, match=message):
        task.prepare_all([np.ones((2, 3)), came], ["ada", "bob"])


@pytest.mark.parametrize(
    "wrong", [{"features": 0}, {"most": 0}, {"loss": "hinge"}, {"rho": -1.0}, {"rho": math.nan}, {"delta": 0.0}]
)
def test_bad_parameters_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Linear(**{"features": 2, "most": 3, **wrong})


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_the_loop_over_the_batch(loss):
    task, parts, data = setting(loss)
    w = np.random.default_rng(1).normal(size=(len(parts), FEATURES))
    batch, sizes = batches(data)
    assert len(set(sizes.tolist())) > 1
    for k, (x, y) in enumerate(parts):
        chosen = batch[k, : sizes[k]]
        expected = np.mean([one_gradient(task, w[k], x[n], y[n]) for n in chosen], axis=0) + 2.0 * task.rho * w[k]
        np.testing.assert_allclose(task.gradient(w, data, batch, sizes)[k], expected, rtol=1e-12, atol=1e-13)
        full = np.mean([one_gradient(task, w[k], *record) for record in zip(x, y, strict=True)], axis=0)
        np.testing.assert_allclose(task.gradient(w, data)[k], full + 2.0 * task.rho * w[k], rtol=1e-12, atol=1e-13)
        norms = [np.linalg.norm(one_gradient(task, w[k], *record)) for record in zip(x, y, strict=True)]
        np.testing.assert_allclose(task.record_norms(w, data)[k, : len(x)], norms, rtol=1e-12)
        np.testing.assert_allclose(task.record_norms(w, data, batch)[k], np.array(norms)[batch[k]], rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_value_is_the_mean_loss_and_the_gradient_its_slope(loss):
    task, parts, data = setting(loss)
    w = np.random.default_rng(2).normal(size=(len(parts), FEATURES))
    for k, (x, y) in enumerate(parts):

        def goal(v, x=x, y=y):
            return np.mean([one_loss(task, v, *r) for r in zip(x, y, strict=True)]) + task.rho * (v @ v)

        assert task.value(w, data)[k] == pytest.approx(goal(w[k]), rel=1e-12)
        assert task.value(w[0], data)[k] == pytest.approx(goal(w[0]), rel=1e-12)  # one model for all silos
        np.testing.assert_allclose(task.gradient(w, data)[k], approx_fprime(w[k], goal, 1e-7), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("features", [1, 3, 17])
@pytest.mark.parametrize("clip", [math.inf, 0.8])
def test_batched_and_single_are_equal_bit_for_bit(loss, features, clip):
    task = Linear(features, MOST, loss, 0.05)
    data = task.prepare_all(records(loss, silos=9, features=features))
    w = np.random.default_rng(3).normal(size=(9, features))
    batch, sizes = batches(data)
    together, values = task.gradient(w, data, batch, sizes, clip), task.value(w, data)
    norms = task.record_norms(w, data, batch)
    for k, rows in enumerate([[k] for k in range(9)]):
        alone = {name: value[rows] for name, value in data.items()}
        np.testing.assert_array_equal(task.gradient(w[rows], alone, batch[rows], sizes[rows], clip)[0], together[k])
        short = batch[rows, : sizes[k]]  # nor does the padding of others matter
        np.testing.assert_array_equal(task.gradient(w[rows], alone, short, None, clip)[0], together[k])
        np.testing.assert_array_equal(task.value(w[rows], alone)[0], values[k])
        np.testing.assert_array_equal(task.record_norms(w[rows], alone, batch[rows])[0], norms[k])


@pytest.mark.parametrize("loss", LOSSES)
def test_clipped_gradient_is_the_mean_of_clipped_ones(loss):
    task, parts, data = setting(loss, rho=0.0)
    w, clip = np.random.default_rng(4).normal(size=(len(parts), FEATURES)), 0.6
    assert (task.record_norms(w, data) > clip).any()
    for k, (x, y) in enumerate(parts):
        each = np.array([one_gradient(task, w[k], *record) for record in zip(x, y, strict=True)])
        length = np.linalg.norm(each, axis=1, keepdims=True)
        expected = (each * np.minimum(1.0, clip / length)).mean(0)
        np.testing.assert_allclose(task.gradient(w, data, clip=clip)[k], expected, rtol=1e-8, atol=1e-12)


@given(
    loss=st.sampled_from(LOSSES),
    row=st.lists(st.floats(-1e300, 1e300), min_size=4, max_size=4),
    other=st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
    clip=st.floats(1e-3, 1e3),
)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_no_record_however_absurd_moves_the_mean_further_than_the_bound(loss, row, other, clip):
    task = Linear(3, 4, loss, 0.3)
    rest = np.array([[1.0, 2.0, 3.0, 1.0], [0.5, 0.1, -2.0, -1.0]])
    if loss == "logistic":
        row[3], other[3] = np.sign(row[3]) or 1.0, np.sign(other[3]) or 1.0
    data = task.prepare_all([np.vstack([rest, row]), np.vstack([rest, other])])
    a, b = task.gradient(np.full((2, 3), 0.4), data, clip=clip)
    assert np.linalg.norm(a - b) <= 2.0 * clip / 3.0 * (1.0 + 1e-12)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_a_record_whose_squares_vanish_is_clipped_all_the_same(size):
    """The gradient 2 x y is 6 long whatever the size; of x alone nothing would be left to measure."""
    task = Linear(3, 2)
    data = task.prepare_all([np.array([[size, 0.0, 0.0, sign * 3.0 / size]]) for sign in (1.0, -1.0)])
    a, b = task.gradient(np.zeros((2, 3)), data, clip=1.0)
    assert np.linalg.norm(a - b) == pytest.approx(2.0, rel=1e-8)
    assert np.linalg.norm(a - b) <= 2.0


def test_our_own_mistakes_are_noticed():
    task, parts, data = setting("ridge")
    w, n = np.zeros((len(parts), FEATURES)), len(parts)
    for batch, sizes in (
        (np.full((n, 2), MOST - 1), None),  # the last silo has one record
        (np.zeros((n, 2), dtype=int), np.full(n, 3)),
        (np.zeros((n - 1, 2), dtype=int), None),
        (None, np.ones(n)),
    ):
        with pytest.raises(AssertionError):
            task.gradient(w, data, batch, sizes)


# ---- optima ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rho", [0.0, 0.03, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_optimum_is_scipys(loss, rho, weighted):
    task, parts, data = setting(loss, rho, silos=8, seed=5)
    share = np.random.default_rng(6).random(8) if weighted else np.ones(8)

    def goal(v):
        each = [np.mean([one_loss(task, v, *r) for r in zip(*part, strict=True)]) for part in parts]
        return share @ each / share.sum() + rho * (v @ v)

    w = task.optimum(data, share if weighted else None)
    slope = share @ task.gradient(np.tile(w, (8, 1)), data) / share.sum()
    np.testing.assert_allclose(slope, 0.0, atol=1e-11)
    best = minimize(goal, w + 0.3, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 4000})
    np.testing.assert_allclose(w, best.x, atol=2e-6)
    assert goal(w) <= best.fun * (1.0 + 1e-12)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 1e3])
@pytest.mark.parametrize("seed", range(5))
def test_huber_optimum_from_least_absolute_to_least_squares(delta, seed):
    task, parts = Linear(FEATURES, MOST, "huber", 0.0, delta), records("huber", seed=seed)
    data = task.prepare_all(parts)
    slope = task.gradient(np.tile(w := task.optimum(data), (len(parts), 1)), data).mean(0)
    np.testing.assert_allclose(slope, 0.0, atol=1e-9 * min(delta, 1.0) + 1e-13)
    if delta > 100.0:
        ridge = Linear(FEATURES, MOST)
        np.testing.assert_allclose(w, ridge.optimum(ridge.prepare_all(parts)), rtol=1e-9)


def test_ridge_optimum_is_the_papers_closed_form():
    """(55) to (57) with the truth and the noise known, P = 4 units of K = 5 agents."""
    rng, rho, truth = np.random.default_rng(7), 0.1, np.array([1.0, -2.0])
    moments, crosses, parts = [], [], []
    for _ in range(20):
        count = int(rng.integers(3, 30))
        u, v = rng.normal(size=(count, 2)) @ rng.normal(size=(2, 2)), rng.normal(size=count)
        moments.append(u.T @ u / count)
        crosses.append(v @ u / count)
        parts.append((u, u @ truth + v))
    r = np.mean(moments, axis=0)
    expected = np.linalg.solve(r + rho * np.eye(2), r @ truth + np.mean(crosses, axis=0))
    task = Linear(2, 30, "ridge", rho)
    np.testing.assert_allclose(task.optimum(task.prepare_all(parts)), expected, rtol=1e-10)


def test_agents_weigh_equally_not_samples_and_units_by_their_weights():
    parts = records("ridge", silos=5)
    task, whole = Linear(FEATURES, MOST, "ridge", 0.1), Linear(FEATURES, 99, "ridge", 0.1)
    data = task.prepare_all(parts)
    pooled = whole.optimum(whole.prepare_all([(np.vstack([x for x, _ in parts]), np.hstack([y for _, y in parts]))]))
    assert np.abs(task.optimum(data) - pooled).max() > 1e-3
    np.testing.assert_allclose(task.optimum(data, data["count"]), pooled, rtol=1e-9)
    # (1) with units of 2 and 3 agents: the mean over units of the means over agents.
    home = np.array([0, 0, 1, 1, 1])
    w = task.optimum(data, 1.0 / (2 * np.bincount(home)[home]))
    slopes = task.gradient(np.tile(w, (5, 1)), data)
    np.testing.assert_allclose(0.5 * slopes[:2].mean(0) + 0.5 * slopes[2:].mean(0), 0.0, atol=1e-12)


def test_an_optimum_that_does_not_exist_is_said():
    x = np.random.default_rng(8).normal(size=(10, 2))
    separable = Linear(2, 10, "logistic")
    with pytest.raises(SolverError, match="rho > 0"):
        separable.optimum(separable.prepare_all([(x, np.sign(x[:, 0]))]))
    for loss in ("ridge", "huber"):
        task = Linear(2, 10, loss)
        with pytest.raises(InputError, match="rho > 0"):
            task.optimum(task.prepare_all([(np.outer(x[:, 0], [1.0, 2.0]), x[:, 1])]))
        with pytest.raises(InputError, match="weights"):
            task.optimum(task.prepare_all([(x, x[:, 1])]), [-1.0])


@pytest.mark.parametrize("seed", range(20))
def test_separable_classes_have_an_optimum_with_any_weight(seed):
    """With few records, features of any size and weights down to 1e-8 the curvature all but vanishes on the way."""
    rng = np.random.default_rng(seed)
    for rho in (1e-8, 1e-4, 1.0):
        x = rng.normal(size=(6, 4)) * 10.0 ** rng.uniform(-2.0, 3.0, 4)
        task = Linear(4, 6, "logistic", rho)
        data = task.prepare_all([(x, np.where(rng.random(6) < 0.5, 1.0, -1.0))])
        w = task.optimum(data)
        nearby = w * (1.0 + 1e-3 * rng.normal(size=(50, 4)))
        values = [float(task.value(v, data)[0]) for v in nearby]
        assert float(task.value(w, data)[0]) <= min(values) * (1.0 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_steps_reach_the_optimum(loss):
    task, _, data = setting(loss, silos=5)
    w = np.zeros(FEATURES)
    for _ in range(3000):
        w = w - 0.05 * task.gradient(np.tile(w, (5, 1)), data).mean(0)
    np.testing.assert_allclose(w, task.optimum(data), atol=1e-9)


# ---- scores ----------------------------------------------------------------------------------------------------------


def test_scores():
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    task = Linear(2, 4, "logistic")
    models = np.array([[1.0, 1.0], [-1.0, 1.0]])
    for labels in ([1.0, -1.0, 1.0, -1.0], [1, 0, 1, 0]):
        np.testing.assert_array_equal(task.error_rate(models, x, labels), [0.0, 0.5])
        assert float(task.error_rate(models[1], x, labels)) == 0.5
    np.testing.assert_allclose(task.squared_error(models, x, x.sum(1)), [0.0, 2.0])


def test_labels_of_three_classes_are_refused_where_all_records_may_be_looked_at():
    """`prepare` looks at one record at a time, since a refusal would tell of all of them together."""
    task = Linear(2, 4, "logistic")
    np.testing.assert_array_equal(task.prepare((np.zeros((3, 2)), [-1.0, 0.0, 1.0]))["y"][:3], [-1.0, -1.0, 1.0])
    with pytest.raises(InputError, match="-1 and 0 are both there"):
        task.error_rate(np.zeros(2), np.zeros((3, 2)), [-1.0, 0.0, 1.0])
