"""The report: one HTML page that is a pure function of a finished run folder."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from silograph.core.types import Json
from silograph.report import figures, words
from silograph.report.read import Edge, RunFolder, read

MOST_PICTURES = 40
MOST_EDGES = 1000
#: Shared by all pictures of a page, so that many sites still make a small file.
MOST_EDGES_IN_ALL = 12_000
#: More nodes than this make neither a readable picture nor a quick layout.
MOST_NODES = 400
STRONGEST = 30

MEANING = {
    "alpha": "how strongly every node is kept connected",
    "beta": "how evenly weight is spread: larger gives more, lighter edges",
    "nu": "how strongly each site is pulled towards the consensus (times lambda)",
    "lambda": "how sparse the consensus is kept",
    "zeta": "a small number that keeps the logarithm of a degree finite",
}


def build(folder: str | Path) -> str:
    """The HTML report of a run folder. The same folder always gives the same bytes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    run = read(folder)
    environment = Environment(
        loader=PackageLoader("silograph", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(words, name) for name in ("number", "bound", "column", "counted")}
    return environment.get_template("report.html.j2").render(
        result=run.result,
        plan=run.plan,
        learned=words.what_was_learned(run.result),
        exact=words.how_exact(run.result["certified_gap"]),
        private=words.how_private(run),
        protection=_protection(run),
        unprotected=words.not_protected(run),
        pictures=_pictures(run),
        strongest=_strongest(run),
        convergence=_convergence(run.result),
        contributions=_contributions(run.result),
        releases=_releases(run.ledger),
        meaning=MEANING,
        infinity=math.inf,
        light=asdict(figures.LIGHT),
        dark=asdict(figures.DARK),
    )


def _visible(value: Any) -> Any:
    # Only plain text: figures are markup, and already clean.
    return words.visible(value) if type(value) is str else value


def _protection(run: RunFolder) -> tuple[str, str]:
    """How much of a run is protected: a class of the style sheet, and a label."""
    if not words.is_protected(run.result["privacy"]):
        return "none", "Not private"
    if not words.is_complete(run.result):
        return "partial", "Private in part"
    return ("partial", "Rehearsal of privacy") if words.is_noise_known(run) else ("full", "Private")


def _pictures(run: RunFolder) -> Json:
    """The consensus, then a small picture per site; all share one layout and one scale of line widths."""
    names = list(run.sites)[:MOST_PICTURES]
    nodes = _best_connected(run)
    limit = min(MOST_EDGES, MOST_EDGES_IN_ALL // (len(names) + 1))

    def chosen(edges: list[Edge]) -> list[Edge]:
        kept = set(nodes)
        return figures.strongest([edge for edge in edges if edge[0] in kept and edge[1] in kept], limit)

    consensus = chosen(run.consensus)
    drawn = {name: chosen(run.sites[name]) for name in names}
    union = [*consensus, *(edge for edges in drawn.values() for edge in edges)]
    shared: Json = {
        "places": figures.layout(nodes, union),
        "heaviest": max((weight for *_, weight in union), default=1.0),
        "inline": True,
    }
    in_consensus = _pairs(run.consensus)

    def of_site(name: str) -> Json:
        edges = run.sites[name]
        own = _pairs(edges) - in_consensus
        label = f"Graph of {name}: {words.counted(len(edges), 'edge')}, {len(own)} of them not in the consensus"
        look = shared | {"label": label, "size": (380, 300), "names": len(nodes) <= 12}
        svg = figures.graph_svg(nodes, drawn[name], _as_tuples(own), **look)
        return {"name": name, "svg": _markup(svg), "edges": len(edges), "own": len(own), "drawn": len(drawn[name])}

    label = f"Consensus graph: {words.counted(len(nodes), 'node')}, {words.counted(len(run.consensus), 'edge')}"
    return {
        "consensus": _markup(figures.graph_svg(nodes, consensus, label=label, **shared)),
        "edges": len(run.consensus),
        "drawn": len(consensus),
        "nodes": len(nodes),
        "sites": [of_site(name) for name in names],
    }


def _best_connected(run: RunFolder) -> list[str]:
    """The nodes to draw: all, or those with the most weight on their edges, in their given order."""
    nodes: list[str] = run.result["nodes"]
    if len(nodes) <= MOST_NODES:
        return nodes
    weight = dict.fromkeys(nodes, 0.0)
    for edges in (run.consensus, *run.sites.values()):
        for a, b, w in edges:
            weight[a] += w
            weight[b] += w
    best = set(sorted(nodes, key=lambda name: -weight[name])[:MOST_NODES])
    return [name for name in nodes if name in best]


def _strongest(run: RunFolder) -> list[Json]:
    """The heaviest consensus edges, and in how many sites each is found."""
    found: dict[frozenset[str], int] = {}
    for edges in run.sites.values():
        for pair in _pairs(edges):
            found[pair] = found.get(pair, 0) + 1
    return [
        {"source": a, "target": b, "weight": weight, "sites": found.get(frozenset((a, b)), 0)}
        for a, b, weight in figures.strongest(run.consensus, STRONGEST)
    ]


def _convergence(result: Json) -> str:
    """The certified gap, and the objective's distance to its lowest value: both relative, so they share an axis."""
    trace = result["trace"]
    gaps = [(row["round"], row["gap"]) for row in trace if row["gap"] is not None]
    values = [(row["round"], row["objective"]) for row in trace if words.is_number(row["objective"])]
    lowest = min((value for _, value in values if math.isfinite(value)), default=0.0)
    above = [(t, (value - lowest) / (abs(lowest) or 1.0)) for t, value in values]
    label = "Relative gap and objective over the rounds, logarithmic axis"
    return _markup(figures.convergence_svg([("certified gap", gaps), ("objective above its lowest", above)], label))


def _contributions(result: Json) -> str:
    weights = [(site["name"], site["weight"]) for site in result["sites"]]
    return _markup(figures.bars_svg(weights, "Weight of each site in the consensus"))


def _releases(ledger: Iterable[Json]) -> list[Json]:
    """The ledger in one row per silo, site of release and mechanism."""
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for row in ledger:
        groups.setdefault((row["silo"], row["site"], row["mechanism"]), []).append(row)

    def texts(rows: list[Json], key: str) -> str:
        return words.listed(list(dict.fromkeys(str(row[key]) for row in rows if row.get(key) is not None)), most=4)

    return [
        {
            "silo": silo,
            "site": site,
            "mechanism": mechanism,
            "count": len(rows),
            "observer": texts(rows, "observer"),
            "randomness": texts(rows, "randomness"),
            "why": texts(rows, "why"),
            **{key: words.spread(row.get(key) for row in rows) for key in ("round", "dim", "l2", "noise")},
        }
        for (silo, site, mechanism), rows in groups.items()
    ]


def _pairs(edges: Iterable[Edge]) -> set[frozenset[str]]:
    return {frozenset(edge[:2]) for edge in edges}


def _as_tuples(pairs: Iterable[frozenset[str]]) -> list[tuple[str, str]]:
    return [(a, b) for a, b in map(sorted, pairs)]


def _markup(svg: str) -> str:
    from markupsafe import Markup

    return Markup(svg)
