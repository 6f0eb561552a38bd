"""The generators against what the paper says of them and against scikit-learn; nothing here uses their own helpers."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from silograph.core.errors import InputError
from silograph.data.collections import find_data
from silograph.data.federation import avazu, clicks, regression, write_sample_clinics
from silograph.data.regions import read_regions, read_test

AVAZU = "avazu/avazu_first8999.npz"


def pooled(parts):
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def logistic(x, y):
    return LogisticRegression(C=1e6, max_iter=1000).fit(x, y)


def same(parts, others):
    return all((x == a).all() and (y == b).all() for (x, y), (a, b) in zip(parts, others, strict=True))


def test_regression_has_one_model_and_every_agent_its_own_spread():
    parts, model = regression(3, regions=2, agents=20, records=4000)
    assert [(x.shape, y.shape) for x, y in parts] == [((4000, 2), (4000,))] * 40
    x, y = pooled(parts)
    estimate, *_ = np.linalg.lstsq(x, y, rcond=None)
    # Five standard errors; no answer's deviation is more than sqrt(.1), no feature's variance less than .1.
    np.testing.assert_allclose(estimate, model, atol=5 * np.sqrt(0.1 / 0.1 / len(y)))
    noise = np.array([np.var(y - x @ model) for x, y in parts])
    assert 0.009 < noise.min() < 0.04 < 0.07 < noise.max() < 0.11
    moments = np.array([x.T @ x / len(x) for x, _ in parts])
    spectra = np.linalg.eigvalsh(moments)
    assert 0.09 < spectra.min() < 0.2 < 0.4 < spectra.max() < 0.55
    assert np.abs(moments[:, 0, 1]).max() > 0.05  # the axes are not those of the coordinates
    assert np.abs(x.mean(0)).max() < 5 * np.sqrt(0.5 / len(x))


def test_an_agents_records_depend_on_nobody_else():
    few, model = regression(3, regions=2, agents=2, records=5)
    many, same_model = regression(3, regions=3, agents=4, records=5)
    assert (model == same_model).all()
    assert same(few, [many[0], many[1], many[4], many[5]])
    assert not any((x == a).all() for (x, _), (a, _) in pairwise(many))
    assert not same(few, regression(4, regions=2, agents=2, records=5)[0])


def steady_state(parts, step, variance, seed=0, rounds=500, sampled=11, ridge=0.1):
    """The centroid's MSD in dB, (58), where all regions hear all: 10 regions of 100 agents, as in section V.A.

    Each sampled agent makes E in 1..10 local steps on B in 5..10 records; each server's answer carries Laplace noise.
    """
    rng = np.random.default_rng(seed)
    x, y = (np.array(part) for part in zip(*parts, strict=True))
    best = np.linalg.solve(
        np.einsum("knm,knl->ml", x, x) / y.size + ridge * np.eye(2), np.einsum("knm,kn->m", x, y) / y.size
    )
    steps, batches = rng.integers(1, 11, len(x)), rng.integers(5, 11, len(x))
    w, errors = np.zeros(2), []
    for _ in range(rounds):
        chosen = np.concatenate([100 * p + rng.permutation(100)[:sampled] for p in range(10)])
        models = np.tile(w, (len(chosen), 1))
        for step_number in range(10):
            records = rng.integers(0, y.shape[1], (len(chosen), 10))
            here, answers = x[chosen[:, None], records], y[chosen[:, None], records]
            counted = (np.arange(10) < batches[chosen, None]) / batches[chosen, None]
            residuals = counted * (answers - np.einsum("knm,km->kn", here, models))
            gradient = -2 * np.einsum("kn,knm->km", residuals, here) + 2 * ridge * models
            models -= np.where(step_number < steps[chosen], step / steps[chosen], 0.0)[:, None] * gradient
        w = models.mean(0) + rng.laplace(0, np.sqrt(variance / 2), (10, 2)).mean(0)
        errors.append(((w - best) ** 2).sum())
    return 10 * np.log10(np.mean(errors[100:]))


@pytest.mark.parametrize(
    "step, variance, level",
    [(0.1, 0, -52.2), (0.7, 0, -42.2), (5, 0, -26.8), (0.1, 0.1, -9.1), (0.7, 0.1, -15.2), (5, 0.1, -16.2)],
)
def test_the_regression_gives_the_levels_of_the_figures(step, variance, level):
    """Figures 2 and 4, without noise and with the sender's, as an independent implementation measured them."""
    assert abs(steady_state(regression(2)[0], step, variance) - level) < 2


