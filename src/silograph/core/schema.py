"""What is read from outside: a dataclass says what may come, `read` makes one of JSON or TOML, `write` turns it back.

    @dataclass(frozen=True)
    class Terms:
        address: str
        minimum: Annotated[int, Such("a whole number from 1 up", lambda n: n >= 1)] = 2

    terms = read(Terms, {"address": "here:1", "minimum": 3}, "deployment.json, terms")

Fields may be str, bool, int, float, bytes (base64), Literal, dataclasses, tuples, lists, mappings of texts, unions of
these, and Any. What has a default may be left out. Nothing is guessed: a key that no field has, a text for a number or
true for 1 is refused, in an error that says where. What reading takes grows with what came; how deep it goes is up to
the types. Hints are looked at once for every type.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, partial, reduce
from itertools import cycle
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from silograph.core.errors import InputError, SilographError
from silograph.core.files import read_at_most

T = TypeVar("T")
Reader = Callable[[Any], Any]

INFINITY = "infinity"  # JSON has no such number
_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", NoneType: "null"}
_LONGEST_WORD = 60  # of a stranger's, in an error
_repr = reprlib.Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 2, _LONGEST_WORD, _LONGEST_WORD


@dataclass(frozen=True)
class Such:
    """In `Annotated[float, Such("a number above 0", lambda x: x > 0)]`: which values, in words and as a check.

    `before` is given what came, before it is read: for a second way to say the same.
    """

    words: str
    good: Callable[[Any], bool] = lambda value: True
    before: Callable[[Any], Any] = lambda value: value


Finite = Annotated[float, Such("a finite number", math.isfinite)]
#: An epsilon: `write` says "infinity" of what JSON cannot hold.
Epsilon = Annotated[
    float,
    Such(
        f'a number from 0 up, or "{INFINITY}"',
        lambda value: value >= 0.0,
        lambda value: math.inf if value == INFINITY else value,
    ),
]


def read(
    kind: type[T],
    content: object,
    where: str,
    error: type[SilographError] = InputError,
    todo: str = "",
    further: bool = False,
) -> T:
    """The dataclass `kind` from what JSON or TOML says, or an `error`, whose advice is `todo` where none is better.

    With `further`, keys that no field has are ignored, here and inside: newer versions may write more.
    """
    try:
        value: T = _reader(cast("Any", kind), further)(content)
    except _Wrong as wrong:
        place = "".join(reversed(wrong.path)).removeprefix(".")
        raise error(f"{where}, {place}" if place else where, wrong.expected, wrong.found, wrong.todo or todo) from None
    return value


def write(value: Any, nulls: bool = True) -> Any:
    """What `read` reads back; without `nulls`, or where metadata has `left_out`, fields that are None are left out."""
    if is_dataclass(value):
        parts = [(part, getattr(value, part.name)) for part in fields(value) if part.init]
        return {
            key_of(part): write(item, nulls)
            for part, item in parts
            if item is not None or (nulls and not part.metadata.get("left_out"))
        }
    if isinstance(value, Mapping):
        return {key: write(item, nulls) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [write(item, nulls) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and math.isinf(value):
        return INFINITY if value > 0.0 else f"-{INFINITY}"
    return value


def key_of(part: Field[Any]) -> str:
    """How a field is called outside: as in Python, unless its metadata has a `key`."""
    key: str = part.metadata.get("key", part.name)
    return key


def of_format(
    content: object,
    number: int,
    where: str,
    error: type[SilographError] = InputError,
    todo: str = "",
    key: str = "format",
) -> dict[str, Any]:
    """The content less its format, which is looked at first: another one may look like anything."""
    if not isinstance(content, Mapping):
        raise error(where, "a section of named values", f"found {shortened(content)}", todo)
    rest = dict(content)
    found = rest.pop(key, None)
    if type(found) is not int or found != number:
        came = "none is stated" if found is None else f"found {shortened(found)}"
        raise error(where, f"{key} {number}", came, todo)
    return rest


def parse_json(text: str | bytes, where: str, error: type[SilographError] = InputError, todo: str = "") -> Any:
    """JSON of a stranger; numbers of more digits than a float can hold are refused."""
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise error(where, "JSON", "it is nested too deeply", todo) from None
    except ValueError as problem:
        raise error(where, "JSON", f"it does not parse ({problem})", todo) from None


def read_json(path: Path, most: int, where: str, error: type[SilographError] = InputError, todo: str = "") -> Any:
    """The JSON in a file of at most so many bytes; that there is no file is for the caller to say."""
    try:
        text = read_at_most(path, most)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(where, "a file that can be read", f"reading failed ({problem.strerror})", todo) from None
    return parse_json(text, where, error, todo)


def shortened(value: object) -> str:
    """A stranger's value in a few words, however large it is."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    try:
        text = _repr.repr(value)
    except ValueError:  # Python does not write whole numbers of thousands of digits
        return "a number of very many digits"
    return text if len(text) <= _LONGEST_WORD else f"{text[: _LONGEST_WORD - 1]}…"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The nearest known word as a question, or nothing."""
    near = get_close_matches(str(word)[:_LONGEST_WORD], list(known), 1) if isinstance(word, str) else []
    return f"Did you mean {near[0]}?" if near else ""


# ---- readers, one for every type -------------------------------------------------------------------------------------


class _Wrong(Exception):
    """What was expected and found; `path` leads to it from inside out."""

    def __init__(self, expected: str, value: object, todo: str = "", found: str | None = None) -> None:
        self.expected, self.todo, self.path = expected, todo, list[str]()
        self.found = f"found {shortened(value)}" if found is None else found

    def inside(self, step: str) -> _Wrong:
        self.path.append(step)
        return self


def _whole(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError("a number of more than 300 digits")
    return int(digits)


@cache
def _reader(hint: Any, further: bool) -> Reader:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return reduce(lambda take, rule: partial(_such, rule, take), inner[1:], _reader(inner[0], further))
    if hint is Any:
        return lambda value: value
    if origin in (Union, UnionType):
        return partial(_any_of, {part: _reader(part, further) for part in inner if part is not NoneType}, hint)
    if origin is Literal:
        return partial(_choice, inner)
    if origin in (tuple, list):
        return partial(_items, origin, [_reader(part, further) for part in inner if part is not Ellipsis], hint)
    if origin is not None and issubclass(origin, Mapping):
        return partial(_mapping, _reader(inner[1], further))
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_dataclass, hint, further)
    return {float: _float, int: _int, bytes: _bytes}.get(hint) or partial(_plain, origin or hint)


def _words(hint: Any) -> str:
    """A type in a person's words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        words: str = inner[-1].words
        return words
    if origin in (Union, UnionType):
        return ", or ".join(_words(part) for part in inner if part is not NoneType)
    if origin is Literal:
        return f"{'one of ' * (len(inner) > 1)}{', '.join(map(str, inner))}"
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"a list of {len(inner)}: {', '.join(map(_words, inner))}"
    if origin in (tuple, list):
        return f"a list of {_plural(inner[0])}"
    return _WORDS.get(hint, "a section of named values")


