"""The report: one HTML page that is a pure function of a finished run folder."""

from __future__ import annotations

from pathlib import Path

from silograph.report import clusters, graphs, meta, models, read_clusters, read_graphs, read_meta, read_models
from silograph.report.read import read_result


def build(folder: str | Path) -> str:
    """The HTML report of a run folder. The same folder always gives the same bytes."""
    folder = Path(folder)
    result = read_result(folder)
    if result["method"] == "graph_federation":
        return models.page(read_models.read(folder, result))
    if result["method"] == "clustered_admm":
        return clusters.page(read_clusters.read(folder, result))
    if result["method"] == "private_meta":
        return meta.page(read_meta.read(folder, result))
    return graphs.page(read_graphs.read(folder, result))
