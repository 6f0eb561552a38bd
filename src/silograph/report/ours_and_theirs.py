"""Numbers beside each other: ours with their spread, and what the paper prints or another implementation measured."""

from __future__ import annotations

from collections.abc import Sequence

from silograph.core.types import Json
from silograph.report.charts import Axis, padded, ticks
from silograph.report.figures import LIGHT, Palette, svg, text
from silograph.report.words import first_seen, number

#: What may stand beside our numbers: the paper's, or where it prints none another implementation's.
BESIDE = {"paper": "Paper", "reference": "Reference"}


def pictures(rows: Sequence[Json]) -> list[tuple[str, str]]:
    """A measure and its picture, for each that has something to be held against."""
    known = [row for row in rows if any(row.get(key) is not None for key in BESIDE)]
    metrics = first_seen(row["metric"] for row in known)
    return [(metric, beside_svg([row for row in known if row["metric"] == metric], metric)) for metric in metrics]


def beside_svg(rows: Sequence[Json], metric: str, *, palette: Palette = LIGHT) -> str:
    """A line for every case and method: a dot at ours, a bar as long as its deviation, a diamond at theirs."""
    theirs = [next(row[key] for key in BESIDE if row.get(key) is not None) for row in rows]
    names = [BESIDE[key] for key in BESIDE if any(row.get(key) is not None for row in rows)]
    ends = [end for row in rows for end in (row["ours"] - row["std"], row["ours"] + row["std"])]
    step, width, left, right, above, below = 22, 640, 220, 20, 40, 30
    height = above + step * len(rows) + below
    columns = ticks(*padded([*ends, *theirs]), outside=True)
    across = Axis(columns[0], columns[-1], left, width - right)
    bottom = height - below
    grid = [f'<path d="M{across(x):.1f} {above}V{bottom}"/>' for x in columns]
    marks = [f'<text x="{across(x):.1f}" y="{bottom + 20}" text-anchor="middle">{number(x)}</text>' for x in columns]
    labels, bars, dots, diamonds = [], [], [], []
    for index, (row, other) in enumerate(zip(rows, theirs, strict=True)):
        y, name = above + step * (index + 0.5), f"{row['case']}, {row['method']}"
        labels.append(f'<text x="{left - 14}" y="{y + 4:.1f}" text-anchor="end">{text(name, 32)}</text>')
        low, high = (across(row["ours"] + side * row["std"]) for side in (-1, 1))
        bars.append(f'<path d="M{low:.1f} {y:.1f}H{high:.1f}"/>')
        said = f"{text(name)}: ours {number(row['ours'])} ± {number(row['std'], digits=2)}"
        dots.append(f'<circle cx="{across(row["ours"]):.1f}" cy="{y:.1f}" r="4"><title>{said}</title></circle>')
        diamonds.append(_diamond(across(other), y, f"{text(name)}: {number(other)}"))
    legend = (
        f'<circle class="dot" fill="{palette.shared}" cx="{left + 5}" cy="16" r="4"/>'
        f'<text x="{left + 16}" y="20">ours, and its deviation</text>'
        f'<g class="centre" fill="{palette.own}">{_diamond(left + 190, 16)}</g>'
        f'<text x="{left + 202}" y="20">{text(" or ".join(names).lower())}</text>'
    )
    body = (
        f'<g class="grid" stroke="{palette.line}">{"".join(grid)}</g>'
        f'<g class="curve shared" stroke="{palette.shared}" stroke-width="2.5" opacity="0.45">{"".join(bars)}</g>'
        f'<g class="dot" fill="{palette.shared}">{"".join(dots)}</g>'
        f'<g class="centre" fill="{palette.own}">{"".join(diamonds)}</g>'
        f'<g class="quiet" fill="{palette.quiet}" font-size="12.5">{"".join(marks)}{legend}</g>'
        f'<g class="ink" fill="{palette.ink}" font-size="12.5">{"".join(labels)}</g>'
    )
    label = f"{metric}: ours beside {' or '.join(names).lower()}, {len(rows)} lines"
    return svg(body, (width, height), label, "chart wide", palette, inline=True)


def _diamond(x: float, y: float, title: str = "") -> str:
    said = f"<title>{title}</title>" if title else ""
    return f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z">{said}</path>'
