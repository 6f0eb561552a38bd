"""A view of a run under way, from the files it writes. Nothing is written or locked, and the run does not notice.

A file may be half-written, replaced or renamed while it is read: what cannot be read now is shown at the next look.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from silograph.core.errors import DamageError, InputError
from silograph.core.toml import parse_toml
from silograph.core.types import Json
from silograph.privacy.accounting import Cost, cost
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.observers import OWN_SERVER
from silograph.report import printed
from silograph.report.words import bound, counted, is_number, listed, number

State = Literal["under way", "finished", "failed"]

_LATELY = 20  # rounds
_SHOWN = 20  # silos
_DRAWN = 200  # rounds in a page's picture
_TRIES = 5
_LOOK = 1.0  # seconds between looks
_AGAIN = 2  # seconds until a page loads itself anew
_SHARE = 5.0  # times what a look took, if it took long: accountants need their time
_DELTA = 1e-6  # where a plan leaves it out


@dataclass(frozen=True)
class Spent:
    """What a silo's rows cost so far, in all and against everybody but its own server; infinity is no protection."""

    silo: str
    releases: int
    epsilon: float
    against_others: float


@dataclass(frozen=True)
class Seen:
    """A run at one moment. `rounds` are the lines of rounds.jsonl, which a run in one process does not have.

    `quiet` is for how many seconds nothing was written: what looks like a run under way may have been killed.
    """

    folder: Path
    state: State
    quiet: float
    rounds: tuple[Json, ...]
    trace: Json | None
    spent: tuple[Spent, ...]
    budget: Json | None
    rehearsal: bool

    def to_json(self) -> Json:
        told = asdict(self) | {"folder": str(self.folder), "rounds": len(self.rounds), "absent": self._absent()}
        told["last"] = self.rounds[-1] if self.rounds else None
        for row in told["spent"]:
            row |= {name: "infinity" for name in ("epsilon", "against_others") if math.isinf(row[name])}
        return told

    def text(self) -> str:
        table = self._table()
        more = [f"and {len(table) - 1 - _SHOWN} more"] if len(table) - 1 > _SHOWN else []
        shown = printed.table(table[0], table[1 : _SHOWN + 1]) if table else ()
        return "\n".join([*self._sentences(), *shown, *more])

    def _sentences(self) -> Iterator[str]:
        rounds = f", {counted(len(self.rounds), 'round')}" if self.rounds else ""
        quiet = f"; nothing was written for {self.quiet:.0f} s" if self.state == "under way" else ""
        yield f"{self.folder}: {self.state}{rounds}{quiet}"
        if self.rounds:
            last, typical = self.rounds[-1], statistics.median(line["seconds"] for line in self.rounds[-_LATELY:])
            yield f"{last['answered']} of {last['asked']} answered in the last round; answers took {typical:.2g} s"
            if refused := last.get("refused"):
                yield (
                    f"refused: {listed([f'{organisation} ({kind})' for organisation, kind in refused.items()], most=6)}"
                )
        if absent := self._absent():
            times = [f"{organisation} ({counted(count, 'round')})" for organisation, count in absent.items()]
            yield f"absent lately: {listed(times, most=6)}"
        if self.trace:
            yield ", ".join(f"{name} {number(value)}" for name, value in self.trace.items())
        if self.rehearsal:
            yield "rehearsal: the noise comes from the seed of the plan and protects nothing"

    def _table(self) -> list[tuple[str, ...]]:
        """Silos and what they have spent; those that have spent most come first."""
        if not self.spent:
            return []
        of = "" if self.budget is None else f" of {bound(self.budget['epsilon'])}"
        if all(row.epsilon == row.against_others for row in self.spent):
            rows = [(row.silo, number(row.releases), _cost_text(row.epsilon)) for row in self.spent]
            return [("silo", "releases", f"epsilon spent{of}"), *rows]
        head = ("silo", "releases", "against its own server", f"epsilon spent{of} against others")
        return [
            head,
            *((r.silo, number(r.releases), _cost_text(r.epsilon), _cost_text(r.against_others)) for r in self.spent),
        ]

    def _absent(self) -> dict[str, int]:
        return dict(Counter(organisation for line in self.rounds[-_LATELY:] for organisation in line["absent"]))


def _cost_text(epsilon: float) -> str:
    return "no protection" if math.isinf(epsilon) else bound(epsilon)


# ---- looking ---------------------------------------------------------------------------------------------------------


def state_of(out: Path) -> Seen:
    """Look at the run that writes to `out`."""
    unfinished = out.parent / f".{out.name}.unfinished"
    for _ in range(_TRIES):
        if unfinished.is_dir():
            seen = _look(out, unfinished, _state(unfinished))
            if unfinished.is_dir():  # else it was renamed into place, as the last step of a run, while we looked
                return seen
        if (out / "result.json").exists():
            return _look(out, out, "finished")
    raise InputError(str(out), "a run under way, or finished", "there is none")


def follow(out: Path) -> None:
    """Show the run on the terminal until it is over or somebody presses Ctrl-C."""
    from rich.live import Live
    from rich.text import Text

    try:
        seen = state_of(out)
        with Live(Text(seen.text()), auto_refresh=False) as live:
            while seen.state == "under way":
                begun = time.monotonic()
                seen = state_of(out)
                live.update(Text(seen.text()), refresh=True)
                time.sleep(max(_LOOK, _SHARE * (time.monotonic() - begun)) if seen.state == "under way" else 0.0)
    except KeyboardInterrupt:
        pass  # The run goes on.


