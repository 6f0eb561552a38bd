"""Who may talk to whom. A star is the graph with one server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silograph.core.errors import InputError


@dataclass(frozen=True)
class Topology:
    """Silos in canonical (sorted) order, so that nothing depends on the order files were named in."""

    silos: tuple[str, ...]
    servers: tuple[str, ...] = ("server",)

    def index(self, silos: Sequence[str]) -> list[int]:
        position = {name: k for k, name in enumerate(self.silos)}
        return [position[name] for name in silos]


def star(silos: Sequence[str]) -> Topology:
    """One server, every silo attached to it."""
    if not silos:
        raise InputError("topology", "at least one silo", "none came")
    if len(set(silos)) != len(silos):
        raise InputError("topology", "different silo names", f"{sorted(silos)} came")
    return Topology(tuple(sorted(silos)))
