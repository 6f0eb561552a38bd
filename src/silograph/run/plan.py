"""A plan: what will run, as data. It can be written down, sent, approved, priced and run again."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from silograph.core.errors import InputError

FORMAT = 1
DEFAULT_DELTA = 1e-6


@dataclass(frozen=True)
class Data:
    """Where the silos' tables are, relative to the plan file, and how to read them."""

    files: tuple[str, ...] = ()
    nodes_in: Literal["columns", "rows"] = "columns"
    standardise: bool = False
    candidates: str | None = None


@dataclass(frozen=True)
class ConsensusGraph:
    """S3 (8) and S0 (8). What is left out is chosen: beta for `degree`, the rest from the scale of the data."""

    name: Literal["consensus_graph"] = "consensus_graph"
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
        if self.seed is not None and self.seed < 0:
            raise InputError("plan, seed", "a whole number from 0 up", f"{self.seed} came")


def _check_method(method: ConsensusGraph) -> None:
    for name in ("alpha", "beta", "nu", "lam", "degree", "step", "tolerance"):
        value = getattr(method, name)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise InputError(f"plan, {_public(name)}", "a number above 0", f"{value} came")
    for name in ("zeta", "threshold"):
        value = getattr(method, name)
        if value is not None and not (math.isfinite(value) and value >= 0.0):
            raise InputError(f"plan, {_public(name)}", "a number from 0 up", f"{value} came")
    for name in ("rounds", "local_steps"):
        value = getattr(method, name)
        if value is not None and value < 1:
            raise InputError(f"plan, {_public(name)}", "a whole number from 1 up", f"{value} came")
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
                raise InputError(f"plan, {_public(name)}", "the solver 'paper'", "the exact solver has no such setting")


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
        missing = [_public(name) for name in ("beta", "nu", "lam") if getattr(method, name) is None]
        missing += ["clip"] if privacy.clip is None else []
        if missing:
            raise InputError(
                "plan",
                "numbers for beta, nu, lambda and clip with noise in every round",
                f"{', '.join(missing)} did not come",
                "Choosing them on the private data would itself be a release; the mode 'one-release' chooses for free.",
            )


# ---- files -----------------------------------------------------------------------------------------------------------

_SECTIONS: dict[str, type[Any]] = {"data": Data, "method": ConsensusGraph, "privacy": Privacy}
_TOP = ("format", "topology", "engine", "seed", *_SECTIONS)
_PUBLIC = {"lam": "lambda"}


def _public(name: str) -> str:
    return _PUBLIC.get(name, name)


def load(path: str | Path) -> Plan:
    """Read a plan file; paths in it stay relative to it."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(str(path), "a readable plan file", "it is no ordinary file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(str(path), "a plan file", "there is none") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), "a readable plan file", str(error)) from None
    except RecursionError:
        raise InputError(str(path), "TOML", "it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), "TOML", str(error)) from None
    return parse(content, str(path))


def parse(content: Mapping[str, Any], where: str) -> Plan:
    _only(content, _TOP, where)
    if content.get("format") != FORMAT:
        raise InputError(where, f"format = {FORMAT}", f"{content.get('format')!r} came")
    sections = {}
    for name, kind in _SECTIONS.items():
        if name in content:
            if not isinstance(content[name], dict):
                raise InputError(f"{where}, {name}", "a section", f"{content[name]!r} came")
            sections[name] = _section(kind, content[name], f"{where}, [{name}]")
    if not sections.get("data", Data()).files:
        raise InputError(f"{where}, [data]", "files = [...] with at least one table", "none came")
    top = {name: content[name] for name in ("topology", "engine", "seed") if name in content}
    hints = get_type_hints(Plan)
    for name, value in top.items():
        _typed(value, hints[name], f"{where}, {name}")
    return Plan(**sections, **top)


def _only(content: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise InputError(where, f"only {', '.join(known)}", f"{', '.join(unknown)} came", "Check the spelling.")


def _section(kind: type[Any], content: Mapping[str, Any], where: str) -> Any:
    names = {_public(field.name): field.name for field in fields(kind)}
    _only(content, tuple(names), where)
    hints = get_type_hints(kind)
    values = {names[key]: _typed(value, hints[names[key]], f"{where}, {key}") for key, value in content.items()}
    if kind is Privacy and "epsilon" not in values:
        raise InputError(where, "epsilon, the total budget of every silo", "none came")
    return kind(**values)


def _typed(value: Any, hint: Any, where: str) -> Any:
    """The value as the field wants it: TOML has its own types, so little is left to convert."""
    text = str(hint)
    if hint == str | None:
        if not isinstance(value, str):
            raise InputError(where, "a file name", f"{value!r} came")
        return value
    choices = [choice for part in (hint, *get_args(hint)) for choice in get_args(part) if isinstance(choice, str)]
    if choices:
        if value not in choices:
            raise InputError(where, f"one of {', '.join(choices)}", f"{value!r} came")
        return value
    if "tuple" in text:
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise InputError(where, "a list of file names", f"{value!r} came")
        return tuple(value)
    wanted: tuple[type, str] = (float, "a number") if "float" in text else (int, "a whole number")
    if "bool" in text:
        wanted = (bool, "true or false")
    if wanted[0] is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(where, "a number that fits", "one with hundreds of digits came") from None
    if not isinstance(value, wanted[0]) or (isinstance(value, bool) and wanted[0] is not bool):
        raise InputError(where, wanted[1], f"{value!r} came")
    return value


def dumps(plan: Plan) -> str:
    """The plan as a file; what is None is left out."""
    import tomli_w

    def section(value: Any) -> dict[str, Any]:
        kept = {_public(name): item for name, item in asdict(value).items() if item is not None}
        return {name: list(item) if isinstance(item, tuple) else item for name, item in kept.items()}

    content: dict[str, Any] = {"format": FORMAT, "topology": plan.topology, "engine": plan.engine}
    if plan.seed is not None:
        content["seed"] = plan.seed
    content["data"], content["method"] = section(plan.data), section(plan.method)
    if plan.privacy is not None:
        content["privacy"] = section(plan.privacy)
    return tomli_w.dumps(content)


def moved(plan: Plan, base: Path, goal: Path) -> Plan:
    """The same plan with its files named from another folder."""

    def rename(name: str) -> str:
        return os.path.relpath(base / name, goal)

    candidates = None if plan.data.candidates is None else rename(plan.data.candidates)
    data = replace(plan.data, files=tuple(rename(name) for name in plan.data.files), candidates=candidates)
    return replace(plan, data=data)
