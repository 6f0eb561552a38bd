"""`silograph reproduce all`: every table and figure that can be redone, and the gallery of them."""

from __future__ import annotations

import shlex
from importlib.metadata import version
from pathlib import Path

import typer

from silograph.cli.console import bar, say, show
from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.types import Json
from silograph.report.printed import table


def reproduce_all(out: Path | None, seeds: int | None, full: bool, data: Path | None, as_json: bool) -> None:
    from silograph.report import gallery, reproduced_page
    from silograph.reproduce.gallery import make_all
    from silograph.reproduce.runner import ENTRIES

    if out is None:
        raise InputError("reproduce all", "-o with a folder for the gallery", "it did not come", "Try -o papers.")
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
