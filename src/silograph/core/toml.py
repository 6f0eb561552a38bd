"""TOML of strangers: parsed, or refused with a reason, in a time that grows with its length."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from silograph.core.errors import InputError

_MOST_PARTS = 32
_PART = r"""(?:(?<![\w-])[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
#: The standard library takes the square of the number of parts of a key: one of 100 KB would keep it busy for minutes.
_LONG_KEY = re.compile(rf"(?:{_PART}\.[ \t]*+){{{_MOST_PARTS}}}")


def parse_toml(text: str, where: str) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise InputError(where, f"TOML with keys of at most {_MOST_PARTS} parts", "one has more")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(where, "TOML", "it is nested too deeply") from None
    except ValueError as error:  # also a number of thousands of digits
        raise InputError(where, "TOML", str(error)) from None
