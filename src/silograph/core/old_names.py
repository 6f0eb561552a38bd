"""Names in files that silograph 0.1 wrote, and what they are called now. Readers ask here; nobody writes an old name.

Whatever is not of the shape that 0.1 wrote passes as it is: the reader that asked refuses it.
"""

from __future__ import annotations

from typing import Any

_ROW = {"site": "release_point", "unit": "protected_unit"}
_UNIT = {"unit": "protected_unit"}
_ROWS = {"effective_records": "effective_rows"}
_MARKS = {"units": "regions", "effective_records": "effective_rows"}
_KINDS = {"oracle": "simulation only"}


def ledger_row(row: Any) -> Any:
    """A row of ledger.jsonl."""
    return _renamed(row, _ROW)


def result(told: Any) -> Any:
    """result.json."""
    if not isinstance(told, dict):
        return told
    made = _renamed(told, {"units": "regions"})
    for key in ("privacy", "consensus", "numbers_are"):
        if key in made:
            made[key] = _renamed(made[key], _UNIT if key == "privacy" else _ROWS)
    if isinstance(made.get("sites"), list):
        made["sites"] = [_renamed(site, _ROWS) for site in made["sites"]]
    if isinstance(made.get("numbers_are"), dict):
        made["numbers_are"] = {_path(key): _kind(kind) for key, kind in made["numbers_are"].items()}
    return made


def audits(told: Any) -> Any:
    """audit.json."""
    if not isinstance(told, dict) or not isinstance(told.get("audits"), list):
        return told
    return told | {"audits": [_renamed(audit, _UNIT) for audit in told["audits"]]}


def facts(told: Any) -> Any:
    """Public facts of an organisation; 0.1 called them format 1."""
    if not isinstance(told, dict) or type(told.get("format")) is not int or told["format"] != 1:
        return told
    return _renamed(told, {"parties": "organisations"}) | {"format": 2}


def _renamed(told: Any, names: dict[str, str]) -> Any:
    """With today's names; a file that has both an old and a new one is none that anybody wrote, and stays as it is."""
    if not isinstance(told, dict) or any(new in told for old, new in names.items() if old in told):
        return told
    return {names.get(key, key): value for key, value in told.items()}


def _path(key: str) -> str:
    return ".".join(_MARKS.get(part, part) for part in key.split("."))


def _kind(kind: Any) -> Any:
    return _KINDS.get(kind, kind) if isinstance(kind, str) else kind
