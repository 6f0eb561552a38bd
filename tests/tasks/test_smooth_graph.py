"""What a silo may release: how far one record can move it, searched for by an adversary."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from silograph.data.silos import People
from silograph.kernels.edges import squared_distances
from silograph.privacy.bound import clip_rows
from silograph.tasks.smooth_graph import (
    SmoothGraph,
    at_their_level,
    centred_basis,
    distances_of,
    from_coordinates,
    to_coordinates,
)
from support import all_but

RECORDS = 3  # the others in the silo; what they are does not matter to a mean


# ---- the basis and the coordinates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 3, 8, 50])
def test_centred_basis_is_orthonormal_and_sums_to_zero(nodes):
    basis = centred_basis(nodes)
    np.testing.assert_allclose(basis.T @ basis, np.eye(nodes - 1), atol=1e-13)
    np.testing.assert_allclose(basis.sum(0), 0.0, atol=1e-13)
    np.testing.assert_allclose(basis @ basis.T, np.eye(nodes) - 1.0 / nodes, atol=1e-13)
    assert not basis.flags.writeable  # it is shared by all who ask


def symmetric(rng, m):
    x = rng.standard_normal((m, m))
    return x + x.T


@pytest.mark.parametrize("nodes", [2, 3, 6, 20])
def test_coordinates_and_back(nodes):
    rng = np.random.default_rng(nodes)
    moments = np.stack([symmetric(rng, nodes - 1) for _ in range(4)])
    coordinates = np.stack([to_coordinates(moment) for moment in moments])
    assert coordinates.shape == (4, nodes * (nodes - 1) // 2)
    np.testing.assert_allclose(from_coordinates(coordinates), moments, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(from_coordinates(coordinates[1]), moments[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nodes", [3, 6, 20])
def test_coordinates_are_an_isometry_but_for_the_trace(nodes):
    m, rng = nodes - 1, np.random.default_rng(nodes)
    first, second = symmetric(rng, m), symmetric(rng, m)
    traceless = [x - np.trace(x) / m * np.eye(m) for x in (first, second)]
    one, two = (to_coordinates(x) for x in traceless)
    np.testing.assert_allclose(one @ two, (traceless[0] * traceless[1]).sum(), rtol=1e-12)
    whole = to_coordinates(first)
    expected = (traceless[0] ** 2).sum() + nodes * np.trace(first) ** 2 / m  # the trace, sqrt(d) times as long
    np.testing.assert_allclose(whole @ whole, expected, rtol=1e-12)


def test_noise_on_the_coordinates_is_the_noise_the_pipeline_counts_on():
    """White noise e on the coordinates is E - (tr E / m)(1 - 1/sqrt d) I with E_aa = e, E_ab = e / sqrt 2."""
    nodes, m = 6, 5
    e = np.random.default_rng(0).standard_normal(15)
    expected = np.diag(e[:m])
    expected[np.triu_indices(m, 1)] = e[m:] / math.sqrt(2.0)
    expected = np.triu(expected) + np.triu(expected, 1).T
    expected -= np.trace(expected) / m * (1.0 - 1.0 / math.sqrt(nodes)) * np.eye(m)
    np.testing.assert_allclose(from_coordinates(e), expected, rtol=1e-13)


def test_distances_follow_from_the_moment():
    signals = np.random.default_rng(1).standard_normal((40, 7)) + 3.0
    data = SmoothGraph(7, "moment", clip=1e6).prepare(signals)
    z = distances_of(from_coordinates(data["moment"][None]), 7)[0]
    np.testing.assert_allclose(z, squared_distances(signals), rtol=1e-10)


def test_clipped_distances_are_plain_ones_while_nothing_is_clipped():
    signals = np.random.default_rng(2).standard_normal((40, 7))
    plain = SmoothGraph(7).prepare(signals)["zbar"]
    np.testing.assert_allclose(
        SmoothGraph(7, "clipped-distances", clip=1e6).prepare(signals)["zbar"], plain, rtol=1e-10
    )


def test_clipped_distances_clip_each_signal_and_go_in_blocks():
    signals = np.random.default_rng(3).standard_normal((9000, 40)) * 3.0  # 780 pairs: two blocks
    a, b = np.triu_indices(40, 1)
    expected = np.zeros(780)
    for x in signals:
        z = (x[a] - x[b]) ** 2
        expected += z / max(1.0, np.linalg.norm(z) / 300.0)
    found = SmoothGraph(40, "clipped-distances", clip=300.0).prepare(signals)["zbar"]
    np.testing.assert_allclose(found, expected / 9000, rtol=1e-7)


@pytest.mark.parametrize("statistic", ["distances", "clipped-distances", "moment"])
def test_what_all_nodes_share_is_not_seen(statistic):
    task = SmoothGraph(6, statistic, clip=None if statistic == "distances" else 4.0)
    signals = np.random.default_rng(4).standard_normal((12, 6))
    one, other = task.prepare(signals), task.prepare(signals + np.arange(12.0)[:, None])
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-9)


def test_forbidden_edges_cost_infinitely_much_and_the_others_what_they_did():
    signals = np.random.default_rng(8).standard_normal((10, 5))
    plain = SmoothGraph(5).prepare(signals)["zbar"]
    walled = SmoothGraph(5, candidates=all_but(5, 0, 7)).prepare(signals)["zbar"]
    np.testing.assert_array_equal(np.flatnonzero(walled == np.inf), [0, 7])
    np.testing.assert_array_equal(np.delete(walled, [0, 7]), np.delete(plain, [0, 7]))


def test_without_a_clip_signals_count_by_direction_only():
    task = SmoothGraph(5, "moment")
    signals = np.random.default_rng(5).standard_normal((10, 5))
    louder = signals * np.geomspace(1e-6, 1e6, 10)[:, None]
    np.testing.assert_allclose(task.prepare(louder)["moment"], task.prepare(signals)["moment"], rtol=1e-7)
    moment = from_coordinates(task.prepare(signals)["moment"])
    np.testing.assert_allclose(np.trace(moment), 1.0, rtol=1e-8)


def test_plain_distances_have_no_bound():
    task = SmoothGraph(4)
    data = {name: value[None] for name, value in task.prepare(np.ones((3, 4))).items()}
    with pytest.raises(AssertionError, match="no bound"):
        task.bounded(data)


# ---- the sensitivity -------------------------------------------------------------------------------------------------


def moved(task, first, second, others):
    """How far replacing `first` by `second` moves what would be released, in units of the bound."""
    bounded = []
    for record in (first, second):
        data = task.prepare(np.vstack([others, record]))
        bounded.append(task.bounded({name: np.asarray(value)[None] for name, value in data.items()}))
    assert bounded[0].l2[0] == bounded[1].l2[0]
    return float(np.linalg.norm(bounded[0].value - bounded[1].value) / bounded[0].l2[0])


def worst(task, seed=0, restarts=12, climb=True):
    """The worst swap an adversary finds: structured records first, then random ones, climbed from the best of each."""
    rng = np.random.default_rng(seed)
    d, size = task.nodes, 10.0 * (task.clip or 1.0)
    others = rng.standard_normal((RECORDS, d))
    axes = np.eye(d)[:4]
    basis = centred_basis(d).T[[0, -1]]
    structured = [np.zeros(d), *(size * basis), *(-size * basis), *(size * axes), 1e-3 * basis[0], 1e60 * axes[0]]
    found = [(moved(task, x, y, others), x, y) for i, x in enumerate(structured) for y in structured[:i]]
    for _ in range(restarts):
        x, y = rng.standard_normal((2, d)) * size * 10.0 ** rng.uniform(-2, 1, (2, 1))
        found.append((moved(task, x, y, others), x, y))
    found.sort(key=lambda swap: -swap[0])
    best = found[0][0]
    if climb:
        for _, x, y in [found[0], *found[-3:]]:
            start = np.clip(np.concatenate([x, y]), -1e3 * size, 1e3 * size)
            goal = minimize(
                lambda xy: -moved(task, xy[:d], xy[d:], others), start, method="Powell", options={"maxfev": 400}
            )
            best = max(best, -goal.fun)
    return best


TASKS = {
    "moment, clipped": SmoothGraph(5, "moment", clip=0.7),
    "moment, clipped, large": SmoothGraph(5, "moment", clip=1e5),
    "moment, scaled": SmoothGraph(5, "moment"),
    "moment, many nodes": SmoothGraph(40, "moment", clip=2.0),
    "moment and mean, clipped": SmoothGraph(5, "moment", clip=0.7, with_mean=True),
    "moment and mean, scaled": SmoothGraph(5, "moment", with_mean=True),
    "distances": SmoothGraph(5, "clipped-distances", clip=3.0),
    "distances, many nodes": SmoothGraph(60, "clipped-distances", clip=3.0),
}


@pytest.mark.parametrize("name", TASKS)
def test_one_record_never_moves_the_release_further_than_its_bound(name):
    assert worst(TASKS[name], climb=TASKS[name].nodes < 10) <= 1.0


@pytest.mark.parametrize("name", [name for name in TASKS if name.startswith("moment")])
def test_the_bound_on_the_moment_is_tight(name):
    assert worst(TASKS[name], climb=False) >= 0.99


def test_the_bound_on_distances_is_tight_for_many_nodes():
    """Two signals that each single out one node share one pair of d - 1: sqrt(1 - 1/(d-1)) of the bound."""
    found = worst(TASKS["distances, many nodes"], climb=False)
    assert found >= 0.99
    np.testing.assert_allclose(found, math.sqrt(1.0 - 1.0 / 59.0), rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds_in_a_silo_of_many_records(seed):
    """The bound shrinks with 1/N and must leave room for the rounding of a long sum."""
    rng = np.random.default_rng(seed)
    others = rng.standard_normal((20000, 6)) * 3.0
    for task in (
        SmoothGraph(6, "moment", clip=1.0),
        SmoothGraph(6, "moment"),
        SmoothGraph(6, "clipped-distances", clip=2.0),
    ):
        x, y = 1e3 * np.eye(6)[:2]
        assert 0.8 <= moved(task, x, y, others) <= 1.0
        assert moved(task, x, np.zeros(6), others) <= 1.0


@pytest.mark.parametrize("size", [1e150, 1e200])
@pytest.mark.parametrize("name", ["moment, clipped", "moment, scaled", "distances"])
def test_an_absurd_record_neither_breaks_the_bound_nor_the_run(name, size):
    """Whether a silo fails may not depend on one record: squares of these overflow."""
    task, others = TASKS[name], np.random.default_rng(7).standard_normal((RECORDS, 5))
    assert moved(task, size * np.eye(5)[0], np.zeros(5), others) <= 1.0


class StretchedTooFar(SmoothGraph):
    """A broken twin: the trace 1.3 sqrt(d) instead of sqrt(d) times as long."""

    def prepare(self, signals):
        data = super().prepare(signals)
        m = self.nodes - 1
        data["moment"][:m] += 0.3 * data["moment"][:m].mean()
        return data


class NotClipped(SmoothGraph):
    """A broken twin: the bound of a clip that was not performed."""

    def prepare(self, signals):
        y = signals @ centred_basis(self.nodes)
        return {"moment": to_coordinates(y.T @ y / len(y)), "count": np.array(float(len(y)))}


class MeanClipped(SmoothGraph):
    """A broken twin: the mean clipped instead of each record."""

    def prepare(self, signals):
        return {"zbar": clip_rows(squared_distances(signals), self.clip), "count": np.array(float(len(signals)))}


@pytest.mark.parametrize(
    "twin",
    [
        StretchedTooFar(5, "moment", clip=0.7),
        StretchedTooFar(40, "moment", clip=0.7),
        StretchedTooFar(5, "moment"),
        NotClipped(5, "moment", clip=0.7),
        MeanClipped(5, "clipped-distances", clip=3.0),
    ],
    ids=lambda twin: f"{type(twin).__name__}-{twin.nodes}-{twin.clip}",
)
def test_broken_twins_are_caught(twin):
    assert worst(twin, climb=False) > 1.05


def test_stretching_by_less_would_give_accuracy_away():
    """sqrt(d) is the largest stretch that is free: with it both kinds of worst swap reach the bound."""
    task = TASKS["moment, clipped"]
    others = np.random.default_rng(6).standard_normal((RECORDS, 5))
    x, y = 10.0 * centred_basis(5).T[:2]
    assert moved(task, x, y, others) >= 0.999  # orthogonal records: no trace involved
    assert moved(task, x, np.zeros(5), others) >= 0.999  # a record against none: the trace does the rest


# ---- persons instead of signals --------------------------------------------------------------------------------------


def people(*signals):
    """One argument a person: (signals, nodes)."""
    return People(np.vstack(signals), np.repeat(np.arange(len(signals)), [len(x) for x in signals]))


def moved_by_person(task, first, second, others):
    bounded = []
    for person in (first, second):
        data = task.prepare(people(*others, person))
        bounded.append(task.bounded({name: np.asarray(value)[None] for name, value in data.items()}))
    assert bounded[0].l2[0] == bounded[1].l2[0] == math.sqrt(2.0) * task.radius**2 / (len(others) + 1)
    return float(np.linalg.norm(bounded[0].value - bounded[1].value) / bounded[0].l2[0])


def worst_person(task, seed=0, tries=60):
    """Persons with one signal or many, alike or not, long or short."""
    rng, d = np.random.default_rng(seed), task.nodes
    size = 10.0 * (task.clip or 1.0)
    others = [rng.standard_normal((k, d)) for k in (1, 4, 2)]
    axes = size * centred_basis(d).T
    structured = [
        np.zeros((2, d)),
        axes[:1],
        axes[1:2],
        np.repeat(axes[:1], 7, 0),
        axes,
        1e60 * axes[-1:],
        axes[:1] / 1e3,
    ]
    swaps = [(x, y) for i, x in enumerate(structured) for y in structured[:i]]
    for _ in range(tries):
        shapes = rng.integers(1, 9, 2)
        swaps.append(tuple(rng.standard_normal((k, d)) * size * 10.0 ** rng.uniform(-2, 1, (k, 1)) for k in shapes))
    return max(moved_by_person(task, x, y, others) for x, y in swaps)


PERSONS = [
    SmoothGraph(5, "moment", 0.7, person="who"),
    SmoothGraph(5, "moment", person="who"),
    SmoothGraph(5, "moment", 0.7, person="who", with_mean=True),
    SmoothGraph(5, "moment", person="who", with_mean=True),
]
_KINDS = ["clipped", "scaled", "clipped, with mean", "scaled, with mean"]


@pytest.mark.parametrize("task", PERSONS, ids=_KINDS)
def test_one_person_never_moves_the_release_further_than_the_bound_which_is_tight(task):
    assert 0.99 <= worst_person(task) <= 1.0


@pytest.mark.parametrize("size", [1e150, 1e200])
@pytest.mark.parametrize("task", PERSONS, ids=_KINDS)
def test_an_absurd_person_breaks_neither_bound_nor_run(task, size):
    others = [np.random.default_rng(7).standard_normal((3, 5))] * 2
    assert moved_by_person(task, size * np.eye(5)[:2], np.zeros((1, 5)), others) <= 1.0


class SignalsClipped(SmoothGraph):
    """A broken twin: signals are clipped and added up, and the sum is divided by the number of persons."""

    def prepare(self, signals):
        y = clip_rows(signals.rows @ centred_basis(self.nodes), self.radius)
        return {"moment": to_coordinates(y.T @ y / len(signals)), "count": np.array(float(len(signals)))}


def test_a_person_with_many_signals_catches_the_twin_that_counts_signals():
    assert worst_person(SignalsClipped(5, "moment", 0.7, person="who")) > 1.5


@pytest.mark.parametrize("clip", [0.7, None])
def test_persons_with_one_signal_each_are_signals(clip):
    signals = np.random.default_rng(9).standard_normal((30, 5))
    one = SmoothGraph(5, "moment", clip).prepare(signals)
    other = SmoothGraph(5, "moment", clip, person="who").prepare(people(*signals[:, None]))
    np.testing.assert_allclose(one["moment"], other["moment"], rtol=1e-7)
    assert one["count"] == other["count"] == 30.0


def test_a_person_counts_once_however_many_signals_it_has():
    rng = np.random.default_rng(10)
    few, many = rng.standard_normal((2, 5)), rng.standard_normal((3, 5))
    task = SmoothGraph(5, "moment", 100.0, person="who")
    found = from_coordinates(task.prepare(people(few, np.repeat(many, 4, 0)))["moment"])
    mean = 0.5 * (few.T @ few / 2 + many.T @ many / 3)
    basis = centred_basis(5)
    np.testing.assert_allclose(found, basis.T @ mean @ basis, rtol=1e-7, atol=1e-9)


def test_the_ledger_is_told_who_is_protected():
    task = PERSONS[0]
    data = {name: np.asarray(value)[None] for name, value in task.prepare(people(np.ones((2, 5)))).items()}
    assert task.bounded(data).protected_unit == "one person of one site: all signals with the same 'who'"


# ---- rows with gaps --------------------------------------------------------------------------------------------------


def gappy(rng, rows, share=0.4):
    """Any pattern: nothing missing, some, all but one, everything."""
    gone = rng.random(rows.shape) < rng.choice([0.0, share, 1.0 - 1.0 / rows.shape[-1], 1.0], (*rows.shape[:-1], 1))
    return np.where(gone, np.nan, rows)


def worst_with_gaps(task, seed=0, tries=400):
    rng, d = np.random.default_rng(seed), task.nodes
    size = 10.0 * (task.clip or 1.0)
    others = gappy(rng, size * rng.standard_normal((8, d)))
    others[0] = [*2 * [size, -size], *(d - 4) * [np.nan]]
    first, second = np.full((2, d), np.nan)
    first[:2], second[2:4] = (size, -size), (size, -size)  # each other's gaps: orthogonal
    found = [moved(task, first, second, others), moved(task, first, np.full(d, np.nan), others)]
    for _ in range(tries):
        x, y = gappy(rng, rng.standard_normal((2, d)) * size * 10.0 ** rng.uniform(-2, 3, (2, 1)))
        found.append(moved(task, x, y, others))
    return max(found)


@pytest.mark.parametrize("with_mean", [False, True])
@pytest.mark.parametrize("clip", [0.7, None, 1e5])
def test_a_row_with_any_gaps_never_moves_the_release_further_than_the_bound_which_is_tight(clip, with_mean):
    assert 0.99 <= worst_with_gaps(SmoothGraph(6, "moment", clip, with_mean=with_mean)) <= 1.0


@pytest.mark.parametrize("person", [None, "who"])
@pytest.mark.parametrize("clip", [None, 100.0])
def test_with_the_mean_beside_it_a_moment_is_the_covariance_of_rows(clip, person):
    """Wherever the columns lie; of rows scaled to length 1, or of persons' rows, of what is left of them then."""
    rng = np.random.default_rng(13)
    rows = rng.standard_normal((300, 5)) + np.array([0.0, 3.0, -1.0, 0.5, 8.0])
    beside = SmoothGraph(5, "moment", clip, person=person, with_mean=True)
    released = beside.prepare(rows if person is None else People(rows, np.arange(300) // 3))["moment"]
    assert len(released) == beside.moment_size
    found = beside.back @ beside.around_mean(from_coordinates(released)) @ beside.back.T
    left = np.ones((300, 1))
    if clip is None:
        squares = ((rows - 0.5 * rows.mean(1, keepdims=True)) ** 2).sum(1)
        if person is not None:  # a person's rows are scaled by one number
            squares = np.repeat(squares.reshape(-1, 3).mean(1), 3)
        left = 1.0 / np.sqrt(squares)[:, None]
    np.testing.assert_allclose(found, np.cov((left * rows).T, bias=True), atol=1e-8 * (clip or 1.0) ** 2)


@pytest.mark.parametrize("task", PERSONS, ids=_KINDS)
def test_a_person_with_any_gaps_never_moves_it_further_either(task):
    rng, size = np.random.default_rng(11), 10.0 * (task.clip or 1.0)
    others = [gappy(rng, size * rng.standard_normal((k, 5))) for k in (1, 4, 2)]
    for _ in range(200):
        x, y = (gappy(rng, size * 10.0 ** rng.uniform(-2, 2) * rng.standard_normal((k, 5))) for k in (1, 3))
        assert moved_by_person(task, x, y, others) <= 1.0


class FilledByColumns(SmoothGraph):
    """A broken twin: gaps are filled by the mean of their column, so that one row moves others."""

    def prepare(self, signals):
        with np.errstate(all="ignore"):
            seen = ~np.isnan(signals)
            mean = np.where(seen, signals, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
        return super().prepare(np.where(seen, signals, mean))


@pytest.mark.parametrize("clip", [0.7, None])
def test_the_twin_that_fills_gaps_by_columns_is_caught(clip):
    assert worst_with_gaps(FilledByColumns(6, "moment", clip)) > 1.5


def test_a_gap_adds_nothing_and_complete_rows_stay_as_they_are():
    rows = np.random.default_rng(12).standard_normal((6, 5))
    holes = rows.copy()
    holes[1, 2:4] = np.nan
    filled = at_their_level(holes)
    np.testing.assert_array_equal(np.delete(filled, 1, 0), np.delete(rows, 1, 0))
    centred = filled[1] - filled[1].mean()
    np.testing.assert_allclose(centred[2:4], 0.0, atol=1e-15)
    assert at_their_level(rows) is rows
    assert not at_their_level(np.full((2, 5), np.nan)).any()
