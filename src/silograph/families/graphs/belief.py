"""What to believe of learned graphs: how many edges are probably right, before how exactly they were computed."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.families.graphs.read import GraphRun
from silograph.families.graphs.result import LOUDEST, OWN_UNITS
from silograph.report.words import counted, listed

#: Effective rows at which nine edges in ten of 20 nodes with six neighbours are right (docs/private-graphs.md).
ENOUGH = 500.0
SURE = 0.9
MANY_PAIRS = 1.0 / 3.0
_MOST_NAMED = 3
_IN_OWN_UNITS = (
    "Columns were taken in their own units: do not believe this graph unless all columns have one unit and vary around "
    "0. Otherwise scale them by public constants (--scale FILE), or use a larger budget or more rows."
)


def belief(run: GraphRun) -> list[str]:
    """Sentences for the top of the page; none where the run says nothing about how sure its edges are, and of votes,
    which say it instead of exactness."""
    if run.voted:
        return []
    if run.result.consensus.effective_rows is not None:
        notes = run.result.privacy.notes
        loudest = [note for note in notes if note.startswith(LOUDEST)]
        own = [_IN_OWN_UNITS for note in notes if note.startswith(OWN_UNITS)]
        return loudest or [*own, *_behind_noise(run)]
    return list(_by_probability(run))


def _by_probability(run: GraphRun) -> Iterator[str]:
    """Probabilities and confidences of edges are chances of being right, so that they add up to a number of edges."""
    chances = list(run.confidence[None].values())
    if not chances:
        return
    wrong, sure = sum(1.0 - chance for chance in chances), sum(chance >= SURE for chance in chances)
    if run.result.learner == "likelihood":
        yield (
            f"Of {counted(len(chances), 'edge')} of the consensus, {_rounded(wrong)} wrong; {sure} have a "
            f"probability of {SURE:g} or more (--confidence {SURE:g} draws only these)."
        )
    else:
        often = f"{100 * SURE:g} % of the resampled tables"
        yield f"{sure} of {counted(len(chances), 'edge')} appear again in {often} or more."
    if len(run.sites) > 1:
        yield "Sites were learned together: an edge at all sites is not an independent finding at each."


def _behind_noise(run: GraphRun) -> Iterator[str]:
    rows = {site.name: site.effective_rows for site in run.result.sites if site.effective_rows is not None}
    consensus = run.result.consensus.effective_rows or 0.0
    need = f"about {ENOUGH:.0f} are needed for nine edges in ten to be right (measured with 20 nodes of six neighbours)"
    if run.sites and rows:
        low, high = min(rows.values()), max(rows.values())
        span = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
        yield (
            f"After the noise the graph of each site is as good as one from {span} rows without noise (including what "
            f"it takes from the other sites); {need}."
        )
        weak = [name for name, left in rows.items() if left < ENOUGH]
        if weak:
            where = "every site" if len(weak) == len(rows) else listed(weak, _MOST_NAMED)
            yield f"Treat single edges at {where} with caution."
    else:
        yield f"After the noise the graph is as good as one from {consensus:.0f} rows without noise; {need}."
    if consensus < ENOUGH:
        yield "Treat single edges of the consensus with caution: believe what many edges say together."
    elif run.sites:
        yield f"The consensus is as good as one from {consensus:.0f} rows."
    nodes = len(run.result.nodes)
    share = 2.0 * len(run.consensus) / (nodes * max(nodes - 1, 1))
    if share > MANY_PAIRS and run.result.degree is None:
        yield f"The consensus joins {100 * share:.0f} % of all pairs: too many for single edges to mean much."


def _rounded(wrong: float) -> str:
    return f"about {wrong:.0f} may be" if wrong >= 0.5 else "probably none is"
