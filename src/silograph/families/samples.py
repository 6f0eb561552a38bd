"""What the samples of all families share."""

from __future__ import annotations

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


def write_starter(folder: Path, package: str | None) -> Path:
    """The family's starter as the sample's plan."""
    assert package is not None, "a starter lies beside its family's modules"
    write_atomically(folder / PLAN, (files(package) / STARTER).read_bytes())
    return folder / PLAN
