"""How much memory there is."""

from __future__ import annotations

import math


def available() -> float:
    """Free bytes plus what the system can reclaim; unlimited if the system does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024.0 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return math.inf
