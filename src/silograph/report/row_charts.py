"""Charts with a row for every name, as SVG text: pure functions, colours by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from silograph.report.charts import LARGEST, Axis, is_drawable, padded, ticks
from silograph.report.figures import LIGHT, Palette, svg, text
from silograph.report.words import number


@dataclass(frozen=True)
class RowChart:
    """A row for every name, over one axis for all of them."""

    names: Sequence[str]
    columns: Sequence[float]
    step: int = 27
    left: int = 170
    right: int = 16
    above: int = 40
    below: int = 30
    #: Of a name, in characters.
    longest: int = 22
    #: Of names, and how far the numbers stand below the rows.
    font: float = 13
    mark: int = 20
    width: int = 540
    #: What the style sheet calls it: a chart of `rows` fits a telephone, a `wide` one scrolls there.
    kind: str = "rows"

    @property
    def across(self) -> Axis:
        return Axis(self.columns[0], self.columns[-1], self.left, self.width - self.right)

    @property
    def bottom(self) -> int:
        return self.above + self.step * len(self.names)

    def y(self, row: int) -> float:
        return self.above + self.step * (row + 0.5)

    def line_at(self, value: float) -> str:
        """A path from top to bottom."""
        return f'd="M{self.across(value):.1f} {self.above}V{self.bottom}"'

    def svg(self, layers: str, legend: str, label: str, palette: Palette) -> str:
        """`layers` are what is drawn over the grid; `legend` stands above, in quiet ink."""
        grid = "".join(f"<path {self.line_at(x)}/>" for x in self.columns)
        marks = "".join(
            f'<text x="{self.across(x):.1f}" y="{self.bottom + self.mark}" text-anchor="middle">{number(x)}</text>'
            for x in self.columns
        )
        names = "".join(
            f'<text x="{self.left - 14}" y="{self.y(row) + 4:.1f}" text-anchor="end">{text(name, self.longest)}</text>'
            for row, name in enumerate(self.names)
        )
        body = (
            f'<g class="grid" stroke="{palette.line}">{grid}</g>{layers}'
            f'<g class="quiet" fill="{palette.quiet}" font-size="12.5">{marks}{legend}</g>'
            f'<g class="ink" fill="{palette.ink}" font-size="{self.font}">{names}</g>'
        )
        return svg(body, (self.width, self.bottom + self.below), label, f"chart {self.kind}", palette, inline=True)


def bar_at(x: float, y: float, height: int, title: str = "") -> str:
    """A short upright bar."""
    place = f'x="{x - 1.75:.1f}" y="{y - height / 2:.1f}" width="3.5" height="{height}" rx="1.5"'
    return f"<rect {place}><title>{title}</title></rect>"


def dots_svg(
    rows: Sequence[tuple[str, Sequence[tuple[str, float]], float]],
    label: str,
    *,
    dot: str = "one region",
    bar: str = "centroid",
    baseline: float | None = None,
    palette: Palette = LIGHT,
) -> str:
    """A row for every feature or group: a dot for each of its members, a bar for all of it. One axis for all.

    A dashed line stands at the `baseline`, which needs no model.
    """
    known = [v for _, units, centroid in rows for v in (*(v for _, v in units), centroid) if is_drawable(v)]
    if not known:
        return ""
    guessed = [baseline] if baseline is not None and is_drawable(baseline) else []
    chart = RowChart([name for name, *_ in rows], ticks(*padded([0.0, *known, *guessed]), outside=True))
    across, dots, bars = chart.across, "", ""
    for index, (name, units, centroid) in enumerate(rows):
        y = chart.y(index)
        for unit, v in units:
            if is_drawable(v):
                told = f"<title>{text(name)}, {text(unit)}: {number(v)}</title>"
                dots += f'<circle cx="{across(v):.1f}" cy="{y:.1f}" r="4.5">{told}</circle>'
        if is_drawable(centroid):
            bars += bar_at(across(centroid), y, 18, f"{text(name)}, {bar}: {number(centroid)}")
    left, second, third = chart.left, chart.left + 100, chart.left + 215
    legend = (
        f'<circle class="dot" fill="{palette.shared}" fill-opacity="0.45" cx="{left + 5}" cy="16" r="4.5"/>'
        f'<text x="{left + 18}" y="20">{dot}</text>'
    )
    if bars:
        legend += (
            f'<rect class="centre" fill="{palette.own}" x="{second}" y="7" width="3.5" height="18" rx="1.5"/>'
            f'<text x="{second + 13}" y="20">{bar}</text>'
        )
    dashed = f'class="third" stroke="{palette.third}" stroke-width="1.8" stroke-dasharray="5 4"'
    if guessed:
        legend += f'<path {dashed} d="M{third} 16h26"/><text x="{third + 34}" y="20">the baseline</text>'
    layers = (
        f'<path class="zero" stroke="{palette.quiet}" {chart.line_at(0)}/>'
        + "".join(f"<path {dashed} {chart.line_at(value)}/>" for value in guessed)
        + f'<g class="dot" fill="{palette.shared}" fill-opacity="0.45">{dots}</g>'
        f'<g class="centre" fill="{palette.own}">{bars}</g>'
    )
    return chart.svg(layers, legend, label, palette)


def moves_svg(
    rows: Sequence[tuple[str, float, float]],
    label: str,
    measure: str,
    *,
    baseline: float | None,
    least: float,
    palette: Palette = LIGHT,
) -> str:
    """A row for every name, from a bar before to a dot after; a dashed line at the baseline. The axis ends at
    `least`."""
    known = [value for _, *ends in rows for value in ends if is_drawable(value) and value >= 0]
    if not known:
        return ""
    guessed = [baseline] if baseline is not None and is_drawable(baseline) and baseline >= 0 else []
    top = _rounded_up(max(*known, *guessed, least))
    quarters = [top * k / 4 for k in range(5)]
    chart = RowChart([name for name, *_ in rows], quarters, right=24, above=44, below=48, mark=19)
    across, joins, bars, dots = chart.across, "", "", ""
    for index, (name, *ends) in enumerate(rows):
        y = chart.y(index)
        before, after = (across(value) if is_drawable(value) and value >= 0 else None for value in ends)
        if before is not None and after is not None:
            joins += f'<path d="M{before:.1f} {y:.1f}H{after:.1f}"/>'
        if before is not None:
            bars += bar_at(before, y, 16, f"{text(name)}, before: {number(ends[0])}")
        if after is not None:
            told = f"<title>{text(name)}, after: {number(ends[1])}</title>"
            dots += f'<circle cx="{after:.1f}" cy="{y:.1f}" r="5.5">{told}</circle>'
    left, middle = chart.left, (chart.left + chart.width - chart.right) / 2
    dashed = f'class="third" stroke="{palette.third}" stroke-width="1.8" stroke-dasharray="5 4"'
    legend = (
        f'<text x="{middle}" y="{chart.bottom + 40}" text-anchor="middle">{text(measure)}</text>'
        f'<rect class="centre" fill="{palette.own}" x="{left}" y="8" width="3.5" height="16" rx="1.5"/>'
        f'<text x="{left + 12}" y="20">before</text>'
        f'<circle class="dot" fill="{palette.shared}" cx="{left + 80}" cy="16" r="5.5"/>'
        f'<text x="{left + 93}" y="20">after</text>'
    )
    if guessed:
        legend += f'<path {dashed} d="M{left + 146} 16h26"/><text x="{left + 180}" y="20">baseline, on average</text>'
    layers = (
        "".join(f"<path {dashed} {chart.line_at(value)}/>" for value in guessed)
        + f'<g class="leader" stroke="{palette.quiet}" stroke-width="1.5">{joins}</g>'
        f'<g class="centre" fill="{palette.own}">{bars}</g>'
        f'<g class="dot" fill="{palette.shared}">{dots}</g>'
    )
    return chart.svg(layers, legend, label, palette)


def _rounded_up(value: float) -> float:
    """The next number whose quarters are round."""
    if value < 1.0 / LARGEST:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * m for m in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10, 12) if power * m >= value)
