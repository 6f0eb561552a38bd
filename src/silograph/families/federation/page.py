"""The page of a run that learned a model in every unit of a graph of servers."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.core.types import Json
from silograph.families.federation.read import read
from silograph.report import charts, printed, servers, words
from silograph.report.page import markup
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import GUESSED, Measured
from silograph.report.read_servers import ServerRun

__all__ = ["forecast", "measured", "page", "privacy_of", "read", "summary"]

MOST_UNITS_DRAWN = 100

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


def privacy_of(run: ServerRun) -> PrivacyWords:
    return PrivacyWords(
        run,
        noun="unit",
        names=[unit["name"] for unit in run.result["units"]],
        unprotected="No privacy protection: whoever hears a server learns its unit’s model after every round exactly, "
        "and with it what the unit’s agents answered on average.",
        stated="The names of units and features, the graph of servers and the number of agents in each unit are stated "
        "here as they are.",
        observers=servers.observers("an agent", "agents"),
    )


def page(run: ServerRun) -> str:
    result = run.result
    return servers.render(
        "models.html.j2",
        run,
        privacy_of(run),
        MEANING,
        people="agents",
        learned=what_was_learned(result),
        accuracy=how_accurate(result),
        units=_units(result),
        weights=_weights(result),
        measures=_measures(result["parameters"]),
    )


def what_was_learned(result: Json) -> tuple[str, str]:
    """The headline, and the sentence below it."""
    units = result["units"]
    agents = words.counted(sum(unit["agents"] for unit in units), "agent")
    what = "a model" if len(units) == 1 else "models"
    return (
        f"{agents} in {words.counted(len(units), 'unit')} learned {what} together.",
        f"Every unit has its own {servers.model_of(result['task'])}; "
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
    sentence += f"; {servers.guess(test)} gives {words.number(baseline)}."
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
        | {"error": error, "beside": servers.beside(row["test_error"], test["baseline"])}
        for row, error in zip(rows, errors[:-1], strict=True)
    ]
    picture = ""
    if result["test"] is not None:
        members = [(unit["name"], unit["test_error"]) for unit in result["units"][:MOST_UNITS_DRAWN]]
        groups = [("Units’ own models", members, result["centroid"]["test_error"])]
        picture = servers.spread_of_errors(groups, test, "unit", "centroid")
    return {
        "rows": rows[:-1],
        "centroid": rows[-1],
        "guess": servers.guess(test),
        "guessed": errors[-1],
        "picture": picture,
    }


def _weights(result: Json) -> Json:
    """The models side by side: a picture, and a table of the units that fit beside each other."""
    centroid, units = result["centroid"]["model"], result["units"]
    features = servers.heaviest(result["task"]["features"], map(abs, centroid))
    label = f"Weights of {words.counted(len(features), 'feature')} in {words.counted(len(units), 'unit')} and centroid"
    drawn = [
        (name, [(unit["name"], unit["model"][i]) for unit in units[:MOST_UNITS_DRAWN]], centroid[i])
        for i, name in features
    ]
    listed = units[: servers.MOST_MODELS]
    return {
        "picture": markup(charts.dots_svg(drawn, label)),
        "drawn": min(len(units), MOST_UNITS_DRAWN),
        "units": [unit["name"] for unit in listed],
        "rows": servers.weight_rows(features, [centroid, *(unit["model"] for unit in listed)]),
    }


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


def summary(result: Json) -> Iterator[str]:
    rows = [(unit["name"], f"{unit['agents']}", printed.error(unit["test_error"])) for unit in result["units"]]
    rows.append(("centroid", "", printed.error(result["centroid"]["test_error"])))
    yield from printed.table(("unit", "agents", "test error"), rows)
    if result["test"] is not None:
        yield f"test: {result['test']['measure']}; without features {result['test']['baseline']:.4f}"
    yield f"{result['rounds']} rounds, disagreement {result['disagreement']:.2e}"
    yield from printed.privacy_lines(result, "unit")


def measured(run: ServerRun) -> Iterator[Measured]:
    result, test = run.result, run.result["test"]
    if test is None:
        return
    yield Measured("centroid", test["measure"], "test_error", result["centroid"]["test_error"])
    for unit in result["units"]:
        yield Measured(unit["name"], test["measure"], "units.test_error", unit["test_error"])
    yield Measured(GUESSED, test["measure"], "test", test["baseline"])


def forecast(told: Json) -> Iterator[str]:
    if told.get("noise") is not None:
        least, most = (f"{end(told['noise']):.3g}" for end in (min, max))
        size = least if least == most else f"{least} to {most}, more in smaller units"
        yield f"noise in a coordinate of what a unit sends: standard deviation {size}"
