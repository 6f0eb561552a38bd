"""Random effects: against dense restricted likelihood, and never behind one model for all, for each, or a constant."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

from silograph.methods.random_effects import RandomEffects
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import play
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

D = 3


def world(seed, clients=40, constants=1.0, slopes=0.0, noise=1.0, counts=(3, 12), logistic=False, extra=200):
    """Clients' records with features of very different scales, and records to test on."""
    rng = np.random.default_rng(seed)
    learn, test = [], []
    for _ in range(clients):
        n = int(rng.integers(*counts))
        z = rng.normal(size=(n + extra, D))
        w = np.array([1.0, -0.5, 0.0]) + np.sqrt(slopes) * rng.normal(size=D)
        y = z @ w + np.sqrt(constants) * rng.normal() + noise * rng.normal(size=len(z))
        x = z * [1.0, 1000.0, 0.001] + [0.0, 5000.0, 1.0]
        y = (rng.random(len(z)) < expit(y)).astype(float) if logistic else y + 50.0
        learn.append((x[:n], y[:n]))
        test.append((x[n:], y[n:]))
    return learn, test


def learned(parts, loss="ridge", clusters=None, servers=4, **more):
    task = Linear(D + 1, max(len(y) for _, y in parts), loss)
    topo = regions(server_graph("ring", servers), len(parts) // servers)
    data = task.prepare_all([(np.column_stack([x, np.ones(len(x))]), y) for x, y in parts])
    method = RandomEffects(task, tuple(clusters or [0] * len(parts)), **more)
    return play(method, topo, data, Door(0, Ledger()))[1]


def mean_error(models, test, logistic=False):
    models = np.broadcast_to(models, (len(test), D + 1))
    errors = []
    for w, (x, y) in zip(models, test, strict=True):
        margin = x @ w[:-1] + w[-1]
        errors.append((((margin >= 0.0) != (y > 0.5)) if logistic else (margin - y) ** 2).mean())
    return np.mean(errors)


def dense_variances(parts, random):
    """Variances of random coordinates, relative to the noise's, by the restricted likelihood of all records at once."""
    x = np.concatenate([x for x, _ in parts])
    z = np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(len(x))])
    y = np.concatenate([y for _, y in parts])
    group = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    same = (group[:, None] == group).astype(float)
    shapes = [same * np.outer(z[:, m], z[:, m]) for m in random]

    def minus_twice(log_ratio):
        v = np.eye(len(y)) + np.einsum("m,mij->ij", np.exp(log_ratio), shapes)
        inside = np.linalg.solve(v, z)
        a = z.T @ inside
        e = y - z @ np.linalg.solve(a, inside.T @ y)
        rest = e @ np.linalg.solve(v, e)
        return np.linalg.slogdet(v)[1] + np.linalg.slogdet(a)[1] + (len(y) - D - 1) * np.log(rest)

    return np.exp(minimize(minus_twice, np.zeros(len(random)), method="Nelder-Mead").x)


def test_variances_are_those_of_the_restricted_likelihood():
    parts, _ = world(0)
    found = learned(parts)
    assert found.arrays["variance"][:-1].mean() < 0.05
    parts, _ = world(3, constants=2.0, counts=(6, 12))
    ratio = learned(parts).arrays["variance"][-1]
    assert ratio == pytest.approx(dense_variances(parts, [-1])[0], rel=0.05)  # slopes keep a little of their own


def test_each_slope_has_a_variance_of_its_own():
    """Clients agree on the first feature, hardly on the second, and not at all on the third."""
    rng = np.random.default_rng(11)
    parts = []
    for _ in range(40):
        x = rng.normal(size=(8, D))
        w = np.array([1.0, -0.5, 0.0]) + np.sqrt([0.0, 0.2, 4.0]) * rng.normal(size=D)
        parts.append((x, x @ w + rng.normal() + rng.normal(size=8)))
    found = learned(parts).arrays["variance"]
    assert found[0] < 0.02
    np.testing.assert_allclose(found[1:], dense_variances(parts, [1, 2, 3]), rtol=0.05)


