"""Reads what the runs of models over a graph of servers have in common."""

from __future__ import annotations

import math
from collections.abc import Collection
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
    read_text,
    short,
)

RESULT: Json = {
    "task": {"loss": TEXT, "ridge": MAYBE_NUMBER, "target": TEXT, "features": [TEXT]},
    "parameters": {"clip": MAYBE_NUMBER, "noise": MAYBE_NUMBER, "masks": TEXT},
    "topology": {"servers": [TEXT], "links": [[(str, int, float)]], "weights": TEXT, "spectral_gap": MAYBE_NUMBER},
    "test": (dict, NoneType),
    "disagreement": NUMBER,
    "trace": [{"round": WHOLE, "movement": NUMBER, "disagreement": NUMBER, "answered": WHOLE, "skipped": WHOLE}],
    "privacy": {"guarantees": [{"rehearsal": FLAG}]},
}
TEST: Json = {"records": WHOLE, "measure": TEXT, "baseline": MAYBE_NUMBER}


@dataclass(frozen=True)
class ServerRun(RunFolder):
    links: list[Edge]


def read(folder: Path, result: Json) -> ServerRun:
    """The folder, as far as these runs share it; the models are for the reader of their method to check."""
    where = str(folder / "result.json")
    check(result, RESULT, where)
    if result["test"] is not None:
        check(result["test"], TEST, f"{where}: test")
    servers = result["topology"]["servers"]
    check_unique(result["task"]["features"], f"{where}: task: features")
    check_unique(servers, f"{where}: topology: servers")
    return ServerRun(
        result=result,
        links=[_link(link, servers, f"{where}: topology: links") for link in result["topology"]["links"]],
        ledger=read_ledger(folder / "ledger.jsonl"),
        plan=read_text(folder / "plan.toml"),
        audits=read_audits(folder, result),
    )


def _link(link: list[Any], servers: list[str], where: str) -> Edge:
    if [type(part) is str for part in link] != [True, True, False]:
        raise DamageError(where, "two servers and a weight", f"found {short(link)}", ADVICE)
    source, target, weight = link
    check_edge(source, target, servers, where)
    if not 0 < weight < math.inf:
        raise DamageError(where, "a finite weight above 0", f"found {short(weight)}", ADVICE)
    return source, target, weight


def check_guarantees(guarantees: list[Json], noun: str, names: Collection[str], where: str) -> None:
    """One for each name and observer: a second would leave open which of the two holds."""
    for row in guarantees:
        check_named(row["site"], noun, names, where)
    check_unique([(row["site"], row["observer"]) for row in guarantees], where)


def check_named(name: str, noun: str, names: Collection[str], where: str) -> None:
    if name not in names:
        raise DamageError(where, f"a {noun} named in result.json", f"found {short(name)}", ADVICE)


def check_length(model: list[float], features: list[str], where: str) -> None:
    if len(model) != len(features):
        came = f"result.json holds {len(model)}"
        raise DamageError(where, f"a weight for each of {len(features)} features", came, ADVICE)


def check_weight(text: str, weight: float, where: str) -> None:
    """The file of a model, which others use, must say what the result says."""
    found = _number(text)
    if found is None or not (math.isclose(found, weight, rel_tol=1e-9) or (math.isnan(found) and math.isnan(weight))):
        raise DamageError(where, f"the weight {weight!r} of result.json", f"found {short(text)}", ADVICE)


def check_number(text: str, where: str) -> None:
    if _number(text) is None:
        raise DamageError(where, "a number", f"found {short(text)}", ADVICE)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
