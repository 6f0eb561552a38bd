"""The page of a run that learned a model for every client, in clusters, over a graph of servers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from silograph.core.types import Json
from silograph.families.clusters.read import guarded, read
from silograph.report import printed, servers, words
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import GUESSED, Measured
from silograph.report.read_servers import ServerRun

__all__ = ["forecast", "measured", "page", "privacy_of", "read", "summary"]

MOST_CLIENTS = 40
#: Dots in a row of a picture.
MOST_DRAWN = 200
#: How dark a whole share is, in percent: the number on it must stay readable.
DARKEST = 40
#: Where the guess stands in the result.
GUESS = "test.baseline"

COMBINED = {
    "uniform": "Servers took the plain mean over their neighbours and themselves, whatever the weights of the links.",
    "alone": "Servers did not combine their models: no link was used.",
}
PROTECT = {
    "none": "No noise was added to anything.",
    "records": "A client’s model got noise before it left the client, against everybody: its own server too.",
    "clients": "The sum over the clients of a server and a cluster got noise before it was used.",
}
MASKS = {
    "none": "No masks: a server saw every answer of its clients by itself.",
    "protocol": "Answers were added up under masks that cancel: a server saw the sum over its clients of a cluster, no "
    "single answer.",
    "skipped": "The masks that hide single answers were left out of this simulation, which changes no number. A "
    "deployment needs them.",
}
MEANING = {
    "penalty": "how strongly a client is held to what it shares with others (ρ)",
    "rounds": "how often clients answer and servers combine",
    "tau": "how much a cluster takes of other clusters, or that this is learned from their models",
    "tau_decay": "what tau is multiplied by from round to round",
    "form": "whether a cluster takes of the others, or of all with itself among them",
    "weights": "how a server weighs its neighbours: all alike, by the links, or not at all",
    "step": "whether a client solves its problem exactly in a round, or takes one gradient step",
    "sample": "how many clients of each server are asked in a round",
    "protect": "what is protected: nothing, single records, or whole clients",
    "clip": "the length to which what is bounded, a record’s gradient or a client’s answer, is shortened",
    "radius": "the length to which a record’s features are shortened",
    "masks": "whether single answers are hidden from a client’s own server",
    "noise": "standard deviation of the noise in a coordinate of what is released, where it is largest",
    "found": "whether the run found the clusters, rather than being given them",
}


def privacy_of(run: ServerRun) -> PrivacyWords:
    noun, names = guarded(run.result)
    return PrivacyWords(
        run,
        noun=noun,
        names=names,
        unprotected="No privacy protection: whoever hears what clients and servers send learns their models after "
        "every round exactly.",
        stated="The names of clients, servers, clusters and features, who is in which cluster and the graph of servers "
        "are stated here as they are.",
        observers=servers.observers("a client", "clients"),
    )


def page(run: ServerRun) -> str:
    result = run.result
    return servers.render(
        "clusters.html.j2",
        run,
        privacy_of(run),
        MEANING,
        people="clients",
        learned=what_was_learned(result),
        accuracy=how_accurate(result),
        guess=servers.guess(_test(result)),
        comparison=_comparison(result),
        clusters=_clusters(result),
        exchange=_exchange(result),
        weights=_weights(result),
        clients=_clients(result),
        spread=_spread(result),
        combined=_combined(result),
        measures=_measures(result["parameters"]),
    )


def what_was_learned(result: Json) -> tuple[str, str]:
    """The headline, and the sentence below it."""
    clients, clusters, chosen = result["clients"], result["clusters"], result["parameters"]
    who = f"{words.counted(len(clients), 'client')} of {words.counted(len(result['topology']['servers']), 'server')}"
    what = "a model" if len(clients) == 1 else "models"
    told = f"Every client has its own {servers.model_of(result['task'])}"
    if chosen["protect"] != "none" or chosen["masks"] != "none" or chosen["clip"] is not None:
        told += "; what is told of it here is the model that its server holds for its cluster"
    how = "found by the run" if chosen["found"] else "given"
    return (
        f"{who}, in {words.counted(len(clusters), 'cluster')}, learned {what} together.",
        f"{told}. The clusters were {how}. The run took {words.counted(result['rounds'], 'round')}.",
    )


def how_accurate(result: Json) -> tuple[str, str]:
    """A class of the style sheet, and how the models did beside other ways and a guess that needs no model."""
    test = result["test"]
    known = [row for row in result["comparison"] if words.is_number(row["test_error"])]
    if test is None or not known or known[0] is not result["comparison"][0]:
        return "", "Nothing is known of how well the models predict: they were not tested."
    ours, others = known[0]["test_error"], [(row["method"], row["test_error"]) for row in known[1:]]
    if words.is_number(test["baseline"]):
        others.append((servers.guess(test), test["baseline"]))
    sentence = f"On {words.counted(test['records'], 'test record')} the {test['measure']} is {words.number(ours)}"
    if others:
        sentence += ", beside " + words.listed([f"{words.number(error)} for {name}" for name, error in others])
    unbeaten = [name for name, error in others if ours >= error]
    if unbeaten:
        sentence += f". The run did no better than {words.listed(unbeaten)}"
    return "partial" if unbeaten else "", f"{sentence}."


def _test(result: Json) -> Json:
    test: Json = result["test"] or {"measure": "", "baseline": None}
    return test


def _told(rows: list[Json], result: Json) -> list[Json]:
    """The rows, each with its test error in words and how that compares with the guess."""
    errors = words.column(row["test_error"] for row in rows)
    baseline = _test(result)["baseline"]
    return [
        row | {"error": error, "beside": servers.beside(row["test_error"], baseline)}
        for row, error in zip(rows, errors, strict=True)
    ]


def _comparison(result: Json) -> list[Json]:
    """This run, other ways and the guess; what only a simulation can know is said to be an oracle's."""
    if result["test"] is None:
        return []
    rows = [row | {"path": "comparison" if k else "test_error"} for k, row in enumerate(result["comparison"])]
    if words.is_number(result["test"]["baseline"]):
        rows.append({"method": servers.guess(result["test"]), "test_error": result["test"]["baseline"], "path": GUESS})
    sizes = [_size(row["test_error"]) for row in rows]
    top = max(sizes, default=0.0) or 1.0
    told = [
        row
        | {"method": words.capital(row["method"]), "share": f"{100 * size / top:.1f}"}
        | {"kind": result["numbers_are"].get(row["path"], ""), "level": _level(row["test_error"], result["test"])}
        for row, size in zip(_told(rows, result), sizes, strict=True)
    ]
    return [row | {"kind": "guess", "beside": ("", "–")} if row["path"] == GUESS else row for row in told]


