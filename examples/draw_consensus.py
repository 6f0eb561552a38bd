"""Draw a run folder's consensus graph as a stand-alone SVG: python examples/draw_consensus.py demo/open picture.svg"""

import csv
import json
import sys
from pathlib import Path

from silograph.report.figures import graph_svg

if len(sys.argv) != 3 or not (Path(sys.argv[1]) / "consensus.csv").is_file():
    sys.exit("usage: draw_consensus.py FOLDER PICTURE, the folder being that of a finished run with a consensus graph")
folder, picture = map(Path, sys.argv[1:])
nodes = json.loads((folder / "result.json").read_text())["nodes"]
with open(folder / "consensus.csv", newline="") as file:
    edges = [(row["source"], row["target"], float(row["weight"])) for row in csv.DictReader(file)]
picture.write_text(graph_svg(nodes, edges, label="Consensus graph", names=True))
