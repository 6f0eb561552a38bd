"""Strangers, and organisations that want more than their part: refused or survived."""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from nats.aio.client import Client
from nats_world import DEPLOYMENT, HERE, Organisation, World

from silograph.core.errors import InputError
from silograph.engines import transport
from silograph.engines.certificates import check_certified, client_tls, node_name, read_private, sign_reply
from silograph.engines.line import frame, subject


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    with made.broker():
        yield made


def as_client(world, tls, work, **options):
    """What `work(client)` returns, and the errors that NATS tells this client."""
    told = []

    async def on_error(error):
        told.append(str(error))

    async def go():
        client = Client()
        try:
            await client.connect(
                f"tls://{world.address}",
                tls=tls,
                tls_handshake_first=True,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                error_cb=on_error,
                **options,
            )
            return await work(client)
        finally:
            with contextlib.suppress(Exception):
                await client.close()

    return asyncio.run(go()), told


async def nothing(client):
    await client.flush()


def refused(world, tls, **options):
    """TLS 1.3 tells a client that its certificate is not accepted after the handshake."""
    with pytest.raises(Exception) as caught:
        as_client(world, tls, nothing, **options)
    return not isinstance(caught.value, AssertionError)


def bare_tls(world):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(world.server / "ca.crt")
    return context


# ---- who may come ----------------------------------------------------------------------------------------------------


def test_who_is_known_may_come_and_nobody_else(world):
    as_client(world, world.tls("north"), nothing)
    assert refused(world, bare_tls(world))
    assert refused(world, bare_tls(world), user=f"CN={node_name('north')}", password="")
    world.add("stranger")
    assert refused(world, world.tls("stranger"))
    world.add("thief", called="north")  # its own key, north's name
    assert refused(world, world.tls("thief"))


def test_an_organisation_cannot_certify_another_name(world, tmp_path):
    """Its certificate is known to the server, and is not one that can sign."""
    key, issuer = (
        read_private(world.folder / "south" / "node.key"),
        x509.load_pem_x509_certificate((world.folder / "south" / "tls.crt").read_bytes()),
    )
    now = datetime.now(UTC)
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_name("north"))]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path / "forged"
    folder.mkdir()
    (folder / "tls.crt").write_bytes(forged.public_bytes(Encoding.PEM))
    (folder / "tls.key").write_bytes((world.folder / "south" / "tls.key").read_bytes())
    assert refused(world, client_tls(world.server / "ca.crt", folder))


def test_a_card_whose_certificate_could_certify_others_or_is_anothers_is_refused(world):
    folder, name = world.folder / "north", node_name("north")
    own, node = (folder / "tls.crt").read_bytes(), (folder / "node.pub").read_bytes()
    check_certified(own, node, name, "card")
    authority = (world.server / "ca.crt").read_bytes()
    other = (world.folder / "south" / "tls.crt").read_bytes()
    for wrong in (authority, other, own + authority, own + other, b"", b"nonsense", own[:100]):
        with pytest.raises(InputError, match="in its own name"):
            check_certified(wrong, node, name, "card")
    with pytest.raises(InputError, match="in its own name"):
        check_certified(own, node, node_name("south"), "card")
    world.add("late", called="late", days=-1)
    late, key = ((world.folder / "late" / name).read_bytes() for name in ("tls.crt", "node.pub"))
    with pytest.raises(InputError, match="expired on"):
        check_certified(late, key, node_name("late"), "card")


def test_who_is_not_known_is_told_so_after_a_while(world, monkeypatch):
    monkeypatch.setattr(transport, "_ADMISSION", 1.0)
    world.add("unknown")
    one = Organisation(world.answerer("unknown"), bytes, patience=60.0)
    one.thread.join(20.0)
    assert "did not let us in" in str(one.error)


def test_a_server_that_breaks_off_is_waited_for_and_not_taken_for_one_that_refuses(world):
    line = world.answerer("north")
    line.disconnected([ssl.SSLError("tlsv13 alert certificate required")])
    assert line._turned_away
    line.disconnected([ssl.SSLEOFError("EOF occurred in violation of protocol")])
    assert not line._turned_away
    line.disconnected([ConnectionRefusedError()])
    assert not line._turned_away


def test_a_line_that_spoils_what_it_carries_is_not_a_server_that_refuses(world, monkeypatch):
    """A flipped bit makes TLS break off, at either end; and no connection at all for a while is no refusal either."""
    line = world.answerer("north")
    for words in ("decryption failed or bad record mac", "sslv3 alert bad record mac", "tlsv1 alert decode error"):
        line.disconnected([ssl.SSLError(words)])
        assert not line._turned_away
    monkeypatch.setattr(transport, "_ADMISSION", 0.1)
    line.disconnected([ssl.SSLError("tlsv13 alert certificate required")])
    time.sleep(0.2)
    line.disconnected([ConnectionRefusedError()])
    assert line._look(False, 60.0, lambda text: None) is False  # and is not an error


