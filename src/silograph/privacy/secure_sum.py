"""The sum of a cohort's vectors, and nothing else: double masking with drop-out recovery (Bonawitz et al. 2017).

An `Agent` and a `Server` share nothing but messages; `run_steps` runs the steps in order, for agents here and
elsewhere.

    advertise   two fresh public keys, signed with the agent's registered identity         -> Roster to all
    share       self-mask seed and mask key, Shamir-shared, sealed for each other agent     -> Delivery to each
    mask        pay; integers + PRG(own seed) + sum over the others of +-PRG(pair's secret) -> Request to all
    confirm     a signature under its name and the one list of survivors and dropped        -> Proof to all
    unmask      shares of survivors' seeds and of dropped agents' mask keys, never both     -> Total

The threshold is floor(2L/3) + 1 of L agents, so fewer than a third may fall silent, at any step, and the sum of those
whose input arrived is exact. If more fall silent, the server refuses: it holds uniform words and too few shares of any
seed. Against a server that lies and colludes with up to a third of the agents, nothing is learned but the sum over the
honest survivors, who are more than a third of the cohort. Two contradictory lists would need 2 floor(2L/3) + 2 > L +
L/3 signatures, and an honest agent signs once. Without `confirm` such a server could ask different agents about
different survivors, and unmask single inputs.

An agent pays before its masked input leaves (`Agent.pay`), not later: once the server has that input, signatures and
shares of a threshold of the *others* are enough to open a sum that includes this agent.

Not covered: the sum itself, unless the agents add noise (`Session.noise`); a wrong input, which any agent can send;
refusal of service. Keys live for one round, and a refusal ends the agent's part in it, so that no mask or sealing key
is ever used for two messages.

Written by hand, because Flower's SecAgg+ (1.41) is for servers that follow the protocol: public keys are not signed, so
that a server can put its own in their place; there is no `confirm`, so that it can ask different agents about different
survivors; and `pseudo_rand_gen` folds every seed to 32 bits for numpy's RandomState: masks can be tried one by one.

With more than about a hundred agents everybody has some partners only (`secure_partners`), so that a sum of n agents
takes n log n: 3,000 agents with 100 words under a minute. The second shared secret is then not a mask key, but the key
under which an agent leaves the keys of its pair masks with the server (`Shares.spare`).

Measured on one busy core: 2 ns (32 bits) or 5 ns (64 bits) per mask word; `secure_sum` with 100 agents and 1000 words
takes 0.5 s, most of it key agreements; one of 100 agents by itself works 25 ms per round.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.discrete import noisy
from silograph.privacy.secure_agent import Agent
from silograph.privacy.secure_keys import KEY, PLAIN, SEALED, SHARE, TAG, Curve, KeyPair, Keys, Words, remembering
from silograph.privacy.secure_messages import (
    STEPS,
    Advertisement,
    Answer,
    Confirmation,
    Delivery,
    MaskedInput,
    Message,
    PartialSum,
    Proof,
    ProtocolError,
    Request,
    Roster,
    Session,
    Shares,
    Step,
    Told,
    Total,
)
from silograph.privacy.secure_partners import sparse
from silograph.privacy.shamir import Source, combine

__all__ = ["Agent", "ProtocolError", "Server", "Session", "Step", "Total", "secure_sum", "unmasked_sum"]


class Server:
    """The server in one round: `receive` each message, then close the step; late messages are refused.

    A step that cannot be closed yet stays open, so that the caller may wait for more.
    """

    def __init__(self, session: Session, curve: Curve = PLAIN) -> None:
        self.session, self._keys = session, Keys(session, curve)
        self._awaited: type[Message] | None = Advertisement
        self._request = Request(session.tag, (), ())
        self._advertised: dict[str, Advertisement] = {}
        self._shared: dict[str, Shares] = {}
        self._inputs: set[str] = set()
        self._words = np.zeros(session.length, dtype=session.word)  # masked inputs, added up
        self._confirmed: dict[str, Confirmation] = {}
        self._answered: dict[str, Answer] = {}

    def receive(self, message: Message) -> None:
        self.session.ours(message)
        if type(message) is not self._awaited:
            raise self._refused(message, f"{self._turn} now", "sent something else: early, late or twice")
        match message:
            case Advertisement():
                self._admit(message, self._advertised, self.session.identities)
                self._keys.check_advertisement(message)
                probe = KeyPair(bytes(range(KEY)))  # any key finds out a weak one
                for key in (message.seal_key,) if self.session.cycles else (message.seal_key, message.mask_key):
                    self._keys.agreed(probe, message.sender, key, b"")
                self._advertised[message.sender] = message
            case Shares():
                self._admit(message, self._shared, self._advertised)
                others = self._advertised.keys() & self.session.near(message.sender)
                self._check_sizes(message, message.sealed, others, SEALED)
                spare = KEY * len(others) + TAG if self.session.cycles else 0
                self._check_sizes(message, {"": message.spare}, {""}, spare)
                self._check_sizes(message, {"": message.commitment}, {""}, KEY)
                self._shared[message.sender] = message
            case MaskedInput():
                self._admit(message, self._inputs, self._shared)
                self._check_sizes(message, {"": message.words}, {""}, self.session.length * self.session.word.itemsize)
                self._inputs.add(message.sender)
                self._words += np.frombuffer(message.words, dtype=self.session.word)
            case Confirmation():
                self._admit(message, self._confirmed, self._inputs)
                self._keys.check_confirmations([message], self._request)
                self._confirmed[message.sender] = message
            case Answer():
                self._admit(message, self._answered, self._inputs)
                near = self.session.near(message.sender) | {message.sender}
                self._check_sizes(message, message.seeds, near.intersection(self._request.survivors), SHARE)
                self._check_sizes(message, message.keys, near.intersection(self._request.dropped), SHARE)
                self._answered[message.sender] = message

    def partial(self, server: int) -> PartialSum:
        """Return what server number `server` of a graph passes on: the sum of the inputs it has received."""
        return PartialSum(self.session.tag, server, tuple(sorted(self._inputs)), self._words.tobytes())

    def take_in(self, partial: PartialSum) -> None:
        """Take in the inputs of another server's agents. A server that lies about them spoils the sum and learns
        nothing."""
        self.session.ours(partial)
        size = self.session.length * self.session.word.itemsize
        if self._awaited is not MaskedInput or len(partial.words) != size:
            raise self.session.refusal("a partial sum in its turn, of the session's length", "found another one")
        senders = set(partial.senders)
        if senders & self._inputs or not senders <= self._shared.keys() or len(senders) < len(partial.senders):
            raise self.session.refusal("every agent that shared in one partial sum at most", "found another in it")
        self._inputs |= senders
        self._words += np.frombuffer(partial.words, dtype=self.session.word)

    def roster(self) -> Roster:
        self._close(Advertisement, self._advertised, "advertised keys", self.session.quorum, Shares)
        return Roster(self.session.tag, tuple(self._advertised.values()))

    def roster_of(self, name: str, roster: Roster) -> Roster:
        """The part of the roster that an agent gets: all, or its partners and itself."""
        if not self.session.cycles:
            return roster
        there = self._advertised.keys() & self.session.near(name) | {name}
        return Roster(self.session.tag, tuple(self._advertised[other] for other in sorted(there)))

    def deliveries(self, receivers: Collection[str] | None = None) -> dict[str, Delivery]:
        """The deliveries for all agents that shared, or for the given ones."""
        self._close(Shares, self._shared, "shared", self.session.quorum, MaskedInput)
        return {
            name: Delivery(
                self.session.tag,
                name,
                {
                    sender: self._shared[sender].sealed[name]
                    for sender in sorted(self._shared.keys() & self.session.near(name))
                },
            )
            for name in (self._shared if receivers is None else self._shared.keys() & set(receivers))
        }

    def request(self) -> Request:
        self._close(MaskedInput, self._inputs, "sent an input", self.session.quorum, Confirmation)
        dropped = tuple(sorted(self._shared.keys() - self._inputs))
        self._request = Request(self.session.tag, tuple(sorted(self._inputs)), dropped)
        return self._request

    def proof(self) -> Proof:
        self._close(Confirmation, self._confirmed, "confirmed", self.session.threshold, Answer)
        return Proof(self.session.tag, tuple(self._confirmed.values()))

    def total(self) -> Total:
        """Put the secrets together and remove the masks."""
        session, (survivors, dropped) = self.session, (self._request.survivors, self._request.dropped)
        self._close(Answer, self._answered, "answered", session.threshold, None)
        secrets = self._secrets()
        words = self._words.copy()
        for name in survivors:
            words -= self._keys.self_mask(name, secrets[name])
        for name in dropped:
            for mask in self._masks_of(name, secrets[name]):
                words += mask  # a survivor has added its half of the pair; this is the missing half
        signed = words.view(words.dtype.str.replace("u", "i")).astype(np.int64)
        return Total(signed, session.fraction_bits, survivors)

    def _masks_of(self, name: str, secret: bytes) -> Iterator[Words]:
        """The masks of a dropped agent towards survivors, from its second secret."""
        keys, near = self._keys, self.session.near(name)
        if not self.session.cycles:
            own = KeyPair(secret)
            for other in sorted(self._inputs & near):
                yield keys.mask_of_pair(name, other, keys.mask_key(name, own, self._advertised[other]))
            return
        about = self.session.about("spare", name)
        try:
            spare = ChaCha20Poly1305(secret).decrypt(bytes(12), self._shared[name].spare, about)
        except InvalidTag:
            found = f"those of {name!r} do not open"
            raise self.session.refusal("keys of pair masks", found, "There is no sum this round.") from None
        for k, other in enumerate(sorted(self._advertised.keys() & near)):
            if other in self._inputs:
                yield keys.mask_of_pair(name, other, spare[KEY * k : KEY * (k + 1)])

    def _opened(self) -> dict[str, bytes]:
        """Every secret, combined from the shares of as many of its agent's partners as needed."""
        opened = {}
        for name in self._request.survivors + self._request.dropped:
            holders = sorted(self._answered.keys() & (self.session.near(name) | {name}))
            self.session.enough(holders, f"that hold a secret of {name!r} answered", self.session.sharing(name))
            answers = {holder: self._answered[holder] for holder in holders[: self.session.sharing(name)]}
            opened[name] = combine(
                {
                    self.session.points[holder]: (answer.seeds if name in self._inputs else answer.keys)[name]
                    for holder, answer in answers.items()
                }
            )
        return opened

    def _secrets(self) -> dict[str, bytes]:
        """Seeds of survivors and second secrets of dropped agents, each checked against what its owner made public."""
        secrets = self._opened() if self.session.cycles else self._opened_at_once()
        for name, secret in secrets.items():
            if name in self._inputs:
                right = self._keys.commitment(name, secret) == self._shared[name].commitment
            else:
                known = self._keys.commitment(name, secret) if self.session.cycles else KeyPair(secret).public
                right = known == self._advertised[name].mask_key
            if not right:
                raise self.session.refusal(
                    f"shares that give the secret {name!r} committed to",
                    "they do not: it shared a wrong one or an answer was wrong",
                    "There is no sum this round.",
                )
        return secrets

    def _opened_at_once(self) -> dict[str, bytes]:
        """The same secrets, faster, if everybody holds shares of everybody's secrets."""
        survivors, dropped = self._request.survivors, self._request.dropped
        shares = {
            self.session.points[name]: b"".join(
                [*(answer.seeds[s] for s in survivors), *(answer.keys[d] for d in dropped)]
            )
            for name, answer in list(self._answered.items())[: self.session.threshold]
        }
        joined = combine(shares)
        return {name: joined[KEY * k : KEY * (k + 1)] for k, name in enumerate(survivors + dropped)}

    @property
    def _turn(self) -> str:
        return self._awaited.__name__ if self._awaited else "nothing"

    def _close(
        self, step: type[Message], got: Collection[str], what: str, least: int, following: type[Message] | None
    ) -> None:
        if self._awaited is not step:
            raise self.session.refusal(f"the step of {self._turn} to be closed", f"that of {step.__name__} was")
        self.session.enough(got, what, least)
        self._awaited = following

    def _admit(self, message: Message, before: Collection[str], allowed: Collection[str]) -> None:
        if message.sender not in allowed:
            raise self._refused(message, "an agent that took part so far", "is unknown or was left behind")
        if message.sender in before:
            raise self._refused(message, "one message of each agent", "is a duplicate sender")

    def _check_sizes(self, message: Message, parts: Mapping[str, bytes], names: Collection[str], size: int) -> None:
        if parts.keys() != set(names) or set(map(len, parts.values())) - {size}:
            raise self._refused(message, f"{len(names)} parts of {size} bytes", "sent others: malformed")

    def _refused(self, message: Message, expected: str, found: str) -> ProtocolError:
        return self.session.refusal(expected, f"{message.sender!r} {found} ({type(message).__name__})")


