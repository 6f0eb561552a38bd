"""Candidate edges: the pairs of nodes that may be connected at all, as a public list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.delimited import csv_rows

Ends = tuple[NDArray[np.int64], NDArray[np.int64]]


def read_candidates(path: str | Path, nodes: Sequence[str]) -> Ends:
    """Read a CSV with columns source,target (more are ignored) as the ends a < b of its edges, in order."""
    path = Path(path)
    header, rows = csv_rows(path, "a CSV of candidate edges")
    if not rows or not {"source", "target"} <= set(header):
        raise InputError(str(path), "a header with source,target and at least one edge", "there is none")
    position = {name: k for k, name in enumerate(nodes)}
    seen: set[int] = set()
    for number, row in enumerate(rows, 1):
        ends = [row[end].strip() for end in ("source", "target")]
        for name in ends:
            if name not in position:
                raise InputError(f"{path}, row {number}", "the name of a node", f"found {name!r}")
        a, b = sorted(position[name] for name in ends)
        if a == b:
            raise InputError(f"{path}, row {number}", "two different nodes", f"{ends[0]!r} twice")
        if a * len(nodes) + b in seen:
            raise InputError(f"{path}, row {number}", "every edge once", f"found {ends[0]} - {ends[1]} again")
        seen.add(a * len(nodes) + b)
    low, high = np.divmod(np.sort(np.fromiter(seen, np.int64, len(seen))), len(nodes))
    _check_connected((low, high), nodes, path)
    return low, high


def _check_connected(ends: Ends, nodes: Sequence[str], path: Path) -> None:
    from scipy.sparse import coo_array  # late: few plans name candidates
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(ends[0]), bool), ends), shape=(len(nodes), len(nodes)))
    _, part = connected_components(links, directed=False)
    cut = [nodes[int(k)] for k in np.flatnonzero(part != part[0])]
    if cut:
        some = ", ".join(cut[:5]) + (f" and {len(cut) - 5} more" if len(cut) > 5 else "")
        raise InputError(str(path), "candidates that connect all nodes", f"{nodes[0]} cannot reach {some}")
