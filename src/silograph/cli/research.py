"""The command that redoes the papers' tables and figures: `reproduce`, with all of them in a gallery."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silograph.cli.console import RESEARCH, AsJson, bar, register_in, say, show
from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.types import Json
from silograph.report.printed import table

if TYPE_CHECKING:
    from silograph.reproduce.runner import Table


def register(app: typer.Typer) -> None:
    register_in(app, RESEARCH, reproduce)


def _names(begun: str) -> Iterator[str]:
    """Names that a shell can complete what was typed to."""
    from silograph.reproduce.runner import ENTRIES

    yield from (name for name in ("all", *ENTRIES) if name.startswith(begun))


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Which table or figure, or all; left out: list them.", autocompletion=_names)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many random repetitions (20, or 3 where one takes minutes).")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the papers' data sets (or SILOGRAPH_DATA).")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also write the JSON, and a figure's page.")] = None,
    short: Annotated[bool, typer.Option("--short", help="Fewer rounds, where an entry has that.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With all: the papers' own sizes, which take hours.")] = False,
    as_json: AsJson = False,
) -> None:
    """Redo a paper's table or figure: our number, its spread, the paper's number. With all: a gallery of everything."""
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


def reproduce_all(out: Path | None, seeds: int | None, full: bool, data: Path | None, as_json: bool) -> None:
    from silograph.report import gallery, reproduced_page
    from silograph.reproduce.gallery import make_all
    from silograph.reproduce.runner import ENTRIES

    if out is None:
        raise InputError("reproduce all", "-o with a folder for the gallery", "there is none", "Try -o papers.")
    words = ["silograph", "reproduce", "all", "-o", str(out), *["--data", str(data)] * (data is not None)]
    about = {"full": full, "version": version("silograph"), "command": shlex.join(words)}
    with bar("reproducing") as update:
        entries = make_all(list(ENTRIES.values()), out, seeds, full, data, update)
    for entry in entries:
        if entry["state"] == "made":
            page = reproduced_page.page({"title": entry["title"], "curves": []} | entry["table"])
            write_atomically(out / f"{entry['name']}.html", page.encode())
    write_atomically(out / "index.html", gallery.page(entries, about).encode())
    brief = [_brief(entry) for entry in entries]

    def tell() -> None:
        rows = [(e["name"], e["state"], ", ".join(f"{n} {kind}" for kind, n in e["verdicts"].items())) for e in brief]
        show(table(("entry", "state", "verdicts"), rows))
        for entry in brief:
            if entry["state"] != "made":
                print(f"{entry['name']}: {entry['reason']}")
        print(f"gallery: {out / 'index.html'}")

    say(as_json, {"gallery": str(out / "index.html"), "entries": brief}, tell)
    if any(entry["state"] == "failed" for entry in entries):
        raise typer.Exit(1)


def _brief(entry: Json) -> Json:
    """What the command line says of an entry."""
    verdicts = [verdict["outcome"] for verdict in entry.get("table", {}).get("verdicts", [])]
    counts = {outcome: verdicts.count(outcome) for outcome in dict.fromkeys(verdicts)}
    kept = ("name", "state", "reason", "command", "seconds")
    return {key: entry[key] for key in kept if key in entry} | {"verdicts": counts}
