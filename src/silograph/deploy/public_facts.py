"""What is public of a federation: names, columns, how many records. A job can be opened from it without the records.

In a deployment the server has no table and an organisation only its own. An organisation has one table file: one
process for all silos in its table. Every organisation tells its facts, they are put together, and then everybody opens
the same job: same topology, method, noise and budget. Records that are not here are `Elsewhere`: a shape without
memory.

How many records a silo has is public where neighbours replace a record or leave its place empty. Where a whole agent is
protected it is part of what is protected, and no function of it, not even a bound, may be told. So facts then have no
such number. Nobody needs it: it only pads a silo's arrays, and no kernel reads past a silo's own records, so an
organisation pads to its own largest agent and gets the same results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Protocol

from silograph import families
from silograph.core import old_names
from silograph.core.errors import InputError
from silograph.core.files import LONGEST_FACTS
from silograph.core.schema import Such, of_format, read, read_json, write
from silograph.core.types import Json
from silograph.data.readers import SUFFIXES
from silograph.data.silos import can_name_file, check_file_names
from silograph.data.tables import check_same_names, checked_names, listed, shortened, shown
from silograph.run.jobs import Job
from silograph.run.plan import Plan

FORMAT = 2
SUFFIX = ".facts.json"

MOST = 10**9  # records of a silo, or numbers in a record: more is a mistake, or mischief

_Count = Annotated[int, Such(f"a whole number from 1 to {MOST}", lambda count: 1 <= count <= MOST)]
_FileName = Annotated[str, Such("a name that can name a file", lambda name: can_name_file(name))]
_Agent = Annotated[_FileName, Such("a name that can name a file, without blanks", lambda name: name == name.strip())]


@dataclass(frozen=True)
class Holding:
    """What one organisation holds: `agents` where its table has several, and `records[k]` for each silo unless
    protected."""

    organisation: _FileName = field(metadata={"key": "name"})
    agents: tuple[_Agent, ...] = ()
    records: tuple[_Count, ...] | None = None
    clusters: tuple[str, ...] = ()
    region: _FileName | None = None  # whose agents these are, where several organisations hold the region's
    lacks: tuple[str, ...] | None = None  # the columns of others that it lacks, where the plan lets columns differ
    gaps: bool | None = None  # whether its rows have some: of graphs without privacy, where others have to know

    @property
    def silos(self) -> tuple[str, ...]:
        return tuple(f"{self.home}/{agent}" for agent in self.agents) or (self.organisation,)

    @property
    def home(self) -> str:
        """The region of its agents."""
        return self.region or self.organisation


@dataclass(frozen=True)
class Facts:
    """`columns` are the nodes of graphs, or the features in the order in which all use them; pictures have none.

    `shape` of a record and `classes`, none for a regression, are meta-learning's. Holdings are sorted by organisation.
    """

    method: str
    columns: tuple[str, ...]
    holdings: tuple[Holding, ...] = field(metadata={"key": "organisations"})
    shape: tuple[_Count, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def organisations(self) -> dict[str, tuple[str, ...]]:
        """The silos of the topology that each organisation holds."""
        return {holding.organisation: holding.silos for holding in self.holdings}

    @property
    def regions(self) -> dict[str, tuple[str, ...]]:
        """The organisations that hold each region's agents; by default one with the region's name."""
        homes = sorted({holding.home for holding in self.holdings})
        return {home: tuple(each.organisation for each in self.holdings if each.home == home) for home in homes}

    def to_json(self) -> Json:
        return {"format": FORMAT, **write(self, nulls=False)}

    @classmethod
    def from_json(cls, content: object, where: str) -> Facts:
        """Read what `to_json` wrote. `content` is from a stranger and may be anything."""
        facts = read(cls, of_format(content, FORMAT, where), where)
        families.check_name(facts.method, f"{where}, method")
        columns = checked_names(f"{where}, columns", facts.columns, len(facts.columns), "column")
        classes = checked_names(f"{where}, classes", facts.classes, len(facts.classes), "class")
        holdings = tuple(sorted(facts.holdings, key=lambda holding: holding.organisation))
        facts = replace(facts, columns=columns, classes=classes, holdings=holdings)
        facts._check(where)
        return facts

    def _check(self, where: str) -> None:
        """Refuse parts that do not fit together."""
        if not self.holdings:
            raise InputError(f"{where}, organisations", "at least one", "found none")
        check_file_names(
            [(holding.organisation, Path(holding.organisation)) for holding in self.holdings], "organisation"
        )
        family = part_of(self.method)
        family.check_facts(self, where)
        for holding in self.holdings:
            self._check_holding(holding, family.SEVERAL, f"{where}, organisation {shortened(holding.organisation)}")
        names = [silo for holding in self.holdings for silo in holding.silos]
        if len(set(names)) < len(names):
            raise InputError(f"{where}, agents", "every agent with one organisation", "found one with two")
        if len({bool(holding.clusters) for holding in self.holdings}) > 1:
            raise InputError(f"{where}, clusters", "those of all organisations' agents, or none", "found some")

    def _own(self, holding: Holding) -> tuple[str, ...]:
        """The columns that an organisation has."""
        return tuple(name for name in self.columns if name not in (holding.lacks or ()))

    def _check_holding(self, holding: Holding, several: bool, where: str) -> None:
        silos, agents, clusters = len(holding.silos), list(holding.agents), sorted(set(holding.clusters))
        if agents != sorted(set(agents)):
            raise InputError(f"{where}, agents", "different names, sorted", "they are not")
        if list(checked_names(f"{where}, clusters", clusters, len(clusters), "cluster")) != clusters:
            raise InputError(f"{where}, clusters", "names", "some have blanks around them")
        if holding.region is not None and not several:
            raise InputError(f"{where}, region", f"none for {self.method}", "found one")
        if several != bool(holding.agents):
            raise InputError(where, "agents where a table has several, else none", f"found {len(holding.agents)}")
        if holding.records is None and not several:
            raise InputError(where, "its number of records", "found none")
        if holding.records is not None:
            least = 1 if several else 2
            if len(holding.records) != silos or min(holding.records) < least:
                raise InputError(f"{where}, records", f"{silos} numbers from {least}", "found others")
        if holding.lacks is not None and holding.lacks != lacking(self.columns, self._own(holding)):
            raise InputError(f"{where}, lacks", "columns of the list, in its order", "found others")
        if holding.clusters and (not several or len(holding.clusters) != silos):
            raise InputError(f"{where}, clusters", f"one for each of its {silos} agents, or none", "found others")


#: Gives every silo's records in the order of facts; of those that are elsewhere, what is made of their number.
Records = Callable[[Callable[[int], Any]], tuple[Any, ...]]


class DeployedPart(Protocol):
    """A family's part `deployed`."""

    #: Whether a table holds several silos: agents, clients.
    SEVERAL: bool
    #: Whether the first table in a plan, rather than the first by name, gives columns their order.
    FIRST_ORDERS: bool

    def check_facts(self, facts: Facts, where: str) -> None:
        """Refuse columns, shape and classes that do not fit together."""
        ...

    def classes_of(self, plan: Any, told: Mapping[str, tuple[str, ...]], fewest: int) -> tuple[str, ...]:
        """Return all classes, given the classes that each organisation reported."""
        ...

    def read_own(self, plan: Any, path: Path, facts: Facts | None = None) -> tuple[Facts, tuple[Any, ...]]:
        """Read an organisation's own facts and the records of its silos, in the order of all facts if these are
        given."""
        ...

    def open_part(self, plan: Any, facts: Facts, records: Records, base: Path) -> Job:
        """Open the job without the others' records."""
        ...


