"""What the worked examples share: their options, tables on disk, the command they run, and pictures."""

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np

from silograph.cli import app
from silograph.core.errors import SilographError
from silograph.data.coordinates import Coordinates
from silograph.report.figures import graph_svg

# Readings of one hour are like those of the next, and pixels like their neighbours. Drawn again as if they were
# independent they would make every edge look surer than it is, so the examples do without.
NOT_INDEPENDENT = ("--resamples", 0)


def options(about):
    """Where the data sets are, and where everything goes."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets, as the README says")
    parser.add_argument("-o", "--out", type=Path, required=True, help="a new folder for tables, runs and pictures")
    given = parser.parse_args()
    if given.out.exists() and (not given.out.is_dir() or any(given.out.iterdir())):
        parser.error(f"{given.out} is there already")
    given.out.mkdir(parents=True, exist_ok=True)
    return given.data, given.out


def play(main):
    """Run a script; what is wrong with its input is one line, not a traceback."""
    try:
        main()
    except SilographError as problem:
        sys.exit(str(problem))


def write_table(path, names, rows, person=None):
    """One silo's table: a column a node, and if told whose each row is, a column person."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, *(["person"] if person is not None else [])])
        for k, row in enumerate(rows):
            writer.writerow([*(f"{value:.6g}" for value in row), *([person[k]] if person is not None else [])])
    return path


def write_places(path, names, places):
    path.write_bytes(Coordinates(tuple(names), np.asarray(places, float)).to_csv())
    return path


def silograph(*words):
    """Run the command, having said it."""
    words = [str(word) for word in words]
    last = words.index("-o")
    shown = [*words[:3], f"... ({last - 3} more)", *words[last:]] if last > 9 else words
    print("\n$ silograph", *shown, flush=True)
    app(words, standalone_mode=False)


def read_edges(path):
    with open(path, newline="") as file:
        return [(row["source"], row["target"], float(row["weight"])) for row in csv.DictReader(file)]


def matrix(edges, names):
    """The weights of a graph's edges as a square array."""
    position = {name: k for k, name in enumerate(names)}
    weights = np.zeros((len(names), len(names)))
    for source, target, weight in edges:
        a, b = position[source], position[target]
        weights[a, b] = weights[b, a] = weight
    return weights


def draw(path, names, places, edges, label):
    """Edges over the places of the nodes, north up."""
    flat = np.asarray(places, float)[:, :2] * [1, -1]
    size = np.ptp(flat, axis=0)
    unit = (flat - flat.min(0)) / size
    spots = {name: (float(x), float(y)) for name, (x, y) in zip(names, unit, strict=True)}
    width = 900
    height = int(np.clip(width * size[1] / size[0], 300, 640))
    path.write_text(graph_svg(names, edges, places=spots, label=label, size=(width, height), names=False))
    print(f"picture: {path}")


def tell(out, numbers):
    """What came out, for people and for machines."""
    print()
    for name, value in numbers.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    (out / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")
