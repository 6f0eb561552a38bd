"""Missing data in the sites' tables: single values, which are NaN, and nodes that a site lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from silograph.core.errors import InputError
from silograph.data.silos import Elsewhere, People, Silos
from silograph.data.tables import listed, shortened


def with_gaps(silos: Silos) -> bool:
    """Whether some site's rows have gaps or it lacks nodes, as far as is known here."""
    rows = [signals.rows if isinstance(signals, People) else signals for signals in silos.signals]
    known = bool(silos.lacks) or silos.gaps_elsewhere
    return known or any(not isinstance(own, Elsewhere) and bool(np.isnan(own).any()) for own in rows)


def without_lacked(silos: Silos) -> Silos:
    """A single site's table with the nodes that it has."""
    (signals,), gone = silos.signals, frozenset[str]().union(*silos.lacks)
    own = [k for k, node in enumerate(silos.nodes) if node not in gone]
    rows = replace(signals, rows=signals.rows[:, own]) if isinstance(signals, People) else signals[:, own]
    return replace(silos, nodes=tuple(silos.nodes[k] for k in own), signals=(rows,), lacks=())


def at_every_site(silos: Silos) -> str:
    """How many nodes all sites have, and what is missing, for people."""
    some = sorted(frozenset[str]().union(*silos.lacks))
    are = "is" if len(some) == 1 else "are"
    alike = f"{len(some)} of them {are} not at every site: {listed(some)}" if some else "the same in every site"
    rows = [signals.rows if isinstance(signals, People) else signals for signals in silos.signals]
    own = sum(len(each) * (len(silos.nodes) - len(gone)) for each, gone in zip(rows, _lacks(silos), strict=True))
    gone = sum(int(np.isnan(each).sum()) for each in rows) - sum(each.size for each in rows) + own
    return alike if not gone else f"{alike}; {100.0 * gone / own:.2g} % of the values are missing"


def _lacks(silos: Silos) -> tuple[frozenset[str], ...]:
    return silos.lacks or (frozenset(),) * len(silos.names)


def refuse_lacking(silos: Silos, expected: str, todo: str) -> None:
    """Refuse, for methods that need all nodes at every site, and name a site that lacks one."""
    for name, lacks in zip(silos.names, _lacks(silos), strict=True):
        if lacks:
            found = f"site {shortened(name)} lacks {shortened(sorted(lacks)[0])}"
            raise InputError("sites", f"the same nodes at all sites for {expected}", found, todo)


def refuse_gaps(silos: Silos, expected: str, todo: str) -> None:
    """Refuse, for methods that need complete rows, and name a gap's site and place. A node that a site lacks is not a
    gap."""
    for name, signals, lacks in zip(silos.names, silos.signals, _lacks(silos), strict=True):
        rows = signals.rows if isinstance(signals, People) else signals
        own = np.array([node not in lacks for node in silos.nodes])
        if not isinstance(rows, Elsewhere) and (gone := np.isnan(rows).any(0) & own).any():
            where = f"site {shortened(name)}, column {shortened(silos.nodes[int(gone.argmax())])}"
            raise InputError(where, expected, "some values are missing", todo)
