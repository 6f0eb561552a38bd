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
    """Return (T, M): after each round the sum of the region's mean updates so far, with that round's noise alone.

    `sent` (T, P, M) is what the servers sent under homomorphic noise, `start` the model everybody began with.
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
