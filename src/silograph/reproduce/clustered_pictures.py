"""Clustered clients classify digits and organs: Figures 8 to 12 of S2."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from silograph.data.collections import VARIABLE, find_data
from silograph.data.pictures import Pictures, Sides, accuracy, clustered_pictures, drawn_pictures, read_pictures
from silograph.privacy.mechanisms import variance_decay
from silograph.reproduce.clustered_runs import (
    ALONE,
    CLIENTS,
    CLUSTER_FL,
    DECAYING,
    EARLY,
    EXCHANGE,
    GFL,
    LEARNED,
    NO_EXCHANGE,
    NO_NOISE,
    NOISE,
    PHI_0,
    PRIVATE_RHO,
    SAMPLE,
    SERVERS,
    ZETA,
    Contender,
    Figure,
    Line,
    Result,
    Setting,
    World,
    lines_of,
    pgfl,
    tau_lines,
)
from silograph.reproduce.runner import DataSet
from silograph.reproduce.verdicts import Verdict
from silograph.tasks.clustered import Proximal
from silograph.topology import regions, server_graph

MNIST, ORGANS = "mnist/mnist.npz", "organamnist/organamnist.npz"
NAMES = {MNIST: "MNIST", ORGANS: "OrganAMNIST (of MedMNIST)"}
HOLDS = "It holds the arrays train_images and test_images (N, 28, 28), train_labels and test_labels."
PIXELS, ROUNDS, RHO, RADIUS = 784, 100, 1.0, 10.0

DIGIT_PAIRS: tuple[Sides, ...] = (((4,), (8,)), ((1,), (9,)), ((7,), (8,)))
DIGIT_TRIPLETS: tuple[Sides, ...] = (((1, 2, 3), (6, 7, 8)), ((1, 2, 3), (7, 8, 9)), ((1, 2, 3), (6, 8, 9)))
# 0 bladder, 4 left kidney, 5 right kidney, 6 liver, 7 left lung, 8 right lung, 10 spleen
ORGANS_ALIKE: tuple[Sides, ...] = (((8,), (7,)), ((6,), (7,)), ((5,), (7,)))
ORGANS_UNLIKE: tuple[Sides, ...] = (((10,), (7,)), ((4,), (0,)), ((5,), (8,)))

MEDIUM = pgfl(0.4, 0.95)
OTHERS = (LEARNED, GFL, CLUSTER_FL, ALONE)  # without noise only

HOW = (
    "Test accuracy of the clients' own models on up to 500 test pictures of their cluster's classes, the mean over "
    "clients and repetitions after 100 rounds. The deviation is that of the repetitions, each with its own clients, "
    f"graph and schedule. Logistic models of the 784 pixels, without an intercept (52), lambda 0.01, rho {RHO:g} "
    f"({PRIVATE_RHO:g} with noise), which the paper leaves out and which were taken after trying 0.3 to 30 (with noise "
    "10 only) on the first repetition. Classes take turns in a client's pictures. Points are "
    "percentage points."
)
PROTECTED = (
    f"With noise (phi0={PHI_0:g}, variance times {ZETA:g} a round) pictures are scaled back to length {RADIUS:g}, "
    "which bounds a record's gradient; the models are those that clients released."
)


@dataclass(frozen=True)
class Pictured:
    """A figure on the pictures of a `file`. Each cluster has its `sides`, each client of them `counts` pictures."""

    name: str
    title: str
    file: str
    sides: Sequence[Sides]
    clients: int
    counts: tuple[int, int]
    lines: Sequence[Line]
    statements: Callable[[Result], Iterable[str | Verdict]]
    across: str = ""

    @property
    def data(self) -> DataSet:
        return DataSet(NAMES[self.file], (self.file,), HOLDS)

    def figure(self, path: Path | None) -> Figure:
        """Run a figure on the user's copy, or on drawn pictures."""
        missing = f": there is no {self.file} in the folder of --data or {VARIABLE}. They say nothing of the paper"
        used = f"The pictures are drawn ones{missing}." if path is None else f"The pictures are those of {self.file}."
        world = partial(self._world, drawn_pictures() if path is None else read_pictures(path))
        notes = partial(self._notes, used)
        return Figure(self.name, self.title, world, self.lines, notes, "accuracy", across=self.across)

    def _world(self, pictures: Pictures, seed: int) -> World:
        made = clustered_pictures(pictures, seed, self.sides, self.clients, self.counts, SERVERS)
        topo = regions(server_graph("random", SERVERS, seed, degree=3.0), self.clients)
        return World(topo, made.records, made.clusters, lambda model: accuracy(model, made))

    def _notes(self, used: str, result: Result) -> Iterable[str | Verdict]:
        yield used
        yield HOW
        yield from self.statements(result)
        if result.costs:
            yield PROTECTED
            yield result.paid()

    def open(self, data: Path | None) -> Figure:
        return self.figure(find_data(data, self.file))


