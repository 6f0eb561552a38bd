"""How true a graph of votes will be, from public numbers alone: before anything is spent.

`TABLE` was measured by `python -m benchmarks.expected_votes --seeds 4` (seeds 3000 to 3003, on which no setting was
chosen): of as many edges as there are, drawn at a noise in the share of persons, the part that is true. Synthetic
persons, mean degree 8; how far real persons are like one kind or another is not known, so a range is stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array
from silograph.families.graphs.result import EXPECTED
from silograph.methods.person_votes import ReleasedVotes, SummedVotes
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import SharedGaussian

NOISE = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.32)
#: By nodes: graphs of near nodes, of blocks, and with few nodes that have most edges.
TABLE = {
    60: (
        (1.0, 1.0, 0.998, 0.994, 0.976, 0.943, 0.866, 0.799, 0.692, 0.585, 0.480),  # geometric
        (1.0, 0.998, 0.991, 0.980, 0.961, 0.930, 0.877, 0.799, 0.697, 0.603, 0.510),  # block
        (1.0, 0.998, 0.966, 0.910, 0.841, 0.770, 0.690, 0.607, 0.527, 0.441, 0.371),  # scale-free
    ),
    100: (
        (0.999, 1.0, 0.995, 0.979, 0.938, 0.885, 0.786, 0.692, 0.597, 0.496, 0.403),  # geometric
        (0.998, 0.996, 0.988, 0.974, 0.946, 0.910, 0.830, 0.751, 0.643, 0.522, 0.397),  # block
        (0.998, 0.987, 0.920, 0.834, 0.746, 0.663, 0.568, 0.487, 0.398, 0.326, 0.255),  # scale-free
    ),
    200: (
        (0.998, 0.997, 0.992, 0.973, 0.921, 0.854, 0.749, 0.648, 0.532, 0.422, 0.309),  # geometric
        (0.995, 0.990, 0.977, 0.946, 0.913, 0.871, 0.771, 0.667, 0.544, 0.419, 0.307),  # block
        (0.991, 0.928, 0.805, 0.699, 0.604, 0.524, 0.426, 0.344, 0.269, 0.203, 0.154),  # scale-free
    ),
}
NINE_IN_TEN = 0.9


@dataclass(frozen=True)
class Expected:
    """`least` and `most`: the part of the drawn edges that are true, by the kind of graph. `persons`: as many would be
    needed for nine in ten of the easiest and the hardest kind, with the same sites and budget."""

    noise: float
    least: float
    most: float
    persons: tuple[int, int]


def expected(method: SummedVotes | ReleasedVotes) -> Expected:
    noise, persons = method.expected_noise, sum(method.counts)
    curves = _curves(method.task.nodes)
    true = [float(np.interp(noise, NOISE, curve)) for curve in curves]
    # A curve falls with the noise; where it passes nine in ten, and noise falls as persons rise.
    allowed = [float(np.interp(-NINE_IN_TEN, -np.minimum.accumulate(curve), NOISE)) for curve in curves]
    needed = [math.ceil(persons * noise / each) for each in allowed]
    return Expected(noise, min(true), max(true), (min(needed), max(needed)))


def _curves(nodes: int) -> list[Array]:
    """For every kind of graph, between the sizes that were measured."""
    sizes, at = np.log(list(TABLE)), math.log(nodes)
    known = np.array(list(TABLE.values()))  # sizes, kinds, noise
    return [
        np.array([np.interp(at, sizes, known[:, kind, k]) for k in range(len(NOISE))]) for kind in range(known.shape[1])
    ]


def feasibility(method: SummedVotes | ReleasedVotes) -> Iterator[str]:
    """What to expect of votes, in words."""
    known, confidence = expected(method), method.confidence
    drawn = f"{method.task.edges} edges" + ("" if confidence is None else ", if all were drawn")
    fewest, most = known.persons
    yield (
        f"{EXPECTED} {drawn}, {100 * known.least:.0f} to {100 * known.most:.0f} % are true, depending on the kind of "
        f"graph (noise of {known.noise:.2g} in the share of persons who have an edge; measured on synthetic persons). "
        f"For 90 % you need {fewest} to {most} persons at this budget; there are {sum(method.counts)}."
    )
    if isinstance(method, ReleasedVotes) and len(method.counts) >= Masks().minimum:
        shared = SharedGaussian(method.mechanism.multiplier)
        better = expected(SummedVotes(method.task, shared, method.counts))
        yield (
            f"A secure sum (--privacy secure-sum) would have noise of {better.noise:.2g} instead: "
            f"{100 * better.least:.0f} to {100 * better.most:.0f} % true edges at the same cost."
        )
