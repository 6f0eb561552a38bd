"""The messages of a secure sum as JSON. From outside, only these fields with these types are accepted."""

from __future__ import annotations

from typing import Any, TypeVar

from silograph.core.schema import read, write

T = TypeVar("T")
to_json = write


def from_json(kind: type[T], told: Any) -> T:
    """Read a message of a class of `secure_messages`; anything else is refused."""
    return read(kind, told, f"secure sum, {kind.__name__}")
