"""Calibrated models: what public numbers choose, and that noise never makes more than a constant of itself."""

import math

import numpy as np
import pytest

from silograph import ClusteredModels, RegionModels
from silograph.core.errors import InputError
from silograph.families.servers import noise_of_choice
from silograph.methods import calibrated
from silograph.methods.calibrated import Calibrated, _spread_of, own_constant
from silograph.methods.calibration import choose, noise_in_mean, pure_noise_in_mean
from silograph.privacy.accounting import cost, gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks, planned
from silograph.run.loop import play
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

DELTA = 1e-6


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("personal", [True, False])
@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.02, 0.3])
def test_all_shares_are_the_budget_and_less_noise_buys_slopes(noise, classes, personal):
    choice = choose(noise, noise, 8, classes, personal)
    assert math.isclose(sum(share for _, share in choice.schedule), 1.0)
    assert choice.slopes == (noise < 0.1)
    assert choice.expected >= choose(noise / 2.0, noise / 2.0, 8, classes, personal).expected
    given = choose(noise, noise, 8, classes, personal, rounds=7, step=0.3)
    assert (given.rounds, given.step) == ((7, 0.3) if choice.slopes else (0, 0.0))


def test_small_groups_share_their_slopes():
    assert not choose(0.002, 0.001, 8, False).together
    assert choose(0.1, 0.002, 8, False).together


