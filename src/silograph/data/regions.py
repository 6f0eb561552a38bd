"""Tables of a federation: one file a region, one row a record, and a column that names the record's agent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.features import FeatureOptions, FeatureTable, read_features, scaled
from silograph.data.silos import RENAME, Elsewhere, can_name_file, check_file_names
from silograph.data.tables import (
    check_same_names,
    checked_values,
    is_missing,
    listed,
    named,
    reads_as_number,
    shortened,
)

Records = tuple[Array, Array]

_PLAIN = FeatureOptions()
_TRUTH = ("false", "true")
_LEARNED = "the features the model was learned from"


@dataclass(frozen=True)
class RegionTables:
    """Agent `agents[k]`, called region/agent, belongs to `regions[home[k]]` and has `records[k]`: x (N, M) and y (N,).

    Regions are sorted by name, and agents inside a region; `features` are in the order of the first region's columns.
    Where the tables say so, agent k is of cluster `clusters[k]`.
    """

    regions: tuple[str, ...]
    features: tuple[str, ...]
    agents: tuple[str, ...]
    home: tuple[int, ...]
    records: tuple[Records, ...]
    clusters: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was left out of the tables, for people

    def at(self, region: str) -> RegionTables:
        """Those of one region."""
        p = self.regions.index(region)
        rows = [k for k, home in enumerate(self.home) if home == p]
        agents, records = tuple(self.agents[k] for k in rows), tuple(self.records[k] for k in rows)
        clusters = tuple(self.clusters[k] for k in rows) if self.clusters else ()
        return RegionTables((region,), self.features, agents, (0,) * len(rows), records, clusters, self.notes)

    @property
    def answers(self) -> Array:
        """Those of all records that are here."""
        return np.concatenate([np.zeros(0), *(y for _, y in self.records if not isinstance(y, Elsewhere))])


def read_regions(
    paths: Iterable[str | Path],
    agent: str,
    target: str,
    private: bool = False,
    cluster: str | None = None,
    features: Sequence[str] | None = None,
    told: FeatureOptions = _PLAIN,
    classes: tuple[str, str] | None = None,
) -> RegionTables:
    """One file a region, called by its name; the columns `agent` and `target`, and numeric features by the same names.

    These are in the order of the first region, or of those given. A column `cluster` says the same of all records of an
    agent. `classes` are the target's, where it is in words. With `private` only what a single record shows is checked,
    as for every table.
    """
    agent, target, cluster = named(agent), named(target), None if cluster is None else named(cluster)
    roles = {agent: "agent", target: "target", **({} if cluster is None else {cluster: "cluster"})}
    if len(roles) < 2 + (cluster is not None):
        raise InputError("agent, target and cluster", "different columns", f"found {listed(list(roles))}")
    texts = [name for name in roles if name != target]
    regions = sorted(_read(paths, texts, target, told, classes, roles, private), key=lambda region: region.name)
    if not regions:
        raise InputError("regions", "at least one file", "found none")
    check_file_names([(region.name, region.path) for region in regions], "region")
    own = _others(regions[0], roles)
    if not own:
        raise InputError(regions[0].where, "at least one feature", f"it has no column but {listed(list(roles))}")
    wanted = own if features is None else tuple(features)
    owner = f"of region {shortened(regions[0].name)}" if features is None else "that all regions have"
    agents, home, records, clusters = [], [], [], []
    for number, region in enumerate(regions):
        rows = _rows_of_agents(region, agent)
        x, y = _numbers(region, wanted, target, texts, f"the features {owner}", told, private)
        for name in sorted(rows):
            agents.append(f"{region.name}/{name}")
            home.append(number)
            records.append((x[rows[name]], y[rows[name]]))
            if cluster is not None:
                clusters.append(_cluster_of(region, cluster, rows[name], name))
    names = tuple(region.name for region in regions)
    notes = tuple(note for region in regions for note in region.notes)
    return RegionTables(names, wanted, tuple(agents), tuple(home), tuple(records), tuple(clusters), notes)


def check_one_home(agents: Sequence[str], region: str = "region", agent: str = "agent") -> None:
    """Refuse an agent, of those called region/agent, that is in two regions: what is said of one would hold for
    neither."""
    homes: dict[str, str] = {}
    for name in agents:
        home, own = name.split("/", 1)
        other = homes.setdefault(own.casefold(), home)
        if other != home:
            raise InputError(
                f"{region}s {other} and {home}",
                f"every {agent} in one {region}",
                f"both have {own}: its budget would be paid once and spent twice",
                f"If it is one {agent}, give it to one {region}; if they are two, name them differently.",
            )


def _cluster_of(region: FeatureTable, cluster: str, rows: list[int], agent: str) -> str:
    """What an agent's records say of its cluster."""
    said = [_text(region.columns[cluster][row]) for row in rows]
    for row, name in zip(rows, said, strict=True):
        if not name or name != said[0]:
            place = f"{region.where}, column {shortened(cluster)}, {region.at(row)}"
            expected = f"one cluster for all records of {shortened(agent)}"
            raise InputError(
                place, expected, f"found {shortened(name)} after {shortened(said[0])}" if name else "found none"
            )
    return said[0]


