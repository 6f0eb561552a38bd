"""One file a person: whatever it was saved as, the same table comes out."""

import json
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silograph.cli import app
from silograph.core.errors import InputError
from silograph.data.person_files import SUFFIXES, read_series, read_site
from silograph.data.readers import read_people
from silograph.kernels.votes import vote

MAGIC = b"\x93NUMPY\x01\x00"
NAMES = ("left", "right", "top", "middle")
ROWS = np.round(np.random.default_rng(0).standard_normal((7, 4)), 6)


def save(path, rows=ROWS, names=NAMES):
    match path.suffix:
        case ".npy":
            np.save(path, rows)
        case ".npz":
            np.savez(path, signals=rows, nodes=np.array(names))
        case ".csv" | ".tsv":
            pd.DataFrame(rows, columns=list(names)).to_csv(
                path, sep="," if path.suffix == ".csv" else "\t", index=False
            )
        case ".1D":
            np.savetxt(path, rows, header=" ".join(f"#{name}" for name in names), comments="")
        case ".txt":
            np.savetxt(path, rows)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".tsv", ".1D", ".txt"])
def test_every_way_to_save_a_series_gives_the_same_rows(tmp_path, suffix):
    series = read_series(save(tmp_path / f"sub-01{suffix}"))
    np.testing.assert_allclose(series.rows, ROWS, rtol=1e-12)
    assert series.person == "sub-01"
    assert series.nodes == (None if suffix in (".npy", ".txt") else NAMES)


def test_a_first_line_that_counts_columns_names_no_node_and_is_no_row(tmp_path):
    pd.DataFrame(ROWS).to_csv(tmp_path / "a.csv", index=False)
    series = read_series(tmp_path / "a.csv")
    assert series.nodes is None
    np.testing.assert_allclose(series.rows, ROWS)


def test_a_site_of_persons_with_unequal_lengths_becomes_one_table(tmp_path):
    save(tmp_path / "b.csv")
    save(tmp_path / "a.npz", ROWS[:5, ::-1], NAMES[::-1])  # another order of nodes
    (tmp_path / "notes.md").write_text("no series")
    table = read_site(tmp_path).table
    assert list(table.columns) == ["person", *NAMES[::-1]]
    assert table["person"].tolist() == ["a"] * 5 + ["b"] * 7
    np.testing.assert_allclose(table.loc[5:, list(NAMES)], ROWS)
    np.testing.assert_allclose(table.loc[:4, list(NAMES)], ROWS[:5])


def test_a_node_that_was_not_measured_gets_no_vote(tmp_path):
    masked = ROWS.copy()
    masked[:, 2] = np.nan
    save(tmp_path / "a.npy", masked)
    save(tmp_path / "b.npy")
    made = read_site(tmp_path)
    assert made.masked == 1
    own = made.table.loc[made.table["person"] == "a"].iloc[:, 1:].to_numpy()
    assert (own[:, 2] == 0.0).all()
    a, b = np.triu_indices(4, 1)
    assert not vote(own, 6)[(a == 2) | (b == 2)].any()
    assert vote(own, 6).any()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "there are none"),
        ({"a.npy": np.zeros(3)}, "found an array of shape"),
        ({"a.npy": np.zeros((3, 3)), "b.npy": np.zeros((3, 4))}, "3 nodes, as in the first file, but it has 4"),
        ({"a.npy": np.zeros((3, 3)), "a.txt": np.zeros((3, 3))}, "a has two"),
    ],
)
def test_folders_that_are_no_site_are_refused(tmp_path, files, words):
    for name, rows in files.items():
        save(tmp_path / name, rows)
    with pytest.raises(InputError, match=words):
        read_site(tmp_path)


def test_what_cannot_be_read_is_refused_by_its_name(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK not really")
    with pytest.raises(InputError, match=r"a\.npz: expected rows of one person"):
        read_site(tmp_path)
    (tmp_path / "a.npz").unlink()
    (tmp_path / "a.csv").write_text("x,y,z\n1,2\n3,4,5\n")
    with pytest.raises(InputError, match=r"line 3 has a different number of cells"):
        read_site(tmp_path)
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n3,oh,5\n")
    with pytest.raises(
        InputError, match=r"a\.csv: expected rows of one person, .*line 3 has a cell that is not a number"
    ):
        read_site(tmp_path)
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n3,,5\n")
    assert read_site(tmp_path).masked == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=200), suffix=st.sampled_from(SUFFIXES), start=st.sampled_from([b"", b"PK\x03\x04", MAGIC])
)
def test_whatever_the_bytes_are_they_are_read_or_refused(tmp_path, data, suffix, start):
    path = tmp_path / f"any{suffix}"
    path.write_bytes(start + data)
    with suppress(InputError):  # and nothing else
        assert read_series(path).rows.ndim == 2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_command_writes_a_table_that_learn_reads(tmp_path, suffix, capsys):
    for person in "ab":
        (tmp_path / "nyu").mkdir(exist_ok=True)
        save(tmp_path / "nyu" / f"{person}.npy")
    (tmp_path / "labels.txt").write_text("\n".join(NAMES))
    out = tmp_path / f"nyu{suffix}"
    app(
        ["people", str(tmp_path / "nyu"), "-o", str(out), "--nodes", str(tmp_path / "labels.txt"), "--json"],
        standalone_mode=False,
    )
    assert json.loads(capsys.readouterr().out)["persons"] == 2
    table = read_people(out, "person", private=True)
    assert table.nodes == NAMES
    np.testing.assert_allclose(table.signals, np.vstack([ROWS, ROWS]))
    assert table.person.tolist() == [0] * 7 + [1] * 7
    with pytest.raises(InputError, match="a new file"):
        app(["people", str(tmp_path / "nyu"), "-o", str(out)], standalone_mode=False)
