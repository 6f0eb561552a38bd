"""The two ends as `serve` and `join` open them: a nats-server of the server's own, or the organisation's NATS."""

import threading

import numpy as np
import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from organisations import free_port

from silograph.core.errors import InputError
from silograph.deploy import connect
from silograph.deploy.connect import answering, asking
from silograph.deploy.deployment import Deployment, Terms, deploy
from silograph.deploy.organisation import Approved, enrol, renew
from silograph.deploy.serve import read_cards
from silograph.engines import certificates
from silograph.engines.broker import Broker
from silograph.run.plan import load

PLAN = """format = 1
[data]
files = ["hill.csv", "mill.csv"]
[method]
name = "consensus_graph"
degree = 2
"""


@pytest.fixture
def goal(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("hill", "mill"):
        rows = rng.normal(size=(40, 4)).round(3)
        text = "a,b,c,d\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n"
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "plan.toml").write_text(PLAN)
    goal = tmp_path / "deployment"
    deploy(load(tmp_path / "plan.toml"), tmp_path, goal, Terms(f"127.0.0.1:{free_port()}"), lambda *_: "")
    for name in ("hill", "mill"):
        card = enrol(goal / name, tmp_path / f"{name}.csv").card
        (goal / "server" / "nodes" / card.name).write_bytes(card.read_bytes())
    return goal


def echo(goal, **options):
    """What hill answers to one question."""
    server = goal / "server"
    deployment = Deployment.read(server)
    over = threading.Event()
    cards = read_cards(server, deployment)
    with asking(server, deployment, cards, **options) as asker, answering(Approved.open(goal / "hill")) as hill:
        thread = threading.Thread(target=hill.serve, args=(bytes.upper, over.is_set, 20.0, lambda text: None))
        thread.start()
        try:
            return asker.ask({"hill": b"abc"}, 20.0).replies
        finally:
            over.set()
            thread.join()


def test_a_nats_server_of_its_own_or_the_organisations(goal, monkeypatch):
    assert echo(goal) == {"hill": b"ABC"}
    terms = Deployment.read(goal / "server").terms
    with Broker(goal / "server" / "nats.conf", terms.host, terms.port):  # what its people would start
        assert echo(goal, nats=terms.address) == {"hill": b"ABC"}
    monkeypatch.setattr(connect, "_CONNECTING", 0.5)
    with pytest.raises(InputError, match=r"NATS at .*nats\.conf"):
        echo(goal, nats=terms.address)


def test_an_expired_certificate_is_named_at_both_ends_and_renewed(goal):
    folder, node = goal / "hill", goal / "server" / "nodes" / "hill.enrolment.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates.certify_node, "__defaults__", (-1,))
        node.write_bytes(renew(folder).read_bytes())
    with pytest.raises(InputError, match=r"hill\.enrolment\.json.*expired on.*silograph renew"):
        read_cards(goal / "server", Deployment.read(goal / "server"))
    with pytest.raises(InputError, match=r"tls\.crt.*expired on.*silograph renew"):
        _ = Approved.open(folder).tls
    node.write_bytes(renew(folder).read_bytes())
    assert echo(goal) == {"hill": b"ABC"}
