"""The heat map of a graph, its nodes ordered by community."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from silograph.report.figures import LIGHT, Palette, svg, text
from silograph.report.read import Edge

#: More nodes than this share cells, `BLOCKS` to a side.
MOST_CELLS, BLOCKS = 400, 120
#: Of more nodes than this no communities are looked for: it would take minutes.
MOST_ORDERED = 10_000
#: Steps of colour.
DEPTHS = 6
SIDE, NAMES, MOST_NAMES = 520, 130, 40


@dataclass(frozen=True)
class Communities:
    """Nodes in the order of a heat map, largest community first; nodes that are in none come last."""

    groups: list[list[str]]
    lonely: list[str]

    @property
    def order(self) -> list[str]:
        return [name for group in (*self.groups, self.lonely) for name in group]


def communities(nodes: Sequence[str], edges: Iterable[Edge]) -> Communities:
    """By modularity (Louvain, fixed seed). In a community the best connected node comes first.

    Nodes beyond `MOST_ORDERED` stay in their given order, in no community.
    """
    import networkx as nx

    if len(nodes) > MOST_ORDERED:
        return Communities([], list(nodes))
    # By numbers, in their given order: what is found must not depend on hashing or on the order of rows.
    place = {name: index for index, name in enumerate(nodes)}
    pairs = sorted((min(place[a], place[b]), max(place[a], place[b]), weight) for a, b, weight in edges)
    heaviest = max((weight for *_, weight in pairs), default=1.0)
    strength = [0.0] * len(nodes)
    graph = nx.Graph()
    graph.add_nodes_from(sorted({i for pair in pairs for i in pair[:2]}))
    for a, b, weight in pairs:
        graph.add_edge(a, b, weight=weight / heaviest)
        strength[a] += weight / heaviest
        strength[b] += weight / heaviest
    found = nx.community.louvain_communities(graph, seed=1) if len(graph) else []
    ordered = [sorted(group, key=lambda i: (-strength[i], i)) for group in found]
    ordered.sort(key=lambda group: (-len(group), min(group)))
    return Communities(
        [[nodes[i] for i in group] for group in ordered], [name for name in nodes if place[name] not in graph]
    )


def heat_svg(
    found: Communities,
    edges: Iterable[Edge],
    label: str,
    signs: Mapping[frozenset[str], int] | None = None,
    *,
    palette: Palette = LIGHT,
) -> str:
    """A cell for every pair of nodes, or of blocks where there are many: the stronger its colour, the heavier; where
    edges have signs, negative ones are in the second colour."""
    edges = [(a, b, weight * (signs or {}).get(frozenset((a, b)), 1)) for a, b, weight in edges]
    order = found.order
    count = len(order)
    if not count:
        return ""
    side = min(count, BLOCKS if count > MOST_CELLS else MOST_CELLS)
    cells = _cells({name: index * side // count for index, name in enumerate(order)}, edges, side)
    top = max(map(abs, cells.values()), default=0.0) or 1.0
    paths = [[""] * DEPTHS, [""] * DEPTHS]
    for (row, column), weight in sorted(cells.items()):
        paths[weight < 0.0][min(DEPTHS - 1, int(DEPTHS * abs(weight) / top))] += f"M{column} {row}h1v1h-1z"
    left = NAMES if count <= MOST_NAMES else 0
    scale = SIDE / side
    kinds = (("dot", palette.shared), ("dot negative", palette.own))[: 2 if signs else 1]
    layers = "".join(
        f'<g class="{kind}" fill="{colour}" transform="scale({scale:.6f})">{_layers(each)}</g>'
        for (kind, colour), each in zip(kinds, paths, strict=False)
    )
    edge, lines = 0, []
    for group in found.groups if found.lonely else found.groups[:-1]:
        edge += len(group)
        at = SIDE * edge / count
        lines.append(f'<path d="M0 {at:.1f}H{SIDE}M{at:.1f} 0V{SIDE}"/>')
    names = "".join(
        f'<text x="{left - 8}" y="{SIDE * (k + 0.5) / count + 4:.1f}" text-anchor="end">{text(name, 18)}</text>'
        for k, name in enumerate(order if left else ())
    )
    body = (
        f'<g class="ink" fill="{palette.ink}" font-size="11.5">{names}</g><g transform="translate({left} 0)">'
        f'{layers}<g class="grid" stroke="{palette.line}">{"".join(lines)}'
        f'<path class="frame" fill="none" d="M.5 .5H{SIDE - 0.5}V{SIDE - 0.5}H.5Z"/></g></g>'
    )
    return svg(body, (left + SIDE, SIDE), label, "heat", palette, inline=True)


def _layers(paths: Sequence[str]) -> str:
    return "".join(f'<path d="{path}" fill-opacity="{(depth + 1) / DEPTHS:.2f}"/>' for depth, path in enumerate(paths))


def _cells(block: Mapping[str, int], edges: Iterable[Edge], side: int) -> dict[tuple[int, int], float]:
    """The mean weight over all pairs of nodes of a cell, both ways round, in units of the heaviest edge."""
    edges = list(edges)
    heaviest = max((abs(weight) for *_, weight in edges), default=1.0)
    sizes = [0] * side
    for index in block.values():
        sizes[index] += 1
    total: dict[tuple[int, int], float] = {}
    for a, b, weight in edges:
        for cell in {(block[a], block[b]), (block[b], block[a])}:
            total[cell] = total.get(cell, 0.0) + weight / heaviest
    return {
        (row, column): weight / (math.comb(sizes[row], 2) if row == column else sizes[row] * sizes[column])
        for (row, column), weight in total.items()
    }
