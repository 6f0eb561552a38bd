"""Graph federation across organisations: every organisation holds one server's agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silograph.deploy.public_facts import Facts, Records
from silograph.families import deployed_servers
from silograph.families.deployed_servers import FIRST_ORDERS, SEVERAL, classes_of
from silograph.families.federation.job import FederationJob
from silograph.families.federation.plan import FederationPlan
from silograph.families.servers import graph_of

__all__ = ["FIRST_ORDERS", "SEVERAL", "check_facts", "classes_of", "open_part", "read_own"]


def check_facts(facts: Facts, where: str) -> None:
    deployed_servers.check_facts(facts, where, clusters=False)


def read_own(plan: FederationPlan, path: Path, facts: Facts | None = None) -> tuple[Facts, tuple[Any, ...]]:
    return deployed_servers.read_agents(plan, path, plan.data.agent, plan.data.target, None, facts)


def open_part(plan: FederationPlan, facts: Facts, records: Records, base: Path) -> FederationJob:
    graph = graph_of(plan.topology, tuple(facts.regions), base)
    return FederationJob.of(plan, deployed_servers.tables_of(facts, records), None, graph)
