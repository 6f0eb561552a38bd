"""The page of a run that learned a shared start, from which every client takes steps of its own."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from silograph.core.types import Json
from silograph.families.meta.read import guarded, is_published, names, read
from silograph.report import charts, printed, servers, words
from silograph.report.figures import LIGHT, svg, text
from silograph.report.page import markup, render_run, summarise
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import GUESSED, Measured, RunFolder

__all__ = ["forecast", "measured", "page", "privacy_of", "read", "summary"]

MOST_CLIENTS = 40
MOST_GUARANTEES, MOST_NAMES = 20, 4

ACCURACY, PAPER = "accuracy", "paper:"
#: Where the guess stands in the result.
GUESS = "test.baseline"

MODELS = {
    "linear": "a linear model",
    "mlp": "a network of dense layers",
    "cnn": "a convolutional network",
    "resnet18": "a residual network",
}
GUESSES = {
    ACCURACY: "always guessing the class a client saw most",
    "mean squared error": "always guessing the mean a client saw",
}
OBSERVERS = {
    "server": "the server",
    "other sites": "other clients",
    "wire": "eavesdroppers",
    "public": "the public",
}
MODES = {PAPER: "S4’s own version"}
#: What the ledger's sites are, without the number of their local step.
RELEASES = {"inner": "inner gradient", "outer": "outer gradient"}
TWO_RELEASES = (
    " The query sample gave two releases, each with √2 times that noise: together they tell no more than one with it."
)
MEANING = {
    "version": "sound, or S4’s own, whose account does not hold",
    "order": "whether a step heeds how the inner step depends on the start (second), or not (first)",
    "rounds": "how often clients answer and the server combines",
    "local_steps": "how many steps a source client takes in a round",
    "rate": "the chance of a record to be in a sample",
    "inner_step": "the size of a source client’s trial step from the start (η)",
    "outer_step": "the size of the steps in which the start moves (β)",
    "personal_step": "the size of a new client’s step",
    "personal_steps": "how many steps a new client takes",
    "clip": "the length to which a record’s gradient is shortened (in S4’s own version: a sample’s mean)",
    "curvature_clip": "the same for a record’s curvature, where it differs",
    "sigma": "the noise in all that a sample gives, in units of the clip and before the division by the sample’s size",
    "device": "where the network was computed",
}


def privacy_of(run: RunFolder) -> PrivacyWords:
    noun, protected = guarded(run.result)
    return PrivacyWords(
        run,
        noun=noun,
        names=protected,
        unprotected="No privacy protection: whoever hears a client learns its model after every round exactly, and "
        "with it what its records did to the start.",
        stated="The names of clients, features and classes and the number of records of each client are stated here as "
        "they are.",
        observers=OBSERVERS,
    )


def page(run: RunFolder) -> str:
    result = run.result
    mode, relation = result["privacy"]["mode"], result["privacy"]["relation"].partition(":")[0]
    named = result | {"privacy": result["privacy"] | {"mode": MODES.get(mode, mode), "relation": relation}}
    return render_run(
        "meta.html.j2",
        replace(run, result=named),
        privacy_of(run),
        releases=_releases(run.ledger),
        learned=what_was_learned(result),
        accuracy=how_good(result),
        records=words.spread(client["records"] for client in result["clients"]),
        gets=_gets(result),
        comparison=_comparison(result),
        newcomers=_newcomers(result),
        higher=bool(result["test"]) and result["test"]["measure"] == ACCURACY,
        round=_round(result["parameters"]),
        convergence=_convergence(result),
        parameters=[(name, words.number(value), MEANING.get(name, "")) for name, value in result["parameters"].items()],
        guarantees=_guarantees(result),
        measures=_measures(result),
        budget=_budget(run),
    )


def what_was_learned(result: Json) -> tuple[str, str]:
    """The headline, and the sentence below it."""
    task, model, target = result["task"], result["model"], f"“{result['task']['target']}”"
    does = f"it tells {words.number(len(task['classes']))} classes of {target} apart"
    if task["answers"] == "numbers":
        does = f"it predicts {target}"
    inputs = words.counted(len(task["features"]), "feature")
    if not task["features"]:
        sides = " × ".join(map(words.number, task["shape"]))
        inputs = f"{'pictures' if len(task['shape']) == 3 else 'records'} of {sides} numbers"
    return (
        f"{words.counted(len(result['clients']), 'source client')} learned a shared start.",
        f"The start is {MODELS.get(model['name'], model['name'])} with "
        f"{words.counted(model['parameters'], 'parameter')}. A client takes {_steps(result)} from it on its own "
        f"records and has a model of its own: from {inputs} {does}. "
        f"The run took {words.counted(result['rounds'], 'round')}.",
    )


def how_good(result: Json) -> tuple[str, str]:
    """A class of the style sheet, and how new clients did after their steps, beside other ways and a guess."""
    test, rows = result["test"], _scores(result)
    if not rows or not words.is_number(rows[0]["score"]):
        return "", "Nothing is known of how well the start serves a new client: none has tried it."
    ours, others = rows[0]["score"], [row for row in rows[1:] if words.is_number(row["score"])]
    sentence = (
        f"On {words.counted(test['records'], 'record')} that {words.counted(len(result['new']), 'new client')} held "
        f"back, the {test['measure']} after {_steps(result)} of their own is {words.number(ours)} on average"
    )
    if others:
        sentence += ", beside " + words.listed([f"{words.number(row['score'])} ({row['method']})" for row in others])
    unbeaten = [row["method"] for row in others if _better_by(test, ours, row["score"]) <= 0]
    if unbeaten:
        sentence += f". The run did no better than {words.listed(unbeaten)}"
    return "partial" if unbeaten else "", f"{sentence}."


def _steps(result: Json) -> str:
    amount = result["parameters"]["personal_steps"]
    return "one step" if amount == 1 else words.counted(amount, "step")


def _better_by(test: Json, ours: float, other: float) -> float:
    return ours - other if test["measure"] == ACCURACY else other - ours


def _scores(result: Json) -> list[Json]:
    """This run, the start as it is, other ways, and the guess; each with where its kind of number is told."""
    test, new = result["test"], result["new"]
    rows = [row | {"path": "comparison"} for row in result["comparison"]]
    if test is None or not rows:
        return []
    before = _mean([client["before"] for client in new])
    rows.insert(1, {"method": "the start without a step", "score": before, "path": "new"})
    if words.is_number(test["baseline"]):
        rows.append({"method": GUESSES.get(test["measure"], "a guess"), "score": test["baseline"], "path": GUESS})
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _comparison(result: Json) -> list[Json]:
    """The scores in words; what only a simulation can know is said to be an oracle's."""
    rows, test = _scores(result), result["test"]
    sizes = [
        float(row["score"]) if words.is_number(row["score"]) and 0 < row["score"] < math.inf else 0.0 for row in rows
    ]
    top = max(sizes, default=0.0) or 1.0
    return [
        row
        | {"method": words.capital(row["method"]), "text": score, "share": f"{100 * (size / top):.1f}"}
        | {"kind": "guess" if row["path"] == GUESS else result["numbers_are"].get(row["path"], "")}
        | {"beside": ("", "–") if row["path"] == GUESS else _beside(test, row["score"], test["baseline"])}
        for row, score, size in zip(rows, words.column(row["score"] for row in rows), sizes, strict=True)
    ]


