"""What the pages of models over a graph of servers have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from silograph.core.types import Json
from silograph.report import charts, figures, words
from silograph.report.page import markup, render_run, summarise
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read_servers import ServerRun

#: More servers than this make neither a readable picture nor a quick layout.
MOST_SERVERS = 400
MOST_FEATURES, MOST_MODELS = 40, 12
MOST_GUARANTEES, MOST_NAMES = 20, 4

LOSSES = {"logistic": "logistic model", "ridge": "least-squares model", "huber": "robust (Huber) linear model"}
GUESSES = {"error rate": "always guessing the commoner class", "mean squared error": "always guessing the mean"}
WEIGHTS = {
    "lazy": "lazy Metropolis weights: each server keeps at least half of its own model",
    "metropolis": "Metropolis weights",
    "given": "weights given by the plan",
}
OBSERVERS = ("own server", "neighbour", "another agent", "wire", "public")
MEANING = {"loss": "what the models minimise", "ridge": "how strongly large weights are held back"}


def render(template: str, run: ServerRun, privacy: PrivacyWords, meaning: Mapping[str, str], **values: Any) -> str:
    result = run.result
    return render_run(
        template,
        run,
        privacy,
        releases=summarise(run.ledger, by=("site", "mechanism", "observer")),
        network=_network(run),
        convergence=_convergence(result),
        levels=_levels(result),
        answered=words.spread(row["answered"] for row in result["trace"]),
        skipped=sum(row["skipped"] for row in result["trace"]),
        parameters=_parameters(result, MEANING | dict(meaning)),
        guarantees=_guarantees(result, privacy),
        claims=_claims(result, privacy),
        **values,
    )


def observers(one: str, several: str) -> dict[str, str]:
    """How to write who looks, where those who answer servers are called so."""
    texts = (f"{one}’s own server", "neighbouring servers", f"other {several}", "eavesdroppers", "the public")
    return dict(zip(OBSERVERS, texts, strict=True))


def model_of(task: Json) -> str:
    """What kind of model, of what and from what."""
    slopes = sum(name != "intercept" for name in task["features"])
    inputs = words.counted(slopes, "feature") + (" and an intercept" if slopes < len(task["features"]) else "")
    kind = LOSSES.get(task["loss"], f"{task['loss']} model")
    return f"{kind} of “{task['target']}” from {inputs}"


def guess(test: Json) -> str:
    """The prediction that needs no model."""
    return GUESSES.get(test["measure"], "the baseline")


def beside(error: float | None, baseline: float | None) -> tuple[str, str]:
    """A class of the style sheet, and how much better or worse than the guess."""
    if not words.is_number(error) or not words.is_number(baseline):
        return "", "–"
    if error < baseline:
        return "", f"{words.number(baseline - error)} better"
    return "none", "no better" if error == baseline else f"{words.number(error - baseline)} worse"


def heaviest(names: Sequence[str], sizes: Iterable[float]) -> list[tuple[int, str]]:
    """The features that weigh most, in their given order, each with its place."""
    sizes = list(sizes)
    kept = sorted(range(len(names)), key=lambda i: -sizes[i])[:MOST_FEATURES]
    return [(i, names[i]) for i in sorted(kept)]


def weight_rows(features: Sequence[tuple[int, str]], models: Sequence[Sequence[float]]) -> list[tuple[str, list[str]]]:
    """A row for each feature: its weight in every model."""
    cells = words.column(model[i] for i, _ in features for model in models)
    return [(name, cells[row * len(models) : (row + 1) * len(models)]) for row, (_, name) in enumerate(features)]


def _network(run: ServerRun) -> Json:
    topology = run.result["topology"]
    servers, links = topology["servers"], run.links
    label = f"Graph of servers: {words.counted(len(servers), 'server')}, {words.counted(len(links), 'link')}"
    drawable = links and len(servers) <= MOST_SERVERS
    return {
        "picture": markup(figures.graph_svg(servers, links, label=label, inline=True)) if drawable else "",
        "servers": len(servers),
        "links": len(links),
        "weights": WEIGHTS.get(topology["weights"], topology["weights"]),
    }


def _convergence(result: Json) -> str:
    series = [(name, [(row["round"], row[name]) for row in result["trace"]]) for name in ("movement", "disagreement")]
    return markup(charts.convergence_svg(series, "Movement and disagreement over the rounds, logarithmic axis"))


def _levels(result: Json) -> str:
    """The disagreement as the papers draw it, in dB."""
    rows = [(row["round"], row["disagreement"]) for row in result["trace"]]
    points = [(t, 10 * math.log10(value) if 0 < value < math.inf else math.nan) for t, value in rows]
    label = "Disagreement over the rounds, in dB"
    return markup(charts.lines_svg([("disagreement", points)], label, x_name="round", y_name="dB"))


def spread_of_errors(
    groups: Sequence[tuple[str, Sequence[tuple[str, float | None]], float | None]], test: Json, dot: str, bar: str
) -> str:
    """A picture of the test errors of many: a dot for each, a bar for all of a group."""
    rows = [
        (name, [(who, error) for who, error in members if words.is_number(error)], math.nan if all_ is None else all_)
        for name, members, all_ in groups
    ]
    label = f"The {test['measure']} of each {dot}, and of each {bar}"
    return markup(charts.dots_svg(rows, label, dot=dot, bar=bar, guess=test["baseline"]))


def _parameters(result: Json, meaning: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, value and meaning."""
    values = {key: result["task"][key] for key in ("loss", "ridge")} | result["parameters"]

    def text(name: str, value: object) -> str:
        if value is None and name in ("sample", "batch"):
            return "all"
        if isinstance(value, bool):
            return "yes" if value else "no"
        ends = map(words.number, value if isinstance(value, list) else [value])
        return " to ".join(words.first_seen(ends))

    return [(name, text(name, value), meaning.get(name, "")) for name, value in values.items()]


