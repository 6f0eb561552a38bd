"""S4's theory against brute force, enumeration, closed forms and runs of Algorithm 1; what fails is shown to fail."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import make_interp_spline
from scipy.optimize import minimize_scalar
from scipy.stats import chi

from silograph.core.errors import InputError
from silograph.privacy.accounting import gaussian_epsilon, gaussian_multiplier, sampled_epsilon
from silograph.theory import private_meta as pm

ONE = np.ones(1)


def assume(**known):
    """One client whose constants are 0 unless `known`."""
    base = {"B": 0.0, "lam": 0.0, "L": 0.0, "rho": 0.0, "sigma_G": 0.0, "sigma_H": 0.0}
    return pm.Assumptions(**{**base, "p": ONE, "epsilon": 0.0 * ONE, "gamma": 0.0 * ONE, **known})


class Waves:
    """Records of U clients: sums of cosines over the coordinates of w, with `bowl` w^2 / 2 on top.

    Derivatives are of one coordinate, so all constants are found on a grid: over a period, or up to `reach`.
    """

    def __init__(self, seed, clients=3, records=3, bowl=0.0, reach=math.pi, scale=1.0):
        rng = np.random.default_rng(seed)
        self.bowl, self.grid = bowl, np.linspace(-reach, reach, 1500)
        self.k = np.arange(1, 4)
        self.a = scale * rng.normal(size=(clients, records, 3)) / self.k**2
        self.phase = rng.uniform(0.0, 2.0 * math.pi, size=(clients, records, 3))
        self.p = rng.dirichlet(np.full(clients, 3.0))

    def records(self, order, w):
        """w (..., U, S): derivatives of all records (..., U, K, S)."""
        w = w[..., None, :]
        bowl = self.bowl * (w**2 / 2.0, w, np.ones_like(w), np.zeros_like(w))[order]
        angles = w[..., None] * self.k + self.phase[:, :, None] + order * math.pi / 2.0
        return bowl + (self.a[:, :, None] * self.k**order * np.cos(angles)).sum(-1)

    def client(self, order, w):
        return self.records(order, w).mean(-2)

    def meta(self, w, eta):
        """(..., U, S): gradients of all G_i at w (..., U, S)."""
        return (1.0 - eta * self.client(2, w)) * self.client(1, w - eta * self.client(1, w))

    def value(self, w, eta):
        """G at w (..., S)."""
        w = np.broadcast_to(w[..., None, :], (*w.shape[:-1], len(self.p), w.shape[-1]))
        return (self.client(0, w - eta * self.client(1, w)).sum(-1) * self.p).sum(-1)

    def everywhere(self):
        return np.broadcast_to(self.grid, (len(self.p), len(self.grid)))

    def assumptions(self, size=1):
        """For S coordinates: gradients and the Frobenius norm grow with S^(1/2), spectral norms do not."""
        each = [self.records(n, self.everywhere()) for n in range(4)]
        clients = [e.mean(1) for e in each]
        away = [np.abs(c - np.tensordot(self.p, c, 1)).max(1) for c in clients]
        spread = [math.sqrt(((e - c[:, None]) ** 2).mean(1).max() * size) for e, c in zip(each, clients, strict=True)]
        steep, curved, twisted = (1.001 * np.abs(e).max() for e in each[1:])  # the grid may miss a top
        longest = math.sqrt(size) * steep
        return pm.Assumptions(
            B=longest,
            lam=longest,
            L=curved,
            rho=twisted,
            p=self.p,
            epsilon=math.sqrt(size) * away[1],
            gamma=away[2],
            sigma_G=spread[1],
            sigma_H=spread[2],
            l=clients[2].min() - 0.001 * curved,
        )


ETAS = [0.0, 0.05, 0.3, 1.0]


# ---- the objective: Lemmas 1, 2 and 6 --------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", ETAS)
def test_lemma_1_holds_and_is_attained(eta):
    for seed in range(10):
        f = Waves(seed)
        slopes = np.diff(f.meta(f.everywhere(), eta)) / np.diff(f.grid)
        assert np.abs(slopes).max() <= pm.smoothness(f.assumptions(), eta)
    saddle = np.diag([-2.0, 1.0])
    jacobian = np.eye(2) - eta * saddle
    assert np.linalg.norm(jacobian @ saddle @ jacobian, 2) == pytest.approx(pm.smoothness(assume(L=2.0), eta))


@pytest.mark.parametrize("eta", ETAS)
def test_no_client_drifts_farther(eta):
    for seed in range(20):
        f = Waves(seed, clients=1 + seed % 4, records=1)
        g = f.meta(f.everywhere(), eta)
        away = np.abs(g - f.p @ g).max(1)
        assert (away <= pm.drifts(f.assumptions(), eta) + 1e-12).all()


def test_lemma_2_misses_a_square():
    """Two hills -L (w - c)^2 / 2: Hessians are equal, gradients L/2 of c apart from the mean."""
    L, eta, c = 2.0, 0.5, np.array([-1.0, 1.0])
    gradients = -L * (1.0 + eta * L) ** 2 * (0.3 - c)
    away = np.abs(gradients - gradients.mean())
    a = assume(L=L, p=np.full(2, 0.5), epsilon=np.full(2, L), gamma=np.zeros(2))
    np.testing.assert_allclose(away, 2.0 * pm.printed_drifts(a, eta))
    np.testing.assert_allclose(away, pm.drifts(a, eta))  # attained


def test_lemma_2_takes_the_mean_of_metas_for_the_meta_of_the_mean():
    """Bowls h w^2 / 2 on [-1, 1]. The third is the mean of all, so Lemma 2 says that it does not drift."""
    h, eta = np.array([0.2, 1.8, 1.0]), 0.5
    slopes = h * (1.0 - eta * h) ** 2
    away = np.abs(slopes - slopes.mean())  # at w = 1
    p = np.full(3, 1.0 / 3.0)
    a = assume(B=1.8, L=1.8, p=p, epsilon=np.abs(h - 1.0), gamma=np.abs(h - 1.0))
    assert pm.printed_drifts(a, eta)[2] == 0.0
    assert away[2] > 0.1
    assert (away <= pm.drifts(a, eta)).all()


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.4])
def test_meta_objectives_are_as_convex_as_said(eta):
    for seed in range(20):
        f = Waves(seed, bowl=1.0, reach=3.0, scale=0.01)
        a = f.assumptions()
        slopes = np.diff(f.meta(f.everywhere(), eta)) / np.diff(f.grid)
        assert 0.0 < pm.convexity(a, eta) <= slopes.min()
        assert eta * a.L < 1.0
        assert pm.printed_convexity(a, eta) <= pm.convexity(a, eta)


def logistic_hessian(x, w, eta, step=1e-5):
    """Of G by differences, for the logistic loss of rows x with a ridge of w^2 / 20."""

    def gradient(v):
        return -(x / (1.0 + np.exp(x @ v))[:, None]).mean(0) + 0.1 * v

    def hessian(v):
        s = 1.0 / (1.0 + np.exp(-x @ v))
        return (x.T * (s * (1.0 - s))) @ x / len(x) + 0.1 * np.eye(len(v))

    def meta(v):
        return (np.eye(len(v)) - eta * hessian(v)) @ gradient(v - eta * gradient(v))

    units = step * np.eye(len(w))
    return np.array([(meta(w + u) - meta(w - u)) / (2.0 * step) for u in units])


def test_lemmas_1_and_6_hold_for_logistic_regressions_whose_hessians_turn():
    rng = np.random.default_rng(3)
    longest = 0.0
    for _ in range(100):
        x = rng.normal(size=(6, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        w, eta = rng.normal(size=3) * rng.uniform(0.0, 4.0), rng.uniform(0.0, 0.5)
        reach = np.linalg.norm(w) + eta * (1.0 + 0.1 * np.linalg.norm(w))
        a = assume(B=1.0 + 0.1 * reach, L=0.35, rho=1.0 / (6.0 * math.sqrt(3.0)), l=0.1)
        curvatures = np.linalg.eigvalsh(logistic_hessian(x, w, eta))
        assert pm.convexity(a, eta) - 1e-8 <= curvatures[0]
        assert curvatures[-1] <= pm.smoothness(a, eta) + 1e-8
        longest = max(longest, curvatures[-1] / pm.smoothness(a, eta))
    assert longest > 0.5


def test_lemma_6_fails_for_long_inner_steps():
    h, eta = np.array([0.5, 1.0]), 2.0
    a = assume(L=1.0, l=0.5)
    least = (h * (1.0 - eta * h) ** 2).min()
    assert pm.printed_convexity(a, eta) == 1.5
    assert least == 0.0 == pm.convexity(a, eta)
    assert pm.convexity(a, 3.0) == pytest.approx(0.5 * 0.5**2)  # beyond 1/l it is convex again
    assert (h * (1.0 - 3.0 * h) ** 2).min() >= pm.convexity(a, 3.0)


def test_6s_proof_takes_a_factor_out_of_matrices_that_do_not_commute():
    """(200): d' A g >= (1 - eta L) d' g, with A = 1 - eta H and g = M A d; H and M between .05 and 1, eta = .9."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(3000):
        turned = [np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(2)]
        H, M = (q @ np.diag([0.05, 1.0]) @ q.T for q in turned)
        A, d = np.eye(2) - 0.9 * H, rng.normal(size=2)
        worst = min(worst, d @ (A - 0.1 * np.eye(2)) @ M @ A @ d / (d @ d))
    assert worst < -1e-3


