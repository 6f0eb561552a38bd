"""Questions and replies over real TLS: bits come through, and nothing else does."""

import contextlib
import http.server
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from silograph.core.errors import BudgetError, InputError, SilenceError
from silograph.engines.certificates import make_authority, make_node_key, read_private, read_public
from silograph.engines.wire import pack, unpack

pytest.importorskip("flwr")
import httpx
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.serverapp import ServerApp

import silograph.engines.fleet as fleet_module
import silograph.engines.link as link_module
from silograph.engines.fleet import ASK, Fleet, blob, content
from silograph.engines.link import Link, Refusal

HERE = "127.0.0.1"
HOLD = 0.1
SECRET = "patient 4711 has the flu"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """A reply that cannot be used is asked for again after a moment, not after half a second."""
    monkeypatch.setattr(link_module, "_AGAIN", 0.05)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_authority(folder, [HERE], 1)
    make_authority(folder / "other", [HERE], 1)
    for name in ("north", "south", "stranger"):
        make_node_key(folder / name)
    return folder


@pytest.fixture
def opened(keys):
    """Links that are closed at the end."""
    with contextlib.ExitStack() as stack:

        def open_link(names=("north", "south"), tls=True, port=0, **options):
            nodes = {name: read_public(keys / name / "node.pub") for name in names}
            files = (keys / "server.crt", keys / "server.key") if tls else (None, None)
            return stack.enter_context(Link(HERE, port, nodes, *files, **{"hold": HOLD, **options}))

        yield open_link


class Silo:
    """A silo in a thread: what it was asked, what it said, how it ended."""

    def __init__(self, fleet, answer, patience):
        self.asked, self.said, self.error = [], [], None
        self.leaving = threading.Event()
        self._fleet, self._answer, self._patience = fleet, answer, patience
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        def answer(question):
            self.asked.append(question)
            return self._answer(question)

        try:
            self._fleet.serve(answer, self.leaving.is_set, self._patience, self.said.append)
        except Exception as error:
            self.error = error

    def stop(self):
        self.leaving.set()
        self.thread.join(10.0)
        assert not self.thread.is_alive()


@pytest.fixture
def connect(keys, tmp_path):
    def connect(link, name="north", ca="ca.crt", tls=True):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Fleet(f"{HERE}:{link.port}", keys / ca if tls else None, keys / name / "node.key", folder)

    return connect


@pytest.fixture
def silo(connect):
    silos = []

    def start(link, name="north", answer=lambda question: question[::-1], patience=20.0, **options):
        silos.append(Silo(connect(link, name, **options), answer, patience))
        return silos[-1]

    yield start
    for one in silos:
        one.leaving.set()
    for one in silos:
        one.stop()


def left_in(link):
    state = link.grid._state
    return len(state.message_ins_store) + len(state.message_res_store) + len(state.object_store)


def headers(key, seconds=0.0):
    """What Flower asks of a node, made by other means than Flower's."""
    stamp = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return {
        "content-type": "application/protobuf",
        "flwr-public-key": b64encode(public).decode(),
        "flwr-timestamp": stamp,
        "flwr-signature": b64encode(key.sign(stamp.encode(), ec.ECDSA(SHA256()))).decode(),
    }


# ---- questions and replies -------------------------------------------------------------------------------------------


def test_bits_come_through(opened, silo):
    special = np.array([0x8000000000000000, 1, 0x7FF8000000000123, 0x7FF0000000000000], np.uint64).view(np.float64)
    large = np.random.default_rng(0).standard_normal(50_000)

    def twice(question):
        facts, arrays = unpack(question)
        return pack({"round": facts["round"] + 1}, {name: value.repeat(2) for name, value in arrays.items()})

    link = opened()
    silo(link, "north", twice)
    silo(link, "south", twice)
    for k in range(3):
        questions = {name: pack({"round": k}, {"x": special, "y": large}) for name in ("north", "south")}
        heard = []
        answers = link.ask(questions, 20.0, heard=heard.append)
        assert sorted(answers.replies) == sorted(heard) == ["north", "south"]
        assert not answers.refusals
        for reply in answers.replies.values():
            facts, arrays = unpack(reply)
            assert facts == {"round": k + 1}
            assert arrays["x"].tobytes() == special.repeat(2).tobytes()
            assert arrays["y"].tobytes() == large.repeat(2).tobytes()
    assert link.present() == {"north", "south"}
    assert left_in(link) == 0


