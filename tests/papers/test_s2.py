"""Paper S2 against a dense round written from its equations, scipy, its identities and its figures."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from clusters import CLUSTERS, FEATURES, MOST, SIZES, Case, plain, records, run, topology
from silograph.core.errors import InputError, SolverError
from silograph.data.clusters import clustered_regression, nmsd
from silograph.methods.base import begin
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.clustered import Linearised, Proximal
from silograph.theory.clustered_admm import Ridge, cluster_optimum, fixed_point, neighbourhood_means
from silograph.topology import Topology, regions, server_graph

RHO, LAM, Q = 1.5, 0.1, 3
HOME = np.repeat(np.arange(len(SIZES)), SIZES)


def clients(data, topo=None):
    return [data[name] for name in (topo or topology()).silos]


# ---- every round against the equations -------------------------------------------------------------------------------


class Dense:
    """The equations one after another, client by client, with nothing factored, cached or cancelled."""

    def __init__(self, data, topo, method, linear=False):
        self.data, self.topo, self.m, self.linear = data, topo, method, linear
        servers, d = len(topo.servers), FEATURES
        linked = (topo.mixing > 0) & (method.weights != "alone")
        self.near = [[m for m in range(servers) if m == s or linked[s, m]] for s in range(servers)]
        self.size = [int((topo.home == s).sum()) for s in range(servers)]
        self.what, self.xi = np.zeros((servers, Q, d)), np.zeros((servers, Q, d))
        self.w, self.phi = np.zeros((len(data), d)), np.zeros((len(data), d))

    def primal(self, k, s, q):
        x, y = self.data[k]
        ridge, rho = self.m.lam / self.size[s], self.m.rho
        if self.linear:
            slope = x.T @ (x @ self.what[s, q] - y) / len(x) + ridge * self.what[s, q]
            return self.what[s, q] + (self.phi[k] - slope) / rho
        left = x.T @ x / len(x) + (ridge + rho) * np.eye(FEATURES)
        return np.linalg.solve(left, x.T @ y / len(x) + self.phi[k] + rho * self.what[s, q])

    def others(self, wbar, s, q):
        pool = range(Q) if self.m.form == "all" else [r for r in range(Q) if r != q]
        return sum(wbar[s, r] for r in pool) / len(pool)

    def mean_near(self, w, s, q):
        if self.m.weights == "mixing":
            return sum(self.topo.mixing[s, m] * w[m, q] for m in self.near[s])
        return sum(w[m, q] for m in self.near[s]) / len(self.near[s])

    def round(self, n, present):
        tau, rho = self.m.tau * self.m.tau_decay**n, self.m.rho
        last, w = self.what.copy(), self.what.copy()
        cells = {(s, q): [k for k in present if self.topo.home[k] == s and CLUSTERS[k] == q] for s, q in self.all()}
        for (s, q), members in cells.items():
            for k in members:
                self.w[k] = self.primal(k, s, q)  # (4)
            if members:
                w[s, q] = sum(self.w[k] for k in members) / len(members) - sum(self.phi[k] for k in members) / (
                    rho * len(members)
                )  # (8)
        if self.m.steps == "single":
            whole = {(s, q): self.mean_near(last, s, q) for s, q in self.all()}
            wbar = np.array([[whole[s, q] for q in range(Q)] for s in range(len(last))])
            for s, q in self.all():
                near = [m for m in self.near[s] if m != s]
                top = w[s, q] + sum((last[s, q] + last[m, q]) / 2 for m in near) + self.xi[s, q]
                self.what[s, q] = (top + tau * self.others(wbar, s, q)) / (1 + len(near) + tau)  # (6)
            for s, q in self.all():
                self.xi[s, q] += sum((self.what[m, q] - self.what[s, q]) / 2 for m in self.near[s])  # (7)
        else:
            wbar = np.array([[self.mean_near(w, s, q) for q in range(Q)] for s in range(len(w))])  # (9)
            for s, q in self.all():
                self.what[s, q] = (1 - tau) * wbar[s, q] + tau * self.others(wbar, s, q)  # (10)
        for (s, q), members in cells.items():
            for k in members:
                self.phi[k] += rho * (self.what[s, q] - self.w[k])  # (5)

    def all(self):
        return [(s, q) for s in range(len(self.what)) for q in range(Q)]


@pytest.mark.parametrize("form", ["others", "all"])
@pytest.mark.parametrize(
    ("steps", "weights"),
    [("several", "uniform"), ("several", "mixing"), ("several", "alone"), ("single", "uniform"), ("single", "alone")],
)
@pytest.mark.parametrize("sample", [None, 2])
@pytest.mark.parametrize("linear", [False, True])
def test_every_round_is_the_equations(form, weights, sample, steps, linear):
    """Sampled clients, cells without clients and a client away for a while among them."""
    task, rho = (Linearised(FEATURES, MOST), 8.0) if linear else (Proximal(FEATURES, MOST), RHO)
    method = plain(task=task, rho=rho, form=form, weights=weights, sample=sample, steps=steps, rounds=40)
    topo, data = topology(), records()
    dense, away = Dense(clients(data), topo, method, linear), topo.silos[3]

    def present(t):
        return [name for name in topo.silos if name != away or not 5 <= t < 12]

    ran = run(Case("", method), data, present=present)
    states = [begin(method, topo), *ran.states]
    for n, (before, after) in enumerate(zip(states, ran.states, strict=False)):
        rows = method.asked(before.servers, topo)
        rows = np.arange(len(topo.silos)) if rows is None else rows
        dense.round(n, [k for k in rows if topo.silos[k] in present(n)])
        np.testing.assert_allclose(after.servers["model"], dense.what, atol=1e-10)
        np.testing.assert_allclose(after.carry["model"], dense.w, atol=1e-10)
    assert np.abs(dense.what).max() > 0.1


def test_the_schedule_is_uniform_and_asks_each_server_for_as_many():
    method, topo = plain(rounds=1), topology()
    servers, asked = begin(method, topo).servers, np.zeros(len(topo.silos))
    for t in range(4000):
        rows = method.asked({**servers, "round": np.int64(t)}, topo)
        assert (np.bincount(topo.home[rows]) == 3).all()
        asked[rows] += 1
    expected = 4000 * 3 / np.array(SIZES)[HOME]
    # a client's number is binomial: five deviations, 26 clients (rate 2e-5)
    assert (np.abs(asked - expected) <= 5 * np.sqrt(expected * (1 - 3 / np.array(SIZES)[HOME]))).all()


# ---- one client's step -----------------------------------------------------------------------------------------------


def losses(task, w, x, y):
    """S2's losses from their definitions: (49) with its half, Huber's the same within delta, (51)."""
    r = y - x @ w
    if task.loss == "ridge":
        return r * r / 2
    if task.loss == "huber":
        return np.where(np.abs(r) <= task.delta, r * r / 2, task.delta * np.abs(r) - task.delta**2 / 2)
    return np.logaddexp(0.0, -y * (x @ w))


@pytest.mark.parametrize("loss", ["ridge", "huber", "logistic"])
@pytest.mark.parametrize("features", [1, 5, 30])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_local_steps_are_scipys(loss, features, scale):
    """More features than records, and fewer; one record; dependent features."""
    rng, rho = np.random.default_rng(0), 0.8
    task, parts = Proximal(features, 12, loss, 0.4), []
    for count in (1, 4, 12, 12):
        x = scale * rng.normal(size=(count, features))
        y = x @ rng.normal(size=features) + rng.standard_t(2.0, size=count)
        parts.append((x, np.where(y > 0, 1.0, -1.0) if loss == "logistic" else y))
    parts[3][0][:] = parts[3][0][:1]  # rank 1
    data = task.prepare_all(parts)
    what, phi = rng.normal(size=(4, features)), rng.normal(size=(4, features))
    ridge = np.array([0.0, 0.1, 0.2, 0.3])
    w = task.step(what, phi, rho, ridge, data)
    for k, (x, y) in enumerate(parts):

        def goal(v, x=x, y=y, k=k):
            apart = v - what[k]
            value = losses(task, v, x, y).mean() + ridge[k] / 2 * (v @ v)
            return value - phi[k] @ apart + rho / 2 * (apart @ apart)

        best = minimize(goal, w[k] + 0.01, method="BFGS", options={"gtol": 1e-9})
        assert goal(w[k]) <= best.fun + 1e-12 * abs(best.fun)
        np.testing.assert_allclose(w[k], best.x, atol=1e-3)  # theirs, without a gradient
        # and the optimality condition itself, to rounding
        slope = task.loss_gradient(w[k : k + 1], {n: v[k : k + 1] for n, v in data.items()})[0]
        residual = slope + ridge[k] * w[k] - phi[k] + rho * (w[k] - what[k])
        assert np.linalg.norm(residual) <= 1e-11 * (1.0 + scale * scale)


@given(
    loss=st.sampled_from(["huber", "logistic"]),
    seed=st.integers(0, 10**6),
    scale=st.floats(-3.0, 3.0),
    delta=st.floats(-6.0, 3.0),
    rho=st.floats(-4.0, 4.0),
    offset=st.floats(-3.0, 6.0),
)
@example(loss="huber", seed=899450, scale=2.5573, delta=1.5852, rho=-3.8241, offset=5.829)  # from far to near 0
@settings(derandomize=True, deadline=None, max_examples=300)
def test_newtons_method_ends_at_the_minimum_wherever_it_starts(loss, seed, scale, delta, rho, offset):
    """Scales of features, kinks, weights and starting points over many powers of ten: the gradient vanishes."""
    rng, weight = np.random.default_rng(seed), 10.0**rho
    x = 10.0**scale * rng.normal(size=(9, 4))
    y = np.where(rng.normal(size=9) > 0, 1.0, -1.0) if loss == "logistic" else rng.standard_cauchy(9)
    task = Proximal(4, 9, loss, 10.0**delta)
    data, centre = task.prepare_all([(x, y)]), 10.0**offset * rng.normal(size=(1, 4))
    w = task.near(centre, np.array([weight]), data)
    made_of = np.abs(task.loss_gradient(w, data)).max() + weight * np.abs(w - centre).max()
    residual = task.loss_gradient(w, data) + weight * (w - centre)
    # Rounding: of the gradient's parts, and of w itself, moved by 2^-52 of its length
    bend = (10.0**scale) ** 2 * 30.0 + weight
    # and, where Newton's method is too slow, 1e-9 of the longest gradient a record can have.
    longest = np.linalg.norm(x, axis=1).max() * (10.0**delta if loss == "huber" else 1.0) / len(x)
    assert np.abs(residual).max() <= 1e-11 * made_of + 1e-13 * bend * np.abs(w).max() + 1e-9 * longest


def test_huber_within_its_kink_is_ridge():
    data, ridge, wide = records(), Proximal(FEATURES, MOST), Proximal(FEATURES, MOST, "huber", 1e6)
    rng = np.random.default_rng(1)
    what, phi, weight = rng.normal(size=(26, FEATURES)), rng.normal(size=(26, FEATURES)), np.full(26, 0.1)
    one, other = (task.step(what, phi, 1.0, weight, task.prepare_all(clients(data))) for task in (ridge, wide))
    np.testing.assert_allclose(one, other, atol=1e-10)


# ---- identities and limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["ridge", "huber", "logistic"])
def test_duals_cancel_in_the_aggregation(loss):
    """w_sq = what_sq - mean grad f_k(w_k) / rho, whoever takes part: what is sent across is computed from gradients."""
    task = Proximal(FEATURES, MOST, loss, 0.5)
    method, topo, data = plain(task=task, rounds=12), topology(), records(loss=loss)
    sent = []

    class Watched:
        def __getattr__(self, name):
            return getattr(method, name)

        def settle(self, servers, across, topo):
            sent.append((servers, across["sent"]))
            return method.settle(servers, across, topo)

    door, each = Door(1, Ledger()), clients(data)
    place = ENGINES["vector"]([task.prepare(part) for part in each], topo, door)
    last = np.zeros((4, Q, FEATURES))
    for state, (servers, w) in zip(rounds(Watched(), topo, place, door), sent, strict=False):
        for s in range(4):
            for q in range(Q):
                members = [k for k in range(26) if servers["came"][k] and HOME[k] == s and CLUSTERS[k] == q]
                slopes = [
                    task.loss_gradient(state.carry["model"][k : k + 1], task.prepare_all([each[k]]))[0]
                    + method.lam / SIZES[s] * state.carry["model"][k]
                    for k in members
                ]
                expected = last[s, q] - (np.mean(slopes, axis=0) / method.rho if members else 0.0)
                np.testing.assert_allclose(w[s, q], expected, atol=1e-9)
        last = state.servers["model"]


def complete(topo):
    return Topology(topo.silos, topo.servers, topo.home, np.full((4, 4), 0.25))


def ridge_problem(data, one=False):
    x, y = zip(*clients(data), strict=True)
    return Ridge(x, y, HOME, np.zeros(26, int) if one else np.array(CLUSTERS), LAM)


def consensus(data):
    """The mean over servers of the mean over their clients of f_k, minimised in one solve."""
    left, right = np.zeros((FEATURES, FEATURES)), np.zeros(FEATURES)
    for (x, y), s in zip(clients(data), HOME, strict=True):
        share = 1 / (len(SIZES) * SIZES[s])
        left += share * (x.T @ x / len(x) + LAM / SIZES[s] * np.eye(FEATURES))
        right += share * x.T @ y / len(x)
    return np.linalg.solve(left, right)


def end(method, data, topo):
    return run(Case("", method), data, topo=topo).outcome.arrays


def test_one_cluster_on_a_complete_graph_ends_at_the_consensus_ridge():
    data = records()
    method = plain(clusters=(0,) * 26, sample=None, rounds=300)
    arrays = end(method, data, complete(topology()))
    np.testing.assert_allclose(arrays["cluster_model"][:, 0], np.tile(consensus(data), (4, 1)), atol=1e-8)
    np.testing.assert_allclose(arrays["model"], np.tile(consensus(data), (26, 1)), atol=1e-8)


def test_the_single_step_ends_there_on_every_graph_and_the_several_do_not():
    """Theorem I holds for (6) and (7) where the graph is irregular; (9) stops short of it."""
    data = records()
    single = end(plain(clusters=(0,) * 26, sample=None, rounds=300, steps="single"), data, topology())
    np.testing.assert_allclose(single["cluster_model"][:, 0], np.tile(consensus(data), (4, 1)), atol=1e-8)
    several = end(plain(clusters=(0,) * 26, sample=None, rounds=300), data, topology())
    assert np.abs(several["cluster_model"][:, 0] - consensus(data)).max() > 1e-2


def test_every_cluster_has_its_own_optimum_without_exchange():
    data = records()
    single = end(plain(tau=0.0, sample=None, rounds=600, steps="single"), data, topology())
    np.testing.assert_allclose(
        single["cluster_model"], np.tile(cluster_optimum(ridge_problem(data)), (4, 1, 1)), atol=1e-8
    )


@pytest.mark.parametrize("form", ["others", "all"])
@pytest.mark.parametrize("weights", ["uniform", "mixing"])
@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_the_iteration_ends_where_the_theory_says(form, weights, tau):
    data, topo = records(), topology()
    method = plain(tau=tau, tau_decay=1.0, form=form, weights=weights, sample=None, rounds=300)
    mixing = topo.mixing if weights == "mixing" else neighbourhood_means(topo.mixing)
    expected = fixed_point(ridge_problem(data), mixing, method.rho, tau, form)
    np.testing.assert_allclose(end(method, data, topo)["cluster_model"], expected, atol=1e-10)


def test_exchange_at_its_limits():
    """tau = (Q - 1)/Q makes all clusters one; a tau of `others` is tau Q/(Q - 1) of `all`; decay ends at none."""
    data, topo = records(), topology()
    same = end(plain(tau=2 / 3, tau_decay=1.0), data, topo)["cluster_model"]
    np.testing.assert_allclose(same, same[:, :1] + np.zeros_like(same), atol=1e-12)
    one, other = plain(tau=0.3, rounds=30), plain(tau=0.45, form="all", rounds=30)
    np.testing.assert_allclose(end(one, data, topo)["model"], end(other, data, topo)["model"], atol=1e-12)
    long = {"sample": None, "rounds": 900}
    faded, none = plain(tau=0.4, tau_decay=0.98, **long), plain(tau=0.0, **long)
    np.testing.assert_allclose(end(faded, data, topo)["model"], end(none, data, topo)["model"], atol=1e-6)


# ---- what cannot be done is said -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rho": 0.0}, "rho: expected a number above 0"),
        ({"rho": -1.0}, "rho"),
        ({"rho": float("nan")}, "rho"),
        ({"tau": -0.1}, "tau: expected a number from 0 to 1, or learned, but found -0.1"),
        ({"tau": 1.1}, "tau"),
        ({"tau_decay": 0.0}, "tau_decay"),
        ({"tau_decay": 1.1}, "tau_decay"),
        ({"lam": -1.0}, "lam"),
        ({"rounds": 0}, "rounds"),
        ({"form": "some"}, "form"),
        ({"weights": "mean"}, "weights"),
        ({"steps": "two"}, "steps"),
        ({"steps": "single", "weights": "mixing"}, "uniform or alone with the single step"),
        ({"sample": 0}, "sample"),
        ({"protect": "all"}, "protect"),
        ({"clip": 0.0}, "clip"),
        ({"protect": "clients"}, "clip: expected a number where clients are protected"),
        ({"protect": "records"}, "task: expected a bounded gradient"),
        ({"protect": "records", "task": Proximal(5, 8, "ridge", radius=1.0)}, "bounded gradient"),
        ({"protect": "records", "task": Proximal(5, 8, "huber")}, "bounded gradient"),
        ({"protect": "records", "task": Linearised(5, 8)}, "bounded gradient"),
        ({"protect": "records", "task": Linearised(5, 8, clip=1.0), "clip": 1.0}, "the task bounds"),
        ({"clusters": ()}, "without gaps"),
        ({"clusters": (0.5,) * 26}, "whole number"),
        ({"clusters": (0, 2) * 13}, "without gaps"),
        ({"clusters": (-1, 0) * 13}, "without gaps"),
    ],
)
def test_bad_parameters_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        plain(**wrong)


def test_bad_federations_are_refused():
    with pytest.raises(InputError, match="a cluster for each of the 26 clients, but found 3"):
        plain(clusters=(0, 1, 2)).start(topology())
    with pytest.raises(InputError, match=r"region west: expected at least 5 agents"):
        plain(sample=5).start(topology())
    for wrong in ({"radius": 0.0}, {"radius": float("inf")}):
        with pytest.raises(InputError, match="radius"):
            Proximal(5, 8, "huber", **wrong)
    with pytest.raises(InputError, match="clip"):
        Linearised(5, 8, clip=-1.0)


def test_without_regularisation_one_record_and_dependent_features_are_fine():
    data = records()
    arrays = end(plain(lam=0.0, sample=None, rounds=200), data, topology())
    assert np.isfinite(arrays["model"]).all()


def test_a_linearised_step_that_is_too_long_is_noticed():
    with pytest.raises(SolverError, match=r"region \w+: expected models that settle.*rho = 0.1 is too small"):
        end(plain(task=Linearised(FEATURES, MOST), rho=0.1, rounds=400), records(), topology())


# ---- figures ---------------------------------------------------------------------------------------------------------


def levels(seed, methods):
    """NMSD (50) of the local models, in dB, of S2's working setting."""
    made, topo = clustered_regression(seed), regions(server_graph("random", 10, seed, degree=3.0), 15)
    task = Proximal(60, 9)
    prepared = [task.prepare(part) for part in made.records]
    base = ClusteredADMM(task, made.clusters, 3.0, 300, lam=0.01)
    found = {}
    for name, options in methods.items():
        method, door = replace(base, **options), Door(1, Ledger())
        for after in rounds(method, topo, ENGINES["vector"](prepared, topo, door), door):
            state = after
        found[name] = 10 * np.log10(nmsd(state.carry["model"], made))
    return found


def test_figure_1_and_what_is_robust_in_it():
    """Four runs. A hundred of them meet the specification's levels within .4 dB, and PGFL(0)'s -21.80 with -22.19.

    A run's level has a deviation of about 2 dB, the mean of four 1 dB; the differences hold in every run.
    """
    methods = {
        "PGFL": {"tau": 0.4},
        "PGFL, all": {"tau": 0.4, "form": "all"},
        "GFL": {"clusters": (0,) * 150},
        "ClusterFL": {"tau": 0.4, "weights": "alone"},
    }
    found = [levels(seed, methods) for seed in range(4)]
    mean = {name: 10 * np.log10(np.mean([10 ** (one[name] / 10) for one in found])) for name in methods}
    for name, level in {"PGFL": -21.99, "PGFL, all": -22.60, "GFL": -21.09, "ClusterFL": -12.37}.items():
        assert abs(mean[name] - level) < 3.0, name
    for one in found:
        assert one["PGFL, all"] < one["PGFL"] < one["GFL"]
        assert one["ClusterFL"] > one["GFL"] + 5.0
