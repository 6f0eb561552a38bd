"""S1, equation by equation: graph federation against loops that follow the paper, and what its noise hides."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import beta, norm

from federations import FEATURES, MOST, Case, engine_of, records, run, topology
from silograph.core.errors import InputError, SolverError
from silograph.kernels.draws import draw_key, silo_ids
from silograph.kernels.mixing import centroid
from silograph.methods.base import begin
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.observers import OTHER_SERVERS
from silograph.privacy.unmixing import followed_sum, unmixed_sum
from silograph.run.loop import rounds
from silograph.tasks.linear import Linear
from silograph.theory.graph_federation import Setting, expected_errors
from silograph.topology import checked_mixing, graph_from, regions, server_graph

RIDGE = Linear(FEATURES, MOST, "ridge", 0.05)


def gradient(w, x, y, rho):
    """Of (54) over some records: the mean of (y - x.w)^2, and rho |w|^2, without a half."""
    return -2.0 * x.T @ (y - x @ w) / len(x) + 2.0 * rho * w


# ---- (3)-(5) ---------------------------------------------------------------------------------------------------------


def test_one_server_is_federated_averaging():
    """All agents, three local steps on all their records, the plain mean of the answers."""
    topo = regions(["only"], [6])
    data = records(topo=topo)
    case = Case("fedavg", GraphFederation(RIDGE, 0.4, 8, epochs=(3, 3)))
    w = np.zeros(FEATURES)
    for state in run(case, data, topo=topo).states:
        answers = []
        for x, y in data.values():
            local = w
            for _ in range(3):
                local = local - 0.4 / 3 * gradient(local, x, y, 0.05)
            answers.append(local)
        w = np.mean(answers, axis=0)
        np.testing.assert_allclose(state.servers["model"][0], w, rtol=1e-12)


def test_one_step_in_one_agent_a_region_is_diffusion():
    """Adapt, then combine: w <- A (w - mu grad)."""
    topo = regions(server_graph("grid", 5), 1)
    data = records(topo=topo)
    case = Case("diffusion", GraphFederation(RIDGE, 0.4, 8))
    w = np.zeros((5, FEATURES))
    for state in run(case, data, topo=topo).states:
        psi = np.array([w[p] - 0.4 * gradient(w[p], *data[name], 0.05) for p, name in enumerate(topo.silos)])
        w = topo.mixing @ psi
        np.testing.assert_allclose(state.servers["model"], w, rtol=1e-12)


def words_of(key, silo, count):
    """numpy's own Philox: what the public schedule is made of."""
    return np.random.Philox(key=np.array([key, silo], dtype=np.uint64)).random_raw(count)


@pytest.mark.parametrize("sizes", [(5, 4, 7), (4, 4, 4)])
def test_sampled_agents_and_batches_follow_from_the_public_seed(sizes):
    """(3), (4), (5) with nothing shared but the schedule's definition: smallest draws, beginnings of shuffles."""
    topo, seed, sample, mu = topology(sizes), 3, 3, 0.5
    data, ids = records(topo=topo), silo_ids(topo.silos)
    method = GraphFederation(RIDGE, mu, 5, sample, (1, 4), (2, 5), seed=seed)
    result = run(Case("sampled", method), data, topo=topo)

    def drawn(release_point, low, high):
        first = [int(words_of(draw_key(seed, 0, release_point), silo, 1)[0]) for silo in ids]
        return [low + (word * (high - low + 1) >> 64) for word in first]

    epochs, sizes_of = drawn("epochs", 1, 4), drawn("batch sizes", 2, 5)
    w = np.zeros((len(topo.servers), FEATURES))
    for t, state in enumerate(result.states):
        psi = []
        for p in range(len(topo.servers)):
            chances = [(int(words_of(draw_key(seed, t, "sample"), ids[k], 1)[0]) >> 11, k) for k in topo.members(p)]
            answers = []
            for _, k in sorted(chances)[:sample]:
                x, y = data[topo.silos[k]]
                raw = [int(word) for word in words_of(draw_key(seed, t, "batches"), ids[k], 4 * 5)]
                local = w[p]
                for e in range(epochs[k]):
                    order = list(range(len(x)))
                    for b in range(min(5, len(x))):
                        j = b + (raw[5 * e + b] * (len(x) - b) >> 64)
                        order[b], order[j] = order[j], order[b]
                    batch = order[: min(sizes_of[k], len(x))]
                    local = local - mu / epochs[k] * gradient(local, x[batch], y[batch], 0.05)
                answers.append(local)
            psi.append(np.mean(answers, axis=0))
        w = topo.mixing @ np.array(psi)
        np.testing.assert_allclose(state.servers["model"], w, rtol=1e-11, atol=1e-14)


