"""What must hold for graph federation in every mode: the contracts of `test_methods`, for agents who are added up."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from federations import DELTA, EPSILON, FEATURES, ROUNDS, SIZES, cases, door_of, engine_of, records, run, topology
from silograph.core.errors import BudgetError, InputError, LeakError, SilenceError
from silograph.methods.base import advance, begin
from silograph.privacy.gate import OTHER_SERVERS, OWN_SERVER, Budget, Door, Sealed, check_message
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian
from silograph.run.loop import ENGINES, rounds
from silograph.run.store import RunFolder

every = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
private = pytest.mark.parametrize("case", [c for c in cases() if c.private], ids=lambda case: case.name)


def named(name):
    return next(case for case in cases() if case.name == name)


@every
def test_engines_agree_bit_for_bit_noise_and_ledger_included(case):
    one, other = run(case, engine="vector"), run(case, engine="silowise")
    np.testing.assert_array_equal(one.outcome.arrays["model"], other.outcome.arrays["model"])
    assert one.door.ledger.rows == other.door.ledger.rows


@every
def test_resuming_from_disk_after_any_round_equals_the_straight_run(case, tmp_path):
    straight, data = run(case), records()
    for cut in (0, ROUNDS // 2, ROUNDS - 2):
        folder = RunFolder(tmp_path / f"run{cut}", "plan", [], 5)
        folder.save(straight.states[cut], [])
        state, _ = folder.load()
        door = door_of(case)
        door.ledger.append([row for row in straight.door.ledger.rows if row.round <= cut])
        place = engine_of(case, data, straight.topo, door)
        for after in rounds(case.method, straight.topo, place, door, state):
            state = after
        np.testing.assert_array_equal(state.servers["model"], straight.outcome.arrays["model"])
        assert door.ledger.rows == straight.door.ledger.rows


@every
def test_a_round_cut_off_after_its_rows_were_written_is_sent_again_with_the_same_noise(case):
    """The rows of round 2 are on disk and its state is not: going on repeats them, charges nothing, changes nothing."""
    straight, data = run(case), records()
    door = door_of(case)
    door.ledger.append([row for row in straight.door.ledger.rows if row.round <= 2])
    place = engine_of(case, data, straight.topo, door)
    for after in rounds(case.method, straight.topo, place, door, straight.states[1]):
        state = after
    np.testing.assert_array_equal(state.servers["model"], straight.outcome.arrays["model"])
    assert door.ledger.rows == straight.door.ledger.rows


@every
def test_a_unit_nobody_answers_from_keeps_its_update_to_itself(case):
    topo = topology()
    away = topo.servers[1]
    ran = run(case, present=lambda t: [name for name in topo.silos if t != 2 or not name.startswith(away)])
    rows = [row for row in ran.door.ledger.rows if row.silo == away and row.round == 2]
    assert not [row for row in rows if row.site in ("update", "mean")]
    assert np.isfinite(ran.outcome.arrays["model"]).all()


@every
def test_nobody_ever_present_ends_with_an_error(case):
    with pytest.raises(SilenceError, match="none did for 10 rounds"):
        run(case, present=lambda t: [])


def test_a_cohort_below_the_minimum_is_never_added_up():
    """Two agents of the second unit answer, three are the minimum: no sum, no row, and the round goes on."""
    topo = topology()
    second = [name for name in topo.silos if name.startswith(topo.servers[1])]
    for name in ("masks", "private, masks"):
        case = named(name)
        case = replace(case, method=replace(case.method, sample=None))
        ran = run(case, present=lambda t: [n for n in topo.silos if n not in second[2:]])
        assert topo.servers[1] not in {row.silo for row in ran.door.ledger.rows if row.site == "update"}
        assert ran.states[0].servers["counts"].tolist() == [SIZES[0], 0.0, SIZES[2]]


@private
def test_the_ledger_adds_up_to_the_budget_and_no_more(case):
    ran = run(case)
    for unit in ran.topo.servers:
        spent = ran.door.spent(unit, DELTA, "neighbour")
        assert spent.epsilon == pytest.approx(EPSILON, rel=1e-6)
        assert spent.epsilon <= EPSILON
        assert ran.door.spent(unit, DELTA, "another agent") == spent
        own = ran.door.spent(unit, DELTA, OWN_SERVER)
        assert own.epsilon == (math.inf if case.masks is None else spent.epsilon)


@private
def test_one_round_too_many_is_refused_before_it_is_released(case):
    longer = replace(case, method=replace(case.method, rounds=ROUNDS + 1))
    topo, door = topology(), door_of(case)
    place = engine_of(longer, records(), topo, door)
    with pytest.raises(BudgetError, match="It was not made"):
        for _ in rounds(longer.method, topo, place, door):
            pass
    assert {row.round for row in door.ledger.rows if row.mechanism != "reveal"} == set(range(ROUNDS))


@pytest.mark.parametrize("case", [c for c in cases() if not c.private], ids=lambda case: case.name)
def test_without_privacy_every_observer_reads_infinity(case):
    ran = run(case)
    for observer in (OWN_SERVER, "neighbour", "wire", "public"):
        assert ran.door.spent(ran.topo.servers[0], DELTA, observer).epsilon == math.inf


def test_without_noise_the_private_mode_is_the_plain_one():
    """A clip nobody reaches and no noise: only the grid remains, 2^-22 of the sensitivity."""
    case = named("private, trusted server")
    silent = replace(case, method=replace(case.method, clip=50.0), mechanism=Gaussian(0.0), budget=None)
    np.testing.assert_allclose(
        run(silent).outcome.arrays["model"], run(named("none")).outcome.arrays["model"], atol=1e-4
    )
    masked = replace(named("masks"), method=replace(named("masks").method, clip=50.0))
    np.testing.assert_allclose(
        run(masked).outcome.arrays["model"], run(named("none")).outcome.arrays["model"], atol=1e-4
    )


def test_skipping_the_masks_changes_no_bit():
    """Twin of the secure sum: the same integers, the same noise, the same ledger but for what it says of itself."""
    one, other = run(named("private, masks")), run(named("private, masks skipped"))
    np.testing.assert_array_equal(one.outcome.arrays["model"], other.outcome.arrays["model"])
    assert [row.digest for row in one.door.ledger.rows] == [row.digest for row in other.door.ledger.rows]
    assert all("masks skipped in this simulation" in row.why for row in other.door.ledger.rows)
    assert not any("skipped" in row.why for row in one.door.ledger.rows)


class Watch(Door):
    """Keeps what the servers' gates were given and gave out."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.inside, self.outside = [], []

    def gate(self, silos, round, observer="server"):
        gate = super().gate(silos, round, observer)
        original = gate.rows

        def rows(index):
            part = original(index)
            release = part.release

            def watched(bounded, site):
                out = release(bounded, site)
                self.inside.append(bounded)
                self.outside.append(out.value)
                return out

            part.release = watched
            return part

        gate.rows = rows
        return gate


