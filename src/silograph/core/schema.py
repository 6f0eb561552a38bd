"""What is read from outside: a dataclass says what may come, `read` makes one of JSON or TOML, `write` turns it back.

    Count = Annotated[int, Such("a whole number from 1 up", lambda count: count >= 1)]  # outside of the class

    @dataclass(frozen=True)
    class Terms:
        address: str
        minimum: Count = 2

    terms = read(Terms, {"address": "here:1", "minimum": 3}, "deployment.json, terms")

Fields may be str, bool, int, float, bytes (base64), Literal, dataclasses, tuples, lists, mappings of texts, unions of
these, and Any. What has a default may be left out. Nothing is guessed: a key that no field has, a text for a number or
true for 1 is refused, in an error that says where. What reading takes grows with what came; how deep it goes is up to
the types. Hints are looked at once for every type.
"""

from __future__ import annotations

import base64
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, partial, reduce
from itertools import cycle
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from silograph.core.errors import InputError, SilographError
from silograph.core.files import read_at_most

T = TypeVar("T")
Reader = Callable[[Any], Any]
Error = type[SilographError]

INFINITY = "infinity"  # JSON has no such number
_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
_SEVERAL = {str: "names", int: "whole numbers", float: "numbers"}
_SECTION = "a section of named values"
_LONGEST_WORD = 60  # of a stranger's, in an error
_MOST_DIGITS = 300  # of a whole number: a float can hold it
_TOO_LARGE = 10**_MOST_DIGITS
_repr = reprlib.Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 2, _LONGEST_WORD, _LONGEST_WORD


@dataclass(frozen=True)
class Such:
    """In `Annotated[float, Such("a number above 0", lambda x: x > 0)]`: which values, in words and as a check.

    Give the type a name outside of the class: inside, Python would look for what the check calls in the class alone.
    `before` is given what came, before it is read: for a second way to say the same.
    """

    words: str
    good: Callable[[Any], bool] = lambda value: True
    before: Callable[[Any], Any] = lambda value: value
    todo: Callable[[], str] = str  # made when it is needed: it names settings as whoever reads it has set them


Finite = Annotated[float, Such("a finite number", math.isfinite)]
Positive = Annotated[float, Such("a number above 0", lambda value: 0.0 < value < math.inf)]
Count = Annotated[int, Such("a whole number from 1 up", lambda count: count >= 1)]
Cohort = Annotated[int, Such("a whole number from 2 up", lambda count: count >= 2)]
Seed = Annotated[int, Such("a whole number from 0 up", lambda seed: seed >= 0)]
Amount = Annotated[float, Such("a number from 0 up, at most 1e70", lambda value: 0.0 <= value <= 1e70)]
#: Also its powers are numbers.
Scale = Annotated[float, Such("a number above 0, from 1e-70 to 1e70", lambda value: 1e-70 <= value <= 1e70)]
Share = Annotated[float, Such("a number above 0 and at most 1", lambda value: 0.0 < value <= 1.0)]
Portion = Annotated[float, Such("a number from 0 to 1", lambda value: 0.0 <= value <= 1.0)]
_RANGE = "a whole number from 1 up, or the least and the most of a range"
_TWICE = Such(_RANGE, lambda ends: 1 <= ends[0] <= ends[1], lambda end: [end, end] if isinstance(end, int) else end)
#: A range of whole numbers, or one that stands for both ends.
Span = Annotated[tuple[int, int], _TWICE]
_UNBOUNDED = Such(f'a number from 0 up, or "{INFINITY}"', before=lambda told: math.inf if told == INFINITY else told)
#: An epsilon: `write` says "infinity" of what JSON cannot hold.
Epsilon = Annotated[float, Such("a number from 0 up", lambda value: value >= 0.0), _UNBOUNDED]


def read(
    kind: type[T], content: object, where: str, error: Error = InputError, todo: str = "", further: bool = False
) -> T:
    """The dataclass `kind` from what JSON or TOML says, or an `error`, whose advice is `todo` where none is better.

    With `further`, keys that no field has are ignored, here and inside: newer versions may write more.
    """
    try:
        return cast("T", _reader(cast("Any", kind), further)(content))
    except _Wrong as wrong:
        raise wrong.told(where, error, todo) from None


