"""The page of a paper's figure or table that was done again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from silograph.core import schema
from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.report import charts, words
from silograph.report.ours_and_theirs import BESIDE
from silograph.report.page import TABLES, markup, render

Number = int | float  # whole numbers stay whole: they are written otherwise


@dataclass(frozen=True)
class Row:
    """`paper` is what it prints, if it does; `reference` is another implementation's."""

    case: str
    method: str
    metric: str
    ours: Number
    std: Number
    paper: Number | None
    reference: Number | None = None
    verdict: str | None = None


@dataclass(frozen=True)
class Curve:
    """A hole in a curve is None: JSON has no word for a number that is none."""

    panel: str
    label: str
    x: list[Number]
    y: list[Number | None]
    unit: str
    x_name: str = "round"
    x_log: bool = False


@dataclass(frozen=True)
class Verdict:
    statement: str
    outcome: str
    found: str
    rule: str


@dataclass(frozen=True)
class Table:
    """A table or figure that was done again."""

    name: str
    title: str
    seeds: int
    rows: list[Row]
    notes: list[str]
    curves: list[Curve]
    verdicts: list[Verdict] = field(default_factory=list)


#: Names of colours, by outcome.
SHADES = {"reproduced": "good", "not reproduced": "bad", "statement does not hold": "bad"}


def read(payload: Json, where: str) -> Table:
    table = schema.read(Table, payload, where, DamageError, further=True)
    for index, curve in enumerate(table.curves):
        if len(curve.x) != len(curve.y):
            found = f"found {len(curve.x)} and {len(curve.y)}"
            raise DamageError(f"{where}: curves[{index}]", "as many values in x as in y", found)
    return table


def page(payload: Json) -> str:
    """The HTML page of a reproduced table: its curves, its numbers beside the paper's, its notes."""
    table = read(payload, "reproduced table")
    beside = {key: name for key, name in BESIDE.items() if any(getattr(row, key) is not None for row in table.rows)}
    values = {"rows": _rows(table.rows), "beside": beside, "verdicts": shaded(table.verdicts)}
    return render("reproduced.html.j2", (TABLES,), table=table, panels=panels(table.curves), **values)


def shaded(verdicts: list[Verdict]) -> list[Json]:
    """The verdicts with the colour that each has."""
    return [vars(verdict) | {"shade": SHADES.get(verdict.outcome, "part")} for verdict in verdicts]


def panels(curves: list[Curve]) -> list[Json]:
    """A picture for each panel, in the order in which they first come."""
    found: dict[str, list[Curve]] = {}
    for curve in curves:
        found.setdefault(curve.panel, []).append(curve)
    return [{"name": name, "svg": markup(_picture(name, members))} for name, members in found.items()]


def _picture(panel: str, curves: list[Curve]) -> str:
    across, up = (words.listed(words.first_seen(getattr(curve, key) for curve in curves)) for key in ("x_name", "unit"))
    lines = [
        (curve.label, [(x, math.nan if y is None else y) for x, y in zip(curve.x, curve.y, strict=True)])
        for curve in curves
    ]
    label = f"{panel}: {words.listed([name for name, _ in lines])}; {up} over {across}"
    return charts.lines_svg(lines, label, x_name=across, y_name=up, log_x=any(curve.x_log for curve in curves))


def _rows(rows: list[Row]) -> list[Json]:
    """The rows with their numbers as text; those of one metric have equally many decimals."""
    texts: list[Json] = [{"std": words.number(row.std, digits=2)} for row in rows]
    for metric in words.first_seen(row.metric for row in rows):
        chosen = [index for index, row in enumerate(rows) if row.metric == metric]
        places = [(index, key) for key in ("ours", *BESIDE) for index in chosen]
        for (index, key), text in zip(places, words.column(getattr(rows[i], k) for i, k in places), strict=True):
            texts[index][key] = text
    return [vars(row) | text for row, text in zip(rows, texts, strict=True)]
