"""Reads the folder of a run that learned a shared start, from which every client takes steps of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silograph.core.errors import DamageError
from silograph.core.results import ADVICE, FILE
from silograph.core.schema import shortened
from silograph.families.meta.result import MetaResult
from silograph.privacy.ledger import Ledger
from silograph.report.read import RunFolder, check_guarantees, check_named, check_unique
from silograph.report.words import counted, first_seen

#: What the arrays of a model are called in its file.
PARAMETER = "parameter/"


@dataclass(frozen=True)
class MetaRun(RunFolder[MetaResult]):
    @property
    def message(self) -> int | None:
        """Protected, a client makes its releases inside, and sends the model that follows from them."""
        return None if self.result.parameters.clip is None else self.result.model.parameters


def read(run: RunFolder[MetaResult]) -> MetaRun:
    result, where = run.result, str(run.folder / FILE)
    check_unique([*result.sources, *result.newcomers], f"{where}: clients and new")
    if (result.test is None) != (not result.new):
        found = "there is none" if result.test is None else "there is one"
        raise DamageError(f"{where}: test", f"a test of {counted(len(result.new), 'new client')}", found, ADVICE)
    _check_guarantees(result, f"{where}: privacy: guarantees")
    models = ["start.npz", *(f"new/{name}.npz" for name in result.newcomers if result.published)]
    for name in models:
        _check_model(run.folder / "models" / name, result.model.parameters)
    _check_ledger(run)
    return MetaRun(**vars(run))


def _check_guarantees(result: MetaResult, where: str) -> None:
    """One for every client and observer."""
    guarantees, (_, sites) = result.privacy.guarantees, result.guarded
    check_guarantees(guarantees, "client", sites, where)
    stated = {(each.site, each.observer) for each in guarantees}
    observers = first_seen(each.observer for each in guarantees)
    for site in sites:
        if not observers:
            raise DamageError(where, f"a guarantee for {shortened(site)}", "there is none", ADVICE)
        for observer in observers:
            if (site, observer) not in stated:
                expected = f"a guarantee for {shortened(site)} against {shortened(observer)}"
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


def _check_ledger(run: RunFolder[MetaResult]) -> None:
    """All rows that the run wrote, none changed: the page says from them where a record's budget goes."""
    path, silos = run.folder / "ledger.jsonl", {*run.result.sources, *run.result.newcomers}
    Ledger(path, mend=False).check_tip(run.made.ledger)
    for number, row in enumerate(run.ledger, start=1):
        check_named(row["silo"], "client", silos, f"{path}: line {number}")
