"""The end of a process at one of its writes, as a power cut has it: what was not synced by then is not on disk."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WRITES = ("fsync", "replace", "unlink", "rmdir", "rename", "truncate", "ftruncate")


def end_at(write: int, before: bool, folder: str, count: str) -> None:
    """End this process before or after that write of its own, from 1; 0: never. How many there were is in `count`.

    Before a sync, half of what it would have brought to disk is lost; what lay in `folder` when the process began is
    there."""
    synced = {path.stat().st_ino: path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()}
    seen = [0]

    def tear(handle: int) -> None:
        about = os.fstat(handle)
        if stat.S_ISREG(about.st_mode):
            known = min(synced.get(about.st_ino, 0), about.st_size)
            honest["ftruncate"](handle, known + (about.st_size - known) // 2)

    def counted(name: str) -> Callable[..., Any]:
        def write_of(*args: Any, **options: Any) -> Any:
            seen[0] += 1
            Path(count).write_text(str(seen[0]))
            if before and seen[0] == write:
                if name == "fsync":
                    tear(args[0])
                os.kill(os.getpid(), signal.SIGKILL)
            done = honest[name](*args, **options)
            if name == "fsync":
                about = os.fstat(args[0])
                synced[about.st_ino] = about.st_size
            if seen[0] == write:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return write_of

    honest = {name: getattr(os, name) for name in _WRITES}
    for name in _WRITES:
        setattr(os, name, counted(name))
