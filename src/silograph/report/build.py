"""The report: one HTML page that is a pure function of a finished run folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from silograph import families
from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import Measured, RunFolder, read_result


class PagePart(Protocol):
    """A family's part `page`: all that is said of its finished runs. It imports no job."""

    def read(self, folder: Path, result: Json) -> RunFolder:
        """The run folder, checked."""
        ...

    def page(self, run: Any) -> str:
        """The HTML report."""
        ...

    def summary(self, result: Json) -> Iterable[str]:
        """The lines that the command line prints."""
        ...

    def forecast(self, told: Json) -> Iterable[str]:
        """The lines of `silograph privacy` that only this family has, from what a job's forecast tells."""
        ...

    def privacy_of(self, run: Any) -> PrivacyWords:
        """How to speak of the privacy of a run."""
        ...

    def measured(self, run: Any) -> Iterable[Measured]:
        """How good the result is, number by number."""
        ...


def page_part(method: str) -> PagePart:
    return families.part(method, "page", PagePart)


def read(folder: str | Path) -> RunFolder:
    """A run folder, checked."""
    result, known = read_result(Path(folder)), families.names()
    if result["method"] not in known:
        todo = "Install the package that has this method, or restore the file from a copy."
        came = f"{result['method']!r:.60} came"
        raise DamageError(str(Path(folder) / "result.json"), f"a method: one of {', '.join(known)}", came, todo)
    return page_part(result["method"]).read(Path(folder), result)


def build(folder: str | Path) -> str:
    """The HTML report of a run folder. The same folder always gives the same bytes."""
    run = read(folder)
    return page_part(run.result["method"]).page(run)
