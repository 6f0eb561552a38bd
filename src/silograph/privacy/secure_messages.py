"""The messages of `secure_sum`, and the session that everybody knows beforehand.

All are plain data. Nothing in a message is trusted before `secure_sum` has checked it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from silograph.core.errors import InputError, SilographError
from silograph.core.types import Array
from silograph.privacy.discrete import Integers, check_share, decode, word_bits
from silograph.privacy.secure_partners import partners, sparse, threshold_of

_PROTOCOL = "silograph secure sum 2"
_HEAVY = 4.0  # the tails of a Laplace law are so much heavier: it leaves the word with a chance below e^-70

Step = Literal["advertise", "share", "mask", "confirm", "unmask"]
STEPS: tuple[Step, ...] = get_args(Step)


class ProtocolError(SilographError):
    """A message that the protocol does not allow. Nothing was revealed in reply."""

    code = "secure-sum"


# ---- what everybody knows beforehand ---------------------------------------------------------------------------------


def threshold(agents: int) -> int:
    """The number of a cohort's agents that must stay to the end: more than two thirds."""
    return 2 * agents // 3 + 1


@dataclass(frozen=True)
class Session:
    """One cohort, one round: public, and the same for everybody.

    `identities` are the agents' registered Ed25519 keys. `noise` is each agent's share of the noise, in grid steps
    (`masking.noise_for`), added before masking; with `laplace_shares` it is the scale of a Laplace number of which
    so many agents make a share each. `minimum` is the smallest cohort that may be summed. With `cycles` an agent has
    some partners (`secure_partners`); without, all others are its partners.
    """

    run: str
    round: int
    region: str
    identities: Mapping[str, bytes]
    length: int
    clip: float
    fraction_bits: int
    noise: float = 0.0
    minimum: int = 3
    cycles: int = 0
    laplace_shares: int = 0

    def __post_init__(self) -> None:
        if self.minimum < 2 or self.length < 1:
            raise InputError(
                self.place, "a minimum above 1 and a length above 0", f"found {self.minimum}, {self.length}"
            )
        if self.noise:
            check_share(self.noise)
        if self.laplace_shares and self.length != 1:
            raise InputError(self.place, "one number, if noise is Laplace's", f"found {self.length}")
        self.enough(self.identities, "are registered", self.minimum)
        _ = self.word  # a sum that could overflow is refused before anything is sent

    @property
    def place(self) -> str:
        return f"secure sum, run {self.run}, region {self.region}, round {self.round}"

    @cached_property
    def points(self) -> dict[str, int]:
        """The point at which each agent's shares are evaluated."""
        return {name: k + 1 for k, name in enumerate(sorted(self.identities))}

    @property
    def threshold(self) -> int:
        """The number of agents that must stay to the end."""
        return threshold(len(self.identities))

    @cached_property
    def _near(self) -> dict[str, frozenset[str]]:
        names = list(self.points)
        seed = hashlib.sha256(self.about("partners")).digest()
        numbers = partners(len(names), self.cycles, seed)
        return {name: frozenset(names[j] for j in near) for name, near in zip(names, numbers, strict=True)}

    def near(self, name: str) -> frozenset[str]:
        """An agent's partners: they hold its secrets, and it masks towards them."""
        return self._near[name] if self.cycles else frozenset(self.identities.keys() - {name})

    def sharing(self, name: str) -> int:
        """The number of shares that give an agent's secret back; at least so many of its partners must survive."""
        if not self.cycles:
            return self.threshold
        return threshold_of(len(self.identities), len(self.near(name)), sparse(len(self.identities))[1])

    @property
    def quorum(self) -> int:
        """The least number of agents that may be summed."""
        return max(self.threshold, self.minimum)

    @cached_property
    def word(self) -> np.dtype[np.unsignedinteger]:
        noise = self.noise * (_HEAVY if self.laplace_shares else 1.0)
        bits = word_bits(self.clip, self.fraction_bits, len(self.identities), noise)
        return np.dtype("<u4") if bits == 32 else np.dtype("<u8")

    @cached_property
    def context(self) -> bytes:
        """A part of every signature, key derivation and seal, so that none of them is valid in another round."""
        numbers = (int(self.length), float(self.clip), int(self.fraction_bits), float(self.noise), int(self.minimum))
        sparse = (int(self.cycles),) if self.cycles else ()
        law = ("laplace", int(self.laplace_shares)) if self.laplace_shares else ()
        cohort = [part for name in self.points for part in (name.encode(), self.identities[name])]
        rest = hashlib.sha256(_pack(repr(numbers + sparse + law).encode(), *cohort)).digest()
        return _pack(_PROTOCOL.encode(), self.run.encode(), str(self.round).encode(), self.region.encode(), rest)

    @cached_property
    def tag(self) -> bytes:
        """The session's name in every message."""
        return hashlib.sha256(self.context).digest()

    def about(self, purpose: str, *names: str, data: bytes = b"") -> bytes:
        return self.context + _pack(purpose.encode(), data, *(name.encode() for name in names))

    def refusal(self, expected: str, found: str, todo: str = "") -> ProtocolError:
        return ProtocolError(self.place, expected, found, todo)

    def enough(self, agents: Collection[str], what: str, least: int) -> None:
        if len(agents) < least:
            raise self.refusal(f"at least {least} agents", f"only {len(agents)} {what}", "No sum is revealed.")

    def ours(self, message: Message | Told | PartialSum) -> None:
        if message.session != self.tag:
            raise self.refusal("a message of this session", f"found a {type(message).__name__} of another one")


