"""Names of settings in errors: as the reader set them, on the command line, in a plan file or in Python.

Pages and saved files have the command line's words, whoever makes them: their bytes must not depend on that.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

#: Who set what an error speaks of: options of a command, a plan file, or parameters in Python.
Voice = Literal["options", "plan", "python"]
Value = str | float | Sequence[str] | Mapping[str, Sequence[str]]

#: Settings that have another name on the command line than in plans, and in Python.
OPTIONS = {"mode": "privacy", "groups": "group"}
_PARAMETERS = {"lambda": "lam", "seed": "random_state"}

_voice: ContextVar[Voice] = ContextVar("voice", default="python")


@contextmanager
def speaking(voice: Voice) -> Iterator[None]:
    """Errors made inside speak of settings in this voice.

    >>> with speaking("options"):
    ...     option("drop", ["age2"]), setting("drop")
    ('--drop age2', '--drop')
    >>> with speaking("plan"):
    ...     option("drop", ["age2"]), setting("drop")
    ('drop = ["age2"]', 'plan, drop')
    >>> option("drop", ["age2"]), setting("drop")
    ('drop=["age2"]', 'drop')
    """
    before = _voice.set(voice)
    try:
        yield
    finally:
        _voice.reset(before)


def called(name: str) -> str:
    """The name of a setting in the middle of a sentence."""
    if _voice.get() == "options":
        return f"--{OPTIONS.get(name, name).replace('_', '-')}"
    return name if _voice.get() == "plan" else _PARAMETERS.get(name, name)


def setting(name: str) -> str:
    """The name of a setting as the place of an error."""
    return f"plan, {name}" if _voice.get() == "plan" else called(name)


def settings() -> str:
    """All settings together, as the place of an error."""
    return {"options": "options", "plan": "plan", "python": "parameters"}[_voice.get()]


def option(name: str, value: Value) -> str:
    """A setting with its value, to be typed or copied.

    >>> levels = {"sex": ["f", "m"]}
    >>> option("categories", levels), option("mode", "secure-sum"), option("lambda", 0.5)
    ('categories={"sex": ["f", "m"]}', 'mode="secure-sum"', 'lam=0.5')
    >>> with speaking("options"):
    ...     option("categories", levels), option("mode", "secure-sum"), option("lambda", 0.5)
    ('--categories sex=f,m', '--privacy secure-sum', '--lambda 0.5')
    >>> with speaking("plan"):
    ...     option("categories", levels), option("mode", "secure-sum"), option("lambda", 0.5)
    ('categories = {sex = ["f", "m"]}', 'mode = "secure-sum"', 'lambda = 0.5')
    """
    if _voice.get() == "options":
        return " ".join(f"{called(name)} {shlex.quote(word)}" for word in _typed(value))
    return f"{name} = {_toml(value)}" if _voice.get() == "plan" else f"{called(name)}={_json(value)}"


def either(command: str, python: str) -> str:
    """The words for somebody at the command line, with options or a plan, or those for somebody in Python."""
    return python if _voice.get() == "python" else command


def _typed(value: Value) -> Sequence[str]:
    if isinstance(value, Mapping):
        return [";".join(f"{name}={','.join(levels)}" for name, levels in value.items())]
    return [str(value)] if isinstance(value, str | float | int) else value


def _toml(value: Value) -> str:
    if not isinstance(value, Mapping):
        return _json(value)
    names = {name: name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _json(name) for name in value}
    return f"{{{', '.join(f'{names[name]} = {_json(levels)}' for name, levels in value.items())}}}"


def _json(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)
