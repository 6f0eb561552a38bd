"""Verdicts follow from rules: on numbers whose truth is known, and on tables worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from silograph.reproduce.runner import Row, Table
from silograph.reproduce.verdicts import (
    DOES_NOT_HOLD,
    NOT_REPRODUCED,
    REPRODUCED,
    TOO_FEW,
    UNCLEAR,
    Verdict,
    alike,
    compared,
    half_width,
    left_open,
    printed,
    together,
)

UP, DOWN, LEVEL = np.array([1.0, 1.1, 0.9]), np.array([-1.0, -1.1, -0.9]), np.array([0.5, -0.5, 0.1])


def test_the_interval_is_scipys():
    values = np.random.default_rng(3).normal(size=7)
    low, high = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2)
    assert half_width(values[:1]) == np.inf


@pytest.mark.parametrize(
    "wanted, unwanted, outcome",
    [
        ([UP], [], REPRODUCED),
        ([UP, UP], [LEVEL], REPRODUCED),
        ([UP, LEVEL], [], UNCLEAR),
        ([UP, DOWN], [], DOES_NOT_HOLD),
        ([UP], [DOWN], DOES_NOT_HOLD),
        ([UP[:1]], [], UNCLEAR),
    ],
)
def test_a_statement_needs_every_comparison(wanted, unwanted, outcome):
    assert compared(wanted, unwanted) == outcome


def test_alike_means_that_the_whole_interval_is_small():
    assert alike([0.01 * LEVEL], 0.5) == REPRODUCED
    assert alike([LEVEL], 0.5) == UNCLEAR
    assert alike([UP], 0.5) == DOES_NOT_HOLD
    assert alike([0.0 * UP[:1]], 0.5) == UNCLEAR


def test_a_printed_number_that_is_true_is_rarely_refused_and_a_false_one_is():
    """Two means of 20 from one distribution differ by more than the tolerance in 0.27 % of cases: of 4000, more than 30
    has a probability below 1e-6. Means that are five standard deviations of one apart are always told apart."""
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.7, 0.02, (2, 4000, 20))
    found = [printed(a.mean(), a.std(ddof=1), 20, b.mean()) for a, b in zip(ours, theirs, strict=True)]
    assert found.count(NOT_REPRODUCED) <= 30
    assert found.count(UNCLEAR) == 0
    assert printed(0.7, 0.02, 20, 0.8) == NOT_REPRODUCED


def test_few_repetitions_confirm_nothing():
    assert printed(0.7, 0.02, 2, 0.7) == UNCLEAR  # the tolerance is larger than the number
    assert printed(0.7, 0.0, 1, 0.7) == UNCLEAR
    assert printed(0.7, 0.0, 2, 0.7004) == REPRODUCED  # by rounding
    assert printed(0.7, 0.0, 2, 0.701) == NOT_REPRODUCED


def test_the_worst_decides():
    assert together([REPRODUCED, UNCLEAR]) == UNCLEAR
    assert together([UNCLEAR, NOT_REPRODUCED, REPRODUCED]) == NOT_REPRODUCED
    assert together([REPRODUCED]) == REPRODUCED


def test_shorter_runs_say_where_they_point():
    short = left_open(Verdict("S", DOES_NOT_HOLD, "so much"))
    assert (short.outcome, short.found) == (
        UNCLEAR,
        "so much (as far as this experiment can say, statement does not hold)",
    )


def test_a_reason_is_given_where_a_statement_fails():
    held, failed = (Verdict("S", outcome, "so much", why="Because") for outcome in (REPRODUCED, DOES_NOT_HOLD))
    assert held.to_json()["found"] == "so much"
    assert str(failed) == "S. Statement does not hold: so much. Because."


def test_a_table_judges_its_printed_numbers_measure_by_measure():
    rows = [
        Row("a", "m", "FS", 0.70, 0.01, 0.701),
        Row("b", "m", "FS", 0.70, 0.01, 0.80),
        Row("a", "m", "RE", 0.50, 0.01, 0.50),
        Row("a", "n", "RE", 0.50, 0.01, None),
    ]
    table = Table.of("x", 20, rows, ["a note", Verdict("The paper: s", REPRODUCED, "f"), "another"])
    assert table.notes == ["a note", "another"]
    told = table.to_json()
    assert [row["verdict"] for row in told["rows"]] == [REPRODUCED, NOT_REPRODUCED, REPRODUCED, None]
    scores, errors, statement = told["verdicts"]
    assert (scores["outcome"], errors["outcome"], statement["outcome"]) == (NOT_REPRODUCED, REPRODUCED, REPRODUCED)
    assert scores["found"] == (
        "of 2 numbers 1 reproduced, 1 not reproduced; the largest difference is -0.100 (b, m: ours 0.700 ± 0.010, the "
        "paper's 0.800)"
    )
    table.unlike = "2 rounds instead of 3"
    assert {verdict["outcome"] for verdict in table.to_json()["verdicts"]} == {UNCLEAR}


def test_fewer_repetitions_than_an_entry_asks_for_refuse_no_number():
    rows = [Row("a", "x", "F", 0.5, 0.001, 0.9), Row("b", "x", "F", 0.9, 0.001, 0.9)]
    said = [Verdict("level", UNCLEAR, "found"), Verdict("down", DOES_NOT_HOLD, "found")]
    outcomes = {
        wanted: [verdict.outcome for verdict in Table("t", 3, rows, [], verdicts=said, wanted=wanted).judged()]
        for wanted in (3, 20)
    }
    assert outcomes == {3: [NOT_REPRODUCED, UNCLEAR, DOES_NOT_HOLD], 20: [TOO_FEW, TOO_FEW, DOES_NOT_HOLD]}
    told = Table("t", 3, rows, [], wanted=20).to_json()
    assert [row["verdict"] for row in told["rows"]] == [TOO_FEW, REPRODUCED]
    assert told["notes"] == ["Verdicts are made for 20 repetitions (--seeds 20)."]
