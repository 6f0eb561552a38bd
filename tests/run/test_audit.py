"""`silograph audit`, as a person and as a machine sees it."""

import json
import sys

import pytest

from audits import OPEN, PRIVATE, tables
from pages import NASTY, Page, only_own_scripts, table
from silograph import cli
from silograph.core.errors import DamageError
from silograph.report.build import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import tomli_w

    folder = tables(tmp_path_factory.mktemp("plans"))
    for name, content in (("private", PRIVATE["graphs, one release"]), ("open", OPEN["graphs"])):
        (folder / f"{name}.toml").write_text(tomli_w.dumps(content))
    return folder


def said(monkeypatch, capsys, *arguments, command="audit"):
    monkeypatch.setattr(sys, "argv", ["silograph", command, *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capsys.readouterr().out


def test_words_for_people(folder, monkeypatch, capsys):
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 500)
    assert code == 0
    for words in (
        "epsilon 3 at delta 1e-05",
        "500 trials, each a pair of runs",
        "With 99% confidence epsilon is at least",
        "promise stands",
    ):
        assert words in out


def test_numbers_for_machines(folder, monkeypatch, capsys):
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 500, "--observer", "wire", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["observer"] == "wire"
    assert (told["confidence"], told["delta"], told["trials"]) == (0.99, 1e-5, 500)
    assert told["trial"] == "a pair of runs, one without the canary and one with it"
    assert 0.0 < told["epsilon_lower"] <= told["epsilon_accounted"] == pytest.approx(3.0)


def test_one_run(folder, monkeypatch, capsys):
    _, out = said(monkeypatch, capsys, folder / "private.toml", "--one-run", "--json")
    told = json.loads(out)
    assert told["how"].startswith("one run")
    assert told["trial"].startswith("one canary")
    assert told["epsilon_lower"] <= told["epsilon_accounted"]
    code, _ = said(monkeypatch, capsys, folder / "private.toml", "--one-run", "--runs", 500)
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
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 500)
    assert code == 1
    assert "REFUTED" in out
    assert "Do not run this" in out


# ---- of a finished run -----------------------------------------------------------------------------------------------


def finished(name, folder, out, monkeypatch, capsys):
    import tomli_w

    path = folder / f"{out.name}.toml"
    path.write_text(tomli_w.dumps({**PRIVATE, "open": OPEN["graphs"]}[name]))
    code, _ = said(monkeypatch, capsys, path, "-o", out, command="run")
    assert code == 0
    return out


@pytest.mark.parametrize(
    "name", ["graphs, one release", "units, trusted server", "records, linearised", "networks, first order"]
)
def test_what_is_found_of_a_finished_run_is_in_its_report(name, folder, tmp_path, monkeypatch, capsys):
    if name.startswith("networks"):
        pytest.importorskip("torch", reason="neural networks need the extra `neural`")
    out = finished(name, folder, tmp_path / "out", monkeypatch, capsys)
    before = build(out)
    assert "Attacked" not in before
    code, said_so = said(monkeypatch, capsys, out, "--runs", 200)
    assert code == 0
    assert f"report: {out / 'report.html'}" in said_so
    told = json.loads((out / "audit.json").read_text())
    page = (out / "report.html").read_text()
    assert page == build(out) != before
    shown = {row[0]: row[1] for row in table(page, "Attacked")}
    assert shown["ε, at least"].endswith("with 99 % confidence")
    assert float(shown["ε, at least"].split(",")[0]) <= told["epsilon_lower"] <= told["epsilon_accounted"]
    assert float(shown["ε, accounted"]) >= told["epsilon_accounted"] * (1.0 - 1e-12)
    assert (shown["δ"], shown["Refuted"]) == ("10⁻⁵", "no")
    assert shown["Trials"].startswith("200, each a pair of runs")
    words = Page(page).text
    assert "An attacker who knows everything but one" in words
    assert "An audit cannot prove a promise, it can refute one." in words
    assert not list(out.glob("*.tmp"))


