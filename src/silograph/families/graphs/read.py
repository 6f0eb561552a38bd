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
    MAYBE_WHOLE,
    NUMBER,
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
            "edges": MAYBE_WHOLE,
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
MAYBE_TEXT = (str, type(None))
#: What not every run has, or not every version wrote.
OF_SOME: Json = {
    "learner": MAYBE_TEXT,
    "learner_why": MAYBE_TEXT,
    "reason": MAYBE_TEXT,
    "confidence": MAYBE_NUMBER,
    "resamples": MAYBE_WHOLE,
}
#: How a parameter was chosen, where a run tried several.
PATH: Json = {
    "parameter": TEXT,
    "values": [NUMBER],
    "scores": [MAYBE_NUMBER],
    "spread": [MAYBE_NUMBER],
    "chosen": NUMBER,
    "score": TEXT,
}

Pair = frozenset[str]
#: How sure the run is of an edge, from 0 to 1.
Confidence = dict[Pair, float]
Signs = dict[Pair, int]

_EDGE = ("source", "target", "weight")
_SIGNED = (*_EDGE, "sign", "probability")


@dataclass(frozen=True)
class GraphRun(RunFolder):
    consensus: list[Edge]
    sites: dict[str, list[Edge]]
    #: By site, and under None of the consensus; empty where the run states none.
    confidence: dict[str | None, Confidence]
    #: 1 or -1, in the same way; empty where relations have no signs.
    sign_of: dict[str | None, Signs]
    #: Where nodes are: x and y, or x, y and z; empty where nobody said.
    coordinates: dict[str, tuple[float, ...]]

    @property
    def graphs(self) -> dict[str, list[Edge]]:
        return {"consensus": self.consensus} | self.sites

    @property
    def signs(self) -> dict[str, Signs]:
        return {name or "consensus": signs for name, signs in self.sign_of.items()}

    @property
    def signed(self) -> bool:
        return bool(self.result["learner"] == "likelihood")


def read(folder: Path, result: Json) -> GraphRun:
    path = folder / "result.json"
    check(result, RESULT, str(path))
    check_unique(result["nodes"], f"{path}: nodes")
    check_unique([site["name"] for site in result["sites"]], f"{path}: sites")
    names = [site["name"] for site in result["sites"] if site["edges"] is not None]
    _check_path(result.setdefault("path", None), f"{path}: path")
    for name in OF_SOME:
        result.setdefault(name, None)
    result["learner"] = result["learner"] or "papers"
    check(result, OF_SOME, str(path))
    nodes = set(result["nodes"])
    files: dict[str | None, Path] = {None: folder / "consensus.csv"}
    files |= {name: folder / "sites" / site_file(name) for name in names}
    found = {name: _read_edges(file, nodes) for name, file in files.items()}
    return GraphRun(
        result=result,
        consensus=found[None][0],
        sites={name: found[name][0] for name in names},
        confidence={name: confidence for name, (_, confidence, _) in found.items()},
        sign_of={name: signs for name, (*_, signs) in found.items()},
        coordinates=_read_coordinates(folder / "nodes.csv", nodes),
        ledger=read_ledger(folder / "ledger.jsonl"),
        plan=read_text(folder / "plan.toml"),
        audits=read_audits(folder, result),
    )


def _check_path(tried: Json | None, where: str) -> None:
    if tried is None:
        return
    check(tried, PATH, where)
    if not len(tried["values"]) == len(tried["scores"]) == len(tried["spread"]):
        raise DamageError(where, "as many scores and spreads as values", "found others", ADVICE)


def _read_edges(path: Path, nodes: Collection[str]) -> tuple[list[Edge], Confidence, Signs]:
    edges: list[Edge] = []
    confidence: Confidence = {}
    signs: Signs = {}
    signed = read_text(path).startswith(",".join(_SIGNED))
    rows = read_table(path, _SIGNED, "shared") if signed else read_table(path, _EDGE, "confidence")
    for where, (source, target, text, *more) in rows:
        check_edge(source, target, nodes, where)
        pair, weight = frozenset((source, target)), _number(text)
        if not 0 < weight < math.inf:
            raise DamageError(where, "a finite weight above 0", f"found {short(text)}", ADVICE)
        edges.append((source, target, weight))
        if signed:
            sign, *more = more
            if sign not in ("1", "-1"):
                raise DamageError(where, "a sign, 1 or -1", f"found {short(sign)}", ADVICE)
            signs[pair] = int(sign)
        if more and more[0]:
            share = confidence[pair] = _number(more[0])
            if not 0 <= share <= 1:
                raise DamageError(where, "a confidence from 0 to 1", f"found {short(more[0])}", ADVICE)
    return edges, confidence, signs


def _read_coordinates(path: Path, nodes: Collection[str]) -> dict[str, tuple[float, ...]]:
    if not path.exists():
        return {}
    found: dict[str, tuple[float, ...]] = {}
    for where, (node, *texts) in read_table(path, ("node", "x", "y"), "z"):
        if node not in nodes or node in found:
            raise DamageError(where, "a node named in result.json, once", f"found {short(node)}", ADVICE)
        found[node] = tuple(map(_number, texts))
        if not all(map(math.isfinite, found[node])):
            raise DamageError(where, "finite coordinates", f"found {short(texts)}", ADVICE)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
