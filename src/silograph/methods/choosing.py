"""Choose parameters: beta for a wanted degree, lam and nu from what the silos find alone."""

from __future__ import annotations

import math

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.kernels.dual_newton import Solution
from silograph.kernels.spaces import Space

LAM_OF_SCALE = 0.15  # default lam, in units of the cost of an edge in use
LAM_ALONE = 1e-6  # the same for a single silo, which agrees with nobody

# Columns that a silo reports to the server about its last graph, besides the p-vector.
UPPER, LOWER, RESIDUAL, EDGES, SMOOTHNESS, LOG_BETA, SCALE = range(7)
FACTS = 7


def beta_for_degree(space: Space, zbar: Array, alpha: float, zeta: float, degree: float) -> Array:
    """For every row, find the beta at which the graph learned alone has about this mean degree (it grows with beta), or
    the same density on the nodes that the row has."""
    typical = np.array([row[np.isfinite(row)].mean() for row in zbar])
    low = np.log(1e-8 * typical**2 + 1e-300)
    high = low + math.log(1e14)
    q = None
    for _ in range(30):
        middle = 0.5 * (low + high)
        solution = space.solve(zbar, alpha, np.exp(middle), zeta, q, tolerance=1e-8)
        dense = 2.0 * (solution.w > 0.0).sum(-1) / space.nodes >= degree * space.share
        high, low, q = np.where(dense, middle, high), np.where(dense, low, middle), solution.q
    return np.asarray(np.exp(high))


def check_positive(where: str, **parameters: float | None) -> None:
    for name, value in parameters.items():
        if value is not None and not 0.0 < value < math.inf:
            raise InputError(f"{where}, {name}", "a number above 0", f"found {value}")


def learn_alone(
    space: Space, zbar: Array, alpha: float, beta: float | None, zeta: float, degree: float | None
) -> tuple[Solution, Array]:
    """Learn each silo's graph by (7), and from it beta and the scale of its data."""
    if beta is None:
        assert degree is not None, "either beta or a degree"
        betas = beta_for_degree(space, zbar, alpha, zeta, degree)
    else:
        betas = np.full(len(zbar), beta)
    solution = space.solve(zbar, alpha, betas, zeta)
    facts = np.full((len(zbar), FACTS), np.inf)
    facts[:, LOG_BETA] = np.log(betas)
    facts[:, SCALE] = 2.0 * space.mean_over_nodes(solution.q)  # the average cost of an edge in use, q_a + q_b
    facts[:, EDGES] = (solution.w > 0.0).sum(-1)
    return solution, facts


def choose(facts: Array, silos: int, lam: float | None, nu: float | None) -> tuple[float, float, float]:
    """Choose beta, lam and nu from what the silos found alone. A consensus of k edges can hold only if nu >= sqrt(k) /
    I: I pulls of length rho, spread over k edges, must reach lam on each of them."""
    beta = math.exp(facts[:, LOG_BETA].mean())
    if lam is None:
        lam = (LAM_OF_SCALE if silos > 1 else LAM_ALONE) * float(facts[:, SCALE].mean())
    if nu is None:
        nu = 2.0 * math.sqrt(max(facts[:, EDGES].mean(), 1.0)) / silos
    return beta, lam, nu
