"""The sum is exact to the last bit whoever drops out, and every way to cheat is refused by name.

Statistical tests have a false-alarm rate of 1e-4 each, at fixed seeds.
"""

import dataclasses
import math
import os
from dataclasses import dataclass, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from silograph.core.errors import InputError, SilographError
from silograph.core.keys import stream
from silograph.privacy.discrete import encode
from silograph.privacy.secure_agent import Agent
from silograph.privacy.secure_keys import PLAIN, Keys, agree, keys_text
from silograph.privacy.secure_messages import STEPS, Advertisement, Delivery, Proof, Request, Roster
from silograph.privacy.secure_sum import ProtocolError, Server, Session, secure_sum

ALARM = 1e-4
CLIP, BITS = 1.0, 16


def named(count):
    return [f"agent {k:03d}" for k in range(count)]


def vectors(count, length=3, seed=0):
    draws = np.random.default_rng(seed).normal(size=(count, length))
    return dict(zip(named(count), draws / np.linalg.norm(draws, axis=1, keepdims=True) * 0.999, strict=True))


def plain(inputs, survivors):
    """The oracle: Python integers."""
    return [sum(column) for column in zip(*(encode(inputs[s], CLIP, BITS).tolist() for s in survivors), strict=True)]


def round_to_grid(value):
    return int(np.rint(value * 2.0**BITS))


def seeded(name):
    return stream(0, name, 0, "secure sum test").bytes


def tolerated(count):
    return count - (2 * count // 3 + 1)


# ---- a round driven by hand ------------------------------------------------------------------------------------------


@dataclass
class Cohort:
    session: Session
    server: Server
    agents: dict[str, Agent]
    inputs: dict[str, np.ndarray]

    def advertised(self):
        for agent in self.agents.values():
            self.server.receive(agent.advertise())
        return self.server.roster()

    def shared(self):
        roster = self.advertised()
        for agent in self.agents.values():
            self.server.receive(agent.share(roster))
        return self.server.deliveries()

    def masked(self, silent=()):
        deliveries = self.shared()
        for name in self.agents.keys() - set(silent):
            self.server.receive(self.agents[name].mask(deliveries[name], self.inputs[name]))
        return self.server.request()

    def confirmed(self, silent=()):
        request = self.masked(silent)
        for name in request.survivors:
            self.server.receive(self.agents[name].confirm(request))
        return self.server.proof()


def cohort(count=5, length=3, round=0, source=lambda name: os.urandom, **options):
    keys = {name: Ed25519PrivateKey.from_private_bytes(seeded(name)(32)) for name in named(count)}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    session = Session("run", round, "unit", public, length, CLIP, BITS, **options)
    agents = {name: Agent(session, name, key, source(name)) for name, key in keys.items()}
    return Cohort(session, Server(session), agents, vectors(count, length))


A, B, C, D, E = named(5)


def test_a_confirmation_is_good_for_its_sender_alone():
    """The agents of an organisation have one identity. One's signature under a list is not another's."""
    key = Ed25519PrivateKey.from_private_bytes(seeded("organisation")(32))
    public = dict.fromkeys(named(5), key.public_key().public_bytes_raw())
    session = Session("run", 0, "unit", public, 3, CLIP, BITS)
    round = Cohort(session, Server(session), {name: Agent(session, name, key) for name in public}, vectors(5))
    request = round.masked()
    one = round.agents[A].confirm(request)
    round.agents[B].confirm(request)
    forged = Proof(session.tag, tuple(replace(one, sender=name) for name in (A, C, D, E)))
    with pytest.raises(ProtocolError, match="signature is wrong"):
        round.agents[B].unmask(forged)
    with pytest.raises(ProtocolError, match="signature is wrong"):
        round.server.receive(replace(one, sender=C))
    round.server.receive(one)


def test_both_sides_meet_through_messages_alone():
    round = cohort()
    proof = round.confirmed(silent=[C])
    for name in (A, B, D, E):
        round.server.receive(round.agents[name].unmask(proof))
    total = round.server.total()
    assert total.survivors == (A, B, D, E)
    assert total.whole.tolist() == plain(round.inputs, total.survivors)
    np.testing.assert_array_equal(total.values, total.whole / 2.0**BITS)


# ---- exact, whoever drops out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [3, 5, 17, 60])
def test_the_sum_is_exact_when_fewer_than_a_third_drop_out(count, step):
    inputs = vectors(count)
    gone = np.random.default_rng(count).permutation(named(count))[: tolerated(count)].tolist()
    total = secure_sum(inputs, CLIP, BITS, drop=dict.fromkeys(gone, step))
    # Whose input arrived before falling silent is still in the sum.
    assert set(total.survivors) == set(inputs) - (set(gone) if step in ("advertise", "share", "mask") else set())
    assert total.whole.tolist() == plain(inputs, total.survivors)


def test_two_hundred_agents_dropping_out_at_every_step():
    inputs = vectors(200)
    gone = np.random.default_rng(1).permutation(named(200))[: tolerated(200)].tolist()
    assert len(gone) == 66
    drop = {name: STEPS[k % len(STEPS)] for k, name in enumerate(gone)}
    total = secure_sum(inputs, CLIP, BITS, drop=drop)
    assert len(total.survivors) == 200 - sum(drop[name] in ("advertise", "share", "mask") for name in gone)
    assert total.whole.tolist() == plain(inputs, total.survivors)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [3, 5, 17])
