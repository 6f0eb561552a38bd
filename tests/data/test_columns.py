"""Columns that are no measurements are found, measurements are not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.core.wording import speaking
from silograph.data.columns import check_named, findings
from silograph.data.tables import Grid

RNG = np.random.default_rng(0)
ROWS = 60


@pytest.fixture(autouse=True)
def _voice() -> Iterator[None]:
    """Errors name settings as options of a command."""
    with speaking("options"):
        yield


def _kinds(private: bool = False, keep: tuple[str, ...] = (), **columns: object) -> dict[str, str]:
    grid = Grid([np.asarray(column) for column in columns.values()], list(columns))
    return {found.column: found.kind for found in findings(grid, private, keep)}


ODD = {
    "patient_id": (RNG.standard_normal(ROWS), "identifier"),
    "nr": (RNG.permutation(ROWS) + 1000, "identifier"),
    "file": (RNG.choice(90_000, ROWS, replace=False) + 10_000, "identifier"),
    "name": (np.array([f"person {k}" for k in range(ROWS)], dtype=object), "identifier"),
    "row": (np.arange(ROWS), "counter"),
    "seconds": (np.cumsum(RNG.random(ROWS)), "counter"),
    "admitted": (np.array([f"2024-0{k % 9 + 1}-11" for k in range(ROWS)], dtype=object), "date"),
    "when": (np.array([20240101 + k % 28 for k in range(ROWS)]), "date"),
    "stamp": (np.arange(ROWS).astype("datetime64[D]"), "date"),
    "ward": (np.array(["a", "b", "c"] * (ROWS // 3), dtype=object), "category"),
    "smoker": (RNG.random(ROWS) < 0.5, "category"),
    "unit": (np.full(ROWS, 3.0), "constant"),
}


ODD |= {
    "accession": (RNG.choice(10**6, 400, replace=False), "identifier"),
    "when2": (1_600_000_000 + RNG.integers(0, 10**8, ROWS), "date"),
    "when3": (1_600_000_000_000 + RNG.integers(0, 10**11, ROWS), "date"),
    "since": (RNG.integers(1990, 2024, ROWS), "date"),
    "spoken": (np.array([f"{k % 28 + 1} Mar 20{k % 30:02d}" for k in range(ROWS)], dtype=object), "date"),
    "gesprochen": (np.array([f"{k % 28 + 1}. Okt. 20{k % 30:02d}" for k in range(ROWS)], dtype=object), "date"),
    "clock": (np.array([f"{k % 24:02d}:{k % 60:02d}" for k in range(ROWS)], dtype=object), "date"),
    "salary": (np.array([f"{k % 9 + 1},{k:03d}" for k in range(ROWS)], dtype=object), "marked"),
    "share": (np.array([f"{k % 7} %" for k in range(ROWS)], dtype=object), "marked"),
    "lohn": (np.array([f"{k % 9 + 1}.{k:03d},50 EUR" for k in range(ROWS)], dtype=object), "marked"),
    "remark": (np.array([f"word {k % 55}" for k in range(ROWS)], dtype=object), "text"),
    "glucose": (np.where(np.arange(ROWS) % 9 == 0, -999.0, RNG.normal(5.5, 1.0, ROWS)), "code"),
    "answer": (np.where(np.arange(ROWS) % 9 == 0, 9, RNG.integers(0, 3, ROWS)), "code"),
}


@pytest.mark.parametrize("name", ODD)
def test_each_kind_is_found_and_its_remedy_names_the_column(name: str) -> None:
    column, kind = ODD[name]
    (found,) = findings(Grid([RNG.standard_normal(len(column)), column], ["age", name]))
    assert (found.column, found.kind) == (name, kind)
    assert f"--drop {name}" in str(found)


def test_words_and_dates_in_words_are_not_offered_as_measurements() -> None:
    """Only numbers can be kept."""
    for name in ("name", "admitted", "spoken", "remark"):
        (found,) = findings(Grid([RNG.standard_normal(ROWS), ODD[name][0]], ["age", name]))
        assert "--keep" not in str(found)


def test_two_values_are_no_counter() -> None:
    assert _kinds(crp=np.where(np.arange(ROWS) < 2, RNG.random(ROWS), np.nan), age=RNG.random(ROWS)) == {}


def test_what_is_said_to_be_a_measurement_is_believed() -> None:
    assert _kinds(row=np.arange(ROWS), keep=("row",)) == {}


def test_a_copy_in_other_units_is_found() -> None:
    weight = 70.0 + 10.0 * RNG.standard_normal(ROWS)
    assert _kinds(kg=weight, age=RNG.random(ROWS), lb=2.2046 * weight) == {"lb": "copy"}
    assert _kinds(kg=weight, lb=2.2046 * weight + 0.1 * RNG.standard_normal(ROWS)) == {}


def test_a_copy_is_found_through_gaps() -> None:
    """Also a negative one; what two columns share by chance in a few rows is none."""
    weight, age = 70.0 + 10.0 * RNG.standard_normal(ROWS), RNG.random(ROWS)
    gaps = [np.where(np.arange(ROWS) % k == 0, np.nan, 1.0) for k in (5, 7)]
    assert _kinds(kg=weight * gaps[0], age=age, lb=(3.0 - 2.2046 * weight) * gaps[1]) == {"lb": "copy"}
    assert _kinds(kg=weight * gaps[0], lb=(2.2046 * weight + 0.1 * RNG.standard_normal(ROWS)) * gaps[1]) == {}
    few = np.where(np.arange(ROWS) < 12, 1.0, np.nan)
    assert _kinds(kg=weight, lb=2.2046 * weight * few) == {}


def test_measurements_are_left_alone() -> None:
    """Integers, counts, ages, rounded and skewed values; 300 tables, none of which may be accused."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(10, 400))
        accused = _kinds(
            age=rng.integers(18, 90, rows) if rows > 72 else rng.integers(18, 90, rows) + rng.random(rows),
            platelets=np.rint(1000.0 * rng.normal(250.0, 60.0, rows)),
            income=np.rint(np.exp(rng.normal(10.5, 0.6, rows))),
            pressure=np.rint(rng.normal(120.0, 15.0, rows)),
            rain=np.where(rng.random(rows) < 0.7, 0.0, rng.exponential(5.0, rows)),
            binary=rng.integers(0, 2, rows) if rows > 30 else rng.random(rows),
            temperature=np.round(rng.normal(37.0, 0.5, rows), 1),
            visits=rng.poisson(2.0, rows),
            dose=np.where(rng.random(rows) < 0.5, 0.0, rng.normal(60.0, 5.0, rows)),
            weight=np.rint(rng.normal(3300.0, 450.0, rows)),
        )
        assert not accused, seed


