"""Graphs as SVG text, and what all pictures share: pure functions, no files, no fonts, no scripts.

Colours are presentation attributes, so a picture is complete on its own; inside the report the style sheet overrides
them by class and follows the reader's light or dark setting.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from silograph.report.read import Edge
from silograph.report.words import number, visible

Point = tuple[float, float]

#: Edges in a large still picture.
MOST_EDGES = 1000

#: Of negative edges; and how much fainter edges are that only a site has, where colours say signs.
DASHES, FAINT = "6 3", 0.5

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Palette:
    """The colours of a picture; the report's style sheet is filled from the same values."""

    paper: str
    ink: str
    quiet: str
    line: str
    shared: str  # edges of the consensus
    own: str  # edges of one site only
    node: str
    third: str  # further lines of a chart
    fourth: str


LIGHT = Palette("#ffffff", "#1b2430", "#55606e", "#d9dee5", "#2166a5", "#b4500a", "#243447", "#0a7b6c", "#8a3ea8")
DARK = Palette("#14181f", "#e8ebf0", "#a7b1be", "#333c48", "#6db1ee", "#f2a65a", "#dbe2ea", "#5cc8b4", "#cf9be8")


def layout(nodes: Sequence[str], edges: Iterable[Edge]) -> dict[str, Point]:
    """A place in the unit square for every node: strong edges short, nodes without edges in rows at the bottom."""
    import networkx as nx

    strength: dict[tuple[str, str], float] = {}
    for source, target, weight in edges:
        pair = (source, target) if source <= target else (target, source)
        strength[pair] = strength.get(pair, 0.0) + weight
    heaviest = max(strength.values(), default=1.0)
    # Sorted, and nodes in their given order: the layout must not depend on the order of rows or on hashing.
    graph = nx.Graph()
    linked = {name for pair in strength for name in pair}
    graph.add_nodes_from(name for name in nodes if name in linked)
    for (source, target), weight in sorted(strength.items()):
        share = weight / heaviest
        graph.add_edge(source, target, share=share, length=1 / math.sqrt(max(share, 0.1)))
    if len(graph) <= 60:
        places = nx.kamada_kawai_layout(graph, dist=_distances(graph)) if len(graph) > 1 else {}
    else:
        places = nx.spring_layout(graph, weight="share", seed=1, k=1.6 / math.sqrt(len(graph)), iterations=80)
    lonely = [name for name in nodes if name not in linked]
    columns = max(12, math.ceil(math.sqrt(4 * len(lonely))))
    rows = math.ceil(len(lonely) / columns)
    floor = 1.0 if not lonely else 0.0 if not linked else 0.88
    result = dict(zip(places, _fill(np.array(list(places.values())), floor), strict=True))
    for index, name in enumerate(lonely):
        row, column = divmod(index, columns)
        low = floor + 0.05 if linked else 0.0
        result[name] = ((column + 0.5) / columns, low + (1 - low) * (row + 0.5) / rows)
    return result


def _distances(graph: object) -> dict[str, dict[str, float]]:
    """Path lengths; parts that no path joins stay one step outside each other instead of flying off the page."""
    import networkx as nx

    found = dict(nx.all_pairs_dijkstra_path_length(graph, weight="length"))
    apart = 1 + max((d for row in found.values() for d in row.values()), default=0.0)
    return {a: {b: found[a].get(b, apart) for b in found} for a in found}


def _fill(places: np.ndarray[tuple[int, ...], np.dtype[np.float64]], height: float) -> list[Point]:
    """Turn the widest direction to the horizontal and stretch to fill a box of width 1."""
    if len(places) == 0:
        return []
    centred = places - places.mean(axis=0)
    turned = centred @ np.linalg.svd(centred, full_matrices=False)[2].T
    low, extent = turned.min(axis=0), np.ptp(turned, axis=0)
    unit = np.where(extent > 1e-9, (turned - low) / np.where(extent > 1e-9, extent, 1.0), 0.5)
    return [(float(x), float(y) * height) for x, y in unit]