def test_one_more_drop_out_is_a_refusal(count, step):
    gone = named(count)[: tolerated(count) + 1]
    with pytest.raises(ProtocolError, match=r"expected at least \d+ agents, but only .* No sum is revealed"):
        secure_sum(vectors(count), CLIP, BITS, drop=dict.fromkeys(gone, step))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([None, *STEPS]), min_size=3, max_size=9), st.integers(0, 2**32))
def test_any_pattern_of_drop_outs_is_exact_or_refused(silences, seed):
    inputs = vectors(len(silences), seed=seed)
    drop = {name: step for name, step in zip(inputs, silences, strict=True) if step is not None}
    if len(drop) <= tolerated(len(silences)):
        total = secure_sum(inputs, CLIP, BITS, drop=drop)
        assert total.whole.tolist() == plain(inputs, total.survivors)
    else:
        with pytest.raises(ProtocolError, match="No sum is revealed"):
            secure_sum(inputs, CLIP, BITS, drop=drop)


@pytest.mark.parametrize(("fraction_bits", "word"), [(27, "<u4"), (28, "<u8"), (59, "<u8")])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_sum_does_not_wrap_around(fraction_bits, word, sign):
    """Eight agents, all at the clip in one coordinate: 8 * 2^fraction_bits, in the narrowest word for it."""
    inputs = {name: np.array([sign * CLIP, 0.0]) for name in named(8)}
    total = secure_sum(inputs, CLIP, fraction_bits)
    assert total.whole.tolist() == [int(sign) * 8 * 2**fraction_bits, 0]
    assert Session("", 0, "", dict.fromkeys(inputs, b""), 2, CLIP, fraction_bits).word.str == word


def test_a_sum_that_could_overflow_is_refused_before_anything_is_sent():
    with pytest.raises(InputError, match="could overflow"):
        Session("run", 0, "unit", dict.fromkeys(named(9), b""), 1, CLIP, 59)


def test_a_longer_vector_and_another_shape_are_refused():
    round = cohort()
    deliveries = round.shared()
    with pytest.raises(InputError, match="length at most the clip"):
        round.agents[A].mask(deliveries[A], np.full(3, 0.6))
    with pytest.raises(InputError, match="a vector of 3 numbers"):
        round.agents[B].mask(deliveries[B], np.zeros(4))


def test_order_of_agents_and_randomness_of_masks_do_not_matter():
    inputs = vectors(7)
    totals = [
        secure_sum(dict(items), CLIP, BITS, noise=9.0, source=seeded)
        for items in (inputs.items(), reversed(inputs.items()))
    ]
    assert totals[0].whole.tolist() == totals[1].whole.tolist()
    assert secure_sum(inputs, CLIP, BITS).whole.tolist() == plain(inputs, inputs)


