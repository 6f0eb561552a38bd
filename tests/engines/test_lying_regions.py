"""Agents that fall silent in one sum over the agents of all servers, and servers that lie in it."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from test_joined import PLAIN, SEED, SHORT, TOPO, World, check

from local_organisations import DEPLOYMENT
from servers import Case
from silograph.core.errors import InputError, SilographError
from silograph.engines.question import read_question
from silograph.engines.remote import Remote
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.run.loop import rounds


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
    with pytest.raises(InputError, match="agents that take part, but refused by organisation"):
        list(rounds(world.case.method, part, place, door))
    world.close()
    assert {error.expected for _, error in link.refusals} == {"agents of several servers"}
    assert not any(Ledger(path).rows for path in (tmp_path / "agents").glob("*/ledger.jsonl"))


def said_otherwise(number, change):
    """A server that says something else in a flood, the same to everybody, and believes it."""

    def lie(neighbours):
        honest, floods = neighbours.flood, []

        def flood(own):
            floods.append(own)
            return honest(change(own) if len(floods) == number + 1 else own)

        neighbours.flood = flood

    return lie


def with_other_identities(body):
    told = json.loads(body)
    return json.dumps({**told, "agents": {name: key[:-4] + "AAA=" for name, key in told["agents"].items()}}).encode()


def test_identities_that_agents_do_not_know_stop_every_region(tmp_path):
    """Else agents would refuse, and the run would end well, with nothing learned and nobody told."""
    world = World(SHORT, tmp_path, patience=3.0)
    for region in TOPO.servers:
        world.links[region] = world.link(region)
    said = told_by(world, said_otherwise(0, with_other_identities))
    world.close()
    for region in TOPO.servers:
        assert "expected agents that take part, but refused by" in said[region]
        assert all(f"the identity of {LIAR}" in error.expected for _, error in world.links[region].refusals)
    assert not any(Ledger(path).rows for path in (tmp_path / "agents").glob("*/ledger.jsonl"))


def test_a_region_whose_agents_all_refuse_goes_on_with_their_sum_when_they_know_each_other(tmp_path):
    """Enrolments that were forgotten are put into `nodes`, and everybody begins again: the refusal was not noted."""
    world = World(SHORT, tmp_path, patience=3.0)
    first = TOPO.servers[0]
    forgetful = [name for name in world.silos if name.startswith(f"organisation {first}/")]
    rosters = {name: world.silos[name]._sums._roster for name in forgetful}
    kept = {name: path.read_bytes() for name, path in rosters.items()}
    for path in rosters.values():
        path.unlink()
    said = told_by(world, lambda neighbours: None)
    assert "refused by" in said[first]
    assert all("missing: " in said[region] for region in TOPO.servers[1:])
    for name, path in rosters.items():
        path.write_bytes(kept[name])
    found = world.run()
    world.close()
    check(world, found)
