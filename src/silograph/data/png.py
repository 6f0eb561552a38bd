"""Own reader of the one kind of PNG that grey pictures of objects come as: 8 bits a pixel, no transparency."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.data.tables import shown

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MOST_PIXELS = 1 << 24


def read_grey_png(path: str | Path) -> NDArray[np.uint8]:
    """The picture (height, width), dark 0 to bright 255."""
    where = shown(Path(path))
    try:
        content = Path(path).read_bytes()
        header, packed = _chunks(content)
        width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    except (OSError, struct.error, ValueError) as problem:
        raise InputError(where, "a PNG picture", f"it cannot be read ({problem})") from None
    if (depth, colour, interlaced) != (8, 0, 0) or not 0 < width * height <= _MOST_PIXELS:
        came = f"it has {width} x {height} pixels, colour type {colour} and {depth} bits"
        raise InputError(where, "a grey picture of 8 bits a pixel, not interlaced", came, "Save it as such.")
    try:
        lines = zlib.decompressobj().decompress(packed, height * (width + 1))
    except zlib.error as problem:
        raise InputError(where, "a PNG picture", f"it is damaged ({problem})") from None
    if len(lines) != height * (width + 1):
        raise InputError(where, "a whole PNG picture", "it ends too early")
    return _unfiltered(np.frombuffer(lines, np.uint8).reshape(height, width + 1), where)


def _chunks(content: bytes) -> tuple[bytes, bytes]:
    """The header, and the compressed pixels in one piece."""
    if not content.startswith(_SIGNATURE):
        raise ValueError("it does not begin like one")
    header, pixels, at = b"", b"", len(_SIGNATURE)
    while at + 8 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        kind, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            pixels += body
        at += length + 12
    return header, pixels


def _unfiltered(lines: NDArray[np.uint8], where: str) -> NDArray[np.uint8]:
    """Each line begins with how it is told from its neighbours: the pixel to the left, above, or both."""
    picture = np.zeros((len(lines) + 1, lines.shape[1]), np.int64)  # with a line above and a pixel to the left
    for k, line in enumerate(lines.astype(np.int64), 1):
        kind, above, now = int(line[0]), picture[k - 1], picture[k]
        if kind not in range(5):
            raise InputError(where, "a PNG picture", f"its line {k} is of the unknown kind {kind}")
        if kind in (0, 2):
            now[1:] = (line[1:] + (above[1:] if kind == 2 else 0)) & 255
            continue
        for j in range(1, len(line)):
            left, up, corner = int(now[j - 1]), int(above[j]), int(above[j - 1])
            guess = left if kind == 1 else (left + up) // 2 if kind == 3 else _paeth(left, up, corner)
            now[j] = (int(line[j]) + guess) & 255
    return picture[1:, 1:].astype(np.uint8)


def _paeth(left: int, up: int, corner: int) -> int:
    """Whichever of the three is nearest to left + up - corner, the first of equals."""
    return min((left, up, corner), key=lambda value: abs(left + up - corner - value))