# ---- what the server sees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extreme", [0.0, 1.0])
def test_what_the_server_sees_without_the_seeds_is_uniform_whatever_the_input(extreme):
    """Each agent's words; their sum; and the words of an agent that was too late, whose mask key is known by then."""
    length = 40_000
    round = cohort(count=3, length=length, source=seeded)
    deliveries = round.shared()
    constant = np.full(length, extreme / math.sqrt(length) * (1 - 1e-9))
    views = [np.frombuffer(a.mask(deliveries[n], constant).words, "<u4") for n, a in round.agents.items()]
    late, keys = round.agents[C], Keys(round.session, PLAIN)
    peers = [round.server._advertised[name] for name in (A, B)]
    pairs = [keys.mask_of_pair(C, peer.sender, keys.mask_key(C, late._masking, peer)) for peer in peers]
    views += [views[0] + views[1] + views[2], views[2] - pairs[0] - pairs[1]]
    for view in views:
        for shift in (0, 8, 16, 24):
            counts = np.bincount((view >> shift) & 0xFF, minlength=256)
            assert stats.chisquare(counts).pvalue > ALARM
    bare = views[4] - keys.self_mask(C, late._seed)
    assert set(bare.tolist()) == {round_to_grid(constant[0])}


class Unmasked(Keys):
    def self_mask(self, name, seed):
        return np.zeros(self.session.length, self.session.word)


def test_the_view_test_notices_a_missing_self_mask():
    """The broken twin: pairwise masks alone cancel in the sum and leave the inputs in sight."""
    round = cohort(count=3, length=4_000)
    for agent in round.agents.values():
        agent._keys = Unmasked(round.session, PLAIN)
    deliveries = round.shared()
    words = [np.frombuffer(a.mask(deliveries[n], np.full(4_000, 0.01)).words, "<u4") for n, a in round.agents.items()]
    assert set((words[0] + words[1] + words[2]).tolist()) == {3 * round_to_grid(0.01)}


def test_the_commitment_to_a_seed_is_not_the_key_of_its_mask():
    round = cohort()
    shares = round.agents[A].share(round.advertised())
    keys = Keys(round.session, PLAIN)
    mask = keys.self_mask(A, round.agents[A]._seed)
    assert keys._expand(shares.commitment).tolist() != mask.tolist()
    assert keys.self_mask(B, round.agents[A]._seed).tolist() != mask.tolist()


def test_every_sealing_key_seals_one_message(monkeypatch):
    """The nonce is constant, so a key used twice, for instance in both directions, would give the shares away."""
    used = []

    def recorded(key):
        used.append(key)
        return ChaCha20Poly1305(key)

    monkeypatch.setattr("silograph.privacy.secure_agent.ChaCha20Poly1305", recorded)
    round = cohort()
    round.shared()
    assert len(used) == len(set(used)) == 5 * 4


def test_an_agent_agrees_with_each_partner_once(monkeypatch):
    """On the keys to seal with and on the key of the mask; the server tries both keys of an agent."""
    agreed = []

    def counted(own, peer):
        agreed.append((own.public, peer))
        return agree(own, peer)

    monkeypatch.setattr("silograph.privacy.secure_keys.agree", counted)
    cohort().masked()
    assert len(agreed) == 2 * 5 + 2 * 5 * 4
    assert len(set(agreed)) == len(agreed)


def test_too_few_answers_reveal_nothing_and_may_still_be_waited_for():
    round = cohort()
    proof = round.confirmed()
    for name in (A, B, C):
        round.server.receive(round.agents[name].unmask(proof))
    with pytest.raises(ProtocolError, match="at least 4 agents, but only 3 answered"):
        round.server.total()
    round.server.receive(round.agents[E].unmask(proof))
    assert round.server.total().whole.tolist() == plain(round.inputs, named(5))


# ---- the minimum cohort ----------------------------------------------------------------------------------------------


def test_a_cohort_below_the_minimum_is_refused():
    with pytest.raises(ProtocolError, match="at least 3 agents, but only 2 are registered"):
        secure_sum(vectors(2), CLIP, BITS)
    with pytest.raises(ProtocolError, match="at least 9 agents, but only 8 are registered"):
        secure_sum(vectors(8), CLIP, BITS, minimum=9)
    with pytest.raises(InputError, match="share between"):
        secure_sum(vectors(3), CLIP, BITS, noise=0.1)
    with pytest.raises(InputError, match="minimum above 1"):
        secure_sum(vectors(3), CLIP, BITS, minimum=1)


