"""Files that are there whole or not at all, and files of strangers, which are no larger than they may be."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from silograph.core.errors import InputError

#: The most bytes that are read of a file somebody else may have written. JSON in memory takes up to 25 times as much.
LONGEST_CARD = 1 << 20  # an enrolment, or what was approved
LONGEST_PLAN = 4 << 20
LONGEST_FACTS = 64 << 20  # or a deployment
LONGEST_RESULT = 4 << 30  # a ledger, or another file of a run


def read_at_most(path: Path, most: int) -> bytes:
    """An ordinary file of at most so many bytes: known before any of it is read, and no pipe is waited for."""
    where = str(path).encode(errors="replace").decode()
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        raise InputError(where, "an ordinary file", "it is a folder, a device or a pipe", "Save it as a file first.")
    if about.st_size > most:
        todo = "It is damaged, or made to fill the memory: ask for it again."
        raise InputError(where, f"at most {most} bytes", f"it has {about.st_size}", todo)
    return path.read_bytes()


def content_of(path: Path) -> bytes:
    """What tells whether a table is still the same: a file's bytes, or names and digests of all files in a folder."""
    if not path.is_dir():
        return path.read_bytes()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    told = [f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.relative_to(path).as_posix()}" for file in files]
    return "\n".join(told).encode(errors="surrogateescape")


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """All of it or nothing, on disk when this returns."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A new name in a folder is on disk only once the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
