"""Models read the same tables with the same care: levels, fills, bounds, classes in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.core.wording import speaking
from silograph.data.clients import read_clients
from silograph.data.features import FeatureOptions, as_learned, raw_values, scaled
from silograph.data.regions import read_regions, read_test

RNG = np.random.default_rng(9)
TOLD = FeatureOptions(
    drop=("patient_id",),
    categories={"sex": ("f", "m")},
    fill={"age": 50.0},
    bounds={"age": (0.0, 100.0), "dose": (0.0, 16.0)},
)


@pytest.fixture(autouse=True)
def _voice() -> Iterator[None]:
    """Errors name settings as a plan does."""
    with speaking("plan"):
        yield


def _frame(rows: int = 40) -> pd.DataFrame:
    frame = pd.DataFrame({"clinic": RNG.choice(["x", "y", "z"], rows), "back": RNG.choice(["no", "yes"], rows)})
    frame["patient_id"] = RNG.permutation(rows)
    frame["age"] = RNG.integers(20, 90, rows).astype(float)
    frame.loc[[3, 5], "age"] = np.nan
    frame["dose"] = RNG.integers(0, 17, rows)
    return frame.assign(sex=RNG.choice(["f", "m"], rows))


def _expected(frame: pd.DataFrame) -> np.ndarray:
    age, dose = frame.age.fillna(50.0), frame.dose
    return np.column_stack([age / 50.0 - 1.0, dose / 8.0 - 1.0, frame.sex == "m"])


def test_regions_are_read_with_public_numbers(tmp_path: Path) -> None:
    frame = _frame()
    frame.to_csv(tmp_path / "north.csv", index=False)
    tables = read_regions([tmp_path / "north.csv"], "clinic", "back", told=TOLD, classes=("no", "yes"))
    assert tables.features == ("age", "dose", "sex=m")
    for agent, (x, y) in zip(tables.agents, tables.records, strict=True):
        own = frame[frame.clinic == agent.split("/")[1]]
        np.testing.assert_allclose(x, _expected(own), atol=1e-12)
        np.testing.assert_array_equal(y, own.back == "yes")
    x, y = read_test(tmp_path / "north.csv", "back", tables.features, "clinic", TOLD, ("no", "yes"))
    np.testing.assert_allclose(x, _expected(frame), atol=1e-12)
    np.testing.assert_array_equal(y, frame.back == "yes")


def test_clients_are_read_with_public_numbers(tmp_path: Path) -> None:
    frame = _frame().drop(columns="clinic")
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "b.csv", index=False, sep=";", decimal=",")
    clients = read_clients([tmp_path], "back", told=TOLD)
    assert clients.names == ("a", "b")
    assert clients.classes == ("no", "yes")
    for x, y in clients.records:
        np.testing.assert_allclose(x, _expected(frame), atol=1e-6)
        np.testing.assert_array_equal(y, frame.back == "yes")


def test_values_beyond_the_bounds_count_as_the_bound(tmp_path: Path) -> None:
    frame = _frame().assign(dose=1000.0 * RNG.standard_normal(40))
    frame.to_csv(tmp_path / "north.csv", index=False)
    tables = read_regions([tmp_path / "north.csv"], "clinic", "back", told=TOLD, classes=("no", "yes"))
    assert max(np.abs(x).max() for x, _ in tables.records) == 1.0


@pytest.mark.parametrize(
    "change, words",
    [
        ({"drop": None}, ["'patient_id'", 'drop = ["patient_id"]']),
        ({"categories": None}, ["'sex' holds words", 'categories = {sex = ["f", "m"]}']),
        ({"fill": None}, ["column 'age', data row 4", "missing"]),
    ],
)
def test_what_is_left_unsaid_is_refused_with_its_remedy(tmp_path: Path, change: dict, words: list[str]) -> None:
    _frame().to_csv(tmp_path / "north.csv", index=False)
    told = FeatureOptions(**{**vars(TOLD), **change})
    with pytest.raises(InputError) as caught:
        read_regions([tmp_path / "north.csv"], "clinic", "back", told=told, classes=("no", "yes"))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("private", [False, True])
def test_answers_in_words_need_their_classes(tmp_path: Path, private: bool) -> None:
    _frame().to_csv(tmp_path / "north.csv", index=False)
    with pytest.raises(InputError, match=r"column 'back', data row 1.*classes = ") as caught:
        read_regions([tmp_path / "north.csv"], "clinic", "back", private, told=TOLD)
    assert ("found a word" in str(caught.value)) == private
    with pytest.raises(InputError, match=r"column 'back', data row .*one of the levels"):
        read_regions([tmp_path / "north.csv"], "clinic", "back", private, told=TOLD, classes=("no", "perhaps"))


def test_names_that_no_table_has_are_refused(tmp_path: Path) -> None:
    for name in ("north.csv", "south.csv"):
        _frame().to_csv(tmp_path / name, index=False)
    told = FeatureOptions(**{**vars(TOLD), "bounds": {"doze": (0.0, 1.0)}})
    with pytest.raises(InputError, match=r"plan, bounds.*'doze'.*Did you mean dose"):
        read_regions([tmp_path], "clinic", "back", told=told, classes=("no", "yes"))


def test_a_region_is_a_folder_with_a_file_for_every_agent(tmp_path: Path) -> None:
    frame = _frame().assign(back=RNG.standard_normal(40))
    for region in ("north", "south"):
        (tmp_path / "all" / region).mkdir(parents=True)
        for agent, own in frame.groupby("clinic"):
            own.drop(columns="clinic").to_csv(tmp_path / "all" / region / f"{agent}.csv", index=False)
    tables = read_regions([tmp_path / "all"], "file", "back", told=TOLD)
    assert tables.agents == ("north/x", "north/y", "north/z", "south/x", "south/y", "south/z")
    np.testing.assert_allclose(tables.records[0][0], _expected(frame[frame.clinic == "x"]), atol=1e-12)


def test_raw_values_get_a_word_where_nothing_is_protected() -> None:
    pixels = [RNG.integers(0, 17, (20, 2)).astype(float)]
    (note,) = raw_values(["left", "right"], pixels, private=False)
    assert "bounds" in note
    assert raw_values(["left", "right"], pixels, private=True) == []
    assert raw_values(["left", "right"], [pixel / 16.0 for pixel in pixels], private=False) == []


def test_a_gap_counts_as_the_middle_of_bounds_or_as_what_the_model_learns(tmp_path: Path) -> None:
    frame = _frame()
    frame.to_csv(tmp_path / "north.csv", index=False)

    def read(fill: str) -> tuple[tuple[str, ...], np.ndarray]:
        told = replace(TOLD, fill={"age": fill})
        tables = read_regions([tmp_path / "north.csv"], "clinic", "back", told=told, classes=("no", "yes"))
        x, _ = read_test(tmp_path / "north.csv", "back", tables.features, "clinic", told, ("no", "yes"))
        assert sorted(map(tuple, np.concatenate([own for own, _ in tables.records]))) == sorted(map(tuple, x))
        later = as_learned(frame, told)  # what somebody wants predicted
        array = scaled(later[list(tables.features)].to_numpy(dtype=float), tables.features, told.bounds)
        np.testing.assert_array_equal(array, x)
        return tables.features, x

    gap = frame.age.isna().to_numpy()
    features, middle = read("middle")
    assert features == ("age", "dose", "sex=m")
    np.testing.assert_array_equal(middle[gap, 0], 0.0)
    features, learned = read("learned")
    assert features == ("age", "dose", "sex=m", "age missing")
    np.testing.assert_array_equal(learned[:, :3], middle)
    np.testing.assert_array_equal(learned[:, 3], gap)
    with pytest.raises(InputError, match="bounds for 'sex=m' as well"):
        replace(TOLD, fill={"sex=m": "middle"}).fills()


def test_what_is_learned_for_gaps_is_at_least_as_good_as_any_number() -> None:
    """Least squares against every fill from -2 to 2, the mean of what is there among them: answers depend on gaps."""
    x, gap = RNG.standard_normal((300, 2)), RNG.random(300) < 0.3
    y = x @ [1.0, -1.0] + 0.7 * gap + 0.1 * RNG.standard_normal(300)

    def loss(*columns: np.ndarray) -> float:
        design = np.column_stack([*columns, x[:, 1], np.ones(300)])
        return float(((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2).sum())

    told = FeatureOptions(fill={"a": "learned"}, bounds={"a": (-1.0, 1.0)})
    made = told.with_fills({"a": np.where(gap, np.nan, x[:, 0])}, "here")
    fills = [*np.linspace(-2.0, 2.0, 41), float(x[~gap, 0].mean())]
    best = min(loss(np.where(gap, value, x[:, 0])) for value in fills)
    assert loss(made["a"], made["a missing"]) <= best + 1e-9
