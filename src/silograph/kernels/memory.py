"""Refuse problems too large for the memory before work starts, not half-way."""

from __future__ import annotations

from silograph.core.errors import InputError
from silograph.core.memory import available

_SMALL = 1 << 28  # bytes that are never checked


def check_memory(where: str, need: int, todo: str = "") -> None:
    """Refuse work that needs more bytes than the machine can give now."""
    if need > _SMALL and need > (free := available()):
        fits = f"a problem that fits into the {free / 2**30:.1f} GB of free memory"
        raise InputError(where, fits, f"this one needs {need / 2**30:.1f} GB", todo)
