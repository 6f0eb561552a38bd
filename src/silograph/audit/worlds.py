"""Two neighbouring tables for the organisation that an audit attacks, and silent tables for all others.

They are made up from the public facts of a deployment, in the shape that each organisation reported, and differ in one
protected unit: the loudest that the method's clip allows, against the opposite one. No real record is needed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from silograph.deploy.deployment import Deployment
from silograph.deploy.public_facts import Facts, Holding

LOUD, OPPOSITE, SILENT = range(3)  # worlds


@dataclass(frozen=True)
class Worlds:
    """`tables[k]` is what the victim's organisation holds in world k: a loud protected unit, its opposite, or a silent
    one. `silent` is what another organisation holds in all of them.

    `steps`: how many steps of the ledger's neighbouring relation lie between the worlds. Where the relation leaves a
    place empty, a table with another record in that place is two steps away.
    """

    organisation: str
    silo: str
    words: str
    tables: tuple[bytes, bytes, bytes]
    silent: Callable[[str], bytes]
    suffix: str = ".csv"
    steps: int = 1


def fewest(facts: Facts) -> tuple[Holding, int]:
    """The organisation, and the place in it, of the silo with the fewest records: there a record weighs most."""
    _, holding, place = min(
        ((count, holding, k) for holding in facts.holdings for k, count in enumerate(holding.records or ())),
        key=lambda found: found[0],
    )
    return holding, place


def as_csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def secret(deployment: Deployment) -> Deployment:
    """The same deployment with noise that is secret: whoever knows a plan's seed takes its noise off."""
    from silograph.run.plan import dumps

    return replace(deployment, plan_text=dumps(deployment.plan.without_seed()))
