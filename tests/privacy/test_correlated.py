"""Noise that sites share: its covariance, what is left when some of them tell, and that it cancels."""

import math
from dataclasses import replace

import numpy as np
import pytest

from silograph.core.errors import InputError, LeakError
from silograph.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from silograph.privacy.bound import Bounded
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.discrete import discrete_gaussian
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import counted_on
from silograph.privacy.samplers import Keystream

SITES = ("ada", "bob", "cyd", "dan", "eve")
DIM = 40_000
STEP = 2.0**-26  # of the grid, in units of the sensitivity
NOISE = CorrelatedGaussian(gaussian_multiplier(1.0, 1e-5, 1), (SITES,), counted_on(len(SITES)))
L2 = np.array([0.5, 1.0, 2.0, 0.01, 1.0])


def door(mechanism=NOISE, budget=None):
    return Door(7, Ledger(), mechanism, budget)


def released(mechanism=NOISE, value=0.0):
    place = door(mechanism)
    out = place.gate(SITES, 0).release(Bounded(np.full((5, DIM), value), L2, "one", "made up"), "moment").value
    place.sync()
    return out, place.ledger.rows


@pytest.fixture(scope="module")
def noise():
    return released()


def test_the_covariance_is_the_stated_one(noise):
    """Every entry within five standard errors: 15 of them, false alarms below 1e-5."""
    units = noise[0] / L2[:, None]
    found, stated = np.cov(units), NOISE.covariance(np.ones(5), DIM)
    error = np.sqrt((np.outer(stated.diagonal(), stated.diagonal()) + stated**2) / DIM)
    assert (np.abs(found - stated) < 5.0 * error).all()
    np.testing.assert_allclose(NOISE.covariance(L2, DIM), stated * np.outer(L2, L2))
    # In the sum of all, in units of sensitivity, the own noise of five sites is left.
    own = NOISE.own * NOISE.scale_in_steps(DIM) * STEP
    assert units.sum(0).std() == pytest.approx(own * math.sqrt(5.0), rel=0.02)
    assert NOISE.deviation(2.0, DIM) == pytest.approx(2.0 * math.sqrt(stated[0, 0]))


def known_to(silo, tellers, mechanism=NOISE):
    """What of the noise in a release the tellers know: all they share with it."""
    share = mechanism.shared * mechanism.scale_in_steps(DIM)
    parts = []
    for other in tellers:
        first, second = sorted((silo, other))
        drawn = discrete_gaussian(Keystream(7, first, 0, f"moment, shared with {second}").lend, share, DIM)
        parts.append(drawn if silo == first else -drawn)
    return np.sum(parts, axis=0) * STEP


@pytest.mark.parametrize("tellers", [("eve", "dan"), ("ada", "cyd")])
def test_what_is_left_when_two_of_five_tell_is_what_the_ledger_says(tellers, noise):
    """The deviation of a site's noise given all that can be known, by regression on the other honest releases."""
    out, rows = noise
    honest = [name for name in SITES if name not in tellers]
    left = np.array([out[SITES.index(name)] / L2[SITES.index(name)] - known_to(name, tellers) for name in honest])
    for k, name in enumerate(honest):
        others = np.delete(left, k, 0)
        guess = np.linalg.lstsq(others.T, left[k], rcond=None)[0] @ others
        row = next(row for row in rows if row.silo == name)
        stated = row.noise / row.l2
        # A deviation from 40000 numbers is right to 0.35 %: five times that.
        assert (left[k] - guess).std() == pytest.approx(stated, rel=0.018)
        assert 1.0 / stated <= 1.0 / NOISE.multiplier
        assert gaussian_epsilon(1.0 / stated, 1e-5) == pytest.approx(1.0, rel=1e-4)
    # The twin: a third who tells leaves less than that.
    tellers = (*tellers, honest[0])
    left = np.array([out[SITES.index(name)] / L2[SITES.index(name)] - known_to(name, tellers) for name in honest[1:]])
    guess = np.linalg.lstsq(left[1:].T, left[0], rcond=None)[0] @ left[1:]
    assert (left[0] - guess).std() < 0.95 * stated


@pytest.mark.parametrize("honest", [3, 6, 40, 1000])
def test_the_precision_left_to_honest_sites_is_what_is_charged(honest):
    """By inverting the covariance of their noise, without the closed form."""
    mechanism = replace(NOISE, honest=honest)
    scale = mechanism.scale_in_steps(190) * STEP

    def precision(sites, away=0):
        unit = np.eye(sites)
        noise = mechanism.own**2 * unit + mechanism.shared**2 * (sites * unit - 1.0)
        return np.linalg.inv(scale**2 * noise[away:, away:])

    alone = precision(honest)
    mu = math.sqrt(alone[0, 0])
    moved, deviation, _ = mechanism.charge(1.0, 190)
    assert mu <= moved / deviation <= 1.0 / NOISE.multiplier
    # The samplers' error is charged for every draw: of a thousand sites, that is a hundredth.
    assert mu == pytest.approx(1.0 / NOISE.multiplier, rel=1e-4 if honest <= 40 else 0.01)
    # Half of it is spent on the mean of all.
    assert alone.sum() / honest**2 == pytest.approx(0.5 * mu**2, rel=1e-9)
    # One more honest site hides more, and so does one that stays away and tells nothing.
    assert precision(honest + 1)[0, 0] < alone[0, 0]
    assert precision(honest, away=1)[0, 0] < alone[0, 0]


def test_a_release_again_is_the_same_and_another_place_has_other_noise():
    one, rows = released()
    assert np.array_equal(one, released()[0])
    place = door()
    bounded = Bounded(np.zeros((1, DIM)), L2[1:2], "one", "made up")
    alone = place.gate(["bob"], 0).release(bounded, "moment").value[0]
    np.testing.assert_array_equal(alone, one[1])
    for gate, site in ((place.gate(["bob"], 1), "moment"), (place.gate(["bob"], 0), "another")):
        other = gate.release(bounded, site).value[0]
        assert abs(np.corrcoef(one[1], other)[0, 1]) < 5.0 / math.sqrt(DIM)
    assert [row.silo for row in rows] == list(SITES)


def test_without_noise_a_release_is_its_value_on_the_grid():
    out, rows = released(replace(NOISE, multiplier=0.0), 0.1234567)
    np.testing.assert_allclose(out, 0.1234567, atol=2.0 * STEP)
    assert {row.noise for row in rows} == {0.0}


def test_a_budget_covers_one_release_and_no_more():
    place = door(budget=Budget(1.0, 1e-5))
    bounded = Bounded(np.zeros((5, 10)), L2, "one", "made up")
    place.gate(SITES, 0).release(bounded, "moment")
    place.sync()
    assert place.spent("ada", 1e-5).epsilon == pytest.approx(1.0, rel=1e-6)
    assert place.spent("ada", 1e-5).epsilon <= 1.0
    with pytest.raises(Exception, match="It was not made"):
        place.gate(SITES, 1).release(bounded, "moment")


def test_strangers_and_cohorts_of_one_are_refused():
    with pytest.raises(LeakError, match="a site of the cohort"):
        door().gate(["zoe"], 0).release(Bounded(np.zeros((1, 3)), np.ones(1), "one", "made up"), "moment")
    for change in ({"honest": 2}, {"cohorts": (("ada", "ada"),)}):
        with pytest.raises(InputError, match="shared noise"):
            replace(NOISE, **change)
    with pytest.raises(InputError, match="a budget that noise can meet"):
        replace(NOISE, multiplier=1e9).scale_in_steps(10)
