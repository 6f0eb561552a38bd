"""One sum over the agents of all servers, where each server and each agent is an organisation of its own: the bits and
rows of one process, and kills at any moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from wires import Wires

import clusters
import federations
from local_organisations import DEPLOYMENT, Direct, Federation, stacked
from servers import Case, played
from silograph.deploy.region import Linked
from silograph.engines.notes import Notes
from silograph.engines.remote import Remote
from silograph.methods.calibrated import Calibrated
from silograph.methods.calibration import choose, noise_in_mean
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import SharedGaussian
from silograph.run.loop import rounds
from silograph.run.store import RunFolder
from silograph.tasks.clustered import Proximal
from silograph.tasks.linear import Linear
from silograph.topology import Topology, regions, server_graph

TOPO = regions(server_graph("ring", 4), (3, 2, 4, 3))
SEED, EPSILON, DELTA = 5, 3.0, 1e-2
PLAIN = replace(federations.cases()[0].method, sample=None, clip=0.3, reach="all", rounds=3)
PRIVATE = replace(PLAIN, perturbation="private")


def noise(rounds: int, personal: float = 0.0) -> SharedGaussian:
    return SharedGaussian(gaussian_multiplier(EPSILON, DELTA, rounds) / np.sqrt(1.0 - personal))


def calibrated(topo: Topology) -> Case:
    multiplier = gaussian_multiplier(EPSILON, DELTA, 1)
    task = Linear(federations.FEATURES, federations.MOST, "ridge", 0.01)
    off = noise_in_mean(multiplier, len(topo.silos))
    choice = choose(off, off, federations.FEATURES - 1, False, rounds=2)
    method: Any = Calibrated(task, (0,) * len(topo.silos), choice, (-3.0, 3.0))
    return Case("calibrated", method, SharedGaussian(multiplier), Budget(EPSILON, DELTA), Masks())


def of_clusters() -> Case:
    task, order = Proximal(federations.FEATURES, federations.MOST), tuple(k % 3 for k in range(len(TOPO.silos)))
    method: Any = clusters.plain(task=task, clusters=order, clip=0.4, sample=None, reach="all", rounds=2)
    return Case("clusters", method, masks=Masks(minimum=2))


BUDGET = Budget(EPSILON, DELTA)
CASES = [
    Case("masks", PLAIN, masks=Masks()),
    Case("private", PRIVATE, noise(3), BUDGET, Masks()),
    Case("private, some agents a round", replace(PRIVATE, sample=2), noise(3), BUDGET, Masks(minimum=2)),
    Case("private, personal", replace(PRIVATE, personal=0.3), noise(3, 0.3), BUDGET, Masks(minimum=2)),
    calibrated(TOPO),
    of_clusters(),
]


@dataclass
class World:
    """A ring of regions in threads, agents being organisations of their own but for those of the last region."""

    case: Case
    folder: Any
    topo: Topology = TOPO
    wires: Wires = field(default_factory=lambda: Wires(TOPO))
    patience: float = 20.0
    links: dict[str, Direct] = field(default_factory=dict)

    def __post_init__(self):
        self.data = federations.records(topo=self.topo)
        ready = stacked([self.case.method.task.prepare(self.data[name]) for name in self.topo.silos])
        last = len(self.topo.servers) - 1
        together = {}
        for k, name in enumerate(self.topo.silos):
            p = int(self.topo.home[k])
            together.setdefault("the last" if p == last else f"organisation {name}", []).append(name)
        rest = (self.case.mechanism, self.case.budget, self.case.masks, SEED)
        self.agents = Federation(self.case.method, self.topo, ready, self.folder / "agents", *rest, together=together)
        self.silos = {name: self.agents.silo(name) for name in together}

    def of(self, region: str) -> dict[str, tuple[str, ...]]:
        own = set(self.topo.at(region).silos)
        return {name: tuple(silos) for name, silos in self.agents.organisations.items() if set(silos) <= own}

    def link(self, region: str) -> Direct:
        return Direct({name: self.silos[name] for name in self.of(region)})

    def serve(self, region: str, kill=lambda notes: None, lie=None) -> tuple[Any, list[Any]]:
        """One process of a region's server: until its end, or until `kill` ends it, as its notes say."""
        part, run = self.topo.at(region), RunFolder(self.folder / region, "plan", [], SEED)
        door = Door(SEED, run.ledger, self.case.mechanism, self.case.budget, masks=self.case.masks)
        keys = {name: key for name, key in self.agents.keys().items() if name in part.silos}
        try:
            with self.wires.at(region, self.patience, DEPLOYMENT) as neighbours:
                place = Remote(
                    self.links.get(region) or self.link(region),
                    part,
                    door,
                    self.of(region),
                    DEPLOYMENT,
                    1,
                    5.0,
                    10.0,
                    keys,
                    around=neighbours,
                )
                across = Linked(run, door, neighbours)
                if lie is not None:
                    lie(neighbours)
                kill(across._notes)
                known = run.load()
                if known is None:
                    neighbours.muster()
                state = None if known is None else known[0]
                for after in rounds(self.case.method, part, place, door, state, across=across):
                    state = after
                    run.save(state, [])
                across.part(state.round)
        finally:
            run.release()
        return state.servers, door.ledger.rows

    def run(self, **kills) -> dict[str, Any]:
        """All regions; one that is killed begins again."""

        def one(region):
            try:
                return self.serve(region, kills.get(region, lambda notes: None))
            except Killed:
                return self.serve(region)

        with ThreadPoolExecutor(len(self.topo.servers)) as pool:
            return dict(zip(self.topo.servers, pool.map(one, self.topo.servers), strict=True))

    def close(self):
        for silo in self.silos.values():
            silo.close()


