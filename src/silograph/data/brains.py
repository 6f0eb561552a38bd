"""Brain activity by region and person (ABIDE), from a user's copy.

It reads NPZ files with arrays X (persons, times, regions), dx_group (1 autism, 2 control) and subject, and the download
of the Preprocessed Connectomes Project: a folder that holds, at any depth, files NAME_rois_ATLAS.1D and the phenotype
file, a CSV with the columns FILE_ID and DX_GROUP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray
from silograph.data.collections import first_data, read_arrays, worded
from silograph.data.delimited import csv_rows
from silograph.data.tables import listed, shown

PLACES = ("abide/abide_um_aal116.npz", "abide", "ABIDE_pcp")
ATLAS = "aal"
WHERE_TO_GET = (
    "ABIDE I is shared by the Preprocessed Connectomes Project (nilearn's fetch_abide_pcp downloads it, with "
    "derivatives='rois_aal'): keep the *_rois_*.1D files and the Phenotypic_V1_0b_preprocessed1.csv in a folder abide."
)
CEREBRUM = 90  # the first regions of AAL; the rest are the cerebellum's
_AUTISM, _CONTROL = 1, 2


@dataclass(frozen=True, eq=False)
class Brains:
    """`series[p]` is (times, regions) of one person; head motion is NaN if nobody measured it.

    `xyz` (regions, 3) has the places of the regions, in mm, if the copy does. Persons with a region that never changes
    are left out, and counted.
    """

    source: str
    person: tuple[str, ...]
    autism: BoolArray
    motion: Array
    regions: tuple[str, ...]
    series: tuple[Array, ...]
    xyz: Array | None = None
    left_out: int = 0

    def of(self, persons: Sequence[int]) -> Brains:
        """Keep these persons alone."""
        places = list(persons)
        return replace(
            self,
            person=tuple(self.person[k] for k in places),
            autism=self.autism[places],
            motion=self.motion[places],
            series=tuple(self.series[k] for k in places),
        )

    def only(self, regions: Sequence[int]) -> Brains:
        """Keep these regions alone, of the same persons."""
        places = list(regions)
        return replace(
            self,
            regions=tuple(self.regions[k] for k in places),
            series=tuple(own[:, places] for own in self.series),
            xyz=None if self.xyz is None else self.xyz[places],
        )


def load_brains(folder: Path | None) -> Brains:
    """Load the copy in the folder, in the atlas AAL: the regions of the cerebrum, and persons in whom all of them
    vary."""
    path = first_data(folder, PLACES, WHERE_TO_GET)
    brains = load_whole_brains(folder)
    return _varying(brains.only(range(min(CEREBRUM, len(brains.regions)))), shown(path))


def load_whole_brains(folder: Path | None) -> Brains:
    """Load the same copy unchanged: all regions, and everybody."""
    path = first_data(folder, PLACES, WHERE_TO_GET)
    return read_series(path, ATLAS) if path.is_dir() else read_packed(path)


def _varying(brains: Brains, where: str) -> Brains:
    kept = [k for k, own in enumerate(brains.series) if (np.ptp(own, axis=0) > 0.0).all()]
    whole = brains.of(kept)
    if whole.autism.all() or not whole.autism.any():
        found = (
            f"of {len(brains.series)} persons {len(kept)} have no constant region, {whole.autism.sum()} of them group 1"
        )
        raise InputError(where, "persons of group 1 (autism) and group 2 (control)", found)
    return replace(whole, left_out=len(brains.series) - len(kept))


def read_packed(path: Path) -> Brains:
    there = read_arrays(path, ("X", "dx_group", "subject"))
    x, group, subject = there["X"], there["dx_group"], there["subject"]
    if x.ndim != 3 or not len(x) == len(group) == len(subject):
        found = f"X has the shape {x.shape}, dx_group {group.shape}, subject {subject.shape}"
        raise InputError(shown(path), "X (persons, times, regions), with a group and a number each", found)
    named = there.get("roi_name90", there.get("roi_code", np.array([])))
    regions = [*worded(named.tolist(), "region")] + [f"region_{k + 1}" for k in range(len(named), x.shape[2])]
    xyz = None
    if "roi_xyz90" in there:  # the other regions have no place
        known = there["roi_xyz90"].astype(float)
        xyz = np.vstack([known, np.full((x.shape[2] - len(known), 3), np.nan)])
    motion = there.get("mean_fd", np.full(len(x), np.nan))
    # In double precision, since squares of half-precision numbers overflow.
    rows = [(str(subject[p]), int(group[p]), float(motion[p]), x[p].astype(float)) for p in range(len(x))]
    return _gathered(path.stem, rows, regions, xyz)


def read_series(folder: Path, atlas: str) -> Brains:
    """Read the persons of the phenotype file that have series."""
    files = {path.name.removesuffix(f"_rois_{atlas}.1D"): path for path in folder.rglob(f"*_rois_{atlas}.1D")}
    tables = sorted(folder.rglob("*henotypic*.csv"))
    if not files or not tables:
        lacks = f"files *_rois_{atlas}.1D" if not files else "phenotype file *Phenotypic*.csv"
        raise InputError(shown(folder), "series and a phenotype file", f"it has no {lacks}", WHERE_TO_GET)
    rows, header = [], None
    for number, row in enumerate(_phenotype(tables[0]), 1):
        path = files.get(row["FILE_ID"])
        if path is None:
            continue
        codes, series = _read_1d(path)
        if header is None:
            header = codes
        if codes != header:
            raise InputError(shown(path), f"the regions {listed(header)}", f"it has {listed(codes)}")
        where = f"{shown(tables[0])}, row {number}"
        rows.append((row["FILE_ID"], _group(row["DX_GROUP"], where), _motion(row), series))
    if header is None:
        raise InputError(shown(tables[0]), f"a FILE_ID such as {listed(sorted(files))}", "none of them is there")
    return _gathered(f"{folder.name}, {atlas}", rows, worded(header, "region"), None)


def _gathered(
    source: str, rows: list[tuple[str, int, float, Array]], regions: Sequence[str], xyz: Array | None
) -> Brains:
    person, group, motion, series = zip(*rows, strict=True)
    return Brains(source, person, np.array(group) == _AUTISM, np.array(motion), tuple(regions), series, xyz)


def _read_1d(path: Path) -> tuple[list[str], Array]:
    """Read the names in the first line, behind #, and the numbers below: a line per time, a column per region."""
    try:
        with open(path, encoding="utf-8") as file:
            header = file.readline()
        series = np.loadtxt(path, ndmin=2)
    except (OSError, ValueError) as problem:
        raise InputError(shown(path), "numbers, a column for each region", f"it cannot be read ({problem})") from None
    codes = [name.lstrip("#") for name in header.split()] if header.startswith("#") else []
    if len(codes) != series.shape[1]:
        codes = [f"region_{k + 1}" for k in range(series.shape[1])]
    return codes, series


def _phenotype(path: Path) -> list[dict[str, str]]:
    header, rows = csv_rows(path, "a CSV of phenotypes")
    if not rows or not {"FILE_ID", "DX_GROUP"} <= set(header):
        raise InputError(shown(path), "a header with FILE_ID and DX_GROUP, and at least one row", "there is none")
    return rows


def _group(text: str, where: str) -> int:
    if text.strip() not in (str(_AUTISM), str(_CONTROL)):
        raise InputError(where, "DX_GROUP 1 (autism) or 2 (control)", f"found {text!r}")
    return int(text)


def _motion(row: dict[str, str]) -> float:
    try:
        return float(row.get("func_mean_fd") or "nan")
    except ValueError:
        return float("nan")
