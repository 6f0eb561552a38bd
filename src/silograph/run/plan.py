"""A plan: what will run, as data. It can be written down, sent, approved, priced and run again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from silograph.core.errors import InputError
from silograph.run.clustered_plan import ClusteredPlan
from silograph.run.federation_plan import FederationPlan
from silograph.run.meta_plan import MetaPlan
from silograph.run.sections import naming_files, parse_into, public, read_toml, to_table

FORMAT = 1
DEFAULT_DELTA = 1e-6


@dataclass(frozen=True)
class Data:
    """Where the silos' tables are, relative to the plan file, and how to read them."""

    files: tuple[str, ...] = naming_files(())
    nodes_in: Literal["columns", "rows"] = "columns"
    standardise: bool = False
    candidates: str | None = naming_files(None)
    unit_column: str | None = None
    coordinates: str | None = naming_files(None, private=False)


@dataclass(frozen=True)
class ConsensusGraph:
    """S3 (8) and S0 (8). What is left out is chosen: beta for `degree`, the rest from the scale of the data.

    The learner `log-det`, the likelihood of Gaussian signals, is for one private release and has no other parameters.
    """

    name: Literal["consensus_graph"] = "consensus_graph"
    learner: Literal["log-det", "log-degree"] | None = None
    solver: Literal["exact", "paper"] = "exact"
    degree: float | None = None
    alpha: float = 1.0
    beta: float | None = None
    nu: float | None = None
    lam: float | None = None
    zeta: float | None = None
    threshold: float = 0.0
    tolerance: float = 1e-7
    rounds: int | None = None
    form: Literal["S3", "S0"] | None = None
    local_steps: int | None = None
    step: float | None = None
    momentum: float | None = None
    coupling: Literal["implicit", "explicit"] = "implicit"


@dataclass(frozen=True)
class Privacy:
    """The total budget of every silo, and how it is spent."""

    epsilon: float
    delta: float | None = None
    mode: Literal["one-release", "per-round"] = "one-release"
    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    clip: float | None = None

    @property
    def total_delta(self) -> float:
        if self.mechanism == "laplace":
            return 0.0
        return DEFAULT_DELTA if self.delta is None else self.delta


@dataclass(frozen=True)
class Plan:
    data: Data
    method: ConsensusGraph = ConsensusGraph()
    privacy: Privacy | None = None
    topology: Literal["star"] = "star"
    engine: Literal["vector", "silowise"] = "vector"
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_method(self.method)
        if self.privacy is not None:
            _check_privacy(self.privacy, self.method)
            if self.privacy.mode == "per-round" and self.data.candidates is not None:
                raise InputError("plan, candidates", "one release with candidate edges", "noise in every round came")
            if self.data.standardise:
                raise InputError(
                    "plan, standardise",
                    "data as they are, with privacy",
                    "standardising was asked for: it reads every signal's values in the clear, unaccounted",
                    "Scale the tables beforehand by constants that do not come from them.",
                )
        _check_learner(self)
        _check_unit(self)
        if self.seed is not None and self.seed < 0:
            raise InputError("plan, seed", "a whole number from 0 up", f"{self.seed} came")


def _check_method(method: ConsensusGraph) -> None:
    for name in ("alpha", "beta", "nu", "lam", "degree", "step", "tolerance"):
        value = getattr(method, name)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise InputError(f"plan, {public(name)}", "a number above 0", f"{value} came")
    for name in ("zeta", "threshold"):
        value = getattr(method, name)
        if value is not None and not (math.isfinite(value) and value >= 0.0):
            raise InputError(f"plan, {public(name)}", "a number from 0 up", f"{value} came")
    for name in ("rounds", "local_steps"):
        value = getattr(method, name)
        if value is not None and value < 1:
            raise InputError(f"plan, {public(name)}", "a whole number from 1 up", f"{value} came")
    if method.momentum is not None and not 0.0 <= method.momentum < 1.0:
        raise InputError("plan, momentum", "a number from 0 up to, but not, 1", f"{method.momentum} came")
    if method.degree is not None and method.beta is not None:
        raise InputError("plan", "a degree or a beta", "both came", "The degree sets beta; leave one of them out.")
    if method.solver == "paper" and method.zeta == 0.0:
        raise InputError(
            "plan, zeta", "a number above 0 for the papers' solver", "0 came", "The papers' step needs it."
        )
    if method.solver == "exact":
        for name in ("form", "local_steps", "step", "momentum"):
            if getattr(method, name) is not None:
                raise InputError(f"plan, {public(name)}", "the solver 'paper'", "the exact solver has no such setting")


