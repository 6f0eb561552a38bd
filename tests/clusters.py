"""Small federations for the tests of clustered models: clients of three clusters, and the method in every mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from servers import Case, Ran, door_of, engine_of, played  # noqa: F401 (for who imports this)
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.privacy.accounting import gaussian_multiplier, zcdp_rho
from silograph.privacy.door import Budget
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import DistributedGaussian, Gaussian, leakage_decay
from silograph.privacy.observers import OWN_SERVER
from silograph.tasks.clustered import Linearised, Proximal
from silograph.topology import Topology, graph_from, regions

FEATURES, MOST, ROUNDS = 5, 8, 6
EPSILON, DELTA = 3.0, 1e-5
SIZES = (7, 6, 9, 4)  # servers of unequal size
CLUSTERS = (
    *(0, 1, 2, 0, 1, 2, 0),  # every cluster
    *(0, 0, 0, 1, 1, 1),  # nobody of cluster 2
    *(2, 2, 2, 2, 0, 0, 0, 0, 1),  # one client of cluster 1
    *(1, 1, 1, 1),  # cluster 1 alone
)


def topology(weights: str = "metropolis") -> Topology:
    """A path with a triangle at its end: degrees 2, 2, 3, 1."""
    linked = np.zeros((4, 4))
    for a, b in ((0, 1), (0, 2), (1, 2), (2, 3)):
        linked[a, b] = linked[b, a] = 1.0
    return regions(graph_from(linked, ["east", "north", "south", "west"], weights=weights), SIZES)


def records(seed: int = 0, loss: str = "ridge", topo: Topology | None = None) -> dict[str, tuple]:
    """1 to 8 records for every client, by name: fewer and more than features. One client's features are dependent."""
    topo, rng = topo or topology(), np.random.default_rng(seed)
    base, made = rng.normal(size=FEATURES), {}
    models = base + 0.3 * rng.normal(size=(3, FEATURES))
    for k, name in enumerate(topo.silos):
        x = rng.normal(size=(1 if k == 1 else int(rng.integers(1, MOST + 1)), FEATURES))
        if k == 2:
            x[:, 1] = x[:, 0]
        y = x @ models[CLUSTERS[k]] + 0.3 * rng.standard_t(3.0, size=len(x))
        made[name] = (x, np.where(y > 0.0, 1.0, -1.0) if loss == "logistic" else y)
    return made


def plain(**options) -> ClusteredADMM:
    chosen = {"task": Proximal(FEATURES, MOST), "clusters": CLUSTERS, "rho": 1.5, "rounds": ROUNDS, "lam": 0.1}
    return ClusteredADMM(**{**chosen, "tau": 0.3, "tau_decay": 0.9, "sample": 3, "seed": 3, **options})


def cases() -> list[Case]:
    huber = Proximal(FEATURES, MOST, "huber", 0.5, radius=1.5)
    logistic = Proximal(FEATURES, MOST, "logistic", radius=1.5)
    tangent = Linearised(FEATURES, MOST, clip=1.2)
    trusting = Budget(EPSILON, DELTA, frozenset({OWN_SERVER}))
    everyone = {"sample": None}
    central = Gaussian(gaussian_multiplier(EPSILON, DELTA, ROUNDS))
    own = DistributedGaussian(zcdp_rho(EPSILON, DELTA) / ROUNDS)
    return [
        Case("ridge", plain()),
        Case("ridge, everybody, all clusters, mixing", plain(form="all", weights="mixing", **everyone)),
        Case("ridge, single step", plain(steps="single")),
        Case("huber, servers alone", plain(task=huber, weights="alone")),
        Case("logistic", plain(task=logistic)),
        Case("linearised", plain(task=tangent, rho=6.0)),
        Case("masks", plain(clip=0.4, **everyone), masks=Masks()),
        Case("records, huber", plain(task=huber, protect="records", **everyone), central, Budget(EPSILON, DELTA)),
        Case("records, logistic, schedule", plain(task=logistic, protect="records"), leakage_decay(0.01, 0.9)),
        Case("records, linearised", plain(task=tangent, rho=6.0, protect="records"), central, Budget(EPSILON, DELTA)),
        Case("clients, trusted server", plain(protect="clients", clip=0.4, **everyone), central, trusting),
        Case("clients, masks", plain(protect="clients", clip=0.4, **everyone), own, Budget(EPSILON, DELTA), Masks()),
        Case(
            "clients, masks skipped",
            plain(protect="clients", clip=0.4, **everyone),
            own,
            Budget(EPSILON, DELTA),
            Masks("skipped"),
        ),
    ]


def named(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def changed(case: Case, **options) -> Case:
    """The same case with another parameter of its method."""
    return replace(case, method=replace(case.method, **options))


def data_of(case: Case, seed: int = 0) -> dict[str, tuple]:
    return records(seed, case.method.task.loss)


def run(case: Case, data: dict | None = None, topo: Topology | None = None, **more: Any) -> Ran:
    return played(case, data_of(case) if data is None else data, topo or topology(), **more)
