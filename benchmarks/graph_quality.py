"""How true graphs are, beside other learners: python -m benchmarks.graph_quality [--json] [--seeds N] [--data FOLDER]

Synthetic cells: five sites of 30 nodes, mean degree 5, 70 % of edges shared, half of the seeds with a consensus that
all sites keep and half with one of which each site drops 30 %; Laplacian precision (gmrf) or the papers' smooth signals
with noise (pinv); 50, 200 and 1000 rows. F-score of sites and of the consensus at the true number of edges, peers
ranked by their positive partial correlations, which helps them; average precision; F-score of the edges that each one
selects; truths with signs, ranked by absolute value; CPU time of everything, peers with cross-validation.

Real data, if FOLDER holds it: at degree 6, log-likelihood of held-out rows per node, of peers as they are and refitted
on their edges, whichever is better; squared error of a node hidden from held-out rows; F-score between the edges of
both halves. Seeds start at 2000; nothing was tuned on them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import CACHE, JOINT, answer, environment
from silograph.kernels.support_likelihood import fit
from silograph.methods.joint_graphs import JointGraphs
from silograph.methods.moments_once import JointLearner

NODES, SITES, DEGREE, SHARED = 30, 5, 5, 0.7
KINDS, SIGNALS, ROWS = ("geometric", "Erdos-Renyi", "block"), ("gmrf", "pinv", "signed"), (50, 200, 1000)
FIRST_SEED, REAL_DEGREE, DUST = 2000, 6, 1e-6
A, B = np.triu_indices(NODES, 1)

World = tuple[np.ndarray, np.ndarray, list[np.ndarray]]  # weights (sites, p), consensus (p,), tables


# ---- synthetic cells -------------------------------------------------------------------------------------------------


def base_graph(rng: np.random.Generator, kind: str) -> np.ndarray:
    """The edges of a graph with the wanted mean degree."""
    if kind == "geometric":
        places = rng.random((NODES, 2))
        score = -((places[A] - places[B]) ** 2).sum(1)
    else:
        block = np.arange(NODES) * 3 // NODES
        score = rng.random(len(A)) + 0.75 * ((block[A] == block[B]) & (kind == "block"))
    edges = np.zeros(len(A), dtype=bool)
    edges[np.argsort(-score)[: NODES * DEGREE // 2]] = True
    return edges


def connected(edges: np.ndarray) -> bool:
    reach = np.eye(NODES, dtype=bool)
    reach[A[edges], B[edges]] = reach[B[edges], A[edges]] = True
    return bool(np.linalg.matrix_power(reach.astype(float), NODES - 1)[0].all())


def world(kind: str, signal: str, rows: int, seed: int) -> World:
    rng = np.random.default_rng([seed, KINDS.index(kind), SIGNALS.index(signal), rows])
    drops = seed % 2 == 1  # each site drops edges of its own
    while True:
        base = base_graph(rng, kind)
        number, weight = int(base.sum()), rng.uniform(0.5, 1.5, len(A))
        lost = number - round(SHARED * number)
        consensus = base.copy()
        if not drops:
            consensus[rng.choice(np.flatnonzero(base), lost, replace=False)] = False
        weights = np.zeros((SITES, len(A)))
        for row in weights:
            kept = consensus.copy()
            if drops:
                kept[rng.choice(np.flatnonzero(base), lost, replace=False)] = False
            own = rng.choice(np.flatnonzero(~(kept | (base & drops))), lost, replace=False)
            row[kept], row[own] = weight[kept], rng.uniform(0.5, 1.5, lost)
        if all(connected(row > 0.0) for row in weights):
            break
    if signal == "signed":
        weights *= np.where(rng.random(len(A)) < 0.5, -1.0, 1.0)
    return weights, consensus, [rows_of(rng, row, signal, rows) for row in weights]


def rows_of(rng: np.random.Generator, weights: np.ndarray, signal: str, rows: int) -> np.ndarray:
    nodes = nodes_of(weights)
    a, b = np.triu_indices(nodes, 1)
    matrix = np.zeros((nodes, nodes))
    matrix[a, b] = matrix[b, a] = -weights
    degree = np.abs(matrix).sum(0)
    matrix += np.diag(degree)
    if signal == "pinv":
        covariance = np.linalg.pinv(matrix) + 0.01 * np.eye(nodes)
    else:
        covariance = np.linalg.inv(matrix + 0.1 * degree.mean() * np.eye(nodes))
    return rng.multivariate_normal(np.zeros(nodes), covariance, rows, method="eigh")


def nodes_of(weights: np.ndarray) -> int:
    """Of a graph with a weight for each pair."""
    return int((1 + np.sqrt(1 + 8 * weights.shape[-1])) / 2)


def at_true_number(score: np.ndarray, truth: np.ndarray) -> float:
    return float(truth[np.argsort(-score, kind="stable")[: truth.sum()]].mean())


def average_precision(score: np.ndarray, truth: np.ndarray) -> float:
    hits = truth[np.argsort(-score, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def f_score(found: np.ndarray, truth: np.ndarray) -> float:
    return float(2.0 * (found & truth).sum() / max(found.sum() + truth.sum(), 1))


def measured(sites: np.ndarray, shared: np.ndarray, chosen: np.ndarray, case: World) -> dict[str, float]:
    """`sites` and `shared` rank edges, `chosen` are those that the learner selected."""
    truth, consensus = case[0] != 0.0, case[1]
    every = range(len(truth))
    return {
        "F of sites": float(np.mean([at_true_number(sites[k], truth[k]) for k in every])),
        "F of the consensus": at_true_number(shared, consensus),
        "average precision": float(np.mean([average_precision(sites[k], truth[k]) for k in every])),
        "F of edges selected": float(np.mean([f_score(chosen[k], truth[k]) for k in every])),
    }


def partial(precision: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(np.einsum("kaa->ka", precision))
    a, b = np.triu_indices(precision.shape[-1], 1)
    return -precision[:, a, b] / (deviation[:, a] * deviation[:, b])


def ours(tables: list[np.ndarray], degree: float | None = None) -> tuple[JointGraphs, float]:
    """Learned from moments, with the CPU seconds of all of it, moments too."""
    begun = time.process_time()
    moments = np.array([np.cov(table.T, bias=True) for table in tables])
    parts = [np.array_split(table, 4) for table in tables] if degree else []
    folds = np.array([[np.cov(part.T, bias=True) for part in each] for each in parts]) if parts else None
    counts = np.array([float(len(table)) for table in tables])
    learned = JointLearner(degree=degree).learn(moments, counts, folds)
    return learned, time.process_time() - begun


def asked(python: Path | None, worlds: dict[str, list[np.ndarray]], edges: float) -> tuple[Any, dict[str, float]]:
    """What peers learn from worlds, with CPU seconds; nothing without their environment. They take hours, so answers
    are kept: delete them to have peers learn again."""
    precisions, seconds = {}, {}
    files = {name: kept(tables, edges) for name, tables in worlds.items()}
    missing = {name: tables for name, tables in worlds.items() if not files[name].exists()}
    if missing and python is not None:
        with tempfile.TemporaryDirectory() as folder:
            given, found, one = (Path(folder, f"{part}.npz") for part in ("in", "out", "one"))
            arrays = {f"{name}.{k}": table for name, tables in missing.items() for k, table in enumerate(tables)}
            np.savez(given, **arrays, **{f"{name}.edges": np.array(edges) for name in missing})
            spent = answer(python, "joint_graphs.py", given, found)["seconds"]
            with np.load(found) as stored:
                for name in missing:
                    mine = {key.partition(".")[2]: stored[key] for key in stored.files if key.startswith(f"{name}.")}
                    np.savez(one, **mine, seconds=json.dumps({peer: spent[f"{name}.{peer}"] for peer in mine}))
                    shutil.move(one, files[name])
    for name in worlds if python is not None else ():
        with np.load(files[name]) as stored:
            precisions |= {f"{name}.{peer}": stored[peer] for peer in stored.files if peer != "seconds"}
            seconds |= {f"{name}.{peer}": spent for peer, spent in json.loads(str(stored["seconds"])).items()}
    return precisions, seconds


def kept(tables: list[np.ndarray], edges: float) -> Path:
    question = hashlib.sha256(b"".join(table.tobytes() for table in (*tables, np.array(edges))))
    return CACHE / "joint" / f"{question.hexdigest()[:16]}.npz"


def synthetic(python: Path | None, seeds: int) -> Iterator[dict[str, Any]]:
    ours([np.random.default_rng(k).standard_normal((40, 6)) for k in range(2)])  # compiled
    for signal in SIGNALS:
        for kind in KINDS:
            for rows in ROWS:
                cases = {f"{seed}": world(kind, signal, rows, FIRST_SEED + seed) for seed in range(seeds)}
                precisions, seconds = asked(python, {name: case[2] for name, case in cases.items()}, -1.0)
                scores: dict[str, list[dict[str, float]]] = defaultdict(list)
                for name, case in cases.items():
                    learned, spent = ours(case[2])
                    found = measured(learned.probability, learned.shared, learned.signs != 0, case)
                    scores["ours"].append(found | {"CPU": spent})
                    for key in (key for key in precisions if key.startswith(f"{name}.")):
                        strength = partial(precisions[key])
                        ranked = np.abs(strength) if signal == "signed" else strength
                        found = measured(ranked, ranked.mean(0), np.abs(strength) > DUST, case)
                        scores[key.partition(".")[2]].append(found | {"CPU": seconds[key]})
                yield from compared(f"{signal}, {kind}, {rows} rows", scores)


def summary(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Ours and the best peer of each cell, without signs: means by rows a site, and the mean of these.

    A cell that no peer answered in all its worlds is left out.
    """
    for measure in ("F of sites", "F of the consensus"):
        means = []
        for count in ROWS:
            cells: dict[str, tuple[float, float]] = {}
            for row in rows:
                whole = row["theirs"] is not None and not row["peer"].endswith("in time)")
                if (
                    whole
                    and row["case"].endswith(f", {count} rows, {measure}")
                    and not row["case"].startswith("signed")
                ):
                    best = max(row["theirs"], cells.get(row["case"], (0.0, 0.0))[1])
                    cells[row["case"]] = row["ours"], best
            if cells:
                means.append(np.mean(list(cells.values()), axis=0))
                yield _mean(f"mean of {len(cells)} cells, {count} rows, {measure}", *means[-1])
        if means:
            yield _mean(f"mean of all, {measure}", *np.mean(means, axis=0))


