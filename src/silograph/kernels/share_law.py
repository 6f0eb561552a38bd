"""Find the edges that many persons have, if every edge's share of persons is known only with noise of known size.

First the distribution g of all true shares is estimated, on a grid of [0, 1]. It is the distribution that makes the
noisy shares x_e most likely (EM, Kiefer and Wolfowitz):

    g(s) <- mean over edges e of  g(s) N(x_e; s, sigma^2) / sum_t g(t) N(x_e; t, sigma^2)                            (a)

Then Bayes' rule with g gives, for each edge, the distribution of its true share. An edge is "there" if its share is
above a level; the level is chosen such that k edges are expected to be above it. If edges are in groups, such as bins
of distance, each group has its own g, which is drawn towards the g of all edges by some pseudo-counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from silograph.core.types import Array

_GRID, _STEPS, _PSEUDO_COUNTS = 61, 200, 20.0


@dataclass(frozen=True)
class Shares:
    """What is known of p edges: the `probability` that each is there (its share is above `level`), and its expected
    `share`.

    `posterior` (p, grid) is the distribution of each edge's true share.
    """

    probability: Array
    share: Array
    level: float
    posterior: Array

    def drawn_again(self, count: int, rng: np.random.Generator) -> Array:
        """Draw the true shares of all edges `count` times from their distributions, each edge independently: (count,
        p)."""
        passed = self.posterior.cumsum(1)
        made = [(passed < rng.random((len(passed), 1))).sum(1) for _ in range(count)]
        step = 1.0 / (self.posterior.shape[1] - 1)
        return np.asarray(step * (np.array(made) + rng.uniform(-0.5, 0.5, (count, len(passed)))))


def learn_shares(noisy: Array, noise: float, edges: int, group: NDArray[np.intp] | None = None) -> Shares:
    """Estimate the true shares from noisy ones (p,). `noise` is the standard deviation, `edges` how many edges are
    there."""
    grid = np.linspace(0.0, 1.0, _GRID)
    group = np.zeros(len(noisy), dtype=np.intp) if group is None else group
    deviation = max(noise, 0.5 / _GRID)  # noise narrower than the grid counts as half a step
    exponent = -0.5 * ((noisy[:, None] - grid) / deviation) ** 2
    likely = np.exp(exponent - exponent.max(1, keepdims=True))
    common = _law(likely, np.full(_GRID, 1.0 / _GRID), 0.0)
    posterior = np.empty_like(likely)
    for each in np.unique(group):
        here = group == each
        # One group is everything: its law is the common one.
        law = common if here.all() else _law(likely[here], common, _PSEUDO_COUNTS)
        joint = likely[here] * law
        posterior[here] = joint / joint.sum(1, keepdims=True)
    return Shares(*_above(posterior, grid, edges), posterior)


def learn_differences(noisy: Array, noise: Array, margin: float) -> tuple[Array, Array]:
    """From noisy differences (p,) of two groups' shares: how probably each is beyond the margin, in the direction that
    is the likelier one; and its expected size."""
    grid = np.linspace(-1.0, 1.0, 2 * _GRID - 1)
    exponent = -0.5 * ((noisy - grid[:, None]) / np.maximum(noise, 0.5 / _GRID)) ** 2
    likely = np.exp(exponent - exponent.max(0)).T
    joint = likely * _law(likely, np.full(len(grid), 1.0 / len(grid)), 0.0)
    posterior = joint / joint.sum(1, keepdims=True)
    more, less = posterior[:, grid > margin].sum(1), posterior[:, grid < -margin].sum(1)
    return np.maximum(more, less), posterior @ grid


def _law(likely: Array, start: Array, pseudo: float) -> Array:
    """Iterate (a), drawn towards `start` by so many pseudo-counts; return g."""
    law = start
    for _ in range(_STEPS):
        joint = likely * law
        law = ((joint / joint.sum(1, keepdims=True)).sum(0) + pseudo * start) / (len(likely) + pseudo)
    return law


def _above(posterior: Array, grid: Array, edges: int) -> tuple[Array, Array, float]:
    """Probability of a share above the level that `edges` are expected to pass, of a grid point in part if need be."""
    expected = posterior.sum(0)[::-1].cumsum()[::-1]  # edges at this share or above
    place = int(np.flatnonzero(expected >= min(edges, expected[0]))[-1])
    higher = expected[place + 1] if place + 1 < len(grid) else 0.0
    part = (min(edges, expected[0]) - higher) / max(expected[place] - higher, 1e-300)
    probability = posterior[:, place + 1 :].sum(1) + part * posterior[:, place]
    return np.clip(probability, 0.0, 1.0), posterior @ grid, float(grid[place])
