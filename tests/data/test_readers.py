"""Every format gives back exactly what was written, and every bad table is refused with its place."""

import csv
import gzip
import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.io

from silograph.core.errors import InputError
from silograph.data.collections import read_arrays
from silograph.data.readers import read_columns, read_people, read_table

NODES = ("north", "east", "south")
# Values whose last digit a hasty parser loses, at all magnitudes a square survives.
SIGNALS = np.array(
    [
        [0.1 + 0.2, -1e-300, 123456789.123456789],
        [1 / 3, 5e-324, 2.0**53],
        [np.nextafter(1, 2), 1e70, -0.0],
        [1.7976931348623157e69, 2.2250738585072014e-308, 9007199254740993.0],
    ]
)


def csv_text(rows=SIGNALS, names=NODES, delimiter=","):
    lines = [delimiter.join(names)] if names else []
    return "\n".join(lines + [delimiter.join(map(repr, map(float, row))) for row in rows]) + "\n"


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def save_frame(path):
    frame = pd.DataFrame(SIGNALS, columns=NODES)
    frame.to_parquet(path, index=False)


WRITERS = {
    "site.csv": lambda path: write(path, csv_text()),
    "site.CSV": lambda path: write(path, csv_text()),
    "site.tsv": lambda path: write(path, csv_text(delimiter="\t")),
    "site.csv.gz": lambda path: write(path, gzip.compress(csv_text().encode())),
    "site.tsv.gz": lambda path: write(path, gzip.compress(csv_text(delimiter="\t").encode())),
    "site.parquet": save_frame,
    "site.npz": lambda path: np.savez(path, signals=SIGNALS, nodes=np.array(NODES), other=np.ones((4, 4))),
    "site.mat": lambda path: scipy.io.savemat(path, {"signals": SIGNALS, "nodes": np.array(NODES, dtype=object)}),
}


def refused(path, nodes_in="columns"):
    with pytest.raises(InputError) as caught:
        read_table(path, nodes_in)
    assert str(path) in caught.value.where
    return str(caught.value)


def refused_csv(tmp_path, content, nodes_in="columns"):
    return refused(write(tmp_path / "site.csv", content), nodes_in)


@pytest.mark.parametrize("file", WRITERS)
def test_every_format_is_read_exactly(tmp_path, file):
    path = tmp_path / file
    WRITERS[file](path)
    table = read_table(str(path))
    assert (table.name, table.nodes, table.path) == ("site", NODES, path)
    assert table.signals.dtype == np.float64
    assert table.signals.flags.c_contiguous
    assert table.signals.tobytes() == SIGNALS.tobytes()


@pytest.mark.parametrize("title", ["Export 2021\n", "Export;;;\n\nWard 3;north\n", "Export;;;;\n"])
@pytest.mark.parametrize("delimiter", [";", ","])
def test_a_title_above_the_names_is_pointed_out(tmp_path, title, delimiter):
    names = ["a", "b", "c", "d", "e"]
    path = write(tmp_path / "site.csv", title + csv_text(np.ones((4, 5)), names, delimiter))
    with pytest.raises(InputError, match=f"a title, and the names in line {1 + title.count(chr(10))}"):
        read_table(path)


def test_a_limit_and_a_number_as_text_are_refused_with_their_own_remedy(tmp_path):
    """A laboratory writes what it cannot measure as <5: in most rows still no category."""
    path = write(tmp_path / "site.csv", "a,b,c\n" + "<5,1,2\n<5,2,2\n" * 10 + "7,2,3\n")
    with pytest.raises(InputError, match=r"'<5'\. A limit of what can be measured"):
        read_table(path)
    path = write(tmp_path / "mixed.csv", "a;b;c\n1,25;1.5;2\n1,75;2.5;3\n")
    with pytest.raises(InputError, match=r"'1\.5'\. Write all numbers of a table alike"):
        read_table(path)


@pytest.mark.parametrize("file", ["x.npy", "x.csv", "x.npz", "x.mat"])
def test_nodes_without_names_are_numbered(tmp_path, file):
    path = tmp_path / file
    if file == "x.npy":
        np.save(path, SIGNALS)
    elif file == "x.npz":
        np.savez(path, SIGNALS)
    elif file == "x.mat":
        # Matlab has no scalars: the rate is a matrix, too, but cannot be the table.
        scipy.io.savemat(path, {"readings": SIGNALS, "rate": 50.0})
    else:
        write(path, csv_text(names=None))
    table = read_table(path)
    assert table.nodes == ("node_0", "node_1", "node_2")
    assert table.signals.tobytes() == SIGNALS.tobytes()


