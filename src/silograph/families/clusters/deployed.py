"""Clustered models across organisations: every organisation holds one server's agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silograph.core.errors import InputError
from silograph.data.tables import shortened
from silograph.deploy.public_facts import Facts, Records
from silograph.families import deployed_servers
from silograph.families.clusters.job import ClusteredJob
from silograph.families.clusters.plan import ClusteredPlan
from silograph.families.deployed_servers import FIRST_ORDERS, SEVERAL, classes_of
from silograph.families.servers import graph_of
from silograph.methods.calibrated import Calibrated

__all__ = ["FIRST_ORDERS", "SEVERAL", "check_facts", "classes_of", "open_part", "read_own"]


def check_facts(facts: Facts, where: str) -> None:
    deployed_servers.check_facts(facts, where, clusters=True)


def read_own(plan: ClusteredPlan, path: Path, facts: Facts | None = None) -> tuple[Facts, tuple[Any, ...]]:
    return deployed_servers.read_agents(plan, path, plan.data.agent, plan.data.target, plan.data.cluster, facts)


def open_part(plan: ClusteredPlan, facts: Facts, records: Records, base: Path) -> ClusteredJob:
    graph = graph_of(plan.topology, tuple(facts.regions), base)
    job = ClusteredJob.of(plan, deployed_servers.tables_of(facts, records), {}, graph)
    _check_servers(job)
    return job


def _check_servers(job: ClusteredJob) -> None:
    """Agents refuse a sum over several servers that has those of one alone, and chosen settings add up clusters that
    have models of their own one by one."""
    inner = job.inner
    if len(job.topo.servers) == 1 or not (isinstance(inner, Calibrated) and inner.choice.grouped):
        return
    for q, name in enumerate(job.names):
        homes = {int(job.topo.home[k]) for k, of in enumerate(inner.groups) if of == q}
        if len(homes) == 1:
            (home,) = homes
            expected = "clients of every cluster at two servers or more, so that its sum hides what each has"
            found = f"all clients of {shortened(name)} are at {shortened(job.topo.servers[home])}"
            raise InputError("deployment, clusters", expected, found, "Join clusters, or learn without them.")
