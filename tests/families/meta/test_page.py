"""The page of a shared start says what result.json and the ledger say, and nothing better."""

from __future__ import annotations

import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages import NASTY, Page, change, guarantee, harmless, promise, table
from silograph.core.errors import DamageError
from silograph.privacy.ledger import Ledger, Row
from silograph.report.build import build

OBSERVERS = ("server", "other sites", "wire", "public")
MODE = {"sound": "dp", "paper:": "paper:", None: "exact"}
SOUND = "it adds up what disjoint sets of records pay"
DEFECT = "it clips the mean over records"
#: Of a private run: what a step releases, from which set and sample, and its share of that sample's precision.
SITES = {
    "sound": (
        ("inner", "query", "query", 0.5),
        ("outer", "support", "support", 1.0),
        ("curvature", "query", "query", 0.5),
    ),
    "paper:": (("inner", "", "step", 1.0), ("outer", "", "step", 1.0)),
}


def make_run(
    folder: Path,
    *,
    sources: int | list[str] = 6,
    new: int | list[str] = 4,
    version: str | None = "sound",
    personal: bool = False,
    answers: str = "classes",
    rounds: int = 5,
    local_steps: int = 1,
    **changes: Any,
) -> Path:
    """A run folder as silograph writes it, filled with made-up numbers; `changes` replace keys of result.json.

    `version` None protects nothing; `personal` gives new clients a budget for publishing their models.
    """
    clients = [f"device-{k:02}" for k in range(sources)] if isinstance(sources, int) else sources
    newcomers = [f"new-{k:02}" for k in range(new)] if isinstance(new, int) else new
    private, regression = version is not None, answers == "numbers"
    before = [(2.0 if regression else 0.1) + 0.05 * k for k in range(len(newcomers))]
    after = [(1.5 if regression else 0.9) - 0.1 * k for k in range(len(newcomers))]
    claim = {"epsilon": 4.0 if version == "paper:" else 6.579, "delta": 1e-5, "basis": "S4 Theorem 1"}
    claim["defect"] = DEFECT if version == "paper:" else SOUND
    cost: float | str = {"sound": 3.9999, "paper:": 10.8413, None: "infinity"}[version]
    told = {"claim": claim if private else None, "rehearsal": False}
    stated = [guarantee(name, who, cost, **told) for name in clients for who in OBSERVERS]
    if personal:
        stated += [guarantee(name, who, 2.0, rehearsal=False) for name in newcomers for who in OBSERVERS]
    scores = {
        "this run": sum(after) / max(len(after), 1),
        "each client alone": 1.6 if regression else 0.35,
    }
    ledger = write_ledger(folder, clients, newcomers if personal else [], version, rounds, local_steps)
    result = {
        "format": 1,
        "method": "private_meta",
        "task": {
            "answers": answers,
            "target": "activity",
            "classes": [] if regression else ["lying", "running", "sitting"],
            "features": ["x", "y"],
            "shape": [2],
        },
        "model": {"name": "mlp", "parameters": 20},
        "parameters": {
            "version": version or "sound",
            "order": "second",
            "rounds": rounds,
            "local_steps": local_steps,
            "rate": 0.2,
            "inner_step": 0.5,
            "outer_step": 1.0,
            "personal_step": 0.5,
            "personal_steps": 1,
            "clip": 1.0 if private else None,
            "curvature_clip": None,
            "sigma": 2.0 if private else None,
            "device": "cpu",
        },
        "clients": [{"name": name, "records": 400 + 10 * k} for k, name in enumerate(clients)],
        "new": [
            {
                "name": name,
                "records": 200,
                "test_records": 200,
                "before": before[k],
                "after": after[k],
                "loss": 0.25,
                "alone": 0.5,
            }
            for k, name in enumerate(newcomers)
        ],
        "comparison": [{"method": name, "score": score} for name, score in scores.items() if newcomers],
        "test": {
            "records": 200 * len(newcomers),
            "measure": "mean squared error" if regression else "accuracy",
            "baseline": 1.9 if regression else 0.3,
        }
        if newcomers
        else None,
        "rounds": rounds,
        "trace": [{"round": t, "movement": 0.9**t} for t in range(1, rounds + 1)],
        "privacy": {
            "mode": MODE[version],
            "protected_unit": "one record" if private else "none",
            "relation": "add-or-remove-one: a record's place is left empty" if private else "none",
            "guarantees": stated,
            "notes": ["Not protected: which clients there are."],
        },
        "numbers_are": {
            "model": "released",
            "movement": "released",
            "new": "simulation only",
            "comparison": "simulation only",
        },
        "plan": "0" * 64,
        "ledger": ledger.tip,
        "seed": None if private else 7,
        "versions": {"silograph": "0.1.0", "torch": "2.13.0+cpu"},
    }
    (folder / "result.json").write_text(json.dumps(result | changes), encoding="utf-8")
    (folder / "plan.toml").write_text('[method]\nname = "private_meta"  # <as given> & kept\n', encoding="utf-8")
    for path in ["start.npz", *(f"new/{name}.npz" for name in newcomers if personal or not private)]:
        write_model(folder / "models" / path)
    return folder


