"""Small plans of every method in every mode, with tables of their own, for the tests of audits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silograph.run.jobs import Job, open_job
from silograph.run.plan import parse

SITES, NODES, SIGNALS = ("ada", "bob", "cyd"), 8, 400
MORE = ("dan", "eve")
WARDS, FEATURES = 4, 3


def write_tables(folder: Path, seed: int = 0) -> Path:
    """Signals of three sites, records of two units of agents with clusters, and of three clients of networks."""
    rng = np.random.default_rng(seed)

    def write(name: str, header: list[str], rows: list[list[object]]) -> None:
        text = "\n".join([",".join(header), *(",".join(map(str, row)) for row in rows)])
        (folder / f"{name}.csv").write_text(text + "\n")

    for site in SITES:
        signals = rng.normal(size=(SIGNALS, NODES)).cumsum(1)
        write(site, [f"n{k}" for k in range(NODES)], signals.tolist())
        owners = [[f"p{k % (SIGNALS // 2)}", *signal] for k, signal in enumerate(signals.tolist())]
        write(f"{site}_people", ["who", *(f"n{k}" for k in range(NODES))], owners)
    for unit in ("east", "west"):
        rows = []
        for ward in range(WARDS):
            x = rng.normal(size=(5, FEATURES))
            label = (x @ np.arange(1.0, FEATURES + 1.0) > 0.0).astype(int)
            rows += [[f"{unit}{ward}", "odd" if ward % 2 else "even", *x[k], label[k]] for k in range(5)]
        write(unit, ["ward", "kind", "a", "b", "c", "y"], rows)
    for client in ("ann", "ben", "cat"):
        x = rng.normal(size=(12, 4))
        write(client, ["a", "b", "c", "d", "y"], [[*x[k], "up" if x[k, 0] > 0 else "down"] for k in range(12)])
    for site in MORE:
        write(site, [f"n{k}" for k in range(NODES)], rng.normal(size=(SIGNALS, NODES)).cumsum(1).tolist())
    return folder


def plan(
    method: dict[str, object], privacy: dict[str, object] | None = None, people: bool = False
) -> dict[str, object]:
    name = method.get("name", "consensus_graph")
    data: dict[str, object] = {"files": [f"{site}.csv" for site in SITES]}
    if people:
        data = {"files": [f"{site}_people.csv" for site in SITES], "unit_column": "who"}
    if name in ("graph_federation", "clustered_admm"):
        data = {"files": ["east.csv", "west.csv"], "agent": "ward", "target": "y"}
        data |= {"cluster": "kind"} if name == "clustered_admm" else {}
    if name == "private_meta":
        data = {"files": ["ann.csv", "ben.csv", "cat.csv"], "target": "y", "classes": ["up", "down"]}
    content: dict[str, object] = {"format": 1, "data": data, "method": method, "seed": 1}
    if name == "graph_federation":
        # The column of clusters is no feature of a federation: it is left out of its tables.
        content["data"] = {**data, "files": ["east_plain.csv", "west_plain.csv"]}
    return content if privacy is None else {**content, "privacy": privacy}


GRAPHS: dict[str, object] = {"solver": "paper", "form": "S0", "beta": 0.05, "nu": 3.0, "lambda": 0.05, "rounds": 4}
UNITS: dict[str, object] = {"name": "graph_federation", "loss": "logistic", "rounds": 4, "step": 2.0, "clip": 0.5}
CELLS: dict[str, object] = {"name": "clustered_admm", "penalty": 3.0, "rounds": 4, "tau": 0.0}
META: dict[str, object] = {"name": "private_meta", "hidden": [4], "rounds": 4, "rate": 0.5, "clip": 0.5}
EPS = {"epsilon": 3.0, "delta": 1e-5}

#: Every mode that claims an epsilon, by name.
PRIVATE: dict[str, dict[str, object]] = {
    "graphs, one release": plan({}, EPS),
    "graphs, one release, clip": plan({}, {**EPS, "clip": 2.0}),
    "graphs, correlated": {
        **plan({}, {**EPS, "mode": "correlated"}),
        "data": {"files": [f"{site}.csv" for site in (*SITES, *MORE)]},
    },
    "graphs, secure sum": plan({}, {**EPS, "mode": "secure-sum"}),
    "graphs, persons": plan({}, {**EPS, "clip": 2.0}, people=True),
    "graphs, one release, Laplace": plan({}, {"epsilon": 30.0, "mechanism": "laplace"}),
    "graphs, Corollary 1": plan({**GRAPHS, "local_steps": 1}, {**EPS, "mode": "per-round", "clip": 5.0}),
    "graphs, Theorem 2": plan({**GRAPHS, "local_steps": 3}, {**EPS, "mode": "per-round", "clip": 2.0}),
    "units, trusted server": plan({**UNITS, "masks": "none"}, EPS),
    "units, masks": plan({**UNITS, "masks": "protocol"}, EPS),
    "units, masks, ridge": plan({**UNITS, "loss": "ridge", "masks": "skipped"}, EPS),
    "records, huber": plan({**CELLS, "loss": "huber", "radius": 1.5}, EPS),
    "records, logistic, schedule": plan(
        {**CELLS, "loss": "logistic", "radius": 1.5}, {**EPS, "schedule": "leakage_decay", "decay": 0.8}
    ),
    "records, linearised": plan({**CELLS, "loss": "ridge", "step": "linearised", "clip": 1.0}, EPS),
    "records, linearised, schedule": plan(
        {**CELLS, "loss": "ridge", "step": "linearised", "clip": 1.0},
        {**EPS, "schedule": "variance_decay", "decay": 0.5},
    ),
    "records, found clusters": plan({**CELLS, "loss": "ridge", "step": "linearised", "clip": 1.0, "find": 2}, EPS),
    "clients, trusted server": plan({**CELLS, "loss": "ridge", "clip": 0.4}, {**EPS, "protect": "clients"}),
    "clients, masks": plan(
        {**CELLS, "loss": "ridge", "clip": 0.4, "masks": "skipped", "minimum": 2}, {**EPS, "protect": "clients"}
    ),
    "networks, second order": plan(META, EPS),
    "networks, first order": plan({**META, "order": "first", "local_steps": 2}, EPS),
    "networks, paper:": plan({**META, "version": "paper:"}, EPS),
}

#: And what claims none.
OPEN: dict[str, dict[str, object]] = {
    "graphs": plan({}),
    "graphs, paper": plan({**GRAPHS, "local_steps": 1, "rounds": 20}),
    "units": plan({**UNITS, "masks": "none"}),
    "units, homomorphic": plan({**UNITS, "perturbation": "homomorphic", "variance": 0.01, "rounds": 100}),
    "cells": plan({**CELLS, "loss": "ridge", "rounds": 20}),
    "networks": plan({**META, "rate": 1.0}),
}


def tables(folder: Path, seed: int = 0) -> Path:
    write_tables(folder, seed)
    for unit in ("east", "west"):
        lines = [line.split(",") for line in (folder / f"{unit}.csv").read_text().split()]
        plain = [",".join(cells[:1] + cells[2:]) for cells in lines]
        (folder / f"{unit}_plain.csv").write_text("\n".join(plain) + "\n")
    return folder


def job(content: dict[str, object], folder: Path) -> Job:
    return open_job(parse(content, "plan"), folder)
