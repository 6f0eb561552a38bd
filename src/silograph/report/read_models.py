"""Reads the folder of a run that learned a model in every unit of a graph of servers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.report.read import (
    ADVICE,
    FLAG,
    MAYBE_NUMBER,
    MAYBE_WHOLE,
    NUMBER,
    TEXT,
    WHOLE,
    Edge,
    RunFolder,
    check,
    check_edge,
    check_unique,
    read_ledger,
    read_table,
    read_text,
    short,
    site_file,
)

RESULT: Json = {
    "task": {"loss": TEXT, "ridge": MAYBE_NUMBER, "target": TEXT, "features": [TEXT]},
    "parameters": {
        "perturbation": TEXT,
        "clip": MAYBE_NUMBER,
        "noise": MAYBE_NUMBER,
        "noise_least": MAYBE_NUMBER,
        "masks": TEXT,
    },
    "topology": {"servers": [TEXT], "links": [[(str, int, float)]], "weights": TEXT, "spectral_gap": MAYBE_NUMBER},
    "units": [{"name": TEXT, "agents": WHOLE, "records": MAYBE_WHOLE, "model": [NUMBER], "test_error": MAYBE_NUMBER}],
    "centroid": {"model": [NUMBER], "test_error": MAYBE_NUMBER},
    "test": (dict, NoneType),
    "disagreement": NUMBER,
    "trace": [{"round": WHOLE, "movement": NUMBER, "disagreement": NUMBER, "answered": WHOLE, "skipped": WHOLE}],
    "privacy": {"guarantees": [{"rehearsal": FLAG}]},
}
TEST: Json = {"records": WHOLE, "measure": TEXT, "baseline": MAYBE_NUMBER}


@dataclass(frozen=True)
class ModelRun(RunFolder):
    links: list[Edge]


def read(folder: Path, result: Json) -> ModelRun:
    where = str(folder / "result.json")
    check(result, RESULT, where)
    if result["test"] is not None:
        check(result["test"], TEST, f"{where}: test")
    features, servers = result["task"]["features"], result["topology"]["servers"]
    units = [unit["name"] for unit in result["units"]]
    check_unique(features, f"{where}: task: features")
    check_unique(servers, f"{where}: topology: servers")
    check_unique(units, f"{where}: units")
    _check_guarantees(result["privacy"]["guarantees"], units, f"{where}: privacy: guarantees")
    for unit in result["units"]:
        _check_model(folder / "models" / site_file(unit["name"]), features, unit["model"])
    _check_model(folder / "models" / "centroid.csv", features, result["centroid"]["model"])
    return ModelRun(
        result=result,
        links=[_link(link, servers, f"{where}: topology: links") for link in result["topology"]["links"]],
        ledger=read_ledger(folder / "ledger.jsonl"),
        plan=read_text(folder / "plan.toml"),
    )


def _link(link: list[Any], servers: list[str], where: str) -> Edge:
    if [type(part) is str for part in link] != [True, True, False]:
        raise DamageError(where, "two servers and a weight", f"found {short(link)}", ADVICE)
    source, target, weight = link
    check_edge(source, target, servers, where)
    if not 0 < weight < math.inf:
        raise DamageError(where, "a finite weight above 0", f"found {short(weight)}", ADVICE)
    return source, target, weight


def _check_guarantees(guarantees: list[Json], units: list[str], where: str) -> None:
    """One for each unit and observer: a second would leave open which of the two holds."""
    for row in guarantees:
        if row["site"] not in units:
            raise DamageError(where, "a unit named in result.json", f"found {short(row['site'])}", ADVICE)
    check_unique([(row["site"], row["observer"]) for row in guarantees], where)


def _check_model(path: Path, features: list[str], model: list[float]) -> None:
    """The file of a model, which others use, must say what the result says."""
    if len(model) != len(features):
        came = f"result.json holds {len(model)}"
        raise DamageError(str(path), f"a weight for each of {len(features)} features", came, ADVICE)
    rows = list(read_table(path, ("feature", "weight")))
    if [row[0] for _, row in rows] != features:
        raise DamageError(str(path), "the features of result.json in their order", "found others", ADVICE)
    for (where, (_, text)), weight in zip(rows, model, strict=True):
        if not _is_same(text, weight):
            raise DamageError(where, f"the weight {weight!r} of result.json", f"found {short(text)}", ADVICE)


def _is_same(text: str, weight: float) -> bool:
    try:
        found = float(text)
    except ValueError:
        return False
    return math.isclose(found, weight, rel_tol=1e-9) or (math.isnan(found) and math.isnan(weight))
