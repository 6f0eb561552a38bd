"""Links between servers in one process: they forget, and show what they carry."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from cryptography.hazmat.primitives.asymmetric import ec

from silograph.engines.certificates import public_line
from silograph.engines.neighbours import Neighbours, node_of
from silograph.engines.remote import Answers, Refusal
from silograph.topology import regions, server_graph

RING = regions(server_graph("ring", 4), 2)


@cache
def key_of(name):
    return ec.generate_private_key(ec.SECP256R1())


class Wires:
    """Who answers whom now; a link that nobody serves loses what is sent."""

    def __init__(self, topo=RING):
        self.topo = topo
        self.answers = {}
        self.carried = []  # by sender and receiver

    def asking(self, me):
        wires = self

        class Asking:
            def ask(self, questions, deadline, enough=None):
                heard, end = Answers({}, {}), time.monotonic() + deadline
                with ThreadPoolExecutor(len(questions)) as pool:
                    list(pool.map(lambda pair: wires.carry(me, *pair, heard, end), questions.items()))
                return heard

            def present(self):
                return set()

        return Asking()

    def carry(self, me, node, question, heard, end):
        while time.monotonic() < end:
            answer = self.answers.get((me, node))
            if answer is not None:
                self.carried.append((me, node, question))
                try:
                    heard.replies[node] = answer(question)
                except Exception as error:
                    heard.refusals[node] = Refusal(type(error).__name__)
                return
            time.sleep(0.01)

    def answering(self, me, host):
        wires = self

        class Answering:
            def serve(self, answer, until, patience, say):
                wires.answers[host, node_of(me)] = answer
                while not until():
                    time.sleep(0.01)
                wires.answers.pop((host, node_of(me)), None)

        return Answering()

    def at(self, name, patience=5.0, deployment="d"):
        part = self.topo.at(name)
        others = [other for other in part.heard if other != name]
        hosts = {other: self.answering(name, other) for other in others if other < name}
        keys = {other: public_line(key_of(other).public_key()) for other in self.topo.servers if other != name}
        return Neighbours(part, deployment, key_of(name), keys, self.asking(name), hosts, patience)