def test_a_minimum_above_the_threshold_holds_on_both_sides():
    with pytest.raises(ProtocolError, match="at least 5 agents, but only 4 sent an input"):
        secure_sum(vectors(5), CLIP, BITS, minimum=5, drop={A: "mask"})
    round = cohort(minimum=5)
    round.masked()
    with pytest.raises(ProtocolError, match="at least 5 agents, but only 4 survived"):
        round.agents[A].confirm(Request(round.session.tag, (A, B, C, D), (E,)))


# ---- keys ------------------------------------------------------------------------------------------------------------


def refuse_advertisement(round, message, match):
    """By the server, and by an agent if the server passes it on."""
    with pytest.raises(ProtocolError, match=match):
        round.server.receive(message)
    others = [agent.advertise() for name, agent in round.agents.items() if name != message.sender]
    with pytest.raises(ProtocolError, match=match):
        round.agents[A].share(Roster(round.session.tag, (*others, message)))


def test_keys_of_a_stranger_or_signed_by_another_are_refused():
    round, stranger = cohort(), Ed25519PrivateKey.generate()
    genuine = round.agents[E].advertise()
    signature = stranger.sign(keys_text(round.session, genuine))
    refuse_advertisement(round, replace(genuine, signature=signature), "signature is wrong")
    refuse_advertisement(cohort(), replace(genuine, sender="mallory"), "'mallory' is unknown")


def test_altered_or_malformed_keys_are_refused():
    for change, match in [
        ({"mask_key": bytes(31) + b"\x07"}, "signature is wrong"),
        ({"signature": bytes(64)}, "signature is wrong"),
        ({"signature": b""}, "signature is wrong"),
        ({"seal_key": bytes(31)}, "malformed"),
    ]:
        round = cohort()
        refuse_advertisement(round, replace(round.agents[E].advertise(), **change), match)


def test_an_advertisement_of_another_round_is_refused_even_if_relabelled():
    old, round = cohort(round=1).agents[E].advertise(), cohort(round=2)
    refuse_advertisement(round, old, "of another one")
    round = cohort(round=2)
    refuse_advertisement(round, replace(old, session=round.session.tag), "signature is wrong")


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
@pytest.mark.parametrize("pair", ["_sealing", "_masking"])
def test_a_key_that_makes_the_shared_secret_zero_is_refused(pair, point):
    """By the server at once; by the agents, should the server pass it on."""
    round = cohort()
    getattr(round.agents[E], pair).public = point
    messages = [agent.advertise() for agent in round.agents.values()]
    with pytest.raises(ProtocolError, match="weak key"):
        round.server.receive(messages[-1])
    with pytest.raises(ProtocolError, match="weak key"):
        round.agents[A].share(Roster(round.session.tag, tuple(messages)))


def test_a_roster_that_is_not_as_it_should_be_is_refused():
    def refused(match, change):
        round = cohort()
        messages = [agent.advertise() for agent in round.agents.values()]
        with pytest.raises(ProtocolError, match=match):
            round.agents[A].share(Roster(round.session.tag, tuple(change(messages))))

    refused("duplicate sender", lambda m: [*m, m[-1]])
    refused("at least 4 agents, but only 3 advertised", lambda m: m[:3])
    refused("name 'agent 000' with its own keys", lambda m: m[1:])
    copied = cohort()
    copied.agents[E]._masking.public = copied.agents[D]._masking.public
    messages = tuple(agent.advertise() for agent in copied.agents.values())
    with pytest.raises(ProtocolError, match="two advertised keys are equal"):
        copied.agents[A].share(Roster(copied.session.tag, messages))


def test_an_agent_must_own_its_registered_identity():
    with pytest.raises(InputError, match="registered identity of 'agent 000'"):
        Agent(cohort().session, A, Ed25519PrivateKey.generate())


# ---- shares ----------------------------------------------------------------------------------------------------------


