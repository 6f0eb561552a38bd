"""A shared start across organisations: every organisation is one source client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from silograph.core.errors import InputError
from silograph.data.clients import ClientTables, classes_at, listed_classes, read_clients
from silograph.data.silos import Elsewhere
from silograph.data.sites import check_one
from silograph.data.tables import shown
from silograph.deploy.public_facts import MOST, Facts, Holding, Records, check_columns
from silograph.families.meta.job import MetaJob
from silograph.families.meta.network import network
from silograph.families.meta.plan import MetaPlan

SEVERAL, FIRST_ORDERS = False, False


def check_facts(facts: Facts, where: str) -> None:
    pictures = not facts.columns
    check_columns(facts, 0 if pictures else 1, where)
    fits = len(facts.shape) == 3 if pictures else facts.shape == (len(facts.columns),)
    if not fits or math.prod(facts.shape) > MOST:
        found = f"found {list(facts.shape)[:9]}"
        raise InputError(f"{where}, shape", "the number of columns, or three numbers of a picture", found)


def classes_of(plan: MetaPlan, told: Mapping[str, tuple[str, ...]], fewest: int) -> tuple[str, ...]:
    if plan.data.answers == "numbers":
        return ()
    if plan.data.classes is not None:
        return listed_classes(plan.data.classes)
    return classes_at({label: where for where, labels in told.items() for label in labels}, fewest)


def read_own(plan: MetaPlan, path: Path, facts: Facts | None = None) -> tuple[Facts, tuple[Any, ...]]:
    data, private, regression = plan.data, plan.privacy is not None, plan.data.answers == "numbers"
    classes = None if regression else data.classes if facts is None else facts.classes
    columns = None if facts is None else facts.columns
    clients = read_clients(
        [path], data.target, private, classes, regression, columns, fewest_classes=1, told=data, persons=data.persons
    )
    check_one(clients.names, shown(path))
    holding = Holding(clients.names[0], records=(len(clients.records[0][1]),))
    own = Facts(plan.method.name, clients.features, (holding,), clients.shape, clients.classes)
    return own, clients.records


def open_part(plan: MetaPlan, facts: Facts, records: Records, base: Path) -> MetaJob:
    answer = np.float32 if plan.data.answers == "numbers" else np.int64
    each = () if plan.data.unit_column is None else (plan.data.unit_rows,)

    def elsewhere(count: int) -> tuple[Elsewhere, Elsewhere]:
        return Elsewhere.of((count, *each, *facts.shape), np.float32), Elsewhere.of((count, *each), answer)

    labelled = records(elsewhere)
    clients = ClientTables(tuple(facts.organisations), facts.columns, facts.classes, facts.shape, labelled)
    # The server, which has no records, computes nothing with the network.
    computing = not all(isinstance(x, Elsewhere) for x, _ in labelled)
    return MetaJob.of(plan, clients, None, network(plan if computing else plan.without_device(), clients))
