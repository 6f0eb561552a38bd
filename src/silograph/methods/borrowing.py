"""Learn the exchange between clusters (S2, (10)), who borrows from whom, from the servers' own models.

Cluster models are signals on a graph of clusters, so the graph learner can find which are alike. With z the mean
squared difference of two clusters' models, less what noise adds to it, and v the noise of a model,

    minimise over weights W >= 0:    sum of W_qr z_qr - (v/2) sum over q of log (degree of q),

a cluster that is like no other gets the degree v/z: it borrows less as it differs more. The exchange is then

    what = wbar - c L wbar,    L the Laplacian of W,

with c the part of its final model that a cell's first step from zero covered: how strongly records pull in a round, and
rather too little than too much. A cell's own records and the others then pull in about the ratio 1 : degree, whatever
rho is. Everything is computed from released models and steps, so it costs no privacy.
"""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array, BoolArray, Carry
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import pairs

_NOTHING = 1e-100  # a model whose squares vanish
_ROUND = 1e-3  # a small squared term for the learner, so that the weights are unique; if z is 1 it is 0.1 % of them


def told(w: Array, model: Array, counts: Array) -> Array:
    """What all servers must know of each one: its cells' models, their steps from there, and which cells had
    clients."""
    came = (counts > 0.0).reshape(*w.shape[:2], 1)
    return np.concatenate([model, w - model, came], -1)


def borrowed(servers: Carry, told: Array, round: int, when: int) -> Carry:
    """What a server remembers: the first round's steps; the mean of those in the second half of the rounds before
    `when`, so that a round's sample of clients is not taken for a difference; and from then on the exchange. `told` is
    from all servers."""
    model, steps, came = np.split(told, [told.shape[-1] // 2, -1], -1)
    begin = when // 2
    if round == 0:
        return {"early": steps}
    if begin <= round < when:
        return {
            "steps": servers["steps"] + steps / (when - begin),
            "heard": servers["heard"] | (came[..., 0] > 0.0),
        }
    if round != when:
        return {}
    return {"exchange": learned_exchange(model, servers["steps"], servers["early"], servers["heard"])}


def learned_exchange(model: Array, steps: Array, first: Array, heard: BoolArray) -> Array:
    """Return (Q, Q): how much each cluster takes from each, with rows that sum to 1.

    Uses the servers' `model`, and the cells' mean differences to it now, `steps`, and in the `first` round, which began
    at 0: all (S, Q, d). `heard` (S, Q) marks cells that had clients. For a cluster at fewer than two servers, noise and
    difference look the same, so it borrows nothing.
    """
    clusters = model.shape[1]
    exchange = np.eye(clusters)
    told = np.flatnonzero((heard.sum(0) >= 2) & (np.abs(model.mean(0)).max(-1) > _NOTHING))
    if len(told) < 2:
        return exchange
    centre = model[:, told].mean(0)
    pace = np.array([first[heard[:, q], q].mean(0) @ w / (w @ w) for q, w in zip(told, centre, strict=True)]).mean()
    if pace <= 0.0:  # steps of length 0 give no information
        return exchange
    spread = [steps[heard[:, q], q].var(0, ddof=1).mean() / heard[:, q].sum() for q in told]
    noise = np.array(spread) / pace**2
    a, b = pairs(len(told))
    apart = ((centre[a] - centre[b]) ** 2).mean(-1) - noise[a] - noise[b]
    mean = float(noise.mean())
    if mean == 0.0:
        return exchange
    # A difference below the noise looks like none: it is taken to be as large as the noise.
    weight = solve(np.maximum(apart, mean)[None] / mean, 0.5, _ROUND).w[0]
    graph = np.zeros((len(told), len(told)))
    graph[a, b] = graph[b, a] = weight
    exchange[np.ix_(told, told)] += min(pace, 1.0) * (graph - np.diag(graph.sum(1)))
    return exchange
