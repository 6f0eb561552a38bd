"""Reads the folder of a run that learned graphs."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.report.read import (
    ADVICE,
    MAYBE_NUMBER,
    TEXT,
    WHOLE,
    Edge,
    RunFolder,
    check,
    check_edge,
    check_unique,
    read_audits,
    read_ledger,
    read_table,
    read_text,
    short,
    site_file,
)

RESULT: Json = {
    "solver": TEXT,
    "parameters": {},
    "degree": MAYBE_NUMBER,
    "threshold": MAYBE_NUMBER,
    "nodes": [TEXT],
    "sites": [
        {
            "name": TEXT,
            "signals": WHOLE,
            "edges": WHOLE,
            "mean_weight": MAYBE_NUMBER,
            "weight": MAYBE_NUMBER,
            "smoothness": MAYBE_NUMBER,
        }
    ],
    "consensus": {"edges": WHOLE, "mean_weight": MAYBE_NUMBER},
    "objective": MAYBE_NUMBER,
    "certified_gap": MAYBE_NUMBER,
    "trace": [{"round": WHOLE, "objective": MAYBE_NUMBER, "gap": MAYBE_NUMBER}],
}


@dataclass(frozen=True)
class GraphRun(RunFolder):
    consensus: list[Edge]
    sites: dict[str, list[Edge]]


def read(folder: Path, result: Json) -> GraphRun:
    path = folder / "result.json"
    check(result, RESULT, str(path))
    check_unique(result["nodes"], f"{path}: nodes")
    names = [site["name"] for site in result["sites"]]
    check_unique(names, f"{path}: sites")
    nodes = set(result["nodes"])
    return GraphRun(
        result=result,
        consensus=_read_edges(folder / "consensus.csv", nodes),
        sites={name: _read_edges(folder / "sites" / site_file(name), nodes) for name in names},
        ledger=read_ledger(folder / "ledger.jsonl"),
        plan=read_text(folder / "plan.toml"),
        audits=read_audits(folder, result),
    )


def _read_edges(path: Path, nodes: Collection[str]) -> list[Edge]:
    return [_edge(row, nodes, where) for where, row in read_table(path, ("source", "target", "weight"))]


def _edge(row: list[str], nodes: Collection[str], where: str) -> Edge:
    source, target, text = row
    check_edge(source, target, nodes, where)
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise DamageError(where, "a finite weight above 0", f"found {short(text)}", ADVICE)
    return source, target, weight
