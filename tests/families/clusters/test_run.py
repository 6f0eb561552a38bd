"""Clustered models from a plan file to a folder, by the command a user types."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.data.clusters import DIAGNOSES, HOSPITALS, write_sample_hospitals
from silograph.privacy.accounting import cost, rdp_epsilon
from silograph.privacy.ledger import Ledger
from silograph.run.jobs import open_job
from silograph.run.plan import load, parse

DELTA = 1e-6


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospitals")
    write_sample_hospitals(folder, wards=8)
    return folder


def write_plan(hospitals, name, method, privacy="", top=""):
    files = json.dumps([f"hospitals/{hospital}.csv" for hospital in HOSPITALS])
    data = f'[data]\nfiles = {files}\nagent = "ward"\ncluster = "diagnosis"\ntarget = "score"\ntest = "test.csv"\n'
    path = hospitals / f"{name}.toml"
    path.write_text(f'format = 1\n{top}{data}[method]\nname = "clustered_admm"\n{method}\n{privacy}')
    return path


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("learner", ["effects", "papers"])
def test_an_open_run_leaves_models_errors_and_what_they_are_held_against(learner, hospitals, tmp_path, silograph):
    asked = {"effects": "", "papers": 'learner = "papers"\nrounds = 80'}[learner]  # what nobody asked for is compared
    plan = write_plan(hospitals, f"open-{learner}", asked)
    code, text, _ = silograph("run", plan, "-o", tmp_path / "out")
    assert code == 0
    for word in (*DIAGNOSES, "this run", "each client alone", "one model for all", "without features"):
        assert word in text
    result = json.loads((tmp_path / "out/result.json").read_text())
    models = {row["client"]: row for row in table(tmp_path / "out/models/clients.csv")}
    tests = pd.read_csv(hospitals / "test.csv")
    squares = []
    for client in result["clients"]:
        weights = models[client["name"]]
        assert weights["cluster"] == client["cluster"]
        rows = tests[tests["ward"] == client["name"].split("/")[1]]
        guess = sum(float(weights[name]) * rows[name] for name in result["task"]["features"] if name != "intercept")
        off = (guess + float(weights["intercept"]) - rows["score"]) ** 2
        assert client["test_error"] == pytest.approx(off.mean(), rel=1e-9)
        squares.append(off)
    ours, alone, one = (row["test_error"] for row in result["comparison"])
    assert ours == pytest.approx(np.concatenate(squares).mean(), rel=1e-9)
    assert ours < 0.5 * min(alone, one)
    assert result["numbers_are"]["comparison"] == "simulation only"
    assert [row["cluster"] for row in table(tmp_path / "out/models/clusters.csv")] == sorted(DIAGNOSES)
    # The sample's diagnoses are alike in pairs: who borrows from whom is found.
    names, exchange = [c["name"] for c in result["clusters"]], np.array(result["exchange"])
    asthma, diabetes, heart, stroke = (names.index(name) for name in ("asthma", "diabetes", "heart failure", "stroke"))
    assert (result["parameters"]["variances"] is None) == (learner == "papers")
    if learner == "papers":
        assert exchange[asthma, heart] > 3.0 * max(exchange[asthma, diabetes], exchange[asthma, stroke])
    else:
        found = result["parameters"]["variances"]
        assert found["clusters_slopes"] > 10.0 * max(found["clients_slopes"])
        page = (tmp_path / "out/report.html").read_text()
        assert "Variances estimated from all records decide" in page
        assert "the variance of clients’ own constants" in page
    assert {g["epsilon"] for g in result["privacy"]["guarantees"]} == {"infinity"}


@pytest.mark.parametrize("given", ["penalty = 2.0", "tau = 0.1", 'weights = "uniform"', "ridge = 0.1"])
def test_random_effects_have_no_settings_of_s2(given, hospitals, silograph, tmp_path):
    code, _, error = silograph(
        "run", write_plan(hospitals, "both", f'learner = "effects"\n{given}'), "-o", tmp_path / "o"
    )
    assert code == 2
    assert f'{given.split()[0]}: expected learner = "papers"' in error
    private = write_plan(hospitals, "private", f'learner = "effects"\n{RECORDS}', "[privacy]\nepsilon = 3.0\n")
    assert "random effects have no such setting" in silograph("privacy", private)[2]


RECORDS = 'step = "linearised"\nclip = 2.0\nrounds = 12\n'


@pytest.mark.parametrize("schedule", ["even", "variance_decay", "leakage_decay"])
@pytest.mark.parametrize("sample", ["", "sample = 5\n"])
def test_records_are_paid_for_by_actual_participation(schedule, sample, hospitals, tmp_path, silograph):
    privacy = f'[privacy]\nepsilon = 3.0\nschedule = "{schedule}"\ndecay = 0.9\n'
    plan = write_plan(hospitals, f"records-{schedule}-{len(sample)}", RECORDS + sample, privacy)
    assert silograph("run", plan, "-o", tmp_path / "out")[0] == 0
    result = json.loads((tmp_path / "out/result.json").read_text())
    ledger = Ledger(tmp_path / "out/ledger.jsonl", mend=False)
    most = 0.0
    for guarantee in result["privacy"]["guarantees"]:
        rows = ledger.of(guarantee["site"])
        assert all(row.mechanism == "gaussian" for row in rows)
        assert guarantee["epsilon"] == cost(rows, DELTA).epsilon <= 3.0
        most = max(most, guarantee["epsilon"])
        if guarantee["observer"] == "own server":
            assert rdp_epsilon(rows, DELTA) >= guarantee["epsilon"] * (1 - 1e-3)
    counts = {len(ledger.of(client["name"])) for client in result["clients"]}
    if sample:
        assert len(counts) > 1
        assert max(counts) < 12
    if schedule == "even" or not sample:
        assert most > 2.99  # whoever takes part most spends the budget
    noises = [row.noise for row in ledger.of(result["clients"][0]["name"])]
    order = {"even": np.zeros_like, "variance_decay": lambda x: -np.ones_like(x), "leakage_decay": np.ones_like}
    # Rounding of the models is charged too, in the last digits.
    np.testing.assert_array_equal(np.sign((np.diff(noises) / noises[0]).round(6)), order[schedule](np.diff(noises)))
    again = json.loads(silograph("privacy", tmp_path / "out", "--json")[1])
    assert max(g["epsilon"] for g in again["guarantees"]) == most


def test_clusters_found_under_privacy_cost_one_release_more(hospitals, tmp_path, silograph):
    plan = write_plan(hospitals, "found", RECORDS + "find = 3\n", "[privacy]\nepsilon = 3.0\n")
    assert silograph("run", plan, "-o", tmp_path / "out")[0] == 0
    result = json.loads((tmp_path / "out/result.json").read_text())
    ledger = Ledger(tmp_path / "out/ledger.jsonl", mend=False)
    for client in result["clients"]:
        rows = ledger.of(client["name"])
        assert [row.release_point for row in rows] == ["gradient", *["model"] * 12]
        assert cost(rows, DELTA).epsilon == pytest.approx(3.0, rel=1e-6)
    assert {c["name"] for c in result["clusters"]} == {"cluster 1", "cluster 2", "cluster 3"}


@pytest.mark.parametrize("reach", ["region", "all"])
def test_the_time_of_secure_sums_is_known_beforehand(reach, hospitals, monkeypatch):
    monkeypatch.setattr("silograph.families.servers.loads", lambda sizes: ([10.0 * size for size in sizes], 1.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    method = f'clip = 1.0\nrounds = 5\nmasks = "protocol"\nminimum = 2\nreach = "{reach}"\n'
    budget = '[privacy]\nepsilon = 3.0\nprotect = "clients"\n'
    job = open_job(load(write_plan(hospitals, f"timed-{reach}", method, budget)), hospitals)
    assert job.takes == {"seconds": 5 * 10.0 * len(job.topo.silos), "cores": 1}


@pytest.mark.parametrize("masks", ["skipped", "none"])
def test_clients_are_protected_cell_by_cell(masks, hospitals, tmp_path, silograph):
    method = f'clip = 1.0\nrounds = 5\nmasks = "{masks}"\nminimum = 2\n'
    plan = write_plan(
        hospitals, f"clients-{masks}", method, '[privacy]\nepsilon = 3.0\nprotect = "clients"\ndelta = 1e-4\n'
    )
    assert silograph("run", plan, "-o", tmp_path / "out")[0] == 0
    privacy = json.loads((tmp_path / "out/result.json").read_text())["privacy"]
    for guarantee in privacy["guarantees"]:
        trusted = masks == "none" and guarantee["observer"] == "own server"
        if guarantee["epsilon"] == "infinity":
            assert trusted
        else:
            assert guarantee["epsilon"] <= 3.0
    assert "one agent" in privacy["protected_unit"]


def test_the_starter_plan_runs(tmp_path, silograph):
    assert silograph("sample", tmp_path / "h", "--hospitals")[0] == 0
    assert load(tmp_path / "h/plan.toml").method.tau == "learned"
    assert silograph("run", tmp_path / "h/plan.toml", "-o", tmp_path / "out")[0] == 0
    assert "asthma" in (tmp_path / "out/report.html").read_text()


DATA = {"files": ["a.csv"], "agent": "ward", "target": "score", "cluster": "diagnosis"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": {"tau": 1.5}}, "tau.*a number from 0 to 1, or learned"),
        ({"method": {"tau": "guessed"}}, "a number from 0 to 1, or learned"),
        ({"method": {"find": 2, "masks": "skipped", "clip": 1.0}}, "given clusters with masks"),
        ({"method": {"step": "linearised", "radius": 1.0}}, "radius"),
        (
            {
                "method": {"step": "linearised", "clip": 1.0},
                "privacy": {"epsilon": 1.0, "schedule": "variance_decay", "decay": 1e-300},
            },
            "decay",
        ),
        ({"method": {"penalty": 0}}, "penalty.*above 0"),
        ({"method": {"penalty": -1.0}}, "penalty.*above 0"),
        ({"method": {"rounds": 0}}, "rounds"),
        ({"method": {"find": 0}}, "find"),
        ({"data": {k: v for k, v in DATA.items() if k != "cluster"}}, "found neither.*say find = 1"),
        ({"method": {"masks": "protocol"}}, "clip"),
        ({"privacy": {"epsilon": 1.0}}, "answers"),
        ({"privacy": {"epsilon": 1.0}, "method": {"learner": "papers"}}, "really bounded"),
        ({"privacy": {"epsilon": 1.0}, "method": {"learner": "calibrated", "tau": 0.1}}, "no such setting"),
        ({"privacy": {"epsilon": 1.0}, "method": {"learner": "effects"}}, "privacy"),
        ({"method": {"learner": "calibrated"}}, "a budget with calibrated"),
        (
            {"privacy": {"epsilon": 1.0, "protect": "clients"}, "method": {"loss": "logistic", "find": 2}},
            "given clusters where clients are protected",
        ),
        ({"privacy": {"epsilon": 1.0}, "method": {"step": "linearised"}}, "clip"),
        ({"privacy": {"epsilon": 1.0}, "method": {"loss": "huber"}}, "really bounded"),
        ({"privacy": {"epsilon": 1.0}, "method": {"step": "linearised", "clip": 1.0, "masks": "skipped"}}, "masks"),
        ({"privacy": {"epsilon": 1.0, "protect": "clients"}, "method": {"learner": "papers"}}, "clip"),
        ({"privacy": {"epsilon": 1.0, "protect": "clients"}, "method": {"clip": 1.0, "find": 2}}, "given clusters"),
        ({"privacy": {"epsilon": 0.0}}, "above 0"),
        ({"privacy": {"epsilon": 1.0, "decay": 0.0}}, "decay"),
    ],
)
def test_nonsense_is_refused_with_words(change, words):
    content = {"format": 1, "data": DATA, **change}
    content["method"] = {"name": "clustered_admm", **content.get("method", {})}
    with pytest.raises(InputError, match=words):
        parse(content, "plan.toml")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda text: text.replace("asthma", "stroke", 1), "one cluster for all records"),
        (lambda text: text.replace("asthma", "", 1), "one cluster for all records"),
        (lambda text: text.replace("ward,diagnosis", "ward,illness"), "a column 'diagnosis', the cluster"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(edit, words, tmp_path, silograph):
    write_sample_hospitals(tmp_path, wards=4)
    path = next(p for p in sorted((tmp_path / "hospitals").iterdir()) if "asthma" in p.read_text())
    path.write_text(edit(path.read_text()))
    code, _, error = silograph("run", write_plan(tmp_path, "plan", "rounds = 3"), "-o", tmp_path / "out")
    assert code == 2
    assert words in error


def test_cells_that_cannot_be_summed_are_said_or_refused(hospitals, tmp_path, silograph):
    """With eight wards a hospital and four diagnoses some cells have fewer than three wards; none has a hundred."""
    method = 'clip = 2.0\nrounds = 3\nmasks = "skipped"\n'
    code, text, _ = silograph("run", write_plan(hospitals, "few", method), "-o", tmp_path / "out")
    assert code == 0
    assert "fewer clients than the minimum of 3" in text
    code, _, error = silograph("run", write_plan(hospitals, "none", method + "minimum = 100\n"), "-o", tmp_path / "no")
    assert code == 2
    assert "the largest has" in error


def test_models_that_vanish_have_nothing_to_borrow(hospitals, tmp_path, silograph):
    assert (
        silograph("run", write_plan(hospitals, "stiff", "penalty = 1e300\nrounds = 6"), "-o", tmp_path / "out")[0] == 0
    )
