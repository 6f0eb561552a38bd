"""Files, folders and long tables: one table for every site, and errors that say where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.core.files import content_of
from silograph.data.silos import People, problems, read_silos

NAMES = ["a", "b", "c"]


def _frame(seed: int, rows: int = 12) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(seed).standard_normal((rows, 3)), columns=NAMES)


def _folder(folder: Path, **frames: pd.DataFrame) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_a_folder_stands_for_its_tables(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "sites", north=_frame(1), south=_frame(2))
    (folder / "README.md").write_text("not a table")
    (folder / ".hidden.csv").write_text("junk")
    by_folder = read_silos([folder])
    by_name = read_silos([folder / "north.csv", folder / "south.csv"])
    assert by_folder.names == by_name.names == ("north", "south")
    for one, other in zip(by_folder.signals, by_name.signals, strict=True):
        np.testing.assert_array_equal(one, other)
    (note,) = by_folder.notes
    assert "README.md" in note


def test_a_sub_folder_is_a_site_with_a_file_for_every_person(tmp_path: Path) -> None:
    for site, first in (("north", 0), ("south", 10)):
        _folder(tmp_path / "all" / site, **{f"p{k}": _frame(first + k, 4 + k) for k in range(3)})
    silos = read_silos([tmp_path / "all"])
    assert silos.names == ("north", "south")
    whole = pd.concat([_frame(k, 4 + k) for k in range(3)])
    np.testing.assert_array_equal(silos.signals[0], whole.to_numpy())
    # Under privacy somebody has to say that a file is a person; then it is one.
    with pytest.raises(InputError, match='unit_column="file"'):
        read_silos([tmp_path / "all"], private=True)
    for given in ([tmp_path / "all"], [tmp_path / "all" / "north", tmp_path / "all" / "south"]):
        people = read_silos(given, private=True, unit_column="file").signals[0]
        assert isinstance(people, People)
        np.testing.assert_array_equal(people.person, np.repeat([0, 1, 2], [4, 5, 6]))


def test_an_error_says_in_whose_file_it_is(tmp_path: Path) -> None:
    odd = _frame(1).astype(object)
    odd.loc[3, "b"] = "oops"
    _folder(tmp_path / "all" / "north", ann=_frame(0), bob=odd)
    with pytest.raises(InputError, match=r"north, column 'b', bob\.csv, data row 4"):
        read_silos([tmp_path / "all"])
    _folder(tmp_path / "all" / "north", bob=_frame(0).rename(columns={"c": "z"}))
    with pytest.raises(InputError, match=r"bob\.csv: expected the columns of .*ann\.csv, but it lacks 'c'"):
        read_silos([tmp_path / "all"])


@pytest.mark.parametrize("kind", ["empty", "both", "deep", "no tables"])
def test_folders_that_mean_nothing_are_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    if kind == "both":
        _folder(folder, north=_frame(0))
        _folder(folder / "south", ann=_frame(0))
    if kind == "deep":
        _folder(folder / "south" / "ward", ann=_frame(0))
    if kind == "no tables":
        (folder / "notes.txt").write_text("x")
    with pytest.raises(InputError):
        read_silos([folder])
    assert len(problems([folder])) == 1


def test_a_long_table_is_divided_by_its_site_column(tmp_path: Path) -> None:
    frames = {name: _frame(k) for k, name in enumerate(["north", "south", "west"])}
    long = pd.concat([frame.assign(hospital=name) for name, frame in frames.items()]).sample(frac=1.0, random_state=0)
    long.to_csv(tmp_path / "long.csv", index=False)
    silos = read_silos([tmp_path / "long.csv"], site_column="hospital")
    assert (silos.names, silos.nodes) == (("north", "south", "west"), tuple(NAMES))
    for name, signals in zip(silos.names, silos.signals, strict=True):
        np.testing.assert_array_equal(signals, long[long.hospital == name][NAMES].to_numpy())
    wrong = long.reset_index(drop=True).astype(object)
    wrong.loc[17, "b"] = "oops"
    wrong.to_csv(tmp_path / "long.csv", index=False)
    with pytest.raises(InputError, match=f"site {wrong.hospital[17]!r}, column 'b', data row 18"):
        read_silos([tmp_path / "long.csv"], site_column="hospital")
    with pytest.raises(InputError, match="a column 'clinic', which names the site"):
        read_silos([tmp_path / "long.csv"], site_column="clinic")


def test_a_changed_file_in_a_folder_is_seen(tmp_path: Path) -> None:
    """An unfinished run goes on only with the data it began with."""
    folder = _folder(tmp_path / "all", north=_frame(0), south=_frame(1))
    before = content_of(folder)
    assert content_of(folder) == before
    _folder(folder, south=_frame(2))
    assert content_of(folder) != before


def test_lists_among_the_tables_are_no_sites(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "sites", north=_frame(1), south=_frame(2))
    (folder / "scale.csv").write_text("column;centre;spread\na;0,5;1\n")
    (folder / "pairs.csv").write_text("source,target\na,b\n")
    silos = read_silos([folder])
    assert silos.names == ("north", "south")
    assert ["not a site" in note for note in silos.notes] == [True, True]