def learned(x, y, epsilon, loss="ridge", groups=None, records=False, seed=0):
    """Three servers; agents of a few records each, as `x` (agents, records, features) says."""
    agents, most, features = x.shape
    task = Linear(features + 1, most, loss)
    multiplier, units = gaussian_multiplier(epsilon, DELTA, 1), agents * most if records else None
    groups = groups or (0,) * agents
    noise = noise_in_mean(multiplier, agents, units)
    each = noise * (max(groups) + 1)
    pure, of = pure_noise_in_mean(epsilon, agents, units), max(groups) + 1
    apart = pure_noise_in_mean(epsilon, agents // of, None if units is None else units // of)
    means = {"pure": pure, "pure_apart": apart}
    choice = choose(each, noise, features, loss == "logistic", most > 1, agents=not records, **means)
    topo = regions(server_graph("ring", 3), [len(part) for part in np.array_split(np.arange(agents), 3)])
    counts = (most,) * agents if records else None
    method = Calibrated(task, groups, choice, (-3.0, 4.0), counts, named=max(groups) > 0)
    by = noise_of_choice(choice, epsilon, DELTA)
    door = Door(seed, Ledger(), by, Budget(epsilon, DELTA), masks=Masks("skipped"))
    table = [(np.column_stack([x[k], np.ones(most)]), y[k]) for k in range(agents)]
    return play(method, topo, task.prepare_all(table), door)[1].arrays, door


def drawn(seed, agents, records, effect, own=0.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (agents, records, 4))
    w = effect * np.array([1.0, -1.0, 0.5, 0.0])
    level = 1.0 + own * rng.normal(size=(agents, 1))
    return x, x @ w + level + 0.5 * rng.normal(size=(agents, records)), w


def test_a_model_of_noise_is_a_constant():
    """Over six runs at fixed seeds: excess over the mean answer's error of 1 % at the most, in the mean."""
    excess = []
    for seed in range(6):
        x, y, _ = drawn(seed, 240, 1, effect=0.0)
        found, _ = learned(x, y, 4.0, seed=seed)
        fresh, answers, _ = drawn(100 + seed, 4000, 1, effect=0.0)
        guess = fresh[:, 0] @ found["centroid"][:-1] + found["centroid"][-1]
        excess.append(((answers[:, 0] - guess) ** 2).mean() / ((answers[:, 0] - y.mean()) ** 2).mean())
    assert np.mean(excess) < 1.01


@pytest.mark.parametrize(("agents", "epsilon"), [(50, 1.0), (100, 1.0), (50, 4.0)])
def test_few_agents_are_told_what_their_noisy_mean_will_cost(agents, epsilon):
    """Over 60 runs, answers being within four deviations: as much as is told, within 3.9 standard errors. Squares of
    Laplace noise have five times the variance of their squared mean."""
    lost = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        y = 0.5 + 3.5 / 4.0 * rng.normal(size=(agents, 1))
        found, _ = learned(rng.uniform(-1.0, 1.0, (agents, 1, 4)), y, epsilon, seed=seed)
        assert not found["centroid"][:-1].any()
        lost.append((found["centroid"][-1] - y.mean()) ** 2 / y.var())
    noise = noise_in_mean(gaussian_multiplier(epsilon, DELTA, 1), agents)
    told = choose(noise, noise, 4, False, pure=pure_noise_in_mean(epsilon, agents)).expected
    assert abs(np.mean(lost) / told - 1.0) < 3.9 * math.sqrt(5.0 / 60.0)
    assert np.mean(lost) > 0.3 * told


def test_a_constant_alone_is_one_laplace_number_that_costs_the_budget_and_no_delta():
    """An eighth of the Gaussian noise's power, at epsilon 1; it is not taken for groups that have their own levels."""
    _, door = learned(np.zeros((60, 1, 3)), np.zeros((60, 1)), 1.0)
    (row,) = {(row.mechanism, row.dim, row.round) for row in door.ledger.rows}
    assert row == ("laplace", 1, 0)
    spent = cost(door.ledger.of(door.ledger.rows[0].silo), 0.0)
    assert spent.epsilon == pytest.approx(1.0, rel=1e-9)
    assert spent.delta == 0.0
    gaussian = noise_in_mean(gaussian_multiplier(1.0, DELTA, 1), 60)
    assert pure_noise_in_mean(1.0, 60) ** 2 < gaussian**2 / 8.0
    cohort = planned(60, 1.0, 1, noise_of_choice(choose(gaussian, gaussian, 3, True, pure=0.0), 1.0, DELTA))
    assert cohort.noise_of(60) / 60 == pytest.approx(pure_noise_in_mean(1.0, 60), rel=1e-4)


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_groups_whose_constants_are_apart_have_their_own_and_groups_alike_share_one(loss):
    """Too few for slopes: constants of six runs, drawn to each other by what of their distance is not noise."""
    rng, groups = np.random.default_rng(6), tuple(k % 2 for k in range(120))
    for apart in (0.0, 2.0):
        found = []
        for seed in range(6):
            y = 0.5 + apart * (np.array(groups) - 0.5) + 0.8 * rng.normal(size=120)
            y = (np.where(y > 0.5, 1.0, -1.0) if loss == "logistic" else y)[:, None]
            arrays, door = learned(rng.uniform(-1.0, 1.0, (120, 1, 40)), y, 3.0, loss, groups, seed=seed)
            assert {(row.mechanism, row.release_point) for row in door.ledger.rows} == {("laplace", "level")}
            assert {row.silo.split("/")[1] for row in door.ledger.rows} == {"cluster-0", "cluster-1"}
            assert not arrays["cluster_model"][0][:, :-1].any()
            found.append(np.diff(arrays["cluster_model"][0][:, -1])[0])
        logits = 2.0 * math.log(0.8944 / 0.1056)  # of Phi(1 / .8)
        expected = logits if apart and loss == "logistic" else apart
        assert np.mean(found) == pytest.approx(expected, abs=0.15 * logits if loss == "logistic" else 0.4)


@pytest.mark.parametrize("records", [True, False])
def test_effects_are_found_with_agents_or_records_protected(records):
    x, y, w = drawn(1, 150, 2, effect=1.0)
    found, door = learned(x, y, 8.0, records=records)
    slopes, constant = found["centroid"][:-1], found["centroid"][-1]
    assert np.linalg.norm(slopes - w) < 0.35 * np.linalg.norm(w)
    assert abs(constant - 1.0) < 0.25
    units = {row.protected_unit.split(" (")[0] for row in door.ledger.rows}
    assert units == {"one record" if records else "one agent"}


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_agents_with_many_records_need_less_noise(loss):
    """Excess over the best error, in what a constant has beyond it: 4 seeds, agents of 1 record and of 60."""
    left = {}
    for most in (1, 60):
        lost = []
        for seed in range(4):
            x, y, w = drawn(seed, 240, most, effect=1.5)
            if loss == "logistic":
                y = np.where(y > 1.0, 1.0, 0.0)
            found, door = learned(x, y, 3.0, loss, seed=seed)
            slopes = found["centroid"][:-1]
            cosine = slopes @ w / (np.linalg.norm(slopes) * np.linalg.norm(w))
            lost.append(1.0 - cosine)
            assert {row.release_point for row in door.ledger.rows} >= {"length", "step", "check"}
        left[most] = np.mean(lost)
    assert left[60] < 0.05 * left[1]


def test_classes():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (300, 1, 3))
    y = np.where(rng.random((300, 1)) < 1.0 / (1.0 + np.exp(-4.0 * x[..., 0])), 1.0, 0.0)
    found, _ = learned(x, y, 8.0, "logistic")
    assert ((x[:, 0] @ found["centroid"][:-1] + found["centroid"][-1] > 0.0) == (y[:, 0] > 0.5)).mean() > 0.75


