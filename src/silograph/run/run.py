"""Run a plan to its folder, or go on with one that was interrupted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from silograph.core.errors import SilographError
from silograph.core.types import BoolArray, Json
from silograph.data.candidates import read_candidates
from silograph.data.silos import Silos, read_silos, standardise
from silograph.methods.base import begin
from silograph.privacy.gate import Door
from silograph.run.build import Setup, build
from silograph.run.loop import ENGINES, REHEARSAL, SECRET, rounds
from silograph.run.plan import Plan, dumps, moved
from silograph.run.results import write_results
from silograph.run.store import RunFolder, write_atomically

_SAVE_EVERY = 1.0  # seconds of work a kill may cost

#: Called after every round with the round and what the method's trace says of it.
Progress = Callable[[int, Json | None], None]


def read_data(plan: Plan, base: Path) -> tuple[Silos, BoolArray | None]:
    """The plan's tables and candidate edges."""
    silos = read_silos([base / name for name in plan.data.files], plan.data.nodes_in, plan.privacy is not None)
    candidates = plan.data.candidates
    allowed = None if candidates is None else read_candidates(base / candidates, silos.nodes)
    return (standardise(silos) if plan.data.standardise else silos), allowed


@dataclass(frozen=True)
class Finished:
    folder: Path
    result: Json


def execute(
    plan: Plan,
    base: Path,
    goal: Path,
    progress: Progress,
    report: Callable[[Path], str],
) -> Finished:
    """Read the plan's tables (relative to `base`), run it, and leave a finished folder at `goal`.

    `report` makes the page of a folder; it is passed in because it belongs to a layer above.
    """
    silos, candidates = read_data(plan, base)
    setup = build(plan, silos, candidates)
    goal = Path(os.path.abspath(goal))
    plan_text = dumps(moved(plan, base, goal))
    inputs = [*plan.data.files, *([plan.data.candidates] if plan.data.candidates else [])]
    folder = RunFolder(goal, plan_text, [base / name for name in inputs], plan.seed)
    try:
        if not folder.finished:
            door = Door(
                folder.root, folder.ledger, setup.mechanism, setup.budget, SECRET if plan.seed is None else REHEARSAL
            )
            _run(plan, plan_text, silos, setup, door, folder, progress)
            write_atomically(folder.path / "report.html", report(folder.path).encode())
    except SilographError:
        folder.discard()
        raise
    result: Json = json.loads((folder.path / "result.json").read_text(encoding="utf-8"))
    return Finished(folder.finish(), result)


def _run(
    plan: Plan, plan_text: str, silos: Silos, setup: Setup, door: Door, folder: RunFolder, progress: Progress
) -> None:
    signals = dict(zip(silos.names, silos.signals, strict=True))
    data = [setup.task.prepare(signals[name]) for name in setup.topo.silos]
    engine = ENGINES[plan.engine](data, setup.topo, door)
    state, trace = folder.load() or (begin(setup.method, setup.topo), [])
    saved = time.monotonic()
    for after in rounds(setup.method, setup.topo, engine, door, state):
        state = after
        line = setup.method.trace(state.servers)
        if line is not None:
            trace.append({"round": state.round, **line})
        progress(state.round, line)
        if not setup.method.done(state.servers) and time.monotonic() - saved > _SAVE_EVERY:
            folder.save(state, trace)
            saved = time.monotonic()
    outcome = setup.method.outcome(state.servers, engine.deliver(setup.method, state), setup.topo)
    write_results(folder.path, plan, plan_text, silos.nodes, setup, outcome, trace, door)
