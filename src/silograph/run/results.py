"""What every finished run leaves: its plan, its result, and the bill as its ledger states it."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from silograph.core.files import write_atomically
from silograph.core.types import Json
from silograph.privacy.door import Door
from silograph.run.jobs import job_part
from silograph.run.plan import Plan

STAR_OBSERVERS = ("server", "other sites", "wire", "public")
_PACKAGES = ("silograph", "numpy", "scipy", "numba", "networkx", "pandas", "pyarrow", "dp-accounting")


def stated(
    door: Door, sites: Sequence[str], observers: Sequence[str], delta: float, claim: Json | None, rehearsal: bool
) -> list[Json]:
    """What each site's rows cost against each observer, read from the ledger."""
    guarantees = []
    for site in sites:
        for observer in observers:
            spent = door.spent(site, delta, observer)
            infinite = math.isinf(spent.epsilon)
            guarantees.append(
                {
                    "site": site,
                    "observer": observer,
                    "epsilon": "infinity" if infinite else spent.epsilon,
                    "delta": None if infinite else spent.delta,
                    "accountant": spent.accountant,
                    "claim": claim,
                    "rehearsal": rehearsal,
                }
            )
    return guarantees


def worst_by_site(guarantees: Sequence[Json]) -> list[Json]:
    """Each site's guarantee against the observer it protects least from."""
    worst: dict[str, Json] = {}
    for guarantee in guarantees:
        known = worst.setdefault(guarantee["site"], guarantee)
        if float(guarantee["epsilon"]) > float(known["epsilon"]):
            worst[guarantee["site"]] = guarantee
    return list(worst.values())


def rehearsal_note(plan: Plan) -> list[str]:
    """What to know of a protected run whose noise is public."""
    if not plan.rehearsal:
        return []
    return [
        "Rehearsal: the noise comes from the seed in this folder, so whoever has it can take the noise off. "
        "The guarantee is what the same plan gives without a seed. Run real data without one."
    ]


def write_result(folder: Path, plan_text: str, seed: int | None, door: Door, told: Json) -> None:
    """Write plan and result, the result last: with it the folder is complete. It notes which plan ran."""
    write_atomically(folder / "plan.toml", plan_text.encode())
    result = {
        "format": 1,
        **told,
        "plan": hashlib.sha256(plan_text.encode()).hexdigest(),
        "ledger": door.ledger.tip,
        "seed": seed,
        "versions": versions(told["method"]),
    }
    write_atomically(folder / "result.json", (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())


def versions(method: str) -> Json:
    """Of the software that made a result or an audit."""
    packages = (*_PACKAGES, *job_part(method).PACKAGES)
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