def test_under_privacy_only_names_and_types_are_looked_at() -> None:
    """Two tables that differ in values alone get the same findings."""
    values = {name: column for name, (column, _) in ODD.items()}
    other = {name: RNG.permutation(column) for name, column in values.items()}
    assert (
        _kinds(True, **values)
        == _kinds(True, **other)
        == {
            "patient_id": "identifier",
            "nr": "identifier",
            "stamp": "date",
            "smoker": "category",
        }
    )


def test_a_gap_hides_nothing() -> None:
    counter = np.arange(float(ROWS))
    counter[7] = np.nan
    assert _kinds(row=counter) == {"row": "counter"}


@pytest.mark.parametrize(
    ("drop", "keep", "words"),
    [
        (("patient",), (), "Did you mean patient_id?"),
        ((), ("zzz",), "The columns are 'patient_id', 'age'"),
        (("age",), ("age",), "both name it"),
    ],
)
def test_a_name_that_no_table_has_is_refused_with_the_nearest(drop, keep, words) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        check_named(drop, keep, ["patient_id", "age", "patient_id"])
    check_named(("age",), ("patient_id",), ["patient_id", "age"])


IDENTIFIERS = (
    "MRN, patient no, PatientNo, zip, Zip Code, post_code, phone, Telephone number, ssn, SSN no., e-mail, email"
)
IDENTIFIERS += ", social security number, case_no, record number, nhs number, insurance no, iban, pid, USUBJID, patID"
IDENTIFIERS += (
    ", Fallnummer, PatNr, Patienten-Nr., Kundennummer, lfd. Nr., Nr., study_no, hospital number, Rec #, index"
)
IDENTIFIERS += ", Unnamed: 0, codice_fiscale, numero_dossier, pseudonym"
DATES = "year, birth year, admission date, date_of_birth, Year of birth, DOB, timestamp"
MEASUREMENTS = (
    "age, weight, zipper, fluid, liquid, dose, visits, admissions, order, samples, cases per year, phonemes, update"
)
MEASUREMENTS += (
    ", candidate, mandate, yearly income, income last year, barcodes read, record, NO, number of children, falls"
)


@pytest.mark.parametrize("private", [False, True])
def test_names_say_what_is_no_measurement_under_privacy_too(private: bool) -> None:
    for kind, names in (("identifier", IDENTIFIERS), ("date", DATES)):
        for name in names.split(", "):
            assert _kinds(private, **{name: RNG.standard_normal(ROWS), "age": RNG.random(ROWS)}) == {name: kind}


def test_names_of_measurements_are_none() -> None:
    for name in (*MEASUREMENTS.split(", "), "Boise Air Terminal, ID"):  # in Idaho
        assert _kinds(True, **{name: RNG.standard_normal(ROWS)}) == {}


def test_decimal_commas_are_one_finding_for_all_columns() -> None:
    def cells(digits: int) -> np.ndarray:
        return np.array([f"{RNG.normal(70, 3):.{digits}f}".replace(".", ",") for _ in range(ROWS)], dtype=object)

    names = [f"c{k}" for k in range(7)]
    (found,) = findings(Grid([cells(1) for _ in names], names))
    assert found.columns == tuple(names)
    assert "columns 'c0', 'c1', 'c2', 'c3', 'c4' and 2 more have decimal commas ('" in str(found)
    assert "semicolons between cells" in found.remedy
    (alone,) = findings(Grid([RNG.standard_normal(ROWS), cells(2)], ["a", "b"]))
    assert str(alone).startswith("column 'b' has decimal commas")
    thousands = np.array([f"{RNG.integers(1, 9)},{RNG.integers(100, 999)}" for _ in range(ROWS)], dtype=object)
    assert [each.kind for each in findings(Grid([thousands], ["pay"]))] == ["marked"]
