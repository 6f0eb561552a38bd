"""Agents of servers across organisations: every organisation holds one server's agents. Shared by such families."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from silograph.core.errors import InputError
from silograph.data.regions import RegionTables, read_regions
from silograph.data.silos import Elsewhere
from silograph.data.sites import check_one
from silograph.data.tables import shown
from silograph.deploy.public_facts import Facts, Holding, Records, check_columns, check_plain
from silograph.run.plan import Plan

SEVERAL, FIRST_ORDERS = True, False


def check_facts(facts: Facts, where: str, clusters: bool) -> None:
    check_columns(facts, 1, where)
    check_plain(facts, where)
    if not clusters and any(holding.clusters for holding in facts.holdings):
        raise InputError(f"{where}, clusters", f"none for {facts.method}", "found some")


def classes_of(plan: Plan, told: Mapping[str, tuple[str, ...]], fewest: int) -> tuple[str, ...]:
    return ()


def read_agents(
    plan: Plan, path: Path, agent: str, target: str, cluster: str | None, facts: Facts | None
) -> tuple[Facts, tuple[Any, ...]]:
    columns = None if facts is None else facts.columns
    told: Any = plan.data
    tables = read_regions([path], agent, target, plan.privacy is not None, cluster, columns, told, told.classes)
    check_one(tables.regions, shown(path))
    holding = Holding(
        tables.regions[0],
        tuple(name.split("/", 1)[1] for name in tables.agents),
        tuple(len(y) for _, y in tables.records) if plan.tells_counts else None,
        tables.clusters if plan.tells_clusters else (),
    )
    return Facts(plan.method.name, tables.features, (holding,)), tables.records


def tables_of(facts: Facts, records: Records) -> RegionTables:
    regions = tuple(facts.regions)
    silos = [silo for holding in facts.holdings for silo in holding.silos]
    home = np.repeat([regions.index(h.home) for h in facts.holdings], [len(h.silos) for h in facts.holdings])
    found = records(lambda count: (Elsewhere.of((count, len(facts.columns))), Elsewhere.of((count,))))
    clusters = [cluster for holding in facts.holdings for cluster in holding.clusters]
    order = sorted(range(len(silos)), key=lambda k: (home[k], silos[k]))  # as in tables of whole regions
    return RegionTables(
        regions,
        facts.columns,
        tuple(silos[k] for k in order),
        tuple(int(home[k]) for k in order),
        tuple(found[k] for k in order),
        tuple(clusters[k] for k in order) if clusters else (),
    )
