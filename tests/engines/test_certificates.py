"""Certificates that a TLS handshake accepts for the right name only, and keys that are never lost."""

import base64
import hashlib
import os
import shutil
import ssl
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from silograph.core.errors import InputError
from silograph.engines.certificates import (
    fingerprint,
    make_authority,
    make_node_key,
    public_key,
    read_private,
    read_public,
    sign_reply,
    signed,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_authority(folder, ["silo.example.org", "127.0.0.1", "::1"], 30)
    make_node_key(folder)
    return folder


def handshake(server_folder, ca, name):
    """A TLS handshake in memory; the error of the side that trusts `ca`, or None."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server_folder / "server.crt", server_folder / "server.key")
    client = ssl.create_default_context(cafile=ca).wrap_bio(back, there, server_hostname=name)
    server = serving.wrap_bio(there, back, server_side=True)
    for _ in range(10):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return None


def test_the_server_is_who_the_authority_says(folder):
    for name in ("silo.example.org", "127.0.0.1", "::1"):
        assert handshake(folder, folder / "ca.crt", name) is None


def test_another_name_or_another_authority_is_not_believed(folder, tmp_path):
    make_authority(tmp_path, ["silo.example.org"], 30)
    assert "mismatch" in handshake(folder, folder / "ca.crt", "other.example.org")
    assert "mismatch" in handshake(folder, folder / "ca.crt", "127.0.0.2")
    assert handshake(folder, tmp_path / "ca.crt", "silo.example.org") is not None
    # A server's certificate is no authority.
    assert handshake(tmp_path, folder / "server.crt", "silo.example.org") is not None


def test_secrets_are_for_their_owner_alone(tmp_path):
    old = os.umask(0)
    try:
        make_authority(tmp_path, ["localhost"], 1)
        make_node_key(tmp_path)
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    secret = {"ca.key", "server.key", "node.key"}
    assert modes.keys() == secret | {"ca.crt", "server.crt", "node.pub"}
    assert {name for name, mode in modes.items() if mode == 0o600} == secret


def test_nothing_is_overwritten(folder):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for make in (lambda: make_authority(folder, ["localhost"], 1), lambda: make_node_key(folder)):
        with pytest.raises(InputError, match="it exists"):
            make()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_key_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    link = os.link

    def too_late(source, goal):
        if not os.path.exists(goal):
            goal.write_bytes(b"somebody else's")
        link(source, goal)

    monkeypatch.setattr(os, "link", too_late)
    with pytest.raises(InputError, match="it exists"):
        make_node_key(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["node.key"]
    assert (tmp_path / "node.key").read_bytes() == b"somebody else's"


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        make_node_key(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_fingerprints_are_what_other_tools_say(folder):
    body = base64.b64decode((folder / "node.pub").read_bytes().split()[1])
    assert fingerprint(folder / "node.pub") == "SHA256:" + base64.b64encode(
        hashlib.sha256(body).digest()
    ).decode().rstrip("=")
    der = ssl.PEM_cert_to_DER_cert((folder / "ca.crt").read_text())
    assert fingerprint(folder / "ca.crt").replace(":", "").lower() == hashlib.sha256(der).hexdigest()
    assert fingerprint(folder / "ca.crt") != fingerprint(folder / "server.crt")


def test_fingerprint_is_that_of_ssh_keygen(folder):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    said = subprocess.run(["ssh-keygen", "-lf", folder / "node.pub"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == fingerprint(folder / "node.pub")


def test_only_a_partys_public_key_is_taken_for_one(folder, tmp_path):
    assert public_key(read_public(folder / "node.pub"), "here") == read_private(folder / "node.key").public_key()
    with pytest.raises(InputError, match="private"):
        read_public(folder / "node.key")
    large = ec.generate_private_key(ec.SECP384R1())
    other = ed25519.Ed25519PrivateKey.generate()
    for content in (
        b"",
        b"\0\xff",
        b"ecdsa-sha2-nistp256 AAAA",
        large.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH),
        other.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH),
        (folder / "ca.crt").read_bytes(),
    ):
        (tmp_path / "x.pub").write_bytes(content)
        with pytest.raises(InputError, match=r"x\.pub"):
            read_public(tmp_path / "x.pub")
    for content in (b"", (folder / "server.key").read_bytes(), (folder / "node.pub").read_bytes()):
        (tmp_path / "x.key").write_bytes(content)
        with pytest.raises(InputError, match=r"x\.key"):
            read_private(tmp_path / "x.key")
    (tmp_path / "x.key").write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    with pytest.raises(InputError, match=r"x\.key"):
        read_private(tmp_path / "x.key")
    with pytest.raises(InputError, match="missing"):
        read_public(tmp_path / "missing.pub")
    (tmp_path / "x.crt").write_bytes(b"-----BEGIN CERTIFICATE-----\noops\n-----END CERTIFICATE-----\n")
    with pytest.raises(InputError, match=r"x\.crt"):
        fingerprint(tmp_path / "x.crt")


@pytest.mark.parametrize(
    "hosts, days", [([], 1), (["localhost"], 0), (["a b"], 1), (["host:8000"], 1), (["zürich"], 1)]
)
def test_a_certificate_for_nobody_is_not_made(tmp_path, hosts, days):
    with pytest.raises(InputError):
        make_authority(tmp_path, hosts, days)
    assert list(tmp_path.iterdir()) == []


def test_a_signature_is_of_one_organisation_one_question_and_one_reply(folder, tmp_path):
    make_node_key(tmp_path)
    key, other = read_private(folder / "node.key"), read_private(tmp_path / "node.key")
    signature = sign_reply(key, b"question", b"reply")
    assert signed(key.public_key(), b"question", b"reply", signature)
    assert not signed(other.public_key(), b"question", b"reply", signature)
    assert not signed(key.public_key(), b"Question", b"reply", signature)
    assert not signed(key.public_key(), b"question", b"Reply", signature)
    assert not signed(key.public_key(), b"question", b"reply", b"")
    # What an organisation signs to be let in is no reply.
    assert not signed(key.public_key(), b"", b"", key.sign(b"2026-01-01T00:00:00", ec.ECDSA(SHA256())))
