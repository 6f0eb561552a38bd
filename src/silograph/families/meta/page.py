"""The page of a run that learned a shared start, from which every client takes steps of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from silograph.core import schema
from silograph.core.types import Json
from silograph.families.meta.read import MetaRun, read
from silograph.families.meta.result import MetaResult
from silograph.families.meta.spending import releases, spending
from silograph.report import charts, printed, row_charts, scores, words
from silograph.report.page import markup, render_run
from silograph.report.privacy_words import OBSERVERS, PrivacyWords, person_of, row_of
from silograph.report.read import BASELINE_MEASURE, Measured
from silograph.report.scores import ACCURACY, Score

__all__ = ["RESULT", "forecast", "measured", "page", "privacy_of", "read", "summary"]

RESULT = MetaResult
MOST_CLIENTS = 40

BASELINE_WORDS = {
    ACCURACY: "the majority baseline (always the class a client saw most)",
    "mean squared error": "the mean baseline (always the mean a client saw)",
}


def privacy_of(run: MetaRun) -> PrivacyWords:
    noun, protected = run.result.guarded
    return PrivacyWords(
        run,
        noun=noun,
        names=protected,
        unprotected="No privacy protection: whoever hears a client learns its model exactly after every round, and "
        "with it what its records did to the start.",
        protects=(person_of if "person" in run.result.privacy.protected_unit else row_of)(noun),
        stated="the names of clients, features and classes, and how many records each client has",
        also=["the scores of new clients: they are exact"] if run.result.new else (),
        observers=OBSERVERS | {"other sites": "other clients"},
        groups={"source client": run.result.sources, "new client": run.result.newcomers},
    )


def page(run: MetaRun) -> str:
    result, test = run.result, run.result.test
    privacy = replace(result.privacy, relation=result.privacy.relation.partition(":")[0])
    taken = result.parameters.personal_steps
    steps = "one step" if taken == 1 else "steps" if taken is None else f"{words.number(taken)} steps"
    compared = _scores(result)
    beginning = ""
    if test is not None:
        beginning = (
            f"On {words.counted(test.records, 'record')} that {words.counted(len(result.new), 'new client')} held "
            f"back, the {test.measure} after {steps} of their own is {{}} on average"
        )
    untried = "Nothing is known of how well the start serves a new client: none has tried it."
    return render_run(
        "meta.html.j2",
        replace(run, result=replace(result, privacy=privacy)),
        privacy_of(run),
        releases=releases(run.ledger),
        accuracy=scores.sentence(compared, test, beginning, untried),
        comparison=scores.table(compared, test, result.numbers_are),
        steps=steps,
        newcomers=_newcomers(result),
        higher=test is not None and test.measure == ACCURACY,
        convergence=_convergence(result),
        chosen=run.json["parameters"],
        budget=spending(run),
    )


def _scores(result: MetaResult) -> list[Score]:
    """This run, the start as it is, other ways of learning, and the majority baseline."""
    if result.test is None or not result.comparison:
        return []
    first, *others = [Score(row.method, row.score, "comparison") for row in result.comparison]
    before = Score("the start without a step", _mean([client.before for client in result.new]), "new")
    baseline = BASELINE_WORDS.get(result.test.measure, "a baseline")
    return scores.with_baseline([first, before, *others], result.test, baseline)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _newcomers(result: MetaResult) -> Json:
    """New clients before and after their steps: in a picture, by their spread, and one by one."""
    test, new = result.test, result.new
    if test is None or not new:
        return {}
    gains = [scores.gain(test, client.after, client.before) for client in new]
    # As sorted() keeps the order of equals, the page stays a function of the folder.
    rows = sorted(new, key=lambda client: scores.gain(test, client.after, 0.0))[:MOST_CLIENTS]
    shown = ("before", "after", "alone", "loss")
    columns = {key: words.column(getattr(client, key) for client in rows) for key in shown}
    better = scores.beside(test, [(client.after, client.before) for client in rows])
    told = [
        vars(client) | {key: column[k] for key, column in columns.items()} | {"gain": better[k]}
        for k, client in enumerate(rows)
    ]
    spreads = {
        "Before": [client.before for client in new],
        "After": [client.after for client in new],
        "Better by": gains,
    }
    drawn = [(client.name, client.before, client.after) for client in rows]
    label = f"The {test.measure} of {words.counted(len(rows), 'new client')} before and after their own steps"
    least = 1.0 if test.measure == ACCURACY else 0.0
    return {
        "lost": sum(not gain > 0 for gain in gains),
        "left": sum(client.left for client in new),
        "picture": markup(row_charts.moves_svg(drawn, label, test.measure, baseline=test.baseline, least=least)),
        "spreads": [(name, words.column(_quarters(values))) for name, values in spreads.items()],
        "rows": told,
    }


def _quarters(values: Sequence[float]) -> list[float]:
    """The lowest, the medians of the lower half, of all and of the upper half, the highest; and the mean."""
    ordered, half = sorted(values), (len(values) + 1) // 2
    middles = (median(part) for part in (ordered[:half], ordered, ordered[-half:]))
    return [ordered[0], *middles, ordered[-1], _mean(values)]


def _convergence(result: MetaResult) -> str:
    points = [(row.round, row.movement) for row in result.trace]
    return markup(
        charts.convergence_svg([("movement", points)], "Movement of the start over the rounds, logarithmic axis")
    )


def summary(result: MetaResult) -> Iterator[str]:
    if (test := result.test) is not None:
        rows = [
            (c.name, f"{c.records}", *map(printed.error, (c.before, c.after, c.alone)), "left the start" * c.left)
            for c in result.new
        ]
        yield from printed.table(("new client", "records", "start", "personal", "alone", ""), rows)
        yield ""
        ways = [(row.method, printed.error(row.score)) for row in result.comparison]
        ways.append(("without features", printed.error(test.baseline)))
        yield from printed.table(("all new clients", test.measure), ways)
    yield f"{len(result.clients)} source clients, {result.rounds} rounds, {result.model.parameters} parameters"
    yield from printed.privacy_lines(result)
    yield from printed.claim_lines(schema.write(next((each.claim for each in result.privacy.guarantees), None)))


def measured(run: MetaRun) -> Iterator[Measured]:
    result, test = run.result, run.result.test
    if test is None:
        return
    for row in result.comparison:
        yield Measured(row.method, test.measure, "comparison", row.score)
    for client in result.new:
        yield Measured(client.name, f"{test.measure} after its step", "new", client.after)
    yield Measured(BASELINE_MEASURE, test.measure, "test", test.baseline)


def forecast(told: Json) -> Iterator[str]:
    """What was chosen, where the budget of a record goes, and what other rounds and rates would need."""
    if told.get("chosen"):
        chosen = ", ".join(f"{name} = {json.dumps(value)}" for name, value in told["chosen"].items())
        yield f"chosen from public numbers, by the budget: {chosen}"
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
