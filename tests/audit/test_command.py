"""`silograph audit`, as a person and as a machine sees it."""

import errno
import json
import sys

import pytest

from audits import OPEN, PRIVATE, tables
from pages import NASTY, Page, only_own_scripts, table
from silograph import cli
from silograph.audit.finding import Finding
from silograph.cli import audit as audit_cli
from silograph.core import schema
from silograph.core.errors import DamageError
from silograph.privacy.accounting import Cost
from silograph.privacy.attacks.bounds import Bound
from silograph.report import page as pages
from silograph.report.audits import Audit
from silograph.report.build import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import tomli_w

    folder = tables(tmp_path_factory.mktemp("plans"))
    plans = {"private": "graphs, one release", "laplace": "graphs, one release, Laplace"}
    for name, content in [
        *((name, PRIVATE[of]) for name, of in plans.items()),
        ("open", OPEN["graphs, exact"]),
    ]:
        (folder / f"{name}.toml").write_text(tomli_w.dumps(content))
    return folder


@pytest.fixture(autouse=True)
def same_noise(monkeypatch):
    """Of audits with secret noise one in a hundred accuses a sound plan, and here are more than that."""
    monkeypatch.setattr("silograph.audit.audit.secret_root", lambda: 1_000_000)


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
        "its ledger costs 3 (exact Gaussian curve); the plan has a budget of 3",
        "Rehearsal: the plan has a seed",
        "500 trials, each a pair of runs",
        "With 99 % confidence epsilon is at least",
        "Not refuted: the attack proved",
        "An audit can refute a promise, not prove it",
    ):
        assert words in out
    assert "stands" not in out
    _, out = said(monkeypatch, capsys, folder / "private.toml", "--one-run")
    assert "1200 trials, each one canary of a single run" in out
    assert "Not refuted: the attack proved" in out
    _, out = said(monkeypatch, capsys, folder / "laplace.toml", "--one-run")
    assert "Could not have refuted: so few trials prove at most epsilon" in out
    assert "--runs 10000 could" in out


@pytest.mark.parametrize(
    ("lower", "promised", "shown", "more"),
    [
        (3.0049, 3.0, "at least 3.004.", "REFUTED"),
        (3.00001, 3.0, "at least 3.00001.", "REFUTED"),
        (2.999, 3.0, "at least 2.999.", "proved 99 % of the promised epsilon"),
        (0.0, 3.0, "at least 0.", "Nothing found"),
    ],
)
def test_what_is_printed_is_rounded_so_that_the_larger_looks_larger(lower, promised, shown, more, capsys):
    bound = Bound(lower, 1e-5, 0.99, "how", 500)
    cost = Cost(promised, 1e-5, "accountant")
    finding = Finding("server", "ada", "one", "canary", cost, None, 1e-5, False, 500, bound, "a pair", accuracy=0.99996)
    audit_cli._words(finding)
    out = capsys.readouterr().out
    assert shown in out
    assert more in out
    assert "in 99.9 % of cases" in out
    if finding.refuted:
        assert "at most 1 % of sound plans" in out
    audit = schema.read(Audit, finding.to_json() | {"versions": {}}, "audit")
    page = pages.render("audit.html.j2", attacked=audit, audits=[audit])
    assert f">{shown.removeprefix('at least ').removesuffix('.')}, with 99 % confidence<" in page
    assert ">99.9 % (guessing: 50 %)<" in page


def test_numbers_for_machines(folder, monkeypatch, capsys):
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 500, "--observer", "wire", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["observer"] == "wire"
    assert (told["confidence"], told["delta"], told["trials"]) == (0.99, 1e-5, 500)
    assert told["trial"] == "a pair of runs with the same noise, one without the canary and one with it"
    assert (told["epsilon_budget"], told["largest_possible"], told["rehearsal"]) == (3.0, "infinity", True)
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
    assert "claims no epsilon" in out
    assert "read as they are" in out
    _, out = said(monkeypatch, capsys, folder / "open.toml", "--json")
    told = json.loads(out)
    assert told["epsilon_lower"] is None
    assert told["epsilon_accounted"] == "infinity"


