"""S2's theory against plain iterations, other solvers, closed forms and brute force; what fails is shown to fail."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import minimize
from scipy.stats import norm

from silograph.privacy.accounting import gaussian_epsilon, zcdp_epsilon
from silograph.theory import clustered_admm as ca
from silograph.topology import lazy, metropolis, server_graph


def setting(seed, servers=4, clients=6, clusters=2, features=3, lam=0.3, most=4, degree=2.0, split="equal"):
    """Servers on an irregular random graph; clusters related as in the paper's regressions."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=features)
    truth = base * (1.0 + rng.uniform(-0.15, 0.15, size=(clusters, features)))
    home, cluster = np.repeat(np.arange(servers), clients), np.tile(np.arange(clients) % clusters, servers)
    if split == "unequal":  # all that are left over go to one cluster, another one at every server
        cluster = np.concatenate([[*range(clusters), *[s % clusters] * (clients - clusters)] for s in range(servers)])
    if split == "empty":
        cluster[(home == 0) & (cluster == 0)] = 1
    x = [rng.normal(size=(rng.integers(2, most + 1), features)) for _ in home]
    y = [x[k] @ truth[cluster[k]] + math.sqrt(0.75) * rng.normal(size=len(x[k])) for k in range(len(x))]
    adjacency = server_graph("random", servers, seed, degree=degree).mixing > 0.0
    np.fill_diagonal(adjacency, False)
    return ca.Ridge(x, y, home, cluster, lam), adjacency


def paper(seed):
    return setting(seed, 10, 15, 3, 60, lam=0.01, most=9, degree=3.0)


def one_server(hessians, optima):
    """One client to a cluster, with these curvatures and optima: rows are roots of D times the curvature."""
    roots = [np.linalg.cholesky(h * len(h)).T for h in hessians]
    clusters = np.arange(len(roots))
    return ca.Ridge(roots, [x @ w for x, w in zip(roots, optima, strict=True)], 0 * clusters, clusters, 0.0)


def iterate(solve, r, mixing, rho, taus, form="others"):
    """(N, S, Q, d): (4), (8), (9), (10), (5) one after the other, from 0. `solve` does (4) for all clients."""
    (servers, clusters), clients = r.shape, len(r.x)
    d = r.x[0].shape[1]
    received, duals, history = np.zeros((servers, clusters, d)), np.zeros((clients, d)), []
    members = {(s, q): np.flatnonzero((r.home == s) & (r.cluster == q)) for s, q in np.ndindex(servers, clusters)}
    for tau in taus:
        w = solve(duals, received[r.home, r.cluster], rho)  # (4)
        sent, heard = np.zeros_like(received), np.zeros_like(received)
        for cell, ks in members.items():
            sent[cell] = w[ks].mean(0) - duals[ks].mean(0) / rho if ks.size else received[cell]  # (8)
        for s, m in np.ndindex(servers, servers):
            heard[s] += mixing[s, m] * sent[m]  # (9)
        received = np.zeros_like(heard)
        for q in range(clusters):
            others = sum(heard[:, p] for p in range(clusters) if p != q or form == "all")
            received[:, q] = (1 - tau) * heard[:, q] + tau / max(clusters - (form == "others"), 1) * others  # (10)
        duals = duals + rho * (received[r.home, r.cluster] - w)  # (5)
        history.append(received)
    return np.array(history)


def ridge_step(r, rho):
    matrices = []
    for k, x in enumerate(r.x):
        own = r.lam / (r.home == r.home[k]).sum()
        matrices.append(np.linalg.inv(x.T @ x / len(x) + (own + rho) * np.eye(x.shape[1])))
    inverse, right = np.array(matrices), np.array([x.T @ y / len(x) for x, y in zip(r.x, r.y, strict=True)])
    return lambda duals, received, rho: (inverse @ (right + duals + rho * received)[..., None])[..., 0]


