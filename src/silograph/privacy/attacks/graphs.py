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
    """Recover the statistics of a silo from a graph that it uploaded without noise.

    Returns zbar (p,), and on which pairs it is exact: those with an edge. Elsewhere it is a lower bound.

    Parameters
    ----------
    w : The graph's weights (p,), in the order of `kernels.edges.pairs`.
    alpha : Weight of the barrier that it was learned with.
    beta : Weight of the squares that it was learned with.
    zeta : What was added to each degree.

    >>> from silograph.kernels.dual_newton import solve
    >>> uploaded = solve(np.array([[1.0, 4.0, 1.5]]), alpha=1.0, beta=0.1).w[0]
    >>> zbar, exact = distances_of_graph(uploaded, alpha=1.0, beta=0.1)
    >>> zbar[exact].round(9), exact
    (array([1. , 1.5]), array([ True, False,  True]))
    """
    return barrier(w, alpha, zeta) - 4.0 * beta * w, w > 0.0


def distances_of_step(
    ahead: Array, after: Array, anchor: Array, pull: float, step: float, alpha: float, beta: float, zeta: float
) -> tuple[Array, BoolArray]:
    """Recover zbar from one step of the papers' Algorithm 1 with the implicit coupling:

        after = max(0, (ahead - step slope + step pull anchor) / (1 + step pull)),    the slope holds zbar as it is

    Returns zbar (p,), and on which pairs it is exact: those with a weight after the step.

    Parameters
    ----------
    ahead : The weights (p,) at which the gradient was taken.
    after : The weights (p,) after the step, which were uploaded.
    anchor : What the step is pulled to (p,).
    pull : The weight of that pull.
    step : The size of the step.
    alpha : Weight of the barrier.
    beta : Weight of the squares.
    zeta : What is added to each degree.

    >>> from silograph.kernels.descent import gradient, pulled_step
    >>> ahead, anchor = np.ones((1, 3)), np.zeros((1, 3))
    >>> slope = gradient(np.array([[1.0, 4.0, 1.5]]), ahead, alpha=1.0, beta=0.1, zeta=0.0)
    >>> after = np.maximum(pulled_step(ahead, slope, anchor, np.array([0.5]), 0.01, implicit=True), 0.0)
    >>> distances_of_step(ahead[0], after[0], anchor[0], 0.5, 0.01, alpha=1.0, beta=0.1, zeta=0.0)[0].round(9)
    array([1. , 4. , 1.5])
    """
    slope = (ahead + step * pull * anchor - (1.0 + step * pull) * after) / step
    return slope + barrier(ahead, alpha, zeta) - 4.0 * beta * ahead, after > 0.0


def added_record(before: Array, after: Array, count: int) -> Array:
    """Recover the squared differences z of a record that was added to `count` others:

        z = (count + 1) after - count before

    Parameters
    ----------
    before : zbar (p,) of the records before.
    after : zbar (p,) with the new one.
    count : How many there were before.

    >>> from silograph.kernels.edges import squared_distances
    >>> x = np.array([[0.0, 1.0, 3.0], [1.0, 1.0, 0.0], [2.0, 5.0, 4.0]])
    >>> added_record(squared_distances(x[:2]), squared_distances(x), count=2)  # (2 - 5)^2, (2 - 4)^2, (5 - 4)^2
    array([9., 4., 1.])
    """
    return np.asarray((count + 1) * after - count * before)


def signal_of(z: Array) -> Array:
    """Recover a signal from its squared differences, up to sign and mean: the leading axis of the centred moment.

    Parameters
    ----------
    z : Squared differences (p,) of one signal on d nodes.

    >>> found = signal_of(np.array([9.0, 4.0, 1.0]))  # of the signal 2, 5, 4
    >>> np.abs(found - found[0]).round(6)
    array([0., 3., 2.])
    """
    a, b = _ends(len(z))
    nodes = int(b[-1]) + 1
    squared = np.zeros((nodes, nodes))
    squared[a, b] = squared[b, a] = z
    centre = np.eye(nodes) - 1.0 / nodes
    values, axes = np.linalg.eigh(-0.5 * centre @ squared @ centre)
    return np.asarray(np.sqrt(max(float(values[-1]), 0.0)) * axes[:, -1])


def support_differs(one: Array, other: Array) -> int:
    """Count the pairs on which the edges alone, without any weight, tell two graphs apart.

    Parameters
    ----------
    one : Weights (p,) of a graph.
    other : Weights (p,) of the other.

    >>> support_differs(np.array([0.1, 0.0, 3.0]), np.array([9.9, 0.2, 0.0]))
    2
    """
    return int(((one > 0.0) != (other > 0.0)).sum())


def support_agreement(published: Array, graphs: Array) -> Array:
    """Count the pairs of the published graph that agree with each candidate's edges. The largest count is the guess.

    Noise on the weights of existing edges does not weaken this attack: the edges themselves are the leak.

    Parameters
    ----------
    published : Weights (p,) of the published graph.
    graphs : Weights (k, p) of the candidates.

    >>> worlds = np.array([[1.0, 0.0, 2.0], [1.0, 0.5, 0.0]])
    >>> support_agreement(np.array([7.3, 0.0, 0.2]), worlds)  # it is the first
    array([3, 1])
    """
    return np.asarray(((published > 0.0) == (graphs > 0.0)).sum(-1))