def test_only_those_asked_are_asked(opened, silo):
    link = opened()
    north, south = silo(link, "north"), silo(link, "south")
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert link.ask({"south": b"def"}, 20.0).replies == {"south": b"fed"}
    assert (north.asked, south.asked) == ([b"abc"], [b"def"])
    assert link.ask({}, 20.0).replies == {}
    with pytest.raises(InputError, match="east"):
        link.ask({"east": b""}, 1.0)


def test_enough_is_enough(opened, silo):
    link = opened()
    silo(link, "north")
    begun = time.monotonic()
    answers = link.ask({"north": b"a", "south": b"b"}, 20.0, enough=lambda replied: len(replied) >= 1)
    assert answers.replies == {"north": b"a"}
    assert time.monotonic() - begun < 10.0
    assert left_in(link) == 0


def test_silence_ends_with_the_deadline(opened, connect):
    link = opened()
    begun = time.monotonic()
    assert link.ask({"north": b"a"}, 0.3).replies == {}
    dead = connect(link)
    dead.join()
    assert link.present() == {"north"}
    answers = link.ask({"north": b"a"}, 0.3)
    assert (answers.replies, answers.refusals) == ({}, {})
    assert 0.6 <= time.monotonic() - begun < 5.0
    assert left_in(link) == 0
    dead.leave()
    assert link.present() == set()


def test_who_comes_back_is_asked_again_at_once(opened, connect, silo, monkeypatch):
    """A silo that was killed with a question in its hands: Flower would not deliver it again."""
    monkeypatch.setattr(link_module, "_FIRST_ATTEMPT", 60.0)
    link = opened()
    killed = connect(link)
    killed.join()
    got = []

    def die_and_come_back():
        while (message := killed._receive(killed._node)) is None:
            pass
        got.append(message)
        silo(link)

    thread = threading.Thread(target=die_and_come_back)
    thread.start()
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    thread.join()
    assert len(got) == 1
    assert left_in(link) == 0
    killed._client.close()


def test_a_lost_question_is_asked_again(opened, silo, monkeypatch):
    monkeypatch.setattr(link_module, "_FIRST_ATTEMPT", 0.2)
    receive, lost = Fleet._receive, []

    def swallow(self, node):
        message = receive(self, node)
        if message is not None and len(lost) < 2:
            lost.append(message)
            return None
        return message

    monkeypatch.setattr(Fleet, "_receive", swallow)
    link = opened()
    silo(link)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert len(lost) == 2
    assert left_in(link) == 0


def test_a_slow_silo_is_heard_the_first_time_and_its_late_replies_never(opened, silo, monkeypatch):
    monkeypatch.setattr(link_module, "_FIRST_ATTEMPT", 0.05)
    release = threading.Event()

    def slow(question):
        release.wait(0.4)
        return question + b" " + str(len(slow_silo.asked)).encode()

    link = opened()
    slow_silo = silo(link, "north", slow)
    assert link.ask({"north": b"a"}, 20.0).replies == {"north": b"a 1"}
    assert link.ask({"north": b"b"}, 0.2).replies == {}  # answered later, to nobody
    release.set()
    reply = link.ask({"north": b"c"}, 20.0).replies["north"]
    assert reply.startswith(b"c ")
    assert left_in(link) == 0


def test_a_question_delivered_twice_gets_the_same_reply(opened, silo, monkeypatch):
    """The first reply does not fit its signature, so the silo is asked again: the very same bytes."""
    link = opened()
    first = []

    def sign(key, question, reply):
        first.append(reply)
        return b"not a signature" if len(first) == 1 else sign_reply(key, question, reply)

    sign_reply = fleet_module.sign_reply
    monkeypatch.setattr(fleet_module, "sign_reply", sign)
    north = silo(link)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert north.asked == [b"abc", b"abc"]


