"""Reads the folder of a run that learned a model in every region of a graph of servers."""

from __future__ import annotations

from dataclasses import dataclass

from silograph.core.results import FILE
from silograph.families.federation.result import FederationResult
from silograph.report.read import RunFolder, check_guarantees, check_length, check_unique, check_weights, site_file
from silograph.report.servers import check_servers

CENTROID = "centroid"


@dataclass(frozen=True)
class FederationRun(RunFolder[FederationResult]):
    @property
    def models(self) -> dict[str, list[float]]:
        """Every region's, and their mean."""
        shared = {} if self.result.centroid is None else {CENTROID: self.result.centroid.model}
        return {region.name: region.model for region in self.result.regions} | shared


def read(run: RunFolder[FederationResult]) -> FederationRun:
    result, where = run.result, str(run.folder / FILE)
    check_servers(result.task, result.topology, where)
    regions = [region.name for region in result.regions]
    check_unique(regions, f"{where}: regions")
    check_guarantees(result.privacy.guarantees, "region", regions, f"{where}: privacy: guarantees")
    models = {site_file(region.name): region.model for region in result.regions}
    if result.centroid is not None:
        models["centroid.csv"] = result.centroid.model
    for name, model in models.items():
        path = run.folder / "models" / name
        check_length(model, result.task.features, str(path))
        weights = [(feature, [weight]) for feature, weight in zip(result.task.features, model, strict=True)]
        check_weights(path, ("feature", "weight"), weights, "features")
    return FederationRun(**vars(run))