def test_groups_have_models_of_their_own():
    x, y, w = drawn(2, 400, 1, effect=1.0)
    groups = tuple(k % 2 for k in range(400))
    y[1::2] = 2.0 - y[1::2]
    found, _ = learned(x, y, 8.0, groups=groups)
    first, second = found["cluster_model"][0][:, :-1]
    assert first @ w > 0.5 * (w @ w)
    assert second @ w < -0.5 * (w @ w)
    np.testing.assert_array_equal(found["cell_model"][1], found["cluster_model"][0, 1])


def test_the_variance_of_constants_is_told_and_makes_an_agents_own():
    """The truth is 1 / .25 relative to a record's noise; half of it or twice is near enough for shrinking."""
    x, y, _ = drawn(3, 300, 6, effect=0.0, own=1.0)
    found, _ = learned(x, y, 8.0, records=True)
    assert 2.0 < found["variance"][0] < 8.0


def test_noise_that_shows_a_bin_does_not_hide_all_answers():
    """Of 75 people at epsilon 1 a bin must look larger than all of them to be seen: it says nothing of the rest. Of
    many people it says where nearly all are."""
    middle = (np.arange(16) + 0.5) / 8.0 - 1.0
    one = np.eye(16)[0]
    centre, scale = _spread_of(1.4 * one, 0.44)
    assert abs(centre) < 0.1
    assert scale > 0.5
    centre, scale = _spread_of(one, 0.001)
    assert abs(centre - middle[0]) < 0.02
    assert scale < 0.1


def test_an_own_constant_is_the_best_linear_prediction():
    """Against the mean of n residuals times n / (n + 1 / variance); for classes the penalised likelihood is level."""
    rng = np.random.default_rng(4)
    x, y = np.column_stack([rng.normal(size=(5, 2)), np.ones(5)]), rng.normal(size=5)
    model = np.array([0.3, -0.2, 0.1])
    own = own_constant(model, x, y, 0.7, classes=False)
    assert own[-1] - model[-1] == pytest.approx((y - x @ model).mean() * 5.0 / (5.0 + 1.0 / 0.7))
    labels = np.where(y > 0.0, 1.0, -1.0)
    own = own_constant(model, x, labels, 0.7, classes=True)
    chance = 1.0 / (1.0 + np.exp(-x @ own))
    assert ((labels + 1.0) / 2.0 - chance).sum() == pytest.approx((own[-1] - model[-1]) / 0.7, abs=1e-9)
    np.testing.assert_array_equal(own_constant(model, x, y, 0.0, classes=False), model)