def test_the_last_reply_is_sent_before_a_silo_leaves(opened, connect):
    link = opened()
    north = connect(link)
    answered = threading.Event()

    def answer(question):
        answered.set()
        return b"last"

    thread = threading.Thread(target=north.serve, args=(answer, answered.is_set, 20.0, lambda text: None))
    thread.start()
    assert link.ask({"north": b"a"}, 20.0).replies == {"north": b"last"}
    thread.join(10.0)
    assert link.present() == set()


def test_a_reply_is_heard_though_its_silo_has_left(opened, connect):
    """Flower alone would say that the silo is unavailable."""
    link = opened()
    north = connect(link)
    north.join()
    (number,) = link.grid.push_messages([link.grid.create_message(content(blob=b"a"), ASK, link._numbers["north"], "")])
    app = fleet_module.client_app(lambda question: b"last")
    north._send(north._node, north._answered(app, north._node, north._receive(north._node)))
    north.leave()
    (reply,) = link.grid.pull_messages([number])
    assert blob(reply, "blob") == b"last"


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_of_an_error_only_its_class_and_number_leave(opened, silo, monkeypatch):
    bodies = []
    read = link_module._Guard._body

    async def record(self, headers, receive):
        bodies.append(await read(self, headers, receive))
        return bodies[-1]

    monkeypatch.setattr(link_module._Guard, "_body", record)
    errors = {
        Refusal(1000, "ValueError"): ValueError(SECRET),
        Refusal(1000, "KeyError"): KeyError(SECRET),
        Refusal(1002, "InputError"): InputError(SECRET, SECRET, SECRET, SECRET),
        Refusal(1004, "BudgetError"): BudgetError(SECRET, SECRET, SECRET, SECRET),
        Refusal(1004, "OwnError"): type("OwnError", (BudgetError,), {})(SECRET, SECRET, SECRET),
    }
    raised = iter(errors.values())

    def refuse(question):
        raise next(raised)

    link = opened()
    north = silo(link, "north", refuse)
    silo(link, "south")
    for refusal in errors:
        answers = link.ask({"north": b"abc", "south": b"abc"}, 20.0)
        assert answers.refusals == {"north": refusal}
        assert answers.replies == {"south": b"cba"}
        assert SECRET in north.said[-1]  # its own operator is told
    sent = b"".join(bodies)
    assert b"OwnError" in sent
    assert SECRET.encode() not in sent
    assert left_in(link) == 0


def test_what_is_no_question_is_refused(opened, silo):
    link = opened()
    north = silo(link)
    while not link.present():
        time.sleep(0.01)
    number = link._numbers["north"]
    for kind, what in ((ASK, RecordDict()), ("query.run", content(blob=b"x")), ("train", content(blob=b"x"))):
        (reply,) = link.grid.send_and_receive([link.grid.create_message(what, kind, number, "")], timeout=20.0)
        assert reply.error.code >= 1000
        assert reply.error.reason.isidentifier()
    assert north.asked == []


# ---- who is let in ---------------------------------------------------------------------------------------------------


def test_a_stranger_is_not_let_in(opened, silo, monkeypatch):
    monkeypatch.setattr(fleet_module, "_ADMISSION", 0.5)
    link = opened()
    stranger = silo(link, "stranger", patience=0.1)
    stranger.thread.join(10.0)
    assert isinstance(stranger.error, InputError)
    assert "node.pub" in str(stranger.error)
    assert link.present() == set()


def test_a_server_of_another_authority_is_not_spoken_to(opened, silo):
    link = opened()
    north = silo(link, ca="other/ca.crt")
    north.thread.join(10.0)
    assert isinstance(north.error, InputError)
    assert "fingerprints" in str(north.error)
    assert link.present() == set()