def test_clicks_are_dealt_unequally():
    parts, (x, y) = clicks(1)
    sizes = [len(answers) for _, answers in parts]
    assert len(parts) == 50
    assert sum(sizes) == 5101
    assert min(sizes) >= 50
    assert max(sizes) > 3 * min(sizes)
    assert (x.shape, y.shape) == ((256, 16), (256,))
    assert set(pooled(parts)[1]) == set(y) == {-1.0, 1.0}
    again, test = clicks(1)
    assert same(parts, again)
    assert same([(x, y)], [test])
    assert not same([(x, y)], [clicks(2)[1]])


def test_clicks_can_be_told_apart_but_for_one_in_ten():
    parts, (x, y) = clicks(1, samples=30_000, test=20_000)
    clean = np.mean(logistic(x[:10_000], y[:10_000]).predict(x[10_000:]) != y[10_000:])
    assert abs(clean - stats.norm.cdf(-1.28)) < 4 * np.sqrt(0.1 * 0.9 / 10_000)
    # The agents' noise does not hide the border: what they learn together holds for clean records.
    assert np.mean(logistic(*pooled(parts)).predict(x) != y) < clean + 0.02
    assert abs(np.linalg.norm(x, axis=1).mean() - 1) < 0.1


def test_every_agent_adds_its_own_noise_and_the_test_has_none():
    parts, (x, y) = clicks(1, samples=50_000, test=20_000)

    def around(x, y):
        """Per feature, where the middle between the classes lies, and the variance inside them."""
        means = [x[y == label].mean(0) for label in (-1, 1)]
        return (means[0] + means[1]) / 2, np.mean([x[y == label].var(0) for label in (-1, 1)])

    middle, spread = around(x, y)
    assert abs(spread - 1 / 16) < 0.002
    assert np.abs(middle).max() < 0.01
    middles, spreads = zip(*(around(*part) for part in parts), strict=True)
    assert np.std(middles) > 0.03  # .2 / 4; without a shift it would be .25 / sqrt(1000) = .008
    assert min(spreads) < 0.07
    assert max(spreads) > 0.11  # up to 2 / 16


KINDS = {"C1": [1005, 1005, 1002], "banner_pos": [0, 1, 1], "site_id": [7, 7, 9], "device_ip": [5, 5, 5]}


@pytest.fixture
def ads(tmp_path):
    """A file like Avazu's with three kinds of rows; the first kind alone is clicked."""
    kind = np.random.default_rng(0).integers(0, 3, 900)
    columns = {name: np.array(values, dtype=np.uint32)[kind] for name, values in KINDS.items()}
    path = tmp_path / "ads.npz"
    np.savez(path, id=np.arange(900), hour=np.full(900, 14102100), split=kind, click=(kind == 0), **columns)
    return path


def test_avazu_rows_are_as_alike_as_their_cells(ads):
    parts, (x, y) = avazu(ads, 1, regions=2, agents=3, samples=600, test=300, features=2003)
    assert sum(len(answers) for _, answers in parts) == 600
    rows, first = np.unique(x, axis=0, return_index=True)
    assert len(rows) == 3
    # The share of equal cells: 3/4 and 1/4 between the clicked kind and the others, 1/2 between those.
    alike, clicked = rows @ rows.T, y[first] == 1
    np.testing.assert_allclose(np.sort(alike[clicked], axis=None), [0.25, 0.75, 1], atol=1e-12)
    np.testing.assert_allclose(np.sort(alike[~clicked][:, ~clicked], axis=None), [0.5, 0.5, 1, 1], atol=1e-12)


def test_avazu_repeats_itself(ads):
    options = {"regions": 2, "agents": 3, "samples": 600, "test": 300, "features": 8}
    parts, test = avazu(ads, 1, **options)
    again, test_again = avazu(str(ads), 1, **options)
    assert same([*parts, test], [*again, test_again])
    assert not same([test], [avazu(ads, 2, **options)[1]])
    assert test[0].shape == (300, 8)


