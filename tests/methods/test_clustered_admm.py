"""Clustered models: cells, schedules of noise, and bounds that hold whatever the server sends."""

import math
from dataclasses import replace

import numpy as np
import pytest

from clusters import (
    CLUSTERS,
    DELTA,
    EPSILON,
    FEATURES,
    MOST,
    cases,
    changed,
    data_of,
    engine_of,
    named,
    plain,
    run,
    topology,
)
from silograph.core.errors import BudgetError, InputError, LeakError
from silograph.methods.base import advance, begin
from silograph.privacy.accounting import gaussian_epsilon, zcdp, zcdp_epsilon
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian, leakage_decay, variance_decay
from silograph.privacy.observers import OTHER_SERVERS
from silograph.privacy.relay import relay
from silograph.privacy.released import Released
from silograph.tasks.clustered import Linearised, Proximal
from silograph.theory.clustered_admm import leakage, sensitivity

RECORDS = [case.name for case in cases() if case.method.protect == "records"]


def same(one, other):
    for name, value in one.arrays.items():
        np.testing.assert_array_equal(value, other.arrays[name], err_msg=name)
    assert one.facts == other.facts


def test_a_cell_below_the_minimum_is_never_added_up():
    """south has one client of cluster 1, and three are the minimum; west has only cluster 1, all four of it."""
    for name in ("masks", "clients, masks"):
        ran = run(named(name))
        told = {row.silo for row in ran.door.ledger.rows if row.release_point == "step"}
        cells = {f"{server}/cluster-{q}" for server in ("east", "north", "south", "west") for q in range(3)}
        few = {"east/cluster-1", "east/cluster-2", "north/cluster-2", "south/cluster-1"}
        assert told == cells - few - {"west/cluster-0", "west/cluster-2"}
        assert np.abs(ran.outcome.arrays["cluster_model"][3, 0]).max() > 0.0  # it hears of it from its neighbours


def test_the_outcome_is_what_may_be_known():
    """Exact models without privacy; what was released where records are protected; cells' where clients are."""
    ran = run(named("ridge"))
    np.testing.assert_array_equal(ran.outcome.arrays["model"], ran.states[-1].carry["model"])
    assert ran.outcome.arrays["cluster_model"].shape == (4, 3, FEATURES)
    ran = run(named("records, huber"))
    released = ran.states[-1].carry["model"]
    assert isinstance(released, Released)
    assert isinstance(ran.states[-1].carry["sent"], Released)
    np.testing.assert_array_equal(ran.outcome.arrays["model"], released.value)
    assert not [row for row in ran.door.ledger.rows if row.mechanism == "reveal"]
    for name in ("masks", "clients, masks", "clients, trusted server"):
        ran = run(named(name))
        cells = ran.outcome.arrays["cluster_model"][ran.topo.home, list(CLUSTERS)]
        np.testing.assert_array_equal(ran.outcome.arrays["model"], cells)
        assert not set(ran.topo.silos) & {row.silo for row in ran.door.ledger.rows}


# ---- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["variance_decay", "leakage_decay"])
def test_zcdp_adds_up_over_the_rounds_a_client_really_took_part_in(schedule):
    first, decay = 0.02, 0.8
    mechanism = {
        "variance_decay": variance_decay(1.0 / math.sqrt(2.0 * first), decay),
        "leakage_decay": leakage_decay(first, decay),
    }[schedule]
    topo = topology()
    away = {name: set(range(k % 7)) for k, name in enumerate(topo.silos)}
    case = replace(changed(named("records, huber"), rounds=12, sample=3), mechanism=mechanism, budget=None)
    ran = run(case, present=lambda t: [name for name in topo.silos if t not in away[name]])
    took, states = {name: [] for name in topo.silos}, [begin(case.method, topo), *ran.states]
    for t, state in enumerate(states[:-1]):
        for k in case.method.asked(state.servers, topo):
            if t not in away[topo.silos[k]]:
                took[topo.silos[k]].append(t)
    assert len({len(times) for times in took.values()}) > 3
    for name, times in took.items():
        rows = ran.door.ledger.of(name)
        assert [row.round for row in rows] == times
        assert zcdp(rows) == pytest.approx(leakage(schedule, first, decay, times), rel=1e-9)
        if times:
            spent = ran.door.spent(name, DELTA)
            assert spent.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2.0 * zcdp(rows)), DELTA))


