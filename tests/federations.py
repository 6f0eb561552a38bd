"""Small federations for the tests of graph federation: regions of agents, and the method in every mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from servers import Case, Ran, door_of, engine_of, played  # noqa: F401 (for who imports this)
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import gaussian_multiplier, zcdp_rho
from silograph.privacy.door import Budget
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import DistributedGaussian, Gaussian
from silograph.privacy.observers import OWN_SERVER
from silograph.tasks.linear import Linear
from silograph.topology import Topology, regions, server_graph

FEATURES, MOST, ROUNDS = 3, 25, 6
EPSILON, DELTA = 3.0, 1e-5
SIZES = (5, 4, 7)  # regions of unequal size


def topology(sizes: tuple[int, ...] = SIZES) -> Topology:
    return regions(server_graph("ring", len(sizes)), sizes)


def records(seed: int = 0, topo: Topology | None = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Unequal numbers of records for every agent, by name."""
    topo, rng = topo or topology(), np.random.default_rng(seed)
    model = rng.normal(size=FEATURES)
    made = {}
    for name in topo.silos:
        x = 0.4 * rng.normal(size=(int(rng.integers(3, MOST + 1)), FEATURES))
        made[name] = (x, x @ model + 0.1 * rng.normal(size=len(x)))
    return made


def cases() -> list[Case]:
    task = Linear(FEATURES, MOST, "ridge", 0.05)
    plain = GraphFederation(task, 0.5, ROUNDS, 4, (1, 4), (2, 5), seed=3)
    clipped = replace(plain, clip=0.3)
    private = replace(clipped, perturbation="private")
    trusting = Budget(EPSILON, DELTA, frozenset({OWN_SERVER}))
    central = Gaussian(gaussian_multiplier(EPSILON, DELTA, ROUNDS))
    own = DistributedGaussian(zcdp_rho(EPSILON, DELTA) / ROUNDS)
    noisy = {"variance": 0.1}
    return [
        Case("none", plain),
        Case("none, everybody, all records", replace(plain, sample=None, batch=None)),
        Case("edge", replace(plain, perturbation="edge", **noisy)),
        Case("sender, Gaussian", replace(plain, perturbation="sender", law="gaussian", **noisy)),
        Case("homomorphic", replace(plain, perturbation="homomorphic", **noisy)),
        Case("masks", clipped, masks=Masks()),
        Case("private, trusted server", private, central, trusting),
        Case("private, masks", private, own, Budget(EPSILON, DELTA), Masks()),
        Case("private, masks skipped", private, own, Budget(EPSILON, DELTA), Masks("skipped")),
    ]


def run(case: Case, data: dict | None = None, topo: Topology | None = None, **more: Any) -> Ran:
    topo = topo or topology()
    return played(case, records(topo=topo) if data is None else data, topo, **more)