def part_of(method: str) -> DeployedPart:
    return families.part(method, "deployed", DeployedPart)


def check_columns(facts: Facts, least: int, where: str) -> None:
    if len(facts.columns) < least:
        raise InputError(f"{where}, columns", f"at least {least}", f"there are {len(facts.columns)}")


def check_plain(facts: Facts, where: str) -> None:
    """Refuse facts of other records than rows of numbers."""
    if facts.shape or facts.classes:
        raise InputError(where, f"neither shape nor classes for {facts.method}", "found some")


# ---- where facts come from ----


def gather_facts(plan: Plan, base: Path) -> Facts:
    """From the plan's tables, relative to `base`; or `NAME.facts.json`, made by that organisation, in a table's
    place; or a folder `NAME`, with either of each organisation that holds agents of the region NAME."""
    found = [pair for name in plan.data.files for pair in _found(plan, base / name)]
    check_file_names([(facts.holdings[0].organisation, path) for facts, path in found], "organisation")
    told = [facts for facts, _ in found]
    if not part_of(plan.method.name).FIRST_ORDERS:  # as the readers do it
        told.sort(key=lambda facts: facts.holdings[0].organisation)
    return _together(plan, told)


def organisation_facts(plan: Plan, path: Path) -> Json:
    """Make an organisation's facts from its table: all that it tells the others about its records."""
    return part_of(plan.method.name).read_own(plan, path)[0].to_json()