def write_model(path: Path, **arrays: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {"parameter/1.weight": np.ones((4, 4)), "parameter/1.bias": np.ones(4), "model": np.array("{}")}
    np.savez(path, **made | arrays)


def write_ledger(
    folder: Path, clients: list[str], newcomers: list[str], version: str | None, rounds: int, local_steps: int
) -> Ledger:
    """Rows as the gate leaves them: sigma is 2, and the sensitivity that of 100 records in a sample."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ledger.jsonl").unlink(missing_ok=True)

    def row(silo: str, t: int, site: str, sigma: float, **more: Any) -> Row:
        facts = {
            "silo": silo,
            "round": t,
            "release_point": site,
            "observer": "server",
            "mechanism": "gaussian",
            "dim": 20,
        }
        facts |= {
            "l2": 0.01,
            "noise": 0.01 * sigma,
            "sampling": 1.0,
            "protected_unit": "one record",
            "relation": "add-or-remove",
        }
        return Row(**facts | {"randomness": "secret entropy", "why": "clipped to 1", "digest": "0"} | more)

    rows = []
    bare = {
        "mechanism": "reveal",
        "l2": None,
        "noise": None,
        "randomness": "none",
        "why": "no protection was asked for",
    }
    for t in range(rounds):
        for silo in clients:
            for step in range(local_steps if version else 0):
                for site, part, batch, share in SITES[str(version)]:
                    sigma = (1.0 if version == "paper:" else 2.0) / math.sqrt(share)
                    sample = {"sampling": 0.2, "part": part, "batch": f"{batch} {step}"}
                    rows.append(row(silo, t, f"{site} {step}", sigma, **sample))
            if not version:
                rows.append(row(silo, t, "model", 1.0, **bare))
    rows += [row(silo, 0, "personal step", 3.0) for silo in newcomers]
    ledger = Ledger(folder / "ledger.jsonl")
    ledger.append(rows)
    return ledger


def result_of(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


def changed(folder: Path, way: list[str | int], value: object) -> Path:
    """The folder, with one value in its result replaced."""
    result = result_of(folder)
    inner: Any = result
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = value
    change(folder, **result)
    return folder


# ---- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answers, changes, sentence",
    [
        ("classes", {}, "from 2 features it tells 3 classes of “activity” apart."),
        ("numbers", {}, "from 2 features it predicts “activity”."),
        ("classes", {"features": [], "shape": [3, 32, 32]}, "from pictures of 3 × 32 × 32 numbers it tells 3 classes"),
    ],
)
def test_the_headline_says_what_was_learned(tmp_path: Path, answers: str, changes: Any, sentence: str) -> None:
    folder = make_run(tmp_path, answers=answers)
    change(folder, task=result_of(folder)["task"] | changes)
    text = Page(build(folder)).text
    assert "6 source clients learned a shared start." in text
    assert "The start is a network of dense layers with 20 parameters. A client takes one step from it on its" in text
    assert sentence in text
    assert "The run took 5 rounds." in text
    assert "from it on its" in Page(build(changed(folder, ["parameters", "personal_steps"], 3))).text
    assert "A client takes 3 steps from it" in Page(build(folder)).text
    changed(folder, ["parameters", "personal_steps"], None)
    assert "A client takes steps from it on its own records" in Page(build(folder)).text


# ---- new clients -----------------------------------------------------------------------------------------------------


def test_new_clients_stand_before_and_after_with_the_worst_first(tmp_path: Path) -> None:
    html = build(make_run(tmp_path))
    rows = table(html, "New clients")
    assert [row[0] for row in rows[1:]] == ["new-03", "new-02", "new-01", "new-00"]
    assert rows[1] == ["new-03", "200", "200", "0.2500", "0.6000", "0.5000", "0.3500 better", "0.2500"]
    assert [cell for cell in rows[0] if "simulation only" in cell] == [
        "Before simulation only",
        "After simulation only",
        "Alone simulation only",
        "Loss after simulation only",
    ]
    assert table(html, "Spread over new clients")[1:] == [
        ["Before", "0.1000", "0.1250", "0.1750", "0.2250", "0.2500", "0.1750"],
        ["After", "0.6000", "0.6500", "0.7500", "0.8500", "0.9000", "0.7500"],
        ["Better by", "0.3500", "0.4250", "0.5750", "0.7250", "0.8000", "0.5750"],
    ]
    assert "Every new client gained by its own records." in html
    assert "Higher is better" in html


def test_the_picture_is_to_scale(tmp_path: Path) -> None:
    picture = build(make_run(tmp_path)).split('aria-label="The accuracy of 4 new clients', 1)[1].split("</svg>", 1)[0]
    dots = re.findall(r'<circle cx="([\d.]+)" cy="[\d.]+" r="5.5"><title>(new-\d+), after: ([\d.]+)</title>', picture)
    bars = re.findall(r'<rect x="([\d.]+)".{30,60}<title>(new-\d+), before: ([\d.]+)</title>', picture)
    assert [name for _, name, _ in dots] == [name for _, name, _ in bars] == ["new-03", "new-02", "new-01", "new-00"]
    ends = [float(x) for x in re.findall(r'<path d="M([\d.]+) 44V', picture)]
    for x, _, value in dots:
        assert float(x) == pytest.approx(ends[0] + (ends[-1] - ends[0]) * float(value), abs=0.1)
    for x, _, value in bars:
        assert float(x) + 1.75 == pytest.approx(ends[0] + (ends[-1] - ends[0]) * float(value), abs=0.1)
    assert picture.count('stroke-dasharray="5 4"') == 2  # the guess, and its legend


def test_of_an_error_less_is_better(tmp_path: Path) -> None:
    folder = make_run(tmp_path, answers="numbers")
    html = build(folder)
    rows = table(html, "New clients")
    assert [row[0] for row in rows[1:]] == ["new-00", "new-01", "new-02", "new-03"]
    assert rows[1][3:7] == ["2.000", "1.500", "0.5000", "0.500 better"]
    assert "Lower is better" in html
    header = html.split("<main>")[0]
    assert "the mean squared error after one step of their own is 1.35 on average, beside 2.075 for the" in header
    assert "No better" not in header
    assert table(html, "Comparison")[1:] == [
        ["This run simulation only", "1.350", "0.550 better", ""],
        ["The start without a step simulation only", "2.075", "0.175 worse", ""],
        ["Each client alone simulation only", "1.600", "0.300 better", ""],
        ["The mean baseline (always the mean a client saw)", "1.900", "–", ""],
    ]


def test_clients_that_gained_nothing_are_counted(tmp_path: Path) -> None:
    folder = changed(make_run(tmp_path), ["new", 1, "after"], 0.05)
    html = build(folder)
    assert "1 client of 4 gained nothing by their own records." in html
    assert "did not use the start" not in html
    assert "2 clients of 4 did not use the start" in build(
        changed(changed(folder, ["new", 0, "left"], True), ["new", 3, "left"], True)
    )
    assert table(html, "New clients")[1] == [
        "new-01",
        "200",
        "200",
        "0.1500",
        "0.0500",
        "0.5000",
        "0.1000 worse",
        "0.2500",
    ]


def test_a_comparison_is_marked_as_simulation_only(tmp_path: Path) -> None:
    folder = make_run(tmp_path, version=None)
    more = [{"method": "Reptile, then the same steps", "score": 0.6}]
    change(folder, comparison=result_of(folder)["comparison"] + more)
    html = build(folder)
    assert table(html, "Comparison")[1:] == [
        ["This run simulation only", "0.7500", "0.4500 better", ""],
        ["The start without a step simulation only", "0.1750", "0.1250 worse", ""],
        ["Each client alone simulation only", "0.3500", "0.0500 better", ""],
        ["Reptile, then the same steps simulation only", "0.6000", "0.3000 better", ""],
        ["The majority baseline (always the class a client saw most)", "0.3000", "–", ""],
    ]
    assert re.findall(r'<td class="bar ([\w ]*)"><span style="width: ([\d.]+)%">', html) == [
        ("simulation only", "100.0"),
        ("simulation only", "23.3"),
        ("simulation only", "46.7"),
        ("simulation only", "80.0"),
        ("baseline", "40.0"),
    ]
    assert (
        "On 800 records that 4 new clients held back, the accuracy after one step of their own is 0.75 on average, "
        "beside 0.175 for the start without a step, 0.35 for each client alone, 0.6 for Reptile, then "
        "the same steps and 0.3 for the majority baseline (always the class a client saw most)." in Page(html).text
    )


def test_a_run_that_is_not_worth_it_says_so(tmp_path: Path) -> None:
    folder = changed(make_run(tmp_path), ["comparison", 0, "score"], 0.35)
    header = build(folder).split("<main>")[0]
    assert '<div class="verdict partial"><strong>New clients</strong>' in header
    assert "No better than each client alone." in header


def test_a_run_without_new_clients_says_so(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, new=0))
    assert "Nothing is known of how well the start serves a new client" in html
    assert "No new client has tried it in this run." in html
    for name in ("New clients", "Comparison", "Spread over new clients"):
        assert f'aria-label="{name}"' not in html
    assert Page(html).tags["svg"] == 2  # movement, and how the budget was spent
    assert table(html, "Guarantees")[1][0] == "Every source client"


def test_many_clients_still_make_a_readable_page(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, sources=300, new=300, rounds=1, version="paper:"))
    assert len(table(html, "New clients")) == 1 + 40
    assert "260 more new clients are only in" in html
    assert "Only 40 of 300 new clients are drawn." in html
    assert len(html.encode()) < 200_000


# ---- how -------------------------------------------------------------------------------------------------------------


def test_the_movement_is_drawn_and_a_round_is_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path, local_steps=3)
    html = build(folder)
    curve = html.split('aria-label="Movement of the start over the rounds', 1)[1].split("</svg>", 1)[0]
    route = re.search(r'<polyline[^>]*points="([^"]*)"', curve)
    assert route
    assert len(route[1].split()) == 5
    text = Page(html).text
    assert "every record is in it with probability 0.2." in text
    assert "After 3 steps the server takes the mean" in text
    assert "The query sample’s curvature says how that depends on the start" in text
    text = Page(build(changed(folder, ["parameters", "order"], "first"))).text
    assert "through the trial step, was left out." in text
    assert "curvature says" not in text
    assert "kept no trace that could be drawn" in build(changed(folder, ["trace"], []))


def test_parameters_have_meanings(tmp_path: Path) -> None:
    rows = table(build(make_run(tmp_path)), "Parameters")
    assert ["rate", "0.2", "the probability that a record is in a sample"] in rows
    assert not any(value == "–" for _, value, _ in rows)  # what the run did not have is left out
    assert all(meaning for *_, meaning in rows)


# ---- what it cost ----------------------------------------------------------------------------------------------------


def test_equal_guarantees_share_a_line_and_the_claim_stands_beside(tmp_path: Path) -> None:
    html = build(make_run(tmp_path))
    everybody = "The server, other clients, eavesdroppers and the public"
    assert table(html, "Guarantees")[1:] == [["Every source client", "4", "10⁻⁵", everybody, "analytic Gaussian"]]
    assert table(html, "What the paper claims")[1:] == [
        ["Every source client", "4", "6.579", "10⁻⁵", "too careful", f"S4 Theorem 1. Defect: {SOUND}"]
    ]
    text = Page(html).text
    box = promise(html)
    assert box["Protected"] == "One row of one source client’s table"
    assert box["Against"] == everybody
    assert box["Strength"].startswith("ε = 4 and δ = 10⁻⁵ ")
    assert "Protected unit: one record. Neighbouring relation: add-or-remove-one: a record's place is left" in text
    assert '<dt>Neighbouring relation</dt><dd class="words">add-or-remove-one</dd>' in html
    assert "Not protected: which clients there are." in text


def test_the_papers_own_version_is_not_called_private_without_more(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, version="paper:"))
    header = html.split("<main>")[0]
    assert '<div class="verdict partial"><strong>Private, but less than the paper claims</strong>' in header
    assert "S4 Theorem 1 claims ε = 4 for this version; that claim is false." in header
    assert table(html, "What the paper claims")[1] == [
        "Every source client",
        "10.85",
        "4",
        "10⁻⁵",
        "too good",
        f"S4 Theorem 1. Defect: {DEFECT}",
    ]
    assert '<dt>Mode</dt><dd class="words">S4’s own version</dd>' in html
    assert "moves it by up to twice that" in html


def test_no_claim_needs_no_table(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    privacy = result_of(folder)["privacy"]
    change(folder, privacy=privacy | {"guarantees": [row | {"claim": None} for row in privacy["guarantees"]]})
    assert "What the paper claims" not in build(folder)


def test_different_guarantees_have_lines_of_their_own_and_the_weakest_come_first(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sources=60, rounds=1)
    result = result_of(folder)
    for index, row in enumerate(result["privacy"]["guarantees"]):
        row["epsilon"] = 1.0 + index // len(OBSERVERS) / 8
    change(folder, **result)
    html = build(folder)
    told = table(html, "Guarantees")
    assert len(told) == 1 + 20
    assert told[1][:2] == ["device-59", "8.375"]
    assert "The least protected come first; 40 source clients more are only in" in html
    for row in result["privacy"]["guarantees"]:
        row["epsilon"] = 1.0 if row["observer"] in ("server", "wire") else 0.5
    change(folder, **result)
    assert [row[1:4] for row in table(build(folder), "Guarantees")[1:]] == [
        ["1", "10⁻⁵", "The server and eavesdroppers"],
        ["0.5", "10⁻⁵", "Other clients and the public"],
    ]


def test_new_clients_that_publish_have_guarantees_of_their_own(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, personal=True))
    assert [row[:2] for row in table(html, "Guarantees")[1:]] == [
        ["Every source client", "4"],
        ["Every new client", "2"],
    ]
    assert [row[0] for row in table(html, "What the paper claims")[1:]] == ["Every source client"]
    assert promise(html)["Strength"].startswith("ε from 2 to 4 and")
    assert "Their models are in the folder models/new." in html
    assert "for a budget of their own" in html
    kept = build(make_run(tmp_path / "kept"))
    assert "Their models stayed with them." in kept
    assert "New clients sent nothing" in kept


def test_nothing_protected_is_said_everywhere(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, version=None))
    text = Page(html).text
    assert '<div class="verdict none"><strong>Not private</strong>' in html
    assert "No privacy protection: whoever hears a client learns its model exactly after every round" in text
    assert "Nothing was shortened and no noise was added" in text
    assert "Released on purpose without protection: model, 30 times, by device-00" in text
    assert "The models of new clients are in the folder models/new as they are." in text
    assert "Where a record’s budget goes" not in text
    assert table(html, "Guarantees")[1][1] == "∞ (no protection)"


def test_a_rehearsal_is_called_one(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    result = result_of(folder)
    for row in result["privacy"]["guarantees"]:
        row["rehearsal"] = True
    change(folder, **result)
    header = build(folder).split("<main>")[0]
    assert "<strong>Rehearsal of privacy</strong>" in header


def test_a_records_budget_is_read_from_the_ledger(tmp_path: Path) -> None:
    # Two releases of one sample: sigma sqrt(2) each, and 1 / sqrt(1 / (2 sigma^2) + 1 / (2 sigma^2)) = sigma together.
    html = build(make_run(tmp_path, local_steps=2, personal=True))
    assert table(html, "Where a record’s budget goes")[1:] == [
        ["The query set", "inner gradient", "10", "0.2", "2.828", "50 %"],
        ["The query set", "curvature", "10", "0.2", "2.828", "50 %"],
        ["The query set", "together", "10", "0.2", "2", "100 %"],
        ["The support set", "outer gradient", "10", "0.2", "2", "100 %"],
        ["All records of a new client", "personal step", "1", "1", "3", "100 %"],
    ]
    assert "is in one of the client’s two sets and is charged only for what is released from that set" in html


def test_what_the_papers_version_takes_from_one_sample_is_paid_by_every_record(tmp_path: Path) -> None:
    # Two releases with the ratio 1: together 1 / sqrt(2).
    html = build(make_run(tmp_path, version="paper:"))
    assert table(html, "Where a record’s budget goes")[1:] == [
        ["All records", "inner gradient", "5", "0.2", "1", "50 %"],
        ["All records", "outer gradient", "5", "0.2", "1", "50 %"],
        ["All records", "together", "5", "0.2", "0.7071", "100 %"],
    ]
    assert "Every record is charged for all that a step releases." in html
    assert "is in one of the client’s two sets" not in html


def test_the_ledger_is_summed_up_with_its_samples(tmp_path: Path) -> None:
    rows = table(build(make_run(tmp_path, local_steps=3, personal=True)), "Summary of the ledger")[1:]
    assert [row[1] for row in rows] == [
        "inner 0, inner 1 and inner 2, from a sample of the query set at the rate 0.2 clipped to 1",
        "outer 0, outer 1 and outer 2, from a sample of the support set at the rate 0.2 clipped to 1",
        "curvature 0, curvature 1 and curvature 2, from a sample of the query set at the rate 0.2 clipped to 1",
        "personal step clipped to 1",
    ]
    assert rows[0][2:7] == ["gaussian", "server", "90", "0 to 4", "20"]
    assert rows[3][0] == "Every new client"
    paper = table(build(make_run(tmp_path / "paper", version="paper:")), "Summary of the ledger")[1:]
    assert paper[0][1] == "inner 0, from a sample of all records at the rate 0.2 clipped to 1"


@pytest.mark.parametrize("order, two", [("second", True), ("first", False)])
def test_what_was_done_is_said(tmp_path: Path, order: str, two: bool) -> None:
    text = Page(build(changed(make_run(tmp_path), ["parameters", "order"], order))).text
    assert "A record’s gradient longer than 1 was shortened to that length" in text
    assert "noise of 2 times what one record can move" in text
    assert ("gave two releases" in text) == two
    assert ("its curvature to 1" in text) == two


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_names_cannot_inject(tmp_path: Path) -> None:
    clean = build(make_run(tmp_path / "clean"))
    sources, new = [NASTY, "../../outside", "C:\\temp", " "], [NASTY + "2", "\u202egpj.exe", "x" * 300, ""]
    folder = make_run(tmp_path / "nasty", sources=sources, new=new)
    result = result_of(folder)
    result["task"] |= {"answers": NASTY, "target": NASTY, "classes": [NASTY], "features": [NASTY]}
    result["model"]["name"] = result["test"]["measure"] = result["comparison"][0]["method"] = NASTY
    result["parameters"] |= {"version": NASTY, "order": NASTY, "device": NASTY, NASTY: NASTY}
    result["privacy"] |= {"notes": [NASTY], "protected_unit": NASTY, "relation": NASTY}
    result["numbers_are"] = {"new": NASTY, "comparison": NASTY}
    for row in result["privacy"]["guarantees"]:
        row["observer"] += NASTY
    change(folder, **result)
    harmless(build(folder), clean)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "nasty"]


@pytest.mark.parametrize(
    "way, odd, message",
    [
        (["clients", 0, "name"], "device-01", "'device-01' comes twice"),
        (["new", 0, "name"], "device-01", "'device-01' comes twice"),
        (["new", 0, "after"], "good", r"new\[0\]\.after: expected a number"),
        (["test"], None, "a test of 4 new clients, but there is none"),
        (["test"], 3, "test: expected a section of named values"),
        (["new"], [], "a test of 0 new clients, but there is one"),
        (["privacy", "guarantees", 0, "site"], "nobody", "a client named in result.json, but found 'nobody'"),
        (["privacy", "guarantees", 0, "observer"], "wire", "comes twice"),
        (
            ["privacy", "guarantees", 0, "observer"],
            "cloud",
            "a guarantee for 'device-00' against 'server', but it is mi",
        ),
        (["privacy", "guarantees", 0, "site"], "new-00", "a guarantee for 'device-00' against 'server'"),
        (["privacy", "guarantees"], [], "a guarantee for 'device-00', but there is none"),
        (["model", "parameters"], 21, "start.npz: expected the 21 parameters of result.json, but found 20"),
        (["ledger"], "91:0123456789abcdef", "a ledger with the 91 rows that were written to it"),
        (["ledger"], 90, "ledger: expected a text"),
    ],
)
def test_a_damaged_result_says_where(tmp_path: Path, way: list[str | int], odd: object, message: str) -> None:
    with pytest.raises(DamageError, match=message):
        build(changed(make_run(tmp_path), way, odd))


def test_a_guarantee_that_is_missing_for_one_client_is_missed(tmp_path: Path) -> None:
    folder = make_run(tmp_path, personal=True)
    privacy = result_of(folder)["privacy"]
    for index, message in ((5, "'device-01' against 'other sites'"), (-1, "'new-03' against 'public'")):
        rows = list(privacy["guarantees"])
        del rows[index]
        change(folder, privacy=privacy | {"guarantees": rows})
        with pytest.raises(DamageError, match=f"a guarantee for {message}, but it is missing"):
            build(folder)


def test_a_ledger_that_was_changed_or_cut_is_refused(tmp_path: Path) -> None:
    path = make_run(tmp_path) / "ledger.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"noise": 0.02,', '"noise": 0.03,', 1))
    with pytest.raises(DamageError, match=r"ledger.jsonl, line 2: expected a ledger row that continues the row before"):
        build(tmp_path)
    path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    with pytest.raises(DamageError, match="a ledger with the 90 rows that were written to it"):
        build(tmp_path)


def test_a_ledger_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    other = write_ledger(folder, ["device-00", "stranger"], [], "sound", 1, 1)
    change(folder, ledger=other.tip)
    with pytest.raises(DamageError, match=r"line 4: expected a client named in result.json, but found 'stranger'"):
        build(folder)


class Planted:
    """What would leave a mark if it were unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_model_file_that_is_something_else_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    path, mark = make_run(tmp_path / "run") / "models" / "start.npz", tmp_path / "mark"
    planted = pickle.dumps(Planted(mark))
    pickle.loads(planted)  # the trap works
    mark.unlink()
    odd = np.array([Planted(mark)] * 20, dtype=object)
    for write in (
        lambda: path.write_bytes(planted),
        lambda: path.write_bytes(b"PK\x03\x04 not a zip"),
        lambda: path.write_bytes(b""),
        lambda: np.savez(path, **{"parameter/1.weight": odd}),
        lambda: np.save(path.open("wb"), np.ones(20)),
    ):
        write()
        with pytest.raises(DamageError, match=r"start.npz: expected an NPZ file of numbers"):
            build(tmp_path / "run")
    assert not mark.exists()
    write_model(path, **{"parameter/1.bias": np.array([1.0, 2.0, 3.0, np.inf])})
    with pytest.raises(DamageError, match=r"start.npz: expected finite numbers"):
        build(tmp_path / "run")