def check(value: Any, where: str) -> None:
    """Refuse a dataclass that was made by hand if `read` would not have made it."""
    try:
        _reader(cast("Any", type(value)), False)(value)
    except _Wrong as wrong:
        raise wrong.told(where, InputError, "") from None


def write(value: Any, nulls: bool = True) -> Any:
    """What `read` reads back; without `nulls`, or where metadata has `left_out`, fields that are None are left out."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [write(item, nulls) for item in value]
    if is_dataclass(value):
        kind: Any = type(value)
        quiet = {part.name for part in fields(value) if not nulls or part.metadata.get("left_out")}
        told = [(key, name, write(getattr(value, name), nulls)) for key, (name, _, _) in _parts(kind).items()]
        return {key: item for key, name, item in told if item is not None or name not in quiet}
    if isinstance(value, Mapping):
        return {key: write(item, nulls) for key, item in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return INFINITY if value > 0.0 else f"-{INFINITY}"
    return value


def key_of(part: Field[Any]) -> str:
    """How a field is called outside: as in Python, unless its metadata has a `key`; "" is one that goes another way."""
    return str(part.metadata.get("key", public(part.name)))


def public(name: str) -> str:
    """A field cannot be called lambda, which is a word of Python's."""
    return "lambda" if name == "lam" else name


def of_format(
    content: object, number: int, where: str, error: Error = InputError, todo: str = "", key: str = "format"
) -> dict[str, Any]:
    """The content less its format, which is looked at first: another one may look like anything."""
    rest = dict(content) if isinstance(content, Mapping) else {}
    found = rest.pop(key, None)
    if type(found) is not int or found != number:
        raise error(where, f"{key} {number}", f"found {shortened(found)}", todo)
    return rest


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > _MOST_DIGITS:
        raise ValueError(f"a number of more than {_MOST_DIGITS} digits")
    return int(digits)


_decode = json.JSONDecoder(parse_int=_whole).decode


