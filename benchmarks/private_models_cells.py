"""Synthetic cells of private models of regions: excess loss over the pooled optimum without privacy.

P regions of K agents with 40 records each. Features have variances 1/j; a region's mean is shifted, and its model is
off the common one by 30 % of its length, an agent's by another 20 %. Losses are measured on fresh records of every
region and held against the best single model on all training records, without privacy (`scipy.optimize`).

    python -m benchmarks.private_models_cells [--json]

Step and clip follow from public numbers (`settings`): the step from the features' largest variance, the clip from the
length that a mean gradient of 40 records has by chance. They were looked at on seeds 0 and 1; figures are of 100 on.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize

from silograph.core.types import Array
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian, Mechanism, SharedGaussian
from silograph.privacy.observers import OWN_SERVER
from silograph.run.loop import play
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

RECORDS, TESTED, DELTA = 40, 20_000, 1e-6
OFF_REGION, OFF_AGENT, SHIFT = 0.3, 0.2, 0.3
Who = Literal["curator", "region", "all"]


@dataclass(frozen=True)
class Cell:
    """One problem: training records by agent, region by region, and fresh ones by region."""

    loss: Literal["logistic", "ridge"]
    x: Array  # (agents of all regions, records, features)
    y: Array
    test_x: Array  # (regions, records, features)
    test_y: Array

    def losses(self, models: Array) -> Array:
        """Of one model for each region, on its fresh records."""
        margin = np.einsum("pnd,pd->pn", self.test_x, models)
        if self.loss == "ridge":
            return np.asarray(((self.test_y - margin) ** 2).mean(1))
        return np.asarray(np.logaddexp(0.0, -self.test_y * margin).mean(1))

    def pooled(self) -> Array:
        """The best single model on all training records."""
        x, y = self.x.reshape(-1, self.x.shape[2]), self.y.ravel()
        if self.loss == "ridge":
            return np.asarray(np.linalg.lstsq(x, y, rcond=None)[0])

        def objective(w: Array) -> tuple[float, Array]:
            margin = y * (x @ w)
            return float(np.logaddexp(0.0, -margin).mean()), -((y / (1.0 + np.exp(margin))) @ x) / len(y)

        return np.asarray(minimize(objective, np.zeros(x.shape[1]), jac=True, tol=1e-10).x)


def cell(loss: Literal["logistic", "ridge"], count: int, agents: int, features: int, seed: int) -> Cell:
    rng = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(np.arange(1, features + 1))
    common = rng.normal(size=features)
    common *= 2.0 / np.linalg.norm(common)
    own = common + _off(rng, (count, features), OFF_REGION * 2.0)
    means = SHIFT * scale * rng.normal(size=(count, features))

    def drawn(models: Array, shifts: Array, records: int) -> tuple[Array, Array]:
        x = shifts[:, None] + scale * rng.normal(size=(len(models), records, features))
        margin = np.einsum("and,ad->an", x, models)
        if loss == "ridge":
            return x, margin + rng.normal(size=margin.shape)
        return x, np.where(rng.random(margin.shape) < 1.0 / (1.0 + np.exp(-margin)), 1.0, -1.0)

    each = np.repeat(own, agents, 0) + _off(rng, (count * agents, features), OFF_AGENT * 2.0)
    x, y = drawn(each, np.repeat(means, agents, 0), RECORDS)
    # Fresh records are of fresh agents: as many as there are records.
    fresh = np.repeat(own, TESTED, 0) + _off(rng, (count * TESTED, features), OFF_AGENT * 2.0)
    test_x, test_y = drawn(fresh, np.repeat(means, TESTED, 0), 1)
    return Cell(loss, x, y, test_x.reshape(count, TESTED, features), test_y.reshape(count, TESTED))


def _off(rng: np.random.Generator, shape: tuple[int, int], length: float) -> Array:
    """Vectors of that length in any direction."""
    draws = rng.normal(size=shape)
    return np.asarray(length * draws / np.linalg.norm(draws, axis=1, keepdims=True))


def settings(loss: str, features: int) -> tuple[float, float]:
    """Step and clip, from public numbers alone."""
    trace = float(sum(1.0 / j for j in range(1, features + 1)))
    curvature = 0.25 if loss == "logistic" else 2.0
    step = 1.0 / curvature
    # The length of the mean gradient of 40 records at the optimum, whose residuals have a variance of .15 or 4.
    chance = math.sqrt(trace * (0.15 if loss == "logistic" else 4.0) / RECORDS)
    return step, step * chance


def excess(problem: Cell, who: Who, epsilon: float, rounds: int = 80, personal: float = 0.0, root: int = 1) -> float:
    """Mean loss of the regions' models over that of the pooled optimum."""
    count, features = problem.test_x.shape[0], problem.x.shape[2]
    step, clip = settings(problem.loss, features)
    agents = len(problem.x) // count
    if who == "curator":
        topo = regions(server_graph("ring", 1), len(problem.x))
    else:
        topo = regions(server_graph("ring", count), agents)
    each = gaussian_multiplier(epsilon, DELTA, rounds)
    mechanism: Mechanism = Gaussian(each) if who == "curator" else SharedGaussian(each / math.sqrt(1.0 - personal))
    masks = None if who == "curator" else Masks("skipped")
    budget = Budget(epsilon, DELTA, frozenset({OWN_SERVER}) if who == "curator" else frozenset())
    method = GraphFederation(
        Linear(features, RECORDS, problem.loss),
        step,
        rounds,
        perturbation="private",
        clip=clip,
        reach="all" if who == "all" else "region",
        personal=personal,
    )
    data = {"x": problem.x, "y": problem.y, "count": np.full(len(problem.x), float(RECORDS))}
    door = Door(root, Ledger(), mechanism, budget, masks=masks)
    models = play(method, topo, data, door)[1].arrays["model"]
    models = np.repeat(models, count, 0) if who == "curator" else models
    best = np.repeat(problem.pooled()[None], count, 0)
    return float((problem.losses(models) - problem.losses(best)).mean())


