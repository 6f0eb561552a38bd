"""Models of regions by random effects: against mixed-model equations, and never far behind its peers."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

from silograph.methods.region_effects import RegionEffects
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import play
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

D, AGENTS, SCALES, CENTRES = 3, 4, np.array([1.0, 1000.0, 0.001]), np.array([0.0, 5000.0, 1.0])


def world(seed, sizes=(10, 40, 160) * 4, constants=1.0, slopes=0.0, logistic=False, extra=400):
    """Records of regions with features of very different scales, and others to test on."""
    rng = np.random.default_rng(seed)
    learn, test = [], []
    for n in sizes:
        z = rng.normal(size=(n + extra, D))
        margin = z @ (np.array([1.0, -0.5, 0.0]) + np.sqrt(slopes) * rng.normal(size=D))
        margin += np.sqrt(constants) * rng.normal()
        y = (rng.random(len(z)) < expit(margin)).astype(float) if logistic else margin + rng.normal(size=len(z))
        x = z * SCALES + CENTRES
        learn.append((x[:n], y[:n]))
        test.append((x[n:], y[n:]))
    return learn, test


def learned(parts, loss="ridge"):
    """Each region's records are four agents', of very different size."""
    agents = []
    for x, y in parts:
        cuts = [1, 3, 3 + (len(y) - 3) // 3]
        agents += list(zip(np.split(np.column_stack([x, np.ones(len(x))]), cuts), np.split(y, cuts), strict=True))
    task = Linear(D + 1, max(len(y) for _, y in agents), loss)
    topo = regions(server_graph("ring", len(parts)), AGENTS)
    method = RegionEffects(task, (0,) * len(agents))
    *_, outcome = play(method, topo, task.prepare_all(agents), Door(0, Ledger()))
    return outcome


def mean_error(models, test, logistic=False):
    errors = []
    for w, (x, y) in zip(np.broadcast_to(models, (len(test), D + 1)), test, strict=True):
        margin = x @ w[:-1] + w[-1]
        errors.append((((margin >= 0.0) != (y > 0.5)) if logistic else (margin - y) ** 2).mean())
    return float(np.mean(errors))


def fitted(model, x, y):
    if isinstance(model, LogisticRegression) and len(set(y)) == 1:
        return np.array([*np.zeros(D), y[0] - 0.5])
    z = (x - CENTRES) / SCALES
    made = model.fit(z, y)
    slopes = np.ravel(made.coef_) / SCALES
    return np.append(slopes, float(np.ravel(made.intercept_)[0]) - slopes @ CENTRES)


def others(parts, logistic=False):
    """One model for all, and each region's own."""
    made = LogisticRegression if logistic else LinearRegression
    one = fitted(made(), *(np.concatenate(each) for each in zip(*parts, strict=True)))
    return one, np.array([fitted(made(), x, y) for x, y in parts])


def test_models_solve_the_mixed_model_equations_of_all_records_at_once():
    """With the variances that were estimated; the ridge on the common slopes is the only other prior."""
    parts, _ = world(0, sizes=(12, 30, 60, 25), slopes=0.3)
    found = learned(parts)
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    u = np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(len(x))])
    v = (y - y.mean()) / y.std()
    home = np.repeat(np.arange(4), [len(each) for _, each in parts])
    design = np.column_stack([u, *(u * (home == p)[:, None] for p in range(4))])
    spread, ridge = found.arrays["region_variance"], found.arrays["ridge"]
    prior = np.diag(np.concatenate([ridge * (np.arange(D + 1) < D), np.tile(1.0 / spread, 4)]))
    solved = np.linalg.solve(design.T @ design + prior, design.T @ v).reshape(5, D + 1)
    own = y.std() * (solved[0] + solved[1:])
    own[:, :-1] /= x.std(0)
    own[:, -1] += y.mean() - own[:, :-1] @ x.mean(0)
    np.testing.assert_allclose(found.arrays["model"], own, rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(found.arrays["centroid"], found.arrays["model"].mean(0))


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize(("constants", "slopes"), [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (25.0, 4.0)])
def test_regions_are_never_far_behind_one_model_or_each_its_own(constants, slopes, logistic):
    """With nothing to choose, on features a million times apart; regions of 10 to 160 records."""
    scores = []
    for seed in range(4):
        parts, test = world(seed, constants=constants, slopes=slopes, logistic=logistic)
        ours = learned(parts, "logistic" if logistic else "ridge").arrays["model"]
        scores.append([mean_error(each, test, logistic) for each in (ours, *others(parts, logistic))])
    ours, one, each = np.mean(scores, axis=0)
    assert ours <= (min(one, each) + 0.01 if logistic else 1.03 * min(one, each))
    if (constants, slopes) == (1.0, 0.0) and not logistic:
        assert ours < 0.9 * min(one, each)  # constants of their own, and one set of slopes


def test_regions_that_are_alike_get_one_model():
    parts, _ = world(1, constants=0.0)
    model = learned(parts).arrays["model"] * np.append(SCALES, 1.0)
    one, _ = others(parts)
    assert np.abs(model[:, :-1] - (one * np.append(SCALES, 1.0))[:-1]).max() < 0.1
