"""The baselines against solvers that share no code with their rounds."""

import numpy as np
import pytest
from scipy.optimize import minimize

from silograph.core.errors import LeakError
from silograph.core.keys import stream
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.engines.base import vector
from silograph.kernels.descent import gradient, objective
from silograph.kernels.dual_newton import solve
from silograph.methods.base import Method
from silograph.methods.baselines import IGL, MRMTL, Ditto, FedAvg, FedProx
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import rounds, simulate
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import star

NODES, BETA, ZETA = 7, 0.05, 1e-4
COUNTS = (30, 60, 90)
TASK = SmoothGraph(NODES)
SMOOTH_STEPS = {"step": 0.02, "momentum": 0.0, "local_steps": 1, "rounds": 3000}

METHODS: list[Method] = [
    IGL(NODES, BETA),
    FedAvg(NODES, BETA, rounds=4),
    FedProx(NODES, BETA, 0.5, rounds=4),
    MRMTL(NODES, BETA, 0.5, rounds=4),
    Ditto(NODES, BETA, 0.5, rounds=4),
]
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)


@pytest.fixture(scope="module")
def signals():
    local = paper_graphs(3, len(COUNTS), NODES, keep=0.6).local
    return {
        f"silo {k}": smooth_signals(stream(3, f"silo {k}", 0, "test"), local[k], count)
        for k, count in enumerate(COUNTS)
    }


@pytest.fixture(scope="module")
def zbar(signals):
    return np.array([TASK.prepare(x)["zbar"] for x in signals.values()])


@pytest.fixture(scope="module")
def alone(zbar):
    """Each silo's optimum of (7) by a quasi-Newton method that knows nothing of the dual."""
    return np.array([descended(z) for z in zbar])


def descended(z, anchor=0.0, pull=0.0):
    """argmin g(w) + (pull/2)|w - anchor|^2 over w >= 0."""

    def both(w):
        value = objective(z, w, 1.0, BETA, ZETA) + pull / 2 * ((w - anchor) ** 2).sum()
        return value, gradient(z, w, 1.0, BETA, ZETA) + pull * (w - anchor)

    bounds = [(0.0, None)] * len(z)
    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-11}
    return minimize(both, np.full(len(z), 0.2), jac=True, bounds=bounds, method="L-BFGS-B", options=options).x


def learn(method, signals, engine="vector"):
    return simulate(method, TASK, signals, engine=engine)[0]


def test_igl_is_each_silos_own_optimum(signals, zbar, alone):
    outcome = learn(IGL(NODES, BETA), signals)
    assert np.array_equal(outcome.arrays["graph"], solve(zbar, 1.0, BETA, ZETA).w)
    np.testing.assert_allclose(outcome.arrays["graph"], alone, atol=1e-5)
    np.testing.assert_allclose(outcome.arrays["smoothness"], (zbar * alone).sum(1), rtol=1e-5)
    np.testing.assert_allclose(outcome.arrays["consensus"], alone.mean(0), atol=1e-5)
    total = sum(objective(z, w, 1.0, BETA, ZETA) for z, w in zip(zbar, alone, strict=True))
    assert outcome.facts["objective"] == pytest.approx(total, abs=1e-8)
    assert 0.0 <= outcome.facts["certified_gap"] < 1e-9


def test_fedavg_with_one_step_reaches_the_pooled_optimum(signals, zbar):
    """(28) has the mean of z over all records, so its optimum is that of one silo with all the records."""
    pooled = np.average(zbar, axis=0, weights=COUNTS)
    best = solve(pooled[None], 1.0, BETA, ZETA)
    outcome = learn(FedAvg(NODES, BETA, **SMOOTH_STEPS), signals)
    np.testing.assert_allclose(outcome.arrays["consensus"], best.w[0], atol=1e-6)
    assert outcome.facts["objective"] == pytest.approx(best.objective[0], abs=1e-9)
    assert np.array_equal(outcome.arrays["graph"], np.tile(outcome.arrays["consensus"], (3, 1)))
    np.testing.assert_allclose(outcome.arrays["gamma"], np.array(COUNTS) / sum(COUNTS))


def test_fedprox_without_pull_is_fedavg(signals):
    free, pulled = learn(FedProx(NODES, BETA, 0.0), signals), learn(FedProx(NODES, BETA, 3.0), signals)
    average = learn(FedAvg(NODES, BETA), signals)
    assert np.array_equal(free.arrays["graph"], average.arrays["graph"])
    assert not np.allclose(pulled.arrays["graph"], average.arrays["graph"], atol=1e-3)


