"""Charts as SVG text, drawn like the graphs in `figures`: pure functions, colours by class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from silograph.report.figures import LIGHT, Palette, Point, svg, text
from silograph.report.words import number, superscript

#: A name and its points.
Line = tuple[str, Sequence[Point]]

COLOURS = ("shared", "own", "third", "fourth")
#: Every line has its own dashes, so that a chart can be read without its colours.
DASHES = ("none", "7 4", "2 3", "11 3 2 3", "14 5", "4 2", "8 3 2 3 2 3", "1 5")
#: Points of one line that a chart can show; of more, the highest and lowest in each stretch are kept.
MOST_POINTS = 600
#: Above this, distances on an axis overflow.
LARGEST = 1e300


@dataclass(frozen=True)
class Axis:
    """Takes values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + (self.end - self.start) * share


def convergence_svg(
    series: Sequence[tuple[str, Sequence[tuple[int, float]]]], label: str, *, palette: Palette = LIGHT
) -> str:
    """Up to two quantities over the rounds on a logarithmic axis. Without anything above zero there is no picture."""
    kept = [(name, [(t, v) for t, v in points if 0 < v < math.inf]) for name, points in series]
    rounds = [t for _, points in kept for t, _ in points]
    if not rounds:
        return ""
    powers = [math.log10(v) for _, points in kept for _, v in points]
    bottom, top = math.floor(min(powers)), math.ceil(max(powers))
    bottom, top = (bottom - 1, top + 1) if bottom == top else (bottom, top)
    width, height, left, right, above, below = 460, 270, 46, 12, 38, 42
    across = Axis(min(rounds), max(rounds), left, width - right)
    down = Axis(bottom, top, height - below, above)
    grid, marks, curves, legend = [], [], [], []
    for power in range(bottom, top + 1, max(1, math.ceil((top - bottom) / 6))):
        y = down(power)
        grid.append(f'<path d="M{left} {y:.1f}H{width - right}"/>')
        marks.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">10{superscript(power)}</text>')
    marks += [
        f'<text x="{across(t):.1f}" y="{height - below + 20}" text-anchor="middle">{number(round(t))}</text>'
        for t in ticks(across.low, across.high, least=1)
    ]
    marks.append(f'<text x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle">round</text>')
    column = left
    looks = (("shared", palette.shared, "none"), ("own", palette.own, "6 4"))
    for (name, points), (kind, colour, dash) in zip(kept, looks, strict=False):
        if not points:
            continue
        look = f'class="curve {kind}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        route = " ".join(f"{across(t):.1f},{down(math.log10(v)):.1f}" for t, v in points)
        curves.append(f'<polyline {look} fill="none" stroke-linejoin="round" points="{route}"/>')
        x, y = across(points[-1][0]), down(math.log10(points[-1][1]))
        curves.append(f'<circle class="end {kind}" fill="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        legend.append(f'<path {look} d="M{column} 16h26"/><text x="{column + 34}" y="20">{text(name)}</text>')
        column += 60 + 7 * len(name)
    body = (
        f'<g class="grid" stroke="{palette.line}">{"".join(grid)}</g>{"".join(curves)}'
        f'<g class="quiet" fill="{palette.quiet}" font-size="12.5">{"".join(marks)}{"".join(legend)}</g>'
    )
    return svg(body, (width, height), label, "chart", palette, inline=True)


def bars_svg(values: Sequence[tuple[str, float | None]], label: str, *, palette: Palette = LIGHT) -> str:
    """One bar per name with its number; a value that is unknown or not finite is written, not drawn."""
    step, width, right = 44, 460, 80
    drawable = {name: value for name, value in values if value is not None and 0 < value < math.inf}
    top = max(drawable.values(), default=1.0)
    rows = []
    for index, (name, value) in enumerate(values):
        y = index * step + 14
        long = max(1.0, (width - right) * drawable.get(name, 0.0) / top)
        rows.append(
            f'<text y="{y}">{text(name, 56)}</text><text x="{long + 8:.1f}" y="{y + 19}">{number(value)}</text>'
            f'<rect class="bar" fill="{palette.shared}" y="{y + 7}" width="{long:.1f}" height="16"/>'
        )
    body = f'<g class="ink" fill="{palette.ink}" font-size="13">{"".join(rows)}</g>'
    return svg(body, (width, step * len(values) or 1), label, "chart", palette, inline=True)


def lines_svg(
    lines: Sequence[Line],
    label: str,
    *,
    x_name: str,
    y_name: str,
    log_x: bool = False,
    log_y: bool = False,
    marked: float | None = None,
    palette: Palette = LIGHT,
) -> str:
    """Several quantities, each named where it ends, a single one above; `log_x`, `log_y`: over powers of ten. Of a line
    with many points the last gets a dot, or the one whose x is `marked`.

    A value that is not finite leaves a hole in its line. Without any value there is no picture.
    """
    allowed = [
        (name, [(x, y) for x, y in points if (x > 0 or not log_x) and (y > 0 or not log_y)]) for name, points in lines
    ]
    kept = [(name, _thinned(points)) for name, points in allowed]
    shown = [(x, y) for _, points in kept for x, y in points if is_drawable(x, y)]
    if not shown:
        return ""
    alone = len(kept) == 1
    width, height, left, right, above, below = (460, 270, 50, 12, 38, 42) if alone else (800, 360, 62, 244, 34, 48)
    scale, rise = (math.log10 if log else float for log in (log_x, log_y))
    first, last = min(x for x, _ in shown), max(x for x, _ in shown)
    values = [y for _, y in shown]
    heights = _decades(min(values), max(values)) if log_y else ticks(*padded(values), outside=True)
    across = Axis(scale(first), scale(last), left, width - right)
    down = Axis(rise(heights[0]), rise(heights[-1]), height - below, above)
    whole = float(all(float(x).is_integer() for x, _ in shown))  # no half rounds
    powers = [10.0**k for k in range(math.ceil(across.low - 1e-9), math.floor(across.high + 1e-9) + 1)] if log_x else []
    # Between two powers of ten there is none to write: the ends must do.
    columns = (powers if len(powers) > 1 else [first, last]) if log_x else ticks(first, last, least=whole)
    grid = [f'<path d="M{left} {down(rise(y)):.1f}H{width - right}"/>' for y in heights]
    marks = [
        f'<text x="{left - 9}" y="{down(rise(y)) + 4:.1f}" text-anchor="end">{number(y)}</text>' for y in heights
    ] + [
        f'<text x="{across(scale(x)):.1f}" y="{height - below + 20}" text-anchor="middle">{number(x)}</text>'
        for x in columns
    ]
    marks.append(f'<text x="0" y="16">{text(y_name)}</text>')
    marks.append(f'<text x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle">{text(x_name)}</text>')
    curves, ends = [], []
    for index, (name, points) in enumerate(kept):
        spots = [(across(scale(x)), down(rise(y))) if is_drawable(x, y) else None for x, y in points]
        drawn = [spot for spot in spots if spot is not None]
        if not drawn:
            continue
        at = [spot for spot, (x, _) in zip(spots, points, strict=True) if spot is not None and x == marked]
        kind, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
        colour = getattr(palette, kind)
        look = f'class="curve {kind}" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}" fill="none"'
        curves.append(f'<path {look} stroke-linejoin="round" d="{_route(spots)}"><title>{text(name)}</title></path>')
        curves += [
            f'<circle class="end {kind}" fill="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
            for x, y in (at or (drawn if len(drawn) <= 12 else drawn[-1:]))
        ]
        ends.append((drawn[-1], name, look))
    ends.sort(key=lambda end: (end[0][1], end[1]))
    beside, leaders, legend = width - right + 24, [], []
    levels = _apart([y for (_, y), *_ in ends], 19, above, height - below)
    for ((x, y), name, look), level in zip(ends, levels, strict=True):
        if alone:
            legend += [f'<text x="{width - right}" y="16" text-anchor="end">{text(name, 36)}</text>'] * (name != y_name)
            continue
        leaders.append(f'<path d="M{x + 6:.1f} {y:.1f}L{beside - 4} {level:.1f}"/>')
        legend.append(f'<path {look} d="M{beside} {level:.1f}h30"/>')
        legend.append(f'<text x="{beside + 37}" y="{level + 4:.1f}">{text(name, 22)}</text>')
    body = (
        f'<g class="grid" stroke="{palette.line}">{"".join(grid)}</g>{"".join(curves)}'
        f'<g class="leader" stroke="{palette.quiet}" stroke-width="0.75">{"".join(leaders)}</g>'
        f'<g class="quiet" fill="{palette.quiet}" font-size="13">{"".join(marks)}</g>'
        f'<g class="ink" fill="{palette.ink}" font-size="13">{"".join(legend)}</g>'
    )
    return svg(body, (width, height), label, "chart" if alone else "chart wide", palette, inline=True)


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten around two values."""
    bottom, top = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [10.0**k for k in range(bottom, max(top, bottom + 1) + 1)]


def is_drawable(*values: float) -> bool:
    return all(abs(value) < LARGEST for value in values)


def _route(spots: Iterable[Point | None]) -> str:
    """The path through the spots, lifted where one is missing."""
    parts, pen = [], "M"
    for spot in spots:
        if spot is not None:
            parts.append(f"{pen}{spot[0]:.1f} {spot[1]:.1f}")
        pen = "M" if spot is None else "L"
    return "".join(parts)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most about `MOST_POINTS`: of each stretch the highest and the lowest, so that no peak is hidden."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(2 * len(points) / MOST_POINTS)
    kept = {len(points) - 1}
    for begin in range(0, len(points), size):
        stretch = range(begin, min(begin + size, len(points)))
        kept |= {min(stretch, key=lambda i: points[i][1]), max(stretch, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def _apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in the same order at least `gap` apart, as near to the wanted ones as the room allows."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + gap if places else low))
    roof = high
    for index in reversed(range(len(places))):
        places[index] = min(places[index], roof)
        roof = places[index] - gap
    return places


def padded(values: Sequence[float]) -> tuple[float, float]:
    """The range of the values, widened where it is a single one."""
    low, high = min(values), max(values)
    if _is_apart(low, high):
        return low, high
    room = max(abs(low) / 10, 1e-3)
    return low - room, high + room


def _is_apart(low: float, high: float) -> bool:
    """Whether there are round numbers between the two that floats can tell apart."""
    return high - low > max(1e-300, 1e-12 * max(abs(low), abs(high)))


def ticks(first: float, last: float, *, least: float = 0.0, outside: bool = False) -> list[float]:
    """A handful of round numbers, `least` or more apart, between two values or (`outside`) just around them."""
    if not _is_apart(first, last):
        return [first]
    rough = max(least, (last - first) / 6)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    # Some slack, for values that are round numbers but for their last bit.
    if outside:
        low, high = math.floor(first / step + 1e-9), math.ceil(last / step - 1e-9)
    else:
        low, high = math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9)
    return [k * step for k in range(low, high + 1)]
