"""Reads the folder of a run that learned a shared start, from which every client takes steps of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import NoneType

import numpy as np

from silograph.core.errors import DamageError
from silograph.core.types import Json
from silograph.privacy.ledger import Ledger
from silograph.report.read import (
    ADVICE,
    FLAG,
    MAYBE_NUMBER,
    NUMBER,
    TEXT,
    WHOLE,
    RunFolder,
    check,
    check_unique,
    read_audits,
    read_ledger,
    read_text,
    short,
)
from silograph.report.read_servers import TEST, check_guarantees, check_named
from silograph.report.words import counted, first_seen

RESULT: Json = {
    "task": {"answers": TEXT, "target": TEXT, "classes": [TEXT], "features": [TEXT], "shape": [WHOLE]},
    "model": {"name": TEXT, "parameters": WHOLE},
    "parameters": {
        "version": TEXT,
        "order": TEXT,
        "local_steps": WHOLE,
        "rate": NUMBER,
        "inner_step": NUMBER,
        "outer_step": NUMBER,
        "personal_steps": WHOLE,
        "clip": MAYBE_NUMBER,
        "curvature_clip": MAYBE_NUMBER,
        "sigma": MAYBE_NUMBER,
    },
    "clients": [{"name": TEXT, "records": WHOLE}],
    "new": [{"name": TEXT, "records": WHOLE, "test_records": WHOLE, "before": NUMBER, "after": NUMBER, "loss": NUMBER}],
    "comparison": [{"method": TEXT, "score": MAYBE_NUMBER}],
    "test": (dict, NoneType),
    "trace": [{"round": WHOLE, "movement": NUMBER}],
    "privacy": {"guarantees": [{"rehearsal": FLAG}]},
    "ledger": TEXT,
}
#: What the arrays of a model are called in its file.
PARAMETER = "parameter/"


@dataclass(frozen=True)
class MetaRun(RunFolder):
    @property
    def message(self) -> int | None:
        """Protected, a client makes its releases inside, and sends the model that follows from them."""
        size: int = self.result["model"]["parameters"]
        return None if self.result["parameters"]["clip"] is None else size


def read(folder: Path, result: Json) -> MetaRun:
    where = str(folder / "result.json")
    check(result, RESULT, where)
    sources, new = names(result["clients"]), names(result["new"])
    check_unique([*sources, *new], f"{where}: clients and new")
    _check_test(result, where)
    _check_guarantees(result, f"{where}: privacy: guarantees")
    models = ["start.npz", *(f"new/{name}.npz" for name in new if is_published(result))]
    for name in models:
        _check_model(folder / "models" / name, result["model"]["parameters"])
    return MetaRun(
        result=result,
        ledger=_read_ledger(folder / "ledger.jsonl", result["ledger"], {*sources, *new}),
        plan=read_text(folder / "plan.toml"),
        audits=read_audits(folder, result),
    )


def names(clients: list[Json]) -> list[str]:
    return [client["name"] for client in clients]


def guarded(result: Json) -> tuple[str, list[str]]:
    """Whom guarantees are for: what one of them is called, and their names.

    New clients are among them where they publish their models, for a budget of their own.
    """
    sources, new = names(result["clients"]), names(result["new"])
    stated = {row["site"] for row in result["privacy"]["guarantees"]}
    return ("source client", sources) if stated.isdisjoint(new) else ("client", [*sources, *new])


def is_published(result: Json) -> bool:
    """Whether the models of new clients are in the folder: protected, or because nothing was."""
    return result["privacy"]["mode"] == "exact" or guarded(result)[0] == "client"


def _check_test(result: Json, where: str) -> None:
    test, new = result["test"], result["new"]
    if (test is None) != (not new):
        came = "there is none" if test is None else "there is one"
        raise DamageError(f"{where}: test", f"a test of {counted(len(new), 'new client')}", came, ADVICE)
    if test is not None:
        check(test, TEST, f"{where}: test")


def _check_guarantees(result: Json, where: str) -> None:
    """One for every client and observer."""
    guarantees, (_, sites) = result["privacy"]["guarantees"], guarded(result)
    check_guarantees(guarantees, "client", sites, where)
    stated = {(row["site"], row["observer"]) for row in guarantees}
    observers = first_seen(row["observer"] for row in guarantees)
    for site in sites:
        if not observers:
            raise DamageError(where, f"a guarantee for {short(site)}", "there is none", ADVICE)
        for observer in observers:
            if (site, observer) not in stated:
                expected = f"a guarantee for {short(site)} against {short(observer)}"
                raise DamageError(where, expected, "it is missing", ADVICE)


def _check_model(path: Path, parameters: int) -> None:
    """The file, which others use, must hold as many numbers as the result says."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = [archive[name] for name in archive.files if name.startswith(PARAMETER)]
        finite = all(np.isfinite(array).all() for array in arrays)
    except FileNotFoundError:
        raise DamageError(str(path), "a file of a finished run", "it is missing", ADVICE) from None
    except Exception as error:  # a damaged file may raise anything
        raise DamageError(str(path), "an NPZ file of numbers", f"reading failed ({error})", ADVICE) from error
    if not finite:
        raise DamageError(str(path), "finite numbers", "found others", ADVICE)
    size = sum(array.size for array in arrays)
    if size != parameters:
        raise DamageError(str(path), f"the {parameters} parameters of result.json", f"found {size}", ADVICE)


def _read_ledger(path: Path, tip: str, silos: set[str]) -> list[Json]:
    """All rows that the run wrote, none changed: the page says from them where a record's budget goes."""
    rows = read_ledger(path)
    Ledger(path, mend=False).check_tip(tip)
    for number, row in enumerate(rows, start=1):
        check_named(row["silo"], "client", silos, f"{path}: line {number}")
    return rows