def run(r, mixing, rho, taus, form="others"):
    return iterate(ridge_step(r, rho), r, mixing, rho, taus, form)


def huber_step(x, y, steps=400):
    """(4) for the Huber loss of slope 1 by plain descent; x (n, D, d), y (n, D), rows no longer than 1."""

    def solve(duals, received, rho):
        w = np.array(received)
        for _ in range(steps):
            w = w - (huber_gradient(x, y, w) - duals + rho * (w - received)) / (1.0 + rho)
        return w

    return solve


def huber_gradient(x, y, w):
    slope = np.clip(np.einsum("nrd,nd->nr", x, w) - y, -1.0, 1.0)
    return np.einsum("nr,nrd->nd", slope, x) / x.shape[1]


def within(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1.0)


# ---- the parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["ridge", "huber"])
def test_duals_cancel_in_8_whatever_they_are_and_whoever_takes_part(loss):
    rng, rho = np.random.default_rng(1), 0.7
    x, y, duals = within(rng.normal(size=(5, 4, 3))), 2.0 * rng.normal(size=(5, 4)), rng.normal(size=(5, 3))
    received = rng.normal(size=3)
    if loss == "ridge":
        r = ca.Ridge(x, y, np.zeros(5, int), np.zeros(5, int), 0.0)
        w = ridge_step(r, rho)(duals, received, rho)
        gradients = np.array([x[k].T @ (x[k] @ w[k] - y[k]) / 4 for k in range(5)])
    else:
        w = huber_step(x, y)(duals, np.tile(received, (5, 1)), rho)
        gradients = huber_gradient(x, y, w)
    noise = rng.normal(size=(5, 3))
    for part in ([0, 1, 2, 3, 4], [1, 3], [2]):
        sent = (w + noise)[part].mean(0) - duals[part].mean(0) / rho  # (13)
        without = ca.aggregated(received, gradients[part].mean(0), rho) + noise[part].mean(0)
        np.testing.assert_allclose(sent, without, atol=1e-12)
        assert np.abs((w + noise)[part].mean(0) - without).max() > 0.1  # a twin that forgets the duals


