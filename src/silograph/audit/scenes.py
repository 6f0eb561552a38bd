"""Other neighbours of a canary besides silent ones.

Among silent neighbours a loud canary moves a release as far as any record can; but a count of those who are not silent,
or a scale taken from all records, only shows where neighbours say something. So there are two more scenes:

    loud       all others at the clip, and the canary silent or far louder: counts, means and maxima notice
    divided    half of the others loud and half all but silent, so that the canary decides which half a median is in
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from silograph.audit.stages import Bits, Tables
from silograph.core.types import Array
from silograph.methods.base import Private, take

QUIET = 1e-3  # of the clip: almost silent
LOUD = "all others at the clip"
DIVIDED = "half of the others loud and half all but silent"


def flat_basis(size: int) -> Array:
    """Orthonormal columns without large entries (the cosines of DCT-II): none is longer by its largest coordinate than
    sqrt(2 / size)."""
    k, x = np.arange(size), (np.arange(size) + 0.5) / size
    return np.asarray(np.cos(math.pi * np.outer(x, k)) * np.where(k, math.sqrt(2.0 / size), math.sqrt(1.0 / size)))


def divided(count: int) -> Array:
    """(count,): the first is the canary's; half of the others are loud, an odd one out is not."""
    return np.where(np.arange(count) <= (count - 1) // 2, 1.0, QUIET)


def with_tellers(words: str, size: int, honest: int) -> str:
    """A canary among sites that add noise together; those not counted on reveal theirs."""
    return f"{words}; {size - honest} of {size} tell others what noise they drew"


def by_pattern(bits: Bits, prepare: Callable[[Bits], Private]) -> Private:
    """Prepare each table once: tables with the same bits are the same."""
    patterns, place = np.unique(bits, axis=0, return_inverse=True)
    return take(prepare(patterns), place.ravel())


def nearest(counts: Sequence[int], typical: bool) -> list[int]:
    """Sites ordered by how near their number of records is to the least, or to the median."""
    goal = float(np.median(counts)) if typical else 0.0
    return sorted(range(len(counts)), key=lambda site: abs(counts[site] - goal))


def joined(sites: Mapping[int, Tables], counts: Sequence[int]) -> Tables:
    """Join the tables of all sites, one after the other; each gets as many of the canaries, in turn, as it has room
    for, and is otherwise silent."""

    def joined(bits: Bits) -> Private:
        made, left = dict[int, Private](), bits
        for site, tables in sites.items():
            made[site], left = tables(left[:, : counts[site]]), left[:, counts[site] :]
        parts = [made[site] for site in range(len(counts))]
        return {
            name: np.stack([part[name] for part in parts], 1).reshape(-1, *value.shape[1:])
            for name, value in parts[0].items()
        }

    return joined
