"""One sum over the agents of all servers, where each server and each agent is an organisation of its own: the bits and
rows of one process, kills at any moment, and servers that lie."""

from __future__ import annotations

import json
import re
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
from silograph.core.errors import SilographError
from silograph.deploy.region import Linked
from silograph.engines.notes import Notes
from silograph.engines.question import read_question
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


# ---- agents that fall silent, and servers that lie ---------------------------------------------------------------


@pytest.mark.parametrize("step", ["share", "mask", "confirm", "unmask"])
def test_agents_that_fall_silent_are_left_out_by_all_servers_alike(step, tmp_path):
    """One of each of three regions, in the middle of the first round: 9 of 12 are enough, and all regions have the sum
    of those whose masked inputs came."""
    world = World(Case("masks", replace(PLAIN, rounds=1), masks=Masks()), tmp_path)
    gone = [f"organisation {world.topo.at(region).silos[0]}" for region in TOPO.servers[:3]]

    def away(organisation, blob):
        return organisation in gone and (asked := read_question(blob).sum) is not None and step in str(asked)

    for region in TOPO.servers:
        world.links[region] = replace(world.link(region), away=away)
    found = world.run()
    world.close()
    counts = sum(servers["counts"].sum() for servers, _ in found.values())
    assert counts == (9 if step in ("share", "mask") else 12)
    models = [servers["model"] for servers, _ in found.values()]
    assert all((model == models[0]).all() for model in models[1:])
    assert models[0].any()


def told_by(world: World, lie) -> dict[str, str]:
    """What every region says at its end, the third one lying."""

    def one(region):
        try:
            world.serve(region, lie=lie if region == LIAR else None)
        except SilographError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(TOPO.servers, pool.map(one, TOPO.servers), strict=True))


LIAR, VICTIM = TOPO.servers[2], TOPO.servers[1]
FLOODS, HOPS = 6, 2


def giving(change):
    """A server that gives its neighbours what `change` makes of the words for each."""

    def lie(neighbours):
        honest, kept = neighbours._give_each, {}

        def give(turn, parts):
            return honest(turn, {to: change(neighbours, kept, turn, to, dict(words)) for to, words in parts.items()})

        neighbours._give_each = give

    return lie


def flood_of(turn):
    """The number of a flood in the first round, in its first hop; None in others."""
    return turn // (HOPS + 1) if 0 <= turn < FLOODS * (HOPS + 1) and turn % (HOPS + 1) == 0 else None


def other_word(neighbours, turn, change=lambda body: body + b" "):
    """Its own word, signed, but not the same."""
    word = neighbours._notes.now[f"{turn} own"]
    made = neighbours._signed(turn, change(word[1 + word[0] :]))
    return np.frombuffer(made, dtype=np.uint8)


@pytest.mark.parametrize("number", range(FLOODS))
def test_two_stories_stop_the_round_before_anything_comes_of_it(number, tmp_path):
    """One space more for one neighbour: the same message, of which two versions are signed."""

    def change(neighbours, kept, turn, to, words):
        if flood_of(turn) == number and to == VICTIM:
            words[LIAR] = other_word(neighbours, turn)
        return words

    world = World(SHORT, tmp_path, patience=3.0)
    said = told_by(world, giving(change))
    world.close()
    assert all(said.values())
    assert any(f"region {LIAR}: expected the same word wherever it is heard" in text for text in said.values())
    assert not any((tmp_path / f".{region}.unfinished" / "state.npz").exists() for region in TOPO.servers)


def said_before(neighbours, kept, turn, to, words):
    """In a second round it gives the words of the first, as they were signed."""
    if turn < 1 << 20:
        if LIAR in words:
            kept[turn, to] = words[LIAR]
    elif LIAR in words:
        words[LIAR] = kept.get((turn - (1 << 20), to), words[LIAR])
    return words


def changed_on_the_way(neighbours, kept, turn, to, words):
    return {of: word if of == LIAR else word[::-1].copy() for of, word in words.items()}


def nothing(neighbours, kept, turn, to, words):
    return {of: word for of, word in words.items() if of != LIAR}


def speaks_for_others(neighbours, kept, turn, to, words):
    """It says that an agent of another region comes with it: the same to both its neighbours."""
    if flood_of(turn) == 0 and LIAR in words:
        theirs = TOPO.at(VICTIM).silos[0].encode()

        def change(body):
            return body.replace(TOPO.at(LIAR).silos[0].encode(), theirs)

        words[LIAR] = kept.setdefault(turn, other_word(neighbours, turn, change))
    return words


def counts_twice(neighbours, kept, turn, to, words):
    """In its partial sum one of its agents is named twice."""
    if flood_of(turn) == 3 and LIAR in words:
        name = json.dumps(TOPO.at(LIAR).silos[0]).encode()
        words[LIAR] = kept.setdefault(
            turn, other_word(neighbours, turn, lambda b: b.replace(name, name + b", " + name))
        )
    return words


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (said_before, "a word that it signed for this turn"),
        (changed_on_the_way, "the same word wherever it is heard|a word that it signed for this turn"),
        (nothing, f"nobody passed on that of {LIAR}"),
        (speaks_for_others, "agents of its own in a sum"),
        (counts_twice, "DishonestServerError.*server 2"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_lie_is_found_out_and_stops_the_round(change, found, tmp_path):
    world = World(SHORT, tmp_path, patience=3.0)
    said = told_by(world, giving(change))
    world.close()
    honest = {region: text for region, text in said.items() if region != LIAR}
    assert all(honest.values())
    assert any(re.search(found, text) for text in honest.values()), honest
    for region in TOPO.servers:  # at most the round before it is over
        assert len({row.round for row in Ledger(tmp_path / f".{region}.unfinished" / "ledger.jsonl").rows}) <= (
            change is said_before
        )


def test_agents_are_added_up_with_those_the_plan_names_and_nobody_else(tmp_path):
    """A server that asks its own agents alone for what is to be one sum over all regions: their noise is for all."""
    world = World(Case("masks", replace(PLAIN, rounds=1), masks=Masks()), tmp_path)
    region = TOPO.servers[0]
    part, link = world.topo.at(region), world.link(region)
    door = Door(SEED, Ledger(), masks=world.case.masks)
    keys = {name: key for name, key in world.agents.keys().items() if name in part.silos}
    place = Remote(link, part, door, world.of(region), DEPLOYMENT, 1, 5.0, 10.0, keys)  # and nobody around
    *_, last = rounds(world.case.method, part, place, door)
    world.close()
    assert not last.servers["counts"].any()
    assert {error.expected for _, error in link.refusals} == {"agents of several servers"}
    assert not any(Ledger(path).rows for path in (tmp_path / "agents").glob("*/ledger.jsonl"))