def _beside(test: Json, score: float | None, other: float | None) -> tuple[str, str]:
    """A class of the style sheet, and how much better or worse than the other."""
    if test["measure"] == ACCURACY:
        score, other = (-value if words.is_number(value) else None for value in (score, other))
    return servers.beside(score, other)


def _gets(result: Json) -> str:
    """What becomes of the models of new clients."""
    if not result["new"]:
        return "No new client has tried it in this run."
    who = words.counted(len(result["new"]), "new client")
    where = "are in the folder models/new" if is_published(result) else "stayed with them"
    return f"{who} made it their own and tested that on records they had held back. Their models {where}."


def _newcomers(result: Json) -> Json:
    """New clients before and after their steps: in a sentence, in a picture, by their spread, and one by one."""
    test, new = result["test"], result["new"]
    if not new:
        return {}
    gains = [_better_by(test, client["after"], client["before"]) for client in new]
    lost = sum(not gain > 0 for gain in gains)
    # As sorted() keeps the order of equals, the page stays a function of the folder.
    rows = sorted(new, key=lambda client: _better_by(test, client["after"], 0.0))[:MOST_CLIENTS]
    columns = {key: words.column(client[key] for client in rows) for key in ("before", "after", "loss")}
    told = [
        client
        | {key: column[k] for key, column in columns.items()}
        | {"gain": _beside(test, client["after"], client["before"])}
        for k, client in enumerate(rows)
    ]
    spreads = {
        "Before": [client["before"] for client in new],
        "After": [client["after"] for client in new],
        "Better by": gains,
    }
    return {
        "words": f"{words.counted(lost, 'client')} of {words.number(len(new))} gained nothing by their own records."
        if lost
        else "Every new client gained by its own records.",
        "picture": markup(_picture(rows, test)),
        "spreads": [(name, words.column(_quarters(values))) for name, values in spreads.items()],
        "rows": told,
    }


