"""Small plans of every way to learn models in a graph federation, for the contract suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from silograph.core.types import Json
from silograph.families.samples import WARDED, write_wards

_METHOD: Json = {"name": "graph_federation", "loss": "logistic", "rounds": 4, "step": 2.0, "clip": 0.5}
_OPEN: Json = {**_METHOD, "masks": "none"}
_BUDGET: Json = {"epsilon": 3.0, "delta": 1e-5}
_CHOSEN: Json = {"name": "graph_federation"}
_MUCH: Json = {"epsilon": 60.0, "delta": 1e-5}  # for twelve agents to have slopes


def cases(folder: Path, seed: int) -> dict[str, Json]:
    import networkx as nx  # what a command line that plays no case need not wait for

    write_wards(folder, seed, clusters=False)
    nx.write_graphml(nx.path_graph(WARDED[::-1]), folder / "servers.graphml")
    return {
        "effects": _plan(_CHOSEN),
        "effects, ridge": _plan({**_CHOSEN, "loss": "ridge"}),
        "open": _plan(_OPEN),
        "open, graph in a file": _plan(_OPEN) | {"topology": {"file": "servers.graphml"}},
        "some agents, some records": _plan({**_OPEN, "sample": 2, "epochs": [1, 3], "batch": [2, 4]}),
        "huber": _plan({**_OPEN, "loss": "huber"}),
        "edge": _plan({**_OPEN, "perturbation": "edge", "variance": 0.1}),
        "sender, Gaussian": _plan({**_OPEN, "perturbation": "sender", "variance": 0.1, "law": "gaussian"}),
        "homomorphic": _plan({**_OPEN, "perturbation": "homomorphic", "variance": 0.01}),
        "masks": _plan({**_METHOD, "masks": "protocol"}),
        "trusted server": _plan(_OPEN, _BUDGET),
        "trusted server, some agents": _plan({**_OPEN, "sample": 2}, _BUDGET),
        "private, masks": _plan({**_METHOD, "masks": "protocol"}, _BUDGET),
        "private, masks skipped, ridge": _plan({**_METHOD, "loss": "ridge", "masks": "skipped"}, _BUDGET),
        "all regions, masks": _plan({**_METHOD, "masks": "protocol", "reach": "all"}),
        "all regions, private": _plan({**_METHOD, "reach": "all"}, _BUDGET),
        "all regions, private, some agents": _plan(
            {**_METHOD, "reach": "all", "masks": "skipped", "sample": 2, "minimum": 2}, _BUDGET
        ),
        "calibrated, a constant": _plan(_CHOSEN, _BUDGET),
        "calibrated, masks skipped, slopes": _plan({**_CHOSEN, "masks": "skipped", "rounds": 2}, _MUCH),
        "calibrated, ridge": _plan({**_CHOSEN, "loss": "ridge", "masks": "skipped", "rounds": 2}, _MUCH, [-1, 1]),
        "all regions, personal": _plan({**_METHOD, "reach": "all", "masks": "skipped", "personal": 0.3}, _BUDGET),
    }


def _plan(method: Json, privacy: Json | None = None, answers: Sequence[int] | None = None) -> Json:
    data: Json = {"files": [f"{server}.csv" for server in WARDED], "agent": "ward", "target": "y"}
    if answers is not None:
        data["answers"] = list(answers)
    plan: Json = {"format": 1, "seed": 1, "data": data, "method": method}
    return plan if privacy is None else {**plan, "privacy": privacy}
