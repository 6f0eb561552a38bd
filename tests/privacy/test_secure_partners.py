"""Sparse graphs of partners: their chances are what the proof says, and who would be cut off signs nothing."""

import math
import os
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from scipy import stats

from silograph.core.keys import stream
from silograph.privacy.discrete import encode
from silograph.privacy.secure_agent import Agent
from silograph.privacy.secure_keys import remembering, to_mask
from silograph.privacy.secure_messages import STEPS, Delivery, Request, Roster, Session
from silograph.privacy.secure_partners import ALL_PAIRS, cut_off, fewest_partners, partners, sparse, threshold_of
from silograph.privacy.secure_sum import ProtocolError, Server, secure_sum

CLIP, BITS, COUNT = 1.0, 16, 140
NAMES = [f"agent {k:03d}" for k in range(COUNT)]


def vectors(seed=0, count=COUNT):
    draws = np.random.default_rng(seed).normal(size=(count, 3))
    return dict(zip(NAMES, draws / np.linalg.norm(draws, axis=1, keepdims=True) * 0.999, strict=False))


def corrupt_tail(agents, k, least):
    """The oracle, in whole numbers: the chance that `least` or more of k partners are among a third of the agents."""
    bad = (agents - 1) // 3
    ways = sum(math.comb(bad, j) * math.comb(agents - 1 - bad, k - j) for j in range(least, min(k, bad) + 1))
    return Fraction(ways, math.comb(agents - 1, k))


@pytest.mark.parametrize("agents, k", [(150, 90), (300, 150), (3000, 345)])
def test_the_threshold_is_the_least_that_a_third_of_the_agents_reach_with_a_chance_of_2_to_the_minus_46(agents, k):
    _, m = sparse(agents)
    t = threshold_of(agents, k, m)
    assert corrupt_tail(agents, k, t - m) <= Fraction(1, 2**46) < corrupt_tail(agents, k, t - m - 1)


def too_few_left(agents, k, t):
    """The oracle, in whole numbers: the chance that fewer than t of k partners are left when a third fall silent."""
    left = agents - 1 - (agents - 1) // 3
    ways = sum(math.comb(left, j) * math.comb(agents - 1 - left, k - j) for j in range(t))
    return Fraction(ways, math.comb(agents - 1, k))


@pytest.mark.parametrize("agents, least", [(1000, 244), (3000, 294)])
def test_no_threshold_serves_privacy_and_exactness_with_fewer_partners(agents, least):
    """Whatever keeps survivors connected: t out of reach for corrupt partners, and in reach for those who are left."""
    assert fewest_partners(agents, 0) == least
    for k, good in ((160, False), (least - 1, False), (least, True)):
        private = next(t for t in range(k) if corrupt_tail(agents, k, t) <= Fraction(1, 2**46))
        assert (too_few_left(agents, k, private) <= Fraction(1, 2**20)) == good
    assert fewest_partners(agents, 1) <= fewest_partners(agents, sparse(agents)[1])


