"""Several finished runs side by side: what differs in their plans, their graphs, their errors and their cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silograph.core.errors import InputError
from silograph.core.results import Guarantee
from silograph.core.toml import parse_toml
from silograph.core.types import Json
from silograph.report import words
from silograph.report.build import page_part, read
from silograph.report.live_graph import pairs
from silograph.report.read import Edge, RunFolder
from silograph.report.traffic import traffic

#: What must be alike in the task of two runs that learned models.
TASK = ("target", "features", "classes")
#: What a run says of how it learned, where its plan may have left that open.
CHOSEN = ("learner", "solver", "scale")


@dataclass(frozen=True)
class Change:
    """A graph of a later run against the same graph of the first."""

    graph: str
    run: str
    before: list[Edge]
    after: list[Edge]
    #: The signs of each, where relations have them.
    signs: tuple[Mapping[frozenset[str], int], Mapping[frozenset[str], int]] = ({}, {})

    @property
    def kept(self) -> list[Edge]:
        """With their later weights."""
        known = pairs(self.before)
        return [edge for edge in self.after if frozenset(edge[:2]) in known]

    @property
    def gained(self) -> list[Edge]:
        known = pairs(self.before)
        return [edge for edge in self.after if frozenset(edge[:2]) not in known]

    @property
    def lost(self) -> list[Edge]:
        known = pairs(self.after)
        return [edge for edge in self.before if frozenset(edge[:2]) not in known]

    @property
    def turned(self) -> list[Edge]:
        """Those in both whose sign is another; an edge without one is positive."""
        before, after = self.signs
        both = [(edge, frozenset(edge[:2])) for edge in self.kept]
        return [edge for edge, pair in both if before.get(pair, 1) != after.get(pair, 1)]

    @property
    def alike(self) -> float | None:
        """Edges in both with the same sign, as a share of those in either."""
        either = len(self.before) + len(self.gained)
        return (len(self.kept) - len(self.turned)) / either if either else None

    def to_json(self) -> Json:
        told: Json = {name: [list(edge) for edge in getattr(self, name)] for name in ("gained", "lost", "turned")}
        return {"graph": self.graph, "run": self.run, "kept": len(self.kept), "alike": self.alike} | told


@dataclass(frozen=True)
class Comparison:
    """Runs of one method on the same nodes or the same task, by their names; others are held against the first."""

    names: list[str]
    runs: list[RunFolder[Any]]

    @property
    def method(self) -> str:
        return str(self.runs[0].result.method)

    @property
    def learned_graphs(self) -> bool:
        return bool(self.runs[0].graphs)

    def summaries(self) -> list[Json]:
        """Each run in a line."""
        found = []
        for name, run in zip(self.names, self.runs, strict=True):
            result, words_of = run.result, page_part(self.method).privacy_of(run)
            found.append(
                {
                    "name": name,
                    "rounds": result.rounds,
                    "releases": len(run.ledger),
                    "bytes": traffic(run)["bytes"],
                    "seed": run.made.seed,
                    "privacy": words_of.verdict()[1],
                    "look": words_of.verdict()[0],
                    "protected": words_of.is_protected(),
                    "protected_unit": result.privacy.protected_unit,
                    "relation": result.privacy.relation,
                    "summary": words_of.summary(),
                }
            )
        return found

    def differences(self) -> list[Json]:
        """What the plans, the parameters and the versions of software do not have in common."""
        tables = [
            dict(_flat(parse_toml(run.plan, "plan.toml"), ""))
            | dict(_flat({key: getattr(run.result, key) for key in CHOSEN if hasattr(run.result, key)}, "result: "))
            | dict(_flat(run.json["parameters"], "result: "))
            | dict(_flat(run.made.versions, "version: "))
            for run in self.runs
        ]
        keys = dict.fromkeys(key for table in tables for key in table)
        rows = [{"name": key, "values": [table.get(key) for table in tables]} for key in keys]
        return [row for row in rows if any(value != row["values"][0] for value in row["values"])]

    def changes(self) -> list[Change]:
        """Of later runs against the first: the consensus, then every site that both have."""
        first, *others = self.runs
        return [
            Change(graph, name, edges, run.graphs[graph], (first.signs.get(graph, {}), run.signs.get(graph, {})))
            for name, run in zip(self.names[1:], others, strict=True)
            for graph, edges in first.graphs.items()
            if graph in run.graphs
        ]

    def only_some(self) -> list[str]:
        """Sites that not every run has."""
        held = [set(run.graphs) for run in self.runs]
        return sorted({site for sites in held for site in sites if not all(site in others for others in held)})

    def errors(self) -> list[Json]:
        """A row for everything that was measured: its name, and its value in every run, None where it has none."""
        tables, unlike = [dict(_measured(run)) for run in self.runs], self.unlike()
        keys = dict.fromkeys(key for table in tables for key in table)
        return [
            {"name": name, "measure": measure, "kind": kind, "values": [t.get((name, measure, kind)) for t in tables]}
            for name, measure, kind in keys
            if measure not in unlike
        ]

    def unlike(self) -> list[str]:
        """Measures with a scale that not all runs have in common."""
        told = [{(each.measure, each.scale) for each in page_part(self.method).measured(run)} for run in self.runs]
        found = {
            measure
            for scales in told
            for measure, scale in scales
            if scale and any((measure, scale) not in others for others in told)
        }
        return sorted(found)

    def costs(self) -> list[Json]:
        """A row for every site and observer: in every run epsilon and delta, None where none is stated."""
        stated = [run.result.privacy.guarantees for run in self.runs]
        tables = [{(row.site, row.observer): row for row in rows} for rows in stated]
        keys = dict.fromkeys(key for table in tables for key in table)
        return [
            {"site": site, "observer": observer, "values": [_cost(table.get((site, observer))) for table in tables]}
            for site, observer in keys
        ]

    def equal_costs(self) -> list[Json]:
        """The same, once for all sites and observers whose costs are printed alike."""
        rows = [(row["site"], row["observer"], row["values"]) for row in self.costs()]
        alike = words.alike(rows, key=_printed)
        return [{"sites": sites, "observers": against, "values": values} for values, sites, against in alike]

    def to_json(self) -> Json:
        told: Json = {
            "method": self.method,
            "runs": self.summaries(),
            "differences": self.differences(),
            "errors": self.errors(),
            "not_compared": self.unlike(),
            "costs": self.costs(),
        }
        if self.learned_graphs:
            told |= {"graphs": [change.to_json() for change in self.changes()], "not_in_all": self.only_some()}
        finite: Json = _finite(told)
        return finite


def compare(folders: Sequence[Path]) -> Comparison:
    """Read the runs; those that cannot be compared are refused."""
    if len(folders) < 2:
        raise InputError("compare", "two run folders or more", f"found {len(folders)}")
    seen: dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in seen:
            raise InputError(str(folder), "another run", "it was named before", "Name every run once.")
        seen[folder.resolve()] = folder
    runs = [read(folder) for folder in folders]
    for folder, run in zip(folders[1:], runs[1:], strict=True):
        _check_alike(runs[0], run, f"{folders[0]} and {folder}")
    return Comparison(_names(folders), runs)


def _names(folders: Sequence[Path]) -> list[str]:
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _check_alike(first: RunFolder[Any], other: RunFolder[Any], where: str) -> None:
    methods = [run.result.method for run in (first, other)]
    if methods[0] != methods[1]:
        raise InputError(where, "runs of one method", f"found {methods[0]} and {methods[1]}", "Compare them by eye.")
    if first.graphs:
        ours, theirs = (set(run.result.nodes) for run in (first, other))
        if ours != theirs:
            strange = words.listed(sorted(ours ^ theirs), 5)
            raise InputError(where, "graphs over the same nodes", f"only one of them has {strange}")
        return
    for key in TASK:
        if first.json.get("task", {}).get(key) != other.json.get("task", {}).get(key):
            raise InputError(where, f"the same {key}", "they differ", "Compare runs that learned the same thing.")


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every value of nested tables under its dotted name."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{name}{key}.")
        else:
            yield f"{name}{key}", inner


def _measured(run: RunFolder[Any]) -> Iterator[tuple[tuple[str, str, str], float | None]]:
    """What a run says of how good its result is: name, measure, and whether only a simulation knows it."""
    marks = run.result.numbers_are
    for name, measure, mark, value, _ in page_part(run.result.method).measured(run):
        yield (name, measure, str(marks.get(mark, marks.get(mark.split(".")[-1], "")))), value


def _cost(row: Guarantee | None) -> Json | None:
    return None if row is None else {"epsilon": row.epsilon, "delta": row.delta}


def _printed(cells: list[Json | None]) -> str:
    return repr([cell and (words.bound(cell["epsilon"]), words.bound(cell["delta"])) for cell in cells])


def _finite(value: Any) -> Any:
    """Numbers that JSON has no word for become text, or nothing."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    return value if isinstance(value, str | int | float | bool | None) else str(value)
