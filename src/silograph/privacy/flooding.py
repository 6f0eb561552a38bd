"""Spread what servers know over their graph: neighbour to neighbour, until everybody has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from silograph.core.errors import InputError
from silograph.core.types import BoolArray

_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False)
class Joined:
    """Which cells are added up together: cell c of a gate belongs to server `server[c]` and goes into sum `group[c]`.

    `linked` says which servers talk to each other, and `names` what the sums are called.
    """

    names: tuple[str, ...]
    group: NDArray[np.intp]
    server: NDArray[np.intp]
    linked: BoolArray

    @classmethod
    def over(cls, mixing: NDArray[np.float64], group: ArrayLike, server: ArrayLike, *names: str) -> Joined:
        """Join over the links of a combination matrix."""
        cells = np.asarray(group, dtype=np.intp), np.asarray(server, dtype=np.intp)
        return cls(names, *cells, (mixing > 0.0) & ~np.eye(len(mixing), dtype=np.bool_))


@dataclass
class Traffic:
    """Hops of all floods, one after the other, and messages from a server to a neighbour."""

    hops: int = 0
    messages: int = 0


def flood(linked: BoolArray, own: Sequence[_Item], traffic: Traffic) -> list[list[_Item]]:
    """Return what every server knows in the end: everybody's item, in the order of the servers.

    In a hop a server sends each neighbour what it heard in the hop before and did not hear from that neighbour.
    """
    neighbours = [np.flatnonzero(row).tolist() for row in linked]
    known: list[dict[int, _Item]] = [{p: item} for p, item in enumerate(own)]
    news: list[dict[int, set[int]]] = [{p: set()} for p in range(len(own))]  # by origin: the neighbours that sent it
    while any(news):
        heard: list[dict[int, set[int]]] = [{} for _ in own]
        for p, fresh in enumerate(news):
            for m in neighbours[p]:
                for origin, told_by in fresh.items():
                    if m in told_by:
                        continue
                    traffic.messages += 1
                    if origin not in known[m]:
                        heard[m].setdefault(origin, set()).add(p)
        for m, fresh in enumerate(heard):
            for origin, told_by in fresh.items():
                known[m][origin] = known[min(told_by)][origin]
        traffic.hops += any(heard)
        news = heard
    for p, have in enumerate(known):
        if len(have) < len(own):
            missing = min(set(range(len(own))) - have.keys())
            found = f"no way leads from server {missing} to server {p}"
            raise InputError("sum over all servers", "a connected graph of servers", found, "Add a link.")
    return [[have[origin] for origin in range(len(own))] for have in known]
