"""Declared levels become columns of 0 and 1; what is no level is refused at its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.core.wording import speaking
from silograph.data.categories import parse_categories
from silograph.data.silos import from_arrays, read_silos

RNG = np.random.default_rng(5)
LEVELS = {"sex": ("f", "m"), "ward": ("a", "b", "c")}


@pytest.fixture(autouse=True)
def _voice() -> Iterator[None]:
    """Errors name settings as options of a command."""
    with speaking("options"):
        yield


def _frame(rows: int = 40) -> pd.DataFrame:
    frame = pd.DataFrame(RNG.standard_normal((rows, 2)), columns=["age", "dose"])
    return frame.assign(sex=RNG.choice(["f", "m"], rows), ward=RNG.choice(["a", "b", "c"], rows))


def test_levels_but_the_first_are_columns(tmp_path: Path) -> None:
    frame = _frame()
    frame.to_csv(tmp_path / "a.csv", index=False)
    silos = read_silos([tmp_path / "a.csv"], categories=LEVELS)
    assert silos.nodes == ("age", "dose", "sex=m", "ward=b", "ward=c")
    dummies = pd.get_dummies(frame, columns=["sex", "ward"], drop_first=True, prefix_sep="=", dtype=float)
    np.testing.assert_array_equal(silos.signals[0], dummies.to_numpy())
    np.testing.assert_array_equal(from_arrays([frame], categories=LEVELS).signals[0], dummies.to_numpy())


def test_without_levels_the_remedy_is_said_and_works(tmp_path: Path) -> None:
    _frame().to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputError) as caught:
        read_silos([tmp_path / "a.csv"], drop=["sex"])
    said = str(caught.value).split("--categories ")[1].rstrip(".")
    assert said == "ward=a,b,c"
    assert "ward=c" in read_silos([tmp_path / "a.csv"], drop=["sex"], categories=parse_categories([said])).nodes


@pytest.mark.parametrize("private", [False, True])
def test_a_value_of_no_level_is_refused_where_it_is(tmp_path: Path, private: bool) -> None:
    frame = _frame()
    frame.loc[7, "ward"] = "secret"
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputError, match=r"column 'ward', data row 8.*--categories") as caught:
        read_silos([tmp_path / "a.csv"], private=private, categories=LEVELS)
    assert ("secret" in str(caught.value)) != private


def test_words_under_privacy_get_the_remedies_too(tmp_path: Path) -> None:
    _frame().to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputError, match=r"--drop.*--categories"):
        read_silos([tmp_path / "a.csv"], private=True)


def test_numbers_and_truths_can_be_levels(tmp_path: Path) -> None:
    frame = _frame().assign(sex=RNG.integers(1, 3, 40), ward=RNG.random(40) < 0.5)
    levels = {"sex": ("1", "2"), "ward": ("False", "True")}
    for save, name in ((frame.to_csv, "a.csv"), (frame.to_parquet, "a.parquet")):
        save(tmp_path / name, index=False)
        silos = read_silos([tmp_path / name], categories=levels)
        np.testing.assert_array_equal(silos.signals[0][:, 2], frame.sex == 2)
        np.testing.assert_array_equal(silos.signals[0][:, 3], frame.ward)


def test_a_level_can_be_dropped(tmp_path: Path) -> None:
    _frame().to_csv(tmp_path / "a.csv", index=False)
    silos = read_silos([tmp_path / "a.csv"], drop=["ward=c"], categories=LEVELS)
    assert silos.nodes == ("age", "dose", "sex=m", "ward=b")


@pytest.mark.parametrize("said", ["sex", "sex=", "sex=f", "sex=f,f", "=f,m", "sex=f,m;sex=a,b", "sex=f,"])
def test_what_declares_nothing_is_refused(said: str) -> None:
    with pytest.raises(InputError, match="--categories"):
        parse_categories([said])


def test_how_it_is_said() -> None:
    assert parse_categories([]) is None
    assert parse_categories(["sex = f, m; ward=a,b,c"]) == LEVELS
    assert parse_categories(["sex=f,m", "ward=a,b,c"]) == LEVELS


def test_a_column_that_no_table_has_is_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        _frame().to_csv(tmp_path / name, index=False)
    with pytest.raises(InputError, match="Did you mean ward"):
        read_silos([tmp_path / "a.csv", tmp_path / "b.csv"], categories=LEVELS | {"wards": ("a", "b")})


def test_a_level_that_says_nothing_at_a_site_is_a_node_that_it_lacks(tmp_path: Path) -> None:
    """No row has it, or every row; or no row has the reference, so that the others follow from each other."""
    for name, there in (("all", "abcd"), ("few", "ab"), ("late", "bc"), ("one", "b")):
        frame = _frame().assign(ward=np.resize(np.array(list(there)), 40))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    levels, files = {"sex": ("f", "m"), "ward": ("a", "b", "c", "d")}, sorted(tmp_path.glob("*.csv"))
    silos = read_silos(files, categories=levels, rule="all")
    assert dict(zip(silos.names, map(sorted, silos.lacks), strict=True)) == {
        "all": [],
        "few": ["ward=c", "ward=d"],
        "late": ["ward=b", "ward=d"],
        "one": ["ward=b", "ward=c", "ward=d"],
    }
    assert [note.split("left out")[0] for note in silos.notes] == [f"{file}: " for file in files[1:]]
    told = read_silos(files, categories=levels, private=True)  # which levels occur is not told
    assert told.lacks == ()
    assert told.notes == ()