def _open(case: str, most: int, sample: int | None) -> Setting:
    return Setting(case, Proximal(PIXELS, most, "logistic"), RHO, ROUNDS, sample)


def _both(most: int, sample: int | None, *contenders: Contender) -> list[Line]:
    """Without noise, and with it."""
    noise = variance_decay(1.0 / math.sqrt(2.0 * PHI_0), ZETA)
    bounded = Proximal(PIXELS, most, "logistic", radius=RADIUS)
    noisy = Setting(NOISE, bounded, PRIVATE_RHO, ROUNDS, sample, noise)
    return lines_of(_open(NO_NOISE, most, sample), *contenders, *OTHERS) + lines_of(noisy, *contenders)


def _exchange_helps(text: str, exchange: Contender, result: Result) -> Iterable[str | Verdict]:
    none = NO_EXCHANGE.name
    yield result.statement(text, *(((case, exchange.name), (case, none)) for case in (NO_NOISE, NOISE)))
    yield result.remark("Not in the paper: learned exchange", ((NO_NOISE, LEARNED.name), (NO_NOISE, none)))


def _decay_helps(result: Result) -> Iterable[str | Verdict]:
    text = "exchange that decays at a medium rate improves"
    yield from _exchange_helps(f"{text} accuracy, by about 2 points", MEDIUM, result)
    pair = (NO_NOISE, MEDIUM.name), (NO_NOISE, NO_EXCHANGE.name)
    yield result.statement(f"{text} the learning speed", pair, at=EARLY)


def _sweep(result: Result) -> Iterable[str | Verdict]:
    yield from result.tau_statements("medium and large tau significantly improve accuracy", (0.4, 0.5, 0.6, 0.7, 0.8))
    yield "The paper's figure has noise for privacy; here it has none (s2-fig9 shows what noise does)."


PICTURED = (
    Pictured(
        "s2-fig8",
        "S2 Figure 8: digits, clusters that are less similar",
        MNIST,
        DIGIT_PAIRS,
        CLIENTS,
        (2, 4),
        _both(4, SAMPLE, EXCHANGE, NO_EXCHANGE),
        partial(_exchange_helps, "exchange improves accuracy", EXCHANGE),
    ),
    Pictured(
        "s2-fig9",
        "S2 Figure 9: digits, clusters that are more similar",
        MNIST,
        DIGIT_TRIPLETS,
        CLIENTS,
        (6, 12),
        _both(12, SAMPLE, EXCHANGE, NO_EXCHANGE),
        partial(_exchange_helps, "exchange significantly improves accuracy", EXCHANGE),
    ),
    Pictured(
        "s2-fig10",
        "S2 Figure 10: digits, how much clusters exchange",
        MNIST,
        DIGIT_TRIPLETS,
        CLIENTS,
        (6, 12),
        tau_lines(lambda case: _open(case, 12, SAMPLE)),
        _sweep,
        "tau",
    ),
    Pictured(
        "s2-fig11",
        "S2 Figure 11: organs, clusters that are more similar",
        ORGANS,
        ORGANS_ALIKE,
        3,
        (2, 2),
        _both(2, None, pgfl(0.2), EXCHANGE, pgfl(0.6), NO_EXCHANGE),
        partial(_exchange_helps, "much exchange improves accuracy, by about 5 points", pgfl(0.6)),
    ),
    Pictured(
        "s2-fig12",
        "S2 Figure 12: organs, clusters that are less similar",
        ORGANS,
        ORGANS_UNLIKE,
        3,
        (2, 2),
        _both(2, None, EXCHANGE, DECAYING, MEDIUM, pgfl(0.4, 0.9), NO_EXCHANGE),
        _decay_helps,
    ),
)
