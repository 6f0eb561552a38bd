"""The page of a run that learned graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from silograph.core.types import Json
from silograph.families.graphs.belief import belief
from silograph.families.graphs.printed import SOLVED, beside_distance, of_groups, summary, unmet, was_measured
from silograph.families.graphs.read import GraphRun, read
from silograph.families.graphs.result import GraphResult, Tried
from silograph.report import charts, figures, projections, words
from silograph.report.heat_map import BLOCKS, MOST_CELLS, Communities, communities, heat_svg
from silograph.report.live_graph import Drawn, Kind, explorer, pairs
from silograph.report.page import GRAPH, TABLES, embedded, markup, render_run, summarise
from silograph.report.privacy_words import PrivacyWords, Protected, person_of, row_of
from silograph.report.read import Edge, Measured

__all__ = ["RESULT", "forecast", "measured", "page", "privacy_of", "read", "summary"]

RESULT = GraphResult

#: Of a plan whose tables have a row for each node, so that a signal is a column.
ROWS_ARE_NODES = 'nodes_in = "rows"'
MOST_PICTURES = 40
#: Edges in a small still picture.
MOST_SMALL = 400
#: Shared by all pictures of a page, so that many sites still make a small file.
MOST_EDGES_IN_ALL = 12_000
STRONGEST, STRONGEST_WITHOUT_PICTURE = 30, 200
MOST_COMMUNITIES, MOST_MEMBERS = 20, 6
MOST_BARS = 12
MOST_NAMED = 3

KINDS = (Kind("shared", "of the consensus"), Kind("own", "not in the consensus"))

SIGNED = (
    Kind("shared", "positive, in the consensus"),
    Kind("negative", "negative, in the consensus"),
    Kind("shared apart", "positive, not in the consensus"),
    Kind("negative apart", "negative, not in the consensus"),
)

MEANING = {
    "shared": "the part of all pairs of nodes that the sites have in common, as the data say",
    "kept": "how often a site has an edge that is shared",
    "own": "how often a site has an edge that is not shared",
    "noise_inflation": "how much larger the noise of an edge is than that of as many independent rows",
    "spread": "how much sites differ in the strength of a shared edge, as a part of it",
    "positive": "the part of edges that are positive",
    "alpha": "how strongly every node is kept connected",
    "beta": "how evenly weight is spread: larger gives more, lighter edges",
    "nu": "how strongly each site is pulled towards the consensus (times lambda)",
    "lambda": "how sparse the consensus is kept",
    "ridge": "how strongly the likelihood’s weights are held down for the noise (mean of all graphs)",
    "votes": "edges that each person votes for, at most",
    "level": "the share of persons that an edge must have to count as there",
    "noise": "standard deviation of the noise in a share of persons",
    "zeta": "a small number that keeps the logarithm of a degree finite",
}


def privacy_of(run: GraphRun) -> PrivacyWords:
    known = "the sites’ second moments" if run.sites else "the sum of all sites’ correlations, but no site’s own,"
    protects = _protects(run)
    return PrivacyWords(
        run,
        noun="site",
        names=[site.name for site in run.result.sites],
        unprotected="No privacy protection: whoever receives these files or saw the messages "
        f"can learn {known} exactly.",
        protects=protects,
        stated=f"the names of nodes and sites, and how many {protects.things} each site has",
    )


def _protects(run: GraphRun) -> Protected:
    if run.result.privacy.protected_unit.startswith("one person"):
        return person_of("site")
    return row_of("site", "column" if ROWS_ARE_NODES in run.plan else "row")


def page(run: GraphRun) -> str:
    found = communities(run.result.nodes, run.consensus)
    return render_run(
        "graphs.html.j2",
        run,
        privacy_of(run),
        scripts=(TABLES, GRAPH),
        releases=summarise(run.ledger, by=("release_point", "mechanism", "observer")),
        believe=belief(run),
        exact=_exact(run.result),
        pictures=_pictures(run),
        explorer=embedded(_explorer(run, found)),
        heat=_heat(run, found),
        space=_space(run),
        has_sites=bool(run.sites),
        strongest=_strongest(run),
        could_see=bool(run.could_see),
        sure=any(run.confidence.values()),
        tried=_tried(run.result.path),
        convergence=_convergence(run.result),
        contributions=_contributions(run.result),
        learner=LEARNERS.get(run.result.learner),
        signed=run.signed,
        voted=run.voted,
        beside_distance=beside_distance(run.result),
        groups=of_groups(run.result),
        likely=run.likely,
        summed=run.likely and not run.sites,
        negative=sum(sign < 0 for sign in run.sign_of[None].values()),
        opposed=any(sign < 0 for signs in run.sign_of.values() for sign in signs.values()),
        drawn_to_mean=words.column(site.drawn_to_mean for site in run.result.sites),
        unmet=unmet(run.result) if run.likely else [],
        counted="Persons" if run.result.counted == "persons" else "Signals",
        effective=_behind_noise(run.result, "effective_rows", 0),
        measured=was_measured(run.result),
        agreement=_behind_noise(run.result, "agreement", 2),
        meaning=MEANING,
    )


#: What the page says of a learner; the papers' model goes by its solver.
LEARNERS = {
    "likelihood": "joint likelihood of all sites",
    "log-det": "likelihood of Gaussian signals (log-det)",
    "votes": "votes of persons for the edges of their own graphs",
    "signed": "likelihood of Gaussian signals with relations of both signs",
}


def _exact(result: GraphResult) -> str:
    gap = result.certified_gap
    if result.learner not in ("likelihood", "signed") or gap is None:
        return words.how_exact(gap)
    proven = f"the likelihood is proven to be within {words.bound(gap)} nats per row and node of the best possible one"
    return f"{'Solved' if gap <= SOLVED else 'Not quite solved'}: {proven}."


def _pictures(run: GraphRun) -> Json:
    """The consensus, then a small picture per site; all share one layout and one scale of line widths."""
    nodes: list[str] = run.result.nodes
    if not _is_drawable(run):
        return {"live": False, "edges": len(run.consensus)}
    names = list(run.sites)[:MOST_PICTURES]
    limit = min(MOST_SMALL, MOST_EDGES_IN_ALL // (len(names) + 1))
    consensus = figures.strongest(run.consensus, figures.MOST_EDGES)
    drawn = {name: figures.strongest(run.sites[name], limit) for name in names}
    union = [*consensus, *(edge for edges in drawn.values() for edge in edges)]
    shared: Json = {
        "places": figures.layout(nodes, union),
        "heaviest": max((weight for *_, weight in union), default=1.0),
        "inline": True,
        "sure": _sure(run),
    }

    def of_site(name: str) -> Json:
        edges = run.sites[name]
        own = pairs(edges) - _agreeing(run, name)
        label = f"Graph of {name}: {words.counted(len(edges), 'edge')}, {len(own)} of them not in the consensus"
        look = shared | {"label": label, "size": (380, 300), "names": len(nodes) <= 12}
        look |= {"confidence": run.confidence[name], "signs": run.sign_of[name]}
        svg = figures.graph_svg(nodes, drawn[name], _as_tuples(own), **look)
        return {"name": name, "svg": markup(svg), "edges": len(edges), "own": len(own), "drawn": len(drawn[name])}

    label = f"Consensus graph: {words.counted(len(nodes), 'node')}, {words.counted(len(run.consensus), 'edge')}"
    look: Json = {"confidence": run.confidence[None], "signs": run.sign_of[None]}
    picture = figures.graph_svg(nodes, consensus, label=label, **look, **shared)
    return {
        "live": True,
        "consensus": markup(picture),
        "edges": len(run.consensus),
        "drawn": len(consensus),
        "sites": [of_site(name) for name in names],
    }


def _sure(run: GraphRun) -> str:
    return "probability" if run.likely or run.voted else "confidence"


def _is_drawable(run: GraphRun) -> bool:
    return len(run.result.nodes) <= MOST_CELLS


def _explorer(run: GraphRun, found: Communities) -> Json:
    shared = {name: _agreeing(run, name) for name in (None, *run.sites)}

    def kind(name: str | None, edge: Edge) -> int:
        pair = frozenset(edge[:2])
        apart = pair not in shared[name]
        return 2 * apart + (run.sign_of[name].get(pair, 1) < 0) if run.signed else int(apart)

    named = [("the consensus", None, run.consensus), *((name, name, edges) for name, edges in run.sites.items())]
    looks = [[(edge, kind(name, edge)) for edge in edges] for _, name, edges in named]
    used = sorted({k for each in looks for _, k in each} | {0}) if run.signed else range(len(KINDS))
    place = {k: index for index, k in enumerate(used)}
    graphs = [
        Drawn(title, [(edge, place[k]) for edge, k in each], run.confidence[name])
        for (title, name, _), each in zip(named, looks, strict=True)
    ]
    kinds = [(SIGNED if run.signed else KINDS)[k] for k in used]
    return explorer(run.result.nodes, kinds, graphs, found.order, drawn=_is_drawable(run), sure=_sure(run))


def _heat(run: GraphRun, found: Communities) -> Json:
    """The heat map of the consensus, and the communities it is ordered by."""
    nodes = len(run.result.nodes)
    label = f"Heat map of the consensus: {words.counted(nodes, 'node')} in the order of their communities"
    known = run.result.communities
    kept = [None] * len(found.groups) if known is None else known.kept
    inside = {name: k for k, group in enumerate(found.groups) for name in group}
    within = [0] * len(found.groups)
    for a, b, _ in run.consensus:
        if found.groups and inside[a] == inside[b]:
            within[inside[a]] += 1
    return {
        "picture": markup(heat_svg(found, run.consensus, label, run.sign_of[None])),
        "block": math.ceil(nodes / BLOCKS) if nodes > MOST_CELLS else None,
        "groups": [
            {"size": len(group), "edges": edges, "members": words.listed(group, MOST_MEMBERS + 1), "kept": share}
            for group, edges, share in list(zip(found.groups, within, kept, strict=True))[:MOST_COMMUNITIES]
        ],
        "known": known,
        "count": len(found.groups),
        "lonely": len(found.lonely),
    }


def _space(run: GraphRun) -> Json | None:
    """The consensus where its nodes are in the world, if somebody said where."""
    if not run.coordinates or not _is_drawable(run):
        return None
    placed = [edge for edge in run.consensus if edge[0] in run.coordinates and edge[1] in run.coordinates]
    seen = projections.views(run.coordinates)
    # Of a width and height that keep lengths alike in both directions.
    size = (380, 391) if len(seen) > 1 else (560, 565)
    pictures = [
        figures.graph_svg(
            run.result.nodes,
            placed,
            places=view.places,
            label=f"The consensus in space, {view.name}: {words.counted(len(placed), 'edge')}",
            size=size,
            limit=figures.MOST_EDGES,
            names=False,
            confidence=run.confidence[None],
            sure=_sure(run),
            signs=run.sign_of[None],
            outline=view.outline,
            inline=True,
        )
        for view in seen
    ]
    return {
        "views": [(view.name, markup(picture)) for view, picture in zip(seen, pictures, strict=True)],
        "missing": len(run.result.nodes) - len(run.coordinates),
        "cut": len(placed) > figures.MOST_EDGES,
    }


def _strongest(run: GraphRun) -> list[Json]:
    """The heaviest consensus edges, in how many sites each is found, and which sites have it with the other sign."""
    found: dict[frozenset[str], int] = {}
    opposed: dict[frozenset[str], list[str]] = {}
    for name, edges in run.sites.items():
        agreeing, drawn = _agreeing(run, name), pairs(edges)
        for pair in drawn & agreeing:
            found[pair] = found.get(pair, 0) + 1
        for pair in (drawn & pairs(run.consensus)) - agreeing:
            opposed.setdefault(pair, []).append(name)
    sure, signs = run.confidence[None], run.sign_of[None]
    heaviest = figures.strongest(run.consensus, STRONGEST if _is_drawable(run) else STRONGEST_WITHOUT_PICTURE)
    named = [(a, b, weight, frozenset((a, b))) for a, b, weight in heaviest]
    return [
        {"source": a, "target": b, "weight": weight * signs.get(pair, 1), "sites": found.get(pair, 0)}
        | {"confidence": sure.get(pair), "could_see": run.could_see.get(pair)}
        | {"opposed": words.listed(opposed.get(pair, []), MOST_NAMED)}
        for a, b, weight, pair in named
    ]


def _agreeing(run: GraphRun, name: str | None) -> set[frozenset[str]]:
    """The edges of the consensus that a site would have with the same sign."""
    signs, here = run.sign_of[None], run.sign_of[name]
    return {pair for pair in pairs(run.consensus) if here.get(pair, 1) == signs.get(pair, 1) or pair not in here}


def _tried(path: Tried | None) -> Json | None:
    """The values of a parameter that were tried, and how each did."""
    if path is None:
        return None
    rows = list(zip(path.values, path.scores, path.spread, strict=True))
    middle = [(value, math.nan if score is None else score) for value, score, _ in rows]
    known = [(value, score, spread) for value, score, spread in rows if score is not None and spread is not None]
    lines = [(path.score, middle)]
    if known:
        lines += [("plus its spread", [(v, s + d) for v, s, d in known])]
        lines += [("minus its spread", [(v, s - d) for v, s, d in known])]
    positive = [value for value in path.values if value > 0]
    wide = len(positive) == len(rows) and bool(positive) and max(positive) > 20 * min(positive)
    label = f"{path.score} over {path.parameter}, for {words.counted(len(rows), 'value')}"
    marked = path.chosen if len(lines) == 1 else None
    picture = charts.lines_svg(lines, label, x_name=path.parameter, y_name=path.score, log_x=wide, marked=marked)
    return vars(path) | {"picture": markup(picture)}


def _convergence(result: GraphResult) -> str:
    """The certified gap, and the objective's distance to its lowest value: both relative, so they share an axis."""
    trace = result.trace
    gaps = [(row.round, row.gap) for row in trace if row.gap is not None]
    values = [(row.round, row.objective) for row in trace if words.is_number(row.objective)]
    lowest = min((value for _, value in values if math.isfinite(value)), default=0.0)
    above = [(t, (value - lowest) / (abs(lowest) or 1.0)) for t, value in values]
    label = "Relative gap and objective over the rounds, logarithmic axis"
    return markup(charts.convergence_svg([("certified gap", gaps), ("objective above its lowest", above)], label))


