"""Pulls become multipliers of (8): |m| <= rho, sum m <= lam, bent as little as can be."""

import numpy as np
import pytest
from scipy.optimize import minimize

from silograph.kernels.multipliers import feasible, over


def bent(pulls, excess, lam, rho):
    shares = feasible(pulls, excess, lam, rho)
    return (pulls - shares[:, :1] * excess) * shares[:, 1:], shares


def moved(rng, silos, edges, lam, penalty):
    """Pulls and what they are over lam after the consensus moved as the server moves it."""
    pulls, seen = rng.normal(size=(silos, edges)), np.maximum(rng.normal(size=edges), 0.0)
    v = np.maximum(0.0, seen + (pulls.sum(0) - lam) / (silos * penalty))
    return pulls, over(v, seen, penalty)


@pytest.mark.parametrize("seed", range(20))
def test_every_multiplier_is_feasible_whatever_the_pulls_were(seed):
    rng = np.random.default_rng(seed)
    silos, edges = int(rng.integers(1, 7)), int(rng.integers(1, 30))
    lam, rho, penalty = 10.0 ** rng.uniform(-6, 3, 3)
    pulls, excess = moved(rng, silos, edges, lam, penalty)
    made, shares = bent(pulls, excess, lam, rho)
    assert np.linalg.norm(made, axis=1).max() <= rho
    assert made.sum(0).max() <= lam
    assert shares[:, 0].sum() == pytest.approx(silos)


def test_pulls_that_are_feasible_stay_as_they_are():
    pulls = np.array([[0.3, -0.1], [0.2, 0.4]])
    made, _ = bent(pulls, np.zeros(2), lam=1.0, rho=1.0)
    np.testing.assert_allclose(made, pulls, rtol=1e-13)


def test_who_has_room_takes_what_is_over():
    """The first pull is as long as can be and would get longer; the second has room, so nothing needs to be scaled."""
    pulls, excess = np.array([[1.0, 0.0], [0.2, 0.1]]), np.array([-0.05, 0.0])
    made, shares = bent(pulls, excess, lam=10.0, rho=1.0)
    np.testing.assert_allclose(shares[:, 0], [0.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(shares[:, 1], 1.0, rtol=1e-13)
    equal = pulls - excess
    assert np.linalg.norm(equal, axis=1).max() > 1.0 + 1e-3  # equal shares, the twin, would be infeasible
    assert np.linalg.norm(made, axis=1).max() <= 1.0


@pytest.mark.parametrize("seed", range(5))
def test_where_no_shares_suffice_the_longest_is_as_short_as_scipy_can_make_it(seed):
    rng = np.random.default_rng(seed)
    pulls, excess = rng.normal(size=(3, 4)), rng.normal(size=4)
    shares = feasible(pulls, excess, lam=1e9, rho=1e-3)[:, 0]

    def longest(two):
        share = np.append(two, 3.0 - two.sum())
        return np.linalg.norm(pulls - share[:, None] * excess, axis=1).max()

    best = min(minimize(longest, rng.normal(size=2), method="Nelder-Mead", tol=1e-10).fun for _ in range(5))
    assert longest(shares[:2]) <= best * (1.0 + 1e-5)
