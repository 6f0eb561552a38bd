"""The command line: thin. Exit code 0, 2 for bad input, 1 for a failure, 3 for a refuted promise, 130 for Ctrl-C,
143 for SIGTERM."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, NoReturn

import click
import typer

from silograph.cli import audit, compare, deploy, learn, look, people, predict, research
from silograph.cli.console import HELP
from silograph.core import wording
from silograph.core.errors import SilographError

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    help="Learn together from data that may not be shared, and believe the privacy number.",
)

for room in (learn, people, predict, look, compare, audit, deploy, research):
    room.register(app)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"silograph {version('silograph')}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Learn together from data that may not be shared, and believe the privacy number."""


def main() -> None:
    """Entry point: every error on purpose becomes one line and an exit code, never a traceback."""
    try:
        with wording.speaking("plan"):
            code = app(standalone_mode=False)
        if code == 130:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.exit(error.exit_code)  # the help has been shown
    except click.ClickException as error:
        asked = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "silograph"
        _fail(f"{error.format_message()} (see {asked} --help)", "bad-input", error.exit_code)
    except SilographError as error:
        _fail(str(error), error.code, error.exit_code)
    except KeyboardInterrupt:
        _fail("Interrupted. Type the same command again to resume.", "interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        _fail("Not enough memory for a problem of this size.", "memory", 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(
            f"{place}{error.strerror or error}. No result was written. Fix the problem, then type the same command "
            "again.",
            "system",
            1,
        )


def _fail(text: str, code: str, exit_code: int) -> NoReturn:
    if "--json" in sys.argv:
        print(json.dumps({"error": {"code": code, "text": text}}))
    print(f"silograph: {text}", file=sys.stderr)
    sys.exit(exit_code)
