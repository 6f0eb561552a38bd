"""Cheap changes of inputs: of bytes, of lines, and of what JSON or TOML in them says."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from typing import Any

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308, 5e-324),
    *(float("nan"), float("inf"), -float("inf"), "", " ", "a", "\0", "\ud800", "é", "../x", "/", "nan", "1e999"),
    *([], {}, [[]], [None], {"": None}, [0] * 50, "x" * 300),
)
_BYTES = (b"\0", b"\xff", b"\n", b"\r", b'"', b"{", b"[", b"]", b"}", b",", b":", b"-", b"1e999", b"9" * 5000)
_BYTES += (b"[" * 3000, b"NaN", b"Infinity", b"null", b"SLG1", b"=", b"'''", b"\xed\xa0\x80", b"1979-05-27", b"0x")


def mutated(data: bytes, dice: random.Random, longest: int) -> bytes:
    """One to four changes; by half of what the content says, where it says something."""
    for _ in range(dice.randint(1, 4)):
        kind = dice.random()
        data = (of_json(data, dice) if kind < 0.6 else None) or of_bytes(data, dice)
    return data[:longest]


def of_json(data: bytes, dice: random.Random) -> bytes | None:
    """A change of one value in JSON, or in one line of JSON; a ledger's chain is mended after it half of the time."""
    lines = data.split(b"\n")
    whole = _loaded(data)
    at = None if whole is not None else dice.randrange(len(lines))
    content = whole if at is None else _loaded(lines[at])
    if not isinstance(content, dict | list):
        return None
    content = _changed(content, dice)
    try:
        told = json.dumps(content, ensure_ascii=dice.random() < 0.5).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        return None
    if at is None:
        return told
    lines[at] = told
    return rechained(lines) if dice.random() < 0.5 else b"\n".join(lines)


def rechained(lines: list[bytes]) -> bytes:
    """Rows of a ledger with the hashes that a forger would give them."""
    chain, out = "0" * 16, []
    for line in lines:
        row = _loaded(line)
        if isinstance(row, dict):
            row.pop("chain", None)
            try:
                body = json.dumps(row, sort_keys=True)
            except (ValueError, TypeError, RecursionError):
                return b"\n".join(lines)
            chain = hashlib.sha256((chain + body).encode(errors="surrogatepass")).hexdigest()[:16]
            line = f'{{"chain": "{chain}", {body[1:]}'.encode(errors="surrogatepass")
        out.append(line)
    return b"\n".join(out)


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _changed(content: Any, dice: random.Random) -> Any:
    """A copy in which one place, at any depth, holds something else."""
    content = copy.deepcopy(content)
    place, key = content, None
    while isinstance(place, dict | list) and place:
        holder = place
        key = dice.choice(list(holder)) if isinstance(holder, dict) else dice.randrange(len(holder))
        place = holder[key]
        if dice.random() < 0.3:
            break
    if key is None:
        return dice.choice(_ODD)
    match dice.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        case 1:
            holder[dice.choice(["", "x", "format", "sum", "rows"])] = copy.deepcopy(place)
        case 2 if isinstance(place, int | float) and not isinstance(place, bool):
            holder[key] = place * dice.choice([-1, 0, 2, 0.5, 10**9, 1e300])
        case 3:
            for _ in range(dice.choice([1, 3, 40])):
                holder[key] = [holder[key]]
        case _:
            holder[key] = copy.deepcopy(dice.choice(_ODD))
    return content


def of_bytes(data: bytes, dice: random.Random) -> bytes:
    at, end = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    match dice.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[min(end, at + 8) :]
        case 2:
            return data[:at] + dice.choice(_BYTES) + data[at:]
        case 3:
            return data[:at] + dice.randbytes(1) + data[at + 1 :]
        case 4:
            return data[:end] + data[at:]
        case _:
            return data[:at] + dice.choice(_BYTES) + data[at + 1 :]
