"""Whom a server waits for and how long already, in a line whenever that changes: for a terminal, or for a log."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from silograph.cli.journal import Journal
from silograph.core.types import Json
from silograph.report.words import listed

_LOOK = 0.5  # seconds between looks
_SLOW = 10.0  # seconds without an answer that are worth a line
_AGAIN, _LONGEST = 15.0, 600.0  # seconds until a line is repeated, each time twice as many
_LISTED = 8


@dataclass(frozen=True)
class Line:
    text: str
    fields: Json


@dataclass(frozen=True)
class Seen:
    """Who is there of `names`, and whom the server waits for. `over`: the run is, and only the latter still count."""

    names: Collection[str]
    present: Collection[str]
    waiting: Collection[str]
    over: bool


@dataclass
class Attendance:
    """What to say of it, and when. It sees names and times, and nothing that anybody sent."""

    _away: dict[str, float] = field(default_factory=dict)  # who is not connected, since when
    _asked: dict[str, float] = field(default_factory=dict)  # who is connected and has not answered, since when
    _before: dict[str, set[str]] = field(default_factory=lambda: {"missing": set(), "slow": set()})
    _state: dict[str, list[str]] = field(default_factory=lambda: {"missing": [], "slow": []})
    _said: dict[str, list[str]] = field(default_factory=lambda: {"missing": [], "slow": []})
    _due: float = 0.0
    _pause: float = _AGAIN

    def look(self, seen: Seen, now: float) -> Line | None:
        """The line that is due, if there is one."""
        expected = [name for name in seen.names if not seen.over or name in seen.waiting]
        self._away = {name: self._away.get(name, now) for name in expected if name not in seen.present}
        self._asked = {name: self._asked.get(name, now) for name in seen.waiting if name in seen.present}
        looks = {"missing": set(self._away), "slow": {n for n, since in self._asked.items() if now - since >= _SLOW}}
        self._state = state = {kind: self._steady(kind, seen_now) for kind, seen_now in looks.items()}
        self._before = looks
        awaited = [*state["missing"], *state["slow"]]
        if state == self._said and (not awaited or now < self._due):
            return None
        self._pause = min(2.0 * self._pause, _LONGEST) if state == self._said else _AGAIN
        self._said, self._due = state, now + self._pause
        if seen.over and not awaited:
            return None
        since = self._asked | self._away
        seconds = {name: round(now - since.get(name, now)) for name in awaited}
        fields = {**state, "seconds": seconds, "connected": len(seen.names) - len(state["missing"])}
        return Line(self._text(seen, seconds), fields)

    def _steady(self, kind: str, now: set[str]) -> list[str]:
        """Who is in two looks, and who was in before and is in one of two: who comes and goes changes nothing."""
        before = self._before[kind]
        return sorted((now & before) | (set(self._state[kind]) & (now | before)))

    def _text(self, seen: Seen, seconds: dict[str, int]) -> str:
        count = len(seen.names)
        if not seconds:
            return f"All {count} are connected."

        def named(some: Iterable[str]) -> str:
            return listed([f"{name.replace('/', ' ')} ({seconds[name]} s)" for name in some], _LISTED)

        missing, slow = self._state["missing"], self._state["slow"]
        told = [f"{named(missing)} to connect"] if missing else []
        told += [f"an answer of {named(slow)}"] if slow else []
        there = "The run is over" if seen.over else f"{count - len(missing)} of {count} are connected"
        return f"{there}. Waiting for {', and for '.join(told)}."


@contextlib.contextmanager
def attended(see: Callable[[], Seen], journal: Journal) -> Iterator[None]:
    """Look at who is there until the end, in a thread of its own."""
    end, attendance = threading.Event(), Attendance()

    def watch() -> None:
        while not end.wait(_LOOK):
            line = attendance.look(see(), time.monotonic())
            if line is not None:
                journal.note("waiting", line.text, **line.fields)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
