"""Docstrings here describe a parameter in one line, `name : words`. numpy's style would read the words as a type."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.+)$", re.MULTILINE)


class Words(griffe.Extension):
    """Puts the words below the name, where they are a description."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring is not None and "\n----" in cls.docstring.value:
            cls.docstring.value = _ENTRY.sub(r"\1\n    \2", cls.docstring.value)
