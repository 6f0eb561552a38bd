"""Every epsilon is checked by two accountants that share no code."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import simpson
from scipy.stats import norm

from silograph.core.errors import InputError
from silograph.privacy import accounting
from silograph.privacy.ledger import Row


def row(mechanism="gaussian", l2=1.0, noise=1.0, dim=1):
    return Row("a", 0, "x", "server", mechanism, l2, noise, dim, 1.0, "u", "replace-one", "seed", "why", "0")


def paper_rows(epsilon_bar, rounds=50, delta=1e-5):
    """The papers' per-round noise: sigma = sqrt(2 ln(1.25/delta)) Delta / epsilon_bar."""
    return [row(noise=math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon_bar)] * rounds


@pytest.mark.parametrize(
    ("epsilon_bar", "exact", "rdp", "basic"), [(0.5, 3.05, 3.30, 25), (0.8, 5.24, 5.66, 40), (1.0, 6.82, 7.35, 50)]
)
def test_fifty_rounds_of_the_papers_noise(epsilon_bar, exact, rdp, basic):
    rows = paper_rows(epsilon_bar)
    cost = accounting.cost(rows, 1e-5)
    assert cost.epsilon == pytest.approx(exact, abs=0.005)
    assert cost.accountant == accounting.EXACT_GAUSSIAN
    assert accounting.rdp_epsilon(rows, 1e-5) == pytest.approx(rdp, abs=0.006)
    assert accounting.pld_epsilon(rows, 1e-5) == pytest.approx(cost.epsilon, rel=1e-4)
    assert cost.epsilon < basic


@pytest.mark.parametrize(("rho", "epsilon"), [(0.095, 1.86), (1.939, 10.52)])
def test_zcdp_conversion_is_tight(rho, epsilon):
    assert accounting.zcdp_epsilon(rho, 1e-5) == pytest.approx(epsilon, abs=0.005)
    # Independent: the same bound by brute force over orders.
    orders = 1.0 + np.geomspace(1e-4, 1e4, 200_001)
    brute = rho * orders + np.log1p(-1.0 / orders) - (math.log(1e-5) + np.log(orders)) / (orders - 1.0)
    assert accounting.zcdp_epsilon(rho, 1e-5) == pytest.approx(brute.min(), rel=1e-6)


def test_zcdp_adds():
    rows = [row(noise=2.0), row(noise=4.0)]
    assert accounting.zcdp(rows) == pytest.approx(1 / 8 + 1 / 32)


@given(st.floats(0.01, 10.0), st.floats(0.01, 20.0))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_gaussian_curve_is_the_hockey_stick_divergence(mu, epsilon):
    """Against numerical integration of max(0, p - e^eps q) for N(mu, 1) and N(0, 1)."""
    # p > e^eps q exactly where x > eps/mu + mu/2.
    x = epsilon / mu + mu / 2.0 + np.linspace(0.0, 12.0 + mu, 100_001)
    value = simpson(norm.pdf(x, mu) - np.exp(epsilon + norm.logpdf(x)), x=x)
    assert accounting.gaussian_delta(mu, epsilon) == pytest.approx(value, rel=1e-6, abs=1e-200)


@given(st.floats(0.01, 30.0), st.floats(1e-12, 0.3))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_calibration_meets_the_budget_and_wastes_nothing(epsilon, delta):
    mu = accounting.gaussian_mu(epsilon, delta)
    assert accounting.gaussian_delta(mu, epsilon) <= delta
    assert accounting.gaussian_delta(mu * (1 + 1e-6), epsilon) > delta
    for releases in (1, 50):
        rows = [row(noise=accounting.gaussian_multiplier(epsilon, delta, releases))] * releases
        spent = accounting.cost(rows, delta).epsilon
        assert spent <= epsilon
        assert spent >= epsilon * (1 - 1e-6)


