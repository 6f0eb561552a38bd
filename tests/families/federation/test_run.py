"""Graph federations from a plan file to a folder, by the command a user types."""

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.data.federation import write_sample_clinics
from silograph.deploy.deployment import Terms, make, open_job
from silograph.estimators.regions import RegionModels
from silograph.families.federation.job import FederationJob
from silograph.privacy.accounting import cost, rdp_epsilon
from silograph.privacy.ledger import Ledger
from silograph.run import jobs
from silograph.run.plan import load, parse
from silograph.tasks.linear import Linear

COMMAND = [sys.executable, "-c", "from silograph.cli import main; main()"]
REGIONS = 3
METHOD = """
[method]
name = "graph_federation"
rounds = 6
step = 4.0
epochs = 2
batch = 10
clip = 0.5
"""
PRIVACY = "[privacy]\nepsilon = 4.0\n"


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clinics")
    write_sample_clinics(folder, regions=REGIONS, clinics=5)
    return folder


def write_plan(clinics, name, rest, topology=""):
    files = json.dumps(sorted(f"regions/{path.name}" for path in (clinics / "regions").iterdir()))
    data = f'[data]\nfiles = {files}\nagent = "clinic"\ntarget = "readmitted"\ntest = "test.csv"\n'
    path = clinics / f"{name}.toml"
    path.write_text(f"format = 1\n{data}{topology}{rest}")
    return path


