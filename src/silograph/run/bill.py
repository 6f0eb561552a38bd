"""What a plan will cost, and what a run did cost."""

from __future__ import annotations

import json
import math
from pathlib import Path

from silograph.core.errors import DamageError, InputError
from silograph.core.files import LONGEST_RESULT, read_at_most
from silograph.core.types import Json
from silograph.privacy.accounting import cost
from silograph.privacy.ledger import Ledger
from silograph.privacy.observers import hidden_from
from silograph.run.jobs import open_job
from silograph.run.plan import load
from silograph.run.results import worst_by_site


def bill_of_plan(path: Path) -> Json:
    """The forecast; of the tables it uses only their shape."""
    plan = load(path)
    return open_job(plan.without_device(), path.parent).forecast()


def read_result(folder: Path) -> Json:
    try:
        result: Json = json.loads(read_at_most(folder / "result.json", LONGEST_RESULT))
        list(result["privacy"]["notes"])
        for guarantee in result["privacy"]["guarantees"]:
            guarantee["site"], guarantee["observer"], guarantee["delta"], guarantee["claim"]
    except InputError:
        raise
    except FileNotFoundError:
        raise DamageError(str(folder), "the folder of a finished run", "its result.json is missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DamageError(str(folder), "the folder of a finished run", "its result.json cannot be read") from None
    return result


def checked_ledger(folder: Path, result: Json) -> Ledger:
    """The run's ledger, whole: as many rows as its result says."""
    path = folder / "ledger.jsonl"
    if not path.exists():
        raise DamageError(str(path), "the run's ledger", "it is not there")
    ledger = Ledger(path, mend=False)
    ledger.check_tip(str(result.get("ledger")))
    return ledger


def bill_of_run(folder: Path) -> Json:
    """Read again from the run's own ledger; a result that says otherwise is refused."""
    result = read_result(folder)
    ledger = checked_ledger(folder, result)
    guarantees, releases = [], 0
    for stated in result["privacy"]["guarantees"]:
        name, observer = stated["site"], stated["observer"]
        rows = [row for row in ledger.of(name) if row.observer not in hidden_from(observer)]
        spent = cost(rows, stated["delta"] or 0.0)
        infinite = math.isinf(spent.epsilon)
        if stated["epsilon"] != ("infinity" if infinite else spent.epsilon):
            raise DamageError(
                str(folder / "result.json"),
                f"site {name} at epsilon {spent.epsilon:g}, as its ledger says",
                f"it states {stated['epsilon']}",
                "Restore the folder from a backup.",
            )
        releases = max(releases, sum(row.mechanism != "reveal" for row in rows))
        guarantees.append(
            {
                "site": name,
                "observer": observer,
                "epsilon": "infinity" if infinite else spent.epsilon,
                "delta": None if infinite else spent.delta,
                "accountant": spent.accountant,
                "rehearsal": any(row.noise is not None and "secret" not in row.randomness for row in rows),
            }
        )
    observers = list(dict.fromkeys(guarantee["observer"] for guarantee in guarantees))
    claim = next((g["claim"] for g in result["privacy"]["guarantees"]), None)
    return {
        "releases": releases,
        "observers": observers,
        "sites": worst_by_site(guarantees),
        "guarantees": guarantees,
        "claim": claim,
        "notes": result["privacy"]["notes"],
    }