def watched_run(case, data, door):
    topo = topology()
    place = engine_of(case, data, topo, door)
    for _ in rounds(case.method, topo, place, door):
        pass
    return door


def extreme(rng):
    """Other records an agent may have."""
    for size in (1e150, 1e6, 1.0, 0.0):
        for sign in (1.0, -1.0):
            x = size * rng.normal(size=(int(rng.integers(1, 25)), FEATURES))
            yield x, sign * size * np.ones(len(x))


def test_another_agent_never_moves_a_mean_further_than_its_bound():
    """Round by round along the same public history, one agent's records swapped for extreme ones."""
    case, data, rng = named("private, trusted server"), records(), np.random.default_rng(0)
    case = replace(case, method=replace(case.method, sample=None))
    topo = topology()
    ran = run(case, data)
    worst = 0.0

    def means(data, state):
        door = Watch(5, Ledger(), Gaussian(1.0))
        place = engine_of(case, data, topo, door)
        rows = np.arange(len(topo.silos))
        advance(
            case.method,
            state,
            topo,
            door.gate(topo.servers, state.round, OTHER_SERVERS),
            lambda now: place.local(case.method, now, rows),
        )
        return door.inside[0]

    for state in [begin(case.method, topo), *ran.states[:2]]:
        base = means(data, state)
        for other in extreme(rng):
            victim = topo.silos[int(rng.integers(len(topo.silos)))]
            changed = means({**data, victim: other}, state)
            moved = np.linalg.norm(base.value - changed.value, axis=1)
            assert (moved <= base.l2).all()
            worst = max(worst, (moved / base.l2).max())
    assert worst > 0.4  # the bound is not idle: two opposite clipped updates reach it


def test_noise_of_a_trusted_server_matches_its_ledger_rows():
    """Released minus inside, over units and rounds, is normal with the row's deviation (KS, rate 1e-4)."""
    case = named("private, trusted server")
    case = replace(case, method=replace(case.method, rounds=200), budget=None)
    door = watched_run(case, records(), Watch(5, Ledger(), Gaussian(2.0)))
    rows = [row for row in door.ledger.rows if row.mechanism == "gaussian"]
    noise = np.concatenate([o - i.value for i, o in zip(door.inside, door.outside, strict=True)])
    standard = noise / np.array([row.noise for row in rows])[:, None]
    assert stats.kstest(standard.ravel(), stats.norm.cdf).pvalue > 1e-4


