"""Refuse problems too large for the memory before work starts, not half-way."""

from __future__ import annotations

import math

from silograph.core.errors import InputError

_SMALL = 1 << 28  # bytes that are never checked


def check_memory(where: str, need: int, todo: str = "") -> None:
    """Refuse work that needs more bytes than the machine can give now."""
    if need > _SMALL and need > (free := _available()):
        fits = f"a problem that fits into the {free / 2**30:.1f} GB of free memory"
        raise InputError(where, fits, f"this one needs {need / 2**30:.1f} GB", todo)


def _available() -> float:
    """Free memory plus what the system can reclaim; unlimited if the system does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024.0 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return math.inf
