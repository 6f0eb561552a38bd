"""silograph: graphs and personal models across data silos, with privacy numbers that are true.

Three tiers: estimators (`ConsensusGraph`, `ClusteredModels`, `RegionModels`, `PrivateMetaClassifier`), plans and rounds
(`silograph.run`), kernels and the gate.
Names are loaded when first used, so that `import silograph` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silograph.core.errors import SilographError
    from silograph.estimators.clusters import ClusteredModels
    from silograph.estimators.graphs import ConsensusGraph
    from silograph.estimators.meta import PrivateMetaClassifier, PrivateMetaRegressor
    from silograph.estimators.regions import RegionModels
    from silograph.finished import FinishedRun, open_run

__all__ = [
    "ClusteredModels",
    "ConsensusGraph",
    "FinishedRun",
    "PrivateMetaClassifier",
    "PrivateMetaRegressor",
    "RegionModels",
    "SilographError",
    "__version__",
    "open_run",
]

_HOMES = {
    "ClusteredModels": "silograph.estimators.clusters",
    "ConsensusGraph": "silograph.estimators.graphs",
    "FinishedRun": "silograph.finished",
    "PrivateMetaClassifier": "silograph.estimators.meta",
    "PrivateMetaRegressor": "silograph.estimators.meta",
    "RegionModels": "silograph.estimators.regions",
    "SilographError": "silograph.core.errors",
    "open_run": "silograph.finished",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("silograph")
    raise AttributeError(f"module 'silograph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
