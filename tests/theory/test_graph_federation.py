"""S1's theory against enumeration, closed forms and simulation; what does not hold is shown not to."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag, solve_discrete_lyapunov
from scipy.stats import laplace

from silograph.core.errors import InputError, SolverError
from silograph.kernels import mixing
from silograph.tasks.linear import Linear
from silograph.theory import graph_federation as gf
from silograph.topology import regions, server_graph, spectral_gap

SCHEMES = ["none", "homomorphic", "edge", "sender"]
PREDICTED = {
    "homomorphic": mixing.homomorphic_disagreement,
    "sender": mixing.sender_disagreement,
    "edge": mixing.edge_disagreement,
}


def setting(servers=3, agents=3, records=5, sampled=2, mu=0.2, seed=0, loss="ridge", most_epochs=3, weights="lazy"):
    """Regions and agents that differ in scale, noise, epochs and batches."""
    rng, features, silos = np.random.default_rng(seed), 2, servers * agents
    task, truth, parts = Linear(features, records, loss, rho=0.1), rng.normal(size=features), []
    for _ in range(silos):
        x = rng.normal(size=(records, features)) * rng.uniform(0.3, 1.0, size=features)
        y = x @ truth + rng.normal(size=records) * rng.uniform(0.1, 0.5)
        parts.append((x, np.sign(y) if loss == "logistic" else y))
    topology = regions(server_graph("random", servers, seed, weights=weights), agents)
    epochs, batches = 1 + np.arange(silos) % most_epochs, 1 + np.arange(silos) % min(records, 2)
    return gf.Setting(task, task.prepare_all(parts), topology, epochs, batches, sampled, mu)


def exact(s):
    """The same with all records in a batch and all agents in a round."""
    return replace(s, batches=s.data["count"].astype(int), sampled=int(s.topology.sizes.min()))


def record_gradient(s, k, n, w):
    x, y = s.data["x"][k, n], s.data["y"][k, n]
    if s.task.loss == "logistic":
        return -y * x / (1.0 + math.exp(y * (x @ w))) + 2.0 * s.task.rho * w
    return -2.0 * (y - x @ w) * x + 2.0 * s.task.rho * w


def silo_gradient(s, k, w):
    return np.mean([record_gradient(s, k, n, w) for n in range(int(s.data["count"][k]))], axis=0)


def one_region(s, p, w):
    """Gradient noise (18) and incremental noise (21) of every equally likely choice of agents and records, B = 1."""
    members = s.topology.members(p)
    true = np.mean([silo_gradient(s, k, w) for k in members], axis=0)
    gradient_noises, incremental_noises = [], []
    for chosen in itertools.combinations(members, s.sampled):
        ways = [list(itertools.product(range(int(s.data["count"][k])), repeat=int(s.epochs[k]))) for k in chosen]
        for records in itertools.product(*ways):
            there, moved = np.zeros_like(w), np.zeros_like(w)
            for k, way in zip(chosen, records, strict=True):
                v = w
                for n in way:
                    at_start, here = record_gradient(s, k, n, w), record_gradient(s, k, n, v)
                    there += at_start / s.epochs[k] / s.sampled
                    moved += (here - at_start) / s.epochs[k] / s.sampled
                    v = v - s.mu / s.epochs[k] * here
            weight = 1.0 / math.prod(len(way) for way in ways)  # every subset counts the same, however many ways it has
            gradient_noises.append((weight, there - true))
            incremental_noises.append((weight, moved))
    return gradient_noises, incremental_noises


def mean_of(weighted, function):
    total = sum(weight for weight, _ in weighted)
    return sum(weight * function(value) for weight, value in weighted) / total


def square(v):
    return float(v @ v)


def own_optima(s):
    return np.array([s.task.optimum({n: v[k : k + 1] for n, v in s.data.items()}) for k in range(len(s.epochs))])


# ---- convexity and noise constants -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["ridge", "logistic", "huber"])
def test_nu_and_delta_are_the_extreme_ratios_of_gradients(loss):
    s = setting(loss=loss, seed=3)
    nu, delta = gf.convexity(s.task, s.data)
    rng, slopes, steepest = np.random.default_rng(0), [], []
    count = s.data["count"].astype(int)
    for size in [0.0] * 50 + [1.0] * 200 + [300.0] * 200:
        a = size * np.tile(rng.normal(size=2), (len(count), 1))
        step = 1e-3 * np.tile(rng.normal(size=2), (len(count), 1))
        change = s.task.gradient(a + step, s.data) - s.task.gradient(a, s.data)
        slopes.append(((change * step).sum(1) / (step**2).sum(1)).min())
        for n in range(s.task.most):
            one = np.full((len(count), 1), n)
            change = s.task.gradient(a + step, s.data, one) - s.task.gradient(a, s.data, one)
            steepest.append((np.linalg.norm(change, axis=1) / np.linalg.norm(step, axis=1)).max())
    assert nu * (1.0 - 1e-6) <= min(slopes) <= 1.02 * nu
    assert 0.98 * delta <= max(steepest) <= delta * (1.0 + 1e-6)


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_gradient_noise_has_mean_0_and_stays_below_its_bounds(loss):
    """(24)-(29), by enumeration of all agents and records, near and far from the optimum."""
    s = setting(servers=2, records=2, loss=loss, seed=1)
    bound, (_, delta) = gf.gradient_noise(s), gf.convexity(s.task, s.data)
    tightest = []
    for size in (0.0, 0.3, 3.0):
        w = s.optimum + size * np.random.default_rng(2).normal(size=(2, 2))
        noises = [one_region(s, p, w[p])[0] for p in range(2)]
        for p in range(2):
            np.testing.assert_allclose(mean_of(noises[p], lambda v: v), 0.0, atol=1e-13)
        second = np.array([mean_of(noise, square) for noise in noises])
        assert (second <= bound.of_regions(w, s.optimum)).all()
        of_centroid = second.sum() / 4  # units draw independently
        assert of_centroid <= bound.of_centroid(w, s.optimum) / 2  # room for 1/P
        inverse = s.region_means(1.0 / s.epochs)
        squares = gf.gradient_squares(s.task, s.data, s.optimum)
        smaller = 2 * delta**2 * (1 + inverse) * ((w - s.optimum) ** 2).sum(1)
        smaller += 2 * s.region_means((1 + 1 / s.epochs) * squares)
        assert (second <= smaller / s.sampled).all()
        tightest.append((second / bound.of_regions(w, s.optimum)).max())
    assert max(tightest) > 0.01  # the bounds are loose, but a factor 100 would be seen


def test_constants_are_as_printed():
    s = setting(servers=2, seed=1)
    _, delta = gf.convexity(s.task, s.data)
    found, k = gf.gradient_noise(s), range(3)
    for p in range(2):
        e, silos = s.epochs[3 * p : 3 * p + 3], range(3 * p, 3 * p + 3)
        squares = [np.mean([square(record_gradient(s, j, n, s.optimum)) for n in range(5)]) for j in silos]
        assert found.beta2[p] == pytest.approx(6 * delta**2 / 2 * (1 + sum(1 / e[j] for j in k) / 3))
        assert found.sigma2[p] == pytest.approx(sum((12 / e[j] + 3) * squares[j] for j in k) / (2 * 3))
    w = np.array([[1.0, 2.0], [3.0, 0.0]])  # the centroid is (2, 1), and both are sqrt(2) from it
    apart = 2 / 2 * (found.beta2 * 2.0).sum()
    assert found.of_centroid(w, np.zeros(2)) == pytest.approx(found.beta2.sum() * 5 + found.sigma2.sum() / 2 + apart)
    assert gf.contraction(0.1, 1.0, 2.0, 3.0) == pytest.approx(math.sqrt(1 - 0.2 + 0.04) + 0.03)
    a = server_graph("ring", 4).mixing  # eigenvalues 1, 2/3, 2/3, 1/3
    assert gf.disagreement_bound(a, 9.0, 5.0) == pytest.approx(3.0 * (4 / 9 * 9.0 + 5.0))


def test_gradient_squares_are_the_mean_over_real_records():
    s = setting(seed=4)
    s.data["count"][1] = 3
    s.data["x"][1, 3:] = s.data["y"][1, 3:] = 0.0
    w = np.random.default_rng(0).normal(size=(9, 2))
    expected = [np.mean([square(record_gradient(s, k, n, w[k])) for n in range(3 if k == 1 else 5)]) for k in range(9)]
    np.testing.assert_allclose(gf.gradient_squares(s.task, s.data, w), expected, rtol=1e-12)


@pytest.mark.parametrize("mu", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_incremental_noise_stays_below_what_replaces_31(mu, loss):
    s = setting(servers=1, records=2, loss=loss, seed=5, mu=mu)
    nu, delta = gf.convexity(s.task, s.data)
    far, near = np.transpose([gf.incremental_noise(mu, nu, delta, int(e)) for e in s.epochs])
    optima = own_optima(s)
    spread = gf.gradient_squares(s.task, s.data, optima)
    for size in (0.0, 1.0, 10.0):
        w = s.optimum + size * np.random.default_rng(6).normal(size=2)
        second = mean_of(one_region(s, 0, w)[1], square)
        bound = (far * ((w - optima) ** 2).sum(1) + near * spread).mean()
        assert 0.0 < second <= bound


def test_what_replaces_31_is_nearly_attained():
    """One record of curvature h and one feature: q is h times the mean way, and little more than a factor 2 is lost."""
    h, mu, epochs = 6.0, 1e-4, 4
    v = (1.0 - mu / epochs * h) ** np.arange(epochs)
    second = (h * (v - 1.0).mean()) ** 2
    far, _ = gf.incremental_noise(mu, h, h, epochs)
    assert second <= far <= 4.0 * second
    assert gf.incremental_noise(mu, h, h, 1) == (0.0, 0.0)
    for small, large in zip(gf.incremental_noise(mu, h, h, 3), gf.incremental_noise(2 * mu, h, h, 3), strict=True):
        assert large == pytest.approx(4.0 * small, rel=0.01)


@pytest.mark.parametrize("distance2, spread", [(1.0, 0.0), (0.0, 1.0)])
def test_what_replaces_31_is_its_derivation_step_by_step(distance2, spread):
    mu, nu, delta, epochs = 0.3, 0.5, 2.0, 5
    eta, error2, gradients2, total = mu / epochs, distance2, 0.0, 0.0
    for e in range(epochs):
        total += delta**2 * eta**2 * e * gradients2 / epochs
        gradients2 += 2 * delta**2 * error2 + 2 * spread
        error2 = error2 - 2 * nu * eta * error2 + eta**2 * (2 * delta**2 * error2 + 2 * spread)
    far, near = gf.incremental_noise(mu, nu, delta, epochs)
    assert far * distance2 + near * spread == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_printed_constants_are_the_closed_forms_where_these_exist(epochs):
    mu, nu, delta, e = 0.05, 1.0, 2.0, epochs
    l = 1 - 2 * nu * mu + 4 * delta**2 * mu**2
    a, b, c = gf.printed_incremental_constants(mu, nu, delta, e)
    assert a == pytest.approx(4 * delta**2 * ((e + 1) * (1 - l) - 1 + l ** (e + 1)) / (e**2 * (1 - l) ** 2), rel=1e-9)
    top = 2 * e * (e + 1) * (1 - l) ** 2 - 4 * e * (1 - l) + 4 * l
    assert b == pytest.approx((top - 4 * l ** (e + 1)) / (e**2 * (1 - l) ** 3), rel=1e-9, abs=1e-9)
    assert c == (e - 1) / (3 * e)
    again = gf.printed_incremental_constants(nu / (2 * delta**2), nu, delta, e)  # lambda = 1: no 0/0
    assert again[0] == pytest.approx(2 * delta**2 * (e + 1) / e)
    assert again[1] == pytest.approx(2 / 3 * (e * e - 1) / e)


def test_33_as_printed_grows_like_the_third_power():
    def printed(mu, e=3, nu=1.0, delta=1.0):
        l = 1 - 2 * nu * mu + 4 * delta**2 * mu**2
        top = 2 * e * (e + 1) * (1 - l) ** 2 - 4 * e * (1 - l) + 4 * l - 2 * l ** (e + 1)
        return top / (e**2 * (1 - l) ** 3)

    assert printed(1e-4) / printed(2e-4) == pytest.approx(8.0, rel=0.01)  # the proof of Lemma 2 has 2
    small, large = (gf.printed_incremental_constants(mu, 1.0, 1.0, 3)[1] for mu in (1e-4, 2e-4))
    assert small / large == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("x, answers, start", [(3.0, (0.0,), 1.0), (3.0, (1.0, -1.0), 0.0)], ids=["a", "c"])
def test_31_fails_for_steep_losses(x, answers, start):
    """One agent, two steps, curvature 18. With one record only a counts, at the optimum only b and c do."""
    task, n = Linear(1, len(answers)), len(answers)
    data = task.prepare_all([(np.full((n, 1), x), np.array(answers))])
    mu, epochs = 1e-3, 2
    s = gf.Setting(task, data, regions(["region"], 1), np.array([epochs]), np.array([1]), 1, mu)
    nu, delta = gf.convexity(task, data)
    assert nu == delta == 2 * x**2
    second = mean_of(one_region(s, 0, np.array([start]))[1], square)
    a, b, c = gf.printed_incremental_constants(mu, nu, delta, epochs)
    sigma2 = 3 * n * gf.gradient_squares(task, data, s.optimum)[0]  # (36)
    assert second > 4.0 * (a * mu**2 * start**2 + (b * mu**4 + c * mu**2) * sigma2)
    far, near = gf.incremental_noise(mu, nu, delta, epochs)
    assert second <= far * start**2 + near * sigma2 / (3 * n) <= 5.0 * second


# ---- Lemma 3 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", PREDICTED)
@pytest.mark.parametrize("weights", ["metropolis", "lazy"])
def test_41_bounds_the_exact_disagreement_if_the_variance_is_a_vectors(scheme, weights):
    features, variance = 4, 0.3
    for kind, servers in itertools.product(["ring", "grid", "random", "erdos-renyi"], [3, 5, 8, 13]):
        a = server_graph(kind, servers, 1, weights=weights).mixing
        value = PREDICTED[scheme](a, variance, features)
        received = features * variance * gf.noise_covariance(a, scheme).diagonal()
        assert value <= gf.disagreement_bound(a, 0.0, received)
        assert value <= gf.disagreement_bound(a, 0.0, features * variance) * (1.0 + 1e-12)


def test_41_is_attained_and_fails_with_the_variance_of_a_feature():
    servers = 4
    a = np.full((servers, servers), 1.0 / (servers - 1))
    np.fill_diagonal(a, 1e-9)
    a /= a.sum(1)
    value = mixing.homomorphic_disagreement(a, 0.3, 2)
    assert value == pytest.approx(gf.disagreement_bound(a, 0.0, 2 * 0.3), rel=1e-6)
    assert value > 1.9 * gf.disagreement_bound(a, 0.0, 0.3)
    mean = np.full((servers, servers), 1.0 / servers)  # iota_2 = 0, where (41) has 0 / 0
    assert mixing.homomorphic_disagreement(mean, 0.3, 2) <= gf.disagreement_bound(mean, 0.0, 2 * 0.3)


@pytest.mark.parametrize("mu", [1e-2, 1e-3, 1e-4])
def test_41_misses_that_regions_want_different_models(mu):
    """No noise of any kind, regions that want a wave around a ring: the ratio to (41) stays as mu falls."""
    servers, agents = 8, 30
    wave = np.cos(2 * np.pi * np.arange(servers) / servers)
    task = Linear(1, 1)
    data = task.prepare_all([(np.ones((1, 1)), wave[[p]]) for p in range(servers) for _ in range(agents)])
    topology = regions(server_graph("ring", servers), agents)
    ones = np.ones(servers * agents, dtype=int)
    s = gf.Setting(task, data, topology, ones, ones, agents, mu)
    a = topology.mixing
    settled = np.linalg.solve(np.eye(servers) - (1 - 2 * mu) * a, 2 * mu * a @ wave)
    value = gf.steady_errors(s, "none", 0.0).disagreement
    assert value == pytest.approx(settled.var(), rel=1e-8)
    claimed = gf.disagreement_bound(a, mu**2 * gf.gradient_noise(s).sigma2, 0.0)
    assert value > 10.0 * claimed
    iota = 1.0 - spectral_gap(a)
    assert value <= claimed + 2 * mu**2 * iota / (1 - iota) ** 2 * np.mean((2 * wave) ** 2)  # what (72) still has


# ---- exact second moments --------------------------------------------------------------------------------------------


def simulate(s, scheme, variance, start, rounds, copies, rng):
    """(rounds, copies, P, M): (6)-(8) with (47) as printed."""
    a, (servers, features) = s.topology.mixing, start.shape
    w, history = np.tile(start, (copies, 1, 1)), []
    for _ in range(rounds):
        psi = np.zeros_like(w)
        for p in range(servers):
            members = s.topology.members(p)
            order = rng.random((copies, len(members))).argsort(1)
            for place, k in enumerate(members):
                x, y, v = s.data["x"][k], s.data["y"][k], w[:, p]
                for _ in range(s.epochs[k]):
                    batch = rng.random((copies, len(x))).argsort(1)[:, : s.batches[k]]
                    r = y[batch] - np.einsum("cbm,cm->cb", x[batch], v)
                    gradient = -2.0 * (r[..., None] * x[batch]).mean(1) + 2.0 * s.task.rho * v
                    v = v - s.mu / s.epochs[k] * gradient
                psi[:, p] += v * (order[:, place] < s.sampled)[:, None] / s.sampled
        g = rng.laplace(
            scale=math.sqrt(variance / 2.0), size=(copies, servers, servers, features)
        )  # [receiver, sender]
        own = np.arange(servers)
        if scheme != "edge":
            g[:] = g[:, :1]  # one draw to all
        factor = {"none": 0.0, "edge": 0.0, "sender": 1.0, "homomorphic": -(1 - a.diagonal()) / a.diagonal()}[scheme]
        g[:, own, own] *= np.broadcast_to(factor, servers)[:, None]
        w = np.einsum("pm,cpmf->cpf", a, psi[:, None] + g * (scheme != "none"))
        history.append(w)
    return np.array(history)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_expected_errors_are_the_means_of_simulations(scheme):
    """Three distances after three numbers of rounds, each within 5 standard errors (rate 6e-7, nine times)."""
    s, copies, start = setting(mu=0.4, seed=7), 3000, np.zeros((3, 2))
    assert len(set(s.epochs)) > 1
    assert len(set(s.batches)) > 1
    w = simulate(s, scheme, 0.01, start, 12, copies, np.random.default_rng(8))
    expected = gf.expected_errors(s, scheme, 0.01, start, 12)
    forgetful = [replace(s, sampled=3), replace(s, batches=np.full(9, 5))]  # no draws of agents, of records
    twins, far_off = [gf.expected_errors(twin, scheme, 0.01, start, 12) for twin in forgetful], [0.0, 0.0]
    for i in (0, 3, 11):
        for name, measure in (
            ("centroid", lambda w: mixing.msd_centroid(w, s.optimum)),
            ("regions", lambda w: mixing.msd_regions(w, s.optimum)),
            ("disagreement", mixing.disagreement),
        ):
            each = measure(w[i])
            error = each.std() / math.sqrt(copies)
            assert error < 0.03 * each.mean()
            assert abs(each.mean() - getattr(expected[i], name)) <= 5.0 * error
            for twin in range(2):
                off = abs(each.mean() - getattr(twins[twin][i], name)) / error
                far_off[twin] = max(far_off[twin], off)
    assert min(far_off) > 8.0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_steady_errors_without_sampling_solve_the_lyapunov_equation(scheme):
    s = exact(setting(servers=4, mu=0.5, seed=9, weights="metropolis"))
    a, m, p = s.topology.mixing, 2, 4
    maps, pulls = [], []
    for region in range(p):
        shrink, pull = np.zeros((m, m)), np.zeros(m)
        for k in s.topology.members(region):
            x, own = s.data["x"][k], s.task.optimum({n: v[k : k + 1] for n, v in s.data.items()})
            hessian = 2 * x.T @ x / len(x) + 2 * s.task.rho * np.eye(m)
            power = np.linalg.matrix_power(np.eye(m) - s.mu / s.epochs[k] * hessian, s.epochs[k])
            shrink, pull = shrink + power / 3, pull + (np.eye(m) - power) @ own / 3
        maps.append(shrink)
        pulls.append(pull)
    network = np.kron(a, np.eye(m)) @ block_diag(*maps)
    mean = np.linalg.solve(np.eye(p * m) - network, np.kron(a, np.eye(m)) @ np.ravel(pulls)).reshape(p, m)
    off = a - np.diag(a.diagonal())
    between = {
        "none": 0 * a,
        "homomorphic": (np.eye(p) - a) @ (np.eye(p) - a),
        "edge": np.diag((off**2).sum(1)),
        "sender": a @ a,
    }[scheme]
    spread = solve_discrete_lyapunov(network, 0.2 * np.kron(between, np.eye(m)))
    blocks = np.einsum("pimi->pm", spread.reshape(p, m, p, m))
    found = gf.steady_errors(s, scheme, 0.2)
    assert found.centroid == pytest.approx(blocks.mean() + mixing.msd_centroid(mean, s.optimum), rel=1e-8)
    assert found.regions == pytest.approx(np.trace(blocks) / p + mixing.msd_regions(mean, s.optimum), rel=1e-8)
    assert found.disagreement == pytest.approx(found.regions - found.centroid, rel=1e-8)


def test_steady_errors_are_where_expected_errors_go():
    s = setting(mu=0.4, seed=7)
    last = gf.expected_errors(s, "edge", 0.05, np.ones((3, 2)), 400)[-1]
    assert last.centroid == pytest.approx(gf.steady_errors(s, "edge", 0.05).centroid, rel=1e-9)
    with pytest.raises(SolverError, match="smaller step"):
        gf.steady_errors(replace(s, mu=30.0), "none", 0.0)
    with pytest.raises(InputError, match="ridge"):
        gf.steady_errors(setting(loss="logistic"), "none", 0.0)
    with pytest.raises(InputError, match="1 to 3 agents"):
        replace(s, sampled=4)


# ---- Theorem 1 and Corollary 1 ---------------------------------------------------------------------------------------


def excess(s, scheme, variance=0.1):
    """What the noise adds to the error of the centroid."""
    return gf.steady_errors(s, scheme, variance).centroid - gf.steady_errors(s, "none", 0.0).centroid


@pytest.mark.parametrize("scheme, power", [("sender", -1), ("edge", -1), ("homomorphic", 1)])
def test_how_noise_and_step_size_scale(scheme, power):
    """1/mu for links and senders. Homomorphic noise: no such term, and for quadratic losses not even the O(1) of (50),
    since the disagreement has mean 0 and comes back times mu."""
    s = setting(servers=4, seed=10, weights="metropolis")
    small, large = replace(s, mu=0.01), replace(s, mu=0.02)
    assert excess(large, scheme) / excess(small, scheme) == pytest.approx(2.0**power, rel=0.06)
    assert excess(large, scheme, 0.4) == pytest.approx(4.0 * excess(large, scheme, 0.1), rel=1e-6)
    settled = gf.steady_errors(small, scheme, 0.1).disagreement
    assert settled == pytest.approx(PREDICTED[scheme](s.topology.mixing, 0.1, 2), rel=0.05)


def test_a_centroid_of_regions_with_the_same_curvature_does_not_feel_homomorphic_noise():
    s = exact(setting(servers=4, most_epochs=1, seed=11))
    s.data["x"][:] = s.data["x"][0]
    assert abs(excess(s, "homomorphic")) < 1e-14 < excess(s, "edge")
    assert gf.steady_errors(s, "homomorphic", 0.1).regions > 0.01  # every server does


@pytest.mark.parametrize("scheme", ["sender", "edge"])
def test_the_main_term_of_43_is_twice_the_truth_for_small_steps(scheme):
    """One feature and one curvature, so that nu = delta; every record is fitted, so that only g is left."""
    task, servers = Linear(1, 2), 5
    data = task.prepare_all([(np.array([[1.0], [-1.0]]), np.array([2.0, -2.0]))] * servers)
    topology, ones = regions(server_graph("ring", servers), 1), np.ones(servers, dtype=int)
    s = gf.Setting(task, data, topology, ones, ones, 1, 5e-4)
    noise = gf.centroid_noise(topology.mixing, scheme, 0.3, 1)
    by_hand = {"sender": 0.3 / servers, "edge": 0.3 * (2 / 36) / servers}[scheme]  # neighbours weigh 1/6
    assert noise == pytest.approx(by_hand)
    value = gf.steady_errors(s, scheme, 0.3).centroid
    assert value == pytest.approx(noise / (1 - (1 - 2 * s.mu) ** 2), rel=1e-6)
    assert gf.centroid_bound(s, scheme, 0.3) == pytest.approx(2.0 * value, rel=0.03)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_43_bounds_the_exact_error_where_lambda_is_below_1(scheme):
    """Features of length 1 in balanced directions, since delta^2 must not be much more than nu L."""
    s = setting(agents=30, records=4, sampled=20, seed=12, most_epochs=1, mu=0.02)
    s.data["x"][:] = math.sqrt(0.5) * np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    beta2, _ = gf.gradient_noise(s).centroid
    assert gf.contraction(s.mu, *gf.convexity(s.task, s.data), beta2) < 1.0
    assert gf.steady_errors(s, scheme, 1e-3).centroid <= gf.centroid_bound(s, scheme, 1e-3) < math.inf
    assert gf.centroid_noise(s.topology.mixing, "homomorphic", 1.0, 2) == pytest.approx(0.0, abs=1e-16)


def test_theorem_one_is_silent_at_the_step_sizes_of_the_figures():
    """The paper's sizes and data of its kind: lambda_c > 1 from mu = .1 on, while the run itself settles at mu = 5."""
    rng, parts = np.random.default_rng(13), []
    task = Linear(2, 100, rho=0.1)
    for _ in range(10 * 20):
        x = rng.normal(size=(100, 2)) * np.sqrt(rng.uniform(0.05, 0.3, size=2))
        parts.append((x, x @ np.ones(2) + rng.normal(size=100) * 0.2))
    topology = regions(server_graph("random", 10), 20)
    epochs, batches = rng.integers(1, 11, 200), rng.integers(5, 11, 200)
    s = gf.Setting(task, task.prepare_all(parts), topology, epochs, batches, 11, 0.1)
    assert gf.centroid_bound(s, "homomorphic", 0.1) == math.inf
    assert gf.steady_errors(replace(s, mu=5.0), "homomorphic", 0.1).centroid < 0.01