def _behind_noise(result: GraphResult, name: str, decimals: int) -> list[str]:
    """A number that only graphs behind noise have, of every site and the consensus; none where no graph has it."""
    found = [getattr(graph, name) for graph in (*result.sites, result.consensus)]
    if not any(map(words.is_number, found)):
        return []
    return [f"{value:,.{decimals}f}" if words.is_number(value) else words.number(None) for value in found]


def _contributions(result: GraphResult) -> Json:
    """A bar for each site, of many for the heaviest; no picture where all weigh the same."""
    weights = [(site.name, site.weight) for site in result.sites]
    same = {words.number(weight) for _, weight in weights}
    if len(same) == 1 < len(weights):
        return {"same": same.pop(), "picture": "", "left_out": 0}
    heaviest = weights
    if len(weights) > MOST_BARS:
        heaviest = sorted(weights, key=lambda row: -row[1] if words.is_number(row[1]) else math.inf)[:MOST_BARS]
    picture = markup(charts.bars_svg(heaviest, "Weight of each site in the consensus"))
    return {"same": "", "picture": picture, "left_out": len(weights) - len(heaviest)}


def _as_tuples(pairs: Iterable[frozenset[str]]) -> list[tuple[str, str]]:
    return [(a, b) for a, b in map(sorted, pairs)]


def forecast(told: Json) -> Iterator[str]:
    for site in told["sites"]:
        if "effective_rows" in site:
            effective = f"{site['effective_rows']:.0f}"
            yield (
                f"{site['site']}: {site['signals']} signals alone are at most about {effective} effective rows after "
                "the noise"
            )


def measured(run: GraphRun) -> Iterator[Measured]:
    kind = "certified gap, nats per row and node" if run.signed else "certified relative gap"
    if run.voted:
        yield Measured("expected true edges", "edges", "expected_true", run.result.expected_true)
    else:
        yield Measured(kind, "gap", "certified_gap", run.result.certified_gap)
    for site in run.result.sites:
        if not run.signed and not run.voted:
            yield Measured(site.name, "smoothness", "sites.smoothness", site.smoothness, run.result.learner)
        if site.effective_rows is not None:
            yield Measured(site.name, "effective rows", "sites.effective_rows", site.effective_rows)
