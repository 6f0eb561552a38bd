"""The registry: which kinds of job there are, and where their parts lie.

A family is one kind of job, whole: everything that is special to it lies in one package (or one module), in parts that
bear the same names in every family. Nothing outside a family asks what kind a job is; it asks the registry for a part.

| part | module | asked by |
| --- | --- | --- |
| plan | its section of a plan file | run |
| job | how a job is opened and what it writes | run |
| deployed | what organisations tell each other, and one organisation's part of a job | deploy |
| page | how a run folder is read, its page, its summary | report, cli |
| deployment_words | what leaves an organisation, in words | report |
| canary | what an audit puts into a silo | audit |
| sample | tables and a plan to start from | cli |
| cases | small plans of every mechanism and mode | the contract suite in tests |

The room that asks for a part defines, as a `Protocol`, what must be in it; a part that lacks something is an error that
names it. Parts are imported when they are asked for, so a report never imports a job.

Families of other packages are found by the entry point group `silograph.families`: the method's name, and the package.
A small family is one object, `module:NAME`, that has all parts (`families.star` makes most of them).
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar, cast

from silograph.core.errors import InputError, SilographError
from silograph.core.schema import did_you_mean, shortened

GROUP = "silograph.families"
P = TypeVar("P")

#: The method that a plan or a result names, and the package of its family.
OWN = {
    "consensus_graph": "silograph.families.graphs",
    "graph_federation": "silograph.families.federation",
    "clustered_admm": "silograph.families.clusters",
    "private_meta": "silograph.families.meta",
}


class FamilyError(SilographError):
    """A family is incomplete: a defect of the package that brings it."""

    code = "family"


@cache
def packages() -> dict[str, str]:
    """Every family's package, by the name of its method; silograph's own come first."""
    found = dict(OWN)
    for entry in entry_points(group=GROUP):
        if entry.name in found and found[entry.name] != entry.value:
            expected = "one family for every method"
            raise FamilyError(f"family {entry.name}", expected, f"{found[entry.name]} and {entry.value} claim it")
        found[entry.name] = entry.value
    return found


def names() -> tuple[str, ...]:
    return tuple(packages())


def check_name(name: object, where: str) -> str:
    """The name of a method that a family has; a plan, a result or a stranger's message may say anything."""
    if not isinstance(name, str) or name not in packages():
        todo = did_you_mean(name, packages()) or "Check the spelling, or install the package that has this method."
        raise InputError(where, f"one of {', '.join(packages())}", f"found {shortened(name)}", todo)
    return name


def part(name: str, module: str, kind: type[P]) -> P:
    """A family's part; `kind` is the protocol that says what must be in it."""
    package, _, whole = packages()[check_name(name, "method")].partition(":")
    try:
        found = _found(package, whole, module)
    except (ImportError, AttributeError) as error:
        instead = f"it cannot be imported ({error})"
        raise FamilyError(f"family {name}", f"its part {module!r} in {package}", instead) from error
    if missing := [needed for needed in _demands(kind) if not hasattr(found, needed)]:
        raise FamilyError(f"family {name}", f"its part {module!r} with {', '.join(missing)}", "there is none")
    return cast("P", found)


def _found(package: str, whole: str, module: str) -> Any:
    if whole:
        return getattr(importlib.import_module(package), whole)
    return importlib.import_module(f"{package}.{module}")


def _demands(kind: type[Any]) -> list[str]:
    """What a protocol names: functions and annotated values."""
    functions = [name for name, value in vars(kind).items() if callable(value)]
    return [name for name in (*vars(kind).get("__annotations__", ()), *functions) if not name.startswith("_")]
