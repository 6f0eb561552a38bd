"""The page of a paper's figure or table that was done again."""

from __future__ import annotations

import math
from types import NoneType

from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.report import charts, words
from silograph.report.ours_and_theirs import BESIDE
from silograph.report.page import TABLES, markup, render
from silograph.report.read import FLAG, MAYBE_NUMBER, NUMBER, TEXT, WHOLE, check

TABLE: Json = {
    "name": TEXT,
    "title": TEXT,
    "seeds": WHOLE,
    "rows": [{"case": TEXT, "method": TEXT, "metric": TEXT, "ours": NUMBER, "std": NUMBER, "paper": MAYBE_NUMBER}],
    "notes": [TEXT],
    "curves": [{"panel": TEXT, "label": TEXT, "x": [NUMBER], "y": [MAYBE_NUMBER], "unit": TEXT}],
}
#: What a curve may also say of its horizontal axis.
ACROSS: Json = {"x_name": TEXT, "x_log": FLAG}
ROUNDS: Json = {"x_name": "round", "x_log": False}
#: What was judged; left out where nothing was.
JUDGED: Json = {"verdicts": [{"statement": TEXT, "outcome": TEXT, "found": TEXT, "rule": TEXT}]}


#: Names of colours, by outcome.
SHADES = {"reproduced": "good", "not reproduced": "bad", "statement does not hold": "bad"}


def page(payload: Json) -> str:
    """The HTML page of a reproduced table: its curves, its numbers beside the paper's, its notes."""
    where = "reproduced table"
    check(payload, TABLE, where)
    curves = payload["curves"]
    check([ROUNDS | curve for curve in curves], [ACROSS], f"{where}: curves")
    for index, curve in enumerate(curves):
        if len(curve["x"]) != len(curve["y"]):
            came = f"found {len(curve['x'])} and {len(curve['y'])}"
            raise DamageError(f"{where}: curves[{index}]", "as many values in x as in y", came)
    rows = [{"reference": None, "verdict": None} | row for row in payload["rows"]]
    check(rows, [{"reference": MAYBE_NUMBER, "verdict": (str, NoneType)}], f"{where}: rows")
    verdicts = payload.get("verdicts", [])
    check({"verdicts": verdicts}, JUDGED, where)
    beside = {key: name for key, name in BESIDE.items() if any(row[key] is not None for row in rows)}
    values = {"rows": _rows(rows), "beside": beside, "verdicts": shaded(verdicts)}
    return render("reproduced.html.j2", (TABLES,), table=payload, panels=panels(curves), **values)


def shaded(verdicts: list[Json]) -> list[Json]:
    """The verdicts with the colour that each has."""
    return [verdict | {"shade": SHADES.get(verdict["outcome"], "part")} for verdict in verdicts]


def panels(curves: list[Json]) -> list[Json]:
    """A picture for each panel, in the order in which they first come."""
    found: dict[str, list[Json]] = {}
    for curve in curves:
        found.setdefault(curve["panel"], []).append(ROUNDS | curve)
    return [{"name": name, "svg": markup(_picture(name, members))} for name, members in found.items()]


def _picture(panel: str, curves: list[Json]) -> str:
    across, up = (words.listed(words.first_seen(curve[key] for curve in curves)) for key in ("x_name", "unit"))
    # JSON has no word for a number that is none, so a hole in a curve is null.
    lines = [
        (curve["label"], [(x, math.nan if y is None else y) for x, y in zip(curve["x"], curve["y"], strict=True)])
        for curve in curves
    ]
    label = f"{panel}: {words.listed([name for name, _ in lines])}; {up} over {across}"
    return charts.lines_svg(lines, label, x_name=across, y_name=up, log_x=any(curve["x_log"] for curve in curves))


def _rows(rows: list[Json]) -> list[Json]:
    """The rows with their numbers as text; those of one metric have equally many decimals."""
    texts: list[Json] = [{"std": words.number(row["std"], digits=2)} for row in rows]
    for metric in words.first_seen(row["metric"] for row in rows):
        chosen = [index for index, row in enumerate(rows) if row["metric"] == metric]
        places = [(index, key) for key in ("ours", *BESIDE) for index in chosen]
        for (index, key), text in zip(places, words.column(rows[i][k] for i, k in places), strict=True):
            texts[index][key] = text
    return [row | text for row, text in zip(rows, texts, strict=True)]
