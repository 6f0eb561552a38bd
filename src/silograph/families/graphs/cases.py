"""Small plans of every way to learn graphs, for the contract suite."""

from __future__ import annotations

from pathlib import Path

from silograph.core.types import Json
from silograph.families.samples import write_table

SITES, NODES, SIGNALS = ("ada", "bob", "cyd", "dan", "eve"), 8, 400
LACKS = {"bob": (1, 5), "cyd": (6,)}
PERSONS, ROWS = 40, 10  # who vote; every second one is ill
_PAPER: Json = {"solver": "paper", "beta": 0.05, "nu": 3.0, "lambda": 0.05, "rounds": 4}
_BUDGET: Json = {"epsilon": 3.0, "delta": 1e-5}


def cases(folder: Path, seed: int) -> dict[str, Json]:
    import numpy as np  # what a command line that plays no case need not wait for

    rng, header = np.random.default_rng(seed), [f"n{k}" for k in range(NODES)]
    for site in SITES:
        signals = rng.normal(size=(SIGNALS, NODES)).cumsum(1).tolist()
        write_table(folder / f"{site}.csv", header, signals)
        persons = [[f"p{k % (SIGNALS // 2)}", *signal] for k, signal in enumerate(signals)]
        write_table(folder / f"{site}_people.csv", ["who", *header], persons)
        rows = [[f"p{k // ROWS}", *signal] for k, signal in enumerate(signals[: PERSONS * ROWS])]
        write_table(folder / f"{site}_series.csv", ["who", *header], rows)
        grouped = [[who, "ill" if k % 20 < 10 else "well", *signal] for k, (who, *signal) in enumerate(rows)]
        write_table(folder / f"{site}_groups.csv", ["who", "dx", *header], grouped)
        gaps = [["" if (n + 3 * k) % 7 < 2 else x for k, x in enumerate(row)] for n, row in enumerate(signals)]
        write_table(folder / f"{site}_gaps.csv", header, gaps)
        own = [k for k in range(NODES) if k not in LACKS.get(site, ())]
        write_table(folder / f"{site}_unlike.csv", [header[k] for k in own], [[row[k] for k in own] for row in signals])
    places = [[name, float(k), 0.5 * k] for k, name in enumerate(header)]
    write_table(folder / "places.csv", ["node", "x", "y"], places)
    write_table(folder / "scale.csv", ["column", "centre", "spread"], [[name, 0.5, 2.0] for name in header])
    some = [[header[k], header[(k + step) % NODES]] for step in (1, 2) for k in range(NODES)]
    write_table(folder / "edges.csv", ["source", "target"], some)
    people: Json = {"files": [f"{site}_people.csv" for site in SITES[:3]], "unit_column": "who"}
    series: Json = {"files": [f"{site}_series.csv" for site in SITES[:3]], "unit_column": "who"}
    unlike: Json = {"files": [f"{site}_unlike.csv" for site in SITES[:3]], "nodes": "all"}
    votes: Json = {"learner": "votes", "edges": 6}
    return {
        "exact": _plan({}),
        "exact, by degree, few candidates": _plan({"degree": 3.0}, candidates="edges.csv", standardise=True),
        "exact, gaps": _plan({}, files=[f"{SITES[0]}.csv", *(f"{site}_gaps.csv" for site in SITES[1:3])]),
        "likelihood, different columns": _plan({}, **unlike),
        "exact, different columns": _plan({"learner": "papers", "degree": 3.0}, **unlike),
        "one release, different columns": _plan({}, _BUDGET, **unlike),
        "secure sum, different columns, private scale": _plan(
            {}, {**_BUDGET, "epsilon": 6.0, "mode": "secure-sum"}, **unlike, scale="private"
        ),
        "paper, S3": _plan({"solver": "paper", "degree": 3.0, "rounds": 6}),
        "paper, S0": _plan({**_PAPER, "form": "S0", "local_steps": 1, "rounds": 20}),
        "one release": _plan({}, _BUDGET, scale="none"),
        "one release, private scale": _plan({}, _BUDGET),
        "one release, papers' model": _plan({"learner": "log-degree", "degree": 3.0}, _BUDGET),
        "one release, clip": _plan({}, {**_BUDGET, "clip": 2.0}),
        "one release, gaps, public scale": _plan(
            {}, {**_BUDGET, "clip": 2.0}, files=[f"{site}_gaps.csv" for site in SITES[:3]], scale="scale.csv"
        ),
        "one release, gaps, private scale": _plan(
            {}, {**_BUDGET, "epsilon": 6.0}, files=[f"{site}_gaps.csv" for site in SITES[:3]], scale="private"
        ),
        "persons, private scale": _plan({}, {**_BUDGET, "epsilon": 8.0}, **people, scale="private"),
        "one release, Laplace": _plan({}, {"epsilon": 30.0, "mechanism": "laplace"}, scale="none"),
        "persons": _plan({}, {**_BUDGET, "clip": 2.0}, **people),
        "votes, secure sum": _plan(votes, _BUDGET, **series),
        "votes, one release": _plan({**votes, "confidence": 0.5}, {**_BUDGET, "mode": "one-release"}, **series),
        "votes, coordinates": _plan(votes, _BUDGET, **series, coordinates="places.csv"),
        "votes, two groups": _plan(
            votes,
            {"epsilon": 8.0, "delta": 1e-5},
            files=[f"{site}_groups.csv" for site in SITES[:3]],
            unit_column="who",
            group_column="dx",
            groups=["ill", "well"],
        ),
        "correlated": _plan(
            {}, {**_BUDGET, "mode": "correlated"}, files=[f"{site}.csv" for site in SITES], scale="none"
        ),
        "secure sum": _plan({}, {**_BUDGET, "mode": "secure-sum"}, scale="none"),
        "secure sum, private scale": _plan({}, {**_BUDGET, "mode": "secure-sum"}),
        "secure sum, clip, papers' model": _plan(
            {"learner": "log-degree", "degree": 3.0}, {**_BUDGET, "mode": "secure-sum", "clip": 2.0}
        ),
        "per round, Corollary 1": _plan(
            {**_PAPER, "form": "S0", "local_steps": 1}, {**_BUDGET, "mode": "per-round", "clip": 5.0}
        ),
        "per round, Theorem 2": _plan(
            {**_PAPER, "form": "S0", "local_steps": 3}, {**_BUDGET, "mode": "per-round", "clip": 2.0}
        ),
    }


def _plan(method: Json, privacy: Json | None = None, **data: object) -> Json:
    told: Json = {"files": [f"{site}.csv" for site in SITES[:3]]} | data
    plan: Json = {"format": 1, "seed": 1, "data": told, "method": method}
    return plan if privacy is None else {**plan, "privacy": privacy}
