"""What a plan will cost, and what a run did cost."""

from __future__ import annotations

import json
import math
from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.privacy.accounting import cost
from silograph.privacy.ledger import Ledger
from silograph.run.build import build
from silograph.run.plan import load
from silograph.run.results import OBSERVERS, forecast
from silograph.run.run import read_data


def bill_of_plan(path: Path) -> Json:
    """The forecast; it reads the tables only for their shape."""
    plan = load(path)
    return forecast(plan, build(plan, *read_data(plan, path.parent)))


def bill_of_run(folder: Path) -> Json:
    """Read again from the run's own ledger, not from what its result said."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        guarantees = {g["site"]: g for g in result["privacy"]["guarantees"]}
    except (OSError, ValueError, KeyError, TypeError):
        raise DamageError(str(folder), "the folder of a finished run", "its result.json cannot be read") from None
    if not (folder / "ledger.jsonl").exists():
        raise DamageError(str(folder / "ledger.jsonl"), "the run's ledger", "it is not there")
    ledger = Ledger(folder / "ledger.jsonl")
    sites, releases = [], 0
    for name, stated in guarantees.items():
        rows = ledger.of(name)
        delta = stated["delta"] or 0.0
        spent = cost(rows, delta)
        infinite = math.isinf(spent.epsilon)
        releases = max(releases, sum(row.mechanism != "reveal" for row in rows))
        sites.append(
            {
                "site": name,
                "epsilon": "infinity" if infinite else spent.epsilon,
                "delta": None if infinite else spent.delta,
                "accountant": spent.accountant,
            }
        )
    claim = next((g["claim"] for g in guarantees.values()), None)
    return {"releases": releases, "observers": list(OBSERVERS), "sites": sites, "claim": claim}
