"""Was a record in the training data of a model? Scores by loss and by gradient, and how well they answer.

A record that a model has seen has a smaller loss than one it has not. An observer of updates does better: an update
leans towards the gradient of every record in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array
from silograph.privacy.attacks.bounds import success


@dataclass(frozen=True)
class Membership:
    """`area` under the curve (one half is chance), the best `accuracy`, and the hits at 1 % false alarms."""

    area: float
    accuracy: float
    hits_at_one_percent: float


def by_loss(losses: Array, population: Array | None = None) -> Array:
    """Score records by minus the loss, or by how far it is below that of models that have not seen them.

    Parameters
    ----------
    losses : The losses (n,) of n records under the model; high scores say "in the training data".
    population : Their losses (k, n) under k reference models that have not seen them. None: the loss alone.

    >>> by_loss(np.array([0.1, 2.0]), population=np.array([[1.0, 2.0], [3.0, 2.0]]))
    array([1.9, 0. ])
    """
    if population is None:
        return np.asarray(-losses)
    spread = population.std(0)
    return np.asarray((population.mean(0) - losses) / np.where(spread > 0.0, spread, 1.0))


def by_gradient(update: Array, gradients: Array) -> Array:
    """Score records (n,) by how far an update, a descent step, leans towards each record's gradient, over its length.

    Parameters
    ----------
    update : The update (P,): the model after less the model before.
    gradients : Each record's gradient (n, P) at the model before.

    >>> by_gradient(np.array([-3.0, -4.0]), np.array([[3.0, 4.0], [4.0, 3.0]]))  # the first leans more
    array([5. , 4.8])
    """
    lengths = np.sqrt((gradients**2).sum(-1))
    return np.asarray(-(gradients @ update) / np.where(lengths > 0.0, lengths, 1.0))


def told(outside: Array, inside: Array) -> Membership:
    """Measure how well scores separate records outside the training data from those in it.

    The answer has the `area` under the curve (one half is chance), the best `accuracy` and `hits_at_one_percent` of
    false alarms.

    Parameters
    ----------
    outside : Scores of records outside, (n,).
    inside : Scores of records in it, (m,).

    >>> rng = np.random.default_rng(0)
    >>> round(told(rng.normal(size=20_000), rng.normal(size=20_000) + 1.0).area, 2)  # Phi(1 / sqrt 2) = 0.76
    0.76
    """
    size = min(len(outside), len(inside))
    area, accuracy = success(np.stack([outside[:size], inside[:size]]))
    threshold = np.quantile(outside, 0.99)
    return Membership(area, accuracy, float((inside > threshold).mean()))