def flipped(data, at=5):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("at", [0, 127, 128, 143])
def test_a_tampered_share_is_refused(at):
    round = cohort()
    delivery = round.shared()[A]
    tampered = replace(delivery, sealed={**delivery.sealed, C: flipped(delivery.sealed[C], at)})
    with pytest.raises(ProtocolError, match=r"sealed by 'agent 002' for 'agent 000', but it does not open: tampered"):
        round.agents[A].mask(tampered, round.inputs[A])
    with pytest.raises(ProtocolError, match="out of turn"):  # a refusal ends the agent's part
        round.agents[A].mask(delivery, round.inputs[A])


def test_a_share_for_another_agent_or_round_or_of_another_length_is_refused():
    old = cohort(round=1).shared()[A]
    for change, match in [
        (lambda d, all: all[B], "found others"),
        (lambda d, all: replace(d, sealed={**d.sealed, C: all[B].sealed[C]}), "does not open"),
        (lambda d, all: replace(d, sealed={**d.sealed, C: d.sealed[D]}), "does not open"),
        (lambda d, all: replace(d, sealed={**d.sealed, C: b""}), "malformed"),
        (lambda d, all: replace(d, sealed={**d.sealed, "mallory": bytes(144)}), "found others"),
        (lambda d, all: replace(d, sealed={n: d.sealed[n] for n in (B, C)}), "only 3 shared"),
        (lambda d, all: old, "of another one"),
        (lambda d, all: replace(d, sealed=old.sealed), "does not open"),
    ]:
        round = cohort(round=2)
        deliveries = round.shared()
        with pytest.raises(ProtocolError, match=match):
            round.agents[A].mask(change(deliveries[A], deliveries), round.inputs[A])


# ---- the request -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survivors", "dropped", "match"),
    [
        ((A, B, C, D, E), (E,), "both secrets of 'agent 004'"),
        ((A, B, C, D), (E, "mallory"), "'mallory' is unknown"),
        ((A, B, C, D), (), "'agent 004' is unknown or left out"),
        ((A, B, C), (D, E), "at least 4 agents, but only 3 survived"),
        ((B, C, D, E), (A,), "its input is said to be missing"),
        ((A, B, C, D, D), (E,), "duplicate"),
    ],
)
def test_a_request_for_more_than_the_sum_is_refused(survivors, dropped, match):
    round = cohort()
    round.masked()
    with pytest.raises(ProtocolError, match=match):
        round.agents[A].confirm(Request(round.session.tag, survivors, dropped))


def test_a_second_different_request_is_refused_and_the_first_may_come_again():
    round = cohort()
    request, agent = round.masked(), round.agents[A]
    first = agent.confirm(request)
    other = Request(round.session.tag, (A, B, C, D), (E,))
    with pytest.raises(ProtocolError, match="a second, different one"):
        agent.confirm(other)
    assert agent.confirm(request) == first
    with pytest.raises(ProtocolError, match="of another one"):
        agent.confirm(replace(request, session=bytes(32)))


def test_a_server_that_tells_two_stories_gets_no_answer():
    """Half the agents are told that E dropped out, the others that it survived: neither list finds enough names."""
    round = cohort()
    request = round.masked()
    other = Request(round.session.tag, (A, B, C, D), (E,))
    told = {A: other, B: other, C: request, D: request, E: request}
    signed = tuple(round.agents[name].confirm(list_) for name, list_ in told.items())
    for name in told:
        with pytest.raises(ProtocolError, match=r"signature is wrong|by survivors"):
            round.agents[name].unmask(Proof(round.session.tag, signed))
        own_story = tuple(s for s in signed if told[s.sender] == told[name])
        with pytest.raises(ProtocolError, match=r"at least 4 agents, but only \d confirmed"):
            round.agents[name].unmask(Proof(round.session.tag, own_story))
        with pytest.raises(ProtocolError, match=r"at least 4 agents, but only \d confirmed"):
            round.agents[name].unmask(Proof(round.session.tag, own_story * 2))


