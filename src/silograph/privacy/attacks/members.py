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
    """Score by minus the loss, or relative to the losses (k, n) of reference models that have not seen the record."""
    if population is None:
        return np.asarray(-losses)
    spread = population.std(0)
    return np.asarray((population.mean(0) - losses) / np.where(spread > 0.0, spread, 1.0))


def by_gradient(update: Array, gradients: Array) -> Array:
    """Score (n,) by how far an update, a descent step, leans towards each record's gradient (n, P), over its length."""
    lengths = np.sqrt((gradients**2).sum(-1))
    return np.asarray(-(gradients @ update) / np.where(lengths > 0.0, lengths, 1.0))


def told(outside: Array, inside: Array) -> Membership:
    """Measure how well scores separate records outside the training data from those in it."""
    size = min(len(outside), len(inside))
    area, accuracy = success(np.stack([outside[:size], inside[:size]]))
    threshold = np.quantile(outside, 0.99)
    return Membership(area, accuracy, float((inside > threshold).mean()))
