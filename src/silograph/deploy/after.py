"""A deployment that goes on where another one paused, with other silos: one joins, one leaves.

The new deployment names the old one and the round, and everybody approves its digest as always. Whoever was in the old
one takes over what it has in the old folder: a silo its ledger, a server its ledger and models. From that moment the
old folder says where it went on, and answers nothing any more. So budgets are one: rows of before and after are in one
ledger, rounds go on counting, nothing is refunded, and there is one continuation of a folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silograph.core.errors import DamageError, InputError
from silograph.core.files import LONGEST_CARD, write_atomically
from silograph.core.schema import Count, read, read_json, write
from silograph.methods.base import GoesOn, State, relayed
from silograph.privacy.ledger import Ledger, Row
from silograph.run.jobs import Job
from silograph.run.store import RunFolder

MOVED = "moved.json"
_HERE = "before.json"


@dataclass(frozen=True)
class After:
    """The digest of the deployment that paused, after how many rounds, and the organisations that were in it."""

    deployment: str
    round: Count
    organisations: tuple[str, ...]


@dataclass(frozen=True)
class _Moved:
    """A note in both folders: the deployment that continues, and a mark that only these two folders have."""

    deployment: str
    mark: str


def follow(before: Job, digest: str, organisations: Iterable[str], job: Job, round: int) -> After:
    """That `job` goes on after so many rounds of another one: the same plan, whose costs then add up to its budget."""
    where = "deployment, after"
    if not isinstance(job.method, GoesOn):
        todo = "Make a new deployment without --after: it starts from the beginning and costs its own budget."
        raise InputError(where, "a method that can go on with other silos", f"found {job.plan.method.name}", todo)
    if before.plan != job.plan or before.mechanism != job.mechanism or before.budget != job.budget:
        todo = "Only the organisations may differ. For another plan make a new deployment without --after."
        raise InputError(where, "the plan of the deployment before", "it is another one", todo)
    if before.topo.graph.servers != job.topo.graph.servers:
        raise InputError(where, f"the regions {', '.join(before.topo.graph.servers)}", "found others")
    if not 0 < round < before.most_rounds:
        raise InputError(f"{where}, round", f"from 1 to {before.most_rounds - 1}", f"found {round}")
    return After(digest, round, tuple(sorted(organisations)))


def refuse_moved(folder: Path) -> None:
    """Refuse a folder whose run was continued in another folder."""
    if (folder / MOVED).exists():
        told = read(_Moved, read_json(folder / MOVED, LONGEST_CARD, str(folder / MOVED)), str(folder / MOVED))
        found = f"it goes on in deployment {told.deployment[:16]}"
        raise InputError(str(folder), "a deployment that is not over", found, "Type the command for the new folder.")


def take_over_ledger(folder: Path, digest: str, after: After, old: Path) -> str:
    """A silo's ledger, from its folder of the deployment before: the tip of what is now here."""
    with open(old / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            todo = "End it with Ctrl-C."
            raise InputError(str(old), "an organisation that does not answer now", "it runs", todo) from None
        ledger = Ledger(old / "ledger.jsonl")
        _check_rows(ledger.rows, old, after)
        _move(old, folder, digest)
        fresh = Ledger(folder / "ledger.jsonl")
        fresh.append(ledger.rows[len(fresh.rows) :])
        return fresh.tip


def take_over_run(run: RunFolder, job: Job, digest: str, after: After, goal: Path) -> None:
    """A server's ledger and models, from its run of the deployment before, which paused on its way to `goal`."""
    old = Path(os.path.abspath(goal)).parent / f".{goal.name}.unfinished"
    if not old.is_dir():
        raise InputError(str(goal), "a run that paused", "there is none", "`silograph serve ... --pause ROUND` pauses.")
    identity = read_json(old / "identity.json", LONGEST_CARD, str(old / "identity.json"))
    if after.deployment not in identity["inputs"]:
        raise InputError(str(old), "the run of the deployment before", "it is of another one")
    before = RunFolder(goal, identity["plan"], [], job.plan.seed, known=True)
    try:
        paused = before.load()
        if paused is None or paused[0].round != after.round:
            found = f"it has {0 if paused is None else paused[0].round}"
            todo = f"If it has fewer, let it go on with --pause {after.round}; if more, it is not this one that paused."
            raise InputError(str(old), f"a run of {after.round} rounds", found, todo)
        _check_rows(before.ledger.rows, old, after)
        _move(old, run.path, digest)
        run.ledger.append(before.ledger.rows[len(run.ledger.rows) :])
        assert isinstance(job.method, GoesOn), "it was looked at when the deployment was made"
        start = job.method.taken_over(paused[0].servers, job.topo)
        run.save(State(after.round, {}, start.servers, relayed(start.down)), paused[1])
    finally:
        before.release()


def _check_rows(rows: Iterable[Row], where: Path, after: After) -> None:
    if any(row.round >= after.round for row in rows):
        todo = "It went on after the pause. Make the new deployment after the last round of all."
        raise InputError(str(where), f"rows of the first {after.round} rounds", "found later ones", todo)


def _move(old: Path, new: Path, digest: str) -> None:
    """Note in both folders that the new one continues the old one, and that no other folder may."""
    if not (new / _HERE).exists():
        write_atomically(new / _HERE, json.dumps(write(_Moved(digest, secrets.token_hex(16)))).encode(), 0o600)
    own: Any = read_json(new / _HERE, LONGEST_CARD, str(new / _HERE))
    if not (old / MOVED).exists():
        write_atomically(old / MOVED, json.dumps(own).encode(), 0o600)
    if read_json(old / MOVED, LONGEST_CARD, str(old / MOVED)) != own:
        todo = "Find that folder: only its ledger says what was spent since."
        raise DamageError(str(old), "a folder that has not gone on elsewhere", "it has, in another folder", todo)
