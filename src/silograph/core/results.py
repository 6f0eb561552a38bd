"""What result.json says, as types: a job fills them in, `write_result` writes them, `read_result` reads them back.

A family has a dataclass of its own, made of the parts below where it can be. The file holds the method, then what the
family says, then what all runs say (`LAST`), then how it was made (`Made`). Keys that no field has are ignored: newer
versions may write more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from silograph.core import old_names, schema
from silograph.core.errors import DamageError
from silograph.core.files import LONGEST_RESULT, read_at_most, write_atomically
from silograph.core.schema import Epsilon
from silograph.core.types import Json

FORMAT, FILE = 1, "result.json"
ADVICE = "Restore the file from a copy, or run again into a new folder."
LAST = ("rounds", "trace", "privacy", "numbers_are", "path")
#: Source, target, weight.
Link = tuple[str, str, float]
Label = bool | int | float | str


@dataclass(frozen=True)
class Claim:
    """What a paper says of this noise, and what is wrong with that."""

    epsilon: Epsilon
    delta: float | None
    basis: str
    defect: str | None


@dataclass(frozen=True)
class Guarantee:
    """The most that an observer can learn of what is protected at a site; an infinite epsilon is no protection."""

    site: str
    observer: str
    epsilon: Epsilon
    delta: float | None
    accountant: str
    claim: Claim | None
    rehearsal: bool

    @property
    def finite(self) -> bool:
        return math.isfinite(self.epsilon)


def worst_by_site(guarantees: Iterable[Guarantee]) -> dict[str, Guarantee]:
    """Each site's guarantee against the observer it protects least from."""
    worst: dict[str, Guarantee] = {}
    for each in guarantees:
        if each.epsilon > worst.setdefault(each.site, each).epsilon:
            worst[each.site] = each
    return worst


@dataclass(frozen=True)
class Privacy:
    mode: str
    protected_unit: str
    relation: str
    guarantees: list[Guarantee]
    notes: list[str]


@dataclass(frozen=True)
class Test:
    """Records that models were tested on, and what the majority baseline gets on them."""

    records: int
    measure: str
    baseline: float | None


@dataclass(frozen=True)
class Compared:
    """This run, then other ways of learning, which only a simulation can try."""

    method: str
    test_error: float | None


@dataclass(frozen=True)
class LinearTask:
    """`labels` are those in which two classes are predicted, the negative one first; None for numbers."""

    loss: str
    ridge: float | None
    target: str
    features: list[str]
    labels: tuple[Label, Label] | None = None


@dataclass(frozen=True)
class ServerGraph:
    """Which servers talk to each other."""

    servers: list[str]
    links: list[Link]
    weights: str
    spectral_gap: float | None


@dataclass(frozen=True)
class ServerRound:
    """A round of models over a graph of servers; one server of them knows no disagreement."""

    round: int
    movement: float
    disagreement: float | None
    answered: int
    skipped: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """What every run says; `numbers_are` tells which numbers were released, and which only a simulation knows."""

    method: str
    rounds: int
    privacy: Privacy
    numbers_are: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """How a result was made: the digest of its plan, the tip of its ledger, its seed, the versions of software; and
    when it was finished, in UTC, which early versions did not write."""

    plan: str
    ledger: str
    seed: int | None
    versions: dict[str, str]
    finished: str | None = None


D = TypeVar("D")


def filled(kind: type[D], source: object, **said: Any) -> D:
    """The dataclass `kind` of what is said, and for the rest of what is called so in `source`, a plan's section."""
    taken = {part.name: getattr(source, part.name) for part in fields(cast("Any", kind)) if hasattr(source, part.name)}
    return kind(**(taken | said))


def to_json(result: Result) -> Json:
    """The family's part of the file, in the order of the file."""
    told: Json = schema.write(result)
    own = {key: value for key, value in told.items() if key not in LAST}
    return {"method": result.method} | own | {key: told[key] for key in LAST if key in told}


def write_result(folder: Path, result: Result, made: Made) -> None:
    told = {"format": FORMAT, **to_json(result), **schema.write(made)}
    write_atomically(folder / FILE, (json.dumps(told, indent=1, allow_nan=False) + "\n").encode())


def read_json(folder: Path) -> Json:
    """The file as it is, of a format that this version knows."""
    if not folder.is_dir():
        raise DamageError(str(folder), "a run folder", "there is no such folder", "Check the path.")
    path = folder / FILE
    if not path.exists():
        raise DamageError(str(folder), "a run folder", f"its {FILE} is missing", ADVICE)
    told = old_names.result(schema.parse_json(read_text(path), str(path), DamageError, ADVICE))
    todo = "Use the version of silograph that wrote this folder, or a newer one."
    schema.of_format(told, FORMAT, str(path), DamageError, todo)
    whole: Json = told
    return whole


def read_as(kind: type[D], told: Json, where: str) -> D:
    """What the file says, as this type."""
    try:
        return schema.read(kind, told, where, DamageError, further=True)
    except DamageError as error:  # nobody typed this file, so nobody misspelt it
        raise DamageError(error.where, error.expected, error.found, ADVICE) from None


def read_result(folder: Path) -> tuple[Result, Made]:
    """What every run says, whatever its family."""
    told, where = read_json(folder), str(folder / FILE)
    return read_as(Result, told, where), read_as(Made, told, where)


def read_text(path: Path) -> str:
    """A text file of a finished run."""
    # A name that no file system takes raises ValueError, and so does text that is not UTF-8.
    try:
        return read_at_most(path, LONGEST_RESULT).decode("utf-8")
    except FileNotFoundError:
        raise DamageError(str(path), "a file of a finished run", "it is missing", ADVICE) from None
    except (OSError, ValueError) as error:
        raise DamageError(str(path), "a readable UTF-8 text file", f"reading failed ({error})", ADVICE) from error
