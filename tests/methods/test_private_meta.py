"""Private meta-learning, step by step, against torch.autograd through the inner step and formulas written out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from silograph.core.errors import InputError, SolverError
from silograph.methods.meta_baselines import LocalTraining, PaperMeta
from silograph.methods.personalising import OWN, Personalise
from silograph.methods.private_meta import PERSON, QUERY, SUPPORT, PrivateMeta, divided, mean_model, padded
from silograph.privacy.accounting import EXACT_GAUSSIAN, gaussian_epsilon
from silograph.privacy.door import Door
from silograph.privacy.gate import Gate
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.run.loop import ENGINES, rounds
from silograph.theory.private_meta import true_cost_of_the_literal_version
from silograph.topology import star

torch = pytest.importorskip("torch", reason="neural networks need the extra `neural`")

from torch import nn  # noqa: E402

from silograph.tasks.networks import initialise, mlp  # noqa: E402
from silograph.tasks.neural import Neural  # noqa: E402

FEATURES, CLASSES, HIDDEN = 5, 3, 4
SIZES = {"ada": 24, "bob": 13, "cyd": 31}  # one of them odd
TOPO = star(list(SIZES))
ETA, BETA, SEED = 0.3, 0.7, 11


def smooth_network():
    """Without kinks, so that its Hessian is one everywhere."""
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


@pytest.fixture(scope="module")
def task():
    return Neural(initialise(smooth_network(), 2), (FEATURES,), CLASSES, precise=True)


def records(seed=0, sizes=SIZES):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((n, FEATURES)), rng.integers(0, CLASSES, n)) for n in sizes.values()]


@pytest.fixture(scope="module")
def data():
    return divided(records(), TOPO.silos, SEED)


def weights(data):
    return tuple(int(count) for count in data[SUPPORT])


def meta(task, data, kind=PrivateMeta, **options):
    defaults = {"rounds": 1, "inner_step": ETA, "outer_step": BETA}
    return kind(task, weights(data), **(defaults | options))


def trained(method, data, mechanism=None, present=None, seed=SEED, engine="vector"):
    door = Door(seed, Ledger(), mechanism)
    place = ENGINES[engine](data, TOPO, door)
    *_, last = rounds(method, TOPO, place, door, present=present)
    return last.servers["model"], door


# ---- persons ---------------------------------------------------------------------------------------------------------


def by_persons(most=3, seed=4):
    """Of each client six to nine persons with up to `most` records."""
    rng = np.random.default_rng(seed)
    tables = []
    for count in (6, 9, 7):
        y = rng.integers(0, CLASSES, (count, most))
        y[np.arange(most) >= rng.integers(1, most + 1, count)[:, None]] = -1
        tables.append((rng.standard_normal((count, most, FEATURES)) * 3.0, y))
    return divided(tables, TOPO.silos, SEED)


def test_a_person_adds_the_mean_of_their_clipped_gradients(task):
    """Against gradients of single records, by autograd."""
    clip, data = 0.4, by_persons()
    method = meta(task, data, clip=clip, protected_unit=PERSON)
    gate = Door(SEED, Ledger()).gate(TOPO.silos, 0)
    batch = gate.poisson(data[QUERY], 0.7, "query 0", QUERY)
    got = method._at(np.repeat(task.start[None], 3, 0), data, batch).gradient(clip)
    for k in range(3):
        expected = np.zeros(task.size)
        for p in np.flatnonzero(batch.chosen[k]):
            own = [j for j, label in enumerate(data[f"{QUERY}_y"][k, p]) if label >= 0]
            for j in own:
                w = torch.from_numpy(task.start).requires_grad_()
                x, y = data[f"{QUERY}_x"][k, p, j : j + 1], data[f"{QUERY}_y"][k, p, j : j + 1]
                (slope,) = torch.autograd.grad(total_loss(w, x, y), w)
                expected += slope.numpy() * min(1.0, clip / float(slope.norm())) / len(own)
        np.testing.assert_allclose(got[k], expected, rtol=1e-5, atol=1e-7)


def test_the_ledger_names_a_person_and_what_bounds_one(task):
    data = by_persons()
    method = meta(task, data, clip=0.5, protected_unit=PERSON, rate=0.5)
    _, door = trained(method, data, Gaussian(3.0))
    row = door.ledger.of("ada")[0]
    assert row.protected_unit == "one person (all records of a person at one client) of the query set"
    assert "their mean" in row.why
    assert row.l2 == pytest.approx(0.5 / (0.5 * 3), rel=1e-6)  # three of ada's six persons are in the query set


# ---- the oracle ------------------------------------------------------------------------------------------------------


def total_loss(w, x, y):
    """Of the smooth network, summed over records; written out."""
    first, w = w[: FEATURES * HIDDEN].reshape(HIDDEN, FEATURES), w[FEATURES * HIDDEN :]
    shift, w = w[:HIDDEN], w[HIDDEN:]
    second, last = w[: HIDDEN * CLASSES].reshape(CLASSES, HIDDEN), w[HIDDEN * CLASSES :]
    out = torch.tanh(torch.from_numpy(x) @ first.T + shift) @ second.T + last
    return -out.log_softmax(1)[torch.arange(len(y)), torch.from_numpy(y)].sum()


def chosen_of(data, part, k, door=None, round=0, step=0, rate=1.0):
    """The records of client k that take part, and the expected number of them."""
    count = int(data[part][k])
    mask = np.ones(count, dtype=bool)
    if rate < 1.0:
        gate = door.gate([TOPO.silos[k]], round)
        mask = gate.poisson(data[part][k : k + 1], rate, f"{part} {step}", part).chosen[0]
    return data[f"{part}_x"][k, :count][mask], data[f"{part}_y"][k, :count][mask], rate * count


def meta_step(w, query, support, order="second", eta=ETA, beta=BETA):
    """(2): w - beta * (gradient of w -> F(w - eta grad F(w; query); support)), through the inner step by autograd."""
    w = torch.from_numpy(w).requires_grad_()
    (qx, qy, qn), (sx, sy, sn) = query, support
    (inner,) = torch.autograd.grad(total_loss(w, qx, qy) / qn, w, create_graph=True)
    theta = w - eta * (inner if order == "second" else inner.detach())
    (outer,) = torch.autograd.grad(total_loss(theta, sx, sy) / sn, w)
    return (w - beta * outer).detach().numpy()


def oracle(w, data, order="second", steps=1, clients=(0, 1, 2), round=0, rate=1.0, door=None):
    """One round."""
    ends = []
    for k in clients:
        own = w
        for step in range(steps):
            query, support = (chosen_of(data, part, k, door, round, step, rate) for part in (QUERY, SUPPORT))
            own = meta_step(own, query, support, order)
        ends.append(own)
    p = np.array(data[SUPPORT])[list(clients)]
    return (p / p.sum()) @ np.array(ends)


def near(one, other, tolerance=1e-9):
    assert np.linalg.norm(one - other) <= tolerance * np.linalg.norm(other)


# ---- without privacy: (2) and (3) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_step_is_the_formula_with_the_whole_hessian(task, data, order):
    """Second order is autograd through the inner step; first order takes the inner step for a constant."""
    model, _ = trained(meta(task, data, order=order), data)
    near(model, oracle(task.start, data, order))
    other = oracle(task.start, data, "first" if order == "second" else "second")
    assert np.linalg.norm(model - other) > 1e-3 * np.linalg.norm(model - task.start)  # it makes a difference


def test_the_formula_in_single_precision(task, data):
    single = Neural(task.module, (FEATURES,), CLASSES)
    near(trained(meta(single, data), data)[0], oracle(task.start, data), 1e-6)


@pytest.mark.parametrize("order", ["first", "second"])
def test_several_local_steps_and_rounds(task, data, order):
    expected = task.start
    for _ in range(2):
        expected = oracle(expected, data, order, steps=3)
    near(trained(meta(task, data, rounds=2, local_steps=3, order=order), data)[0], expected)


def test_a_sample_is_divided_by_its_expected_size(task, data):
    """Not by its own, which is not public; clients draw for themselves, and anew for every set, step and round."""
    door, expected = Door(SEED, Ledger()), task.start
    for t in range(2):
        expected = oracle(expected, data, steps=2, round=t, rate=0.4, door=door)
    near(trained(meta(task, data, rounds=2, local_steps=2, rate=0.4), data)[0], expected)


def test_the_mean_is_weighted_by_the_support_sets(task, data):
    models, p = np.random.default_rng(0).standard_normal((3, 7)), np.array([1, 2, 5])
    np.testing.assert_allclose(mean_model(models, p), (models[0] + 2 * models[1] + 5 * models[2]) / 8, rtol=1e-14)
    assert weights(data) == (12, 6, 15)
    other = meta(task, data)
    plain = replace(other, weights=(1, 1, 1))
    assert np.linalg.norm(trained(plain, data)[0] - trained(other, data)[0]) > 1e-4


def test_who_is_away_is_not_in_the_mean(task, data):
    there = {0: ["ada", "cyd"], 1: ["bob"]}
    model, door = trained(meta(task, data, rounds=2), data, present=there.__getitem__)
    expected = oracle(task.start, data, clients=(0, 2))
    near(model, oracle(expected, data, clients=(1,)))
    assert {(row.round, row.silo) for row in door.ledger.rows} == {(0, "ada"), (0, "cyd"), (1, "bob")}


def test_without_a_clip_the_ledger_says_that_nothing_is_protected(task, data):
    _, door = trained(meta(task, data), data)
    assert {row.mechanism for row in door.ledger.rows} == {"reveal"}
    assert door.spent("ada", 1e-5).epsilon == math.inf


# ---- with privacy ----------------------------------------------------------------------------------------------------

FAR = 40.0  # a clip that no record reaches; larger ones only make the grid coarser on which noise is added


@pytest.mark.parametrize("order", ["first", "second"])
def test_without_noise_and_with_a_clip_nobody_reaches_it_is_the_plain_algorithm(task, data, order):
    options = {"rounds": 2, "local_steps": 2, "rate": 0.5, "order": order}
    plain, _ = trained(meta(task, data, **options), data)
    private, door = trained(meta(task, data, clip=FAR, **options), data, Gaussian(0.0))
    near(private, plain, 2e-6)
    assert "reveal" not in {row.mechanism for row in door.ledger.rows}


@pytest.fixture
def released(monkeypatch):
    """What goes into and comes out of every release: (silo, round, site) -> (value, noisy, l2, batch, share)."""
    seen, real = {}, Gate.release

    def spy(gate, bounded, release_point, batch=None, share=1.0):
        out = real(gate, bounded, release_point, batch, share)
        for i, silo in enumerate(gate.silos):
            seen[silo, gate.round, release_point] = (bounded.value[i], out.value[i], bounded.l2[i], batch, share)
        return out

    monkeypatch.setattr(Gate, "release", spy)
    return seen


def clipped_sum(w, x, y, clip):
    total = np.zeros(len(w))
    for b in range(len(y)):
        v = torch.from_numpy(w).requires_grad_()
        (g,) = torch.autograd.grad(total_loss(v, x[b : b + 1], y[b : b + 1]), v)
        total += g.numpy() * min(1.0, clip / float(g.norm()))
    return total


def clipped_curvature(w, x, y, clip, direction):
    total = np.zeros(len(w))
    for b in range(len(y)):
        at = torch.from_numpy(w)
        hessian = torch.autograd.functional.hessian(lambda v, b=b: total_loss(v, x[b : b + 1], y[b : b + 1]), at)
        g = hessian.numpy() @ direction
        total += g * min(1.0, clip / float(np.linalg.norm(g)))
    return total


def test_the_three_releases_of_a_step(task, data, released):
    """R1, R2, R3 from clipped records of one query and one support sample; the next model from what was released."""
    clip, curvature_clip, rate, sigma = 0.4, 0.2, 0.5, 1.3
    method = meta(task, data, rate=rate, clip=clip, curvature_clip=curvature_clip)
    model, door = trained(method, data, Gaussian(sigma))
    ends = []
    for k, name in enumerate(TOPO.silos):
        qx, qy, qn = chosen_of(data, QUERY, k, door, rate=rate)
        sx, sy, sn = chosen_of(data, SUPPORT, k, door, rate=rate)
        r1, r2, r3 = (released[name, 0, f"{site} 0"] for site in ("inner", "outer", "curvature"))
        w = task.start
        near(r1[0], clipped_sum(w, qx, qy, clip) / qn, 2e-9)
        theta = w - ETA * r1[1]
        near(r2[0], clipped_sum(theta, sx, sy, clip) / sn, 2e-9)
        near(r3[0], clipped_curvature(w, qx, qy, curvature_clip, r2[1]) / qn, 2e-9)
        ends.append(w - BETA * (r2[1] - ETA * r3[1]))
        assert (r1[2], r2[2], r3[2]) == pytest.approx((clip / qn, clip / sn, curvature_clip / qn))
        rows = {row.release_point: row for row in door.ledger.of(name)}
        assert rows.keys() == {"inner 0", "outer 0", "curvature 0"}
        for site, l2, factor in (("inner 0", clip / qn, 2.0), ("outer 0", clip / sn, 1.0), ("curvature 0", r3[2], 2.0)):
            assert rows[site].noise == pytest.approx(math.sqrt(factor) * sigma * l2, rel=1e-6)
            assert rows[site].sampling == rate
        assert rows["inner 0"].batch == rows["curvature 0"].batch != rows["outer 0"].batch
        assert [rows[site].part for site in rows] == [QUERY, SUPPORT, QUERY]
    near(model, mean_model(np.array(ends), np.array(weights(data))))


def test_first_order_releases_twice_with_all_of_the_precision(task, data):
    _, door = trained(meta(task, data, clip=0.4, order="first"), data, Gaussian(1.3))
    for row in door.ledger.rows:
        assert row.noise == pytest.approx(1.3 * row.l2)
    assert [row.release_point for row in door.ledger.of("ada")] == ["inner 0", "outer 0"]


def test_noise_is_as_large_as_the_ledger_says(task, data, released):
    """Squares of 4000 noises over their variance are chi-square; two-sided at 1e-4 for each of three releases."""
    _, door = trained(meta(task, data, rounds=36, clip=0.4, rate=0.5), data, Gaussian(2.0))
    for site in ("inner 0", "outer 0", "curvature 0"):
        scores = [
            (released[row.place][1] - released[row.place][0]) / row.noise
            for row in door.ledger.rows
            if row.release_point == site
        ]
        squares = np.square(scores).sum()
        low, high = stats.chi2.ppf([5e-5, 1.0 - 5e-5], np.size(scores))
        assert low < squares < high


def test_private_runs_do_not_stop_at_records_that_are_no_numbers(task, data):
    spoilt = {name: np.array(value) for name, value in data.items()}
    spoilt[f"{QUERY}_x"][0, 3] = np.nan
    spoilt[f"{SUPPORT}_x"][1, 2] = np.inf
    assert np.isfinite(trained(meta(task, data, clip=0.4, rounds=3), spoilt, Gaussian(1.0))[0]).all()


@pytest.mark.parametrize("order", ["first", "second"])
def test_without_privacy_a_loss_that_is_no_number_ends_the_run_and_says_so(task, data, order):
    spoilt = {name: np.array(value) for name, value in data.items()}
    spoilt[f"{SUPPORT}_x"][0, 3] = np.nan
    with pytest.raises(
        SolverError, match=r"after round 1: the loss is no number.*smaller steps, or scale the features"
    ):
        trained(meta(task, data, order=order), spoilt)


def test_models_that_grow_without_bound_end_the_run():
    task = Neural(initialise(nn.Sequential(nn.Linear(FEATURES, 1)), 1), (FEATURES,), 1, "squared", precise=True)
    data = divided([(x, y.astype(float)) for x, y in records()], TOPO.silos, SEED)
    with pytest.raises(SolverError, match=r"grow without bound|no number"):
        trained(meta(task, data, rounds=200, inner_step=5.0, outer_step=50.0), data)


@pytest.mark.parametrize(
    "wrong",
    [
        {"inner_step": 0.0},
        {"outer_step": -1.0},
        {"clip": 0.0},
        {"curvature_clip": math.inf},
        {"inner_step": math.nan},
        {"rounds": 0},
        {"local_steps": 0},
        {"rate": 0.0},
        {"rate": 1.1},
        {"order": "third"},
    ],
    ids=str,
)
def test_parameters_that_make_no_sense_are_refused_by_name(task, data, wrong):
    with pytest.raises(InputError, match=f"private meta-learning, {next(iter(wrong))}"):
        meta(task, data, **wrong)


# ---- S4's own version ------------------------------------------------------------------------------------------------


def shortened(vector, radius):
    return vector * min(1.0, radius / float(np.linalg.norm(vector)))


def test_the_papers_releases_are_clipped_means_with_noise_on_the_mean(task, data, released):
    """(6), (7), (9) to (11) with sigma: deviation C sigma on a mean that is at most C long."""
    clip, rate, sigma = 0.1, 0.6, 2.5
    method = meta(task, data, PaperMeta, rate=rate, clip=clip)
    model, door = trained(method, data, Gaussian(sigma / 2.0))
    ends = []
    for k, name in enumerate(TOPO.silos):
        (qx, qy, _), (sx, sy, _) = (chosen_of(data, part, k, door, rate=rate) for part in (QUERY, SUPPORT))
        inner, outer = released[name, 0, "inner 0"], released[name, 0, "outer 0"]
        w = torch.from_numpy(task.start).requires_grad_()
        (gradient,) = torch.autograd.grad(total_loss(w, qx, qy) / len(qy), w, create_graph=True)
        near(inner[0], shortened(gradient.detach().numpy(), clip), 2e-9)
        theta = torch.from_numpy(task.start - ETA * inner[1]).requires_grad_()
        (g2,) = torch.autograd.grad(total_loss(theta, sx, sy) / len(sy), theta)
        g2 = shortened(g2.numpy(), math.sqrt(clip))
        (bent,) = torch.autograd.grad(gradient @ torch.from_numpy(g2), w)
        near(outer[0], shortened(g2 - ETA * bent.numpy(), clip), 2e-9)
        ends.append(task.start - BETA * outer[1])
        for value, _, l2, _, _ in (inner, outer):
            assert np.linalg.norm(value) <= clip
            assert l2 == 2.0 * clip
        for row in door.ledger.of(name):
            assert row.l2 == pytest.approx(2.0 * clip, rel=1e-6)
            assert row.noise == pytest.approx(clip * sigma, rel=1e-6)
    near(model, mean_model(np.array(ends), np.array(weights(data))))


@pytest.mark.parametrize("steps", [1, 2])
def test_the_papers_ledger_costs_what_theory_says_it_does(task, data, steps):
    sigma, rate, delta, count = 4.0, 0.5, 1e-4, 3
    method = meta(task, data, PaperMeta, rounds=count, local_steps=steps, rate=rate, clip=0.1)
    _, door = trained(method, data, Gaussian(sigma / 2.0))
    theory = true_cost_of_the_literal_version(sigma, rate, count, steps, delta)
    for name in TOPO.silos:
        assert door.spent(name, delta).epsilon == pytest.approx(theory.query, rel=1e-5)


def test_the_papers_noise_on_the_mean_is_c_sigma(task, data, released):
    """Chi-square of 4000 noises, two-sided at 1e-4."""
    _, door = trained(meta(task, data, PaperMeta, rounds=18, clip=0.1), data, Gaussian(1.5))
    scores = [(released[row.place][1] - released[row.place][0]) / (0.1 * 3.0) for row in door.ledger.rows]
    low, high = stats.chi2.ppf([5e-5, 1.0 - 5e-5], np.size(scores))
    assert low < np.square(scores).sum() < high


def test_the_papers_release_does_not_depend_on_who_is_not_in_the_sample(task, data, released):
    """Its cost rests on that. The record holds no numbers."""
    rate, door = 0.5, Door(SEED, Ledger())
    mask = door.gate(["ada"], 0).poisson(data[QUERY][:1], rate, "query 0", QUERY).chosen[0]
    spoilt = {name: np.array(value) for name, value in data.items()}
    spoilt[f"{QUERY}_x"][0, np.flatnonzero(~mask)[0]] = np.nan
    values = []
    for table in (data, spoilt):
        trained(meta(task, data, PaperMeta, rate=rate, clip=0.1), table, Gaussian(1.0))
        values.append(released["ada", 0, "inner 0"][0])
    np.testing.assert_array_equal(*values)


# ---- FedAvg and Reptile ----------------------------------------------------------------------------------------------


def everything(data):
    """All records of all clients."""
    parts = [chosen_of(data, part, k)[:2] for part in (QUERY, SUPPORT) for k in range(len(SIZES))]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def gradient_of(w, x, y):
    w = torch.from_numpy(w).requires_grad_()
    return torch.autograd.grad(total_loss(w, x, y) / len(y), w)[0].numpy()


def test_fedavg_with_one_step_is_gradient_descent_on_the_pooled_records(task, data):
    method = LocalTraining(task, tuple(SIZES.values()), 3, 0.5)
    expected = task.start
    for _ in range(3):
        expected = expected - 0.5 * gradient_of(expected, *everything(data))
    near(trained(method, data)[0], expected)


def test_several_steps_are_each_clients_own_descent(task, data):
    ends = []
    for k in range(3):
        own = [chosen_of(data, part, k)[:2] for part in (QUERY, SUPPORT)]
        x, y = (np.concatenate(pair) for pair in zip(*own, strict=True))
        w = task.start
        for _ in range(4):
            w = w - 0.5 * gradient_of(w, x, y)
        ends.append(w)
    mean = mean_model(np.array(ends), np.array(list(SIZES.values())))
    method = LocalTraining(task, tuple(SIZES.values()), 1, 0.5, steps=4)
    near(trained(method, data)[0], mean)
    reptile = replace(method, server_step=0.25)
    near(trained(reptile, data)[0], task.start + 0.25 * (mean - task.start))


def test_fedavg_learns_and_protects_nothing(task, data):
    method = LocalTraining(task, tuple(SIZES.values()), 60, 0.5, steps=5, rate=0.5)
    model, door = trained(method, data)
    x, y = everything(data)
    assert task.measure(model, x, y)[0] < 0.8 * task.measure(task.start, x, y)[0]
    assert {row.mechanism for row in door.ledger.rows} == {"reveal"}


# ---- personal models -------------------------------------------------------------------------------------------------


def personal(task, mechanism=None, sizes=SIZES, **options):
    own, topo = records(3, sizes), star(list(sizes))
    method = Personalise(task, task.start, 0.5, **options)
    door = Door(SEED, Ledger(), mechanism)
    place = ENGINES["vector"](padded(own, OWN), topo, door)
    *_, last = rounds(method, topo, place, door)
    return own, last, method.outcome(last.servers, place.deliver(method, last), topo), door


@pytest.mark.parametrize("steps", [1, 3])
def test_a_personal_model_is_gradient_steps_on_a_clients_own_records(task, steps):
    own, state, _, _ = personal(task, steps=steps)
    for k, (x, y) in enumerate(own):
        w = task.start
        for _ in range(steps):
            w = w - 0.5 * gradient_of(w, x, y)  # (4)
        near(state.carry["model"][k], w)


def test_a_personal_model_that_stays_costs_nothing_and_is_not_handed_over(task):
    _, _, outcome, door = personal(task)
    assert door.ledger.rows == []
    assert outcome.arrays == {}
    assert door.spent("ada", 1e-5).epsilon == 0.0


def test_a_personal_model_that_is_published_is_released_step_by_step(task, released):
    clip, sigma = 0.4, 3.0
    own, state, outcome, door = personal(task, Gaussian(sigma), steps=2, clip=clip)
    np.testing.assert_array_equal(outcome.arrays["model"], state.carry["model"].value)
    for k, (name, (x, y)) in enumerate(zip(SIZES, own, strict=True)):
        w = task.start
        for t in range(2):
            value, noisy, l2, batch, _ = released[name, t, "personal step"]
            near(value, clipped_sum(w, x, y, clip) / len(y), 2e-9)
            assert l2 == pytest.approx(clip / len(y))
            assert batch is None
            w = w - 0.5 * noisy
        near(outcome.arrays["model"][k], w)
        assert len(door.ledger.of(name)) == 2
        spent = door.spent(name, 1e-5)
        assert (spent.epsilon, spent.accountant) == (
            pytest.approx(gaussian_epsilon(math.sqrt(2) / sigma, 1e-5)),
            EXACT_GAUSSIAN,
        )


def test_a_published_models_noise_is_as_stated(task):
    """60 clients with 30 records, chi-square of 2340 noises, two-sided at 1e-4."""
    sizes = {f"client {k:02d}": 30 for k in range(60)}
    own, _, outcome, _ = personal(task, Gaussian(3.0), sizes, clip=0.4)
    scores = []
    for (x, y), model in zip(own, outcome.arrays["model"], strict=True):
        plain = task.start - 0.5 * clipped_sum(task.start, x, y, 0.4) / 30
        scores.append((model - plain) / (0.5 * 3.0 * 0.4 / 30))
    low, high = stats.chi2.ppf([5e-5, 1.0 - 5e-5], np.size(scores))
    assert low < np.square(scores).sum() < high


# ---- roles -----------------------------------------------------------------------------------------------------------


def numbered(sizes, offset=0):
    """Records that say their own place."""
    return [(offset + np.arange(n, dtype=np.float32)[:, None], np.arange(n)) for n in sizes]


def roles(data, part):
    return [y[:count].tolist() for y, count in zip(data[f"{part}_y"], data[part], strict=True)]


def test_every_record_is_in_one_set_and_the_sets_are_equal():
    sizes = [2, 7, 30, 1]
    data = divided(numbered(sizes), "abcd", 0)
    for n, query, support in zip(sizes, roles(data, QUERY), roles(data, SUPPORT), strict=True):
        assert sorted(query + support) == list(range(n))
        assert len(query) - len(support) in (0, 1)
    np.testing.assert_array_equal(data[QUERY], [1, 4, 15, 1])
    np.testing.assert_array_equal(data[SUPPORT], [1, 3, 15, 0])
    for part in (QUERY, SUPPORT):  # features go with their answers, padding is zero
        width = np.arange(data[f"{part}_y"].shape[1]) < data[part][:, None]
        np.testing.assert_array_equal(data[f"{part}_x"][width][:, 0], data[f"{part}_y"][width])
        assert not data[f"{part}_x"][~width].any()
        assert data[f"{part}_x"].dtype == np.float32


def test_roles_follow_from_the_place_the_seed_and_the_name_and_not_from_what_records_hold():
    sizes = [8, 40]
    names, first = ["ada", "bob"], divided(numbered(sizes), ["ada", "bob"], 5)
    other = numbered(sizes, offset=1000)
    other[1] = (other[1][0][::-1], other[1][1])
    assert roles(divided(other, names, 5), QUERY) == roles(first, QUERY)
    alone = divided(numbered(sizes[1:]), ["bob"], 5)  # nor from who else is there
    assert roles(alone, QUERY) == roles(first, QUERY)[1:]
    assert roles(divided(numbered(sizes), names, 6), QUERY)[1] != roles(first, QUERY)[1]
    assert roles(divided(numbered([40]), ["cyd"], 5), QUERY)[0] != roles(first, QUERY)[1]


def test_roles_are_drawn_evenly():
    """A place is a query record of about half of 400 clients: chi-square over 10 places, at 1e-4."""
    data = divided(numbered([10] * 400), [f"client {k}" for k in range(400)], 0)
    counts = np.bincount(np.ravel(roles(data, QUERY)), minlength=10)
    # Five of ten: variance 1/4 a client, and places of a client repel each other by a factor 10/9.
    assert ((counts - 200.0) ** 2).sum() / 100.0 * 0.9 < stats.chi2.ppf(1.0 - 1e-4, 9)


def test_a_client_with_one_record_cannot_teach_and_the_run_says_so(task):
    sizes = {**SIZES, "cyd": 1}
    data = divided(records(0, sizes), TOPO.silos, SEED)
    with pytest.raises(InputError, match="a support record of every client"):
        trained(meta(task, data), data)


def test_two_records_are_enough(task):
    sizes = {**SIZES, "cyd": 2}
    data = divided(records(0, sizes), TOPO.silos, SEED)
    near(trained(meta(task, data), data)[0], oracle(task.start, data))


def test_the_papers_networks_run_too():
    """ReLU, float32, private: finite and moved."""
    task = Neural(initialise(mlp(FEATURES, CLASSES, (6,)), 0), (FEATURES,), CLASSES)
    data = divided(records(), TOPO.silos, SEED)
    model, _ = trained(meta(task, data, clip=1.0, rate=0.5, rounds=3), data, Gaussian(1.0))
    assert np.isfinite(model).all()
    assert np.linalg.norm(model - task.start) > 0.01
