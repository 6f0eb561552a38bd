"""Precision matrices of other joint learners, run by the python of their own environment:

    .benchmarks/joint/.venv/bin/python benchmarks/peers/joint_graphs.py --json IN OUT

IN holds tables `NAME.SITE` (rows, nodes) of many worlds, and for each world the mean number of edges a site should get,
or -1: then each peer chooses by three-fold cross-validation, as its users do. OUT receives `NAME.PEER`, arrays (sites,
nodes, nodes) for tables scaled to variance 1; printed are CPU seconds by world and peer. A peer that has not answered
after PATIENCE seconds of a world is not waited for.

gglasso group, gglasso fused    ADMM_MGL over a grid of 5 x 3 penalties
nilearn                         GroupSparseCovarianceCV
pooled graphical lasso          scikit-learn's, of all rows together
Ledoit-Wolf                     each site's shrunk covariance, inverted: no edges of its own
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from gglasso.solver.admm_solver import ADMM_MGL
from nilearn.connectome import GroupSparseCovariance, GroupSparseCovarianceCV
from sklearn.covariance import GraphicalLassoCV, graphical_lasso, ledoit_wolf

FOLDS, RATIOS = 3, (0.1, 0.5, 1.5)
DUST, PATIENCE = 1e-6, 20.0


def gglasso(moments: np.ndarray, lam: float, ratio: float, kind: str, start: np.ndarray, fine: bool) -> dict:
    limits = {"tol": 1e-6, "rtol": 1e-5, "max_iter": 2000} if fine else {"tol": 1e-4, "rtol": 1e-3, "max_iter": 300}
    return ADMM_MGL(moments, lam, lam * ratio, kind, start, **limits)[0]


def cross_validated(tables: list[np.ndarray], kind: str) -> np.ndarray:
    sites, nodes = len(tables), tables[0].shape[1]
    fold = [np.random.default_rng(0).permutation(len(table)) % FOLDS for table in tables]
    pairs = list(zip(tables, fold, strict=True))
    learn = [np.array([np.cov(t[f != k].T, bias=True) for t, f in pairs]) for k in range(FOLDS)]
    held = [np.array([t[f == k].T @ t[f == k] / (f == k).sum() for t, f in pairs]) for k in range(FOLDS)]
    start, scores = np.tile(np.eye(nodes), (sites, 1, 1)), {}
    for ratio in RATIOS:
        warm = [start] * FOLDS
        for lam in np.sqrt(np.log(nodes) / min(map(len, tables))) * np.array([1.6, 0.8, 0.4, 0.2, 0.1]):
            scores[lam, ratio] = 0.0
            for k in range(FOLDS):
                warm[k] = gglasso(learn[k], lam, ratio, kind, warm[k], False)["Omega"]
                fit = np.linalg.slogdet(warm[k])[1] - np.einsum("kab,kab->k", held[k], warm[k])
                scores[lam, ratio] += fit.mean()
    moments = np.array([np.cov(table.T, bias=True) for table in tables])
    return gglasso(moments, *max(scores, key=scores.get), kind, start, True)["Theta"]


def with_edges(learn: Callable[[float], np.ndarray], wanted: float) -> np.ndarray:
    """The penalty at which sites have about so many edges in the mean."""
    low, high, best = np.log(0.005), np.log(1.5), (np.inf, np.empty(0))
    for _ in range(9):
        found = learn(float(np.exp(0.5 * (low + high))))
        edges = np.mean([(np.abs(np.triu(each, 1)) > DUST).sum() for each in found])
        best = min(best, (abs(edges - wanted), found), key=lambda pair: pair[0])
        low, high = (0.5 * (low + high), high) if edges > wanted else (low, 0.5 * (low + high))
    return best[1]


def peers(tables: list[np.ndarray], wanted: float) -> dict[str, Callable[[], np.ndarray]]:
    sites, nodes = len(tables), tables[0].shape[1]
    together = np.concatenate(tables)
    if wanted < 0:
        return {
            "gglasso group": lambda: cross_validated(tables, "GGL"),
            "gglasso fused": lambda: cross_validated(tables, "FGL"),
            "nilearn": lambda: np.moveaxis(
                GroupSparseCovarianceCV(cv=FOLDS, max_iter=30).fit(tables).precisions_, -1, 0
            ),
            "pooled graphical lasso": lambda: np.tile(
                GraphicalLassoCV(cv=FOLDS).fit(together).precision_, (sites, 1, 1)
            ),
            "Ledoit-Wolf": lambda: np.array([np.linalg.inv(ledoit_wolf(table)[0]) for table in tables]),
        }
    moments = np.array([np.cov(table.T, bias=True) for table in tables])
    start, pooled = np.tile(np.eye(nodes), (sites, 1, 1)), np.cov(together.T, bias=True)

    def joint(kind: str) -> np.ndarray:
        return with_edges(lambda lam: gglasso(moments, lam, 0.5, kind, start, True)["Theta"], wanted)

    def nilearn(alpha: float) -> np.ndarray:
        return np.moveaxis(GroupSparseCovariance(alpha, max_iter=30).fit(tables).precisions_, -1, 0)

    return {
        "gglasso group": lambda: joint("GGL"),
        "gglasso fused": lambda: joint("FGL"),
        "nilearn": lambda: with_edges(nilearn, wanted),
        "pooled graphical lasso": lambda: with_edges(
            lambda lam: np.tile(graphical_lasso(pooled, lam, max_iter=200)[1], (sites, 1, 1)), wanted
        ),
    }


def too_long(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGPROF, too_long)
    given, out, seconds = np.load(sys.argv[-2]), {}, {}
    small = np.tile(np.eye(3), (2, 1, 1))
    with contextlib.redirect_stdout(io.StringIO()):  # compiles, which is not counted
        for kind in ("GGL", "FGL"):
            gglasso(small, 0.1, 0.5, kind, small, False)
    for name in sorted({key.split(".")[0] for key in given.files}):
        tables = [given[f"{name}.{k}"] for k in range(sum(key.startswith(f"{name}.") for key in given.files) - 1)]
        tables = [(table - table.mean(0)) / table.std(0) for table in tables]
        for peer, learn in peers(tables, float(given[f"{name}.edges"])).items():
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, PATIENCE)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(TimeoutError):
                out[f"{name}.{peer}"] = learn()
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            seconds[f"{name}.{peer}"] = time.process_time() - begun
    np.savez(sys.argv[-1], **out)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
