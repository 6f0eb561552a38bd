"""Tables and a plan to start a graph federation from."""

from __future__ import annotations

from pathlib import Path

from silograph.families.samples import write_starter

OPTION, HELP = "clinics", "Ten regions of clinics and a plan to start from."


def write(folder: Path, seed: int) -> list[Path]:
    from silograph.data.federation import (
        write_sample_clinics,  # what a command line that makes no sample need not wait for
    )

    tables, test = write_sample_clinics(folder, seed)
    return [*tables, test, write_starter(folder, __package__)]