def test_a_server_with_another_name_is_not_spoken_to(opened, keys, tmp_path):
    link = opened()
    fleet = Fleet(f"localhost:{link.port}", keys / "ca.crt", keys / "north" / "node.key", tmp_path)
    with pytest.raises(InputError, match="certificate"):
        fleet.serve(lambda question: b"", lambda: False, 5.0, lambda text: None)


def test_another_silos_signature_is_ignored(opened, silo, keys, monkeypatch):
    """North's message, signed by south, which is registered too; north's own is then taken."""
    sign_reply, wrong = fleet_module.sign_reply, []

    def sign(key, question, reply):
        if len(wrong) < 2:
            wrong.append(reply)
            return sign_reply(read_private(keys / "south" / "node.key"), question, b"forged")
        return sign_reply(key, question, reply)

    monkeypatch.setattr(fleet_module, "sign_reply", sign)
    link = opened()
    north = silo(link, answer=lambda question: b"forged" if len(wrong) < 2 else b"own")
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"own"}
    assert len(north.asked) == 3


def test_a_reply_to_an_older_question_is_ignored(opened, silo, monkeypatch):
    """A signature that was good for yesterday's question, with yesterday's reply."""
    sign_reply, made = fleet_module.sign_reply, []

    def sign(key, question, reply):
        made.append(sign_reply(key, question, reply))
        return made[0] if len(made) < 4 else made[-1]

    monkeypatch.setattr(fleet_module, "sign_reply", sign)
    link = opened()
    north = silo(link, answer=lambda question: b"yes")
    assert link.ask({"north": b"first"}, 20.0).replies == {"north": b"yes"}
    assert link.ask({"north": b"second"}, 20.0).replies == {"north": b"yes"}
    assert north.asked == [b"first", b"second", b"second", b"second"]


def test_nobody_speaks_for_another(opened, connect):
    """South knows the number of a message to north, which Flower alone would believe."""
    link = opened()
    north, south = connect(link, "north"), connect(link, "south")
    north.join()
    south.join()
    message = link.grid.create_message(content(blob=b"abc"), ASK, link._numbers["north"], "")
    (number,) = link.grid.push_messages([message])
    got = north._receive(north._node)
    reply = north._answered(fleet_module.client_app(lambda question: b"forged"), north._node, got)
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        south._send(south._node, reply)
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        south._send(north._node, reply)
    assert link.grid.pull_messages([number]) == []
    north._send(north._node, reply)
    assert blob(link.grid.pull_messages([number])[0], "blob") == b"forged"
    for one in (north, south):
        one.leave()


def test_headers_are_good_for_their_owner_and_their_time(opened, connect, keys):
    link = opened()
    north, south = connect(link, "north"), connect(link, "south")
    north.join()
    south.join()
    key, other = (read_private(keys / name / "node.key") for name in ("north", "stranger"))
    url = f"https://{HERE}:{link.port}/v1/fleet/pull-messages"
    body = PullMessagesRequest(node=north._node).SerializeToString()
    with httpx.Client(verify=fleet_module._tls(keys / "ca.crt"), trust_env=False) as client:

        def status(with_headers, content=body, where=url):
            return client.post(where, content=content, headers=with_headers).status_code

        good = headers(key)
        assert status(good) == 200
        assert status(good, PullMessagesRequest(node=south._node).SerializeToString()) == 401  # replayed for another
        assert status(headers(key, -290.0)) == 200
        for seconds in (7.0, -310.0, 86_400.0):
            assert status(headers(key, seconds)) == 401
        assert status(headers(other)) == 401
        assert status({**good, "flwr-signature": headers(other)["flwr-signature"]}) == 401
        assert status({**good, "flwr-timestamp": "yesterday"}) == 401
        for name in list(good)[1:]:
            assert status({k: v for k, v in good.items() if k != name}) == 401
        for path in (
            "/",
            "/health",
            "/docs",
            "/v1/control/list-nodes",
            "/v1/control/start-run",
            "/v1/runtime/acquire-task",
            "/v1/fleet/register-node",
            "/v1/fleet/get-fab",
            "/v1/fleet/get-run",
        ):
            assert status(good, where=f"https://{HERE}:{link.port}{path}") == 404
        assert client.get(url, headers=good).status_code == 404
    for one in (north, south):
        one.leave()


