"""The page of a run that learned a model in every region of a graph of servers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from silograph.core.types import Json
from silograph.families.federation.read import FederationRun, read
from silograph.families.federation.result import FederationResult, Region
from silograph.report import printed, row_charts, scores, servers, words
from silograph.report.page import markup
from silograph.report.privacy_words import PrivacyWords, whole
from silograph.report.read import BASELINE_MEASURE, Measured

__all__ = ["RESULT", "forecast", "measured", "page", "privacy_of", "read", "summary"]

RESULT = FederationResult
MOST_REGIONS_DRAWN = 100
_UNPROTECTED = {
    "papers": "No privacy protection: whoever hears a server learns its region’s model exactly after every round, and "
    "with it what the region’s agents answered on average.",
    "effects": "No privacy protection: whoever hears a server learns sums over its region’s records exactly, such as "
    "their second moments.",
}


def privacy_of(run: FederationRun) -> PrivacyWords:
    return PrivacyWords(
        run,
        noun="region",
        names=[region.name for region in run.result.regions],
        unprotected=_UNPROTECTED.get(run.result.parameters.learner, _UNPROTECTED["papers"]),
        protects=whole("agent"),
        stated="the names of regions and features, the graph of servers, and how many agents each region has",
        also=servers.unprotected(run.result.test, run.result.comparison),
        observers=servers.observers("an agent", "agents"),
    )


def page(run: FederationRun) -> str:
    result = run.result
    ways = [
        scores.Score(row.method, row.test_error, "comparison" if k else "test_error")
        for k, row in enumerate(result.comparison)
    ]
    compared = scores.with_baseline(ways, result.test, servers.baseline(result.test)) if ways else []
    constants = servers.are_constants(result.task, [region.model for region in result.regions])
    values = {
        "model": servers.model_of(result.task, constants),
        "accuracy": servers.constants_first(constants, how_accurate(result)),
        "comparison": scores.table(compared, result.test, result.numbers_are),
        "regions": _regions(result),
        "weights": _weights(result),
    }
    return servers.render("models.html.j2", run, privacy_of(run), people="agents", **values)


def how_accurate(result: FederationResult) -> tuple[str, str]:
    """A class of the style sheet, and how the models did on the test records beside other ways and the baseline."""
    test, known = result.test, [region.test_error for region in result.regions if words.is_number(region.test_error)]
    one = len(_groups(result)) < len(result.regions)
    centroid = None if result.centroid is None else result.centroid.test_error
    untested = f"Nothing is known of how well the models predict: {scores.UNTESTED}"
    if test is None or not (known or words.is_number(centroid)):
        return "", untested
    whose = (
        "the one model of all regions" if one else "the centroid" if words.is_number(centroid) else "the worst region"
    )
    ours = centroid if words.is_number(centroid) else max(known)
    others = [scores.Score(row.method, row.test_error, "comparison") for row in result.comparison[1:]]
    ways = scores.with_baseline([scores.Score(whose, ours, "test_error"), *others], test, servers.baseline(test))
    beginning = f"On {words.counted(test.records, 'test record')} the {test.measure} of {whose} is {{}}"
    look, told = scores.sentence(ways, test, beginning, untested)
    if one or not known:
        return look, told
    told += f" The regions’ own models have {words.spread(known)}"
    useless = 0 if test.baseline is None else sum(error >= test.baseline for error in known)
    if useless:
        told += f"; {useless} of {words.counted(len(known), 'region')} did no better than {servers.baseline(test)}"
    return "partial" if useless else look, f"{told}."


def _groups(result: FederationResult) -> list[list[Region]]:
    """The regions that each line of a table is about: all of them at once where all have the same model."""
    same = result.centroid is not None and result.disagreement == 0
    return [result.regions] if same else [[region] for region in result.regions]


def _regions(result: FederationResult) -> Json:
    """The regions, then the centroid, each with its test error and how that compares with the baseline."""
    test, centroid, groups = result.test, result.centroid, _groups(result)
    baseline = None if test is None else test.baseline
    error_of_all = None if centroid is None else centroid.test_error
    errors = [*(group[0].test_error for group in groups), error_of_all]
    *texts, guessed = words.column([*errors, baseline])
    rows = [
        {
            "name": group[0].name if len(group) == 1 else "Every region",
            "agents": words.spread(region.agents for region in group),
            "records": words.spread(region.records for region in group),
        }
        for group in groups
    ]
    rows.append({"name": "Centroid", "agents": "–", "records": "–"})
    gains = scores.beside(test, [(error, baseline) for error in errors])
    told = [row | {"error": text, "beside": better} for row, text, better in zip(rows, texts, gains, strict=True)]
    apart, picture = len(groups) == len(result.regions), ""
    if test is not None and apart:
        members = [(region.name, region.test_error) for region in result.regions[:MOST_REGIONS_DRAWN]]
        own = [("Regions’ own models", members, error_of_all)]
        picture = servers.spread_of_errors(own, test, "region", "centroid")
    return {
        "rows": told[:-1],
        "centroid": told[-1] if apart and centroid is not None else None,
        "baselined": guessed,
        "picture": picture,
        "counted": any(region.records is not None for region in result.regions),
    }


def _weights(result: FederationResult) -> Json:
    """The models side by side: a picture, and a table of the regions that fit beside each other."""
    regions, centroid = result.regions, None if result.centroid is None else result.centroid.model
    dot = "one region"
    if len(_groups(result)) < len(regions):
        regions, centroid, dot = [replace(regions[0], name="Every region")], None, "every region"
    features = servers.heaviest(result.task.features, map(abs, centroid or regions[0].model))
    label = f"Weights of {words.counted(len(features), 'feature')} in {words.counted(len(regions), 'region')}"
    label += "" if centroid is None else " and centroid"
    drawn = [
        (
            name,
            [(region.name, region.model[i]) for region in regions[:MOST_REGIONS_DRAWN]],
            math.nan if centroid is None else centroid[i],
        )
        for i, name in features
    ]
    listed = regions[: servers.MOST_MODELS]
    return {
        "picture": markup(row_charts.dots_svg(drawn, label, dot=dot)),
        "drawn": min(len(regions), MOST_REGIONS_DRAWN),
        "regions": [region.name for region in listed],
        "all": len(regions),
        "centroid": centroid is not None,
        "rows": servers.weight_rows(
            features, [*([] if centroid is None else [centroid]), *(region.model for region in listed)]
        ),
    }


def summary(result: FederationResult) -> Iterator[str]:
    rows = [(region.name, f"{region.agents}", printed.error(region.test_error)) for region in result.regions]
    if result.centroid is not None:
        rows.append(("centroid", "", printed.error(result.centroid.test_error)))
    yield from printed.table(("region", "agents", "test error"), rows)
    if result.test is not None:
        lines = [(row.method, printed.error(row.test_error)) for row in result.comparison[1:]]
        lines.append(("without features", printed.error(result.test.baseline)))
        yield ""
        yield from printed.table(("beside", result.test.measure), lines)
    yield printed.rounds_of_servers(result.rounds, result.disagreement)
    yield from printed.privacy_lines(result, "region")


def measured(run: FederationRun) -> Iterator[Measured]:
    result, test = run.result, run.result.test
    if test is None:
        return
    if result.centroid is not None:
        yield Measured("centroid", test.measure, "test_error", result.centroid.test_error)
    for region in result.regions:
        yield Measured(region.name, test.measure, "regions.test_error", region.test_error)
    yield Measured(BASELINE_MEASURE, test.measure, "test", test.baseline)


def forecast(told: Json) -> Iterator[str]:
    if (chosen := told.get("chosen")) is not None:
        yield from servers.choice_lines(chosen)
    elif told.get("noise") is not None:
        least, most = (f"{end(told['noise']):.3g}" for end in (min, max))
        size = least if least == most else f"{least} to {most}, more in smaller regions"
        yield f"noise in a coordinate of what a region sends: standard deviation {size}"
    yield from servers.sums_lines(told.get("sums_take"))
    if reaches := told.get("reach"):
        names = [each["reach"] + (" (this plan)" if each["chosen"] else "") for each in reaches]
        rows = [("noise in a coordinate of the centroid", *(f"{each['centroid_noise']:.3g}" for each in reaches))]
        for k, one in enumerate(reaches[0]["coalitions"]):
            spent = (printed.at_most(each["coalitions"][k]["epsilon"]) for each in reaches)
            rows.append((f"epsilon against {one['who']}", *spent))
        yield ""
        yield from printed.table(("reach", *names), rows)