def _found(plan: Plan, path: Path) -> list[tuple[Facts, Path]]:
    """Read the facts of the organisations that hold what the plan calls `path`."""
    region = _organisation(path)
    folder = path.with_name(region)
    if os.path.exists(path) or not folder.is_dir() or not part_of(plan.method.name).SEVERAL:
        return [(_at(plan, path), path)]
    files = {_stem(entry): entry for entry in sorted(folder.iterdir(), reverse=True) if entry.is_file()}
    if not files:
        raise InputError(shown(folder), f"tables or NAME{SUFFIX} of the organisations in {region}", "found none")
    told = []
    for name, entry in sorted(files.items()):
        facts = _at(plan, entry.with_name(f"{name}.csv") if entry.name.endswith(SUFFIX) else entry)
        holding = replace(facts.holdings[0], organisation=f"{region}-{name}", region=region)
        told.append((replace(facts, holdings=(holding,)), entry))
    return told


def _stem(path: Path) -> str:
    return path.name[: -len(SUFFIX)] if path.name.endswith(SUFFIX) else _organisation(path)


def _at(plan: Plan, path: Path) -> Facts:
    if os.path.exists(path):
        return part_of(plan.method.name).read_own(plan, path)[0]
    name = _organisation(path)
    instead = path.with_name(name + SUFFIX)
    if not os.path.exists(instead):
        found, todo = "neither is there", "Ask the organisation for its facts; it makes them from its table."
        raise InputError(shown(path), f"a table, or {shortened(instead.name, 80)} in its place", found, todo)
    facts = read_facts(instead)
    if len(facts.holdings) != 1:
        raise InputError(shown(instead), "the facts of one organisation", f"there are {len(facts.holdings)}")
    # Called by its file, whatever the table's name is at home.
    facts = replace(facts, holdings=(replace(facts.holdings[0], organisation=name),))
    _check_planned(plan, facts, shown(instead))
    return facts


def read_facts(path: Path) -> Facts:
    """Read facts from a file."""
    where = shown(path)
    return Facts.from_json(old_names.facts(read_json(path, LONGEST_FACTS, where)), where)


def _organisation(path: Path) -> str:
    """Return the name that readers give to the table in this file."""
    suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), path.suffix)
    return path.name[: len(path.name) - len(suffix)]


def _together(plan: Plan, told: Sequence[Facts]) -> Facts:
    """Join the public facts of all organisations, as each one reported them."""
    first, columns = told[0], _columns(plan, told)
    owner = f"organisation {shortened(first.holdings[0].organisation)}"
    for facts in told:
        where = f"organisation {shortened(facts.holdings[0].organisation)}"
        if facts.shape != first.shape:
            expected = f"records of the shape {first.shape}, as of {owner}"
            raise InputError(where, expected, f"they have the shape {facts.shape}", "All must have one shape.")
    told_by = {f"organisation {facts.holdings[0].organisation}": facts.classes for facts in told}
    classes = part_of(plan.method.name).classes_of(plan, told_by, fewest=2)
    held = [replace(facts.holdings[0], lacks=lacking(columns, facts.columns)) for facts in told]
    holdings = tuple(sorted(held, key=lambda holding: holding.organisation))
    return Facts(first.method, columns, holdings, first.shape, classes)


def _columns(plan: Plan, told: Sequence[Facts]) -> tuple[str, ...]:
    """Return the columns of all organisations: the same everywhere, unless the plan allows different nodes."""
    first, rule = told[0], getattr(plan.data, "nodes", None)
    by_name = sorted(told, key=lambda facts: facts.holdings[0].organisation)  # as tables in one place are
    every = tuple(dict.fromkeys(name for facts in by_name for name in facts.columns))
    if rule == "all":
        return every
    if rule == "common":
        return tuple(name for name in every if all(name in facts.columns for facts in told))
    todo = "All organisations must have the same columns, by the same names; the order does not matter."
    if hasattr(plan.data, "nodes"):
        todo += " Or say nodes = 'all', or 'common', under data in the plan."
    for facts in told:
        where = f"organisation {shortened(facts.holdings[0].organisation)}"
        owner = f"the columns of organisation {shortened(first.holdings[0].organisation)}"
        check_same_names(facts.columns, first.columns, where, owner, todo)
    return first.columns