def test_small_groups_have_levels_of_their_own_and_slopes_in_common():
    """Offsets of 1 and -1 in groups that are too small for slopes of their own; where there are none, none are made."""
    groups = tuple(k % 6 for k in range(600))
    apart = np.where(np.array(groups) < 3, 1.0, -1.0)
    for size in (1.0, 0.0):
        each = []
        for seed in range(5, 9):
            x, y, w = drawn(seed, 600, 1, effect=1.0)
            found, _ = learned(x, y + size * apart[:, None], 4.0, groups=groups, seed=seed)
            models = found["cluster_model"][0]
            assert np.ptp(models[:, :-1], axis=0).max() < 1e-9
            assert np.linalg.norm(models[0, :-1] - w) < 0.4 * np.linalg.norm(w)
            each.append(models[:, -1] - models[:, -1].mean())
        np.testing.assert_allclose(np.mean(each, axis=0), size * apart[:6], atol=0.3 if size else 0.1)


def test_a_strong_model_goes_as_far_as_its_steps_say_not_only_as_the_noisier_check(monkeypatch):
    """Excess error over eight runs, beside a twin that trusts the check alone."""
    lost = {}
    for twin in (False, True):
        if twin:
            monkeypatch.setattr(calibrated, "_of_two", lambda s, *rest: s)
        excess = []
        for seed in range(8):
            x, y, w = drawn(seed, 400, 1, effect=1.5)
            found, _ = learned(x, y, 3.0, seed=seed)
            slopes, constant = found["centroid"][:-1], found["centroid"][-1]
            excess.append(((slopes - w) ** 2).sum() / 3.0 + (constant - 1.0) ** 2)
        lost[twin] = np.mean(excess)
    assert lost[False] < 0.8 * lost[True]


def test_a_noisy_mean_stays_within_the_public_bounds():
    """Of ten agents at epsilon .2 most means would lie beyond them."""
    for seed in range(8):
        found, _ = learned(np.zeros((10, 1, 3)), np.full((10, 1), 3.9), 0.2, seed=seed)
        assert -3.0 <= found["centroid"][-1] <= 4.0


@pytest.mark.parametrize("epsilon", [3.0, 30.0])
@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_a_group_that_is_too_small_for_a_sum_gets_what_the_others_have(epsilon, loss):
    """Two agents are fewer than a secure sum may have: nothing is known of them, and no number is lost."""
    groups = (*(k % 2 for k in range(398)), 2, 2)
    x, y, _ = drawn(7, 400, 1, effect=1.0)
    y = np.where(y > 1.0, 1.0, -1.0) if loss == "logistic" else y
    found, _ = learned(x, y, epsilon, loss, groups)
    models = found["cluster_model"][0]
    assert np.isfinite(models).all()
    np.testing.assert_allclose(models[2], models[:2].mean(0), atol=0.3 * np.abs(models).max())


def of_clusters(seed, sizes, slopes, levels, epsilon, protect="clients"):
    """Clients of 40 records in clusters of these sizes; the mean squared error of each cluster's model on the truth."""
    rng, clients, names = np.random.default_rng(seed), [], []
    for q, (size, slope, level) in enumerate(zip(sizes, slopes, levels, strict=True)):
        for _ in range(size):
            x = rng.uniform(-1.0, 1.0, (40, 2))
            clients.append((x, slope * x[:, 0] + level + 0.2 * rng.normal(size=40)))
            names.append(f"cluster {q}")
    public = {"bounds": [(-1, 1)] * 2, "answers": (-8, 8), "masks": "skipped", "random_state": seed}
    model = ClusteredModels(epsilon=epsilon, protect=protect, **public).fit(clients, clusters=names)
    truth = np.column_stack([slopes, np.zeros(len(sizes)), levels])
    return model, (model.cluster_models_ - truth) ** 2 @ [1.0 / 3.0, 1.0 / 3.0, 1.0]


