"""The agent's side of a secure sum; `secure_sum` explains the steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.discrete import noisy
from silograph.privacy.secure_keys import (
    KEY,
    PLAIN,
    SEALED,
    SHARE,
    Curve,
    KeyPair,
    Keys,
    PairKeys,
    keys_text,
    list_text,
    to_mask,
    to_seal,
)
from silograph.privacy.secure_messages import (
    Advertisement,
    Answer,
    Confirmation,
    Delivery,
    MaskedInput,
    Message,
    Proof,
    Request,
    Roster,
    Session,
    Shares,
    Step,
    Told,
)
from silograph.privacy.shamir import Source, split

_ONCE = bytes(12)  # a nonce may be constant where every key seals one message


class Agent:
    """One agent in one round. An agent that lost its state sits the round out: it may have signed a list already.

    `pay` is called once, after all checks and before the masked input exists: there, whoever keeps a ledger writes the
    row to disk, or refuses. Once the masked input has left, a sum may be opened without this agent. `source`, `curve`
    and `noise_source` are replaced in tests and simulation only.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        identity: Ed25519PrivateKey,
        source: Source = os.urandom,
        curve: Curve = PLAIN,
        noise_source: Source | None = None,
        pay: Callable[[], None] = lambda: None,
    ) -> None:
        if session.identities.get(name) != identity.public_key().public_bytes_raw():
            raise InputError(session.place, f"the registered identity of {name!r}", "found another key")
        self.session, self.name = session, name
        self._identity, self._source, self._keys = identity, source, Keys(session, curve)
        self._noise_source, self._pay = noise_source or source, pay
        self._sealing, self._seed = KeyPair(source(KEY)), source(KEY)
        self._second = source(KEY)  # shared besides the seed: the mask key, or the key to the keys of all pair masks
        self._masking = self._sealing if session.cycles else KeyPair(self._second)
        self._next: Step | None = "advertise"
        self._pairs: dict[str, PairKeys] = {}
        self._held: dict[str, bytes] = {}  # by agent: our share of its seed, then of its mask key
        self._request: Request | None = None

    def say(self, step: Step, told: Told | None, vector: Array) -> Message:
        """Answer in one step; `vector` is what this agent adds to the sum."""
        match step, told:
            case "advertise", None:
                return self.advertise()
            case "share", Roster():
                return self.share(told)
            case "mask", Delivery():
                return self.mask(told, vector)
            case "confirm", Request():
                return self.confirm(told)
            case "unmask", Proof():
                return self.unmask(told)
        raise self.session.refusal(f"a step of it, not {step!r:.40}", "found something else")

    def advertise(self) -> Advertisement:
        self._begin("advertise")
        unsigned = Advertisement(self.session.tag, self.name, self._sealing.public, self._second_public, b"")
        self._next = "share"
        return replace(unsigned, signature=self._identity.sign(keys_text(self.session, unsigned)))

    @property
    def _second_public(self) -> bytes:
        """The public value that the second secret must match."""
        if self.session.cycles:
            return self._keys.commitment(self.name, self._second)
        return self._masking.public

    def share(self, roster: Roster) -> Shares:
        """Check everybody's keys, then share both secrets: `threshold` others can stand in for this agent."""
        self._begin("share")
        session = self.session
        session.ours(roster)
        peers = {message.sender: message for message in roster.advertisements}
        if session.cycles and not peers.keys() <= session.near(self.name) | {self.name}:
            raise session.refusal(f"the partners of {self.name!r} on the roster", "found others")
        session.enough(peers, "advertised keys", self._enough)
        if len(peers) < len(roster.advertisements):
            raise session.refusal("each agent once", "the roster names a duplicate sender")
        for message in roster.advertisements:
            self._keys.check_advertisement(message)
        advertised = {key for peer in peers.values() for key in (peer.seal_key, peer.mask_key)}
        if len(advertised) < 2 * len(peers):
            raise session.refusal("keys used once", "two advertised keys are equal")
        own = peers.pop(self.name, None)
        if own is None or (own.seal_key, own.mask_key) != (self._sealing.public, self._second_public):
            raise session.refusal(f"the roster to name {self.name!r} with its own keys", "it does not")
        points = [session.points[name] for name in (self.name, *peers)]
        shares = split(self._seed + self._second, points, session.sharing(self.name), self._source)
        self._held[self.name] = shares[0]
        sealed = {}
        for (name, peer), share in zip(peers.items(), shares[1:], strict=True):
            keys = self._pairs[name] = self._keys.of_pair(self.name, self._sealing, self._masking, peer)
            about = self._keys.about_seal(self.name, name)
            sealed[name] = ChaCha20Poly1305(to_seal(keys, self.name, name)).encrypt(_ONCE, share, about)
        spare = b""
        if session.cycles:
            listed = b"".join(to_mask(self._pairs[name]) for name in sorted(peers))
            spare = ChaCha20Poly1305(self._second).encrypt(_ONCE, listed, session.about("spare", self.name))
        self._next = "mask"
        return Shares(session.tag, self.name, sealed, self._keys.commitment(self.name, self._seed), spare)

    @property
    def _enough(self) -> int:
        """How many agents it must hear of at every step, itself included."""
        return self.session.sharing(self.name) + 1 if self.session.cycles else self.session.quorum

    def mask(self, delivery: Delivery, vector: Array) -> MaskedInput:
        """Return the vector as integers under all masks: uniform words to anyone with fewer shares than the
        threshold."""
        self._begin("mask")
        session = self.session
        session.ours(delivery)
        if delivery.receiver != self.name or not delivery.sealed.keys() <= self._pairs.keys():
            raise session.refusal(f"shares for {self.name!r} from agents on the roster", "found others")
        session.enough({self.name, *delivery.sealed}, "shared", self._enough)
        if vector.shape != (session.length,):
            raise InputError(session.place, f"a vector of {session.length} numbers", f"found shape {vector.shape}")
        for name, sealed in delivery.sealed.items():
            self._held[name] = self._opened(name, sealed)
        self._pay()
        noise = session.noise, self._noise_source, session.laplace_shares
        whole = noisy(vector, session.clip, session.fraction_bits, *noise)
        words = whole.astype(session.word) + self._keys.self_mask(self.name, self._seed)
        for name in delivery.sealed:
            words += self._keys.mask_of_pair(self.name, name, to_mask(self._pairs[name]))
        self._pairs.clear()
        self._next = "confirm"
        return MaskedInput(session.tag, self.name, words.tobytes())

    def confirm(self, request: Request) -> Confirmation:
        """Sign the first acceptable list of survivors, and refuse to sign any other."""
        session = self.session
        session.ours(request)
        if self._next != "confirm":
            raise session.refusal("every step once and in order", "confirm was called out of turn")
        survivors, dropped = set(request.survivors), set(request.dropped)
        if both := survivors & dropped:
            raise session.refusal("one secret per agent", f"both secrets of {min(both)!r} were asked for")
        if len(survivors) + len(dropped) < len(request.survivors) + len(request.dropped):
            raise session.refusal("each agent once", "the request names a duplicate")
        wrong = self._held.keys() - (survivors | dropped)
        if not session.cycles:
            wrong |= (survivors | dropped) - self._held.keys()
        if wrong:
            raise session.refusal("a request about exactly those who shared", f"{min(wrong)!r} is unknown or left out")
        if self.name not in survivors:
            raise session.refusal(f"{self.name!r} among the survivors", "its input is said to be missing")
        session.enough(survivors, "survived", session.quorum)
        session.enough(survivors & self._held.keys(), "it masked towards survived", self._enough)
        if self._request not in (None, request):
            raise session.refusal("one request a round", "found a second, different one")
        self._request = request
        text = list_text(session, self.name, self._keys.listed(request))
        return Confirmation(session.tag, self.name, self._identity.sign(text))

    def unmask(self, proof: Proof) -> Answer:
        """Return shares for the confirmed list, once enough agents have signed the same one."""
        session, request = self.session, self._request
        session.ours(proof)
        if request is None:
            raise session.refusal("a request to be confirmed first", "there was none")
        self._keys.check_confirmations(proof.confirmations, request)
        session.enough({message.sender for message in proof.confirmations}, "confirmed", session.threshold)
        return Answer(
            session.tag,
            self.name,
            {name: self._held[name][:SHARE] for name in request.survivors if name in self._held},
            {name: self._held[name][SHARE:] for name in request.dropped if name in self._held},
        )

    def _begin(self, step: Step) -> None:
        """Begin a step, once; no other may follow until it succeeds, so a refusal ends the agent's part."""
        if self._next != step:
            raise self.session.refusal("every step once and in order", f"{step} was called out of turn")
        self._next = None

    def _opened(self, sender: str, sealed: bytes) -> bytes:
        key, about = to_seal(self._pairs[sender], sender, self.name), self._keys.about_seal(sender, self.name)
        try:
            if len(sealed) != SEALED:
                raise InvalidTag
            return ChaCha20Poly1305(key).decrypt(_ONCE, sealed, about)
        except InvalidTag:
            raise self.session.refusal(
                f"a share sealed by {sender!r} for {self.name!r}", "it does not open: tampered with or malformed"
            ) from None
