"""Every way to the optimum of S3 (7) and (8) gets there: relative differences of objectives of at most 1e-6."""

import math

import numpy as np
import pytest

from silograph.kernels.descent import gradient, objective
from silograph.kernels.dual_newton import solve, solve_grid
from silograph.kernels.edges import pairs, squared_distances
from silograph.kernels.lists import listed, solve_list
from silograph.kernels.spaces import EdgeList
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.consensus_graph import ExactConsensus
from silograph.run.loop import simulate
from silograph.tasks.smooth_graph import SmoothGraph

NODES, ZETA = 8, 1e-4


def signals(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(40, NODES)) @ rng.normal(size=(NODES, NODES))


def projected_gradient(zbar, beta, steps=20_000):
    """Plain projected gradient with steps that adapt: after Barzilai and Borwein, halved until the objective falls."""
    w = np.full(len(zbar), 1.0 / NODES)
    value, slope = objective(zbar, w, 1.0, beta, ZETA), gradient(zbar, w, 1.0, beta, ZETA)
    step = 1e-3
    for _ in range(steps):
        while True:
            fresh = np.maximum(w - step * slope, 0.0)
            moved = fresh - w
            new = objective(zbar, fresh, 1.0, beta, ZETA)
            if new <= value + 0.5 * slope @ moved or step < 1e-16:
                break
            step *= 0.5
        turn = gradient(zbar, fresh, 1.0, beta, ZETA)
        bent = float(moved @ (turn - slope))
        w, value, slope = fresh, new, turn
        if not moved.any():
            break
        step = float(moved @ moved) / bent if bent > 0.0 else 2.0 * step
    return float(value)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("beta", [0.02, 0.5])
def test_all_solvers_of_one_silo_agree(seed, beta):
    x = signals(seed)
    x = x / math.sqrt(squared_distances(x).mean())
    zbar = squared_distances(x)
    best = float(solve(zbar[None], 1.0, beta, ZETA).objective[0])
    found = {
        "gradient": projected_gradient(zbar, beta),
        "list": solve_list(listed(NODES, *pairs(NODES), zbar), 1.0, beta, ZETA, tolerance=1e-9).objective,
        "batch": float(solve_grid(zbar[None], np.ones(3), beta * np.array([0.5, 1.0, 2.0]), ZETA).objective[0, 1]),
    }
    settings = {"beta": beta, "nu": 1.0, "lam": 1e-9, "zeta": ZETA}
    paper = PaperConsensus(NODES, **settings, step=0.002, momentum=0.9, local_steps=50, rounds=400)
    for name, method in (("paper", paper), ("joint", ExactConsensus(NODES, **settings))):
        graph = simulate(method, SmoothGraph(NODES), {"one": x})[0].arrays["graph"][0]
        found[name] = float(objective(zbar, graph, 1.0, beta, ZETA))
    for name, value in found.items():
        assert abs(value - best) <= 1e-6 * max(abs(best), 1.0), name


@pytest.mark.parametrize("seed", range(3))
def test_the_joint_solver_agrees_with_itself_on_a_list_of_all_pairs(seed):
    silos = {f"s{k}": signals(10 * seed + k) for k in range(3)}
    every = EdgeList.of(NODES, *pairs(NODES))
    dense, _ = simulate(ExactConsensus(NODES, degree=3.0, tolerance=1e-9), SmoothGraph(NODES), silos)
    sparse, _ = simulate(
        ExactConsensus(NODES, degree=3.0, tolerance=1e-9, candidates=every),
        SmoothGraph(NODES, "listed-distances", None, every),
        silos,
    )
    assert sparse.facts["objective"] == pytest.approx(dense.facts["objective"], rel=1e-8)
    np.testing.assert_allclose(sparse.arrays["graph"], dense.arrays["graph"], atol=1e-5)