@pytest.mark.parametrize(("epsilon", "protect"), [(8.0, "clients"), (0.5, "records")])
@pytest.mark.parametrize("few", [2, 4, 15])
def test_a_tiny_cluster_costs_the_large_ones_nothing(few, epsilon, protect):
    """Of 60 clients each, with opposite slopes: one model for both would lose .58, a third by slopes, a quarter by
    constants. Over three runs."""
    lost = [of_clusters(s, (60, 60, few), (1.0, -1.0, 0.0), (0.0, 1.0, 0.5), epsilon, protect)[1] for s in range(3)]
    assert np.mean(lost, axis=0)[:2].max() < 0.15


def test_a_tiny_cluster_gets_what_the_others_agree_on():
    """By a note beforehand: the slope of the large clusters, not a constant, which would lose 1 / 3."""
    for few in (2, 4):
        each = [of_clusters(seed, (60, 60, few), (1.0,) * 3, (0.0,) * 3, 8.0) for seed in range(3)]
        assert np.mean([lost[2] for _, lost in each]) < 0.1
        assert any("Too small for slopes of their own: 'cluster 2'." in note for note in each[0][0].privacy_["notes"])


def test_a_tiny_cluster_gets_the_mean_over_clients_not_over_clusters():
    """90 clients of slope 1 and 45 of slope -1."""
    found = [of_clusters(s, (90, 45, 2), (1.0, -1.0, 0.0), (0.0,) * 3, 30.0)[0].cluster_models_ for s in range(3)]
    assert np.mean(found, axis=0)[2, 0] == pytest.approx(1.0 / 3.0, abs=0.1)


def test_a_large_cluster_without_effects_does_not_get_those_of_the_others():
    each = [of_clusters(seed, (60, 60, 60), (1.0, 1.0, 0.0), (0.0,) * 3, 8.0)[1] for seed in range(3)]
    assert np.mean(each, axis=0).max() < 0.05


def test_many_tiny_clusters_of_one_mind_have_one_model():
    """Twelve clusters of five clients, of which none could learn alone, beside a large one."""
    lost = [of_clusters(seed, (60, *(5,) * 12), (1.0,) * 13, (0.0,) * 13, 8.0)[1] for seed in range(3)]
    assert np.mean(lost, axis=0).max() < 0.1


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(("features", "loss"), [(1, "ridge"), (3, "ridge"), (3, "logistic")])
def test_a_given_step_is_refused_before_anything_is_spent_or_does_no_harm(features, loss, alike):
    """The longest that is allowed is named, and with it the model beats a constant, also on columns that are all alike;
    what is a little longer is refused."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (300, 1, 1 if alike else features)) * np.ones(features)
    effect = x.sum(2) / math.sqrt(features)
    answers = np.where(effect > 0.5 * rng.normal(size=effect.shape), "yes", "no") if loss == "logistic" else effect
    agents = list(zip(x, answers, strict=True))
    public = {"classes": ("no", "yes")} if loss == "logistic" else {"answers": (-4, 4)}
    public |= {"bounds": [(-1, 1)] * features, "masks": "skipped", "random_state": 0}
    with pytest.raises(InputError, match=r"step: expected at most [0-9.]+, .*found 100") as refused:
        RegionModels(loss, epsilon=8, step=100.0, **public).fit(agents)
    longest = float(refused.value.expected.split()[2].rstrip(","))
    with pytest.raises(InputError, match="step: expected at most"):
        RegionModels(loss, epsilon=8, step=1.01 * longest, **public).fit(agents)
    model = RegionModels(loss, epsilon=8, step=longest, **public).fit(agents)
    guess, truth = model.predict(x[:, 0]), answers[:, 0]
    if loss == "logistic":
        assert (guess != truth).mean() < 0.3
    else:
        assert ((guess - truth) ** 2).mean() < 0.2 * truth.var()
