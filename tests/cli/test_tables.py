"""Folders, long tables and categories from the command line: plans say them, and run again to the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

NAMES = ["âge", "blood pressure", "c", "d"]


def _frame(seed: int, rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, 4)) @ (np.eye(4) + 0.5 * np.eye(4, k=1))
    frame = pd.DataFrame(values.round(4), columns=NAMES)
    return frame.assign(ward=rng.permutation(np.resize(np.array(["a", "b", "c"]), rows)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same three sites in every way."""
    place, frames = tmp_path / "data", {name: _frame(k) for k, name in enumerate(["east", "north", "west"])}
    for way in ("sites", "persons"):
        (place / way).mkdir(parents=True)
    for name, frame in frames.items():
        frame.to_csv(place / "sites" / f"{name}.csv", index=False, sep=";", decimal=",")
        (place / "persons" / name).mkdir()
        for k in range(6):
            frame.iloc[10 * k : 10 * k + 10].to_parquet(place / "persons" / name / f"p{k}.parquet", index=False)
    pd.concat([frame.assign(hospital=name) for name, frame in frames.items()]).to_csv(
        place / "long.csv.xz", index=False
    )
    return place


def _outcome(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.csv")}


def test_every_way_to_say_the_sites_gives_the_same_graphs(silograph, folder: Path, tmp_path: Path) -> None:
    levels = ["--categories", "ward=a,b,c"]
    ways = {
        "files": sorted((folder / "sites").iterdir()),
        "folder": [folder / "sites"],
        "persons": [folder / "persons"],
        "long": [folder / "long.csv.xz", "--site-column", "hospital"],
    }
    found = {}
    for way, said in ways.items():
        code, _, error = silograph("learn", *said, "-o", tmp_path / way, *levels)
        assert code == 0, error
        found[way] = _outcome(tmp_path / way)
    assert "sites/east.csv" in found["files"]
    assert found["files"] == found["folder"] == found["persons"] == found["long"]
    for way in ("folder", "long"):  # the plan that the run left says all of it
        code, *_ = silograph("run", tmp_path / way / "plan.toml", "-o", tmp_path / f"{way}-again")
        assert code == 0
        assert _outcome(tmp_path / f"{way}-again") == found["files"]


def test_persons_in_files_are_protected(silograph, folder: Path, tmp_path: Path) -> None:
    private = ["--epsilon", 200, "--seed", 1, "--drop", "ward"]
    code, _, error = silograph("learn", folder / "persons", "-o", tmp_path / "rows", *private)
    assert code == 2
    assert "--unit-column file" in error
    code, _, error = silograph("learn", folder / "persons", "-o", tmp_path / "out", *private, "--unit-column", "file")
    assert code == 2  # six persons a site carry no graph at any budget; they are counted as persons
    assert "18 signals" in error


def test_a_deployment_wants_every_organisations_own_table(silograph, folder: Path, tmp_path: Path) -> None:
    data = {
        "folder": f'files = ["{folder / "sites"}"]',
        "long": f'files = ["{folder / "long.csv.xz"}"]\nsite_column = "hospital"',
    }
    for name, said in data.items():
        (tmp_path / f"{name}.toml").write_text(f'format = 1\n[data]\n{said}\ndrop = ["ward"]\n')
        code, _, error = silograph("deploy", tmp_path / f"{name}.toml", "-o", tmp_path / name)
        assert code == 2
        assert "3 sites: 'east', 'north', 'west'" in error


def test_levels_that_mean_nothing_are_refused(silograph, folder: Path, tmp_path: Path) -> None:
    for said in ("ward", "ward=a", "ward=a,a"):
        code, _, error = silograph("check", folder / "sites", "--categories", said)
        assert code == 2
        assert "two or more levels" in error
    code, _, error = silograph("check", folder / "sites", "--categories", "wards=a,b,c", "--drop", "ward")
    assert code == 2
    assert "Did you mean ward" in error
    code, _, error = silograph("check", folder / "sites", "--categories", "ward=a,b")
    assert "column 'ward', data row" in error
    assert "found 'c'" in error
