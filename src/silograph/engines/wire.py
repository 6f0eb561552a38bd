"""Plain facts and arrays as one blob, bit for bit: the messages of a server and its silos.

    "SLG1" | length of the head, 4 bytes | head, JSON: {"arrays": [[name, kind, shape], ...], "facts": {...}} | numbers

Reading a blob executes nothing, and allocates no more than its length allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.schema import Such, parse_json, read
from silograph.core.types import Json

_MARK = b"SLG1"
_START = len(_MARK) + 4
_LONGEST_HEAD = 1 << 26
_MOST_AXES = 32
# The most that numpy can address: beyond it even an empty array cannot be made.
_LARGEST = 1 << 62
_KINDS: dict[str, type[np.generic]] = {"<f8": np.float64, "<i8": np.int64, "|b1": np.bool_, "|u1": np.uint8}

_Length = Annotated[int, Such("a whole number from 0 up", lambda length: length >= 0)]
_Shape = Annotated[
    tuple[_Length, ...],
    Such(
        "a shape that numpy can address",
        lambda shape: len(shape) <= _MOST_AXES and 8 * math.prod(max(n, 1) for n in shape) <= _LARGEST,
    ),
]


@dataclass(frozen=True)
class _Head:
    """`arrays` are their names, kinds and shapes, in the order in which their numbers follow."""

    arrays: tuple[tuple[str, Literal["<f8", "<i8", "|b1", "|u1"], _Shape], ...]
    facts: Json


def pack(facts: Json, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Pack facts, which JSON can hold, without infinities, and arrays of float64, int64, bool or uint8."""
    index, numbers = [], []
    for name, value in arrays.items():
        array = np.asarray(value)
        kind = array.dtype.newbyteorder("<").str
        if kind not in _KINDS or array.ndim > _MOST_AXES:
            raise InputError(
                f"array {name}", "float64, int64, bool or uint8", f"found {array.dtype}, {array.ndim} axes,"
            )
        index.append([name, kind, list(array.shape)])
        numbers.append(array.astype(kind, copy=False).tobytes())
    try:
        head = _head(index, facts)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError("message", "facts that JSON can hold", f"they are not: {error}") from None
    if len(head) > _LONGEST_HEAD:
        raise InputError("message", f"at most {_LONGEST_HEAD} bytes of facts", f"found {len(head)}", "Send arrays.")
    return b"".join([_MARK, len(head).to_bytes(4, "little"), head, *numbers])


def unpack(blob: bytes) -> tuple[Json, dict[str, NDArray[Any]]]:
    """Return the input of `pack`, or raise an InputError; the arrays are writable, and nobody else's."""
    size = int.from_bytes(blob[len(_MARK) : _START], "little")
    at = _START + size
    _expect(blob[: len(_MARK)] == _MARK and size <= _LONGEST_HEAD and len(blob) >= at)
    head = read(_Head, parse_json(blob[_START:at], "message"), "message")
    # Accept only what `pack` writes: no name twice, no NaN, no broken text, nothing besides.
    try:
        _expect(_head(head.arrays, head.facts) == blob[_START:at])
    except (ValueError, RecursionError):
        _expect(False)
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, shape in head.arrays:
        size = math.prod(shape) * np.dtype(kind).itemsize
        _expect(name not in arrays and size <= len(blob) - at)
        numbers = np.frombuffer(memoryview(blob)[at : at + size], kind)
        _expect(kind != "|b1" or not np.any(numbers.view(np.uint8) > 1))
        arrays[name] = numbers.reshape(shape).astype(_KINDS[kind])
        at += size
    _expect(at == len(blob))
    return head.facts, arrays


def _expect(good: bool) -> None:
    if not good:
        raise InputError("message", "one that silograph packed", "it is damaged or made by something else")


def _head(index: Sequence[Any], facts: Json) -> bytes:
    content = {"arrays": index, "facts": facts}
    return json.dumps(content, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