# ---- one step: Lemmas 3 and 4 ----------------------------------------------------------------------------------------


def mean_sampling_error(f, eta, query, support):
    """(U, points): the exact mean over all equally likely batches."""
    w = f.everywhere()
    first, second = f.records(1, w), f.records(2, w)
    exact, total, count = f.meta(w, eta), 0.0, 0
    for chosen in itertools.product(range(first.shape[1]), repeat=query):
        theta = w - eta * first[:, chosen].mean(1)
        outer = f.records(1, theta)
        for others in itertools.product(range(first.shape[1]), repeat=support):
            estimate = (1.0 - eta * second[:, chosen].mean(1)) * outer[:, others].mean(1)
            total, count = total + np.abs(estimate - exact), count + 1
    return total / count


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("query, support", [(1, 1), (2, 1), (1, 3)])
def test_sampled_meta_gradients_are_no_farther_off(eta, query, support):
    for seed in range(3):
        f = Waves(seed)
        bound = pm.sampling_errors(f.assumptions(), eta, np.full(3, query), np.full(3, support))
        assert (mean_sampling_error(f, eta, query, support).max(1) <= bound).all()


def test_lemma_3_forgets_that_outer_gradients_are_sampled():
    f = Waves(1)
    a = f.assumptions()
    for eta in (0.0, 0.01):
        found = mean_sampling_error(f, eta, 2, 2).max(1)
        assert (found > 2.0 * pm.printed_sampling_errors(a, eta, np.full(3, 2.0))).all()
    assert (pm.printed_sampling_errors(a, 0.0, np.full(3, 2.0)) == 0.0).all()


