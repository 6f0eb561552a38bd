"""Folders of runs that learned graphs, as silograph writes them, filled with made-up numbers."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

from pages import guarantee
from silograph.report.read import Edge, site_file


def some_edges(nodes: list[str], amount: int, seed: int) -> list[Edge]:
    draw, count = random.Random(seed), len(nodes)
    pairs = sorted({tuple(sorted(draw.sample(range(count), 2))) for _ in range(20 * amount)})
    return [(nodes[a], nodes[b], draw.uniform(0.05, 1.5)) for a, b in draw.sample(pairs, amount)]


def write_edges(path: Path, edges: list[Edge]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("source", "target", "weight"), *edges])
    if (path.parent / "result.json").exists():
        recount(path.parent)


def recount(folder: Path) -> None:
    """Let result.json say how many edges the consensus has."""
    told = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    with (folder / "consensus.csv").open(newline="", encoding="utf-8") as file:
        told["consensus"]["edges"] = len(list(csv.reader(file))) - 1
    (folder / "result.json").write_text(json.dumps(told), encoding="utf-8")


def make_run(
    folder: Path,
    *,
    nodes: int | list[str] = 12,
    sites: int | list[str] = 3,
    edges: int = 20,
    consensus: int | None = None,
    rounds: int = 30,
    mode: str = "exact",
    **changes: Any,
) -> Path:
    """A run folder as silograph writes it, filled with made-up numbers; `changes` replace keys of result.json."""
    node_names = [f"node {i}" for i in range(nodes)] if isinstance(nodes, int) else nodes
    site_names = [f"site {i}" for i in range(sites)] if isinstance(sites, int) else sites
    shared = some_edges(node_names, edges if consensus is None else consensus, seed=0)
    observers = ["own server", "other sites", "public"]
    private = mode == "dp"
    result = {
        "format": 1,
        "method": "consensus_graph",
        "solver": "exact",
        "parameters": {"alpha": 1.0, "beta": 0.03, "nu": 5.0, "lambda": 0.1, "zeta": 0.0001},
        "degree": 6,
        "threshold": 0.0,
        "nodes": node_names,
        "sites": [
            {
                "name": name,
                "signals": 200 + 100 * i,
                "edges": edges,
                "mean_weight": 0.41,
                "weight": 0.5 + 0.1 * i,
                "smoothness": 3.25,
            }
            for i, name in enumerate(site_names)
        ],
        "consensus": {"edges": len(shared), "mean_weight": 0.47},
        "objective": 12.5,
        "certified_gap": 3.2e-7,
        "rounds": rounds,
        "trace": [{"round": t, "objective": 12.5 + 0.6**t, "gap": 0.7**t} for t in range(1, rounds + 1)],
        "privacy": {
            "mode": mode,
            "protected_unit": "one signal of one site",
            "relation": "replace-one",
            "guarantees": [
                guarantee(name, observer, 1.0 if private else "infinity")
                for name in site_names
                for observer in observers
            ],
            "notes": [],
        },
        "plan": "0" * 64,
        "ledger": "4:0123456789abcdef",
        "seed": 7,
        "versions": {"silograph": "0.1.0", "numpy": "2.4.6"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result | changes), encoding="utf-8")
    write_edges(folder / "consensus.csv", shared)
    for i, name in enumerate(site_names):
        own = some_edges(node_names, edges, seed=i + 1)
        write_edges(folder / "sites" / site_file(name), own)
    row = {
        "observer": "own server",
        "protected_unit": "one signal of one site",
        "relation": "replace-one",
        "dim": 66,
        "mechanism": "gaussian" if private else "reveal",
        "l2": 0.007 if private else None,
        "noise": 0.02 if private else 0,
        "randomness": "secret entropy" if private else "none",
        "why": "clipped second moment" if private else "no budget was given",
    }
    times = range(1, 2) if private else range(1, rounds + 1)
    ledger = [row | {"silo": name, "round": t, "release_point": "second moment"} for t in times for name in site_names]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger), encoding="utf-8")
    (folder / "plan.toml").write_text('[method]\nname = "consensus_graph"  # <as given> & kept\n', encoding="utf-8")
    return folder
