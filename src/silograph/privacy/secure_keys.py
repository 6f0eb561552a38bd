"""Keys, signatures and masks of a secure sum: all the cryptography that agents and server share.

X25519, Ed25519, HKDF-SHA256 and AES-256 in counter mode, from `cryptography`. Everything derived, signed or expanded is
bound to its session, its purpose and its agents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from silograph.privacy.secure_messages import Advertisement, Confirmation, Request, Session
from silograph.privacy.shamir import share_size

Words = NDArray[np.unsignedinteger]

KEY = 32  # bytes of every key, seed and digest
SHARE = share_size(KEY)
TAG = 16  # of a seal
SEALED = 2 * SHARE + TAG  # a share of the seed, one of the mask key, and the seal's tag
_FROM_ZERO = CTR(bytes(16))


class KeyPair:
    """An X25519 key of one round."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.private = X25519PrivateKey.from_private_bytes(secret)
        self.public = self.private.public_key().public_bytes_raw()


def verified(identity: bytes, signature: bytes, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def agree(own: KeyPair, peer: bytes) -> bytes | None:
    """The pair's secret, or None for a key of low order, whose secret would be zero and known to all."""
    try:
        return own.private.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:
        return None


@dataclass(frozen=True)
class Curve:
    """The public-key operations, separate so that a simulation of all agents need not do each one twice."""

    verified: Callable[[bytes, bytes, bytes], bool] = verified
    #: What was checked already, if all are shown the same objects, and the keys of pairs that one end has computed.
    checked: dict[tuple[int, ...], object] | None = None
    pairs: dict[tuple[str, str], bytes] | None = None
    lists: dict[int, tuple[Request, bytes]] | None = None


PLAIN = Curve()

#: A pair's keys, joined: one to seal with for its first agent by name, one for its second, and that of the mask.
PairKeys = bytes


def to_seal(keys: PairKeys, sender: str, receiver: str) -> bytes:
    at = 0 if sender < receiver else KEY
    return keys[at : at + KEY]


def to_mask(keys: PairKeys) -> bytes:
    return keys[2 * KEY :]


def remembering() -> Curve:
    """Do once what all agents repeat: check the same signatures, and compute the same keys at both ends of a pair."""
    return Curve(cache(verified), {}, {}, {})


@dataclass(frozen=True)
class Keys:
    """What agents and server check and compute in the same way."""

    session: Session
    curve: Curve

    def check_advertisement(self, message: Advertisement) -> None:
        self._once(self._check_advertisement, message)

    def _once(self, check: Callable[..., None], *shown: object) -> None:
        """Check objects once and keep them, so that no others can take their places in memory."""
        checked, places = self.curve.checked, tuple(map(id, shown))
        if checked is None:
            check(*shown)
        elif places not in checked:
            check(*shown)
            checked[places] = shown

    def _check_advertisement(self, message: Advertisement) -> None:
        session, name = self.session, message.sender
        session.ours(message)
        if name not in session.identities:
            raise session.refusal("an agent of the cohort", f"{name!r} is unknown")
        if not len(message.seal_key) == len(message.mask_key) == KEY:
            raise session.refusal(f"keys of {KEY} bytes", f"{name!r} advertised others: malformed")
        if not self.curve.verified(session.identities[name], message.signature, keys_text(session, message)):
            raise session.refusal(f"keys signed by {name!r} for this session", "the signature is wrong")

    def check_confirmations(self, messages: Iterable[Confirmation], request: Request) -> None:
        self._once(self._check_confirmations, messages, request)

    def _check_confirmations(self, messages: Iterable[Confirmation], request: Request) -> None:
        session, survivors, listed = self.session, set(request.survivors), self.listed(request)
        for message in messages:
            session.ours(message)
            if message.sender not in survivors:
                raise session.refusal("confirmations by survivors", f"found one by {message.sender!r}")
            text = list_text(session, message.sender, listed)
            if not self.curve.verified(session.identities[message.sender], message.signature, text):
                raise session.refusal(f"this list of survivors, signed by {message.sender!r}", "the signature is wrong")

    def agreed(self, own: KeyPair, peer: str, public: bytes, about: bytes) -> bytes:
        """The key of a pair for one purpose."""
        return _derive(self._secret(own, peer, public), about)

    def _secret(self, own: KeyPair, peer: str, public: bytes) -> bytes:
        secret = agree(own, public)
        if secret is None:
            raise self.session.refusal("a shared secret that is not zero", f"{peer!r} advertised a weak key")
        return secret

    def listed(self, request: Request) -> bytes:
        """The digest of a list, computed once if all are shown the same object."""
        if self.curve.lists is None:
            return list_digest(self.session, request)
        if id(request) not in self.curve.lists:
            self.curve.lists[id(request)] = request, list_digest(self.session, request)
        return self.curve.lists[id(request)][1]

    def of_pair(self, name: str, sealing: KeyPair, masking: KeyPair, peer: Advertisement) -> PairKeys:
        """All keys of a pair, the same at both ends. With sparse partners, one agreement gives all: no private key is
        shared there for drop-outs, but the masks' keys are (`Shares.spare`)."""
        pair = (name, peer.sender) if name < peer.sender else (peer.sender, name)
        found = self.curve.pairs.pop(pair, None) if self.curve.pairs is not None else None
        if found is not None:
            return found
        secret, about = self._secret(sealing, peer.sender, peer.seal_key), self.session.about
        if self.session.cycles:
            found = HKDF(SHA256(), 3 * KEY, salt=None, info=about("pair", *pair)).derive(secret)
        else:
            seal = [_derive(secret, about("seal", *way)) for way in (pair, pair[::-1])]
            found = b"".join(seal) + self.mask_key(name, masking, peer)
        if self.curve.pairs is not None:
            self.curve.pairs[pair] = found
        return found

    def mask_key(self, name: str, own: KeyPair, peer: Advertisement) -> bytes:
        """The key of a pair's mask, if everybody is everybody's partner."""
        return self.agreed(own, peer.sender, peer.mask_key, self.session.about("mask", *sorted((name, peer.sender))))

    def about_seal(self, sender: str, receiver: str) -> bytes:
        """The data that a seal is bound to besides its key."""
        return b"" if self.session.cycles else self.session.about("seal", sender, receiver)

    def mask_of_pair(self, name: str, other: str, key: bytes) -> Words:
        """The mask that `name` adds and the other subtracts, or the other way round: it cancels in the sum."""
        mask = self._expand(key)
        return mask if name < other else -mask

    def self_mask(self, name: str, seed: bytes) -> Words:
        return self._expand(_derive(seed, self.session.about("self mask", name)))

    def commitment(self, name: str, seed: bytes) -> bytes:
        return _derive(seed, self.session.about("commitment", name))

    def _expand(self, key: bytes) -> Words:
        word = self.session.word
        zeros = bytes(self.session.length * word.itemsize)
        return np.frombuffer(Cipher(AES(key), _FROM_ZERO).encryptor().update(zeros), word)


def _derive(secret: bytes, about: bytes) -> bytes:
    return HKDF(SHA256(), KEY, salt=None, info=about).derive(secret)


def keys_text(session: Session, message: Advertisement) -> bytes:
    """The text that an agent signs to advertise its keys."""
    return session.about("advertise", message.sender, data=message.seal_key + message.mask_key)


def list_digest(session: Session, request: Request) -> bytes:
    """The digest of a list of survivors and dropped agents."""
    listed = session.about("survivors", *request.survivors) + session.about("dropped", *request.dropped)
    return hashlib.sha256(listed).digest()


def list_text(session: Session, sender: str, listed: bytes) -> bytes:
    """The text that an agent signs to confirm a list. It has the agent's name, since agents of one organisation share
    an identity."""
    return session.about("confirm", sender, data=listed)