# ---- privacy ---------------------------------------------------------------------------------------------------------


def published(a, updates, g, scheme):
    """What every server sends, round by round (T, P), if its agents' mean updates are `updates` whatever the model."""
    w, out = np.zeros(len(a)), []
    for u, noise in zip(updates, g, strict=True):
        psi = w + u
        y = psi + noise
        own = y if scheme == "sender" else psi - (1 - a.diagonal()) / a.diagonal() * noise  # (47)
        w = (a - np.diag(a.diagonal())) @ y + a.diagonal() * own
        out.append(y)
    return np.ravel(out)


@pytest.mark.parametrize("scheme", ["sender", "homomorphic"])
def test_zcdp_is_the_divergence_of_everything_published(scheme):
    """Two Gaussians of the same covariance: rho is half the squared distance of their means in it."""
    a, rounds, clip, sampled, sigma = server_graph("ring", 4).mixing, 6, 1.5, 3, 0.7
    zero = np.zeros((rounds, 4))
    columns = [published(a, zero, unit.reshape(rounds, 4), scheme) for unit in np.eye(rounds * 4)]
    moved = zero.copy()
    moved[:, 0] = 2.0 * clip / sampled  # one agent says C where it said -C
    shift = published(a, moved, zero, scheme)
    rho = 0.5 * square(np.linalg.solve(np.transpose(columns), shift)) / sigma**2
    assert gf.zcdp(sigma, rounds, clip, sampled, scheme) == pytest.approx(rho, rel=1e-9)
    assert gf.zcdp_noise(rho, rounds, clip, sampled, scheme) == pytest.approx(sigma, rel=1e-9)