def _quarters(values: Sequence[float]) -> list[float]:
    """The lowest, the medians of the lower half, of all and of the upper half, the highest; and the mean."""
    ordered, half = sorted(values), (len(values) + 1) // 2
    middles = (median(part) for part in (ordered[:half], ordered, ordered[-half:]))
    return [ordered[0], *middles, ordered[-1], _mean(values)]


def _picture(clients: Sequence[Json], test: Json) -> str:
    """A row for every client, from a bar at its score before to a dot after; a dashed line at the guess."""
    step, width, left, right, above, below = 27, 640, 170, 24, 44, 48
    known = [value for client in clients for value in (client["before"], client["after"]) if _is_drawable(value)]
    if not known:
        return ""
    guess = [test["baseline"]] if _is_drawable(test["baseline"]) else []
    top = _rounded_up(max(*known, *guess, 1.0 if test["measure"] == ACCURACY else 0.0))
    across = charts.Axis(0.0, top, left, width - right)
    bottom = above + step * len(clients)
    grid, marks, joins, bars, dots, labels = [], [], [], [], [], []
    for value in (top * k / 4 for k in range(5)):
        x = f"{across(value):.1f}"
        grid.append(f'<path d="M{x} {above}V{bottom}"/>')
        marks.append(f'<text x="{x}" y="{bottom + 19}" text-anchor="middle">{words.number(value)}</text>')
    for index, client in enumerate(clients):
        y, name = above + step * (index + 0.5), client["name"]
        labels.append(f'<text x="{left - 14}" y="{y + 4:.1f}" text-anchor="end">{text(name, 22)}</text>')
        before, after = (across(client[key]) if _is_drawable(client[key]) else None for key in ("before", "after"))
        if before is not None and after is not None:
            joins.append(f'<path d="M{before:.1f} {y:.1f}H{after:.1f}"/>')
        if before is not None:
            told = f"<title>{text(name)}, before: {words.number(client['before'])}</title>"
            bars.append(f'<rect x="{before - 1.75:.1f}" y="{y - 8:.1f}" width="3.5" height="16" rx="1.5">{told}</rect>')
        if after is not None:
            told = f"<title>{text(name)}, after: {words.number(client['after'])}</title>"
            dots.append(f'<circle cx="{after:.1f}" cy="{y:.1f}" r="5.5">{told}</circle>')
    dashed = f'class="third" stroke="{LIGHT.third}" stroke-width="1.8" stroke-dasharray="5 4"'
    legend = [
        f'<rect class="centre" fill="{LIGHT.own}" x="{left}" y="8" width="3.5" height="16" rx="1.5"/>',
        f'<text x="{left + 12}" y="20">before</text>',
        f'<circle class="dot" fill="{LIGHT.shared}" cx="{left + 80}" cy="16" r="5.5"/>',
        f'<text x="{left + 93}" y="20">after</text>',
    ]
    if guess:
        legend.append(f'<path {dashed} d="M{left + 146} 16h26"/><text x="{left + 180}" y="20">guess, on average</text>')
    middle = (left + width - right) / 2
    marks.append(f'<text x="{middle}" y="{bottom + 40}" text-anchor="middle">{text(test["measure"])}</text>')
    body = (
        f'<g class="grid" stroke="{LIGHT.line}">{"".join(grid)}</g>'
        + "".join(f'<path {dashed} d="M{across(value):.1f} {above}V{bottom}"/>' for value in guess)
        + f'<g class="leader" stroke="{LIGHT.quiet}" stroke-width="1.5">{"".join(joins)}</g>'
        f'<g class="centre" fill="{LIGHT.own}">{"".join(bars)}</g>'
        f'<g class="dot" fill="{LIGHT.shared}">{"".join(dots)}</g>'
        f'<g class="quiet" fill="{LIGHT.quiet}" font-size="12.5">{"".join(marks)}{"".join(legend)}</g>'
        f'<g class="ink" fill="{LIGHT.ink}" font-size="13">{"".join(labels)}</g>'
    )
    label = f"The {test['measure']} of {words.counted(len(clients), 'new client')} before and after their own steps"
    return svg(body, (width, bottom + below), label, "chart wide", LIGHT, inline=True)