@pytest.mark.parametrize(
    ("constants", "slopes", "noise"),
    [(0.0, 0.0, 1.0), (4.0, 0.0, 1.0), (1.0, 1.0, 0.5), (25.0, 4.0, 0.1)],
)
def test_never_behind_one_model_for_all_nor_one_for_each(constants, slopes, noise):
    """Over five worlds; the margin is what variances cost that have to be estimated."""
    ours, pooled, alone = [], [], []
    for seed in range(5):
        parts, test = world(seed, constants=constants, slopes=slopes, noise=noise)
        ours.append(mean_error(learned(parts).arrays["model"], test))
        x, y = (np.concatenate(side) for side in zip(*parts, strict=True))
        all_of_them = LinearRegression().fit(x, y)
        pooled.append(mean_error(np.append(all_of_them.coef_, all_of_them.intercept_), test))
        each = [LinearRegression().fit(x, y) for x, y in parts]
        alone.append(mean_error(np.array([np.append(one.coef_, one.intercept_) for one in each]), test))
    assert np.mean(ours) < 1.02 * np.mean(pooled)
    assert np.mean(ours) < np.mean(alone)


def test_what_is_personal_is_kept():
    """S2's clients of one cluster all end with one model; here constants differ as the truth does."""
    parts, test = world(1, constants=4.0)
    found = learned(parts).arrays
    assert found["model"][:, -1].std() > 1.0
    assert mean_error(found["model"], test) < 0.5 * mean_error(found["cell_model"], test)


def test_classes():
    for constants in (0.0, 4.0):
        parts, test = world(2, constants=constants, counts=(8, 20), logistic=True)
        found = learned(parts, "logistic").arrays["model"]
        x, y = (np.concatenate(side) for side in zip(*parts, strict=True))
        pooled = LogisticRegression().fit((x - x.mean(0)) / x.std(0), y)
        w = pooled.coef_[0] / x.std(0)
        theirs = mean_error(np.append(w, pooled.intercept_ - w @ x.mean(0)), test, True)
        assert mean_error(found, test, True) < theirs + 0.01 - 0.05 * (constants > 0.0)


def test_clusters_that_are_alike_are_joined_and_others_are_not():
    joined, divided = [], []
    for seed in range(5):
        parts, test = world(seed, constants=0.0)
        joined.append(mean_error(learned(parts).arrays["model"], test))
        some = [k % 5 for k in range(len(parts))]
        divided.append(mean_error(learned(parts, clusters=some).arrays["model"], test))
    assert np.mean(divided) < 1.02 * np.mean(joined)
    turned = [(x, y if k % 2 else 100.0 - y) for k, (x, y) in enumerate(parts)]
    tests = [(x, y if k % 2 else 100.0 - y) for k, (x, y) in enumerate(test)]
    two = learned(turned, clusters=[k % 2 for k in range(len(parts))]).arrays
    assert mean_error(two["model"], tests) < 1.05 * joined[-1]
    np.testing.assert_allclose(two["cluster_model"][0, 0, 0], -two["cluster_model"][0, 1, 0], rtol=0.2)


def test_without_deviations_it_is_one_regression():
    parts, _ = world(5)
    found = learned(parts, deviations=False).arrays
    x, y = (np.concatenate(side) for side in zip(*parts, strict=True))
    pooled = LinearRegression().fit(x, y)
    np.testing.assert_allclose(found["model"], np.tile(found["cell_model"][:1], (len(parts), 1)), rtol=1e-3)
    np.testing.assert_allclose(found["model"][0, :2], pooled.coef_[:2], rtol=0.03)  # a little ridge


def test_one_extreme_record_gives_nobody_slopes():
    parts, test = world(6, constants=1.0)
    x, y = parts[0]
    wild = x.copy()
    wild[0, 1] += 1e6
    found = learned([(wild, y), *parts[1:]]).arrays["model"]
    assert mean_error(found[1:], test[1:]) < 2.5  # the noise alone is 1


def test_columns_that_say_nothing_do_no_harm():
    parts, _ = world(7)
    parts = [(np.column_stack([x[:, 0], x[:, 0], np.full(len(x), 7.0)]), y) for x, y in parts]
    assert np.isfinite(learned(parts).arrays["model"]).all()


def test_not_behind_each_alone_where_one_variance_for_all_slopes_is_too_small():
    """Slopes hardly differ but for one, of a feature that is far apart between clients and hardly differs within."""
    ours, alone = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        parts, tests, each = [], [], []
        for _ in range(40):
            x = rng.normal(size=(215, D))
            within = x[:, 0].copy()
            x[:, 0] = 30.0 * rng.normal() + within
            y = x[:, 1:].sum(1) + 2.0 * rng.normal() * within + 0.2 * rng.normal(size=215)
            parts.append((x[:15], y[:15]))
            tests.append((x[15:], y[15:]))
            one = LinearRegression().fit(*parts[-1])
            each.append(np.append(one.coef_, one.intercept_))
        ours.append(mean_error(learned(parts).arrays["model"], tests))
        alone.append(mean_error(np.array(each), tests))
    assert np.mean(ours) < 1.1 * np.mean(alone)
