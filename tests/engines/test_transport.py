"""Questions and replies over a real nats-server and real TLS: bits come through, and nothing else does."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from nats_world import DEPLOYMENT, HERE, Organisation, World

import silograph.engines.broker as broker_module
import silograph.engines.certificates as certificates
import silograph.engines.line as line_module
import silograph.engines.transport as transport
from silograph.core.errors import BudgetError, InputError, SilenceError
from silograph.engines.line import Incoming
from silograph.engines.remote import Refusal
from silograph.engines.wire import pack, unpack

SECRET = "patient 4711 has the flu"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    with made.broker():
        yield made


@pytest.fixture
def asker(world, monkeypatch):
    monkeypatch.setattr(transport, "_AGAIN", 0.05)
    with world.asker() as line:
        yield line


@pytest.fixture
def join(world):
    there = []

    def start(name="north", answer=lambda question: question[::-1], patience=20.0, **options):
        there.append(Organisation(world.answerer(name, **options), answer, patience))
        return there[-1]

    yield start
    for one in there:
        one.leaving.set()
    for one in there:
        one.stop()


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- questions and replies -------------------------------------------------------------------------------------------


def test_bits_come_through_also_where_they_take_many_frames(asker, join):
    special = np.array([0x8000000000000000, 1, 0x7FF8000000000123, 0x7FF0000000000000], np.uint64).view(np.float64)

    def twice(question):
        facts, arrays = unpack(question)
        return pack({"round": facts["round"] + 1}, {name: value.repeat(2) for name, value in arrays.items()})

    join("north", twice)
    join("south", twice)
    for k, length in enumerate((10, 50_000, 400_000)):  # the last one is 3.2 MB down, 6.4 MB up
        large = np.random.default_rng(k).standard_normal(length)
        answers = asker.ask(dict.fromkeys(("north", "south"), pack({"round": k}, {"x": special, "y": large})), 20.0)
        assert sorted(answers.replies) == ["north", "south"]
        assert not answers.refusals
        for reply in answers.replies.values():
            facts, arrays = unpack(reply)
            assert facts == {"round": k + 1}
            assert arrays["x"].tobytes() == special.repeat(2).tobytes()
            assert arrays["y"].tobytes() == large.repeat(2).tobytes()
    assert asker.present() == {"north", "south"}


def test_only_those_asked_are_asked(asker, join):
    north, south = join("north"), join("south")
    assert asker.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}
    assert asker.ask({"south": b"def"}, 20.0).replies == {"south": b"fed"}
    assert asker.ask({"south": b""}, 20.0).replies == {"south": b""}
    assert (north.asked, south.asked) == ([b"abc"], [b"def", b""])
    assert asker.ask({}, 20.0).replies == {}
    with pytest.raises(InputError, match="east"):
        asker.ask({"east": b""}, 1.0)


def test_enough_is_enough(asker, join):
    join("north")
    begun = time.monotonic()
    answers = asker.ask({"north": b"a", "south": b"b"}, 20.0, enough=lambda replied: len(replied) >= 1)
    assert answers.replies == {"north": b"a"}
    assert time.monotonic() - begun < 10.0


def test_silence_ends_with_the_deadline(asker):
    begun = time.monotonic()
    answers = asker.ask({"north": b"a"}, 0.3)
    assert (answers.replies, answers.refusals) == ({}, {})
    assert 0.3 <= time.monotonic() - begun < 5.0
    assert asker.present() == set()


def test_who_comes_back_is_asked_again_at_once(asker, join, monkeypatch):
    monkeypatch.setattr(transport, "_FIRST_ATTEMPT", 60.0)
    threading.Timer(0.5, join).start()
    assert asker.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}


def test_lost_frames_are_asked_for_again(asker, join, monkeypatch):
    """Both ways, whatever is in them: of the first dozen large frames every second one is lost."""
    publish, count = line_module.Line.publish, [0]

    async def losing(self, where, content):
        if content[:1] in (b"p", b"m"):
            count[0] += 1
            if count[0] < 12 and count[0] % 2:
                return
        await publish(self, where, content)

    monkeypatch.setattr(line_module.Line, "publish", losing)
    monkeypatch.setattr(transport, "_Asked", lambda question: _asked(question, attempt=0.1))
    north = join()
    large = os.urandom(3_000_000)
    assert asker.ask({"north": large}, 30.0).replies == {"north": large[::-1]}
    assert north.asked == [large]
    assert count[0] > 12


_asked = transport._Asked


def test_a_slow_organisation_is_asked_once_and_its_late_replies_are_to_nobody(asker, join, monkeypatch):
    monkeypatch.setattr(transport, "_Asked", lambda question: _asked(question, attempt=0.05))
    release = threading.Event()

    def slow(question):
        release.wait(0.6)
        return question + b" answered"

    north = join("north", slow)
    assert asker.ask({"north": b"a"}, 20.0).replies == {"north": b"a answered"}
    assert north.asked == [b"a"]  # though the question was put many times
    assert asker.ask({"north": b"b"}, 0.2).replies == {}
    release.set()
    assert asker.ask({"north": b"c"}, 20.0).replies == {"north": b"c answered"}


def test_questions_that_the_server_gave_up_are_not_answered(asker, join):
    """Whatever is answered is paid for."""
    release = threading.Event()
    north = join("north", lambda question: (release.wait(10.0), question)[1])
    for question in (b"a", b"b", b"c"):
        asker.ask({"north": question}, 0.4)
    release.set()
    assert asker.ask({"north": b"d"}, 20.0).replies == {"north": b"d"}
    assert north.asked[0] == b"a"
    assert b"b" not in north.asked


def test_a_reply_that_its_organisation_did_not_sign_is_asked_for_again(asker, join, monkeypatch):
    signatures = []

    def sign(key, question, reply):
        signatures.append(reply)
        return b"not a signature" if len(signatures) == 1 else sign_reply(key, question, reply)

    sign_reply = transport.sign_reply
    monkeypatch.setattr(transport, "sign_reply", sign)
    join()
    assert asker.ask({"north": b"abc"}, 0.5).replies == {}
    assert asker.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}


def test_the_last_reply_is_sent_before_an_organisation_leaves(world, asker):
    answered = threading.Event()
    with world.answerer("north") as line:
        thread = threading.Thread(
            target=line.serve, args=(lambda q: (answered.set(), b"last")[1], answered.is_set, 20.0, lambda text: None)
        )
        thread.start()
        assert asker.ask({"north": b"a"}, 20.0).replies == {"north": b"last"}
        thread.join(10.0)
    until(lambda: asker.present() == set(), 2.0)


# ---- refusals and limits ---------------------------------------------------------------------------------------------


def test_of_an_error_only_its_class_leaves(asker, join, monkeypatch):
    sent = []
    publish = line_module.Line.publish

    async def record(self, where, content):
        sent.append(bytes(content))
        await publish(self, where, content)

    monkeypatch.setattr(line_module.Line, "publish", record)
    errors = {
        "ValueError": ValueError(SECRET),
        "InputError": InputError(SECRET, SECRET, SECRET, SECRET),
        "OwnError": type("OwnError", (BudgetError,), {})(SECRET, SECRET, SECRET),
    }
    raised = iter(errors.values())

    def refuse(question):
        raise next(raised)

    north = join("north", refuse)
    for name in errors:
        assert asker.ask({"north": b"a"}, 20.0).refusals == {"north": Refusal(name)}
    assert sum(SECRET in text for text in north.said) == 3  # it is for their own eyes
    assert not any(SECRET.encode() in frame for frame in sent)


def test_what_is_too_large_is_refused_at_the_end_that_made_it(asker, join, monkeypatch):
    monkeypatch.setattr(transport, "_LARGEST", 10_000)
    north = join("north", lambda question: bytes(10_001))
    assert asker.ask({"north": b"a"}, 20.0).refusals == {"north": Refusal("InputError")}
    assert any("at most 10000 bytes" in text for text in north.said)
    with pytest.raises(InputError, match="at most 10000 bytes"):
        asker.ask({"north": bytes(10_001)}, 1.0)


def test_memory_is_taken_for_what_arrives_and_never_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(line_module, "LIMIT", 1000)
    monkeypatch.setattr(line_module, "FRAME", 100)
    held = Incoming()
    assert held.take(b"a", 0, 1 << 60, bytes(100)) == (None, None)
    assert held.take(b"a", 0, 1001, bytes(100)) == (None, None)
    assert held.take(b"a", 0, 500, bytes(101)) == (None, None)
    assert not held.held
    assert held.take(b"a", 0, 250, bytes(100)) == (None, 100)
    assert held.take(b"a", 50, 250, bytes(100)) == (None, None)  # not the part that was asked for
    assert held.take(b"a", 0, 250, bytes(100)) == (None, 100)  # it began again: go on from here
    assert held.take(b"a", 100, 150, bytes(100)) == (None, None)  # more than was announced
    assert len(held.held) == 100
    assert held.take(b"a", 100, 250, bytes(100)) == (None, 200)
    assert held.take(b"a", 200, 250, bytes(50)) == (bytes(250), None)
    assert not held.held


# ---- the nats-server -------------------------------------------------------------------------------------------------


def listeners(port):
    """Ids of processes that have this configuration's nats-server open, by their command lines."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                command = open(f"/proc/{entry}/cmdline", "rb").read().split(b"\0")  # noqa: SIM115
                if command[0].endswith(b"nats-server") and port in command[2]:
                    found.append(int(entry))
    return found


