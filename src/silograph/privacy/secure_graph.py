"""One secure sum over the agents of all servers of a graph: agents as in `secure_sum`, but no central server.

Agents talk to their own server alone; a server talks to its neighbours. After every step servers flood what they heard
(`flooding`), hop by hop, so that all servers know the same:

    advertise, share    the agents' signed keys and sealed shares, as they are
    mask                the server adds its own agents' masked words and floods that sum with these agents' names
    confirm             the agents' signatures under the one list of survivors and dropped of all regions
    unmask              the agents' shares of seeds and mask keys, as they are

Every server then removes the masks by itself and has the same sum, bit for bit. Nothing changes for agents: they check,
sign and pay as with one server. So the promise of `secure_sum` holds against all servers together with fewer than a
third of all agents: in that promise "the server" may be any one of them, or any number of them.

Servers that are separate organisations sign what they pass on (`engines.neighbours`), and list with every word which
words of all others they have heard: a server that sends two neighbours different words is found out before the next
step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import numpy as np

from silograph.core.types import BoolArray
from silograph.privacy.flooding import Traffic, flood
from silograph.privacy.secure_keys import PLAIN, Curve
from silograph.privacy.secure_messages import Message, PartialSum, ProtocolError, Session, Step, Told, Total
from silograph.privacy.secure_sum import Ask, Server

FLOODS = 5  # one after every step

#: What a server passes on after a step.
Word = PartialSum | tuple[Message, ...]

#: One server's part in a sum: it yields what it passes on and receives what all pass on, in the order of the servers.
Part = Generator[Word, Sequence[Word], Total]


class DishonestServerError(ProtocolError):
    """A server passed on what its agents cannot have sent. There is no sum."""

    code = "dishonest-server"


def at_server(session: Session, home: Mapping[str, int], me: int, ask: Ask, curve: Curve = PLAIN) -> Part:
    """Run all steps at server number `me`; agent `name` is at server `home[name]`. An agent that falls silent or is
    refused is left behind by all servers alike, since all check the same messages against the same rules."""
    server = Server(session, curve)
    left = [name for name in session.identities if home[name] == me]

    def heard(step: Step, told: Callable[[str], Told | None]) -> tuple[Message, ...]:
        said = ask(step, {name: told(name) for name in left}) if left else {}
        return tuple(said[name] for name in left if name in said and said[name].sender == name)

    def take(words: Sequence[Word]) -> None:
        taken = set()
        for p, each in enumerate(words):
            if isinstance(each, PartialSum) or any(home.get(message.sender) != p for message in each):
                raise _dishonest(session, p, "its own agents' messages", "found others")
            taken |= {message.sender for message in each if _received(server, message)}
        left[:] = [name for name in left if name in taken]

    take((yield heard("advertise", lambda name: None)))
    roster = server.roster()
    take((yield heard("share", lambda name: server.roster_of(name, roster))))
    deliveries = server.deliveries(left)
    left[:] = [message.sender for message in heard("mask", deliveries.__getitem__) if _received(server, message)]
    for p, partial in enumerate((yield server.partial(me))):
        if not isinstance(partial, PartialSum) or any(home.get(name) != p for name in partial.senders):
            raise _dishonest(session, p, "a server's own agents in its partial sum", "found others")
        if p != me:
            try:
                server.take_in(partial)
            except ProtocolError as error:
                raise _dishonest(session, p, error.expected, error.found) from None
    request = server.request()
    take((yield heard("confirm", lambda name: request)))
    proof = server.proof()
    take((yield heard("unmask", lambda name: proof)))
    return server.total()


def run_over_graph(
    session: Session, home: Mapping[str, int], linked: BoolArray, ask: Ask, traffic: Traffic, curve: Curve = PLAIN
) -> Total:
    """Run all servers in one process, step by step."""
    parts = [at_server(session, home, p, ask, curve) for p in range(len(linked))]
    words = [next(part) for part in parts]
    while True:
        known, words = flood(linked, words, traffic), []
        totals: list[Total] = []
        for part, heard in zip(parts, known, strict=True):
            try:
                words.append(part.send(heard))
            except StopIteration as end:
                totals.append(end.value)
        if totals:
            break
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


def _dishonest(session: Session, server: int, expected: str, found: str) -> DishonestServerError:
    todo = "There is no sum. Ask whoever runs it."
    return DishonestServerError(f"{session.place}, server {server}", expected, found, todo)


def traffic_of(linked: BoolArray) -> Traffic:
    """Count hops and messages between servers in one sum: each flood carries something from every server."""
    traffic = Traffic()
    for _ in range(FLOODS):
        flood(linked, list(range(len(linked))), traffic)
    return traffic