def _guarantees(result: Json, privacy: PrivacyWords) -> Json:
    """Names by observers; a single line for those that are equal."""
    stated = {(row["site"], row["observer"]): row for row in result["privacy"]["guarantees"]}
    found = words.first_seen(observer for _, observer in stated)
    observers = [name for name in OBSERVERS if name in found] + [name for name in found if name not in OBSERVERS]
    equal: dict[str, tuple[list[str], list[Json | None]]] = {}
    for name in privacy.names:
        cells = [stated.get((name, observer)) for observer in observers]
        equal.setdefault(repr(_costs(cells)), ([], cells))[0].append(name)
    rows = list(equal.values())
    if len(rows) > MOST_GUARANTEES:
        rows.sort(key=lambda row: [-_epsilon(cell) for cell in row[1]])
    return {
        "noun": privacy.noun,
        "observers": [words.capital(name) for name in observers],
        "rows": [
            {
                "name": _everybody(names, privacy),
                "cells": cells,
                "accountants": words.listed(
                    words.first_seen(cell["accountant"] for cell in cells if cell and math.isfinite(cell["epsilon"]))
                ),
            }
            for names, cells in rows[:MOST_GUARANTEES]
        ],
        "left_out": sum(len(names) for names, _ in rows[MOST_GUARANTEES:]),
    }


def _everybody(names: Sequence[str], privacy: PrivacyWords) -> str:
    return f"Every {privacy.noun}" if len(names) == len(privacy.names) > 1 else words.listed(names, MOST_NAMES)


def _costs(cells: Sequence[Json | None]) -> list[tuple[object, ...] | None]:
    return [(cell["epsilon"], cell["delta"], cell["accountant"]) if cell else None for cell in cells]


def _epsilon(cell: Json | None) -> float:
    return cell["epsilon"] if cell else math.inf


def _claims(result: Json, privacy: PrivacyWords) -> list[Json]:
    """What a paper claims, beside what was accounted: once for all names and observers to which it applies equally."""
    by_observer: dict[str, list[Json]] = {}
    for row in result["privacy"]["guarantees"]:
        if row["claim"]:
            by_observer.setdefault(repr((row["observer"], row["epsilon"], row["claim"])), []).append(row)
    by_names: dict[str, list[Json]] = {}
    for rows in by_observer.values():
        names = [row["site"] for row in rows]
        row = rows[0] | {"names": _everybody(names, privacy)}
        by_names.setdefault(repr((names, row["epsilon"], row["claim"])), []).append(row)
    return [rows[0] | {"observers": words.listed([row["observer"] for row in rows])} for rows in by_names.values()]