def test_a_large_body_is_turned_away_before_anybody_parses_it(opened, keys, monkeypatch):
    parsed = []
    parse = link_module.ProtobufTranslationMiddleware._parse_request
    monkeypatch.setattr(
        link_module.ProtobufTranslationMiddleware,
        "_parse_request",
        staticmethod(lambda body, kind: parsed.append(len(body)) or parse(body, kind)),
    )
    link = opened(limit=10_000)
    url = f"https://{HERE}:{link.port}/v1/fleet/push-object"
    known, unknown = (headers(read_private(keys / name / "node.key")) for name in ("north", "stranger"))
    with httpx.Client(verify=fleet_module._tls(keys / "ca.crt"), trust_env=False) as client:
        assert client.post(url, content=bytes(10_001), headers=known).status_code == 413
        assert client.post(url, content=(bytes(1000) for _ in range(11)), headers=known).status_code == 413
        assert client.post(url, content=bytes(10_000), headers=unknown).status_code == 401
        assert client.post(url, content=bytes(10_000), headers={}).status_code == 401
        assert parsed == []
        client.post(url, content=bytes(10_000), headers=known)
        assert parsed == [10_000]


def test_headers_are_enough_to_be_turned_away(opened, keys):
    """A body that is announced and never comes keeps nobody waiting."""
    link = opened(limit=10_000)
    for name, answer in (("north", b"413"), ("stranger", b"401")):
        lines = {**headers(read_private(keys / name / "node.key")), "host": HERE, "content-length": "1000000000"}
        request = (
            "POST /v1/fleet/push-object HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
        )
        raw = socket.create_connection((HERE, link.port), timeout=10.0)
        with fleet_module._tls(keys / "ca.crt").wrap_socket(raw, server_hostname=HERE) as secured:
            secured.sendall(request.encode())
            assert secured.recv(100).split()[1] == answer


def test_a_reply_that_is_too_large_is_said_to_be(opened, silo):
    link = opened(limit=10_000)
    north = silo(link, answer=lambda question: bytes(len(question) * 10_000))
    for _ in range(50):
        assert link.ask({"north": b"abc"}, 0.3).replies == {}
        if any("larger" in text for text in north.said):
            break
    assert any("larger" in text for text in north.said)
    assert link.ask({"north": b""}, 20.0).replies == {"north": b""}


def test_two_organisations_with_one_key_are_refused(keys):
    public = read_public(keys / "north" / "node.pub")
    with pytest.raises(InputError, match="same"):
        Link(HERE, 0, {"north": public, "south": public}, None, None)


def test_an_address_or_certificate_that_cannot_be_used_is_named(opened, keys):
    link = opened()
    with pytest.raises(InputError, match=str(link.port)):
        opened(port=link.port)
    with pytest.raises(InputError, match="certificate"):
        Link(HERE, 0, {}, keys / "server.crt", keys / "ca.key")
    with pytest.raises(InputError, match="certificate"):
        Link(HERE, 0, {}, keys / "missing.crt", keys / "missing.key")


# ---- plain mode, and what the wire shows -----------------------------------------------------------------------------


def test_without_encryption_only_on_this_machine(keys, tmp_path):
    for host in ("0.0.0.0", "192.0.2.1", "example.org", "[::]"):
        with pytest.raises(InputError, match="certificate"):
            Link(host, 0, {}, None, None)
        with pytest.raises(InputError, match="certificate"):
            Fleet(f"{host}:8000", None, keys / "north" / "node.key", tmp_path)
    for address in (
        "host",
        ":8000",
        "host:",
        "host:http",
        "host:0",
        "host:70000",
        "a b:80",
        "a/b:80",
        "a@b:80",
        "::1:80",
    ):
        with pytest.raises(InputError, match="HOST:PORT"):
            Fleet(address, keys / "ca.crt", keys / "north" / "node.key", tmp_path)
    for address in ("Host.example:8000", "[::1]:8000", f"{HERE}:8000"):
        Fleet(address, keys / "ca.crt", keys / "north" / "node.key", tmp_path).leave()
    for ca in (keys / "missing.crt", keys / "ca.key"):
        with pytest.raises(InputError, match=r"ca\.crt"):
            Fleet(f"{HERE}:8000", ca, keys / "north" / "node.key", tmp_path)


