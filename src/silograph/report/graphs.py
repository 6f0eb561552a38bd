"""The page of a run that learned graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from silograph.core.types import Json
from silograph.report import charts, figures, words
from silograph.report.page import markup, render_run, summarise
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import Edge
from silograph.report.read_graphs import GraphRun

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
    "ridge": "how strongly the likelihood’s weights are held down for the noise (mean of all graphs)",
    "zeta": "a small number that keeps the logarithm of a degree finite",
}


def page(run: GraphRun) -> str:
    privacy = PrivacyWords(
        run,
        noun="site",
        names=[site["name"] for site in run.result["sites"]],
        unprotected="No privacy protection: whoever receives these files or saw the messages "
        "can learn the sites’ second moments exactly.",
        stated="The names of nodes and sites and the number of signals of each site are stated here as they are.",
    )
    return render_run(
        "graphs.html.j2",
        run,
        privacy,
        releases=summarise(run.ledger, by=("silo", "site", "mechanism")),
        learned=words.what_was_learned(run.result),
        exact=words.how_exact(run.result["certified_gap"]),
        pictures=_pictures(run),
        strongest=_strongest(run),
        convergence=_convergence(run.result),
        contributions=_contributions(run.result),
        likely=run.result.get("learner") == "log-det",
        counted="Persons" if run.result.get("counted") == "persons" else "Signals",
        worth=_behind_noise(run.result, "effective_records", 0),
        agreement=_behind_noise(run.result, "agreement", 2),
        meaning=MEANING,
    )


def _pictures(run: GraphRun) -> Json:
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
        return {"name": name, "svg": markup(svg), "edges": len(edges), "own": len(own), "drawn": len(drawn[name])}

    label = f"Consensus graph: {words.counted(len(nodes), 'node')}, {words.counted(len(run.consensus), 'edge')}"
    return {
        "consensus": markup(figures.graph_svg(nodes, consensus, label=label, **shared)),
        "edges": len(run.consensus),
        "drawn": len(consensus),
        "nodes": len(nodes),
        "sites": [of_site(name) for name in names],
    }


def _best_connected(run: GraphRun) -> list[str]:
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


def _strongest(run: GraphRun) -> list[Json]:
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
    return markup(charts.convergence_svg([("certified gap", gaps), ("objective above its lowest", above)], label))


def _behind_noise(result: Json, name: str, decimals: int) -> list[str]:
    """A number that only graphs behind noise have, of every site and the consensus; none where no graph has it."""
    found = [graph.get(name) for graph in (*result["sites"], result["consensus"])]
    if not any(map(words.is_number, found)):
        return []
    return [f"{value:,.{decimals}f}" if words.is_number(value) else words.number(None) for value in found]


def _contributions(result: Json) -> str:
    weights = [(site["name"], site["weight"]) for site in result["sites"]]
    return markup(charts.bars_svg(weights, "Weight of each site in the consensus"))


def _pairs(edges: Iterable[Edge]) -> set[frozenset[str]]:
    return {frozenset(edge[:2]) for edge in edges}


def _as_tuples(pairs: Iterable[frozenset[str]]) -> list[tuple[str, str]]:
    return [(a, b) for a, b in map(sorted, pairs)]
