"""What the command line prints of a run that learned graphs."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.core import schema
from silograph.families.graphs.result import AS_IN_TABLES, Consensus, GraphResult, Site
from silograph.report.printed import cost, table

#: Effective rows at which nine edges in ten of 20 nodes are right: with six neighbours and positive relations, or three
#: neighbours and scaled columns (docs/private-graphs.md).
ENOUGH = 500.0
_LIKE_MEASURED = range(20, 41)  # nodes
SOLVED = 1e-3  # nats a row and node, the tolerance of the likelihood of all sites together


def summary(result: GraphResult) -> Iterator[str]:
    nodes = len(result.nodes)
    costs = {g.site: g for g in result.privacy.guarantees}
    rows = [
        (
            site.name,
            f"{site.signals}",
            *(("", "") if site.edges is None else (f"{site.edges}", f"{2 * site.edges / (site.nodes or nodes):.1f}")),
            f"{site.weight:.3g}",
            _effective(site),
            cost(schema.write(costs[site.name])),
        )
        for site in result.sites
    ]
    consensus = result.consensus
    edges = consensus.edges
    rows.append(("consensus", "", f"{edges}", f"{2 * edges / nodes:.1f}", "", _effective(consensus), ""))
    header = ("site", result.counted, "edges", "mean degree", "weight", "effective rows", "privacy")
    noisy = consensus.effective_rows is not None
    shown = [k for k, name in enumerate(header) if noisy or name != "effective rows"]
    yield from table(tuple(header[k] for k in shown), [tuple(row[k] for k in shown) for row in rows])
    if noisy:
        yield (
            "effective rows: the noise costs as much as having only so many rows; sites learn together, so a site can "
            "have more than its own rows" + (f"; 20 nodes need about {ENOUGH:.0f}" if was_measured(result) else "")
        )
    yield f"{_times(result.rounds, 'round')}, {_sent(result)}{_exactness(result)}"
    if (line := beside_distance(result)) is not None:
        yield line
    if (line := of_groups(result)) is not None:
        yield f"groups: {line}"
    if result.communities is not None:
        known = result.communities
        yield (
            f"communities: {len(known.kept)}; they agree to {known.agreement:.2f} with those of other graphs that the "
            "noise leaves possible (1: the same, 0: chance)"
        )
    yield from _proven(result)
    if result.reason is not None:
        yield f"edges: {result.reason}"
    if result.learner_why is not None:
        taken = "persons' votes" if result.learner == "votes" else "the papers' model"
        yield f"learner: {taken}, because {result.learner_why}"
    if result.scale is not None:
        yield f"scale: {result.scale}"
    yield from (f"note: {words}" for words in result.findings or ())
    yield from (f"note: {words}" for words in unmet(result))


def was_measured(result: GraphResult) -> bool:
    """Whether `ENOUGH` was measured on graphs like these: about as many nodes, and signs only of scaled columns."""
    return len(result.nodes) in _LIKE_MEASURED and (result.learner != "signed" or result.scale != AS_IN_TABLES)


def unmet(result: GraphResult) -> list[str]:
    """What was asked for and not reached, and why."""
    nodes, edges = len(result.nodes), result.consensus.edges
    drawn = [site.edges or 0 for site in result.sites] if result.site_graphs else [edges]
    likely, found = result.learner == "likelihood", []
    asked, got = result.degree, 2 * sum(drawn) / nodes / len(drawn)
    if any(site.nodes is not None for site in result.sites):
        return []  # the reason says how many edges sites get that lack nodes
    if asked is not None and abs(got - asked) > (0.02 if likely else 0.05) * asked:
        found.append(f"degree {asked:g} was asked for; {got:.1f} is the nearest that was found")
    asked, got = result.consensus_density, 2 * edges / nodes / (nodes - 1)
    if asked is not None and abs(got - asked) > (0.02 if likely else 0.1) * asked:
        found.append(f"a consensus of density {asked:g} was asked for; {got:.2g} is the nearest that was found")
    return [f"{words}{_because(result)}" for words in found]


def _because(result: GraphResult) -> str:
    """Why fewer edges are drawn than the likelihood was asked for: it takes exactly as many as that."""
    if result.learner in ("likelihood", "votes") and (result.confidence is not None or result.threshold):
        return ", because the threshold or the confidence leaves out the others"
    if result.learner != "likelihood":
        return ""
    return ": a graph has a whole number of edges, and with --nonnegative further ones would have weight 0"


def true_edges(result: GraphResult) -> str:
    """How far a graph of votes can be relied on."""
    votes = int(result.parameters["votes"])
    return (
        f"Of {_times(result.consensus.edges, 'edge')}, about {result.expected_true or 0.0:.0f} are expected to be "
        f"among the {votes} that most persons have; each person votes for {votes} edges (--degree)"
    )


def of_groups(result: GraphResult) -> str | None:
    """What sets two groups of persons apart."""
    if (known := result.groups) is None:
        return None
    one, other = (f"{name} (about {persons:.0f})" for name, persons in zip(known.names, known.persons, strict=True))
    return (
        f"{one} and {other} differ by more than {known.margin:g} in the share of persons who have "
        f"{_times(known.edges, 'edge')}, each with a probability above {known.confidence:g} (differences.csv)"
    )


def beside_distance(result: GraphResult) -> str | None:
    """What the nearest nodes alone would have made, as many edges as persons vote for."""
    if result.distance_alone is None:
        return None
    edges = result.parameters["votes"]
    return f"distance alone: {100 * result.distance_alone:.0f} % of the {edges:g} nearest pairs are edges"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _sent(result: GraphResult) -> str:
    """What a site sent in all; the largest, as sites that came late sent less."""
    most = max(site.bytes_sent for site in result.sites)
    return f"{most / 1e6:.3g} MB sent by a site, " if most >= 1e6 else f"{most / 1e3:.3g} kB sent by a site, "


def _proven(result: GraphResult) -> Iterator[str]:
    if result.candidates is None:
        return
    shares = [site.proven_nodes for site in result.sites if site.proven_nodes is not None]
    edges = f"{result.candidates} candidate edges"
    if not shares:
        yield f"{edges}: the graph is the optimum among them; nothing is known about other edges"
    elif min(shares) == 1.0:
        yield f"{edges}: the graph is the optimum among all pairs, because no other edge can have weight"
    else:
        yield f"{edges}: at {min(shares):.1%} of the nodes no other edge can matter; more --neighbours prove more"


def _effective(graph: Site | Consensus) -> str:
    records = graph.effective_rows
    return "" if records is None else f"{records:.0f}"


def _exactness(result: GraphResult) -> str:
    gap = result.certified_gap
    if result.learner == "votes":
        drawn = true_edges(result)
        return drawn[0].lower() + drawn[1:]
    if result.learner in ("likelihood", "signed") and gap is not None:
        return f"certified gap {gap:.1e}" + ("" if gap <= SOLVED else ": not quite solved")
    if result.solver == "paper":
        return "no certificate (solver paper)"
    if gap is None:
        return "stopped too early for a certificate: allow more with --rounds"
    return f"certified gap {gap:.1e}" + ("" if gap <= 1e-6 else ": not solved, allow more with --rounds")