def live_page(out: Path) -> str:
    """The same view as a page that loads itself anew until the run is over; it needs no script."""
    from silograph.report.page import render  # late: a terminal needs no pages

    try:
        return render("watch.html.j2", **_shown(state_of(out)))
    except InputError:
        nothing: Json = {"line": "", "rows": [], "left": None, "more": ""}
        told = [f"{out}: nothing is written yet"]
        return render("watch.html.j2", name=out.name, again=_AGAIN, sentences=told, **nothing)


def _shown(seen: Seen) -> Json:
    head, *rows = seen._table() or [()]
    budget = None if seen.budget is None else seen.budget["epsilon"]
    seconds = [line["seconds"] for line in seen.rounds[-_DRAWN:]]
    longest = max(seconds, default=0.0)
    return {
        "name": seen.folder.name,
        "again": _AGAIN if seen.state == "under way" else None,
        "sentences": list(seen._sentences()),
        "line": " ".join(
            f"{100.0 * k / (len(seconds) - 1):.1f},{19.0 - 18.0 * value / longest:.1f}"
            for k, value in enumerate(seconds)
            if longest > 0.0 and len(seconds) > 1
        ),
        "shown": len(seconds),
        "longest": f"{longest:.2g} s",
        "head": head,
        "rows": rows[:_SHOWN],
        "left": None if budget is None else [min(1.0, row.against_others / budget) for row in seen.spent[:_SHOWN]],
        "more": f"and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "",
    }


def _look(out: Path, folder: Path, state: State) -> Seen:
    plan = _plan(folder)
    budget = budget_of(plan)
    return Seen(
        out,
        state,
        max(0.0, time.time() - _written(folder)),
        tuple(_rounds(folder)),
        _trace(folder),
        tuple(spent_in(folder, _DELTA if budget is None else budget["delta"])),
        budget,
        budget is not None and "seed" in plan,
    )


def _state(unfinished: Path) -> State:
    """A run that failed after protected releases leaves its ledger, and nothing to go on with."""
    begun, whole = ((unfinished / name).exists() for name in ("identity.json", "result.json"))
    return "under way" if begun or whole or not (unfinished / "ledger.jsonl").exists() else "failed"


def _written(folder: Path) -> float:
    """The time when something in the folder was last written."""
    times = []
    for name in ("identity.json", "ledger.jsonl", "rounds.jsonl", "state.npz", "result.json"):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times, default=time.time())


def _text(path: Path) -> str:
    """What the file says now; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plan(folder: Path) -> Json:
    """The plan, which is in the run's identity while it is under way; only its owner may read that."""
    identity = _json(_text(folder / "identity.json"))
    text = identity.get("plan") if isinstance(identity, dict) else _text(folder / "plan.toml")
    try:
        return parse_toml(str(text), "plan.toml")
    except InputError:
        return {}


def budget_of(plan: Json) -> Json | None:
    privacy = plan.get("privacy")
    if privacy is None:
        return None
    delta = 0.0 if privacy.get("mechanism") == "laplace" else privacy.get("delta", _DELTA)
    return {"epsilon": privacy["epsilon"], "delta": delta}


def _rounds(folder: Path) -> list[Json]:
    """The lines that are whole, the last one of each round: a server that was started again repeats one."""
    kinds = {"round": int, "asked": int, "answered": int, "seconds": float, "absent": list}
    found = [_json(line) for line in _text(folder / "rounds.jsonl").splitlines()]
    whole = [
        line for line in found if isinstance(line, dict) and all(isinstance(line.get(k), t) for k, t in kinds.items())
    ]
    return list({line["round"]: line for line in whole}.values())


def _trace(folder: Path) -> Json | None:
    """The last line of the method's trace: from the result, or from the state from which the run would resume."""
    result = _json(_text(folder / "result.json"))
    trace = result.get("trace") if isinstance(result, dict) else None
    if trace is None:
        try:
            with np.load(folder / "state.npz", allow_pickle=False) as content:
                trace = json.loads(str(content["meta"]))["trace"]
        except Exception:  # Whatever is wrong with it at this moment, the run itself will say.
            return None
    last = trace[-1] if trace else {}
    return {
        name: value for name, value in last.items() if name != "round" and is_number(value) and math.isfinite(value)
    }


def spent_in(folder: Path, delta: float) -> list[Spent]:
    """Compute from the ledger what each silo has spent; silos with the same rows only once."""
    try:
        ledger = Ledger(folder / "ledger.jsonl", mend=False)
    except (DamageError, OSError):
        return []
    costs: dict[tuple[Any, ...], Cost] = {}

    def epsilon_of(rows: Sequence[Row]) -> float:
        alike = tuple((r.mechanism, r.l2, r.noise, r.dim, r.sampling, r.round, r.batch, r.part) for r in rows)
        if alike not in costs:
            costs[alike] = cost(rows, delta)
        return costs[alike].epsilon

    spent = []
    for silo in dict.fromkeys(row.silo for row in ledger.rows):
        rows = ledger.of(silo)
        others = [row for row in rows if row.observer != OWN_SERVER]
        spent.append(Spent(silo, len(rows), epsilon_of(rows), epsilon_of(others)))
    return sorted(spent, key=lambda row: (-row.epsilon, -row.against_others, row.silo))
