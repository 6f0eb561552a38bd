"""Tables and a plan to start a shared start from."""

from __future__ import annotations

from pathlib import Path

from silograph.families.samples import write_starter

OPTION, HELP = "devices", "24 motion sensors, eight new ones, and a plan to start from."


def write(folder: Path, seed: int) -> list[Path]:
    from silograph.data.class_clients import (
        write_sample_devices,  # what a command line that makes no sample need not wait for
    )

    tables, others = write_sample_devices(folder, seed)
    return [*tables, *others, write_starter(folder, __package__)]