def _mean(case: str, best: float, theirs: float) -> dict[str, Any]:
    told = {"ours": float(best), "theirs": float(theirs), "ratio": float(best / theirs), "unit": "F-score"}
    return {"case": case, "peer": "the best in each cell", **told}


def compared(case: str, scores: dict[str, list[dict[str, float]]]) -> Iterator[dict[str, Any]]:
    """A row for every measure and peer; ratios above 1 are in our favour, those of likelihoods are of a node's."""
    mean = {who: {name: float(np.mean([each[name] for each in of])) for name in of[0]} for who, of in scores.items()}
    for peer in [peer for peer in mean if peer != "ours"] or [None]:
        for name, best in mean["ours"].items():
            row: dict[str, Any] = {"case": f"{case}, {name}", "ours": best, "peer": peer, "theirs": None, "ratio": None}
            if peer is not None:
                theirs, answers = mean[peer][name], len(scores[peer])
                ratio = theirs / best if name in ("CPU", "masked-node error") else best / theirs
                if name == "held-out log-likelihood":
                    ratio = math.exp(best - theirs)
                late = "" if answers == len(scores["ours"]) else f" ({answers} of {len(scores['ours'])} in time)"
                row |= {"peer": f"{peer}{late}", "theirs": theirs, "ratio": ratio}
            unit = {"CPU": "s", "held-out log-likelihood": "nats a node", "masked-node error": "of the variance"}
            yield row | {"unit": unit.get(name, "F-score")}