def test_avazu_files_that_will_not_do(ads, tmp_path):
    np.savez(tmp_path / "other.npz", x=np.ones(9))
    np.savez(tmp_path / "ragged.npz", click=np.ones(9), C1=np.ones(8))
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04junk")
    for path, words in (
        (tmp_path / "gone.npz", "cannot be read"),
        (tmp_path / "junk.npz", "cannot be read"),
        (tmp_path / "other.npz", "it holds 'x'"),
        (tmp_path / "ragged.npz", "9 values in every column"),
        (ads, "there are 900"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            avazu(path, 1)
        assert str(path) in caught.value.where


def test_the_users_copy_of_avazu():
    path = find_data(None, AVAZU)
    if path is None:
        pytest.skip(f"needs {AVAZU} in the folder that SILOGRAPH_DATA names")
    parts, (x, y) = avazu(path, 1, test=3000)
    everything = np.concatenate([pooled(parts)[1], y])
    assert abs(np.mean(everything == 1) - 0.1737) < 4 * np.sqrt(0.17 * 0.83 / len(everything))
    assert x.shape == (3000, 64)
    assert 0.8 < np.linalg.norm(x, axis=1).mean() < 1.1
    scores = logistic(x[:1500], y[:1500]).decision_function(x[1500:])
    ranks = stats.mannwhitneyu(scores[y[1500:] == 1], scores[y[1500:] == -1], alternative="greater")
    assert ranks.pvalue < 1e-4  # the hashed cells say something about clicks


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clinics")
    return folder, *write_sample_clinics(folder / "new")


@pytest.fixture(scope="module")
def tables(clinics):
    _, paths, test = clinics
    regions = read_regions(paths, "clinic", "readmitted")
    return regions, read_test(test, "readmitted", regions.features)


def test_sample_clinics_are_files_of_regions(clinics, tables):
    folder, paths, test = clinics
    assert sorted(paths) == sorted((folder / "new" / "regions").iterdir())
    assert test == folder / "new" / "test.csv"
    again, test_again = write_sample_clinics(folder / "again")
    assert [path.read_bytes() for path in [*paths, test]] == [path.read_bytes() for path in [*again, test_again]]
    other, _ = write_sample_clinics(folder / "other", seed=2, regions=2, clinics=3)
    assert [path.name for path in other] == [path.name for path in paths[:2]]
    assert other[0].read_bytes() != paths[0].read_bytes()
    regions, _ = tables
    assert len(regions.regions) == 10
    assert len(regions.agents) == 300
    assert regions.agents[2].endswith("/clinic-003")
    sizes = [len(y) for _, y in regions.records]
    assert 20 <= min(sizes) < 30
    assert 110 < max(sizes) <= 120


def test_sample_clinics_have_something_to_learn(tables):
    regions, (test_x, test_y) = tables
    x, y = pooled(regions.records)
    assert set(y) == {0, 1}
    assert 0.2 < y.mean() < 0.25
    assert abs(np.linalg.norm(x, axis=1).mean() - 1) < 0.1
    error = np.mean(logistic(x, y).predict(test_x) != test_y)
    assert error < 0.7 * test_y.mean()  # what guessing "nobody comes back" would cost
    assert not {row.tobytes() for row in x} & {row.tobytes() for row in test_x}


def test_sample_regions_differ_a_little(tables):
    regions, (test_x, test_y) = tables

    def likelihood(x, y, model):
        return np.log(model.predict_proba(x)[np.arange(len(y)), y.astype(int)]).sum()

    together = logistic(*pooled(regions.records))
    gain, errors = 0.0, []
    for region in range(10):
        x, y = pooled([part for part, home in zip(regions.records, regions.home, strict=True) if home == region])
        alone = logistic(x, y)
        gain += 2 * (likelihood(x, y, alone) - likelihood(x, y, together))
        errors.append(np.mean(alone.predict(test_x) != test_y))
    assert stats.chi2.sf(gain, 9 * (len(regions.features) + 1)) < 1e-6  # real: a likelihood ratio test
    assert max(errors) < np.mean(together.predict(test_x) != test_y) + 0.03  # small: one region's model serves the rest


@pytest.mark.parametrize(
    "call",
    [
        lambda: write_sample_clinics("never", regions=0),
        lambda: write_sample_clinics("never", regions=11),
        lambda: write_sample_clinics("never", clinics=0),
        lambda: clicks(1, samples=99),
        lambda: clicks(1, regions=0),
    ],
)
def test_impossible_requests_are_refused(call):
    with pytest.raises(InputError):
        call()
