"""Audits of a finished run: attack its own plan, and keep the findings in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from silograph.audit.finding import Finding
from silograph.core.errors import DamageError, InputError
from silograph.core.files import write_atomically
from silograph.core.results import read_result
from silograph.core.types import Json
from silograph.report.audits import FILE, FORMAT, checked_audits
from silograph.run.cost import cost_of_run
from silograph.run.jobs import Job, open_job
from silograph.run.plan import Plan, load
from silograph.run.results import versions
from silograph.run.sections import named_files


def job_of_run(folder: Path) -> Job:
    """Open the plan of a finished run for an attack: the plan that ran, with the costs in its ledger."""
    cost_of_run(folder)
    path = folder / "plan.toml"
    plan = load(path)
    if read_result(folder)[1].plan != hashlib.sha256(path.read_bytes()).hexdigest():
        raise DamageError(
            str(path),
            "the plan that ran, as result.json notes it",
            "it is another one",
            "Restore it, or copy it elsewhere and audit the copy: another plan says nothing about this run.",
        )
    _need_tables(plan, folder)
    return open_job(plan, folder)


def _need_tables(plan: Plan, folder: Path) -> None:
    """Refuse a deployment's run: its tables are never in the folder of the run."""
    names = [*named_files(plan, private=True), *named_files(plan, private=False)]
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise InputError(
            str(folder),
            "the tables of its plan, where plan.toml says: an audit needs them for their shape",
            f"{missing[0]} is not there" + f", nor {len(missing) - 1} more" * (len(missing) > 1),
            "Put them back. For a deployment, where tables stay with the organisations, audit what `silograph deploy` "
            "wrote, "
            "or the plan before it is deployed, with made-up tables of the same columns and sizes.",
        )


def keep(folder: Path, finding: Finding, report: Callable[[Path], str]) -> None:
    """Add a finding to those in audit.json, and to the page: a weak audit must not hide what a strong one found.

    `report` makes the page of a folder; it is passed in because it belongs to a layer above. A finding that no page
    could show leaves the folder as it was.
    """
    (result, made), path = read_result(folder), folder / FILE
    before: list[Json] = json.loads(path.read_text(encoding="utf-8"))["audits"] if path.exists() else []
    told = {
        "format": FORMAT,
        "plan": made.plan,
        "ledger": made.ledger,
        "audits": [*before, {**finding.to_json(), "versions": versions(result.method)}],
    }
    text = json.dumps(told, indent=1, allow_nan=False) + "\n"
    try:
        checked_audits(text, folder, result, made)
    except DamageError as error:
        raise DamageError(error.where, error.expected, error.found, "Nothing was written.") from None
    write_atomically(path, text.encode())
    write_atomically(folder / "report.html", report(folder).encode())