def _is_drawable(value: object) -> bool:
    return words.is_number(value) and 0 <= value < charts.LARGEST


def _rounded_up(value: float) -> float:
    """The next number whose quarters are round."""
    if value < 1.0 / charts.LARGEST:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * m for m in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10, 12) if power * m >= value)


def _round(parameters: Json) -> list[str]:
    """A round in words, one sentence or two for each of its parts."""
    first = "How that depends on the start, through the trial step, was left out."
    second = "The query sample’s curvature says how that depends on the start, through the trial step."
    return [
        "Every source client has divided its records for good into two sets, query and support. For each step it draws "
        f"a sample of both: every record is in it with the chance {words.number(parameters['rate'])}.",
        f"It tries a step of size {words.number(parameters['inner_step'])} from the start, along the gradient of the "
        "query sample: what a new client will do.",
        "The gradient of the support sample says how to improve where that step leads. "
        + (first if parameters["order"] == "first" else second),
        f"The client’s copy of the start moves that way, with a step of size {words.number(parameters['outer_step'])}. "
        f"After {words.counted(parameters['local_steps'], 'step')} the server takes the mean over the clients, by the "
        "sizes of their support sets.",
    ]


def _convergence(result: Json) -> str:
    points = [(row["round"], row["movement"]) for row in result["trace"]]
    return markup(
        charts.convergence_svg([("movement", points)], "Movement of the start over the rounds, logarithmic axis")
    )


def _guarantees(result: Json) -> Json:
    """What observers can learn, and what a paper claims: once for all clients and observers for which it is equal."""
    watched: dict[tuple[str, str], list[Json]] = {}
    for row in result["privacy"]["guarantees"]:
        terms = repr([row[key] for key in ("epsilon", "delta", "accountant", "claim")])
        watched.setdefault((row["site"], terms), []).append(row)
    lines: dict[str, tuple[Json, list[str]]] = {}
    for (site, terms), rows in watched.items():
        observers = [row["observer"] for row in rows]
        told = words.listed([OBSERVERS.get(name, name) for name in observers])
        lines.setdefault(repr((terms, observers)), (rows[0] | {"observers": words.capital(told)}, []))[1].append(site)
    found = list(lines.values())
    if len(found) > MOST_GUARANTEES:
        found.sort(key=lambda line: -line[0]["epsilon"])
    return {
        "rows": [row | {"names": _everybody(sites, result)} for row, sites in found[:MOST_GUARANTEES]],
        "left_out": len({site for _, sites in found[MOST_GUARANTEES:] for site in sites}),
    }


