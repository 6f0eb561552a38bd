"""What an organisation's folder tells those who can read it, and what it refuses."""

import hashlib
import json

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.deploy.deployment import Deployment, Terms, deploy
from silograph.deploy.organisation import APPROVED, Approved, enrol, renew
from silograph.deploy.serve import read_cards
from silograph.engines.certificates import check_certified, node_name
from silograph.run.plan import load

PLAN = """format = 1
[data]
files = ["hill.csv", "mill.csv"]
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
