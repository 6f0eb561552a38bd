"""The commands that look at what is there: `report`, `privacy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silograph.cli.console import LOOK, AsJson, register_in, say, show


def register(app: typer.Typer) -> None:
    register_in(app, LOOK, report, privacy)


def privacy(
    what: Annotated[Path, typer.Argument(help="A plan file, or a run folder.", metavar="PLAN|RUN")],
    as_json: AsJson = False,
) -> None:
    """Show what a plan will cost in privacy before it runs, or what a run did cost."""
    from silograph.core.results import read_result
    from silograph.report.audits import read_audits
    from silograph.report.build import page_part
    from silograph.report.printed import claim_lines, cost_rows, table
    from silograph.report.words import counted
    from silograph.run.cost import cost_of_plan, cost_of_run
    from silograph.run.plan import load

    payload = cost_of_run(what) if what.is_dir() else cost_of_plan(what)
    if what.is_dir():
        result, made = read_result(what)
        audits, method = read_audits(what, result, made), result.method
        payload["refuted"] = any(audit.refuted for audit in audits) if audits else None
        payload["leak"] = next((audit.leak for audit in audits if audit.leak is not None), None)
    else:
        method = load(what).method.name

    def words() -> None:
        if payload.get("refuted"):
            print("REFUTED by an audit (audit.json): do not rely on the numbers below. The report has details.")
        if payload.get("leak") is not None:
            print(f"  No epsilon holds, however large the noise: {payload['leak']}.")
        show(table(("site", "privacy", "against", "how"), cost_rows(payload["guarantees"])))
        print(f"{counted(payload['releases'], 'protected release')} per site")
        show(claim_lines(payload["claim"]))
        show(page_part(method).forecast(payload))
        show(f"note: {note}" for note in payload["notes"])

    say(as_json, payload, words)


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder, as `learn` or `run` wrote it.", metavar="RUN")],
    as_json: AsJson = False,
) -> None:
    """Write the report of a finished run again."""
    from silograph.core.files import write_atomically
    from silograph.report.build import build as build_report
    from silograph.run.cost import cost_of_run

    page = build_report(folder)
    cost_of_run(folder)  # refuses a page whose numbers are not the ledger's
    write_atomically(folder / "report.html", page.encode())
    say(as_json, {"report": str(folder / "report.html")}, lambda: print(f"report: {folder / 'report.html'}"))