#: Asks agents for one step, with a message for each, and returns their answers; silent agents are left out.
Ask = Callable[[Step, Mapping[str, Told | None]], Mapping[str, Message]]


def run_steps(server: Server, ask: Ask) -> Total:
    """Run all steps, wherever the agents are. An agent that falls silent, or that the server refuses, is left
    behind."""
    left = list(server.session.identities)

    def hear(step: Step, told: Callable[[str], Told | None]) -> None:
        said = ask(step, {name: told(name) for name in left})
        for name in tuple(left):
            try:
                message = said[name]
                if message.sender != name:
                    raise server.session.refusal(f"a message of {name!r}", "found one of somebody else")
                server.receive(message)
            except (KeyError, ProtocolError):
                left.remove(name)

    hear("advertise", lambda name: None)
    roster = server.roster()
    hear("share", lambda name: server.roster_of(name, roster))
    deliveries = server.deliveries()
    hear("mask", lambda name: deliveries[name])
    request = server.request()
    hear("confirm", lambda name: request)
    proof = server.proof()
    hear("unmask", lambda name: proof)
    return server.total()


def secure_sum(
    vectors: Mapping[str, Array],
    clip: float,
    fraction_bits: int,
    *,
    drop: Mapping[str, Step] | None = None,
    noise: float = 0.0,
    laplace_shares: int = 0,
    minimum: int = 3,
    run: str = "simulation",
    round: int = 0,
    region: str = "",
    source: Callable[[str], Source] = lambda name: os.urandom,
    noise_source: Callable[[str], Source] | None = None,
    steps: Callable[[Session, Curve, Ask], Total] = lambda session, curve, ask: run_steps(Server(session, curve), ask),
) -> Total:
    """Run a whole round in this process, with every message made and checked: for simulation and tests.

    Parameters
    ----------
    vectors : A vector for each agent's name, all of one length.
    clip : The longest that a vector may be; a longer one is refused.
    fraction_bits : The step of the grid on which vectors are added up is 2^-fraction_bits.
    drop : Agents that fall silent, and the step from which on they do. None: nobody.
    noise : Each agent's share of the noise, in grid steps; 0 is none.
    laplace_shares : Of how many shares a Laplace number of scale `noise` is the sum; 0 with Gaussian noise.
    minimum : The fewest agents that may be in the sum; fewer are refused.
    run : The name of the run, which all messages bear.
    round : The round, which all messages bear.
    region : The name of the region, which all messages bear.
    source : Gives each agent its random bytes, also for its noise unless there is a `noise_source`.
    noise_source : Gives each agent the random bytes of its noise.
    steps : The servers' side; by default one server.

    >>> vectors = {name: np.array([0.5, -0.25]) for name in ("a", "b", "c", "d")}
    >>> total = secure_sum(vectors, clip=1.0, fraction_bits=20, drop={"d": "mask"})
    >>> total.values, total.survivors  # fewer than a third may fall silent, at any step
    (array([ 1.5 , -0.75]), ('a', 'b', 'c'))
    """
    silent = {name: STEPS.index(step) for name, step in (drop or {}).items()}
    if unknown := silent.keys() - vectors.keys():
        raise InputError("secure sum", "drop-outs among the agents", f"found {min(unknown)!r}")
    sources = {name: source(name) for name in vectors}
    identities = {name: Ed25519PrivateKey.from_private_bytes(give(KEY)) for name, give in sources.items()}
    public = {name: key.public_key().public_bytes_raw() for name, key in identities.items()}
    length = max((vector.size for vector in vectors.values()), default=0)
    cycles = sparse(len(vectors))[0]
    session = Session(run, round, region, public, length, clip, fraction_bits, noise, minimum, cycles, laplace_shares)
    curve = remembering()
    noises = sources if noise_source is None else {name: noise_source(name) for name in vectors}
    agents = {name: Agent(session, name, identities[name], sources[name], curve, noises[name]) for name in vectors}

    def ask(step: Step, told: Mapping[str, Told | None]) -> dict[str, Message]:
        now = STEPS.index(step)
        heard = [name for name in told if now < silent.get(name, len(STEPS))]
        return {name: agents[name].say(step, told[name], vectors[name]) for name in heard}

    return steps(session, curve, ask)


def unmasked_sum(
    vectors: Mapping[str, Array],
    clip: float,
    fraction_bits: int,
    *,
    noise: float,
    laplace_shares: int,
    minimum: int,
    noise_source: Callable[[str], Source],
) -> Total:
    """Compute the same total without keys, masks or messages: for simulations that say so."""
    length = max((vector.size for vector in vectors.values()), default=0)
    # The session refuses a cohort that is too small and a sum that could overflow.
    public, of = dict.fromkeys(vectors, b""), laplace_shares
    session = Session("simulation", 0, "", public, length, clip, fraction_bits, noise, minimum, laplace_shares=of)
    parts = [noisy(vector, clip, fraction_bits, noise, noise_source(name), of) for name, vector in vectors.items()]
    return Total(np.sum(parts, axis=0), session.fraction_bits, tuple(sorted(vectors)))
