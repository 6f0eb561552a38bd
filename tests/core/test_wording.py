"""Errors name settings as their reader set them."""

from __future__ import annotations

from dataclasses import fields

import pytest
from typer.testing import CliRunner

from silograph.cli import app
from silograph.cli.options import called
from silograph.core import wording
from silograph.core.schema import key_of
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy


@pytest.mark.parametrize("section", [Data, ConsensusGraph, Privacy, GraphPlan])
def test_options_are_those_of_the_command(section: type) -> None:
    with wording.speaking("options"):
        for part in (part for part in fields(section) if "help" in part.metadata):
            typed = called(part).split("/")[0]
            assert wording.setting(part.name if part.name in wording.OPTIONS else key_of(part)) == typed


def test_names_are_quoted_for_whoever_copies_them() -> None:
    name = "2nd dose"
    with wording.speaking("options"):
        assert wording.option("drop", [name, "age"]) == "--drop '2nd dose' --drop age"
        assert wording.option("categories", {name: ["a", "b"]}) == "--categories '2nd dose=a,b'"
    with wording.speaking("plan"):
        assert wording.option("categories", {name: ["a", "b"]}) == 'categories = {"2nd dose" = ["a", "b"]}'
    assert wording.option("drop", [name]) == 'drop=["2nd dose"]'


def test_a_voice_ends_with_its_block() -> None:
    with wording.speaking("plan"):
        with wording.speaking("options"):
            assert wording.called("seed") == "--seed"
        assert wording.called("seed") == "seed"
    assert wording.called("seed") == "random_state"


def test_a_command_leaves_no_voice_behind_whoever_calls_it(tmp_path) -> None:
    (tmp_path / "odd.csv").write_text("patient_id,x\n1,2\n2,4\n")
    found = CliRunner().invoke(app, ["learn", str(tmp_path / "odd.csv"), "-o", str(tmp_path / "out")])
    assert "--drop patient_id" in str(found.exception)
    assert wording.called("seed") == "random_state"
    assert wording.settings() == "parameters"
