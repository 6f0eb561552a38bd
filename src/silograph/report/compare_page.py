"""The page of a comparison of runs."""

from __future__ import annotations

from typing import Any

from silograph.core.types import Json
from silograph.report import figures, words
from silograph.report.compare import Change, Comparison
from silograph.report.heat_map import MOST_CELLS
from silograph.report.live_graph import Drawn, Kind, explorer
from silograph.report.page import GRAPH, TABLES, embedded, markup, render

MOST_ROWS = 200
MOST_NAMES = 4
MOST_PICTURES = 12

KINDS = (Kind("shared", "in both"), Kind("third", "gained"), Kind("own", "lost"))


def page(found: Comparison) -> str:
    changes = found.changes() if found.learned_graphs else []
    errors, costs, runs = found.errors(), found.equal_costs(), found.summaries()
    return render(
        "compare.html.j2",
        scripts=(TABLES, GRAPH) if changes else (TABLES,),
        method=found.method.replace("_", " "),
        names=found.names,
        runs=runs,
        differences=[row | {"values": [_text(v) for v in row["values"]]} for row in found.differences()[:MOST_ROWS]],
        signed=any(any(change.signs) for change in changes),
        changes=[_as_row(change) for change in changes[:MOST_ROWS]],
        pictures=_pictures(found, changes),
        explorer=embedded(_explorer(found, changes)) if changes else "",
        only_some=words.listed(found.only_some()),
        unlike=words.listed(found.unlike()),
        errors=[row | {"values": words.column(row["values"])} for row in errors[:MOST_ROWS]],
        cut=max(len(errors), len(changes)) > MOST_ROWS,
        costs=[
            row | {"sites": words.listed(row["sites"], MOST_NAMES), "observers": words.listed(row["observers"])}
            for row in costs[:MOST_ROWS]
        ],
        alike=len({(run["protected_unit"], run["relation"]) for run in runs if run["protected"]}) < 2,
    )


def _as_row(change: Change) -> Json:
    return {
        "graph": change.graph,
        "run": change.run,
        "before": len(change.before),
        "after": len(change.after),
        "gained": len(change.gained),
        "lost": len(change.lost),
        "turned": len(change.turned),
        "alike": words.number(None) if change.alike is None else f"{100 * change.alike:.0f} %",
    }


def _by_kind(change: Change) -> list[tuple[tuple[str, str, float], int]]:
    return [(edge, k) for k, edges in enumerate((change.kept, change.gained, change.lost)) for edge in edges]


def _explorer(found: Comparison, changes: list[Change]) -> Json:
    nodes = found.runs[0].result.nodes
    drawn = [
        Drawn(f"{change.graph}, {change.run} against {found.names[0]}", _by_kind(change), {}) for change in changes
    ]
    return explorer(nodes, KINDS, drawn, [], drawn=_is_drawable(found))


def _is_drawable(found: Comparison) -> bool:
    return len(found.runs[0].result.nodes) <= MOST_CELLS


def _pictures(found: Comparison, changes: list[Change]) -> Json:
    """The consensus of each later run against that of the first, in one layout."""
    chosen = [change for change in changes if change.graph == changes[0].graph][:MOST_PICTURES]
    if not chosen or not _is_drawable(found):
        return {"live": False, "views": []}
    nodes = found.runs[0].result.nodes
    edges = [figures.strongest([edge for edge, _ in _by_kind(change)], figures.MOST_EDGES) for change in chosen]
    union = [edge for each in edges for edge in each]
    shared: dict[str, Any] = {
        "places": figures.layout(nodes, union),
        "heaviest": max((weight for *_, weight in union), default=1.0),
        "inline": True,
    }

    def view(change: Change, drawn: list[tuple[str, str, float]]) -> Json:
        told = f"{words.counted(len(change.gained), 'edge')} gained, {words.number(len(change.lost))} lost"
        picture = figures.graph_svg(
            nodes,
            drawn,
            [edge[:2] for edge in change.lost],
            third=[edge[:2] for edge in change.gained],
            label=f"Consensus of {change.run} against {found.names[0]}: {told}",
            **shared,
        )
        return {"run": change.run, "told": told, "svg": markup(picture), "cut": len(_by_kind(change)) > len(drawn)}

    return {"live": True, "views": [view(change, drawn) for change, drawn in zip(chosen, edges, strict=True)]}


def _text(value: object) -> str:
    if isinstance(value, list):
        return words.listed([_text(inner) for inner in value], 6)
    return words.number(value) if isinstance(value, int | float | None) else str(value)
