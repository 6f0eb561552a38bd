"""The one round loop, as a generator the caller iterates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from silograph.core.errors import SilenceError
from silograph.core.types import Carry, EngineName
from silograph.engines.base import Engine, on_ray, silowise, vector
from silograph.methods.base import Across, Method, Outcome, Private, Rows, State, advance, begin
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Noise
from silograph.privacy.observers import OTHER_SERVERS
from silograph.privacy.released import Sent
from silograph.topology import Topology, star

REHEARSAL = "seed of the plan (rehearsal: whoever knows it can remove the noise)"
SECRET = "secret entropy of this machine"

EMPTY_ROUNDS = 10  # nobody waits for ever

ENGINES: dict[EngineName, Callable[[Sequence[Private] | Private, Topology, Door], Engine]] = {
    "vector": vector,
    "silowise": silowise,
    "ray": on_ray,
}


def rounds(
    method: Method,
    topo: Topology,
    engine: Engine,
    door: Door,
    state: State | None = None,
    present: Callable[[int], Sequence[str]] | None = None,
    across: Across | None = None,
) -> Iterator[State]:
    """Yield the state after every round until the method is done.

    `state` goes on from an earlier state; `present` says which silos answer in a round (all, if None); `across` leads
    to servers that are not here.

    `method` runs over `topo`; `engine` holds the silos, and `door` keeps their ledger.

    >>> from silograph.methods.graph_federation import GraphFederation
    >>> from silograph.privacy.door import Door
    >>> from silograph.privacy.ledger import Ledger
    >>> from silograph.tasks.linear import Linear
    >>> from silograph.topology import star
    >>> x = np.random.default_rng(0).normal(size=(2, 50, 1))
    >>> task, topo, door = Linear(1, most=50), star(["north", "south"]), Door(0, Ledger())
    >>> data = [task.prepare((each, 3.0 * each[:, 0])) for each in x]
    >>> method = GraphFederation(task, step=0.5, rounds=10)
    >>> engine = ENGINES["vector"](data, topo, door)
    >>> [state.servers["model"].round(2).item() for state in rounds(method, topo, engine, door)]
    [2.8, 2.99, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    """
    state = begin(method, topo) if state is None else state

    def run_local(now: State) -> tuple[Carry, Sent, Rows]:
        rows = method.asked(now.servers, topo)
        if rows is None:
            rows = np.arange(len(topo.silos))
        if present is not None:
            rows = rows[np.isin(rows, topo.index(present(now.round)))]
        return engine.local(method, now, rows)

    empty = 0
    while not method.done(state.servers):
        after = advance(method, state, topo, door.gate(topo.servers, state.round, OTHER_SERVERS), run_local, across)
        empty = empty + 1 if after.servers is state.servers else 0
        if empty >= EMPTY_ROUNDS:
            raise SilenceError("rounds", "some silo to answer", f"none did for {empty} rounds", "Ask the silos.")
        state = after
        yield state


#: Told the state after every round.
Watch = Callable[[State], None]


def go_on(
    method: Method,
    topo: Topology,
    engine: Engine,
    door: Door,
    state: State,
    watch: Watch,
    across: Across | None = None,
) -> tuple[State, Outcome]:
    """From a state to the end of the run: the last state, and what came of it."""
    for after in rounds(method, topo, engine, door, state, across=across):
        state = after
        watch(state)
    return state, method.outcome(state.servers, engine.deliver(method, state), topo)


def play(
    method: Method,
    topo: Topology,
    data: Sequence[Private] | Private,
    door: Door,
    watch: Watch = lambda state: None,
    engine: EngineName = "vector",
) -> tuple[State, Outcome]:
    """Play a whole run in this process, of what each silo's task made of its records; return its last state and result.

    `method` runs over `topo`; `data` are in the order of `topo.silos`, `door` keeps the ledger, `watch` is called with
    the state after every round, and `engine` is "vector", "silowise" or "ray".

    >>> from silograph.methods.graph_federation import GraphFederation
    >>> from silograph.privacy.door import Door
    >>> from silograph.privacy.ledger import Ledger
    >>> from silograph.tasks.linear import Linear
    >>> from silograph.topology import star
    >>> x = np.random.default_rng(0).normal(size=(2, 50, 1))
    >>> task, topo, door = Linear(1, most=50), star(["north", "south"]), Door(0, Ledger())
    >>> data = [task.prepare((each, 3.0 * each[:, 0])) for each in x]
    >>> method = GraphFederation(task, step=0.5, rounds=10)
    >>> state, outcome = play(method, topo, data, door)
    >>> state.round, outcome.arrays["model"].round(2)
    (10, array([[3.]]))
    """
    return go_on(method, topo, ENGINES[engine](data, topo, door), door, begin(method, topo), watch)


class Task(Protocol):
    """What one silo makes of its records before anything else happens.

    >>> class Centred:
    ...     def prepare(self, signals):
    ...         return {"x": signals - signals.mean(0)}
    >>> Centred().prepare(np.array([[1.0], [3.0]]))["x"].ravel()
    array([-1.,  1.])
    """

    def prepare(self, signals: Any) -> Private: ...


def simulate(
    method: Method,
    task: Task,
    signals: Mapping[str, Any],
    mechanism: Noise | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    engine: EngineName = "vector",
    randomness: str = REHEARSAL,
    masks: Masks | None = None,
) -> tuple[Outcome, Door]:
    """Play a whole run in memory; rows of the outcome are in the order of the silos' sorted names.

    `task` prepares the records that `signals` has for every silo's name. With a `mechanism` releases have noise; with a
    `budget` a release beyond it is refused. `seed` makes the run repeatable, and `engine` says how silos are simulated.

    `method` runs over a star. `randomness` is what the ledger says of where the noise is from. `masks` are for methods
    that take secure sums.

    >>> from silograph.methods.graph_federation import GraphFederation
    >>> from silograph.tasks.linear import Linear
    >>> x, task = np.random.default_rng(0).normal(size=(2, 50, 1)), Linear(1, most=50)
    >>> silos = {"north": (x[0], 3.0 * x[0, :, 0]), "south": (x[1], 3.0 * x[1, :, 0])}
    >>> outcome, door = simulate(GraphFederation(task, step=0.5, rounds=10), task, silos)
    >>> outcome.arrays["model"].round(2), len(door.ledger.rows)  # a row for every silo and round
    (array([[3.]]), 20)
    """
    topo = star(list(signals))
    door = Door(seed, Ledger(), mechanism, budget, randomness, masks)
    data = [task.prepare(signals[name]) for name in topo.silos]
    return play(method, topo, data, door, engine=engine)[1], door
