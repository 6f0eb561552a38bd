"""Who may talk to whom: stars stay what they were, server graphs are what networkx says, bad ones are refused."""

import dataclasses
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silograph import topology
from silograph.core.errors import InputError
from silograph.topology import Topology, checked_mixing, graph_from, lazy, metropolis, regions, server_graph, star

KINDS = ["ring", "grid", "random", "erdos-renyi"]


def network(topo):
    """The servers' links as networkx sees them."""
    graph = nx.from_numpy_array(np.asarray(topo.mixing > 0.0))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


# ---- stars -----------------------------------------------------------------------------------------------------------


def test_a_star_is_the_graph_with_one_server():
    topo = star(["bob", "cyd", "ada"])
    assert (topo.silos, topo.servers) == (("ada", "bob", "cyd"), ("server",))
    assert topo.home.tolist() == [0, 0, 0]
    assert topo.mixing.tolist() == [[1.0]]
    assert topo.index(["cyd", "ada"]) == [2, 0]
    assert topo.index(topo.silos) == [0, 1, 2]
    assert topo.members(0).tolist() == [0, 1, 2]
    with pytest.raises(KeyError):
        topo.index(["dan"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        topo.silos = ("x",)
    for array in (topo.home, topo.mixing):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_topology_may_still_be_made_of_names_alone():
    """As the released-statistic methods do, also for nobody."""
    assert Topology(("b", "a")).silos == ("b", "a")
    assert Topology(("a",), ("hub",)).servers == ("hub",)
    assert Topology(()).home.shape == (0,)


# ---- graphs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("servers", [1, 2, 3, 4, 10, 37])
def test_every_kind_is_connected_and_valid(kind, servers):
    topo = server_graph(kind, servers, seed=3)
    assert len(topo.servers) == servers
    assert nx.is_connected(network(topo))
    np.testing.assert_array_equal(topo.mixing, topo.mixing.T)
    np.testing.assert_allclose(topo.mixing.sum(1), 1.0, atol=1e-12)
    assert (topo.mixing.diagonal() >= 0.5).all()  # lazy unless asked otherwise
    assert 0.0 < topology.spectral_gap(topo.mixing) <= 1.0


@pytest.mark.parametrize("servers", [3, 4, 10, 25])
def test_ring_and_grid_are_networkx_ones(servers):
    assert nx.is_isomorphic(network(server_graph("ring", servers)), nx.cycle_graph(servers))
    columns = int(np.ceil(np.sqrt(servers)))
    whole = nx.convert_node_labels_to_integers(nx.grid_2d_graph(columns, columns), ordering="sorted")
    assert nx.utils.edges_equal(network(server_graph("grid", servers)).edges, whole.subgraph(range(servers)).edges)


def test_random_graphs_have_the_density_asked_for_and_follow_the_seed():
    sparse, dense = (network(server_graph("random", 40, seed=1, degree=degree)) for degree in (0.0, 6.0))
    assert nx.is_tree(sparse)
    assert dense.number_of_edges() == 120
    assert network(server_graph("random", 6, degree=99.0)).number_of_edges() == 15
    for kind in ("random", "erdos-renyi"):
        first, again, other = (server_graph(kind, 40, seed=seed).mixing for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()


def test_erdos_renyi_has_its_probability():
    """Edges of 50 graphs within 5 standard deviations (rate 6e-7); at this density redraws do not bias the count."""
    pairs, p = 50 * 40 * 39 // 2, 0.4
    edges = sum(
        network(server_graph("erdos-renyi", 40, seed=seed, probability=p)).number_of_edges() for seed in range(50)
    )
    assert abs(edges - p * pairs) <= 5.0 * np.sqrt(p * (1.0 - p) * pairs)
    with pytest.raises(InputError, match="connected"):
        server_graph("erdos-renyi", 30, probability=0.0)


# ---- weights ---------------------------------------------------------------------------------------------------------


@given(servers=st.integers(2, 12), seed=st.integers(0, 10**6), extra=st.floats(0.0, 6.0))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_metropolis_is_its_definition_and_always_valid(servers, seed, extra):
    graph = network(server_graph("random", servers, seed, degree=extra))
    a = metropolis(nx.to_numpy_array(graph))
    for p in graph:
        for m in graph:
            if p != m:
                size = max(graph.degree[p], graph.degree[m]) + 1
                assert a[p, m] == (1.0 / size if graph.has_edge(p, m) else 0.0)
    np.testing.assert_array_equal(checked_mixing(a), a)
    np.testing.assert_array_equal(checked_mixing(lazy(a), adjacency=nx.to_numpy_array(graph)), lazy(a))
    assert np.linalg.eigvalsh(lazy(a)).min() >= -1e-12  # (I + A)/2 has no negative eigenvalue


@pytest.mark.parametrize("servers", [3, 4, 7, 10])
def test_spectral_gap_of_a_ring_in_closed_form(servers):
    """The ring's Metropolis weights are 1/3 each, with eigenvalues (1 + 2 cos(2 pi k/P))/3."""
    other = (1.0 + 2.0 * np.cos(2.0 * np.pi * np.arange(1, servers) / servers)) / 3.0
    ring = server_graph("ring", servers, weights="metropolis").mixing
    assert topology.spectral_gap(ring) == pytest.approx(1.0 - np.abs(other).max(), abs=1e-12)
    assert topology.spectral_gap(lazy(ring)) == pytest.approx(1.0 - (0.5 + 0.5 * other).max(), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_spectral_gap_is_the_rate_at_which_disagreement_dies(kind):
    a = server_graph(kind, 12, seed=5, weights="metropolis").mixing
    w = np.random.default_rng(0).normal(size=12)
    w -= w.mean()
    for _ in range(3000):
        w = a @ w
        w -= w.mean()  # rounding brings back a little of the mean, which does not die
        w /= np.linalg.norm(w)
    assert np.linalg.norm(a @ w) == pytest.approx(1.0 - topology.spectral_gap(a), rel=1e-6)


RING = metropolis(nx.to_numpy_array(nx.cycle_graph(4)))


def changed(*entries):
    a = RING.copy()
    for p, m, value in entries:
        a[p, m] = value
    return a


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), "square"),
        (np.zeros((0, 0)), "square"),
        ([["a", "b"], ["c", "d"]], "numbers"),
        (changed((1, 2, np.nan)), "row 1, column 2.*finite"),
        (changed((0, 1, -0.1), (1, 0, -0.1)), "unit-00 from unit-01.*not negative"),
        (changed((0, 1, 0.3)), "unit-00 from unit-01.*symmetric"),
        (changed((2, 2, 0.33)), "row of unit-02.*sum to 1"),
        (1.1 * RING, "sum to 1"),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), "unit-00 from unit-00.*positive"),
        (np.eye(3), "connected.*from unit-00 to unit-01 and 1 more"),
        (np.kron(np.eye(2), np.full((2, 2), 0.5)), "connected"),
    ],
)
def test_bad_combination_matrices_are_refused(matrix, message):
    with pytest.raises(InputError, match=message):
        checked_mixing(matrix)


