"""Tables and a plan to start clustered models from."""

from __future__ import annotations

from pathlib import Path

from silograph.families.samples import write_starter

OPTION, HELP = "hospitals", "Six hospitals' wards by diagnosis and a plan to start from."


def write(folder: Path, seed: int) -> list[Path]:
    from silograph.data.clusters import (
        write_sample_hospitals,  # what a command line that makes no sample need not wait for
    )

    tables, test = write_sample_hospitals(folder, seed)
    return [*tables, test, write_starter(folder, __package__)]
