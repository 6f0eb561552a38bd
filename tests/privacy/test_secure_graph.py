"""One secure sum over all servers of a graph: exact, the same everywhere, and passed on by neighbours alone."""

import os
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.privacy import secure_graph
from silograph.privacy.discrete import encode
from silograph.privacy.flooding import Traffic, flood
from silograph.privacy.secure_graph import DishonestServerError, run_over_graph, traffic_of
from silograph.privacy.secure_messages import STEPS
from silograph.privacy.secure_sum import ProtocolError, Server, secure_sum

CLIP, BITS = 1.0, 16
GRAPHS = {
    "path": nx.path_graph(5),
    "ring": nx.cycle_graph(5),
    "complete": nx.complete_graph(4),
    "one": nx.path_graph(1),
}


def linked(graph):
    return nx.to_numpy_array(graph).astype(bool)


def vectors(count, seed=0):
    draws = np.random.default_rng(seed).normal(size=(count, 3))
    draws *= 0.999 / np.linalg.norm(draws, axis=1, keepdims=True)
    return {f"agent {k:03d}": row for k, row in enumerate(draws)}


def joint_sum(inputs, graph, traffic=None, **options):
    home = {name: k % len(graph) for k, name in enumerate(inputs)}

    def steps(session, curve, ask):
        return run_over_graph(session, home, linked(graph), ask, traffic or Traffic(), curve)

    return secure_sum(inputs, CLIP, BITS, steps=steps, **options)


# ---- flooding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
def test_a_flood_reaches_everybody_in_as_many_hops_as_the_graph_is_wide(graph):
    traffic = Traffic()
    known = flood(linked(graph), [f"of {p}" for p in graph], traffic)
    assert known == [[f"of {p}" for p in graph]] * len(graph)
    assert traffic.hops == nx.diameter(graph)


def test_on_a_tree_every_item_crosses_every_link_once():
    tree = nx.balanced_tree(2, 3)
    traffic = Traffic()
    flood(linked(tree), list(tree), traffic)
    assert traffic.messages == len(tree) * (len(tree) - 1)
    assert traffic_of(linked(tree)).messages == 5 * traffic.messages


def test_a_server_hears_nothing_but_from_neighbours():
    """An item that nobody passes on stays with the neighbours: what crosses is a chain of links."""
    path = linked(nx.path_graph(4))
    path[1, 2] = path[2, 1] = False
    with pytest.raises(InputError, match=r"a connected graph.*no way leads from server 2 to server 0"):
        flood(path, list("abcd"), Traffic())


# ---- the sum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
@pytest.mark.parametrize("step", STEPS)
def test_the_sum_is_exact_when_fewer_than_a_third_drop_out(graph, step):
    inputs = vectors(17)
    silent = list(inputs)[::3][:5]
    total = joint_sum(inputs, graph, drop=dict.fromkeys(silent, step))
    gone = set() if step in ("confirm", "unmask") else set(silent)
    assert set(total.survivors) == inputs.keys() - gone
    assert total.whole.tolist() == sum(encode(inputs[name], CLIP, BITS) for name in total.survivors).tolist()


def test_a_whole_region_may_drop_out_and_more_than_a_third_are_refused():
    inputs = vectors(20)
    region = [name for k, name in enumerate(inputs) if k % 5 == 2]
    assert set(joint_sum(inputs, GRAPHS["ring"], drop=dict.fromkeys(region, "mask")).survivors) == (
        inputs.keys() - set(region)
    )
    silent = list(inputs)[:7]
    with pytest.raises(ProtocolError, match="No sum is revealed"):
        joint_sum(inputs, GRAPHS["ring"], drop=dict.fromkeys(silent, "share"))


def test_noise_is_the_same_as_with_one_server():
    """Seeded noise: over a graph nothing is added and nothing lost."""
    inputs = vectors(12)

    def noise(name):
        return np.random.default_rng(int(name[-3:])).bytes

    options = {"noise": 5.0, "noise_source": noise, "source": lambda name: os.urandom}
    one = secure_sum(inputs, CLIP, BITS, **options)
    np.testing.assert_array_equal(joint_sum(inputs, GRAPHS["path"], **options).whole, one.whole)


def test_large_cohorts_with_few_partners_add_up_over_a_graph():
    inputs = vectors(135)
    traffic = Traffic()
    total = joint_sum(inputs, GRAPHS["ring"], traffic, drop=dict.fromkeys(list(inputs)[:40], "mask"))
    assert total.whole.tolist() == sum(encode(inputs[name], CLIP, BITS) for name in total.survivors).tolist()
    assert (traffic.hops, traffic.messages) == (
        traffic_of(linked(GRAPHS["ring"])).hops,
        traffic_of(linked(GRAPHS["ring"])).messages,
    )


# ---- servers that lie ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1, 3, 4])
def test_a_server_passes_on_its_own_agents_words_alone(monkeypatch, step):
    """Server 0 has the words of another's agent among its own: what is signed by agents, and late or early."""
    count = iter(range(5))

    def flooded(graph, own, traffic):
        lying = next(count) == step
        known = flood(graph, own, traffic)
        return [[(*items[0], items[1][0]), *items[1:]] if lying else items for items in known]

    monkeypatch.setattr(secure_graph, "flood", flooded)
    with pytest.raises(DishonestServerError, match="server 0: expected its own agents' messages"):
        joint_sum(vectors(12), GRAPHS["ring"])


@pytest.mark.parametrize(
    "lie, match",
    [
        (lambda partial: replace(partial, senders=(*partial.senders, "agent 001")), "a server's own agents"),
        (lambda partial: replace(partial, words=partial.words[:-4]), "of the session's length"),
        (lambda partial: replace(partial, senders=partial.senders * 2), "one partial sum at most"),
    ],
)
def test_a_server_cannot_speak_for_others_agents_or_count_its_own_twice(monkeypatch, lie, match):
    honest = Server.partial

    def partial(server, number):
        made = honest(server, number)
        return lie(made) if number == 0 else made

    monkeypatch.setattr(Server, "partial", partial)
    with pytest.raises(DishonestServerError, match=match):
        joint_sum(vectors(15), GRAPHS["ring"])


def test_two_stories_about_survivors_get_no_confirmations(monkeypatch):
    """A server that tells its own agents of a survivor less: they sign another list than the others do."""
    honest = Server.request
    calls = []

    def request(server):
        made = honest(server)
        calls.append(server)
        if len(calls) > 1:
            return made
        gone = next(name for k, name in enumerate(made.survivors) if k % 5)
        return replace(made, survivors=tuple(n for n in made.survivors if n != gone), dropped=(gone,))

    monkeypatch.setattr(Server, "request", request)
    inputs = vectors(15)
    total = joint_sum(inputs, GRAPHS["ring"])  # its agents' signatures are refused, and 12 of 15 are enough
    assert total.whole.tolist() == sum(encode(inputs[name], CLIP, BITS) for name in total.survivors).tolist()
