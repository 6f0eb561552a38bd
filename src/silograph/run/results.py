"""What every finished run leaves: its plan, its result, and what it cost as its ledger states it."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from silograph.core import results, schema
from silograph.core.files import write_atomically
from silograph.core.results import Claim, Guarantee, Made, Result, worst_by_site
from silograph.core.types import Json
from silograph.privacy.accounting import NO_PROTECTION, Cost
from silograph.privacy.door import Door
from silograph.run.jobs import job_part
from silograph.run.plan import Plan

STAR_OBSERVERS = ("server", "other sites", "wire", "public")
_PACKAGES = ("silograph", "numpy", "scipy", "numba", "networkx", "pandas", "pyarrow", "dp-accounting")
UNPROTECTED = Cost(math.inf, 1.0, NO_PROTECTION)


def guarantee(site: str, observer: str, spent: Cost, claim: Claim | None, rehearsal: bool) -> Guarantee:
    delta = spent.delta if math.isfinite(spent.epsilon) else None
    return Guarantee(site, observer, spent.epsilon, delta, spent.accountant, claim, rehearsal)


def stated(
    door: Door, sites: Sequence[str], observers: Sequence[str], delta: float, claim: Claim | None, rehearsal: bool
) -> list[Guarantee]:
    """What each site's rows cost against each observer, read from the ledger."""
    return [
        guarantee(site, observer, door.spent(site, delta, observer), claim, rehearsal)
        for site in sites
        for observer in observers
    ]


def costs(
    releases: int, guarantees: Sequence[Guarantee], claim: Claim | None, notes: Sequence[str], **further: object
) -> Json:
    """What a plan will cost, or a run did, for machines; `further` is what only one family knows."""

    def told(each: Guarantee) -> Json:
        row: Json = schema.write(each)
        return {key: value for key, value in row.items() if key != "claim"}

    return {
        "releases": releases,
        **further,
        "observers": list(dict.fromkeys(each.observer for each in guarantees)),
        "sites": [told(each) for each in worst_by_site(guarantees).values()],
        "guarantees": [told(each) for each in guarantees],
        "claim": schema.write(claim),
        "notes": list(notes),
    }


def rehearsal_note(plan: Plan) -> list[str]:
    """What to know of a protected run whose noise is public."""
    if not plan.rehearsal:
        return []
    return [
        "Rehearsal: the noise comes from the seed in this folder, so whoever has the seed can remove the noise. "
        "The guarantee is the one that the same plan gives without a seed. Run real data without one."
    ]


def write_result(folder: Path, plan_text: str, seed: int | None, door: Door, told: Result) -> None:
    """Write plan and result, the result last: with it the folder is complete. It notes which plan ran."""
    write_atomically(folder / "plan.toml", plan_text.encode())
    digest = hashlib.sha256(plan_text.encode()).hexdigest()
    results.write_result(folder, told, Made(digest, door.ledger.tip, seed, versions(told.method), now()))


def now() -> str:
    """The time in UTC, to the second; SOURCE_DATE_EPOCH fixes it, where files of two runs are to be compared."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(fixed) if fixed.isdecimal() else int(time.time())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def versions(method: str) -> dict[str, str]:
    """Of the software that made a result or an audit."""
    packages = (*_PACKAGES, *job_part(method).PACKAGES)
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