def test_a_run_without_privacy_shows_what_the_attack_made_of_it(folder, tmp_path, monkeypatch, capsys):
    out = finished("open", folder, tmp_path / "out", monkeypatch, capsys)
    assert said(monkeypatch, capsys, out)[0] == 0
    words = Page((out / "report.html").read_text()).text
    assert "Against the server no epsilon was claimed" in words
    assert "exact inversion of the uploaded graph" in words
    assert "The promise stands" not in words


def test_a_refuted_run_is_called_private_no_more(folder, tmp_path, monkeypatch, capsys):
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)
    monkeypatch.setattr("silograph.tasks.smooth_graph.clip_rows", lambda x, radius: 3.0 * x)
    assert said(monkeypatch, capsys, out, "--runs", 500)[0] == 1
    page = (out / "report.html").read_text()
    assert '<div class="verdict none"><strong>Refuted by an attack</strong>' in page
    assert "Do not rely on the guarantees above." in page
    assert "Chance alone accuses at most 1 % of sound plans" in page
    assert ["Refuted", "yes"] in table(page, "Attacked")


def test_tables_that_are_elsewhere_are_asked_for(folder, tmp_path, monkeypatch, capsys):
    """As after a deployment: the folder of the run is here, the tables are with the parties."""
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)
    page, moved = (out / "report.html").read_bytes(), tmp_path / "some" / "where" / "else"
    moved.parent.mkdir(parents=True)
    out.rename(moved)
    monkeypatch.setattr(sys, "argv", ["silograph", "audit", str(moved)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "expected the tables of its plan" in error
    assert "ada.csv is not there, nor 2 more" in error
    assert "deployment" in error
    assert (moved / "report.html").read_bytes() == page
    assert not (moved / "audit.json").exists()


def test_a_folder_that_is_no_run_is_refused(folder, monkeypatch, capsys):
    assert said(monkeypatch, capsys, folder)[0] == 2
    assert not (folder / "audit.json").exists()


@pytest.fixture
def audited(folder, tmp_path, monkeypatch, capsys):
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)
    assert said(monkeypatch, capsys, out, "--runs", 200)[0] == 0
    return out


DAMAGE = {
    "no object": lambda told: [],
    "a missing key": lambda told: {key: value for key, value in told.items() if key != "delta"},
    "a newer format": lambda told: told | {"format": 2},
    "of another plan": lambda told: told | {"plan": "0" * 64},
    "a bound that is text": lambda told: told | {"epsilon_lower": "much"},
    "no bound": lambda told: told | {"epsilon_lower": None},
    "a negative bound": lambda told: told | {"epsilon_lower": -1.0},
    "more confidence than there is": lambda told: told | {"confidence": 1.5},
    "no number": lambda told: told | {"delta": float("nan")},
    "refuted without a reason": lambda told: told | {"refuted": True},
    "a refutation that is hidden": lambda told: told | {"epsilon_lower": 9.0},
    "attacks that are numbers": lambda told: told | {"attacks": [1]},
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_or_foreign_audit_is_refused(how, audited):
    path = audited / "audit.json"
    path.write_text(json.dumps(DAMAGE[how](json.loads(path.read_text()))))
    with pytest.raises(DamageError, match=r"audit\.json"):
        build(audited)


def test_half_an_audit_is_refused_and_another_one_mends_it(audited, monkeypatch, capsys):
    path = audited / "audit.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(DamageError, match="does not parse"):
        build(audited)
    assert said(monkeypatch, capsys, audited, "--runs", 200)[0] == 0
    assert "Attacked" in build(audited)


def test_a_leak_and_hostile_words_are_shown_as_they_are(audited):
    path = audited / "audit.json"
    leak = {"leak": NASTY, "epsilon_lower": "infinity", "refuted": True, "how": None, "accuracy": None}
    path.write_text(json.dumps(json.loads(path.read_text()) | leak))
    page = Page(build(audited))
    only_own_scripts(page)
    assert f"can tell it whatever the noise: {NASTY}. No epsilon holds" in page.text
