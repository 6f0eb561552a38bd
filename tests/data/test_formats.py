"""One table, however it is saved, gives the same nodes and the same numbers to the last bit."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.data.delimited import csv_rows
from silograph.data.readers import read_table
from silograph.data.silos import from_arrays

NAMES = ["âge", "poids total", "c", "d"]
FRAME = pd.DataFrame(np.random.default_rng(3).standard_normal((30, 4)).round(9), columns=NAMES)
TEXT = FRAME.to_csv(index=False).encode()


def _zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _saved(path: Path) -> bytes:
    """The frame in the format that the name says."""
    buffer = io.BytesIO()
    if path.suffix == ".feather":
        FRAME.to_feather(buffer)
    elif path.suffix == ".parquet":
        FRAME.to_parquet(buffer)
    else:
        FRAME.to_excel(buffer, index=False)
    return buffer.getvalue()


TEXTS = {
    "plain.csv": TEXT,
    "marked.csv": b"\xef\xbb\xbf" + TEXT,
    "wide.csv": TEXT.decode().encode("utf-16"),
    "windows.csv": TEXT.replace(b"\n", b"\r\n"),
    "packed.csv.gz": gzip.compress(TEXT),
    "packed.csv.bz2": bz2.compress(TEXT),
    "packed.csv.xz": lzma.compress(TEXT),
    "packed.csv.zip": _zipped({"packed.csv": TEXT}),
    "other.zip": _zipped({"in/table.csv": TEXT, "readme.txt": b"hello", "__MACOSX/x.csv": b"junk"}),
    "tabs.tsv": FRAME.to_csv(index=False, sep="\t").encode(),
    "tabs.csv": FRAME.to_csv(index=False, sep="\t").encode(),
    "bars.csv": FRAME.to_csv(index=False, sep="|").encode(),
    "semicolons.csv": FRAME.to_csv(index=False, sep=";").encode(),
    "decimal.csv": FRAME.to_csv(index=False, sep=";", decimal=",").encode(),
    "decimal.tsv": FRAME.to_csv(index=False, sep="\t", decimal=",").encode(),
    "index.csv": FRAME.to_csv().encode(),
    "r.csv": FRAME.set_index(np.arange(1, 31)).to_csv().encode(),
    "twice.csv": FRAME.reset_index().rename(columns={"index": "Unnamed: 0"}).to_csv(index=False).encode(),
    "two_characters.csv": FRAME.rename(columns={"âge": "âge"}).to_csv(index=False).encode(),
}


@pytest.mark.parametrize("name", [*TEXTS, "plain.feather", "plain.parquet", "plain.xlsx"])
def test_every_format_gives_the_same_table(tmp_path: Path, name: str) -> None:
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    path = tmp_path / name
    path.write_bytes(TEXTS[name] if name in TEXTS else _saved(path))
    table = read_table(path)
    assert table.nodes == tuple(NAMES)
    assert table.name == name.split(".")[0]
    np.testing.assert_array_equal(table.signals, FRAME.to_numpy())


def test_whole_numbers_behind_semicolons_are_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b;c\n1;2;3,5\n4;50;6,25\n7;8;9\n")
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv").signals, [[1, 2, 3.5], [4, 50, 6.25], [7, 8, 9]])


@pytest.mark.parametrize("cell", ["1,234", "12,345", "-1,000"])
def test_a_comma_that_may_be_of_thousands_is_refused(tmp_path: Path, cell: str) -> None:
    (tmp_path / "a.csv").write_text(f"a;b;c\n1;2;{cell}\n4;5;6\n7;9;8\n")
    with pytest.raises(InputError, match="thousands"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text(f"a;b;c\n1;2;{cell}\n4;0,5;6\n7;9;8\n")
    assert read_table(tmp_path / "b.csv").signals[0, 2] == float(cell.replace(",", "."))


def test_under_privacy_no_record_says_how_another_is_read(tmp_path: Path) -> None:
    """A comma in a number is always a decimal comma, and the line of names alone says what separates cells."""
    for number, other in enumerate(["4;5;6", "4;0,5;6"]):
        (tmp_path / f"{number}.csv").write_text(f"a;b;c\n1;2;1,234\n{other}\n7;9;8\n")
        assert read_table(tmp_path / f"{number}.csv", private=True).signals[0, 2] == 1.234
    (tmp_path / "even.csv").write_text("a,b,c\n1;2,3;4,5;6\n7;8,9;1,2;3\n")
    with pytest.raises(InputError, match="found text"):
        read_table(tmp_path / "even.csv", private=True)


@pytest.mark.parametrize("gap", ["", "NA", "NaN", "null", "-", "?", "na", " NA", "  "])
def test_a_gap_is_a_gap_however_it_is_written(tmp_path: Path, gap: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,b,c\n1,2,3\n4,{gap},6\n7,9,8\n")
    expected = [[1.0, 2.0, 3.0], [4.0, np.nan, 6.0], [7.0, 9.0, 8.0]]
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv").signals, expected)


def test_archives_hold_one_table(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(_zipped({"a.csv": TEXT, "b.csv": TEXT}))
    with pytest.raises(InputError, match=r"one CSV or TSV file.*'a\.csv', 'b\.csv'"):
        read_table(path)
    path.write_bytes(_zipped({"readme.txt": b"x"}))
    with pytest.raises(InputError, match=r"readme\.txt"):
        read_table(path)


def test_sheets(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    with pd.ExcelWriter(path) as writer:
        FRAME.to_excel(writer, sheet_name="measured", startrow=2, startcol=1)
        pd.DataFrame().to_excel(writer, sheet_name="empty")
    np.testing.assert_array_equal(read_table(path).signals, FRAME.to_numpy())  # without the index, and blank rows above
    with pd.ExcelWriter(path) as writer:
        FRAME.to_excel(writer, sheet_name="one")
        FRAME.to_excel(writer, sheet_name="two")
    with pytest.raises(InputError, match="one sheet with a table, but found 'one', 'two'"):
        read_table(path)
    dated = FRAME.assign(seen=pd.Timestamp("2024-01-01") + pd.to_timedelta(range(30), "D"))
    dated.to_excel(path, index=False)
    with pytest.raises(InputError, match="'seen' holds dates"):
        read_table(path)


def test_without_its_package_an_excel_file_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object, **__: object) -> None:
        raise ImportError("No module named 'openpyxl'")

    monkeypatch.setattr(pd, "read_excel", absent)
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"pip install 'silograph\[excel\]'.*save the sheet as CSV"):
        read_table(tmp_path / "a.xlsx")


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_frames_of_all_packages(package: str) -> None:
    module = pytest.importorskip(package)
    given = FRAME if package == "pandas" else getattr(module, "from_pandas", None) or module.Table.from_pandas
    silos = from_arrays([given if package == "pandas" else given(FRAME)])
    assert silos.nodes == tuple(NAMES)
    np.testing.assert_array_equal(silos.signals[0], FRAME.to_numpy())


def test_nothing_heavy_is_imported_to_know_a_frame() -> None:
    assert importlib.import_module("silograph.data.tables").as_frame(np.ones((3, 3))) is None


def _open_document(path: Path) -> None:
    """The least that a spreadsheet program writes."""
    rows = [FRAME.columns.tolist(), *FRAME.to_numpy().tolist()]

    def cell(value: object) -> str:
        if isinstance(value, str):
            return f'<table:table-cell office:value-type="string"><text:p>{value}</text:p></table:table-cell>'
        return f'<table:table-cell office:value-type="float" office:value="{value!r}"/>'

    inside = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    sheet = f'<table:table table:name="one">{inside}</table:table>'
    body = f"<office:body><office:spreadsheet>{sheet}</office:spreadsheet></office:body>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    path.write_bytes(
        _zipped(
            {
                "mimetype": kind.encode(),
                "content.xml": f"<office:document-content {names}>{body}</office:document-content>".encode(),
                "META-INF/manifest.xml": b"<?xml version='1.0'?><manifest/>",
            }
        )
    )


def test_open_document_sheets_are_read(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    _open_document(tmp_path / "a.ods")
    table = read_table(tmp_path / "a.ods")
    assert table.nodes == tuple(NAMES)
    np.testing.assert_array_equal(table.signals, FRAME.to_numpy())


def test_text_that_is_called_a_sheet_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.xls").write_text("a\tb\n1\t2\n")
    with pytest.raises(InputError, match="text under another name"):
        read_table(tmp_path / "a.xls")


def test_another_encoding_says_how_to_save_it_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("âge,b,c\n1,2,3\n4,5,7\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"CSV UTF-8.*iconv"):
        read_table(tmp_path / "a.csv")


def test_small_lists_have_any_separator_and_decimal_commas(tmp_path: Path) -> None:
    plain = "column,centre,spread\na,0.5,1\nb,-2,1e-3\n"
    (tmp_path / "plain.csv").write_text(plain)
    (tmp_path / "other.csv").write_text("\ufeff" + plain.replace(",", ";").replace(".", ","), encoding="utf-8")
    (tmp_path / "tabs.csv").write_text(plain.replace(",", "\t"))
    expected = csv_rows(tmp_path / "plain.csv", "a list")
    assert csv_rows(tmp_path / "other.csv", "a list") == expected == csv_rows(tmp_path / "tabs.csv", "a list")
    (tmp_path / "thousands.csv").write_text("column;centre;spread\na;1,500;2\n")
    with pytest.raises(InputError, match="thousands"):
        csv_rows(tmp_path / "thousands.csv", "a list")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("a,b,c\ncm,mmHg,kg\n1,2,3\n4,6,5\n", "If this row tells units, delete it"),
        ("a,b,c\n1,2,3\n4,6,5\nTotal,8,8\n", "If this row is a total or a remark, delete it"),
        ("a,b,c\n1,2,3\n4,6,5\nSource: us\n", "line 4: expected 3 cells as in the first row, but there is 1. Delete"),
    ],
)
def test_lines_that_are_no_records_are_refused_with_what_to_do(tmp_path: Path, lines: str, words: str) -> None:
    (tmp_path / "table.csv").write_text(lines)
    with pytest.raises(InputError, match=re.escape(words)):
        read_table(tmp_path / "table.csv")
