"""The page of a federation of models says what result.json says, and nothing better."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from pages import NASTY, Page, change, guarantee, harmless, promise, table
from silograph.core.errors import DamageError
from silograph.report.build import build
from silograph.report.read import site_file

OBSERVERS = ("own server", "neighbour", "wire", "public")
PERTURBATION = {"dp": "private", "obfuscation": "homomorphic", "exact": "none"}


def write_model(path: Path, features: list[str], model: list[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("feature", "weight"), *zip(features, map(repr, model), strict=True)])


def make_run(
    folder: Path,
    *,
    regions: int | list[str] = 4,
    features: int | list[str] = 5,
    rounds: int = 20,
    mode: str = "dp",
    **changes: Any,
) -> Path:
    """A run folder as silograph writes it, filled with made-up numbers; `changes` replace keys of result.json."""
    names = [f"region {i}" for i in range(regions)] if isinstance(regions, int) else regions
    inputs = [*(f"feature {i}" for i in range(features)), "intercept"] if isinstance(features, int) else features
    draw, private = random.Random(1), mode == "dp"
    truth = [draw.gauss(0, 1) for _ in inputs]
    models = [[weight + draw.gauss(0, 0.1) for weight in truth] for _ in names]
    centroid = [sum(column) / len(names) for column in zip(*models, strict=True)]
    links = [[a, b, 0.25] for a, b in zip(names, [*names[1:], names[0]], strict=True) if len(names) > 2 or a < b]
    result = {
        "format": 1,
        "method": "graph_federation",
        "task": {"loss": "logistic", "ridge": 0.01, "target": "readmitted", "features": inputs},
        "parameters": {
            "step": 0.5,
            "rounds": rounds,
            "sample": 11,
            "epochs": [1, 10],
            "batch": [5, 10],
            "perturbation": PERTURBATION[mode],
            "clip": 1.0 if private else None,
            "noise": None if mode == "exact" else 0.31,
            "noise_least": None if mode == "exact" else 0.31,
            "masks": "protocol",
        },
        "topology": {"servers": names, "links": links, "weights": "lazy", "spectral_gap": 0.12},
        "regions": [
            {"name": name, "agents": 30 + i, "records": 1200 + i, "model": model, "test_error": 0.2 + 0.01 * i}
            for i, (name, model) in enumerate(zip(names, models, strict=True))
        ],
        "centroid": {"model": centroid, "test_error": 0.1975},
        "test": {"records": 2000, "measure": "error rate", "baseline": 0.2255},
        "disagreement": 0.0123,
        "rounds": rounds,
        "trace": [
            {"round": t, "movement": 0.8**t, "disagreement": 0.01 + 0.7**t, "answered": 40 + t % 5, "skipped": 0}
            for t in range(1, rounds + 1)
        ],
        "privacy": {
            "mode": mode,
            "protected_unit": "all records of one agent",
            "relation": "replace-one",
            "guarantees": [
                guarantee(name, observer, 2.00011 if private and observer != "own server" else "infinity")
                | {"rehearsal": False}
                for name in names
                for observer in OBSERVERS
            ],
            "notes": [],
        },
        "numbers_are": {},
        "plan": "0" * 64,
        "ledger": "4:0123456789abcdef",
        "seed": None if private else 7,
        "versions": {"silograph": "0.1.0", "numpy": "2.4.6"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result | changes), encoding="utf-8")
    for name, model in [*zip(names, models, strict=True), ("centroid", centroid)]:
        write_model(folder / "models" / site_file(name), inputs, model)
    row = {
        "observer": "neighbour",
        "dim": len(inputs),
        "mechanism": "gaussian" if private else "reveal",
        "l2": 0.18 if private else None,
        "noise": 0.31 if private else None,
        "randomness": "secret entropy" if private else "none",
        "why": "clipped mean update" if private else "no budget was given",
    }
    ledger = [
        row | {"silo": name, "round": t, "release_point": "update"} for t in range(1, rounds + 1) for name in names
    ]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger), encoding="utf-8")
    (folder / "plan.toml").write_text('[method]\nname = "graph_federation"  # <as given> & kept\n', encoding="utf-8")
    return folder


def test_one_model_of_all_regions_is_shown_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    same = {"model": result["centroid"]["model"], "test_error": result["centroid"]["test_error"], "records": None}
    for region in result["regions"]:
        write_model(folder / "models" / site_file(region["name"]), result["task"]["features"], same["model"])
    parameters = result["parameters"] | {"learner": "calibrated", "clip": None}
    change(folder, regions=[r | same for r in result["regions"]], disagreement=0.0, parameters=parameters)
    html = build(folder)
    assert table(html, "Regions")[1:] == [
        ["Every region", "30 to 33", "0.1975", "0.0280 better"],
        ["Baseline", "–", "0.2255", "–"],
    ]
    assert table(html, "Weights of the models")[0] == ["Feature", "Every region"]
    text = Page(html).text
    assert "the error rate of the one model of all regions is 0.1975, beside 0.2255 for the majority baseline" in text
    # What bounds an agent follows from public numbers there, and is no setting of the plan.
    assert "was shortened to a length that follows from public numbers" in text
    assert "nothing bounds" not in text


def test_a_model_of_a_constant_alone_says_so_first_and_has_no_delta(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    plain = Page(build(folder)).text
    assert "The models are constants" not in plain
    assert "(ε, δ)-differential privacy" in plain
    pure = [row | {"delta": 0.0} for row in result["privacy"]["guarantees"]]
    privacy = result["privacy"] | {"guarantees": pure}
    none = [[0.0] * (len(region["model"]) - 1) + [8.8] for region in result["regions"]]
    regions = [region | {"model": model} for region, model in zip(result["regions"], none, strict=True)]
    for region in regions:
        write_model(folder / "models" / site_file(region["name"]), result["task"]["features"], region["model"])
    change(folder, regions=regions, privacy=privacy)
    text = Page(build(folder)).text
    assert "Every region has its own constant for “readmitted”, in which 5 features weigh nothing" in text
    assert text.index("The models are constants, the mean answer") < text.index("On ")
    assert "ε-differential privacy over the whole run" in text
    assert "There is no δ" in text


def test_the_headline_counts_agents_regions_features_and_rounds(tmp_path: Path) -> None:
    text = Page(build(make_run(tmp_path))).text
    assert "126 agents in 4 regions learned models together." in text
    assert "its own logistic model of “readmitted” from 5 features and an intercept" in text
    assert "The run took 20 rounds." in text
    assert "1 region learned a model together" in Page(build(make_run(tmp_path / "one", regions=1))).text


def test_test_errors_stand_beside_the_baseline(tmp_path: Path) -> None:
    html = build(make_run(tmp_path))
    rows = table(html, "Regions")
    assert rows[1] == ["region 0", "30", "1,200", "0.2000", "0.0255 better"]
    assert rows[4] == ["region 3", "33", "1,203", "0.2300", "0.0045 worse"]
    assert rows[5] == ["Centroid", "–", "–", "0.1975", "0.0280 better"]
    assert rows[6] == ["Baseline", "–", "–", "0.2255", "–"]
    assert (
        "Better than the majority baseline (always the commoner class). On 2,000 test records the error rate of the "
        "centroid is 0.1975, beside 0.2255 for the majority baseline (always the commoner class). The regions’ own "
        "models have 0.2 to 0.23; 1 of 4 regions did no better than the majority baseline" in Page(html).text
    )


@pytest.mark.parametrize(
    "alone, look, said", [(0.21, "", "Better than each region alone"), (0.19, "partial", "No bett")]
)
def test_the_top_says_whether_sharing_was_worth_it(tmp_path: Path, alone: float, look: str, said: str) -> None:
    """A model of all records in one place, which privacy keeps apart, need not be beaten."""
    rows = [("this run", 0.1975), ("one model without privacy", 0.15), ("each region alone, without privacy", alone)]
    comparison = [{"method": name, "test_error": error} for name, error in rows]
    folder = make_run(tmp_path, comparison=comparison)
    result = json.loads((folder / "result.json").read_text())
    change(folder, regions=[region | {"test_error": 0.2} for region in result["regions"]])
    header = build(folder).split("<main>")[0]
    assert f'<div class="verdict {look}"><strong>Accuracy</strong>' in header
    told = Page(
        header[header.index("<strong>Accuracy") : header.index("</p>", header.index("<strong>Accuracy"))] + "</p>"
    )
    assert said in told.text
    assert "one model without privacy" in told.text.split("On 2,000")[0]


def test_models_that_were_not_tested_say_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path, test=None)
    result = json.loads((folder / "result.json").read_text())
    for model in (*result["regions"], result["centroid"]):
        model["test_error"] = None
    change(folder, regions=result["regions"], centroid=result["centroid"])
    html = build(folder)
    assert "they were not tested" in html
    assert table(html, "Regions")[1] == ["region 0", "30", "1,200"]


def test_weights_are_those_of_the_result(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    result, html = json.loads((folder / "result.json").read_text()), build(folder)
    rows = table(html, "Weights of the models")
    assert rows[0] == ["Feature", "Centroid", *(region["name"] for region in result["regions"])]
    models = [result["centroid"]["model"], *(region["model"] for region in result["regions"])]
    for index, (name, row) in enumerate(zip(result["task"]["features"], rows[1:], strict=True)):
        assert row[0] == name
        assert [float(cell.replace("−", "-")) for cell in row[1:]] == pytest.approx(
            [m[index] for m in models], abs=1e-3
        )
    picture = html.split('aria-label="Weights of 6 features in 4 regions', 1)[1].split("</svg>", 1)[0]
    assert picture.count("<title>") == 6 * (4 + 1)


def test_many_regions_and_features_still_make_a_readable_page(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, regions=120, features=90))
    assert "Only the 40 features that weigh most in the centroid, of 91, are shown." in html
    assert "Only the first 100 of 120 regions are drawn." in html
    assert "for the first 12 of 120 regions" in html
    assert len(html.encode()) < 2_000_000


def test_the_server_graph_draws_every_link(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, regions=6))
    picture = html.split('aria-label="Graph of servers: 6 servers, 6 links"', 1)[1].split("</svg>", 1)[0]
    assert re.findall(r"<title>(region \d – region \d): 0.25", picture) != []
    assert picture.count("<path") == 6
    assert "lazy Metropolis weights" in html
    assert "The spectral gap is 0.12" in html
    alone = build(make_run(tmp_path / "alone", regions=1))
    assert "1 server, 0 links." in alone


def test_regions_with_equal_guarantees_share_a_line(tmp_path: Path) -> None:
    rows = table(build(make_run(tmp_path)), "Guarantees")
    finite = "2.001 at 10⁻⁵"
    assert rows == [
        ["Region", "Own server", "Neighbour", "Wire", "Public", "Accountant"],
        ["Every region", "none", finite, finite, finite, "analytic Gaussian"],
    ]


def test_regions_with_different_guarantees_do_not(tmp_path: Path) -> None:
    folder = make_run(tmp_path, regions=["a", "b", "c"])
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    rows = [guarantee("a", "public", 0.50001), guarantee("b", "public", "infinity"), guarantee("b", "wire", 2.0)]
    change(folder, privacy=privacy | {"guarantees": [row | {"rehearsal": False} for row in rows]})
    html = build(folder)
    assert table(html, "Guarantees") == [
        ["Region", "Wire", "Public", "Accountant"],
        ["a", "not stated", "0.5001 at 10⁻⁵", "analytic Gaussian"],
        ["b", "2 at 10⁻⁵", "none", "analytic Gaussian"],
        ["c", "not stated", "not stated", "–"],
    ]
    text = Page(html).text
    assert promise(html)["Protected"] == "One agent, with all its records, only at a and b"
    assert promise(html)["Strength"].startswith("ε from 0.5001 to 2 and")
    assert "No guarantee is stated for c: assume none." in text


@pytest.mark.parametrize(
    "mode, look, label",
    [
        ("dp", "partial", "Private in part"),
        ("obfuscation", "partial", "Obfuscation only: not differential privacy"),
        ("exact", "none", "Not private"),
    ],
)
def test_a_mode_has_its_honest_name_in_the_header(tmp_path: Path, mode: str, look: str, label: str) -> None:
    html = build(make_run(tmp_path, mode=mode))
    header = html[: html.index("<main>")]
    assert f'<div class="verdict {look}"><strong>{label}</strong>' in header
    box = promise(html)
    assert box.get("Strength", "").startswith("ε = 2.001 and δ = 10⁻⁵") == (mode == "dp") == bool(box)
    assert label in header
    assert ("No protection against an agent’s own server" in box.get("Not protected", "")) == (mode == "dp")


def test_private_needs_every_observer(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    privacy["guarantees"] = [row for row in privacy["guarantees"] if row["observer"] != "own server"]
    change(folder, privacy=privacy)
    html = build(folder)
    assert '<div class="verdict full"><strong>Private</strong>' in html
    assert promise(html)["Against"] == "Neighbouring servers, eavesdroppers and the public"


def test_an_epsilon_under_obfuscation_is_no_guarantee(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="obfuscation")
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    privacy["guarantees"][1]["epsilon"] = 0.1
    change(folder, privacy=privacy)
    html = build(folder)
    assert promise(html) == {}
    assert "Obfuscation only" in html
    assert "Protected unit" not in html


def test_a_rehearsal_is_not_private(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    rows = [row | {"rehearsal": True} for row in privacy["guarantees"] if row["observer"] == "public"]
    change(folder, privacy=privacy | {"guarantees": rows}, seed=11)
    html = build(folder)
    assert "<strong>Rehearsal of privacy</strong>" in html
    assert "drawn from the seed 11 printed below" in html


def test_what_was_and_was_not_protected_is_said(tmp_path: Path) -> None:
    text = Page(build(make_run(tmp_path))).text
    assert "A server saw the sum, but no single answer." in text
    assert "Its standard deviation is 0.31 in each coordinate." in text
    assert "longer than 1 was shortened to that length" in text
    assert "Against an agent’s own server there is no protection (ε = ∞) for any region." in text
    text = Page(build(make_run(tmp_path / "open", mode="exact"))).text
    assert "No privacy protection: whoever hears a server" in text
    assert "nothing bounds how far one agent can move a model" in text
    assert "Released on purpose without protection: update, 80 times" in text


def test_a_papers_claim_stands_beside_the_accounted_number(tmp_path: Path) -> None:
    folder = make_run(tmp_path, regions=["a", "b"], mode="obfuscation")
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    claim = {"epsilon": 12.34561, "delta": None, "basis": "Theorem 2", "defect": "L2 in a Laplace"}
    for row in privacy["guarantees"]:
        if row["observer"] in ("neighbour", "wire") or (row["site"], row["observer"]) == ("b", "public"):
            row["claim"] = claim
    change(folder, privacy=privacy)
    rest = ["∞ (no protection)", "12.35", "–", "Theorem 2. Defect: L2 in a Laplace"]
    assert table(build(folder), "What papers claim")[1:] == [
        ["Every region", "neighbour and wire", *rest],
        ["b", "public", *rest],
    ]


def test_the_ledger_is_summed_up_by_mechanism(tmp_path: Path) -> None:
    rows = table(build(make_run(tmp_path, regions=6)), "Summary of the ledger")
    assert len(rows) == 2
    assert rows[1][:6] == [
        "Every region",
        "update clipped mean update",
        "gaussian",
        "neighbour",
        "120",
        "1 to 20",
    ]


def test_parameters_have_meanings(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="exact")
    parameters = json.loads((folder / "result.json").read_text())["parameters"]
    change(folder, parameters=parameters | {"batch": None, "steps": [1, 1]})
    rows = table(build(folder), "Parameters")
    assert ["batch", "all", "how many records an agent uses for a local step"] in rows
    assert ["epochs", "1 to 10", "how many local steps an agent takes in a round"] in rows
    assert not any(name == "clip" for name, *_ in rows)
    assert ["steps", "1", ""] in rows
    assert sum(not meaning for *_, meaning in rows) == 1


def test_regions_that_sat_out_are_counted(tmp_path: Path) -> None:
    trace = [{"round": t, "movement": 0.0, "disagreement": 0.0, "answered": t, "skipped": t} for t in (1, 2)]
    text = Page(build(make_run(tmp_path, trace=trace))).text
    assert "3 times a region sat out a round" in text
    assert "kept no trace that could be drawn" in text


def test_names_cannot_inject(tmp_path: Path) -> None:
    regions = [NASTY, "../../outside", "C:\\temp", " ", "\u202egpj.exe"]
    clean = build(make_run(tmp_path / "clean", regions=5))
    folder = make_run(tmp_path / "nasty", regions=regions, features=[NASTY, "a,b", "line\nbreak", "x" * 300, ""])
    result = json.loads((folder / "result.json").read_text())
    result["task"] |= {"loss": NASTY, "target": NASTY}
    result["topology"]["weights"] = result["test"]["measure"] = NASTY
    result["parameters"] |= {"perturbation": NASTY, "masks": NASTY, NASTY: [NASTY, None]}
    result["privacy"]["notes"] = [NASTY]
    for row in result["privacy"]["guarantees"]:
        row["observer"] += NASTY
    change(folder, **result)
    harmless(build(folder), clean)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "nasty"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"topology": {"servers": ["a"], "links": [["a", "z", 1]]}}, "a node named in result.json, but found 'z'"),
        ({"topology": {"servers": ["a"], "links": [["a", "a", 1]]}}, "an edge between two nodes"),
        ({"topology": {"servers": ["a", "b"], "links": [["a", "b", -1]]}}, "a finite weight above 0"),
        ({"topology": {"servers": ["a", "b"], "links": [["a", 1, "b"]]}}, "expected a text, but found 1"),
        ({"centroid": {"model": [1.0], "test_error": None}}, "a weight for each of 6 features"),
        ({"test": 3}, "test: expected a section of named values"),
    ],
)
def test_a_damaged_result_says_where(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = make_run(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    nested = {key: result[key] | value if isinstance(value, dict) else value for key, value in changes.items()}
    change(folder, **nested)
    with pytest.raises(DamageError, match=message):
        build(folder)


@pytest.mark.parametrize("change_of", [{"site": "nobody"}, {"observer": "public"}])
def test_a_guarantee_for_nobody_or_given_twice_is_refused(tmp_path: Path, change_of: dict[str, str]) -> None:
    folder = make_run(tmp_path)
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    privacy["guarantees"][0] |= change_of
    change(folder, privacy=privacy)
    with pytest.raises(DamageError, match=r"a region named in result\.json|comes twice"):
        build(folder)


@pytest.mark.parametrize(
    "text, message",
    [
        ("weight\n1\n", "the columns feature,weight"),
        ("feature,weight\nfeature 1,1\nfeature 0,1\n", "the features of result.json"),
        ("feature,weight\nfeature 0,1\nfeature 1,heavy\n", "line 2: expected the weight"),
    ],
)
def test_a_model_file_that_differs_from_the_result_is_refused(tmp_path: Path, text: str, message: str) -> None:
    folder = make_run(tmp_path, features=["feature 0", "feature 1"])
    (folder / "models" / "region 1.csv").write_text(text)
    with pytest.raises(DamageError, match=message):
        build(folder)


def test_the_disagreement_is_also_told_in_decibels(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, disagreement=0.05))
    assert '0.05 <span class="quiet small">−13.0 dB</span>' in html
    assert 'aria-label="Disagreement over the rounds, in dB"' in html


def test_personal_models_stand_beside_the_shared_one_and_the_guess(tmp_path: Path) -> None:
    folder = make_run(tmp_path, regions=["a", "b"])
    result = json.loads((folder / "result.json").read_text())
    picture = build(folder).split('aria-label="Picture of the test errors"', 1)[1].split("</svg>", 1)[0]
    for region in result["regions"]:
        assert f"{region['name']}: {region['test_error']:g}</title>" in picture
    assert f"centroid: {result['centroid']['test_error']:g}</title>" in picture
    assert "baseline" in picture
    change(folder, test=None)
    assert "Picture of the test errors" not in build(folder)
