"""Candidate edges: the pairs of nodes that may be connected at all, as a public list."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import BoolArray


def read_candidates(path: str | Path, nodes: Sequence[str]) -> BoolArray:
    """A CSV with columns source,target (more are ignored) as a mask over all pairs of `nodes`."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(str(path), "a CSV of candidate edges", "it is no ordinary file")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), "a CSV of candidate edges", str(error)) from None
    if not rows or not {"source", "target"} <= set(rows[0]):
        raise InputError(str(path), "a header with source,target and at least one edge", "there is none")
    position = {name: k for k, name in enumerate(nodes)}
    allowed = np.zeros((len(nodes), len(nodes)), bool)
    for number, row in enumerate(rows, 1):
        ends = [(row[end] or "").strip() for end in ("source", "target")]
        for name in ends:
            if name not in position:
                raise InputError(f"{path}, row {number}", "the name of a node", f"{name!r} came")
        a, b = sorted(position[name] for name in ends)
        if a == b:
            raise InputError(f"{path}, row {number}", "two different nodes", f"{ends[0]!r} twice")
        if allowed[a, b]:
            raise InputError(f"{path}, row {number}", "every edge once", f"{ends[0]} - {ends[1]} came again")
        allowed[a, b] = True
    _check_connected(allowed | allowed.T, nodes, path)
    return np.asarray(allowed[np.triu_indices(len(nodes), 1)])


def _check_connected(allowed: BoolArray, nodes: Sequence[str], path: Path) -> None:
    reached = np.zeros(len(nodes), bool)
    reached[0] = True
    while (grown := reached | allowed[reached].any(0)).sum() > reached.sum():
        reached = grown
    if not reached.all():
        cut = [nodes[int(k)] for k in np.flatnonzero(~reached)]
        shown = ", ".join(cut[:5]) + (f" and {len(cut) - 5} more" if len(cut) > 5 else "")
        raise InputError(str(path), "candidates that connect all nodes", f"{nodes[0]} cannot reach {shown}")
