"""What an observer of a server and all its neighbours learns about the region's updates (an attack on S1, (8) with
(47)).

Server p sends y_p = psi_p + g_p and adds -(1 - a_pp)/a_pp g_p to its own copy. Inserted in (8), that gives

    w_p = psi_p + sum over m of a_pm (y_m - y_p),

so a server's own noise enters its model only through values that everybody heard. The observer subtracts them, round
after round, and has the sum of the region's updates with *one* round's noise on it, for any number of rounds.
"""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array


def unmixed_sum(sent: Array, a: Array, region: int, start: Array) -> Array:
    """Take homomorphic noise off: after each round the sum of the region's mean updates so far, with that round's noise
    alone.

    Parameters
    ----------
    sent : What the servers sent under homomorphic noise (T, P, M): rounds, servers, numbers of a model.
    a : Combination matrix (P, P).
    region : The place of the attacked server.
    start : The model that everybody began with (M,).

    >>> rng, a, sent, w = np.random.default_rng(0), np.array([[0.75, 0.25], [0.25, 0.75]]), [], np.zeros((2, 1))
    >>> for _ in range(1000):
    ...     noise = rng.normal(size=(2, 1))
    ...     sent.append(w + np.array([[0.3], [0.0]]) + noise)  # the first region's update is 0.3 in every round
    ...     w = a @ sent[-1] - noise  # each server takes its own noise off again
    >>> unmixed_sum(np.array(sent), a, region=0, start=np.zeros(1))[-1] / 1000
    array([0.29909057])
    """
    heard = np.einsum("m,tmk->tk", a[region], sent) - sent[:, region]
    mixed_in = np.cumsum(heard, axis=0) - heard  # up to the round before
    return np.asarray(sent[:, region] - start - mixed_in)


def followed_sum(sent: Array, a: Array, region: int, start: Array) -> Array:
    """Return the same if a server uses what it sent as its own copy: every model is known, and every round's noise
    stays.

    These values give nothing better: each round's update is seen once, under its own noise.
    """
    models = np.concatenate([np.broadcast_to(start, (1, sent.shape[2])), np.einsum("m,tmk->tk", a[region], sent)[:-1]])
    return np.asarray(np.cumsum(sent[:, region] - models, axis=0))
