"""A run told to MLflow: parameters, metrics by round, epsilon, the report; under privacy only what was released."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from pages import change
from silograph import cli, tracking
from silograph.tracking import TrackingError, tracked

TABLES = ("a", "b", "c")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("tracked")
    for k, name in enumerate(TABLES):
        table = np.random.default_rng(k).normal(size=(400, 5))
        np.savetxt(home / f"{name}.csv", table, delimiter=",", header="n0,n1,n2,n3,n4", comments="")
    return home


def learn(home, out, *words):
    """Exit code of `silograph learn` on the three tables."""
    files = [str(home / f"{name}.csv") for name in TABLES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["silograph", "learn", *files, "-o", str(home / out), "--degree", "2", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    return stopped.value.code or 0


@pytest.fixture(scope="module")
def folders(home):
    assert learn(home, "open", "--seed", "1", "--learner", "papers") == 0
    assert learn(home, "private", "--seed", "1", "--epsilon", "3", "--delta", "1e-5") == 0
    return home / "open", home / "private"


def test_all_that_is_told_is_in_the_folder(folders):
    folder, _ = folders
    result = json.loads((folder / "result.json").read_text())
    said = tracked(folder)
    assert said == tracked(folder)
    assert said.parameters["method.degree"] == "2.0"
    assert said.parameters["chosen.beta"] == str(result["parameters"]["beta"])
    gaps = {step: value for name, value, step in said.metrics if name == "trace/gap"}
    assert gaps == {line["round"]: line["gap"] for line in result["trace"] if line["gap"] is not None}
    final = {name: value for name, value, step in said.metrics if not name.startswith("trace/")}
    assert final["certified_gap"] == result["certified_gap"]
    assert final["sites/a/edges"] == result["sites"][0]["edges"]
    assert said.tags["epsilon/a/server"] == "infinity"
    assert not any(name.startswith("epsilon") for name in final)


def test_epsilon_is_told_for_every_site_and_observer(folders):
    _, folder = folders
    result = json.loads((folder / "result.json").read_text())
    said = tracked(folder)
    metrics = {name: value for name, value, _ in said.metrics}
    for guarantee in result["privacy"]["guarantees"]:
        where = f"{guarantee['site']}/{guarantee['observer']}"
        assert metrics[f"epsilon/{where}"] == guarantee["epsilon"] <= 3.0
        assert metrics[f"delta/{where}"] == guarantee["delta"]
    assert said.tags["privacy.protected_unit"].startswith("one signal")


def test_under_privacy_only_released_numbers_are_told(folders, tmp_path):
    """A number without a mark, and one that only the simulation knows, stay in the folder; without a budget they are
    told, since nothing is protected."""
    for folder, expected in zip(folders, (True, False), strict=True):
        copy = tmp_path / folder.name
        copy.mkdir()
        for name in ("plan.toml", "result.json"):
            (copy / name).write_bytes((folder / name).read_bytes())
        marks = json.loads((copy / "result.json").read_text())["numbers_are"] | {"comparison": "simulation only"}
        secret = [{"name": "x", "secret": 41.5}]
        change(copy, unmarked=42.5, comparison=[{"method": "m", "edges": 43.5}], numbers_are=marks, other=secret)
        values = {value for _, value, _ in tracked(copy).metrics}
        assert ({41.5, 42.5, 43.5} <= values) is expected
        assert expected or not {41.5, 42.5, 43.5} & values


@pytest.mark.parametrize("open_or_private", [0, 1])
@pytest.mark.parametrize("part", [[], [{"method": "m", "edges": 43.5}]])
def test_a_report_with_numbers_of_the_simulation_stays_under_privacy(folders, tmp_path, open_or_private, part):
    folder, copy = folders[open_or_private], tmp_path / "copy"
    shutil.copytree(folder, copy)
    marks = json.loads((copy / "result.json").read_text())["numbers_are"] | {"comparison": "simulation only"}
    change(copy, comparison=part, numbers_are=marks)
    stays = bool(open_or_private and part)
    assert tracked(copy).report is not stays
    assert ("report" in tracked(copy).tags) is stays


def test_names_are_what_mlflow_allows(folders):
    assert tracking._name(("a:b", 'c"d', "é")) == "a_b/c_d/é"


def test_without_mlflow_nothing_is_begun(home, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    assert learn(home, "never", "--track", "mlflow") == 2
    assert "silograph[tracking]" in capsys.readouterr().err
    assert not (home / "never").exists()


# ---- with MLflow -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client_of():
    pytest.importorskip("mlflow", reason="needs the extra tracking")
    from mlflow.tracking import MlflowClient

    return MlflowClient


def test_a_run_is_stored_with_its_report(home, folders, client_of, monkeypatch, capsys):
    """By the command line, in a store of its own; the run itself is the same as without."""
    uri = f"sqlite:///{home / 'store.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(home)
    assert learn(home, "stored", "--seed", "1", "--learner", "papers", "--track", "mlflow", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rounds"]
    client = client_of(tracking_uri=uri)
    experiment = client.get_experiment_by_name("silograph")
    (run,) = client.search_runs([experiment.experiment_id])
    said = tracked(home / "stored")
    assert run.data.params == said.parameters
    assert run.info.status == "FINISHED"
    last = {name: value for name, value, _ in said.metrics}
    assert run.data.metrics == pytest.approx(last)
    history = client.get_metric_history(run.info.run_id, "trace/gap")
    assert [(m.step, m.value) for m in history] == [(s, v) for name, v, s in said.metrics if name == "trace/gap"]
    assert [artifact.path for artifact in client.list_artifacts(run.info.run_id)] == ["report.html"]
    assert (home / "stored" / "consensus.csv").read_bytes() == (folders[0] / "consensus.csv").read_bytes()


def test_exact_scores_of_a_private_run_reach_no_store(tmp_path, client_of, monkeypatch):
    """A start for networks with a budget, tried by new clients: the folder's page shows their scores, and no store."""
    pytest.importorskip("torch", reason="neural networks need the extra `neural`")
    plan = tmp_path / "devices" / "plan.toml"
    monkeypatch.setattr(sys, "argv", ["silograph", "sample", str(plan.parent), "--devices"])
    with pytest.raises(SystemExit):
        cli.main()
    plan.write_text(re.sub(r"(?m)^# rounds = .*$", "rounds = 2", plan.read_text()))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["silograph", "run", str(plan), "-o", str(tmp_path / "out"), "--track", "mlflow"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["new"]
    client = client_of(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])
    (run,) = client.search_runs([client.get_experiment_by_name("silograph").experiment_id])
    assert client.list_artifacts(run.info.run_id) == []
    assert "simulation" in run.data.tags["report"]
    scores = {client[key] for client in result["new"] for key in ("before", "after", "alone", "loss")}
    assert not scores & set(run.data.metrics.values())


