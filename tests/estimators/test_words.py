"""Errors in Python speak of parameters; at the command line the same errors speak of options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from silograph import ConsensusGraph, RegionModels, open_run
from silograph.core.errors import InputError

RNG = np.random.default_rng(5)


def _frame(**more: Any) -> pd.DataFrame:
    return pd.DataFrame(RNG.standard_normal((40, 4)), columns=list("abcd")).assign(**more)


PLAIN = {"north": _frame(), "south": _frame()}
ODD = {"north": _frame(person_id=np.arange(40)), "south": _frame()}
WORDS = {"north": _frame(ward=RNG.choice(["x", "y"], 40)), "south": _frame()}
UNLIKE = {"north": _frame(), "south": _frame().drop(columns="d")}
SPARSE = {"north": _frame(d=np.where(np.arange(40) == 3, 1.0, np.nan)), "south": _frame()}

#: Parameters, tables, and what the error must name.
WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({}, ODD, 'drop=["person_id"]'),
    ({"epsilon": 1.0}, ODD, 'unit_column="person_id"'),
    ({}, WORDS, 'categories={"ward": ["x", "y"]}'),
    ({}, {"north": _frame(e=_frame().a.astype(str) + "?"), "south": _frame()}, "drop="),
    ({}, SPARSE, 'drop=["d"]'),
    ({}, {"north": _frame()[["a", "b"]]}, "df.T"),
    ({"drop": ("z",)}, PLAIN, "drop 'z'"),
    ({"drop": ("a",), "keep": ("a",)}, PLAIN, "keep"),
    ({"categories": {"a": ("0", "1")}}, PLAIN, "categories"),
    ({"categories": "died=0,1"}, PLAIN, 'categories={"sex": ["f", "m"]'),
    ({"nodes": "same"}, UNLIKE, 'nodes="common"'),
    ({"epsilon": 1.0}, UNLIKE, 'nodes="common"'),
    ({"reveal": "sum"}, {**UNLIKE, "west": _frame()}, 'nodes="common"'),
    ({"coupling_by": "held-out"}, UNLIKE, 'nodes="common"'),
    ({"reveal": "sum"}, PLAIN, "reveal"),
    ({"scale": "private"}, PLAIN, 'scale="own"'),
    ({"scale": "own", "epsilon": 1.0}, PLAIN, 'scale="private"'),
    ({"scale": "private", "epsilon": 1.0, "mode": "correlated"}, PLAIN, 'mode="one-release"'),
    ({"scale": "private", "epsilon": 3.0}, {**PLAIN, "west": _frame()}, 'scale="FILE.csv"'),
    ({"epsilon": 1.0, "mode": "correlated"}, PLAIN, "mode"),
    ({"epsilon": 1.0, "reveal": "sum"}, PLAIN, "mode="),
    ({"learner": "votes", "epsilon": 1.0}, PLAIN, 'unit_column="COLUMN"'),
    ({"edges": 7}, PLAIN, "edges: expected at most 6: then all pairs of 4 nodes are edges, but found 7"),
    ({"degree": 3.5}, PLAIN, "degree: expected at most 3"),
    ({"degree": -1.0}, PLAIN, "degree"),
    ({"lam": -1.0}, PLAIN, "lam"),
    ({"degree": 1.0, "edges": 2}, PLAIN, "parameters"),
    ({"epsilon": -1.0}, PLAIN, "epsilon"),
    ({"epsilon": 1.0, "delta": 2.0}, PLAIN, "delta"),
    ({"random_state": -1}, PLAIN, "random_state"),
    ({}, [], "fit: expected a table per site, but found none"),
    ({}, {}, "fit: expected a table per site, but found none"),
    ({}, None, "fit: expected a table per site, but found none"),
]


def _said(act: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("params, tables, words", WRONG)
def test_errors_name_parameters(params: dict[str, Any], tables: Any, words: str) -> None:
    said = _said(lambda: ConsensusGraph(**params).fit(tables))
    assert words in said
    assert " --" not in said
    assert "plan, " not in said


def test_votes_with_too_much_noise_name_parameters() -> None:
    tables = {name: _frame(person=np.arange(40) // 4) for name in ("north", "south")}
    model = ConsensusGraph(learner="votes", unit_column="person", epsilon=0.1, mode="one-release", scale=None)
    said = _said(lambda: model.fit(tables))
    assert "confidence=0.9" in said
    assert " --" not in said


def test_other_estimators_name_parameters(tmp_path: Path) -> None:
    agents = [(RNG.standard_normal((20, 3)), RNG.standard_normal(20)) for _ in range(4)]
    said = _said(lambda: RegionModels("squared", epsilon=1.0).fit(agents, regions=["n", "s"] * 2))
    assert "plan, " not in said
    assert " --" not in said


def test_an_occupied_folder_and_a_loaded_graph(tmp_path: Path) -> None:
    model = ConsensusGraph(edges=2).fit(PLAIN)
    model.save(tmp_path / "run")
    said = _said(lambda: model.save(tmp_path / "run"))
    assert said.endswith("Choose another run folder.")
    loaded = ConsensusGraph.load(tmp_path / "run")
    assert str(tmp_path / "run" / "report.html") in _said(loaded.report)
    assert "pickl" not in _said(loaded.report)


def test_sites_of_one_name_are_refused() -> None:
    tables = [_frame(), _frame()]
    said = _said(lambda: ConsensusGraph().fit(tables, names=["a", "a"]))
    assert "names: expected different ones, but 'a' occurs 2 times" in said


@pytest.mark.parametrize("params", [{}, {"learner": "papers"}, {"epsilon": 1000.0, "random_state": 1}])
def test_an_opened_run_gives_the_same_table(tmp_path: Path, params: dict[str, Any]) -> None:
    shared = RNG.standard_normal((200, 4)) @ np.triu(np.ones((4, 4)))
    tables = {"north": shared, "south": shared + 0.1 * RNG.standard_normal((200, 4))}
    model = ConsensusGraph(edges=3, **params).fit(tables)
    model.save(tmp_path / "run")
    run = open_run(tmp_path / "run")
    pd.testing.assert_frame_equal(run.to_pandas(), model.to_pandas())
    pd.testing.assert_frame_equal(run.to_pandas("north"), model.to_pandas("north"))


@pytest.mark.parametrize(
    "tables, options, words",
    [
        (ODD, [], "--drop person_id"),
        (WORDS, [], "--categories ward=x,y"),
        (UNLIKE, ["--nodes", "same"], "--nodes common"),
        (PLAIN, ["--edges", "7"], "--edges: expected at most 6"),
        (PLAIN, ["--scale", "own", "--epsilon", "1"], "--scale: expected"),
        (PLAIN, ["--epsilon", "1", "--privacy", "correlated", "--scale", "none"], "--privacy: expected"),
    ],
)
def test_the_command_line_names_options(
    silograph: Any, tmp_path: Path, tables: Any, options: list[str], words: str
) -> None:
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    code, _, error = silograph("learn", *tmp_path.glob("*.csv"), "-o", tmp_path / "out", *options)
    assert code == 2
    assert words in error


def test_a_plan_file_names_its_keys(silograph: Any, tmp_path: Path) -> None:
    for name, table in ODD.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    lines = ["format = 1", "[data]", 'files = ["north.csv", "south.csv"]', "[method]", "edges = 70"]
    (tmp_path / "plan.toml").write_text("\n".join(lines))
    assert 'drop = ["person_id"]' in silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")[2]
    (tmp_path / "plan.toml").write_text("\n".join([*lines[:3], 'drop = ["person_id"]', *lines[3:]]))
    assert "plan, edges: expected at most 6" in silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")[2]