def _text(cell: object) -> str:
    return "" if cell is None or cell != cell else str(cell).strip()


def read_test(
    path: str | Path,
    target: str,
    features: Sequence[str],
    agent: str | None = None,
    told: FeatureOptions = _PLAIN,
    classes: tuple[str, str] | None = None,
) -> Records:
    """x (N, M) and y (N,) of a test file, with the features in the given order; a column `agent` is ignored."""
    texts = [] if agent is None else [agent]
    (table,) = _read([path], texts, target, replace(told, site_column=None), classes, {target: "target"})
    return _numbers(table, features, target, texts, _LEARNED, told)


def read_tests(
    path: str | Path,
    agent: str,
    target: str,
    features: Sequence[str],
    ignored: str | None,
    told: FeatureOptions = _PLAIN,
    classes: tuple[str, str] | None = None,
) -> dict[str, Records]:
    """The records of a test file by agent; a column `ignored` is not looked at."""
    texts = [agent, *([] if ignored is None else [ignored])]
    roles = {agent: "agent", target: "target"}
    (table,) = _read([path], texts, target, replace(told, site_column=None), classes, roles)
    x, y = _numbers(table, features, target, texts, _LEARNED, told)
    return {name: (x[rows], y[rows]) for name, rows in _rows_of_agents(table, agent).items()}


def _read(
    paths: Iterable[str | Path],
    texts: Sequence[str],
    target: str,
    told: FeatureOptions,
    classes: tuple[str, str] | None,
    needed: Mapping[str, str],
    private: bool = False,
) -> list[FeatureTable]:
    answers = None if classes is None else {target: classes}
    tables = read_features(paths, told, texts, [*texts, target], private, (), answers, needed)
    for table in tables:
        if not table.columns or not len(next(iter(table.columns.values()))):
            todo = "Leave the file out, or fill it."
            raise InputError(table.where, "at least one record", "there is no row of data", todo)
    return tables


def _others(region: FeatureTable, named: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in region.columns if name not in named)


def _numbers(
    region: FeatureTable,
    features: Sequence[str],
    target: str,
    texts: Sequence[str],
    expected: str,
    told: FeatureOptions,
    private: bool = False,
) -> Records:
    """The features, matched by name, and the target."""
    todo = "Every file must have the same features, by the same names; the order does not matter."
    check_same_names(_others(region, [*texts, target]), features, region.where, expected, todo)
    wanted = [*features, target]

    def place(column: int, row: int) -> str:
        return f"{region.where}, column {shortened(wanted[column])}, {region.at(row)}"

    _check_answers(region, target, private)
    values = checked_values([region.columns[name] for name in wanted], place, private)
    x = np.ascontiguousarray(values[:, :-1])
    return scaled(x, features, told.bounds), values[:, -1].copy()


def _check_answers(region: FeatureTable, target: str, private: bool) -> None:
    """A word among the answers, which are numbers here, is one of two classes that nobody named; or a slip."""
    for row, cell in enumerate(region.columns[target].tolist()):
        missing = cell is None or cell != cell or (isinstance(cell, str) and is_missing(cell))
        if not missing and not isinstance(cell, bool) and (not isinstance(cell, str) or reads_as_number(cell)):
            continue
        place = f"{region.where}, column {shortened(target)}, {region.at(row)}"
        if missing:
            todo = "Leave the record out: nothing is learned from a record without an answer."
            raise InputError(place, "an answer", "it is missing", todo)
        found, word = "found a word" if private else f"found {shortened(cell)}", str(cell).strip()
        truth = not private and word.lower() in _TRUTH
        no, yes = (_as_in(name, word) for name in _TRUTH) if truth else ("no", "yes")
        todo = f'Two classes are named in the plan\'s [data], the one that is 0 first: classes = ["{no}", "{yes}"].'
        raise InputError(place, "a number", found, todo)


def _as_in(word: str, other: str) -> str:
    """The word in the other's spelling: false, False or FALSE."""
    return word if other.islower() else word.upper() if other.isupper() else word.title()


def _rows_of_agents(region: FeatureTable, agent: str) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, cell in enumerate(region.columns[agent].tolist()):
        name = _text(cell)
        if not can_name_file(name):
            found, todo = (f"found {shortened(name)}", RENAME) if name else ("it is empty", "Fill it in.")
            place = f"{region.where}, column {shortened(agent)}, {region.at(row)}"
            raise InputError(place, "the name of an agent", found, todo)
        rows.setdefault(name, []).append(row)
    return rows
