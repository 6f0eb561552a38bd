"""Servers of a graph each on their own, that exchange with neighbours alone: the same bits and rows as all in one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest

import clusters
import federations
from silograph.methods.base import ALL, EACH, Here
from silograph.run.loop import rounds
from silograph.topology import regions, server_graph

RING = regions(server_graph("ring", 4), (5, 4, 7, 4))

S1 = [(federations, case, RING) for case in federations.cases()]
LEARNED = replace(clusters.changed(clusters.named("ridge"), tau="learned", tau_decay=1.0, rounds=9), name="learned")
S2 = [(clusters, case, clusters.topology()) for case in [*clusters.cases(), LEARNED]]


class Wires:
    """What each server gives to those who hear it, and to nobody else."""

    def __init__(self, whole):
        self.given, self.bell, self.whole = {}, Barrier(len(whole.servers)), whole

    def at(self, part):
        (me,) = part.servers
        wires, place = self, self.whole.servers.index

        class There(Here):
            def exchange(self, round, half):
                for name, value in half.sent.items():
                    for other in wires.whole.servers if name == ALL else part.heard:
                        wires.given[round, name, me, other] = value[0, place(other)] if name == EACH else value[0]
                wires.bell.wait(60)
                rows = {
                    name: np.stack(
                        [
                            wires.given[round, name, other, me]
                            for other in (wires.whole.servers if name == ALL else part.heard)
                        ]
                    )
                    for name in half.sent
                }
                return {name: value[None] if name == EACH else value for name, value in rows.items()}

        return There()


@pytest.mark.parametrize(("world", "case", "topo"), [*S1, *S2], ids=lambda each: getattr(each, "name", ""))
def test_a_server_alone_gets_the_bits_and_rows_that_it_gets_among_all(world, case, topo):
    data = world.data_of(case) if world is clusters else world.records(topo=topo)
    expected = world.run(case, data, topo)
    wires = Wires(topo)

    def alone(server):
        part, door = topo.at(server), world.door_of(case)
        place = world.engine_of(case, data, part, door)
        *_, last = rounds(case.method, part, place, door, across=wires.at(part))
        place.deliver(case.method, last)
        return last.servers["model"], door.ledger.rows

    with ThreadPoolExecutor(len(topo.servers)) as pool:
        ended = list(pool.map(alone, topo.servers))
    np.testing.assert_array_equal(np.concatenate([model for model, _ in ended]), expected.states[-1].servers["model"])
    ours = [row for _, rows in ended for row in rows]
    assert sorted(ours, key=lambda row: row.place) == sorted(expected.door.ledger.rows, key=lambda row: row.place)
