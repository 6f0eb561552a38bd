"""Reads the folder of a run that learned a model in every unit of a graph of servers."""

from __future__ import annotations

from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.report import read_servers
from silograph.report.read import (
    ADVICE,
    MAYBE_NUMBER,
    MAYBE_WHOLE,
    NUMBER,
    TEXT,
    WHOLE,
    check,
    check_unique,
    read_table,
    site_file,
)
from silograph.report.read_servers import ServerRun, check_guarantees, check_length, check_weight

RESULT: Json = {
    "parameters": {"perturbation": TEXT, "noise_least": MAYBE_NUMBER},
    "units": [{"name": TEXT, "agents": WHOLE, "records": MAYBE_WHOLE, "model": [NUMBER], "test_error": MAYBE_NUMBER}],
    "centroid": {"model": [NUMBER], "test_error": MAYBE_NUMBER},
}


def read(folder: Path, result: Json) -> ServerRun:
    where = str(folder / "result.json")
    run = read_servers.read(folder, result)
    check(result, RESULT, where)
    features, units = result["task"]["features"], [unit["name"] for unit in result["units"]]
    check_unique(units, f"{where}: units")
    check_guarantees(result["privacy"]["guarantees"], "unit", units, f"{where}: privacy: guarantees")
    for unit in result["units"]:
        _check_model(folder / "models" / site_file(unit["name"]), features, unit["model"])
    _check_model(folder / "models" / "centroid.csv", features, result["centroid"]["model"])
    return run


def _check_model(path: Path, features: list[str], model: list[float]) -> None:
    check_length(model, features, str(path))
    rows = list(read_table(path, ("feature", "weight")))
    if [row[0] for _, row in rows] != features:
        raise DamageError(str(path), "the features of result.json in their order", "found others", ADVICE)
    for (where, (_, text)), weight in zip(rows, model, strict=True):
        check_weight(text, weight, where)