def parse_json(text: str | bytes, where: str, error: Error = InputError, todo: str = "") -> Any:
    """JSON of a stranger; numbers of more digits than a float can hold are refused."""
    try:
        return _decode(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise error(where, "JSON", "it is nested too deeply", todo) from None
    except ValueError as problem:
        raise error(where, "JSON", f"it does not parse ({problem})", todo) from None


def read_json(path: Path, most: int, where: str, error: Error = InputError, todo: str = "") -> Any:
    """The JSON in a file of at most so many bytes; that there is no file is for the caller to say."""
    try:
        return parse_json(read_at_most(path, most), where, error, todo)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(where, "a file that can be read", f"reading failed ({problem.strerror})", todo) from None


def shortened(value: object) -> str:
    """A stranger's value in a few words, however large it is."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
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

    def __init__(self, expected: str, value: object, todo: str = "") -> None:
        self.expected, self.found, self.todo, self.path = expected, f"found {shortened(value)}", todo, list[str]()

    def told(self, where: str, error: Error, todo: str) -> SilographError:
        place = "".join(reversed(self.path)).removeprefix(".")
        return error(f"{where}, {place}" if place else where, self.expected, self.found, self.todo or todo)


def _at(step: str | tuple[object], take: Reader, value: Any) -> Any:
    """What lies under a key, or, in brackets, under a number or a name."""
    try:
        return take(value)
    except _Wrong as wrong:
        wrong.path.append(f".{step}" if isinstance(step, str) else f"[{shortened(*step)}]")
        raise


@cache
def _reader(hint: Any, further: bool) -> Reader:
    origin, inner = get_origin(hint), get_args(hint)
    named = getattr(origin, "__value__", None)  # of a name for a type, as NDArray is from numpy 2.5 on
    if named is not None:
        return _reader(named[inner], further)
    if origin is Annotated:
        return reduce(lambda take, rule: partial(_such, rule, take), inner[1:], _reader(inner[0], further))
    if hint is Any or getattr(hint, "_is_protocol", False):  # nothing that comes from outside
        return lambda value: value
    if origin is Literal:
        return partial(_choice, inner)
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_dataclass, hint, further)
    readers = [_reader(part, further) for part in inner if part not in (NoneType, Ellipsis)]
    if origin in (Union, UnionType):
        return partial(_any_of, readers, hint)
    if origin in (tuple, list):
        return partial(_items, origin, readers, hint)
    if origin is not None and issubclass(origin, Mapping):
        return partial(_mapping, readers[1])
    return {float: _float, int: _int, bytes: _bytes}.get(hint) or partial(_plain, origin or hint)


def _words(hint: Any) -> str:
    """A type in a person's words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(inner[-1].words)
    if origin in (Union, UnionType):
        return ", or ".join(_words(part) for part in inner if part is not NoneType)
    if origin is Literal:
        return f"{'one of ' * (len(inner) > 1)}{', '.join(map(str, inner))}"
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"a list of {len(inner)}: {', '.join(map(_words, inner))}"
    if origin in (tuple, list):
        item = inner[0].__origin__ if get_origin(inner[0]) is Annotated else inner[0]
        return f"a list of {_SEVERAL.get(item, f'items, each {_words(item)}')}"
    return _WORDS.get(hint, _SECTION)


def _such(rule: Such, take: Reader, value: Any) -> Any:
    try:
        taken = take(rule.before(value))
    except _Wrong as wrong:
        raise wrong if wrong.path else _Wrong(rule.words, value, wrong.todo or rule.todo()) from None
    if not rule.good(taken):
        raise _Wrong(rule.words, value, rule.todo())
    return taken


def _any_of(readers: list[Reader], hint: Any, value: Any) -> Any:
    if value is None and NoneType in get_args(hint):
        return None
    for take in readers:
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
    raise _Wrong(_words(Literal[choices]), value, did_you_mean(value, map(str, choices)))


def _items(origin: Callable[[list[Any]], Any], readers: list[Reader], hint: Any, value: Any) -> Any:
    varied = origin is list or get_args(hint)[-1] is Ellipsis
    if not isinstance(value, list | tuple) or not (varied or len(value) == len(readers)):
        raise _Wrong(_words(hint), value)
    return origin([_at((k,), take, item) for k, (take, item) in enumerate(zip(cycle(readers), value, strict=False))])


def _mapping(take: Reader, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong(_SECTION, value)
    return {_at((name,), _text, name): _at((name,), take, item) for name, item in value.items()}


@cache
def _parts(kind: Any, further: bool = False) -> dict[str, tuple[str, Reader, bool]]:
    """By key: the field's name, its reader, and whether it must be there."""
    hints, told = get_type_hints(kind, include_extras=True), [part for part in fields(kind) if part.init]
    needed = {part.name: part.default is MISSING and part.default_factory is MISSING for part in told}
    parts = {key_of(part): (part.name, _reader(hints[part.name], further), needed[part.name]) for part in told}
    return {key: part for key, part in parts.items() if key}


def _dataclass(kind: Any, further: bool, content: Any) -> Any:
    if not isinstance(content, kind):
        return kind(**_values(kind, further, content))
    for key, (name, take, _) in _parts(kind, further).items():  # made by hand, and stays what it is
        _at(key, take, getattr(content, name))
    return content


def _values(kind: Any, further: bool, content: Any) -> dict[str, Any]:
    """The fields of a dataclass, by name."""
    if not isinstance(content, Mapping):
        raise _Wrong(_SECTION, content)
    parts, values = _parts(kind, further), {}
    for key, value in content.items():
        if key in parts:
            name, take, _ = parts[key]
            values[name] = _at(key, take, value)
        elif not further:
            raise _Wrong(f"only {', '.join(parts)}", key, did_you_mean(key, parts.keys() - content.keys()))
    if missing := [repr(key) for key, (name, _, needed) in parts.items() if needed and name not in values]:
        wrong = _Wrong(f"the key{'s' * (len(missing) > 1)} {', '.join(missing)}", None)
        wrong.found = "it is missing" if len(missing) == 1 else "they are missing"
        raise wrong
    return values


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):  # who makes one by hand may have numpy's
        raise _Wrong(_WORDS[int], value)
    if abs(value) >= _TOO_LARGE:
        raise _Wrong(f"a number of at most {_MOST_DIGITS} digits", value)
    return int(value)


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _Wrong(_WORDS[float], value)
    return float(_int(value) if isinstance(value, Integral) else value)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError:
        raise _Wrong("base64", value) from None


def _plain(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        number = kind is str and isinstance(value, int | float)
        raise _Wrong(_WORDS.get(kind, kind.__name__), value, "Put it in quotes." if number else "")
    return value


_text = partial(_plain, str)
