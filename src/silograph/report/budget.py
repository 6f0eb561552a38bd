"""The budget spent so far after each round, computed by the accountant from the ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from silograph.core.results import Guarantee
from silograph.core.types import Json
from silograph.report import charts, words
from silograph.report.read import RunFolder

#: Moments at which the cost is computed; of sampled releases fewer, since their accountants take their time.
MOST_MOMENTS, MOST_SAMPLED = 12, 4
MOST_LINES = 4
#: What every row of a ledger has.
ROW = frozenset(
    "silo round release_point observer mechanism l2 noise dim sampling protected_unit relation randomness "
    "why digest".split()
)


def budget_over_rounds(run: RunFolder[Any]) -> Json | None:
    """A curve for each cost of the silo that spent most; None if there is only one round, or no finite cost."""
    from silograph.privacy.accounting import cost
    from silograph.privacy.ledger import Row
    from silograph.privacy.observers import OBSERVERS

    dearest: dict[str, Guarantee] = {}
    for stated in run.result.privacy.guarantees:
        known = dearest.get(stated.observer)
        if stated.finite and (known is None or stated.epsilon > known.epsilon):
            dearest[stated.observer] = stated
    alike: dict[tuple[str, float], list[Guarantee]] = {}
    for stated in dearest.values():
        alike.setdefault((stated.site, stated.epsilon), []).append(stated)
    lines = []
    for (site, epsilon), same in list(alike.items())[:MOST_LINES]:
        silo, observer, delta = run.in_ledger(site), same[0].observer, same[0].delta or 0.0
        stated_rows = [row for row in run.ledger if row["silo"] == silo]
        if observer not in OBSERVERS or not 0.0 <= delta < 1.0 or not all(map(_has_a_cost, stated_rows)):
            continue
        rows = [Row(**{name: value for name, value in row.items() if name != "chain"}) for row in stated_rows]
        rows = [row for row in rows if row.observer not in OBSERVERS[observer]]
        sampled = any(row.sampling < 1.0 for row in rows)
        moments = _moments(sorted({row.round for row in rows}), MOST_SAMPLED if sampled else MOST_MOMENTS)
        if len(moments) < 2:
            continue
        points = [
            (moment + 1, cost([row for row in rows if row.round <= moment], delta).epsilon) for moment in moments[:-1]
        ]
        # The last is what the run states; `silograph report` checks that against the ledger.
        lines.append(([stated.observer for stated in same], site, [*points, (moments[-1] + 1, epsilon)]))
    if not lines:
        return None
    told = words.listed([f"{words.listed(observers)} ({site})" for observers, site, _ in lines])
    drawn = [(f"against {observers[0]}", [(0, 0.0), *points]) for observers, _, points in lines]
    picture = charts.lines_svg(drawn, f"Epsilon spent over the rounds against {told}", x_name="round", y_name="ε spent")
    return {"picture": picture, "told": told}


def _has_a_cost(row: Json) -> bool:
    """Whether an accountant can read the row."""
    sizes = [row.get(name) for name in ("l2", "noise", "sampling")]
    return (
        ROW <= row.keys() <= ROW | {"chain", "batch", "part"}
        and isinstance(row["round"], int)
        and (row["mechanism"] == "reveal" or all(words.is_number(size) and 0 < size < math.inf for size in sizes))
    )


def _moments(rounds: Sequence[int], most: int) -> list[int]:
    """Some of the rounds, evenly spread, the last among them."""
    count = min(len(rounds), most)
    return [rounds[math.ceil((k + 1) * len(rounds) / count) - 1] for k in range(count)]
