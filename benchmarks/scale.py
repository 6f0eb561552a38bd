"""A round among 1,000 organisations, simulated: python -m benchmarks.scale [--json] [--pictures FOLDER]

The protocol is the one that `silograph serve` and `join` speak, with its own message sizes; its processes are events on
a clock. Every organisation computes, on a machine of its own, and has a line of its own; all numbers of lines and
machines are assumptions, below. What is asked of real processes is in benchmarks/deployment.py.

star   the hub sends a question to everybody, one after the other; everybody computes and answers; answers come in one
       after the other, and the round is over with the last.
graph  of every two servers that are linked, one asks, with its row, and the other answers as soon as it has its own
       (engines/neighbours.py). Who has heard all its neighbours begins the next round: nobody waits for all.

Rounds until servers agree: how often the combination matrix has to be applied until what is left of any difference is
a hundredth, from its second largest eigenvalue. A star has the average after one round.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from silograph.engines.line import FRAME, LARGEST, frame, subject
from silograph.engines.wire import pack
from silograph.topology import metropolis

ORGANISATIONS, ROUNDS, SIGNATURE = 1_000, 200, 73


@dataclass(frozen=True)
class World:
    """Seconds one way between two organisations, bytes a second of an organisation's line, seconds that it computes a
    round: the median, and the deviation of the logarithm."""

    latency: float = 0.02
    line: float = 12.5e6
    computing: float = 0.05
    spread: float = 0.5


def message(numbers: int) -> int:
    """Bytes of a message with so many numbers, in frames, with subject and signature."""
    content = len(pack({"deployment": "d" * 64, "round": 0}, {"row": np.zeros((1, numbers))})) + SIGNATURE
    head = len(frame(b"p", bytes(16))) + len(subject("d" * 64, "organisation", "ask"))
    return content + math.ceil(content / FRAME) * (head + LARGEST - FRAME)


def graphs(count: int) -> dict[str, nx.Graph]:
    side = math.isqrt(count)
    return {
        "ring": nx.cycle_graph(count),
        "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, -(-count // side))).subgraph(range(count)),
        "expander, degree 4": nx.random_regular_graph(4, count, seed=1),
        "expander, degree 16": nx.random_regular_graph(16, count, seed=1),
    }


def star_seconds(count: int, size: int, world: World, rounds: int) -> float:
    """Mean seconds of a round."""
    rng, sending = np.random.default_rng(0), size / world.line
    total = 0.0
    for _ in range(rounds):
        asked = sending * np.arange(1, count + 1) + world.latency
        answers = np.sort(asked + _computed(rng, count, world) + sending + world.latency)
        # the hub's line takes answers one by one: after the k-th of n arrivals at least n - k are still to be taken
        total += float((answers + sending * np.arange(count, 0, -1)).max())
    return total / rounds


def graph_seconds(graph: nx.Graph, size: int, world: World, rounds: int) -> float:
    """Mean seconds of a round, of servers that go on as soon as they have heard their neighbours."""
    asks, answers = np.array(graph.edges, dtype=np.intp).T
    degree = np.bincount(np.concatenate([asks, answers]), minlength=len(graph))
    rng, sending = np.random.default_rng(0), degree * size / world.line  # all its rows leave before the last arrives
    begun = np.zeros(len(graph))
    for _ in range(rounds):
        ready = begun + _computed(rng, len(graph), world)
        question = ready[asks] + sending[asks] + world.latency
        answer = np.maximum(ready[answers], question) + sending[answers] + world.latency
        begun = ready.copy()
        np.maximum.at(begun, answers, question)
        np.maximum.at(begun, asks, answer)
    return float(begun.max()) / rounds


def _computed(rng: np.random.Generator, count: int, world: World) -> NDArray[np.float64]:
    return world.computing * np.exp(world.spread * rng.normal(size=count))


def agreeing(graph: nx.Graph) -> int:
    """Rounds until what is left of any difference between servers is a hundredth."""
    values = np.linalg.eigvalsh(metropolis(nx.to_numpy_array(graph, nodelist=range(len(graph))) > 0))
    return math.ceil(math.log(100.0) / -math.log(max(abs(values[0]), values[-2])))


def rows(count: int = ORGANISATIONS, rounds: int = ROUNDS, world: World | None = None) -> Iterator[dict[str, Any]]:
    world = world or World()
    for numbers in (1_000, 100_000):
        size = message(numbers)
        yield {
            "graph": "star",
            "numbers": numbers,
            "degree": 1,
            "diameter": 2,
            "messages": 2 * count,
            "bytes": 2 * count * size,
            "busiest": 2 * count * size,
            "seconds": star_seconds(count, size, world, rounds),
            "agreeing": 1,
        }
        for name, graph in graphs(count).items():
            links, most = graph.number_of_edges(), max(degree for _, degree in graph.degree)
            yield {
                "graph": name,
                "numbers": numbers,
                "degree": 2 * links / count,
                "diameter": nx.diameter(graph),
                "messages": 2 * links,
                "bytes": 2 * links * size,
                "busiest": 2 * most * size,
                "seconds": graph_seconds(graph, size, world, rounds),
                "agreeing": agreeing(graph),
            }


def pictures(found: list[dict[str, Any]], folder: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "silograph", "font.size": 10, "svg.fonttype": "none"})
    names = list(dict.fromkeys(row["graph"] for row in found))
    wanted = {"seconds": "seconds of a round", "busiest": "bytes a round at the busiest organisation"}
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True)
    for axis, (key, title) in zip(axes, [*wanted.items(), ("all", "seconds until servers agree")], strict=True):
        for shift, numbers in ((-0.2, 1_000), (0.2, 100_000)):
            told = [row for row in found if row["numbers"] == numbers]
            values = [row["seconds"] * row["agreeing"] if key == "all" else row[key] for row in told]
            axis.barh(np.arange(len(names)) + shift, values, 0.38, label=f"{numbers:,} numbers")
        axis.set_xscale("log")
        axis.set_title(title, fontsize=10)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / "scale.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="A round among 1,000 organisations, simulated.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pictures", type=Path, help="folder for scale.svg")
    options = parser.parse_args()
    found = list(rows())
    if options.pictures:
        pictures(found, options.pictures)
    if options.json:
        print(json.dumps({"rows": found}))
        return
    print(
        "| graph | numbers | degree | diameter | messages | MB a round, all | busiest | s a round | rounds to agree |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in found:
        cells = [row["graph"], f"{row['numbers']:,}", f"{row['degree']:.3g}", row["diameter"], f"{row['messages']:,}"]
        cells += [f"{row[key] / 1e6:,.3g}" for key in ("bytes", "busiest")]
        print("| " + " | ".join(map(str, [*cells, f"{row['seconds']:.3g}", f"{row['agreeing']:,}"])) + " |")


if __name__ == "__main__":
    main()
