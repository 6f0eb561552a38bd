"""What can be reproduced, by name, and the table each entry gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

from silograph.core.errors import InputError
from silograph.core.types import Json

_PAPERS = (
    "consensus_graph",
    "graph_views",
    "graph_brains",
    "graph_federation",
    "clustered_admm",
    "private_meta",
)  # modules of this package, each with its own ENTRIES

#: Told how much is done, from 0 to 1, and what of.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Row:
    """One number of a table: the mean and standard deviation over the seeds, and what the paper prints, if anything.

    Where it prints nothing there may be a `reference`, a number that another implementation measured.
    """

    case: str
    method: str
    metric: str
    ours: float
    std: float
    paper: float | None
    reference: float | None = None


@dataclass
class Table:
    """Rows and notes; of a figure also its curves, as `report.curves` draws them, below a title."""

    name: str
    seeds: int
    rows: list[Row]
    notes: list[str]
    title: str = ""
    curves: list[Json] = field(default_factory=list)

    def to_json(self) -> Json:
        rows = [asdict(row) for row in self.rows]
        if all(row.reference is None for row in self.rows):
            for row in rows:
                del row["reference"]
        figure = {"title": self.title, "curves": self.curves} if self.curves else {}
        return {"name": self.name, "seeds": self.seeds, "rows": rows, "notes": self.notes} | figure


@dataclass(frozen=True)
class Entry:
    """`run(seeds, data, progress)` makes the table; `data` is a folder of data sets, for the entries that need one.

    `seeds` is how many repetitions there are, unless the user says so.
    """

    name: str
    title: str
    run: Callable[[int, Path | None, Progress], Table]
    seeds: int = 20


#: Every entry by name. The papers' modules bring in solvers and accountants, so they wait until this is looked at.
ENTRIES: dict[str, Entry]


def __getattr__(name: str) -> dict[str, Entry]:
    if name != "ENTRIES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _entries()


@cache
def _entries() -> dict[str, Entry]:
    papers = (import_module(f"silograph.reproduce.{paper}") for paper in _PAPERS)
    return {entry.name: entry for paper in papers for entry in paper.ENTRIES}


def check_seeds(seeds: int) -> None:
    if seeds < 1:
        raise InputError("seeds", "a whole number from 1 up", f"{seeds} came")


def find(name: str) -> Entry:
    entries = _entries()
    if name not in entries:
        raise InputError("reproduce", f"one of {', '.join(sorted(entries))}", f"{name!r} came")
    return entries[name]