def _plural(hint: Any) -> str:
    return {str: "texts", int: "whole numbers", float: "numbers"}.get(hint, "items, each " + _words(hint))


def _such(rule: Such, take: Reader, value: Any) -> Any:
    try:
        taken = take(rule.before(value))
    except _Wrong as wrong:
        raise wrong if wrong.path else _Wrong(rule.words, value, wrong.todo) from None
    if not rule.good(taken):
        raise _Wrong(rule.words, value)
    return taken


def _any_of(readers: Mapping[Any, Reader], hint: Any, value: Any) -> Any:
    if value is None and NoneType in get_args(hint):
        return None
    for take in readers.values():
        try:
            return take(value)
        except _Wrong as wrong:
            if len(readers) == 1:
                raise
            todo = wrong.todo
    raise _Wrong(_words(hint), value, todo)


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    raise _Wrong(_words(Literal[choices]), value, did_you_mean(value, filter(lambda c: isinstance(c, str), choices)))


def _items(origin: Callable[[list[Any]], Any], readers: list[Reader], hint: Any, value: Any) -> Any:
    """As many as come where there is one reader and no end, else one for each reader."""
    varied = origin is list or get_args(hint)[-1] is Ellipsis
    if not isinstance(value, list | tuple) or not (varied or len(value) == len(readers)):
        raise _Wrong(_words(hint), value)
    taken = []
    for k, (take, item) in enumerate(zip(cycle(readers), value)):
        try:
            taken.append(take(item))
        except _Wrong as wrong:
            raise wrong.inside(f"[{k}]") from None
    return origin(taken)


def _mapping(take: Reader, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong("a section of named values", value)
    taken = {}
    for name, item in value.items():
        try:
            taken[_plain(str, name)] = take(item)
        except _Wrong as wrong:
            raise wrong.inside(f"[{shortened(name)}]") from None
    return taken


@cache
def _parts(kind: type[Any], further: bool) -> dict[str, tuple[str, Reader, bool]]:
    """By key: the field's name, its reader, and whether it must be there."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        key_of(part): (
            part.name,
            _reader(hints[part.name], further),
            part.default is MISSING and part.default_factory is MISSING,
        )
        for part in fields(kind)
        if part.init
    }


def _dataclass(kind: type[Any], further: bool, content: Any) -> Any:
    if not isinstance(content, Mapping):
        raise _Wrong("a section of named values", content)
    parts, values = _parts(cast("Any", kind), further), {}
    for key, value in content.items():
        if key not in parts:
            if further:
                continue
            raise _Wrong(f"only {', '.join(parts)}", key, did_you_mean(key, parts.keys() - content.keys()))
        name, take, _ = parts[key]
        try:
            values[name] = take(value)
        except _Wrong as wrong:
            raise wrong.inside(f".{key}") from None
    if missing := [key for key, (name, _, needed) in parts.items() if needed and name not in values]:
        keys = ", ".join(map(repr, missing))
        found = "it is missing" if len(missing) == 1 else "they are missing"
        raise _Wrong(f"the key{'s' * (len(missing) > 1)} {keys}", None, found=found)
    return kind(**values)


def _int(value: Any) -> int:
    if type(value) is not int:
        raise _Wrong(_WORDS[int], value)
    if value.bit_length() > 1023:
        raise _Wrong("a number that fits", value)
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(_int(value))
    raise _Wrong(_WORDS[float], value)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_plain(str, value), validate=True)
    except (binascii.Error, ValueError):
        raise _Wrong("base64", value) from None


def _plain(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        number = kind is str and isinstance(value, int | float)
        raise _Wrong(_WORDS.get(kind, kind.__name__), value, "Put it in quotes." if number else "")
    return value
