"""Odd tables in all formats: sites with a known truth, saved as people save them, some of them spoiled."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io

_NAMES = ["age", "âge", "poids total", "blood pressure (mmHg)", "x.1", "kidney-function", "Größe", "温度", "β2", "a b"]
_TEXTS = [("", lambda data: data), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
_WOUNDS = [
    b"\0",
    b"\xff",
    b'"',
    b",",
    b";",
    b"\n",
    b"1e999",
    b"nan",
    b"oops",
    b"\xef\xbb\xbf",
    b"\t\t",
    b"PK",
    b"9" * 30,
]
#: What must be refused whatever the values are; and what may be, but if it is read then rightly.
REFUSED = ("identifier", "date", "words", "constant", "copy", "twice", "ragged", "infinite", "counter")
DOUBTFUL = ("gap", "damage", "few")
FORMATS = ("csv", "tsv", "zip", "parquet", "feather", "npy", "npz", "mat", "xlsx")


@dataclass
class Case:
    """What was written: what `silograph check` is given, and what the sites hold."""

    arguments: list[str]
    sites: dict[str, pd.DataFrame]
    spoiled: str | None = None
    options: dict[str, object] = field(default_factory=dict)


def make(folder: Path, seed: int) -> Case:
    """One case; the seed says everything about it."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    kinds = [kind for kind in FORMATS if kind != "xlsx" or find_spec("openpyxl")]
    shape = str(rng.choice(["files", "files", "files", "folder", "persons", "long"]))
    names = [str(name) for name in rng.permutation(_NAMES)[: rng.integers(3, 9)]]
    categories = {}
    if rng.random() < 0.2:
        categories = {"ward": ("a", "b", "c c")}
    sites = {f"site {k}": _frame(rng, names, categories) for k in range(int(rng.integers(1, 4)))}
    truth = {name: _with_levels(frame, categories) for name, frame in sites.items()}
    spoiled = str(rng.choice([*REFUSED, *DOUBTFUL])) if rng.random() < 0.5 else None
    spoiled = "copy" if spoiled == "twice" and shape == "long" else spoiled
    victim = str(rng.choice(list(sites)))
    if spoiled not in (None, "damage", "ragged"):
        sites[victim] = _spoil(sites[victim], spoiled, rng)
        if spoiled in ("gap", "few"):
            truth[victim] = _with_levels(sites[victim], categories)
    named = bool(categories) or spoiled is not None or shape in ("persons", "long")
    nameless = ("npy", "npz", "mat") if named else ("npy",) if len(sites) > 1 else ()
    kinds = [kind for kind in kinds if kind not in nameless]
    options: dict[str, object] = {"categories": categories} if categories else {}
    arguments = [f"--categories=ward={','.join(categories['ward'])}"] if categories else []
    if shape == "long":
        whole = pd.concat([frame.assign(hospital=name) for name, frame in sites.items()])
        files = [_save(folder, "long", whole, str(rng.choice(kinds)), rng)]
        truth = {name: frame for name, frame in truth.items() if len(frame)}
        options["site_column"] = "hospital"
        arguments.append("--site-column=hospital")
    elif shape == "persons":
        for name, frame in sites.items():
            (folder / "all" / name).mkdir(parents=True)
            for k, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
                _save(folder / "all" / name, f"p{k}", frame.iloc[rows], str(rng.choice(kinds)), rng)
        files = [folder / "all"]
    else:
        place = folder / "all" if shape == "folder" else folder
        place.mkdir(exist_ok=True)
        files = [_save(place, name, frame, str(rng.choice(kinds)), rng) for name, frame in sites.items()]
        files = [place] if shape == "folder" else files
    if spoiled in ("damage", "ragged"):
        _damage(files, spoiled, rng)
    return Case([*map(str, files), *arguments], truth, spoiled, options)


def _frame(rng: np.random.Generator, names: list[str], categories: dict[str, tuple[str, ...]]) -> pd.DataFrame:
    rows = int(rng.integers(12, 60))
    values = rng.standard_normal((rows, len(names))) * 10.0 ** rng.integers(-2, 4)
    frame = pd.DataFrame(values.round(int(rng.integers(4, 9))), columns=names)
    for name, levels in categories.items():
        frame[name] = rng.permutation(np.resize(np.array(levels, dtype=object), rows))
    return frame


def _with_levels(frame: pd.DataFrame, categories: dict[str, tuple[str, ...]]) -> pd.DataFrame:
    out = {}
    for name in frame:
        if name in categories:
            for level in [level for level in categories[name] if (frame[name] == level).any()][1:]:
                out[f"{name}={level}"] = (frame[name] == level).astype(float)
        else:
            out[name] = frame[name]
    return pd.DataFrame(out)