def test_noise_of_a_cohort_is_at_least_what_its_ledger_row_says():
    """The row counts on the threshold of the cohort less one; everybody's noise is in the sum. 400 sums of 3 numbers.

    The variance's standard error is sqrt(2/1200) = 4.1 %; five of them both ways (rate 6e-7).
    """
    mechanism, topo = named("private, masks skipped").mechanism, topology((4,))
    door = Door(5, Ledger(), mechanism, masks=Masks("skipped"))
    vector, noise = np.array([0.0, 0.1, 0.2]), []
    for t in range(400):
        gate = door.gate(topo.servers, t, OTHER_SERVERS)
        sealed = gate.contribute(np.tile(vector, (4, 1)), "update", 0.3)
        noise.append(gate.total(sealed, np.arange(4), topo.home, topo.silos).sums[0] - 4 * vector)
    door.sync()
    counted = np.var(noise) / door.ledger.rows[0].noise ** 2
    assert abs(counted / (4 / 2) - 1.0) < 5 * math.sqrt(2 / 1200)  # all 4 add noise, 2 are counted on


def test_a_round_repeated_with_others_present_gets_other_noise():
    """Else the difference of the two sums would be one agent's update with its own share of the noise alone."""
    mechanism, topo = named("private, masks skipped").mechanism, topology((5,))
    sums = []
    for present in (5, 4):
        gate = Door(5, Ledger(), mechanism, masks=Masks("skipped")).gate(topo.servers, 0, OTHER_SERVERS)
        sealed = gate.contribute(np.zeros((present, 50)), "update", 0.3)
        sums.append(gate.total(sealed, np.arange(present), topo.home, topo.silos).sums[0])
    # Shared noise of four agents would leave a variance of 1/9 of the sum's; 50 numbers tell that from 9/5.
    assert (sums[0] - sums[1]).var() > sums[0].var()


def test_the_budget_is_asked_before_a_masked_sum_is_made(monkeypatch):
    made = []
    monkeypatch.setattr("silograph.privacy.gate.masked_sum", lambda *arguments: made.append(1))
    case = replace(named("private, masks"), budget=Budget(0.1, DELTA))
    with pytest.raises(BudgetError):
        run(case)
    assert not made


def test_an_unknown_observer_is_refused_rather_than_told_less():
    with pytest.raises(InputError, match="'naighbour' came"):
        Door(1, Ledger()).spent("a", DELTA, "naighbour")


# ---- nothing gets past the gate --------------------------------------------------------------------------------------


def test_a_contribution_cannot_be_read():
    door = Door(1, Ledger())
    sealed = door.gate(["a", "b"], 0).contribute(np.ones((2, 3)), "update")
    assert isinstance(sealed, Sealed)
    told = ("site", "clip", "within", "elsewhere")
    assert not [name for name in dir(sealed) if not name.startswith("_") and name not in told]


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_bare_update_is_refused_by_name(engine):
    case = named("none")

    class Leaky:
        def __getattr__(self, name):
            return getattr(case.method, name)

        def local(self, carry, down, data, gate):
            carry, sent = case.method.local(carry, down, data, gate)
            return carry, {**sent, "loss": case.method.task.value(down["model"].value, data)}

    topo, door = topology(), door_of(case)
    place = engine_of(case, records(), topo, door, engine)
    with pytest.raises(LeakError, match=r"Leaky\.local, message field 'loss'"):
        next(rounds(Leaky(), topo, place, door))


def test_what_goes_across_must_have_passed_the_gate():
    case = named("private, trusted server")

    class Careless:
        def __getattr__(self, name):
            return getattr(case.method, name)

        def gather(self, servers, up, topo, gate):
            total = gate.total(up.sealed["update"], up.rows, topo.home, topo.silos)
            return servers, {"sent": total.sums}

    topo, door = topology(), door_of(case)
    place = engine_of(case, records(), topo, door)
    with pytest.raises(LeakError, match=r"Careless\.gather, message field 'sent'"):
        next(rounds(Careless(), topo, place, door))


def test_masks_need_a_clip():
    door = Door(1, Ledger(), masks=Masks())
    gate = door.gate(["u"], 0)
    with pytest.raises(LeakError, match="clipped vectors"):
        gate.total(gate.contribute(np.ones((3, 2)), "update"), np.arange(3), np.zeros(3, np.intp), "abc")


def test_a_contribution_of_the_wrong_height_is_refused():
    sealed = Door(1, Ledger()).gate(["a", "b"], 0).contribute(np.ones((2, 3)), "update")
    with pytest.raises(LeakError, match="3 rows"):
        check_message({"update": sealed}, 3, "method")


def test_a_budget_that_trusts_nobody_refuses_updates_in_the_clear():
    case = replace(named("private, trusted server"), budget=Budget(EPSILON, DELTA))
    with pytest.raises(BudgetError):
        run(case)
