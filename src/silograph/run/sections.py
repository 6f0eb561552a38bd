"""Sections of a plan: frozen dataclasses, of which some fields name files and some are options of a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from silograph.core.errors import InputError
from silograph.core.files import LONGEST_PLAN, read_at_most
from silograph.core.schema import Such
from silograph.core.toml import parse_toml

#: The least and the most of a range, or one whole number for both.
Span = Annotated[
    tuple[int, int],
    Such(
        "a whole number, or the least and the most of a range",
        before=lambda value: [value, value] if type(value) is int else value,
    ),
]


def naming_files(default: Any, private: bool = True, **more: str) -> Any:
    """A field that names files, relative to the plan; `private` unless nothing that leaves a silo depends on them."""
    return field(default=default, metadata={"files": True, "private": private, **more})


def said(default: Any, help: str, **more: str) -> Any:
    """A field that is an option of a command as well; `option` is its name there, if it is another."""
    return field(default=default, metadata={"help": help, **more})


def read_toml(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():
        raise InputError(str(path), "a readable plan file", "it is no ordinary file")
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
        elif part.metadata.get("private") is private and value is not None:
            yield from [value] if isinstance(value, str) else value


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
        elif part.metadata.get("files") and value is not None:
            changed[part.name] = rename(value) if isinstance(value, str) else tuple(map(rename, value))
    return replace(section, **changed)
