"""Time of other learners of graphs from smooth signals, run by the python of their own environment:

    .benchmarks/graphs/.venv/bin/python benchmarks/peers/smooth_graphs.py --json FILE

The file holds signals (n, d) and a number theta for some of the peers, whose common problem is, over weights w >= 0,

    2 theta z . w - sum log(degrees) + |w|^2,      z the mean squared differences

graph-structure-learning    the solver of its LogModel, with its own stopping rule
PyGSP2                      graph_log_degree, likewise; its step is made to fit the number of nodes, else it diverges
GraphicalLasso              scikit-learn's: another model, for context

Seconds of CPU, one thread, distances left out; with the objective each one reached.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from graph_learn.smooth_learning import gsp_learn_graph_log_degrees
from pygsp2.graph_learning import graph_log_degree
from scipy.spatial.distance import squareform
from sklearn.covariance import GraphicalLasso
from threadpoolctl import threadpool_limits

REPEATS = {20: 5, 100: 3}


def objective(z: np.ndarray, w: np.ndarray, theta: float) -> float:
    degree = squareform(w).sum(0)
    return float(2.0 * theta * z @ w - np.log(degree).sum() + w @ w) if degree.min() > 0.0 else float("inf")


def timed(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    best, found = float("inf"), None
    for _ in range(repeats):
        begun = time.process_time()
        found = run()
        best = min(best, time.process_time() - begun)
    return best, found


def rows(signals: np.ndarray, theta: float, peers: list[str]) -> Iterator[dict[str, Any]]:
    nodes = signals.shape[1]
    repeats = REPEATS.get(nodes, 1)
    y = signals - signals.mean(1, keepdims=True)
    matrix = (y * y).mean(0) + (y * y).mean(0)[:, None] - 2.0 * y.T @ y / len(y)
    np.fill_diagonal(matrix, 0.0)
    z = squareform(matrix, checks=False)
    if "graph-structure-learning" in peers:
        spent, w = timed(lambda: gsp_learn_graph_log_degrees(theta * z, 1.0, 1.0, edge_tol=0.0), repeats)
        yield {"peer": "graph-structure-learning", "cpu_s": spent, "objective": objective(z, squareform(w), theta)}
    if "PyGSP2" in peers:
        # It divides z by its maximum M: w in units of theta M.
        unit = theta * z.max()
        step = 0.5 / (2.0 / unit**2 + np.sqrt(2.0 * (nodes - 1)))
        spent, w = timed(
            lambda: graph_log_degree(squareform(z), 1.0, 1.0 / unit**2, gamma=step, verbose=False), repeats
        )
        yield {"peer": "PyGSP2", "cpu_s": spent, "objective": objective(z, squareform(w, checks=False) / unit, theta)}
    if "GraphicalLasso" in peers:
        scaled = y / y.std()
        spent, _ = timed(lambda: GraphicalLasso(alpha=0.1).fit(scaled), repeats)
        yield {"peer": "GraphicalLasso", "cpu_s": spent, "objective": None}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given = np.load(sys.argv[-1])
    with threadpool_limits(1):
        print(json.dumps({"rows": list(rows(given["signals"], float(given["theta"]), given["peers"].tolist()))}))
