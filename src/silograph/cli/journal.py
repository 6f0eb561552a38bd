"""What `serve` and `join` say while they run: lines for people, or JSON lines for whoever collects logs.

A JSON line has no value of any record. What an error of an organisation says may quote its table: a line then has the
error's class and code, and the text stays in the organisation's folder.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from silograph.core.errors import OwnEyes, SilographError, TerminatedError
from silograph.core.files import write_atomically

AsLog = Annotated[bool, typer.Option("--json-log", help="JSON lines on standard error instead of words.")]
LAST_ERROR = "last-error.txt"


@dataclass(frozen=True)
class Journal:
    """`own` is the folder of an organisation, where the text of its last error stays; None for a server, which has no
    records."""

    as_json: bool
    own: Path | None = None

    def tell(self, text: str) -> None:
        self.note("note", text if not self.as_json or not isinstance(text, OwnEyes) else text.public)

    def note(self, event: str, text: str, /, **fields: str | float | int | list[str] | dict[str, int]) -> None:
        """`text` for people; for machines the event and its fields, or the text if it has none."""
        if self.as_json:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            print(json.dumps({"at": at, "event": event, **(fields or {"text": text})}), file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """In a log of JSON lines an error is one of them; else it goes its usual way."""
        try:
            yield
        except (SilographError, OSError) as error:
            if not self.as_json:
                raise
            code, exit_code = getattr(error, "code", "system"), getattr(error, "exit_code", 1)
            told: dict[str, str | int] = {"class": type(error).__name__, "code": code, "exit": exit_code}
            if self.own is None:
                told["text"] = str(error)
            else:
                with contextlib.suppress(OSError):  # a full disk must not hide what happened
                    write_atomically(self.own / LAST_ERROR, f"{error}\n".encode(), 0o600)
                    told["text_in"] = LAST_ERROR
            self.note("error", "", **told)
            raise typer.Exit(exit_code) from None


class _Terminated(KeyboardInterrupt):
    """No handler of exceptions on the way takes it for something else."""


@contextlib.contextmanager
def terminable(what: str) -> Iterator[None]:
    """A supervisor's SIGTERM ends the command as Ctrl-C does, with an exit code of its own."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        raise terminated(what) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def terminated(what: str) -> TerminatedError:
    todo = "Type the same command again to resume."
    return TerminatedError(what, "the end of the run", "the process got SIGTERM first", todo)
