"""One secure sum over the agents of all servers of a graph: agents as in `secure_sum`, and nobody in the middle.

Agents talk to their own server alone; a server talks to its neighbours. After every step what a server heard is flooded
(`flooding`), hop by hop, so that all servers know the same:

    advertise, share    the agents' signed keys and sealed shares, as they are
    mask                the server adds its own agents' masked words and floods that sum, signed, and whose it is
    confirm             the agents' signatures under the one list of survivors and dropped of all regions
    unmask              the agents' shares of seeds and mask keys, as they are

Every server then takes the masks off by itself and has the same sum, bit for bit. To agents nothing changes: what they
check, sign and pay is as with one server. So the promise of `secure_sum` holds against all servers together, with
fewer than a third of all agents: each server alone, or any number of them, is the one server of that promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silograph.core.types import BoolArray
from silograph.privacy.flooding import Traffic, flood
from silograph.privacy.secure_keys import PLAIN, Curve, verified
from silograph.privacy.secure_messages import Message, PartialSum, ProtocolError, Session, Step, Told, Total
from silograph.privacy.secure_sum import Ask, Server

FLOODS = 5  # one after every step


def run_over_graph(
    session: Session, home: Mapping[str, int], linked: BoolArray, ask: Ask, traffic: Traffic, curve: Curve = PLAIN
) -> Total:
    """All steps, agent `name` at server `home[name]`; whoever falls silent, or is refused, is left behind."""
    servers = [Server(session, curve) for _ in linked]
    signing = [Ed25519PrivateKey.generate() for _ in linked]
    public = [key.public_key().public_bytes_raw() for key in signing]
    left = list(session.identities)

    def heard(step: Step, told: Callable[[str], Told | None]) -> list[list[Message]]:
        """What each server hears of its own agents."""
        said = ask(step, {name: told(name) for name in left})
        own: list[list[Message]] = [[] for _ in servers]
        for name in left:
            if name in said and said[name].sender == name:
                own[home[name]].append(said[name])
        return own

    def keep(taken: Sequence[set[str]]) -> None:
        """All servers hold the same messages against the same rules: they leave the same agents behind."""
        left[:] = [name for name in left if all(name in each for each in taken)]

    def spread(own: list[list[Message]]) -> None:
        taken = []
        for server, lists in zip(servers, flood(linked, own, traffic), strict=True):
            taken.append({message.sender for each in lists for message in each if _received(server, message)})
        keep(taken)

    def spread_sums(own: list[list[Message]]) -> None:
        made = []
        for p, server in enumerate(servers):
            for message in own[p]:
                _received(server, message)
            partial = server.partial(p)
            made.append(replace(partial, signature=signing[p].sign(partial.text)))
        taken = []
        for p, (server, partials) in enumerate(zip(servers, flood(linked, made, traffic), strict=True)):
            for partial in partials:
                _check(session, partial, home, public)
                if partial.server != p:
                    server.take_in(partial)
            taken.append({name for partial in partials for name in partial.senders})
        keep(taken)

    spread(heard("advertise", lambda name: None))
    rosters = [server.roster() for server in servers]
    spread(heard("share", lambda name: servers[home[name]].roster_of(name, rosters[home[name]])))
    deliveries = [server.deliveries([n for n in left if home[n] == p]) for p, server in enumerate(servers)]
    spread_sums(heard("mask", lambda name: deliveries[home[name]][name]))
    requests = [server.request() for server in servers]
    spread(heard("confirm", lambda name: requests[home[name]]))
    proofs = [server.proof() for server in servers]
    spread(heard("unmask", lambda name: proofs[home[name]]))
    totals = [server.total() for server in servers]
    for total in totals[1:]:
        if total.survivors != totals[0].survivors or not np.array_equal(total.whole, totals[0].whole):
            raise session.refusal("the same sum at every server", "found two", "There is no sum this round.")
    return totals[0]


def _received(server: Server, message: Message) -> bool:
    try:
        server.receive(message)
    except ProtocolError:
        return False
    return True


def _check(session: Session, partial: PartialSum, home: Mapping[str, int], public: Sequence[bytes]) -> None:
    """Who relays a partial sum cannot change it, and no server speaks for another's agents."""
    if not verified(public[partial.server], partial.signature, partial.text):
        raise session.refusal("a partial sum signed by its server", "the signature is wrong")
    if any(home.get(name) != partial.server for name in partial.senders):
        raise session.refusal("a server's own agents in its partial sum", "found others")


def traffic_of(linked: BoolArray) -> Traffic:
    """Hops and messages between servers of one sum: each flood carries something of every server."""
    traffic = Traffic()
    for _ in range(FLOODS):
        flood(linked, list(range(len(linked))), traffic)
    return traffic
