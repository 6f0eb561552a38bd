"""Sections of a plan: frozen dataclasses, of which some fields name files and some are options of a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from silograph.core.errors import InputError
from silograph.core.files import LONGEST_PLAN, read_at_most
from silograph.core.schema import Positive, Such
from silograph.core.schema import public as public
from silograph.core.toml import parse_toml

Delta = Annotated[float, Such("a number between 0 and 1", lambda value: 0.0 < value < 1.0, todo=lambda: "Try 1e-6.")]
TotalEpsilon = Annotated[
    Positive, Such("a privacy budget above 0", todo=lambda: "Leave it out for a run without privacy.")
]


def naming_files(default: Any, private: bool = True, **more: Any) -> Any:
    """A field that names files, relative to the plan; `private` unless nothing that leaves a silo depends on them.
    `words` are values that name no file."""
    return field(default=default, metadata={"files": True, "private": private, **more})


def option(default: Any, help: str, **more: str) -> Any:
    """A field that is an option of a command as well; `option` is its name there, if it is another, `panel` where the
    help shows it."""
    return field(default=default, metadata={"help": help, **more})


def read_toml(path: Path) -> dict[str, Any]:
    try:
        text = read_at_most(path, LONGEST_PLAN).decode()
    except FileNotFoundError:
        raise InputError(str(path), "a plan file", "there is none") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), "a readable plan file", str(error)) from None
    return parse_toml(text, str(path))


def named_files(section: Any, private: bool) -> Iterator[str]:
    """The files the plan reads, those with private data or the others."""
    for part in fields(section):
        value = getattr(section, part.name)
        if is_dataclass(value):
            yield from named_files(value, private)
        elif part.metadata.get("private") is private and _names_files(value, part.metadata):
            yield from [value] if isinstance(value, str) else value


def _names_files(value: Any, metadata: Mapping[str, Any]) -> bool:
    return value is not None and value not in metadata.get("words", ())


def moved(section: Any, base: Path, goal: Path) -> Any:
    """The same with its files, relative to `base`, named from another folder."""
    return renamed(section, lambda name: os.path.relpath(base / name, goal))


def renamed(section: Any, rename: Callable[[str], str]) -> Any:
    """The same with its files under other names."""
    changed: dict[str, Any] = {}
    for part in fields(section):
        value = getattr(section, part.name)
        if is_dataclass(value):
            changed[part.name] = renamed(value, rename)
        elif part.metadata.get("files") and _names_files(value, part.metadata):
            changed[part.name] = rename(value) if isinstance(value, str) else tuple(map(rename, value))
    return replace(section, **changed)