def _everybody(sites: list[str], result: Json) -> str:
    sources, new = names(result["clients"]), names(result["new"])
    groups = {"source client": sources, "new client": new, "client": [*sources, *new]}
    every = [f"Every {noun}" for noun, members in groups.items() if sites == members and len(sites) > 1]
    return every[0] if every else words.listed(sites, MOST_NAMES)


def _measures(result: Json) -> list[str]:
    """What was done to protect the clients, whether it suffices or not."""
    chosen, mode = result["parameters"], result["privacy"]["mode"]
    clip, sigma = words.number(chosen["clip"]), words.number(chosen["sigma"])
    sampled = "Which records were in a sample stayed with the client, which is why a small sample costs less."
    if mode == "exact":
        said = ["Nothing was shortened and no noise was added: clients sent their models as they are."]
    elif mode == PAPER:
        said = [
            f"The mean over a sample was shortened to the length {clip}, rather than what each record adds to it: one "
            "record can turn it around, and moves it by up to twice that.",
            f"Noise of standard deviation {sigma} times that length was added to each coordinate of both means of a "
            "step.",
            sampled,
        ]
    else:
        bent = chosen["clip"] if chosen["curvature_clip"] is None else chosen["curvature_clip"]
        also, shared = f", its curvature to {words.number(bent)}", TWO_RELEASES
        if chosen["order"] == "first":
            also = shared = ""
        said = [
            f"A record’s gradient was shortened to the length {clip} where it was longer{also}. Sums over a sample "
            "were divided by the size that it has on average, which is public.",
            f"Noise of {sigma} times what one record can move was in all that a sample gave.{shared}",
            sampled,
        ]
    return said + _own(result)


def _own(result: Json) -> list[str]:
    """What was done to protect new clients."""
    if not result["new"]:
        return []
    if not is_published(result):
        return ["New clients sent nothing: their models stayed with them, and cost nobody’s privacy."]
    if result["privacy"]["mode"] == "exact":
        return ["The models of new clients are in the folder models/new as they are."]
    return [
        "New clients published their models: the gradient of each of their steps was shortened record by record and "
        "got noise, for a budget of their own."
    ]


def _kind(site: str) -> str:
    """What was released, whatever the local step."""
    return re.sub(r" \d+$", "", site)


def _releases(ledger: Iterable[Json]) -> list[Json]:
    """The ledger in one row for each kind of release, with the sample it was made from."""
    rows = summarise(({**row, "kind": _kind(row["site"])} for row in ledger), by=("kind", "mechanism", "observer"))
    return [row | {"site": row["site"] + _sample(row)} for row in rows]


def _sample(row: Json) -> str:
    if row["sampling"] in ("1", "–"):
        return ""
    return f", from a sample of {_records(row['part'])} at the rate {row['sampling']}"


def _records(part: str) -> str:
    return f"the {part} set" if part else "all records"


