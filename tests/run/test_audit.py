"""`silograph audit`, as a person and as a machine sees it."""

import json
import sys

import pytest

from audits import OPEN, PRIVATE, tables
from silograph import cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import tomli_w

    folder = tables(tmp_path_factory.mktemp("plans"))
    for name, content in (("private", PRIVATE["graphs, one release"]), ("open", OPEN["graphs"])):
        (folder / f"{name}.toml").write_text(tomli_w.dumps(content))
    return folder


def said(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["silograph", "audit", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capsys.readouterr().out


def test_words_for_people(folder, monkeypatch, capsys):
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 1000)
    assert code == 0
    for words in (
        "epsilon 3 at delta 1e-05",
        "1000 trials",
        "With 99% confidence epsilon is at least",
        "promise stands",
    ):
        assert words in out


def test_numbers_for_machines(folder, monkeypatch, capsys):
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 1000, "--observer", "wire", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["observer"] == "wire"
    assert (told["confidence"], told["delta"], told["trials"]) == (0.99, 1e-5, 1000)
    assert 0.0 < told["epsilon_lower"] <= told["epsilon_accounted"] == pytest.approx(3.0)


def test_one_run(folder, monkeypatch, capsys):
    _, out = said(monkeypatch, capsys, folder / "private.toml", "--one-run", "--json")
    told = json.loads(out)
    assert told["how"].startswith("one run")
    assert told["epsilon_lower"] <= told["epsilon_accounted"]
    code, _ = said(monkeypatch, capsys, folder / "private.toml", "--one-run", "--runs", 1000)
    assert code == 2


def test_a_plan_without_privacy_shows_the_attack_and_claims_nothing(folder, monkeypatch, capsys):
    code, out = said(monkeypatch, capsys, folder / "open.toml")
    assert code == 0
    assert "no epsilon is claimed" in out
    assert "exact inversion of the uploaded graph" in out
    _, out = said(monkeypatch, capsys, folder / "open.toml", "--json")
    told = json.loads(out)
    assert told["epsilon_lower"] is None
    assert told["epsilon_accounted"] == "infinity"


def test_a_refuted_promise_has_an_exit_code_of_its_own(folder, monkeypatch, capsys):
    monkeypatch.setattr("silograph.tasks.smooth_graph.clip_rows", lambda x, radius: 3.0 * x)
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 1000)
    assert code == 1
    assert "REFUTED" in out
    assert "Do not run this" in out
