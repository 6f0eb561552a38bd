"""Agents who are added up: cohorts, masks, and whose noise is whose."""

import math
from dataclasses import replace

import numpy as np
import pytest

from federations import DELTA, EPSILON, ROUNDS, SIZES, cases, run, topology
from silograph.core.errors import BudgetError, InputError, LeakError
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.observers import OTHER_SERVERS
from silograph.privacy.released import Sealed, check_message


def named(name):
    return next(case for case in cases() if case.name == name)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_region_nobody_answers_from_keeps_its_update_to_itself(case):
    topo = topology()
    away = topo.servers[1]
    ran = run(case, present=lambda t: [name for name in topo.silos if t != 2 or not name.startswith(away)])
    rows = [row for row in ran.door.ledger.rows if row.silo == away and row.round == 2]
    assert not [row for row in rows if row.release_point in ("update", "mean")]
    assert np.isfinite(ran.outcome.arrays["model"]).all()


def test_a_cohort_below_the_minimum_is_never_added_up():
    """Two agents of the second region answer, three are the minimum: no sum, no row, and the round goes on."""
    topo = topology()
    second = [name for name in topo.silos if name.startswith(topo.servers[1])]
    for name in ("masks", "private, masks"):
        case = named(name)
        case = replace(case, method=replace(case.method, sample=None))
        ran = run(case, present=lambda t: [n for n in topo.silos if n not in second[2:]])
        assert topo.servers[1] not in {row.silo for row in ran.door.ledger.rows if row.release_point == "update"}
        assert ran.states[0].servers["counts"].tolist() == [SIZES[0], 0.0, SIZES[2]]


def test_without_noise_the_private_mode_is_the_plain_one():
    """A clip nobody reaches and no noise: only the grid remains, 2^-22 of the sensitivity, and the mean of the last
    half of the rounds."""
    case = named("private, trusted server")
    silent = replace(case, method=replace(case.method, clip=50.0), mechanism=Gaussian(0.0), budget=None)
    plain = [state.servers["model"] for state in run(named("none")).states]
    ran = run(silent)
    for state, model in zip(ran.states[:-1], plain, strict=False):
        np.testing.assert_allclose(state.servers["model"], model, atol=1e-4)
    np.testing.assert_allclose(ran.outcome.arrays["model"], np.mean(plain[-(ROUNDS // 2) :], axis=0), atol=1e-4)
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
    monkeypatch.setattr("silograph.privacy.sums.masked_sums", lambda *arguments: made.append(1))
    case = replace(named("private, masks"), budget=Budget(0.1, DELTA))
    with pytest.raises(BudgetError):
        run(case)
    assert not made


def test_an_unknown_observer_is_refused_rather_than_told_less():
    with pytest.raises(InputError, match="found 'naighbour'"):
        Door(1, Ledger()).spent("a", DELTA, "naighbour")


# ---- nothing gets past the gate --------------------------------------------------------------------------------------


def test_a_contribution_cannot_be_read():
    door = Door(1, Ledger())
    sealed = door.gate(["a", "b"], 0).contribute(np.ones((2, 3)), "update")
    assert isinstance(sealed, Sealed)
    told = ("release_point", "clip", "within", "elsewhere", "share", "joined")  # of the budget
    assert not [name for name in dir(sealed) if not name.startswith("_") and name not in told]


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
