"""A small card for notebooks: facts, a table, a picture. One piece of HTML that needs no style sheet and no script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from silograph.core.types import Json
from silograph.report.figures import graph_svg, text
from silograph.report.read import Edge
from silograph.report.words import bound, number

#: Nodes of a graph that a small picture can show.
MOST_NODES = 150
#: Rows of a table that a notebook shows; the others are counted.
MOST_ROWS = 12
_CELL = 'style="padding: .15em .8em .15em 0; text-align: left; border-bottom: 1px solid #8884"'


def card(
    title: str,
    facts: Sequence[tuple[str, object]],
    header: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
    picture: str = "",
) -> str:
    said = " · ".join(f"{text(name)} <b>{_told(value)}</b>" for name, value in facts if value is not None)
    table = ""
    if rows:
        head = "".join(f'<th scope="col" {_CELL}>{text(name)}</th>' for name in header)
        body = "".join(
            f"<tr>{''.join(f'<td {_CELL}>{_told(value)}</td>' for value in row)}</tr>" for row in rows[:MOST_ROWS]
        )
        more = f"<p>and {len(rows) - MOST_ROWS} more</p>" if len(rows) > MOST_ROWS else ""
        inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        table = f'<table style="border-collapse: collapse">{inner}</table>{more}'
    drawn = f'<div style="max-width: 26em; background: #fff">{picture}</div>' if picture else ""
    return f'<div style="font-size: .95em"><p><b>{text(title)}</b></p><p>{said}</p>{table}{drawn}</div>'


#: Of a table of sites; the costs are those against the observer who learns most.
COST = ("epsilon, worst observer", "delta")


def protected(privacy: Json) -> list[tuple[str, object]]:
    """Whom the costs protect, where they do."""
    claimed = any(not math.isinf(float(each["epsilon"])) for each in privacy["guarantees"])
    return [("epsilon is for", privacy["protected_unit"]), ("relation", privacy["relation"])] if claimed else []


def small_graph(
    nodes: Sequence[str], edges: Sequence[Edge], label: str, signs: Mapping[frozenset[str], int] | None = None
) -> str:
    """Nothing where there are too many nodes to tell apart."""
    if len(nodes) > MOST_NODES:
        return ""
    return graph_svg(nodes, edges, label=label, size=(520, 380), signs=signs, inline=True)


def worst(guarantees: Iterable[Json]) -> dict[str, tuple[str, str]]:
    """By site, epsilon and delta against the observer who learns most."""
    found: dict[str, Json] = {}
    for each in guarantees:
        held = found.setdefault(each["site"], each)
        if float(each["epsilon"]) > float(held["epsilon"]):
            found[each["site"]] = each
    return {
        site: ("∞ (no protection)", "") if math.isinf(float(g["epsilon"])) else (bound(g["epsilon"]), bound(g["delta"]))
        for site, g in found.items()
    }


def most_paid(privacy: Json | None) -> list[tuple[str, object]]:
    """The largest epsilon of anybody, with its delta; of a model from a file nothing is known."""
    if privacy is None or not privacy["guarantees"]:
        return []
    most = max(privacy["guarantees"], key=lambda guarantee: float(guarantee["epsilon"]))
    ((epsilon, delta),) = worst([most]).values()
    return [("epsilon, at most", epsilon), *([("delta", delta)] if delta else []), *protected(privacy)]


def _told(value: object) -> str:
    return text(value) if isinstance(value, str) else text(number(value))
