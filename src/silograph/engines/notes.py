"""Notes of events that must happen only once in a round, even after a kill: each is on disk before anybody can hear of
it, and a repeated round gets the notes instead of new events."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.files import write_atomically

NOTES = ("notes-0", "notes-1")  # for even and odd rounds: the last words of a round are needed in the next one
_SIZES = 4 + 8 + 4  # of a name, of the note, and the checksum of both


class Notes:
    """Two files in a run's folder: the notes of this round, and of the one before it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.now: dict[str, bytes] = {}
        self.before: dict[str, bytes] = {}
        self._round = 0

    def begin(self, round: int) -> None:
        self.before = self._read(round - 1)
        self.now, self._round = self._read(round), round

    def once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the note of this name in this round; make and write it if there is none."""
        if name not in self.now:
            made, path = make(), self._folder / NOTES[self._round % 2]
            if not self.now:
                self.now["round"] = str(self._round).encode()
                write_atomically(path, _record("round", self.now["round"]), 0o600)
            with open(path, "ab") as file:
                file.write(_record(name, made))
                file.flush()
                os.fsync(file.fileno())
            self.now[name] = made
        return self.now[name]

    def _read(self, round: int) -> dict[str, bytes]:
        """Read all notes of that round. A last note that a kill cut off never left this machine."""
        path, found, at = self._folder / NOTES[round % 2], dict[str, bytes](), 0
        if round < 0 or not path.exists():
            return {}
        content = path.read_bytes()
        while at + _SIZES <= len(content):
            name = int.from_bytes(content[at : at + 4], "little")
            size = int.from_bytes(content[at + 4 : at + 12], "little")
            end = at + _SIZES + name + size
            both = content[at + _SIZES : end]
            if end > len(content):
                break
            if zlib.crc32(both) != int.from_bytes(content[at + 12 : at + 16], "little"):
                todo = "Put the newest copy of the folder back."
                raise DamageError(str(path), "the notes that silograph wrote", "they are damaged", todo)
            found[both[:name].decode()] = both[name:]
            at = end
        if found.get("round") != str(round).encode():
            return {}
        if at < len(content):
            write_atomically(path, content[:at], 0o600)
        return found


def _record(name: str, noted: bytes) -> bytes:
    both = name.encode() + noted
    sizes = len(name.encode()).to_bytes(4, "little") + len(noted).to_bytes(8, "little")
    return sizes + zlib.crc32(both).to_bytes(4, "little") + both
