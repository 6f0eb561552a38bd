"""Road detectors that slow down together: a graph for every day, one for the week, and the roads to check it with."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from worked import NOT_INDEPENDENT, draw, matrix, options, play, read_edges, silograph, tell, write_places, write_table

from silograph.data.sensors import load_traffic
from silograph.report.figures import layout

DAYS = 7


def along_roads(edges, names, roads):
    """How many edges join detectors that are near by road, and how many such pairs they find."""
    there = np.triu(matrix(edges, names) > 0, 1)
    joined = np.triu(roads + roads.T, 1) > 0
    return {
        "edges": int(there.sum()),
        "share along roads": float(joined[there].mean()),
        "of the pairs along roads": float(there[joined].mean()),
    }


def main():
    data, out = options(__doc__)
    traffic = load_traffic(data)
    days = {f"day_{k + 1}": rows for k, rows in enumerate(np.array_split(traffic.readings, DAYS))}
    tables = [write_table(out / "tables" / f"{day}.csv", traffic.names, rows) for day, rows in days.items()]
    places, words = traffic.places, []
    if places is None and traffic.roads is not None:  # no map: lay the detectors out along the roads
        near = np.argwhere(np.triu(traffic.roads + traffic.roads.T, 1) > 0)
        spots = layout(traffic.names, [(traffic.names[a], traffic.names[b], 1.0) for a, b in near])
        places = np.array([spots[name] for name in traffic.names])
    if places is not None:
        words = ["--coordinates", write_places(out / "places.csv", traffic.names, places)]
    silograph("learn", *tables, "-o", out / "run", "--standardise", *NOT_INDEPENDENT, *words)
    consensus = read_edges(out / "run/consensus.csv")
    if places is not None:
        draw(out / "map.svg", traffic.names, places, consensus, "Detectors that slow down together")
    numbers = {}
    if traffic.roads is not None:
        joined = np.triu(traffic.roads + traffic.roads.T, 1) > 0
        pairs = len(traffic.names) * (len(traffic.names) - 1) // 2
        numbers["all pairs, share along roads"] = float(joined.sum() / pairs)
        graphs = {"consensus": consensus} | {day: read_edges(out / f"run/sites/{day}.csv") for day in days}
        for name, edges in graphs.items():
            found = along_roads(edges, traffic.names, traffic.roads)
            numbers |= {f"{name}, {what}": value for what, value in found.items()}
        shared = {frozenset(edge[:2]) for edge in consensus}
        special = [edge for day in days for edge in graphs[day] if frozenset(edge[:2]) not in shared]
        where = {name: k for k, name in enumerate(traffic.names)}
        on_roads = [joined[min(ends), max(ends)] for ends in ([where[a], where[b]] for a, b, _ in special)]
        numbers["edges that only days have, share along roads"] = float(np.mean(on_roads))
    tell(out, numbers)


if __name__ == "__main__":
    play(main)
