"""Two neighbouring tables for the organisation that an audit attacks, and silent tables for all others.

They are generated from the public facts of a deployment, in the shape that each organisation reported, and differ in
one protected unit: the loudest that the method's clip allows, against the opposite one. No real record is needed.
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
    """`tables[k]` is the table of the victim's organisation in world k: with a loud protected unit, its opposite, or a
    silent one. `silent` is the table of any other organisation in all worlds.

    `steps`: the number of steps of the ledger's neighbouring relation between the worlds. If the relation leaves a
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
    """The same deployment with secret noise: anybody who knows a plan's seed can subtract its noise."""
    from silograph.run.plan import dumps

    return replace(deployment, plan_text=dumps(deployment.plan.without_seed()))