def test_nodes_in_rows(tmp_path):
    turned = pd.DataFrame(SIGNALS.T, index=pd.Index(NODES), columns=[f"t{k}" for k in range(4)])
    turned.to_csv(tmp_path / "unnamed.csv")
    turned.to_csv(tmp_path / "named.csv", index_label="sensor")
    turned.to_csv(tmp_path / "headless.csv", header=False)
    turned.to_parquet(tmp_path / "index.parquet")
    turned.reset_index(names="sensor").to_parquet(tmp_path / "column.parquet", index=False)
    np.savez(tmp_path / "array.npz", signals=SIGNALS.T, nodes=np.array(NODES))
    for path in sorted(tmp_path.iterdir()):
        table = read_table(path, "rows")
        assert table.nodes == NODES, path
        assert table.signals.flags.c_contiguous
        np.testing.assert_array_equal(table.signals, SIGNALS, err_msg=path.name)


def test_nodes_in_rows_without_names(tmp_path):
    np.save(tmp_path / "a.npy", SIGNALS.T)
    write(tmp_path / "b.csv", csv_text(SIGNALS.T, None))
    write(tmp_path / "c.csv", csv_text(SIGNALS.T, ["t0", "t1", "t2", "t3"]))
    pd.DataFrame(SIGNALS.T, columns=list("abcd")).to_csv(tmp_path / "d.csv")
    for path in sorted(tmp_path.iterdir()):
        table = read_table(path, "rows")
        assert table.nodes == ("node_0", "node_1", "node_2")
        np.testing.assert_array_equal(table.signals, SIGNALS)


def test_index_written_by_pandas_is_dropped(tmp_path):
    frame = pd.DataFrame(SIGNALS, columns=NODES)
    frame.to_csv(tmp_path / "default.csv")
    frame.set_index(pd.Index(range(10, 14))).to_parquet(tmp_path / "index.parquet")
    for path in sorted(tmp_path.iterdir()):
        table = read_table(path)
        assert table.nodes == NODES
        np.testing.assert_array_equal(table.signals, SIGNALS)


NEVER_NAMES = [  # of a first row: a record, or what may be one
    ",2.5,3.5",
    ",,3.5",
    ",,",
    " ,2.5,3.5",
    '"",2.5,3.5',
    ",0,1,2",
    ",1,2,3",
    ",10,20,30",
    ",7,7,7",
    ",nan,nan",
    ",NA,2.5",
    ",b,2.5",
    ",b,-inf",
    "a,b,nan",
    "a,b,2.5",
    "a,b,1e3",
    "a,b,1_000",
    'a,b,"1,5"',
    "a,b,<0.5",
    "a,b,12%",
    "2024-01-31,2.5,3.5",
    "2024-01-31,2024-02-01,2024-02-02",
    ",2024-01-31,2024-02-01",
    "a,b,31.1.2024",
    "a,b,2024-01-31T12:00:00Z",
    "a,b,31 Jan 2024",
    'a,b,"January 31, 2024"',
    "a,b,12:30 pm",
    "0,1,2",
]


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
@pytest.mark.parametrize("first", NEVER_NAMES)
def test_what_may_be_data_never_becomes_names(tmp_path, first, suffix, private):
    width = len(next(csv.reader([first])))
    rows = [next(csv.reader([first])), *([str(3.25 * k + j**2) for j in range(width)] for k in range(4))]
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="\t" if suffix == "tsv" else ",").writerows(rows)
    content = buffer.getvalue().encode()
    path = write(tmp_path / f"a.{suffix}", gzip.compress(content) if suffix == "csv.gz" else content)
    with pytest.raises(InputError) as caught:
        read_table(path, private=private)
    advice = "put a line of names above it" if first == "0,1,2" else "fill the gaps"
    for word in ("line 1", "names, or data", "may be either", "Give the columns names", advice):
        assert word in str(caught.value)


@pytest.mark.parametrize("first", NEVER_NAMES)
def test_nor_names_of_columns_of_people_units_and_clients(tmp_path, first):
    width = len(next(csv.reader([first])))
    rows = "".join(",".join(str(3.25 * k + j) for j in range(width)) + "\n" for k in range(4))
    path = write(tmp_path / "a.csv", f"{first}\n{rows}")
    for read in (lambda: read_people(path, "a"), lambda: read_columns(path), lambda: read_columns(path, ["b"])):
        with pytest.raises(InputError, match="line 1"):
            read()


