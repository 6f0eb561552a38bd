"""What the samples of all families share."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from silograph import families
from silograph.core.files import write_atomically

STARTER, PLAN = "starter.toml", "plan.toml"


class SamplePart(Protocol):
    """A family's part `sample`; it is imported with the command line, so it imports little itself."""

    #: `silograph sample --OPTION`, and what its help says.
    OPTION: str
    HELP: str

    def write(self, folder: Path, seed: int) -> list[Path]:
        """Write tables, and a plan if a run needs one; the same seed writes the same bytes."""
        ...


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
