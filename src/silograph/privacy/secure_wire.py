"""The messages of a secure sum as JSON. What comes from outside is nothing but these fields with these types."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from silograph.core.errors import InputError
from silograph.core.types import Json

T = TypeVar("T")


def to_json(message: Any) -> Json:
    return {part.name: _plain(getattr(message, part.name)) for part in fields(message)}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) if isinstance(part, str) else to_json(part) for part in value]


def from_json(kind: type[T], told: Any) -> T:
    """A message of a class of `secure_messages`; anything else is refused."""
    try:
        hints = get_type_hints(kind)
        if told.keys() != hints.keys():
            raise ValueError
        return kind(**{name: _typed(hint, told[name]) for name, hint in hints.items()})
    except (AttributeError, TypeError, ValueError):
        raise InputError("secure sum", f"a message {kind.__name__}", "something else came") from None


def _typed(hint: Any, value: Any) -> Any:
    inner = get_args(hint)[0] if get_origin(hint) is tuple else None
    if hint is str and isinstance(value, str):
        return value
    if hint is bytes:
        return base64.b64decode(value, validate=True)
    if get_origin(hint) is Mapping:
        return {str(name): base64.b64decode(part, validate=True) for name, part in value.items()}
    if inner is not None and isinstance(value, list):
        return tuple(_typed(str, part) if inner is str else from_json(inner, part) for part in value)
    raise ValueError