HONEST = [
    ("north,east,south", ("north", "east", "south")),
    (",north,east,south", ("north", "east", "south")),  # pandas' index
    ("Na,K,Cl", ("Na", "K", "Cl")),
    (",Na,K,Cl", ("Na", "K", "Cl")),
    ("x1,x2,x3", ("x1", "x2", "x3")),
    ("1st,2nd,3rd", ("1st", "2nd", "3rd")),
    ("5HT2A,3M,2m_temperature", ("5HT2A", "3M", "2m_temperature")),
    ("#1,#2,#3", ("#1", "#2", "#3")),
    ("Mar,Apr,May", ("Mar", "Apr", "May")),
    ("mayfly,marten 2,4 decades", ("mayfly", "marten 2", "4 decades")),
    ("information,nano,infinite loop", ("information", "nano", "infinite loop")),
    ("-,?,!", ("-", "?", "!")),
    ("T-12,E-5,DE-1", ("T-12", "E-5", "DE-1")),
]


@pytest.mark.parametrize("first, nodes", HONEST)
def test_honest_names_are_taken(tmp_path, first, nodes):
    index = first.startswith(",")
    rows = "".join((f"{k}," if index else "") + f"{k},{k * k},{7 - k}\n" for k in range(4))
    table = read_table(write(tmp_path / "a.csv", f"{first}\n{rows}"))
    assert table.nodes == nodes
    assert len(table.signals) == 4


@pytest.mark.parametrize("first", [",0.5,0.75", ",10,20", ",,", ",7,7", ",nan,0.5"])
def test_a_node_without_a_name_is_no_header(tmp_path, first):
    message = refused_csv(tmp_path, f"{first}\na,1,2\nb,3,5\nc,5,6\n", "rows")
    assert "line 1" in message


@pytest.mark.parametrize("first", [",0,1,2", ",1,2,3", ",2024-01-31,2024-02-01,2024-02-02", "name,a,b,c", ",a,b,c"])
def test_what_signals_are_called_is_no_record(tmp_path, first):
    path = write(tmp_path / "a.csv", f"{first}\na,1,2,3\nb,3,5,1\nc,5,6,2\n")
    assert read_table(path, "rows").nodes == ("a", "b", "c")


@pytest.mark.parametrize("cell", ["4.5", "1e3", "<5", "2024-01-31"])
def test_a_column_of_data_never_becomes_names_of_nodes(tmp_path, cell):
    """One word in it makes text of the whole column."""
    message = refused_csv(tmp_path, f"what,s1,s2\nmissing,1,2\n{cell},3,5\n{cell}1,5,6\n", "rows")
    assert "column 1, data row 2" in message or "column 1, data row 3" in message
    assert "must not become a name" in message


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfnorth,east,south\n1,2,3\n4,5,7\n",
        b"north,east,south\r\n1,2,3\r\n4,5,7\r\n",
        b"north,east,south\r1,2,3\r4,5,7\r",
        b"\n\nnorth,east,south\n\n1,2,3\n\n4,5,7",
        b'"north", east ,south\n1,"2",3\n 4, 5, 7\n',
    ],
)
def test_csv_dialects(tmp_path, content):
    table = read_table(write(tmp_path / "a.csv", content))
    assert table.nodes == NODES
    assert table.signals.tolist() == [[1, 2, 3], [4, 5, 7]]


def test_byte_order_mark_without_header(tmp_path):
    assert read_table(write(tmp_path / "a.csv", b"\xef\xbb\xbf1,9,3\n4,5,7\n")).signals.tolist() == [
        [1, 9, 3],
        [4, 5, 7],
    ]


def test_file_name_that_is_no_text(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert "caf?.csv" in str(caught.value)


def test_names_beyond_ascii(tmp_path):
    assert read_table(write(tmp_path / "münster.csv", "ä,ö,ü\n1,2,3\n4,5,7\n")).nodes == ("ä", "ö", "ü")


def test_whole_numbers_and_decimals_of_other_types(tmp_path):
    frame = pd.DataFrame({"a": np.array([1, 2], "uint8"), "b": np.array([0.1, 0.5], "float32"), "c": [2**53, -(2**53)]})
    frame.to_parquet(tmp_path / "a.parquet")
    expected = [[1, float(np.float32(0.1)), 2.0**53], [2, 0.5, -(2.0**53)]]
    assert read_table(tmp_path / "a.parquet").signals.tolist() == expected


def test_matlab_names_as_characters(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"signals": SIGNALS, "nodes": np.array(NODES)})
    assert read_table(tmp_path / "a.mat").nodes == NODES


