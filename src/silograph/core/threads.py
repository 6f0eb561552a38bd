"""Work on many large rows at the same time, where there are processors; with small ones threads cost more than they
gain."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_WORTH_A_THREAD = 1 << 16  # numbers


def in_threads(work: Callable[[Any], T], items: Sequence[Any], size: int) -> Iterator[T]:
    """The work on each item in their order; one has about so many numbers."""
    workers = min(len(items), len(os.sched_getaffinity(0)))
    if size < _WORTH_A_THREAD or workers < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, items)


def in_parts(work: Callable[[slice], None], rows: int, size: int) -> None:
    """The work on all rows, of so many numbers each: in one part for each processor, or in a single one."""
    share = -(-rows // min(len(os.sched_getaffinity(0)), rows * size // _WORTH_A_THREAD + 1))
    parts = [slice(begin, begin + share) for begin in range(0, rows, share or 1)]
    for _ in in_threads(work, parts, share * size):
        pass
