"""The command `predict`: what a finished run's models, or one of them, say of a table of records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silograph.cli.console import START, AsJson, register_in, say
from silograph.core.errors import InputError
from silograph.core.types import Json

if TYPE_CHECKING:
    import pandas as pd

    from silograph.finished import FinishedRun


def register(app: typer.Typer) -> None:
    register_in(app, START, predict)


def predict(
    what: Annotated[Path, typer.Argument(help="A run folder, or a personal model (NPZ).", metavar="RUN")],
    table: Annotated[Path, typer.Argument(help="Records, with the columns that were learned from.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File for the predictions (CSV).")],
    who: Annotated[
        str | None,
        typer.Option(
            help="The model to use: a region, a client or a cluster. Left out: the regions' mean, or each "
            "record's own client, by the column that named the clients."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the answers of a table's records; with the answers in it, say how well."""
    from silograph.core.files import write_atomically
    from silograph.core.spreadsheet import csv_of

    if out.exists():
        raise InputError(str(out), "a new file", "it already exists", "Choose another with -o.")
    answers, payload = _of_network(what, table) if _is_network(what) else _of_run(what, table, who)
    write_atomically(out, csv_of(list(map(str, answers.columns)), answers.itertuples(index=False, name=None)))
    payload = {"predictions": str(out), "records": len(answers), **payload}

    def words() -> None:
        if payload["score"] is not None:
            print(f"{payload['measure']} on {payload['records']} records: {payload['score']:.4f}")
        print(f"predictions: {out}")

    say(as_json, payload, words)


def _read(table: Path, texts: list[str]) -> pd.DataFrame:
    import pandas as pd

    from silograph.data.readers import read_columns
    from silograph.data.tables import named

    _, grid = read_columns(table, texts)
    if grid.column_names is None:
        raise InputError(str(table), "a first line with the columns' names", "it begins with data", "Name the columns.")
    found = pd.DataFrame(dict(zip(map(named, grid.column_names), grid.columns, strict=True)))
    if not len(found):
        raise InputError(str(table), "records to predict", "it has a first line alone")
    return found


def _of_run(folder: Path, table: Path, who: str | None) -> tuple[pd.DataFrame, Json]:
    """Predictions of linear models, record by record, and how good they are where the table has the answers."""
    import pandas as pd

    from silograph.data.features import numbers
    from silograph.finished import open_run
    from silograph.run.plan import load

    run = open_run(folder)
    if not run.models:
        expected = "a run that learned linear models, or a client's model (NPZ)"
        raise InputError(str(folder), expected, f"it learned {run.result['method']}")
    data: Any = load(folder / "plan.toml").data
    target, classes = data.target, run.result["task"]["loss"] == "logistic"
    words = [] if data.classes is None else [target]
    records = _read(table, [data.agent, *(data.categories or ()), *words])
    owners = _owners(run, records, data.agent, who, str(table))
    parts = []
    for owner in dict.fromkeys(owners):
        part = records[owners == owner]
        found = {"model": owner, "prediction": run.predict(part, owner)}
        chance = {"probability": run.predict_proba(part, owner)[:, 1]} if classes else {}
        parts.append(pd.DataFrame(found | chance, index=part.index))
    told, score = pd.concat(parts).sort_index(), None
    if target in records:
        guess, answers = told["prediction"], records[target]
        if classes:
            where = f"{table}, column {target}"
            score = float((run.second(guess, where) == run.second(answers, where)).mean())
        else:
            score = float(((numbers(records, [target])[:, 0] - guess) ** 2).mean())
    return told, {"measure": "accuracy" if classes else "mean squared error", "score": score}


def _owners(run: FinishedRun, records: pd.DataFrame, agent: str, who: str | None, where: str) -> Any:
    """The name of the model that answers each record."""
    import numpy as np

    from silograph.families.federation.read import CENTROID

    if who is None and CENTROID in run.models:
        who = CENTROID
    if who is not None:
        known = {name.split("/", 1)[-1]: name for name in run.models} | {name: name for name in run.models}
        if who not in known:
            raise InputError("--who", f"one of {', '.join(list(run.models)[:9])}, ...", f"found {who}")
        return np.full(len(records), known[who], dtype=object)
    if agent not in records:
        todo = "Add it, or name one model for all records: --who."
        raise InputError(where, f"a column {agent!r} that names every record's client", "there is none", todo)
    homes = {name.split("/", 1)[1]: name for name in run.models if "/" in name}
    names = records[agent].astype(str).str.strip()
    if strange := [name for name in names if name not in homes]:
        todo = "Leave its records out, or name one model for all records: --who."
        raise InputError(where, "clients that the run learned models for", f"{strange[0]!r} is none of them", todo)
    return names.map(homes).to_numpy(dtype=object)


def _is_network(what: Path) -> bool:
    return what.suffix == ".npz"


def _of_network(path: Path, table: Path) -> tuple[pd.DataFrame, Json]:
    """Predictions of a network that `silograph personalise`, or an estimator, saved."""
    import pandas as pd

    from silograph.estimators.meta import PrivateMetaClassifier, PrivateMetaRegressor
    from silograph.families.meta.network import load_networks

    spec = load_networks().load_model(path)[0]
    numbers = spec["answers"] == "numbers"
    records, target = _read(table, [] if numbers else [spec["target"]]), spec["target"]
    x = records[[column for column in records if column != target]]
    if numbers:
        regression = PrivateMetaRegressor.load(path)
        told = pd.DataFrame({"prediction": regression.predict(x)})
        score = ((told["prediction"] - records[target].astype(float)) ** 2).mean() if target in records else None
        return told, {"measure": "mean squared error", "score": None if score is None else float(score)}
    model = PrivateMetaClassifier.load(path)
    told = pd.DataFrame({"prediction": model.predict(x)})
    for label, chances in zip(model.classes_, model.predict_proba(x).T, strict=True):
        told[f"chance of {label}"] = chances
    score = model.score(x, records[target].to_numpy()) if target in records else None
    return told, {"measure": "accuracy", "score": score}
