"""Reads the folder of a run that learned a model in every unit of a graph of servers."""

from __future__ import annotations

from silograph.core.results import FILE
from silograph.families.federation.result import FederationResult
from silograph.report.read import RunFolder, check_guarantees, check_length, check_unique, check_weights, site_file
from silograph.report.servers import check_servers

FederationRun = RunFolder[FederationResult]


def read(run: FederationRun) -> FederationRun:
    result, where = run.result, str(run.folder / FILE)
    check_servers(result.task, result.topology, where)
    units = [unit.name for unit in result.units]
    check_unique(units, f"{where}: units")
    check_guarantees(result.privacy.guarantees, "unit", units, f"{where}: privacy: guarantees")
    models = {site_file(unit.name): unit.model for unit in result.units} | {"centroid.csv": result.centroid.model}
    for name, model in models.items():
        path = run.folder / "models" / name
        check_length(model, result.task.features, str(path))
        weights = [(feature, [weight]) for feature, weight in zip(result.task.features, model, strict=True)]
        check_weights(path, ("feature", "weight"), weights, "features")
    return run
