"""Who may talk to whom: silos, their servers, and how the servers mix. A star is the graph with one server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array, BoolArray

IntArray = NDArray[np.intp]
Kind = Literal["ring", "grid", "random", "erdos-renyi"]
Weights = Literal["lazy", "metropolis"]

_TOLERANCE = 1e-9  # how far a combination matrix may be from symmetric and doubly stochastic
_TRIES = 1000  # redraws before giving up on a connected Erdos-Renyi graph


@dataclass(frozen=True, eq=False)
class Topology:
    """Silos in canonical (sorted) order, so that the order of files does not matter, and how their servers mix.

    Silo k belongs to server `home[k]`; server p gives what server m sends the weight `mixing[p, m]`, a_pm of S1 (5). A
    star needs neither. Without any silos it is a bare graph of servers, which `regions` fills. `at` cuts one server
    out of a `whole` graph; its weights are for the servers `named`.

    >>> pair = Topology(("a", "b", "c"), ("east", "west"), [0, 0, 1], [[0.75, 0.25], [0.25, 0.75]])
    >>> pair.sizes, pair.members(0), pair.index(["c", "a"])
    (array([2, 1]), array([0, 1]), [2, 0])
    >>> west = pair.at("west")
    >>> west.silos, west.heard, west.place, west.own, west.graph is pair
    (('c',), ('east', 'west'), array([1]), array([1]), True)
    >>> west.weight, west.links, west.others  # a_pp, and the weights of others
    (array([0.75]), array([[0.25, 0.  ]]), array([0.25]))
    >>> pair.neighbours, pair.neighbourhood, pair.diameter
    (array([2., 2.]), array([[0.5, 0.5],
           [0.5, 0.5]]), 1)
    """

    silos: tuple[str, ...]
    servers: tuple[str, ...] = ("server",)
    home: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    mixing: Array = field(default_factory=lambda: np.zeros((0, 0)))
    whole: Topology | None = None
    named: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        servers, silos = len(self.servers), len(self.silos)
        if not servers or len(set(self.servers)) != servers:
            raise InputError("topology", "one or more different server names", f"found {list(self.servers)[:9]}")
        home, mixing = np.array(self.home, dtype=np.intp), np.asarray(self.mixing, dtype=np.float64)
        if servers == 1:
            home, mixing = home if home.size else np.zeros(silos, np.intp), mixing if mixing.size else np.ones((1, 1))
        if home.shape != (silos,) or (silos and not 0 <= home.min() <= home.max() < servers):
            raise InputError("topology", f"a server from 0 to {servers - 1} for each of {silos} silos", f"found {home}")
        present = np.bincount(home, minlength=servers) > 0
        if silos and not present.all():
            raise _empty_region(self.servers[present.argmin()])
        object.__setattr__(self, "home", _frozen(home))
        if self.whole is None:
            mixing = checked_mixing(mixing, self.servers)
        object.__setattr__(self, "mixing", _frozen(mixing))

    def index(self, silos: Sequence[str]) -> list[int]:
        """Return the places of these silos."""
        if silos is self.silos:
            return list(range(len(silos)))
        return [self._position[name] for name in silos]

    def members(self, server: int) -> IntArray:
        """Return the silos of one server, in order."""
        return np.flatnonzero(self.home == server)

    def at(self, server: str, without: Collection[str] = ()) -> Topology:
        """Return one server of the graph: its own silos, and its row of weights for those that it hears, in order.

        It keeps the weight of a neighbour that it is `without`. If both ends do so, all weights are still symmetric and
        doubly stochastic.
        """
        p = self.servers.index(server)
        silos = tuple(self.silos[k] for k in self.members(p))
        lost = [m for m in np.flatnonzero(self.mixing[p]) if self.servers[m] in without]
        a = np.array(self.mixing[p])
        a[p], a[lost] = a[p] + a[lost].sum(), 0.0
        kept = np.flatnonzero(a)
        names = tuple(self.servers[m] for m in kept)
        return Topology(silos, (server,), np.zeros(len(silos), np.intp), a[None, kept], self, names)

    @property
    def graph(self) -> Topology:
        """With all its servers."""
        return self.whole or self

    @property
    def heard(self) -> tuple[str, ...]:
        """Whose messages reach these servers: the columns of `mixing`."""
        return self.named or self.servers

    @cached_property
    def place(self) -> IntArray:
        """The place of each server in the whole graph."""
        return np.array([self.graph.servers.index(server) for server in self.servers], dtype=np.intp)

    @cached_property
    def own(self) -> IntArray:
        """The place of each server among those that are heard."""
        return np.array([self.heard.index(server) for server in self.servers], dtype=np.intp)

    @cached_property
    def weight(self) -> Array:
        """a_pp."""
        return np.asarray(_frozen(self.mixing[np.arange(len(self.servers)), self.own]))

    @cached_property
    def links(self) -> Array:
        """The weights of others."""
        a = self.mixing.copy()
        a[np.arange(len(self.servers)), self.own] = 0.0
        return np.asarray(_frozen(a))

    @cached_property
    def others(self) -> Array:
        """1 - a_pp as the sum of the weights of others, from the first to the last: despite rounding it is the same
        at a server alone."""
        return np.asarray(_frozen(self.mixing.cumsum(1)[:, -1] - self.weight))

    @cached_property
    def sizes(self) -> IntArray:
        """How many silos each server has."""
        return np.bincount(self.home, minlength=len(self.servers))

    @cached_property
    def neighbourhood(self) -> Array:
        """Weights of plain means over a server and its neighbours; columns sum to 1 only if degrees are equal."""
        near = self.mixing > 0.0
        return np.asarray(_frozen(near / near.sum(1, keepdims=True)))  # S2 (9)

    @cached_property
    def neighbours(self) -> Array:
        """How many each server hears, itself among them."""
        return np.asarray(_frozen(1.0 / self.neighbourhood[np.arange(len(self.servers)), self.own]))

    @cached_property
    def diameter(self) -> int:
        """The largest number of links on a shortest way between two servers."""
        reached, steps = np.eye(len(self.servers)) > 0.0, 0
        while not reached.all():
            reached, steps = reached @ (self.mixing > 0.0), steps + 1
        return steps

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.silos)}


def star(silos: Sequence[str]) -> Topology:
    """Make one server with every silo attached to it.

    `silos` are their names, in any order.

    >>> topo = star(["south", "north"])
    >>> topo.silos, topo.servers
    (('north', 'south'), ('server',))
    """
    if not silos:
        raise InputError("topology", "at least one silo", "found none")
    if len(set(silos)) != len(silos):
        raise InputError("topology", "different silo names", f"found {sorted(silos)}")
    return Topology(tuple(sorted(silos)))


def regions(
    graph: Topology | Sequence[str], agents: int | Sequence[int], names: Sequence[str] | None = None
) -> Topology:
    """Give the graph's servers their agents: the same number for all, or one number for each.

    `graph` may also be just the servers' names; then all of them talk to all. Agents are called unit-03/agent-017
    unless `names` are given, region by region. Silos are sorted by name, as everywhere.

    >>> topo = regions(["east", "west"], [2, 1])
    >>> topo.silos
    ('east/agent-000', 'east/agent-001', 'west/agent-000')
    """
    if not isinstance(graph, Topology):
        graph = graph_from(1.0 - np.eye(len(graph)), graph)
    servers = graph.servers
    sizes = [int(agents)] * len(servers) if isinstance(agents, int | np.integer) else [int(size) for size in agents]
    if len(sizes) != len(servers):
        raise InputError("agents", f"a number for each of the {len(servers)} regions", f"there are {len(sizes)}")
    if min(sizes) < 1:
        raise _empty_region(servers[int(np.argmin(sizes))])
    if names is None:
        width = max(3, len(str(max(sizes) - 1)))
        last = [f"/agent-{k:0{width}d}" for k in range(max(sizes))]
        silos = [server + end for server, size in zip(servers, sizes, strict=True) for end in last[:size]]
    else:
        silos = [str(name) for name in names]
    if len(silos) != sum(sizes):
        raise InputError("names", f"one for each of the {sum(sizes)} agents", f"there are {len(silos)}")
    if len(set(silos)) != len(silos):
        twice = next(name for name, times in Counter(silos).items() if times > 1)
        raise InputError("names", "different names for all agents", f"found {twice!r} twice")
    order = sorted(range(len(silos)), key=silos.__getitem__)
    home = np.repeat(np.arange(len(servers)), sizes)[order]
    return Topology(tuple(silos[k] for k in order), servers, home, graph.mixing)


def server_graph(
    kind: Kind,
    servers: int,
    seed: int = 0,
    *,
    weights: Weights | ArrayLike = "lazy",
    degree: float = 3.0,
    probability: float | None = None,
) -> Topology:
    """Make a connected graph of servers, still without silos.

    ring           each talks to the next
    grid           nearly square; the last row may be short
    random         a random tree, and uniform edges until the mean degree is `degree`
    erdos-renyi    every pair with `probability` (2 ln P / P unless given), redrawn until it is connected

    `kind` is one of the above, and `seed` draws the last two. `weights` are those with which servers mix: "lazy" (half
    of a server's own model, and half of what Metropolis weights give), "metropolis", or a combination matrix.

    >>> server_graph("ring", 3).mixing  # lazy Metropolis weights
    array([[0.66666667, 0.16666667, 0.16666667],
           [0.16666667, 0.66666667, 0.16666667],
           [0.16666667, 0.16666667, 0.66666667]])
    >>> server_graph("erdos-renyi", 20, seed=1, probability=0.3).diameter
    4
    """
    if servers < 1:
        raise InputError("servers", "one or more", f"found {servers}")
    p, k = servers, np.arange(servers)
    linked = np.zeros((p, p), dtype=np.bool_)
    if kind == "ring":
        linked[k, (k + 1) % p] = True
    elif kind == "grid":
        columns = int(np.ceil(np.sqrt(p)))
        right, below = k[k % columns > 0], k[columns:]
        linked[right - 1, right] = linked[below - columns, below] = True
    elif kind == "random":
        linked = _tree_and_more(stream(seed, "servers", 0, "random graph"), p, degree)
    elif kind == "erdos-renyi":
        linked = _erdos_renyi(seed, p, min(1.0, 2.0 * np.log(p) / p) if probability is None else probability)
    else:
        raise InputError("kind", "ring, grid, random or erdos-renyi", f"found {kind!r}")
    return _woven(linked | linked.T, _region_names(p), weights)


def graph_from(
    graph: Any, names: Sequence[str] | None = None, *, weights: Weights | ArrayLike | None = None
) -> Topology:
    """Read servers from a networkx graph, the path of a GraphML file, or a matrix, in their order there.

    A matrix of 0 and 1 with a zero diagonal says who talks to whom; one with a positive diagonal is the combination
    matrix itself. The weights on the edges of a graph are not used: give `weights` (default: lazy Metropolis).

    `names` are the servers' names; by default those in the graph, else unit-00, unit-01, ...

    >>> import networkx as nx
    >>> path = graph_from(nx.path_graph(["a", "b", "c"]), weights="metropolis")
    >>> path.servers, path.mixing.round(2)
    (('a', 'b', 'c'), array([[0.67, 0.33, 0.  ],
           [0.33, 0.33, 0.33],
           [0.  , 0.33, 0.67]]))
    """
    import networkx as nx

    if isinstance(graph, str | Path):
        try:
            graph = nx.read_graphml(graph)
        except Exception as problem:  # the parser raises whatever comes its way
            raise InputError(str(graph), "a GraphML file", f"it cannot be read ({problem})") from None
    if isinstance(graph, nx.Graph):
        names = [str(node) for node in graph.nodes] if names is None else names
        graph = np.minimum(nx.to_numpy_array(graph, weight=None), 1.0) if len(graph) else np.zeros((0, 0))
        np.fill_diagonal(graph, 0.0)  # a loop says nothing: every server has its own model
    matrix = _matrix(graph, "server graph")
    names = _region_names(len(matrix)) if names is None else tuple(map(str, names))
    if len(names) != len(matrix):
        raise InputError("names", f"one for each of the {len(matrix)} servers", f"there are {len(names)}")
    if matrix.diagonal().any() and weights is None:
        return Topology((), names, mixing=matrix)
    if matrix.diagonal().any() or not np.isin(matrix, (0.0, 1.0)).all():
        found = f"its first row is {matrix[0]}" + " and weights were given" * (weights is not None)
        raise InputError("server graph", "0 and 1 with zeros on the diagonal, or a combination matrix alone", found)
    return _woven(matrix > 0.0, names, "lazy" if weights is None else weights)


def metropolis(adjacency: ArrayLike) -> Array:
    """Make Metropolis weights: a_pm = 1 / (1 + the larger degree of p and m) on edges, and the rest on the diagonal.

    `adjacency` is a symmetric matrix, with a number other than 0 for every edge.

    >>> metropolis([[0, 1, 0], [1, 0, 1], [0, 1, 0]]).round(2)  # a path of three servers
    array([[0.67, 0.33, 0.  ],
           [0.33, 0.33, 0.33],
           [0.  , 0.33, 0.67]])
    """
    linked = _matrix(adjacency, "server graph") != 0.0
    np.fill_diagonal(linked, False)
    if (linked != linked.T).any():
        raise InputError("server graph", "edges that go both ways", "some go one way only")
    degree = linked.sum(1)
    mixing = linked / (1.0 + np.maximum(degree[:, None], degree))
    np.fill_diagonal(mixing, 1.0 - mixing.sum(1))
    return np.asarray(mixing)


def lazy(mixing: ArrayLike) -> Array:
    """Return (I + A)/2. It has no negative eigenvalue; negative ones would amplify homomorphic noise.

    `mixing` is a combination matrix A.

    >>> lazy([[0.0, 1.0], [1.0, 0.0]])
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    a = _matrix(mixing, "combination matrix")
    return np.asarray(0.5 * (np.eye(len(a)) + a))


def spectral_gap(mixing: ArrayLike) -> float:
    """Return 1 - iota_2 (11): what is left of a disagreement after one combination is at most iota_2 of it.

    `mixing` is a combination matrix; iota_2 is its second largest eigenvalue by absolute value.

    >>> spectral_gap([[0.75, 0.25], [0.25, 0.75]])  # one combination halves a disagreement
    0.5
    """
    a = _matrix(mixing, "combination matrix")
    return float(1.0 - np.abs(np.linalg.eigvalsh(a - 1.0 / len(a))).max())  # (11)


def checked_mixing(mixing: ArrayLike, names: Sequence[str] = (), adjacency: ArrayLike | None = None) -> Array:
    """The matrix, made exactly symmetric, if it fulfils Assumption 1 of S1, (10), and uses only the graph's edges."""
    where, hint = "combination matrix", "Of an adjacency matrix make weights with metropolis()."
    a = _matrix(mixing, where)
    names = names or _region_names(len(a) if adjacency is None else len(np.asarray(adjacency)))
    if len(a) != len(names):
        raise InputError(where, f"a row for each of the {len(names)} servers", f"there are {len(a)}")
    own = np.eye(len(a), dtype=np.bool_)
    linked = np.ones_like(own) if adjacency is None else (_matrix(adjacency, "server graph") != 0.0) | own
    for bad, expected in (
        (a < 0.0, "weights that are not negative"),
        (np.abs(a - a.T) > _TOLERANCE, "the same weight both ways (a symmetric matrix)"),
        (own & (a == 0.0), "a positive weight for its own model"),
        (~linked & (a != 0.0), "weights on the graph's edges only"),
    ):
        if bad.any():
            p, m = np.argwhere(bad)[0]
            raise InputError(f"{where}, {names[p]} from {names[m]}", expected, f"found {a[p, m]:.12g}", hint)
    sums = np.stack([a.sum(1), a.sum(0)])
    wrong = np.argwhere(np.abs(sums - 1.0) > _TOLERANCE)
    if wrong.size:
        which, p = wrong[0]
        line = ("row", "column")[which]
        raise InputError(
            f"{where}, {line} of {names[p]}", "weights that sum to 1", f"found {sums[which, p]:.12g}", hint
        )
    apart = np.flatnonzero(~_reached(a > 0.0))
    if apart.size:
        found = f"no way leads from {names[0]} to {names[apart[0]]}"
        raise InputError(where, "a connected graph", found + f" and {apart.size - 1} more" * (apart.size > 1))
    return np.asarray(_frozen(0.5 * (a + a.T)))  # (10)


def _woven(linked: BoolArray, names: tuple[str, ...], weights: Weights | ArrayLike) -> Topology:
    """The bare graph of servers with these links and weights."""
    if not isinstance(weights, str):
        return Topology((), names, mixing=checked_mixing(weights, names, linked))
    if weights not in ("lazy", "metropolis"):
        raise InputError("weights", "lazy, metropolis or a combination matrix", f"found {weights!r}")
    return Topology((), names, mixing=lazy(metropolis(linked)) if weights == "lazy" else metropolis(linked))


def _tree_and_more(rng: np.random.Generator, nodes: int, degree: float) -> BoolArray:
    """Each server, in random order, linked to one before it; then uniform edges up to a mean degree."""
    linked, order = np.zeros((nodes, nodes), dtype=np.bool_), rng.permutation(nodes)
    earlier = order[rng.integers(np.arange(1, nodes))]
    linked[np.minimum(earlier, order[1:]), np.maximum(earlier, order[1:])] = True
    free = np.argwhere(np.triu(~linked, 1))
    more = min(max(round(0.5 * degree * nodes) - (nodes - 1), 0), len(free))
    linked[tuple(free[rng.permutation(len(free))[:more]].T)] = True
    return linked


def _erdos_renyi(seed: int, nodes: int, probability: float) -> BoolArray:
    for attempt in range(_TRIES):
        draws = stream(seed, "servers", attempt, "erdos-renyi graph").random((nodes, nodes))
        linked = np.triu(draws < probability, 1)
        if _reached(linked | linked.T).all():
            return np.asarray(linked)
    raise InputError(f"{nodes} servers", "a connected graph", f"none of {_TRIES} was at probability {probability:g}")


def _reached(linked: BoolArray) -> BoolArray:
    """Which servers can be reached from the first."""
    reached = np.zeros(len(linked), dtype=np.bool_)
    frontier = np.arange(len(linked)) == 0
    while frontier.any():
        reached |= frontier
        frontier = linked[frontier].any(0) & ~reached
    return reached


def _matrix(matrix: ArrayLike, where: str) -> Array:
    try:
        a = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(where, "a square matrix of numbers", f"found {type(matrix).__name__}") from None
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise InputError(where, "a square matrix", f"found shape {a.shape}")
    if not np.isfinite(a).all():
        p, m = np.argwhere(~np.isfinite(a))[0]
        raise InputError(f"{where}, row {p}, column {m}", "finite numbers", f"found {a[p, m]}")
    return a


def _frozen(array: Any) -> Any:
    array.flags.writeable = False  # shared by everyone who holds the topology
    return array


def _region_names(servers: int) -> tuple[str, ...]:
    width = max(2, len(str(servers - 1)))
    # Names name noise: with others, every published figure would be drawn anew.
    return tuple(f"unit-{k:0{width}d}" for k in range(servers))


def _empty_region(server: str) -> InputError:
    return InputError(f"region {server}", "at least one agent", "it has none", "Leave the region out of the graph.")
