"""What a plan will cost, and what a run did cost."""

from __future__ import annotations

from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.results import FILE, Made, read_result
from silograph.core.types import Json
from silograph.privacy.accounting import cost
from silograph.privacy.ledger import Ledger
from silograph.privacy.observers import hidden_from
from silograph.run.jobs import open_job
from silograph.run.plan import load
from silograph.run.results import costs, guarantee


def cost_of_plan(path: Path) -> Json:
    """The forecast; of the tables it uses only their shape."""
    plan = load(path)
    return open_job(plan.without_device(), path.parent).forecast()


def checked_ledger(folder: Path, made: Made) -> Ledger:
    """The run's ledger, whole: as many rows as its result says."""
    path = folder / "ledger.jsonl"
    if not path.exists():
        raise DamageError(str(path), "the run's ledger", "it is not there")
    ledger = Ledger(path, mend=False)
    ledger.check_tip(made.ledger)
    return ledger


def cost_of_run(folder: Path) -> Json:
    """Read again from the run's own ledger; a result that says otherwise is refused."""
    result, made = read_result(folder)
    ledger = checked_ledger(folder, made)
    guarantees, releases = [], 0
    for stated in result.privacy.guarantees:
        rows = [row for row in ledger.of(stated.site) if row.observer not in hidden_from(stated.observer)]
        spent = cost(rows, stated.delta or 0.0)
        if stated.epsilon != spent.epsilon:
            raise DamageError(
                str(folder / FILE),
                f"site {stated.site} at epsilon {spent.epsilon:g}, as its ledger says",
                f"it states {stated.epsilon}",
                "Restore the folder from a backup.",
            )
        releases = max(releases, sum(row.mechanism != "reveal" for row in rows))
        seeded = any(row.noise is not None and "secret" not in row.randomness for row in rows)
        guarantees.append(guarantee(stated.site, stated.observer, spent, None, seeded))
    claim = next((each.claim for each in result.privacy.guarantees), None)
    return costs(releases, guarantees, claim, result.privacy.notes)
