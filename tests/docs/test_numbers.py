"""Numbers that a page repeats are those of the page or the program that has them first."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from silograph.privacy.accounting import gaussian_mu

ROOT = Path(__file__).parents[2]


def text(name):
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_readmes_scores_are_the_means_of_those_that_are_measured():
    cells = re.findall(r"\| (?:50|200|1000) \| (\.\d+) / (\.\d+) \| (\.\d+) / (\.\d+) \|", text("docs/choosing.md"))
    assert len(cells) == 3
    sites, consensus, peers, peers_consensus = (f"{mean:.2f}"[1:] for mean in np.array(cells, dtype=float).mean(0))
    assert f"| proved, accounted, attacked | {sites} / {consensus} |" in text("README.md")
    assert f"| {peers} / {peers_consensus} for the best in each cell |" in text("README.md")


def test_the_benchmark_prints_these_means():
    """By hand: two cells at 50 rows, in one of which the better peer was late, and one at 200."""
    sys.path.insert(0, str(ROOT))
    try:
        summary = importlib.import_module("benchmarks.graph_quality").summary
    finally:
        sys.path.remove(str(ROOT))

    def row(case, ours, peer, theirs):
        return {"case": f"{case}, F of sites", "ours": ours, "peer": peer, "theirs": theirs}

    found = summary(
        [
            row("gmrf, block, 50 rows", 0.6, "a", 0.5),
            row("gmrf, block, 50 rows", 0.6, "b (11 of 12 in time)", 0.59),
            row("pinv, block, 50 rows", 0.8, "a", 0.5),
            row("pinv, block, 50 rows", 0.8, "b", 0.7),
            row("gmrf, block, 200 rows", 0.9, "a", 0.8),
            row("signed, block, 200 rows", 0.1, "a", 0.1),
        ]
    )
    told = {row["case"]: (row["ours"], row["theirs"]) for row in found}
    assert told["mean of 2 cells, 50 rows, F of sites"] == pytest.approx((0.7, 0.6))
    assert told["mean of 1 cells, 200 rows, F of sites"] == pytest.approx((0.9, 0.8))
    assert told["mean of all, F of sites"] == pytest.approx((0.8, 0.7))
    assert len(told) == 3


@pytest.mark.parametrize(
    "page, said",
    [
        ("docs/faq.md", {"{} % of those looked for at epsilon 1": 1, ", {} % at 4": 4, ", {} % at 8": 8}),
        ("docs/officer.md", {"recognises {} % of those looked for": 2}),
    ],
)
def test_what_an_attacker_recognises_is_what_the_accountant_says(page, said):
    """At 5 % false alarms, delta 1e-6, against a Gaussian release of exactly this cost."""
    for words, epsilon in said.items():
        share = norm.sf(norm.isf(0.05) - gaussian_mu(float(epsilon), 1e-6))
        assert words.format(f"{100 * share:.0f}") in text(page)
