"""Two independent accountants on one ledger: what is shown, and dp-accounting's readings of the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from silograph.privacy import accounting
from silograph.privacy.ledger import Row

DELTA = 1e-5
_MANY = 3  # kinds of releases that privacy loss distributions are convolved for: more take long

_agreed: set[object] = set()


def compare(rows: Sequence[Row]) -> int:
    """Of one silo's rows, by part. Returns how many comparisons were new; the same releases are compared once."""
    rows = [row for row in rows if row.mechanism != "reveal" and _is_noisy(row)]
    new = 0
    for part in sorted({row.part for row in rows if row.part}) or [""]:
        own = [row for row in rows if row.part in ("", part)]
        if own and (kinds := accounting._kinds(own)) not in _agreed:
            _compare(own, len(kinds))
            _agreed.add(kinds)
            new += 1
    return new


def _is_noisy(row: Row) -> bool:
    """Rows that a test made up, or of a mechanism without noise, have no epsilon to agree on."""
    return row.l2 is not None and row.noise is not None and 0.0 < row.l2 < math.inf and 1e-3 < row.noise / row.l2 < 1e4


def _compare(rows: Sequence[Row], kinds: int) -> None:
    shown = accounting.cost(rows, DELTA).epsilon
    names = {row.mechanism for row in rows}
    sampled = any(row.sampling < 1.0 for row in rows)
    if names == {"laplace"} and not sampled:
        # One release has delta(eps) = 1 - exp((eps - pure) / 2); of several the pure epsilons add up to a bound.
        pure, loss = accounting.cost(rows, 0.0).epsilon, accounting.pld_epsilon(rows, DELTA)
        assert loss <= pure + 1e-3 * len(rows), f"{pure} is shown, loss distributions say {loss}"
        if len(rows) == 1:
            assert math.isclose(loss, max(0.0, pure + 2.0 * math.log1p(-DELTA)), rel_tol=1e-3, abs_tol=1e-3)
        return
    renyi = accounting.rdp_epsilon(rows, DELTA)
    assert shown <= 1.001 * renyi + 1e-6, f"{shown} is shown, the Renyi accountant says {renyi}"
    assert renyi <= 1.35 * shown + 0.1, f"{shown} is shown, the Renyi accountant says {renyi}"
    if accounting.DISTRIBUTED in names:
        assert accounting.gaussian_epsilon(math.sqrt(2.0 * accounting.zcdp(rows)), DELTA) <= shown
    elif names == {"gaussian"} and not sampled and kinds <= _MANY and len(rows) <= 200 and shown < 20.0:
        loss = accounting.pld_epsilon(rows, DELTA)
        assert math.isclose(loss, shown, rel_tol=5e-3, abs_tol=5e-3), f"{shown} is shown, loss distributions say {loss}"