# ---- what who may come may do ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        subject(DEPLOYMENT, "south", "ask"),
        subject(DEPLOYMENT, "south", "say"),
        subject(DEPLOYMENT, "north", "say"),
        subject(DEPLOYMENT, None, "ask"),
        subject(DEPLOYMENT, None, "say"),
        f"silograph.{DEPLOYMENT[:32]}.>",
        "silograph.>",
        ">",
        "*",
        "$SYS.>",
        "_INBOX.>",
    ],
)
def test_an_organisation_reads_nothing_but_its_own_questions(world, where):
    async def listen(client):
        heard = []

        async def take(message):
            heard.append(message)

        await client.subscribe(where, cb=take)
        await client.flush()
        asked = {"south": b"for south alone"}
        answers = await asyncio.get_running_loop().run_in_executor(None, asker.ask, asked, 20.0)
        assert answers.replies == asked
        await client.flush()
        return heard

    with world.asker() as asker:
        south = Organisation(world.answerer("south"), lambda question: question)
        heard, told = as_client(world, world.tls("north"), listen)
        south.stop()
    assert heard == []
    assert any("permissions violation" in text.lower() for text in told)


@pytest.mark.parametrize(
    "where",
    [
        subject(DEPLOYMENT, "south", "ask"),
        subject(DEPLOYMENT, "south", "say"),
        subject(DEPLOYMENT, "north", "ask"),
        "$SYS.REQ.SERVER.PING",
        "silograph.other.thing",
    ],
)
def test_an_organisation_writes_nothing_but_its_own_answers(world, where):
    async def publish(client):
        await client.publish(where, frame(b"h", b"x" * 16))
        await client.flush()
        await asyncio.sleep(0.05)

    with world.asker() as asker:
        _, told = as_client(world, world.tls("north"), publish)
        assert "south" not in asker.present()
    assert any("permissions violation" in text.lower() for text in told)


def test_an_answer_for_another_or_to_another_question_counts_for_nothing(world):
    """North's connection, with south's old reply and with a reply to an older question of its own."""
    north = read_private(world.folder / "north" / "node.key")
    south = read_private(world.folder / "south" / "node.key")

    def said(key, question, body):
        signature = sign_reply(key, question, body)
        return bytes([len(signature)]) + signature + body

    replies = [said(south, b"now", b"rsouth's"), said(north, b"before", b"rreplayed"), said(north, b"now", b"rnorth's")]

    async def answer(client):
        asked = asyncio.Event()
        numbers = []

        async def take(message):
            if message.data[:1] == b"p":
                numbers.append(message.data[1:17])
                asked.set()

        await client.subscribe(subject(DEPLOYMENT, "north", "ask"), cb=take)
        await client.flush()
        heard = asyncio.get_running_loop().run_in_executor(None, asker.ask, {"north": b"now"}, 10.0)
        await asked.wait()
        await client.publish(subject(DEPLOYMENT, "north", "say"), frame(b"p", b"z" * 16, 0, replies[2]))  # other number
        for reply in replies:
            await client.publish(subject(DEPLOYMENT, "north", "say"), frame(b"p", numbers[-1], 0, reply))
        return await heard

    with world.asker() as asker:
        assert asker.online.wait(10.0)
        answers, _ = as_client(world, world.tls("north"), answer)
    assert answers.replies == {"north": b"north's"}


def test_nonsense_on_its_own_subject_harms_nobody(world):
    async def talk(client):
        for blob in (b"", b"p", os.urandom(10), os.urandom(1000), *(bytes([k]) * 33 for k in range(256))):
            await client.publish(subject(DEPLOYMENT, "north", "say"), blob)
        huge = b"p" + b"n" * 16 + bytes(8) + b"\x7f" + b"\xff" * 7
        await client.publish(subject(DEPLOYMENT, "north", "say"), huge)
        await client.flush()

    with world.asker() as asker:
        south = Organisation(world.answerer("south"), lambda question: question)
        as_client(world, world.tls("north"), talk)
        assert asker.ask({"south": b"a"}, 20.0).replies == {"south": b"a"}
        south.stop()


def test_a_frame_that_is_larger_than_agreed_ends_its_connection(world):
    with socket.create_connection((HERE, world.port)) as raw:
        tls = world.tls("north")
        with tls.wrap_socket(raw, server_hostname=HERE) as line:
            line.settimeout(10.0)
            line.recv(4096)
            line.sendall(b'CONNECT {"verbose":false}\r\nPUB ' + subject(DEPLOYMENT, "north", "say").encode())
            line.sendall(b" 100000000\r\n")
            told = b""
            with contextlib.suppress(OSError):
                while piece := line.recv(4096):
                    told += piece
    assert b"Maximum Payload Violation" in told


# ---- crowds ----------------------------------------------------------------------------------------------------------


def test_an_organisation_joins_at_once_beside_a_crowd_that_says_nothing_or_nonsense(world):
    """1,100 connections without a byte, and 200 with random ones: an organisation is let in within a second, and the
    crowd is sent away."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3000, hard))
    crowd = []
    try:
        with world.asker() as asker:
            crowd = [socket.create_connection((HERE, world.port), 10.0) for _ in range(1100)]
            for _ in range(200):
                crowd.append(socket.create_connection((HERE, world.port), 10.0))
                with contextlib.suppress(OSError):
                    crowd[-1].send(os.urandom(300))
            begun = time.monotonic()
            north = Organisation(world.answerer("north"), lambda question: question)
            assert asker.ask({"north": b"a"}, 20.0).replies == {"north": b"a"}
            took = time.monotonic() - begun
            north.stop()
            crowd[0].settimeout(20.0)
            with contextlib.suppress(ConnectionResetError):
                while crowd[0].recv(4096):
                    pass
            assert time.monotonic() - begun < 15.0
    finally:
        for one in crowd:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert took < 1.0
