"""A graph in matplotlib, for those who have it: placed and coloured as on the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from silograph.core.errors import InputError
from silograph.report.figures import LIGHT, crowding, layout, strongest
from silograph.report.live_graph import MOST_EDGES
from silograph.report.read import Edge

MOST_NAMES = 40


def plot_graph(
    nodes: Sequence[str], edges: Sequence[Edge], signs: Mapping[frozenset[str], int], title: str, ax: Any = None
) -> Any:
    """Draw on `ax`, or on new axes, and return them. The wider a line, the larger its weight; negative ones are
    dashed."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError("plot", "matplotlib", "it is not installed", "pip install matplotlib.") from None
    ax = pyplot.subplots()[1] if ax is None else ax
    drawn = strongest(edges, MOST_EDGES)
    places, top, crowd = layout(nodes, drawn), max((weight for *_, weight in drawn), default=1.0), crowding(len(nodes))
    for source, target, weight in reversed(drawn):
        negative = signs.get(frozenset((source, target)), 1) < 0
        look = {"color": LIGHT.own, "linestyle": "--"} if negative else {"color": LIGHT.shared}
        across, down = zip(places[source], places[target], strict=True)
        ax.plot(across, down, linewidth=crowd * (0.5 + 4.5 * weight / top), alpha=0.7, zorder=1, **look)
    across, down = zip(*(places[name] for name in nodes), strict=True)
    ax.scatter(across, down, s=40 * crowd, color=LIGHT.node, zorder=2)
    for name in nodes if len(nodes) <= MOST_NAMES else ():
        below = {"xytext": (0, -5), "textcoords": "offset points", "ha": "center", "va": "top"}
        ax.annotate(name, places[name], fontsize=8, **below)
    ax.set_title(title)
    ax.invert_yaxis()  # as on a page, where down is positive
    ax.set_axis_off()
    return ax
