"""What a run of votes leaves besides its graph: how far it can be relied on, and what sets groups apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from silograph.core.files import write_atomically
from silograph.core.spreadsheet import csv_of
from silograph.core.types import Array, Json
from silograph.data.coordinates import Coordinates
from silograph.families.graphs.communities import groups_of, reliable
from silograph.families.graphs.connectome import write_connectome
from silograph.families.graphs.files import PROBABILITY, Edge
from silograph.kernels.edges import pairs
from silograph.methods.person_votes import MARGIN, SURE


def write_votes(
    folder: Path,
    graph: Sequence[Edge],
    nodes: Sequence[str],
    arrays: Mapping[str, Array],
    facts: Json,
    coordinates: Coordinates | None,
) -> Json:
    """What the probabilities say of a graph of votes as a whole, of its communities, and of one that near nodes alone
    would make. Nodes in space get the files that viewers of connectomes read. Nothing of other graphs."""
    if "share" not in arrays:
        return {}
    communities = groups_of(graph, nodes)
    if coordinates is not None and len(coordinates.axes) == 3:
        write_connectome(folder, graph, coordinates, communities)
    found = {
        "distance_alone": facts.get("distance_alone"),
        "communities": reliable(communities, nodes, arrays["again"]),
        "groups": _groups(folder, nodes, arrays, facts),
    }
    told = {name: value for name, value in found.items() if value is not None}
    return {"expected_true": math.fsum(edge.more[PROBABILITY] for edge in graph), **told}


def _groups(folder: Path, nodes: Sequence[str], arrays: Mapping[str, Array], facts: Json) -> Json | None:
    """differences.csv: the edges whose shares differ, surely, by how much and how probably; the surest first."""
    if "groups" not in facts:
        return None
    a, b = pairs(len(nodes))
    size, probability = arrays["difference"], arrays["differs"]
    sure = np.flatnonzero(probability > SURE)
    surest = sure[np.lexsort((-np.abs(size[sure]), -probability[sure]))]
    rows = [(nodes[a[k]], nodes[b[k]], f"{size[k]:.6g}", f"{probability[k]:g}") for k in surest]
    write_atomically(folder / "differences.csv", csv_of(("source", "target", "difference", "probability"), rows))
    return {**facts["groups"], "margin": MARGIN, "confidence": SURE, "edges": len(sure)}
