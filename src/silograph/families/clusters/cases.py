"""Small plans of every way to learn clustered models, for the contract suite."""

from __future__ import annotations

from pathlib import Path

from silograph.core.types import Json
from silograph.families.samples import WARDED, write_wards

_METHOD: Json = {"name": "clustered_admm", "loss": "ridge", "penalty": 3.0, "rounds": 4, "tau": 0.0}
_HUBER, _LOGISTIC = ({**_METHOD, "loss": loss, "radius": 1.5} for loss in ("huber", "logistic"))
_LINEARISED: Json = {**_METHOD, "step": "linearised", "clip": 1.0}
_CLIENTS: Json = {**_METHOD, "clip": 0.4, "minimum": 2}
_EFFECTS: Json = {"name": "clustered_admm", "rounds": 3}
_BUDGET: Json = {"epsilon": 3.0, "delta": 1e-5}
_CHOSEN: Json = {"name": "clustered_admm", "masks": "skipped", "rounds": 2}
_MUCH: Json = {"epsilon": 12.0, "delta": 1e-5}
_MORE: Json = {"epsilon": 400.0, "delta": 1e-5}


def cases(folder: Path, seed: int) -> dict[str, Json]:
    write_wards(folder, seed, clusters=True)
    write_wards(folder / "bare", seed, clusters=False)
    bare = {"files": [f"bare/{server}.csv" for server in WARDED], "agent": "ward", "target": "y"}
    return {
        "open": _plan({**_METHOD, "rounds": 20}),
        "random effects": _plan(_EFFECTS),
        "random effects, logistic, found clusters": _plan({**_EFFECTS, "loss": "logistic", "find": 2}),
        "all clusters, some clients": _plan(
            {**_METHOD, "form": "all", "weights": "uniform", "tau": 0.3, "tau_decay": 0.9, "sample": 3}
        ),
        "huber, servers alone": _plan({**_HUBER, "weights": "alone", "tau": "learned"}),
        "logistic": _plan(_LOGISTIC),
        "linearised": _plan(_LINEARISED),
        "found clusters": _plan({**_METHOD, "find": 2}),
        "found clusters, no column": _plan({**_METHOD, "find": 2}) | {"data": bare},
        "masks": _plan({**_CLIENTS, "masks": "protocol"}),
        "records, huber": _plan(_HUBER, _BUDGET),
        "records, logistic, schedule": _plan(_LOGISTIC, {**_BUDGET, "schedule": "leakage_decay", "decay": 0.8}),
        "records, linearised": _plan(_LINEARISED, _BUDGET),
        "records, linearised, some clients": _plan({**_LINEARISED, "sample": 3}, _BUDGET),
        "records, linearised, schedule": _plan(_LINEARISED, {**_BUDGET, "schedule": "variance_decay", "decay": 0.5}),
        "records, found clusters": _plan({**_LINEARISED, "find": 2}, _BUDGET),
        "clients, trusted server": _plan({**_METHOD, "clip": 0.4}, {**_BUDGET, "protect": "clients"}),
        "clients, masks": _plan({**_CLIENTS, "masks": "protocol"}, {**_BUDGET, "protect": "clients"}),
        "clients, masks skipped": _plan({**_CLIENTS, "masks": "skipped"}, {**_BUDGET, "protect": "clients"}),
        "all servers, masks": _plan({**_CLIENTS, "masks": "protocol", "reach": "all"}),
        "clients, all servers": _plan(
            {**_CLIENTS, "masks": "protocol", "reach": "all", "tau": 0.2}, {**_BUDGET, "protect": "clients"}
        ),
        "calibrated, records, a constant": _plan({**_CHOSEN, "masks": "protocol"}, _BUDGET, [-1, 1]),
        "calibrated, records, slopes in common": _plan(_CHOSEN, _MUCH, [-1, 1]),
        "calibrated, records, slopes": _plan({**_CHOSEN, "loss": "logistic"}, _MORE),
        "calibrated, records, found clusters": _plan({**_CHOSEN, "find": 2}, _MORE, [-1, 1]),
        "calibrated, clients, one cluster": _plan({**_CHOSEN, "find": 1}, {**_MORE, "protect": "clients"}, [-1, 1]),
        "calibrated, clients": _plan(_CHOSEN, {**_MORE, "protect": "clients"}, [-1, 1]),
    }


def _plan(method: Json, privacy: Json | None = None, answers: list[int] | None = None) -> Json:
    data: Json = {"files": [f"{server}.csv" for server in WARDED], "agent": "ward", "cluster": "kind", "target": "y"}
    if answers is not None:
        data["answers"] = answers
    plan: Json = {"format": 1, "seed": 1, "data": data, "method": method}
    return plan if privacy is None else {**plan, "privacy": privacy}
