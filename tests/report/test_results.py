"""What a result.json says is read as types and written back as it was; other formats are refused in words."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import graph_runs
from pages import change
from silograph.core.errors import DamageError
from silograph.core.results import Made, filled, read_as, read_json, read_result, to_json, write_result
from silograph.families.federation.plan import FederationMethod
from silograph.families.federation.result import Parameters
from silograph.report.build import read, result_of


def made_by(family: str) -> Callable[[Path], Path]:
    """The folders that the tests of a page make up."""
    maker: Callable[[Path], Path] = runpy.run_path(
        str(Path(__file__).parents[1] / "families" / family / "test_page.py")
    )["make_run"]
    return maker


MAKERS: dict[str, Callable[[Path], Path]] = {
    "graphs": graph_runs.make_run,
    "regions": made_by("federation"),
    "clusters": made_by("clusters"),
    "a shared start": made_by("meta"),
}


def same_where_both_speak(ours: Any, theirs: Any) -> bool:
    """Whether everything in `theirs` is in `ours`, in the same order; early versions wrote fewer keys."""
    if isinstance(theirs, dict):
        order = [key for key in ours if key in theirs]
        return order == list(theirs) and all(same_where_both_speak(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_where_both_speak, ours, theirs))
    return bool(ours == theirs)


@pytest.mark.parametrize("family", MAKERS)
def test_what_is_read_is_written_back_as_it_was(family: str, tmp_path: Path) -> None:
    folder = MAKERS[family](tmp_path / "run")
    told = read_json(folder)
    result, made = result_of(told, "here"), read_as(Made, told, "here")
    (tmp_path / "again").mkdir()
    write_result(tmp_path / "again", result, made)
    again = read_json(tmp_path / "again")
    own = {key: value for key, value in told.items() if key in to_json(result)}
    assert list(again)[-5:] == ["plan", "ledger", "seed", "versions", "finished"]
    assert same_where_both_speak(again, own)
    assert (result_of(again, "here"), read_as(Made, again, "here")) == (result, made)


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_another_format_is_refused_with_what_to_do(family: str, number: object, tmp_path: Path) -> None:
    folder = MAKERS[family](tmp_path)
    change(folder, format=number)
    for reading in (read, read_result):
        with pytest.raises(DamageError, match=r"expected format 1, but .*version of silograph that wrote"):
            reading(folder)


@pytest.mark.parametrize("family", MAKERS)
def test_what_newer_versions_say_more_is_ignored(family: str, tmp_path: Path) -> None:
    folder = MAKERS[family](tmp_path)
    before = read(folder).result
    told = json.loads((folder / "result.json").read_text())
    told["privacy"]["guarantees"][0]["weather"] = "fine"
    change(folder, privacy=told["privacy"], weather="fine")
    assert read(folder).result == before


def test_parameters_are_taken_by_their_names() -> None:
    chosen = FederationMethod(step=0.25, rounds=7)
    taken = filled(Parameters, chosen, perturbation="none", noise=None, noise_least=None, masks="skipped")
    assert (taken.step, taken.rounds, taken.masks) == (0.25, 7, "skipped")
    with pytest.raises(TypeError, match="noise_least"):  # a plan has none, so it has to be said
        filled(Parameters, chosen, noise=None)