def test_epsilon_is_an_upper_bound_not_an_approximation():
    for mu in (0.1, 1.0, 5.0):
        epsilon = accounting.gaussian_epsilon(mu, 1e-6)
        assert accounting.gaussian_delta(mu, epsilon) <= 1e-6
        assert accounting.gaussian_delta(mu, epsilon * (1 - 1e-9)) > 1e-6


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_what_an_attacker_catches_is_the_power_of_the_best_test(mu):
    """One Gaussian release: the best test of a shift by mu is a threshold, here with 5 % false alarms (Neyman and
    Pearson). A bound that knows less of the noise is larger, and none is above what pure epsilon allows."""
    best = norm.sf(norm.isf(0.05) - mu)
    exact = accounting.Cost(accounting.gaussian_epsilon(mu, 1e-6), 1e-6, accounting.EXACT_GAUSSIAN)
    assert accounting.caught(exact, 0.05) == pytest.approx(best, abs=1e-6)
    concentrated = accounting.Cost(accounting.zcdp_epsilon(mu**2 / 2.0, 1e-6), 1e-6, accounting.CONCENTRATED)
    assert best < accounting.caught(concentrated, 0.05) < 1.0
    pure = accounting.Cost(mu, 0.0, "exact Laplace")
    assert accounting.caught(pure, 0.05) == pytest.approx(min(0.05 * np.exp(mu), 1 - np.exp(-mu) * 0.95))
    assert accounting.caught(accounting.Cost(0.0, 0.0, accounting.NOTHING), 0.05) == pytest.approx(0.05)
    for epsilon, delta in ((np.inf, 1.0), (1e300, 1e-6), (2.0, 1.0), (2.0, 1e9), (-1.0, 1e-6), (np.nan, 1e-6)):
        assert accounting.caught(accounting.Cost(epsilon, delta, accounting.EXACT_GAUSSIAN), 0.05) == 1.0


def test_laplace_alone_is_pure():
    cost = accounting.cost([row("laplace", l2=1.0, noise=5.0, dim=4)], 0.0)
    assert (cost.epsilon, cost.delta) == (pytest.approx(2.0 / 5.0), 0.0)


def test_mixed_rows_go_to_the_library_and_cost_less_than_adding_up():
    rows = [row("laplace", noise=5.0), row("gaussian", noise=5.0), row("laplace", noise=5.0)]
    cost = accounting.cost(rows, 1e-5)
    assert cost.accountant == accounting.PLD
    alone = accounting.cost([row("gaussian", noise=5.0)], 1e-5).epsilon
    assert alone < cost.epsilon < 0.4 + alone
    assert cost.epsilon <= accounting.rdp_epsilon(rows, 1e-5)


def test_one_reveal_makes_everything_infinite():
    cost = accounting.cost([row(), row("reveal", l2=None, noise=None)], 1e-5)
    assert math.isinf(cost.epsilon)
    assert cost.accountant == accounting.NO_PROTECTION


def test_nothing_released_costs_nothing():
    assert accounting.cost([], 1e-5).epsilon == 0.0


def test_poisson_sampled_gaussian_reference_values():
    """q=.01, sigma=1, 1000 steps at 1e-5: RDP 2.101, PLD 1.828: the library is the one the figures came from."""
    sampled = Row("a", 0, "x", "server", "gaussian", 1.0, 1.0, 1, 0.01, "u", "r", "s", "w", "0")
    assert accounting.rdp_epsilon([sampled] * 1000, 1e-5) == pytest.approx(2.101, abs=0.005)


@pytest.mark.parametrize(
    ("epsilon", "delta", "records"), [(0, 1e-6, 100), (-1, 1e-6, 100), (math.inf, 1e-6, 100), (1, 0.01, 100), (1, 2, 9)]
)
def test_what_is_not_a_guarantee_is_refused(epsilon, delta, records):
    with pytest.raises(InputError, match="expected"):
        accounting.check_budget(epsilon, delta, records, "site a")


# ---- samples of the records ------------------------------------------------------------------------------------------


def sampled(ratio, rate=0.1, batch="", part="", round=0):
    return Row("a", round, batch, "server", "gaussian", ratio, 1.0, 1, rate, "u", "r", "s", "w", "0", batch, part)


