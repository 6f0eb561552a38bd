"""The memory of a run, or of an organisation in it, in one file: named arrays, which of them were released, and plain
facts."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from silograph.core.files import write_atomically
from silograph.core.types import Json
from silograph.privacy.relay import relay
from silograph.privacy.released import Released


def save(path: Path, parts: Mapping[str, Any], facts: Json) -> None:
    """Save all or nothing; parts may be dictionaries of parts."""
    arrays: dict[str, Any] = {}
    released: list[str] = []
    plain: Json = {}

    def keep(key: str, value: Any) -> None:
        if isinstance(value, Released):
            released.append(key)
            arrays[key] = value.value
        elif isinstance(value, np.ndarray | np.generic):
            arrays[key] = value
        elif isinstance(value, dict) and value:
            for name, part in value.items():
                keep(f"{key}/{name}", part)
        else:
            plain[key] = value

    for name, part in parts.items():
        keep(name, part)
    buffer = io.BytesIO()
    np.savez(buffer, meta=np.array(json.dumps({**facts, "released": released, "plain": plain})), **arrays)
    write_atomically(path, buffer.getvalue(), 0o600)


def load(path: Path) -> tuple[Json, Json]:
    """Load the parts and the facts. For a damaged file it raises the errors of numpy, zipfile or json."""
    with np.load(path, allow_pickle=False) as content:
        facts: Json = json.loads(str(content["meta"]))
        found = {key: content[key] for key in content.files if key != "meta"}
    parts: Json = {}
    for key, value in {**found, **facts["plain"]}.items():
        if isinstance(value, np.ndarray):
            # Zero-dimensional arrays were scalars.
            value = relay(value) if key in facts["released"] else value[()] if value.ndim == 0 else value
        _put(parts, key.split("/"), value)
    return parts, facts


def _put(parts: Json, path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        parts = parts.setdefault(name, {})
    parts[path[-1]] = value
