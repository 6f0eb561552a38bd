"""One silo at a time, as each would run on its own machine: what the other engines are held against."""

from __future__ import annotations

from collections.abc import Sequence

from silograph.engines.base import InProcess
from silograph.methods.base import Private
from silograph.privacy.door import Door
from silograph.topology import Topology


def silowise(data: Sequence[Private] | Private, topo: Topology, door: Door) -> InProcess:
    return InProcess(data, topo, door, lambda rows: [rows[k : k + 1] for k in range(len(rows))])