# ---- real data -------------------------------------------------------------------------------------------------------


def real_sets(folder: Path) -> Iterator[tuple[str, list[tuple[np.ndarray, np.ndarray]]]]:
    """Names, and of every site two halves: blocks of rows that follow each other go to one half."""

    def halves(table: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
        first = (np.arange(len(table)) // block) % 2 == 0
        return table[first].astype(float), table[~first].astype(float)

    if (path := folder / "us_stations" / "us_stations_daily_temp.npz").exists():
        years = np.load(path)["temp_f"].reshape(5, 365, 225)
        yield "weather, 5 years, 45 stations", [halves(year, 15) for year in (years - years.mean(0))[:, :, ::5]]
    if (path := folder / "molene" / "molene_temperature.npz").exists():
        hourly = np.diff(np.load(path)["temp_k"].T.astype(float), axis=0)
        yield "Molene, 4 weeks, 37 stations", [halves(week, 12) for week in np.array_split(hourly, 4)]
    if (path := folder / "abide" / "abide_um_aal116.npz").exists():
        people = np.load(path)["X"][:8, :, :34]
        yield "ABIDE, 8 persons, 34 regions", [halves(person, 148) for person in people]
    if (path := folder / "metr_la_week" / "metr_la_week.npz").exists():
        days = np.load(path)["speed_mph"].reshape(7, 288, 207)[:, :, ::6]
        days = days + np.random.default_rng(0).standard_normal(days.shape)  # whole numbers stand still at night
        yield "traffic, 7 days, 35 sensors", [halves(day, 12) for day in days]


def real(python: Path | None, folder: Path) -> Iterator[dict[str, Any]]:
    for name, halves in real_sets(folder):
        nodes = halves[0][0].shape[1]
        a, b = np.triu_indices(nodes, 1)
        sides = {"first": [half[0] for half in halves], "second": [half[1] for half in halves]}
        precisions, seconds = asked(python, sides, REAL_DEGREE * nodes / 2.0)
        learned = {side: ours(tables, REAL_DEGREE) for side, tables in sides.items()}
        found: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
        spent: dict[str, float] = {"ours": sum(each[1] for each in learned.values())}
        for side, (graphs, _) in learned.items():
            deviation = np.array([table.std(0) for table in sides[side]])
            found["ours"][side] = graphs.precision * deviation[:, :, None] * deviation[:, None, :]
        for key, precision in precisions.items():
            side, _, peer = key.partition(".")
            found[peer][side] = precision
            spent[peer] = spent.get(peer, 0.0) + seconds[key]
        scores = {}
        for who, both in found.items():
            options = [both]
            if who != "ours":
                options.append({side: refitted(precision, sides[side]) for side, precision in both.items()})
            fits = [held_out(option, sides) for option in options]
            best = int(np.argmax([each[0] for each in fits]))
            edges = [np.abs(both[side][:, a, b]) > DUST for side in sides]
            scores[who] = [
                {
                    "held-out log-likelihood": fits[best][0],
                    "masked-node error": min(each[1] for each in fits),
                    "F between halves": float(np.mean([f_score(x, y) for x, y in zip(*edges, strict=True)])),
                    "CPU": spent[who],
                }
            ]
        yield from compared(f"{name}, degree {REAL_DEGREE}", scores)


def refitted(precision: np.ndarray, tables: list[np.ndarray]) -> np.ndarray:
    correlations = np.array([np.corrcoef(table.T) for table in tables])
    return fit(0.99 * correlations + 0.01 * np.eye(len(precision[0])), np.abs(precision) > DUST).precision


def held_out(precision: dict[str, np.ndarray], sides: dict[str, list[np.ndarray]]) -> tuple[float, float]:
    """Of each half under what the other one gave: log-likelihood a node less its constant, and the squared error of a
    node predicted from all others."""
    fits, errors = [], []
    for side, other in (("first", "second"), ("second", "first")):
        for matrix, mine, table in zip(precision[side], sides[side], sides[other], strict=True):
            rows = (table - mine.mean(0)) / mine.std(0)
            moment = rows.T @ rows / len(rows)
            fits.append(0.5 * (np.linalg.slogdet(matrix)[1] - (moment * matrix).sum()) / len(matrix))
            missed = rows @ matrix / np.diag(matrix)
            errors.append((missed**2).mean() / (rows**2).mean())
    return float(np.mean(fits)), float(np.mean(errors))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    python = environment("joint", JOINT)
    rows: list[dict[str, Any]] = []
    for row in chain(chain.from_iterable(parts(python, given)), summary(rows)):  # read when all others are there
        rows.append(row)
        if not given.json:
            beside = "" if row["peer"] is None else f"   {row['peer']} {row['theirs']:.3f}"
            print(f"{row['case']:>60}  {row['ours']:.3f} {row['unit']}{beside}", flush=True)
    if given.json:
        print(json.dumps({"rows": rows}))


def parts(python: Path | None, given: argparse.Namespace) -> Iterator[Iterator[dict[str, Any]]]:
    if given.seeds:
        yield synthetic(python, given.seeds)
    if given.data:
        yield real(python, given.data)


if __name__ == "__main__":
    main()
