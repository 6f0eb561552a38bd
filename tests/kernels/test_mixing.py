"""Combination, perturbation and distances of servers, against loops, (47) as printed, and simulation."""

import numpy as np
import pytest
from hypothesis import strategies as st

from silograph.kernels import mixing
from silograph.topology import checked_mixing, lazy, server_graph

KINDS = ["ring", "grid", "random", "erdos-renyi"]


def printed(a, g):
    """(47) as the paper has it: the noise on every link, [receiver, sender]."""
    servers = len(a)
    links = np.zeros((servers, servers, g.shape[1]))
    for p in range(servers):
        for m in range(servers):
            links[m, p] = g[p] if m != p else -(1.0 - a[p, p]) / a[p, p] * g[p]
    return links


@st.composite
def matrices(draw):
    """Any combination matrix: a convex mix of symmetrised permutations, the identity and a connected graph."""
    servers, seed = draw(st.integers(2, 9)), draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    parts = [np.eye(servers), server_graph("random", servers, seed, weights="metropolis").mixing]
    for _ in range(draw(st.integers(0, 3))):
        shuffle = np.eye(servers)[rng.permutation(servers)]
        parts.append(0.5 * (shuffle + shuffle.T))
    share = rng.dirichlet(np.full(len(parts), draw(st.sampled_from([0.1, 1.0, 10.0]))))
    share = (share + 1e-6) / (share + 1e-6).sum()
    return checked_mixing(np.einsum("k,kpm->pm", share, np.array(parts)))


@pytest.mark.parametrize("kind", KINDS)
def test_combine_is_the_sum_over_neighbours(kind):
    a, psi = server_graph(kind, 11, 2).mixing, np.random.default_rng(0).normal(size=(11, 5))
    expected = [sum(a[p, m] * psi[m] for m in range(11)) for p in range(11)]
    np.testing.assert_array_equal(mixing.combine(a, psi), expected)  # the same order of the same sums
    for p in range(11):
        np.testing.assert_array_equal(mixing.combine(a[p : p + 1], psi)[0], expected[p])
        np.testing.assert_array_equal(mixing.combine(a, psi[:, 2:3])[p, 0], expected[p][2])


def test_a_server_does_not_hear_who_is_no_neighbour():
    a, psi = server_graph("ring", 6).mixing, np.ones((6, 2))
    psi[3] = np.nan
    assert np.isfinite(mixing.combine(a, psi)).all(1).tolist() == [True, True, False, False, False, True]


def test_combine_links_is_indexed_by_receiver_and_sender():
    a = server_graph("grid", 6).mixing
    g = np.random.default_rng(1).normal(size=(6, 6, 3))
    expected = [sum(a[p, m] * g[p, m] for m in range(6)) for p in range(6)]
    np.testing.assert_allclose(mixing.combine_links(a, g), expected, atol=1e-15)


def test_distances_are_their_definitions_and_add_up():
    rng = np.random.default_rng(5)
    w, optimum = rng.normal(size=(7, 3)), rng.normal(size=3)
    centre = sum(w) / 7
    np.testing.assert_allclose(mixing.centroid(w), centre, atol=1e-15)
    assert mixing.msd_centroid(w, optimum) == pytest.approx(((centre - optimum) ** 2).sum())
    assert mixing.msd_regions(w, optimum) == pytest.approx(sum(((v - optimum) ** 2).sum() for v in w) / 7)
    assert mixing.disagreement(w) == pytest.approx(sum(((v - centre) ** 2).sum() for v in w) / 7)
    # (59) = (58) + (30): a perfect centroid hides whatever the units disagree about.
    total = mixing.msd_centroid(w, optimum) + mixing.disagreement(w)
    assert mixing.msd_regions(w, optimum) == pytest.approx(total)
    many = rng.normal(size=(4, 7, 3))  # leading axes are rounds or runs
    np.testing.assert_array_equal(mixing.disagreement(many), [mixing.disagreement(one) for one in many])


# ---- predicted disagreement ------------------------------------------------------------------------------------------


def received(a, scheme, rng, copies):
    """One round's noise in the combinations, for independent copies of a model with one feature; variance 2."""
    if scheme == "edge":
        links = rng.laplace(size=(len(a), len(a), copies))
        links[np.arange(len(a)), np.arange(len(a))] = 0.0
        return mixing.combine_links(a, links)
    g = rng.laplace(size=(len(a), copies))
    return mixing.combine_links(a, printed(a, g)) if scheme == "homomorphic" else mixing.combine(a, g)


PREDICTED = {
    "homomorphic": mixing.homomorphic_disagreement,
    "sender": mixing.sender_disagreement,
    "edge": mixing.edge_disagreement,
}


@pytest.mark.parametrize("scheme", PREDICTED)
@pytest.mark.parametrize("kind", ["grid", "erdos-renyi"])
@pytest.mark.parametrize("weights", ["metropolis", "lazy"])
def test_predicted_disagreement_is_what_the_recursion_settles_at(scheme, kind, weights):
    """w <- A w + noise from 0, 3000 independent copies: within 5 standard errors (rate 6e-7), which is 5 %."""
    a = server_graph(kind, 9, 4, weights=weights).mixing
    rng, copies = np.random.default_rng(6), 3000
    w, rounds = np.zeros((9, copies)), []
    for time in range(170):  # what the start leaves after 120 rounds is below 1e-9
        w = mixing.combine(a, w) + received(a, scheme, rng, copies)
        if time >= 120:
            rounds.append(((w - w.mean(0)) ** 2).mean(0))
    each = np.mean(rounds, axis=0)  # rounds depend on each other, copies do not
    error = each.std() / np.sqrt(copies)
    assert 5.0 * error < 0.05 * each.mean()
    assert abs(each.mean() - PREDICTED[scheme](a, 2.0, 1)) <= 5.0 * error
    assert PREDICTED[scheme](a, 6.0, 4) == pytest.approx(12.0 * PREDICTED[scheme](a, 2.0, 1))


@pytest.mark.parametrize("scheme", PREDICTED)
def test_predicted_disagreement_solves_the_covariance_equation(scheme):
    """C = A C A + the noise's covariance, by scipy; exact, so where the simulation could not see a slip this does."""
    from scipy.linalg import solve_discrete_lyapunov

    a = server_graph("random", 8, 1, weights="metropolis").mixing
    off = a - np.diag(a.diagonal())
    noise = {
        "homomorphic": (np.eye(8) - a) @ (np.eye(8) - a),
        "sender": a @ a,
        "edge": np.diag((off**2).sum(1)),
    }[scheme]
    centred = np.eye(8) - 1.0 / 8.0
    inner = a - 1.0 / 8.0  # the disagreement's own recursion
    c = solve_discrete_lyapunov(inner, centred @ noise @ centred)
    assert PREDICTED[scheme](a, 0.3, 5) == pytest.approx(5 * 0.3 * np.trace(c) / 8, rel=1e-10)


def test_lazy_weights_calm_homomorphic_noise_and_not_the_senders():
    """Why lazy is the default: a negative eigenvalue l multiplies homomorphic noise by (1 - l)/(1 + l) > 1."""
    a = server_graph("ring", 10, weights="metropolis").mixing
    assert mixing.homomorphic_disagreement(lazy(a), 1.0, 1) < 0.5 * mixing.homomorphic_disagreement(a, 1.0, 1)
    assert mixing.sender_disagreement(lazy(a), 1.0, 1) > mixing.sender_disagreement(a, 1.0, 1)
