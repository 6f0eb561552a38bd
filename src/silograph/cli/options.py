"""Options of commands that are not written by hand: from the fields of a plan's sections, from families' samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from silograph.core.schema import key_of


def option(
    name: str, kind: Any, default: Any, help: str, known_as: str | None = None, panel: str | None = None
) -> inspect.Parameter:
    """An option for the parameter `name`, under its own or another name; a truth is a switch. The help shows it in a
    panel of its own, if one is named."""
    told = typer.Option(known_as or _flag(name), help=help, rich_help_panel=panel)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, told])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def called(part: Field[Any]) -> str:
    """The option for a field of a section."""
    return _flag(part.metadata.get("option", key_of(part)))


def options_of(section: type[Any], panel: str | None = None) -> list[inspect.Parameter]:
    """An option for every field that says what it is for; what a section must have may be left out here. The help
    shows them in the panel, but for fields that name another."""
    hints = get_type_hints(section)
    made = []
    for part in (part for part in fields(section) if "help" in part.metadata):
        kind, default = hints[part.name], part.default
        if default is MISSING:
            kind, default = kind | None, None
        if Mapping in (get_origin(part) for part in get_args(kind)):  # said in words, which the command reads
            kind, default = list[str], []
        if get_origin(kind) is tuple:  # an option that may be repeated
            kind, default = list[get_args(kind)[0]], list(default or ())  # type: ignore[misc]
        told = part.metadata["help"], called(part), part.metadata.get("panel", panel)
        made.append(option(part.name, kind, default, *told))
    return made


def chosen(section: type[Any], asked: dict[str, Any]) -> dict[str, Any]:
    """What was asked for in this section."""
    given = {part.name: asked[part.name] for part in fields(section) if part.name in asked}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def with_options(command: Callable[..., None], more: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """The command, whose last parameter collects further options by name, with these options."""
    plain = inspect.signature(command, eval_str=True)
    *own, _ = plain.parameters.values()
    command.__signature__ = plain.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    return command
