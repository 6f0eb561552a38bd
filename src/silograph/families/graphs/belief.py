"""What to believe of learned graphs: how many edges are probably right, before how exactly they were computed."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.families.graphs.printed import ENOUGH, true_edges, was_measured
from silograph.families.graphs.read import GraphRun
from silograph.families.graphs.result import AS_IN_TABLES, EXPECTED, LOUDEST, OWN_UNITS
from silograph.report.words import counted, listed

SURE = 0.9
MANY_PAIRS = 1.0 / 3.0
_NEED = f"about {ENOUGH:.0f} are needed for nine edges in ten to be right (measured with 20 nodes)"
_OF_DIFFERENCES = (
    "Each row is taken relative to its own mean over the columns, so the method learns from differences between "
    "columns: with few columns (below about 20), or relations of both signs, single edges can be wrong or have the "
    "wrong sign, however many rows there are."
)
_NODES = 20  # of the graphs on which `ENOUGH` was measured
_ONLY_POSITIVE = "Only positive relations were learned; negative ones are missing."
_MOST_NAMED = 3
_IN_OWN_UNITS = (
    "Columns were taken in their own units: do not believe this graph unless all columns have one unit and vary around "
    "0. Otherwise scale them by public constants (--scale FILE), or use a larger budget or more rows."
)


def belief(run: GraphRun) -> list[str]:
    """Sentences for the top of the page; none if the run does not say how sure its edges are."""
    if run.voted:
        expected = [note for note in run.result.privacy.notes if note.startswith(EXPECTED)]
        return [f"{true_edges(run.result)}.", *expected[:1]]
    if run.result.consensus.effective_rows is not None:
        notes = run.result.privacy.notes
        loudest = [note for note in notes if note.startswith(LOUDEST)]
        own = [_IN_OWN_UNITS for note in notes if note.startswith(OWN_UNITS)]
        return loudest or [*own, *_behind_noise(run)]
    return list(_by_probability(run))


def _by_probability(run: GraphRun) -> Iterator[str]:
    """Probabilities of edges add up to the number of edges that are expected to be right."""
    chances = list(run.confidence[None].values())
    if not chances:
        return
    wrong, sure = sum(1.0 - chance for chance in chances), sum(chance >= SURE for chance in chances)
    if run.result.learner == "likelihood":
        drawn = f" (`silograph learn ... --confidence {SURE:g}` draws only these)"
        only = drawn if run.result.confidence is None else ""
        yield (
            f"Of {counted(len(chances), 'edge')} of the consensus, {_rounded(wrong)} wrong; {sure} have a "
            f"probability of {SURE:g} or more{only}."
        )
        doubtful = sum(chance < 0.5 for name in run.sites for chance in run.confidence[name].values())
        if doubtful:
            have = "has a probability" if doubtful == 1 else "have probabilities"
            yield f"In the graphs of the sites, {counted(doubtful, 'edge')} {have} below 0.5: do not believe these."
    else:
        often = f"{100 * SURE:g} % of the resampled tables"
        yield f"{sure} of {counted(len(chances), 'edge')} appear again in {often} or more."
    if len(run.sites) > 1:
        yield "Sites were learned together: an edge in the graphs of all sites was not found independently at each."


def _behind_noise(run: GraphRun) -> Iterator[str]:
    rows = {site.name: site.effective_rows for site in run.result.sites if site.effective_rows is not None}
    consensus = run.result.consensus.effective_rows or 0.0
    nodes = len(run.result.nodes)
    share = 2.0 * len(run.consensus) / (nodes * max(nodes - 1, 1))
    dense = share > MANY_PAIRS and run.result.degree is None
    enough = ENOUGH * max(1.0, (nodes - 1) / (_NODES - 1))  # it grows with the number of nodes
    need = f"; {_NEED}" if was_measured(run.result) and not dense else ""
    if run.sites and rows:
        low, high = min(rows.values()), max(rows.values())
        span = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
        yield (
            f"The noise costs as much as having only {span} rows for the graph of a site, and {consensus:.0f} for the "
            f"consensus{need}. Sites learn together: this number can be larger than a site’s own number of rows."
        )
        weak = [name for name, left in rows.items() if left < enough]
        if weak:
            where = "every site" if len(weak) == len(rows) else listed(weak, _MOST_NAMED)
            yield f"Treat single edges at {where} with caution."
    else:
        yield f"The noise costs as much as having only {consensus:.0f} rows{need}."
    if consensus < enough:
        yield "Treat single edges of the consensus with caution: believe what many edges say together."
    if dense:
        yield f"The consensus joins {100 * share:.0f} % of all pairs: too many for single edges to mean much."
    if run.result.learner != "signed" or run.result.scale == AS_IN_TABLES:
        yield _OF_DIFFERENCES
    if not run.signed:
        yield _ONLY_POSITIVE


def _rounded(wrong: float) -> str:
    return f"about {wrong:.0f} may be" if wrong >= 0.5 else "probably none is"
