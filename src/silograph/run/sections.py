"""Plans as files: TOML to frozen dataclasses and back, with errors that say where."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from silograph.core.errors import InputError
from silograph.core.files import LONGEST_PLAN, read_at_most
from silograph.core.toml import parse_toml

_PUBLIC = {"lam": "lambda"}


def naming_files(default: Any, private: bool = True, **more: str) -> Any:
    """A field that names files, relative to the plan; `private` unless nothing that leaves a silo depends on them."""
    return field(default=default, metadata={"files": True, "private": private, **more})


def said(default: Any, help: str, **more: str) -> Any:
    """A field that is an option of a command as well; `option` is its name there, if it is another."""
    return field(default=default, metadata={"help": help, **more})


def public(name: str) -> str:
    return _PUBLIC.get(name, name)


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


def parse_into(kind: type[Any], content: Mapping[str, Any], where: str) -> Any:
    """A dataclass from a table: fields that are dataclasses themselves are sections."""
    names = {public(part.name): part for part in fields(kind)}
    unknown = sorted(set(content) - set(names))
    if unknown:
        raise InputError(where, f"only {', '.join(names)}", f"{', '.join(unknown)} came", "Check the spelling.")
    hints = get_type_hints(kind)
    values = {}
    for key, value in content.items():
        hint = _without_none(hints[names[key].name])
        if isinstance(hint, type) and is_dataclass(hint):
            if not isinstance(value, dict):
                raise InputError(f"{where}, {key}", "a section", f"{value!r} came")
            values[names[key].name] = parse_into(hint, value, f"{where}, [{key}]")
        else:
            values[names[key].name] = _typed(value, hint, f"{where}, {key}")
    missing = [key for key, part in names.items() if part.name not in values and _is_required(part)]
    if missing:
        raise InputError(where, f"{', '.join(missing)}", "none came" if len(missing) == 1 else "they did not come")
    return kind(**values)


def _is_required(part: Field[Any]) -> bool:
    return part.default is MISSING and part.default_factory is MISSING


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not type(None)]
        return inner[0] if len(inner) == 1 else Union[tuple(inner)]  # noqa: UP007 (made at run time)
    return hint


def _typed(value: Any, hint: Any, where: str) -> Any:
    """The value as the field wants it: TOML has its own types, so little is left to convert."""
    if get_origin(hint) is Union:  # a number, or a word
        number, word = get_args(hint)
        if isinstance(value, str) and value not in get_args(word):
            raise InputError(where, f"a number, or {', '.join(get_args(word))}", f"{value!r} came")
        return value if isinstance(value, str) else _typed(value, number, where)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(where, f"one of {', '.join(get_args(hint))}", f"{value!r} came")
        return value
    if get_origin(hint) is tuple:
        return _tuple(value, get_args(hint), where)
    words = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}[hint]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(where, "a number that fits", "one with hundreds of digits came") from None
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise InputError(where, words, f"{value!r} came")
    return value


def _tuple(value: Any, inner: tuple[Any, ...], where: str) -> Any:
    """A list of texts, of whole numbers or of pairs, or a range: one whole number or two."""
    if inner == (int, int):
        pair = [value, value] if isinstance(value, int) else value
        if not isinstance(pair, list) or len(pair) != 2 or any(type(part) is not int for part in pair):
            raise InputError(where, "a whole number, or the least and the most of a range", f"{value!r} came")
        return tuple(pair)
    if inner[0] is int:
        if not isinstance(value, list) or any(type(part) is not int for part in value):
            raise InputError(where, "a list of whole numbers", f"{value!r} came")
        return tuple(value)
    words = "a list of names" if inner[0] is str else "a list of pairs of names"
    if not isinstance(value, list):
        raise InputError(where, words, f"{value!r} came")
    if inner[0] is not str:
        return tuple(_pair(item, where) for item in value)
    if not all(isinstance(item, str) for item in value):
        raise InputError(where, words, f"{value!r} came", "Put every name in quotes, a number too.")
    return tuple(value)


def _pair(value: Any, where: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, str) for part in value):
        raise InputError(where, "pairs of names", f"{value!r} came")
    return value[0], value[1]


def to_table(value: Any) -> dict[str, Any]:
    """What `parse_into` reads back; what is None is left out."""

    def plain(item: Any) -> Any:
        if is_dataclass(item):
            return to_table(item)
        return [plain(part) for part in item] if isinstance(item, tuple) else item

    kept = {part.name: getattr(value, part.name) for part in fields(value)}
    return {public(name): plain(item) for name, item in kept.items() if item is not None}


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
