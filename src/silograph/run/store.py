"""A run's folder on disk: nothing half-written, and a kill at any moment only delays.

While a run is under way everything lies in a hidden folder beside its goal: the ledger, the last state, and the secret
root of the noise. When it is finished the secrets are removed and the folder is renamed into place, in one step.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from silograph.core import wording
from silograph.core.errors import DamageError, InputError
from silograph.core.files import content_of, write_atomically
from silograph.core.keys import secret_root
from silograph.core.schema import read, write
from silograph.core.types import Json
from silograph.engines.notes import NOTES
from silograph.engines.saved import load, save
from silograph.methods.base import Half, Here, State
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger, Row

_STATE, _IDENTITY, _ROOT, _LOCK = "state.npz", "identity.json", "root", "lock"
_HALVES = ("half-0.npz", "half-1.npz")  # of even and odd rounds: who is behind needs none before the last but one
_SECRET = (_STATE, _IDENTITY, _ROOT, _LOCK, *_HALVES, *NOTES)
_PARTS = ("carry", "servers", "down")
_HALF = ("carry", "servers", "sent")


class RunFolder:
    """The folder of one run on its way to `goal`."""

    def __init__(
        self, goal: Path, plan_text: str, inputs: Sequence[Path], seed: int | None, known: bool = False
    ) -> None:
        """`known`: whose plan and inputs these are was looked at before."""
        self._known = known
        self.goal = goal
        self.path = goal.parent / f".{goal.name}.unfinished"
        refuse_occupied(goal)
        goal.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(exist_ok=True)
        self._lock = self._take_lock()
        try:
            self._open(plan_text, inputs, seed)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, plan_text: str, inputs: Sequence[Path], seed: int | None) -> None:
        # All results are there and the secrets are gone: only the last step of `finish` was cut off.
        self.finished = (self.path / "result.json").exists() and not (self.path / _IDENTITY).exists()
        if self.finished and (self.path / "plan.toml").read_text(encoding="utf-8") != plan_text:
            raise self._changed("plan")
        if not self.finished and not self._known:
            self._check_identity(plan_text, inputs)
        self.root = seed if seed is not None else self._secret_root(plan_text, inputs)
        self.ledger = Ledger(self._evidence)

    @property
    def _evidence(self) -> Path:
        return self.path / "ledger.jsonl"

    def _take_lock(self) -> io.TextIOWrapper:
        lock = open(self.path / _LOCK, "w", encoding="utf-8")  # noqa: SIM115 (held until the run ends)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(str(self.goal), "one run at a time", "another process is writing it") from None
        return lock

    def _check_identity(self, plan_text: str, inputs: Sequence[Path]) -> None:
        """An unfinished run goes on only with the plan and the data it began with."""
        identity = _identity(plan_text, inputs)
        path = self.path / _IDENTITY
        if not path.exists():
            if (self.path / _STATE).exists():
                raise self._damaged(_IDENTITY)
            if self._evidence.exists():
                self._remove_secrets()  # a kill may have come between
                raise InputError(
                    str(self.goal),
                    "a goal that no failed run was on its way to",
                    f"{self._evidence} tells what one has released and spent before it failed",
                    f"{_another()} Or put the ledger away: what it tells stays spent.",
                )
            # Killed before the identity was written, nothing had been released: begin anew.
            write_atomically(path, json.dumps(identity).encode(), 0o600)
            return
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError):
            raise self._damaged(_IDENTITY) from None
        if known != identity:
            raise self._changed("plan" if known.get("plan") != plan_text else "data")

    def _changed(self, what: str) -> InputError:
        return InputError(
            str(self.goal),
            "the plan and data of the unfinished run that lies there",
            f"the {what} changed",
            f"Choose another run folder, or remove {self.path} (what it released stays released).",
        )

    def _secret_root(self, plan_text: str, inputs: Sequence[Path]) -> int:
        """Secret entropy, bound to the plan and the data: other data can never meet the same noise."""
        path = self.path / _ROOT
        if not path.exists():
            write_atomically(path, str(secret_root()).encode(), 0o600)
        try:
            secret = int(path.read_text(encoding="ascii"))
        except ValueError:
            raise self._damaged(_ROOT) from None
        bound = hashlib.sha256(json.dumps([secret, _identity(plan_text, inputs)]).encode())
        return int.from_bytes(bound.digest(), "big")

    def _damaged(self, name: str) -> DamageError:
        return DamageError(
            str(self.path / name),
            "a file silograph wrote",
            "it is damaged",
            "Restore it, or remove the folder and begin a new run (what it released stays released).",
        )

    # ---- state ----

    def save(self, state: State, trace: Sequence[Json]) -> None:
        """A point to resume from. Replaying from an older one is harmless: the ledger knows what was sent."""
        facts = {"round": state.round, "trace": list(trace), "ledger": self.ledger.tip}
        save(self.path / _STATE, {part: getattr(state, part) for part in _PARTS}, facts)

    def load(self) -> tuple[State, list[Json]] | None:
        path = self.path / _STATE
        if not path.exists():
            return None
        try:
            parts, facts = load(path)
            self.ledger.check_tip(facts["ledger"])
            return State(facts["round"], *(parts[part] for part in _PARTS)), facts["trace"]
        except DamageError:
            raise
        except Exception:
            # Whatever numpy or zipfile say about a damaged file, the user needs to know one thing.
            raise self._damaged(_STATE) from None

    def hold(self, round: int, half: Half, rows: Sequence[Row]) -> None:
        """A round before its exchange, with the rows that the ledger is about to get."""
        facts = {"round": round, "rows": [write(row) for row in rows], "ledger": self.ledger.tip}
        save(self.path / _HALVES[round % 2], {part: getattr(half, part) for part in _HALF}, facts)

    def held(self, round: int) -> tuple[Half, list[Row]] | None:
        path = self.path / _HALVES[round % 2]
        if not path.exists():
            return None
        try:
            parts, facts = load(path)
            if facts["round"] != round:
                return None
            self.ledger.check_tip(facts["ledger"])
            rows = [read(Row, row, str(path), DamageError) for row in facts["rows"]]
            return Half(*(parts[part] for part in _HALF)), rows
        except DamageError:
            raise
        except Exception:
            raise self._damaged(path.name) from None

    # ---- the end ----

    def finish(self) -> Path:
        """Remove the secrets, then move the folder into place."""
        self._remove_secrets()
        os.replace(self.path, self.goal)
        self._lock.close()
        return self.goal

    def _remove_secrets(self) -> None:
        for name in _SECRET:
            (self.path / name).unlink(missing_ok=True)
            (self.path / f"{name}.tmp").unlink(missing_ok=True)  # of a process that was killed while it wrote

    def release(self) -> None:
        """Let others at the folder, and leave it as it is."""
        self._lock.close()

    def discard(self) -> None:
        """After a failure that would come again: keep what is evidence of protected releases, which stay spent.

        Nobody can go on with them, so the secrets go: with the root whoever finds it could remove the noise.
        """
        if all(row.mechanism == "reveal" for row in self.ledger.rows):
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self._remove_secrets()
        self._lock.close()


class Kept(Here):
    """What goes across is in the folder first, with its ledger rows: after a kill it is the same, whoever would answer
    differently now."""

    def __init__(self, folder: RunFolder, door: Door) -> None:
        self.folder, self.door = folder, door

    def held(self, round: int) -> Half | None:
        found = self.folder.held(round)
        if found is None:
            return None
        half, rows = found
        for row in rows:
            self.door.admit(row)
        return half

    def hold(self, round: int, half: Half) -> None:
        self.folder.hold(round, half, self.door.waiting)


def _identity(plan_text: str, inputs: Sequence[Path]) -> Json:
    return {"plan": plan_text, "inputs": [hashlib.sha256(content_of(path)).hexdigest() for path in inputs]}


def _another() -> str:
    return wording.either("Choose another run folder with -o.", "Choose another run folder.")


def refuse_occupied(goal: Path) -> None:
    if Path.cwd().is_relative_to(goal):
        # The finished folder is renamed into place, which would pull the ground from under the caller's feet.
        todo = wording.either("Try -o out.", "Name another.")
        raise InputError(str(goal), "a folder inside the current one, or elsewhere", "it is the current one", todo)
    if goal.is_symlink():
        raise InputError(
            str(goal),
            "a folder",
            "it is a link",
            wording.either("Name the folder itself with -o.", "Name the folder itself."),
        )
    if goal.is_dir() and any(goal.iterdir()):
        raise InputError(str(goal), "an empty or new run folder", "it is not empty", _another())
    if goal.exists() and not goal.is_dir():
        raise InputError(str(goal), "a folder", "a file is there", _another())