def test_a_store_that_does_not_answer_keeps_the_run(folders, client_of, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(TrackingError, match=r"http://127\.0\.0\.1:9.*kept in"):
        tracking.send(folders[0])
    assert (folders[0] / "result.json").exists()


def test_the_same_command_tells_of_a_finished_run_again(home, client_of, monkeypatch, capsys):
    monkeypatch.chdir(home)
    words = ("again", "--seed", "1", "--track", "mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert learn(home, *words) == 1
    assert "the same command tells of it again" in capsys.readouterr().err
    files = {path: path.read_bytes() for path in (home / "again").rglob("*") if path.is_file()}
    uri = f"sqlite:///{home / 'again.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert learn(home, *words) == 0
    assert "already finished" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in (home / "again").rglob("*") if path.is_file()} == files
    client = client_of(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("silograph").experiment_id])
    assert run.info.status == "FINISHED"
    assert learn(home, *words, "--beta", "0.5") == 2  # another plan


@pytest.mark.parametrize("secret", ["pass%40word", "pass@word"])
def test_no_text_shows_who_may_write_to_the_store(folders, client_of, monkeypatch, secret):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://somebody:{secret}@127.0.0.1:9")
    with pytest.raises(TrackingError, match=r"http://\*\*\*@127\.0\.0\.1:9") as raised:
        tracking.send(folders[0])
    assert not [word for word in ("somebody", secret, "pass@word") if word in str(raised.value)]
    uri = f"postgresql://somebody:{secret}@store/db"
    assert tracking.masked(f"no password pass@word at {uri}", uri) == "no password *** at postgresql://***@store/db"


def test_mlflows_own_reports_are_off():
    code = (
        "import os; os.environ.pop('MLFLOW_DISABLE_TELEMETRY', None); from silograph import tracking; "
        "tracking.require(); print(os.environ['MLFLOW_DISABLE_TELEMETRY'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    if "silograph[tracking]" in done.stderr:
        pytest.skip("needs the extra tracking")
    assert done.stdout == "true\n"


def test_only_mlflow_can_be_named(home, capsys):
    assert learn(home, "other", "--track", "something") == 2