def _check_learner(plan: Plan) -> None:
    if plan.method.learner != "log-det":
        return
    if plan.privacy is None or plan.privacy.mode != "one-release":
        came = "no privacy" if plan.privacy is None else "noise in every round"
        raise InputError("plan, learner", "one private release for log-det", f"{came} came")
    if given := log_degree_only(plan.method):
        raise InputError(f"plan, {given}", "the learner 'log-degree'", "log-det has no such setting")


def log_degree_only(method: ConsensusGraph) -> str | None:
    """The first setting that only the model with log-degrees has, as it is called in plans."""
    plain = ConsensusGraph()
    names = ("solver", "alpha", "beta", "nu", "lam", "zeta", "rounds")
    return next((public(name) for name in names if getattr(method, name) != getattr(plain, name)), None)


def _check_unit(plan: Plan) -> None:
    if plan.data.unit_column is None:
        return
    where = "plan, unit_column"
    if not plan.data.unit_column.strip():
        raise InputError(where, "the name of a column", "an empty one came")
    if plan.privacy is None:
        raise InputError(where, "a privacy budget, whose unit it says", "none came", "Add an epsilon, or leave it out.")
    if plan.privacy.mode != "one-release":
        raise InputError(where, "one release, where a person's signals can be bounded", "noise in every round came")
    if plan.data.nodes_in != "columns":
        raise InputError(where, "nodes in columns", "nodes in rows came", "Turn the tables round.")


def _check_privacy(privacy: Privacy, method: ConsensusGraph) -> None:
    if not (math.isfinite(privacy.epsilon) and privacy.epsilon > 0.0):
        raise InputError(
            "plan, epsilon",
            "a privacy budget above 0",
            f"{privacy.epsilon} came",
            "Leave it out for a run without privacy.",
        )
    if privacy.delta is not None and not 0.0 < privacy.delta < 1.0:
        raise InputError("plan, delta", "a number between 0 and 1", f"{privacy.delta} came", "Try 1e-6.")
    if privacy.mechanism == "laplace" and privacy.delta is not None:
        raise InputError("plan, delta", "no delta with Laplace noise, whose delta is 0", f"{privacy.delta} came")
    if privacy.clip is not None and not 1e-70 <= privacy.clip <= 1e70:
        raise InputError("plan, clip", "a number above 0 whose powers are numbers", f"{privacy.clip} came")
    if privacy.mode == "per-round":
        if method.solver != "paper":
            raise InputError("plan, privacy", "the solver 'paper' for noise in every round", "the exact solver came")
        if privacy.mechanism != "gaussian":
            raise InputError("plan, mechanism", "gaussian for noise in every round", f"{privacy.mechanism} came")
        missing = [public(name) for name in ("beta", "nu", "lam") if getattr(method, name) is None]
        missing += ["clip"] if privacy.clip is None else []
        if missing:
            raise InputError(
                "plan",
                "numbers for beta, nu, lambda and clip with noise in every round",
                f"{', '.join(missing)} did not come",
                "Choosing them on the private data would itself be a release; the mode 'one-release' chooses for free.",
            )


# ---- files -----------------------------------------------------------------------------------------------------------

AnyPlan = Plan | FederationPlan | ClusteredPlan | MetaPlan

_KINDS: dict[str, type[AnyPlan]] = {
    "consensus_graph": Plan,
    "graph_federation": FederationPlan,
    "clustered_admm": ClusteredPlan,
    "private_meta": MetaPlan,
}


def load(path: str | Path) -> AnyPlan:
    """Read a plan file; paths in it stay relative to it."""
    return parse(read_toml(Path(path)), str(path))


def parse(content: Mapping[str, Any], where: str) -> AnyPlan:
    rest = dict(content)
    if (found := rest.pop("format", None)) != FORMAT:
        raise InputError(where, f"format = {FORMAT}", f"{found!r} came")
    method = rest.get("method")
    name = method.get("name", "consensus_graph") if isinstance(method, dict) else "consensus_graph"
    if name not in _KINDS if isinstance(name, str) else True:
        raise InputError(f"{where}, [method], name", f"one of {', '.join(_KINDS)}", f"{name!r} came")
    data = rest.setdefault("data", {})
    if isinstance(data, dict) and not data.get("files"):
        raise InputError(f"{where}, [data]", "files = [...] with at least one table", "none came")
    plan: AnyPlan = parse_into(_KINDS[name], rest, where)
    return plan


def dumps(plan: AnyPlan) -> str:
    """The plan as a file; what is None is left out."""
    import tomli_w

    table = to_table(plan)
    # Sections come after plain values in TOML.
    ordered = sorted(table.items(), key=lambda item: isinstance(item[1], dict))
    return tomli_w.dumps({"format": FORMAT, **dict(ordered)})
