"""The report: one HTML page that is a pure function of a finished run folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from silograph import families
from silograph.core.errors import DamageError
from silograph.core.results import FILE, Made, Result, read_as, read_json, read_text
from silograph.core.types import Json
from silograph.report.audits import read_audits
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import Measured, RunFolder, read_ledger


class PagePart(Protocol):
    """A family's part `page`: all that a page shows of its finished runs. It imports no job."""

    #: What its result.json says.
    RESULT: type[Result]

    def read(self, run: Any) -> RunFolder[Any]:
        """Read and check also what only this family leaves in a run folder."""
        ...

    def page(self, run: Any) -> str:
        """The HTML report."""
        ...

    def summary(self, result: Any) -> Iterable[str]:
        """Yield the lines that a command prints."""
        ...

    def forecast(self, told: Json) -> Iterable[str]:
        """Yield the lines of `silograph privacy` that only this family has, from a job's forecast."""
        ...

    def privacy_of(self, run: Any) -> PrivacyWords:
        """Return the words for the privacy of a run."""
        ...

    def measured(self, run: Any) -> Iterable[Measured]:
        """Yield the numbers that say how good the result is."""
        ...


def page_part(method: str) -> PagePart:
    return families.part(method, "page", PagePart)


def result_of(told: Json, where: str) -> Result:
    """Read the content of a result.json into its family's type."""
    known = families.names()
    if told.get("method") not in known:
        todo = "Install the package that has this method, or restore the file from a copy."
        found = f"found {told.get('method')!r:.60}"
        raise DamageError(where, f"a method: one of {', '.join(known)}", found, todo)
    return read_as(page_part(told["method"]).RESULT, told, where)


def read(folder: str | Path) -> RunFolder[Any]:
    """Read and check a run folder."""
    folder = Path(folder)
    told, where = read_json(folder), str(folder / FILE)
    result, made = result_of(told, where), read_as(Made, told, where)
    ledger, plan = read_ledger(folder / "ledger.jsonl"), read_text(folder / "plan.toml")
    run = RunFolder(folder, told, result, made, ledger, plan, read_audits(folder, result, made))
    return page_part(result.method).read(run)


def build(folder: str | Path) -> str:
    """The HTML report of a run folder. The same folder always gives the same bytes."""
    run = read(folder)
    return page_part(run.result.method).page(run)