def test_a_nats_server_that_is_killed_comes_back_and_so_does_everybody(world, asker, join):
    join()
    for size in (10, 3_000_000, 100_000):
        question = os.urandom(size)
        assert asker.ask({"north": question}, 20.0).replies == {"north": question[::-1]}
        (pid,) = listeners(str(world.server).encode())
        os.kill(pid, signal.SIGKILL)
        assert asker.ask({"north": question}, 20.0).replies == {"north": question[::-1]}
        assert listeners(str(world.server).encode()) != [pid]


def test_no_nats_server_outlives_the_process_that_started_it(tmp_path):
    there = World(tmp_path, ())
    code = (
        "import sys, time; from pathlib import Path; from silograph.engines.broker import Broker\n"
        "with Broker(Path(sys.argv[1]), '127.0.0.1', int(sys.argv[2])): print('up', flush=True); time.sleep(60)"
    )
    there.broker()
    where = str(there.server / "nats.conf")
    process = subprocess.Popen([sys.executable, "-c", code, where, str(there.port)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    assert len(listeners(where.encode())) == 1
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not listeners(where.encode()), 5.0)


def test_a_port_in_use_and_a_missing_program_are_named(tmp_path, monkeypatch):
    there = World(tmp_path, ())
    monkeypatch.setattr(broker_module, "_STARTS", 0.3)
    with socket.create_server((HERE, there.port)), pytest.raises(InputError, match=f"{there.port}.*in use"):
        there.broker().__enter__()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(broker_module.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InputError, match=r"nats-server.*silograph\[deploy\].*--nats"):
        there.broker()


def test_a_server_that_stays_away_is_given_up(tmp_path):
    there = World(tmp_path, ("north",))
    north = Organisation(there.answerer("north"), bytes, patience=0.5)
    north.thread.join(10.0)
    assert isinstance(north.error, SilenceError)
    with there.broker():  # NATS is there, and nobody asks
        north = Organisation(there.answerer("north"), bytes, patience=1.0)
        north.thread.join(10.0)
        assert isinstance(north.error, SilenceError)
        assert "NATS is there, the server is not" in str(north.error)


def test_an_expired_certificate_says_so_and_another_authority_asks_for_fingerprints(tmp_path, world, join):
    other = World(tmp_path / "other", ())
    north = join(ca=other.server / "ca.crt")
    north.thread.join(10.0)
    assert "Compare the fingerprints" in str(north.error)
    with pytest.MonkeyPatch.context() as patch:

        class Before(certificates.datetime):
            @classmethod
            def now(cls, zone=None):
                return super().now(zone) - certificates.timedelta(days=7)

        patch.setattr(certificates, "datetime", Before)
        old = World(tmp_path / "old", ("north",))
    certificates.certify_node(old.folder / "north", certificates.node_name("north"))
    certificates.certify_node(old.server, certificates.SERVER_NAME)
    with old.broker():
        north = Organisation(old.answerer("north"), bytes)
        north.thread.join(10.0)
    assert "a certificate that has not expired" in str(north.error)
    assert "fingerprint" not in str(north.error)


# ---- what the wire shows ---------------------------------------------------------------------------------------------


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
def test_the_wire_shows_nothing_in_the_clear(tmp_path, tls):
    """Without TLS the same test sees everything, so it would see it."""
    down, up = np.array([np.pi, np.e, 1 / 3]), np.array([2**0.5, 3**0.5, 5**0.5])
    there = World(tmp_path, ("north",))
    if not tls:
        where = broker_module.write_configuration(there.server, HERE, there.port, DEPLOYMENT, {}, None)
        there.broker = lambda: broker_module.Broker(where, HERE, there.port)
        there.tls = lambda name: None
    line = there.answerer("north")
    line._tls = line._tls if tls else None
    packets = []
    with overheard(packets), there.broker(), there.asker() as asker:
        north = Organisation(line, lambda question: pack({"word": "UPWARDS"}, {"x": up}))
        answers = asker.ask({"north": pack({"word": "DOWNWARDS"}, {"x": down})}, 20.0)
        assert unpack(answers.replies["north"])[1]["x"].tobytes() == up.tobytes()
        north.stop()
    seen = b"".join(packet for packet in packets if to_or_from(there.port, packet))
    assert len(seen) > 1000
    for clear in (down.tobytes(), up.tobytes(), b"UPWARDS", b"DOWNWARDS", DEPLOYMENT[:32].encode(), b"max_payload"):
        assert (clear in seen) == (not tls)


def test_nats_is_loaded_only_where_it_is_used():
    code = (
        "import sys, silograph, silograph.cli, silograph.engines.remote, silograph.engines.certificates;"
        "import silograph.deploy.connect, silograph.deploy.serve;"
        "assert not {'flwr', 'nats'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