def graph_svg(
    nodes: Sequence[str],
    edges: Sequence[Edge],
    highlight: Collection[tuple[str, str]] | None = None,
    *,
    third: Collection[tuple[str, str]] = (),
    places: Mapping[str, Point] | None = None,
    label: str = "Graph",
    size: tuple[int, int] = (760, 540),
    limit: int = 1000,
    heaviest: float | None = None,
    names: bool | None = None,
    confidence: Mapping[frozenset[str], float] | None = None,
    sure: str = "confidence",
    signs: Mapping[frozenset[str], int] | None = None,
    outline: Sequence[Point] = (),
    palette: Palette = LIGHT,
    inline: bool = False,
) -> str:
    """Draw a graph: line width by weight, `highlight`ed pairs in the second colour, those in `third` in the third.
    Where edges have `signs`, negative ones are dashed and in the second colour, and highlighted ones fainter.

    Only the strongest `limit` edges are drawn. `places` and `heaviest` let several pictures share positions and line
    widths; `names` writes node names (by default up to 40 nodes). `outline` is drawn around it. `inline` leaves out
    what only a file of its own needs.
    """
    drawn = strongest(edges, limit)
    places = places if places is not None else layout(nodes, drawn)
    top = heaviest or max((weight for *_, weight in drawn), default=1.0)
    names = len(nodes) <= 40 if names is None else names
    look_of = _looks(drawn, highlight or (), third, signs)
    width, height = size
    margin = width * (0.07 if names else 0.03)
    crowd = crowding(len(nodes))

    def on_page(place: Point) -> Point:
        return margin + place[0] * (width - 2 * margin), margin / 2 + 6 + place[1] * (height - margin - 22)

    spot = {name: on_page(place) for name, place in places.items()}

    def told(edge: Edge) -> str:
        pair = frozenset(edge[:2])
        share, weight = (confidence or {}).get(pair), edge[2] * (signs or {}).get(pair, 1)
        words = f"{text(edge[0])} – {text(edge[1])}: {number(weight)}"
        return words if share is None else f"{words}, {sure} {number(share)}"

    def lines(kind: str, chosen: Iterable[Edge]) -> str:
        # Weakest first, so that strong edges lie on top.
        body = "".join(
            f'<path d="M{_at(spot[a])}L{_at(spot[b])}" stroke-width="{crowd * (0.5 + 4.5 * weight / top):.2f}">'
            f"<title>{told((a, b, weight))}</title></path>"
            for a, b, weight in reversed(list(chosen))
        )
        faint = f'stroke-opacity="{(0.35 + 0.37 * crowd) * (FAINT if "apart" in kind else 1.0):.2f}"'
        dashed = f' stroke-dasharray="{DASHES}"' if "negative" in kind else ""
        colour = palette.own if "negative" in kind else getattr(palette, kind.split()[0])
        return f'<g class="edge {kind}" fill="none" stroke="{colour}" {faint}{dashed}>{body}</g>'

    radius = max(1.6, min(6.5, 0.035 * width / math.sqrt(max(len(nodes), 1)) + 1))
    shown = [name for name in nodes if name in spot]
    dots = "".join(
        f'<circle data-i="{index}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{text(name)}</title></circle>'
        for index, name in enumerate(nodes)
        if name in spot
        for x, y in [spot[name]]
    )
    corners = "L".join(_at(on_page(place)) for place in outline)
    look = f'class="outline" fill="none" stroke="{palette.quiet}" stroke-opacity="0.5"'
    around = f'<path {look} d="M{corners}Z"/>' if corners else ""
    words = "".join(
        f'<text x="{x:.1f}" y="{y + radius + 12:.1f}">{text(name, 16)}</text>'
        for name in (shown if names else ())
        for x, y in [spot[name]]
    )
    body = (
        around
        + "".join(
            lines(kind, [e for e in drawn if look_of.get(frozenset(e[:2]), "shared") == kind])
            for kind in (
                *(("shared apart", "negative apart", "negative") if signs else ("own",)),
                *(["third"] if third else []),
                "shared",
            )
        )
        + f'<g class="node" fill="{palette.node}" stroke="{palette.paper}" stroke-width="1.2">{dots}</g>'
        + f'<g class="name" fill="{palette.ink}" stroke="{palette.paper}" stroke-width="3.5" stroke-linejoin="round" '
        f'paint-order="stroke" font-size="12" text-anchor="middle">{words}</g>'
    )
    return svg(body, size, label, "graph", palette, inline)


def _looks(
    drawn: Sequence[Edge],
    highlight: Iterable[tuple[str, str]],
    third: Iterable[tuple[str, str]],
    signs: Mapping[frozenset[str], int] | None,
) -> dict[frozenset[str], str]:
    """The class of every edge that is not plainly of the consensus."""
    if not signs:
        return {frozenset(pair): "own" for pair in highlight} | {frozenset(pair): "third" for pair in third}
    apart = {frozenset(pair) for pair in highlight}
    looks = {pair: "negative" if signs.get(pair, 1) < 0 else "shared" for pair in (frozenset(e[:2]) for e in drawn)}
    return {pair: f"{look} apart" if pair in apart else look for pair, look in looks.items()}


def crowding(nodes: int) -> float:
    """The factor by which lines are thinner and lighter in a picture with many nodes."""
    return min(1.0, math.sqrt(40 / max(nodes, 1)))


def strongest(edges: Sequence[Edge], limit: int) -> list[Edge]:
    """The heaviest edges, heaviest first; equal weights in the order of their names."""
    return sorted(edges, key=lambda edge: (-edge[2], edge[0], edge[1]))[:limit]


def svg(body: str, size: tuple[int, int], label: str, kind: str, palette: Palette, inline: bool) -> str:
    width, height = size
    head = f'class="{kind}" role="img" aria-label="{text(label, 400)}" viewBox="0 0 {width} {height}"'
    if inline:
        return f'<svg {head} font-family="inherit">{body}</svg>'
    sheet = f'<rect width="{width}" height="{height}" fill="{palette.paper}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {head} width="{width}" height="{height}" font-family="{FONT}">'
        f"{sheet}{body}</svg>"
    )


def _at(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def text(name: str, most: int = 60) -> str:
    """Escaped, shortened, and free of the control characters that XML forbids."""
    clean = visible(name)
    return escape(clean if len(clean) <= most else clean[: most - 1] + "…")