#: Loss, regions, agents, features, epsilon; who, and with which personal share.
CELLS: tuple[tuple[Literal["logistic", "ridge"], int, int, int, float], ...] = (
    ("logistic", 10, 30, 10, 4.0),
    ("logistic", 10, 30, 10, 1.0),
    ("ridge", 10, 30, 10, 4.0),
    ("ridge", 10, 30, 10, 1.0),
    ("logistic", 50, 30, 10, 1.0),
)
WAYS: tuple[tuple[str, Who, float], ...] = (
    ("curator", "curator", 0.0),
    ("reach region", "region", 0.0),
    ("reach all", "all", 0.0),
    ("reach all, personal .3", "all", 0.3),
)


def measured(seeds: range) -> list[dict[str, object]]:
    """A thousandfold mean excess of every cell and way."""
    found: list[dict[str, object]] = []
    for loss, count, agents, features, epsilon in CELLS:
        problems = [cell(loss, count, agents, features, seed) for seed in seeds]
        for title, who, personal in WAYS:
            each = [1000.0 * excess(one, who, epsilon, personal=personal, root=k) for k, one in enumerate(problems)]
            name = f"{loss} {count}x{agents} d={features}, epsilon {epsilon:g}"
            spread = float(np.std(each, ddof=1) / math.sqrt(len(each))) if len(each) > 1 else math.nan
            found.append({"cell": name, "way": title, "excess_x1000": float(np.mean(each)), "error": spread})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    rows = measured(range(100, 100 + chosen.seeds))
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(f"{row['cell']:40} {row['way']:24} {row['excess_x1000']:9.3f} +- {row['error']:.3f}")


if __name__ == "__main__":
    main()
