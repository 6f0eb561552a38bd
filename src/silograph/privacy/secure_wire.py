"""The messages of a secure sum as JSON. What comes from outside is nothing but these fields with these types."""

from __future__ import annotations

from typing import Any, TypeVar

from silograph.core.schema import read, write
from silograph.core.types import Json

T = TypeVar("T")


def to_json(message: Any) -> Json:
    told: Json = write(message)
    return told


def from_json(kind: type[T], told: Any) -> T:
    """A message of a class of `secure_messages`; anything else is refused."""
    return read(kind, told, f"secure sum, {kind.__name__}")
