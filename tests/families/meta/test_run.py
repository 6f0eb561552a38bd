"""Private meta-learning from a plan file to a folder, by the command a user types."""

import gc
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch
from scipy.stats import norm
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from silograph.core.errors import BudgetError, DamageError, InputError
from silograph.data.class_clients import ACTIVITY_PAIRS, MOTIONS
from silograph.families.meta import job as meta_job
from silograph.families.meta.plan import MetaBudget, MetaData, MetaMethod, MetaPlan
from silograph.methods.private_meta import PERSON
from silograph.privacy.accounting import cost, rdp_epsilon
from silograph.privacy.ledger import Ledger
from silograph.report.build import build
from silograph.run import run as running
from silograph.run.cost import cost_of_plan, cost_of_run
from silograph.run.jobs import open_job
from silograph.run.plan import dumps, load, parse
from silograph.run.sections import moved
from silograph.tasks.networks import load_model

COMMAND = [sys.executable, "-c", "from silograph.cli import main; main()"]
EPSILON, DELTA, ROUNDS = 2.0, 1e-4, 3
BUDGET = MetaBudget(EPSILON, DELTA)
SIZES = {"ann": 20, "bob": 13, "cyd": 26, "dee": 20, "eve": 20}  # bob's sets differ in size
SOURCES, NEW = ("ann", "bob", "cyd"), ("dee", "eve")
CLASSES = ("down", "level", "up")  # nobody is ever level
OBSERVERS = ["server", "other sites", "wire", "public"]


def records(name):
    rng = np.random.default_rng(list(name.encode()))
    x = rng.normal(size=(SIZES[name], 3)).round(3)
    return x, np.where(x[:, 0] + 0.3 * rng.normal() > 0.0, "up", "down")


def table(x, y):
    made = pd.DataFrame(x, columns=["a", "b", "c"])
    made.insert(1, "trend", y)
    return made


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """Three clients to learn from, of different sizes, and two new ones."""
    folder = tmp_path_factory.mktemp("clients")
    for name in SIZES:
        table(*records(name)).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture
def quick_planner(monkeypatch):
    """The planner looks at no other rounds and rates: each takes about a second to calibrate."""
    monkeypatch.setattr(meta_job, "_PLANNED_ROUNDS", ())
    monkeypatch.setattr(meta_job, "_PLANNED_RATES", ())


def files(names):
    return tuple(f"{name}.csv" for name in names)


def planned(privacy=None, seed=None, engine="vector", data=None, **method):
    """Rate 1 needs no sampled accountant, so its noise is found at once."""
    data = {"target": "trend", "files": files(SOURCES), "new": files(NEW), "classes": CLASSES} | (data or {})
    chosen = {"rounds": ROUNDS, "rate": 1.0, "hidden": (4,), "personal_steps": 1} | method
    return MetaPlan(MetaData(**data), MetaMethod(**chosen), privacy, engine, seed)


def finished(plan, base, goal, progress=lambda *_: None):
    """Run without a page."""
    return running.execute(plan, base, goal, progress, lambda folder: "<html>").folder


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


def rows_of(folder):
    return Ledger(folder / "ledger.jsonl", mend=False)


def start_of(folder):
    return load_model(folder / "models/start.npz")[2]


def epsilons(guarantees):
    return {(each["site"], each["observer"]): each["epsilon"] for each in guarantees}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def within(seconds):
    """Turns a search that never ends into a failure."""

    def stop(*_):
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ---- plans -----------------------------------------------------------------------------------------------------------


DATA = {"files": ["a.csv"], "target": "y"}
PRIVATE = {"data": DATA | {"classes": ["no", "yes"]}, "privacy": {"epsilon": 1.0}}
WHOSE = PRIVATE["data"] | {"unit_column": "who"}
RECORDS_OF_PERSONS = {"data": WHOSE, "privacy": {"epsilon": 1.0, "protect": "records"}}


def content(change):
    return {"format": 1, "data": DATA, **change, "method": {"name": "private_meta", **change.get("method", {})}}


@pytest.mark.parametrize("key", ["inner_step", "outer_step", "clip", "curvature_clip", "personal_step"])
@pytest.mark.parametrize("value", [0, -0.5, math.inf, math.nan, 1e300])
def test_sizes_are_numbers_above_0(key, value):
    with pytest.raises(InputError) as error:
        parse(content({"method": {key: value}}), "plan.toml")
    assert error.value.where == f"plan.toml, method.{key}"
    assert error.value.expected.startswith("a number above 0")
    assert error.value.found == f"found {value}"


@pytest.mark.parametrize("key", ["width", "rounds", "local_steps", "personal_steps"])
@pytest.mark.parametrize(
    ("value", "came"),
    [(0, "found 0"), (-3, "found -3"), (2.5, "found 2.5"), (True, "found true"), ("many", "found 'many'")],
)
def test_counts_are_whole_numbers_from_1(key, value, came):
    with pytest.raises(InputError) as error:
        parse(content({"method": {key: value}}), "plan.toml")
    assert error.value.where == f"plan.toml, method.{key}"
    assert "a whole number from 1" in error.value.expected
    assert error.value.found == came


