"""Run a paper's experiments: all repetitions, their progress, and the resulting table; and every entry by name.

A paper's own file defines what a repetition runs, which quantity is measured, and what the paper claims about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from silograph.core.errors import InputError
from silograph.core.schema import did_you_mean
from silograph.core.types import Array, Json
from silograph.data.collections import find_place
from silograph.reproduce.verdicts import PRINTED, UNCLEAR, Outcome, Verdict, left_open, printed, together, with_few

_PAPERS = (
    "consensus_graph",
    "graph_views",
    "graph_brains",
    "graph_federation",
    "clustered_admm",
    "private_meta",
)  # modules of this package, each with its own ENTRIES

#: Receives how much is done, from 0 to 1, and of what.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Row:
    """One number of a table: the mean and standard deviation over the seeds, and what the paper prints, if anything.

    If it prints nothing there may be a `reference`, a number that another implementation measured.
    """

    case: str
    method: str
    metric: str
    ours: float
    std: float
    paper: float | None
    reference: float | None = None

    @classmethod
    def of(
        cls,
        cell: tuple[str, str, str],
        each: Any,
        paper: float | None = None,
        reference: float | None = None,
        level: float | None = None,
    ) -> Row:
        """Of a (case, method, metric): each repetition's value; `level` is its mean where that is no plain one."""
        values = np.asarray(each)
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return cls(*cell, float(values.mean()) if level is None else level, spread, paper, reference)


def beside_reference(rows: Sequence[Row]) -> dict[Row, float]:
    """The differences of the rows from their reference, the largest first."""
    away = {row: row.ours - row.reference for row in rows if row.reference is not None}
    return dict(sorted(away.items(), key=lambda item: -abs(item[1])))


def curve(panel: str, label: str, x: Iterable[float], y: Iterable[Any], unit: str, **across: Any) -> Json:
    """As `report.curves` draws it; `across` names the axis of a sweep, x_name, and says whether it is x_log."""
    return {"panel": panel, "label": label, "x": [*x], "y": [*y], "unit": unit, **across}


def rounded(values: Iterable[Any]) -> list[float]:
    return [round(float(value), 4) for value in values]


@dataclass
class Table:
    """Rows, notes and verdicts; of a figure also its curves, as `report.reproduced_page` draws them, below a title."""

    name: str
    seeds: int
    rows: list[Row]
    notes: list[str]
    title: str = ""
    curves: list[Json] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    unlike: str = ""  # how this differs from the paper's own experiment, if it does
    wanted: int = 0  # how many repetitions verdicts are made for

    @classmethod
    def of(
        cls,
        name: str,
        seeds: int,
        rows: Sequence[Row],
        said: Iterable[str | Verdict],
        title: str = "",
        curves: Iterable[Json] = (),
        unlike: str = "",
    ) -> Table:
        """What is `said` beside the rows are notes and verdicts, in any order."""
        told = list(said)
        notes = [text for text in told if isinstance(text, str)]
        verdicts = [verdict for verdict in told if isinstance(verdict, Verdict)]
        return cls(name, seeds, list(rows), notes, title, list(curves), verdicts, unlike)

    def _outcome(self, row: Row) -> Outcome | None:
        if row.paper is None:
            return None
        return UNCLEAR if self.unlike else self._decided(printed(row.ours, row.std, self.seeds, row.paper))

    def _decided(self, outcome: Outcome) -> Outcome:
        return with_few(outcome) if self.seeds < self.wanted else outcome

    def judged(self) -> list[Verdict]:
        """Verdicts on the paper's numbers, measure by measure; then on its statements."""
        found = []
        for metric in dict.fromkeys(row.metric for row in self.rows if row.paper is not None):
            away = {row: row.ours - row.paper for row in self.rows if row.metric == metric and row.paper is not None}
            outcomes = [outcome for row in away if (outcome := self._outcome(row)) is not None]
            counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(outcomes))
            row = max(away, key=lambda row: abs(away[row]))
            most = f"the largest difference is {away[row]:+.3f} ({row.case}, {row.method}: ours {row.ours:.3f} ± "
            text = f"of {len(away)} numbers {counts}; {most}{row.std:.3f}, the paper's {row.paper:.3f})"
            found.append(Verdict(f"The paper's numbers, {metric}", together(outcomes), text, PRINTED))
        if self.unlike:
            return [*found, *map(left_open, self.verdicts)]
        return [*found, *(replace(verdict, outcome=self._decided(verdict.outcome)) for verdict in self.verdicts)]

    def to_json(self) -> Json:
        rows = [asdict(row) | {"verdict": self._outcome(row)} for row in self.rows]
        for column in ("reference", "verdict"):
            if all(row[column] is None for row in rows):
                for row in rows:
                    del row[column]
        figure = {"title": self.title, "curves": self.curves} if self.curves else {}
        verdicts = [verdict.to_json() for verdict in self.judged()]
        notes = [f"Not the paper's own experiment: {self.unlike}.", *self.notes] if self.unlike else self.notes
        if self.seeds < self.wanted:
            notes = [*notes, f"Verdicts are made for {self.wanted} repetitions (--seeds {self.wanted})."]
        told: Json = {"name": self.name, "seeds": self.seeds, "rows": rows, "notes": notes, "verdicts": verdicts}
        return told | figure


