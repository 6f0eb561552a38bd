"""What the commands share: options, words for people or JSON for machines, and progress bars."""

from __future__ import annotations

import contextlib
import inspect
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from silograph.cli.examples import EXAMPLES
from silograph.core.types import Json

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Run folder to write; new or empty.", metavar="RUN")]
OUT = Path("out")  # what commands that learn write if nothing is said

START, LOOK, DEPLOY, RESEARCH = "Start", "Look", "Deploy", "Research"  # in this order in the help

HELP = {"help_option_names": ["-h", "--help"]}
_BAR_AFTER = 2.0  # seconds


def register_in(app: typer.Typer, group: str, *commands: Callable[..., None]) -> None:
    """Make functions commands that the help shows in this group, each with what one types most often."""
    for command in commands:
        # A paragraph is one line: the terminal breaks it where it is full.
        told = "\n\n".join(" ".join(each.split()) for each in inspect.getdoc(command).split("\n\n"))  # type: ignore[union-attr]
        typed = "\n\n".join(["For example:", *EXAMPLES[command.__name__]])
        app.command(help=told, epilog=typed, rich_help_panel=group, context_settings=HELP)(command)


def say(as_json: bool, payload: Json, words: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(payload, allow_nan=False))
    else:
        words()


def show(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def time_left(first: tuple[float, float] | None, now: float, share: float | None) -> str:
    """In words, from how far it is now and was at `first`; nothing where that is not known yet."""
    if first is None or share is None or share <= first[1] or share >= 1.0:
        return ""
    seconds = round((now - first[0]) * (1.0 - share) / (share - first[1]))
    return f"about {seconds // 60}:{seconds % 60:02d} left"


@contextlib.contextmanager
def bar(title: str) -> Iterator[Callable[[float | None, str], None]]:
    """A progress bar on standard error for whatever takes longer than two seconds; share None means unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    left = TextColumn("{task.fields[left]}")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), left)
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(title, total=None, left="")
    begun, shown = time.monotonic(), False
    first: tuple[float, float] | None = None  # when a share was first heard, and which: runs may go on from the middle

    def update(share: float | None, text: str) -> None:
        nonlocal shown, first
        now = time.monotonic()
        if share is not None and first is None:
            first = now, share
        if not shown and now - begun > _BAR_AFTER:
            progress.start()
            shown = True
        if shown:
            total, left = None if share is None else 1.0, time_left(first, now, share)
            progress.update(task, description=f"{title}  {text}", completed=share or 0.0, total=total, left=left)

    try:
        yield update
    finally:
        if shown:
            progress.stop()