def _budget(run: RunFolder) -> Json:
    """Where a record's budget goes, from the ledger: by the set it is in, and what is released from that."""
    new = set(names(run.result["new"]))
    sets: dict[tuple[bool, str], list[Json]] = {}
    for row in run.ledger:
        if row["mechanism"] == "gaussian":
            sets.setdefault((row["silo"] in new, row.get("part", "")), []).append(row)
    lines = []
    for (own, part), rows in sets.items():
        whole = sum(map(_precision, rows))
        kinds: dict[str, list[Json]] = {}
        for row in rows:
            kinds.setdefault(_kind(row["site"]), []).append(row)
        who = words.capital(_records(part)) + (" of a new client" if own else "")
        lines += [
            {"set": who, "what": RELEASES.get(kind, kind), "share": _percent(sum(map(_precision, found)) / whole)}
            | _sizes(found)
            for kind, found in kinds.items()
        ]
        if len(kinds) > 1:
            lines.append({"set": who, "what": "together", "share": _percent(1.0)} | _sizes(_paid_together(rows)))
    return {"rows": lines, "sets": any(part for _, part in sets)}


def _precision(row: Json) -> float:
    """(l2 / noise)^2, which adds up over Gaussian releases."""
    return float((row["l2"] / row["noise"]) ** 2)


def _paid_together(rows: Iterable[Json]) -> list[Json]:
    """One release in place of all that a sample gave: who is in the sample is in all of them."""
    samples: dict[tuple[str, int, str], Json] = {}
    for row in rows:
        place = (row["silo"], row["round"], row["batch"])
        known = samples.setdefault(place, row | {"l2": 1.0, "noise": math.inf})
        known["noise"] = 1.0 / math.sqrt(_precision(known) + _precision(row))
    return list(samples.values())


def _sizes(rows: Sequence[Json]) -> Json:
    return {
        "times": words.spread(Counter(row["silo"] for row in rows).values()),
        "rate": words.spread(row["sampling"] for row in rows),
        "noise": words.spread(row["noise"] / row["l2"] for row in rows),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def summary(result: Json) -> Iterator[str]:
    test = result["test"]
    if test is not None:
        rows = [
            (c["name"], f"{c['records']}", printed.error(c["before"]), printed.error(c["after"])) for c in result["new"]
        ]
        yield from printed.table(("new client", "records", "start", "personal"), rows)
        yield ""
        scores = [(row["method"], printed.error(row["score"])) for row in result["comparison"]]
        scores.append(("without features", printed.error(test["baseline"])))
        yield from printed.table(("all new clients", test["measure"]), scores)
    size = result["model"]["parameters"]
    yield f"{len(result['clients'])} source clients, {result['rounds']} rounds, {size} parameters"
    yield from printed.privacy_lines(result)
    yield from printed.claim_lines(next((g["claim"] for g in result["privacy"]["guarantees"]), None))


def measured(run: RunFolder) -> Iterator[Measured]:
    result, test = run.result, run.result["test"]
    if test is None:
        return
    for row in result["comparison"]:
        yield Measured(row["method"], test["measure"], "comparison", row["score"])
    for client in result["new"]:
        yield Measured(client["name"], f"{test['measure']} after its step", "new", client["after"])
    yield Measured(GUESSED, test["measure"], "test", test["baseline"])


def forecast(told: Json) -> Iterator[str]:
    """Where the budget of a record goes, and what other rounds and rates would need."""
    if told.get("noise_multiplier") is not None and told.get("spends"):
        yield f"noise of a sum: sigma {told['noise_multiplier']:.4g} times the clip, for all that a sample gives"
        rows = [
            (s["set"], s["release"], f"{s['share']:.0%}", f"{s['times']}", f"{s['noise']:.3g}") for s in told["spends"]
        ]
        yield ""
        yield from printed.table(
            ("set", "release", "share of its budget", "times", "noise in a coordinate of the mean"), rows
        )
    if told.get("planner"):
        yield ""
        rows = [
            (f"{p['rounds']}", f"{p['rate']:g}", f"{p['sigma']:.4g}", f"{p['noise']:.3g}", "this plan" * p["planned"])
            for p in told["planner"]
        ]
        yield from printed.table(("rounds", "rate", "sigma", "noise / movement", ""), rows)
        yield "noise / movement: in the shared start after all rounds, over the most that they can move it"
        yield ""
