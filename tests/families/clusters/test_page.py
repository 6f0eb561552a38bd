"""The page of clustered models says what result.json says, and nothing better."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pages import NASTY, Page, change, guarantee, harmless, promise, table
from silograph.core.errors import DamageError
from silograph.report.build import build

OBSERVERS = ("own server", "neighbour", "another agent", "wire", "public")
CLUSTERS = ["asthma", "copd", "flu"]


def write_rows(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def make_run(
    folder: Path,
    *,
    servers: int | list[str] = 4,
    wards: int = 6,
    clusters: list[str] = CLUSTERS,
    features: int | list[str] = 5,
    rounds: int = 20,
    protect: str = "records",
    **changes: Any,
) -> Path:
    """A run folder as silograph writes it, filled with made-up numbers; `changes` replace keys of result.json."""
    names = [f"server {i}" for i in range(servers)] if isinstance(servers, int) else servers
    inputs = [*(f"feature {i}" for i in range(features)), "intercept"] if isinstance(features, int) else features
    draw, private, count = random.Random(1), protect != "none", len(clusters)
    homes = [(f"{name}/ward-{k:02}", name, clusters[k % count]) for name in names for k in range(wards)]
    models = {name: [draw.gauss(0, 1) for _ in inputs] for name in clusters}
    links = [[a, b, 0.25] for a, b in zip(names, [*names[1:], names[0]], strict=True) if len(names) > 2 or a < b]
    cells = [f"{name}/cluster-{q}" for name in names for q in range(count)]
    sites = {"none": names, "records": [name for name, *_ in homes], "clients": cells}[protect]
    result = {
        "format": 1,
        "method": "clustered_admm",
        "task": {"loss": "logistic", "ridge": 0.01, "target": "stay", "features": inputs},
        "parameters": {
            "penalty": 3.0,
            "rounds": rounds,
            "tau": "learned",
            "tau_decay": 1.0,
            "form": "others",
            "weights": "mixing",
            "step": "linearised",
            "sample": None,
            "protect": protect,
            "clip": 1.0 if private else None,
            "radius": None,
            "masks": "protocol" if protect == "clients" else "none",
            "noise": 0.31 if private else None,
            "found": False,
        },
        "topology": {"servers": names, "links": links, "weights": "lazy", "spectral_gap": 0.12},
        "clusters": [
            {"name": name, "clients": sum(of == name for *_, of in homes), "model": models[name]}
            | {"test_error": 0.19 + 0.02 * q}
            for q, name in enumerate(clusters)
        ],
        "exchange": [[1 - 0.1 * (count - 1) if q == r else 0.1 for r in range(count)] for q in range(count)],
        "clients": [
            {"name": name, "server": server, "cluster": of, "test_error": 0.15 + 0.004 * k}
            for k, (name, server, of) in enumerate(homes)
        ],
        "comparison": [{"method": "this run", "test_error": 0.1975}]
        + ([] if private else [{"method": "each client alone", "test_error": 0.31}])
        + ([] if private else [{"method": "one model for all", "test_error": 0.21}]),
        "test": {"records": 2000, "measure": "error rate", "baseline": 0.2255},
        "disagreement": 0.0123,
        "rounds": rounds,
        "trace": [
            {"round": t, "movement": 0.8**t, "disagreement": 0.01 + 0.7**t, "answered": 40 + t % 5, "skipped": 0}
            for t in range(1, rounds + 1)
        ],
        "privacy": {
            "mode": "dp" if private else "exact",
            "protected_unit": "one record",
            "relation": "replace-one",
            "guarantees": [
                guarantee(site, observer, 2.00011 if private else "infinity", rehearsal=False)
                for site in sites
                for observer in OBSERVERS
            ],
            "notes": [],
        },
        "numbers_are": {"test_error": "released", "comparison": "simulation only"},
        "plan": "0" * 64,
        "ledger": "4:0123456789abcdef",
        "seed": None if private else 7,
        "versions": {"silograph": "0.1.0", "numpy": "2.4.6"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result | changes), encoding="utf-8")
    write_rows(folder / "models" / "clusters.csv", [("cluster", *inputs), *((q, *w) for q, w in models.items())])
    own = [(name, of, *models[of]) for name, _, of in homes]
    write_rows(folder / "models" / "clients.csv", [("client", "cluster", *inputs), *own])
    row = {
        "observer": "own server",
        "dim": len(inputs),
        "mechanism": "gaussian" if private else "reveal",
        "l2": 0.18 if private else None,
        "noise": 0.31 if private else None,
        "randomness": "secret entropy" if private else "none",
        "why": "bounded gradients" if private else "no budget was given",
    }
    ledger = [
        row | {"silo": name, "round": t, "release_point": "model"} for t in range(1, rounds + 1) for name in sites
    ]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger), encoding="utf-8")
    (folder / "plan.toml").write_text('[method]\nname = "clustered_admm"  # <as given> & kept\n', encoding="utf-8")
    return folder


def result_of(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


def test_the_headline_says_whose_models_they_are(tmp_path: Path) -> None:
    text = Page(build(make_run(tmp_path, protect="none"))).text
    assert "24 clients of 4 servers, in 3 clusters, learned models together." in text
    assert (
        "Every client has its own logistic model of “stay” from 5 features and an intercept. The clusters were g"
        in text
    )
    assert "The run took 20 rounds." in text
    folder = make_run(tmp_path / "private")
    change(folder, parameters=result_of(folder)["parameters"] | {"found": True})
    text = Page(build(folder)).text
    assert "this page shows the model that its server holds for its cluster" in text
    assert "The clusters were found by the run." in text


def test_a_comparison_is_marked_as_simulation_only(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, protect="none"))
    assert table(html, "Comparison")[1:] == [
        ["This run released", "0.1975", "0.0280 better", ""],
        ["Each client alone simulation only", "0.3100", "0.0845 worse", ""],
        ["One model for all simulation only", "0.2100", "0.0155 better", ""],
        ["The majority baseline (always the commoner class)", "0.2255", "–", ""],
    ]
    assert re.findall(r'<td class="bar ([\w ]*)"><span style="width: ([\d.]+)%">', html) == [
        ("released", "63.7"),
        ("simulation only", "100.0"),
        ("simulation only", "67.7"),
        ("baseline", "72.7"),
    ]
    assert (
        "Better than each client alone, one model for all and the majority baseline (always the commoner class). "
        "On 2,000 test records the error rate is 0.1975, beside 0.31 for each client alone, 0.21 for one model for all "
        "and 0.2255 for the majority baseline (always the commoner class)." in Page(html).text
    )
    assert "No better than" not in html[: html.index("<main>")]


def test_a_run_that_is_not_worth_it_says_so(tmp_path: Path) -> None:
    rows = [{"method": "this run", "test_error": 0.22}, {"method": "one model for all", "test_error": 0.22}]
    header = build(make_run(tmp_path, comparison=rows)).split("<main>")[0]
    assert '<div class="verdict partial"><strong>Accuracy</strong>' in header
    assert "No better than one model for all." in header


def test_clusters_are_those_of_the_result(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    html, result = build(folder), result_of(folder)
    assert table(html, "Clusters")[1:] == [
        ["asthma", "8", "4", "0.1900", "0.0355 better"],
        ["copd", "8", "4", "0.2100", "0.0155 better"],
        ["flu", "8", "4", "0.2300", "0.0045 worse"],
    ]
    rows = table(html, "Weights of the clusters’ models")
    assert rows[0] == ["Feature", *CLUSTERS]
    for index, (name, row) in enumerate(zip(result["task"]["features"], rows[1:], strict=True)):
        weights = [cluster["model"][index] for cluster in result["clusters"]]
        assert row[0] == name
        assert [float(cell.replace("−", "-")) for cell in row[1:]] == pytest.approx(weights, abs=1e-3)


def test_the_exchange_is_a_table_with_numbers(tmp_path: Path) -> None:
    exchange = [[0.6, 0.3, 0.1], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    html = build(make_run(tmp_path, exchange=exchange))
    assert table(html, "Exchange between clusters") == [
        ["Takes from", "asthma", "copd", "flu"],
        ["asthma", "0.600", "0.300", "0.100"],
        ["copd", "0.250", "0.750", "0.000"],
        ["flu", "0.000", "0.000", "1.000"],
    ]
    assert re.findall(r"--depth: (\d+)%", html) == ["24", "12", "4", "10", "30", "0", "0", "0", "40"]
    assert "asthma and copd borrowed from others. The share that clusters keep of their own models is 0.6 to 1." in html
    identity = [[float(q == r) for r in range(3)] for q in range(3)]
    assert "every cluster learned only from its own clients" in build(make_run(tmp_path / "none", exchange=identity))
    alone = build(make_run(tmp_path / "one", clusters=["all"]))
    assert "nobody to borrow from" in alone
    assert "Exchange between clusters" not in alone


def test_clients_come_with_the_worst_first(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    result = result_of(folder)
    result["clients"][3]["test_error"] = None
    change(folder, clients=result["clients"])
    rows, text = table(build(folder), "Clients"), Page(build(folder)).text
    assert len(rows) == 1 + 24
    assert rows[1] == ["server 3/ward-05", "server 3", "flu", "0.2420", "0.0165 worse"]
    assert rows[-1] == ["server 0/ward-03", "server 0", "asthma", "–", "–"]
    assert "The test errors of 23 clients are 0.15 to 0.242, in the middle 0.198." in text
    assert (
        "5 clients did no better than the majority baseline (always the commoner class). 1 client had no test records."
        in text
    )


def test_clients_that_all_do_better_than_the_guess_are_praised(tmp_path: Path) -> None:
    text = Page(build(make_run(tmp_path, wards=3))).text
    assert (
        "are 0.15 to 0.194, in the middle 0.174. All did better than the majority baseline (always the commoner class)."
        in text
    )


def test_many_clients_clusters_and_features_still_make_a_readable_page(tmp_path: Path) -> None:
    many = [f"cluster {q}" for q in range(15)]
    html = build(make_run(tmp_path, servers=10, wards=60, clusters=many, features=90))
    assert len(table(html, "Clients")) == 1 + 40
    assert "560 more clients are not listed here." in html
    assert html.count("Only the first 12 of 15 clusters are shown.") == 2
    assert "Only the 40 features that weigh most, of 91, are shown." in html
    assert len(html.encode()) < 500_000


def test_models_that_were_not_tested_say_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path, test=None)
    result = result_of(folder)
    for row in (*result["clusters"], *result["clients"], *result["comparison"]):
        row["test_error"] = None
    change(folder, **result)
    html = build(folder)
    assert "they were not tested" in html
    assert "No client’s model was tested." in html
    assert 'aria-label="Comparison"' not in html
    assert table(html, "Clusters")[1] == ["asthma", "8", "4"]
    assert table(html, "Clients")[1] == ["server 0/ward-00", "server 0", "asthma"]


@pytest.mark.parametrize(
    "weights, sentence",
    [
        ("mixing", "Servers combined their models with lazy Metropolis weights"),
        ("uniform", "Servers took the plain mean over their neighbours and themselves"),
        ("alone", "Servers did not combine their models"),
    ],
)
def test_how_servers_combined_is_said(tmp_path: Path, weights: str, sentence: str) -> None:
    folder = make_run(tmp_path)
    change(folder, parameters=result_of(folder)["parameters"] | {"weights": weights})
    html = build(folder)
    picture = html.split('aria-label="Graph of servers: 4 servers, 4 links"', 1)[1].split("</svg>", 1)[0]
    assert picture.count("<path") == 4
    assert sentence in html
    assert ("The spectral gap is 0.12" in html) == (weights == "mixing")


@pytest.mark.parametrize("protect, whom", [("records", "client"), ("clients", "cell"), ("none", "server")])
def test_equal_guarantees_share_a_line(tmp_path: Path, protect: str, whom: str) -> None:
    html = build(make_run(tmp_path, protect=protect))
    cost = ["none"] * 5 + ["–"] if protect == "none" else ["2.001 at 10⁻⁵"] * 5 + ["analytic Gaussian"]
    assert table(html, "Guarantees") == [
        [whom.capitalize(), "Own server", "Neighbour", "Another agent", "Wire", "Public", "Accountant"],
        [f"Every {whom}", *cost],
    ]
    box = promise(html)
    if protect == "none":
        assert box == {}
    else:
        whole = {"records": "One row of one client’s table", "clients": "One client, with all its records"}
        assert box["Protected"] == whole[protect]
        assert box["Strength"].startswith("ε = 2.001 and")
    assert "No guarantee is stated" not in html


def test_different_guarantees_are_grouped_and_the_weakest_come_first(tmp_path: Path) -> None:
    folder = make_run(tmp_path, servers=["a"], wards=60)
    privacy, clients = result_of(folder)["privacy"], result_of(folder)["clients"]
    rows = [guarantee(of["name"], "public", 1.0 + max(k - 10, 0) / 8, rehearsal=False) for k, of in enumerate(clients)]
    change(folder, privacy=privacy | {"guarantees": rows})
    html = build(folder)
    told = table(html, "Guarantees")
    assert len(told) == 1 + 20
    assert told[1][:2] == ["a/ward-59", "7.125 at 10⁻⁵"]
    assert "The least protected come first; 40 clients more are only in" in html
    change(folder, privacy=privacy | {"guarantees": rows[:13]})
    told = table(build(folder), "Guarantees")
    assert [row[1] for row in told[1:]] == ["1 at 10⁻⁵", "1.125 at 10⁻⁵", "1.25 at 10⁻⁵", "not stated"]
    assert told[1][0] == "a/ward-00, a/ward-01, a/ward-02 and 8 more"


def test_a_cell_is_called_by_its_clusters_name_and_an_empty_one_not_at_all(tmp_path: Path) -> None:
    folder = make_run(tmp_path, servers=["north", "south"], wards=2, protect="clients")
    privacy = result_of(folder)["privacy"]
    for row in privacy["guarantees"]:
        if row["site"] == "north/cluster-1":
            row["epsilon"] = 3.0
    change(folder, privacy=privacy)
    told = table(build(folder), "Guarantees")
    assert [row[0] for row in told] == ["Cell", "north/asthma, south/asthma and south/copd", "north/copd"]
    named = [row | {"site": row["site"].replace("cluster-1", "copd")} for row in privacy["guarantees"]]
    change(folder, privacy=privacy | {"guarantees": [row for row in named if row["site"].endswith("copd")]})
    assert "No guarantee is stated for north/asthma and south/asthma: assume none." in build(folder)


@pytest.mark.parametrize(
    "protect, sentences",
    [
        ("none", ["No noise was added", "saw every single answer of its clients", "Nothing bounds how far one"]),
        ("records", ["before it left the client", "deviation is at most 0.31", "A record’s gradient longer than"]),
        ("clients", ["The sum over the clients of a server", "no single answer", "A client’s answer longer than"]),
    ],
)
def test_what_was_and_was_not_protected_is_said(tmp_path: Path, protect: str, sentences: list[str]) -> None:
    text = Page(build(make_run(tmp_path, protect=protect))).text
    for sentence in sentences:
        assert sentence in text
    assert ("No privacy protection: whoever hears" in text) == (protect == "none")


def test_parameters_have_meanings(tmp_path: Path) -> None:
    rows = table(build(make_run(tmp_path)), "Parameters")
    assert ["sample", "all", "how many clients of each server are asked in a round"] in rows
    assert ["found", "no", "whether the run found the clusters, or they were given"] in rows
    assert not any(value == "–" for _, value, _ in rows)  # what the run did not have is left out
    assert all(meaning for *_, meaning in rows)
    folder = make_run(tmp_path / "effects")
    parts = {
        "clients_constant": 0.0015,
        "clients_slopes": [0.5, 0.0, 0.25],
        "clusters_constant": 0.5,
        "clusters_slopes": 2.0,
    }
    change(folder, parameters=result_of(folder)["parameters"] | {"variances": parts})
    (told,) = (value for name, value, _ in table(build(folder), "Parameters") if name == "variances")
    assert "clients slopes: 0 to 0.5" in told
    assert "{" not in told


def test_cells_that_sat_out_are_counted(tmp_path: Path) -> None:
    trace = [{"round": t, "movement": 0.0, "disagreement": 0.0, "answered": t, "skipped": t} for t in (1, 2)]
    text = Page(build(make_run(tmp_path, trace=trace))).text
    assert "3 times a server heard from no client of a cluster" in text
    assert "kept no trace that could be drawn" in text


def test_the_ledger_is_summed_up_by_mechanism(tmp_path: Path) -> None:
    rows = table(build(make_run(tmp_path)), "Summary of the ledger")
    assert len(rows) == 2
    assert rows[1][2:6] == ["gaussian", "own server", "480", "1 to 20"]


def test_names_cannot_inject(tmp_path: Path) -> None:
    servers, clusters = [NASTY, "../../outside", "C:\\temp", " "], [NASTY, "\u202egpj.exe", ""]
    clean = build(make_run(tmp_path / "clean"))
    features = [NASTY, "a,b", "line\nbreak", "x" * 300, ""]
    folder = make_run(tmp_path / "nasty", servers=servers, clusters=clusters, features=features)
    result = result_of(folder)
    result["task"] |= {"loss": NASTY, "target": NASTY}
    result["topology"]["weights"] = result["test"]["measure"] = result["comparison"][0]["method"] = NASTY
    result["parameters"] |= {"masks": NASTY, "weights": NASTY, "tau": NASTY, NASTY: [NASTY, None]}
    result["privacy"]["notes"] = [NASTY]
    result["numbers_are"] = {"test_error": NASTY, "comparison": NASTY}
    for row in result["privacy"]["guarantees"]:
        row["observer"] += NASTY
    change(folder, **result)
    harmless(build(folder), clean)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "nasty"]


@pytest.mark.parametrize(
    "way, odd, message",
    [
        (["exchange"], [[1.0]], "3 rows of 3 numbers"),
        (["exchange", 1], [0.5, 0.6, 0.0], r"exchange\[1\]: expected shares that add up to 1"),
        (["clients", 0, "server"], "nowhere", "a server named in result.json, but found 'nowhere'"),
        (["clients", 0, "cluster"], "gout", "a cluster named in result.json, but found 'gout'"),
        (["clients", 0, "name"], "server 0/ward-01", "'server 0/ward-01' comes twice"),
        (["clusters", 0, "name"], "flu", "'flu' comes twice"),
        (["clusters", 0, "clients"], 9, "the 8 that are listed, but found 9"),
        (["clusters", 0, "model"], [1.0], "a weight for each of 6 features"),
        (["privacy", "guarantees", 0, "site"], "nobody", "a client named in result.json, but found 'nobody'"),
        (["privacy", "guarantees", 0, "observer"], "public", "comes twice"),
        (["test"], 3, "test: expected a section of named values"),
    ],
)
def test_a_damaged_result_says_where(tmp_path: Path, way: list[str | int], odd: object, message: str) -> None:
    folder = make_run(tmp_path)
    result = result_of(folder)
    inner: Any = result
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = odd
    change(folder, **result)
    with pytest.raises(DamageError, match=message):
        build(folder)


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("clusters.csv", "cluster,", "group,", "the columns cluster,feature 0"),
        ("clusters.csv", "copd,", "gout,", "the clusters of result.json in their order"),
        ("clusters.csv", "copd,", "copd,1", "line 3: expected the weight"),
        ("clients.csv", "server 0/ward-01,copd", "server 0/ward-01,flu", "the clients of result.json in their order"),
        ("clients.csv", "server 0/ward-01,copd,", "server 0/ward-01,copd,heavy", "line 3: expected a number"),
    ],
)
def test_a_model_file_that_differs_from_the_result_is_refused(
    tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    path = make_run(tmp_path) / "models" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DamageError, match=message):
        build(tmp_path)


def test_every_client_is_a_dot_in_the_row_of_its_cluster(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    picture = build(folder).split('aria-label="Picture of the clients’ test errors"', 1)[1].split("</svg>", 1)[0]
    for client in result["clients"]:
        assert (f"{client['cluster']}, {client['name']}: " in picture) == (client["test_error"] is not None)
    assert picture.count("<rect") == len(result["clusters"]) + 1  # and one in the legend


def test_squared_errors_are_also_told_in_decibels_of_the_guess(tmp_path: Path) -> None:
    test = {"records": 100, "measure": "mean squared error", "baseline": 10.0}
    rows = [{"method": "this run", "test_error": 1.0}, {"method": "one model for all", "test_error": 20.0}]
    html = build(make_run(tmp_path / "squared", test=test, comparison=rows))
    assert [row[2] for row in table(html, "Comparison")[1:]] == ["−10.0 dB", "3.0 dB", "0.0 dB"]
    shares = build(make_run(tmp_path / "rates", test=test | {"measure": "error rate"}, comparison=rows))
    assert "dB, of the guess" not in shares