def test_every_agent_is_sampled_equally_often_and_never_twice_a_round():
    topo = topology((6, 9))
    method = GraphFederation(RIDGE, 0.1, 1, 3, seed=2)
    servers, times = method.start(topo).servers, np.zeros(15)
    for t in range(3000):
        rows = method.asked({**servers, "round": np.int64(t)}, topo)
        assert len(set(rows.tolist())) == 6
        assert np.bincount(topo.home[rows]).tolist() == [3, 3]
        times[rows] += 1
    for p, expected in ((0, 1500.0), (1, 1000.0)):  # rate 1e-4 each
        assert stats.chisquare(times[topo.home == p], expected).pvalue > 1e-4


@pytest.mark.parametrize("scheme", ["none", "edge", "sender", "homomorphic"])
def test_expected_errors_are_the_theorys(scheme):
    """2000 runs of 6 rounds: each mean square within 5 standard errors (rate 6e-7) of the exact second moments."""
    topo, rng = topology((3, 3, 3)), np.random.default_rng(1)
    data = records(topo=topo)
    method = GraphFederation(RIDGE, 0.6, 6, 2, (1, 3), (1, 2), scheme, 0.05)
    prepared = RIDGE.prepare_all([data[name] for name in topo.silos])
    carry = method.start(topo).carry
    setting = Setting(RIDGE, prepared, topo, carry["epochs"], carry["batch"], 2, 0.6)
    predicted = expected_errors(setting, scheme, 0.05, np.zeros((3, FEATURES)), 6)[-1]
    found = []
    for seed in rng.integers(1 << 30, size=2000):
        case, door = Case("copy", replace(method, seed=int(seed))), Door(int(seed), Ledger())
        start = begin(case.method, topo)
        # How many steps an agent takes, and its batch size, are drawn once and for all: every copy has the same.
        start = replace(start, carry={**start.carry, "epochs": carry["epochs"], "batch": carry["batch"]})
        *_, last = rounds(case.method, topo, engine_of(case, data, topo, door), door, start)
        w = last.servers["model"]
        middle = w.mean(0)
        found.append((((middle - setting.optimum) ** 2).sum(), ((w - middle) ** 2).sum(1).mean()))
    found = np.array(found)
    for column, expected in ((found[:, 0], predicted.centroid), (found[:, 1], predicted.disagreement)):
        assert abs(column.mean() - expected) < 5 * column.std() / math.sqrt(len(column))


# ---- (8), (47) -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("scheme", ["edge", "sender", "homomorphic"])
def test_perturbed_combinations_are_the_printed_ones(scheme, law):
    """Rounds against (8) with the noise on every link written out, [receiver, sender], as in (47)."""
    topo, variance = topology(), 0.3
    data, a, servers = records(), topology().mixing, 3
    method = GraphFederation(RIDGE, 0.4, 4, None, perturbation=scheme, variance=variance, law=law)
    ran = run(Case(scheme, method), data)
    inverse = stats.laplace(scale=math.sqrt(variance / 2)).ppf if law == "laplace" else stats.norm(0, variance**0.5).ppf
    w = np.zeros((servers, FEATURES))
    for t, state in enumerate(ran.states):
        psi = []
        for p in range(servers):
            members = [data[topo.silos[k]] for k in topo.members(p)]
            psi.append(np.mean([w[p] - 0.4 * gradient(w[p], x, y, 0.05) for x, y in members], axis=0))
        gate = Door(5, Ledger()).gate(topo.servers, t, OTHER_SERVERS)
        links = np.zeros((servers, servers, FEATURES))
        if scheme == "edge":
            g = inverse(gate.uniforms(servers * FEATURES, "noise")).reshape(servers, servers, FEATURES)
            for p in range(servers):
                for m in range(servers):
                    links[m, p] = g[p, m] if m != p else 0.0
        else:
            g = inverse(gate.uniforms(FEATURES, "noise"))
            for p in range(servers):
                for m in range(servers):
                    own = g[p] if scheme == "sender" else -(1.0 - a[p, p]) / a[p, p] * g[p]
                    links[m, p] = g[p] if m != p else own
        w = np.array([sum(a[p, m] * (psi[m] + links[p, m]) for m in range(servers)) for p in range(servers)])
        np.testing.assert_allclose(state.servers["model"], w, rtol=1e-9, atol=1e-12)