def test_a_matrix_must_match_its_graph():
    path = nx.to_numpy_array(nx.path_graph(4))
    with pytest.raises(InputError, match=r"unit-00 from unit-03.*graph's edges"):
        checked_mixing(RING, adjacency=path)
    with pytest.raises(InputError, match="edges"):
        graph_from(path, weights=RING)
    assert graph_from(nx.cycle_graph(4), weights=lazy(RING)).servers == ("0", "1", "2", "3")
    with pytest.raises(InputError, match="each of the 5"):
        server_graph("ring", 5, weights=RING)


def test_tiny_asymmetry_is_rounded_away_and_more_is_not():
    off = changed((0, 1, RING[0, 1] + 8e-10))
    fixed = checked_mixing(off)
    np.testing.assert_array_equal(fixed, fixed.T)
    np.testing.assert_allclose(fixed, RING, atol=1e-9)
    with pytest.raises(InputError):
        checked_mixing(changed((0, 1, RING[0, 1] + 1.2e-9)))


# ---- graphs from elsewhere -------------------------------------------------------------------------------------------


def test_a_matrix_is_an_adjacency_or_the_weights_themselves():
    by_links, by_weights = graph_from(nx.to_numpy_array(nx.cycle_graph(4))), graph_from(RING, ["n", "e", "s", "w"])
    np.testing.assert_array_equal(by_links.mixing, lazy(RING))
    np.testing.assert_array_equal(by_weights.mixing, RING)
    assert by_weights.servers == ("n", "e", "s", "w")
    for matrix, weights in (
        (0.5 * nx.to_numpy_array(nx.cycle_graph(4)), None),
        (RING, "lazy"),
        (np.ones((3, 3)), None),
    ):
        with pytest.raises(InputError):
            graph_from(matrix, weights=weights)


def test_networkx_and_graphml(tmp_path):
    graph = nx.Graph([("north", "east"), ("east", "south"), ("north", "north")])
    graph.edges["north", "east"]["weight"] = 7.0  # whatever it means, it is no combination weight
    nx.write_graphml(graph, tmp_path / "servers.graphml")
    topo = graph_from(tmp_path / "servers.graphml", weights="metropolis")
    assert topo.servers == ("north", "east", "south")
    np.testing.assert_allclose(topo.mixing, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3.0, atol=1e-15)
    for same in (graph, nx.MultiGraph([*graph.edges, *graph.edges]), nx.DiGraph(graph)):
        np.testing.assert_array_equal(graph_from(same, weights="metropolis").mixing, topo.mixing)


