"""The report: one HTML page that is a pure function of a finished run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from silograph.report import clusters, graphs, meta, models, read_clusters, read_graphs, read_meta, read_models
from silograph.report.read import RunFolder, read_result

#: How the folder of a method's run is read, and how its page is made.
KINDS: dict[str, tuple[Callable[..., RunFolder], Callable[[Any], str]]] = {
    "graph_federation": (read_models.read, models.page),
    "clustered_admm": (read_clusters.read, clusters.page),
    "private_meta": (read_meta.read, meta.page),
}
GRAPHS = (read_graphs.read, graphs.page)


def read(folder: str | Path) -> RunFolder:
    """A run folder, checked."""
    result = read_result(Path(folder))
    return KINDS.get(result["method"], GRAPHS)[0](Path(folder), result)


def build(folder: str | Path) -> str:
    """The HTML report of a run folder. The same folder always gives the same bytes."""
    run = read(folder)
    return KINDS.get(run.result["method"], GRAPHS)[1](run)
