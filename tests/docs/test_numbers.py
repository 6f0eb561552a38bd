"""Numbers that a page repeats are those of the page or the program that has them first."""

import importlib
import json
import re
import runpy
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


def test_attacks_find_what_their_page_says(tmp_path, monkeypatch, capsys):
    """All but times, which depend on the machine."""
    monkeypatch.setattr(sys, "argv", ["attacks.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "attacks.py"), run_name="__main__")
    printed, page = capsys.readouterr().out, text("docs/attacks.md")

    def found(after):
        (value,) = re.findall(rf"{after}([\d.e-]+)", printed)
        return float(value)

    assert f"In the example that is {found('inversion: '):.0f} % of the numbers" in page
    at_two, at_less = found("with epsilon 2: off by "), found("with epsilon 0.2: off by ")
    assert f"still known to {at_two:.0f} %, at 0.2 to {at_less:.0f} %" in page
    assert found("un-mixing, homomorphic: off by ") < 0.1
    assert f"(epsilon 2 for every agent) to {found('un-mixing, private: off by '):.0f} %" in page
    assert f"errors of {100 * found('duals, noise 0.1: off by '):.0f} % at a deviation of 0.1" in page
    areas = re.findall(r"membership, .*: area (\d\.\d\d)", printed)
    assert f"of {areas[0]}. Noise in the model lowers it to {areas[1]} and {areas[2]}" in page
    assert len(list(tmp_path.glob("attack-*.svg"))) == 7


# ---- the examples on real data: numbers.json is what run.py printed, and tests/examples runs it again ----------------


def kept(example):
    return json.loads((ROOT / "examples" / example / "numbers.json").read_text(encoding="utf-8"))


def percent(share):
    return f"{100 * share:.0f} %"


def span(values, last=""):
    return f"{min(values)} to {max(values)}{last}"


def test_weather_is_what_its_example_printed():
    page, known = text("examples/weather/README.md"), kept("weather")
    for graph in ("consensus", "winter", "spring", "summer", "autumn"):
        edges, near, state, km = (
            known[f"seasons, {graph}, {name}"]
            for name in ("edges", "share among nearest", "share in one state", "median km")
        )
        assert f"| {graph} | {edges} | {km:.0f} km | {percent(near)} | {percent(state)} |" in page
    pairs = (known[f"seasons, consensus, {name}"] for name in ("share among nearest, all pairs", "all pairs"))
    whole = known["seasons, consensus, median km of all pairs"]
    assert f"| all pairs | | {whole:.0f} km | {' | '.join(map(percent, pairs))} |" in page
    edges, km, all_km, near, all_near = (
        known[f"brittany, consensus, {name}"]
        for name in (
            "edges",
            "median km",
            "median km of all pairs",
            "share among nearest",
            "share among nearest, all pairs",
        )
    )
    assert f"{edges} edges, {km:.0f} km in the median where all pairs have {all_km:.0f} km" in page
    assert f"{percent(near)} among the 6 nearest (all pairs: {percent(all_near)})" in page


def test_traffic_is_what_its_example_printed():
    page, known = text("examples/traffic/README.md"), kept("traffic")
    names = ("edges", "share along roads", "of the pairs along roads")
    edges, along, share = (known[f"consensus, {name}"] for name in names)
    assert f"| consensus | {edges} | {percent(along)} | {percent(share)} |" in page
    edges, *shares = ([known[f"day_{k}, {name}"] for k in range(1, 8)] for name in names)
    along, share = (span([round(100 * each) for each in values], " %") for values in shares)
    assert f"| single days, seven graphs | {span(edges)} | {along} | {share} |" in page
    assert f"| all pairs | | {percent(known['all pairs, share along roads'])} | |" in page
    beyond = percent(known["edges that only days have, share along roads"])
    assert f"Of the edges that days have beyond that, {beyond} are along roads." in page


def test_pictures_are_what_their_example_printed():
    page, known = text("examples/views/README.md"), kept("views")
    measures = ("communities", "NMI", "RI", "FMI")
    consensus, *views = (
        [f"{known[f'{graph}, {name}']:g}" for name in measures] for graph in ("consensus", "view_1", "view_2", "view_3")
    )
    assert f"| consensus | {' | '.join(consensus)} |" in page
    assert views == [views[0]] * 3
    assert f"| each of the three views | {' | '.join(views[0])} |" in page
    assert f"one draw of objects ({' and '.join(known['objects'].rsplit(', ', 1))})" in page


def test_brains_are_what_their_example_printed():
    page, known = text("examples/brain/README.md"), kept("brain")
    assert f"On {known['persons']} persons" in page
    assert f"| edges of the consensus graph | {known['edges of the consensus']}, exact" in page
    assert f"| {known['joined to it']} of {known['regions with a counterpart']} (" in page
    sides = " and ".join(f"{known[name]:.1f}" for name in ("edges with autism", "edges without"))
    assert f"{sides}, p = {known['p of it']:.2f} |" in page
    largest = known["largest difference of an edge, in standard errors"]
    assert f"{largest:.1f} standard errors, p = {known['p of it, over all edges']:.3f}" in page
    votes = known["votes at epsilon 8: F1 of their edges, mean of 10 rehearsals"]
    assert f"| {votes:.2f} in ten rehearsals; {known['F1 of as many pairs anywhere']:.2f} if as many" in page
    sure = known["votes at epsilon 4: edges with a probability above .9, mean"]
    assert f"| {sure:.0f} of 348 in ten rehearsals, {100 * known['true among them, mean']:.0f} in a hundred" in page
    mean = known["F1 of private edges, mean of 10 rehearsals"]
    ends = f"from {known['least']:.2f} to {known['most']:.2f} in ten rehearsals"
    assert f"| {mean:.2f}, {ends}; {known['F1 of as many edges anywhere']:.2f} if as many" in page