def model(path):
    with open(path, newline="") as file:
        return {row["feature"]: float(row["weight"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize(("masks", "seen"), [("protocol", False), ("none", True)])
def test_without_a_budget_masks_still_hide_an_update_and_the_note_says_so(masks, seen, clinics, silograph):
    plan = write_plan(clinics, f"open-{masks}", f'{METHOD}masks = "{masks}"\n')
    code, text, _ = silograph("privacy", plan)
    assert code == 0
    assert ("a server sees its agents' updates" in text) is seen
    assert ("not the sum over its region" in text) is not seen


@pytest.mark.parametrize("masks", ["protocol", "skipped", "none"])
def test_a_private_run_leaves_models_errors_and_a_bill_that_adds_up(masks, clinics, tmp_path, silograph):
    plan = write_plan(clinics, f"private-{masks}", f'{METHOD}masks = "{masks}"\n{PRIVACY}')
    code, text, _ = silograph("run", plan, "-o", tmp_path / "out")
    assert code == 0
    assert "test error" in text
    assert "epsilon 4, delta 1e-06" in text
    result = json.loads((tmp_path / "out/result.json").read_text())
    table = pd.read_csv(clinics / "test.csv")
    truth = table["readmitted"].to_numpy()
    assert {region["name"] for region in result["regions"]} == {path.stem for path in (clinics / "regions").iterdir()}
    for region in [*result["regions"], {"name": "centroid", **result["centroid"]}]:
        weights = model(tmp_path / f"out/models/{region['name']}.csv")
        margin = weights["intercept"] + sum(table[name] * w for name, w in weights.items() if name != "intercept")
        assert region["test_error"] == pytest.approx(((margin >= 0).to_numpy() != (truth == 1)).mean(), abs=1e-12)
        assert region.get("records") is None  # how many records an agent has is protected
    ledger = Ledger(tmp_path / "out/ledger.jsonl", mend=False)
    bill = {(g["site"], g["observer"]): g["epsilon"] for g in result["privacy"]["guarantees"]}
    assert len(bill) == 5 * REGIONS
    for (region, observer), epsilon in bill.items():
        if masks == "none" and observer == "own server":
            assert epsilon == "infinity"
            continue
        rows = [row for row in ledger.of(region) if row.observer != "own server"]
        assert len(rows) == 6
        assert epsilon == cost(rows, 1e-6).epsilon
        assert 0.999 * 4.0 < epsilon <= 4.0
        assert rdp_epsilon(rows, 1e-6) == pytest.approx(epsilon, rel=0.12)  # an independent, looser or equal reading
        assert rdp_epsilon(rows, 1e-6) >= epsilon * (1 - 1e-3)
    assert (masks == "skipped") == any("skipped" in note for note in result["privacy"]["notes"])
    again = json.loads(silograph("privacy", tmp_path / "out", "--json")[1])
    assert {(g["site"], g["observer"]): g["epsilon"] for g in again["guarantees"]} == bill
    planned = json.loads(silograph("privacy", plan, "--json")[1])
    for guarantee in planned["guarantees"]:
        found = bill[guarantee["site"], guarantee["observer"]]
        assert guarantee["epsilon"] == (found if found == "infinity" else pytest.approx(found, rel=1e-6))
    assert "readmitted" in (tmp_path / "out/report.html").read_text()


@pytest.mark.parametrize("perturbation", ["none", "edge", "sender", "homomorphic"])
def test_what_is_no_privacy_is_billed_as_infinity_and_named(perturbation, clinics, tmp_path, silograph):
    plan = write_plan(clinics, perturbation, f'{METHOD}perturbation = "{perturbation}"\n')
    assert silograph("run", plan, "-o", tmp_path / "out")[0] == 0
    privacy = json.loads((tmp_path / "out/result.json").read_text())["privacy"]
    assert {g["epsilon"] for g in privacy["guarantees"]} == {"infinity"}
    assert privacy["mode"] == ("exact" if perturbation == "none" else "obfuscation")
    claims = {g["claim"]["basis"] for g in privacy["guarantees"] if g["claim"]}
    assert claims == ({"S1 Theorem 2"} if perturbation == "homomorphic" else set())


@pytest.mark.parametrize(
    ("topology", "links"),
    [
        ('[topology]\ngraph = "ring"\n', 3),
        ('[topology]\nlinks = [["borders", "coast"], ["coast", "fells"]]\nweights = "metropolis"\n', 2),
        ('[topology]\nfile = "servers.graphml"\n', 2),
    ],
)
def test_the_servers_graph_is_the_plans(topology, links, clinics, tmp_path, silograph):
    import networkx as nx

    nx.write_graphml(nx.path_graph(["fells", "borders", "coast"]), clinics / "servers.graphml")
    plan = write_plan(clinics, "graph", METHOD, topology)
    assert silograph("run", plan, "-o", tmp_path / "out")[0] == 0
    found = json.loads((tmp_path / "out/result.json").read_text())["topology"]
    assert len(found["links"]) == links
    assert 0.0 < found["spectral_gap"] <= 1.0
    if "file" in topology:
        assert {frozenset(link[:2]) for link in found["links"]} == {
            frozenset(("fells", "borders")),
            frozenset(("borders", "coast")),
        }


# ---- plans -----------------------------------------------------------------------------------------------------------


DATA = {"files": ["a.csv"], "agent": "clinic", "target": "y"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": {"files": ["a.csv"], "agent": "clinic"}}, "target"),
        ({"data": {"files": [], "agent": "clinic", "target": "y"}}, "at least one table"),
        ({"method": {"step": 0}}, "step.*above 0"),
        ({"method": {"step": 1e9}}, "step: expected at most 100 with ridge = 0.01"),
        ({"method": {"step": 201.0, "epochs": [1, 2]}}, "step: expected at most 200"),
        ({"method": {"rounds": 0}}, "rounds.*from 1"),
        ({"method": {"minimum": 1}}, "minimum.*from 2"),
        ({"method": {"epochs": [3, 2]}}, "range"),
        ({"method": {"epochs": [1, 2, 3]}}, "least and the most"),
        ({"method": {"batch": "all"}}, "least and the most"),
        ({"method": {"masks": "protocol"}}, "clip"),
        ({"method": {"masks": "protocol", "clip": 1.0, "sample": 2}}, "minimum cohort"),
        ({"method": {"perturbation": "private"}}, "epsilon"),
        ({"method": {"reach": "all"}}, "masks with reach"),
        ({"method": {"reach": "all", "masks": "none", "clip": 1.0}, "privacy": {"epsilon": 1}}, "masks with reach"),
        (
            {"method": {"reach": "all", "masks": "protocol", "clip": 1.0, "perturbation": "sender"}},
            "none or private with reach",
        ),
        ({"method": {"personal": 0.3, "clip": 1.0}, "privacy": {"epsilon": 1}}, "a budget and reach"),
        ({"method": {"personal": 1.0, "reach": "all", "clip": 1.0}, "privacy": {"epsilon": 1}}, "a share below 1"),
        ({"method": {"perturbation": "homomorphic", "clip": 1.0}, "privacy": {"epsilon": 1}}, "not differential"),
        ({"method": {"reach": "region"}, "privacy": {"epsilon": 1}}, "clip"),
        ({"method": {"loss": "ridge"}, "privacy": {"epsilon": 1}}, "the least and the most of the target"),
        ({"method": {"learner": "calibrated"}}, "a budget with calibrated"),
        ({"method": {"learner": "calibrated", "sample": 5}, "privacy": {"epsilon": 1}}, "no such setting"),
        ({"method": {"clip": 1.0}, "privacy": {"epsilon": 0}}, "above 0"),
        ({"method": {"clip": 1.0}, "privacy": {"epsilon": 1, "delta": 0}}, "between 0 and 1"),
        ({"topology": "star"}, "a section"),
        ({"topology": {"graph": "torus"}}, "one of complete"),
        ({"topology": {"links": [["a"]]}}, r"links\[0\]: expected a list of 2: a text, a text"),
        ({"topology": {"links": [["a", "b"]], "file": "x.graphml"}}, "found more than one"),
        ({"seed": -1}, "from 0"),
    ],
)
def test_nonsense_is_refused_with_words(change, words):
    content = {"format": 1, "data": DATA, **change}
    content["method"] = {"name": "graph_federation", **content.get("method", {})}
    with pytest.raises(InputError, match=words):
        parse(content, "plan.toml")


def test_a_step_refused_diverges_on_any_records_and_the_longest_accepted_need_not():
    """Zeros have the least curvature that there is: that of the ridge term, 2 rho."""
    task = Linear(1, 3, "logistic", 0.01)
    data, everything = task.prepare_all([(np.zeros((3, 1)), np.ones(3))]), np.arange(3)[None, None]
    one = np.ones(1, dtype=np.int64)

    def after(step, rounds=200):
        w = np.ones((1, 1))
        for _ in range(rounds):
            w = task.descend(w, data, everything, one, 3 * one, step)
        return abs(float(w[0, 0]))

    assert after(101.0) > 5.0
    assert after(100.0) <= 1.0 + 1e-9
    assert parse({"format": 1, "data": DATA, "method": {"name": "graph_federation", "step": 100.0}}, "plan.toml")


@pytest.mark.parametrize(
    ("rest", "topology", "words"),
    [
        (METHOD, '[topology]\nlinks = [["borders", "coast"]]\n', "connected"),
        (METHOD, '[topology]\nlinks = [["borders", "mars"]]\n', "mars"),
        (METHOD + "sample = 6\n", "", "at least 6 agents"),
        (METHOD + 'masks = "protocol"\nminimum = 6\n', "", "smallest cohort"),
        (METHOD + 'masks = "protocol"\nreach = "all"\nminimum = 16\n', "", "smallest cohort"),
        (METHOD + 'reach = "all"\npersonal = 0.3\nminimum = 6\n' + PRIVACY, "", "region borders: expected at least 6"),
        (METHOD + 'reach = "all"\n' + PRIVACY, '[topology]\nlinks = [["borders", "coast"]]\n', "connected"),
        (METHOD + 'reach = "all"\n' + PRIVACY + "delta = 0.1\n", "", "one of the 15 agents"),
        (METHOD + PRIVACY + "delta = 0.5\n", "", "one of the 5 agents"),
        (
            METHOD.replace("step = 4.0", "step = 150.0").replace("clip = 0.5", 'loss = "ridge"'),
            "",
            "grow without bound",
        ),
    ],
)
def test_what_does_not_fit_the_tables_is_refused_and_leaves_nothing(
    rest, topology, words, clinics, tmp_path, silograph
):
    plan = write_plan(clinics, "bad", rest, topology)
    code, _, error = silograph("run", plan, "-o", tmp_path / "out")
    assert code in (1, 2)
    assert words in error
    assert list(tmp_path.iterdir()) == []


def test_an_agent_in_two_regions_is_refused_with_privacy(tmp_path, silograph):
    """Its budget would be spent twice and billed once."""
    write_sample_clinics(tmp_path, regions=2, clinics=4)
    for path in (tmp_path / "regions").iterdir():
        path.write_text(path.read_text().replace("clinic-001,", "St Anna,").replace("clinic-005,", "St anna,"))
    plan = write_plan(tmp_path, "twice", f'{METHOD}masks = "skipped"\n{PRIVACY}')
    code, _, error = silograph("run", plan, "-o", tmp_path / "out")
    assert code == 2
    assert "both have St" in error


def test_the_starter_plan_is_the_readmes(tmp_path, silograph):
    assert silograph("sample", tmp_path / "clinics", "--clinics")[0] == 0
    plan = load(tmp_path / "clinics/plan.toml")
    assert len(plan.data.files) == 10
    assert plan.masks == "protocol"
    planned = json.loads(silograph("privacy", tmp_path / "clinics/plan.toml", "--json")[1])
    assert {g["epsilon"] <= 4.0 for g in planned["guarantees"]} == {True}
    assert np.isfinite(planned["noise"]).all()
    assert not Path(tmp_path / "out").exists()


def test_the_starter_has_a_curators_noise_and_says_what_that_costs(tmp_path, silograph):
    """Sums for each region, by the zCDP that they were charged by before, had .0731 in a coordinate of the centroid."""
    silograph("sample", tmp_path / "clinics", "--clinics")
    chosen = (tmp_path / "clinics/plan.toml").read_text()
    papers = chosen.replace('loss = "logistic"', 'loss = "logistic"\nreach = "all"\nclip = 0.5')
    (tmp_path / "clinics/papers.toml").write_text(papers)
    planned = json.loads(silograph("privacy", tmp_path / "clinics/papers.toml", "--json")[1])
    region, everybody = planned["reach"]
    assert everybody["chosen"]
    assert everybody["centroid_noise"] <= 0.022
    assert (0.0731 / everybody["centroid_noise"]) ** 2 >= 11
    assert (region["centroid_noise"] / everybody["centroid_noise"]) ** 2 == pytest.approx(10, rel=1e-4)
    against = [[each["epsilon"] for each in reach["coalitions"]] for reach in (region, everybody)]
    assert against[0] == pytest.approx([4.0, 3.19, 3.25], abs=0.01)
    assert against[1] == pytest.approx([4.0, 3.89, 12.35], abs=0.01)
    text = silograph("privacy", tmp_path / "clinics/plan.toml")[1]
    assert "all (this plan)" in text
    assert "12.35" in text
    assert "chosen from public numbers: 20 steps" in text
    assert "length 1 %" in text


def test_a_run_whose_sums_take_minutes_says_so_before_it_begins(clinics, tmp_path, silograph, monkeypatch):
    monkeypatch.setattr(FederationJob, "takes", {"seconds": 3000.0, "cores": 1})
    plan = write_plan(clinics, "long", f'{METHOD}masks = "protocol"\n{PRIVACY}')
    code, _, said = silograph("run", plan, "-o", tmp_path / "out")
    assert code == 0
    assert "about 50 minutes on one core" in said
    monkeypatch.setattr(FederationJob, "takes", {"seconds": 3000.0, "cores": 8})
    assert "about 50 minutes on 8 cores" in silograph("privacy", plan)[1]
    records = [(np.ones((2, 1)), np.ones(2))] * 6
    with pytest.warns(UserWarning, match="about 50 minutes"):
        RegionModels("ridge", rounds=2, clip=1.0, epsilon=4.0, masks="protocol").fit(records)


def test_the_time_of_secure_sums_counts_rounds_and_cores(clinics, monkeypatch):
    """Ten seconds an agent: two cores take two of three regions' sums at once, and one core a sum over all."""
    monkeypatch.setattr("silograph.families.servers.loads", lambda sizes: ([10.0 * size for size in sizes], 1.0))
    for cores, reach, expected in (
        (2, "region", {"seconds": 6 * 100.0, "cores": 2}),
        (8, "region", {"seconds": 6 * 50.0, "cores": 3}),
        (8, "all", {"seconds": 6 * 150.0, "cores": 1}),
    ):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cores=cores: set(range(cores)))
        plan = load(write_plan(clinics, "timed", f'{METHOD}masks = "protocol"\nreach = "{reach}"\n{PRIVACY}'))
        assert jobs.open_job(plan, clinics).takes == expected
    skipped = load(write_plan(clinics, "timed", f'{METHOD}masks = "skipped"\n{PRIVACY}'))
    assert jobs.open_job(skipped, clinics).takes is None


def test_a_deployment_has_a_sum_over_all_regions_with_all_of_them(clinics):
    """In a star, or with a server for every region; then no link can be given up."""
    plan = load(write_plan(clinics, "deployed", f'{METHOD}reach = "all"\n{PRIVACY}'))
    terms = Terms("127.0.0.1:9999", tls=False, minimum=1)
    make(plan, clinics, terms)
    made = make(plan, clinics, terms, {})
    first, second, *_ = made.regions
    job = open_job(made, clinics)
    assert job.at(first).hears_all
    with pytest.raises(InputError, match=f"all regions, neighbours or not, but {second} would be left out"):
        job.at(first, [second])


def test_a_run_over_all_regions_leaves_one_model_and_a_cost_that_adds_up(clinics, tmp_path, silograph):
    plan = write_plan(clinics, "all", f'{METHOD}reach = "all"\n{PRIVACY}', '[topology]\ngraph = "ring"\n')
    code, text, _ = silograph("run", plan, "-o", tmp_path / "out")
    assert code == 0
    assert "disagreement 0.00e+00" in text
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert {tuple(region["model"]) for region in result["regions"]} == {tuple(result["centroid"]["model"])}
    ledger = Ledger(tmp_path / "out/ledger.jsonl", mend=False)
    for region in result["regions"]:
        rows = ledger.of(region["name"])
        assert len(rows) == 6
        assert 0.999 * 4.0 < cost(rows, 1e-6).epsilon <= 4.0
    page = (tmp_path / "out/report.html").read_text()
    assert "Every server saw one sum over all agents" in page
    assert "collude" in page


def test_a_bad_test_table_is_refused_before_anything_is_spent_and_may_be_mended(tmp_path, silograph):
    write_sample_clinics(tmp_path, regions=2, clinics=4)
    table = (tmp_path / "test.csv").read_text()
    (tmp_path / "test.csv").write_text(table.replace("\n0,", "\n2,", 1))
    plan = write_plan(tmp_path, "plan", f'{METHOD}masks = "skipped"\n{PRIVACY}')
    code, _, error = silograph("run", plan, "-o", tmp_path / "out")
    assert code == 2
    assert "test.csv, column readmitted" in error
    assert not (tmp_path / ".out.unfinished").exists()
    (tmp_path / "test.csv").write_text(table)
    assert silograph("run", plan, "-o", tmp_path / "out")[0] == 0


@pytest.mark.parametrize("lost", ["ledger.jsonl", "identity.json"])
def test_an_unfinished_run_that_lost_its_evidence_is_refused_again_and_again(lost, clinics, tmp_path, silograph):
    """A refusal must not clear away what it refuses: the next call would begin anew, and pay nothing for the old."""
    plan = write_plan(clinics, "lost", f'{METHOD.replace("rounds = 6", "rounds = 4000")}masks = "skipped"\n{PRIVACY}')
    process = subprocess.Popen([*COMMAND, "run", str(plan), "-o", str(tmp_path / "out")], stderr=subprocess.DEVNULL)
    unfinished = tmp_path / ".out.unfinished"
    for _ in range(600):
        time.sleep(0.1)
        if (unfinished / "state.npz").exists():
            break
    process.kill()
    process.wait()
    (unfinished / lost).unlink()
    for _ in range(2):
        code, _, error = silograph("run", plan, "-o", tmp_path / "out")
        assert code == 2
        assert "restore" in error.lower()
        assert (unfinished / "state.npz").exists()


@pytest.mark.parametrize(
    "setting", ["clip = 1e154", "clip = 5e-324", "clip = 1.7e308", "step = 1e300", "epochs = 1000000000"]
)
def test_absurd_settings_are_refused_with_words(setting, clinics, tmp_path, silograph):
    name = setting.split(" ")[0]
    lines = "\n".join(line for line in METHOD.splitlines() if not line.startswith(name))
    plan = write_plan(clinics, "absurd", f"{lines}\n{setting}\n{PRIVACY}")
    for command in (["run", plan, "-o", tmp_path / "out"], ["privacy", plan]):
        assert silograph(*command)[0] == 2


@pytest.mark.parametrize("epsilon", ["1e308", "1e-9", "1e-300"])
def test_absurd_budgets_are_refused_alike_by_run_and_privacy(epsilon, clinics, tmp_path, silograph):
    plan = write_plan(clinics, "absurd", f"{METHOD}[privacy]\nepsilon = {epsilon}\n")
    for command in (["run", plan, "-o", tmp_path / "out"], ["privacy", plan]):
        code, _, error = silograph(*command)
        assert code == 2
        assert "epsilon" in error


def test_a_plan_prices_what_it_asks_for(clinics, silograph):
    assert "epsilon 4, delta" in silograph("privacy", write_plan(clinics, "price", f"{METHOD}{PRIVACY}"))[1]