@dataclass(frozen=True)
class DataSet:
    """One of these files or folders in the user's folder of data sets, and how to get it."""

    name: str
    places: tuple[str, ...]
    how: str

    def find(self, folder: Path | None) -> Path | None:
        return next(filter(None, (find_place(folder, place) for place in self.places)), None)


@dataclass(frozen=True)
class Cells:
    """The scores (seeds, metrics) of a table by (case, method); `paper` prints the metrics of a cell, or nothing."""

    scores: Mapping[tuple[str, str], Array]
    metrics: Sequence[str]
    paper: Callable[[str, str], Sequence[float] | None]

    @property
    def rows(self) -> list[Row]:
        return [
            Row.of(
                (case, method, metric), each[:, k], None if (known := self.paper(case, method)) is None else known[k]
            )
            for (case, method), each in self.scores.items()
            for k, metric in enumerate(self.metrics)
        ]

    @property
    def cases(self) -> list[str]:
        return list(dict.fromkeys(case for case, _ in self.scores))

    def gains(self, case: str, better: str, worse: str, metric: int = 0) -> Array:
        """(seeds,): how far one method's metric is above another's."""
        return np.asarray(self.scores[case, better][:, metric] - self.scores[case, worse][:, metric])


Place = TypeVar("Place")
World = TypeVar("World")
Kind = TypeVar("Kind")
Score = TypeVar("Score")


def repeat(
    name: str,
    seeds: int,
    progress: Progress,
    kinds: Mapping[Place, Sequence[Kind]],
    draw: Callable[[Place, int], World],
    run: Callable[[Kind, World, int, Callable[[], None]], Score],
    ticks: Callable[[Kind], int] = lambda kind: 1,
) -> dict[Kind, list[Score]]:
    """The scores of every kind of run, repetition by repetition.

    A repetition draws a world for every place, which all the place's kinds share, so that they can be compared run by
    run. A run with several `ticks` may report its progress by them.
    """
    check_seeds(seeds)
    scores: dict[Kind, list[Score]] = {kind: [] for members in kinds.values() for kind in members}
    done, total = 0, seeds * sum(map(ticks, scores))

    def tick() -> None:
        nonlocal done
        done += 1
        progress(done / total, f"{name}, repetition {seed + 1} of {seeds}")

    for seed in range(seeds):
        for place, members in kinds.items():
            world = draw(place, seed)
            for kind in members:
                goal = done + ticks(kind)
                scores[kind].append(run(kind, world, seed, tick))
                while done < goal:
                    tick()
    return scores


class Experiment(Protocol):
    def run(self, seeds: int, progress: Progress) -> Table: ...


def generated(experiment: Experiment) -> Callable[[Path | None], Experiment]:
    """Open an experiment with generated data, which needs no data sets."""
    return lambda data: experiment


@dataclass(frozen=True)
class Entry:
    """`open(data)` makes the experiment; `data` is a folder of data sets, for the entries that need one.

    `seeds` is the default number of repetitions; `quick` that in the quick gallery, where `short` opens the experiment,
    if there is one. Each of the `data` sets must be at one of its places.
    """

    name: str
    title: str
    open: Callable[[Path | None], Experiment]
    seeds: int = 20
    quick: int = 3
    data: tuple[DataSet, ...] = ()
    short: Callable[[Path | None], Experiment] | None = None

    def run(self, seeds: int, data: Path | None, progress: Progress, short: bool = False) -> Table:
        check_seeds(seeds)
        chosen = self.short if short and self.short is not None else self.open
        return replace(chosen(data).run(seeds, progress), wanted=self.seeds)


#: Every entry by name. The papers' modules import solvers and accountants, so they are imported only when this is used.
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
        raise InputError("seeds", "a whole number from 1 up", f"found {seeds}")


def find(name: str) -> Entry:
    entries = _entries()
    if name not in entries:
        todo = did_you_mean(name, entries) or "`silograph reproduce` lists them."
        raise InputError("reproduce", f"one of {', '.join(sorted(entries))}", f"found {name!r}", todo)
    return entries[name]
