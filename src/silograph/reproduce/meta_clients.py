"""Clients with a few classes each of a collection of pictures, and the networks that learn to classify them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.class_clients import (
    CIFAR10_FILES,
    MNIST_FILES,
    Classes,
    PictureSet,
    cifar10,
    class_federation,
    mnist,
    pool,
    split,
)
from silograph.data.clients import Single
from silograph.data.collections import VARIABLE
from silograph.data.tables import shown
from silograph.families.meta.network import build_network
from silograph.families.meta.new_clients import personal_models
from silograph.methods.base import Private
from silograph.methods.private_meta import divided
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.topology import Topology, star

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural

EVERY = 10  # rounds between the points of a curve
SHORTER = 10  # times fewer rounds, where little time is given
TRIED = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0)  # personal steps from the last start of a run

Pictures = tuple[Single, Classes]


@dataclass(frozen=True)
class Collection:
    """Pictures that a user has a copy of. Pooled two by two, their numbers are (x - centre) * scale, x from 0 to 1."""

    name: str
    files: tuple[str, ...]
    read: Callable[[Path | None], PictureSet | None]
    centre: float = 0.0
    scale: float = 1.0

    def pictures(self, folder: Path | None) -> Pictures:
        found = self.read(folder)
        if found is None:
            named = os.environ.get(VARIABLE) if folder is None else folder
            instead = f"it is not in {shown(Path(named))}" if named else "no folder was named"
            todo = f"Name the folder with --data or in {VARIABLE}."
            raise InputError(self.name, f"a file {' or '.join(self.files)} in your folder of data sets", instead, todo)
        learn, classes, test, others = found  # clients hold back some of their own records, so both are dealt
        pictures = np.concatenate([pool(learn), pool(test)])
        return (pictures - np.float32(self.centre)) * np.float32(self.scale), np.concatenate([classes, others])


@dataclass(frozen=True)
class Problem:
    """Clients that have three classes of a collection each, and the network that learns to tell classes apart.

    The first `sources` of them learn the start, with `records` each; the others are new clients.
    """

    name: str
    collection: Collection
    network: Callable[[int], Neural]  # of a seed
    clients: int = 50
    sources: int = 30
    per_class: int = 200
    records: int = 600
    rounds: int = 200

    def shortened(self, smaller: int) -> Problem:
        rounds = max(EVERY, self.rounds // SHORTER // EVERY * EVERY)
        sources, new = (max(2, count // smaller) for count in (self.sources, self.clients - self.sources))
        return replace(self, rounds=rounds, sources=sources, clients=sources + new)

    def in_short(self, smaller: int) -> str:
        small = self.shortened(smaller)
        return (
            f"{self.name} with {small.rounds} rounds instead of {self.rounds}, {small.sources} source clients instead "
            f"of {self.sources} and {small.clients - small.sources} new ones instead of {self.clients - self.sources}"
        )

    def world(self, pictures: Pictures, seed: int) -> World:
        parts = class_federation(*pictures, seed, self.clients, 3, self.per_class)
        topo, new = (
            star([f"client {k:03d}" for k in ks]) for ks in (range(self.sources), range(self.sources, self.clients))
        )
        source = [(x[: self.records], y[: self.records]) for x, y in parts[: self.sources]]
        halves = []
        for name, (x, y) in zip(new.silos, parts[self.sources :], strict=True):
            own, test = split(len(y), 0.5, stream(seed, name, 0, "held back"))
            halves.append(((x[own], y[own]), (x[test], y[test])))
        known = np.concatenate([x for x, _ in source]), np.concatenate([y for _, y in source])
        return World(self.network(seed), topo, divided(source, topo.silos, seed), known, new, halves)


@dataclass(frozen=True, eq=False)
class World:
    """One repetition: source clients and their records, also pooled without their owners; new clients, and the halves
    of their records to learn from and to test on."""

    task: Neural
    topo: Topology
    data: Private
    known: Pictures
    new: Topology
    halves: Sequence[tuple[Pictures, Pictures]]

    def tested(self, start: Array, step: float) -> Array:
        """Loss and accuracy of the new clients' models, one step (4) from the start, on average over the clients."""
        own = [half for half, _ in self.halves]
        models = personal_models(self.task, start, step, 1, own, self.new.silos, Door(0, Ledger()))
        pairs = [self.task.measure(w, *test) for w, (_, test) in zip(models, self.halves, strict=True)]
        return np.asarray(np.mean(pairs, axis=0))

    def score(self, start: Array, step: float) -> Array:
        """(2, 2): loss and accuracy of new clients, and of the start itself on its training records."""
        return np.array([self.tested(start, step), self.task.measure(start, *self.known)])

    def by_step(self, start: Array) -> Array:
        """Accuracy of new clients with each of the steps TRIED."""
        return np.array([self.tested(start, step)[1] for step in TRIED])


# ---- the problems ----------------------------------------------------------------------------------------------------

CLASSES = 10
HOLDS = "It holds the arrays train_images, train_labels, test_images and test_labels, or x_train and so on."
MNIST = Collection("MNIST", MNIST_FILES, mnist)
CIFAR = Collection("CIFAR-10", CIFAR10_FILES, cifar10, centre=0.5, scale=4.0)
DIGITS, PHOTOGRAPHS = (1, 14, 14), (3, 16, 16)  # shapes of the pooled pictures


def perceptron(units: int, seed: int) -> Neural:
    return build_network({"model": "mlp", "hidden": (units,)}, DIGITS, CLASSES, "classes", "cpu", seed)


def convolutions(dense: tuple[int, ...], seed: int) -> Neural:
    from silograph.tasks.networks import cnn, initialise

    module = initialise(cnn(PHOTOGRAPHS, CLASSES, FILTERS, dense), seed)
    return build_network({"module": module}, PHOTOGRAPHS, CLASSES, "classes", "cpu", seed)


def _residual(seed: int) -> Neural:
    from silograph.tasks.networks import initialise, resnet18

    module = initialise(resnet18(PHOTOGRAPHS, CLASSES, WIDTH, WIDTH), seed)
    return build_network({"module": module}, PHOTOGRAPHS, CLASSES, "classes", "cpu", seed)


FILTERS, WIDTH = (8, 16), 4
MLP = Problem("MNIST", MNIST, partial(perceptron, 32))
CNN = Problem(
    "CIFAR-10", CIFAR, partial(convolutions, ()), clients=15, sources=9, per_class=120, records=360, rounds=50
)
RESNET = Problem("CIFAR-10, ResNet-18", CIFAR, _residual, clients=8, sources=4, per_class=150, records=450, rounds=20)
