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


def test_check_lists_every_problem_of_every_file_of_a_folder_and_names_a_column_once(silograph, tmp_path) -> None:
    place, frame = tmp_path / "data", _frame(0).drop(columns="ward")
    place.mkdir()
    odd = frame.astype(object).assign(patient_id=range(len(frame)))
    odd.loc[3, "c"], odd.loc[4, "d"] = "n.d.", "<0.5"
    for name in ("east", "north"):
        odd.to_csv(place / f"{name}.csv", index=False)
    (place / "a.csv").write_text("a,b,c\n1,2,3\n4,5\n")
    frame.assign(c=1.0).to_csv(place / "west.csv", index=False)
    code, _, error = silograph("check", place)
    assert code == 2
    assert "there are 7 problems" in error
    for words in (
        "a.csv, line 3",
        "'<0.5'",
        "'n.d.'",
        "east.csv and 1 more: column 'patient_id'",
        "west.csv: column 'c' is",
    ):
        assert words in error
    odd.drop(columns=["c", "d"]).to_csv(place / "east.csv", index=False)
    (place / "a.csv").unlink()
    code, _, error = silograph("learn", place, "-o", tmp_path / "out", "--drop", "c")
    assert code == 2
    assert error.count("column 'patient_id'") == 1


def test_check_refuses_what_learn_refuses(silograph, tmp_path: Path) -> None:
    for name, rows in (("east", 60), ("west", 2)):
        _frame(0, 60).drop(columns="ward").iloc[:rows].to_csv(tmp_path / f"{name}.csv", index=False)
    for words in (("check",), ("learn", "-o", tmp_path / "out")):
        code, _, error = silograph(*words, tmp_path / "east.csv", tmp_path / "west.csv")
        assert code == 2
        assert "site 'west': expected at least 3 signals" in error


def test_a_column_without_a_value_is_one_that_the_site_lacks(silograph, tmp_path: Path) -> None:
    for k, name in enumerate(("east", "north", "west")):
        frame = _frame(k, 200).drop(columns="ward")
        (frame.assign(c=None) if name == "west" else frame).to_csv(tmp_path / f"{name}.csv", index=False)
    files = sorted(tmp_path.glob("*.csv"))
    code, text, error = silograph("learn", *files, "-o", tmp_path / "out")
    assert code == 0, error
    assert "west.csv: left out, because no row has a value: 'c'" in text
    could_see = pd.read_csv(tmp_path / "out" / "consensus.csv").set_index(["source", "target"])["could_see"]
    assert set(could_see[[name for name in could_see.index if "c" in name]]) == {2}


def test_edges_between_levels_of_a_category_get_a_word(silograph, folder: Path, tmp_path: Path) -> None:
    code, text, error = silograph("learn", folder / "sites", "-o", tmp_path / "out", "--categories", "ward=a,b,c")
    assert code == 0, error
    joined = {"ward=b", "ward=c"} in [
        {a, b} for a, b in pd.read_csv(tmp_path / "out" / "consensus.csv")[["source", "target"]].to_numpy()
    ]
    assert joined
    assert "Edges between levels of 'ward'" in text


def test_the_private_spread_of_a_declared_level_follows_from_its_mean(silograph, tmp_path: Path) -> None:
    for k, name in enumerate(("east", "north", "west")):
        frame = _frame(k, 800).assign(ward=np.random.default_rng(k).choice(["a", "b", "c"], 800, p=[0.5, 0.3, 0.2]))
        (tmp_path / "sites").mkdir(exist_ok=True)
        frame.to_csv(tmp_path / "sites" / f"{name}.csv", index=False)
    asked = ("--categories", "ward=a,b,c", "--epsilon", "8", "--seed", "1")
    code, _, error = silograph("learn", tmp_path / "sites", "-o", tmp_path / "out", *asked)
    assert code == 0, error
    scale = pd.read_csv(tmp_path / "out" / "scale.csv", index_col="column")
    for level, share in (("ward=b", 0.3), ("ward=c", 0.2)):
        p = scale.centre[level]
        assert p == pytest.approx(share, abs=0.1)
        assert scale.spread[level] == pytest.approx((p * (1 - p)) ** 0.5)


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


def _patients(seed: int, rows: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.integers(20, 90, rows).astype(float), "sex": rng.choice(["f", "m"], rows)})
    frame["back"] = np.where(frame.age + 30 * (frame.sex == "m") > 70, "yes", "no")
    frame.loc[3, "age"] = np.nan
    return frame


COLUMNS = """
target = "back"
classes = ["no", "yes"]
categories = {sex = ["f", "m"]}
fill = {age = 55}
bounds = {age = [20, 90]}
"""


def test_a_shared_start_reads_a_new_clients_table_as_the_plan_says(silograph, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "clients").mkdir()
    for k in range(4):
        _patients(k).to_csv(tmp_path / "clients" / f"c{k}.csv", index=False)
    _patients(9).to_csv(tmp_path / "new.csv", index=False, sep=";", decimal=",")
    method = 'name = "private_meta"\nmodel = "linear"\nrounds = 60\nrate = 1.0\ninner_step = 0.5'
    plan = f'format = 1\nseed = 1\n[data]\nfiles = ["clients"]\n{COLUMNS}\n[method]\n{method}\n'
    (tmp_path / "plan.toml").write_text(plan)
    code, _, error = silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")
    assert code == 0, error
    code, text, error = silograph("personalise", tmp_path / "out", tmp_path / "new.csv", "-o", tmp_path / "mine.npz")
    assert code == 0, error
    assert float(text.split(" before, ")[1].split()[0]) > 0.8


def test_raw_features_of_a_model_get_a_word(silograph, tmp_path: Path) -> None:
    (tmp_path / "regions").mkdir()
    for name in ("east", "west"):
        frame = _patients(1).assign(clinic=["a", "b", "c"] * 10).fillna({"age": 55.0})
        frame.to_csv(tmp_path / "regions" / f"{name}.csv", index=False)
    for bounds, told in (("", True), ("bounds = {age = [20, 90]}", False)):
        data = COLUMNS.replace("bounds = {age = [20, 90]}", bounds)
        plan = (
            f'format = 1\n[data]\nfiles = ["regions"]\nagent = "clinic"\n{data}\n[method]\nname = "graph_federation"\n'
        )
        (tmp_path / "plan.toml").write_text(plan + ("rounds = 2\nstep = 0.0001" if told else "rounds = 2"))
        code, text, error = silograph("run", tmp_path / "plan.toml", "-o", tmp_path / f"out{told}")
        assert code == 0, error
        assert ("bounds = {age = [low, high]}" in text) == told
