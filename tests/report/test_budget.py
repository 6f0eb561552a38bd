"""How the budget was spent over the rounds, against the exact Gaussian curve."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from graph_runs import make_run
from pages import change, guarantee
from silograph.privacy.accounting import gaussian_epsilon
from silograph.report import charts
from silograph.report.budget import budget_over_rounds
from silograph.report.build import build, read

RATIO, ROUNDS, DELTA = 0.1, 60, 1e-5


def spent_after(rounds: int) -> float:
    """Gaussian releases compose to one whose squared ratio is the sum of theirs."""
    return gaussian_epsilon(RATIO * math.sqrt(rounds), DELTA)


def private_run(folder: Path) -> Path:
    make_run(folder, sites=["a", "b"], mode="dp", rounds=ROUNDS)
    row = {"site": "gradient", "observer": "server", "mechanism": "gaussian", "l2": RATIO, "noise": 1.0, "dim": 3}
    row |= {
        "sampling": 1.0,
        "protected_unit": "u",
        "relation": "r",
        "randomness": "secret",
        "why": "clip",
        "digest": "d",
    }
    rows = [row | {"silo": silo, "round": t} for t in range(ROUNDS) for silo in "ab" if silo == "a" or t % 2]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    stated = [
        guarantee(name, who, spent_after(n)) for name, n in (("a", 60), ("b", 30)) for who in ("server", "public")
    ]
    change(folder, privacy=privacy | {"guarantees": stated})
    return folder


def test_the_line_is_the_accounted_cost_of_the_rows_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(charts, "lines_svg", lambda lines, label, **_: drawn.extend(lines) or "<svg></svg>")
    found = budget_over_rounds(read(private_run(tmp_path)))
    assert found is not None
    assert found["told"] == "server and public (a)"  # which spent most
    (name, points), *others = drawn
    assert not others
    assert name == "against server"
    assert points == [(0, 0.0), *((t, pytest.approx(spent_after(t))) for t in range(5, 61, 5))]


def test_the_page_shows_it_where_there_is_something_to_show(tmp_path: Path) -> None:
    html = build(private_run(tmp_path / "private"))
    assert re.search(
        r"How the budget was spent</h3>.*ε accounted so far.*<bdi>server and public \(a\)</bdi>", html, re.DOTALL
    )
    assert "How the budget was spent" not in build(make_run(tmp_path / "open"))


@pytest.mark.parametrize("damage", [{"noise": 0}, {"l2": None}, {"round": "late"}, {"sampling": "all"}, {"more": 1}])
def test_rows_that_no_accountant_can_read_are_not_drawn(tmp_path: Path, damage: dict[str, object]) -> None:
    folder = private_run(tmp_path)
    first, *rest = (folder / "ledger.jsonl").read_text().splitlines()
    (folder / "ledger.jsonl").write_text("\n".join([json.dumps(json.loads(first) | damage), *rest]) + "\n")
    assert "How the budget was spent" not in build(folder)
