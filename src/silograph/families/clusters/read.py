"""Reads the folder of a run that learned a model for every client, in clusters, over a graph of servers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from silograph.core.errors import DamageError
from silograph.core.results import ADVICE, FILE, Guarantee
from silograph.core.schema import shortened
from silograph.families.clusters.result import ClusteredResult
from silograph.report.read import (
    RunFolder,
    as_number,
    check_guarantees,
    check_length,
    check_named,
    check_unique,
    check_weights,
    read_table,
)
from silograph.report.servers import check_servers


@dataclass(frozen=True)
class ClusteredRun(RunFolder[ClusteredResult]):
    @property
    def cells(self) -> dict[str, str]:
        """The method, which knows clusters by their numbers only, names a cell so; and its name on the page."""
        named = enumerate(cluster.name for cluster in self.result.clusters)
        servers = self.result.topology.servers
        return {f"{server}/cluster-{q}": f"{server}/{name}" for q, name in named for server in servers}

    @property
    def models(self) -> dict[str, list[float]]:
        """Every client's, or what was written for it, and every cluster's."""
        columns = ("client", "cluster", *self.result.task.features)
        rows = read_table(self.folder / "models" / "clients.csv", columns)
        clients = {row[0]: [float(text) for text in row[2:]] for _, row in rows}
        return {cluster.name: cluster.model for cluster in self.result.clusters} | clients

    def in_ledger(self, site: str) -> str:
        found = [
            cell for cell, name in self.cells.items() if name == site and self.result.parameters.protect == "clients"
        ]
        return found[0] if found else site


def read(run: RunFolder[ClusteredResult]) -> ClusteredRun:
    where, folder = str(run.folder / FILE), run.folder / "models"
    found = ClusteredRun(**vars(run))
    check_servers(run.result.task, run.result.topology, where)
    _check_clients(run.result, where)
    _check_exchange(run.result.exchange, len(run.result.clusters), f"{where}: exchange")
    if run.result.parameters.protect == "clients":
        privacy = replace(run.result.privacy, guarantees=_by_name(found))
        found = replace(found, result=replace(run.result, privacy=privacy))
    result = found.result
    check_guarantees(result.privacy.guarantees, *result.guarded, f"{where}: privacy: guarantees")
    for cluster in result.clusters:
        check_length(cluster.model, result.task.features, str(folder / "clusters.csv"))
    models = [(cluster.name, cluster.model) for cluster in result.clusters]
    check_weights(folder / "clusters.csv", ("cluster", *result.task.features), models, "clusters")
    _check_client_models(found)
    return found


def _by_name(run: ClusteredRun) -> list[Guarantee]:
    """Guarantees for cells: by the names of their clusters rather than their numbers, and for no empty cell."""
    guarantees, named = run.result.privacy.guarantees, run.cells
    if all(each.site in named for each in guarantees):
        guarantees = [replace(each, site=named[each.site]) for each in guarantees]
    empty = set(named.values()) - set(run.result.guarded[1])
    return [each for each in guarantees if each.site not in empty]


def _check_clients(result: ClusteredResult, where: str) -> None:
    counts = {cluster.name: 0 for cluster in result.clusters}
    check_unique([cluster.name for cluster in result.clusters], f"{where}: clusters")
    check_unique([client.name for client in result.clients], f"{where}: clients")
    for index, client in enumerate(result.clients):
        check_named(client.server, "server", result.topology.servers, f"{where}: clients[{index}]: server")
        check_named(client.cluster, "cluster", counts, f"{where}: clients[{index}]: cluster")
        counts[client.cluster] += 1
    for index, cluster in enumerate(result.clusters):
        if cluster.clients != (count := counts[cluster.name]):
            found = f"found {shortened(cluster.clients)}"
            raise DamageError(f"{where}: clusters[{index}]: clients", f"the {count} that are listed", found, ADVICE)


def _check_exchange(exchange: list[list[float]], clusters: int, where: str) -> None:
    if [len(row) for row in exchange] != [clusters] * clusters:
        raise DamageError(where, f"{clusters} rows of {clusters} numbers", f"found {shortened(exchange)}", ADVICE)
    for index, row in enumerate(exchange):
        if not math.isclose(sum(row), 1.0, abs_tol=1e-6):
            raise DamageError(f"{where}[{index}]", "shares that add up to 1", f"found {shortened(row)}", ADVICE)


def _check_client_models(run: ClusteredRun) -> None:
    path, result = run.folder / "models" / "clients.csv", run.result
    rows = list(read_table(path, ("client", "cluster", *result.task.features)))
    if [tuple(row[:2]) for _, row in rows] != [(client.name, client.cluster) for client in result.clients]:
        expected = "the clients of result.json in their order, and their clusters"
        raise DamageError(str(path), expected, "found others", ADVICE)
    for where, (_, _, *texts) in rows:
        for text in texts:
            if math.isnan(as_number(text)) and text != "nan":
                raise DamageError(where, "a number", f"found {shortened(text)}", ADVICE)