@pytest.mark.parametrize(
    "content, words",
    [
        ("", ["the file is empty"]),
        ("\n\n", ["the file is empty"]),
        ("a,b,c\n", ["no row of data"]),
        ("a,b,c\n1,2,3\n", ["at least 2 rows", "only one row"]),
        ("a,b\n1,2\n3,4\n", ["at least 3 nodes", "are 2", "df.T"]),
        ("a\n1\n2\n", ["at least 3 nodes", "is 1"]),
        ("a,b,c\n1,2,3\n4,5,6,7\n", ["line 3", "3 cells", "are 4"]),
        ("a,b,c\n1,2,3,4\n5,6,7,8\n", ["line 2", "3 cells", "are 4"]),
        ("a,b,c,d\n1,2,3\n5,6,7\n", ["line 2", "4 cells", "are 3"]),
        ("a,b,c\n1,2,3\n4,5\n", ["line 3", "3 cells as in the first row"]),
        ("a,b,c\n1,2,3\n4,oops,6\n7,bad,9\n", ["column 'b', data row 2", "text", "'oops'"]),
        ("a,b,c\n1,2,3\n4," + "long" * 99 + ",6\n", ["column 'b', data row 2", "'longlong", "…"]),
        ("a,b,c\n2020-01-01,2,3\n2020-01-02,3,6\n", ["column 'a', data row 1", "'2020-01-01'", "drop="]),
        ("a,b,c\nTrue,2,3\nFalse,3,6\n", ["column 'a'", "true/false"]),
        ("a,b,c\n1+2j,2,3\n2,3,6\n", ["column 'a', data row 1", "text", "'1+2j'"]),
        ("a,b,c\n1,,3\n4,5,6\n7,NA,9\n", ["column 'b'", "it has 1: all others are missing"]),
        ("1,,3\n4,5,6\n", ["column 'node_1'", "missing"]),
        ("a,b,c\n1,2,inf\n4,5,6\n", ["column 'c', data row 1", "infinite"]),
        ("a,b,c\n1,2,1e999\n4,5,6\n", ["column 'c', data row 1", "infinite"]),
        ("a,b,c\n1,2,3\n4,-1e71,6\n", ["column 'b', data row 2", "1e+70", "overflow"]),
        ("a,b,c\n1,1,1\n4,4,4\n", ["nodes that differ", "same value"]),
        ("a,b,c\n1,2,3\n4,9007199254740993,6\n", ["column 'b', data row 2", "2**53"]),
        ("a,b,c\n1,2,3\n4,99999999999999999999999,6\n", ["column 'b', data row 2", "2**53"]),
        ("a,b,c\n1,2,3\n4,18446744073709551615,6\n", ["column 'b', data row 2", "2**53"]),
        ("a,b,a\n1,2,3\n4,5,6\n", ["differ", "'a' occurs 2 times"]),
        ("a,b, a\n1,2,3\n4,5,6\n", ["differ", "'a' occurs 2 times"]),
        ("a,,c\n1,2,3\n4,5,6\n", ["name of node 2 is empty"]),
        (",b,c,d\n5,1,2,3\n9,4,5,6\n", ["name of node 1 is empty", "index"]),
        ("a,b,c\n1,2,3\n4,2,6\n", ["column 'b'", "vary", "every value is 2", "no relation"]),
        ("a;b;c\n1,500;2;3\n4;5;6\n", ["'1,500'", "decimal comma", "thousands"]),
        ("a;b;c\n1,5;2;3\n4.5;5;6\n", ["column 'a', data row 1", "'1,5'"]),
        ("0,1,2\n4,5,6\n7,8,8\n", ["line 1", "may be either", "Give the columns names"]),
        ('a,b,c\n1,"2,3\n4,5,6\n', ["line 3", "3 cells", "are 2"]),
        ('a,b,c\n1,2,"3\n4,5,6\n', ["cannot be read", "EOF inside string"]),
        (b"a,b,c\n1,2,3\n\xe9,5,6\n", ["UTF-8", "byte 13 is in another encoding"]),
        ("a,b,c\n1,2,3\n4,5,6\n".encode("utf-16-le"), ["binary"]),
        (b"a,b,c\n1,2\x00,3\n4,5,6\n", ["binary"]),
        (bytes(range(256)) * 9, ["UTF-8"]),
    ],
)
def test_bad_csv_is_refused_with_its_place(tmp_path, content, words):
    message = refused_csv(tmp_path, content)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    "content, words",
    [
        ("a,1,2\nb,3,oops\nc,5,6\n", ["column 2, data row 'b'", "'oops'"]),
        ("a,1,2\nb,,4\nc,5,6\n", ["row 'b'", "missing"]),
        ("a,1,\nb,3,4\nc,5,6\n", ["row 'a'", "missing"]),
        ("s,t1,t2\na,1,2\nb,3,x\nc,5,6\n", ["column 't2', data row 'b'", "'x'"]),
        ("a,1,2\nb,4,4\nc,5,6\n", ["row 'b'", "every value is 4"]),
        ("a,1,2\nb,3,4\n", ["at least 3 nodes", "df.T"]),
        ("a,1\nb,3\nc,4\n", ["at least 2 columns", "only one column"]),
        ("a,1,2\n,3,4\nc,5,6\n", ["name of node 2 is empty"]),
        ("a,1,2\na,3,4\nc,5,6\n", ["'a' occurs 2 times"]),
        ("sensor,0,1,2\na,1,2,3\nb,3,4,5\nc,4,5,6\n", ["may be either"]),
    ],
)
def test_bad_csv_with_nodes_in_rows(tmp_path, content, words):
    message = refused_csv(tmp_path, content, "rows")
    for word in words:
        assert word in message, message