def test_noise_of_the_specification():
    assert gf.zcdp_noise(0.5, 200, 1.0, 11, "sender") == pytest.approx(2.57, abs=0.005)
    assert gf.zcdp_noise(0.5, 200, 1.0, 11, "homomorphic") == pytest.approx(298, abs=0.5)


def test_homomorphic_noise_protects_even_less_where_agents_react():
    """All but one agent are pulled to 0 by steep clipped losses. Little noise, so that no sign depends on it."""
    sampled, clip, rounds = 11, 1.0, 2
    hidden = {}
    for sign in (1.0, -1.0):
        w, hidden[sign] = 0.0, []
        for _ in range(rounds):
            w += (sign * clip - (sampled - 1) * clip * np.sign(w)) / sampled
            hidden[sign].append(w)  # what is published less this and other published values is one draw
    sigma = 1e-3
    loss = 0.5 * square(np.subtract(hidden[1.0], hidden[-1.0])) / sigma**2  # Kullback-Leibler, at most rho
    assert loss > 10.0 * gf.zcdp(sigma, rounds, clip, sampled, "homomorphic")
    assert loss <= gf.zcdp(sigma, rounds, clip, 1, "homomorphic")


def test_theorem_two_is_no_epsilon():
    assert gf.claimed_epsilon(100, 0.7, 5.0, math.sqrt(0.1)) == pytest.approx(1.6e5, rel=0.02)
    mu, bound, sigma, features = 0.1, 2.0, 0.5, 4
    shift = np.full(features, 2.0 * mu * bound / math.sqrt(features))  # of length 2 mu B, after one round
    seen = np.full(features, 10.0)
    density = laplace(scale=sigma / math.sqrt(2.0))
    loss = density.logpdf(seen - shift).sum() - density.logpdf(seen).sum()
    assert loss == pytest.approx(math.sqrt(features) * gf.claimed_epsilon(1, mu, bound, sigma))
