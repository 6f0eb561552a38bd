"""Read and check what every run folder has. A folder that silograph did not write is refused."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote

from silograph.core import old_names, schema
from silograph.core.errors import DamageError
from silograph.core.results import ADVICE, FILE, Guarantee, Link, Made, Result, read_text
from silograph.core.schema import shortened
from silograph.core.spreadsheet import as_named
from silograph.core.types import Json
from silograph.report.audits import Audit

Edge = Link
BASELINE_MEASURE = "baseline without features"  # the majority's class, or the mean
ID_DIGITS = 12
R = TypeVar("R", bound=Result, covariant=True)


@dataclass(frozen=True)
class RunFolder(Generic[R]):
    """What any run left behind, checked. `json` is result.json as it is, `result` and `made` what it says."""

    folder: Path
    json: Json
    result: R
    made: Made
    ledger: list[Json]
    plan: str
    #: What `silograph audit` found, as often as somebody asked it.
    audits: list[Audit]

    @property
    def id(self) -> str:
        """What a page and a file of papers call the run: the beginning of the SHA-256 of its result.json."""
        return hashlib.sha256((self.folder / FILE).read_bytes()).hexdigest()[:ID_DIGITS]

    @property
    def graphs(self) -> dict[str, list[Edge]]:
        """The graphs it learned by their names, the one for all first; none where it learned models."""
        return {}

    @property
    def signs(self) -> dict[str, dict[frozenset[str], int]]:
        """Of the edges of these graphs, 1 or -1; none where relations have no signs."""
        return {}

    @property
    def known(self) -> dict[str, dict[str, list[float]]]:
        """What else is known of the edges of these graphs, by column, in the order of the edges."""
        return {}

    @property
    def models(self) -> dict[str, list[float]]:
        """The linear models it learned, by whose they are; none where it learned others."""
        return {}

    @property
    def message(self) -> int | None:
        """How many numbers a silo sends in a round, where its ledger's rows do not say it."""
        return None

    def in_ledger(self, site: str) -> str:
        """The ledger's name of the one whom a guarantee is for."""
        return site


class Measured(NamedTuple):
    """A number that says how good a result is; `mark` is where `numbers_are` says what kind of number it is. Numbers of
    runs whose `scale` differs are not held against each other."""

    name: str
    measure: str
    mark: str
    value: float | None
    scale: str = ""


def site_file(name: str) -> str:
    """The file of a site or region: its name, percent-encoded only where a name could lead out of the folder."""
    return (quote(name, safe="") if set(name) & set("/\\\0") else name) + ".csv"


def read_table(path: Path, columns: Sequence[str], *further: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of a CSV file that must have these columns, and may have one `further` one, each with where it
    stands."""
    rows = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        header = list(map(as_named, next(rows, [])))
        if header not in (list(columns), *([*columns, name] for name in further)):
            raise DamageError(str(path), f"the columns {','.join(columns)}", f"found {shortened(header)}", ADVICE)
        for row in rows:
            where = f"{path}: line {rows.line_num}"
            if len(row) != len(header):
                raise DamageError(where, f"{len(header)} values", f"found {len(row)}", ADVICE)
            yield where, list(map(as_named, row))
    except csv.Error as error:
        raise DamageError(
            f"{path}: line {rows.line_num}", "a CSV row", f"it does not parse ({error})", ADVICE
        ) from error


@dataclass(frozen=True)
class LedgerRow:
    """What every row of a ledger says; mechanisms add more."""

    silo: str
    release_point: str
    mechanism: str


def read_ledger(path: Path) -> list[Json]:
    ledger = []
    # Not splitlines: it would also cut at separators that JSON allows inside a string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            row = old_names.ledger_row(schema.parse_json(line, where, DamageError, ADVICE))
            schema.read(LedgerRow, row, where, DamageError, ADVICE, further=True)
            ledger.append(row)
    return ledger


def check_edge(source: str, target: str, nodes: Collection[str], where: str) -> None:
    for name in (source, target):
        if name not in nodes:
            raise DamageError(where, "a node named in result.json", f"found {shortened(name)}", ADVICE)
    if source == target:
        raise DamageError(where, "an edge between two nodes", f"both ends are {shortened(source)}", ADVICE)


def check_unique(names: Sequence[object], where: str) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise DamageError(where, "names that differ", f"{shortened(name)} comes twice", ADVICE)
        seen.add(name)


def check_named(name: str, noun: str, names: Collection[str], where: str) -> None:
    if name not in names:
        raise DamageError(where, f"a {noun} named in result.json", f"found {shortened(name)}", ADVICE)


def check_guarantees(guarantees: Sequence[Guarantee], noun: str, names: Collection[str], where: str) -> None:
    """Refuse guarantees unless there is exactly one for each name and observer."""
    for each in guarantees:
        check_named(each.site, noun, names, where)
    check_unique([(each.site, each.observer) for each in guarantees], where)


def check_weights(path: Path, header: Sequence[str], models: Sequence[tuple[str, Sequence[float]]], what: str) -> None:
    """The file of models, which others use, must say what the result says: a row for each, by its name."""
    rows = list(read_table(path, header))
    if [row[0] for _, row in rows] != [name for name, _ in models]:
        raise DamageError(str(path), f"the {what} of result.json in their order", "found others", ADVICE)
    for (where, (_, *texts)), (_, weights) in zip(rows, models, strict=True):
        for text, weight in zip(texts, weights, strict=True):
            found = as_number(text)
            if not (math.isclose(found, weight, rel_tol=1e-9) or (math.isnan(weight) and text == repr(weight))):
                raise DamageError(where, f"the weight {weight!r} of result.json", f"found {shortened(text)}", ADVICE)


def check_length(model: Sequence[float], features: Sequence[str], where: str) -> None:
    if len(model) != len(features):
        found = f"result.json holds {len(model)}"
        raise DamageError(where, f"a weight for each of {len(features)} features", found, ADVICE)


def as_number(text: str) -> float:
    """The text as a number; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
