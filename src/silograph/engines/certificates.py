"""Identities in a deployment: the server has a certificate, every organisation its own key.

The authority's certificate goes to every organisation, an organisation's public key to the server. People compare
fingerprints by telephone; from then on nobody can stand between them.

An organisation certifies its own key for TLS, without the right to certify others, and the server knows each of these
certificates: no authority could give an organisation's name to somebody else.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from silograph.core.errors import InputError
from silograph.core.files import LONGEST_CARD, read_at_most, sync_folder, write_atomically

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.crt", "server.key"
NODE_KEY, NODE_PUBLIC = "node.key", "node.pub"
TLS_KEY, TLS = "tls.key", "tls.crt"  # node.key as TLS libraries read it, and its certificate
DAYS = 825  # of a certificate
SERVER_NAME = "silograph-server"
_AUTHORITY, _AUTHORITY_DAYS = "silograph authority", 3650  # longer than servers' certificates, which it renews
_SOON = timedelta(days=45)

#: By OpenSSL's number: what is wrong with a certificate's dates, and what helps.
_DATES = {
    10: (
        "a certificate that has not expired",
        "Look at this machine's clock; if it is right, whoever runs the server types `silograph renew` there.",
    ),
    9: ("a certificate that is valid already", "Look at this machine's clock."),
}

#: Clocks differ: a new certificate must be valid for an organisation with a slow clock.
_EARLIER = timedelta(days=1)


def make_authority(folder: Path, hosts: Sequence[str], days: int) -> None:
    """Make ca.crt for every organisation; server.crt and server.key for the server at `hosts`; ca.key to be kept
    apart."""
    if not hosts or days < 1:
        raise InputError("certificate", "a host name or address, and at least one day", f"{list(hosts)}, {days} days")
    _refuse_existing(folder, CA_KEY, CA, SERVER_KEY, SERVER)
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name(_AUTHORITY)
    root = (
        _certificate(issuer, issuer, authority.public_key(), max(days, _AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority, hashes.SHA256())
    )
    leaf = _server_certificate(authority, server.public_key(), hosts, days)
    _write_new(folder / CA_KEY, _pem(authority), 0o600)
    _write_new(folder / CA, root.public_bytes(Encoding.PEM), 0o644)
    _write_new(folder / SERVER_KEY, _pem(server), 0o600)
    _write_new(folder / SERVER, leaf, 0o644)


def renew_server(folder: Path, hosts: Sequence[str], days: int = DAYS, new_key: bool = False) -> None:
    """Make a new server.crt from the authority in `folder`; organisations know the authority and notice nothing."""
    try:
        authority = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (OSError, ValueError):
        todo = "Put ca.key back for this command, and take it off the machine again."
        raise InputError(str(folder / CA_KEY), "the authority's key", "it is not there", todo) from None
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    held = x509.load_pem_x509_certificate(_content(folder / SERVER)).public_key()
    if new_key:
        server = ec.generate_private_key(ec.SECP256R1())
        write_atomically(folder / SERVER_KEY, _pem(server), 0o600)
        held = server.public_key()
    assert isinstance(held, ec.EllipticCurvePublicKey)
    write_atomically(folder / SERVER, _server_certificate(authority, held, hosts, days))


def _server_certificate(
    authority: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey, hosts: Sequence[str], days: int
) -> bytes:
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    return (
        _certificate(_name("silograph server"), _name(_AUTHORITY), key, days)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


def make_node_key(folder: Path, anew: bool = False) -> None:
    """Make node.key, which never leaves the organisation, and node.pub for the server. `anew` replaces an older one."""
    if not anew:
        _refuse_existing(folder, NODE_KEY, NODE_PUBLIC)
    key, put = ec.generate_private_key(ec.SECP256R1()), write_atomically if anew else _write_new
    put(folder / NODE_KEY, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    put(folder / NODE_PUBLIC, public_line(key.public_key()) + b"\n", 0o644)


def node_name(organisation: str) -> str:
    """The name of an organisation in its certificate: its own name may contain anything."""
    return f"silograph-{hashlib.sha256(organisation.encode()).hexdigest()[:32]}"


def certify_node(folder: Path, name: str, days: int = DAYS) -> None:
    """Make tls.crt, which certifies node.key as `name`'s; a new one replaces an older one."""
    key = read_private(folder / NODE_KEY)
    own = (
        _certificate(_name(name), _name(name), key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_atomically(folder / TLS_KEY, _pem(key), 0o600)
    write_atomically(folder / TLS, own.public_bytes(Encoding.PEM))


def check_certified(content: bytes, node: bytes, name: str, where: str) -> None:
    """Check that `certify_node` made a certificate: for this name and key, valid now, unable to certify."""
    todo = "`silograph enrol` makes it, `silograph renew` makes it anew; then send the enrolment again."
    try:
        held = x509.load_pem_x509_certificate(content)
        basic = held.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = held.extensions.get_extension_for_class(x509.KeyUsage).value
        sound = not basic.ca and not usage.key_cert_sign and held.subject == _name(name)
        sound = sound and held.public_key() == public_key(node, where) and content.count(b"BEGIN") == 1
    except (ValueError, x509.ExtensionNotFound):
        sound = False
    if not sound:
        raise InputError(where, "a TLS certificate of its own key, in its own name", "found something else", todo)
    if held.not_valid_after_utc < datetime.now(UTC):
        now = datetime.now(UTC)
        found = f"it expired on {held.not_valid_after_utc:%Y-%m-%d}, and this machine's clock says {now:%Y-%m-%d}"
        raise InputError(where, "a TLS certificate that is valid", found, f"If the clock is right: {todo}")


def expires(content: bytes, where: str) -> datetime:
    """When a certificate ends."""
    try:
        return x509.load_pem_x509_certificate(content).not_valid_after_utc
    except ValueError:
        raise InputError(where, "a certificate", "it is damaged") from None


def ends_in(folder: Path) -> dict[str, datetime]:
    """When the certificates in a folder end that `silograph renew` makes."""
    held = [folder / name for name in (SERVER, TLS) if (folder / name).exists()]
    return {path.name: expires(_content(path), str(path)) for path in held}


def ending_soon(ends: Mapping[str, datetime]) -> list[str]:
    """A sentence for each certificate that ends within weeks, or has ended."""
    return [
        f"The certificate {name} ends on {at:%Y-%m-%d}; `silograph renew` makes a new one."
        for name, at in ends.items()
        if at - datetime.now(UTC) < _SOON
    ]


def client_tls(ca: Path, folder: Path) -> ssl.SSLContext:
    """TLS settings for connecting to the server: trust only the authority in `ca`, show the certificate in `folder`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(ca)
    except OSError:
        raise InputError(str(ca), "the certificate of the server's authority (ca.crt)", "it cannot be read") from None
    try:
        context.load_cert_chain(folder / TLS, folder / TLS_KEY)
    except OSError:
        todo = "`silograph renew` makes them from node.key."
        raise InputError(str(folder), f"{TLS} and {TLS_KEY} for node.key", "they cannot be read", todo) from None
    return context


def not_ours(address: str, ca: Path, error: ssl.SSLCertVerificationError) -> InputError:
    """Explain why a server's certificate was not accepted. Nothing was sent."""
    where = f"server {address}"
    if error.verify_code in _DATES:
        expected, todo = _DATES[error.verify_code]
        return InputError(where, expected, f"found another date ({error.verify_message})", f"Nothing was sent. {todo}")
    return InputError(
        where,
        f"a certificate for this name from the authority in {ca}",
        f"found another ({error.verify_message})",
        "Nothing was sent. Compare the fingerprints of ca.crt with whoever runs the server.",
    )


def read_public(path: Path) -> bytes:
    """Read an organisation's node.pub and check that it is one."""
    content = _content(path)
    if b"PRIVATE KEY" in content:
        raise InputError(str(path), "a public key", "it is a private one", "Send node.pub; node.key stays where it is.")
    public_key(content, str(path))
    return content


def fingerprint(path: Path) -> str:
    """The fingerprint of a public key as `ssh-keygen -l` shows it, of a certificate as `openssl x509 -fingerprint
    -sha256` does."""
    content = _content(path)
    if b"BEGIN CERTIFICATE" in content:
        try:
            return x509.load_pem_x509_certificate(content).fingerprint(hashes.SHA256()).hex(":").upper()
        except ValueError:
            raise InputError(str(path), "a certificate", "it is damaged") from None
    return key_fingerprint(read_public(path))


def key_fingerprint(content: bytes) -> str:
    """The fingerprint of the key in a node.pub."""
    body = base64.b64decode(public_line(public_key(content, "public key")).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")


def public_key(content: bytes, where: str) -> ec.EllipticCurvePublicKey:
    """The key in a node.pub; all of ours are on the curve P-256."""
    try:
        key = load_ssh_public_key(content)
    except (ValueError, NotImplementedError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError(where, "the public key of an organisation (node.pub)", "it is something else")
    return key


def public_line(key: ec.EllipticCurvePublicKey) -> bytes:
    """The key as in node.pub: its kind and its content, without a comment."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def read_private(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key in a node.key."""
    try:
        key = load_ssh_private_key(_content(path), None)
    except (ValueError, TypeError, NotImplementedError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError(
            str(path), "the private key of an organisation (node.key), without a password", "it is something else"
        )
    return key


# ---- what an organisation signs
# ----------------------------------------------------------------------------------------------


def sign_reply(key: ec.EllipticCurvePrivateKey, question: bytes, reply: bytes) -> bytes:
    """Sign a reply: it is this organisation's, and it is to this question."""
    return key.sign(_statement(question, reply), ec.ECDSA(hashes.SHA256()))


def signed(public: ec.EllipticCurvePublicKey, question: bytes, reply: bytes, signature: bytes) -> bool:
    """Whether the holder of the key gave this reply to this question."""
    try:
        public.verify(signature, _statement(question, reply), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _statement(question: bytes, reply: bytes) -> bytes:
    return b"silograph reply 1" + hashlib.sha256(question).digest() + hashlib.sha256(reply).digest()


# ---- certificates ----------------------------------------------------------------------------------------------------


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    letters = host.replace("-", "").replace(".", "")
    if not (host.isascii() and letters.isalnum()):
        raise InputError("certificate", "host names or addresses, without a port", f"found {host!r}")
    return x509.DNSName(host)


# ---- files -----------------------------------------------------------------------------------------------------------


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _content(path: Path) -> bytes:
    try:
        return read_at_most(path, LONGEST_CARD)
    except OSError as error:
        raise InputError(str(path), "a file that can be read", error.strerror or "it cannot be read") from None


def _refuse_existing(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / name).exists():
            raise _exists(folder / name)


def _exists(path: Path) -> InputError:
    return InputError(str(path), "no such file yet", "it exists", "Keys are never overwritten: choose another folder.")


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write all or nothing, on disk when this returns; an existing file is kept."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with open(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        raise _exists(path) from None
    finally:
        os.unlink(temporary)
    sync_folder(path.parent)
