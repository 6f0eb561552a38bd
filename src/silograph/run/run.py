"""Run a plan to its folder, or go on with one that was interrupted."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from silograph.core.errors import DamageError, SilographError
from silograph.core.files import write_atomically
from silograph.core.results import Result
from silograph.core.types import Json
from silograph.engines.base import Engine
from silograph.methods.base import Across, State, begin
from silograph.privacy.door import Door
from silograph.run.jobs import Job, Slow, door_of, open_job
from silograph.run.loop import ENGINES, go_on
from silograph.run.plan import Plan, dumps
from silograph.run.results import write_result
from silograph.run.sections import moved, named_files
from silograph.run.store import RunFolder

_SAVE_EVERY, _SAVE_SHARE = 1.0, 10.0  # seconds of work a kill may cost, or so many times what saving takes

IN_ONE_PROCESS = "All sites were simulated here; costs are those of a real deployment."

#: Called after every round with the round and what the method's trace says of it; before the first, with 0 and how long
#: all will take, by jobs that know.
Progress = Callable[[int, Json | None], None]


@dataclass(frozen=True)
class Finished:
    """A finished run: its folder, and what its result.json says.

    >>> from pathlib import Path
    >>> run = Finished(Path("out"), {"method": "consensus_graph", "rounds": 1})
    >>> run.folder.name, run.result["rounds"]
    ('out', 1)
    """

    folder: Path
    result: Json


class PausedError(SilographError):
    """A run stops where it was asked to, with all that it needs to go on."""

    code = "paused"
    exit_code = 0

    def __init__(self, round: int) -> None:
        self.round = round
        super().__init__("run", "its end", f"it paused after round {round}, as it was asked to")


def execute(
    plan: Plan,
    base: Path,
    goal: Path,
    progress: Progress,
    report: Callable[[Path], str],
) -> Finished:
    """Read the plan's tables (relative to `base`), run it, and leave a finished folder at `goal`.

    `report` makes the page of a folder; it is passed in because it belongs to a layer above.

    `progress` is called after every round with its number and what the method's trace says of it.

    >>> from pathlib import Path
    >>> from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan
    >>> from silograph.report.build import build
    >>> x = np.random.default_rng(0).normal(size=(100, 3)) @ [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    >>> np.savetxt("north.csv", x, delimiter=",", header="a,b,c", comments="")
    >>> plan = GraphPlan(Data(files=("north.csv",)), ConsensusGraph(edges=1))
    >>> run = execute(plan, Path(), Path("out"), lambda round, line: None, build)
    >>> run.folder.name, [(site["name"], site["edges"]) for site in run.result["sites"]]
    ('out', [('north', 1)])
    """
    job = open_job(plan, base)
    goal = Path(os.path.abspath(goal))
    plan_text = dumps(moved(plan, base, goal))
    folder = RunFolder(goal, plan_text, [base / name for name in named_files(plan, private=True)], plan.seed)
    try:
        if not folder.finished:
            door = door_of(job, folder.root, folder.ledger, plan.seed)
            if isinstance(job, Slow):
                progress(0, {"takes": job.takes})
            place = ENGINES[plan.engine](job.data(), job.topo, door)
            _, told = finish(job, place, door, folder, progress, IN_ONE_PROCESS)
            write_result(folder.path, plan_text, plan.seed, door, told)
            write_atomically(folder.path / "report.html", report(folder.path).encode())
    except DamageError:
        folder.release()  # evidence stays as it is
        raise
    except SilographError:
        folder.discard()
        raise
    except OSError as error:
        folder.release()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(folder) from error
        raise
    result: Json = json.loads((folder.path / "result.json").read_text(encoding="utf-8"))
    return Finished(folder.finish(), result)


def _disk_full(folder: RunFolder) -> SilographError:
    spent = any(row.mechanism != "reveal" for row in folder.ledger.rows)
    goes_on = "it resumes, and spends nothing more for what was released" if spent else "it resumes"
    todo = f"No result was written. Free some space, then type the same command again: {goes_on}."
    return SilographError(str(folder.path), "space on the disk", "it is full", todo)


def finished_before(plan: Plan, base: Path, goal: Path) -> Finished | None:
    """The run of this very plan that lies at `goal` already, finished, if there is one."""
    goal = Path(os.path.abspath(goal))
    ran, result = goal / "plan.toml", goal / "result.json"
    if not (ran.is_file() and result.is_file()) or ran.read_text(encoding="utf-8") != dumps(moved(plan, base, goal)):
        return None
    return Finished(goal, json.loads(result.read_text(encoding="utf-8")))


def finish(
    job: Job,
    place: Engine,
    door: Door,
    folder: RunFolder,
    progress: Progress,
    note: str,
    across: Across | None = None,
    pause: int | None = None,
) -> tuple[State, Result]:
    """From where the folder's run is to its end; returns the last state, and what the job says of it.

    `note` says where the parts of it ran. With `across`, other organisations remember what they sent, so no round may
    be forgotten here. After `pause` rounds it is a PausedError.
    """
    state, trace = folder.load() or (begin(job.method, job.topo), [])
    if pause is not None and state.round >= pause and not job.method.done(state.servers):
        raise PausedError(state.round)
    saved, rest = time.monotonic(), _SAVE_EVERY

    def watch(state: State) -> None:
        nonlocal saved, rest
        line = job.method.trace(state.servers)
        if line is not None:
            trace.append({"round": state.round, **line})
        progress(state.round, line)
        begun = time.monotonic()
        if across is not None or (not job.method.done(state.servers) and begun - saved > rest):
            folder.save(state, trace)
            saved = time.monotonic()
            rest = max(_SAVE_EVERY, _SAVE_SHARE * (saved - begun))
        if state.round == pause and not job.method.done(state.servers):
            raise PausedError(state.round)

    state, outcome = go_on(job.method, job.topo, place, door, state, watch, across)
    told = job.write(folder.path, outcome, trace, door)
    told.privacy.notes.append(note)
    return state, told
