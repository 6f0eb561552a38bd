"""The commands that look at what is there: `privacy`, `report`, `reproduce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silograph.cli.console import AsJson, bar, say, show

if TYPE_CHECKING:
    from silograph.reproduce.runner import Table


def register(app: typer.Typer) -> None:
    for command in (privacy, report, reproduce):
        app.command()(command)


def privacy(
    what: Annotated[Path, typer.Argument(help="A plan file, or the folder of a finished run.")], as_json: AsJson = False
) -> None:
    """What a plan will cost before it runs, or what a run did cost."""
    from silograph.core.results import read_result
    from silograph.report.audits import read_audits
    from silograph.report.build import page_part
    from silograph.report.printed import claim_lines, cost_rows, table
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
            print("REFUTED by an audit (audit.json): do not rely on the numbers below. The report says more.")
        if payload.get("leak") is not None:
            print(f"  No epsilon holds, whatever the noise: {payload['leak']}.")
        show(table(("site", "privacy", "against", "how"), cost_rows(payload["guarantees"])))
        print(f"{payload['releases']} protected releases per site")
        show(claim_lines(payload["claim"]))
        show(page_part(method).forecast(payload))
        show(f"note: {note}" for note in payload["notes"])

    say(as_json, payload, words)


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")], as_json: AsJson = False
) -> None:
    """Write the report of a finished run again."""
    from silograph.core.files import write_atomically
    from silograph.report.build import build as build_report
    from silograph.run.cost import cost_of_run

    page = build_report(folder)
    cost_of_run(folder)  # refuses a page whose numbers are not the ledger's
    write_atomically(folder / "report.html", page.encode())
    say(as_json, {"report": str(folder / "report.html")}, lambda: print(f"report: {folder / 'report.html'}"))


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which table or figure, or all; left out: list them.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many random repetitions (20, or 3 where one takes minutes).")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the papers' data sets (or SILOGRAPH_DATA).")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also write the JSON, and a figure's page.")] = None,
    short: Annotated[bool, typer.Option("--short", help="Fewer rounds, where an entry has that.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With all: the papers' own sizes, which take hours.")] = False,
    as_json: AsJson = False,
) -> None:
    """Redo a paper's table or figure: ours, its spread, the paper's number. With all: a gallery of everything."""
    from silograph.core.files import write_atomically
    from silograph.report.printed import table
    from silograph.report.reproduced_page import page
    from silograph.reproduce.runner import ENTRIES, find

    if name is None:
        listing = [{"name": entry.name, "title": entry.title} for entry in ENTRIES.values()]
        say(
            as_json,
            {"entries": listing},
            lambda: show(table(("name", "what"), [(e["name"], e["title"]) for e in listing])),
        )
        return
    if name == "all":
        from silograph.cli.gallery import reproduce_all

        reproduce_all(out, seeds, full, data, as_json)
        return
    entry = find(name)
    with bar(name) as update:
        made = entry.run(seeds or entry.seeds, data, update, short)
    payload = made.to_json()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / f"{name}.json", (json.dumps(payload, indent=1, allow_nan=False) + "\n").encode())
        if made.curves:
            write_atomically(out / f"{name}.html", page(payload).encode())

    def words() -> None:
        _table_words(made)
        if out is not None and made.curves:
            print(f"report: {out / f'{name}.html'}")

    say(as_json, payload, words)


def _table_words(made: Table) -> None:
    """Rows, verdicts and notes, for people."""
    from silograph.report.printed import table

    told = made.to_json()
    beside = ("paper", "reference") if "reference" in told["rows"][0] else ("paper",)
    rows = [
        (
            row["case"],
            row["method"],
            row["metric"],
            f"{row['ours']:.3f}" + (f" ± {row['std']:.3f}" if told.get("seeds", 2) > 1 else ""),
            *("" if row[column] is None else f"{row[column]:.3f}" for column in beside),
        )
        for row in told["rows"]
    ]
    show(table(("case", "method", "metric", "ours", *beside), rows))
    for verdict in made.judged():
        print(f"verdict: {verdict}")
    for note in told["notes"]:
        print(f"note: {note}")
