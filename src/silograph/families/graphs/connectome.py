"""The consensus as the two text files that viewers of connectomes read (BrainNet Viewer; nilearn by numpy.loadtxt).

consensus.edge    the weights as a square matrix
consensus.node    x y z colour size label, a line a node; the colour is the node's community, the size its degree
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from silograph.core.files import write_atomically
from silograph.data.coordinates import Coordinates
from silograph.families.graphs.files import Edge


def write_connectome(folder: Path, graph: Sequence[Edge], places: Coordinates, groups: Sequence[Sequence[str]]) -> None:
    """`places` in space; `groups` are communities, and a node in none has colour 0."""
    at = {name: k for k, name in enumerate(places.nodes)}
    colour = {name: number for number, group in enumerate(groups, 1) for name in group}
    weights = np.zeros((len(at), len(at)))
    for edge in graph:
        a, b = at[edge.source], at[edge.target]
        weights[a, b] = weights[b, a] = edge.weight
    rows = "".join(" ".join(f"{w:.6g}" for w in row) + "\n" for row in weights.tolist())
    write_atomically(folder / "consensus.edge", rows.encode())
    degree = (weights > 0.0).sum(0)
    lines = (
        " ".join(
            [*(f"{x:.6g}" for x in place), str(colour.get(name, 0)), str(degree[k]), "_".join(name.split()) or "-"]
        )
        for k, (name, place) in enumerate(zip(places.nodes, places.places.tolist(), strict=True))
    )
    write_atomically(folder / "consensus.node", "".join(f"{line}\n" for line in lines).encode())