def test_an_answer_holds_one_secret_per_agent():
    round = cohort()
    proof = round.confirmed(silent=[E])
    answer = round.agents[A].unmask(proof)
    assert (set(answer.seeds), set(answer.keys)) == ({A, B, C, D}, {E})
    assert round.agents[A].unmask(proof) == answer
    held = round.agents[A]._held
    assert all(held[n].startswith(answer.seeds[n]) for n in answer.seeds)
    assert held[E].endswith(answer.keys[E])


def test_steps_come_once_and_in_order():
    round = cohort()
    agent = round.agents[A]
    for early in (
        lambda: agent.share(Roster(round.session.tag, ())),
        lambda: agent.mask(Delivery(round.session.tag, A, {}), round.inputs[A]),
        lambda: agent.confirm(Request(round.session.tag, (), ())),
    ):
        with pytest.raises(ProtocolError, match="out of turn"):
            early()
    with pytest.raises(ProtocolError, match="to be confirmed first"):
        agent.unmask(Proof(round.session.tag, ()))
    agent.advertise()
    with pytest.raises(ProtocolError, match="out of turn"):
        agent.advertise()
    with pytest.raises(ProtocolError, match="step of Advertisement to be closed, but that of MaskedInput"):
        round.server.request()


# ---- the server's checks ---------------------------------------------------------------------------------------------


def test_a_duplicate_sender_is_refused_at_every_step():
    round = cohort()
    sent = {}

    def send(message):
        round.server.receive(message)
        sent[type(message)] = message
        with pytest.raises(ProtocolError, match=f"duplicate sender \\({type(message).__name__}"):
            round.server.receive(message)

    agents = list(round.agents.values())
    for agent in agents:
        send(agent.advertise())
    roster = round.server.roster()
    with pytest.raises(ProtocolError, match="Shares now, but 'agent 004' sent something else: early, late or twice"):
        round.server.receive(sent[Advertisement])
    for agent in agents:
        send(agent.share(roster))
    deliveries = round.server.deliveries()
    for agent in agents:
        send(agent.mask(deliveries[agent.name], round.inputs[agent.name]))
    request = round.server.request()
    for agent in agents:
        send(agent.confirm(request))
    proof = round.server.proof()
    for agent in agents:
        send(agent.unmask(proof))
    assert round.server.total().whole.tolist() == plain(round.inputs, named(5))
    with pytest.raises(ProtocolError, match="nothing now"):
        round.server.receive(sent[Advertisement])


def test_who_missed_a_step_is_not_let_in_again():
    round = cohort()
    deliveries = round.shared()
    late = round.agents[E].mask(deliveries[E], round.inputs[E])
    for name in (A, B, C, D):
        round.server.receive(round.agents[name].mask(deliveries[name], round.inputs[name]))
    request = round.server.request()
    assert request.dropped == (E,)
    with pytest.raises(ProtocolError, match="Confirmation now"):
        round.server.receive(late)
    forged = replace(round.agents[A].confirm(request), sender=E)
    with pytest.raises(ProtocolError, match="left behind"):
        round.server.receive(forged)
    with pytest.raises(ProtocolError, match="signature is wrong"):
        round.server.receive(replace(forged, sender=B))


def test_messages_of_another_round_are_refused_at_every_step():
    old, round = cohort(round=1), cohort(round=2)
    roster, old_roster = round.advertised(), old.advertised()
    old_shares = old.agents[A].share(old_roster)
    with pytest.raises(ProtocolError, match="found a Shares of another one"):
        round.server.receive(old_shares)
    with pytest.raises(ProtocolError, match="found a Roster of another one"):
        round.agents[A].share(old_roster)
    relabelled = replace(old_shares, session=round.session.tag)
    round.server.receive(relabelled)  # the server cannot see through a seal, but the receivers can
    for name in (B, C, D, E):
        round.server.receive(round.agents[name].share(roster))
    with pytest.raises(ProtocolError, match="sealed by 'agent 000' for 'agent 001', but it does not open"):
        round.agents[B].mask(round.server.deliveries()[B], round.inputs[B])


