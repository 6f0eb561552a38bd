"""silograph: graphs and personal models across data silos, with privacy numbers that are true.

Three tiers: estimators (`ConsensusGraph`, `ClusteredModels`, `PrivateMetaClassifier`), plans and rounds
(`silograph.run`), kernels and the gate.
Names are loaded when first used, so that `import silograph` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silograph.core.errors import SilographError
    from silograph.estimators import ClusteredModels, ConsensusGraph
    from silograph.finished import FinishedRun, open_run
    from silograph.meta_estimators import PrivateMetaClassifier, PrivateMetaRegressor

__all__ = [
    "ClusteredModels",
    "ConsensusGraph",
    "FinishedRun",
    "PrivateMetaClassifier",
    "PrivateMetaRegressor",
    "SilographError",
    "__version__",
    "open_run",
]

_HOMES = {
    "ClusteredModels": "silograph.estimators",
    "ConsensusGraph": "silograph.estimators",
    "FinishedRun": "silograph.finished",
    "PrivateMetaClassifier": "silograph.meta_estimators",
    "PrivateMetaRegressor": "silograph.meta_estimators",
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
