"""Docstrings here describe a parameter in one line, `name : words`. numpy's style would read the words as a type.
They end with an example, `>>> ` below their words. numpy's style would have a heading above it.

Estimators take defaults and words of their parameters from the plan when they are imported, so these are looked up.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import griffe

_EXAMPLE = re.compile(r"\n\n(?=>>> )")
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.+)$", re.MULTILINE)


class Words(griffe.Extension):
    """Puts the words below the name, where they are a description, and a heading above an example."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and "Examples\n----" not in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub("\n\nExamples\n--------\n", obj.docstring.value, count=1)
        self._describe(obj)

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring is not None and cls.path.startswith("silograph.estimators."):
            cls.docstring.value = getattr(import_module(cls.module.path), cls.name).__doc__
        self._describe(cls)

    def _describe(self, obj: griffe.Object) -> None:
        if obj.docstring is not None and "\n----" in obj.docstring.value:
            obj.docstring.value = _ENTRY.sub(r"\1\n    \2", obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """A parameter's default itself, rather than the field it is taken from."""
        if cls.path.startswith("silograph.estimators."):
            made = getattr(import_module(cls.module.path), cls.name)
            for name, attribute in cls.attributes.items():
                if not name.startswith("_") and attribute.value is not None:
                    attribute.value = repr(getattr(made, name))
