"""Tables to start learning graphs from; `silograph learn` needs no plan."""

from __future__ import annotations

from pathlib import Path

OPTION, HELP = "sites", "Tables of signals of five sites (default)."


def write(folder: Path, seed: int) -> list[Path]:
    from silograph.data.synthetic import write_sample_sites  # needs scipy, which takes a while to import

    return write_sample_sites(folder, seed)
