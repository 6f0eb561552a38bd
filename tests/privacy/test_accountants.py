"""The comparison that every test's ledgers go through: it sees them, and it finds an accountant that is wrong."""

import numpy as np
import pytest

import accountants
from silograph.privacy import accounting
from silograph.privacy.bound import Bounded
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian, Laplace


def spend(mechanism, rounds=3):
    door = Door(1, Ledger(), mechanism)
    for number in range(rounds):
        door.gate(["a"], number).release(Bounded(np.zeros((1, 3)), np.ones(1), "u", "w"), "x")
    door.sync()
    return door.ledger


def test_a_ledger_that_a_test_writes_is_seen(ledgers):
    ledger = spend(Gaussian(3.1))
    assert ledger in ledgers.values()
    assert accountants.compare(ledger.rows) == 1
    assert accountants.compare(ledger.rows) == 0  # the same rows need no second comparison


def halved(function):
    return lambda *arguments: 0.5 * function(*arguments)


@pytest.mark.parametrize("wrong", ["gaussian_epsilon", "_pld", "_rdp"])
def test_an_accountant_that_says_half_is_found(wrong, monkeypatch):
    ledger = spend(Gaussian(2.7), 1)
    monkeypatch.setattr(accounting, wrong, halved(getattr(accounting, wrong)))
    monkeypatch.setattr(accountants, "_agreed", set())
    with pytest.raises(AssertionError):
        accountants.compare(ledger.rows)


def test_a_closed_form_that_says_half_is_found(monkeypatch):
    ledger = spend(Laplace(1.7), 1)
    half = 0.5 * accounting.cost(ledger.rows, 0.0).epsilon
    monkeypatch.setattr(accounting, "cost", lambda rows, delta: accounting.Cost(half, 0.0, "half"))
    with pytest.raises(AssertionError):
        accountants.compare(ledger.rows)
