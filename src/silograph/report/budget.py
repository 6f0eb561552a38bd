"""How the budget was used up, round by round: the accountant's reading of the ledger's rows so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from silograph.core.types import Json
from silograph.report import charts, words
from silograph.report.read import RunFolder

#: Moments that are priced; of sampled releases fewer, since their accountants take their time.
MOST_MOMENTS, MOST_SAMPLED = 12, 4
MOST_LINES = 4


def budget_over_rounds(run: RunFolder) -> Json | None:
    """For whoever spent most, a line for each cost; None where a single round, or nothing finite, was paid for."""
    from silograph.privacy.accounting import cost
    from silograph.privacy.gate import OBSERVERS
    from silograph.privacy.ledger import Row

    dearest: dict[str, Json] = {}
    for stated in run.result["privacy"]["guarantees"]:
        known = dearest.get(stated["observer"])
        if math.isfinite(stated["epsilon"]) and (known is None or stated["epsilon"] > known["epsilon"]):
            dearest[stated["observer"]] = stated
    alike: dict[tuple[str, float], list[Json]] = {}
    for stated in dearest.values():
        alike.setdefault((stated["site"], stated["epsilon"]), []).append(stated)
    lines = []
    for (site, epsilon), same in list(alike.items())[:MOST_LINES]:
        # Cells have other names in the ledger than on the page.
        silo, observer, delta = same[0].get("silo", site), same[0]["observer"], same[0]["delta"]
        if observer not in OBSERVERS:
            continue
        try:
            rows = [Row(**{k: v for k, v in row.items() if k != "chain"}) for row in run.ledger if row["silo"] == silo]
        except TypeError:
            return None  # rows that no accountant can read
        rows = [row for row in rows if row.observer not in OBSERVERS[observer]]
        sampled = any(row.sampling < 1.0 for row in rows)
        moments = _moments(sorted({row.round for row in rows}), MOST_SAMPLED if sampled else MOST_MOMENTS)
        if len(moments) < 2:
            continue
        points = [
            (moment + 1, cost([row for row in rows if row.round <= moment], delta or 0.0).epsilon)
            for moment in moments[:-1]
        ]
        # The last is what the run states; `silograph report` checks that against the ledger.
        lines.append(
            (words.listed([stated["observer"] for stated in same]), site, [*points, (moments[-1] + 1, epsilon)])
        )
    if not lines:
        return None
    sites = words.first_seen(site for _, site, _ in lines)
    label = "Epsilon spent over the rounds: " + words.listed([f"against {who}" for who, *_ in lines])
    picture = charts.lines_svg(
        [(f"against {who}", [(0, 0.0), *points]) for who, _, points in lines], label, x_name="round", y_name="ε spent"
    )
    return {"picture": picture, "sites": words.listed(sites)}


def _moments(rounds: Sequence[int], most: int) -> list[int]:
    """Some of the rounds, evenly spread, the last among them."""
    count = min(len(rounds), most)
    return [rounds[math.ceil((k + 1) * len(rounds) / count) - 1] for k in range(count)]
