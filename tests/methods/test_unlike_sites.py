"""Private graphs of sites that lack nodes: the bound holds whatever a row lacks, and means are of who sees a pair."""

import math

import numpy as np
import pytest

from silograph.data.silos import People
from silograph.kernels.pooling import empirical_bayes
from silograph.methods.unlike_sites import UnlikeReleases, UnlikeSum, pool
from silograph.privacy.mechanisms import Gaussian
from silograph.tasks.smooth_graph import SmoothGraph, from_coordinates, to_coordinates, without_level

NODES, COMMON = 7, (0, 2, 3, 5)
LACKS = ((1,), (4, 6), (), (6,))
SITES = len(LACKS)


def task(clip=None, person=None, with_mean=False):
    return SmoothGraph(NODES, "moment", clip, person=person, common=COMMON, with_mean=with_mean)


def tables(rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    mixing, made = np.eye(NODES) + 0.3 * rng.standard_normal((NODES, NODES)), []
    for gone in LACKS:
        made.append(rng.standard_normal((rows, NODES)) @ mixing)
        made[-1][:, list(gone)] = np.nan
    return made


def extreme(rng):
    """A row as an adversary would have it: along a coordinate or anywhere, of any size, with any gaps."""
    row = rng.standard_normal(NODES) * rng.choice([0.0, 1e-3, 1.0, 50.0, 1e200])
    if rng.random() < 0.5:
        row = np.where(np.arange(NODES) == rng.integers(NODES), row, 0.0)
    row[rng.random(NODES) < rng.choice([0.0, 0.3, 0.9])] = np.nan
    return row


@pytest.mark.parametrize("with_mean", [False, True])
@pytest.mark.parametrize("clip", [None, 1.5])
@pytest.mark.parametrize("lacks", LACKS)
def test_no_swap_of_a_row_with_any_gaps_moves_a_release_or_a_summand_beyond_its_bound(clip, lacks, with_mean):
    rng, made = np.random.default_rng([7, len(lacks)]), task(clip, with_mean=with_mean)
    rows, worst = tables(rows=3)[0], 0.0
    rows[:, list(lacks)] = np.nan
    for _ in range(300):
        told = []
        for _ in range(2):
            rows[0] = extreme(rng)
            rows[0, list(lacks)] = np.nan
            told.append({name: value[None] for name, value in made.prepare(rows, lacks).items()})
        (one, other), (n, m) = (made.bounded(each) for each in told), (made.summand(each) for each in told)
        assert np.linalg.norm(one.value - other.value) <= one.l2[0] * (1.0 + 1e-9)
        assert np.linalg.norm(n.value - m.value) <= n.l2[0] * (1.0 + 1e-9)
        worst = max(worst, float(np.linalg.norm(one.value - other.value) / one.l2[0]))
    assert worst > 0.9  # the search finds what the bound is for


def test_no_swap_of_a_person_moves_a_release_beyond_its_bound():
    rng, made, lacks = np.random.default_rng(8), task(person="who"), LACKS[1]
    base, whose = tables(rows=6)[1], np.array([0, 0, 1, 1, 2, 2])
    for _ in range(200):
        told = []
        for _ in range(2):
            base[:2] = [extreme(rng), extreme(rng)]
            base[:2, list(lacks)] = np.nan
            told.append(made.bounded({k: v[None] for k, v in made.prepare(People(base.copy(), whose), lacks).items()}))
        assert np.linalg.norm(told[0].value - told[1].value) <= told[0].l2[0] * (1.0 + 1e-9)


def test_what_a_site_lacks_is_nothing_in_what_it_releases_and_differences_are_kept():
    made, (x, *_) = task(clip=1e6), tables()
    moment = from_coordinates(made.prepare(x, LACKS[0])["moment"][None])[0]
    own = made.coordinates_of(LACKS[0])
    assert not moment[~own].any()
    u = made.back @ moment @ made.back.T
    here = [0, 2, 3, 4, 5, 6]
    for a in here:
        for b in here:
            expected = ((x[:, a] - x[:, b]) ** 2).mean()
            assert u[a, a] + u[b, b] - 2.0 * u[a, b] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(without_level(x, COMMON)[:, list(COMMON)].mean(1), 0.0, atol=1e-12)


def test_sites_that_lack_nothing_are_pooled_as_ever():
    rng, m = np.random.default_rng(3), NODES - 1
    truth = rng.standard_normal((m, m))
    released = truth @ truth.T / m + 0.1 * rng.standard_normal((SITES, m, m))
    released = released + released.transpose(0, 2, 1)
    noise, counts = np.array([0.1, 0.2, 0.1, 0.3]), np.array([500.0, 200.0, 400.0, 300.0])
    plain, masked = empirical_bayes(released, noise, counts), pool(released, noise, counts, np.ones((SITES, m), bool))
    np.testing.assert_allclose(masked.mean, plain.mean, rtol=1e-9)
    np.testing.assert_allclose(masked.moments, plain.moments, rtol=1e-9)
    np.testing.assert_allclose(masked.variance, plain.variance, rtol=1e-9)
    np.testing.assert_allclose(masked.mean_variance, plain.mean_variance, rtol=1e-9)
    np.testing.assert_allclose(masked.share, plain.share, rtol=1e-9)


def test_the_variance_of_a_pooled_coordinate_is_that_of_the_sites_that_see_it():
    """Against 2000 draws; a variance of so many is off by more than a sixth once in a million times."""
    rng, m, noise = np.random.default_rng(4), 4, 0.5
    own = np.array([[True] * 4, [True, True, True, False], [True, True, False, False]])
    found = []
    for _ in range(2000):
        half = np.triu(rng.standard_normal((3, m, m)) / math.sqrt(2.0), 1)
        noisy = noise * (half + half.transpose(0, 2, 1) + np.eye(m) * rng.standard_normal((3, m, 1)))
        known = np.eye(m) + noisy
        found.append(pool(known * (own[:, :, None] & own[:, None, :]), np.full(3, noise), np.full(3, 1e9), own))
    drawn = np.array([each.mean for each in found]).var(0)
    said = np.mean([each.mean_variance for each in found], axis=0)
    # Off the diagonal an entry has half of a coordinate's variance. tau^2, estimated, is a little above 0.
    ratio = drawn / said * np.where(np.eye(m) > 0.0, 1.0, 2.0)
    assert (ratio > 0.75).all()
    assert (ratio < 1.2).all()
    assert said[3, 3] > 2.0 * said[0, 0]


@pytest.mark.parametrize("clip", [None, 50.0])
def test_without_noise_sums_and_releases_are_the_means_of_the_sites_that_see_a_pair(clip):
    made, given, counts = task(clip), tables(), (4000,) * SITES
    told = [made.prepare(x, gone) for x, gone in zip(given, LACKS, strict=True)]
    moments = np.array([each["moment"] for each in told])
    released = UnlikeReleases(made, None, Gaussian(0.0), counts, lacks=LACKS)
    summed = UnlikeSum(made, None, None, counts, lacks=LACKS)
    one = released.known({"moments": moments}, np.arange(SITES))
    other = summed.statistics(4000.0 * moments.sum(0)[None], SITES, np.ones(SITES, bool))
    seen = np.isfinite(one.zbar[-1])
    assert (np.isfinite(other.zbar[-1]) == seen).all()
    a, b = np.triu_indices(NODES, 1)
    rows = np.array(
        [[gone.isdisjoint((int(i), int(j))) for i, j in zip(a, b, strict=True)] for gone in map(set, LACKS)]
    )
    assert (seen == rows.any(0)).all()
    scale = [each.zbar[-1][seen] / each.zbar[-1][seen].mean() for each in (one, other)]
    if clip is not None:  # without a clip lengths are only alike in the mean
        distance = np.array([[((x[:, i] - x[:, j]) ** 2).mean() for i, j in zip(a, b, strict=True)] for x in given])
        direct = np.nanmean(np.where(rows, distance, np.nan), axis=0)
        np.testing.assert_allclose(scale[1], direct / direct.mean(), rtol=0.1)
    np.testing.assert_allclose(scale[0], scale[1], rtol=0.1)


def test_a_round_trip_of_coordinates():
    rng = np.random.default_rng(5)
    moment = rng.standard_normal((NODES - 1, NODES - 1))
    moment = moment + moment.T
    np.testing.assert_allclose(from_coordinates(to_coordinates(moment)[None])[0], moment, atol=1e-12)


@pytest.mark.parametrize("clip", [None, 50.0])
def test_with_means_beside_them_sites_far_from_0_release_what_sites_around_0_do(clip):
    """Every site has means of its own; a sum has one of all sites."""
    rng, counts, made = np.random.default_rng(9), (4000,) * SITES, task(clip, with_mean=True)
    shifts = 0.4 * rng.standard_normal((SITES, NODES))
    releases = UnlikeReleases(made, None, Gaussian(0.0), counts, lacks=LACKS)
    summed = UnlikeSum(made, None, None, counts, lacks=LACKS)

    def told(moved):
        each = zip(tables(), moved, LACKS, strict=True)
        return np.array([made.prepare(x + by, gone)["moment"] for x, by, gone in each])

    def alone(moved):
        return releases.known({"moments": told(moved)}, np.arange(SITES)).moments[-1]

    def together(moved):
        return summed.statistics(4000.0 * told(moved).sum(0)[None], SITES, np.ones(SITES, bool)).moments[-1]

    for known, moved, exact in ((alone, shifts, clip is not None), (together, np.tile(shifts[0], (SITES, 1)), False)):
        plain, away, raw = known(0.0 * shifts), known(moved), known_without_mean(moved, clip)
        off, before = np.abs(away - plain).max(), np.abs(raw - plain).max()
        # Without a clip rows are scaled to one length where they lie; sites that see a pair do not see all of a node.
        assert off <= (1e-6 * np.abs(plain).max() if exact else 0.5 * before)
        assert before > 0.05 * np.abs(plain).max()


def known_without_mean(moved, clip):
    made = task(clip)
    each = zip(tables(), moved, LACKS, strict=True)
    moments = np.array([made.prepare(x + by, gone)["moment"] for x, by, gone in each])
    method = UnlikeReleases(made, None, Gaussian(0.0), (4000,) * SITES, lacks=LACKS)
    return method.known({"moments": moments}, np.arange(SITES)).moments[-1]