@pytest.mark.parametrize(
    ("change", "where", "expected", "came"),
    [
        ({"data": {"target": "y", "files": []}}, "plan.toml, data", "at least one table", "found none"),
        ({"data": DATA | {"new": "b.csv"}}, "plan.toml, data.new", "a list of names", "found 'b.csv'"),
        ({"data": DATA | {"answers": "words"}}, "plan.toml, data.answers", "classes, numbers", "found 'words'"),
        ({"data": DATA | {"classes": "yes"}}, "plan.toml, data.classes", "a list of names", "found 'yes'"),
        ({"data": DATA | {"classes": [0, 1]}}, "plan.toml, data.classes[0]", "a text", "found 0"),
        ({"data": DATA | {"label": "y"}}, "plan.toml, data", "target, files, new", "found 'label'"),
        ({"data": DATA | {"answers": "numbers", "classes": ["1"]}}, "plan, classes", "none where", "found some"),
        ({"method": {"version": "printed"}}, "plan.toml, method.version", "sound, paper:", "found 'printed'"),
        ({"method": {"model": "gpt"}}, "plan.toml, method.model", "linear, mlp, cnn, resnet18", "found 'gpt'"),
        ({"method": {"order": "third"}}, "plan.toml, method.order", "first, second", "found 'third'"),
        ({"method": {"hidden": 32}}, "plan.toml, method.hidden", "a list of whole numbers", "found 32"),
        ({"method": {"hidden": [8, 1.5]}}, "plan.toml, method.hidden[1]", "a whole number", "found 1.5"),
        ({"method": {"hidden": [8, 0]}}, "plan.toml, method.hidden[1]", "a whole number from 1 to 1e+06", "found 0"),
        ({"method": {"rate": 0}}, "plan.toml, method.rate", "above 0 and at most 1", "found 0"),
        ({"method": {"rate": 1.01}}, "plan.toml, method.rate", "above 0 and at most 1", "found 1.01"),
        ({"method": {"rate": math.nan}}, "plan.toml, method.rate", "above 0 and at most 1", "found nan"),
        ({"method": {"rate": "often"}}, "plan.toml, method.rate", "a number", "found 'often'"),
        ({"method": {"held_back": 0.0}}, "plan.toml, method.held_back", "between 0 and 1", "found 0.0"),
        ({"method": {"held_back": 1.0}}, "plan.toml, method.held_back", "between 0 and 1", "found 1.0"),
        ({"method": {"compare": "yes"}}, "plan.toml, method.compare", "true or false", "found 'yes'"),
        ({"method": {"device": 0}}, "plan.toml, method.device", "a text", "found 0"),
        ({"method": {"noise": 1.0}}, "plan.toml, method", "only name, version", "found 'noise'"),
        ({"method": {"version": "paper:"}}, "plan, version", "a [privacy] section", "found none"),
        ({"method": {"version": "paper:", "order": "first"}} | PRIVATE, "plan, order", "second", "found first"),
        ({"method": {"compare": True}} | PRIVATE, "plan, compare", "no comparison, with privacy", "without protection"),
        (PRIVATE | {"privacy": {}}, "plan.toml, privacy", "the key 'epsilon'", "it is missing"),
        (PRIVATE | {"privacy": 1.0}, "plan.toml, privacy", "a section", "found 1.0"),
        (PRIVATE | {"privacy": {"epsilon": 0}}, "plan.toml, privacy.epsilon", "a privacy budget above 0", "found 0"),
        (PRIVATE | {"privacy": {"epsilon": math.nan}}, "plan.toml, privacy.epsilon", "above 0", "found nan"),
        (PRIVATE | {"privacy": {"epsilon": 1, "delta": 0}}, "plan.toml, privacy.delta", "between 0 and 1", "found 0"),
        (PRIVATE | {"privacy": {"epsilon": 1, "delta": 1}}, "plan.toml, privacy.delta", "between 0 and 1", "found 1"),
        (PRIVATE | {"privacy": {"personal_epsilon": 0}}, "plan.toml, privacy.personal_epsilon", "above 0", "found 0"),
        (PRIVATE | {"privacy": {"epsilon": 1, "personal_epsilon": 1}}, "plan, personal_epsilon", "new", "found none"),
        (PRIVATE | {"privacy": {"epsilon": 1, "protect": "clients"}}, "plan, protect", "records", "found clients"),
        (PRIVATE | {"privacy": {"epsilon": 1, "protect": "persons"}}, "plan, protect", "whose a record is", "none"),
        (RECORDS_OF_PERSONS, "plan, protect", "persons where a column names them", "records and a unit_column"),
        (PRIVATE | {"data": WHOSE | {"unit_column": " "}}, "plan, unit_column", "the name of a column", "empty"),
        (PRIVATE | {"data": WHOSE, "method": {"version": "paper:"}}, "plan, unit_column", "no persons", "found some"),
        ({"data": WHOSE}, "plan, unit_column", "a privacy budget", "found none"),
        (
            PRIVATE | {"data": WHOSE | {"new": ["d.csv"]}, "privacy": {"epsilon": 1, "personal_epsilon": 1}},
            "plan, personal_epsilon", "where persons are protected", "one record",
        ),
        (PRIVATE | {"data": DATA}, "plan, classes", "the labels there can be", "is private, too"),
        ({"engine": "gpu"}, "plan.toml, engine", "vector, silowise", "found 'gpu'"),
        ({"seed": -1}, "plan.toml, seed", "a whole number from 0 up", "found -1"),
        ({"topology": "star"}, "plan.toml", "only data, method, privacy, engine, seed", "found 'topology'"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_and_says_where_what_was_expected_and_what_came(change, where, expected, came):
    with pytest.raises(InputError) as error:
        parse(content(change), "plan.toml")
    assert error.value.where == where
    assert expected in error.value.expected
    assert came in error.value.found


def test_classes_that_are_numbers_are_written_as_texts():
    with pytest.raises(InputError, match=r"classes\[0\]: expected a text, but found 1\. Put it in quotes"):
        parse(content({"data": DATA | {"classes": [1, 2]}}), "plan.toml")


def test_every_key_is_in_the_manual_with_its_default():
    manual = (Path(__file__).parents[3] / "docs/plans.md").read_text().split("## ")
    told = next(part for part in manual if part.startswith("A shared start")).splitlines()
    rows = {line.split(" | ")[1]: line for line in told if line.startswith("| ")}
    words = {"hidden": "[32]", "delta": "1e-6", "compare": "false"}
    for part in (*fields(MetaData), *fields(MetaMethod), *fields(MetaBudget)):
        if part.name != "name":
            row = next((row for keys, row in rows.items() if f"`{part.name}`" in keys), "")
            assert row, part.name
            default = words.get(part.name, part.default)
            if isinstance(default, str | int | float):
                assert (default if isinstance(default, str) else f"{default:g}") in row, row


# ---- what it costs ---------------------------------------------------------------------------------------------------


def gaussian_delta(mu, epsilon):
    """Of a Gaussian whose mean a record moves by mu deviations."""
    return norm.cdf(mu / 2.0 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2.0 - epsilon / mu)


CASES = {
    "second order": ({}, 3),
    "first order": ({"order": "first", "local_steps": 2}, 2),
    "a clip of its own": ({"clip": 0.5, "curvature_clip": 2.0, "local_steps": 2}, 3),
    "sampled": ({"rate": 0.5}, 3),
    "paper:": ({"version": "paper:"}, 2),
    "paper:, sampled": ({"version": "paper:", "rate": 0.5}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_costs_what_it_says_beforehand(case, clients, tmp_path, quick_planner):
    method, each = CASES[case]
    plan = planned(BUDGET, **method)
    (tmp_path / "plan.toml").write_text(dumps(moved(plan, clients, tmp_path)))
    told = cost_of_plan(tmp_path / "plan.toml")
    folder = finished(plan, clients, tmp_path / "out")
    result, ledger = result_of(folder), rows_of(folder)
    samples = ROUNDS * plan.method.local_steps
    assert told["releases"] == each * samples
    assert told["observers"] == OBSERVERS
    spent = {name: cost(ledger.of(name), DELTA).epsilon for name in SOURCES}
    for (name, observer), epsilon in epsilons(told["guarantees"]).items():
        assert epsilon == pytest.approx(spent[name], rel=1e-9)
        assert epsilons(result["privacy"]["guarantees"])[name, observer] == spent[name]
    assert {row.mechanism for row in ledger.rows} == {"gaussian"}
    assert all(len(ledger.of(name)) == told["releases"] for name in SOURCES)
    assert rdp_epsilon(ledger.of("ann"), DELTA) >= spent["ann"]  # an independent, looser reading
    sigma, claim = told["noise_multiplier"], told["claim"]
    assert {json.dumps(each["claim"]) for each in result["privacy"]["guarantees"]} == {json.dumps(claim)}
    assert claim["basis"] == "S4 Theorem 1"
    if plan.method.version == "paper:":
        # It says that the budget is met; a record costs about twice as much.
        assert claim["epsilon"] == pytest.approx(EPSILON, rel=1e-3)
        assert min(spent.values()) > 1.5 * claim["epsilon"]
        assert "twice the clip" in claim["defect"]
        assert result["privacy"]["mode"] == "paper:"
        mu = 2.0 * math.sqrt(2.0 * samples) / sigma  # two releases of a step, each moved by 2 C
    else:
        assert EPSILON * (1.0 - 1e-4) < max(spent.values()) <= EPSILON
        assert claim["epsilon"] > EPSILON  # both sets added up
        assert result["privacy"]["mode"] == "dp"
        mu = math.sqrt(samples) / sigma
    if plan.method.rate == 1.0:
        assert gaussian_delta(mu, spent["ann"]) == pytest.approx(DELTA, rel=1e-9)


@pytest.mark.parametrize("method", [{}, {"order": "first"}, {"clip": 0.5, "curvature_clip": 2.0}])
def test_every_set_of_records_spends_its_whole_budget(method, clients, tmp_path, quick_planner):
    plan = planned(BUDGET, seed=1, **method)
    spends = open_job(plan, clients).forecast()["spends"]
    ledger = rows_of(finished(plan, clients, tmp_path / "out"))
    sites = {"inner gradient": "inner 0", "curvature": "curvature 0", "outer gradient": "outer 0"}
    for part in ("query", "support"):
        assert sum(row["share"] for row in spends if row["set"] == part) == 1.0
    for row in spends:
        noises = {each.noise for each in ledger.of("cyd") if each.release_point == sites[row["release"]]}
        assert {each.part for each in ledger.rows if each.release_point == sites[row["release"]]} == {row["set"]}
        assert row["times"] == ROUNDS
        for noise in noises:  # cyd has most records; the ledger's is on the grid of its integers
            assert row["noise"] == pytest.approx(noise, rel=1e-6)
    assert ("curvature" in {row["release"] for row in spends}) == (plan.method.order == "second")


def test_the_planner_tells_the_noise_of_other_rounds_and_rates(clients, monkeypatch):
    monkeypatch.setattr(meta_job, "_PLANNED_ROUNDS", (1, 12))
    monkeypatch.setattr(meta_job, "_PLANNED_RATES", (0.1,))
    job = open_job(planned(BUDGET), clients)
    rows = job.forecast()["planner"]
    assert [(row["rounds"], row["rate"]) for row in rows] == [(1, 1.0), (3, 0.1), (3, 1.0), (12, 1.0)]
    assert [row["planned"] for row in rows] == [False, False, True, False]
    by = {(row["rounds"], row["rate"]): row for row in rows}
    assert by[1, 1.0]["sigma"] < by[3, 1.0]["sigma"] < by[12, 1.0]["sigma"]
    assert by[3, 0.1]["sigma"] < by[3, 1.0]["sigma"]
    assert by[3, 1.0]["sigma"] == pytest.approx(job.sigma, rel=0.2)  # Renyi's reading is a little dearer
    assert by[3, 1.0]["sigma"] >= job.sigma
    median = sorted(SIZES[name] // 2 for name in SOURCES)[1]
    for row in rows:
        most = row["rate"] * median * math.sqrt(len(SOURCES) * row["rounds"])
        assert row["noise"] == pytest.approx(row["sigma"] * math.sqrt(job.task.size) / most, rel=1e-12)
    assert open_job(planned(BUDGET, version="paper:"), clients).forecast()["planner"] == []
    assert open_job(planned(), clients).forecast()["planner"] == []


def test_a_plan_without_privacy_promises_none(clients, tmp_path):
    told = open_job(planned(), clients).forecast()
    folder = finished(planned(), clients, tmp_path / "out")
    for guarantees in (told["guarantees"], result_of(folder)["privacy"]["guarantees"]):
        assert {each["epsilon"] for each in guarantees} == {"infinity"}
    assert told["releases"] == 0
    assert told["claim"] is None
    assert {row.mechanism for row in rows_of(folder).rows} == {"reveal"}


def test_what_publishing_new_clients_models_costs_is_told_beforehand(clients, quick_planner):
    told = open_job(planned(MetaBudget(EPSILON, DELTA, 3.0)), clients).forecast()
    bill = epsilons(told["guarantees"])
    assert bill["ann", "server"] == pytest.approx(EPSILON, rel=1e-9)
    assert bill["dee", "server"] == pytest.approx(3.0, rel=1e-9)


@pytest.mark.parametrize(
    ("budget", "method"),
    [
        pytest.param(MetaBudget(0.01), {}, id="less than the planner's Renyi accountant can tell"),
        pytest.param(MetaBudget(EPSILON, 0.03), {"rate": 0.005}, id="without any noise it costs less"),
    ],
)
def test_a_price_is_found_or_refused_in_finite_time(budget, method, clients, quick_planner):
    with within(120):
        try:
            told = open_job(planned(budget, **method), clients).forecast()
        except InputError:
            return
    assert all(each["epsilon"] <= budget.epsilon * (1.0 + 1e-9) for each in told["guarantees"])


# ---- what a run leaves -----------------------------------------------------------------------------------------------


def test_an_open_run_leaves_the_start_the_new_clients_models_and_their_scores(clients, tmp_path):
    plan = planned(seed=2, compare=True, rounds=6)
    folder = finished(plan, clients, tmp_path / "out")
    result = result_of(folder)
    assert set(contents(folder)) == {
        "models/start.npz", "models/new/dee.npz", "models/new/eve.npz",
        "ledger.jsonl", "plan.toml", "report.html", "result.json",
    }  # fmt: skip
    assert (result["method"], result["seed"], result["rounds"], len(result["trace"])) == ("private_meta", 2, 6, 6)
    assert result["task"] == {
        "answers": "classes", "target": "trend", "classes": list(CLASSES), "features": ["a", "b", "c"], "shape": [3],
    }  # fmt: skip
    assert result["model"] == {"name": "mlp", "parameters": 3 * 4 + 4 + 4 * 3 + 3}
    assert result["clients"] == [{"name": name, "records": SIZES[name]} for name in SOURCES]
    assert result["parameters"]["clip"] is None
    assert result["parameters"]["sigma"] is None
    assert result["parameters"]["personal_step"] == plan.method.inner_step
    assert "torch" in result["versions"]
    spec, layout, start = load_model(folder / "models/start.npz")
    assert [name for name, _ in layout] == ["1.weight", "1.bias", "3.weight", "3.bias"]
    assert len(start) == result["model"]["parameters"]
    assert spec["classes"] == list(CLASSES)
    assert [row["name"] for row in result["new"]] == list(NEW)
    for row in result["new"]:
        assert row["records"] + row["test_records"] == 20
        assert 0.0 <= row["before"] <= 1.0
        assert not np.array_equal(load_model(folder / f"models/new/{row['name']}.npz")[2], start)
    scores = {row["method"]: row["score"] for row in result["comparison"]}
    assert list(scores) == [
        "this run",
        "each client alone",
        "one model for all, of all records together",
        "federated averaging, then the same steps",
        "Reptile, then the same steps",
    ]
    assert scores["this run"] == pytest.approx(np.mean([row["after"] for row in result["new"]]))
    assert result["test"]["measure"] == "accuracy"
    assert result["test"]["records"] == 20
    assert result["numbers_are"]["comparison"] == result["numbers_are"]["new"] == "simulation only"
    assert any("for comparison: simulation only" in note for note in result["privacy"]["notes"])


def constant(folder, **answers):
    """Tables of one record many times: however they are divided, each part says the same."""
    for k, (name, (x, y, count)) in enumerate(answers.items()):
        made = pd.DataFrame([x] * count, columns=["a", "b"])
        made.insert(k % 3, "dose", y)
        made.to_csv(folder / f"{name}.csv", index=False)


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_linear_regression_is_the_papers_recursion_to_the_digit(order, tmp_path):
    """F(w) = (w x - y)^2 / 2 has gradient (w x - y) x and Hessian x x'; (1) to (4) by hand, weights |support|."""
    eta, beta, step = 0.2, 0.3, 0.15
    sources = {"ann": ([0.5, -1.0], 0.7, 6), "bob": ([1.0, 0.25], -0.4, 11), "cyd": ([-0.75, 0.5], 1.2, 2)}
    x, y = np.array([0.25, 0.5, 1.0]), -1.0
    constant(tmp_path, **sources, dee=(x[:2].tolist(), y, 4))
    data = MetaData("dose", files(sources), files(["dee"]), "numbers")
    chosen = MetaMethod(
        model="linear", rounds=2, local_steps=2, rate=1.0, order=order, inner_step=eta, outer_step=beta,
        personal_step=step, personal_steps=2,
    )  # fmt: skip
    plan = MetaPlan(data, chosen, seed=3)
    folder = finished(plan, tmp_path, tmp_path / "out")

    w = open_job(plan, tmp_path).task.start
    for _ in range(2):
        after = []
        for features, answer, _ in sources.values():
            z, local = np.array([*features, 1.0]), w
            for _ in range(2):
                theta = local - eta * (local @ z - answer) * z  # (1)
                outer = (theta @ z - answer) * z
                bent = z * (z @ outer) if order == "second" else 0.0
                local = local - beta * (outer - eta * bent)  # (2)
            after.append(local)
        supports = np.array([count // 2 for *_, count in sources.values()])
        w = supports / supports.sum() @ after  # (3)
    np.testing.assert_allclose(start_of(folder), w, rtol=1e-5)

    off = w @ x - y
    shrink = (1.0 - step * (x @ x)) ** 2  # two steps (4) leave this much of the error
    (row,) = result_of(folder)["new"]
    assert row["before"] == pytest.approx(off**2, rel=1e-4)
    assert row["after"] == pytest.approx((off * shrink) ** 2, rel=1e-4)
    assert row["loss"] == pytest.approx(row["after"] / 2.0)
    assert result_of(folder)["test"] == {"records": 2, "measure": "mean squared error", "baseline": 0.0}


def test_a_plan_that_names_persons_protects_them(clients, tmp_path):
    """Their number is public then, and not that of records; new clients need not say whose theirs are."""
    for name in SOURCES:
        made = pd.read_csv(clients / f"{name}.csv")
        made.assign(who=[f"p{k // 2}" for k in range(len(made))]).to_csv(tmp_path / f"{name}.csv", index=False)
    for name in NEW:
        shutil.copy(clients / f"{name}.csv", tmp_path)
    data = {"unit_column": "who", "unit_rows": 3}
    folder = finished(planned(MetaBudget(EPSILON, DELTA, protect="persons"), data=data), tmp_path, tmp_path / "out")
    result = result_of(folder)
    assert result["privacy"]["protected_unit"].startswith("one person")
    assert [client["records"] for client in result["clients"]] == [10, 7, 13]
    assert result["task"]["features"] == ["a", "b", "c"]
    assert any("how many persons each has" in note for note in result["privacy"]["notes"])
    assert {row.protected_unit.partition(" of the ")[0] for row in rows_of(folder).rows} == {PERSON}
    page = build(folder)
    assert "A person contributed the mean over their records" in page
    assert "Persons of each" in page


def test_under_privacy_new_clients_keep_their_models(clients, tmp_path):
    plan = planned(BUDGET)
    folder = finished(plan, clients, tmp_path / "out")
    result = result_of(folder)
    assert [path.name for path in (folder / "models").iterdir()] == ["start.npz"]
    assert {each["site"] for each in result["privacy"]["guarantees"]} == set(SOURCES)
    assert {row.silo for row in rows_of(folder).rows} == set(SOURCES)
    assert any("New clients' models stay with them" in note for note in result["privacy"]["notes"])
    assert len(result["comparison"]) == 2
    assert result["parameters"]["clip"] == plan.method.clip
    assert result["privacy"]["protected_unit"] == "one record"
    assert result["privacy"]["relation"].startswith("add-or-remove-one")


def test_new_clients_models_are_published_for_a_budget_of_their_own(clients, tmp_path):
    folder = finished(planned(MetaBudget(EPSILON, DELTA, 3.0), personal_steps=2), clients, tmp_path / "out")
    result, ledger = result_of(folder), rows_of(folder)
    bill = epsilons(result["privacy"]["guarantees"])
    assert set(bill) == {(name, observer) for name in SOURCES + NEW for observer in OBSERVERS}
    for name in NEW:
        rows = ledger.of(name)
        assert [(row.round, row.release_point, row.mechanism) for row in rows] == [
            (0, "personal step", "gaussian"),
            (1, "personal step", "gaussian"),
        ]
        # Ten records learn, each of them clipped to 1; two steps of mu / sqrt(2) each.
        assert [row.l2 for row in rows] == pytest.approx([0.1, 0.1], rel=1e-6)
        assert gaussian_delta(math.sqrt(2.0) * rows[0].l2 / rows[0].noise, 3.0) == pytest.approx(DELTA, rel=1e-6)
        assert bill[name, "public"] == pytest.approx(3.0, rel=1e-9)
        assert load_model(folder / f"models/new/{name}.npz")[0]["target"] == "trend"
    assert bill["ann", "server"] == pytest.approx(EPSILON, rel=1e-9)
    assert {each["claim"] for each in result["privacy"]["guarantees"] if each["site"] in NEW} == {None}
    assert epsilons(cost_of_run(folder)["guarantees"]) == bill
    assert any("models are written here" in note for note in result["privacy"]["notes"])


def test_a_run_without_new_clients_has_no_scores(clients, tmp_path):
    folder = finished(planned(BUDGET, data={"new": ()}), clients, tmp_path / "out")
    result = result_of(folder)
    assert (result["new"], result["comparison"], result["test"]) == ([], [], None)
    assert (folder / "models/start.npz").exists()


def pictures(folder, name, count=6, side=8, labels=("cat", "dog")):
    """Cats are bright above, dogs below."""
    rng = np.random.default_rng(list(name.encode()))
    y = np.array(labels)[np.arange(count) % len(labels)]
    x = rng.integers(0, 90, size=(count, side, side), dtype=np.uint8)
    x[y == labels[0], : side // 2] += 150
    x[y != labels[0], side // 2 :] += 150
    np.savez(folder / f"{name}.npz", x=x, y=y)


def test_pictures_with_words_for_labels_and_a_convolutional_network(tmp_path):
    for name in ("ann", "bob", "dee"):
        pictures(tmp_path, name)
    data = MetaData("animal", ("ann.npz", "bob.npz"), ("dee.npz",), classes=("cat", "dog"))
    method = MetaMethod(model="cnn", rounds=1, rate=1.0, order="first")
    folder = finished(MetaPlan(data, method, BUDGET), tmp_path, tmp_path / "out")
    result = result_of(folder)
    assert result["task"]["shape"] == [1, 8, 8]
    assert result["task"]["features"] == []
    assert result["new"][0]["test_records"] == 3
    filters = sum(a * b * 9 + b for a, b in ((1, 64), (64, 128), (128, 256)))
    dense = sum(a * b + b for a, b in ((256, 128), (128, 256), (256, 2)))
    assert result["model"] == {"name": "cnn", "parameters": filters + dense}
    assert max(epsilons(result["privacy"]["guarantees"]).values()) <= EPSILON


def test_a_target_need_not_be_said_where_it_is_y(tmp_path):
    """NPZ files know no other."""
    pictures(tmp_path, "ann")
    tables = {"format": 1, "data": {"files": ["ann.npz"]}, "method": {"name": "private_meta", "rounds": 1, "rate": 1}}
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(tables))
    assert result_of(finished(load(tmp_path / "plan.toml"), tmp_path, tmp_path / "out"))["task"]["target"] == "y"
    table(*records("ann")).to_csv(tmp_path / "ann.csv", index=False)
    tables["data"]["files"] = ["ann.csv"]
    with pytest.raises(InputError, match="a column 'y', the target, but its columns are"):
        open_job(parse(tables, "plan.toml"), tmp_path)


def test_labels_may_be_missing_at_a_client_and_records_few(tmp_path):
    """One client knows a single class, another has two records: nothing is said of it under privacy."""
    x = np.random.default_rng(0).normal(size=(12, 3))
    table(x, ["up"] * 12).to_csv(tmp_path / "ann.csv", index=False)
    table(x[:2], ["down", "level"]).to_csv(tmp_path / "bob.csv", index=False)
    for privacy in (None, BUDGET):
        plan = planned(privacy, data={"files": files(["ann", "bob"]), "new": ()})
        folder = finished(plan, tmp_path, tmp_path / f"out {privacy is None}")
        assert result_of(folder)["task"]["classes"] == list(CLASSES)
        assert result_of(folder)["clients"] == [{"name": "ann", "records": 12}, {"name": "bob", "records": 2}]


def test_without_a_list_the_classes_are_those_that_occur(clients, tmp_path):
    folder = finished(planned(data={"classes": None}), clients, tmp_path / "out")
    assert result_of(folder)["task"]["classes"] == ["down", "up"]


# ---- tables that do not fit ------------------------------------------------------------------------------------------


def one_record(folder):
    table(*records("bob")).head(1).to_csv(folder / "bob.csv", index=False)


def other_column(folder):
    table(*records("bob")).rename(columns={"c": "d"}).to_csv(folder / "bob.csv", index=False)


def other_column_of_a_new_client(folder):
    table(*records("dee")).drop(columns="b").to_csv(folder / "dee.csv", index=False)


def no_target(folder):
    table(*records("ann")).drop(columns="trend").to_csv(folder / "ann.csv", index=False)


def missing_number(folder):
    table(*records("ann")).replace({"a": {records("ann")[0][4, 0]: np.nan}}).to_csv(folder / "ann.csv", index=False)


def missing_label(folder):
    made = table(*records("ann"))
    made.loc[2, "trend"] = None
    made.to_csv(folder / "ann.csv", index=False)


def no_file(folder):
    (folder / "cyd.csv").unlink()


def source_is_new(folder):
    shutil.move(folder / "dee.csv", folder / "elsewhere.csv")
    (folder / "new").mkdir()
    table(*records("ann")).to_csv(folder / "new/ann.csv", index=False)


@pytest.mark.parametrize(
    ("spoil", "new", "words"),
    [
        (one_record, NEW, "bob.csv: expected at least 2 records, but there is only one"),
        (other_column, NEW, "bob.csv: expected the features of client"),
        (other_column_of_a_new_client, NEW, "dee.csv: expected the features of the model"),
        (no_target, NEW, "ann.csv: expected a column 'trend', the target, but its columns are"),
        (missing_number, NEW, "ann.csv, column 'a', data row 5"),
        (missing_label, NEW, "ann.csv, column 'trend', data row 3: expected a label, but it is missing"),
        (no_file, NEW, "cyd.csv"),
        (source_is_new, ("new/ann",), "client ann: expected a new client, or a source client, but it is both"),
    ],
)
@pytest.mark.parametrize("privacy", [None, BUDGET])
def test_tables_that_do_not_fit_are_refused_by_name_and_leave_nothing(spoil, new, words, privacy, clients, tmp_path):
    shutil.copytree(clients, tmp_path / "clients")
    spoil(tmp_path / "clients")
    with pytest.raises(InputError) as error:
        finished(planned(privacy, data={"new": files(new)}), tmp_path / "clients", tmp_path / "out")
    for word in words.split("'"):  # however the names are quoted
        assert word in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["clients"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": {"files": files(("ann", "ann"))}}, "clients with different names"),
        ({"data": {"classes": ("up",)}}, "at least 2 different ones"),
        ({"data": {"classes": ("up", "down", "up")}}, "at least 2 different ones"),
        ({"data": {"answers": "numbers", "classes": None}}, "trend"),
        ({"data": {"new": ("pictures.npz",)}}, "features of the model"),
        ({"data": {"files": ("ann.csv", "pictures.npz")}}, "NPZ files or tables"),
        ({"model": "cnn"}, "pictures for a cnn, but found records of shape (3,)"),
        ({"device": "abacus"}, "expected cpu or cuda, but found 'abacus'"),
        ({"privacy": MetaBudget(EPSILON, 0.08)}, "delta below 1/N"),
        ({"privacy": MetaBudget(1e-9, DELTA)}, "client ann: expected a privacy budget epsilon from"),
        ({"privacy": MetaBudget(EPSILON, DELTA, 1e-9)}, "client dee: expected a privacy budget epsilon from"),
    ],
)
def test_plans_that_do_not_fit_their_tables_are_refused(change, words, clients, tmp_path):
    pictures(clients, "pictures", labels=("up", "down"))
    with pytest.raises(InputError) as error:
        finished(planned(**change), clients, tmp_path / "out")
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_pictures_of_different_sizes_are_refused(tmp_path):
    for name, side in (("ann", 8), ("bob", 8), ("big", 10)):
        pictures(tmp_path, name, side=side)
    for sources, new in ((("ann.npz", "big.npz"), ()), (("ann.npz", "bob.npz"), ("big.npz",))):
        plan = MetaPlan(MetaData("animal", sources, new), MetaMethod(rounds=1))
        with pytest.raises(InputError, match=r"shape \(1, \d+, \d+\)"):
            open_job(plan, tmp_path)


def test_a_device_that_is_not_there_is_refused(clients, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="expected a CUDA device"):
        finished(planned(device="cuda"), clients, tmp_path / "out")


def test_a_price_needs_no_device(clients, tmp_path, monkeypatch, quick_planner):
    """A plan is approved where it will not run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    bills = []
    for device in ("cpu", "cuda"):
        (tmp_path / "plan.toml").write_text(dumps(moved(planned(BUDGET, device=device), clients, tmp_path)))
        bills.append(cost_of_plan(tmp_path / "plan.toml"))
    assert bills[0] == bills[1]
    (tmp_path / "plan.toml").write_text(dumps(moved(planned(BUDGET, device="abacus"), clients, tmp_path)))
    with pytest.raises(InputError, match="cpu or cuda"):
        cost_of_plan(tmp_path / "plan.toml")


def test_under_privacy_a_label_that_is_not_listed_is_not_quoted(clients, tmp_path):
    for sick, private in (("ann", True), ("dee", True), ("ann", False)):
        folder = tmp_path / f"{sick} {private}"
        shutil.copytree(clients, folder)
        (folder / f"{sick}.csv").write_text((folder / f"{sick}.csv").read_text().replace("up", "syphilis", 1))
        with pytest.raises(InputError) as error:
            open_job(planned(BUDGET if private else None), folder)
        assert f"{sick}.csv" in error.value.where
        assert ("syphilis" in str(error.value)) != private


def test_under_privacy_nothing_is_refused_for_all_records_together(clients, tmp_path):
    """A constant column, one class only, and lengths far beyond the clip are a run like any other."""
    shutil.copytree(clients, tmp_path / "clients")
    for name in SOURCES:
        x, _ = records(name)
        x[:, 1], x[:, 2] = 0.0, 1e9 * x[:, 2]
        table(x, "up").to_csv(tmp_path / f"clients/{name}.csv", index=False)
    finished(planned(BUDGET, inner_step=1e-9), tmp_path / "clients", tmp_path / "out")


@pytest.mark.parametrize("privacy", [None, BUDGET])
@pytest.mark.parametrize("answers", ["classes", "numbers"])
def test_a_personal_step_far_too_long_ends_in_words(answers, privacy, clients, tmp_path, silograph):
    """What a new client makes of the start comes last: the budget of the others is spent by then."""
    data = {}
    if answers == "numbers":
        for name in SIZES:
            x, _ = records(name)
            table(x, x[:, 0]).to_csv(tmp_path / f"{name}.csv", index=False)
        data, clients = {"answers": "numbers", "classes": None}, tmp_path
    plan = planned(privacy, data=data, personal_step=1e6, personal_steps=40)
    (tmp_path / "plan.toml").write_text(dumps(moved(plan, clients, tmp_path)))
    code, _, error = silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")
    assert code == 0 or "step" in error
    left = tmp_path / ".out.unfinished"
    assert left.exists() == (code != 0 and privacy is not None)
    if left.exists():  # the ledger, and the start that was paid for; nothing that would remove the noise
        assert set(contents(left)) == {"ledger.jsonl", "models/start.npz"}
        _, _, error = silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")
        assert "tells what one has released and spent before it failed" in error
        assert "Choose another run folder" in error


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"rounds": 10**400}, id="rounds beyond floats"),
        pytest.param({"local_steps": 10**400}, id="local steps beyond floats"),
        pytest.param({"hidden": [10**15]}, id="a layer beyond any memory"),
    ],
)
def test_absurd_settings_are_refused_with_words(setting, clients, tmp_path, silograph):
    tables = tomllib.loads(dumps(moved(planned(BUDGET), clients, tmp_path)))
    tables["method"] |= setting
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(tables))
    code, _, error = silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")
    assert code in (1, 2)
    assert error.startswith("silograph: ")


# ---- seeds, engines, interruptions -----------------------------------------------------------------------------------


def test_a_seed_is_a_rehearsal_wherever_a_number_is_stated(clients, tmp_path, quick_planner, silograph):
    for seed in (1, None):
        plan, out = tmp_path / f"{seed}.toml", tmp_path / f"out {seed}"
        plan.write_text(dumps(moved(planned(BUDGET, seed=seed), clients, tmp_path)))
        told = silograph("run", plan, "-o", out)[1]
        for text in (told, silograph("privacy", plan)[1], silograph("privacy", out)[1]):
            assert ("(rehearsal)" in text) == (seed is not None)
            assert ("Rehearsal:" in text) == (seed is not None)
        for bill in (cost_of_plan(plan), cost_of_run(out), result_of(out)["privacy"]):
            assert {each["rehearsal"] for each in bill["guarantees"]} == {seed is not None}
        for row in rows_of(out).rows:
            assert ("secret" in row.randomness) == (seed is None)


#: The command line in a process that somebody stops by Ctrl-C after so many writes to its ledger.
STOPPED = """
import os, signal, sys
from silograph.cli import main
from silograph.privacy.ledger import Ledger
left, real = int(sys.argv.pop(1)), Ledger.append
def append(ledger, rows):
    global left
    real(ledger, rows)
    left -= 1
    if not left:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
        os.kill(os.getpid(), signal.SIGINT)
Ledger.append = append
main()
"""


def test_stopped_by_ctrl_c_the_run_says_how_to_go_on_and_ends_with_the_same_bytes(clients, tmp_path, silograph):
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(dumps(moved(planned(MetaBudget(EPSILON, DELTA, 3.0), seed=8, rounds=20), clients, tmp_path)))
    assert silograph("run", plan, "-o", out)[0] == 0
    straight = contents(out)
    os.rename(out, tmp_path / "straight")
    command = [sys.executable, "-c", STOPPED, "9", "run", str(plan), "-o", str(out)]
    stopped = subprocess.run(command, capture_output=True, text=True)
    assert stopped.returncode == 130
    assert "Traceback" not in stopped.stderr
    assert "Type the same command again to resume" in stopped.stderr
    assert not out.exists()
    assert silograph("run", plan, "-o", out)[0] == 0
    assert contents(out) == straight
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


# ---- a ledger is evidence --------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(clients, tmp_path, monkeypatch):
    """A run of six rounds that was stopped in its fourth, with a state of its third."""
    monkeypatch.setattr(running, "_SAVE_EVERY", 0.0)
    monkeypatch.setattr(running, "_SAVE_SHARE", 0.0)

    def stop(number, line):
        if number == 4:
            raise KeyboardInterrupt

    def begin(seed):
        plan = planned(BUDGET, seed=seed, rounds=6)
        with pytest.raises(KeyboardInterrupt):
            finished(plan, clients, tmp_path / "out", stop)
        gc.collect()  # the lock goes with what the error held
        return plan, tmp_path / ".out.unfinished"

    return begin


def rewound(folder):
    """As if no round had been played."""
    with np.load(folder / "state.npz") as content:
        arrays = dict(content)
    arrays["servers/round"] = np.int64(0)
    np.savez(folder / "state.npz", **arrays)


def cut(folder, rows):
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_text("".join(lines[:-rows]))


def forgotten(folder):
    """Rows that the state knows of."""
    cut(folder, 12)


def louder(folder):
    """A row says more noise than there was."""
    text = (folder / "ledger.jsonl").read_text()
    (folder / "ledger.jsonl").write_text(text.replace('"noise": 0.', '"noise": 1.', 1))


def other_noise(folder):
    for name in ("root", "state.npz"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("edit", "seed", "error"),
    [
        (rewound, 1, BudgetError),
        (rewound, None, BudgetError),
        (forgotten, 1, DamageError),
        (louder, None, DamageError),
        (other_noise, None, DamageError),
    ],
)
def test_editing_an_unfinished_folder_buys_nothing(edit, seed, error, unfinished, clients, tmp_path):
    plan, folder = unfinished(seed)
    edit(folder)
    for said in (error, InputError if error is BudgetError else error):
        with pytest.raises(said):
            finished(plan, clients, tmp_path / "out")
        gc.collect()
    assert not (tmp_path / "out").exists()
    if error is BudgetError:
        assert {path.name for path in folder.iterdir()} <= {"ledger.jsonl", "lock"}  # what failed cannot go on
        ledger = Ledger(folder / "ledger.jsonl", mend=False)
        assert all(cost(ledger.of(name), DELTA).epsilon <= EPSILON * (1.0 + 1e-9) for name in SOURCES)


def test_another_plan_cannot_go_on_with_what_one_released(unfinished, clients, tmp_path):
    """Not even if the identity of the unfinished run is rewritten: its releases would be others."""
    plan, folder = unfinished(1)
    longer = planned(BUDGET, seed=1, rounds=12)
    with pytest.raises(InputError, match="the plan changed"):
        finished(longer, clients, tmp_path / "out")
    identity = json.loads((folder / "identity.json").read_text())
    identity["plan"] = dumps(moved(longer, clients, tmp_path / "out"))
    (folder / "identity.json").write_text(json.dumps(identity))
    (folder / "state.npz").unlink()
    with pytest.raises(DamageError, match="the value that was released there before"):
        finished(longer, clients, tmp_path / "out")
    assert plan != longer


@pytest.mark.parametrize("lose", [lambda folder: (folder / "state.npz").unlink(), lambda folder: cut(folder, 4)])
def test_what_can_be_played_again_only_costs_time(lose, unfinished, clients, tmp_path):
    """A lost state, or the end of a round that was under way: the same releases are made again."""
    plan, folder = unfinished(1)
    lose(folder)
    mended = finished(plan, clients, tmp_path / "out")
    assert contents(mended) == contents(finished(plan, clients, tmp_path / "straight"))


def test_the_bill_of_a_run_is_read_from_its_ledger(clients, tmp_path):
    out = finished(planned(BUDGET), clients, tmp_path / "out")
    result, bill = result_of(out), cost_of_run(out)
    assert epsilons(bill["guarantees"]) == epsilons(result["privacy"]["guarantees"])
    assert bill["claim"] == result["privacy"]["guarantees"][0]["claim"]
    assert bill["releases"] == 3 * ROUNDS
    lines = (out / "ledger.jsonl").read_text().splitlines(keepends=True)
    for lost in (0, len(lines) // 2, len(lines) - 1):
        (out / "ledger.jsonl").write_text("".join(lines[:lost] + lines[lost + 1 :]))
        with pytest.raises(DamageError):
            cost_of_run(out)
    (out / "ledger.jsonl").write_text("".join(lines))
    for each in result["privacy"]["guarantees"]:
        each["epsilon"] = 1.0
    (out / "result.json").write_text(json.dumps(result))
    with pytest.raises(DamageError, match="as its ledger says"):
        cost_of_run(out)


# ---- the command line ------------------------------------------------------------------------------------------------


def test_the_sample_devices_are_priced_learn_and_help_new_ones(tmp_path, silograph, quick_planner):
    folder, out = tmp_path / "d", tmp_path / "out"
    code, text, _ = silograph("sample", folder, "--devices")
    assert code == 0
    assert len(text.splitlines()) == 33
    assert {path.name for path in folder.iterdir()} == {"devices", "new", "plan.toml"}
    plan = load(folder / "plan.toml")
    assert sorted(plan.data.files) == sorted(f"devices/{path.name}" for path in (folder / "devices").iterdir())
    assert sorted(plan.data.new) == sorted(f"new/{path.name}" for path in (folder / "new").iterdir())
    assert sorted(plan.data.classes) == sorted(activity for pair in ACTIVITY_PAIRS for activity in pair)
    code, text, _ = silograph("privacy", folder / "plan.toml")
    assert code == 0
    for words in ("epsilon 4, delta 0.0001", "share of its budget", "noise / movement", "this plan", "S4 Theorem 1"):
        assert words in text
    assert 'chosen from public numbers, by the budget: model = "mlp", rounds = 50, rate = 1.0' in text
    told = json.loads(silograph("privacy", folder / "plan.toml", "--json")[1])
    assert 3.999 < max(epsilons(told["guarantees"]).values()) <= 4.0
    (folder / "plan.toml").write_text((folder / "plan.toml").read_text().replace("format = 1", "format = 1\nseed = 1"))
    code, text, _ = silograph("run", folder / "plan.toml", "-o", out)
    assert code == 0
    for words in ("device-25", "this run", "each client alone", "without features", "808 parameters"):
        assert words in text
    scores = {row["method"]: row["score"] for row in result_of(out)["comparison"]}
    assert scores["this run"] > scores["each client alone"] + 0.1
    assert scores["this run"] > result_of(out)["test"]["baseline"] + 0.2
    page = (out / "report.html").read_text()
    assert "device-25" in page
    (out / "report.html").unlink()
    assert silograph("report", out)[0] == 0
    assert (out / "report.html").read_text() == page
    assert len(MOTIONS) == len(result_of(out)["task"]["features"])


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (planned(compare=True), "Reptile"),
        (planned(BUDGET, version="paper:"), "S4 Theorem 1"),
        (planned(MetaBudget(EPSILON, DELTA, 3.0)), "eve"),
        (planned(BUDGET, data={"new": ()}), "cyd"),
        (planned(data={"target": "b", "answers": "numbers", "classes": None}, model="linear"), "squared error"),
    ],
)
def test_every_kind_of_run_is_told_and_has_its_page(plan, words, clients, tmp_path, silograph):
    shutil.copytree(clients, tmp_path / "clients")
    for path in (tmp_path / "clients").glob("*.csv"):
        if plan.data.answers == "numbers":
            pd.read_csv(path).drop(columns="trend").to_csv(path, index=False)
    (tmp_path / "plan.toml").write_text(dumps(moved(plan, tmp_path / "clients", tmp_path)))
    code, text, _ = silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")
    assert code == 0
    assert "3 source clients, 3 rounds" in text
    assert words in text + (tmp_path / "out/report.html").read_text()


@pytest.mark.parametrize("words", [["--devices", "--clinics"], ["--hospitals", "--devices"]])
def test_one_kind_of_sample_at_a_time(words, tmp_path, silograph):
    code, _, error = silograph("sample", tmp_path / "d", *words)
    assert code == 2
    assert "options: expected one sample, but found --" in error
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def learned(clients, tmp_path_factory):
    """The folder of a finished run whose start everybody may have."""
    return finished(planned(BUDGET, seed=3, personal_step=0.4), clients, tmp_path_factory.mktemp("learned") / "out")


def descended(start, x, y, step, steps):
    """Full gradient steps by torch's own optimiser, in double precision; the model, and how often it is right."""
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    vector_to_parameters(torch.from_numpy(start.copy()), module.parameters())
    inputs, labels = torch.from_numpy(x), torch.tensor([CLASSES.index(label) for label in y])
    descent = torch.optim.SGD(module.parameters(), lr=step)
    for _ in range(steps):
        descent.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        descent.step()
    right = (module(inputs).argmax(1) == labels).double().mean()
    return parameters_to_vector(module.parameters()).detach().numpy(), float(right)


@pytest.mark.parametrize(("words", "step", "steps"), [([], 0.4, 1), (["--steps", "3", "--step", "0.25"], 0.25, 3)])
def test_personalise_takes_the_steps_and_says_what_they_did(words, step, steps, learned, clients, tmp_path, silograph):
    x, y = records("dee")
    before = contents(learned)
    for start in (learned, learned / "models/start.npz"):
        out = tmp_path / f"{start.name}.npz"
        code, text, _ = silograph("personalise", start, clients / "dee.csv", "-o", out, *words, "--json")
        told = json.loads(text)
        assert code == 0
        vector, right = descended(start_of(learned), x, y, step, steps)
        np.testing.assert_allclose(load_model(out)[2], vector, atol=1e-5)
        assert told["before"] == descended(start_of(learned), x, y, step, 0)[1]
        assert told["after"] == right
        assert (told["records"], told["tested"], told["seen"], told["measure"]) == (20, 20, True, "accuracy")
        assert load_model(out)[:2] == load_model(learned / "models/start.npz")[:2]
    assert contents(learned) == before


def test_personalise_may_test_on_other_records_and_go_on_from_its_own_model(learned, clients, tmp_path, silograph):
    mine, again = tmp_path / "mine.npz", tmp_path / "again.npz"
    words = ["personalise", learned, clients / "dee.csv", "-o", mine, "--test", clients / "cyd.csv"]
    code, text, _ = silograph(*words)
    assert code == 0
    assert f"accuracy on the 26 records of {clients / 'cyd.csv'}:" in text
    assert f"model: {mine}" in text
    assert "learned from" not in text
    assert silograph("personalise", mine, clients / "dee.csv", "-o", again)[0] == 0
    vector, _ = descended(start_of(learned), *records("dee"), 0.4, 2)
    np.testing.assert_allclose(load_model(again)[2], vector, atol=1e-5)


def test_one_record_is_enough_to_personalise_and_no_test(learned, tmp_path, silograph):
    table(*records("dee")).head(1).to_csv(tmp_path / "dee.csv", index=False)
    code, text, _ = silograph("personalise", learned, tmp_path / "dee.csv", "-o", tmp_path / "mine.npz")
    assert code == 0
    assert "accuracy on the 1 record it learned from:" in text
    assert "the model will do worse on other records; --test measures how much" in text
    table(*records("dee")).head(0).to_csv(tmp_path / "none.csv", index=False)
    code, _, error = silograph("personalise", learned, tmp_path / "none.csv", "-o", tmp_path / "new.npz")
    assert code == 2
    assert "at least one record, but there is none" in error


def reshaped(start, out):
    """A parameter of another shape than the network has that the file names."""
    with np.load(start) as content:
        arrays = dict(content)
    np.savez(out, **arrays | {"parameter/1.weight": np.zeros((5, 3))})


BAD_STARTS = {
    "no npz": lambda start, out: out.write_text("not a model"),
    "cut off": lambda start, out: out.write_bytes(start.read_bytes()[:-200]),
    "flipped": lambda start, out: out.write_bytes(start.read_bytes().replace(b"parameter", b"parametre")),
    "records": lambda start, out: np.savez(out, x=np.zeros((3, 3)), y=np.zeros(3)),
    "reshaped": reshaped,
}


@pytest.mark.parametrize("bad", BAD_STARTS)
def test_a_start_that_is_none_is_refused(bad, learned, clients, tmp_path, silograph):
    start, out = tmp_path / "start.npz", tmp_path / "mine.npz"
    BAD_STARTS[bad](learned / "models/start.npz", start)
    code, _, error = silograph("personalise", start, clients / "dee.csv", "-o", out)
    assert code == 2
    assert "start.npz" in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("table_name", "words", "said"),
    [
        ("nobody.csv", [], "nobody.csv"),
        ("other.csv", [], "the features of the model"),
        ("unlabelled.csv", [], "a column"),
        ("strange.csv", [], "one of the classes"),
        ("dee.csv", ["--test", "nobody.csv"], "nobody.csv"),
        ("dee.csv", ["--steps", "0"], "at least one step of a size above 0, but found 0 of 0.4"),
        ("dee.csv", ["--step", "0"], "at least one step of a size above 0, but found 1 of 0"),
        ("dee.csv", ["--step", "nan"], "at least one step of a size above 0"),
        ("dee.csv", ["--step", "1e60"], "step"),
        ("dee.csv", ["--device", "cuda"], "a CUDA device"),
        ("dee.csv", ["--device", "abacus"], "cpu or cuda"),
    ],
)
def test_personalise_refuses_with_words_and_writes_nothing(
    table_name, words, said, learned, clients, tmp_path, silograph, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    made = table(*records("dee"))
    made.to_csv("dee.csv", index=False)
    made.rename(columns={"a": "z"}).to_csv("other.csv", index=False)
    made.drop(columns="trend").to_csv("unlabelled.csv", index=False)
    made.replace({"trend": {"up": "sideways"}}).to_csv("strange.csv", index=False)
    code, _, error = silograph("personalise", learned, table_name, "-o", "mine.npz", *words)
    assert code in (1, 2)
    assert said in error
    assert not Path("mine.npz").exists()


def test_personalise_overwrites_nothing(learned, clients, tmp_path, silograph):
    (tmp_path / "mine.npz").write_text("precious")
    code, _, error = silograph("personalise", learned, clients / "dee.csv", "-o", tmp_path / "mine.npz")
    assert code == 2
    assert "a new file, but it already exists" in error
    assert (tmp_path / "mine.npz").read_text() == "precious"
    assert silograph("personalise", tmp_path / "nowhere", clients / "dee.csv", "-o", tmp_path / "new.npz")[0] == 2
    assert silograph("personalise", learned, clients / "dee.csv", "-o", tmp_path / "no/new.npz")[0] == 1


WITHOUT_TORCH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from silograph.cli import main
main()
"""


@pytest.mark.parametrize("command", ["privacy", "run", "personalise"])
def test_without_torch_the_extra_is_named(command, learned, clients, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(dumps(moved(planned(), clients, tmp_path)))
    words = {
        "privacy": ["privacy", plan],
        "run": ["run", plan, "-o", tmp_path / "out"],
        "personalise": ["personalise", learned, clients / "dee.csv", "-o", tmp_path / "mine.npz"],
    }
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *map(str, words[command])], capture_output=True, text=True
    )
    assert told.returncode == 2
    assert "pip install 'silograph[neural]'" in told.stderr
    assert "Traceback" not in told.stderr
