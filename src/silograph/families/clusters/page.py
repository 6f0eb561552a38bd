"""The page of a run that learned a model for every client, in clusters, over a graph of servers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from silograph.core.types import Json
from silograph.families.clusters.read import ClusteredRun, read
from silograph.families.clusters.result import Client, Cluster, ClusteredResult
from silograph.report import printed, scores, servers, words
from silograph.report.privacy_words import PrivacyWords, row_of, whole
from silograph.report.read import BASELINE_MEASURE, Measured

__all__ = ["RESULT", "forecast", "measured", "page", "privacy_of", "read", "summary"]

RESULT = ClusteredResult
MOST_CLIENTS = 40
#: Dots in a row of a picture.
MOST_DRAWN = 200
#: How dark a whole share is, in percent: the number on it must stay readable.
DARKEST = 40


def privacy_of(run: ClusteredRun) -> PrivacyWords:
    noun, names = run.result.guarded
    return PrivacyWords(
        run,
        noun=noun,
        names=names,
        unprotected="No privacy protection: whoever hears what clients and servers send learns their models "
        "exactly after every round.",
        protects=whole("client") if run.result.parameters.protect == "clients" else row_of("client"),
        stated="the names of clients, servers, clusters and features, the cluster of each client, the graph of servers",
        also=servers.unprotected(run.result.test, run.result.comparison),
        observers=servers.observers("a client", "clients"),
    )


def page(run: ClusteredRun) -> str:
    result, test = run.result, run.result.test
    ways = [
        scores.Score(row.method, row.test_error, "comparison" if k else "test_error")
        for k, row in enumerate(result.comparison)
    ]
    compared = scores.with_baseline(ways, test, servers.baseline(test))
    beginning = "" if test is None else f"On {words.counted(test.records, 'test record')} the {test.measure} is {{}}"
    untested = f"Nothing is known of how well the models predict: {scores.UNTESTED}"
    constants = servers.are_constants(result.task, [cluster.model for cluster in result.clusters])
    accuracy = scores.sentence(compared if ways else [], test, beginning, untested)
    return servers.render(
        "clusters.html.j2",
        run,
        privacy_of(run),
        people="clients",
        model=servers.model_of(result.task, constants),
        accuracy=servers.constants_first(constants, accuracy),
        comparison=scores.table(compared, test, result.numbers_are),
        clusters=_clusters(result),
        exchange=_exchange(result),
        weights=_weights(result),
        clients=_clients(result),
        spread=_spread(result),
    )


def _in_words(rows: Sequence[Client | Cluster], result: ClusteredResult) -> list[Json]:
    """The rows, each with its test error in words and how that compares with the baseline."""
    errors, test = words.column(row.test_error for row in rows), result.test
    gains = scores.beside(test, [(row.test_error, None if test is None else test.baseline) for row in rows])
    return [
        vars(row) | {"error": error, "beside": better} for row, error, better in zip(rows, errors, gains, strict=True)
    ]


def _spread(result: ClusteredResult) -> str:
    """The test errors of clients, cluster by cluster."""
    if result.test is None:
        return ""
    members: dict[str, list[tuple[str, float | None]]] = {}
    for client in result.clients:
        members.setdefault(client.cluster, []).append((client.name, client.test_error))
    groups = [
        (cluster.name, members.get(cluster.name, [])[:MOST_DRAWN], cluster.test_error)
        for cluster in result.clusters[:MOST_CLIENTS]
    ]
    return servers.spread_of_errors(groups, result.test, "client", "cluster")


def _clusters(result: ClusteredResult) -> list[Json]:
    homes: dict[str, set[str]] = {}
    for client in result.clients:
        homes.setdefault(client.cluster, set()).add(client.server)
    return [row | {"servers": len(homes.get(row["name"], ()))} for row in _in_words(result.clusters, result)]


def _exchange(result: ClusteredResult) -> Json:
    """A table of what clusters take from each other, with the darkness of each cell; and the clusters that took
    anything."""
    names, shares = [cluster.name for cluster in result.clusters], result.exchange
    kept = names[: servers.MOST_MODELS]
    texts = words.column(share for row in shares[: len(kept)] for share in row[: len(kept)])
    rows = []
    for q, name in enumerate(kept):
        depths = [f"{DARKEST * min(max(share, 0.0), 1.0):.0f}" for share in shares[q][: len(kept)]]
        rows.append((name, list(zip(texts[q * len(kept) : (q + 1) * len(kept)], depths, strict=True))))
    borrowers = [name for q, name in enumerate(names) if any(share for r, share in enumerate(shares[q]) if r != q)]
    return {"rows": rows, "borrowers": borrowers, "own": words.spread(shares[q][q] for q in range(len(names)))}


def _weights(result: ClusteredResult) -> Json:
    clusters, names = result.clusters, result.task.features
    sizes = [max((abs(cluster.model[i]) for cluster in clusters), default=0.0) for i in range(len(names))]
    listed = clusters[: servers.MOST_MODELS]
    return {
        "clusters": [cluster.name for cluster in listed],
        "rows": servers.weight_rows(servers.heaviest(names, sizes), [cluster.model for cluster in listed]),
    }


def _clients(result: ClusteredResult) -> Json:
    """The clients with the largest errors, and a sentence about all of them."""
    clients, test = result.clients, result.test
    errors = sorted(client.test_error for client in clients if words.is_number(client.test_error))
    if test is None or not errors:
        return {"words": "No client’s model was tested.", "rows": _in_words(clients[:MOST_CLIENTS], result)}
    middle = words.number(errors[len(errors) // 2])
    told = (
        f"The test errors of {words.counted(len(errors), 'client')} are {words.spread(errors)}, in the middle {middle}."
    )
    if words.is_number(baseline := test.baseline):
        useless = sum(error >= baseline for error in errors)
        who = f"{words.counted(useless, 'client')} did no" if useless else "All did"
        told += f" {who} better than {servers.baseline(test)}."
    if len(errors) < len(clients):
        told += f" {words.counted(len(clients) - len(errors), 'client')} had no test records."
    # As sorted() keeps the order of equals, the page stays a function of the folder.
    worst = sorted(clients, key=lambda row: -row.test_error if words.is_number(row.test_error) else math.inf)
    return {"words": told, "rows": _in_words(worst[:MOST_CLIENTS], result)}


def summary(result: ClusteredResult) -> Iterator[str]:
    rows = [(c.name, f"{c.clients}", printed.error(c.test_error)) for c in result.clusters]
    yield from printed.table(("cluster", "clients", "test error"), rows)
    if (test := result.test) is not None:
        lines = [(row.method, printed.error(row.test_error)) for row in result.comparison]
        lines.append(("without features", printed.error(test.baseline)))
        yield ""
        yield from printed.table(("all clients", test.measure), lines)
    yield printed.rounds_of_servers(result.rounds, result.disagreement)
    yield from printed.privacy_lines(result)


def measured(run: ClusteredRun) -> Iterator[Measured]:
    test = run.result.test
    if test is None:
        return
    for index, row in enumerate(run.result.comparison):
        yield Measured(row.method, test.measure, "comparison" if index else "test_error", row.test_error)
    for cluster in run.result.clusters:
        yield Measured(cluster.name, test.measure, "clusters.test_error", cluster.test_error)
    yield Measured(BASELINE_MEASURE, test.measure, "test", test.baseline)


def forecast(told: Json) -> Iterator[str]:
    if (chosen := told.get("chosen")) is not None:
        yield from servers.choice_lines(chosen)
    yield from servers.sums_lines(told.get("sums_take"))
