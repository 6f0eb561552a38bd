"""What the commands share: options, words for people or JSON for machines, and progress bars."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from silograph.core.types import Json

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder to write; new or empty.")]
OUT = Path("out")  # what commands that learn write if nothing is said

START, LOOK, DEPLOY, RESEARCH = "Start", "Look", "Deploy", "Research"  # in this order in the help

HELP = {"help_option_names": ["-h", "--help"]}
_BAR_AFTER = 2.0  # seconds


def register_in(app: typer.Typer, group: str, *commands: Callable[..., None]) -> None:
    """Make functions commands that the help shows in this group."""
    for command in commands:
        app.command(rich_help_panel=group, context_settings=HELP)(command)


def say(as_json: bool, payload: Json, words: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(payload, allow_nan=False))
    else:
        words()


def show(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


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