@pytest.mark.parametrize("agents", [129, 200, 300, 1000, 3000])
def test_nobody_is_cut_off_but_with_a_chance_of_2_to_the_minus_46(agents):
    """The bound of the module's proof, added up in whole numbers; logarithms of these are exact enough."""
    cycles, m = sparse(agents)
    third = math.ceil(agents / 3)
    bits = [
        math.log2(math.comb(agents, a))
        + math.log2(math.comb(agents, third))
        + a * cycles * math.log2((third + a) / agents)
        for a in range(m + 1, agents // 2 + 1)
    ]
    assert math.log2(sum(2.0 ** (b - max(bits)) for b in bits)) + max(bits) <= -46
    assert cut_off(agents, cycles, m) <= -46 < cut_off(agents, cycles, 0)


def test_small_cohorts_keep_all_pairs_and_large_ones_need_few_partners():
    assert sparse(ALL_PAIRS) == (0, 0)
    for agents, most in ((300, 180), (1000, 290), (3000, 370)):
        near = partners(agents, sparse(agents)[0], bytes(32))
        assert np.mean([len(each) for each in near]) <= most


def test_partners_are_mutual_and_a_uniform_choice():
    """Who is near agent 0 in 400 graphs: 139 counts, chi-square at a false-alarm rate of 1e-4."""
    cycles, _ = sparse(COUNT)
    near = partners(COUNT, cycles, bytes(32))
    assert all(i not in near[i] and all(i in near[j] for j in near[i]) for i in range(COUNT))
    counts = np.zeros(COUNT)
    for k in range(400):
        counts[partners(COUNT, 8, k.to_bytes(32, "big"))[0]] += 1
    chosen = counts[1:]
    spread = 400 * (mean := chosen.mean() / 400) * (1 - mean)
    assert ((chosen - chosen.mean()) ** 2).sum() / spread <= stats.chi2.isf(1e-4, COUNT - 2)


@pytest.mark.parametrize("step", STEPS)
def test_the_sum_is_exact_when_nearly_a_third_drop_out(step):
    inputs = vectors()
    silent = np.random.default_rng(1).permutation(NAMES)[: COUNT - (2 * COUNT // 3 + 1)]
    total = secure_sum(inputs, CLIP, BITS, drop=dict.fromkeys(silent.tolist(), step))
    present = STEPS.index(step) > STEPS.index("mask")
    assert set(total.survivors) == (set(NAMES) if present else set(NAMES) - set(silent))
    assert total.whole.tolist() == sum(encode(inputs[name], CLIP, BITS) for name in total.survivors).tolist()


def test_one_more_drop_out_is_a_refusal():
    silent = NAMES[: COUNT - 2 * COUNT // 3]
    with pytest.raises(ProtocolError, match="No sum is revealed"):
        secure_sum(vectors(), CLIP, BITS, drop=dict.fromkeys(silent, "mask"))


# ---- a server that cuts an agent off -------------------------------------------------------------------------------


class Round:
    """Up to the masked inputs, by a server that follows the protocol so far. Of 140 agents each has about 48 partners,
    fewer than a plan would take, so that a server can declare enough of them dropped."""

    def __init__(self, kind=Agent):
        keys = {name: Ed25519PrivateKey.from_private_bytes(stream(0, name, 0, "partners").bytes(32)) for name in NAMES}
        public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
        self.session = Session("run", 0, "all", public, 3, CLIP, BITS, cycles=30)
        curve, self.inputs = remembering(), vectors()
        self.agents = {name: kind(self.session, name, key, os.urandom, curve) for name, key in keys.items()}
        self.server = Server(self.session, curve)
        for agent in self.agents.values():
            self.server.receive(agent.advertise())
        roster = self.server.roster()
        self.shares = {name: agent.share(self.server.roster_of(name, roster)) for name, agent in self.agents.items()}
        for message in self.shares.values():
            self.server.receive(message)
        deliveries = self.server.deliveries()
        self.masked = {name: agent.mask(deliveries[name], self.inputs[name]) for name, agent in self.agents.items()}
        self.victim = NAMES[0]
        self.near = sorted(self.session.near(self.victim))

    def lie(self, honest_partners):
        """A list that declares so many of the victim's partners dropped."""
        dropped = set(self.near[len(self.near) - honest_partners :])
        survivors = tuple(name for name in NAMES if name not in dropped)
        return Request(self.session.tag, survivors, tuple(sorted(dropped)))


class Careless(Agent):
    """The broken twin: it signs whatever list has enough survivors in all."""

    @property
    def _enough(self):
        return 0


def test_who_would_be_left_among_corrupt_partners_signs_nothing():
    """As many of its partners must survive as are needed to open a secret of it."""
    round = Round()
    lost = len(round.near) + 1 - round.session.sharing(round.victim)
    assert lost <= 46  # fewer than a third of 140
    round.agents[round.victim].confirm(round.lie(lost - 1))
    fresh = Round()
    with pytest.raises(ProtocolError, match="it masked towards survived"):
        fresh.agents[fresh.victim].confirm(fresh.lie(lost))


def test_a_careless_agent_would_be_stripped():
    """30 partners are declared dropped and the others are corrupt: all masks of the victim but its own are known."""
    round = Round(Careless)
    dropped = round.near[-30:]
    corrupt = [name for name in round.near if name not in dropped]
    request = round.lie(30)
    round.agents[round.victim].confirm(request)  # then its seed is opened, and the second secrets of the dropped
    words = np.frombuffer(round.masked[round.victim].words, dtype=round.session.word).copy()
    keys = round.agents[round.victim]._keys
    words -= keys.self_mask(round.victim, round.agents[round.victim]._seed)
    for name in dropped:
        others = sorted(round.session.near(name))
        about = round.session.about("spare", name)
        spare = ChaCha20Poly1305(round.agents[name]._second).decrypt(bytes(12), round.shares[name].spare, about)
        at = 32 * others.index(round.victim)
        words += keys.mask_of_pair(name, round.victim, spare[at : at + 32])
    victim = _advertisement(round, round.victim)
    for name in corrupt:  # a corrupt agent knows its own keys
        own = round.agents[name]._sealing
        words -= keys.mask_of_pair(round.victim, name, to_mask(keys.of_pair(name, own, own, victim)))
    np.testing.assert_array_equal(words.view("<i4"), encode(round.inputs[round.victim], CLIP, BITS))


def _advertisement(round, name):
    return round.server._advertised[name]


def test_strangers_on_the_roster_and_a_changed_spare_are_refused():
    round = Round()
    other = next(name for name in NAMES[1:] if name not in round.near)
    agent = Agent(round.session, round.victim, round.agents[round.victim]._identity)
    own = agent.advertise()
    rest = [_advertisement(round, name) for name in round.near]
    with pytest.raises(ProtocolError, match="the partners of"):
        agent.share(Roster(round.session.tag, (own, *rest, _advertisement(round, other))))
    fresh = Server(round.session, remembering())
    for name in NAMES:
        fresh.receive(_advertisement(round, name))
    fresh.roster()
    with pytest.raises(ProtocolError, match="malformed"):
        fresh.receive(replace(round.shares[other], spare=b""))
    empty = Delivery(round.session.tag, other, {})
    with pytest.raises(ProtocolError, match="every step once"):
        round.agents[other].mask(empty, round.inputs[other])
