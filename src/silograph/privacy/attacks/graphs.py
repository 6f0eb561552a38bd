"""What an uploaded graph reveals about the signals it was learned from.

A graph that minimises zbar.w - alpha sum log(deg + zeta) + 2 beta |w|^2 (S3 (7)) has a vanishing gradient on its
edges, so there zbar, the mean squared differences of the silo's signals, is known to the last digit:

    zbar_ab = alpha (1/(deg_a + zeta) + 1/(deg_b + zeta)) - 4 beta w_ab,     at least that where there is no edge.

A step of the papers' Algorithm 1 gives zbar the same way. Since zbar is linear in the signals' second moments, an
observer who has it before and after a record was added knows that record's own z, and so the record up to its sign and
mean.
"""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array, BoolArray


def _ends(edges: int) -> tuple[Array, Array]:
    nodes = (1 + int(np.sqrt(1 + 8 * edges))) // 2
    return np.triu_indices(nodes, 1)  # type: ignore[return-value]


def barrier(w: Array, alpha: float, zeta: float = 0.0) -> Array:
    """Return alpha (1/(deg_a + zeta) + 1/(deg_b + zeta)) for every pair."""
    a, b = _ends(len(w))
    degree = np.bincount(a, w, int(b[-1]) + 1) + np.bincount(b, w, int(b[-1]) + 1) + zeta
    return np.asarray(alpha * (1.0 / degree[a] + 1.0 / degree[b]))


def distances_of_graph(w: Array, alpha: float, beta: float, zeta: float = 0.0) -> tuple[Array, BoolArray]:
    """Recover zbar from a graph uploaded without noise, and on which pairs it is exact; elsewhere it is a lower
    bound."""
    return barrier(w, alpha, zeta) - 4.0 * beta * w, w > 0.0


def distances_of_step(
    ahead: Array, after: Array, anchor: Array, pull: float, step: float, alpha: float, beta: float, zeta: float
) -> tuple[Array, BoolArray]:
    """Recover zbar from one step of Algorithm 1 with the implicit coupling; `ahead` is where its gradient was taken.

    after = max(0, (ahead - step slope + step pull anchor) / (1 + step pull)), and the slope holds zbar as it is.
    """
    slope = (ahead + step * pull * anchor - (1.0 + step * pull) * after) / step
    return slope + barrier(ahead, alpha, zeta) - 4.0 * beta * ahead, after > 0.0


def added_record(before: Array, after: Array, count: int) -> Array:
    """Recover the squared differences z of a record that was added to `count` others, from zbar before and after."""
    return np.asarray((count + 1) * after - count * before)


def signal_of(z: Array) -> Array:
    """Recover a signal from its squared differences, up to sign and mean: the leading axis of the centred moment."""
    a, b = _ends(len(z))
    nodes = int(b[-1]) + 1
    squared = np.zeros((nodes, nodes))
    squared[a, b] = squared[b, a] = z
    centre = np.eye(nodes) - 1.0 / nodes
    values, axes = np.linalg.eigh(-0.5 * centre @ squared @ centre)
    return np.asarray(np.sqrt(max(float(values[-1]), 0.0)) * axes[:, -1])


def support_differs(one: Array, other: Array) -> int:
    """Count the pairs on which the edges alone, without any weight, tell two graphs apart."""
    return int(((one > 0.0) != (other > 0.0)).sum())


def support_agreement(published: Array, graphs: Array) -> Array:
    """Count (k,) pairs of the published graph that agree with each candidate's edges. The largest count is the guess.

    Noise on the weights of existing edges does not weaken this attack: the edges themselves are the leak.
    """
    return np.asarray(((published > 0.0) == (graphs > 0.0)).sum(-1))