def test_variances_of_hessians_add_up_in_the_frobenius_norm_only():
    """(108). Records' Hessians are all diag(+-1, ..., +-1): spectral norm 1, Frobenius norm 2."""
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    means = np.array([(x + y) / 2.0 for x in signs for y in signs])
    spectral, frobenius = (np.abs(means).max(1) ** 2).mean(), (means**2).sum(1).mean()
    assert spectral == 15.0 / 16.0  # (108) has 1/2
    assert frobenius == pytest.approx(4.0 / 2.0)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 10, 51, 1000, 33_160_000])
def test_mean_norm_and_theta(size):
    assert pm.mean_norm(1.5, size) == pytest.approx(1.5 * chi(size).mean(), rel=1e-12)
    if size > 1000:
        assert pm.mean_norm(1.0, size) == pytest.approx(math.sqrt(size), rel=1e-7)
    elif size > 1:
        assert pm.printed_theta(0.5, 3.0, size) / pm.mean_norm(1.5, size) == pytest.approx(2.0 if size % 2 else 4.0)


def test_theta_says_that_three_parameters_need_less_noise_than_two():
    assert pm.printed_theta(1.0, 1.0, 3) < pm.printed_theta(1.0, 1.0, 2)
    assert pm.mean_norm(1.0, 3) > pm.mean_norm(1.0, 2)


