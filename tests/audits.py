"""Every case of the registry for the tests of audits: those that claim an epsilon, and some that claim none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cases import Case, every_case, tables_of, titled
from silograph import families
from silograph.core.schema import write
from silograph.run.jobs import Job, open_job
from silograph.run.plan import parse
from silograph.run.sections import renamed

EPS = {"epsilon": 3.0, "delta": 1e-5}


def _named(case: Case) -> dict[str, Any]:
    """The case's plan beside the folders of all families' tables."""
    return {"format": 1, **write(renamed(case.plan(), lambda name: f"{case.family}/{name}"), nulls=False)}


def plan(like: str, privacy: dict[str, Any] | None = None, **method: Any) -> dict[str, Any]:
    """The plan of a case with another budget, or none, and some other parameters."""
    content = _named(titled(like))
    content.pop("privacy", None)
    changed = {**content, "method": {**content["method"], **method}}
    return changed if privacy is None else {**changed, "privacy": privacy}


def _of_silograph(private: bool) -> dict[str, dict[str, Any]]:
    own = [case for case in every_case() if case.private is private and case.family in families.OWN]
    return {case.title: _named(case) for case in own}


#: Every mode that claims an epsilon, by name.
PRIVATE = _of_silograph(True)

#: And some that claim none.
_SOME = ("exact", "paper, S0", "open", "homomorphic")
OPEN = {title: content for title, content in _of_silograph(False).items() if title.split(", ", 1)[1] in _SOME}
OPEN["federation, homomorphic"]["method"]["rounds"] = 100  # an average over many


def tables(folder: Path, seed: int = 0) -> Path:
    for family in families.OWN:
        shutil.copytree(tables_of(family, seed), folder / family)
    return folder


def job(content: dict[str, Any], folder: Path) -> Job:
    return open_job(parse(content, "plan"), folder)