class Killed(BaseException):
    """A process ends here."""


def dies(at: int, before: bool):
    """At a note of the first round: before it is made, or as soon as it is on disk."""

    def kill(notes: Notes) -> None:
        honest, left = notes.once, [at]

        def once(name, make):
            if name not in notes.now:
                left[0] -= 1
                if before and left[0] == 0:
                    raise Killed
                honest(name, make)
                if left[0] == 0:
                    raise Killed
            return honest(name, make)

        notes.once = once

    return kill


def check(world: World, found: dict[str, Any]) -> None:
    """All regions have the model, rows and agents' rows that one process has."""
    case = world.case
    ran = played(case, world.data, world.topo, seed=SEED)
    last = ran.states[-1].servers
    for p, region in enumerate(world.topo.servers):
        servers, _ = found[region]
        for name in ("model", "tail"):
            if name in servers:
                own = last[name] if isinstance(case.method, Calibrated) else last[name][[p]]
                np.testing.assert_array_equal(servers[name], own, err_msg=f"{name} of {region}")
    rows = [row for _, rows in found.values() for row in rows]
    assert sorted(rows, key=lambda row: row.place) == sorted(ran.door.ledger.rows, key=lambda row: row.place)
    own = [row for path in (world.folder / "agents").glob("*/ledger.jsonl") for row in Ledger(path).rows]
    assert len(own) == len({row.place for row in own})
    asked = sum(len(world.topo.silos) if rows is None else len(rows) for rows in _asked(case, world.topo, ran))
    assert len(own) == asked


def _asked(case, topo, ran):
    before = [case.method.start(topo).servers, *(state.servers for state in ran.states[:-1])]
    return [case.method.asked(servers, topo) for servers in before]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regions_on_their_own_have_the_sum_of_one_process(case, tmp_path):
    world = World(case, tmp_path)
    found = world.run()
    world.close()
    check(world, found)


SHORT = Case("private", replace(PRIVATE, rounds=2), noise(2), BUDGET, Masks())
NOTED = 30  # of a round: a nonce, five steps, and what six floods need on a ring of four: own, two turns, heard


@pytest.mark.parametrize("before", [True, False], ids=["before it is noted", "as soon as it is noted"])
@pytest.mark.parametrize("at", range(1, NOTED, 5))
def test_a_server_that_is_killed_anywhere_in_a_sum_goes_on_to_the_same_bits(at, before, tmp_path):
    """And so does another one, a few steps later. No agent pays twice or says two things."""
    world = World(SHORT, tmp_path)
    first, _, third, _ = TOPO.servers
    found = world.run(**{third: dies(at, before), first: dies(at + 7, not before)})
    world.close()
    check(world, found)


def test_the_notes_of_a_round_are_as_many_as_are_killed(tmp_path):
    """Else a kill of the test above would never come."""
    world, seen = World(SHORT, tmp_path), {}
    world.run(**{TOPO.servers[0]: lambda notes: seen.update(notes=notes)})
    world.close()
    assert len(seen["notes"].before) == NOTED + 1  # and the round's number
    assert not any((tmp_path / TOPO.servers[0]).glob("notes-*"))