def _level(error: float | None, test: Json) -> str:
    """A squared error beside that of the guess, in dB."""
    if not words.is_number(error) or not words.is_number(test["baseline"]) or not test["baseline"] > 0:
        return words.number(None)
    return words.decibels(error / test["baseline"])


def _spread(result: Json) -> str:
    """The test errors of clients, cluster by cluster."""
    if result["test"] is None:
        return ""
    members: dict[str, list[tuple[str, float | None]]] = {}
    for client in result["clients"]:
        members.setdefault(client["cluster"], []).append((client["name"], client["test_error"]))
    groups = [
        (cluster["name"], members.get(cluster["name"], [])[:MOST_DRAWN], cluster["test_error"])
        for cluster in result["clusters"][:MOST_CLIENTS]
    ]
    return servers.spread_of_errors(groups, result["test"], "client", "cluster")


def _size(error: float | None) -> float:
    return float(error) if words.is_number(error) and 0 < error < math.inf else 0.0


def _clusters(result: Json) -> list[Json]:
    homes: dict[str, set[str]] = {}
    for client in result["clients"]:
        homes.setdefault(client["cluster"], set()).add(client["server"])
    return [row | {"servers": len(homes.get(row["name"], ()))} for row in _told(result["clusters"], result)]


def _exchange(result: Json) -> Json:
    """The first clusters by each other, each share with how dark it is drawn; and all of it in a sentence."""
    names, shares = [cluster["name"] for cluster in result["clusters"]], result["exchange"]
    kept = names[: servers.MOST_MODELS]
    texts = words.column(share for row in shares[: len(kept)] for share in row[: len(kept)])
    rows = []
    for q, name in enumerate(kept):
        depths = [f"{DARKEST * min(max(share, 0.0), 1.0):.0f}" for share in shares[q][: len(kept)]]
        rows.append((name, list(zip(texts[q * len(kept) : (q + 1) * len(kept)], depths, strict=True))))
    borrowers = [name for q, name in enumerate(names) if any(share for r, share in enumerate(shares[q]) if r != q)]
    if len(names) < 2:
        told = "There is a single cluster, so there was nobody to borrow from."
    elif not borrowers:
        told = "Nobody: every cluster kept to its own clients."
    else:
        own = words.spread(shares[q][q] for q in range(len(names)))
        every = "Every cluster" if len(borrowers) == len(names) else words.listed(borrowers)
        told = f"{every} borrowed from others. The share that clusters keep of their own models is {own}."
    return {"words": told, "rows": rows}