def test_bad_graphs_are_refused(tmp_path):
    (tmp_path / "no.graphml").write_text("once upon a time")
    for graph, message in (
        (tmp_path / "no.graphml", "GraphML"),
        (tmp_path / "absent.graphml", "GraphML"),
        (nx.DiGraph([(0, 1), (1, 2)]), "both ways"),
        (nx.Graph([(0, 1), (2, 3)]), "connected"),
        (nx.Graph(), "square"),
        ("absent.graphml", "GraphML"),
    ):
        with pytest.raises(InputError, match=message):
            graph_from(graph)
    for bad in (
        lambda: server_graph("circle", 3),
        lambda: server_graph("ring", 0),
        lambda: server_graph("ring", 3, weights="heavy"),
        lambda: graph_from(nx.path_graph(3), ["a", "b"]),
        lambda: graph_from(nx.path_graph(3), ["a", "b", "a"]),
    ):
        with pytest.raises(InputError):
            bad()


# ---- regions
# -----------------------------------------------------------------------------------------------------------


def test_agents_of_equal_regions():
    topo = regions(server_graph("ring", 12), 100)
    assert topo.silos[1117] == "unit-11/agent-017"
    assert list(topo.silos) == sorted(topo.silos)
    assert len(set(topo.silos)) == 1200
    assert topo.sizes.tolist() == [100] * 12
    assert all(topo.silos[k].startswith("unit-03/") for k in topo.members(3))
    np.testing.assert_array_equal(topo.mixing, server_graph("ring", 12).mixing)


def test_regions_of_unequal_sizes_and_a_population_that_changes():
    topo = regions(server_graph("grid", 3), [1, 5, 2])
    assert topo.sizes.tolist() == [1, 5, 2]
    assert topo.home.tolist() == [0, 1, 1, 1, 1, 1, 2, 2]
    assert regions(topo, 2).sizes.tolist() == [2, 2, 2]


def test_names_are_sorted_with_their_homes():
    topo = regions(["south", "north"], [2, 1], ["zoe", "bob", "ann"])
    assert topo.silos == ("ann", "bob", "zoe")
    assert [topo.servers[p] for p in topo.home] == ["north", "south", "south"]
    np.testing.assert_allclose(topo.mixing, [[0.75, 0.25], [0.25, 0.75]])  # both talk; lazy weights


@pytest.mark.parametrize(
    ("agents", "names", "message"),
    [
        (0, None, "region unit-00: expected at least one agent"),
        ([3, 0, 1], None, "region unit-01"),
        ([3, 1], None, "each of the 3 regions"),
        (1, ["a", "b"], "each of the 3 agents"),
        (1, ["a", "b", "a"], "found 'a' twice"),
    ],
)
def test_bad_regions_are_refused(agents, names, message):
    with pytest.raises(InputError, match=message):
        regions(server_graph("ring", 3), agents, names)


@pytest.mark.parametrize(
    ("home", "message"),
    [([0, 0, 0], "region unit-01"), ([0, 1, 3], "0 to 2"), ([0, -1, 1], "0 to 2"), ([0, 1], "3 silos")],
)
def test_homes_must_exist_and_none_may_be_empty(home, message):
    ring = server_graph("ring", 3)
    with pytest.raises(InputError, match=re.escape(message)):
        Topology(("a", "b", "c"), ring.servers, np.array(home), ring.mixing)


def test_a_million_agents():
    topo = regions(server_graph("random", 1000, degree=8.0), 1000)
    assert len(topo.silos) == 1_000_000
    assert topo.silos[123_456] == "unit-123/agent-456"
    assert (topo.home == np.arange(1_000_000) // 1000).all()
    assert topo.index(["unit-999/agent-999"]) == [999_999]


def test_a_link_that_both_ends_give_up_leaves_weights_symmetric_and_doubly_stochastic():
    whole = regions(server_graph("random", 7, 3, degree=4.0), 1)
    p, m = np.argwhere(np.triu(whole.mixing, 1))[2]
    gone = {whole.servers[p]: [whole.servers[m]], whole.servers[m]: [whole.servers[p]]}
    a = np.zeros_like(whole.mixing)
    for k, server in enumerate(whole.servers):
        part = whole.at(server, gone.get(server, []))
        a[k, [whole.servers.index(name) for name in part.heard]] = part.mixing[0]
        assert part.heard[int(part.own[0])] == server
    assert a[p, m] == a[m, p] == 0.0
    assert (a == a.T).all()
    np.testing.assert_allclose(a.sum(0), 1.0, atol=1e-15)
    np.testing.assert_array_equal(np.delete(a, [p, m], 0), np.delete(whole.mixing, [p, m], 0))
