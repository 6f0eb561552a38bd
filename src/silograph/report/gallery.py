"""One page for all that was redone of the papers: statement, ours, verdict, command, pictures."""

from __future__ import annotations

from collections import Counter

from silograph.core.types import Json
from silograph.report import ours_and_theirs, words
from silograph.report.page import TABLES, markup, render
from silograph.report.reproduced_page import SHADES, panels, read, shaded

#: By the beginning of an entry's name.
PAPERS = {
    "s0": "S0: consensus graphs with differential privacy",
    "s1": "S1: privatized graph federated learning",
    "s2": "S2: personalised graph federated learning by ADMM",
    "s3": "S3: graph learning across data silos",
    "s4": "S4: personalised federated learning with differential privacy and a convergence guarantee",
}
#: Panels of one entry that the gallery shows; its own page shows all of them.
MOST_PANELS = 2
OUTCOMES = ("reproduced", "not reproduced", "statement does not hold", "not enough repetitions", "not clear")


def page(entries: list[Json], about: Json) -> str:
    """The gallery of these entries, in their order. `about` says how it was made: mode, version, command."""
    papers: dict[str, list[Json]] = {}
    for entry in sorted(entries, key=lambda entry: str(entry["name"][:2])):
        papers.setdefault(PAPERS.get(entry["name"][:2], "Others"), []).append(_shown(entry))
    shown = [entry for members in papers.values() for entry in members]
    rules = words.first_seen(verdict["rule"] for entry in shown for verdict in entry["verdicts"])
    total = Counter(verdict["outcome"] for entry in shown for verdict in entry["verdicts"])
    seconds = {clock: sum(entry["seconds"][clock] for entry in shown if entry["seconds"]) for clock in ("wall", "cpu")}
    return render(
        "gallery.html.j2",
        (TABLES,),
        papers=papers,
        about=about,
        rules=rules,
        total=_counts(total),
        states=Counter(entry["state"] for entry in shown),
        minutes={clock: value / 60.0 for clock, value in seconds.items()},
    )


def _shown(entry: Json) -> Json:
    if entry["state"] != "made":
        return {"command": None, "seconds": None} | entry | {"verdicts": [], "counts": [], "pictures": [], "more": 0}
    table = read({"title": entry["title"], "curves": []} | entry["table"], f"gallery: {entry['name']}")
    drawn = panels(table.curves)
    compared = [
        {"name": f"{metric}: ours and theirs", "svg": markup(svg)}
        for metric, svg in ours_and_theirs.pictures(table.rows)
    ]
    return entry | {
        "verdicts": shaded(table.verdicts),
        "counts": _counts(Counter(verdict.outcome for verdict in table.verdicts)),
        "pictures": [*compared, *drawn[:MOST_PANELS]],
        "more": max(0, len(drawn) - MOST_PANELS),
        "seeds": table.seeds,
        "printed": any(row.paper is not None for row in table.rows),
    }


def _counts(found: Counter[str]) -> list[Json]:
    """How many of each outcome, with its colour."""
    return [{"outcome": o, "count": found[o], "shade": SHADES.get(o, "part")} for o in OUTCOMES if found[o]]
