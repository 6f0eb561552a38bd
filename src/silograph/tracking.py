"""Record a finished run in MLflow: what its folder says, and nothing else.

Under a privacy budget only numbers that the run marks as released are recorded; numbers that only a simulation can
know never are, and neither is a report that shows them.
MLflow's own reports to its makers are switched off.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from silograph.core.errors import InputError, SilographError
from silograph.core.results import FILE, Result, read_as, read_json, read_text
from silograph.core.toml import parse_toml
from silograph.core.types import Json

EXPERIMENT = "silograph"
#: A file in the current folder; MLFLOW_TRACKING_URI names another place.
STORE = "sqlite:///mlflow.db"
#: What is no secret of any record, though it has no mark.
PUBLIC = ("rounds", "certified_gap")
#: Parts of result.json that are told otherwise, or are no numbers of the run.
LEFT_OUT = ("format", "trace", "privacy", "numbers_are", "versions", "ledger", "seed", "parameters", "model")
KEPT = "stays in the run's folder: it shows numbers that only this simulation knows, and no budget covers"
_AT_ONCE = 900  # metrics in one call; MLflow takes up to 1000
_LONGEST = 500  # characters of a parameter
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


class TrackingError(SilographError):
    """The run is done and kept, but could not be told to the tracking server."""

    code = "tracking"


@dataclass(frozen=True)
class Tracked:
    """What MLflow gets of a run; a metric is its name, its value and its round. `report`: whether the page goes."""

    parameters: dict[str, str]
    metrics: list[tuple[str, float, int]]
    tags: dict[str, str]
    report: bool


def tracked(folder: Path) -> Tracked:
    """All that goes to MLflow of a run folder, as a function of that folder alone."""
    result, plan = read_json(folder), parse_toml(read_text(folder / "plan.toml"), str(folder / "plan.toml"))
    run = read_as(Result, result, str(folder / FILE))
    marks, private = run.numbers_are, "privacy" in plan
    parameters = dict(_flat(plan)) | dict(_flat({"chosen": result.get("parameters", {})}))
    metrics: list[tuple[str, float, int]] = []
    for line in result.get("trace", []):
        metrics += [(f"trace/{key}", *pair) for key, pair in _line(line, marks, private)]
    final = {key: value for key, value in result.items() if key not in LEFT_OUT}
    metrics += [(_name(path), value, 0) for path, value in _numbers(final, ()) if _may_tell(path, marks, private)]
    tags = {"method": result["method"], "silograph": result["versions"]["silograph"]}
    tags |= {f"privacy.{key}": getattr(run.privacy, key) for key in ("protected_unit", "relation", "mode")}
    for each in run.privacy.guarantees:
        where = _name(("epsilon", each.site, each.observer))
        if not each.finite or each.delta is None:
            tags[where] = "infinity"
        else:
            metrics.append((where, each.epsilon, 0))
            metrics.append((_name(("delta", each.site, each.observer)), each.delta, 0))
    shows = not private or not _simulated(result)
    tags |= {} if shows else {"report": KEPT}
    return Tracked({key: value[:_LONGEST] for key, value in parameters.items()}, metrics, tags, shows)


def _simulated(result: Json) -> list[str]:
    """The parts of the result, and so of its page, that only a simulation can know and that are not empty."""
    return [key for key, kind in result["numbers_are"].items() if kind == "simulation only" and result.get(key)]


def _line(line: Json, marks: Json, private: bool) -> Iterator[tuple[str, tuple[float, int]]]:
    for path, value in _numbers({key: value for key, value in line.items() if key != "round"}, ()):
        if _may_tell(path, marks, private):
            yield _name(path), (value, line["round"])


def _may_tell(path: tuple[str, ...], marks: Json, private: bool) -> bool:
    kinds = {marks[part] for part in (*path, ".".join(path)) if part in marks}
    return not private or ("simulation only" not in kinds and ("released" in kinds or path[-1] in PUBLIC))


def _numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every finite number with where it stands; members of a list are called by their name or method."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, (*path, str(key)))
    elif isinstance(value, list):
        for inner in value:
            called = inner.get("name", inner.get("method")) if isinstance(inner, dict) else None
            if isinstance(called, str):
                yield from _numbers(inner, (*path, called))
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield path, float(value)


def _flat(section: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, (*path, key))
        elif value is not None:
            yield _name((*path, key), "."), str(value)


def _name(path: tuple[str, ...], joint: str = "/") -> str:
    """As MLflow allows names."""
    return joint.join(re.sub(r"[^\w\-. ]", "_", part) for part in path)[:250]


# ---- sending ---------------------------------------------------------------------------------------------------------


def require() -> None:
    """Refuses, before anything runs, where MLflow is not installed."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow.tracking  # noqa: F401
    except ImportError:
        todo = "Install it with: pip install 'silograph[tracking]'."
        raise InputError("--track mlflow", "MLflow to be installed", "it is not", todo) from None


def send(folder: Path) -> Json:
    """Tell MLflow of a finished run, with its report if that may go; returns where it can be found."""
    require()
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    uri = os.environ.get("MLFLOW_TRACKING_URI") or STORE
    what = tracked(folder)
    try:
        client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = client.create_experiment(EXPERIMENT) if known is None else known.experiment_id
        run = client.create_run(experiment, run_name=folder.name).info
        parameters = [Param(key, value) for key, value in what.parameters.items()]
        client.log_batch(run.run_id, params=parameters, tags=[RunTag(*tag) for tag in what.tags.items()])
        metrics = [Metric(name, value, run.start_time, step) for name, value, step in what.metrics]
        for first in range(0, len(metrics), _AT_ONCE):
            client.log_batch(run.run_id, metrics=metrics[first : first + _AT_ONCE])
        if what.report:
            client.log_artifact(run.run_id, str(folder / "report.html"))
        client.set_terminated(run.run_id)
    except Exception as error:  # MLflow, its database and its network raise many kinds
        said = masked(str(error).splitlines()[0], uri)[:300] if str(error) else type(error).__name__
        todo = f"The run is done and kept in {folder}; the same command tells of it again."
        where, found = f"--track mlflow at {masked(uri, uri)}", f"it did not work ({said})"
        raise TrackingError(where, "a tracking store that answers", found, todo) from None
    return {"uri": masked(uri, uri), "experiment": EXPERIMENT, "run": run.run_id}


def masked(text: str, uri: str) -> str:
    """A text without the user and the password that a URI may have, wherever they stand in it."""
    found = re.search(r"://(\S*)@", uri)
    if found is None:
        return text
    user = found[1]
    password = user.partition(":")[2]
    for secret in sorted({user, unquote(user), password, unquote(password)} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