def test_malformed_lengths_are_refused():
    round = cohort()
    roster = round.advertised()
    shares = [agent.share(roster) for agent in round.agents.values()]
    for change in (
        {"sealed": {**shares[0].sealed, B: bytes(143)}},
        {"sealed": {B: shares[0].sealed[B]}},
        {"sealed": {**shares[0].sealed, "mallory": bytes(144)}},
        {"commitment": bytes(31)},
    ):
        with pytest.raises(ProtocolError, match="malformed"):
            round.server.receive(replace(shares[0], **change))
    for message in shares:
        round.server.receive(message)
    deliveries = round.server.deliveries()
    masked = [round.agents[n].mask(deliveries[n], round.inputs[n]) for n in named(5)]
    with pytest.raises(ProtocolError, match="malformed"):
        round.server.receive(replace(masked[0], words=masked[0].words + b"0"))
    for message in masked:
        round.server.receive(message)
    request = round.server.request()
    for agent in round.agents.values():
        round.server.receive(agent.confirm(request))
    answer = round.agents[A].unmask(round.server.proof())
    for change in ({"seeds": {**answer.seeds, B: bytes(63)}}, {"seeds": {}}, {"keys": {B: bytes(64)}}):
        with pytest.raises(ProtocolError, match="malformed"):
            round.server.receive(replace(answer, **change))


@pytest.mark.parametrize(("part", "whose"), [("seeds", B), ("keys", E)])
def test_a_wrong_share_in_an_answer_is_noticed(part, whose):
    """A sum with a wrong mask would be noise; it is refused instead, with the name of whose secret does not fit."""
    round = cohort()
    proof = round.confirmed(silent=[E])
    for name in (A, B, C, D):
        answer = round.agents[name].unmask(proof)
        if name == C:
            shares = getattr(answer, part)
            answer = replace(answer, **{part: {**shares, whose: flipped(shares[whose])}})
        round.server.receive(answer)
    with pytest.raises(ProtocolError, match=f"the secret '{whose}' committed to"):
        round.server.total()


def test_errors_say_where_and_carry_a_code():
    with pytest.raises(SilographError) as caught:
        secure_sum(vectors(5), CLIP, BITS, drop={A: "mask", B: "mask"}, run="r", round=3, region="north")
    assert caught.value.code == "secure-sum"
    assert caught.value.where == "secure sum, run r, region north, round 3"
    with pytest.raises(InputError, match="'mallory'"):
        secure_sum(vectors(5), CLIP, BITS, drop={"mallory": "mask"})


def test_everything_agreed_beforehand_is_part_of_the_session():
    session = cohort().session
    others = {
        "run": "x",
        "round": 9,
        "region": "x",
        "length": 9,
        "clip": 2.0,
        "fraction_bits": 9,
        "noise": 9.0,
        "minimum": 4,
        "cycles": 5,
    }
    changed = [replace(session, **{field: value}) for field, value in others.items()]
    changed.append(replace(session, identities={**session.identities, A: bytes(32)}))
    changed += [replace(session, length=1), replace(session, length=1, laplace_shares=2)]
    assert others.keys() | {"identities", "laplace_shares"} == {field.name for field in dataclasses.fields(Session)}
    assert len({s.tag for s in (session, *changed)}) == len(changed) + 1
    assert replace(session, clip=np.float64(CLIP), length=np.int64(3)).tag == session.tag


# ---- noise inside the sum --------------------------------------------------------------------------------------------


def test_noise_of_the_fewest_survivors_is_what_was_wanted():
    """17 agents, 5 of them gone: 12 shares make up sigma; all 17 make more. Rates 1e-4 each."""
    sigma, length, threshold = 0.02, 20_000, 12
    share = sigma * 2.0**BITS / math.sqrt(threshold)
    inputs = {name: np.zeros(length) for name in named(17)}
    fewest = secure_sum(inputs, CLIP, BITS, noise=share, source=seeded, drop=dict.fromkeys(named(5), "mask"))
    everybody = secure_sum(inputs, CLIP, BITS, noise=share, source=seeded)
    for total, expected in ((fewest, sigma), (everybody, sigma * math.sqrt(17 / 12))):
        assert stats.kstest(total.values, stats.norm(0, expected).cdf).pvalue > ALARM
        assert total.values.std() / expected == pytest.approx(1.0, abs=3.9 / math.sqrt(2 * length))