@st.composite
def matrices(draw):
    """Doubly stochastic, symmetric, positive on the diagonal, of a connected graph; some a_pp small."""
    servers, seed = draw(st.integers(2, 9)), draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    parts = [np.eye(servers), server_graph("ring", servers, weights="metropolis").mixing]
    for _ in range(draw(st.integers(0, 3))):
        shuffle = np.eye(servers)[rng.permutation(servers)]
        parts.append(0.5 * (shuffle + shuffle.T))
    share = rng.dirichlet(np.full(len(parts), draw(st.sampled_from([0.1, 1.0, 10.0])))) + 1e-4
    return checked_mixing(np.einsum("k,kpm->pm", share / share.sum(), np.array(parts)))


@given(a=matrices(), seed=st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_homomorphic_noise_cancels_at_the_centroid_for_any_valid_matrix(a, seed):
    """To rounding: of the noise, magnified by (1 - a_pp)/a_pp in the own copy."""
    topo = regions(graph_from(a), 2)
    data = records(topo=topo)
    quiet = Case("none", GraphFederation(RIDGE, 0.4, 1))
    loud = Case("loud", replace(quiet.method, perturbation="homomorphic", variance=100.0))
    one = centroid(run(quiet, data, seed=seed, topo=topo).outcome.arrays["model"])
    other = centroid(run(loud, data, seed=seed, topo=topo).outcome.arrays["model"])
    assert np.abs(one - other).max() <= 1e-11 * (1.0 / a.diagonal().min())


# ---- what an eavesdropper learns -------------------------------------------------------------------------------------


class Tapped(GraphFederation):
    """Writes down what crosses between servers."""

    def settle(self, servers, across, topo):
        self.heard.append(across["sent"])
        return super().settle(servers, across, topo)


def tapped(method):
    made = Tapped(**{name: getattr(method, name) for name in method.__dataclass_fields__})
    object.__setattr__(made, "heard", [])
    return made


class Witness(Door):
    """Writes down the regions' exact mean updates, which no eavesdropper sees."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.means = []

    def gate(self, silos, round, observer="server"):
        gate = super().gate(silos, round, observer)
        total = gate.total

        def witnessed(*arguments):
            made = total(*arguments)
            self.means.append(made.sums / made.counts[:, None])
            return made

        gate.total = witnessed
        return gate


def overheard(method, data, topo, mechanism=None, seed=7):
    method, door = tapped(method), Witness(seed, Ledger(), mechanism)
    place = engine_of(Case("", method), data, topo, door)
    for _ in rounds(method, topo, place, door):
        pass
    return np.array(method.heard), np.array(door.means)


def figure_2(rule):
    """S1's setting; region 0 answers by a rule of its own on top."""
    from silograph.data.federation import regression

    parts, _ = regression(1, regions=10, agents=30, records=50)
    parts = [(x, y + x @ rule) if k < 30 else (x, y) for k, (x, y) in enumerate(parts)]
    topo = regions(server_graph("random", 10, 3), 30)
    task = Linear(2, 50, "ridge", 0.1)
    return GraphFederation(task, 0.7, 500, 11, (1, 10), (5, 10)), dict(zip(topo.silos, parts, strict=True)), topo


def test_homomorphic_noise_is_taken_off_but_for_one_round():
    """After 500 rounds at sigma_g^2 = 0.1 a region's mean update is known to 2 %, by the size of an update.

    Where the region really differs from the others its mean update is as large as that, and the error is of itself.
    """
    for rule in (np.zeros(2), np.array([3.0, -2.0])):
        method, data, topo = figure_2(rule)
        sent, means = overheard(replace(method, perturbation="homomorphic", variance=0.1), data, topo)
        guess = unmixed_sum(sent, topo.mixing, 0, np.zeros(2))[-1] / 500
        off = np.linalg.norm(guess - means[:, 0].mean(0))
        assert off < 0.02 * np.linalg.norm(means[:, 0], axis=1).mean()
    assert off < 0.02 * np.linalg.norm(means[:, 0].mean(0))
    # A round's sum of updates is off by that round's noise, and by nothing else: variance 0.1 in every coordinate
    # (1000 Laplace draws: the variance's standard error is sqrt(5/1000), five of them).
    left = unmixed_sum(sent, topo.mixing, 0, np.zeros(2)) - np.cumsum(means[:, 0], axis=0)
    assert abs(left.var() / 0.1 - 1.0) < 5 * math.sqrt(5 / 1000)


def test_the_private_mode_keeps_every_rounds_noise():
    method, data, topo = figure_2(np.array([3.0, -2.0]))
    method = replace(method, perturbation="private", clip=0.5)
    mechanism = Gaussian(gaussian_multiplier(2.0, 1e-6, 500))
    sent, means = overheard(method, data, topo, mechanism)
    left = followed_sum(sent, topo.mixing, 0, np.zeros(2)) - np.cumsum(means[:, 0], axis=0)
    steps = np.diff(left, axis=0)  # independent over rounds, with the noise the ledger names
    expected = mechanism.multiplier * 2 * 0.5 / 11
    assert abs(steps.var() / expected**2 - 1.0) < 5 * math.sqrt(2 / steps.size)
    off = np.linalg.norm(left[-1] / 500)
    assert off > 0.5 * np.linalg.norm(means[:, 0].mean(0))


def lower_bound(multiplier, delta, trials=1600, confidence=0.999):
    """Empirical epsilon of four rounds against whoever hears everything: one agent's answers are all + or all -.

    The agent's update is clipped in both worlds, in opposite directions, so each round's mean moves by the whole bound.
    The eavesdropper follows the region's updates and projects their sum: the likelihood ratio where others do not
    react.
    """
    topo = regions(server_graph("ring", 2), 2)
    method = GraphFederation(Linear(1, 1, "ridge", 0.0), 0.5, 4, perturbation="private", clip=0.5)
    still = (np.zeros((1, 1)), np.zeros(1))
    scores = []
    for sign in (1.0, -1.0):
        data = {**dict.fromkeys(topo.silos, still), topo.silos[0]: (np.full((1, 1), 1e-3), np.full(1, sign * 1e9))}
        found = []
        for seed in range(trials):
            sent, _ = overheard(method, data, topo, Gaussian(multiplier), seed=int(2 * seed + (sign > 0)))
            found.append(followed_sum(sent, topo.mixing, 0, np.zeros(1))[-1, 0])
        scores.append(found)
    scores = np.array(scores)
    tuning, held = scores[:, ::2], scores[:, 1::2]
    hits, alarms = (held > tuning.mean()).sum(1)
    n = held.shape[1]
    power, false = beta.ppf(1 - confidence, hits, n - hits + 1), beta.ppf(confidence, alarms + 1, n - alarms)
    mu = norm.ppf(power) - norm.ppf(false)
    return gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0


def test_an_eavesdropper_of_the_private_mode_stays_below_the_accounted_epsilon():
    """Clopper-Pearson at 99.9 % a side: a sound run is accused with probability below 0.002; half the noise is seen."""
    epsilon, delta = 3.0, 1e-3
    sound = gaussian_multiplier(epsilon, delta, 4)
    assert 0.4 * epsilon < lower_bound(sound, delta) <= epsilon
    assert lower_bound(0.5 * sound, delta) > epsilon


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_more_agents_sampled_than_a_region_has_are_refused():
    with pytest.raises(InputError, match=r"region unit-01: expected at least 5 agents.* it has 4"):
        GraphFederation(RIDGE, 0.1, 1, 5).start(topology((5, 4, 7)))


@pytest.mark.parametrize("step", [1e3, 1e9])
def test_a_step_that_diverges_is_noticed_and_the_run_stops(step):
    with pytest.raises(SolverError, match=r"grow without bound: the step size .* Try a step of"):
        run(Case("wild", GraphFederation(RIDGE, step, 400)))


def test_a_private_run_cannot_diverge():
    """Updates are clipped, so however wild the step the models move by at most the clip and the noise."""
    wild = GraphFederation(RIDGE, 1e9, 20, perturbation="private", clip=0.5)
    model = run(Case("wild", wild, Gaussian(1.0))).outcome.arrays["model"]
    assert np.abs(model).max() < 20 * (0.5 + 10.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": 0.0}, "step"),
        ({"step": math.nan}, "step"),
        ({"rounds": 0}, "rounds"),
        ({"sample": 0}, "sample"),
        ({"epochs": (2, 1)}, "epochs"),
        ({"batch": (0, 3)}, "batch"),
        ({"variance": -1.0}, "variance"),
        ({"clip": 0.0}, "clip"),
        ({"perturbation": "private"}, "clip"),
        ({"perturbation": "secret"}, "perturbation"),
        ({"law": "cauchy"}, "law"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        replace(GraphFederation(RIDGE, 0.1, 1), **change)
