"""What result.json says of a run that learned graphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from silograph.core.results import Result

#: A field that is left out of the file where it is None.
UNSAID = {"left_out": True}


AS_IN_TABLES = "as in the tables (--scale none)"  # how columns were scaled: not at all
OWN_UNITS = "Columns are taken as they are"  # how the note on columns begins that nothing scaled
EXPECTED = "Expected: of"  # how the note on votes begins that says how many edges are true
LOUDEST = "Nearly all that varies is in"  # how the note on a node begins whose units decide a private graph


@dataclass(frozen=True)
class Site:
    """A site and its graph; `edges` is None where it has none; the last fields: what noise left, what is proven."""

    name: str
    signals: int
    edges: int | None
    mean_weight: float | None
    effective_rows: float | None = field(default=None, metadata=UNSAID)
    agreement: float | None = field(default=None, metadata=UNSAID)
    weight: float | None = None
    smoothness: float | None = None
    bytes_sent: int = 0
    proven_nodes: float | None = field(default=None, metadata=UNSAID)
    drawn_to_mean: float | None = field(default=None, metadata=UNSAID)
    nodes: int | None = field(default=None, metadata=UNSAID)  # its own, where it lacks some
    missing: float | None = field(default=None, metadata=UNSAID)  # share of its values


@dataclass(frozen=True)
class Consensus:
    edges: int
    mean_weight: float | None
    effective_rows: float | None = field(default=None, metadata=UNSAID)
    agreement: float | None = field(default=None, metadata=UNSAID)


@dataclass(frozen=True)
class Tried:
    """How a parameter was chosen, where a run tried several values."""

    parameter: str
    values: list[float]
    scores: list[float | None]
    spread: list[float | None]
    chosen: float
    score: str


@dataclass(frozen=True)
class Round:
    round: int
    objective: float | None
    gap: float | None


@dataclass(frozen=True)
class Reliable:
    """How far the communities of a private graph can be relied on: against those of graphs that the noise leaves
    possible. `agreement`: adjusted mutual information, 1 where all are the same and 0 by chance. `kept`: of each
    community, largest first, how many of its pairs of nodes stay together."""

    agreement: float
    kept: list[float]
    graphs: int


@dataclass(frozen=True)
class Groups:
    """Two groups of persons that were compared: how many persons each has, behind noise; the noise of a difference of
    their shares; how many edges differ by more than `margin`, with a probability above `confidence`."""

    names: list[str]
    persons: list[float]
    noise: float
    margin: float
    confidence: float
    edges: int


@dataclass(frozen=True, kw_only=True)
class GraphResult(Result):
    """`counted` is what a site has so many of: signals or persons. What has a default, early versions did not write."""

    solver: str
    learner: str = "papers"
    learner_why: str | None = field(default=None, metadata=UNSAID)
    counted: str = "signals"
    parameters: dict[str, Any]
    degree: int | float | None
    consensus_density: int | float | None = None
    candidates: int | None = None
    resamples: int | None = None
    threshold: int | float | None
    confidence: float | None = field(default=None, metadata=UNSAID)
    #: Of votes: how many of the drawn edges are expected to be true; the part that distance alone would have got right.
    expected_true: float | None = field(default=None, metadata=UNSAID)
    distance_alone: float | None = field(default=None, metadata=UNSAID)
    communities: Reliable | None = field(default=None, metadata=UNSAID)
    groups: Groups | None = field(default=None, metadata=UNSAID)
    nodes: list[str]
    site_graphs: bool = True
    sites: list[Site]
    consensus: Consensus
    objective: float | None
    certified_gap: float | None
    trace: list[Round]
    reason: str | None = field(default=None, metadata=UNSAID)
    path: Tried | None = field(default=None, metadata=UNSAID)
    scale: str | None = field(default=None, metadata=UNSAID)
    findings: list[str] | None = field(default=None, metadata=UNSAID)