def lacking(columns: Sequence[str], own: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns that an organisation lacks; None if it lacks none."""
    return tuple(name for name in columns if name not in own) or None


def _check_planned(plan: Plan, facts: Facts, where: str, fewest_classes: int = 1) -> None:
    """Refuse facts that lack something that the plan needs, or state something that it protects."""
    if facts.method != plan.method.name:
        raise InputError(f"{where}, method", f"{plan.method.name}, as in the plan", f"found {facts.method}")
    for holding in facts.holdings:
        place = f"{where}, organisation {shortened(holding.organisation)}"
        if not plan.tells_counts and holding.records is not None:
            found = "found they: they are part of what is protected"
            raise InputError(f"{place}, records", "no numbers of records", found, "Make the facts with this plan.")
        if plan.tells_counts and holding.records is None:
            raise InputError(f"{place}, records", "how many each agent has", "found none")
        if holding.gaps is not None and getattr(plan, "privacy", None) is not None:
            raise InputError(f"{place}, gaps", "nothing about gaps, with privacy", "found it", "Make the facts anew.")
        if plan.tells_clusters != bool(holding.clusters):
            expected = "each agent's cluster" if plan.tells_clusters else "none with this plan"
            raise InputError(f"{place}, clusters", expected, "found some" if holding.clusters else "found none")
    wanted = part_of(plan.method.name).classes_of(plan, {where: facts.classes}, fewest_classes)
    if facts.classes != wanted:
        expected = f"{listed(wanted)}, in this order" if wanted else "none with this plan"
        raise InputError(f"{where}, classes", expected, f"found {listed(facts.classes) or 'none'}")


# ---- jobs without the others' records ----


def open_server(plan: Plan, facts: Facts, base: Path) -> Job:
    """Open the job without any record. Public side files are read relative to `base`."""
    plan = _checked(plan, facts)
    return _open(plan, facts, {}, base)


def open_organisation(plan: Plan, facts: Facts, organisation: str, path: Path, base: Path) -> Job:
    """Open the job with the records of one organisation. Its table at `path` must agree with the facts."""
    plan = _checked(plan, facts)
    agreed = next((holding for holding in facts.holdings if holding.organisation == organisation), None)
    if agreed is None:
        raise InputError(
            f"organisation {shortened(organisation)}",
            f"one of {listed(list(facts.organisations))}",
            "it is none of them",
        )
    own, records = part_of(plan.method.name).read_own(plan, path, facts)
    _check_agreed(own, facts.shape, agreed, shown(path))
    return _open(plan, facts, dict(zip(agreed.silos, records, strict=True)), base)


def _checked(plan: Plan, facts: Facts) -> Plan:
    """Return the plan as it can be deployed; refuse facts of other organisations."""
    _check_planned(plan, facts, "facts", fewest_classes=2)
    planned = [_organisation(Path(name)) for name in plan.data.files]
    todo = "An organisation, or a region that several hold, is called by its file in the plan."
    check_same_names(list(facts.regions), planned, "facts, organisations", "those of the plan's files", todo)
    return plan.deployable().spelled_out(len(facts.columns), len(facts.organisations))


def _check_agreed(own: Facts, shape: tuple[int, ...], agreed: Holding, where: str) -> None:
    """Refuse a table that is not the one that was reported. All that is compared and printed is public."""
    (holding,) = own.holdings
    todo = "Take the table that the facts were made from, or make new facts: all organisations need the new ones."
    if own.shape != shape:
        raise InputError(where, f"records of the shape {shape}, as reported", f"they have the shape {own.shape}", todo)
    check_same_names(
        holding.agents, agreed.agents, where, f"the agents of {shortened(agreed.organisation)}, as reported", todo
    )
    silos = [shortened(agent) for agent in agreed.agents] or [shortened(agreed.organisation)]
    if agreed.records is not None and holding.records is not None:
        for silo, told, count in zip(silos, agreed.records, holding.records, strict=True):
            if told != count:
                raise InputError(where, f"{told} records of {silo}, as reported", f"there are {count}", todo)
    if holding.gaps != agreed.gaps:
        expected = "rows with gaps, as reported" if agreed.gaps else "complete rows, as reported"
        raise InputError(where, expected, "they are not", todo)
    if holding.lacks != agreed.lacks:
        expected, found = (listed(each.lacks or ()) or "none" for each in (agreed, holding))
        raise InputError(where, f"a table that lacks of the agreed columns: {expected}", f"it lacks {found}", todo)
    if agreed.clusters:
        for silo, said, cluster in zip(silos, agreed.clusters, holding.clusters, strict=True):
            if said != cluster:
                expected = f"{silo} in cluster {shortened(said)}, as reported"
                raise InputError(where, expected, f"it is in {shortened(cluster)}", todo)


def _open(plan: Plan, facts: Facts, here: Mapping[str, Any], base: Path) -> Job:
    """Open the job with the records that are here, by silo. Of all others it gets only the shape."""

    def records(absent: Callable[[int], Any]) -> tuple[Any, ...]:
        absent = cache(absent)  # one for all silos with that many
        return tuple(
            here[silo] if silo in here else absent(count)
            for holding in facts.holdings
            for silo, count in zip(holding.silos, holding.records or [1] * len(holding.silos), strict=True)
        )

    return part_of(plan.method.name).open_part(plan, facts, records, base)
