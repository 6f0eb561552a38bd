"""Neighbouring tables of every private case: one protected unit that is loud, the opposite, silent, or anything.

What is protected, and where it stands in a table, is where the worlds of the family's own canary differ.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cases import Case
from silograph.audit.parts import canary_part
from silograph.audit.worlds import LOUD, SILENT, Worlds, as_csv
from silograph.deploy.public_facts import gather_facts, open_server

_SIZES = 10.0 ** np.array([-300.0, -3.0, 0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 60.0])
_WORDS = 2  # a column of so few different values says which of them it is


def worlds_of(case: Case) -> Worlds:
    plan = case.plan().deployable()
    facts = gather_facts(plan, case.base)
    job = open_server(plan, facts, case.base)
    return canary_part(job).worlds(job, facts)


def opened_on(case: Case, worlds: Worlds, table: bytes) -> Any:
    """The case's job on silent tables, but for the one that is given to the attacked organisation."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for path in filter(Path.is_file, case.base.iterdir()):
            os.link(path, folder / path.name)
        for name in case.content["data"]["files"]:
            organisation = name.removesuffix(worlds.suffix)
            (folder / name).unlink()
            (folder / name).write_bytes(table if organisation == worlds.organisation else worlds.silent(organisation))
        return case.opened(folder)


def tables_beside(worlds: Worlds, rng: np.random.Generator, more: int) -> Iterator[bytes]:
    """Tables that differ from the silent one in the protected unit alone: the family's own, and `more` of any kind."""
    yield from (worlds.tables[LOUD], worlds.tables[1])
    header, *silent = _read(worlds.tables[SILENT])
    others = [_read(table)[1:] for table in worlds.tables[:SILENT]]
    differ = {(i, j) for other in others for i, row in enumerate(other) for j, x in enumerate(row) if x != silent[i][j]}
    columns = [sorted({row[j] for table in (silent, *others) for row in table}) for j in range(len(header))]
    for _ in range(more):
        table = [list(row) for row in silent]
        size = rng.choice(_SIZES)
        for i, j in sorted(differ):
            few = len(columns[j]) <= _WORDS
            table[i][j] = str(rng.choice(columns[j])) if few else repr(float(size * rng.normal()))
        yield as_csv(header, table)


def _read(table: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table.decode())))
