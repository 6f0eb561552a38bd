"""What the pages on formats say is enough to read real files."""

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from blocks import blocks
from typer.main import get_command

from silograph.cli import app
from silograph.data.synthetic import write_sample_sites
from silograph.families.clusters.plan import ClusterBudget, ClusterData, ClusteredMethod
from silograph.families.federation.plan import AgentBudget, FederationMethod, RegionData
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.families.meta.plan import MetaBudget, MetaData, MetaMethod
from silograph.families.samples import samples
from silograph.families.servers import Servers
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import DistributedGaussian
from silograph.report.build import build as build_report
from silograph.run.plan import load
from silograph.run.run import execute
from support import cases, federation, run

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reader():
    """`read` and `epsilon` of the page, in a namespace without anything of silograph's."""
    names = {}
    code = next(b.text for b in blocks((DOCS / "ledger.md").read_text(encoding="utf-8")) if b.kind == "python")
    assert "silograph" not in code
    exec(code, names)
    return names


def on_disk(rows, path):
    ledger = Ledger(path)
    ledger.append(rows)
    return ledger.tip


@pytest.mark.parametrize("name", ["one release", "one release, clip", "per round, Corollary 1", "per round, Theorem 2"])
def test_the_pages_reader_gets_the_epsilon_of_a_real_ledger(name, reader, tmp_path):
    case = next(case for case in cases() if case.name == name)
    _, _, door = run(case, federation())
    rows = reader["read"](tmp_path / "ledger.jsonl", on_disk(door.ledger.rows, tmp_path / "ledger.jsonl"))
    for silo in ("ada", "bob", "cyd"):
        spent = door.spent(silo, case.budget.delta).epsilon
        assert reader["epsilon"](rows, silo, case.budget.delta) == pytest.approx(spent, rel=1e-9)


def test_the_pages_reader_gets_the_epsilon_of_a_secure_sum(reader, tmp_path):
    door = Door(1, Ledger(), DistributedGaussian(0.01), Budget(20.0, 1e-6), masks=Masks("skipped"))
    gate = door.gate(["region"], 0, "other servers")
    sealed = gate.contribute(np.ones((6, 4)), "update", clip=1.0)
    gate.total(sealed, np.arange(6), np.zeros(6, dtype=np.intp), [f"agent {k}" for k in range(6)])
    door.sync()
    rows = reader["read"](tmp_path / "l.jsonl", on_disk(door.ledger.rows, tmp_path / "l.jsonl"))
    assert rows[0]["mechanism"] == "distributed-gaussian"
    expected = door.spent("region", 1e-6).epsilon
    assert reader["epsilon"](rows, "region", 1e-6) == pytest.approx(expected, rel=1e-6)


def test_what_was_revealed_costs_infinity(reader, tmp_path):
    _, _, door = run(cases()[0], federation())
    rows = reader["read"](tmp_path / "l.jsonl", on_disk(door.ledger.rows, tmp_path / "l.jsonl"))
    assert math.isinf(reader["epsilon"](rows, "ada", 1e-6))


@pytest.mark.parametrize("broken", ["changed", "lost", "moved", "shortened"])
def test_the_pages_reader_refuses_a_ledger_that_was_touched(broken, reader, tmp_path):
    case = next(case for case in cases() if case.name == "per round, Corollary 1")
    _, _, door = run(case, federation())
    path = tmp_path / "ledger.jsonl"
    tip = on_disk(door.ledger.rows, path)
    lines = path.read_text().splitlines(keepends=True)
    lines = {
        "changed": [lines[0], lines[1].replace('"dim": ', '"dim": 1'), *lines[2:]],
        "lost": [lines[0], *lines[2:]],
        "moved": [lines[1], lines[0], *lines[2:]],
        "shortened": lines[:-1],
    }[broken]
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=r"row|end"):
        reader["read"](path, tip)


def test_every_key_of_a_row_is_on_the_page():
    page = (DOCS / "ledger.md").read_text(encoding="utf-8")
    case = next(case for case in cases() if case.name == "one release")
    _, _, door = run(case, federation())
    assert not [name for name in vars(door.ledger.rows[0]) if f"`{name}`" not in page]


def check_run_folder(folder):
    """Every file, and every key of the result, is on the page."""
    page = (DOCS / "run-folder.md").read_text(encoding="utf-8")
    result = json.loads((folder / "result.json").read_text())
    assert not [key for key in [*result, *result["privacy"]] if f"`{key}`" not in page]
    regions = [region["name"] for region in result.get("regions", [])]
    sites = [site["name"] for site in result.get("sites", [])]
    for path in folder.rglob("*.*"):
        name = path.relative_to(folder).as_posix()
        for names, word in ((regions, "REGION"), (sites, "NAME")):
            name = name.replace(path.stem, word) if path.stem in names else name
        assert f"`{name}`" in page


@pytest.mark.parametrize("privacy", [None, Privacy(2.0, 1e-6)], ids=["open", "private"])
def test_every_file_and_key_of_a_run_that_learns_graphs_is_on_the_page(privacy, tmp_path):
    tables = write_sample_sites(tmp_path, 1)
    nodes = tables[0].read_text().splitlines()[0].split(",")
    (tmp_path / "places.csv").write_text("node,x,y\n" + "".join(f"{node},{k},0\n" for k, node in enumerate(nodes)))
    data = Data(tuple(path.name for path in tables), coordinates="places.csv")
    plan = GraphPlan(data, ConsensusGraph(degree=6.0), privacy, seed=1)
    check_run_folder(execute(plan, tmp_path, tmp_path / "out", lambda *_: None, build_report).folder)


@pytest.mark.parametrize("sample", ["clinics", "hospitals", "devices"])
def test_every_file_and_key_of_a_run_is_on_the_page(sample, tmp_path):
    """Of the starter plans, with two rounds."""
    if sample == "devices":
        pytest.importorskip("torch", reason="networks need the extra `neural`")
    samples()[sample].write(tmp_path, 1)
    plan = load(tmp_path / "plan.toml")
    method = replace(plan.method, rounds=2, **({"masks": "skipped"} if sample == "clinics" else {}))
    finished = execute(replace(plan, method=method, seed=1), tmp_path, tmp_path / "out", lambda *_: None, build_report)
    check_run_folder(finished.folder)


PLANS = [
    [RegionData, FederationMethod, AgentBudget, Servers],
    [ClusterData, ClusteredMethod, ClusterBudget, Servers],
    [MetaData, MetaMethod, MetaBudget],
]


def named(key, page):
    return re.search(rf"`{key}\b", page)


@pytest.mark.parametrize("sections", PLANS, ids=["regions", "clusters", "networks"])
def test_every_key_of_a_plan_is_on_the_page(sections):
    page = (DOCS / "plans.md").read_text(encoding="utf-8")
    assert not [field.name for section in sections for field in fields(section) if not named(field.name, page)]


def test_every_key_of_a_graphs_plan_is_on_the_page_or_an_option():
    page = (DOCS / "plans.md").read_text(encoding="utf-8")
    learn = get_command(app).commands["learn"]
    known = {parameter.name.rstrip("_") for parameter in learn.params} | {"lam", "mode", "tolerance"}
    keys = {field.name for section in (Data, ConsensusGraph, Privacy) for field in fields(section)}
    assert not {key for key in keys if key not in known and not named(key, page)}
