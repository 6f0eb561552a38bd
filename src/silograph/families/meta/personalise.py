"""A client's own model from a start that others learned: what a new client does on its own machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silograph.core import schema
from silograph.core.errors import DamageError, InputError
from silograph.core.types import Json
from silograph.data.clients import Labelled, read_clients
from silograph.data.features import FeatureOptions
from silograph.families.meta.network import build_network, load_networks
from silograph.families.meta.new_clients import own_models, personal_models


@dataclass(frozen=True)
class Personal:
    """Scores are of records to test on, or else of those it learned from (`seen`); they stay with the client.

    `chosen`: its own records decided on the steps; `alone`: and asked for an untrained start.
    """

    records: int
    tested: int
    seen: bool
    measure: str
    before: float
    after: float
    steps: int
    step: float
    chosen: bool
    alone: bool

    def to_json(self) -> Json:
        return vars(self)


def personalise(
    start: Path,
    table: Path,
    out: Path,
    steps: int | None,
    step: float | None,
    test: Path | None,
    device: str,
    choose: bool = False,
) -> Personal:
    """Read a start and a client's table, take the steps, and write the client's model.

    With `choose` the client's own records decide on their number and size, and whether the start helps at all.
    """
    networks = load_networks()
    path = start / "models" / "start.npz" if start.is_dir() else start
    spec, layout, vector = networks.load_model(path)
    size, count = spec["step"] if step is None else step, spec["steps"] if steps is None else steps
    choose = choose or (count is None and step is None)
    count = 1 if count is None else count
    if not (count >= 1 and 0.0 < size < float("inf")):
        raise InputError("personalise", "at least one step of a size above 0", f"found {count} of {size:g}")
    if out.exists():
        raise InputError(str(out), "a new file", "it already exists", "Choose another with -o.")
    regression = spec["answers"] == "numbers"
    outputs = 1 if regression else len(spec["classes"])
    task = build_network(spec, tuple(spec["shape"]), outputs, spec["answers"], device, 0)
    if task.layout != layout or not np.isfinite(vector).all():
        raise DamageError(str(path), "finite parameters of the network it names", "found others")

    told = schema.read(FeatureOptions, spec.get("columns", {}), str(path), DamageError)

    def read(path: Path) -> Labelled:
        classes = None if regression else spec["classes"]
        features = tuple(spec["features"])
        mine = read_clients([path], spec["target"], False, classes, regression, features, least=1, told=told)
        if mine.shape != tuple(spec["shape"]):
            raise InputError(str(path), f"records of shape {tuple(spec['shape'])}", f"found {mine.shape}")
        return mine.records[0]

    own = read(table)
    tested = own if test is None else read(test)
    alone = False
    if choose:
        (best,) = own_models(task, vector, size, [own])
        model, size, count, alone = best.model, best.step, best.steps, best.alone
    else:
        model = personal_models(task, vector, size, count, [own], [table.stem])[0]
    networks.save_model(out, spec, layout, model)
    measure = "mean squared error" if regression else "accuracy"
    before, after = task.measure(vector, *tested)[1], task.measure(model, *tested)[1]
    return Personal(len(own[1]), len(tested[1]), test is None, measure, before, after, count, size, choose, alone)
