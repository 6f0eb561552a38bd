"""What the commands share: options, words for people or JSON for machines, tables and progress bars."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Annotated

import typer

from silograph.core.types import Json

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder to write; new or empty.")]

_BAR_AFTER = 2.0  # seconds
_NAMED = 5  # names in a cell of a table


def say(as_json: bool, payload: Json, words: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(payload, allow_nan=False))
    else:
        words()


@contextlib.contextmanager
def bar(title: str) -> Iterator[Callable[[float | None, str], None]]:
    """A progress bar on standard error for whatever takes longer than two seconds; share None means unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(title, total=None)
    begun, shown = time.monotonic(), False

    def update(share: float | None, text: str) -> None:
        nonlocal shown
        if not shown and time.monotonic() - begun > _BAR_AFTER:
            progress.start()
            shown = True
        if shown:
            total = None if share is None else 1.0
            progress.update(task, description=f"{title}  {text}", completed=share or 0.0, total=total)

    try:
        yield update
    finally:
        if shown:
            progress.stop()


def bill(guarantees: Sequence[Json]) -> list[tuple[str, ...]]:
    """One line for each cost, naming whom it protects and from whom."""
    observers: dict[tuple[str, str, str], list[str]] = {}
    for each in guarantees:
        observers.setdefault((each["site"], cost(each), each["accountant"]), []).append(each["observer"])
    sites: dict[tuple[str, str, str], list[str]] = {}
    for (site, price, how), against in observers.items():
        sites.setdefault((price, ", ".join(against), how), []).append(site)
    everybody = len({each["site"] for each in guarantees})

    def named(names: list[str]) -> str:
        if len(names) == everybody > 1:
            return f"all {everybody}"
        return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:2])} and {len(names) - 2} more"

    return [(named(names), *rest) for rest, names in sites.items()]


def cost(guarantee: Json) -> str:
    if guarantee["epsilon"] == "infinity":
        return "none"
    text = f"epsilon {at_most(guarantee['epsilon'])}, delta {at_most(guarantee['delta'])}"
    return text + (" (rehearsal)" if guarantee["rehearsal"] else "")


def at_most(value: float) -> str:
    """Four digits, rounded up: what is printed is never less than what it cost, but for the rounding of its floats."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value * (1.0 - 1e-12)))):.4g}"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    for row in (header, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
