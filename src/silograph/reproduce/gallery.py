"""All entries for the gallery: each in its own process, kept on disk as soon as it is done.

A killed run continues with the missing entries. Finished ones are kept if they were made with the same setting: the
entry, its repetitions, the version, and the content of the data sets.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from silograph.core.files import write_atomically
from silograph.core.types import Json
from silograph.data.collections import VARIABLE
from silograph.reproduce.runner import Entry, Progress, check_seeds

WORKERS = 2
#: One thread for each process: threads would only slow down small sums.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Setting:
    """The setting of a table; `data` identifies data sets by their content."""

    name: str
    seeds: int
    short: bool
    version: str
    data: dict[str, str]

    def command(self, folder: Path | None) -> str:
        words = ["silograph", "reproduce", self.name, "--seeds", str(self.seeds), *["--short"] * self.short]
        return shlex.join(words + ["--data", str(folder)] * (folder is not None and bool(self.data)))


def setting_of(entry: Entry, seeds: int | None, full: bool, folder: Path | None) -> Setting:
    if seeds is not None:
        check_seeds(seeds)
    found = {data.name: path for data in entry.data if (path := data.find(folder)) is not None}
    digests = {name: _digest(path) for name, path in found.items()}
    short = entry.short is not None and not full
    return Setting(entry.name, seeds or (entry.seeds if full else entry.quick), short, version("silograph"), digests)


def missing_data(entry: Entry, folder: Path | None) -> str:
    """An entry's missing data, and how to get them; nothing if all are there."""
    return " ".join(
        f"{data.name} is not there: silograph looked for {' or '.join(data.places)} in the folder that --data or "
        f"{VARIABLE} names. {data.how}"
        for data in entry.data
        if data.find(folder) is None
    )


def _digest(path: Path) -> str:
    """A digest of a file's content; for a folder, of its files' names and sizes."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    files = sorted((str(file.relative_to(path)), file.stat().st_size) for file in path.rglob("*") if file.is_file())
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


def make_all(
    entries: Sequence[Entry],
    out: Path,
    seeds: int | None,
    full: bool,
    folder: Path | None,
    progress: Progress,
) -> list[Json]:
    """Make every entry, in the given order, as the gallery shows it: made, not run, or failed."""
    out.mkdir(parents=True, exist_ok=True)
    shown: dict[str, Json] = {}
    to_make: list[Setting] = []
    for entry in entries:
        about = {"name": entry.name, "title": entry.title}
        if reason := missing_data(entry, folder):
            shown[entry.name] = about | {"state": "not run", "reason": reason}
            continue
        setting = setting_of(entry, seeds, full, folder)
        shown[entry.name] = about | {"command": setting.command(folder), "setting": asdict(setting)}
        if (kept := _kept(out, setting)) is not None:
            shown[entry.name] |= kept
        else:
            to_make.append(setting)
    for setting, told in _made(to_make, folder, progress):
        if "table" in told:
            told["state"] = "made"
            content = json.dumps({"setting": asdict(setting)} | told, indent=1, allow_nan=False) + "\n"
            write_atomically(out / f"{setting.name}.json", content.encode())
        else:
            told = {"state": "not run" if told["input"] else "failed", "reason": told["failure"]}
        shown[setting.name] |= told
    return list(shown.values())


def _kept(out: Path, setting: Setting) -> Json | None:
    """The result of an earlier run, if it was made with exactly this setting."""
    try:
        kept: Json = json.loads((out / f"{setting.name}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    same = isinstance(kept, dict) and kept.get("setting") == asdict(setting) and kept.get("state") == "made"
    return kept if same else None


def _made(settings: Sequence[Setting], folder: Path | None, progress: Progress) -> Iterator[tuple[Setting, Json]]:
    """Make entries and give each with its process's output as it is done. The later papers' entries take longest, and
    start first."""
    shares: dict[str, float] = {}
    lock, running, stopped = threading.Lock(), set[subprocess.Popen[str]](), threading.Event()

    def tell(name: str, share: float) -> None:
        with lock:
            shares[name] = share
            now = ", ".join(name for name, part in shares.items() if part < 1.0)
            done = sum(part >= 1.0 for part in shares.values())
            progress(sum(shares.values()) / len(settings), f"{done} of {len(settings)} done: {now}")

    def run(setting: Setting) -> Json:
        tell(setting.name, 0.0)
        told = _alone(setting, folder, lambda share: tell(setting.name, min(share, 0.999)), running, stopped)
        tell(setting.name, 1.0)
        return told

    pool = ThreadPoolExecutor(WORKERS)
    try:
        waiting = {pool.submit(run, setting): setting for setting in reversed(settings)}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            process.kill()
        pool.shutdown()


def _alone(
    setting: Setting,
    folder: Path | None,
    tell: Callable[[float], None],
    running: set[subprocess.Popen[str]],
    stopped: threading.Event,
) -> Json:
    asked = {"name": setting.name, "seeds": setting.seeds, "short": setting.short, "data": folder and str(folder)}
    command = [sys.executable, "-m", "silograph.reproduce.own_process", json.dumps(asked)]
    told: Json = {}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | ONE_THREAD
    ) as process:
        running.add(process)
        if stopped.is_set():
            process.kill()
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line) if line.startswith('{"') else told
            if "share" in told:
                tell(told["share"])
    running.discard(process)
    if "table" in told or "failure" in told:
        return told
    return {"failure": f"its process ended with {process.returncode} and without a word", "input": False}
