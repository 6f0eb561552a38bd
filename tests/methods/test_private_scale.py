"""Private means and spreads: what is told of columns, what one unit can change of it, and what it costs."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from silograph.data.silos import People
from silograph.kernels.column_scale import OCTAVES, PLACES, place_cells, spread_cells, told_centres, told_spreads
from silograph.methods.private_graph import LikelyGraphs, ReleasedConsensus
from silograph.methods.private_scale import count_noise, share_needed, with_share
from silograph.methods.summed_graph import SummedConsensus
from silograph.methods.unlike_sites import UnlikeReleases, UnlikeSum
from silograph.privacy.accounting import cost, gaussian_multiplier
from silograph.privacy.door import Budget
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian, SharedGaussian
from silograph.run.loop import simulate
from silograph.tasks.column_scale import RawSignals
from silograph.tasks.smooth_graph import SmoothGraph

UNITS = np.array([1e-3, 0.2, 1.0, 40.0, 1e3, 1e5])
MEANS = UNITS * np.array([0.0, 300.0, -4.0, 20.0, 1.0, -100.0])


def tables(sites=4, rows=2000, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(sites, rows, 1))
    signals = 0.6 * common + 0.8 * rng.normal(size=(sites, rows, len(UNITS)))
    return {f"site{k}": MEANS + UNITS * own for k, own in enumerate(signals)}


@pytest.mark.parametrize("unit", [1e-12, 1.0, 3.7e9])
def test_without_noise_columns_are_told_in_any_unit_however_sorted(unit):
    rng = np.random.default_rng(1)
    x = unit * (np.sort(rng.normal(size=(20_000, 3)), axis=0) + np.array([0.0, -7.0, 200.0]))
    who = np.arange(len(x))
    spread, sure = told_spreads(spread_cells(x, who, rng.random(len(x))), 1e-9, np.full(3, len(x) // 2))
    centre, found = told_centres(place_cells(x, who, len(x), spread), spread, 1e-9)
    assert sure.all()
    assert found.all()
    assert np.abs(np.log2(spread / unit)).max() < 0.1
    assert np.abs(centre / unit - [0.0, -7.0, 200.0]).max() < 0.1


def test_columns_of_counts_and_of_0_and_1_get_their_mean_and_so_no_relation():
    """A mean that is told wrongly in two columns is a relation that is not there."""
    rng = np.random.default_rng(11)
    n = 20_000
    kinds = [
        rng.random(n) < 0.1,
        rng.random(n) < 0.5,
        rng.integers(0, 3, n),
        rng.integers(1, 8, n),
        rng.poisson(0.5, n),
    ]
    x, who = np.stack(kinds, 1).astype(float), np.arange(n)
    spread, _ = told_spreads(spread_cells(x, who, rng.random(n)), 1e-9, np.full(len(kinds), n // 2))
    centre, _ = told_centres(place_cells(x, who, n, spread), spread, 1e-9)
    assert np.abs((centre - x.mean(0)) / spread).max() < 0.05
    assert spread[:2] == pytest.approx([0.3, 0.5], rel=0.05)
    y = (x - centre) / spread
    assert np.abs(y.T @ y / n - np.cov(y.T)).max() < 0.01


def test_a_column_that_never_changes_and_one_too_far_from_zero_are_not_told():
    rng = np.random.default_rng(2)
    x = np.stack([np.full(5000, 3.0), rng.normal(size=5000), 5e4 + rng.normal(size=5000)], 1)
    who = np.arange(len(x))
    cells = spread_cells(x, who, rng.random(len(x))) + rng.normal(size=(3, OCTAVES))
    spread, sure = told_spreads(cells, 1.0, np.full(3, len(x) // 2))
    _, found = told_centres(place_cells(x, who, len(x), spread) + rng.normal(size=(3, PLACES)), spread, 1.0)
    assert sure.tolist() == [False, True, True]
    assert (sure & found).tolist() == [False, True, False]


def moved(task, one, other, spread, lacks=()):
    """How far another table moves what is counted, in units of the bound."""
    raw, order = RawSignals(task), np.random.default_rng(5).random((1, 400))
    held = [{name: value[None] for name, value in raw.prepare(table, lacks).items()} for table in (one, other)]
    counted = [[raw.spreads(own, order), raw.centres(own, spread)] for own in held]
    return max(float(np.linalg.norm(a.value - b.value) / a.l2[0]) for a, b in zip(*counted, strict=True))


@pytest.mark.parametrize("lacks", [(), (1, 3)])
@pytest.mark.parametrize("persons", [False, True])
def test_no_unit_moves_what_is_released_beyond_its_bound_whatever_its_gaps(persons, lacks):
    """Swaps of a row, or of all rows of a person, with any gaps and any size, at a site that lacks columns too; the
    worst of 60 comes near the bound of counts. Rows are scaled by whatever a server says before they are clipped."""
    rng, d, worst = np.random.default_rng(3), 5, 0.0
    task = SmoothGraph(d, "moment", person="who" if persons else None, common=(0, 2, 4) if lacks else None)

    def rows(n):
        values = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-80, 80, size=(n, d))
        values[:, list(lacks)] = np.nan
        return np.where(rng.random((n, d)) < rng.choice([0.0, 0.3, 0.9]), np.nan, values)

    for _ in range(60):
        units = int(rng.integers(2, 9))
        number = rng.integers(1, 5, size=units) if persons else np.ones(units, dtype=int)
        own = [rows(n) for n in number]
        victim = int(rng.integers(units))
        swapped = [rows(int(rng.integers(1, 5)) if persons else 1) if k == victim else x for k, x in enumerate(own)]
        made = []
        for each in (own, swapped):
            table = np.concatenate(each)
            who = np.repeat(np.arange(units), [len(x) for x in each])
            made.append(People(table, who) if persons else table)
        spread = 10.0 ** rng.uniform(-20, 20, size=(1, d))
        worst = max(worst, moved(task, *made, spread, lacks))
        centre = rng.normal(size=(1, d))
        told = [scaled_and_bounded(task, table, centre, spread, lacks) for table in made]
        assert np.linalg.norm(told[0].value - told[1].value) <= told[0].l2[0] * (1.0 + 1e-9)
    assert 0.8 * math.sqrt(1.0 - len(lacks) / d) < worst <= math.sqrt(1.0 - len(lacks) / d) * (1.0 + 1e-9)


def scaled_and_bounded(task, table, centre, spread, lacks):
    raw = RawSignals(task)
    held = {name: value[None] for name, value in raw.prepare(table, lacks).items()}
    return task.bounded(raw.statistic(held, centre, spread))


def test_the_share_is_for_the_column_that_fewest_rows_have():
    for which, rows in enumerate((600, 150)):
        method = methods(2.0, rows)[which]
        made = method.task, method.inner, method.mechanism, method.counts
        unlike = (UnlikeReleases, UnlikeSum)[which](*made, lacks=((2,), (2,), (), ()))
        assert 0.1 < share_needed(method) < share_needed(unlike)


@dataclass(frozen=True)
class Unlike:
    raw: RawSignals

    def prepare(self, given):
        return self.raw.prepare(*given)


def test_sites_that_lack_columns_are_told_the_scale_of_all():
    """One that two sites of four have is told too, by the rows of these two."""
    lacks = ((2,), (), (4,), (2,))
    given = tables()
    for own, gone in zip(given.values(), lacks, strict=True):
        own[:, list(gone)] = np.nan
    task, counts = SmoothGraph(len(UNITS), "moment", common=(0, 1, 3, 5)), (2000,) * 4
    whole = UnlikeReleases(task, LikelyGraphs(), Gaussian(gaussian_multiplier(4.0, 1e-6, 1)), counts, lacks=lacks)
    method = with_share(whole, share_needed(whole))
    named = {name: (own, gone) for (name, own), gone in zip(given.items(), lacks, strict=True)}
    found = simulate(method, Unlike(method.raw), named, method.inner.mechanism)[0]
    assert np.abs(np.log2(found.arrays["spread"] / UNITS)).max() < 0.6
    assert np.abs((found.arrays["centre"] - MEANS) / UNITS).max() < 0.5


def methods(epsilon, rows=2000, sites=4):
    task, multiplier = SmoothGraph(len(UNITS), "moment"), gaussian_multiplier(epsilon, 1e-6, 1)
    shape = (task, LikelyGraphs())
    counts = (rows,) * sites
    return ReleasedConsensus(*shape, Gaussian(multiplier), counts), SummedConsensus(
        *shape, SharedGaussian(multiplier), counts
    )


@pytest.mark.parametrize("which", [0, 1])
def test_the_whole_costs_the_budget_and_columns_are_told(which):
    whole = methods(2.0)[which]
    method = with_share(whole, share_needed(whole))
    masks, budget = Masks() if which else None, Budget(2.0, 1e-6)
    found, door = simulate(method, method.raw, tables(), method.inner.mechanism, budget, masks=masks)
    assert np.abs(np.log2(found.arrays["spread"] / UNITS)).max() < 0.6
    assert np.abs((found.arrays["centre"] - MEANS) / UNITS).max() < 0.5
    for name in tables():
        rows = door.ledger.of(name)
        assert [row.release_point for row in rows] == ["spreads", "centres", "moment"]
        assert cost(rows, 1e-6).epsilon == pytest.approx(2.0, rel=1e-3)
        assert cost(rows, 1e-6).epsilon <= 2.0 * (1 + 1e-9)


def test_the_share_is_small_where_rows_are_many_and_none_is_enough_where_they_are_few():
    for few, many in zip(methods(1.0, rows=50), methods(4.0, rows=20_000), strict=True):
        assert share_needed(few) > 1.0
        assert share_needed(many) == 0.1


def test_noise_is_what_was_said():
    """In the ledger and to whoever reads the counts."""
    method = with_share(methods(2.0)[0], 0.2)
    silent = {f"site{k}": np.zeros((2000, len(UNITS))) for k in range(4)}
    _, door = simulate(method, method.raw, silent, method.inner.mechanism)
    noise = method.inner.mechanism.sampled(method.share).deviation(math.sqrt(2 * len(UNITS)), 1)
    assert all(row.noise == pytest.approx(noise, rel=1e-5) for row in door.ledger.of("site0")[:2])
    assert count_noise(method.inner, method.share, 4) == pytest.approx(2.0 * noise, rel=1e-5)


def test_a_column_without_a_scale_has_no_edges_and_drowns_none():
    constant = {name: np.where(np.arange(6) == 2, 7e6, own) for name, own in tables().items()}
    whole = methods(4.0)[0]
    method = with_share(whole, share_needed(whole))
    found = simulate(method, method.raw, constant, method.inner.mechanism)[0]
    a, b = np.triu_indices(6, 1)
    assert found.facts["untold"] == [2]
    assert not found.arrays["consensus"][(a == 2) | (b == 2)].any()
    assert found.arrays["consensus"][(a != 2) & (b != 2)].any()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("which", [0, 1])
def test_columns_of_0_and_1_get_their_true_spread_also_if_nobody_knows_what_they_hold(which, known):
    """Differences of 0 and 1 are all in one octave, whatever the share of ones; a spread of a normal law with such
    differences would be twice too large, and two such columns would seem to be alike."""
    rng, ones = np.random.default_rng(4), np.array([0.5, 0.3, 0.15])
    given = tables()
    for own in given.values():
        own[:, 3:] = rng.random((len(own), 3)) < ones
    whole = methods(4.0)[which]
    method = replace(with_share(whole, share_needed(whole)), binary=(3, 4, 5) if known else ())
    found = simulate(method, method.raw, given, method.inner.mechanism, masks=Masks() if which else None)[0]
    spread = found.arrays["spread"]
    assert spread[3:] == pytest.approx(np.sqrt(ones * (1.0 - ones)), rel=0.15)
    assert np.abs(np.log2(spread[:3] / UNITS[:3])).max() < 0.6


def test_a_level_that_never_occurs_keeps_a_spread():
    given = {name: np.where(np.arange(6) == 5, 0.0, own) for name, own in tables().items()}
    whole = methods(4.0)[0]
    method = replace(with_share(whole, share_needed(whole)), binary=(5,))
    found = simulate(method, method.raw, given, method.inner.mechanism)[0]
    assert 0.2 < found.arrays["spread"][5] < 0.3
    assert found.arrays["consensus"].max() < np.inf
