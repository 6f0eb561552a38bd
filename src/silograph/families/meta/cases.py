"""Small plans of every way to learn a shared start, for the contract suite."""

from __future__ import annotations

from pathlib import Path

from silograph.core.types import Json
from silograph.families.samples import write_table

#: Products in single precision round otherwise where several clients are multiplied at once.
ROUNDING = 1e-4
CLIENTS = ("ann", "ben", "cat")
_METHOD: Json = {"name": "private_meta", "hidden": [4], "rounds": 4, "rate": 0.5, "clip": 0.5}
_BUDGET: Json = {"epsilon": 3.0, "delta": 1e-5}


def cases(folder: Path, seed: int) -> dict[str, Json]:
    import numpy as np  # what a command line that plays no case need not wait for

    rng = np.random.default_rng(seed)
    for client in CLIENTS:
        x = rng.normal(size=(12, 4))
        write_table(folder / f"{client}.csv", list("abcdy"), [[*row, "up" if row[0] > 0 else "down"] for row in x])
        np.savez(folder / f"{client}_drawn.npz", x=x.reshape(12, 1, 2, 2), y=np.where(x[:, 0] > 0, "up", "down"))
        write_table(folder / f"{client}_numbers.csv", list("abcdy"), [[*row, row[0] - row[1]] for row in x])
    for client in CLIENTS:
        visits = [
            [*row, "up" if row[0] > 0 else "down", f"p{k % 12}"] for k, row in enumerate(rng.normal(size=(20, 4)))
        ]
        write_table(folder / f"{client}_visits.csv", [*"abcdy", "who"], visits)
    numbers = {"files": [f"{client}_numbers.csv" for client in CLIENTS], "answers": "numbers"}
    return {
        "open": _plan({**_METHOD, "rate": 1.0}),
        "open, first order, two local steps": _plan({**_METHOD, "order": "first", "local_steps": 2}),
        "open, numbers": _plan(_METHOD) | {"data": numbers},
        "open, pictures": _plan(_METHOD) | {"data": {"files": [f"{client}_drawn.npz" for client in CLIENTS]}},
        "random features": _plan({**_METHOD, "model": "random_features", "width": 6}, _BUDGET),
        "second order": _plan(_METHOD, _BUDGET),
        "first order": _plan({**_METHOD, "order": "first", "local_steps": 2}, _BUDGET),
        "paper:": _plan({**_METHOD, "version": "paper:"}, _BUDGET),
        "persons": _visits(_plan(_METHOD, _BUDGET)),
    }


def _visits(plan: Json) -> Json:
    files = [f"{client}_visits.csv" for client in CLIENTS]
    return plan | {"data": plan["data"] | {"files": files, "unit_column": "who", "unit_rows": 2}}


def _plan(method: Json, privacy: Json | None = None) -> Json:
    data: Json = {"files": [f"{client}.csv" for client in CLIENTS], "target": "y", "classes": ["up", "down"]}
    plan: Json = {"format": 1, "seed": 1, "data": data, "method": method}
    return plan if privacy is None else {**plan, "privacy": privacy}
