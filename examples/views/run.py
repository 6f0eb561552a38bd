"""Pictures of the same objects by three photographers: which belong together? Communities of the consensus graph."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from worked import NOT_INDEPENDENT, draw, matrix, options, play, read_edges, silograph, tell, write_table

from silograph.data.views import ANGLES, OBJECTS, draw_objects, load_views, view_signals
from silograph.report.figures import layout
from silograph.reproduce.graph_views import agreement, communities

SEED = 0


def main():
    data, out = options(__doc__)
    pixels = load_views(data)
    chosen = draw_objects(len(pixels), SEED)
    names = [f"object_{o + 1}_{k:02d}" for o in chosen for k in range(ANGLES)]
    views = view_signals(pixels, chosen)
    tables = [write_table(out / "tables" / f"{view}.csv", names, signals) for view, signals in views.items()]
    silograph("learn", *tables, "-o", out / "run", "--degree", ANGLES - 1, *NOT_INDEPENDENT)
    truth = np.repeat(np.arange(OBJECTS), ANGLES)
    numbers = {"objects": ", ".join(str(o + 1) for o in chosen)}
    graphs = {"consensus": out / "run/consensus.csv"} | {view: out / f"run/sites/{view}.csv" for view in views}
    for name, path in graphs.items():
        weights = matrix(read_edges(path), names)
        found = communities(weights[np.triu_indices(len(names), 1)], len(names), SEED)
        numbers[f"{name}, communities"] = len(set(found))
        scores = zip(("NMI", "RI", "FMI"), agreement(found, truth), strict=True)
        numbers |= {f"{name}, {metric}": float(score) for metric, score in scores}
    consensus = read_edges(graphs["consensus"])
    spots = layout(names, consensus)
    places = [(spots[name][0], -spots[name][1]) for name in names]
    draw(out / "pictures.svg", names, places, consensus, "Pictures that are alike")
    tell(out, numbers)


if __name__ == "__main__":
    play(main)
