"""Numbers beside each other: ours with their spread, and what the paper prints or another implementation measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from silograph.report.charts import padded, ticks
from silograph.report.figures import LIGHT, Palette, text
from silograph.report.row_charts import RowChart
from silograph.report.words import first_seen, number

if TYPE_CHECKING:
    from silograph.report.reproduced_page import Row

#: What may stand beside our numbers: the paper's, or where it prints none another implementation's.
BESIDE = {"paper": "Paper", "reference": "Reference"}


def pictures(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Each measure that has numbers to compare with, and its picture."""
    known = [row for row in rows if any(getattr(row, key) is not None for key in BESIDE)]
    metrics = first_seen(row.metric for row in known)
    return [(metric, beside_svg([row for row in known if row.metric == metric], metric)) for metric in metrics]


def beside_svg(rows: Sequence[Row], metric: str, *, palette: Palette = LIGHT) -> str:
    """A line for every case and method: a dot at ours, a bar as long as its deviation, a diamond at theirs."""
    theirs = [next(getattr(row, key) for key in BESIDE if getattr(row, key) is not None) for row in rows]
    names = [BESIDE[key] for key in BESIDE if any(getattr(row, key) is not None for row in rows)]
    ends = [end for row in rows for end in (row.ours - row.std, row.ours + row.std)]
    columns = ticks(*padded([*ends, *theirs]), outside=True)
    lines = [f"{row.case}, {row.method}" for row in rows]
    chart = RowChart(lines, columns, step=22, left=220, right=20, longest=32, font=12.5, width=640, kind="wide")
    across, left, bars, dots, diamonds = chart.across, chart.left, "", "", ""
    for index, (name, row, other) in enumerate(zip(lines, rows, theirs, strict=True)):
        y = chart.y(index)
        low, high = (across(row.ours + side * row.std) for side in (-1, 1))
        bars += f'<path d="M{low:.1f} {y:.1f}H{high:.1f}"/>'
        said = f"{text(name)}: ours {number(row.ours)} ± {number(row.std, digits=2)}"
        dots += f'<circle cx="{across(row.ours):.1f}" cy="{y:.1f}" r="4"><title>{said}</title></circle>'
        diamonds += _diamond(across(other), y, f"{text(name)}: {number(other)}")
    legend = (
        f'<circle class="dot" fill="{palette.shared}" cx="{left + 5}" cy="16" r="4"/>'
        f'<text x="{left + 16}" y="20">ours, and its deviation</text>'
        f'<g class="centre" fill="{palette.own}">{_diamond(left + 190, 16)}</g>'
        f'<text x="{left + 202}" y="20">{text(" or ".join(names).lower())}</text>'
    )
    layers = (
        f'<g class="curve shared" stroke="{palette.shared}" stroke-width="2.5" opacity="0.45">{bars}</g>'
        f'<g class="dot" fill="{palette.shared}">{dots}</g>'
        f'<g class="centre" fill="{palette.own}">{diamonds}</g>'
    )
    label = f"{metric}: ours beside {' or '.join(names).lower()}, {len(rows)} lines"
    return chart.svg(layers, legend, label, palette)


def _diamond(x: float, y: float, title: str = "") -> str:
    said = f"<title>{title}</title>" if title else ""
    return f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z">{said}</path>'
