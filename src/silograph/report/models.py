"""The page of a run that learned a model in every unit of a graph of servers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from silograph.core.types import Json
from silograph.report import charts, figures, words
from silograph.report.page import markup, render_run, summarise
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read_models import ModelRun

#: More servers than this make neither a readable picture nor a quick layout.
MOST_SERVERS = 400
MOST_FEATURES = 40
MOST_UNITS_DRAWN, MOST_UNITS_LISTED = 100, 12
EVERY = "Every unit"

LOSSES = {"logistic": "logistic model", "ridge": "least-squares model", "huber": "robust (Huber) linear model"}
GUESSES = {"error rate": "always guessing the commoner class", "mean squared error": "always guessing the mean"}
WEIGHTS = {
    "lazy": "lazy Metropolis weights: each server keeps at least half of its own model",
    "metropolis": "Metropolis weights",
    "given": "weights given by the plan",
}
OBSERVERS = {
    "own server": "an agent’s own server",
    "neighbour": "neighbouring servers",
    "another agent": "other agents",
    "wire": "eavesdroppers",
    "public": "the public",
}
NOISE = {
    "none": "Between servers: nothing. They sent each other their models as they are.",
    "edge": "Between servers: noise on every message, drawn anew for each link. A server’s own copy stayed clean.",
    "sender": "Between servers: one draw of noise a round on what a server sent, its own copy included.",
    "homomorphic": "Between servers: noise that cancels over the whole network. Whoever hears one link hears a blurred "
    "model; whoever hears a unit and all its neighbours can take the noise off again.",
    "private": "Between servers: noise in all that a unit publishes, its server’s own copy included, so that nobody is "
    "handed anything cleaner than what the guarantees count.",
}
MASKS = {
    "none": "Inside a unit: no masks. A server saw every answer of its agents by itself.",
    "protocol": "Inside a unit: answers were added up under masks that cancel. A server saw the sum, no single answer.",
    "skipped": "Inside a unit: the masks that hide single answers were left out of this simulation, which changes no "
    "number. A deployment needs them.",
}
MEANING = {
    "loss": "what the models minimise",
    "ridge": "how strongly large weights are held back",
    "step": "how far a model moves in a round, shared out over an agent’s local steps",
    "rounds": "how often agents answer and servers combine",
    "sample": "how many agents of each unit are asked in a round",
    "epochs": "how many local steps an agent takes in a round",
    "batch": "how many records an agent uses for a local step",
    "perturbation": "the noise on what servers send each other",
    "clip": "the length to which an agent’s update is shortened",
    "noise": "standard deviation of the noise on each coordinate of what a unit publishes, where it is largest",
    "noise_least": "the same where it is smallest",
    "masks": "whether single answers are hidden from an agent’s own server",
}


def page(run: ModelRun) -> str:
    result = run.result
    privacy = PrivacyWords(
        run,
        noun="unit",
        names=[unit["name"] for unit in result["units"]],
        unprotected="No privacy protection: whoever hears a server learns its unit’s model after every round exactly, "
        "and with it what the unit’s agents answered on average.",
        stated="The names of units and features, the graph of servers and the number of agents in each unit are stated "
        "here as they are.",
        observers=OBSERVERS,
    )
    return render_run(
        "models.html.j2",
        run,
        privacy,
        releases=summarise(run.ledger, by=("site", "mechanism", "observer")),
        learned=what_was_learned(result),
        accuracy=how_accurate(result),
        units=_units(result),
        weights=_weights(result),
        network=_network(run),
        convergence=_convergence(result),
        answered=words.spread(row["answered"] for row in result["trace"]),
        skipped=sum(row["skipped"] for row in result["trace"]),
        parameters=_parameters(result),
        measures=_measures(result["parameters"]),
        guarantees=_guarantees(result),
        claims=_claims(result),
    )


def what_was_learned(result: Json) -> tuple[str, str]:
    """The headline, and the sentence below it."""
    units, task = result["units"], result["task"]
    agents = words.counted(sum(unit["agents"] for unit in units), "agent")
    slopes = sum(name != "intercept" for name in task["features"])
    inputs = words.counted(slopes, "feature") + (" and an intercept" if slopes < len(task["features"]) else "")
    what = "a model" if len(units) == 1 else "models"
    model = LOSSES.get(task["loss"], f"{task['loss']} model")
    return (
        f"{agents} in {words.counted(len(units), 'unit')} learned {what} together.",
        f"Every unit has its own {model} of “{task['target']}” from {inputs}; "
        f"the centroid is the mean of these models. The run took {words.counted(result['rounds'], 'round')}.",
    )


def how_accurate(result: Json) -> tuple[str, str]:
    """A class of the style sheet, and how the models did on the test records beside a guess that needs no model."""
    test, errors = result["test"], [unit["test_error"] for unit in result["units"]]
    known, centroid = [error for error in errors if words.is_number(error)], result["centroid"]["test_error"]
    if test is None or not (known or words.is_number(centroid)):
        return "", "Nothing is known of how well the models predict: they were not tested."
    baseline, measure = test["baseline"], test["measure"]
    sentence = f"On {words.counted(test['records'], 'test record')} the {measure} of the centroid is "
    sentence += f"{words.number(centroid)}, that of the units’ own models {words.spread(known)}"
    if not words.is_number(baseline):
        return "", f"{sentence}."
    sentence += f"; {GUESSES.get(measure, 'the baseline')} gives {words.number(baseline)}."
    useless = sum(error >= baseline for error in known)
    if useless:
        sentence += f" {useless} of {words.counted(len(known), 'unit')} did no better than that."
    lost = useless or (words.is_number(centroid) and centroid >= baseline)
    return "partial" if lost else "", sentence


def _units(result: Json) -> Json:
    """The units, then the centroid, each with its test error and how that compares with the guess."""
    test = result["test"] or {"measure": "", "baseline": None}
    rows = [*result["units"], {"name": "Centroid", "records": None, "agents": None} | result["centroid"]]
    errors = words.column([*(row["test_error"] for row in rows), test["baseline"]])
    rows = [
        {key: row[key] for key in ("name", "agents", "records")}
        | {"error": error, "beside": _beside(row["test_error"], test["baseline"])}
        for row, error in zip(rows, errors[:-1], strict=True)
    ]
    guess = GUESSES.get(test["measure"], "the baseline")
    return {"rows": rows[:-1], "centroid": rows[-1], "guess": guess, "guessed": errors[-1]}


def _beside(error: float | None, baseline: float | None) -> tuple[str, str]:
    """A class of the style sheet, and how much better or worse than the guess."""
    if not words.is_number(error) or not words.is_number(baseline):
        return "", "–"
    if error < baseline:
        return "", f"{words.number(baseline - error)} better"
    return "none", "no better" if error == baseline else f"{words.number(error - baseline)} worse"


def _weights(result: Json) -> Json:
    """The models side by side: a picture, and a table of the units that fit beside each other."""
    centroid, units = result["centroid"]["model"], result["units"]
    order = sorted(range(len(centroid)), key=lambda i: -abs(centroid[i]))[:MOST_FEATURES]
    features = [(i, result["task"]["features"][i]) for i in sorted(order)]
    label = f"Weights of {words.counted(len(features), 'feature')} in {words.counted(len(units), 'unit')} and centroid"
    drawn = [
        (name, [(unit["name"], unit["model"][i]) for unit in units[:MOST_UNITS_DRAWN]], centroid[i])
        for i, name in features
    ]
    models = [centroid, *(unit["model"] for unit in units[:MOST_UNITS_LISTED])]
    cells = words.column(model[i] for i, _ in features for model in models)
    return {
        "picture": markup(charts.dots_svg(drawn, label)),
        "drawn": min(len(units), MOST_UNITS_DRAWN),
        "units": [unit["name"] for unit in units[:MOST_UNITS_LISTED]],
        "rows": [(name, cells[row * len(models) : (row + 1) * len(models)]) for row, (_, name) in enumerate(features)],
    }


def _network(run: ModelRun) -> Json:
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


def _parameters(result: Json) -> list[tuple[str, str, str]]:
    """Name, value and meaning."""
    values = {key: result["task"][key] for key in ("loss", "ridge")} | result["parameters"]

    def text(name: str, value: object) -> str:
        if value is None and name in ("sample", "batch"):
            return "all"
        ends = map(words.number, value if isinstance(value, list) else [value])
        return " to ".join(words.first_seen(ends))

    return [(name, text(name, value), MEANING.get(name, "")) for name, value in values.items()]


def _measures(parameters: Json) -> list[str]:
    """What was done to protect the agents, whether it suffices or not."""
    clip, noise = parameters["clip"], parameters["noise"]
    between = NOISE.get(parameters["perturbation"], f"Between servers: {parameters['perturbation']}.")
    if noise:
        least = parameters["noise_least"] or noise
        sizes = words.first_seen(map(words.number, (least, noise)))
        between += f" Its standard deviation is {' to '.join(sizes)} in each coordinate"
        between += ", more in smaller units." if least < noise else "."
    return [
        MASKS.get(parameters["masks"], f"Inside a unit: masks {parameters['masks']}."),
        between,
        f"An agent’s update was shortened to the length {words.number(clip)} where it was longer."
        if clip is not None
        else "An agent’s update was used at its full length: nothing bounds how far one agent can move a model.",
    ]


def _guarantees(result: Json) -> Json:
    """Units by observers; a single line where all units are equal."""
    stated = {(row["site"], row["observer"]): row for row in result["privacy"]["guarantees"]}
    found = words.first_seen(observer for _, observer in stated)
    observers = [name for name in OBSERVERS if name in found] + [name for name in found if name not in OBSERVERS]
    rows = [(unit["name"], [stated.get((unit["name"], name)) for name in observers]) for unit in result["units"]]
    if len(rows) > 1 and all(_costs(cells) == _costs(rows[0][1]) for _, cells in rows):
        rows = [(EVERY, rows[0][1])]
    return {
        "observers": [name[:1].upper() + name[1:] for name in observers],
        "rows": [
            {
                "name": name,
                "cells": cells,
                "accountants": words.listed(
                    words.first_seen(cell["accountant"] for cell in cells if cell and math.isfinite(cell["epsilon"]))
                ),
            }
            for name, cells in rows
        ],
    }


def _costs(cells: Sequence[Json | None]) -> list[tuple[object, ...] | None]:
    return [(cell["epsilon"], cell["delta"], cell["accountant"]) if cell else None for cell in cells]


def _claims(result: Json) -> list[Json]:
    """What a paper claims, beside what was accounted: once for all units and observers to which it applies equally."""
    by_observer: dict[str, list[Json]] = {}
    for row in result["privacy"]["guarantees"]:
        if row["claim"]:
            by_observer.setdefault(repr((row["observer"], row["epsilon"], row["claim"])), []).append(row)
    by_units: dict[str, list[Json]] = {}
    for rows in by_observer.values():
        names = [row["site"] for row in rows]
        units = EVERY if len(names) == len(result["units"]) > 1 else words.listed(names)
        by_units.setdefault(repr((names, rows[0]["epsilon"], rows[0]["claim"])), []).append(rows[0] | {"units": units})
    return [rows[0] | {"observers": words.listed([row["observer"] for row in rows])} for rows in by_units.values()]
