"""Private graphs of columns in many units, and of sites with levels of their own: python -m benchmarks.private_units

Six sites, 12 nodes, Gaussian rows, a third of the edges negative; units over five orders of magnitude, means up to
100 spreads from 0. F-score of the consensus' edges, means over seeds, of one release a site, with public scale (the
true centres and spreads), private scale, and columns as they are; the number of edges is the true one.

The same where all columns have one unit and vary around 0: private scale beside `--scale none`.

Then sites with 400 to 1200 rows and levels apart by a share of each column's spread, at epsilon 4, the number of edges
being chosen; a secure sum with public scale beside them. Nothing was chosen on these seeds.

Last, which share of a consensus' edges is right by its effective rows: 20 nodes, the number of edges being chosen.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from silograph import ConsensusGraph
from silograph.core.errors import InputError

FIRST_SEED, SEEDS, SITES, NODES = 8600, 5, 6, 12
ROWS, EPSILONS, APART, LEVEL_EPSILON = (300, 1000, 3000), (1.0, 2.0, 4.0), (0.0, 0.15, 0.3, 0.6), 4.0
ONE_UNIT_ROWS = 1000
MORE_NODES, RIGHT = 20, ((400, 1.0), (400, 2.0), (1000, 1.0), (400, 4.0), (1000, 2.0), (1000, 4.0), (3000, 4.0))

World = tuple[np.ndarray, list[pd.DataFrame], pd.DataFrame]  # true edges, tables, centres and spreads


def world(seed: int, rows: list[int], apart: float = 0.0, one_unit: bool = False, nodes: int = NODES) -> World:
    rng, names = np.random.default_rng(seed), [f"node {k}" for k in range(nodes)]
    joined = np.triu(rng.random((nodes, nodes)) < 1.5 * 2.0 / nodes, 1)
    matrix = np.where(joined, rng.uniform(0.5, 1.5, joined.shape) * rng.choice([1.0, 1.0, -1.0], joined.shape), 0.0)
    matrix = -(matrix + matrix.T)
    degree = np.abs(matrix).sum(0)
    covariance = np.linalg.inv(matrix + np.diag(degree + 0.3 * degree.mean()))
    deviation = np.sqrt(np.diag(covariance))
    unit, centre = 10.0 ** rng.uniform(-2.5, 2.5, nodes), rng.uniform(-100.0, 100.0, nodes)
    if one_unit:
        unit, centre = np.ones(nodes), np.zeros(nodes)
    tables = []
    for count in rows:
        signals = rng.multivariate_normal(np.zeros(nodes), covariance, count) / deviation
        level = apart * rng.standard_normal(nodes)
        tables.append(pd.DataFrame(unit * (centre + level + signals), columns=names))
    return joined, tables, pd.DataFrame({"column": names, "centre": unit * centre, "spread": unit})


def learned(of: World, **settings: Any) -> ConsensusGraph | None:
    """None if silograph refuses the run."""
    _, tables, scale = of
    with tempfile.TemporaryDirectory() as folder:
        if settings["scale"] == "public":
            settings["scale"] = str(Path(folder, "scale.csv"))
            scale.to_csv(settings["scale"], index=False)
        try:
            return ConsensusGraph(random_state=1, **settings).fit(tables)
        except InputError:
            return None


def scored(of: World, **settings: Any) -> float | None:
    """F-score of the consensus' edges."""
    model, joined = learned(of, **settings), of[0]
    if model is None:
        return None
    found = np.triu(model.consensus_ != 0.0, 1)
    return float(2.0 * (found & joined).sum() / max(found.sum() + joined.sum(), 1))


def row(case: str, values: list[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    case += f" ({len(known)} of {len(values)}, others refused)" if 0 < len(known) < len(values) else ""
    return {"case": case, "ours": float(np.mean(known)) if known else None, "unit": "F-score"}


def units(seeds: int) -> Iterator[dict[str, Any]]:
    for rows in ROWS:
        worlds = [world(seed, [rows] * SITES) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
        for epsilon in EPSILONS:
            for scale in ("public", "private", "none"):
                found = [scored(of, scale=scale, epsilon=epsilon, edges=int(of[0].sum())) for of in worlds]
                yield row(f"{rows} rows, epsilon {epsilon:g}, {scale} scale", found)


def one_unit(seeds: int) -> Iterator[dict[str, Any]]:
    worlds = [world(seed, [ONE_UNIT_ROWS] * SITES, one_unit=True) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
    for epsilon in EPSILONS:
        for scale in ("private", "none"):
            found = [scored(of, scale=scale, epsilon=epsilon, edges=int(of[0].sum())) for of in worlds]
            yield row(f"one unit, {ONE_UNIT_ROWS} rows, epsilon {epsilon:g}, {scale} scale", found)


def levels(seeds: int) -> Iterator[dict[str, Any]]:
    counts = np.linspace(400, 1200, SITES).astype(int).tolist()
    for apart in APART:
        worlds = [world(seed, counts, apart) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
        for scale, mode in (("private", "one-release"), ("public", "one-release"), ("public", "secure-sum")):
            found = [scored(of, scale=scale, epsilon=LEVEL_EPSILON, mode=mode) for of in worlds]
            yield row(f"levels {apart:g} spreads apart, {scale} scale, {mode}", found)


def right(seeds: int) -> Iterator[dict[str, Any]]:
    for rows, epsilon in RIGHT:
        worlds = [world(seed, [rows] * SITES, nodes=MORE_NODES) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
        models = [(of[0], learned(of, scale="public", epsilon=epsilon)) for of in worlds]
        each = [(joined, model.consensus_ != 0.0, model) for joined, model in models if model is not None]
        effective = np.mean([model.consensus_effective_rows_ for *_, model in each])
        share = np.mean([(joined & found).sum() / max(np.triu(found, 1).sum(), 1) for joined, found, _ in each])
        case = f"{MORE_NODES} nodes, {rows} rows, epsilon {epsilon:g}, public scale: {effective:.0f} effective rows"
        yield {"case": case, "ours": float(share), "unit": "of its edges right"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    rows = []
    for each in chain(units(given.seeds), one_unit(given.seeds), levels(given.seeds), right(given.seeds)):
        rows.append(each)
        if not given.json:
            value = "refused" if each["ours"] is None else f"{each['ours']:.3f} {each['unit']}"
            print(f"{each['case']:>70}  {value}", flush=True)
    if given.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
