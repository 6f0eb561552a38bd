"""The messages of a secure sum as JSON. What comes from outside is nothing but these fields with these types."""

from __future__ import annotations

from typing import Any, TypeVar

from silograph.core.schema import read, write

T = TypeVar("T")
to_json = write


def from_json(kind: type[T], told: Any) -> T:
    """A message of a class of `secure_messages`; anything else is refused."""
    return read(kind, told, f"secure sum, {kind.__name__}")
