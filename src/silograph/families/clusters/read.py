"""Reads the folder of a run that learned a model for every client, in clusters, over a graph of servers."""

from __future__ import annotations

import math
from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.report import read_servers
from silograph.report.read import (
    ADVICE,
    FLAG,
    MAYBE_NUMBER,
    NUMBER,
    TEXT,
    WHOLE,
    check,
    check_unique,
    read_table,
    short,
)
from silograph.report.read_servers import (
    ServerRun,
    check_guarantees,
    check_length,
    check_named,
    check_number,
    check_weight,
)
from silograph.report.words import first_seen

RESULT: Json = {
    "parameters": {"weights": TEXT, "protect": TEXT, "radius": MAYBE_NUMBER, "found": FLAG},
    "clusters": [{"name": TEXT, "clients": WHOLE, "model": [NUMBER], "test_error": MAYBE_NUMBER}],
    "exchange": [[NUMBER]],
    "clients": [{"name": TEXT, "server": TEXT, "cluster": TEXT, "test_error": MAYBE_NUMBER}],
    "comparison": [{"method": TEXT, "test_error": MAYBE_NUMBER}],
}


def read(folder: Path, result: Json) -> ServerRun:
    where = str(folder / "result.json")
    run = read_servers.read(folder, result)
    check(result, RESULT, where)
    _check_clients(result, where)
    _check_exchange(result["exchange"], len(result["clusters"]), f"{where}: exchange")
    if result["parameters"]["protect"] == "clients":
        _name_cells(result)
    check_guarantees(result["privacy"]["guarantees"], *guarded(result), f"{where}: privacy: guarantees")
    _check_cluster_models(folder / "models" / "clusters.csv", result)
    _check_client_models(folder / "models" / "clients.csv", result)
    return run


def guarded(result: Json) -> tuple[str, list[str]]:
    """Whom guarantees are for: what one of them is called, and their names.

    A cell is the clients of one server that are in one cluster.
    """
    clients, protect = result["clients"], result["parameters"]["protect"]
    if protect == "records":
        return "client", [client["name"] for client in clients]
    if protect == "clients":
        return "cell", first_seen(f"{client['server']}/{client['cluster']}" for client in clients)
    return "server", result["topology"]["servers"]


def _name_cells(result: Json) -> None:
    """Guarantees for cells: by the names of their clusters rather than their numbers, and for no cell without clients.

    Cells are named by the method, which knows clusters by their numbers only.
    """
    guarantees, servers = result["privacy"]["guarantees"], result["topology"]["servers"]
    clusters = [cluster["name"] for cluster in result["clusters"]]
    named = {f"{server}/cluster-{q}": f"{server}/{name}" for server in servers for q, name in enumerate(clusters)}
    if all(row["site"] in named for row in guarantees):
        for row in guarantees:
            row["silo"], row["site"] = row["site"], named[row["site"]]  # the ledger keeps the method's name
    empty = set(named.values()) - set(guarded(result)[1])
    result["privacy"]["guarantees"] = [row for row in guarantees if row["site"] not in empty]


def _check_clients(result: Json, where: str) -> None:
    clients, servers = result["clients"], result["topology"]["servers"]
    counts = {cluster["name"]: 0 for cluster in result["clusters"]}
    check_unique([cluster["name"] for cluster in result["clusters"]], f"{where}: clusters")
    check_unique([client["name"] for client in clients], f"{where}: clients")
    for index, client in enumerate(clients):
        check_named(client["server"], "server", servers, f"{where}: clients[{index}]: server")
        check_named(client["cluster"], "cluster", counts, f"{where}: clients[{index}]: cluster")
        counts[client["cluster"]] += 1
    for index, cluster in enumerate(result["clusters"]):
        count = counts[cluster["name"]]
        if cluster["clients"] != count:
            came = f"found {short(cluster['clients'])}"
            raise DamageError(f"{where}: clusters[{index}]: clients", f"the {count} that are listed", came, ADVICE)


def _check_exchange(exchange: list[list[float]], clusters: int, where: str) -> None:
    if [len(row) for row in exchange] != [clusters] * clusters:
        raise DamageError(where, f"{clusters} rows of {clusters} numbers", f"found {short(exchange)}", ADVICE)
    for index, row in enumerate(exchange):
        if not math.isclose(sum(row), 1.0, abs_tol=1e-6):
            raise DamageError(f"{where}[{index}]", "shares that add up to 1", f"found {short(row)}", ADVICE)


def _check_cluster_models(path: Path, result: Json) -> None:
    features, clusters = result["task"]["features"], result["clusters"]
    for cluster in clusters:
        check_length(cluster["model"], features, str(path))
    rows = list(read_table(path, ("cluster", *features)))
    if [row[0] for _, row in rows] != [cluster["name"] for cluster in clusters]:
        raise DamageError(str(path), "the clusters of result.json in their order", "found others", ADVICE)
    for (where, (_, *texts)), cluster in zip(rows, clusters, strict=True):
        for text, weight in zip(texts, cluster["model"], strict=True):
            check_weight(text, weight, where)


def _check_client_models(path: Path, result: Json) -> None:
    rows = list(read_table(path, ("client", "cluster", *result["task"]["features"])))
    if [tuple(row[:2]) for _, row in rows] != [(client["name"], client["cluster"]) for client in result["clients"]]:
        expected = "the clients of result.json in their order, and their clusters"
        raise DamageError(str(path), expected, "found others", ADVICE)
    for where, (_, _, *texts) in rows:
        for text in texts:
            check_number(text, where)