def test_what_is_no_file(tmp_path):
    assert "is a directory" in refused(tmp_path)
    assert "none of that name" in refused(tmp_path / "missing.csv")
    assert "none of that name" in refused(write(tmp_path / "a.csv", "x") / "b.csv")
    assert "reading failed" in refused(tmp_path / ("x" * 300 + ".csv"))
    with pytest.raises(InputError, match="none of that name"):
        read_table("a\0b.csv")
    assert "'.docx'" in refused(write(tmp_path / "a.docx", "x"))
    assert "no suffix" in refused(write(tmp_path / "plain", "x"))
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe" in refused(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="nodes_in"):
        read_table(write(tmp_path / "b.csv", csv_text()), "sideways")


@pytest.mark.parametrize(
    "problem, words", [(PermissionError(13, "no"), "permission"), (MemoryError(), "memory"), (OSError(5, "I/O"), "I/O")]
)
def test_trouble_while_reading(tmp_path, monkeypatch, problem, words):
    def fail(path):
        raise problem

    path = write(tmp_path / "a.csv", csv_text())
    monkeypatch.setattr(type(path), "read_bytes", fail)
    assert words in refused(path)


@pytest.mark.parametrize("file", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.npy", "a.npz", "a.mat"])
def test_wrong_contents(tmp_path, file):
    assert "empty" in refused(write(tmp_path / file, b""))
    for junk in (
        b"PK\x03\x04junk",
        b"\x93NUMPY\x01\x00",
        b"PAR1PAR1",
        b"\x1f\x8b junk",
        b"MATLAB 5.0 MAT-file",
        b"x" * 600,
    ):
        refused(write(tmp_path / file, junk))


def test_wrong_suffix_of_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", signals=SIGNALS)
    refused((tmp_path / "a.npz").rename(tmp_path / "a.npy"))
    np.save(tmp_path / "b.npy", SIGNALS)
    refused((tmp_path / "b.npy").rename(tmp_path / "b.npz"))


@pytest.mark.parametrize(
    "array, words",
    [
        (np.ones(5), "a 1-D array"),
        (np.ones((3, 4, 5)), "a 3-D array"),
        (SIGNALS > 0, "true/false"),
        (SIGNALS.astype(complex), "complex"),
        (np.ones((4, 3), "datetime64[s]"), "dates or times"),
        (np.ones((4, 3), "timedelta64[s]"), "time spans"),
        (np.ones((4, 3), [("x", float)]), "type"),
        (np.array([["a", "b", "c"]] * 4), "text"),
        (np.array([[1, 2, 2**60], [2, 3, 4]]), "2**53"),
        (np.array([[1, 2, -(2**63)], [2, 3, 4]]), "2**53"),
        (np.array([[1, 2, 3], [2, 3, 4]], dtype=object), "Object arrays cannot be loaded"),
        (np.array([[1, 2, 10], [2, 3, 4]], dtype=np.longdouble) ** 4000, "infinite"),
        (np.empty((0, 3)), "no row"),
        (np.empty((5, 0)), "no row"),
    ],
)
def test_bad_arrays(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array)
    assert words in refused(tmp_path / "a.npy")


def test_which_array_of_several(tmp_path):
    np.savez(tmp_path / "a.npz", left=SIGNALS, right=SIGNALS, name=np.array(["x"]))
    message = refused(tmp_path / "a.npz")
    assert "'left', 'right'" in message
    assert "key 'signals'" in message
    np.savez(tmp_path / "b.npz", x=np.ones(3), y=np.ones(2))
    assert "'x', 'y'" in refused(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", **{f"x{k}": SIGNALS for k in range(8)})
    assert "and 3 more" in refused(tmp_path / "c.npz")
    scipy.io.savemat(tmp_path / "d.mat", {"left": SIGNALS, "right": SIGNALS})
    assert "'left', 'right'" in refused(tmp_path / "d.mat")
    np.savez(tmp_path / "e.npz", signals=np.ones(3), other=SIGNALS)
    assert "2-D" in refused(tmp_path / "e.npz")


def test_bad_names_beside_an_array(tmp_path):
    np.savez(tmp_path / "short.npz", signals=SIGNALS, nodes=np.array(["a", "b"]))
    assert "there are 2 names" in refused(tmp_path / "short.npz")
    np.savez(tmp_path / "halves.npz", signals=SIGNALS, nodes=np.array(["a", "b", "\ud800"]))
    assert "can be written" in refused(tmp_path / "halves.npz")
    np.savez(tmp_path / "numbers.npz", signals=SIGNALS, nodes=np.arange(3))
    assert "array of strings" in refused(tmp_path / "numbers.npz")
    np.savez(tmp_path / "objects.npz", signals=SIGNALS, nodes=np.array(NODES, dtype=object))
    assert "Object arrays" in refused(tmp_path / "objects.npz")


def test_matlab_73_is_refused_by_name(tmp_path):
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    content = header.ljust(512, b"\0") + b"\x89HDF\r\n\x1a\n" + b"\0" * 100
    assert "-v7" in refused(write(tmp_path / "a.mat", content))
    assert "-v7" in refused(write(tmp_path / "b.mat", content[512:]))


@pytest.mark.parametrize(
    "column, words",
    [
        (pd.Series([True, False]), "true/false"),
        (pd.Series([True, None], dtype="boolean"), "bool"),
        (pd.to_datetime(pd.Series(["2020-01-01", "2020-01-02"])), "dates or times"),
        (pd.Series([1.0, None], dtype="Float64"), "two values or more, but it has 1: all others are missing"),
        (pd.Series(["x", "y"]), "found text: 'x'"),
        (pd.Series(["x", "y"], dtype="category"), "found text: 'x'"),
        (pd.Series([[1], [2]]), "type"),
        (pd.Series([b"x", b"y"]), "type bytes"),
    ],
)
def test_bad_parquet_columns(tmp_path, column, words):
    pd.DataFrame({"a": [1, 2], "bad": column, "c": [4, 5]}).to_parquet(tmp_path / "a.parquet")
    message = refused(tmp_path / "a.parquet")
    assert "column 'bad'" in message
    assert words in message


def test_no_warning_escapes(tmp_path):
    big = np.array([[1, 2, 10], [2, 3, 4]], dtype=np.longdouble) ** 4000
    np.save(tmp_path / "a.npy", big)
    write(tmp_path / "b.csv", "a,b,c\n1,1e999,3\n4,5,6\n")
    write(tmp_path / "c.csv", csv_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(tmp_path / "a.npy")
        refused(tmp_path / "b.csv")
        read_table(tmp_path / "c.csv")


def test_import_is_light():
    code = "import sys, silograph.data.silos; print([m for m in ('pandas', 'pyarrow', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_large_csv_equals_the_writer(tmp_path):
    signals = np.random.default_rng(5).standard_normal((3000, 40)) * 10.0 ** np.arange(-20, 20)
    buffer = io.StringIO()
    pd.DataFrame(signals, columns=[f"n{k}" for k in range(40)]).to_csv(buffer, index=False)
    assert read_table(write(tmp_path / "a.csv", buffer.getvalue())).signals.tobytes() == signals.tobytes()


@pytest.mark.parametrize("content", [b"junk", b"PK junk", b"\x80\x04junk"])
@pytest.mark.parametrize("read", [read_table, read_arrays])
def test_nobody_is_told_to_trust_a_broken_archive(tmp_path, read, content):
    with pytest.raises(InputError, match="cannot be read") as caught:
        read(write(tmp_path / "a.npz", content))
    assert "pickle" not in str(caught.value)
