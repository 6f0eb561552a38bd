"""Records of clients whose clusters have related models (S2, section V.A), and how far models are from these.

Clients come server by server: those of server s are `records[s * clients : (s + 1) * clients]`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.units import Records


@dataclass(frozen=True, eq=False)
class ClusteredRecords:
    """Each client's records and cluster, and the model (Q, d) that made each cluster's answers."""

    records: list[Records]
    clusters: tuple[int, ...]
    models: Array


def clustered_regression(
    seed: int,
    servers: int = 10,
    clients: int = 15,
    clusters: int = 3,
    features: int = 60,
    counts: tuple[int, int] = (2, 9),
    spread: float = 0.15,
    variance: float = 0.75,
) -> ClusteredRecords:
    """y = x.w_q + v for the client's cluster q. Every entry of w_q is w_0's, changed by up to a part `spread` of it.

    x, w_0 and v / sqrt(variance) are standard normal, which the paper leaves open; a client has `counts` records.
    """
    rng = stream(seed, "world", 0, "cluster models")
    base = rng.standard_normal(features)
    models = base * (1.0 + rng.uniform(-spread, spread, (clusters, features)))
    chosen = stream(seed, "world", 0, "clusters").integers(clusters, size=servers * clients)
    parts = []
    for number, q in enumerate(chosen):
        rng = stream(seed, f"server {number // clients}/client {number % clients}", 0, "clustered regression")
        x = rng.standard_normal((int(rng.integers(*counts, endpoint=True)), features))
        parts.append((x, x @ models[q] + np.sqrt(variance) * rng.standard_normal(len(x))))
    return ClusteredRecords(parts, tuple(int(q) for q in chosen), models)


def nmsd(model: Array, made: ClusteredRecords) -> float:
    """The mean over clients of |w_k - w_q|^2 / |w_q|^2, for models (K, d)."""
    truth = made.models[list(made.clusters)]
    return float((((model - truth) ** 2).sum(-1) / (truth**2).sum(-1)).mean())  # (50)
