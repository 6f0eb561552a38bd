"""Time to a certified relative gap of 1e-6 for one silo, one thread: python -m benchmarks.dense_graph [--json]

The peer is SciPy's L-BFGS-B on the same objective (7), stopped when it first comes within 1e-6 of our optimum; it gets
the analytic gradient. Distances are not part of the time. The best of several runs counts: machines are noisy.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from silograph.kernels.descent import gradient, objective
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import squared_distances

ZETA = 1e-9  # lets the peer start anywhere


def distances(nodes: int, seed: int = 0) -> np.ndarray:
    """Mean squared differences of 200 smooth signals on a random geometric graph."""
    rng = np.random.default_rng(seed)
    place = rng.random((nodes, 2))
    weight = np.exp(-((place[:, None] - place) ** 2).sum(-1) * nodes / 8.0)
    np.fill_diagonal(weight, 0.0)
    values, vectors = np.linalg.eigh(np.diag(weight.sum(1)) - weight)
    root = vectors / np.sqrt(np.maximum(values, 1e-2))
    return squared_distances(rng.normal(size=(200, nodes)) @ root.T)


def best(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


class Reached(Exception):
    pass


def lbfgs(z: np.ndarray, beta: float, goal: float) -> None:
    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        found = float(objective(z, w, 1.0, beta, ZETA))
        if found <= goal:
            raise Reached
        return found, gradient(z, w, 1.0, beta, ZETA)

    try:
        minimize(value, np.full(len(z), 1.0 / len(z)), jac=True, bounds=[(0.0, None)] * len(z), method="L-BFGS-B",
                 options={"maxiter": 20_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 0.0})  # fmt: skip
    except Reached:
        return


def main() -> None:
    rows = []
    for nodes in (20, 100, 500, 1000, 2000):
        z = distances(nodes)
        beta = 0.05 * float(np.median(z)) ** 2
        exact = solve(z[None], 1.0, beta, ZETA)
        goal = float(exact.objective[0]) + 1e-6 * abs(float(exact.objective[0]))
        ours = best(lambda z=z, beta=beta: solve(z[None], 1.0, beta, ZETA, tolerance=1e-6), 7)
        theirs = best(lambda z=z, beta=beta, goal=goal: lbfgs(z, beta, goal), 1) if nodes <= 500 else None
        rows.append(
            {
                "case": f"d={nodes}",
                "ours": 1e3 * ours,
                "peer": "scipy L-BFGS-B",
                "theirs": None if theirs is None else 1e3 * theirs,
                "ratio": None if theirs is None else theirs / ours,
                "unit": "ms",
            }
        )
    if "--json" in sys.argv:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        peer = "" if row["theirs"] is None else f"  {row['peer']} {row['theirs']:.3g} ms, ratio {row['ratio']:.0f}"
        print(f"{row['case']:>7}  {row['ours']:.3f} ms{peer}")


if __name__ == "__main__":
    main()
