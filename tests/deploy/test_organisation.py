"""What an organisation's folder tells those who can read it, and what it refuses."""

import hashlib
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from silograph.cli.aside import prepare_aside
from silograph.core.errors import InputError
from silograph.deploy.deployment import Deployment, Terms, deploy
from silograph.deploy.organisation import APPROVED, Approved, enrol, renew
from silograph.deploy.serve import read_cards
from silograph.engines.certificates import check_certified, node_name
from silograph.run.plan import load

PLAN = """format = 1
[data]
files = ["hill.csv", "mill.csv"]
scale = "none"
[method]
name = "consensus_graph"
degree = 2
[privacy]
epsilon = 2.0
delta = 1e-6
"""


@pytest.fixture
def organisations(tmp_path):
    """Two organisations with the same table."""
    table = np.random.default_rng(0).normal(size=(40, 4)).round(3)
    text = "a,b,c,d\n" + "\n".join(",".join(map(str, row)) for row in table) + "\n"
    for name in ("hill", "mill"):
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "plan.toml").write_text(PLAN)
    goal = tmp_path / "deployment"
    deploy(load(tmp_path / "plan.toml"), tmp_path, goal, Terms("127.0.0.1:1", tls=False), lambda *_: "")
    for name in ("hill", "mill"):
        enrol(goal / name, tmp_path / f"{name}.csv")
    return goal


def test_nobody_else_can_try_tables_against_what_everybody_can_read(organisations):
    table = (organisations.parent / "hill.csv").read_bytes()
    for name in ("hill", "mill"):
        told = (organisations / name / APPROVED).read_text()
        for kind in hashlib.algorithms_guaranteed - {"shake_128", "shake_256"}:
            assert hashlib.new(kind, table).hexdigest() not in told
    marks = [json.loads((organisations / name / APPROVED).read_text())["content"] for name in ("hill", "mill")]
    assert marks[0] != marks[1]  # of one and the same table


def test_the_table_that_was_enrolled_is_known_again_and_no_other(organisations):
    assert Approved.open(organisations / "hill").table == (organisations.parent / "hill.csv").resolve()
    assert Approved.open(organisations / "hill", organisations.parent / "mill.csv").organisation == "hill"  # it moved
    path = organisations.parent / "hill.csv"
    path.write_text(path.read_text().replace("a,b", "b,a"))
    with pytest.raises(InputError, match="the table that was enrolled"):
        Approved.open(organisations / "hill")


def test_two_organisations_with_one_key_are_refused(organisations):
    deployment = Deployment.read(organisations / "server")
    for name in ("hill", "mill"):
        card = json.loads((organisations / "hill" / "hill.enrolment.json").read_text())
        where = organisations / "server" / "nodes" / f"{name}.enrolment.json"
        where.write_text(json.dumps({**card, "organisation": name}))
    with pytest.raises(InputError, match="two have the same"):
        read_cards(organisations / "server", deployment)


def test_a_certificate_is_renewed_without_a_new_deployment(organisations):
    folder = organisations / "hill"
    before = json.loads((folder / "hill.enrolment.json").read_text())
    card = json.loads(renew(folder).read_text())
    assert card["tls"] != before["tls"]
    assert {**card, "tls": ""} == {**before, "tls": ""}
    check_certified(card["tls"].encode(), card["node"].encode(), node_name("hill"), "card")
    assert Approved.open(folder).organisation == "hill"


def test_what_a_child_prepares_is_what_the_process_itself_would(organisations):
    opened = Approved.open(organisations / "hill")
    here, there = opened.prepare(), prepare_aside(opened)
    assert pickle.dumps(here) == pickle.dumps(there)
    (organisations.parent / "hill.csv").write_text("a,b,c,d\n1,2,3,4\n")
    with pytest.raises(InputError, match="the table that was enrolled, but it changed since"):
        prepare_aside(opened)


def test_an_organisation_s_process_loads_neither_tables_nor_accountants(organisations):
    """Each of them is tens of megabytes that it would hold for as long as it answers."""
    script = f"""
import sys
from pathlib import Path
from silograph.cli.aside import prepare_aside
from silograph.deploy.connect import answering
from silograph.deploy.organisation import Approved
from silograph.engines.transport import Answerer
opened = Approved.open(Path({str(organisations / "hill")!r}))
opened.silo(prepared=prepare_aside(opened)).close()
heavy = "pandas pyarrow dp_accounting networkx sklearn scipy.stats scipy.optimize jinja2 torch".split()
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
