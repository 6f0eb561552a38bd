"""The command that puts runs side by side: `silograph compare first second ...`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silograph.cli.console import LOOK, AsJson, register_in, say, show
from silograph.core.errors import InputError
from silograph.report.printed import at_most, table

if TYPE_CHECKING:
    from silograph.core.types import Json
    from silograph.report.compare import Comparison

_NAMED = 4  # names in a cell of a table


def register(app: typer.Typer) -> None:
    register_in(app, LOOK, compare)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders; the others are compared with the first.", metavar="RUN...")
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also write a page to look at, an HTML file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: edges gained and lost, errors, cost, and how their plans differ."""
    from silograph.core.files import write_atomically
    from silograph.report.compare import compare as read_runs
    from silograph.report.compare_page import page
    from silograph.run.cost import cost_of_run

    if out is not None:
        _check_page(out)
    found = read_runs(folders)
    for folder in folders:
        cost_of_run(folder)  # refuses numbers that are not the ledger's
    if out is not None:
        write_atomically(out, page(found).encode())
    told = {"page": None if out is None else str(out)}
    say(as_json, found.to_json() | told, lambda: _words(found, out))


def _check_page(out: Path) -> None:
    """Nothing but an older page may be written over."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(str(out), "the name of a page, ending in .html", "it does not")
    if out.exists() and not (out.is_file() and out.read_bytes()[:9].lower() == b"<!doctype"):
        raise InputError(str(out), "a new file, or an older page", "it is neither", "Choose another name.")


def _words(found: Comparison, out: Path | None) -> None:
    names = tuple(found.names)
    rows = [(s["name"], f"{s['rounds']}", f"{s['bytes']}", s["privacy"]) for s in found.summaries()]
    show(table(("run", "rounds", "bytes sent", "privacy"), rows))
    if differences := found.differences():
        print()
        show(table(("parameter", *names), [(row["name"], *map(_text, row["values"])) for row in differences]))
    if found.learned_graphs:
        print()
        changes = found.changes()
        signed = any(any(change.signs) for change in changes)
        header = ("graph", "run", "edges", f"gained against {names[0]}", "lost", "kept", *["of other sign"] * signed)
        lines = [
            (c.graph, c.run, *(f"{len(e)}" for e in (c.after, c.gained, c.lost, c.kept, *[c.turned] * signed)))
            for c in changes
        ]
        show(table(header, lines))
        if missing := found.only_some():
            print(f"note: not in every run, and not compared: {', '.join(missing)}")
    if unlike := found.unlike():
        print(f"note: not compared, because the learners differ: {', '.join(unlike)}")
    if errors := found.errors():
        print()
        show(
            table(
                ("", "measure", *names), [(row["name"], row["measure"], *map(_text, row["values"])) for row in errors]
            )
        )
    print()
    costs = [
        (_named(row["sites"]), ", ".join(row["observers"]), *map(_cost_text, row["values"]))
        for row in found.equal_costs()
    ]
    show(table(("privacy of", "against", *names), costs))
    if out is not None:
        print(f"page: {out}")


def _named(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _cost_text(cell: Json | None) -> str:
    if cell is None:
        return "not stated"
    if math.isinf(cell["epsilon"]):
        return "none"
    return f"epsilon {at_most(cell['epsilon'])}, delta {at_most(cell['delta'] or 0.0)}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value[:3])) + (f" and {len(value) - 3} more" if len(value) > 3 else "")
    return "" if value is None else str(value)
