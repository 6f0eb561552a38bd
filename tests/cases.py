"""Every case of every family in the registry: what the contract suites hold to the same laws.

A family of another package is among them: the one that docs/write-a-family.md builds, found by its entry point.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import blocks

from silograph import families
from silograph.families.samples import cases_part
from silograph.methods.base import State
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger, Row
from silograph.run.jobs import job_part, open_job
from silograph.run.loop import ENGINES, rounds
from silograph.run.plan import parse

_HOME = tempfile.TemporaryDirectory(prefix="silograph-cases-")
_PAGE = Path(__file__).parents[1] / "docs" / "write-a-family.md"
ROOT = 5


@cache
def _installed() -> Path:
    """The page's package, as an installer would leave it."""
    home = Path(_HOME.name) / "installed"
    for block in blocks(_PAGE.read_text(encoding="utf-8")):
        if block.title is not None and block.title.endswith(".py"):
            (home / block.title).parent.mkdir(parents=True, exist_ok=True)
            (home / block.title).write_text(block.text)
    info = home / "silograph_means-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: silograph-means\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[{families.GROUP}]\nprivate_means = silograph_means:FAMILY\n")
    return home


@contextmanager
def with_the_page() -> Iterator[None]:
    """The registry with the family of the page in it."""
    sys.path.insert(0, str(_installed()))
    families.packages.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(_installed()))
        families.packages.cache_clear()


@dataclass(frozen=True, eq=False)
class Case:
    """One plan of a family; `twin` puts another method instead of its own."""

    family: str
    title: str
    content: dict[str, Any]
    twin: Callable[[Any], Any] | None = None

    @property
    def private(self) -> bool:
        return "privacy" in self.content

    @property
    def rounding(self) -> float:
        return getattr(cases_part(self.family), "ROUNDING", 0.0)

    @property
    def base(self) -> Path:
        return tables_of(self.family)

    def plan(self, **changes: Any) -> Any:
        return parse({**self.content, **changes}, self.title)

    @cached_property
    def job(self) -> Any:
        return self.opened()

    def opened(self, base: Path | None = None, **changes: Any) -> Any:
        job = open_job(self.plan(**changes), self.base if base is None else base)
        return job if self.twin is None else Altered(job, self.twin(job.method))

    @cached_property
    def straight(self) -> Ran:
        """The whole run by the vector engine."""
        return run(self.job)


class Altered:
    """A job with another method."""

    def __init__(self, job: Any, method: Any) -> None:
        self._job, self.method = job, method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)


class Twin:
    """A method that is another one but for what its subclass says."""

    def __init__(self, honest: Any) -> None:
        self.honest = honest

    def __getattr__(self, name: str) -> Any:
        return getattr(self.honest, name)


def tables_of(family: str, seed: int = 0) -> Path:
    return _written(family, seed)


@cache
def _written(family: str, seed: int) -> Path:
    folder = Path(_HOME.name) / family / str(seed)
    folder.mkdir(parents=True)
    cases_part(family).cases(folder, seed)
    return folder


@cache
def every_case() -> tuple[Case, ...]:
    """Also of families whose packages are not here: they are skipped when they are played."""
    with with_the_page():
        return tuple(
            Case(family, f"{package.rpartition('.')[2].partition(':')[0]}, {name}", content)
            for family, package in families.packages().items()
            for name, content in cases_part(family).cases(tables_of(family), 0).items()
        )


def titled(title: str) -> Case:
    return next(case for case in every_case() if case.title == title)


def params(cases: Sequence[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.title) for case in cases])


every = params(every_case())
private = params([case for case in every_case() if case.private])
unprotected = params([case for case in every_case() if not case.private])


def skip_without_its_packages(case: Case) -> None:
    for package in job_part(case.family).PACKAGES:
        if find_spec(package) is None:
            pytest.skip(f"{case.family} needs {package}")


@dataclass(frozen=True, eq=False)
class Ran:
    states: list[State]
    outcome: Any
    door: Door

    @property
    def rows(self) -> Sequence[Row]:
        return self.door.ledger.rows


def door_of(job: Any, root: int = ROOT, kind: type[Door] = Door) -> Any:
    return kind(root, Ledger(), job.mechanism, job.budget, masks=job.masks)


def run(
    job: Any,
    engine: str = "vector",
    *,
    door: Door | None = None,
    state: State | None = None,
    present: Callable[[int], Sequence[str]] | None = None,
) -> Ran:
    """From the beginning, or from a state, to the end."""
    door = door_of(job) if door is None else door
    place = ENGINES[engine](job.data(), job.topo, door)
    states = [] if state is None else [state]
    states += rounds(job.method, job.topo, place, door, state, present)
    delivered = place.deliver(job.method, states[-1])
    return Ran(states, job.method.outcome(states[-1].servers, delivered, job.topo), door)


def same(one: Ran, other: Ran, rounding: float = 0.0) -> None:
    """Outcome and ledger, to the last bit or to rounding; digests of what was rounded otherwise differ."""
    assert one.outcome.arrays.keys() == other.outcome.arrays.keys()
    for name, value in one.outcome.arrays.items():
        theirs = other.outcome.arrays[name]
        if rounding:
            assert np.linalg.norm(value - theirs) <= rounding * np.linalg.norm(value), name
        else:
            np.testing.assert_array_equal(value, theirs, err_msg=name)
    assert rounding or one.outcome.facts == other.outcome.facts
    ledgers = [ran.rows if not rounding else [replace(row, digest="") for row in ran.rows] for ran in (one, other)]
    assert list(ledgers[0]) == list(ledgers[1])