def _weights(result: Json) -> Json:
    clusters = result["clusters"]
    names = result["task"]["features"]
    sizes = [max((abs(cluster["model"][i]) for cluster in clusters), default=0.0) for i in range(len(names))]
    listed = clusters[: servers.MOST_MODELS]
    return {
        "clusters": [cluster["name"] for cluster in listed],
        "rows": servers.weight_rows(servers.heaviest(names, sizes), [cluster["model"] for cluster in listed]),
    }


def _clients(result: Json) -> Json:
    """The clients that fare worst, and all of them in a sentence."""
    clients, baseline = result["clients"], _test(result)["baseline"]
    errors = sorted(client["test_error"] for client in clients if words.is_number(client["test_error"]))
    if result["test"] is None or not errors:
        return {"words": "No client’s model was tested.", "rows": _told(clients[:MOST_CLIENTS], result)}
    middle = words.number(errors[len(errors) // 2])
    told = (
        f"The test errors of {words.counted(len(errors), 'client')} are {words.spread(errors)}, in the middle {middle}."
    )
    if words.is_number(baseline):
        useless = sum(error >= baseline for error in errors)
        who = f"{words.counted(useless, 'client')} did no" if useless else "All did"
        told += f" {who} better than {servers.guess(result['test'])}."
    if len(errors) < len(clients):
        told += f" {words.counted(len(clients) - len(errors), 'client')} had no test records."
    # As sorted() keeps the order of equals, the page stays a function of the folder.
    worst = sorted(clients, key=lambda row: -row["test_error"] if words.is_number(row["test_error"]) else math.inf)
    return {"words": told, "rows": _told(worst[:MOST_CLIENTS], result)}


def _combined(result: Json) -> str:
    how, weights = result["parameters"]["weights"], result["topology"]["weights"]
    return COMBINED.get(how, f"Servers combined their models with {servers.WEIGHTS.get(weights, weights)}.")


def _measures(parameters: Json) -> list[str]:
    """What was done to protect the clients, whether it suffices or not."""
    protect, clip, radius = parameters["protect"], parameters["clip"], parameters["radius"]
    noise = PROTECT.get(protect, f"Protected: {protect}.")
    if parameters["noise"]:
        noise += f" Its standard deviation is at most {words.number(parameters['noise'])} in a coordinate."
    said = [noise, MASKS.get(parameters["masks"], f"Masks: {parameters['masks']}.")]
    if radius is not None:
        said.append(f"A record’s features were shortened to the length {words.number(radius)} where they were longer.")
    if clip is not None:
        what = "A record’s gradient" if protect == "records" else "A client’s answer"
        said.append(f"{what} was shortened to the length {words.number(clip)} where it was longer.")
    if clip is None and radius is None:
        said.append("Nothing bounds how far one client, or one record, can move a model.")
    return said


def summary(result: Json) -> Iterator[str]:
    rows = [(c["name"], f"{c['clients']}", printed.error(c["test_error"])) for c in result["clusters"]]
    yield from printed.table(("cluster", "clients", "test error"), rows)
    if (test := result["test"]) is not None:
        lines = [(row["method"], printed.error(row["test_error"])) for row in result["comparison"]]
        lines.append(("without features", printed.error(test["baseline"])))
        yield ""
        yield from printed.table(("all clients", test["measure"]), lines)
    yield f"{result['rounds']} rounds, disagreement {result['disagreement']:.2e}"
    yield from printed.privacy_lines(result)


def measured(run: ServerRun) -> Iterator[Measured]:
    test = run.result["test"]
    if test is None:
        return
    for index, row in enumerate(run.result["comparison"]):
        yield Measured(row["method"], test["measure"], "comparison" if index else "test_error", row["test_error"])
    for cluster in run.result["clusters"]:
        yield Measured(cluster["name"], test["measure"], "clusters.test_error", cluster["test_error"])
    yield Measured(GUESSED, test["measure"], "test", test["baseline"])


def forecast(told: Json) -> Iterator[str]:
    return iter(())