def to_or_from(port, packet):
    """Whether an Ethernet frame is TCP over IPv4 with this port at one of its ends."""
    ports = 14 + 4 * (packet[14] & 15)
    return packet[12:14] == b"\x08\x00" and packet[23] == 6 and port in struct.unpack_from("!HH", packet, ports)


@contextlib.contextmanager
def overheard(packets):
    """All that passes the loopback device."""
    try:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        raw.bind(("lo", 0))
    except (AttributeError, OSError):
        pytest.skip("this user may not listen to the network")
    raw.settimeout(0.1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    stop = threading.Event()

    def listen():
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                packets.append(raw.recv(1 << 17))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield
        time.sleep(0.1)
    finally:
        stop.set()
        thread.join()
        raw.close()


@pytest.mark.parametrize("tls", [True, False])
def test_the_wire_shows_nothing_in_the_clear(opened, silo, tls):
    """Without TLS the same test sees everything, so it would see it."""
    down, up = np.array([np.pi, np.e, 1 / 3]), np.array([2**0.5, 3**0.5, 5**0.5])
    packets = []
    with overheard(packets):
        link = opened(tls=tls)
        silo(link, answer=lambda question: pack({"word": "UPWARDS"}, {"x": up}), tls=tls)
        answers = link.ask({"north": pack({"word": "DOWNWARDS"}, {"x": down})}, 20.0)
        assert unpack(answers.replies["north"])[1]["x"].tobytes() == up.tobytes()
    seen = b"".join(packet for packet in packets if to_or_from(link.port, packet))
    assert len(seen) > 1000
    for clear in (down.tobytes(), up.tobytes(), b"UPWARDS", b"DOWNWARDS", b"/v1/fleet/", b"flwr-signature"):
        assert (clear in seen) == (not tls)


# ---- trouble ---------------------------------------------------------------------------------------------------------


def test_a_server_that_comes_back_is_found_again(opened, silo):
    link = opened()
    silo(link)
    assert link.ask({"north": b"a"}, 20.0).replies == {"north": b"a"}
    link.close()
    link = opened(port=link.port)
    assert link.ask({"north": b"ab"}, 20.0).replies == {"north": b"ba"}


def test_a_server_that_stays_away_is_given_up(opened, silo):
    link = opened()
    north = silo(link, patience=0.3)
    assert link.ask({"north": b"a"}, 20.0).replies == {"north": b"a"}
    link.close()
    north.thread.join(10.0)
    assert isinstance(north.error, SilenceError)


def test_a_silos_wrong_clock_does_no_harm(opened, silo, monkeypatch):
    class Wrong(datetime):
        @classmethod
        def now(cls, zone=None):
            return super().now(zone) + timedelta(days=400)

    import flwr.app.message.message as messages

    true = messages.now
    monkeypatch.setattr(fleet_module, "datetime", Wrong)
    monkeypatch.setattr(messages, "now", lambda: true() + timedelta(days=400))
    link = opened()
    silo(link)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}


def test_the_servers_clock_may_be_set_ahead_in_the_middle(opened, silo, monkeypatch):
    """Flower then takes its run for dead and its nodes for gone."""
    import flwr.server.superlink.linkstate.in_memory_linkstate as linkstate
    import flwr.server.utils.validator as validator
    import flwr.supercore.corestate.in_memory_corestate as corestate
    import flwr.superlink.routers.fleet.node_auth as node_auth

    monkeypatch.setattr(fleet_module, "_BEAT", 0.2)
    true = link_module.now

    def set_ahead(question):
        if len(north.asked) == 1:
            for module in (linkstate, validator, corestate, node_auth, link_module):
                monkeypatch.setattr(module, "now", lambda: true() + timedelta(seconds=200))
        return question[::-1]

    link = opened()
    run = link.grid.run.run_id
    north = silo(link, answer=set_ahead)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert link.ask({"north": b"de"}, 20.0).replies == {"north": b"ed"}
    assert link.grid.run.run_id != run


