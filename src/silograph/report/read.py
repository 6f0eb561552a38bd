"""Reads a finished run folder and refuses one that is not what silograph wrote."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any
from urllib.parse import quote

from silograph.core.errors import DamageError
from silograph.core.types import Json

#: Source, target, weight.
Edge = tuple[str, str, float]

ADVICE = "Restore the file from a copy, or run again into a new folder."

TEXT, WHOLE, NUMBER = (str,), (int,), (int, float)
MAYBE_NUMBER, EPSILON = (int, float, NoneType), (int, float, str)
NAME_OF_TYPE = {str: "text", int: "a whole number", float: "a number", NoneType: "null"}

#: The keys of result.json the report reads; further keys are welcome and ignored.
RESULT: Json = {
    "format": WHOLE,
    "method": TEXT,
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
    "rounds": WHOLE,
    "trace": [{"round": WHOLE, "objective": MAYBE_NUMBER, "gap": MAYBE_NUMBER}],
    "privacy": {
        "mode": TEXT,
        "unit": TEXT,
        "relation": TEXT,
        "guarantees": [{"site": TEXT, "observer": TEXT, "epsilon": EPSILON, "delta": MAYBE_NUMBER, "accountant": TEXT}],
        "notes": [TEXT],
    },
    "seed": (int, NoneType),
    "versions": {},
}
CLAIM: Json = {"epsilon": EPSILON, "delta": MAYBE_NUMBER, "basis": TEXT, "defect": (str, NoneType)}
LEDGER_ROW: Json = {"silo": TEXT, "site": TEXT, "mechanism": TEXT}


@dataclass(frozen=True)
class RunFolder:
    """What a run left behind, checked."""

    result: Json
    consensus: list[Edge]
    sites: dict[str, list[Edge]]
    ledger: list[Json]
    plan: str


def read(folder: str | Path) -> RunFolder:
    folder = Path(folder)
    if not folder.is_dir():
        raise DamageError(str(folder), "the folder of a finished run", "there is no such folder", "Check the path.")
    result = _read_result(folder / "result.json")
    nodes = set(result["nodes"])
    return RunFolder(
        result=result,
        consensus=_read_edges(folder / "consensus.csv", nodes),
        sites={
            site["name"]: _read_edges(folder / "sites" / site_file(site["name"]), nodes) for site in result["sites"]
        },
        ledger=list(_read_ledger(folder / "ledger.jsonl")),
        plan=_read_text(folder / "plan.toml"),
    )


def site_file(name: str) -> str:
    """The file of a site's graph: its name, percent-encoded only where a name could lead out of the folder."""
    return (quote(name, safe="") if set(name) & set("/\\\0") else name) + ".csv"


def _read_text(path: Path) -> str:
    # A name that no file system takes raises ValueError, and so does text that is not UTF-8.
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise DamageError(str(path), "a file of a finished run", "it is missing", ADVICE) from None
    except (OSError, ValueError) as error:
        raise DamageError(str(path), "a readable UTF-8 text file", f"reading failed ({error})", ADVICE) from error


def _read_json(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise DamageError(where, "JSON", f"it does not parse ({error})", ADVICE) from error


def _whole(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError("a number with more than 300 digits")  # no float holds it, so no figure could
    return int(digits)


def _read_result(path: Path) -> Json:
    result: Json = _read_json(_read_text(path), str(path))
    _check(result, {"format": WHOLE}, str(path))
    if result["format"] != 1:
        todo = "Use the version of silograph that wrote this folder, or a newer one."
        raise DamageError(str(path), "format 1", f"it says format {result['format']}", todo)
    _check(result, RESULT, str(path))
    _check_unique(result["nodes"], f"{path}: nodes")
    _check_unique([site["name"] for site in result["sites"]], f"{path}: sites")
    marks = result.setdefault("numbers_are", {})
    _check(marks, dict.fromkeys(marks if isinstance(marks, dict) else (), TEXT), f"{path}: numbers_are")
    for index, guarantee in enumerate(result["privacy"]["guarantees"]):
        where = f"{path}: privacy.guarantees[{index}]"
        guarantee["epsilon"] = _epsilon(guarantee["epsilon"], where)
        claim = guarantee.setdefault("claim", None)
        if claim is not None:
            _check(claim, CLAIM, f"{where}.claim")
            claim["epsilon"] = _epsilon(claim["epsilon"], f"{where}.claim")
    return result


def _check(value: Any, shape: Any, where: str) -> None:
    """Walk a value beside its shape: a dict of keys, a list of one repeated shape, or a tuple of types."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise DamageError(where, "an object with named values", f"found {_short(value)}", ADVICE)
        for key, inner in shape.items():
            if key not in value:
                raise DamageError(where, f"the key {key!r}", "it is missing", ADVICE)
            _check(value[key], inner, f"{where}: {key}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise DamageError(where, "a list", f"found {_short(value)}", ADVICE)
        for index, item in enumerate(value):
            _check(item, shape[0], f"{where}[{index}]")
    elif not isinstance(value, shape) or isinstance(value, bool):
        raise DamageError(where, " or ".join(NAME_OF_TYPE[kind] for kind in shape), f"found {_short(value)}", ADVICE)


def _check_unique(names: list[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DamageError(where, "names that differ", f"{_short(name)} comes twice", ADVICE)
        seen.add(name)


def _epsilon(value: float | str, where: str) -> float:
    try:
        epsilon = float(value)
    except (ValueError, OverflowError):
        epsilon = math.nan
    if not epsilon >= 0:
        raise DamageError(where, 'an epsilon of at least 0, or "infinity"', f"found {_short(value)}", ADVICE)
    return epsilon


def _read_edges(path: Path, nodes: Collection[str]) -> list[Edge]:
    rows = csv.reader(io.StringIO(_read_text(path), newline=""))
    try:
        header = next(rows, [])
        if header != ["source", "target", "weight"]:
            raise DamageError(str(path), "the columns source,target,weight", f"found {_short(header)}", ADVICE)
        return [_edge(row, nodes, f"{path}: line {rows.line_num}") for row in rows]
    except csv.Error as error:
        raise DamageError(
            f"{path}: line {rows.line_num}", "a CSV row", f"it does not parse ({error})", ADVICE
        ) from error


def _edge(row: list[str], nodes: Collection[str], where: str) -> Edge:
    if len(row) != 3:
        raise DamageError(where, "3 values", f"found {len(row)}", ADVICE)
    source, target, text = row
    for name in (source, target):
        if name not in nodes:
            raise DamageError(where, "a node named in result.json", f"found {_short(name)}", ADVICE)
    if source == target:
        raise DamageError(where, "an edge between two nodes", f"both ends are {_short(source)}", ADVICE)
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise DamageError(where, "a finite weight above 0", f"found {_short(text)}", ADVICE)
    return source, target, weight


def _read_ledger(path: Path) -> Iterator[Json]:
    # Not splitlines: it would also cut at separators that JSON allows inside a string.
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            row = _read_json(line, where)
            _check(row, LEDGER_ROW, where)
            yield row


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