def test_the_papers_totals_are_those_of_two_different_schedules():
    """.001 and .99 over rounds 0 to 299: .095 if leakage decays, 1.920 (from round 1 on 1.939) if the variance does."""
    falls, grows = leakage_decay(0.001, 0.99), variance_decay(1.0 / math.sqrt(0.002), 0.99)

    def total(schedule, times):
        return sum(0.5 / schedule.at(n).multiplier ** 2 for n in times)

    assert total(falls, range(300)) == pytest.approx(0.0951, abs=5e-5)
    assert total(grows, range(300)) == pytest.approx(1.9197, abs=5e-5)
    assert total(grows, range(1, 301)) == pytest.approx(1.939, abs=5e-4)
    assert zcdp_epsilon(0.0951, 1e-5) == pytest.approx(1.86, abs=6e-3)
    assert falls.at(0).multiplier == pytest.approx(grows.at(0).multiplier)
    for schedule in (leakage_decay, variance_decay):
        for wrong in ((0.001, 0.0), (0.001, 1.1), (0.001, math.nan), (0.0, 0.9), (-1.0, 0.9), (math.inf, 0.9)):
            with pytest.raises(InputError, match="noise schedule"):
                schedule(*wrong)


def test_a_ledger_row_says_what_its_clients_noise_was_for():
    ran = run(named("records, huber"))
    method, data = named("records, huber").method, data_of(named("records, huber"))
    for row in ran.door.ledger.rows:
        expected = sensitivity(0.5 * 1.5, method.rho, len(data[row.silo][1]))  # delta times the radius
        assert row.l2 == pytest.approx(expected, rel=1e-5)
        assert (row.protected_unit, row.relation, row.observer) == (
            "one record (one row of a silo's table)",
            "replace-one",
            "server",
        )
        assert "Lemma 1 of S2" in row.why


# ---- without noise, nothing changes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDS)
def test_without_noise_protected_records_are_the_plain_method(name):
    case = replace(named(name), mechanism=Gaussian(0.0), budget=None)
    bare = replace(changed(case, protect="none"), mechanism=None)
    for key in ("model", "cluster_model"):
        np.testing.assert_allclose(run(case).outcome.arrays[key], run(bare).outcome.arrays[key], atol=1e-5)


def test_without_noise_protected_clients_are_the_plain_method():
    """A clip nobody reaches; cells below the minimum cohort are left out, so none is where masks are."""
    clusters = tuple(0 if k < 13 else 1 for k in range(26))
    bare = run(changed(named("ridge"), sample=None, clusters=clusters))
    for name, mechanism in (("clients, trusted server", Gaussian(0.0)), ("masks", None)):
        silent = replace(changed(named(name), clip=50.0, clusters=clusters), mechanism=mechanism, budget=None)
        np.testing.assert_allclose(
            run(silent).outcome.arrays["cluster_model"], bare.outcome.arrays["cluster_model"], atol=1e-3
        )


def test_skipping_the_masks_changes_no_bit():
    one, other = run(named("clients, masks")), run(named("clients, masks skipped"))
    same(one.outcome, other.outcome)
    assert [row.digest for row in one.door.ledger.rows] == [row.digest for row in other.door.ledger.rows]


# ---- nobody moves a release further than its bound -------------------------------------------------------------------