def test_proxies_and_redirects_decide_nothing(opened, silo, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    link = opened(tls=False)
    visits = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            visits.append(self.path)
            self.send_response(307)
            self.send_header("Location", f"http://{HERE}:{link.port}{self.path}")
            self.end_headers()

        def log_message(self, *args):
            pass

    silo(link, tls=False)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    with http.server.HTTPServer((HERE, 0), Elsewhere) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        lost = silo(SimpleNamespace(port=elsewhere.server_port), "south", patience=0.5, tls=False)
        lost.thread.join(10.0)
        elsewhere.shutdown()
    assert visits
    assert isinstance(lost.error, SilenceError)
    assert link.present() == {"north"}


def test_an_upload_that_never_ends_blocks_nobody(opened, silo, monkeypatch):
    monkeypatch.setattr(link_module, "_FIRST_ATTEMPT", 0.3)
    push, broken = fleet_module.push_objects, []

    def break_off(objects, *args, **options):
        if not broken:
            broken.append(list(objects))
        else:
            push(objects, *args, **options)

    monkeypatch.setattr(fleet_module, "push_objects", break_off)
    link = opened()
    silo(link)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert broken
    assert left_in(link) == 0


def test_nonsense_from_a_silo_is_asked_again(opened, silo, monkeypatch):
    nonsense = [RecordDict(), content(blob=b"x"), content(signature=b"x"), RecordDict({"silograph": ConfigRecord()})]
    answered = Fleet._answered

    def odd(self, app, node, message):
        reply = answered(self, app, node, message)
        if nonsense:
            reply.content = nonsense.pop()
            reply.metadata.__dict__["_message_id"] = reply.object_id
        return reply

    monkeypatch.setattr(Fleet, "_answered", odd)
    link = opened()
    north = silo(link)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert len(north.asked) == 5
    assert left_in(link) == 0


def test_a_message_that_cannot_be_read_is_asked_again(opened, silo, monkeypatch):
    monkeypatch.setattr(link_module, "_FIRST_ATTEMPT", 0.2)
    pull, broken = fleet_module.pull_objects, []

    def damage(*args, **options):
        contents = pull(*args, **options)
        if not broken:
            broken.append(contents)
            return {name: part.replace(b"abc", b"") for name, part in contents.items()}
        return contents

    monkeypatch.setattr(fleet_module, "pull_objects", damage)
    link = opened()
    silo(link)
    assert link.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert broken


# ---- Flower ----------------------------------------------------------------------------------------------------------


def test_a_flower_serverapp_runs_on_the_link(opened, silo):
    """The server's end is a Flower Grid, and the silo's a Flower ClientApp."""
    link = opened()
    silo(link, "north")
    silo(link, "south")
    while len(link.present()) < 2:
        time.sleep(0.01)
    app, got = ServerApp(), []

    @app.main()
    def main(grid, context):
        asked = [Message(content(blob=b"abc"), node, ASK) for node in grid.get_node_ids()]
        got.extend(blob(reply, "blob") for reply in grid.send_and_receive(asked, timeout=20.0))

    app(link.grid, Context(link.grid.run.run_id, 1, {}, RecordDict(), {}))
    assert got == [b"cba", b"cba"]
    assert left_in(link) == 0


def test_flower_is_loaded_only_where_it_is_used_and_keeps_to_itself():
    code = (
        "import sys, silograph, silograph.engines.wire, silograph.engines.certificates;"
        "assert not {'flwr', 'httpx', 'fastapi', 'uvicorn'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert os.environ["FLWR_DISABLE_UPDATE_CHECK"] == "1"