def test_mixing_and_exchange_are_the_papers():
    path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    third = 1 / 3
    np.testing.assert_allclose(ca.neighbourhood_means(path), [[0.5, 0.5, 0], [third] * 3, [0, 0.5, 0.5]])
    np.testing.assert_allclose(ca.stationary(ca.neighbourhood_means(path)), np.array([2, 3, 2]) * 3 / 7)
    np.testing.assert_allclose(ca.stationary(metropolis(path)), 1.0)
    np.testing.assert_allclose(ca.exchange(3, 0.4), [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    np.testing.assert_allclose(ca.exchange(3, 0.3, "all"), [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(ca.exchange(2, 1.0), [[0, 1], [1, 0]])  # swapped
    np.testing.assert_allclose(ca.exchange(3, 2 / 3), third)  # the same for all
    np.testing.assert_allclose(ca.exchange(1, 0.4), 1.0)  # nobody to hear from


# ---- Theorem I -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form, tau", [("others", 0.0), ("others", 0.3), ("all", 0.6)])
@pytest.mark.parametrize("split", ["equal", "unequal", "empty"])
def test_the_iteration_ends_at_the_fixed_point(form, tau, split):
    r, adjacency = setting(2, clusters=3, split=split)
    mixing = ca.neighbourhood_means(adjacency)
    assert len(set(adjacency.sum(1))) > 1
    assert (split == "equal") == (len(set(r.cells.sum(1))) == 1)
    found = ca.fixed_point(r, mixing, 1.5, tau, form)
    assert ca.rate(r, mixing, 1.5, tau, form) < 0.95
    np.testing.assert_allclose(run(r, mixing, 1.5, [tau] * 400, form)[-1], found, atol=1e-8)
    assert ca.decibels(found, ca.cluster_optimum(r)) > -40.0


@pytest.mark.parametrize("split", ["equal", "unequal"])
def test_a_complete_graph_is_exact_and_meets_1_if_cells_are_equal(split):
    r, _ = setting(3, split=split)
    found = ca.fixed_point(r, ca.neighbourhood_means(np.ones((4, 4))), 0.8)
    assert ca.decibels(found, ca.cluster_optimum(r)) < -250.0
    sizes = r.cells.sum(1).reshape(r.shape)
    for q in range(2):  # (1) by least squares on all rows, every client's divided by D, and 24 clients' lam/6
        clients = np.flatnonzero(r.cluster == q)
        rows = [r.x[k] / math.sqrt(len(r.x[k])) for k in clients] + [math.sqrt(r.lam / 6 * len(clients)) * np.eye(3)]
        answers = [r.y[k] / math.sqrt(len(r.y[k])) for k in clients] + [np.zeros(3)]
        pooled = np.linalg.lstsq(np.concatenate(rows), np.concatenate(answers), rcond=None)[0]
        np.testing.assert_allclose(ca.cluster_optimum(r, sizes)[q], pooled, atol=1e-12)
        assert (np.abs(found[:, q] - pooled).max() < 1e-10) == (split == "equal")


def test_distances_on_irregular_graphs_of_the_papers_size():
    """Measured elsewhere with (9): -26, -33, -38 dB, which two graphs enclose; eight have -25.6, -32.1, -35.2 on
    average. Metropolis weights are no better at a small rho, and not exact at any."""
    plain = []
    for seed in (2, 3):
        r, adjacency = paper(seed)
        optimum, means = ca.cluster_optimum(r), ca.neighbourhood_means(adjacency)
        plain.append([ca.decibels(ca.fixed_point(r, means, rho), optimum) for rho in (2, 10, 50)])
    arrived = run(r, means, 10, [0.0] * 300)[-1]
    assert ca.decibels(arrived, optimum) == pytest.approx(plain[-1][1], abs=0.01)
    assert (np.min(plain, 0) < [-26, -33, -38]).all()
    assert (np.max(plain, 0) > [-26, -33, -38]).all()
    doubly = [ca.decibels(ca.fixed_point(r, metropolis(adjacency), rho), optimum) for rho in (2, 50, 500)]
    assert doubly[0] == pytest.approx(plain[-1][0], abs=2.0)
    assert doubly[1] - doubly[2] == pytest.approx(20.0, abs=2.0)  # O(1/rho): 10 times rho, 20 dB


def test_where_it_ends_with_much_mixing_or_a_large_penalty():
    r, adjacency = setting(5, servers=6)
    means, weights, optimum = ca.neighbourhood_means(adjacency), metropolis(adjacency), ca.cluster_optimum(r)
    heavy = ca.cluster_optimum(r, (adjacency.sum(1) + 1.0)[:, None])
    assert ca.decibels(ca.fixed_point(r, means, 1e6), heavy) < -90.0 < ca.decibels(heavy, optimum) + 50.0
    assert ca.decibels(ca.fixed_point(r, weights, 1e6), optimum) < -90.0
    for rho, times in itertools.product((0.5, 5.0), (50, 400)):
        often = np.linalg.matrix_power(lazy(weights), times)
        assert (ca.decibels(ca.fixed_point(r, often, rho), optimum) < -200.0) == (times == 400)
    ring = ca.neighbourhood_means(np.roll(np.eye(6), 1, 0) + np.roll(np.eye(6), -1, 0))  # equal degrees do not save it
    assert ca.decibels(ca.fixed_point(r, ring, 2.0), optimum) > -30.0


@pytest.mark.parametrize("tau", [0.0, 0.4])
def test_rate_is_how_errors_shrink(tau):
    r, adjacency = setting(8)
    mixing = ca.neighbourhood_means(adjacency)
    end, path = ca.fixed_point(r, mixing, 10.0, tau), run(r, mixing, 10.0, [tau] * 201)
    errors = np.sqrt(((path - end) ** 2).sum((1, 2, 3)))
    assert (errors[200] / errors[160]) ** (1 / 40) == pytest.approx(ca.rate(r, mixing, 10.0, tau), abs=5e-4)


@pytest.mark.parametrize("rho, diverges", [(1 / 6, False), (1 / 8, True)])
def test_convex_and_smooth_losses_diverge_on_a_path_of_three_servers(rho, diverges):
    """(9) has eigenvalues a = 1, 1/2, -1/6 there. With curvature 1 for all, each is a mode that shrinks by
    (a + (1 - a)/rho)/(1 + 1/rho), which at a = -1/6 is more than 1 from 1/rho = 7 on."""
    r = ca.Ridge([np.ones((1, 1))] * 3, [np.ones(1), np.zeros(1), -np.ones(1)], np.arange(3), np.zeros(3, int), 0.0)
    mixing = ca.neighbourhood_means([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    modes = [abs(a + (1 - a) / rho) / (1 + 1 / rho) for a in (1, 1 / 2, -1 / 6)]
    assert ca.rate(r, mixing, rho) == pytest.approx(max(modes), rel=1e-9)
    r = ca.Ridge(r.x, [np.ones(1), np.zeros(1), np.ones(1)], r.home, r.cluster, 0.0)  # has a part in the mode -1/6
    assert (np.abs(run(r, mixing, rho, [0.0] * 3000)[-1]).max() > 1e6) == diverges
    assert ca.rate(r, lazy(mixing), rho) < 1.0


def test_lazy_weights_never_diverge_and_others_do():
    """100 problems, with curvatures from far below to far above rho."""
    rng, rates = np.random.default_rng(7), {"lazy": [], "plain": []}
    for seed in range(100):
        clusters = int(rng.integers(1, 4))
        r, adjacency = setting(seed, 4, 2 * clusters, clusters, 2, split="unequal")
        r = ca.Ridge([x * 10 ** rng.uniform(-1, 2) for x in r.x], r.y, r.home, r.cluster, r.lam)
        rho, means = 10 ** rng.uniform(-2, 1), ca.neighbourhood_means(adjacency)
        rates["lazy"].append(ca.rate(r, lazy(means), rho, rng.uniform(0, (clusters - 1) / clusters)))
        rates["plain"].append(ca.rate(r, means, rho, 1.0))
    assert max(rates["lazy"]) < 1.0 < max(rates["plain"])


def test_convex_is_not_enough_for_a_linear_rate():
    """One client with the loss (w - 1)^4, smooth wherever it goes: the error falls as n^(-1/2) does."""

    def newton(duals, received, rho):
        w = received
        for _ in range(15):
            w = w - (4 * (w - 1) ** 3 - duals + rho * (w - received)) / (12 * (w - 1) ** 2 + rho)
        return w

    r, one = one_server([np.eye(1)], [np.ones(1)]), np.ones((1, 1))
    errors = 1.0 - iterate(newton, r, one, 1.0, [0.0] * 2000).ravel()
    assert errors[1999] / errors[499] == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("weights", ["lazy (9)", "metropolis"])
def test_the_problem_that_is_solved_for_any_convex_loss(weights):
    """Huber losses, unequal cells, two clusters with exchange: the iteration against a general minimiser."""
    rng = np.random.default_rng(8)
    r, adjacency = setting(8, 3, 4, 2, 2, degree=1.0, split="unequal")
    x, y = within(rng.normal(size=(12, 3, 2))), 3.0 * rng.normal(size=(12, 3))
    mixing = lazy(ca.neighbourhood_means(adjacency) if weights == "lazy (9)" else metropolis(adjacency))
    penalty, each = ca.coupling(mixing, 2, 0.4, 0.2), ca.stationary(mixing)
    np.testing.assert_allclose(penalty, penalty.T, atol=1e-12)
    assert np.linalg.eigvalsh(penalty).min() > -1e-12
    cell_size = [((r.home == r.home[k]) & (r.cluster == r.cluster[k])).sum() for k in range(12)]

    def problem(w):
        w = w.reshape(6, 2)
        loss = 0.5 * np.einsum("ce,cd,ed->", penalty, w, w)
        for k in range(12):
            u = np.abs(x[k] @ w[2 * r.home[k] + r.cluster[k]] - y[k])
            loss += each[r.home[k]] / cell_size[k] * np.where(u < 1, u * u / 2, u - 0.5).mean()
        return loss

    best = minimize(problem, np.zeros(12), method="BFGS", options={"gtol": 1e-9})
    found = iterate(huber_step(x, y, 60), r, mixing, 0.4, [0.2] * 300)[-1]
    np.testing.assert_allclose(found.ravel(), best.x, atol=2e-6)
    assert np.ptp(found, axis=0).max() > 0.05  # servers do not agree


@pytest.mark.parametrize("form, tau", [("others", 0.3), ("all", 0.3), ("others", 0.9)])
def test_a_constant_tau_solves_1_on_a_complete_graph(form, tau):
    """(1) for all clusters at once, gradients set to 0; a tau of .9 among 3 clusters has a negative coefficient."""
    r, _ = setting(9, clusters=3)
    penalty = ca.similarity_penalty(4, 3, 1.7, tau, form)
    assert (penalty < 0.0) == (tau == 0.9)
    matrix, right = np.zeros((3, 3, 3, 3)), np.zeros((3, 3))
    for k, q in enumerate(r.cluster):
        matrix[q, :, q] += (r.x[k].T @ r.x[k] / len(r.x[k]) + r.lam / 6 * np.eye(3)) / 2  # 2 clients in every cell
        right[q] += r.x[k].T @ r.y[k] / len(r.x[k]) / 2
    for q, p in itertools.permutations(range(3), 2):
        matrix[q, :, q] += penalty * np.eye(3)
        matrix[q, :, p] -= penalty * np.eye(3)
    expected = np.linalg.solve(matrix.reshape(9, 9), right.ravel()).reshape(3, 3)
    found = ca.fixed_point(r, np.full((4, 4), 0.25), 1.7, tau, form)
    np.testing.assert_allclose(found, np.broadcast_to(expected, (4, 3, 3)), atol=1e-10)
    assert ca.similarity_penalty(4, 3, 1.7, 2 / 3) == math.inf


# ---- Theorem II ------------------------------------------------------------------------------------------------------


def exceeded(r, mixing, rho, taus):
    """Rounds 1, 2, ...: the largest distance of a cell with exchange to itself without, over (28)."""
    apart = np.linalg.norm(run(r, mixing, rho, taus) - run(r, mixing, rho, 0.0 * np.array(taus)), axis=-1)
    return apart.max((1, 2)) / ca.exchange_bound(taus, ca.farthest(ca.cluster_optimum(r)))


def test_28_at_the_papers_sizes_fails_early_and_holds_late():
    worst = []
    constant, falling = np.full(110, 0.4), 0.4 * 0.98 ** np.arange(110)
    for seed, taus in ((0, constant), (1, constant), (2, constant), (2, falling)):
        r, adjacency = paper(seed)
        ratio = exceeded(r, ca.neighbourhood_means(adjacency), 3.0, taus)
        worst.append(ratio.max())
        assert 10 <= np.flatnonzero(ratio > 1.0).max() + 1 <= 25
        assert ratio[99:].max() < 0.8
    assert min(worst) > 1.2
    assert 1.6 < max(worst) < 2.3


def test_28_fails_for_longer_with_a_larger_penalty():
    r, adjacency = paper(3)
    assert exceeded(r, ca.neighbourhood_means(adjacency), 50.0, np.full(100, 0.4))[-1] > 1.1


def test_28_and_29_by_hand():
    assert ca.farthest(np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])) == 5.0
    np.testing.assert_allclose(ca.exchange_bound([0.5, 0.2, 0.0, 1.0], 2.0), [1.0, 1.2, 1.2, 2.0])


def test_clusters_that_want_the_same_model_differ_on_the_way():
    r, one = one_server([np.eye(1), 0.1 * np.eye(1)], [np.ones(1), np.ones(1)]), np.ones((1, 1))
    assert ca.exchange_bound([0.4] * 5, ca.farthest(ca.cluster_optimum(r)))[-1] < 1e-12
    for taus in ([0.4] * 5, [0.0] * 4 + [0.4]):  # the latter is the corollary, (41)
        with_exchange, without = run(r, one, 1.0, taus), run(r, one, 1.0, [0.0] * 5)
        assert np.abs(with_exchange - without)[-1].max() > 0.05
    assert np.abs(run(r, one, 1.0, [0.4] * 400)[-1] - 1.0).max() < 1e-8  # in the end they agree


@pytest.mark.parametrize("rho", [1.0, 1e3])
def test_28_fails_in_the_end_if_curvatures_differ_in_direction(rho):
    v = np.array([1.0, 0.01])
    hessians = [np.diag([1.0, 1e-4]), np.outer(v, v) + 1e-9 * np.eye(2)]
    r = one_server(hessians, [np.zeros(2), v])
    d_max = ca.farthest(ca.cluster_optimum(r))
    found = ca.fixed_point(r, np.ones((1, 1)), rho, 0.5)[0, 0]
    np.testing.assert_allclose(found, np.linalg.solve(hessians[0] + hessians[1], hessians[1] @ v), rtol=1e-4)
    assert np.linalg.norm(found) > 30.0 * ca.exchange_bound([0.5] * 40, d_max)[-1]  # it was 0 without exchange


# ---- privacy ---------------------------------------------------------------------------------------------------------


def test_no_swap_of_a_record_moves_a_huber_model_by_more_than_43_and_some_do():
    rng, problems, records, rho = np.random.default_rng(10), 20000, 3, 0.3
    x = within(2.0 * rng.normal(size=(problems, records, 2)))
    y = rng.normal(size=(problems, records)) * 10 ** rng.uniform(-2, 2, size=(problems, 1))
    duals, received = rng.normal(size=(2, problems, 2))
    moved = {}
    for swapped in (1, records):
        other_x, other_y = x.copy(), y.copy()
        other_y[:, :swapped] *= -1.0
        other_x[::2, :swapped] = within(rng.normal(size=(problems // 2, swapped, 2)))  # the rest keep their rows
        pair = [huber_step(*data, 150)(duals, received, rho) for data in ((x, y), (other_x, other_y))]
        moved[swapped] = np.linalg.norm(pair[0] - pair[1], axis=1).max()
    bound = ca.sensitivity(1.0, rho, records)
    assert bound == pytest.approx(2.0 / 0.9)
    assert 0.99 * bound < moved[1] <= bound * (1.0 + 1e-9)
    assert 0.97 * records * bound < moved[records] <= records * bound * (1.0 + 1e-9)


def test_ridge_breaks_43():
    """Rows and answers no longer than 1, so gradients at 0 are no longer than 1: but the received model is not 0."""
    received, rho = np.array([[10.0]]), 1.0
    home = np.zeros(1, int)
    models = [
        ridge_step(ca.Ridge([np.full((1, 1), x)], [np.zeros(1)], home, home, 0.0), rho)(np.zeros((1, 1)), received, rho)
        for x in (1.0, 0.0)
    ]
    assert abs(models[0] - models[1]).item() == pytest.approx(5.0)
    assert ca.sensitivity(1.0, rho, 1) == 2.0
    r, _ = paper(0)  # at the paper's sizes no small bound holds even at 0
    lengths = np.concatenate([np.linalg.norm(x, axis=1) * np.abs(y) for x, y in zip(r.x, r.y, strict=True)])
    assert np.median(lengths) == pytest.approx(40.0, abs=8.0)
    assert lengths.max() > 150.0


def test_a_linear_step_with_clipped_gradients_keeps_43_for_ridge():
    rng, rho, clip, records = np.random.default_rng(11), 0.4, 1.5, 4
    x, y = 10.0 * rng.normal(size=(2, 5000, records, 3)), 100.0 * rng.normal(size=(2, 5000, records))
    x[1, :, 1:], y[1, :, 1:] = x[0, :, 1:], y[0, :, 1:]
    received, dual = rng.normal(size=3), rng.normal(size=3)
    models = received + (dual - clip * within((x @ received - y)[..., None] * x / clip).mean(2)) / rho
    moved = np.linalg.norm(models[0] - models[1], axis=1).max()
    assert 0.99 * ca.sensitivity(clip, rho, records) < moved <= ca.sensitivity(clip, rho, records) * (1 + 1e-9)


def test_43_needs_convex_losses():
    """Nine records cos(pi w)/pi and one -w or w: slopes up to 1, and the best well changes sides. rho = 1."""
    w = np.linspace(-3.0, 3.0, 600001)
    best = [w[np.argmin(0.9 * np.cos(np.pi * w) / np.pi + 0.1 * tilt * w + 0.5 * w**2)] for tilt in (1.0, -1.0)]
    assert best[1] - best[0] > 7.0 * ca.sensitivity(1.0, 1.0, 10)


def test_47_is_the_renyi_divergence_of_a_release():
    moved, sigma = 0.8, 1.3
    for order in (1.5, 2.0, 5.0):
        z = np.linspace(-40.0, 40.0, 100001)
        powers = np.exp(order * norm.logpdf(z, 0, sigma) + (1 - order) * norm.logpdf(z, moved, sigma))
        value = trapezoid(powers, z)
        assert math.log(value) / (order - 1) == pytest.approx(order * ca.round_leakage(moved, sigma), rel=1e-8)


def test_leakage_is_the_sum_over_rounds_of_the_noise_that_was_drawn():
    moved, first, decay, rounds = 0.8, 1.3, 0.9, [0, 3, 4, 7]
    initial = ca.round_leakage(moved, first)
    for schedule, factor in (("variance_decay", decay), ("leakage_decay", 1 / decay)):
        total = sum(ca.round_leakage(moved, math.sqrt(first**2 * factor**n)) for n in rounds)
        assert ca.leakage(schedule, initial, decay, rounds) == pytest.approx(total)
    each = [ca.leakage("variance_decay", 0.001, 0.99, [n]) for n in (0, 100, 300)]
    assert each == pytest.approx([0.001, 0.00273, 0.0204], rel=1e-2)  # grows 20 times


def test_totals_of_the_paper():
    """.095 counts rounds from 0, 1.939 from 1, as (48) does; the other way round they are .094 and 1.920."""
    falls = ca.leakage("leakage_decay", 1e-3, 0.99, range(300))
    grows = ca.leakage("variance_decay", 1e-3, 0.99, range(1, 301))
    assert falls == pytest.approx(0.0951, abs=5e-5)
    assert grows == pytest.approx(1.939, abs=5e-4)
    assert ca.leakage("leakage_decay", 1e-3, 0.99, range(1, 301)) == pytest.approx(0.0941, abs=5e-5)
    assert ca.leakage("variance_decay", 1e-3, 0.99, range(300)) == pytest.approx(1.920, abs=5e-4)
    assert zcdp_epsilon(falls, 1e-5) == pytest.approx(1.86, abs=0.01)
    assert zcdp_epsilon(grows, 1e-5) == pytest.approx(10.52, abs=0.01)
    for total in (falls, grows):
        assert gaussian_epsilon(math.sqrt(2.0 * total), 1e-5) < zcdp_epsilon(total, 1e-5)
