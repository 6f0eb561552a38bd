"""One door, and nothing passes it unseen."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from silograph.core.errors import BudgetError, DamageError, LeakError
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.bound import Bounded, clip_rows
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Charge, Gaussian
from silograph.privacy.relay import OpenGate
from silograph.privacy.released import Released, check_message, stack

GLOBAL = np.arange(3.0)


def bounded(value=0.0, silos=2, size=3):
    return Bounded(np.full((silos, size), value), np.ones(silos), "one row", "a clip")


def door(epsilon=1.0, delta=1e-5, releases=1, **kwargs):
    multiplier = gaussian_multiplier(epsilon, delta, releases)
    return Door(7, Ledger(), Gaussian(multiplier), Budget(epsilon, delta), **kwargs)


def test_a_release_adds_noise_and_one_row_per_silo():
    border = door()
    out = border.gate(["a", "b"], 0).release(bounded(), "stat")
    assert border.ledger.rows == []  # not before sync
    border.sync()
    rows = border.ledger.rows
    assert [(r.silo, r.round, r.release_point, r.mechanism, r.relation) for r in rows] == [
        ("a", 0, "stat", "gaussian", "replace-one"),
        ("b", 0, "stat", "gaussian", "replace-one"),
    ]
    assert out.value.shape == (2, 3)
    assert (out.value != 0).all()
    assert not np.array_equal(out.value[0], out.value[1])


class Homemade(Gaussian):
    """A mechanism that the gate has never heard of."""

    def at(self, round):
        return replace(self, multiplier=self.multiplier + round)

    def perturb(self, value, l2, place, out):
        out[:] = value + np.array([self.multiplier, l2, place.round])

    def charge(self, l2, dim):
        return Charge(2.0 * l2, dim * self.multiplier, "and nobody looking")


def test_a_mechanism_says_itself_how_it_perturbs_and_what_it_costs():
    border = Door(7, Ledger(), Homemade(5.0))
    out = border.gate(["a"], 3).release(bounded(silos=1), "stat")
    border.sync()
    assert out.value.tolist() == [[8.0, 1.0, 3.0]]
    (row,) = border.ledger.rows
    assert (row.l2, row.noise, row.why) == (2.0, 24.0, "a clip; and nobody looking")


def test_rows_are_written_in_the_order_of_silos_not_of_calls():
    border = door()
    for silo in ("c", "a", "b"):
        border.gate([silo], 0).release(bounded(silos=1), "stat")
    border.sync()
    assert [row.silo for row in border.ledger.rows] == ["a", "b", "c"]


def test_the_budget_stops_the_release_before_it_is_made():
    border = door(releases=2)
    for number in range(2):
        border.gate(["a"], number).release(bounded(silos=1), "stat")
        border.sync()
    assert border.spent("a", 1e-5).epsilon == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(BudgetError, match="is spent and this release would make it"):
        border.gate(["a"], 2).release(bounded(silos=1), "stat")
    assert len(border.ledger.rows) == 2


def test_a_reveal_breaks_any_budget():
    with pytest.raises(BudgetError):
        door().gate(["a"], 0).reveal(np.zeros((1, 3)), "stat", "why not")


def test_no_place_is_released_twice_in_a_round():
    gate = door(releases=4).gate(["a"], 0)
    gate.release(bounded(silos=1), "stat")
    with pytest.raises(LeakError, match="no noise is used twice"):
        gate.release(bounded(1.0, silos=1), "stat")


def test_the_same_release_again_is_a_resend_and_another_value_there_is_refused(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    border = replace(door(), ledger=ledger)
    first = border.gate(["a"], 0).release(bounded(silos=1), "stat")
    border.sync()
    again = replace(border, ledger=Ledger(tmp_path / "ledger.jsonl"), _waiting={})
    second = again.gate(["a"], 0).release(bounded(silos=1), "stat")
    again.sync()
    np.testing.assert_array_equal(first.value, second.value)
    assert len(Ledger(tmp_path / "ledger.jsonl").rows) == 1
    with pytest.raises(DamageError, match="changed since"):
        again.gate(["a"], 0).release(bounded(1.0, silos=1), "stat")


def test_released_values_cannot_be_made_or_changed():
    with pytest.raises(LeakError, match="made by a gate"):
        Released(np.zeros(3), object())
    released = OpenGate().reveal(np.zeros((1, 3)), "x", "")
    with pytest.raises(AttributeError):
        released.value = np.ones(3)
    with pytest.raises(ValueError):
        released.value[0] = 1.0


def test_post_processing_may_use_released_values_and_numbers_only():
    released = OpenGate().reveal(np.ones((1, 3)), "x", "")
    private = np.arange(3.0)
    assert released.map(lambda x, y: x + y, released).value.sum() == 6.0
    assert released.map(np.multiply, 2.0).value.sum() == 6.0
    with pytest.raises(LeakError, match="constants"):
        released.map(lambda x, y: x + y, private)
    with pytest.raises(LeakError, match="captured"):
        released.map(lambda x: x + private)
    with pytest.raises(LeakError, match="captured"):
        released.map(partial(np.add, private))

    def helper():
        return private

    with pytest.raises(LeakError, match="captured"):
        released.map(lambda x: x + helper())

    class Holder:
        def __init__(self):
            self.kept = private

        def add(self, x):
            return x + self.kept

    with pytest.raises(LeakError, match="captured"):
        released.map(Holder().add)

    def by_keyword(x, *, y=private):
        return x + y

    with pytest.raises(LeakError, match="captured"):
        released.map(by_keyword)
    with pytest.raises(LeakError, match="captured"):
        released.map(lambda x: x + GLOBAL)


def test_a_message_of_anything_but_released_values_is_refused_by_name():
    fine = {"graph": OpenGate().reveal(np.zeros((2, 3)), "x", "")}
    assert check_message(fine, 2, "Method.local") == fine
    for bad in (np.zeros((2, 3)), 3, "error text of silo a", [1.0], None):
        with pytest.raises(LeakError, match=r"Method\.local, message field 'count'"):
            check_message({**fine, "count": bad}, 2, "Method.local")
    with pytest.raises(LeakError, match="rows"):
        check_message(fine, 5, "Method.local")


def test_no_mechanism_no_release():
    with pytest.raises(LeakError, match="mechanism"):
        Door(1, Ledger()).gate(["a"], 0).release(bounded(silos=1), "x")
    with pytest.raises(LeakError, match="open gate"):
        OpenGate().release(bounded(), "x")


def test_stack_joins_rows():
    part = OpenGate().reveal(np.ones((1, 2)), "x", "")
    assert stack([part, part]).value.shape == (2, 2)


def test_clipping_bounds_every_row_and_leaves_short_ones():
    x = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped = clip_rows(x, 1.0)
    assert np.linalg.norm(clipped, axis=1).max() <= 1.0
    np.testing.assert_array_equal(clipped[1:], x[1:])


def test_under_a_budget_a_digest_tells_nothing_without_the_runs_root():
    """Of the same sum another run, round or silo has another digest; the same place of the same run has the same."""
    value = np.ones((1, 3))

    def mark(root, silo="a", round=0, budget=None):
        door = Door(root, Ledger(), budget=budget)
        door.gate([silo], round, "own server").reveal(value, "x", "test")
        door.sync()
        return door.ledger.rows[0].digest

    trusting = Budget(1.0, 1e-6, frozenset({"own server"}))
    assert mark(1, budget=trusting) == mark(1, budget=trusting)
    marks = [mark(1, budget=trusting), mark(2, budget=trusting), mark(1, "b", 0, trusting), mark(1, "a", 1, trusting)]
    assert len(set(marks)) == 4
    assert mark(1) == mark(2)  # without a budget nothing is hidden, and equal runs have equal ledgers