@pytest.mark.parametrize("method", [MRMTL, Ditto])
def test_personal_graphs_without_pull_are_each_silos_own(method, signals, alone):
    np.testing.assert_allclose(learn(method(NODES, BETA, 0.0), signals).arrays["graph"], alone, atol=1e-5)


@pytest.mark.parametrize("method", [MRMTL, Ditto])
def test_a_huge_pull_makes_all_graphs_the_global_one(method, signals):
    arrays = learn(method(NODES, BETA, 1e6), signals).arrays
    np.testing.assert_allclose(arrays["graph"], np.tile(arrays["consensus"], (3, 1)), atol=1e-4)


def test_mrmtl_minimises_its_joint_objective(signals, zbar):
    """All silos' graphs as one long vector; at its optimum the mean-regularised sum has no better neighbour."""
    pull = 0.3

    def joint(flat):
        w = flat.reshape(zbar.shape)
        apart = w - w.mean(0)
        value = objective(zbar, w, 1.0, BETA, ZETA).sum() + pull / 2 * (apart**2).sum()
        return value, (gradient(zbar, w, 1.0, BETA, ZETA) + pull * apart).ravel()

    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-11}
    bounds = [(0.0, None)] * zbar.size
    best = minimize(joint, np.full(zbar.size, 0.2), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    outcome = learn(MRMTL(NODES, BETA, pull, rounds=100), signals)
    np.testing.assert_allclose(outcome.arrays["graph"], best.x.reshape(zbar.shape), atol=1e-4)
    assert outcome.facts["objective"] == pytest.approx(best.fun, abs=1e-7)
    np.testing.assert_allclose(outcome.arrays["consensus"], outcome.arrays["graph"].mean(0), atol=1e-6)


def test_ditto_fits_each_silo_near_the_graph_of_fedavg(signals, zbar):
    pull = 0.4
    outcome = learn(Ditto(NODES, BETA, pull), signals)
    together = learn(FedAvg(NODES, BETA), signals).arrays["consensus"]
    assert np.array_equal(outcome.arrays["consensus"], together)
    near = np.array([descended(z, together, pull) for z in zbar])
    np.testing.assert_allclose(outcome.arrays["graph"], near, atol=1e-5)


@every_method
def test_engines_agree_to_the_last_bit(method, signals):
    together, apart = learn(method, signals), learn(method, signals, engine="silowise")
    for name in ("graph", "consensus", "gamma", "smoothness"):
        assert np.array_equal(together.arrays[name], apart.arrays[name]), name
    assert together.facts == apart.facts


@every_method
def test_everything_that_leaves_is_in_the_ledger_as_unprotected(method, signals):
    _, door = simulate(method, TASK, signals)
    sites = {(row.round, row.release_point) for row in door.ledger.rows}
    last = max(round for round, _ in sites)
    in_rounds = {site for round, site in sites if round < last}
    assert {row.mechanism for row in door.ledger.rows} == {"reveal"}
    assert {"graph", "smoothness"} <= {site for round, site in sites if round == last}
    if isinstance(method, IGL):
        assert in_rounds == set()
    elif isinstance(method, MRMTL):
        assert in_rounds == {"vector"}, "a plain mean needs no counts"
    else:
        assert in_rounds == {"vector", "count"}


def test_a_baseline_that_skips_the_gate_is_refused(signals):
    class Leaky(FedAvg):
        def local(self, carry, down, data, gate):
            carry, _ = super().local(carry, down, data, gate)
            return carry, {"vector": data["zbar"]}

    with pytest.raises(LeakError, match="Leaky"):
        simulate(Leaky(NODES, BETA), TASK, signals)


@every_method
def test_absent_silos_are_left_out_of_the_mean(method, signals):
    """The third silo is away in the first rounds, then all are for one; the run ends as planned."""
    topo = star(list(signals))
    door = Door(0, Ledger())
    engine = vector([TASK.prepare(signals[name]) for name in topo.silos], topo, door)
    here = [["silo 0", "silo 1"], ["silo 0", "silo 1"], []]
    states = list(
        rounds(method, topo, engine, door, present=lambda round: here[round] if round < len(here) else topo.silos)
    )
    if not isinstance(method, IGL):
        assert states[1].servers["gamma"][2] == 0.0
        assert np.array_equal(states[2].servers["anchor"], states[1].servers["anchor"])
        assert states[-1].servers["gamma"].all()
    assert states[-1].servers["round"] == method.rounds + 1
