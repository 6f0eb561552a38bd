"""What the samples and the contract cases of all families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from silograph import families
from silograph.core.files import write_atomically
from silograph.core.types import Json

STARTER, PLAN = "starter.toml", "plan.toml"
WARDED = ("east", "north", "west")


class SamplePart(Protocol):
    """A family's part `sample`; it is imported with the command line, so it imports little itself."""

    #: `silograph sample --OPTION`, and what its help says.
    OPTION: str
    HELP: str

    def write(self, folder: Path, seed: int) -> list[Path]:
        """Write tables, and a plan if a run needs one; the same seed writes the same bytes."""
        ...


class CasesPart(Protocol):
    """A family's part `cases`. `ROUNDING`, where there is one, is how far its engines may differ by rounding; where
    there is none they agree to the last bit."""

    def cases(self, folder: Path, seed: int) -> dict[str, Json]:
        """Write small tables; return plans on them, by name: every method, mechanism and mode that the family has.

        The contract suite holds each of them to the same laws. Another seed changes numbers in tables, and nothing that
        is public of them.
        """
        ...


def cases_part(name: str) -> CasesPart:
    return families.part(name, "cases", CasesPart)


def samples() -> dict[str, SamplePart]:
    """Every family's sample, by its option."""
    parts = (families.part(name, "sample", SamplePart) for name in families.names())
    return {part.OPTION: part for part in parts}


def writer(package: str, module: str, function: str) -> Callable[[Path, int], list[Path]]:
    """Writes the tables that a function of a module writes, which nobody waits for before, and the family's starter."""

    def write(folder: Path, seed: int) -> list[Path]:
        tables, others = getattr(import_module(module), function)(folder, seed)
        write_atomically(folder / PLAN, (files(package) / STARTER).read_bytes())
        return [*tables, *([others] if isinstance(others, Path) else others), folder / PLAN]

    return write


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    lines = [",".join(map(str, line)) for line in (header, *rows)]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def write_wards(folder: Path, seed: int, clusters: bool) -> None:
    """Records of three servers with four agents each, of two kinds."""
    import numpy as np  # what a command line that plays no case need not wait for

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    for server in WARDED:
        rows: list[list[object]] = []
        for ward in range(4):
            x = rng.normal(size=(5, 3))
            label = (x @ np.arange(1.0, 4.0) > 0.0).astype(int)
            kind = [["odd", "even"][ward % 2 == 0]] if clusters else []
            rows += [[f"{server}{ward}", *kind, *x[k], label[k]] for k in range(5)]
        write_table(folder / f"{server}.csv", ["ward", *["kind"][: len(kind)], "a", "b", "c", "y"], rows)