def _pack(*parts: bytes) -> bytes:
    """Join parts with their lengths, so that no two lists of parts look the same."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


# ---- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """A message from an agent to the server."""

    session: bytes
    sender: str


@dataclass(frozen=True)
class Advertisement(Message):
    seal_key: bytes
    mask_key: bytes
    signature: bytes


@dataclass(frozen=True)
class Shares(Message):
    sealed: Mapping[str, bytes]  # by receiver
    commitment: bytes  # to the self-mask seed, so that a wrong share is noticed
    spare: bytes = b""  # with sparse partners: the keys of all pair masks, under the key that is shared


@dataclass(frozen=True)
class MaskedInput(Message):
    words: bytes


@dataclass(frozen=True)
class Confirmation(Message):
    signature: bytes


@dataclass(frozen=True)
class Answer(Message):
    seeds: Mapping[str, bytes]  # shares, by survivor
    keys: Mapping[str, bytes]  # shares, by dropped agent


@dataclass(frozen=True)
class Roster:
    session: bytes
    advertisements: tuple[Advertisement, ...]


@dataclass(frozen=True)
class Delivery:
    session: bytes
    receiver: str
    sealed: Mapping[str, bytes]  # by sender


@dataclass(frozen=True)
class Request:
    """The agents that sent an input, and those that shared but sent none."""

    session: bytes
    survivors: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class Proof:
    session: bytes
    confirmations: tuple[Confirmation, ...]


@dataclass(frozen=True)
class PartialSum:
    """From one server of a graph to the others: the sum of its own agents' masked words, and these agents' names."""

    session: bytes
    server: int
    senders: tuple[str, ...]
    words: bytes


#: From the server to an agent.
Told = Roster | Delivery | Request | Proof

#: By step, what an agent receives and what it sends. It receives nothing before it advertises.
TOLD: Mapping[str, type[Told]] = {"share": Roster, "mask": Delivery, "confirm": Request, "unmask": Proof}
SAID: Mapping[str, type[Message]] = {
    "advertise": Advertisement,
    "share": Shares,
    "mask": MaskedInput,
    "confirm": Confirmation,
    "unmask": Answer,
}


@dataclass(frozen=True, eq=False)
class Total:
    """The sum over `survivors`: exact as integers, in grid steps."""

    whole: Integers
    fraction_bits: int
    survivors: tuple[str, ...]

    @property
    def values(self) -> Array:
        return decode(self.whole, self.fraction_bits)
