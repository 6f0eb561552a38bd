"""Consensus graphs across organisations: every organisation holds one site."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silograph.data.gaps import with_gaps, without_lacked
from silograph.data.silos import Elsewhere, Silos
from silograph.data.sites import check_one
from silograph.data.tables import shown
from silograph.deploy.public_facts import Facts, Holding, Records, check_columns, check_plain
from silograph.families.graphs.job import GraphJob, read_sites
from silograph.families.graphs.plan import GraphPlan
from silograph.families.graphs.units import in_units

SEVERAL, FIRST_ORDERS = False, True
_LEAST_NODES = 3


def check_facts(facts: Facts, where: str) -> None:
    check_columns(facts, _LEAST_NODES, where)
    check_plain(facts, where)


def classes_of(plan: GraphPlan, told: Mapping[str, tuple[str, ...]], fewest: int) -> tuple[str, ...]:
    return ()


def read_own(plan: GraphPlan, path: Path, facts: Facts | None = None) -> tuple[Facts, tuple[Any, ...]]:
    silos = read_sites(plan, [path], None if facts is None else facts.columns)
    check_one(silos.names, shown(path))
    lacks = tuple(name for name in silos.nodes if silos.lacks and name in silos.lacks[0]) or None
    gaps = True if plan.privacy is None and with_gaps(without_lacked(silos)) else None
    holding = Holding(silos.names[0], records=(len(silos.signals[0]),), lacks=lacks, gaps=gaps)
    return Facts(plan.method.name, silos.nodes, (holding,)), silos.signals


def open_part(plan: GraphPlan, facts: Facts, records: Records, base: Path) -> GraphJob:
    signals = records(lambda count: Elsewhere.of((count, len(facts.columns))))
    gaps = any(holding.gaps for holding in facts.holdings)
    lacks = tuple(frozenset(holding.lacks or ()) for holding in facts.holdings)
    lacks = lacks if any(lacks) else ()
    silos = Silos(tuple(facts.organisations), facts.columns, signals, lacks=lacks, gaps_elsewhere=gaps)
    return GraphJob.of(plan, in_units(plan, silos, base), base)