def test_a_refuted_promise_has_an_exit_code_of_its_own(folder, monkeypatch, capsys):
    monkeypatch.setattr("silograph.tasks.smooth_graph.clip_rows", lambda x, radius: 3.0 * x)
    code, out = said(monkeypatch, capsys, folder / "private.toml", "--runs", 500)
    assert code == 3
    assert "REFUTED" in out
    assert "Do not run this" in out
    assert "By chance an audit accuses at most 1 % of sound plans" in out


def test_a_finding_is_printed_before_it_is_written_and_a_full_disk_is_no_refutation(
    folder, tmp_path, monkeypatch, capsys
):
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("silograph.audit.kept.write_atomically", full)
    for more in ((), ("--json",)):
        monkeypatch.setattr(sys, "argv", ["silograph", "audit", str(out), "--runs", "200", *more])
        with pytest.raises(SystemExit) as end:
            cli.main()
        told = capsys.readouterr()
        assert end.value.code == 1
        assert "Not refuted" in told.out or json.loads(told.out)["refuted"] is False
        assert "audit.json: No space left on device. The finding is printed above" in told.err
    assert not (out / "audit.json").exists()


def test_an_interrupted_audit_does_not_claim_to_go_on(folder, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("silograph.audit.audit.play", stop)
    monkeypatch.setattr(sys, "argv", ["silograph", "audit", str(folder / "private.toml")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr().err
    assert end.value.code == 130
    assert "starts again from the beginning" in told
    assert "to resume" not in told


def test_help_says_what_exit_codes_mean(monkeypatch, capsys):
    _, out = said(monkeypatch, capsys, "--help")
    words = " ".join(out.replace("│", " ").split())
    assert "Exit code 0: not refuted. 3: refuted. 2: bad input. 1: a failure" in words
    assert "A plan file: the plan is attacked, and nothing is written. A run folder: its plan is attacked" in words
    assert "safe from" not in words


# ---- of a finished run -----------------------------------------------------------------------------------------------


def finished(name, folder, out, monkeypatch, capsys):
    import tomli_w

    path = folder / f"{out.name}.toml"
    path.write_text(tomli_w.dumps({**PRIVATE, "open": OPEN["graphs, exact"]}[name]))
    code, _ = said(monkeypatch, capsys, path, "-o", out, command="run")
    assert code == 0
    return out


@pytest.mark.parametrize(
    "name",
    [
        "graphs, one release",
        "federation, trusted server",
        "clusters, records, linearised",
        "clusters, clients, trusted server",
        "meta, first order",
    ],
)
def test_what_is_found_of_a_finished_run_is_in_its_report(name, folder, tmp_path, monkeypatch, capsys):
    if name.startswith("meta"):
        pytest.importorskip("torch", reason="neural networks need the extra `neural`")
    out = finished(name, folder, tmp_path / "out", monkeypatch, capsys)
    before = build(out)
    assert "Attacked" not in before
    code, said_so = said(monkeypatch, capsys, out, "--runs", 200)
    assert code == 0
    assert f"report: {out / 'report.html'}" in said_so
    (told,) = json.loads((out / "audit.json").read_text())["audits"]
    assert told["versions"]["silograph"]
    page = (out / "report.html").read_text()
    assert page == build(out) != before
    shown = {row[0]: row[1] for row in table(page, "Attacked")}
    assert shown["ε, at least"].endswith("with 99 % confidence")
    assert float(shown["ε, at least"].split(",")[0]) <= told["epsilon_lower"] <= told["epsilon_accounted"]
    assert float(shown["ε, promised"]) >= told["epsilon_accounted"] * (1.0 - 1e-12)
    assert (shown["δ"], shown["Refuted"]) == ("10⁻⁵", "no")
    assert shown["Randomness"] == "a rehearsal: the plan has a seed"
    assert '<li><a href="#attacked">Attacked</a></li>' in page
    assert "Attacked</a>" not in before
    assert shown["Trials"].startswith("200, each a pair of runs")
    words = Page(page).text
    assert "promise stands" not in words
    assert "A rehearsal: whoever knows the seed" in words
    assert "An attacker who knows everything but one" in words
    assert "An audit cannot prove a promise, it can refute one." in words
    assert not list(out.glob("*.tmp"))


def test_a_run_without_privacy_shows_what_the_attack_made_of_it(folder, tmp_path, monkeypatch, capsys):
    out = finished("open", folder, tmp_path / "out", monkeypatch, capsys)
    assert said(monkeypatch, capsys, out)[0] == 0
    words = Page((out / "report.html").read_text()).text
    assert "The plan claims no epsilon against the server" in words
    assert "read as they are" in words
    assert "The promise stands" not in words


def test_a_refuted_run_is_called_private_no_more(folder, tmp_path, monkeypatch, capsys):
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)
    monkeypatch.setattr("silograph.tasks.smooth_graph.clip_rows", lambda x, radius: 3.0 * x)
    assert said(monkeypatch, capsys, out, "--runs", 500)[0] == 3
    page = (out / "report.html").read_text()
    assert '<div class="verdict none"><strong>Refuted by an attack</strong>' in page
    assert "Do not rely on the guarantees above." in page
    assert "By chance an audit accuses at most 1 % of sound plans" in page
    assert ["Refuted", "yes"] in table(page, "Attacked")
    # A weaker audit afterwards does not hide it, and the bill says so too.
    monkeypatch.undo()
    monkeypatch.setattr("silograph.audit.audit.secret_root", lambda: 1_000_000)
    assert said(monkeypatch, capsys, out, "--one-run")[0] == 0
    page = (out / "report.html").read_text()
    assert ["Refuted", "yes"] in table(page, "Attacked")
    assert [row[0] for row in table(page, "Attacked")].count("Another audit") == 1
    assert "with 1,200 trials, not refuted" in dict(table(page, "Attacked"))["Another audit"]
    assert len(json.loads((out / "audit.json").read_text())["audits"]) == 2
    assert "REFUTED by an audit" in said(monkeypatch, capsys, out, command="privacy")[1]
    assert json.loads(said(monkeypatch, capsys, out, "--json", command="privacy")[1])["refuted"] is True


def test_a_folder_whose_plan_was_edited_is_not_audited_as_that_plan(folder, tmp_path, monkeypatch, capsys):
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)
    plan = out / "plan.toml"
    plan.write_text(plan.read_text().replace("epsilon = 3.0", "epsilon = 30.0"))
    monkeypatch.setattr(sys, "argv", ["silograph", "audit", str(out), "--runs", "200"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "the plan that ran, as result.json notes it" in capsys.readouterr().err
    assert not (out / "audit.json").exists()


def test_tables_that_are_elsewhere_are_asked_for(folder, tmp_path, monkeypatch, capsys):
    """As after a deployment: the folder of the run is here, the tables are with the organisations."""
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
    monkeypatch.setattr(sys, "argv", ["silograph", "audit", str(folder)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "its result.json is missing" in capsys.readouterr().err
    assert not (folder / "audit.json").exists()


@pytest.fixture
def audited(folder, tmp_path, monkeypatch, capsys):
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)
    assert said(monkeypatch, capsys, out, "--runs", 200)[0] == 0
    return out


def changed(**values):
    return lambda told: told | {"audits": [told["audits"][0] | values]}


DAMAGE = {
    "no object": lambda told: [],
    "a missing key": lambda told: {key: value for key, value in told.items() if key != "audits"},
    "a missing number": lambda told: told | {"audits": [{"observer": "server"}]},
    "a newer format": lambda told: told | {"format": 3},
    "of another plan": lambda told: told | {"plan": "0" * 64},
    "of another ledger": lambda told: told | {"ledger": "1:0"},
    "a bound that is text": changed(epsilon_lower="much"),
    "no bound": changed(epsilon_lower=None),
    "a negative bound": changed(epsilon_lower=-1.0),
    "more confidence than there is": changed(confidence=1.5),
    "no number": changed(delta=float("nan")),
    "refuted without a reason": changed(refuted=True),
    "a refutation that is hidden": changed(epsilon_lower=9.0),
    "a promise that was made larger": changed(epsilon_accounted=9.0, epsilon_budget=9.0),
    "another delta": changed(delta=1e-3),
    "another protected unit": changed(protected_unit="one agent"),
    "an observer nobody knows": changed(observer="the moon"),
    "no trials": changed(trials=0),
    "a rehearsal that is hidden": changed(rehearsal=False),
    "attacks that are numbers": changed(attacks=[1]),
    "a leak that refutes nothing": changed(leak="message 'x' changes with the records"),
    "a leak without an infinite bound": changed(leak="x", epsilon_lower=9.0, refuted=True, how=None, bounds=[]),
    "an infinite bound without a leak": changed(epsilon_lower="infinity", refuted=True, how=None, bounds=[]),
    "more found than could be": changed(largest_possible=0.2, could_refute=False),
    "a refutation that could not be": changed(largest_possible=3.5, could_refute=False),
    "another bound than the first": changed(bounds=[{"how": "Clopper-Pearson", "epsilon": 7.0, "trials": 160}]),
    "no bounds": changed(bounds=[]),
    "half the confidence": changed(confidence=0.5),
    "a larger budget": changed(epsilon_budget=100.0),
    "no budget": changed(epsilon_budget=None),
    "a site nobody knows": changed(site="nobody"),
    "could not, though there is no limit": changed(could_refute=False),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_or_foreign_audit_is_refused(how, audited):
    path = audited / "audit.json"
    path.write_text(json.dumps(DAMAGE[how](json.loads(path.read_text()))))
    with pytest.raises(DamageError, match=r"audit\.json") as raised:
        build(audited)
    assert "Restore audit.json from a copy" in str(raised.value)


def test_half_an_audit_is_refused_with_advice_and_not_written_over(audited, monkeypatch, capsys):
    path = audited / "audit.json"
    half = path.read_text()[:100]
    path.write_text(half)
    with pytest.raises(DamageError, match="does not parse") as raised:
        build(audited)
    assert "remove it and audit the folder again; a refutation that it held is lost then" in str(raised.value)
    assert said(monkeypatch, capsys, audited, "--runs", 200)[0] == 2
    assert path.read_text() == half
    path.unlink()
    assert said(monkeypatch, capsys, audited, "--runs", 200)[0] == 0
    assert "Attacked" in build(audited)


def test_a_leak_and_hostile_words_are_shown_as_they_are(audited, monkeypatch, capsys):
    path = audited / "audit.json"
    leak = {"leak": NASTY, "epsilon_lower": "infinity", "refuted": True, "how": None, "bounds": [], "accuracy": None}
    path.write_text(json.dumps(changed(**leak)(json.loads(path.read_text()))))
    page = Page(build(audited))
    only_own_scripts(page)
    assert f"can recognise it however large the noise is: {NASTY}. No epsilon holds" in page.text
    told = said(monkeypatch, capsys, audited, command="privacy")[1]
    assert "REFUTED by an audit" in told
    assert "No epsilon holds, however large the noise" in told
    assert json.loads(said(monkeypatch, capsys, audited, "--json", command="privacy")[1])["leak"] == NASTY


def test_a_finding_that_no_page_could_show_leaves_the_folder_as_it_was(folder, tmp_path, monkeypatch, capsys):
    out = finished("graphs, one release", folder, tmp_path / "out", monkeypatch, capsys)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    monkeypatch.setattr("silograph.audit.audit._protected_unit", lambda rows, stage: "one agent")
    monkeypatch.setattr(sys, "argv", ["silograph", "audit", str(out), "--runs", "200"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "Nothing was written" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    build(out)
