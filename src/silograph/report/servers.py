"""What the pages of models over a graph of servers have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from silograph.core.errors import DamageError
from silograph.core.results import ADVICE, Compared, Guarantee, LinearTask, Privacy, ServerGraph, ServerRound, Test
from silograph.core.schema import shortened
from silograph.core.types import Json
from silograph.report import charts, figures, row_charts, words
from silograph.report.page import markup, render_run, summarise
from silograph.report.privacy_words import MOST_GUARANTEES, PrivacyWords
from silograph.report.read import RunFolder, check_edge, check_unique

_WORTH_SAYING = 60.0  # seconds
#: More servers than this make neither a readable picture nor a quick layout.
MOST_SERVERS = 400
MOST_FEATURES, MOST_MODELS = 40, 12

LOSSES = {"logistic": "logistic model", "ridge": "least-squares model", "huber": "robust (Huber) linear model"}
BASELINE_WORDS = {
    "error rate": "the majority baseline (always the commoner class)",
    "mean squared error": "the mean baseline (always the test answers’ own mean)",
}
WEIGHTS = {
    "lazy": "lazy Metropolis weights: each server keeps at least half of its own model",
    "metropolis": "Metropolis weights",
    "given": "weights given by the plan",
}
OBSERVERS = ("own server", "neighbour", "another agent", "wire", "public")


def check_servers(task: LinearTask, topology: ServerGraph, where: str) -> None:
    check_unique(task.features, f"{where}: task: features")
    check_unique(topology.servers, f"{where}: topology: servers")
    where = f"{where}: topology: links"
    for source, target, weight in topology.links:
        check_edge(source, target, topology.servers, where)
        if not 0 < weight < math.inf:
            raise DamageError(where, "a finite weight above 0", f"found {shortened(weight)}", ADVICE)


def render(template: str, run: RunFolder[Any], privacy: PrivacyWords, **values: Any) -> str:
    result, trace = run.result, run.result.trace
    return render_run(
        template,
        run,
        privacy,
        releases=summarise(run.ledger, by=("release_point", "mechanism", "observer")),
        network=_network(result.topology),
        convergence=_convergence(trace),
        levels=_levels(trace),
        answered=words.spread(row.answered for row in trace),
        skipped=sum(row.skipped for row in trace),
        chosen={"loss": result.task.loss, "ridge": result.task.ridge} | run.json["parameters"],
        baseline=baseline(result.test),
        guarantees=_guarantees(result.privacy, privacy),
        claims=_claims(result.privacy, privacy),
        **values,
    )


def unprotected(test: Test | None, comparison: Sequence[Compared]) -> list[str]:
    """What the budget of such a run does not protect, for the list at the top of its page."""
    return [
        *(["the test table: errors on it are exact"] if test is not None else []),
        *(["errors of models learned for comparison (simulation only)"] if len(comparison) > 1 else []),
    ]


def choice_lines(chosen: Json) -> list[str]:
    """The settings that were chosen from public numbers, as lines that a command prints."""
    what = "a constant alone"
    if chosen["slopes"]:
        whose = " over all groups together" if chosen["together"] else ""
        what = f"{chosen['rounds']} steps of size {chosen['step']:.3g}{whose}, and a check that they help"
    shares = ", ".join(f"{stage} {100.0 * share:.0f} %" for stage, share in chosen["shares"].items())
    return [
        f"chosen from public numbers: {what}",
        f"shares of the budget: {shares}",
        f"noise is expected to cost {chosen['expected']:.2g} of the answers' variance",
    ]


def constants_first(constants: bool, accuracy: tuple[str, str]) -> tuple[str, str]:
    """How accurate models are, after the words that they are constants, if they are."""
    if not constants:
        return accuracy
    told = "The models are constants, the mean answer: nothing of the features’ effects was clearly more than noise."
    return "partial", f"{told} {accuracy[1]}"


def sums_lines(takes: Json | None) -> list[str]:
    """A line on how long secure sums take on this machine, if it is long."""
    if takes is None or takes["seconds"] < _WORTH_SAYING:
        return []
    minutes = words.counted(math.ceil(takes["seconds"] / 60.0), "minute")
    cores = "one core" if takes["cores"] == 1 else f"{takes['cores']} cores"
    return [f"the secure sums will take about {minutes} on {cores} here"]


def observers(one: str, several: str) -> dict[str, str]:
    """Names of observers, if those who answer servers are called `one` and `several`."""
    texts = (f"{one}’s own server", "neighbouring servers", f"other {several}", "eavesdroppers", "the public")
    return dict(zip(OBSERVERS, texts, strict=True))


def are_constants(task: LinearTask, models: Iterable[Sequence[float]]) -> bool:
    """Whether no feature weighs anything in any model."""
    slopes = [place for place, name in enumerate(task.features) if name != "intercept"]
    return not any(model[place] for model in models for place in slopes)


def model_of(task: LinearTask, constants: bool) -> str:
    """The kind of model, its target and its features."""
    slopes = sum(name != "intercept" for name in task.features)
    if constants:
        return f"constant for “{task.target}”, in which {words.counted(slopes, 'feature')} weigh nothing"
    inputs = words.counted(slopes, "feature") + (" and an intercept" if slopes < len(task.features) else "")
    kind = LOSSES.get(task.loss, f"{task.loss} model")
    return f"{kind} of “{task.target}” from {inputs}"


def baseline(test: Test | None) -> str:
    """The prediction that needs no model."""
    return BASELINE_WORDS.get("" if test is None else test.measure, "the baseline")


def heaviest(names: Sequence[str], sizes: Iterable[float]) -> list[tuple[int, str]]:
    """The features that weigh most, in their given order, each with its place."""
    sizes = list(sizes)
    kept = sorted(range(len(names)), key=lambda i: -sizes[i])[:MOST_FEATURES]
    return [(i, names[i]) for i in sorted(kept)]


def weight_rows(features: Sequence[tuple[int, str]], models: Sequence[Sequence[float]]) -> list[tuple[str, list[str]]]:
    """A row for each feature: its weight in every model."""
    cells = words.column(model[i] for i, _ in features for model in models)
    return [(name, cells[row * len(models) : (row + 1) * len(models)]) for row, (_, name) in enumerate(features)]


def _network(topology: ServerGraph) -> Json:
    servers, links = topology.servers, topology.links
    label = f"Graph of servers: {words.counted(len(servers), 'server')}, {words.counted(len(links), 'link')}"
    drawable = links and len(servers) <= MOST_SERVERS
    return {
        "picture": markup(figures.graph_svg(servers, links, label=label, inline=True)) if drawable else "",
        "servers": len(servers),
        "links": len(links),
        "weights": WEIGHTS.get(topology.weights, topology.weights),
    }


def _convergence(trace: Sequence[ServerRound]) -> str:
    series = [
        ("movement", [(row.round, row.movement) for row in trace]),
        ("disagreement", [(row.round, row.disagreement) for row in trace if row.disagreement is not None]),
    ]
    return markup(charts.convergence_svg(series, "Movement and disagreement over the rounds, logarithmic axis"))


def _levels(trace: Sequence[ServerRound]) -> str:
    """The disagreement as the papers draw it, in dB."""
    rows = [(row.round, row.disagreement) for row in trace if row.disagreement is not None]
    if not rows:
        return ""
    points = [(t, 10 * math.log10(value) if 0 < value < math.inf else math.nan) for t, value in rows]
    label = "Disagreement over the rounds, in dB"
    return markup(charts.lines_svg([("disagreement", points)], label, x_name="round", y_name="dB"))


def spread_of_errors(
    groups: Sequence[tuple[str, Sequence[tuple[str, float | None]], float | None]], test: Test, dot: str, bar: str
) -> str:
    """A picture of the test errors of many: a dot for each, a bar for all of a group."""
    rows = [
        (name, [(who, error) for who, error in members if words.is_number(error)], math.nan if all_ is None else all_)
        for name, members, all_ in groups
    ]
    label = f"The {test.measure} of each {dot}, and of each {bar}"
    return markup(row_charts.dots_svg(rows, label, dot=dot, bar=bar, baseline=test.baseline))


def _guarantees(said: Privacy, privacy: PrivacyWords) -> Json:
    """A table of guarantees, a line for each name and a column for each observer. Equal lines are joined."""
    stated = {(each.site, each.observer): each for each in said.guarantees}
    found = words.first_seen(observer for _, observer in stated)
    observers = [name for name in OBSERVERS if name in found] + [name for name in found if name not in OBSERVERS]
    equal: dict[str, tuple[list[str], list[Guarantee | None]]] = {}
    for name in privacy.names:
        cells = [stated.get((name, observer)) for observer in observers]
        costs = [cell and (cell.epsilon, cell.delta, cell.accountant) for cell in cells]
        equal.setdefault(repr(costs), ([], cells))[0].append(name)
    rows = list(equal.values())
    if len(rows) > MOST_GUARANTEES:
        rows.sort(key=lambda row: [-(cell.epsilon if cell else math.inf) for cell in row[1]])
    return {
        "noun": privacy.noun,
        "observers": [words.capital(name) for name in observers],
        "rows": [
            {
                "name": privacy.everybody(names),
                "cells": cells,
                "accountants": words.listed(
                    words.first_seen(cell.accountant for cell in cells if cell and cell.finite)
                ),
            }
            for names, cells in rows[:MOST_GUARANTEES]
        ],
        "left_out": sum(len(names) for names, _ in rows[MOST_GUARANTEES:]),
    }


def _claims(said: Privacy, privacy: PrivacyWords) -> list[Json]:
    """A paper's claims beside the accounted cost, joined for all names and observers with the same numbers."""
    rows = [(each.observer, each.site, each) for each in said.guarantees if each.claim]
    return [
        vars(first) | {"names": privacy.everybody(sites), "observers": words.listed(observers)}
        for first, observers, sites in words.alike(rows, key=lambda each: repr((each.epsilon, each.claim)))
    ]