def test_releases_from_one_sample_are_one_release_of_their_joint_precision():
    """R1 and R3 of S4 with sqrt(2) sigma each, from one batch, are the sampled Gaussian of sigma."""
    together = [sampled(math.sqrt(0.5), batch=f"query {t}", part="query") for t in range(50) for _ in range(2)]
    alone = [sampled(1.0, batch=f"query {t}", part="query") for t in range(50)]
    assert accounting.cost(together, 1e-3).epsilon == pytest.approx(accounting.cost(alone, 1e-3).epsilon, rel=1e-6)
    # The broken twin: the same batch used twice and charged as two samples is far too cheap.
    apart = [sampled(math.sqrt(0.5), batch=f"{t} {k}", part="query") for t in range(50) for k in range(2)]
    assert accounting.cost(apart, 1e-3).epsilon < 0.9 * accounting.cost(alone, 1e-3).epsilon


def test_parts_that_share_no_record_do_not_add_up():
    query = [sampled(1.0, batch=f"query {t}", part="query") for t in range(20)]
    support = [sampled(0.5, batch=f"support {t}", part="support") for t in range(20)]
    assert accounting.cost([*query, *support], 1e-3) == accounting.cost(query, 1e-3)
    # What is about all records counts for every part.
    both = Row("a", 0, "all", "server", "gaussian", 1.0, 1.0, 1, 1.0, "u", "r", "s", "w", "0")
    assert accounting.cost([*query, *support, both], 1e-3) == accounting.cost([*query, both], 1e-3)
    assert math.isinf(accounting.cost([*query, row("reveal", l2=None, noise=None)], 1e-3).epsilon)


@pytest.mark.parametrize(("rate", "count"), [(0.1, 200), (0.01, 200), (0.5, 40), (1.0, 200)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_calibrated_noise_spends_the_budget_and_no_more(rate, count, epsilon):
    multiplier = accounting.sampled_multiplier(epsilon, 1e-3, rate, count)
    assert 0.9998 * epsilon < accounting.sampled_epsilon(multiplier, rate, count, 1e-3) <= epsilon
    renyi = accounting.sampled_multiplier(epsilon, 1e-3, rate, count, "rdp")
    assert multiplier < renyi < 1.3 * multiplier  # the other accountant agrees, and is looser


def test_a_planned_run_fits_its_budget_row_by_row_and_one_more_round_does_not():
    sigma = accounting.sampled_multiplier(2.0, 1e-3, 0.1, 20)
    tally = accounting.Tally(2.0, 1e-3, accounting.Planned(sigma, 0.1, 20))
    for t in range(20):
        for part in ("query", "support"):
            for _ in range(2):
                release = sampled(math.sqrt(0.5) / sigma, batch=part, part=part, round=t)
                assert tally.fits(release)
                tally.add(release)
    assert tally.cost().epsilon == pytest.approx(2.0, rel=1e-3)
    assert not tally.fits(sampled(math.sqrt(0.5) / sigma, batch="query", part="query", round=20))
    assert not tally.fits(sampled(math.sqrt(0.5) / sigma, batch="query", part="query", round=3))  # a third from one
    assert not tally.fits(sampled(0.5, rate=1.0))


def test_a_plan_that_does_not_fit_its_budget_certifies_nothing():
    tally = accounting.Tally(2.0, 1e-3, accounting.Planned(0.5, 0.1, 200))
    assert tally.fits(sampled(1e-3, batch="query", part="query"))
    for t in range(3):
        tally.add(sampled(2.0, batch="query", part="query", round=t))
    assert not tally.fits(sampled(2.0, batch="query", part="query", round=3))


def test_gaussian_noise_has_no_epsilon_without_a_delta():
    """Its curve is above 0 everywhere; in floating point it is 0 from some epsilon on."""
    assert accounting.gaussian_delta(0.5, 40.0) == 0.0
    assert accounting.gaussian_epsilon(0.5, 0.0) == math.inf
    assert accounting.gaussian_epsilon(0.0, 0.0) == 0.0
    with pytest.raises(InputError, match="a delta above 0"):
        accounting.gaussian_multiplier(1.0, 0.0, 1)
