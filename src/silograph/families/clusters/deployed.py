"""Clustered models across organisations: every organisation holds one server's agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silograph.deploy.public_facts import Facts, Records
from silograph.families import deployed_servers
from silograph.families.clusters.job import ClusteredJob
from silograph.families.clusters.plan import ClusteredPlan
from silograph.families.deployed_servers import FIRST_ORDERS, SEVERAL, classes_of
from silograph.families.servers import graph_of

__all__ = ["FIRST_ORDERS", "SEVERAL", "check_facts", "classes_of", "open_part", "read_own"]


def check_facts(facts: Facts, where: str) -> None:
    deployed_servers.check_facts(facts, where, clusters=True)


def read_own(plan: ClusteredPlan, path: Path, facts: Facts | None = None) -> tuple[Facts, tuple[Any, ...]]:
    return deployed_servers.read_agents(plan, path, plan.data.agent, plan.data.target, plan.data.cluster, facts)


def open_part(plan: ClusteredPlan, facts: Facts, records: Records, base: Path) -> ClusteredJob:
    graph = graph_of(plan.topology, tuple(facts.regions), base)
    return ClusteredJob.of(plan, deployed_servers.tables_of(facts, records), {}, graph)