class Watch(Door):
    """Keeps what gates were given to release."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.inside = []

    def gate(self, silos, round, observer="server"):
        return self._watched(super().gate(silos, round, observer))

    def _watched(self, gate):
        release, over, rows = gate.release, gate.over, gate.rows

        def watched(bounded, release_point):
            self.inside.append(bounded)
            return release(bounded, release_point)

        gate.release = watched
        gate.over = lambda names: self._watched(over(names))
        gate.rows = lambda index: self._watched(rows(index))
        return gate


def inside(case, data, state):
    """What is released in one more round from this state, before the noise."""
    topo, door = topology(), Watch(5, Ledger(), Gaussian(1.0))
    place = engine_of(case, data, topo, door)
    everybody = np.arange(len(topo.silos))
    advance(
        case.method,
        state,
        topo,
        door.gate(topo.servers, state.round, OTHER_SERVERS),
        lambda now: place.local(case.method, now, everybody),
    )
    return door.inside[0]


@pytest.mark.parametrize("size", [1e4, 1e8, 1e10])
@pytest.mark.parametrize("name", RECORDS)
def test_the_bound_holds_however_long_a_dual_the_server_sends(name, size):
    """Rounding of the dual moves a model as a record does. What Lemma 1 and a millionth of it allow is not enough."""
    case, rng = changed(named(name), sample=None), np.random.default_rng(1)
    data, topo, over = data_of(case), topology(), 0.0
    begun, largest = begin(case.method, topo), case.method.task.largest
    for _ in range(12):
        other = {}
        for silo, (x, y) in data.items():
            other[silo] = (x.copy(), y.copy())
            other[silo][0][0] = -x[0]
        dual = relay(size * rng.choice([-1.0, 1.0], (len(topo.silos), FEATURES)) * rng.random(FEATURES))
        state = replace(begun, down={**begun.down, "answer": dual})
        one, two = inside(case, data, state), inside(case, other, state)
        moved = np.linalg.norm(one.value - two.value, axis=1)
        assert (moved <= one.l2).all()
        count = np.array([len(y) for _, y in data.values()])
        over = max(over, (moved / (2.0 * largest / (case.method.rho * count))).max())
    if size == 1e10 and "linearised" in name:
        assert over > 1.0 + 1e-6  # the broken twin: no slack for the dual


def test_a_clip_that_is_not_performed_is_caught():
    """Broken twin: rows that are longer than the radius that the sensitivity was computed for."""
    case, rng = changed(named("records, huber"), sample=None), np.random.default_rng(0)

    class Unclipped(Proximal):
        @property
        def largest(self):
            return 0.5 * 1.5

    broken = changed(case, task=Unclipped(FEATURES, MOST, "huber", 0.5))
    data, start = data_of(case), begin(case.method, topology())
    other = {}
    for silo, (x, y) in data.items():
        x, y = x.copy(), y.copy()
        x[0], y[0] = 5.0 * rng.normal(size=FEATURES), 100.0
        other[silo] = (x, y)
    base, changed_ = inside(broken, data, start), inside(broken, other, start)
    assert (np.linalg.norm(base.value - changed_.value, axis=1) > base.l2).any()


# ---- nothing gets past the gate --------------------------------------------------------------------------------------


def test_protected_clients_need_noise_and_masks_need_a_clip():
    with pytest.raises(LeakError, match="a mechanism"):
        run(replace(named("clients, trusted server"), mechanism=None))
    with pytest.raises(LeakError, match="clipped vectors"):
        run(changed(named("masks"), clip=None))


def test_a_budget_that_trusts_nobody_refuses_differences_in_the_clear():
    with pytest.raises(BudgetError):
        run(replace(named("clients, trusted server"), budget=Budget(EPSILON, DELTA)))


def test_without_protection_one_row_a_cell_and_one_a_server():
    ran = run(replace(named("ridge"), method=plain(sample=None)))
    rows = [row for row in ran.door.ledger.rows if row.round == 0]
    assert sorted(row.silo for row in rows if row.release_point == "step") == [
        "east/cluster-0", "east/cluster-1", "east/cluster-2", "north/cluster-0", "north/cluster-1",
        "south/cluster-0", "south/cluster-1", "south/cluster-2", "west/cluster-1",
    ]  # fmt: skip
    assert [row.silo for row in rows if row.release_point == "sent"] == ["east", "north", "south", "west"]


def test_a_linearised_step_releases_the_gradient_it_was_clipped_for():
    """The largest difference a record can make is met exactly: 2 C / (rho D)."""
    task = Linearised(FEATURES, MOST, clip=1.2)
    x = np.zeros((4, FEATURES))
    x[0, 0] = 1.0
    pair = [task.prepare((x, np.array([sign * 1e6, 0.0, 0.0, 0.0]))) for sign in (1.0, -1.0)]
    data = {name: np.stack([part[name] for part in pair]) for name in pair[0]}
    zeros = np.zeros((2, FEATURES))
    up, down = task.step(zeros, zeros, 6.0, np.zeros(2), data)
    assert np.linalg.norm(up - down) == pytest.approx(sensitivity(1.2, 6.0, 4), rel=1e-8)