def applied(first, second, outer, w, eta, clip, sigma, noise, outer_noise=0.0):
    """(6) to (11) with Hessians that are diagonal; `outer` gives the support batch's gradients."""
    inner = first / np.maximum(1.0, np.linalg.norm(first, axis=-1, keepdims=True) / clip)  # (6)
    theta = w - eta * (inner + clip * sigma * noise)  # (7)
    g1, g2, root = 1.0 - eta * second, outer(theta), math.sqrt(clip)
    g1 = g1 / np.maximum(1.0, np.abs(g1).max(-1, keepdims=True) / root)
    g2 = g2 / np.maximum(1.0, np.linalg.norm(g2, axis=-1, keepdims=True) / root)
    return g1 * g2 + clip * sigma * outer_noise  # (9)


@pytest.mark.parametrize("sigma", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("clip", [0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("eta", [0.0, 0.1, 0.7])
def test_clips_and_inner_noise_distort_no_more(eta, clip, sigma):
    """Means over 200 draws; without noise exact. With fixed seeds, and bounds that are far off where noise rules."""
    rng, size = np.random.default_rng(5), 4
    for seed in range(5):
        f = Waves(seed, clients=1, records=1)
        a = f.assumptions(size)
        w = rng.uniform(-math.pi, math.pi, size=(40, 1, 1, size))
        first, second = f.client(1, w), f.client(2, w)
        noise = rng.normal(size=(40, 200 if sigma else 1, 1, size))
        step = applied(first, second, lambda v, f=f: f.client(1, v), w, eta, clip, sigma, noise)
        away = np.linalg.norm(step - f.meta(w, eta), axis=-1).mean(1)
        assert away.max() <= pm.distortion(a, eta, clip, sigma, size) + 1e-12
        assert pm.distortion(a, eta, clip, sigma, size) <= pm.printed_distortion(a, eta, clip, sigma, size)


@pytest.mark.parametrize("clip", [0.04, 0.5, 2.0, 9.0])
def test_what_clips_take_away_is_attained(clip):
    slope = np.array([[2.0, 0.0]])
    step = applied(slope, np.zeros((1, 2)), lambda v: slope, np.zeros((1, 2)), 0.0, clip, 0.0, 0.0)
    assert np.linalg.norm(step - slope) == pytest.approx(pm.distortion(assume(B=2.0), 0.0, clip, 0.0, 2))


def test_lemma_4_forgets_the_outer_noise():
    a, noises = assume(B=2.0), np.random.default_rng(6).normal(size=(2, 5000, 3))
    slope = np.array([2.0, 0.0, 0.0])
    step = applied(slope, np.zeros(3), lambda v: slope, np.zeros(3), 0.0, 4.0, 0.1, *noises)
    away = np.linalg.norm(step - slope, axis=-1)
    assert pm.printed_distortion(a, 0.0, 4.0, 0.1, 3) == 0.0 == pm.distortion(a, 0.0, 4.0, 0.1, 3)
    assert away.mean() == pytest.approx(pm.mean_norm(0.4, 3), rel=0.03)  # 5 standard errors


def test_nothing_to_clip_and_no_noise_is_no_distortion_unlike_remark_1():
    a = assume(B=2.0, L=1.0)
    assert pm.distortion(a, 0.5, 100.0, 0.0, 10) == 0.0
    assert pm.printed_distortion(a, 0.5, 100.0, 0.0, 10) == pytest.approx(1.5 * 2.0 * 0.5 * 2.0)


# ---- one round: Lemma 5 ----------------------------------------------------------------------------------------------


def apart(meta, p, w, beta, steps):
    """|mean of clients that go alone - steps down the mean gradient|; `meta` takes models of all clients."""
    alone, together = np.broadcast_to(w, (len(p), *np.shape(w))), w
    for _ in range(steps):
        alone = alone - beta * meta(alone)
        together = together - beta * np.tensordot(p, meta(np.broadcast_to(together, alone.shape)), 1)
    return np.abs(np.tensordot(p, alone, 1) - together)


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
@pytest.mark.parametrize("eta", ETAS)
def test_local_steps_end_no_farther_apart(eta, steps):
    for seed in range(5):
        f = Waves(seed, clients=4, records=1)
        a = f.assumptions()
        smooth, beta = pm.smoothness(a, eta), 0.02
        bound = pm.local_gap(float(a.p @ pm.drifts(a, eta)), smooth, beta, steps)
        assert apart(lambda w, f=f: f.meta(w, eta), f.p, f.grid, beta, steps).max() <= bound + 1e-12


def test_h_is_the_papers_closed_form():
    drift, smooth, beta = 0.7, 3.0, 0.2
    assert pm.local_gap(drift, smooth, beta, 1) == 0.0
    for steps in range(2, 12):
        closed = beta * drift * (((1.0 + beta * smooth) ** steps - 1.0) / (beta * smooth) - steps)  # (28)
        assert pm.local_gap(drift, smooth, beta, steps) == pytest.approx(closed)
        client = total = 0.0
        for _ in range(steps):
            client, total = (
                (1.0 + beta * smooth) * client + beta * drift,
                total + beta * smooth * client,
            )  # (165), (183)
        assert pm.local_gap(drift, smooth, beta, steps) == pytest.approx(total)


def test_lemma_5_fails_with_the_drifts_of_lemma_2():
    """Two clients whose gradients differ by 1 everywhere. Hessians are -1 where both are, and bend there; inner steps
    lead one client to a place where it is 1, the other to where it is -1."""
    u, eta, beta = 1.0 / 60.0, 1.0, 1e-5
    places = [
        -4.0,
        -0.5 - 3 * u,
        -0.5 - 2 * u,
        -0.5,
        -0.5 + 2 * u,
        -0.3 * u,
        -0.1 * u,
        0.1 * u,
        0.5 + u,
        0.5 + 2 * u,
        4.0,
    ]
    hessian = make_interp_spline(places, [0.0, 0.0, 1.0, 1.0, -1.0, -1.0, -0.8, -1.0, -1.0, 0.0, 0.0], k=1)
    slope, p = hessian.antiderivative(), np.array([0.9, 0.1])

    def gradient(w):
        return slope(w) - slope(0.0) + np.array([-0.5, 0.5])[:, None]

    def meta(w):
        return (1.0 - eta * hessian(w)) * gradient(w - eta * gradient(w))

    everywhere = np.broadcast_to(np.linspace(-3.9, 3.9, 100_000), (2, 100_000))
    longest = np.abs(gradient(everywhere)).max()
    a = assume(B=longest, L=1.0, rho=1.0 / u, p=p, epsilon=1.0 - p, gamma=np.zeros(2))
    assert np.abs(np.diff(hessian(everywhere[0])) / np.diff(everywhere[0])).max() <= a.rho + 1e-6
    found = apart(meta, p, np.array([0.05 * u]), beta, 2)[0]
    smooth = pm.smoothness(a, eta)
    assert found > 1.8 * pm.local_gap(float(p @ pm.printed_drifts(a, eta)), smooth, beta, 2)
    assert 0.9 * pm.local_gap(float(p @ pm.drifts(a, eta)), smooth, beta, 2) < found
    assert found < pm.local_gap(float(p @ pm.drifts(a, eta)), smooth, beta, 2)


# ---- all rounds: Theorems 2 and 3 ------------------------------------------------------------------------------------


def train(f, t, rounds, start, seed, repeats=300):
    """(T + 1, repeats, S): w^0 ... w^T of Algorithm 1, and the farthest coordinate any model or inner step got to."""
    rng, clients, records = np.random.default_rng(seed), len(f.p), f.a.shape[1]
    history, farthest = [np.tile(start, (repeats, 1))], 0.0
    for _ in range(rounds):
        w = np.repeat(history[-1][:, None], clients, 1)
        for _ in range(t.local_steps):
            draws = [rng.multinomial(n[0], np.full(records, 1.0 / records), w.shape[:2]) for n in (t.query, t.support)]
            query, support = (d[..., None] / d[0, 0].sum() for d in draws)
            first, second = ((f.records(order, w) * query).sum(-2) for order in (1, 2))
            noises = rng.normal(size=(2, *w.shape))
            visited = []

            def outer(theta, support=support, visited=visited):
                visited.append(np.abs(theta).max())
                return (f.records(1, theta) * support).sum(-2)

            w = w - t.beta * applied(first, second, outer, w, t.eta, t.clip, t.sigma, *noises)
            farthest = max(farthest, np.abs(w).max(), *visited)
        history.append((w * f.p[:, None]).sum(1))
    return np.array(history), farthest


def least(f, eta, size):
    """min G: coordinates are alike, so one is searched, from the best place of a grid."""
    values = f.value(f.grid[:, None], eta)
    at = f.grid[values.argmin()]
    found = minimize_scalar(lambda w: float(f.value(np.array([w]), eta)), (at - 0.01, at + 0.01))
    return size * float(found.fun)


def training(f, eta, beta, steps, clip, sigma, size=3):
    sizes = np.full(len(f.p), 2)
    return pm.Training(eta, beta, steps, clip, sigma, size, query=sizes, support=2 * sizes)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("eta", [0.0, 0.05, 0.2])
def test_theorem_two_bounds_runs_of_the_algorithm(eta, steps):
    """Means of 300 runs, tens of standard errors below the bound. Nothing leaves the region the constants are of."""
    f = Waves(7, clients=4, bowl=1.0, reach=3.0, scale=0.03)
    a = f.assumptions(3)
    t = training(f, eta, 0.4, steps, clip=40.0, sigma=0.004)
    start = np.array([1.0, -1.2, 0.8])
    history, farthest = train(f, t, 8, start, seed=1)
    assert farthest < 3.0
    assert 2.0 * 3.0 * math.sqrt(3.0) <= a.widest  # the cube's diagonal
    gaps = f.value(history, eta) - least(f, eta, 3)
    for rounds in (1, 3, 8):
        assert gaps[rounds].mean() <= pm.theorem_two(a, t, rounds, float(gaps[0].mean()))
    assert gaps[8].mean() < 0.2 * gaps[0].mean()
    if eta == 0.0 and steps == 1:  # more than 5 standard errors above
        assert gaps[8].mean() > pm.printed_theorem_two(a, t, 8, float(gaps[0].mean()))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("eta", [0.0, 0.02, 0.1])
def test_theorem_three_bounds_runs_of_the_algorithm(eta, steps):
    """Means of 300 runs on waves, which meet Assumptions 1 to 4 everywhere."""
    f = Waves(8, clients=4)
    a = f.assumptions(3)
    t = training(f, eta, 0.05, steps, clip=2.0, sigma=0.05)
    history, _ = train(f, t, 6, np.array([1.0, -1.2, 0.8]), seed=2)
    squares = []
    for w in history[:-1]:
        exact = w
        for _ in range(steps):
            clients = np.repeat(exact[:, None], 4, 1)
            gradient = (f.meta(clients, eta) * f.p[:, None]).sum(1)
            squares.append((gradient**2).sum(-1).mean())
            exact = exact - t.beta * gradient
    gap = float(f.value(history[0], eta).mean()) - least(f, eta, 3)
    assert sum(squares) / 6 <= pm.theorem_three(a, t, 6, gap)


def bowl(sigma=0.05, beta=1.0, clip=1.0, eta=0.0, size=4):
    """|w|^2 / 2 on the unit ball: one client, all its records equal. Nothing is clipped and nothing is estimated."""
    t = pm.Training(eta, beta, 1, clip, sigma, size, query=ONE, support=ONE)
    return assume(B=1.0, lam=1.0, L=1.0, l=1.0), t


def test_theorem_2_forgets_the_outer_noise():
    """beta = 1 leads to minus the noise, in whatever round: the mean loss is S (C sigma)^2 / 2, said to be 0."""
    a, t = bowl()
    expected = t.size * (t.clip * t.sigma) ** 2 / 2.0
    f = Waves(0, clients=1, records=1, bowl=1.0, scale=0.0)
    history, farthest = train(f, t, 3, np.array([0.5, 0.0, -0.5, 0.1]), seed=3, repeats=2000)
    assert farthest < 1.0
    assert f.value(history[1:], 0.0).mean() == pytest.approx(expected, rel=0.1)  # 10 standard errors
    for rounds in (1, 3, 50):
        assert pm.printed_theorem_two(a, t, rounds, 0.25) == 0.0
        assert pm.theorem_two(a, replace(t, beta=0.999999), rounds, 0.25) > expected


def test_theorem_3_forgets_the_outer_noise():
    """|grad G|^2 stays at S (C sigma)^2 from round 1 on; the paper's bound goes to 0."""
    a, t = bowl()
    gap, rounds = 0.255, 1000
    found = (2.0 * gap + (rounds - 1) * t.size * (t.clip * t.sigma) ** 2) / rounds
    assert pm.printed_theorem_three(a, t, rounds, gap) < found / 10.0
    assert found <= pm.theorem_three(a, t, rounds, gap)


def test_a_number_of_rounds_is_best_in_the_bound_but_not_in_the_printed_one():
    """At (2, 1e-3)-DP. sigma grows with the root of T; the printed bound sees it only through eta."""

    def best(bound, gap, eta):
        values = []
        for rounds in range(60):
            sigma = 1e-3 * gaussian_multiplier(2.0, 1e-3, max(rounds, 1))  # as with a mean over 1000 records
            a, t = bowl(sigma, 0.3, eta=eta)
            values.append(bound(a, t, rounds, gap))
        return int(np.argmin(values))

    assert 0 < best(pm.theorem_two, 0.5, 0.0) < 59
    assert best(pm.theorem_two, 1e-6, 0.0) == 0
    assert best(pm.printed_theorem_two, 0.5, 0.0) == 59


def test_the_bound_only_grows_with_the_model():
    for bound in (pm.theorem_two, pm.theorem_three):
        values = []
        for size in (1, 2, 3, 10, 1000, 10**6):
            a, t = bowl(beta=0.3, eta=0.1, clip=2.0, size=size)
            values.append(bound(a, t, 20, 0.5))
        assert values == sorted(set(values))


def test_theorems_refuse_what_they_do_not_cover():
    a, t = bowl(beta=2.0)
    for bound in (pm.theorem_two, pm.theorem_three):
        with pytest.raises(InputError, match="beta"):
            bound(a, t, 3, 1.0)
    with pytest.raises(InputError, match="eta"):
        pm.theorem_two(a, replace(t, eta=1.0, beta=0.1), 3, 1.0)
    assert a.widest == 2.0
    assert assume(B=1.0).widest == math.inf


# ---- privacy: Theorem 1 ----------------------------------------------------------------------------------------------

T, DELTA = 200, 1e-3
PAPER = {  # rate and tau_0: sigma by the Renyi accountant, by privacy loss distributions
    (1.0, 1): ([32.17, 18.08, 13.04], [28.90, 16.46, 11.97]),
    (0.1, 1): ([3.348, 1.983, 1.508], [3.014, 1.814, 1.394]),
    (0.1, 5): ([7.252, 4.125, 3.017], [6.522, 3.762, 2.776]),
    (0.01, 1): ([0.756, 0.607, 0.535], [0.684, 0.557, 0.495]),
}
SOUND = {
    (1.0, 1): ([22.74, 12.78, 9.22], [20.44, 11.64, 8.46]),
    (0.1, 1): ([2.457, 1.511, 1.183], [2.214, 1.385, 1.094]),
    (0.01, 1): ([0.708, 0.568, 0.499], [0.629, 0.515, 0.456]),
}


def entries(table):
    return [
        (rate, steps, accountant, sigma, epsilon)
        for (rate, steps), columns in table.items()
        for accountant, sigmas in zip(("rdp", "pld"), columns, strict=True)
        for sigma, epsilon in zip(sigmas, (2.0, 4.0, 6.0), strict=True)
    ]


@pytest.mark.parametrize("rate, steps, accountant, sigma, epsilon", entries(PAPER))
def test_theorem_one_meets_the_table(rate, steps, accountant, sigma, epsilon):
    assert pm.theorem_one(sigma, rate, T, steps, DELTA, accountant) == pytest.approx(epsilon, rel=6e-3)


@pytest.mark.parametrize("rate, steps, accountant, sigma, epsilon", entries(SOUND))
def test_a_record_of_one_set_pays_half_the_releases(rate, steps, accountant, sigma, epsilon):
    assert sampled_epsilon(sigma, rate, T * steps, DELTA, accountant) == pytest.approx(epsilon, rel=6e-3)


def test_the_printed_integrals_mix_twice():
    """By quadrature at one order: (13) as printed is a sampled Gaussian of rate q^2; and what that hides."""
    sigma, q, order = 2.0, 0.1, 8.0
    z = np.linspace(-40.0, 60.0, 400_001)
    zero, one = (np.exp(-((z - m) ** 2) / (2.0 * sigma**2)) / (sigma * math.sqrt(2.0 * math.pi)) for m in (0.0, 1.0))
    mixed = q * one + (1.0 - q) * zero
    printed, meant, squared = (
        float((zero * ((1.0 - rate) + rate * top / zero) ** order).sum() * (z[1] - z[0]))
        for rate, top in ((q, mixed), (q, one), (q**2, one))
    )
    assert printed == pytest.approx(squared, rel=1e-12)
    assert printed - 1.0 < (meant - 1.0) / 20.0
    assert pm.printed_theorem_one(sigma, q, T, 1, DELTA) == pytest.approx(0.27, abs=0.005)
    assert pm.theorem_one(sigma, q, T, 1, DELTA) == pytest.approx(3.95, abs=0.005)


@pytest.mark.parametrize(
    "sigma, claimed, support, query", [(32.17, 2, 2.68, 4.12), (18.08, 4, 5.51, 8.66), (13.04, 6, 8.44, 13.50)]
)
def test_what_the_literal_version_costs(sigma, claimed, support, query):
    costs = pm.true_cost_of_the_literal_version(sigma, 1.0, T, 1, DELTA)
    assert pm.theorem_one(sigma, 1.0, T, 1, DELTA) == pytest.approx(claimed, rel=1e-3)
    assert costs.support == pytest.approx(support, abs=0.006)
    assert costs.epsilon == costs.query == pytest.approx(query, abs=0.006)
    for ratio, cost in ((2.0, costs.support), (math.sqrt(8.0), costs.query)):
        assert cost == pytest.approx(gaussian_epsilon(ratio / sigma * math.sqrt(T), DELTA), rel=1e-3)


def test_one_query_batch_used_twice_is_not_two_batches():
    """At rate .01, where 4.0 is claimed: with clips per record, whose sensitivity is C, a query record still pays 9.6.
    The paper's clips have 2C; at rate .1, where 2.0 is claimed, records pay 3.14 and 5.00."""
    assert sampled_epsilon(0.557 / math.sqrt(2.0), 0.01, T, DELTA) == pytest.approx(9.62, abs=0.01)
    costs = pm.true_cost_of_the_literal_version(6.522, 0.1, T, 5, DELTA)
    assert (costs.support, costs.query) == (pytest.approx(3.14, abs=0.01), pytest.approx(5.0, abs=0.01))


def test_one_record_moves_a_clipped_mean_by_twice_the_clip():
    """Nine records without a gradient but 1e-3; a tenth turns their mean around."""
    others = np.full((9, 1), 1e-3)

    def clipped(rows):
        mean = rows.mean(0)
        return mean / np.maximum(1.0, np.linalg.norm(mean) / 1e-4)  # (6)

    moved = clipped(np.vstack([others, [[1.0]]])) - clipped(np.vstack([others, [[-1.0]]]))
    assert np.abs(moved) == pytest.approx(2e-4)
    assert np.abs(clipped(np.vstack([others, [[-1.0]]])) - clipped(others)) == pytest.approx(2e-4)  # one more