def _spoil(frame: pd.DataFrame, how: str, rng: np.random.Generator) -> pd.DataFrame:
    rows, first = len(frame), frame.columns[0]
    place = int(rng.integers(frame.shape[1] + 1))
    added = {
        "identifier": ("patient_id", rng.permutation(rows)),
        "date": ("seen", [f"2024-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(rows)]),
        "words": ("smokes", rng.permutation(np.resize(np.array(["yes", "no"], dtype=object), rows))),
        "constant": ("unit", np.full(rows, 3.0)),
        "copy": ("again", 2.5 * frame[first] + 1.0),
        "counter": ("row", np.arange(5, 5 + 2 * rows, 2)),
        "infinite": ("ratio", [*rng.standard_normal(rows - 1), np.inf]),
    }
    frame = frame.copy()
    if how in added:
        frame.insert(place, *added[how])
    elif how == "twice":
        frame.insert(place, first, rng.standard_normal(rows), allow_duplicates=True)
    elif how == "gap":
        frame.loc[frame.index[int(rng.integers(rows))], first] = np.nan
    elif how == "few":
        frame = frame.iloc[: int(rng.integers(0, 3))]
    return frame


def _save(folder: Path, name: str, frame: pd.DataFrame, kind: str, rng: np.random.Generator) -> Path:
    if kind in ("parquet", "feather", "xlsx") and frame.columns.has_duplicates:
        kind = "csv"
    if kind in ("npy", "npz", "mat"):
        return _save_arrays(folder, name, frame, kind)
    path = folder / f"{name}.{kind}"
    if kind in ("parquet", "feather"):
        getattr(frame.reset_index(drop=True), f"to_{kind}")(path)
        return path
    if kind == "xlsx":
        frame.reset_index(drop=True).to_excel(path, index=bool(rng.random() < 0.3))
        return path
    data = _text(frame, kind, rng)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}.csv", data)
        return path
    ending, pack = _TEXTS[int(rng.integers(len(_TEXTS)))]
    path = path.with_name(path.name + ending)
    path.write_bytes(pack(data))
    return path


def _text(frame: pd.DataFrame, kind: str, rng: np.random.Generator) -> bytes:
    separator = "\t" if kind == "tsv" else str(rng.choice([",", ",", ";", "\t", "|"]))
    decimal = "," if separator in ";\t" and rng.random() < 0.5 else "."
    encoding = str(rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"]))
    gap = str(rng.choice(["", "NA", "null", "-"]))
    quoting = 0 if rng.random() < 0.7 else 2  # csv.QUOTE_MINIMAL, QUOTE_NONNUMERIC
    frame = frame.reset_index(drop=True)
    index = bool(rng.random() < 0.3)
    if index and rng.random() < 0.5:
        frame.index += 1
    end = str(rng.choice(["\n", "\r\n"]))
    text = frame.to_csv(
        sep=separator,
        decimal=decimal,
        index=index,
        na_rep=gap,
        quoting=quoting,
        lineterminator=end,  # type: ignore[call-overload]
    )
    return str(text).encode(encoding)


def _save_arrays(folder: Path, name: str, frame: pd.DataFrame, kind: str) -> Path:
    path, values = folder / f"{name}.{kind}", frame.to_numpy(dtype=float)
    if kind == "npy":
        np.save(path, values)
    elif kind == "npz":
        np.savez(path, signals=values, nodes=np.array(list(frame)))
    else:
        scipy.io.savemat(path, {"signals": values, "nodes": np.array(list(frame), dtype=object)})
    return path


def _damage(files: list[Path], how: str, rng: np.random.Generator) -> None:
    """A wound somewhere in one of the files, or a line that is too long."""
    every = sorted(file for path in files for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    path = every[int(rng.integers(len(every)))]
    data = bytearray(path.read_bytes())
    if how == "ragged":
        path.unlink()
        path.with_name("ragged.csv").write_text("a,b,c\n" + "1,2,3\n" * 5 + "1,2,3,4\n" + "3,1,2\n" * 5)
        for k, file in enumerate(files):
            files[k] = file.with_name("ragged.csv") if file == path else file
        return
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(data) + 1))
        if rng.random() < 0.5:
            data[place:place] = _WOUNDS[int(rng.integers(len(_WOUNDS)))]
        else:
            del data[place : place + int(rng.integers(1, 30))]
    path.write_bytes(bytes(data))
