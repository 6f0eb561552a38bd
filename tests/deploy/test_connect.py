"""The two ends as `serve` and `join` open them: a nats-server of the server's own, or the organisation's NATS."""

import sys
import threading

import numpy as np
import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from organisations import free_port
from typer.testing import CliRunner

from proxies import WebProxy
from silograph.cli import app
from silograph.core.errors import InputError
from silograph.deploy import connect
from silograph.deploy.connect import answering, asking
from silograph.deploy.deployment import Deployment, Terms, deploy
from silograph.deploy.organisation import Approved, enrol, renew
from silograph.deploy.serve import read_cards
from silograph.engines import certificates
from silograph.engines.broker import Broker
from silograph.run.plan import load

runner = CliRunner()

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


def echo(goal, route=None, **options):
    """What hill answers to one question."""
    server = goal / "server"
    deployment = Deployment.read(server)
    over = threading.Event()
    cards, hills = read_cards(server, deployment), Approved.open(goal / "hill")
    with asking(server, deployment, cards, **options) as asker, answering(hills, **(route or {})) as hill:
        thread = threading.Thread(target=hill.serve, args=(bytes.upper, over.is_set, 20.0, lambda text: None))
        thread.start()
        try:
            return asker.ask({"hill": b"abc"}, 20.0).replies
        finally:
            over.set()
            thread.join()


def test_an_organisation_behind_a_web_proxy_comes_by_its_tunnel_or_by_websocket(goal, monkeypatch):
    pytest.importorskip("aiohttp")
    place, web = Deployment.read(goal / "server").terms.address, free_port()
    with WebProxy({at: ("127.0.0.1", int(at[10:])) for at in (place, f"127.0.0.1:{web}")}) as proxy:
        route = {"proxy": f"http://127.0.0.1:{proxy.port}"}
        assert echo(goal, route) == {"hill": b"ABC"}
        assert echo(goal, route | {"websocket": web}, websocket=web) == {"hill": b"ABC"}
        assert proxy.asked == [place, f"127.0.0.1:{web}"]
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(InputError, match=r"aiohttp.*silograph\[websocket\]"):
        answering(Approved.open(goal / "hill"), web)


def nats_of(server):
    """nats.conf as `serve` writes it, and where that listens."""
    deployment = Deployment.read(server)
    with asking(server, deployment, read_cards(server, deployment)):
        return server / "nats.conf", deployment.terms.host, deployment.terms.port


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


def test_the_end_of_the_server_s_certificate_is_said_before_and_certificates_and_keys_are_renewed(goal):
    server, hill = goal / "server", goal / "hill"
    assert certificates.ending_soon(certificates.ends_in(server)) == []
    certificates.renew_server(server, ["127.0.0.1"], 30)
    (text,) = certificates.ending_soon(certificates.ends_in(server))
    assert text.startswith("The certificate server.crt ends on 20")
    nats = nats_of(server)
    certificates.renew_server(server, ["127.0.0.1"], -1)
    refused = pytest.raises(InputError, match=r"has not expired.*types `silograph renew` there")
    with Broker(*nats), answering(Approved.open(hill)) as line, refused:
        line.serve(bytes.upper, lambda: False, 20.0, lambda text: None)
    before = (server / "server.key").read_bytes(), (hill / "node.key").read_bytes()
    assert runner.invoke(app, ["renew", str(server), "--new-key"]).exit_code == 0
    told = runner.invoke(app, ["renew", str(hill), "--new-key"]).stdout
    assert certificates.fingerprint(hill / "node.pub") in told
    after = (server / "server.key").read_bytes(), (hill / "node.key").read_bytes()
    assert before[0] != after[0]
    assert before[1] != after[1]
    (server / "nodes" / "hill.enrolment.json").write_bytes((hill / "hill.enrolment.json").read_bytes())
    assert echo(goal) == {"hill": b"ABC"}
    (server / "ca.key").unlink()
    with pytest.raises(InputError, match=r"Put ca\.key back"):
        certificates.renew_server(server, ["127.0.0.1"])
